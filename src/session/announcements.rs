//! The announcements to a session's client: what it was told, and what it has yet to be told.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use turnwright_llm::{Modalities, ReasoningEffort};
use turnwright_policy::permission::Mode;
use turnwright_types::message::{ATTACHED_PICTURE, PromptPart, UserMessage};
use turnwright_types::update::{ConfigOption, SlashCommand, Update};

/// The delay between the answer to the session's opening and the list of commands. Some editors
/// drop updates for a session that they have not registered yet.
const ANNOUNCE_AFTER: Duration = Duration::from_millis(150);

/// The settings of a session that are stored.
pub(super) type SavedSettings = (Mode, String, ReasoningEffort);

/// The facts that the client knows or has yet to be told.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    /// Notices for the user, which are sent with the first prompt at the earliest.
    pub(super) notices: Vec<String>,
    /// True if the user was told about the sandbox's gaps.
    pub(super) are_gaps_reported: bool,
    /// The kinds of content that were advertised for prompts.
    advertised: Modalities,
    /// When the commands will be announced; `None` once they are.
    pub(super) announce_at: Option<Instant>,
    commands: Vec<SlashCommand>,
    /// The settings that the client knows.
    pub(super) settings: Vec<ConfigOption>,
    /// The settings that were stored last.
    saved: Option<SavedSettings>,
}

impl Announcements {
    pub(super) fn new(
        notices: Vec<String>,
        advertised: Modalities,
        settings: Vec<ConfigOption>,
    ) -> Announcements {
        Announcements {
            notices,
            advertised,
            announce_at: Some(Instant::now() + ANNOUNCE_AFTER),
            settings,
            ..Announcements::default()
        }
    }

    /// Takes the notices that may be sent now. The gaps of the sandbox are reported once.
    pub(super) fn take_notices(&mut self, sandbox_gaps: Option<&str>) -> Vec<String> {
        if let Some(gaps) = sandbox_gaps.filter(|_| !self.are_gaps_reported) {
            self.are_gaps_reported = true;
            self.notices.push(format!("The sandbox has gaps here. {gaps}"));
        }
        std::mem::take(&mut self.notices)
    }

    /// Counts the delay of the commands from now on, unless they were announced.
    pub(super) fn delay_commands(&mut self) {
        self.announce_at = self.announce_at.map(|_| Instant::now() + ANNOUNCE_AFTER);
    }

    /// The first announcement of the commands; `None` if it was made.
    pub(super) fn announce_commands(&mut self, commands: Vec<SlashCommand>) -> Option<Update> {
        self.announce_at.take()?;
        self.update_commands(commands)
    }

    /// The update of commands that were announced and have changed.
    pub(super) fn update_commands(&mut self, commands: Vec<SlashCommand>) -> Option<Update> {
        if self.announce_at.is_some() || commands == self.commands {
            return None;
        }
        self.commands.clone_from(&commands);
        Some(Update::Commands(commands))
    }

    /// The update of settings that have changed.
    pub(super) fn update_settings(&mut self, settings: Vec<ConfigOption>) -> Option<Update> {
        if settings == self.settings {
            return None;
        }
        self.settings.clone_from(&settings);
        Some(Update::ConfigOptions(settings))
    }

    /// Returns true if these settings must be stored, because they differ from those stored last.
    pub(super) fn must_save(&mut self, current: &SavedSettings) -> bool {
        self.saved.replace(current.clone()).as_ref() != Some(current)
    }

    /// Accepts images and recordings if they were advertised or if the current model takes them
    /// (R-TURN-11). Removes the PDF files that it does not take; the text before each remains.
    pub(super) fn check_media(
        &self,
        prompt: &mut UserMessage,
        supported: Modalities,
    ) -> Result<(), Error> {
        prompt.parts.retain(|part| supported.files || !part.is_pdf());
        let advertised = self.advertised;
        let own = prompt.parts.iter().enumerate().filter(|(at, _)| {
            let before = at.checked_sub(1).and_then(|index| prompt.parts.get(index));
            // An attached picture is replaced by a note if the model takes no images.
            !matches!(before, Some(PromptPart::Resource { text, .. }) if text == ATTACHED_PICTURE)
        });
        let refused = own.map(|(_, part)| part).find_map(|part| match part {
            // Only those that the model takes are left.
            part if part.is_pdf() => None,
            PromptPart::Image(_) if !advertised.images && !supported.images => Some("images"),
            PromptPart::Audio(_) if !advertised.audio && !supported.audio => Some("audio"),
            _ => None,
        });
        match refused {
            Some(what) => {
                Err(Error::InvalidParams(format!("This agent does not take {what} in prompts")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(names: &str) -> Vec<SlashCommand> {
        let command = |name: char| SlashCommand {
            name: name.to_string(),
            description: String::new(),
            hint: None,
            skill: None,
        };
        names.chars().map(command).collect()
    }

    fn names(update: Option<Update>) -> String {
        match update {
            Some(Update::Commands(commands)) => {
                commands.into_iter().map(|command| command.name).collect()
            }
            Some(other) => format!("{other:?}"),
            None => "-".to_owned(),
        }
    }

    #[test]
    fn commands_are_announced_once_and_then_only_when_they_change() {
        let table = [
            ("announce:ab announce:ab update:ab update:abc", "ab - - abc"),
            ("update:ab announce:ab update:a update:a", "- ab a -"),
            ("delay: announce:a delay: announce:b", "- a - -"),
        ];
        for (steps, expected) in table {
            let mut told = Announcements::new(Vec::new(), Modalities::default(), Vec::new());
            let mut seen = Vec::new();
            for step in steps.split(' ') {
                seen.push(match step.split_once(':').unwrap() {
                    ("announce", names_) => names(told.announce_commands(commands(names_))),
                    ("update", names_) => names(told.update_commands(commands(names_))),
                    _ => {
                        told.delay_commands();
                        "-".to_owned()
                    }
                });
            }
            assert_eq!(seen.join(" "), expected, "{steps}");
        }
    }

    #[test]
    fn notices_are_taken_once_and_the_gaps_of_the_sandbox_are_reported_once() {
        let mut told = Announcements::new(vec!["a".to_owned()], Modalities::default(), Vec::new());
        assert_eq!(told.take_notices(None), ["a"]);
        told.notices.push("b".to_owned());
        assert_eq!(told.take_notices(Some("G.")), ["b", "The sandbox has gaps here. G."]);
        assert!(told.take_notices(Some("G.")).is_empty());
    }

    #[test]
    fn settings_are_stored_and_sent_only_when_they_change() {
        let setting = |current: &str| {
            let id = turnwright_types::update::ConfigOptionId::Model;
            vec![ConfigOption { id, current: current.to_owned(), choices: Vec::new() }]
        };
        let mut told = Announcements::new(Vec::new(), Modalities::default(), setting("a"));
        let changes =
            ["a", "b", "b", "a"].map(|name| told.update_settings(setting(name)).is_some());
        assert_eq!(changes, [false, true, false, true]);
        told.settings = setting("c");
        assert!(told.update_settings(setting("c")).is_none() && told.settings == setting("c"));
        let saved = |name: &str| (Mode::Ask, name.to_owned(), ReasoningEffort::Default);
        let must_save = ["a", "a", "b", "a"].map(|name| told.must_save(&saved(name)));
        assert_eq!(must_save, [true, false, true, true]);
    }
}
