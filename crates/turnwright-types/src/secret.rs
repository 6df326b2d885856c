//! A string that must not be shown, such as a key.

use secrecy::{ExposeSecret, SecretString};

use crate::effect::is_hidden_char;

/// A string that `Debug` does not show and that is wiped on drop. Comparable, to detect a changed login.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl Secret {
    /// The key in a text that was typed, pasted or read from a file, without surrounding blanks,
    /// marks of the encoding, and quotes. `None` if nothing is left.
    pub fn from_copied(text: &str) -> Option<Secret> {
        const QUOTES: [(char, char); 4] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”')];
        let text = text.trim_matches(is_blank);
        let quoted = QUOTES
            .into_iter()
            .find_map(|(open, close)| text.strip_prefix(open)?.strip_suffix(close));
        let key = quoted.unwrap_or(text).trim_matches(is_blank);
        (!key.is_empty()).then(|| key.into())
    }

    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

fn is_blank(char: char) -> bool {
    char.is_whitespace() || is_hidden_char(char)
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text.into())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_along_when_a_key_is_copied_is_no_part_of_it() {
        for (text, expected) in [
            ("sk-1", Some("sk-1")),
            (" sk-1\r\n", Some("sk-1")),
            ("\u{feff}sk-1\n", Some("sk-1")),
            ("\"sk-1\"", Some("sk-1")),
            (" 'sk-1' ", Some("sk-1")),
            ("\u{feff}\"\u{200b}sk-1 \"\n", Some("sk-1")),
            ("\u{201c}sk-1\u{201d}", Some("sk-1")),
            ("`sk-1`", Some("sk-1")),
            ("\"sk-1", Some("\"sk-1")),
            ("", None),
            ("\"\"", None),
        ] {
            let secret = Secret::from_copied(text);
            assert_eq!(secret.as_ref().map(Secret::expose), expected, "{text:?}");
        }
    }
}
