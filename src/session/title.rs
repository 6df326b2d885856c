//! Derives the title of a session from a prompt. Pure.

use turnwright_types::effect::is_hidden_char;
use turnwright_types::message::{PromptPart, UserMessage};
use turnwright_types::redact;

/// The most characters of a generated title.
const MAX_CHARS: usize = 60;
/// The most characters of a title that the user has chosen.
const MAX_CHOSEN_CHARS: usize = 200;
/// The bytes of a prompt in which a title is searched.
const MAX_SCANNED_BYTES: usize = 16 * 1024;

/// Returns a title for a conversation that starts with this prompt: the first line of the user's
/// text with a meaning.
pub(super) fn from_prompt(prompt: &UserMessage) -> Option<String> {
    let texts = prompt.parts.iter().filter_map(|it| match it {
        PromptPart::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.into_iter().find_map(from_text)
}

fn from_text(text: &str) -> Option<String> {
    let end = char_boundary(text, MAX_SCANNED_BYTES);
    // Redacted before anything is removed or cut off: half a key would not be found.
    let text = redact::text(&text[..end]);
    let is_fence = |it: &&str| it.starts_with("```") || it.starts_with("~~~");
    let mut lines = text.lines().map(str::trim).filter(|it| !is_fence(it));
    lines.find_map(|it| one_line(&without_marks(it))).map(|it| shorten(&it, MAX_CHARS))
}

/// Normalizes a title that the user has chosen; `None` if nothing of it is visible.
pub(super) fn normalize(title: &str) -> Option<String> {
    let end = char_boundary(title, MAX_SCANNED_BYTES);
    one_line(&redact::text(&title[..end])).map(|it| shorten(&it, MAX_CHOSEN_CHARS))
}

/// The last character boundary up to this many bytes.
fn char_boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0)
}

/// One line of visible characters with single spaces between the words.
fn one_line(text: &str) -> Option<String> {
    let clean: String = text
        .chars()
        .map(|it| if it.is_whitespace() || it.is_control() { ' ' } else { it })
        .filter(|it| !is_hidden_char(*it))
        .collect();
    let words: Vec<_> = clean.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// A line of Markdown as plain text.
fn without_marks(line: &str) -> String {
    let mut rest = line;
    for mark in ["#", ">", "- ", "* ", "+ "] {
        rest = rest.trim_start_matches(mark).trim_start();
    }
    let text = without_links(rest).replace("**", "").replace("__", "").replace('`', "");
    // A line without letters or digits has no meaning.
    if text.chars().any(char::is_alphanumeric) { text } else { String::new() }
}

/// `[words](target)` becomes `words`.
fn without_links(line: &str) -> String {
    let (mut text, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once('[') {
        let target = after.split_once("](").and_then(|(words, more)| {
            let (_, behind) = more.split_once(')')?;
            (!words.contains('[')).then_some((words, behind))
        });
        text.push_str(before.strip_suffix('!').filter(|_| target.is_some()).unwrap_or(before));
        match target {
            Some((words, behind)) => {
                text.push_str(words);
                rest = behind;
            }
            None => {
                text.push('[');
                rest = after;
            }
        }
    }
    text + rest
}

/// At most this many characters, cut between words where that leaves enough.
fn shorten(text: &str, most: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(most) else { return text.to_owned() };
    let end = text[..end].char_indices().last().map_or(0, |(at, _)| at);
    let start = &text[..end];
    let word_end = start.rfind(' ').filter(|it| *it > end / 2).unwrap_or(end);
    format!("{}…", start[..word_end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_line_that_says_something() {
        let table = [
            ("Fix the build", Some("Fix the build")),
            ("\n\n  ## Fix `cargo  test`\nand more", Some("Fix cargo test")),
            ("> - **Why** is [this](http://x/y) so?", Some("Why is this so?")),
            ("![shot](a.png) look", Some("shot look")),
            ("a[0] and [b", Some("a[0] and [b")),
            ("```rust\nfn main() {}\n```", Some("fn main() {}")),
            ("---\n***\nreal", Some("real")),
            ("\u{1b}[31mred\u{202e}\u{200b} text\u{0}", Some("[31mred text")),
            ("看看 src/*.rs 里的 snake_case", Some("看看 src/*.rs 里的 snake_case")),
            ("", None),
            (" \u{200b}\n#\n", None),
        ];
        for (text, expected) in table {
            assert_eq!(from_text(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_title_is_short_and_ends_with_a_word() {
        let title = from_text(&"words and words ".repeat(10)).unwrap();
        assert_eq!(title, "words and words words and words words and words words and…");
        assert_eq!(from_text(&"é".repeat(100)).unwrap(), format!("{}…", "é".repeat(59)));
        assert_eq!(from_text(&"é".repeat(60)).unwrap(), "é".repeat(60));
        assert_eq!(normalize(&"x".repeat(5_000)).unwrap().chars().count(), 200);
    }

    #[test]
    fn a_chosen_title_keeps_its_marks_and_is_one_visible_line() {
        assert_eq!(normalize("  # My\n\ttitle *\u{202e}* ").unwrap(), "# My title **");
        for nothing in ["", " \n\t", "\u{200b}\u{202e}", "\u{0}\u{7}"] {
            assert_eq!(normalize(nothing), None, "{nothing:?}");
        }
    }
}
