//! Characters → words and operators, as far as bash and every POSIX shell read them in the same way.
//! Everything else is a doubt.

use turnwright_types::dialect::Dialect;

/// Why a line is not taken for what its words say.
pub(super) type Doubt = &'static str;

pub(super) const VARIABLE: Doubt = "it uses a variable";
pub(super) const INNER: Doubt = "it runs a command inside of another";
const GROUP: Doubt = "it holds brackets";
const CONTINUED: Doubt = "it goes on behind a backslash";
const UNCLOSED: Doubt = "it has a quote without an end";
const HERE: Doubt = "it holds a here-document";
const OTHER_SHELLS: Doubt = "shells differ in what it means";

/// The next thing of a line.
#[derive(Debug)]
pub(super) enum Token {
    Word(Raw),
    Redirect(Way),
    /// `&>` and `&>>`.
    WriteBoth,
    End(End),
}

/// What a redirect does with its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
    /// `>&` and `<&`.
    Copy,
}

/// What ends a simple command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    And,
    Or,
    Pipe,
    Semicolon,
    Newline,
    Background,
    Line,
}

/// A word with what matters of how it was written.
#[derive(Debug, Default)]
pub(super) struct Raw {
    pub(super) text: String,
    pub(super) is_glob: bool,
    /// Whether any part of it was quoted or escaped.
    pub(super) is_quoted: bool,
    pub(super) has_brace: bool,
    /// Whether nothing before its first `=` was quoted.
    pub(super) may_set: bool,
    /// Whether `<` or `>` stands right behind it.
    pub(super) meets_redirect: bool,
}

impl Raw {
    /// Whether the shell may take it for the number of a file descriptor.
    pub(super) fn is_number(&self) -> bool {
        !self.is_quoted && !self.text.is_empty() && self.text.bytes().all(|it| it.is_ascii_digit())
    }
}

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect) -> Lexer<'a> {
        Lexer { text, at: 0, dialect }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, what: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(what.as_bytes());
        if found {
            self.at += what.len();
        }
        found
    }

    pub(super) fn next(&mut self) -> Result<Token, Doubt> {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        match self.peek() {
            None => Ok(Token::End(End::Line)),
            Some(b'\n' | b';' | b'&' | b'|') => self.end(),
            Some(b'<' | b'>') => self.redirect(),
            Some(_) => self.word().map(Token::Word),
        }
    }

    fn end(&mut self) -> Result<Token, Doubt> {
        let is_bash = self.dialect == Dialect::Bash;
        let end = if self.eat("\n") {
            End::Newline
        } else if self.eat("&&") {
            End::And
        } else if self.eat("||") {
            End::Or
        } else if self.eat("&>>") || self.eat("&>") {
            return if is_bash { Ok(Token::WriteBoth) } else { Err(OTHER_SHELLS) };
        } else if self.eat("|&") {
            return if is_bash { Ok(Token::End(End::Pipe)) } else { Err(OTHER_SHELLS) };
        } else if self.eat("&") {
            End::Background
        } else if self.eat("|") {
            End::Pipe
        } else {
            self.at += 1;
            End::Semicolon
        };
        Ok(Token::End(end))
    }

    fn redirect(&mut self) -> Result<Token, Doubt> {
        let way = if self.eat("<<") {
            return Err(HERE);
        } else if self.eat("<(") || self.eat(">(") {
            return Err(INNER);
        } else if self.eat(">&") || self.eat("<&") {
            Way::Copy
        } else if self.eat("<>") || self.eat(">>") || self.eat(">|") || self.eat(">") {
            Way::Write
        } else {
            self.at += 1;
            Way::Read
        };
        Ok(Token::Redirect(way))
    }

    fn word(&mut self) -> Result<Raw, Doubt> {
        let begin = self.at;
        let mut raw = Raw::default();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' => break,
                b'<' | b'>' => {
                    raw.meets_redirect = true;
                    break;
                }
                b'(' | b')' => return Err(GROUP),
                b'$' => return Err(self.dollar()),
                b'`' => return Err(INNER),
                b'#' if self.at == begin => return Err("it holds a comment"),
                b'~' if self.at == begin || raw.text.ends_with(['=', ':']) => {
                    return Err("it holds a ~ that stands for a folder");
                }
                // Some systems take these bytes for blanks, even within a letter.
                0x85 | 0xa0 => return Err(STRANGE),
                b'\'' => self.single(&mut raw)?,
                b'"' => self.double(&mut raw)?,
                b'\\' => self.escaped(&mut raw)?,
                _ => self.bare(byte, &mut raw)?,
            }
        }
        // No expansion of braces without one of these.
        if raw.has_brace && (raw.text.contains(',') || raw.text.contains("..")) {
            return Err("it holds a list in braces");
        }
        Ok(raw)
    }

    /// One character with a meaning that can be kept, or as many as there are without.
    fn bare(&mut self, byte: u8, raw: &mut Raw) -> Result<(), Doubt> {
        let rest = &self.text[self.at..];
        let plain = rest.bytes().position(|it| !is_plain(it)).unwrap_or(rest.len());
        if plain > 0 {
            // It may end within a letter.
            raw.text.push_str(rest.get(..plain).ok_or(STRANGE)?);
            self.at += plain;
            return Ok(());
        }
        match byte {
            b'*' | b'?' | b'[' => raw.is_glob = true,
            b'{' => raw.has_brace = true,
            b'=' => raw.may_set |= !raw.is_quoted,
            _ => {}
        }
        raw.text.push(char::from(byte));
        self.at += 1;
        Ok(())
    }

    fn dollar(&self) -> Doubt {
        match self.text.as_bytes().get(self.at + 1) {
            Some(b'(') => INNER,
            Some(b'\'' | b'"') => "it holds a quote that hides characters",
            _ => VARIABLE,
        }
    }

    fn single(&mut self, raw: &mut Raw) -> Result<(), Doubt> {
        let rest = &self.text[self.at + 1..];
        let end = rest.find('\'').ok_or(UNCLOSED)?;
        raw.text.push_str(&rest[..end]);
        raw.is_quoted = true;
        self.at += end + 2;
        Ok(())
    }

    fn double(&mut self, raw: &mut Raw) -> Result<(), Doubt> {
        raw.is_quoted = true;
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(['"', '\\', '$', '`']).ok_or(UNCLOSED)?;
            raw.text.push_str(&rest[..end]);
            self.at += end;
            match rest.as_bytes()[end] {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'$' => return Err(self.dollar()),
                b'`' => return Err(INNER),
                _ => {}
            }
            match rest.as_bytes().get(end + 1) {
                None => return Err(UNCLOSED),
                Some(b'\n') => return Err(CONTINUED),
                Some(it @ (b'"' | b'\\' | b'$' | b'`')) => {
                    raw.text.push(char::from(*it));
                    self.at += 2;
                }
                // Here it stands for itself.
                Some(_) => {
                    raw.text.push('\\');
                    self.at += 1;
                }
            }
        }
    }

    fn escaped(&mut self, raw: &mut Raw) -> Result<(), Doubt> {
        raw.is_quoted = true;
        let next = self.text[self.at + 1..].chars().next();
        let next = next.filter(|it| *it != '\n').ok_or(CONTINUED)?;
        raw.text.push(next);
        self.at += 1 + next.len_utf8();
        Ok(())
    }
}

/// Whether a byte of a bare word stands for itself, wherever it is.
fn is_plain(byte: u8) -> bool {
    match byte {
        0x85 | 0xa0 => false,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0x80.. => true,
        _ => matches!(byte, b'-' | b'_' | b'.' | b'/' | b',' | b'+' | b':' | b'@' | b'%'),
    }
}

const STRANGE: Doubt = "it holds characters that may hide something";

/// Refuses what cannot be seen, or looks like something else.
pub(super) fn check_characters(line: &str) -> Result<(), Doubt> {
    let is_fine = |it: u8| matches!(it, b' '..=b'~' | b'\t' | b'\n');
    if line.bytes().all(is_fine) || line.chars().all(is_honest) { Ok(()) } else { Err(STRANGE) }
}

fn is_honest(character: char) -> bool {
    match character {
        '\t' | '\n' | ' '..='~' => true,
        // Clicks look like `|` and `!`, fillers like nothing, wide forms like what they are forms of.
        '\u{1c0}'..='\u{1c3}' | '\u{115f}' | '\u{1160}' | '\u{3164}' => false,
        '\u{37e}' | '\u{17b4}' | '\u{17b5}' | '\u{ff00}'..='\u{ffef}' => false,
        // Mathematical letters, and marks over a letter.
        '\u{1d400}'..='\u{1d7ff}' => false,
        '\u{300}'..='\u{34e}' | '\u{1f300}'..='\u{1faff}' => true,
        '–' | '—' | '…' | '“' | '”' | '„' | '‘' | '’' | '•' | '·' | '×' | '→' | '←' | '✓' | '✗'
        | '✅' | '❌' | '€' | '£' | '°' | '§' | '«' | '»' => true,
        _ => !character.is_ascii() && character.is_alphanumeric(),
    }
}
