//! Parses a git config the way git does. Pure.

use std::iter::Peekable;
use std::str::Chars;

/// A setting of a config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitSetting {
    /// `section.key` in lower case, without the subsection.
    pub(super) key: String,
    /// The subsection, in its original case.
    pub(super) subsection: Option<String>,
    /// `None` for a key without a value, which means `true`.
    pub(super) value: Option<String>,
}

/// The text is no valid git config.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GitConfigError;

/// Parses a config file.
pub(super) fn parse(text: &str) -> Result<Vec<GitSetting>, GitConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut rest = GitConfigParser(text.chars().peekable());
    let mut section: Option<(String, Option<String>)> = None;
    let mut all = Vec::new();
    while let Some(char) = rest.0.next() {
        match char {
            ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' => {}
            '#' | ';' => rest.skip_line(),
            '[' => section = Some(rest.section()?),
            char if char.is_ascii_alphabetic() => {
                let (section, middle) = section.as_ref().ok_or(GitConfigError)?;
                let (key, value) = rest.setting(char)?;
                let key = format!("{section}.{key}");
                all.push(GitSetting { key, subsection: middle.clone(), value });
            }
            _ => return Err(GitConfigError),
        }
    }
    Ok(all)
}

/// The characters that are not read yet.
struct GitConfigParser<'a>(Peekable<Chars<'a>>);

impl GitConfigParser<'_> {
    fn skip_line(&mut self) {
        while self.0.next().is_some_and(|char| char != '\n') {}
    }

    fn skip_blanks(&mut self) {
        while self.0.next_if(|char| matches!(char, ' ' | '\t')).is_some() {}
    }

    /// Parses a section header; `[` is consumed.
    fn section(&mut self) -> Result<(String, Option<String>), GitConfigError> {
        let mut name = String::new();
        loop {
            match self.0.next().ok_or(GitConfigError)? {
                ']' => break,
                ' ' | '\t' => return Ok((name, Some(self.subsection()?))),
                char if char.is_ascii_alphanumeric() || "-.".contains(char) => {
                    name.push(char.to_ascii_lowercase());
                }
                _ => return Err(GitConfigError),
            }
        }
        // The deprecated `[section.subsection]` syntax.
        Ok(match name.split_once('.') {
            Some((section, middle)) => (section.to_owned(), Some(middle.to_owned())),
            None => (name, None),
        })
    }

    /// Parses a subsection; the blank after the section's name is consumed.
    fn subsection(&mut self) -> Result<String, GitConfigError> {
        self.skip_blanks();
        let mut name = String::new();
        if self.0.next() != Some('"') {
            return Err(GitConfigError);
        }
        loop {
            match self.0.next().ok_or(GitConfigError)? {
                '"' => break,
                '\n' => return Err(GitConfigError),
                '\\' => match self.0.next().ok_or(GitConfigError)? {
                    '\n' => return Err(GitConfigError),
                    char => name.push(char),
                },
                char => name.push(char),
            }
        }
        if self.0.next() == Some(']') { Ok(name) } else { Err(GitConfigError) }
    }

    /// Parses a key and its value; the first letter of the key is consumed.
    fn setting(&mut self, first: char) -> Result<(String, Option<String>), GitConfigError> {
        let mut key = String::from(first.to_ascii_lowercase());
        while let Some(char) = self.0.next_if(|char| char.is_ascii_alphanumeric() || *char == '-') {
            key.push(char.to_ascii_lowercase());
        }
        self.skip_blanks();
        match self.0.next() {
            None | Some('\n') => Ok((key, None)),
            Some('=') => Ok((key, Some(self.value()?))),
            Some(_) => Err(GitConfigError),
        }
    }

    /// Parses a value; `=` is consumed.
    fn value(&mut self) -> Result<String, GitConfigError> {
        let mut value = String::new();
        // The length of the value without trailing blanks.
        let mut kept = 0;
        let mut is_quoted = false;
        loop {
            match self.0.next() {
                None | Some('\n') if is_quoted => return Err(GitConfigError),
                None | Some('\n') => break,
                Some('#' | ';') if !is_quoted => {
                    self.skip_line();
                    break;
                }
                Some('"') => {
                    is_quoted = !is_quoted;
                    kept = value.len();
                }
                Some('\\') => {
                    match self.0.next().ok_or(GitConfigError)? {
                        '\n' => continue,
                        'n' => value.push('\n'),
                        't' => value.push('\t'),
                        'b' => value.push('\u{8}'),
                        char @ ('\\' | '"') => value.push(char),
                        _ => return Err(GitConfigError),
                    }
                    kept = value.len();
                }
                Some(char) if char.is_whitespace() && !is_quoted => {
                    if !value.is_empty() {
                        value.push(char);
                    }
                }
                Some(char) => {
                    value.push(char);
                    kept = value.len();
                }
            }
        }
        value.truncate(kept);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_config_is_rejected() {
        for text in [
            "fsmonitor = x",
            "[core",
            "[core\nbare = false",
            "[co re]\na = b",
            "[core \"a]\nb = c",
            "[core \"a\" ]\nb = c",
            "[core]\n= x",
            "[core]\na b = c",
            "[core]\na = \"b\nc = d",
            "[core]\na = \\x",
            "[core]\n1a = b",
            "[core]\na_b = c",
            "<<<<<<< HEAD",
        ] {
            assert_eq!(parse(text), Err(GitConfigError), "{text:?}");
        }
    }
}
