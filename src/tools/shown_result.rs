//! The part of a result that the user sees: the beginning, on the card and in the raw output.

use serde_json::Value;

use super::ToolOutcome;
use turnwright_types::effect::{CallContent, fenced};
use turnwright_types::text;

/// The most bytes of a result that a card shows.
const MAX_BYTES: usize = 16 * 1024;
/// The fields of a raw output that hold the result.
const RESULT_FIELDS: [&str; 7] =
    ["answer", "content", "error", "message", "mode", "output", "result"];

/// The beginning of a result, cut at the end of a line.
pub(super) fn beginning(text: &str) -> String {
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    let start = text::prefix(text, MAX_BYTES);
    let lines = text::whole_lines(start);
    let (shown, line_end) = if lines.is_empty() { (start, "\n") } else { (lines, "") };
    format!("{shown}{line_end}[… {} more bytes]\n", text.len() - shown.len())
}

/// The beginning of a result as the content of a card.
pub(super) fn card_content(text: &str) -> Vec<CallContent> {
    vec![CallContent::Text(fenced(&beginning(text)))]
}

/// The raw output of a call. Clients that show nothing else need the result in it, too.
pub(crate) fn raw_output(outcome: &ToolOutcome) -> Value {
    let mut raw = outcome.raw.clone();
    if let Value::Object(fields) = &mut raw
        && !RESULT_FIELDS.iter().any(|field| fields.contains_key(*field))
    {
        fields.insert("result".to_owned(), beginning(&outcome.text).into());
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_is_cut_at_the_end_of_a_line_and_says_so() {
        assert_eq!(beginning("a\nb"), "a\nb");
        let long = beginning(&"0123456789abcde\n".repeat(2_000));
        assert!(long.ends_with("0123456789abcde\n[… 15616 more bytes]\n"), "{long}");
        let line = beginning(&"é".repeat(10_000));
        assert!(line.ends_with("é\n[… 3616 more bytes]\n") && line.len() < MAX_BYTES + 30);
    }
}
