//! What a call has come to → a result of the protocol: bounded, and with nothing in it that a
//! terminal would obey.

use rmcp::model::{CallToolResult, ContentBlock};

use turnwright_types::effect;
use crate::tools::Outcome;

/// Bytes of text. Tools bound what they say, and put the rest into a file; this is for what they
/// have forgotten.
const LONGEST: usize = 512 * 1024;

/// The result.
pub(super) fn result(outcome: Outcome) -> CallToolResult {
    let mut content = vec![ContentBlock::text(plain(&outcome.text))];
    let images = outcome.images.into_iter();
    content.extend(images.map(|it| ContentBlock::image(it.data, it.mime)));
    if outcome.ok { CallToolResult::success(content) } else { CallToolResult::error(content) }
}

/// The same of a call that was not made, and why.
pub(super) fn refusal(why: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(plain(why))])
}

/// Bounded, and with control characters as pictures of them.
pub(super) fn plain(text: &str) -> String {
    let mut text = effect::plain(text.to_owned());
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|it| text.is_char_boundary(*it)).unwrap_or_default();
        text.truncate(end);
        text.push_str("\n[the rest is left out]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_bounded_and_its_control_characters_can_be_seen() {
        assert_eq!(plain("a\tb\n\u{1b}[2Jé"), "a\tb\n␛[2Jé");
        assert!(plain(&"é".repeat(LONGEST)).len() < LONGEST + 100);
    }
}
