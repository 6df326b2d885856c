//! Tells the model when a result hides secrets, and keeps it from writing their placeholders where the
//! secrets stand.

use serde_json::Value;

use crate::tools::ToolOutcome;
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::checkpoint::ExpectedChange;

/// What is added to a result in which a secret is hidden.
const NOTE: &str = "[Secrets are hidden above as [hidden:…]. Never write such a placeholder: change only the text \
                    around it.]";

/// Hides the secrets in a result, and says so to the model.
pub(super) fn hide(outcome: &mut ToolOutcome) {
    redact::redact_in_place(&mut outcome.text);
    if redact::placeholders(&outcome.text).next().is_some() {
        outcome.add_line(NOTE);
    }
}

/// Returns true if a string of the arguments contains a placeholder.
pub(super) fn has_placeholder(arguments: &Value) -> bool {
    match arguments {
        Value::String(text) => redact::placeholders(text).next().is_some(),
        Value::Array(items) => items.iter().any(has_placeholder),
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            redact::placeholders(name).next().is_some() || has_placeholder(value)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns true if the call writes nothing but texts whose placeholders are in the files as they are, as
/// in a page about placeholders.
pub(super) fn stand_already(changes: &[ExpectedChange<'_>]) -> bool {
    let is_there = |change: &ExpectedChange<'_>| {
        let before = change.before.map_or("", |it| it.text.as_str());
        let after = change.after.map_or("", |it| it.0);
        redact::placeholders(after).all(|it| before.contains(it))
    };
    !changes.is_empty() && changes.iter().all(is_there)
}

/// The answer to a call that would write a placeholder.
pub(super) fn refusal() -> ToolRefusal {
    ToolRefusal::new(
        "Nothing was done. The arguments contain a [hidden:…] that stands for a secret which you were \
         not shown, and would take its place. Leave it out: change only the text around it, with an \
         edit whose old_text ends before it or begins after it, or with a command that does not name \
         the secret. If the secret itself must change, ask the user.",
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
        ] {
            assert!(has_placeholder(&arguments), "{arguments}");
        }
        assert!(!has_placeholder(&json!({ "a": ["[key]", 1, null, "[hidden:…]"] })));
    }
}
