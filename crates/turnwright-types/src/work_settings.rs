//! The settings for how a session works towards success at its task. A turn gets this as a value, because it knows
//! of no settings file.

/// The most slices of work towards a goal.
pub const DEFAULT_GOAL_TURNS: u32 = 20;

/// When a turn that has changed files must prove its work before it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    Off,
    /// As a person who watches would expect it.
    #[default]
    Auto,
    Always,
}

impl Verify {
    /// The names in settings, in the order of the variants.
    pub const NAMES: [&str; 3] = ["off", "auto", "always"];

    pub fn id(self) -> &'static str {
        Verify::NAMES[self as usize]
    }

    pub fn parse(name: &str) -> Option<Verify> {
        let all = [Verify::Off, Verify::Auto, Verify::Always];
        all.into_iter().find(|verify| verify.id() == name)
    }
}

/// Which language servers say what an edit has broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LspMode {
    Off,
    /// Installed servers run in projects that the user trusts.
    #[default]
    Auto,
    /// Installed servers run in every project.
    On,
}

impl LspMode {
    pub const ALL: [LspMode; 3] = [LspMode::Off, LspMode::Auto, LspMode::On];

    /// The name in settings.
    pub fn id(self) -> &'static str {
        match self {
            LspMode::Off => "off",
            LspMode::Auto => "auto",
            LspMode::On => "on",
        }
    }

    /// The inverse of [`LspMode::id`].
    pub fn parse(id: &str) -> Option<LspMode> {
        LspMode::ALL.into_iter().find(|mode| mode.id() == id)
    }
}

/// The set of tools that the model is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The size of the model decides.
    #[default]
    Auto,
    All,
    Few,
}

impl ToolChoice {
    /// The names in settings.
    pub const NAMES: [&str; 3] = ["auto", "all", "few"];

    pub fn parse(name: &str) -> Option<ToolChoice> {
        let all = [ToolChoice::Auto, ToolChoice::All, ToolChoice::Few];
        all.into_iter().find(|choice| ToolChoice::NAMES[*choice as usize] == name)
    }
}

/// The settings for how a session works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkSettings {
    pub verify: Verify,
    /// The commands that the project's files name are run as checks.
    pub find_checks: bool,
    /// No person watches who could answer a question.
    pub alone: bool,
    /// The session ends with its turn, so nothing can be told with a later prompt.
    pub one_turn: bool,
    /// The model is told what surrounds it: the machine, its programs and the project's commands.
    pub surroundings: bool,
    pub tools: ToolChoice,
    /// Results that seem to lead nowhere get a hint.
    pub hints: bool,
    /// Notes are offered at the end of a turn.
    pub offer_notes: bool,
    /// The most slices of work towards a goal.
    pub goal_turns: u32,
    /// The model that judges a goal; `None` if it is that of the session.
    pub goal_model: Option<String>,
}

impl Default for WorkSettings {
    fn default() -> WorkSettings {
        WorkSettings {
            verify: Verify::default(),
            find_checks: true,
            alone: false,
            one_turn: false,
            surroundings: true,
            tools: ToolChoice::default(),
            hints: true,
            offer_notes: true,
            goal_turns: DEFAULT_GOAL_TURNS,
            goal_model: None,
        }
    }
}

impl WorkSettings {
    /// Returns the settings of a helper. The turn that has started it verifies the work.
    #[must_use]
    pub fn for_helper(&self) -> WorkSettings {
        WorkSettings { verify: Verify::Off, find_checks: false, hints: false, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_in_settings_is_parsed() {
        assert!(Verify::NAMES.iter().all(|name| Verify::parse(name).is_some()));
        assert!(ToolChoice::NAMES.iter().all(|name| ToolChoice::parse(name).is_some()));
        assert_eq!((Verify::parse("perhaps"), ToolChoice::parse("some")), (None, None));
    }
}
