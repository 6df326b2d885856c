//! The parser: turns words and operators into simple commands, each with its folder and the files
//! that the shell opens for it. The first ambiguity ends it.

use std::path::{Component, Path, PathBuf};

use super::lexer::{Ambiguity, Lexer, RawWord, RedirectKind, Terminator, Token, check_characters};
use super::wrappers::{ShellLine, strip_wrappers};
use super::{Redirect, SimpleCommand, Word, known_words};
use turnwright_types::dialect::ShellDialect;

/// The maximum length of a line in bytes. Longer lines are ambiguous.
const MAX_UNAMBIGUOUS_BYTES: usize = 8 * 1024;
const MAX_COMMANDS: usize = 64;
const MAX_WORDS: usize = 1024;
/// How deeply `sh -c` may be nested.
const MAX_DEPTH: usize = 2;

const INCOMPLETE: Ambiguity = "it contains an incomplete command";
const UNKNOWN_FOLDER: Ambiguity = "it runs in an unknown folder";

/// The simple commands of a line that runs in `folder`. `depth` is the number of lines that it is
/// nested in.
pub(super) fn parse(
    line: &str,
    dialect: ShellDialect,
    folder: PathBuf,
    depth: usize,
) -> Result<Vec<SimpleCommand>, Ambiguity> {
    if line.len() > MAX_UNAMBIGUOUS_BYTES {
        return Err("it is longer than 8 KiB");
    }
    if depth > MAX_DEPTH {
        return Err("it nests `sh -c` too deeply");
    }
    check_characters(line)?;
    let mut lexer = Lexer::new(line, dialect);
    let mut state = LineState::new(folder);
    let mut commands = Vec::new();
    let mut word_count = 0;
    loop {
        let (command, end) = next_command(&mut lexer)?;
        if let Some(command) = command {
            word_count += command.words.len();
            state.run(command, end, depth, &mut commands)?;
            if commands.len() > MAX_COMMANDS || word_count > MAX_WORDS {
                return Err("it has more than 64 commands or 1024 words");
            }
        } else if !state.may_be_empty(end) {
            return Err(INCOMPLETE);
        } else if !state.is_continued() {
            state.last = end;
        }
        if end == Terminator::EndOfLine {
            return Ok(commands);
        }
    }
}

/// A simple command while it is read.
#[derive(Default)]
struct PartialCommand {
    words: Vec<Word>,
    redirects: Vec<Redirect>,
    /// Whether its standard output goes to a file.
    stdout_is_file: bool,
    sets_variable: bool,
    has_redirect: bool,
}

/// Reads up to the end of a command. `None` if there is no word before the terminator.
fn next_command(lexer: &mut Lexer<'_>) -> Result<(Option<PartialCommand>, Terminator), Ambiguity> {
    let mut command = PartialCommand::default();
    let mut number = None;
    loop {
        match lexer.next()? {
            Token::Terminator(end) => {
                let is_empty = command.words.is_empty();
                return match is_empty {
                    true if command.sets_variable => Err("it sets a variable"),
                    true if command.has_redirect => Err("it has a redirect without a command"),
                    true => Ok((None, end)),
                    false => Ok((Some(command), end)),
                };
            }
            Token::Word(raw) if raw.touches_redirect && raw.is_number() => {
                if raw.text.len() > 1 {
                    return Err("it uses an unusual file descriptor");
                }
                number = Some(raw.text == "1");
            }
            Token::Word(raw) => command.add_word(raw)?,
            Token::Redirect(kind) => {
                let is_stdout = number.take().unwrap_or(kind != RedirectKind::Read);
                command.add_redirect(kind, is_stdout, &lexer.next()?)?;
            }
            Token::RedirectBoth => {
                command.add_redirect(RedirectKind::Write, true, &lexer.next()?)?;
            }
        }
    }
}

impl PartialCommand {
    fn add_word(&mut self, raw: RawWord) -> Result<(), Ambiguity> {
        if raw.touches_redirect && raw.text.ends_with('}') {
            return Err("it uses an unusual file descriptor");
        }
        if self.words.is_empty() {
            if raw.may_be_assignment
                && let Some((variable, value)) = known_words::assignment(&raw.text)
            {
                self.sets_variable = true;
                let is_harmless = known_words::is_harmless_variable(variable, value);
                return if is_harmless { Ok(()) } else { Err("it sets a variable") };
            }
            if raw.is_glob && raw.text != "[" {
                return Err("it runs a program whose name is not known");
            }
        }
        let is_bracket = self.words.is_empty() && raw.text == "[";
        self.words.push(Word { text: raw.text, is_glob: raw.is_glob && !is_bracket });
        Ok(())
    }

    fn add_redirect(
        &mut self,
        kind: RedirectKind,
        is_stdout: bool,
        target: &Token,
    ) -> Result<(), Ambiguity> {
        self.has_redirect = true;
        let Token::Word(raw) = target else { return Err(INCOMPLETE) };
        if kind == RedirectKind::Duplicate {
            let is_known = raw.is_number() && raw.text.len() == 1 && !raw.touches_redirect;
            let is_closed = raw.text == "-" && !raw.is_quoted;
            return if is_known || is_closed { Ok(()) } else { Err("it uses an unusual redirect") };
        }
        if raw.is_glob || raw.has_brace || raw.text.is_empty() {
            return Err("it redirects to or from a file whose name is not known");
        }
        if raw.touches_redirect && raw.is_number() {
            return Err("it uses an unusual file descriptor");
        }
        self.stdout_is_file |= is_stdout;
        if let Some(redirect) = redirect(&raw.text, kind != RedirectKind::Read)? {
            self.redirects.push(redirect);
        }
        Ok(())
    }
}

/// The file that is opened; `None` for standard streams and `/dev/null`.
pub(super) fn redirect(path: &str, is_write: bool) -> Result<Option<Redirect>, Ambiguity> {
    match path {
        "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr" => Ok(None),
        _ if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") => {
            Err("it opens a network connection")
        }
        _ => Ok(Some(Redirect { path: PathBuf::from(path), is_write })),
    }
}

/// What is known after the commands read so far.
struct LineState {
    /// What ended the last command.
    last: Terminator,
    /// The folder in which the next command runs, if it is known.
    folder: Option<PathBuf>,
    /// The folder in which the current chain of `&&`, `||` and `|` began.
    chain_folder: Option<PathBuf>,
    /// Whether the current chain has changed the folder.
    has_moved: bool,
    /// Whether each command of the current chain runs only if all commands before it succeeded.
    only_and: bool,
}

impl LineState {
    fn new(folder: PathBuf) -> LineState {
        LineState {
            last: Terminator::Newline,
            chain_folder: Some(folder.clone()),
            folder: Some(folder),
            has_moved: false,
            only_and: true,
        }
    }

    /// True if another command must follow.
    fn is_continued(&self) -> bool {
        matches!(self.last, Terminator::And | Terminator::Or | Terminator::Pipe)
    }

    fn may_be_empty(&self, end: Terminator) -> bool {
        end == Terminator::Newline || end == Terminator::EndOfLine && !self.is_continued()
    }

    fn run(
        &mut self,
        command: PartialCommand,
        end: Terminator,
        depth: usize,
        commands: &mut Vec<SimpleCommand>,
    ) -> Result<(), Ambiguity> {
        let PartialCommand { words, redirects, stdout_is_file, .. } = command;
        let folder = Some(self.folder.clone().ok_or(UNKNOWN_FOLDER)?);
        let mut simple = SimpleCommand { words, folder, redirects, ..SimpleCommand::default() };
        let inner = strip_wrappers(&mut simple, stdout_is_file)?;
        let target =
            if simple.program() == "cd" { Some(self.cd_target(&simple, end)?) } else { None };
        match inner {
            Some(line) => parse_nested(simple, &line, depth, commands)?,
            None => commands.push(simple),
        }
        self.advance(target, end);
        Ok(())
    }

    /// The folder that a `cd` changes to.
    fn cd_target(&self, simple: &SimpleCommand, end: Terminator) -> Result<PathBuf, Ambiguity> {
        if self.last == Terminator::Pipe || end == Terminator::Pipe || !simple.wrappers.is_empty() {
            return Err(UNKNOWN_FOLDER);
        }
        let (Some(here), [_, target]) = (&self.folder, simple.words.as_slice()) else {
            return Err(UNKNOWN_FOLDER);
        };
        if target.is_glob || target.text.is_empty() || target.text.starts_with('-') {
            return Err(UNKNOWN_FOLDER);
        }
        join(here, Path::new(&target.text)).ok_or(UNKNOWN_FOLDER)
    }

    fn advance(&mut self, target: Option<PathBuf>, end: Terminator) {
        if let Some(target) = target {
            self.has_moved = true;
            self.folder = (end == Terminator::And && self.only_and).then_some(target);
        }
        match end {
            Terminator::And | Terminator::Pipe => {}
            Terminator::Or => {
                self.only_and = false;
                if self.has_moved {
                    self.folder = None;
                }
            }
            // The whole chain ran in another process, so its `cd` has no effect.
            Terminator::Background => {
                self.folder.clone_from(&self.chain_folder);
                (self.has_moved, self.only_and) = (false, true);
            }
            Terminator::Semicolon | Terminator::Newline | Terminator::EndOfLine => {
                if self.has_moved {
                    self.folder = None;
                }
                self.chain_folder.clone_from(&self.folder);
                (self.has_moved, self.only_and) = (false, true);
            }
        }
        self.last = end;
    }
}

/// Parses a line for a nested shell. The redirects of that shell are added to its first command.
fn parse_nested(
    outer: SimpleCommand,
    line: &ShellLine,
    depth: usize,
    commands: &mut Vec<SimpleCommand>,
) -> Result<(), Ambiguity> {
    let SimpleCommand { folder, redirects, wrappers, .. } = outer;
    let mut inner = parse(&line.text, line.dialect, folder.unwrap_or_default(), depth + 1)?;
    let first = inner.first_mut().ok_or(INCOMPLETE)?;
    first.redirects.splice(0..0, redirects);
    for simple in &mut inner {
        simple.wrappers.splice(0..0, wrappers.iter().cloned());
    }
    commands.append(&mut inner);
    Ok(())
}

/// The target of `cd` from a folder. Shells resolve `..` by the text of the path, other programs by
/// following symlinks. Both agree only if nothing but `..` precedes it; otherwise the folder is
/// unknown.
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
