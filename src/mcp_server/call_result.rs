//! Converts the outcome of a call to an MCP result: bounded, and without control characters that a
//! terminal would interpret.

use serde_json::{Value, json};

use crate::tools::ToolOutcome;
use turnwright_types::effect;
use turnwright_types::text;

/// Maximum size of the text in one result. Tools bound their own output and put the rest into a file;
/// this is the limit for anything that is not bounded otherwise.
const MAX_TEXT_BYTES: usize = 512 * 1024;

pub(super) fn call_result(outcome: ToolOutcome) -> Value {
    let mut content = vec![json!({ "type": "text", "text": to_safe_text(&outcome.text) })];
    let images = outcome.images.into_iter();
    content.extend(
        images.map(|image| json!({ "type": "image", "data": image.data, "mimeType": image.mime })),
    );
    json!({ "content": content, "isError": !outcome.ok })
}

/// The result of a call that was not made.
pub(super) fn error_result(why: &str) -> Value {
    call_result(ToolOutcome::failed(why))
}

/// Truncates a text and replaces its control characters with control pictures.
pub(super) fn to_safe_text(text: &str) -> String {
    text::clip_bytes(effect::terminal_safe(text.to_owned()), MAX_TEXT_BYTES, "\n[truncated]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_truncated_and_its_control_characters_become_pictures() {
        assert_eq!(to_safe_text("a\tb\n\u{1b}[2Jé"), "a\tb\n␛[2Jé");
        assert!(to_safe_text(&"é".repeat(MAX_TEXT_BYTES)).len() < MAX_TEXT_BYTES + 100);
    }
}
