//! Tells the model when a result hides secrets, and keeps it from writing their placeholders where the
//! secrets stand.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use crate::tools::ToolOutcome;
use turnwright_types::effect::{CallContent, Effect};
use turnwright_types::redact::{self, FORMER_PLACEHOLDER};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_workspace::checkpoint::ExpectedChange;

/// The line that is added to a result in which a secret is hidden.
const NOTE: &str = "[Secrets are hidden above as [hidden:…]. Never write such a placeholder: change only the text \
                    around it.]";

/// The number of characters before a secret that identify its place.
const MAX_PLACE_CHARS: usize = 16;

/// Hides passwords in URLs and keys in headers in the result of a call that touches files, as in the output of
/// a command.
pub(super) fn hide_placed_keys(outcome: &mut ToolOutcome, effects: &[Effect]) {
    let has_files = effects
        .iter()
        .any(|effect| matches!(effect, Effect::Read(_) | Effect::Write(_) | Effect::Delete(_)));
    if !has_files {
        return;
    }
    let shown = outcome.content.iter_mut().filter_map(|content| match content {
        CallContent::Text(text) => Some(text),
        _ => None,
    });
    for text in shown.chain([&mut outcome.text]) {
        if let Cow::Owned(clean) = redact::text_with_placed_keys(text) {
            *text = clean;
        }
    }
}

/// Hides the secrets in a result, and says so to the model.
pub(super) fn hide(outcome: &mut ToolOutcome) {
    redact::redact_in_place(&mut outcome.text);
    if redact::placeholders(&outcome.text).next().is_some() {
        outcome.add_line(NOTE);
    }
}

/// The placeholders in the arguments of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundPlaceholders {
    /// One that nothing but a redacted text can have: by its form, or by its place in a URL or a header.
    is_certain: bool,
    /// A former one, which may be anything.
    is_possible: bool,
}

impl FoundPlaceholders {
    /// Looks for placeholders in the strings of the arguments.
    pub(super) fn find(arguments: &Value) -> FoundPlaceholders {
        let mut found = FoundPlaceholders::default();
        found.add(arguments);
        found
    }

    fn add(&mut self, arguments: &Value) {
        match arguments {
            Value::String(text) => self.add_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                self.add_text(name);
                self.add(value);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_text(&mut self, text: &str) {
        self.is_certain |= redact::placeholders(text).next().is_some();
        for (start, former) in text.match_indices(FORMER_PLACEHOLDER) {
            let before = text[..start].trim_end_matches(' ');
            let is_in_header =
                ["basic", "bearer"].iter().any(|scheme| ends_with_word(before, scheme));
            self.is_certain |= is_in_header || text[start + former.len()..].starts_with('@');
            self.is_possible = true;
        }
    }

    /// Returns true if the call would bring a placeholder to a place of a secret. `changes` are those that
    /// it would make to files, as far as they are known.
    pub(super) fn are_misplaced(self, changes: &[ExpectedChange<'_>]) -> bool {
        if changes.is_empty() {
            return self.is_certain;
        }
        (self.is_certain || self.is_possible) && changes.iter().any(hides_a_secret)
    }
}

/// Returns true if a text ends with this word, whatever its case, behind a blank, a colon or nothing.
fn ends_with_word(text: &str, word: &str) -> bool {
    text::strip_suffix_ignore_case(text, word)
        .is_some_and(|before| before.is_empty() || before.ends_with([' ', ':']))
}

/// Returns true if a change writes a placeholder that is not in the file as it is, as in a page about
/// placeholders, or a former one in place of a secret.
fn hides_a_secret(change: &ExpectedChange<'_>) -> bool {
    let before = change.before.map_or("", |text| text.text.as_str());
    let after = change.after.map_or("", |(text, _)| text);
    let known: HashSet<&str> = redact::placeholders(before).collect();
    if redact::placeholders(after).any(|placeholder| !known.contains(placeholder)) {
        return true;
    }
    let secrets = redact::secrets(before);
    let secret_places: HashSet<_> =
        secrets.iter().map(|secret| line_start(before, secret.start)).collect();
    let former_before = former_places(before);
    former_places(after).difference(&former_before).any(|place| secret_places.contains(place))
}

/// Returns what stands before each former placeholder in its line.
fn former_places(text: &str) -> HashSet<&str> {
    text.match_indices(FORMER_PLACEHOLDER).map(|(start, _)| line_start(text, start)).collect()
}

/// Returns what stands before a place in its line, or the end of that.
fn line_start(text: &str, place: usize) -> &str {
    // Lines may be long, and have many secrets.
    let end = text::suffix(&text[..place], MAX_PLACE_CHARS * size_of::<char>());
    text::last_chars(end.rsplit('\n').next().unwrap_or_default(), MAX_PLACE_CHARS)
}

/// The answer to a call that would write a placeholder.
pub(super) fn refusal() -> ToolRefusal {
    ToolRefusal::new(
        "Nothing was done. The arguments contain a [hidden:…] that stands for a secret which you were \
         not shown, and would take its place. Leave it out: change only the text around it, with an \
         edit whose old_string ends before it or begins after it, or with a command that does not \
         name the secret. If the secret itself must change, ask the user.",
        "Not done: the model was not shown a secret here and would have written a placeholder in its \
         place",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_placeholder_is_found_wherever_it_stands_in_the_arguments() {
        let hidden = "[hidden:3fa2]";
        for arguments in [
            json!({ "content": format!("a: {hidden}") }),
            json!({ "edits": [{ "old_text": "a" }, { "new_text": hidden }] }),
            json!({ "env": { hidden: 1 } }),
            json!({ "command": "psql postgres://app:[key]@db/app" }),
            json!({ "command": "curl -H 'Authorization: Bearer [key]' x" }),
        ] {
            assert!(FoundPlaceholders::find(&arguments).are_misplaced(&[]), "{arguments}");
        }
        for other in
            ["[key]", "rebasic [key]", "map[key] = 1", "[a][key]", "[hidden:…]", "grep '[key]' a"]
        {
            let found = FoundPlaceholders::find(&json!({ "a": [other, 1, null] }));
            assert!(!found.are_misplaced(&[]), "{other}");
        }
    }
}
