//! Words and operators → simple commands, each with its folder and the files that the shell opens
//! for it. One doubt ends it.

use std::path::{Component, Path, PathBuf};

use super::lex::{Doubt, End, Lexer, Raw, Token, Way, check_characters};
use super::wrappers::unwrap;
use turnwright_types::dialect::Dialect;
use super::{Redirect, Simple, Word, words};

/// Bytes of a line.
const MAX_LINE: usize = 8 * 1024;
const MAX_COMMANDS: usize = 64;
const MAX_WORDS: usize = 1024;
/// Lines within lines (`sh -c`).
const MAX_DEPTH: usize = 2;

const INCOMPLETE: Doubt = "it is not complete";
const NOWHERE: Doubt = "nobody knows in which folder it runs";

/// The simple commands of a line that runs in `folder`, itself that many lines within others.
pub(super) fn parse(
    line: &str,
    dialect: Dialect,
    folder: PathBuf,
    depth: usize,
) -> Result<Vec<Simple>, Doubt> {
    if line.len() > MAX_LINE {
        return Err("it is very long");
    }
    if depth > MAX_DEPTH {
        return Err("it is a line within a line within a line");
    }
    check_characters(line)?;
    let mut lexer = Lexer::new(line, dialect);
    let mut walk = Walk::new(folder);
    let mut commands = Vec::new();
    let mut word_count = 0;
    loop {
        let (found, end) = command(&mut lexer)?;
        if let Some(found) = found {
            word_count += found.words.len();
            walk.run(found, end, depth, &mut commands)?;
            if commands.len() > MAX_COMMANDS || word_count > MAX_WORDS {
                return Err("it holds very many words");
            }
        } else if !walk.may_be_empty(end) {
            return Err(INCOMPLETE);
        } else if !walk.waits() {
            walk.last = end;
        }
        if end == End::Line {
            return Ok(commands);
        }
    }
}

/// A simple command as it was found.
#[derive(Default)]
pub(super) struct Found {
    words: Vec<Word>,
    redirects: Vec<Redirect>,
    /// Whether what it prints goes to a file.
    prints_to_file: bool,
    sets_variable: bool,
    is_touched: bool,
}

/// Everything up to what ends a command; nothing if there is nothing.
fn command(lexer: &mut Lexer<'_>) -> Result<(Option<Found>, End), Doubt> {
    let mut found = Found::default();
    let mut number = None;
    loop {
        match lexer.next()? {
            Token::End(end) => {
                let is_empty = found.words.is_empty();
                return match is_empty {
                    true if found.sets_variable => Err("it sets a variable"),
                    true if found.is_touched => Err("it opens a file for no command"),
                    true => Ok((None, end)),
                    false => Ok((Some(found), end)),
                };
            }
            Token::Word(raw) if raw.meets_redirect && raw.is_number() => {
                if raw.text.len() > 1 {
                    return Err("it uses an unusual file descriptor");
                }
                number = Some(raw.text == "1");
            }
            Token::Word(raw) => found.word(raw)?,
            Token::Redirect(way) => {
                let is_stdout = number.take().unwrap_or(way != Way::Read);
                found.redirect(way, is_stdout, &lexer.next()?)?;
            }
            Token::WriteBoth => found.redirect(Way::Write, true, &lexer.next()?)?,
        }
    }
}

impl Found {
    fn word(&mut self, raw: Raw) -> Result<(), Doubt> {
        if raw.meets_redirect && raw.text.ends_with('}') {
            return Err("it uses an unusual file descriptor");
        }
        if self.words.is_empty() {
            if raw.may_set
                && let Some((variable, value)) = words::assignment(&raw.text)
            {
                self.sets_variable = true;
                let is_harmless = words::is_harmless(variable, value);
                return if is_harmless { Ok(()) } else { Err("it sets a variable") };
            }
            if raw.is_glob && raw.text != "[" {
                return Err("nobody knows the name of its program");
            }
        }
        let is_test = self.words.is_empty() && raw.text == "[";
        self.words.push(Word { text: raw.text, is_glob: raw.is_glob && !is_test });
        Ok(())
    }

    fn redirect(&mut self, way: Way, is_stdout: bool, target: &Token) -> Result<(), Doubt> {
        self.is_touched = true;
        let Token::Word(raw) = target else { return Err(INCOMPLETE) };
        if way == Way::Copy {
            let is_known = raw.is_number() && raw.text.len() == 1 && !raw.meets_redirect;
            let is_closed = raw.text == "-" && !raw.is_quoted;
            return if is_known || is_closed { Ok(()) } else { Err("it uses an unusual redirect") };
        }
        if raw.is_glob || raw.has_brace || raw.text.is_empty() {
            return Err("nobody knows which file it opens");
        }
        if raw.meets_redirect && raw.is_number() {
            return Err("it uses an unusual file descriptor");
        }
        self.prints_to_file |= is_stdout;
        if let Some(redirect) = redirect(&raw.text, way != Way::Read)? {
            self.redirects.push(redirect);
        }
        Ok(())
    }
}

/// The file that is opened; none if it is not a file.
pub(super) fn redirect(path: &str, is_write: bool) -> Result<Option<Redirect>, Doubt> {
    match path {
        "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr" => Ok(None),
        _ if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") => {
            Err("it opens a connection")
        }
        _ => Ok(Some(Redirect { path: PathBuf::from(path), is_write })),
    }
}

/// Where the line has got to.
struct Walk {
    /// How the last command ended.
    last: End,
    /// Where the next command runs, if that is known.
    folder: Option<PathBuf>,
    /// The same for the first of this chain of `&&`, `||` and `|`.
    begin: Option<PathBuf>,
    /// Whether this chain has changed the folder.
    has_moved: bool,
    /// Whether everything in this chain so far runs only after all before it has worked.
    is_strict: bool,
}

impl Walk {
    fn new(folder: PathBuf) -> Walk {
        Walk {
            last: End::Newline,
            begin: Some(folder.clone()),
            folder: Some(folder),
            has_moved: false,
            is_strict: true,
        }
    }

    /// Whether the line must go on.
    fn waits(&self) -> bool {
        matches!(self.last, End::And | End::Or | End::Pipe)
    }

    fn may_be_empty(&self, end: End) -> bool {
        end == End::Newline || end == End::Line && !self.waits()
    }

    fn run(
        &mut self,
        found: Found,
        end: End,
        depth: usize,
        commands: &mut Vec<Simple>,
    ) -> Result<(), Doubt> {
        let Found { words, redirects, prints_to_file, .. } = found;
        let folder = Some(self.folder.clone().ok_or(NOWHERE)?);
        let mut simple = Simple { words, folder, redirects, ..Simple::default() };
        let inner = unwrap(&mut simple, prints_to_file)?;
        let target = if simple.program() == "cd" { Some(self.cd(&simple, end)?) } else { None };
        match inner {
            Some((line, dialect)) => within(simple, &line, dialect, depth, commands)?,
            None => commands.push(simple),
        }
        self.step(target, end);
        Ok(())
    }

    /// Where a `cd` leads.
    fn cd(&self, simple: &Simple, end: End) -> Result<PathBuf, Doubt> {
        if self.last == End::Pipe || end == End::Pipe || !simple.wrappers.is_empty() {
            return Err(NOWHERE);
        }
        let (Some(here), [_, target]) = (&self.folder, simple.words.as_slice()) else {
            return Err(NOWHERE);
        };
        if target.is_glob || target.text.is_empty() || target.text.starts_with('-') {
            return Err(NOWHERE);
        }
        join(here, Path::new(&target.text)).ok_or(NOWHERE)
    }

    fn step(&mut self, target: Option<PathBuf>, end: End) {
        if let Some(target) = target {
            self.has_moved = true;
            self.folder = (end == End::And && self.is_strict).then_some(target);
        }
        match end {
            End::And | End::Pipe => {}
            End::Or => {
                self.is_strict = false;
                if self.has_moved {
                    self.folder = None;
                }
            }
            // All of the chain was another shell's.
            End::Background => {
                self.folder.clone_from(&self.begin);
                (self.has_moved, self.is_strict) = (false, true);
            }
            End::Semicolon | End::Newline | End::Line => {
                if self.has_moved {
                    self.folder = None;
                }
                self.begin.clone_from(&self.folder);
                (self.has_moved, self.is_strict) = (false, true);
            }
        }
        self.last = end;
    }
}

/// The commands of a line for another shell. What was opened for that shell is the first one's.
fn within(
    outer: Simple,
    line: &str,
    dialect: Dialect,
    depth: usize,
    commands: &mut Vec<Simple>,
) -> Result<(), Doubt> {
    let Simple { folder, redirects, wrappers, .. } = outer;
    let mut inner = parse(line, dialect, folder.unwrap_or_default(), depth + 1)?;
    let first = inner.first_mut().ok_or(INCOMPLETE)?;
    first.redirects.splice(0..0, redirects);
    for simple in &mut inner {
        simple.wrappers.splice(0..0, wrappers.iter().cloned());
    }
    commands.append(&mut inner);
    Ok(())
}

/// Where `cd` leads from a folder. `..` is what the shell makes of the words and also what the
/// system makes of the links behind them, so it is known only where no folder was named before it.
fn join(here: &Path, target: &Path) -> Option<PathBuf> {
    let mut folder = if target.is_absolute() { PathBuf::new() } else { here.to_path_buf() };
    for part in target.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if folder.components().all(|it| it == Component::ParentDir) => {
                folder.push(part);
            }
            Component::ParentDir => return None,
            _ => folder.push(part),
        }
    }
    Some(folder)
}
