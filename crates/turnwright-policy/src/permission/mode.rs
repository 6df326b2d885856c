//! Permission modes: how much a session may do without asking.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

/// A permission mode. It decides what is asked, and how commands are confined. Modes are ordered by strictness, the
/// strictest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Changes nothing, and runs only commands that are known to only read.
    Plan,
    /// Asks before each change and before each command that is not known to only read.
    #[default]
    Ask,
    /// Changes files in the session's folders without asking; asks before commands.
    AutoEdit,
    /// Changes files in the session's folders and runs sandboxed commands without asking.
    Auto,
    /// Does almost everything without asking, and runs commands without a sandbox.
    Full,
}

impl Mode {
    /// All modes, in the order in which they are offered to the user: the default one first.
    pub const ALL: [Mode; 5] = [Mode::Ask, Mode::Plan, Mode::AutoEdit, Mode::Auto, Mode::Full];

    /// The identifier in the protocol, in the settings and in the environment.
    pub fn id(self) -> &'static str {
        match self {
            Mode::Plan => "plan",
            Mode::Ask => "ask",
            Mode::AutoEdit => "auto-edit",
            Mode::Auto => "auto",
            Mode::Full => "full",
        }
    }

    /// The name to be shown to the user.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Plan => "Plan",
            Mode::Ask => "Ask",
            Mode::AutoEdit => "Auto-edit",
            Mode::Auto => "Auto",
            Mode::Full => "Full",
        }
    }

    /// One line to be shown to the user, about what the agent asks and how commands are confined. It depends on
    /// whether the system can confine commands.
    pub fn description(self, can_confine: bool) -> &'static str {
        match (self, can_confine) {
            (Mode::Plan, true) => {
                "Only reads and plans; runs read-only commands, in a sandbox that can write nothing"
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
                "Changes and deletes files of the project freely; asks before commands, because \
                 there is no sandbox here"
            }
            (Mode::Full, _) => {
                "Does everything without the sandbox; asks only about protected files, secrets and what could ruin the system"
            }
        }
    }

    /// The mode with this identifier.
    pub fn parse(id: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.id() == id)
    }

    /// The mode whose identifier a person has typed, in upper or lower case.
    pub fn parse_lenient(word: &str) -> Option<Mode> {
        Mode::parse(&word.trim().to_ascii_lowercase())
    }
}

/// The mode of a session, shared between the session, its turns and its tools. The session sets it; a tool may set
/// only a mode that the user has chosen.
#[derive(Clone, Debug)]
pub struct SharedMode {
    /// The mode, and the one before plan mode.
    modes: Arc<watch::Sender<[Mode; 2]>>,
    /// The mode that the settings give to a session.
    start: Mode,
    /// The least strict mode that may be set.
    max: Mode,
    /// Notified when the user has chosen a mode in answer to a question.
    chosen: Arc<Notify>,
}

impl Default for SharedMode {
    fn default() -> SharedMode {
        SharedMode::new(Mode::default(), Mode::Full)
    }
}

impl SharedMode {
    /// Starts in `mode`, which can later be set to any mode that is not less strict than `max`.
    pub fn new(mode: Mode, max: Mode) -> SharedMode {
        let modes = Arc::new(watch::Sender::new([mode.min(max); 2]));
        SharedMode { modes, start: mode, max, chosen: Arc::default() }
    }

    /// The least strict mode that may be set.
    pub fn max_mode(&self) -> Mode {
        self.max
    }

    /// The mode with this identifier. Some clients call the one in which any agent begins `default`.
    pub fn named(&self, id: &str) -> Option<Mode> {
        if id == "default" { Some(self.start.min(self.max)) } else { Mode::parse(id) }
    }

    /// The current mode.
    pub fn get(&self) -> Mode {
        self.modes.borrow()[0]
    }

    /// The mode before plan mode was last set; plan mode itself if the session began in it.
    pub fn before_plan(&self) -> Mode {
        self.modes.borrow()[1]
    }

    /// Sets the mode, or [`max_mode`](SharedMode::max_mode) if that is stricter.
    pub fn set(&self, mode: Mode) {
        let mode = mode.min(self.max);
        self.modes.send_modify(|modes| {
            if mode == Mode::Plan && modes[0] != mode {
                modes[1] = modes[0];
            }
            modes[0] = mode;
        });
    }

    /// Sets the mode that the user has chosen in answer to a question, and wakes
    /// [`wait_for_choice`](SharedMode::wait_for_choice). Must not be called because the model asks for a mode.
    pub fn choose(&self, mode: Mode) {
        self.set(mode);
        self.chosen.notify_one();
    }

    /// Waits until the user has chosen a mode with [`choose`](SharedMode::choose).
    pub async fn wait_for_choice(&self) {
        self.chosen.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_default_is_that_of_the_settings_as_far_as_it_is_allowed() {
        let shared = SharedMode::new(Mode::AutoEdit, Mode::Full);
        shared.set(Mode::Plan);
        assert_eq!(shared.named("default"), Some(Mode::AutoEdit));
        assert_eq!(shared.named("auto"), Some(Mode::Auto));
        assert_eq!(shared.named("Default"), None);
        assert_eq!(SharedMode::new(Mode::Full, Mode::Ask).named("default"), Some(Mode::Ask));
    }

    #[test]
    fn the_mode_before_planning_is_the_last_one_and_never_beyond_the_limit() {
        assert_eq!(SharedMode::new(Mode::Plan, Mode::Full).before_plan(), Mode::Plan);
        let shared = SharedMode::new(Mode::Full, Mode::Auto);
        shared.set(Mode::Plan);
        shared.set(Mode::Plan);
        assert_eq!((shared.get(), shared.before_plan()), (Mode::Plan, Mode::Auto));
        shared.set(Mode::Ask);
        shared.set(Mode::Plan);
        assert_eq!(shared.before_plan(), Mode::Ask);
    }

    #[test]
    fn modes_are_ordered_by_strictness_and_none_promises_a_missing_sandbox() {
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
