//! The lexer: turns a line into words and operators, as far as bash and every POSIX shell read it
//! in the same way. Everything else is an ambiguity.

use std::collections::BTreeSet;
use std::path::PathBuf;

use turnwright_types::shell_script::ShellDialect;

use super::super::{SimpleCommand, Word, is_number};
use super::parser::parse_substitution;
use super::{here_document, shell_state};

/// Why the words of a line do not determine what it does. The text is a sentence about the line,
/// "it …".
pub(in crate::shell) type Ambiguity = &'static str;

pub(super) const VARIABLE: Ambiguity = "it uses a variable";
pub(super) const SUBSTITUTION: Ambiguity = "it contains a command substitution";
const ARITHMETIC: Ambiguity = "it contains an arithmetic expansion";
pub(super) const GROUP: Ambiguity = "it contains parentheses";
const CONTINUATION: Ambiguity = "it contains an escaped line break";
const UNCLOSED: Ambiguity = "it contains an unclosed quote";
pub(super) const HERE_DOCUMENT: Ambiguity = "it contains a here-document";
const SHELL_SPECIFIC: Ambiguity = "its meaning depends on the shell";

/// A part of a line.
#[derive(Debug)]
pub(in crate::shell) enum Token {
    Word(RawWord),
    Redirect(RedirectKind),
    /// `&>` and `&>>`.
    RedirectBoth,
    /// `<<END`, whose text begins on the next line.
    HereDocument,
    Terminator(Terminator),
}

/// The meaning of the word after a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shell) enum RedirectKind {
    Read,
    Write,
    /// `>>`.
    Append,
    /// `>&` and `<&`.
    Duplicate,
    /// `<<<`, after which a word is the input.
    HereString,
}

/// The end of a simple command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shell) enum Terminator {
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
pub(in crate::shell) struct RawWord {
    pub(in crate::shell) text: String,
    pub(in crate::shell) is_glob: bool,
    /// True if any part was quoted or escaped.
    pub(in crate::shell) is_quoted: bool,
    pub(super) has_brace: bool,
    /// True if it has an `=` with nothing quoted before it, so that it may be an assignment.
    pub(super) may_be_assignment: bool,
    /// True if `<` or `>` follows without a blank.
    pub(super) touches_redirect: bool,
    /// True if a part is the value of a variable or of a command substitution.
    pub(super) is_expanded: bool,
    /// True if such a part is not known, so that any words may take the place of this one.
    pub(in crate::shell) is_unknown: bool,
    /// True if a part is a number such as `$?` or `$(nproc)`, for which the text has a digit.
    pub(super) has_number: bool,
    /// True if a part is a variable of the environment.
    pub(super) is_inherited: bool,
}

impl RawWord {
    /// The words that bash makes of its lists, `ac` and `bc` of `{a,b}c`; `None` if they are not known for certain.
    pub(super) fn expand_lists(self) -> Option<Vec<Word>> {
        // `export` and the like may take it for an assignment.
        let may_assign = self.text.contains('=') && !self.text.starts_with('-');
        let word = Word { text: self.text, is_glob: self.is_glob };
        let (words, is_cut) = shell_state::expand_braces(word);
        // A brace that is left may belong to a range, or to another list than it seems.
        let mut bytes = words.iter().flat_map(|word| word.text.bytes());
        let are_plain = bytes.all(|byte| is_plain(byte) || b"*?=".contains(&byte));
        (are_plain && !self.is_quoted && !may_assign && !is_cut).then_some(words)
    }

    /// True if the shell may take it for the number of a file descriptor.
    pub(in crate::shell) fn is_number(&self) -> bool {
        !self.is_quoted && is_number(&self.text)
    }
}

/// A variable that the line has set. The value is `None` if it is not known, and a glob if it is one
/// of the names that match.
pub(in crate::shell) type Variable = (String, Option<Word>);

#[derive(Default)]
pub(in crate::shell) struct Lexer<'a> {
    text: &'a str,
    pub(in crate::shell) position: usize,
    pub(super) is_bash: bool,
    /// The number of lines that the text is nested in.
    pub(super) shell_depth: usize,
    /// How many brackets and loops are open.
    pub(in crate::shell) depth: usize,
    /// How many lists they had so far.
    pub(super) list_count: usize,
    /// True if an unquoted `)` ends the text.
    pub(super) is_in_brackets: bool,
    /// The folders in which the next command may run; none if they are not known.
    pub(super) folders: BTreeSet<PathBuf>,
    pub(in crate::shell) variables: Vec<Variable>,
    /// The delimiter of the here-document that begins on the next line, and true if it is quoted.
    pub(super) awaited_document: Option<(&'a str, bool)>,
    /// True if there was a here-document.
    pub(super) has_document: bool,
    /// True if the next word names the folder that the shell goes to.
    pub(super) is_at_folder: bool,
    /// The commands of the substitutions read so far.
    pub(super) substituted: Vec<SimpleCommand>,
    /// The first construct that only a line of commands that read may contain.
    pub(in crate::shell) expansion: Option<Ambiguity>,
}

impl<'a> Lexer<'a> {
    pub(in crate::shell) fn new(text: &'a str, dialect: ShellDialect) -> Lexer<'a> {
        Lexer { text, is_bash: dialect == ShellDialect::Bash, ..Lexer::default() }
    }

    /// Skips a keyword where a command may begin. False if there is another word.
    pub(super) fn eat_keyword(&mut self, keyword: &str) -> bool {
        self.skip_blanks();
        let rest = self.text[self.position..].strip_prefix(keyword);
        let found = rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with([' ', '\t', '\n', ';', '&', '|', ')', '>', '<'])
        });
        if found {
            self.position += keyword.len();
        }
        found
    }

    /// Skips the `(` of a group. An arithmetic command is refused.
    pub(super) fn open_group(&mut self) -> Result<bool, Ambiguity> {
        self.skip_blanks();
        if self.eat("((") { Err(GROUP) } else { Ok(self.eat("(")) }
    }

    /// Skips the `)` of a group or substitution.
    pub(super) fn close_group(&mut self) -> Result<(), Ambiguity> {
        if self.eat(")") { Ok(()) } else { Err(UNCLOSED) }
    }

    pub(super) fn skip_newlines(&mut self) {
        self.skip_blanks();
        while self.awaited_document.is_none() && self.eat("\n") {
            self.skip_blanks();
        }
    }

    /// Skips blanks, with ends of lines that a backslash after a blank takes away, and, since a word would
    /// begin here, a comment. A backslash does not continue one.
    fn skip_blanks(&mut self) {
        loop {
            let before = self.text.as_bytes()[..self.position].last();
            let is_after_blank = matches!(before, Some(b' ' | b'\t' | b'\n'));
            if matches!(self.peek(), Some(b' ' | b'\t')) {
                self.position += 1;
            } else if !is_after_blank || !self.eat("\\\n") {
                break;
            }
        }
        if self.peek() == Some(b'#') {
            let rest = &self.text[self.position..];
            self.position += rest.find('\n').unwrap_or(rest.len());
        }
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

    pub(in crate::shell) fn next(&mut self) -> Result<Token, Ambiguity> {
        self.skip_blanks();
        match self.peek() {
            Some(b')') if self.is_in_brackets => Ok(Token::Terminator(Terminator::EndOfLine)),
            None if self.awaited_document.is_some() => Err(HERE_DOCUMENT),
            None => Ok(Token::Terminator(Terminator::EndOfLine)),
            Some(b'\n' | b';' | b'&' | b'|') => self.terminator(),
            Some(b'<' | b'>') => self.redirect(),
            Some(_) => self.word().map(Token::Word),
        }
    }

    fn terminator(&mut self) -> Result<Token, Ambiguity> {
        let terminator = if self.eat("\n") {
            self.skip_document()?;
            Terminator::Newline
        } else if self.eat("&&") {
            Terminator::And
        } else if self.eat("||") {
            Terminator::Or
        } else if self.eat("&>>") || self.eat("&>") {
            return if self.is_bash { Ok(Token::RedirectBoth) } else { Err(SHELL_SPECIFIC) };
        } else if self.eat("|&") {
            if !self.is_bash {
                return Err(SHELL_SPECIFIC);
            }
            Terminator::Pipe
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
        let kind = if self.eat("<<<") {
            if !self.is_bash {
                return Err(SHELL_SPECIFIC);
            }
            self.expansion.get_or_insert(HERE_DOCUMENT);
            RedirectKind::HereString
        } else if self.eat("<<") {
            return self.here_document();
        } else if self.is_bash && self.eat("<(") {
            return self.process_substitution();
        } else if self.eat("<(") || self.eat(">(") {
            return Err(SUBSTITUTION);
        } else if self.eat(">&") || self.eat("<&") {
            RedirectKind::Duplicate
        } else if self.eat(">>") {
            RedirectKind::Append
        } else if self.eat("<>") || self.eat(">|") || self.eat(">") {
            RedirectKind::Write
        } else {
            self.position += 1;
            RedirectKind::Read
        };
        Ok(Token::Redirect(kind))
    }

    /// Reads the delimiter of a here-document.
    fn here_document(&mut self) -> Result<Token, Ambiguity> {
        let rest = self.text[self.position..].trim_start_matches([' ', '\t']);
        let (name, length) = here_document::delimiter(rest)
            .filter(|_| !self.is_in_brackets && self.shell_depth == 0)
            .filter(|_| self.awaited_document.is_none())
            .ok_or(HERE_DOCUMENT)?;
        self.position = self.text.len() - rest.len() + length;
        self.awaited_document = Some((name, length > name.len()));
        self.has_document = true;
        Ok(Token::HereDocument)
    }

    /// Skips the here-document that begins here, if there is one, up to the end of its last line. Nothing in it may be
    /// expanded.
    fn skip_document(&mut self) -> Result<(), Ambiguity> {
        let Some((name, is_quoted)) = self.awaited_document.take() else { return Ok(()) };
        let rest = &self.text[self.position..];
        let lines = rest
            .split_inclusive('\n')
            .take_while(|line| line.strip_suffix('\n').unwrap_or(line) != name);
        let length: usize = lines.map(str::len).sum();
        let is_expanded = !is_quoted && rest[..length].contains(['$', '`', '\\']);
        if is_expanded || !rest[length..].starts_with(name) {
            return Err(HERE_DOCUMENT);
        }
        self.position += length + name.len();
        Ok(())
    }

    fn word(&mut self) -> Result<RawWord, Ambiguity> {
        let start = self.position;
        let mut raw = RawWord::default();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' => break,
                b'<' | b'>' if self.text[self.position + 1..].starts_with('(') => {
                    return Err(SUBSTITUTION);
                }
                b')' if self.is_in_brackets => break,
                b'<' | b'>' => {
                    raw.touches_redirect = true;
                    break;
                }
                b'(' | b')' => return Err(GROUP),
                b'$' => self.dollar(&mut raw, false)?,
                b'`' => return Err(SUBSTITUTION),
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
        Ok(raw)
    }

    /// Reads the plain characters that follow, or one special character.
    fn unquoted(&mut self, byte: u8, raw: &mut RawWord) -> Result<(), Ambiguity> {
        let rest = &self.text[self.position..];
        let plain = rest.bytes().position(|byte| !is_plain(byte)).unwrap_or(rest.len());
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

    /// Reads `$(…)`, a status, the text of a here-document that `cat` prints, a variable that the line has set, or a
    /// `$` that stands for itself because a word or quote ends after it.
    fn dollar(&mut self, raw: &mut RawWord, is_quoted: bool) -> Result<(), Ambiguity> {
        let next = self.text.as_bytes().get(self.position + 1);
        let is_last = match next {
            Some(b'"') => is_quoted,
            None | Some(b' ' | b'\t' | b'\n') => !is_quoted,
            _ => false,
        };
        if is_last {
            raw.text.push('$');
            self.position += 1;
            return Ok(());
        }
        if let Some(length) = self.status_length(is_quoted) {
            // It is a number, so it may stand where any number may.
            (raw.is_quoted, raw.is_expanded, raw.has_number) = (true, true, true);
            raw.text.push('0');
            self.position += length;
            return Ok(());
        }
        let rest = &self.text[self.position..];
        if let Some((text, length)) = here_document::printed_by_cat(rest).filter(|_| is_quoted) {
            raw.text.push_str(text);
            self.position += length;
            return Ok(());
        }
        let value = if next == Some(&b'(') {
            let is_count = rest.starts_with("$(nproc)");
            raw.has_number |= is_count;
            self.position += 2;
            self.substitution(is_count)?;
            is_count.then(|| Word::plain("1"))
        } else if let Some(length) = self.inherited_variable() {
            self.expansion.get_or_insert(VARIABLE);
            self.position += length;
            raw.is_inherited = true;
            None
        } else {
            self.variable()?
        };
        (raw.is_quoted, raw.is_expanded) = (true, true);
        match value {
            // Outside of quotes the shell splits the value, and expands globs in it.
            Some(word) if is_quoted || !word.is_glob && is_plain_text(&word.text) => {
                raw.text.push_str(&word.text);
                raw.is_glob |= word.is_glob;
            }
            _ => raw.is_unknown = true,
        }
        Ok(())
    }

    /// The length of `$?`, or of bash's `"${PIPESTATUS[0]}"`, which without quotes may be no word at all.
    fn status_length(&self, is_quoted: bool) -> Option<usize> {
        const FORMS: [&str; 4] = ["$?", "${PIPESTATUS[0]}", "${PIPESTATUS[1]}", "${PIPESTATUS[2]}"];
        let rest = &self.text[self.position..];
        let known = if is_quoted && self.is_bash { FORMS.len() } else { 1 };
        FORMS[..known].iter().find(|form| rest.starts_with(**form)).map(|form| form.len())
    }

    /// The length of `$HOME` and the like, if the variable is one that everybody may see.
    fn inherited_variable(&self) -> Option<usize> {
        let rest = &self.text[self.position + 1..];
        let from_name = rest.strip_prefix('{').unwrap_or(rest);
        let end = from_name.find(|char: char| !char.is_alphanumeric() && char != '_');
        let name = &from_name[..end.unwrap_or(from_name.len())];
        let whole = if rest.starts_with('{') { format!("{{{name}}}") } else { name.to_owned() };
        (shell_state::is_plain_variable(name) && rest.starts_with(&whole))
            .then_some(1 + whole.len())
    }

    /// The value of `$name` or `${name}`, if the line has set it.
    fn variable(&mut self) -> Result<Option<Word>, Ambiguity> {
        let rest = &self.text[self.position + 1..];
        let (rest, is_braced) = rest.strip_prefix('{').map_or((rest, false), |rest| (rest, true));
        let length = rest
            .bytes()
            .position(|byte| !byte.is_ascii_alphanumeric() && byte != b'_')
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(length);
        // Some shells take letters that are not ASCII for a part of the name.
        let goes_on = after.starts_with(|char: char| !char.is_ascii());
        let is_whole = if is_braced { after.starts_with('}') } else { !goes_on };
        let known = self.variables.iter().find(|variable| variable.0 == name).filter(|_| is_whole);
        let (_, value) = known.ok_or_else(|| self.dollar_ambiguity())?;
        let value = value.clone();
        self.position += 1 + length + if is_braced { 2 } else { 0 };
        Ok(value)
    }

    /// Reads the rest of a substitution and its bracket. Its commands run in the same folder, and what
    /// they set is lost. If they print a number, the parser decides if the line stays unambiguous.
    fn substitution(&mut self, is_number: bool) -> Result<(), Ambiguity> {
        if self.peek() == Some(b'(') {
            return Err(ARITHMETIC);
        }
        self.expansion = self.expansion.or((!is_number).then_some(SUBSTITUTION));
        let commands = parse_substitution(self)?;
        self.substituted.extend(commands);
        Ok(())
    }

    /// `<(…)` is a file that can only be read. A part of a word may not follow.
    fn process_substitution(&mut self) -> Result<Token, Ambiguity> {
        self.substitution(false)?;
        if !matches!(self.peek(), None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')')) {
            return Err(SUBSTITUTION);
        }
        let text = "/dev/stdin".to_owned();
        Ok(Token::Word(RawWord { text, is_quoted: true, is_expanded: true, ..RawWord::default() }))
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
        let is_folder = self.is_at_folder && raw.text.is_empty();
        raw.is_quoted = true;
        self.position += 1;
        if is_folder && self.eat_current_folder() {
            raw.text.push('.');
        }
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
                b'$' => {
                    self.dollar(raw, true)?;
                    continue;
                }
                b'`' => return Err(SUBSTITUTION),
                _ => {}
            }
            match rest.as_bytes().get(end + 1) {
                None => return Err(UNCLOSED),
                Some(b'\n') => return Err(CONTINUATION),
                Some(escaped @ (b'"' | b'\\' | b'$' | b'`')) => {
                    raw.text.push(char::from(*escaped));
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

    /// Skips the name of the current folder at the beginning of a quoted path.
    fn eat_current_folder(&mut self) -> bool {
        let rest = &self.text[self.position..];
        // More text behind the quote would belong to the name.
        let ends_word = |text: &str| {
            let next = text.strip_prefix('"').map(|rest| rest.chars().next());
            next.is_some_and(|next| next.is_none_or(|char| " \t\n;&|)<>/".contains(char)))
        };
        let after = ["$PWD", "${PWD}", "$(pwd)"]
            .iter()
            .find_map(|form| rest.strip_prefix(form))
            .filter(|after| after.starts_with('/') || ends_word(after))
            .filter(|_| !self.variables.iter().any(|(name, _)| name == "PWD"));
        self.position += after.map_or(0, |after| rest.len() - after.len());
        after.is_some()
    }

    fn escaped(&mut self, raw: &mut RawWord) -> Result<(), Ambiguity> {
        raw.is_quoted = true;
        let mut after = self.text[self.position + 1..].chars();
        let next = after.next().filter(|char| *char != '\n').ok_or(CONTINUATION)?;
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

/// True if an unquoted variable with this value is one word.
fn is_plain_text(text: &str) -> bool {
    !text.is_empty() && text.is_ascii() && text.bytes().all(is_plain)
}

const STRANGE: Ambiguity = "it contains deceptive characters";

/// Refuses characters that are invisible or look like others.
pub(super) fn check_characters(line: &str) -> Result<(), Ambiguity> {
    if line.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\n'))
        || line.chars().all(is_unambiguous)
    {
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
