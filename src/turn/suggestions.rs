//! Prompts that the user may want to send next. They are made without the model, from what a turn has left open: a
//! failed check, and steps of the plan that are not done.

use super::Turn;
use super::room::handoff::stored_facts;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_types::update::PlanStatus;

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
        let failed = self.checks.ledger.failed_check();
        let fix = failed.map(|line| format!("Fix what fails: {line}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggestion_is_one_short_line_without_hidden_characters() {
        assert_eq!(suggestion("Fix what fails: a\n\tb\u{202e}c"), "Fix what fails: a b\\u{202e}c");
        let long = suggestion(&"ä ".repeat(300));
        assert!(long.chars().count() == MAX_CHARS && long.ends_with('…'), "{long}");
    }
}
