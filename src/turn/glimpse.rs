//! What a call is about, while its arguments still stream: the path or the command as soon as that
//! string is closed, and a long content as far as it has come. An incremental scanner that looks
//! at each byte once and never guesses at a half of anything.

mod unescape;

use unescape::{Read, Unescape};

use crate::tools::usual_name;

/// Keys that say what a call is about.
const TELLING: &[&str] = &["path", "command", "pattern", "url", "glob", "name"];
/// Keys whose value may be long, and is what the user waits for.
const LONG: &[&str] = &["content", "new_text", "patch"];
/// What the new text of an edit stands for.
const OLD: &str = "old_text";
/// A longer string is not needed for a title, nor is a longer key one that we know.
const LONGEST: usize = 4 * 1024;
/// Bytes of a content that are kept to be shown.
const MOST_SHOWN: usize = 200 * 1024;
/// Brackets within brackets.
const DEEPEST: usize = 64;

/// Scans the arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Glimpse {
    state: State,
    /// Open brackets; whether each is that of an object.
    nest: Vec<bool>,
    unescape: Unescape,
    key: String,
    value: Value,
    /// Those that have been told of.
    told: Vec<&'static str>,
    old: Option<String>,
    /// The long value that came last, and whether it still comes.
    long: Option<&'static str>,
    lines: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the object's brace.
    #[default]
    Start,
    /// Before a key, or the end of the object.
    Key,
    /// In a key.
    InKey,
    /// Between a key and its value.
    Colon,
    /// Before a value, or the end of the array.
    Value,
    /// In a string that is a value.
    InString,
    /// In any other value, or behind one.
    After,
    /// Nothing more to find.
    Done,
}

/// The string that is being read, as far as it is of use.
#[derive(Debug, Default)]
struct Value {
    key: Option<&'static str>,
    text: String,
    /// Bytes that are kept of it; 0 for one of no use.
    limit: usize,
    /// It is longer than that, and nothing of it is kept.
    is_over: bool,
    ends_line: bool,
}

impl Value {
    fn push(&mut self, piece: &str, lines: &mut usize) {
        if self.limit == 0 {
            return;
        }
        if self.key.is_some_and(|it| LONG.contains(&it)) {
            *lines += memchr::memchr_iter(b'\n', piece.as_bytes()).count();
            self.ends_line = piece.ends_with('\n');
        }
        if self.text.len() + piece.len() > self.limit {
            self.is_over = true;
            self.text = String::new();
        } else if !self.is_over {
            self.text.push_str(piece);
        }
    }
}

/// A long value on its way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Long<'a> {
    pub(super) key: &'static str,
    /// Lines of it and of those before it.
    pub(super) lines: usize,
    /// The text so far, unless it is too long to be shown.
    pub(super) text: Option<&'a str>,
    /// What it is to replace.
    pub(super) old: Option<&'a str>,
}

impl Glimpse {
    /// Takes more of the arguments; returns the telling strings that are complete now, each key
    /// once.
    pub(super) fn push(&mut self, text: &str) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut rest = text;
        while let Some(&byte) = rest.as_bytes().first()
            && self.state != State::Done
        {
            rest = match self.state {
                State::InKey | State::InString => self.string(rest, &mut found),
                _ => {
                    self.state = self.byte(byte);
                    // A byte that is no ASCII has ended the scan.
                    rest.get(1..).unwrap_or_default()
                }
            };
        }
        found
    }

    /// The long value that comes now, or came last.
    pub(super) fn long(&self) -> Option<Long<'_>> {
        let key = self.long?;
        let is_shown = self.value.key == Some(key) && !self.value.is_over;
        let lines = self.lines + usize::from(!self.value.ends_line);
        let text = is_shown.then_some(self.value.text.as_str());
        Some(Long { key, lines, text, old: self.old.as_deref() })
    }

    fn byte(&mut self, byte: u8) -> State {
        match (self.state, byte) {
            (state, b' ' | b'\t' | b'\r' | b'\n') => state,
            (State::Start, b'{') => self.open(true),
            (State::Key, b'"') => {
                self.key.clear();
                State::InKey
            }
            (State::Key | State::After, b'}') | (State::Value | State::After, b']') => {
                self.close(byte == b'}')
            }
            (State::Colon, b':') => State::Value,
            (State::Value, b'"') => {
                self.value_begins();
                State::InString
            }
            (State::Value, b'{' | b'[') => self.open(byte == b'{'),
            (State::After, b',') if self.nest.last() == Some(&true) => State::Key,
            (State::After, b',') => State::Value,
            (
                State::Value | State::After,
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'+' | b'.' | b'E',
            ) => State::After,
            _ => State::Done,
        }
    }

    fn open(&mut self, is_object: bool) -> State {
        if self.nest.len() == DEEPEST {
            return State::Done;
        }
        self.nest.push(is_object);
        if is_object { State::Key } else { State::Value }
    }

    fn close(&mut self, is_object: bool) -> State {
        if self.nest.pop() != Some(is_object) || self.nest.is_empty() {
            return State::Done;
        }
        State::After
    }

    /// Reads on in a key or in a value; returns what follows the piece.
    fn string<'a>(&mut self, text: &'a str, found: &mut Vec<(&'static str, String)>) -> &'a str {
        let is_key = self.state == State::InKey;
        let read = if is_key {
            let key = &mut self.key;
            self.unescape.read(text, |it| {
                if key.len() < LONGEST {
                    key.push_str(it);
                }
            })
        } else {
            let (value, lines) = (&mut self.value, &mut self.lines);
            self.unescape.read(text, |it| value.push(it, lines))
        };
        match read {
            Read::On => "",
            Read::Wrong => {
                self.state = State::Done;
                ""
            }
            Read::Closed(rest) if is_key => {
                self.state = State::Colon;
                rest
            }
            Read::Closed(rest) => {
                self.state = State::After;
                found.extend(self.value_ends());
                rest
            }
        }
    }

    /// Decides what the string that begins is good for.
    fn value_begins(&mut self) {
        let known = |keys: &[&'static str]| {
            let name = usual_name(&self.key);
            keys.iter().find(|it| **it == self.key || name == Some(**it)).copied()
        };
        let (telling, long, old) = match self.nest.as_slice() {
            [true] => (known(TELLING), known(LONG), known(&[OLD])),
            // In one of a list of edits.
            [true, false, true] => (None, known(LONG), known(&[OLD])),
            _ => (None, None, None),
        };
        let telling = telling.filter(|it| !self.told.contains(it));
        let limit = if telling.is_some() { LONGEST } else { MOST_SHOWN };
        let key = telling.or(long).or(old);
        if long.is_some() {
            self.long = long;
        }
        // What came last stays for a while if nothing of use follows.
        if key.is_some() {
            let ends_line = long.is_some();
            self.value = Value { key, text: String::new(), limit, is_over: false, ends_line };
        } else {
            self.value.limit = 0;
        }
    }

    fn value_ends(&mut self) -> Option<(&'static str, String)> {
        if self.value.limit == 0 {
            return None;
        }
        self.value.limit = 0;
        let key = self.value.key?;
        if LONG.contains(&key) {
            self.lines += usize::from(!self.value.ends_line);
            self.value.ends_line = true;
        }
        if key == OLD {
            let text = std::mem::take(&mut self.value.text);
            self.old = (!self.value.is_over).then_some(text);
            return None;
        }
        let is_telling = TELLING.contains(&key) && !self.value.is_over;
        if !is_telling || self.value.text.is_empty() {
            return None;
        }
        self.told.push(key);
        Some((key, std::mem::take(&mut self.value.text)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// What is told, in order, with how much of the text that took, however the text is cut.
    fn look(text: &str) -> Vec<(String, usize)> {
        let mut glimpse = Glimpse::default();
        let mut all = Vec::new();
        for (position, char) in text.char_indices() {
            let found = glimpse.push(char.encode_utf8(&mut [0; 4]));
            let told = |(key, value)| (format!("{key}={value}"), position + char.len_utf8());
            all.extend(found.into_iter().map(told));
        }
        all
    }

    fn told(text: &str) -> String {
        look(text).into_iter().map(|it| it.0).collect::<Vec<_>>().join(" ")
    }

    /// Everything that can be seen after these pieces.
    fn seen(pieces: &[&str]) -> (Vec<(&'static str, String)>, String) {
        let mut glimpse = Glimpse::default();
        let found = pieces.iter().flat_map(|it| glimpse.push(it)).collect();
        (found, format!("{:?}", glimpse.long()))
    }

    #[test]
    fn the_path_is_known_long_before_the_content_has_come() {
        let text = r#"{"path": "src/a.rs", "content": "fn"#;
        assert_eq!(look(text), [("path=src/a.rs".to_owned(), 19)]);
    }

    #[test]
    fn other_values_are_passed_over() {
        for (text, expected) in [
            (
                r#"{"timeout": 5, "x": {"path": "no", "y": ["}"]}, "command": "ls \"a\""}"#,
                "command=ls \"a\"",
            ),
            (r#"{"content": "\"path\": \"no\"", "mode":null,"path":"é\u00e9"}"#, "path=éé"),
            (
                r#"{"pattern": "a b", "x": [[], {}, -1.5e+3], "path": "src"}"#,
                "pattern=a b path=src",
            ),
            (r#"{"file_path": "a", "path": "b"}"#, "path=a"),
            (r#"{"path": "", "filePath": "b",}"#, "path=b"),
            (r#"{"paths": ["a"]}"#, ""),
            (r#""path": "a""#, ""),
            (r#"{"x": ], "path": "a"}"#, ""),
            (r#"{"path": "\ud800a"}"#, ""),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }

    #[test]
    fn a_long_content_is_followed_as_it_comes() {
        let mut glimpse = Glimpse::default();
        assert_eq!(glimpse.long(), None);
        glimpse.push(r#"{"path": "a", "content": "one\nt"#);
        let long = |lines, text, old| Some(Long { key: "content", lines, text, old });
        assert_eq!(glimpse.long(), long(2, Some("one\nt"), None));
        glimpse.push(r"wo\n\ud83d");
        assert_eq!(glimpse.long(), long(2, Some("one\ntwo\n"), None));
        glimpse.push(r#"\ude00", "mode": "append"}"#);
        assert_eq!(glimpse.long(), long(3, Some("one\ntwo\n😀"), None));
    }

    #[test]
    fn each_edit_is_followed_with_what_it_replaces() {
        let mut glimpse = Glimpse::default();
        glimpse.push(r#"{"path": "a", "edits": [{"old_text": "x", "new_text": "1\n2"}, {"#);
        let long = |lines, text, old| Some(Long { key: "new_text", lines, text, old });
        assert_eq!(glimpse.long(), long(2, Some("1\n2"), Some("x")));
        glimpse.push(r#""old_string": "y\n", "new_string": "3"#);
        assert_eq!(glimpse.long(), long(3, Some("3"), Some("y\n")));
    }

    #[test]
    fn of_an_endless_content_only_the_lines_are_counted() {
        let mut glimpse = Glimpse::default();
        glimpse.push(r#"{"path": "a", "content": ""#);
        for _ in 0..100_000 {
            glimpse.push("0123456789\\n");
        }
        let long = Long { key: "content", lines: 100_000, text: None, old: None };
        assert_eq!(glimpse.long(), Some(long));
        assert_eq!(glimpse.value.text.capacity(), 0);
    }

    proptest! {
        #[test]
        fn what_is_told_is_what_the_parser_finds(
            fields in proptest::collection::vec(("(path|command|url|other|x)", "[a-z\"\\\\{}, 😀\u{1}\n]{0,8}"), 0..6),
        ) {
            let object: serde_json::Map<String, Value> =
                fields.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
            let telling = |(key, value): (&String, &Value)| {
                let value = value.as_str().filter(|it| !it.is_empty())?;
                TELLING.contains(&key.as_str()).then(|| format!("{key}={value}"))
            };
            let expected: Vec<_> = object.iter().filter_map(telling).collect();
            prop_assert_eq!(told(&Value::Object(object).to_string()), expected.join(" "));
        }

        #[test]
        fn what_is_shown_is_a_prefix_of_what_comes(content in "[a-z\"\\\\é😀\n\u{1}]{0,40}", raw in any::<bool>()) {
            let escaped: Vec<_> = content.encode_utf16().map(|it| format!("\\u{it:04x}")).collect();
            let text = if raw {
                json!({ "content": content }).to_string()
            } else {
                format!("{{\"content\": \"{}\"}}", escaped.concat())
            };
            let mut glimpse = Glimpse::default();
            for char in text.chars() {
                glimpse.push(char.encode_utf8(&mut [0; 4]));
                if let Some(long) = glimpse.long() {
                    prop_assert!(content.starts_with(long.text.unwrap()));
                }
            }
            prop_assert_eq!(glimpse.long().unwrap().text, Some(content.as_str()));
        }

        #[test]
        fn any_pieces_show_the_same(
            text in "\\{\"(path|content)\":\"([a-z\\\\\"nu0d8é:,{}\\[\\]]|\\\\u00e9|\\\\ud83d\\\\ude00){0,40}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|it| it.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.retain(|it| text.is_char_boundary(*it));
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|it| &text[it[0]..it[1]]).collect();
            prop_assert_eq!(seen(&pieces), seen(&[&text]));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[{}\\[\\]\",:\\\\a-zé ]{0,60}") {
            look(&text);
        }
    }
}
