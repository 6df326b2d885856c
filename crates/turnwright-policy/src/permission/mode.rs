//! How much a session may do without asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// The modes, each true to its name: the policy keeps to it, and so does the sandbox.
/// The order is that of strictness, the strictest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Changes nothing and runs only what reads.
    Plan,
    /// Asks before each change and each command that is not known to read only.
    #[default]
    Ask,
    /// Changes files of the project; asks before commands.
    AutoEdit,
    /// Changes files of the project and runs commands in the sandbox.
    Auto,
    /// Does everything, without a sandbox.
    Full,
}

impl Mode {
    /// Every mode, in the order in which a client shows them: the usual one first.
    pub const ALL: [Mode; 5] = [Mode::Ask, Mode::Plan, Mode::AutoEdit, Mode::Auto, Mode::Full];

    /// The name on the wire and in the environment.
    pub fn id(self) -> &'static str {
        match self {
            Mode::Plan => "plan",
            Mode::Ask => "ask",
            Mode::AutoEdit => "auto-edit",
            Mode::Auto => "auto",
            Mode::Full => "full",
        }
    }

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Plan => "Plan",
            Mode::Ask => "Ask",
            Mode::AutoEdit => "Auto-edit",
            Mode::Auto => "Auto",
            Mode::Full => "Full",
        }
    }

    /// What it does, in one line: what is asked about, and what keeps commands in. True for a
    /// machine that can confine them, or for one that cannot.
    pub fn description(self, can_confine: bool) -> &'static str {
        match (self, can_confine) {
            (Mode::Plan, true) => {
                "Only reads and plans; commands that read are run, where they can write nothing"
            }
            (Mode::Plan, false) => "Only reads and plans; changes nothing",
            (Mode::Ask, true) => "Asks before each change and command; commands run in a sandbox",
            (Mode::Ask, false) => {
                "Reads freely in the project; asks before each change and each command"
            }
            (Mode::AutoEdit, true) => {
                "Changes files of the project freely; asks before commands, which run in the sandbox"
            }
            (Mode::AutoEdit, false) => "Changes files of the project freely; asks before commands",
            (Mode::Auto, true) => {
                "Changes files of the project and runs commands in the sandbox, without network; \
                 asks for more"
            }
            (Mode::Auto, false) => {
                "Changes and removes files of the project freely; asks before commands, because \
                 there is no sandbox here"
            }
            (Mode::Full, _) => {
                "Does everything without the sandbox; asks only about protected files"
            }
        }
    }

    /// The mode of that name.
    pub fn parse(id: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|it| it.id() == id)
    }
}

/// The mode of a session: set by it, read by its turn, and by a tool where the user chooses one.
#[derive(Clone, Debug)]
pub struct SharedMode(Arc<Inner>);

impl Default for SharedMode {
    fn default() -> SharedMode {
        SharedMode::new(Mode::default(), Mode::Full)
    }
}

#[derive(Debug)]
struct Inner {
    place: AtomicU8,
    most: Mode,
    /// The user has chosen one on another way than by the session.
    chosen: Notify,
}

impl SharedMode {
    /// A mode, and the one that it never goes beyond.
    pub fn new(mode: Mode, most: Mode) -> SharedMode {
        let inner = Inner { place: AtomicU8::default(), most, chosen: Notify::default() };
        let shared = SharedMode(Arc::new(inner));
        shared.set(mode);
        shared
    }

    /// The mode that it never goes beyond.
    pub fn most(&self) -> Mode {
        self.0.most
    }

    /// The mode now.
    pub fn get(&self) -> Mode {
        let place = usize::from(self.0.place.load(Ordering::Relaxed));
        Mode::ALL.get(place).copied().unwrap_or_default()
    }

    /// Changes it.
    pub fn set(&self, mode: Mode) {
        let mode = mode.min(self.0.most);
        let place = Mode::ALL.iter().position(|it| *it == mode).unwrap_or_default();
        self.0.place.store(u8::try_from(place).unwrap_or_default(), Ordering::Relaxed);
    }

    /// Changes it to what the user has chosen in answer to a question, and has the session tell
    /// the client. Never for what a model wants.
    pub fn choose(&self, mode: Mode) {
        self.set(mode);
        self.0.chosen.notify_one();
    }

    /// Waits until one was chosen.
    pub async fn chosen(&self) {
        self.0.chosen.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_ordered_by_what_they_let_pass_and_none_promises_a_sandbox_that_is_not_there() {
        assert!(Mode::Plan < Mode::Ask && Mode::Ask < Mode::AutoEdit);
        assert!(Mode::AutoEdit < Mode::Auto && Mode::Auto < Mode::Full);
        for mode in Mode::ALL {
            assert_eq!(Mode::parse(mode.id()), Some(mode));
            let without = mode.description(false);
            assert!(!without.contains("in the sandbox") && !without.contains("in a sandbox"));
            let shared = SharedMode::default();
            shared.set(mode);
            assert_eq!(shared.get(), mode);
        }
    }
}
