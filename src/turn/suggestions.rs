//! Prompts that the user may want to send next. They are made without the model, from what a turn has left open: a
//! failed check, and steps of the plan that are not done.

use std::sync::Arc;

use super::Turn;
use super::proof::is_check;
use super::room::handoff::stored_facts;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::message::{Arguments, Message};
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_types::update::{COMMAND_TOOL, PlanStatus};

/// The most suggestions after a turn.
const MAX_SUGGESTIONS: usize = 3;
/// Writes the note that the turn has offered.
const REMEMBER: &str = "/remember";
/// The most characters of a suggestion.
const MAX_CHARS: usize = 200;

impl Turn {
    /// Suggests prompts after this turn, the likeliest first, to a client that shows them.
    pub(super) async fn suggest_prompts(&self, offers_note: bool) {
        if !self.conversation.client().shows_suggestions() {
            return;
        }
        let messages = self.history.messages.get(self.prompt.first_message..).unwrap_or_default();
        let fix = failed_check(messages).map(|line| format!("Fix what fails: {line}"));
        let (plan, ..) = stored_facts(&self.conversation).await;
        let open = plan.iter().filter(|step| step.status != PlanStatus::Completed);
        let steps = open.map(|step| format!("Continue with: {}", step.content));
        let note = offers_note.then(|| REMEMBER.to_owned());
        let all = fix.into_iter().chain(note).chain(steps).take(MAX_SUGGESTIONS);
        self.conversation.suggest(all.map(|words| suggestion(&words)).collect());
    }
}

/// Makes one short line without keys. Keys are removed before it is shortened, because part of a key would not be
/// found.
fn suggestion(words: &str) -> String {
    text::clip_within(escape_hidden_line(&text::one_line(&redact::text(words))), MAX_CHARS)
}

/// The command line of the last check of a turn, if that check failed.
fn failed_check(messages: &[Arc<Message>]) -> Option<&str> {
    let answers = messages.iter().filter_map(|message| message.as_assistant());
    let commands: Vec<_> =
        answers.flat_map(|answer| &answer.calls).filter(|call| call.name == COMMAND_TOOL).collect();
    let results = messages.iter().rev().filter_map(|message| message.as_tool());
    let mut checks = results.filter_map(|result| {
        let call = commands.iter().copied().find(|call| call.id == result.call)?;
        let Arguments::Object(arguments) = &call.arguments else { return None };
        let line = arguments.get("command").or_else(|| arguments.get("cmd"))?.as_str()?;
        // Any other result means that the command was refused, stopped or left running.
        let has_ended = ["[exit ", "[killed by "].iter().any(|end| result.text.starts_with(end));
        (has_ended && is_check(line)).then_some((line, result.ok))
    });
    checks.next().filter(|(_, is_good)| !is_good).map(|(line, _)| line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use turnwright_types::message::{AssistantMessage, ToolCall, ToolMessage};

    /// A turn that has run these lines, with the beginning of each result.
    fn turn(commands: &[(&str, &str)]) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for (number, (line, result)) in commands.iter().enumerate() {
            let id = format!("call-{number}");
            let call = ToolCall::new(id.as_str(), "p", COMMAND_TOOL, json!({ "command": line }));
            let answer = AssistantMessage::new("m", "", vec![call]);
            messages.push(Arc::new(Message::Assistant(answer)));
            messages.push(Arc::new(Message::Tool(ToolMessage {
                call: id.as_str().into(),
                provider_id: "p".to_owned(),
                name: COMMAND_TOOL.to_owned(),
                text: format!("[{result} · 0.1 s]\nout of the command"),
                ok: *result == "exit 0",
                images: Vec::new(),
            })));
        }
        messages
    }

    #[test]
    fn the_last_check_of_a_turn_counts() {
        let test = "cargo test";
        let table = [
            (vec![(test, "exit 101")], Some(test)),
            (vec![(test, "killed by SIGABRT"), ("ls", "exit 2")], Some(test)),
            (vec![(test, "exit 101"), ("cargo test -q", "exit 0")], None),
            (vec![("ls build", "exit 2")], None),
            (vec![(test, "exit 101"), ("rm -rf build", "exit 0")], Some(test)),
            (vec![(test, "stopped: it held too much")], None),
            (vec![(test, "The user refused it")], None),
            (vec![], None),
        ];
        for (commands, expected) in table {
            assert_eq!(failed_check(&turn(&commands)), expected, "{commands:?}");
        }
    }

    #[test]
    fn a_suggestion_is_one_short_line_without_hidden_characters() {
        assert_eq!(suggestion("Fix what fails: a\n\tb\u{202e}c"), "Fix what fails: a b\\u{202e}c");
        let long = suggestion(&"ä ".repeat(300));
        assert!(long.chars().count() == MAX_CHARS && long.ends_with('…'), "{long}");
    }
}
