//! What a call is about, while its arguments still stream: the path or the command, as soon as
//! that string is closed. An incremental scanner that looks at each byte once and never guesses
//! at a half of anything.

/// Keys that say what a call is about.
const TELLING: &[&str] = &["path", "command"];
/// A longer string is not needed for a title.
const LONGEST: usize = 4 * 1024;

/// Scans the arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Glimpse {
    state: State,
    key: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the object's brace.
    #[default]
    Start,
    /// Before a key, or the end.
    Between,
    /// In a key.
    Key { escaped: bool },
    /// Between a key and its value.
    Colon,
    /// In a string that is a value.
    Value { escaped: bool },
    /// In any other value.
    Other { depth: u32, quoted: bool, escaped: bool },
    /// Nothing more to find.
    Done,
}

impl Glimpse {
    /// Takes more of the arguments; returns the key and its value when the first telling string
    /// is complete, once.
    pub(super) fn push(&mut self, text: &str) -> Option<(&'static str, String)> {
        for byte in text.bytes() {
            if self.state == State::Done {
                return None;
            }
            if let Some(found) = self.byte(byte) {
                self.state = State::Done;
                return Some(found);
            }
        }
        None
    }

    fn byte(&mut self, byte: u8) -> Option<(&'static str, String)> {
        self.state = match (self.state, byte) {
            (State::Start, b'{') => State::Between,
            (State::Start, it) if it.is_ascii_whitespace() => State::Start,
            (State::Between, b'"') => {
                self.key.clear();
                State::Key { escaped: false }
            }
            (State::Between, it) if it == b',' || it.is_ascii_whitespace() => State::Between,
            (State::Key { escaped: false }, b'"') => State::Colon,
            (State::Key { escaped }, byte) if self.key.len() < LONGEST => {
                self.key.push(byte);
                State::Key { escaped: byte == b'\\' && !escaped }
            }
            (State::Colon, it) if it == b':' || it.is_ascii_whitespace() => State::Colon,
            (State::Colon, b'"') => {
                self.value.clear();
                State::Value { escaped: false }
            }
            (State::Colon, b'{' | b'[') => State::Other { depth: 1, quoted: false, escaped: false },
            (State::Colon, _) => State::Other { depth: 0, quoted: false, escaped: false },
            (State::Value { escaped: false }, b'"') => {
                if let Some(found) = self.found() {
                    return Some(found);
                }
                State::Between
            }
            (State::Value { escaped }, byte) => {
                // A long value of another key is only passed over.
                if self.value.len() < LONGEST {
                    self.value.push(byte);
                }
                State::Value { escaped: byte == b'\\' && !escaped }
            }
            (State::Other { depth, quoted, escaped }, byte) => other(depth, quoted, escaped, byte),
            _ => State::Done,
        };
        None
    }

    fn found(&self) -> Option<(&'static str, String)> {
        let key = TELLING.iter().find(|it| it.as_bytes() == self.key)?;
        let whole = self.value.len() < LONGEST;
        let raw = std::str::from_utf8(&self.value).ok().filter(|it| whole && !it.is_empty())?;
        Some((key, serde_json::from_str(&format!("\"{raw}\"")).ok()?))
    }
}

fn other(depth: u32, quoted: bool, escaped: bool, byte: u8) -> State {
    match byte {
        b'"' if !escaped => State::Other { depth, quoted: !quoted, escaped: false },
        _ if quoted => State::Other { depth, quoted, escaped: byte == b'\\' && !escaped },
        b'{' | b'[' => State::Other { depth: depth + 1, quoted, escaped },
        b'}' | b']' if depth == 0 => State::Done,
        b'}' | b']' if depth == 1 => State::Between,
        b'}' | b']' => State::Other { depth: depth - 1, quoted, escaped },
        b',' if depth == 0 => State::Between,
        _ => State::Other { depth, quoted, escaped },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// What is found, however the text is cut, and how much of the text that took.
    fn look(text: &str) -> Option<(String, usize)> {
        let mut glimpse = Glimpse::default();
        for (position, char) in text.char_indices() {
            if let Some((key, value)) = glimpse.push(char.encode_utf8(&mut [0; 4])) {
                return Some((format!("{key}={value}"), position + char.len_utf8()));
            }
        }
        None
    }

    #[test]
    fn the_path_is_known_long_before_the_content_has_come() {
        let text = r#"{"path": "src/a.rs", "content": "fn"#;
        assert_eq!(look(text), Some(("path=src/a.rs".to_owned(), 19)));
    }

    #[test]
    fn other_values_are_passed_over() {
        let found = |text| look(text).map(|it| it.0);
        assert_eq!(
            found(r#"{"timeout": 5, "x": {"path": "no", "y": ["}"]}, "command": "ls \"a\""}"#),
            Some("command=ls \"a\"".to_owned())
        );
        assert_eq!(
            found(r#"{"content": "\"path\": \"no\"", "mode":null,"path":"é\u00e9"}"#),
            Some("path=éé".to_owned())
        );
        assert_eq!(found(r#"{"paths": ["a"]}"#), None);
        assert_eq!(found(r#""path": "a""#), None);
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_the_parser_finds(
            fields in proptest::collection::vec(("(path|command|other|x)", "[a-z\"\\\\{}, 😀]{0,8}"), 0..6),
        ) {
            let object: serde_json::Map<String, Value> =
                fields.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
            let expected = object.iter().find_map(|(key, value)| {
                let value = value.as_str().filter(|it| !it.is_empty())?;
                TELLING.contains(&key.as_str()).then(|| format!("{key}={value}"))
            });
            prop_assert_eq!(look(&Value::Object(object).to_string()).map(|it| it.0), expected);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[{}\\[\\]\",:\\\\a-z ]{0,60}") {
            look(&text);
        }
    }
}
