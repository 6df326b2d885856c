//! How much a session may do without asking.

/// The modes, each true to its name: the policy keeps to it, and so does the sandbox. In their
/// order, the strictest first.
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

    /// What it does, in one line.
    pub fn description(self) -> &'static str {
        match self {
            Mode::Plan => "Only reads and plans; changes nothing",
            Mode::Ask => "Reads freely in the project; asks before each change and each command",
            Mode::AutoEdit => "Changes files of the project freely; asks before commands",
            Mode::Auto => {
                "Changes files of the project and runs commands in the sandbox, without network"
            }
            Mode::Full => "Does everything without asking and without the sandbox",
        }
    }

    /// The mode of that name.
    pub fn parse(id: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|it| it.id() == id)
    }
}
