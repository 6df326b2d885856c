//! The title of a session: one that is derived from a prompt, until the user has chosen another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::turn::Conversation;
use turnwright_store::{Durability, Store, StoreError, sessions};
use turnwright_types::effect::is_hidden_char;
use turnwright_types::file_link::FileLink;
use turnwright_types::message::{PromptPart, UserMessage};
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_types::update::Update;
use turnwright_workspace::memory::find_secret;

/// The most characters of a generated title.
const MAX_CHARS: usize = 60;
/// The most characters of a title that the user has chosen.
const MAX_CHOSEN_CHARS: usize = 200;
/// The bytes of a prompt in which a title is searched.
const MAX_SCANNED_BYTES: usize = 16 * 1024;

/// The state of a session's title.
#[derive(Debug, Default)]
pub(super) struct SessionTitle {
    /// True if the session has a title, or will have one in a moment.
    pub(super) is_set: bool,
    /// True once the user has chosen a title, which a generated one must not replace.
    is_chosen: Arc<AtomicBool>,
}

impl SessionTitle {
    /// Notes that the user has chosen a title.
    pub(super) fn choose(&mut self) {
        self.is_set = true;
        self.is_chosen.store(true, Ordering::Relaxed);
    }

    /// Gives the session a title unless it has one, and tells the client once the title is stored.
    pub(super) fn suggest(
        &mut self,
        title: Option<String>,
        store: &Store,
        conversation: &Conversation,
    ) -> impl Future<Output = ()> + Send + use<> {
        let title = title.filter(|_| !self.is_set);
        self.is_set |= title.is_some();
        let id = conversation.env.session.clone();
        let words = title.clone();
        let stored = title.is_some().then(|| {
            store.submit(Durability::ProcessCrash, move |connection| {
                let words = words.as_deref().unwrap_or_default();
                sessions::suggest_title(connection, &id, words)
            })
        });
        let client = Arc::clone(conversation.client());
        let is_chosen = Arc::clone(&self.is_chosen);
        async move {
            let Some(stored) = stored else { return };
            // The title is shown even if the store is unusable.
            let is_stored = stored.await.unwrap_or(Err(StoreError::Closed)) != Ok(false);
            if is_stored && !is_chosen.load(Ordering::Relaxed) {
                client.update(Update::SessionInfo { title, updated: SystemTime::now() });
            }
        }
    }
}

/// Returns a title for a conversation that starts with this prompt: the first line of the user's
/// words with a meaning, or else the name of the first attached file.
pub(super) fn from_prompt(prompt: &UserMessage) -> Option<String> {
    from_text(&user_words(prompt))
        .or_else(|| prompt.parts.iter().find_map(file_name).and_then(|name| normalize(&name)))
}

/// The title that a text of the user suggests. It is in lists that others may see, so a line with a pasted key is none.
pub(super) fn from_text(text: &str) -> Option<String> {
    // Redacted before anything is removed or cut off: half a key would not be found.
    let text = redact::text(text::prefix(text, MAX_SCANNED_BYTES));
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("```") && !line.starts_with("~~~"))
        .filter(|line| find_secret(line).is_none());
    lines.find_map(|line| one_line(&without_marks(line))).map(|line| shorten(&line, MAX_CHARS))
}

/// The words that the user has written. A file that is attached within a sentence is one of them.
fn user_words(prompt: &UserMessage) -> String {
    let mut text = String::new();
    let mut names = Vec::new();
    for part in &prompt.parts {
        let PromptPart::Text(more) = part else {
            names.extend(file_name(part));
            continue;
        };
        if text.len() > MAX_SCANNED_BYTES {
            break;
        }
        if text.trim().is_empty() || more.trim().is_empty() {
            text.push_str(more);
        } else if names.is_empty() {
            text.push('\n');
            text.push_str(more);
        } else {
            text.push_str(&format!(" {} {more}", names.join(" ")));
        }
        names.clear();
    }
    text
}

/// The name of an attached file, or of a skill.
fn file_name(part: &PromptPart) -> Option<String> {
    match part {
        PromptPart::Link { name, .. } if !name.trim().is_empty() => Some(name.clone()),
        PromptPart::Link { uri, .. } | PromptPart::Resource { uri, .. } => last_segment(uri),
        PromptPart::Skill(name) => Some(name.clone()),
        _ => None,
    }
}

fn last_segment(uri: &str) -> Option<String> {
    let path = FileLink::from_uri(uri).map_or_else(|| uri.to_owned(), |link| link.path);
    let name = path.trim_end_matches('/').rsplit('/').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Normalizes a title that the user has chosen; `None` if nothing of it is visible.
pub(super) fn normalize(title: &str) -> Option<String> {
    let title = redact::text(text::prefix(title, MAX_SCANNED_BYTES));
    one_line(&title).map(|line| shorten(&line, MAX_CHOSEN_CHARS))
}

/// One line of visible characters with single spaces between the words.
fn one_line(text: &str) -> Option<String> {
    let clean: String = text
        .chars()
        .map(|char| if char.is_whitespace() || char.is_control() { ' ' } else { char })
        .filter(|char| !is_hidden_char(*char))
        .collect();
    Some(text::one_line(&clean)).filter(|line| !line.is_empty())
}

/// A line of Markdown as plain text.
fn without_marks(line: &str) -> String {
    let mut rest = line;
    for mark in ["#", ">", "- ", "* ", "+ "] {
        rest = rest.trim_start_matches(mark).trim_start();
    }
    let text =
        without_uris(&without_links(rest)).replace("**", "").replace("__", "").replace('`', "");
    // A line without letters or digits has no meaning.
    if text.chars().any(char::is_alphanumeric) { text } else { String::new() }
}

/// The URI of a file becomes its name.
fn without_uris(line: &str) -> String {
    let named = line.split(' ').map(|word| {
        let uri = word.trim_start_matches('@');
        let is_file = FileLink::from_uri(uri).is_some();
        last_segment(uri).filter(|_| is_file).unwrap_or_else(|| word.to_owned())
    });
    let words: Vec<_> = named.collect();
    words.join(" ")
}

/// `[words](target)` becomes `words`.
fn without_links(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
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
    if text::first_chars(text, most).len() == text.len() {
        return text.to_owned();
    }
    let start = text::first_chars(text, most - 1);
    let word_end = start.rfind(' ').filter(|end| *end > start.len() / 2).unwrap_or(start.len());
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
            ("Set API_KEY=sk-proj-a1B2c3D4e5F6g7H8i9J0k1\nand test", Some("and test")),
            ("use postgres://app:Zk39xQ71vvLm@db", None),
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
    fn attachments_are_words_of_a_sentence_and_name_a_prompt_without_words() {
        let text = |words: &str| PromptPart::Text(words.to_owned());
        let link = |name: &str| PromptPart::Link {
            name: name.to_owned(),
            uri: "file:///ws/src/lib.rs#L2:3".to_owned(),
        };
        let file = || PromptPart::Resource {
            uri: "file:///ws/my%20notes.md".to_owned(),
            text: "Buy milk".to_owned(),
        };
        let media = turnwright_types::message::Media { mime: String::new(), data: String::new() };
        let picture = || PromptPart::Image(media.clone());
        let table = [
            (vec![link("lib.rs"), text(" explain this")], Some("explain this")),
            (vec![picture(), text("What is this?")], Some("What is this?")),
            (vec![text("Fix "), link("lib.rs"), text(" now")], Some("Fix lib.rs now")),
            (
                vec![text("Compare"), file(), text("with"), link("")],
                Some("Compare my notes.md with"),
            ),
            (vec![text("Explain"), text("a dump")], Some("Explain")),
            (vec![text("file:///ws/src/a.rs#L2 is odd")], Some("a.rs is odd")),
            (vec![text(" "), link("")], Some("lib.rs")),
            (vec![file()], Some("my notes.md")),
            (vec![picture()], None),
        ];
        for (parts, expected) in table {
            let prompt = UserMessage::new(parts);
            assert_eq!(from_prompt(&prompt).as_deref(), expected, "{prompt:?}");
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
