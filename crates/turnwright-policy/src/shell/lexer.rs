//! The lexer: turns a line into words and operators, as far as bash and every POSIX shell read it
//! in the same way. Everything else is an ambiguity.

use turnwright_types::dialect::ShellDialect;

/// Why the words of a line do not determine what it does. The text is a sentence about the line,
/// "it …".
pub(super) type Ambiguity = &'static str;

pub(super) const VARIABLE: Ambiguity = "it uses a variable";
pub(super) const SUBSTITUTION: Ambiguity = "it contains a command substitution";
const GROUP: Ambiguity = "it contains parentheses";
const CONTINUATION: Ambiguity = "it contains an escaped line break";
const UNCLOSED: Ambiguity = "it contains an unclosed quote";
const HERE_DOCUMENT: Ambiguity = "it contains a here-document";
const SHELL_SPECIFIC: Ambiguity = "its meaning depends on the shell";

/// A part of a line.
#[derive(Debug)]
pub(super) enum Token {
    Word(RawWord),
    Redirect(RedirectKind),
    /// `&>` and `&>>`.
    RedirectBoth,
    Terminator(Terminator),
}

/// What a redirect does with the word after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectKind {
    Read,
    Write,
    /// `>&` and `<&`.
    Duplicate,
}

/// What ends a simple command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminator {
    And,
    Or,
    Pipe,
    Semicolon,
    Newline,
    Background,
    EndOfLine,
}

/// A word, with the facts about its spelling that matter.
#[derive(Debug, Default)]
pub(super) struct RawWord {
    pub(super) text: String,
    pub(super) is_glob: bool,
    /// Whether any part was quoted or escaped.
    pub(super) is_quoted: bool,
    pub(super) has_brace: bool,
    /// Whether it has an `=` with nothing quoted before it, so that it may be an assignment.
    pub(super) may_be_assignment: bool,
    /// Whether `<` or `>` follows without a blank.
    pub(super) touches_redirect: bool,
}

impl RawWord {
    /// True if the shell may take it for the number of a file descriptor.
    pub(super) fn is_number(&self) -> bool {
        !self.is_quoted && !self.text.is_empty() && self.text.bytes().all(|it| it.is_ascii_digit())
    }
}

pub(super) struct Lexer<'a> {
    text: &'a str,
    position: usize,
    dialect: ShellDialect,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, dialect: ShellDialect) -> Lexer<'a> {
        Lexer { text, position: 0, dialect }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn eat(&mut self, expected: &str) -> bool {
        let found = self.text.as_bytes()[self.position..].starts_with(expected.as_bytes());
        if found {
            self.position += expected.len();
        }
        found
    }

    pub(super) fn next(&mut self) -> Result<Token, Ambiguity> {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.position += 1;
        }
        match self.peek() {
            None => Ok(Token::Terminator(Terminator::EndOfLine)),
            Some(b'\n' | b';' | b'&' | b'|') => self.terminator(),
            Some(b'<' | b'>') => self.redirect(),
            Some(_) => self.word().map(Token::Word),
        }
    }

    fn terminator(&mut self) -> Result<Token, Ambiguity> {
        let is_bash = self.dialect == ShellDialect::Bash;
        let terminator = if self.eat("\n") {
            Terminator::Newline
        } else if self.eat("&&") {
            Terminator::And
        } else if self.eat("||") {
            Terminator::Or
        } else if self.eat("&>>") || self.eat("&>") {
            return if is_bash { Ok(Token::RedirectBoth) } else { Err(SHELL_SPECIFIC) };
        } else if self.eat("|&") {
            return if is_bash {
                Ok(Token::Terminator(Terminator::Pipe))
            } else {
                Err(SHELL_SPECIFIC)
            };
        } else if self.eat("&") {
            Terminator::Background
        } else if self.eat("|") {
            Terminator::Pipe
        } else {
            self.position += 1;
            Terminator::Semicolon
        };
        Ok(Token::Terminator(terminator))
    }

    fn redirect(&mut self) -> Result<Token, Ambiguity> {
        let kind = if self.eat("<<") {
            return Err(HERE_DOCUMENT);
        } else if self.eat("<(") || self.eat(">(") {
            return Err(SUBSTITUTION);
        } else if self.eat(">&") || self.eat("<&") {
            RedirectKind::Duplicate
        } else if self.eat("<>") || self.eat(">>") || self.eat(">|") || self.eat(">") {
            RedirectKind::Write
        } else {
            self.position += 1;
            RedirectKind::Read
        };
        Ok(Token::Redirect(kind))
    }

    fn word(&mut self) -> Result<RawWord, Ambiguity> {
        let start = self.position;
        let mut raw = RawWord::default();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' => break,
                b'<' | b'>' => {
                    raw.touches_redirect = true;
                    break;
                }
                b'(' | b')' => return Err(GROUP),
                b'$' => return Err(self.dollar_ambiguity()),
                b'`' => return Err(SUBSTITUTION),
                b'#' if self.position == start => return Err("it contains a comment"),
                b'~' if self.position == start || raw.text.ends_with(['=', ':']) => {
                    return Err("it contains `~`");
                }
                // Some systems treat these bytes as blanks, even within a character.
                0x85 | 0xa0 => return Err(STRANGE),
                b'\'' => self.single_quoted(&mut raw)?,
                b'"' => self.double_quoted(&mut raw)?,
                b'\\' => self.escaped(&mut raw)?,
                _ => self.unquoted(byte, &mut raw)?,
            }
        }
        // There is no brace expansion without one of these.
        if raw.has_brace && (raw.text.contains(',') || raw.text.contains("..")) {
            return Err("it contains a brace expansion");
        }
        Ok(raw)
    }

    /// Reads the plain characters that follow, or one special character.
    fn unquoted(&mut self, byte: u8, raw: &mut RawWord) -> Result<(), Ambiguity> {
        let rest = &self.text[self.position..];
        let plain = rest.bytes().position(|it| !is_plain(it)).unwrap_or(rest.len());
        if plain > 0 {
            // The run may end within a character.
            raw.text.push_str(rest.get(..plain).ok_or(STRANGE)?);
            self.position += plain;
            return Ok(());
        }
        match byte {
            b'*' | b'?' | b'[' => raw.is_glob = true,
            b'{' => raw.has_brace = true,
            b'=' => raw.may_be_assignment |= !raw.is_quoted,
            _ => {}
        }
        raw.text.push(char::from(byte));
        self.position += 1;
        Ok(())
    }

    fn dollar_ambiguity(&self) -> Ambiguity {
        match self.text.as_bytes().get(self.position + 1) {
            Some(b'(') => SUBSTITUTION,
            Some(b'\'' | b'"') => "it contains a `$` quote",
            _ => VARIABLE,
        }
    }

    fn single_quoted(&mut self, raw: &mut RawWord) -> Result<(), Ambiguity> {
        let rest = &self.text[self.position + 1..];
        let end = rest.find('\'').ok_or(UNCLOSED)?;
        raw.text.push_str(&rest[..end]);
        raw.is_quoted = true;
        self.position += end + 2;
        Ok(())
    }

    fn double_quoted(&mut self, raw: &mut RawWord) -> Result<(), Ambiguity> {
        raw.is_quoted = true;
        self.position += 1;
        loop {
            let rest = &self.text[self.position..];
            let end = rest.find(['"', '\\', '$', '`']).ok_or(UNCLOSED)?;
            raw.text.push_str(&rest[..end]);
            self.position += end;
            match rest.as_bytes()[end] {
                b'"' => {
                    self.position += 1;
                    return Ok(());
                }
                b'$' => return Err(self.dollar_ambiguity()),
                b'`' => return Err(SUBSTITUTION),
                _ => {}
            }
            match rest.as_bytes().get(end + 1) {
                None => return Err(UNCLOSED),
                Some(b'\n') => return Err(CONTINUATION),
                Some(it @ (b'"' | b'\\' | b'$' | b'`')) => {
                    raw.text.push(char::from(*it));
                    self.position += 2;
                }
                // The backslash is literal here.
                Some(_) => {
                    raw.text.push('\\');
                    self.position += 1;
                }
            }
        }
    }

    fn escaped(&mut self, raw: &mut RawWord) -> Result<(), Ambiguity> {
        raw.is_quoted = true;
        let next = self.text[self.position + 1..].chars().next();
        let next = next.filter(|it| *it != '\n').ok_or(CONTINUATION)?;
        raw.text.push(next);
        self.position += 1 + next.len_utf8();
        Ok(())
    }
}

/// True if a byte stands for itself wherever it is in an unquoted word.
fn is_plain(byte: u8) -> bool {
    match byte {
        0x85 | 0xa0 => false,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0x80.. => true,
        _ => matches!(byte, b'-' | b'_' | b'.' | b'/' | b',' | b'+' | b':' | b'@' | b'%'),
    }
}

const STRANGE: Ambiguity = "it contains deceptive characters";

/// Refuses characters that are invisible or look like others.
pub(super) fn check_characters(line: &str) -> Result<(), Ambiguity> {
    let is_printable = |it: u8| matches!(it, b' '..=b'~' | b'\t' | b'\n');
    if line.bytes().all(is_printable) || line.chars().all(is_unambiguous) {
        Ok(())
    } else {
        Err(STRANGE)
    }
}

fn is_unambiguous(character: char) -> bool {
    match character {
        '\t' | '\n' | ' '..='~' => true,
        // Clicks look like `|` and `!`, fillers are invisible, full-width forms look like ASCII.
        '\u{1c0}'..='\u{1c3}' | '\u{115f}' | '\u{1160}' | '\u{3164}' => false,
        '\u{37e}' | '\u{17b4}' | '\u{17b5}' | '\u{ff00}'..='\u{ffef}' => false,
        // Mathematical letters look like ASCII. The marks below combine with a letter.
        '\u{1d400}'..='\u{1d7ff}' => false,
        '\u{300}'..='\u{34e}' | '\u{1f300}'..='\u{1faff}' => true,
        '–' | '—' | '…' | '“' | '”' | '„' | '‘' | '’' | '•' | '·' | '×' | '→' | '←' | '✓' | '✗'
        | '✅' | '❌' | '€' | '£' | '°' | '§' | '«' | '»' => true,
        _ => !character.is_ascii() && character.is_alphanumeric(),
    }
}
