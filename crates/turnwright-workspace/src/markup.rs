//! Reads HTML and XML as a series of tags and texts. Web pages and documents share this function, because the program
//! would otherwise contain the tokenizer twice: it is compiled anew for each function that it calls.

use html5gum::emitters::callback::CallbackEmitter;
pub use html5gum::emitters::callback::CallbackEvent as MarkupEvent;
use html5gum::{Span, Tokenizer};

/// Passes the tags and texts to a function, until that returns false. Returns true if all was read. In HTML, elements
/// such as `script` contain no tags.
pub fn read_markup(
    markup: &[u8],
    is_html: bool,
    handle: &mut dyn FnMut(&MarkupEvent<'_>) -> bool,
) -> bool {
    let mut emitter =
        CallbackEmitter::new(|event: MarkupEvent<'_>, _: Span<()>| (!handle(&event)).then_some(()));
    emitter.naively_switch_states(is_html);
    // It ends with the first value that is returned.
    Tokenizer::new_with_emitter(markup, emitter).next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads up to a start tag of this name. Returns the names of the start tags, and true if all was read.
    fn names_until(last: &str, markup: &str, is_html: bool) -> (Vec<String>, bool) {
        let mut names = Vec::new();
        let is_whole = read_markup(markup.as_bytes(), is_html, &mut |event| {
            if let MarkupEvent::OpenStartTag { name } = event {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
            names.last().is_none_or(|name| name != last)
        });
        (names, is_whole)
    }

    #[test]
    fn reading_ends_with_the_text_or_when_it_is_told_to() {
        let markup = "<a><title><b></title><c>";
        for (last, is_html, expected, is_whole) in [
            ("", false, "a title b c", true),
            ("", true, "a title c", true),
            ("a", true, "a", false),
        ] {
            let (names, was_whole) = names_until(last, markup, is_html);
            assert_eq!((&*names.join(" "), was_whole), (expected, is_whole));
        }
    }
}
