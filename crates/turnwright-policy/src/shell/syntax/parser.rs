//! The parser: turns words and operators into simple commands, each with its folder and the files
//! that the shell opens for it. The first ambiguity ends it.

use std::path::{Component, Path, PathBuf};

use super::super::{Redirect, SimpleCommand, Word, read_only};
use super::lexer::{
    Ambiguity, GROUP, Lexer, RawWord, RedirectKind, Terminator, Token, VARIABLE, Variable,
    check_characters,
};
use super::shell_state::changes_folder;
use super::wrappers::strip_wrappers;
use super::{compound, shell_state};
use turnwright_types::shell_script::ShellDialect;

/// The maximum length of a line in bytes. Longer lines are ambiguous.
const MAX_UNAMBIGUOUS_BYTES: usize = 8 * 1024;
const MAX_COMMANDS: usize = 64;
const MAX_WORDS: usize = 1024;
/// How deeply `sh -c` may be nested.
const MAX_DEPTH: usize = 2;

pub(super) const INCOMPLETE: Ambiguity = "it contains an incomplete command";
pub(super) const SETS_VARIABLE: Ambiguity = "it sets a variable";
pub(super) const UNKNOWN_FOLDER: Ambiguity = "it runs in an unknown folder";

/// The simple commands of a line that runs in `folder`. `depth` is the number of lines that it is
/// nested in.
pub(in crate::shell) fn parse(
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
    lexer.shell_depth = depth;
    let mut state = LineState::new(folder);
    parse_list(&mut lexer, &mut state, &[])?;
    match lexer.expansion {
        Some(expansion) if !only_reads(&state.commands) => Err(expansion),
        _ => Ok(state.commands),
    }
}

/// True if all commands only read. A line of such commands may contain loops, variables and
/// substitutions: no words that these produce change what it does.
fn only_reads(commands: &[SimpleCommand]) -> bool {
    !commands.is_empty()
        && commands.iter().all(|command| {
            read_only::reads(command).is_some()
                && !command.redirects.iter().any(|redirect| redirect.is_write)
        })
}

/// The commands of a substitution, whose opening bracket has been read.
pub(super) fn parse_substitution(lexer: &mut Lexer<'_>) -> Result<Vec<SimpleCommand>, Ambiguity> {
    let folder = lexer.folder.clone().ok_or(UNKNOWN_FOLDER)?;
    let outer = std::mem::take(&mut lexer.substituted);
    let mut state = LineState::new(folder.clone());
    compound::group(lexer, &mut state)?;
    (lexer.folder, lexer.substituted) = (Some(folder), outer);
    Ok(state.commands)
}

/// Reads commands up to one of the keywords, which is returned, or to the end of the text if there are
/// none.
pub(super) fn parse_list(
    lexer: &mut Lexer<'_>,
    state: &mut LineState,
    until: &[&'static str],
) -> Result<&'static str, Ambiguity> {
    loop {
        lexer.folder.clone_from(&state.folder);
        if matches!(state.last, Terminator::Semicolon | Terminator::Newline)
            && let Some(keyword) = until.iter().find(|keyword| lexer.eat_keyword(keyword))
        {
            return Ok(keyword);
        }
        let end = if compound::parse(lexer, state)? {
            let end_after_compound = end_of_compound(lexer)?;
            state.advance(None, end_after_compound);
            end_after_compound
        } else {
            simple_command(lexer, state)?
        };
        let word_count: usize = state.commands.iter().map(|command| command.words.len()).sum();
        if state.commands.len() > MAX_COMMANDS || word_count > MAX_WORDS {
            return Err("it has more than 64 commands or 1024 words");
        }
        if end == Terminator::EndOfLine {
            return if until.is_empty() { Ok("") } else { Err(INCOMPLETE) };
        }
    }
}

fn simple_command(lexer: &mut Lexer<'_>, state: &mut LineState) -> Result<Terminator, Ambiguity> {
    let (command, end) = next_command(lexer)?;
    state.commands.append(&mut lexer.substituted);
    match command {
        Some(command) if command.words.is_empty() => {
            state.set_variable(lexer, command.assigned, end)?;
        }
        Some(command) => state.run(command, end, lexer.shell_depth)?,
        None if !state.may_be_empty(end) => return Err(INCOMPLETE),
        None if !state.is_continued() => state.last = end,
        None => {}
    }
    Ok(end)
}

/// A simple command while it is read.
#[derive(Default)]
struct PartialCommand {
    words: Vec<Word>,
    redirects: Vec<Redirect>,
    /// True if its standard output goes to a file.
    stdout_is_file: bool,
    sets_variable: bool,
    /// The variable that the command only sets.
    assigned: Option<Variable>,
    has_redirect: bool,
    has_unknown_args: bool,
    has_inherited_args: bool,
}

/// Reads up to the end of a command. `None` if there is nothing before the terminator.
fn next_command(lexer: &mut Lexer<'_>) -> Result<(Option<PartialCommand>, Terminator), Ambiguity> {
    let mut command = PartialCommand::default();
    let end = command.read(lexer)?;
    let is_empty = command.words.is_empty();
    // Other programs take the value for a file, which is one outside of the project.
    if command.has_inherited_args && command.words.first().is_none_or(|word| word.text != "echo") {
        return Err(VARIABLE);
    }
    let only_assigns = is_empty && !command.has_redirect && !command.sets_variable;
    match (is_empty, &command.assigned) {
        (true, Some(_)) if only_assigns => Ok((Some(command), end)),
        (_, Some(_)) => Err(SETS_VARIABLE),
        (true, None) if command.sets_variable => Err(SETS_VARIABLE),
        (true, None) if command.has_redirect => Err("it has a redirect without a command"),
        (true, None) => Ok((None, end)),
        (false, None) => Ok((Some(command), end)),
    }
}

/// Reads what follows a loop or group. It may redirect only to `/dev/null` and standard streams.
fn end_of_compound(lexer: &mut Lexer<'_>) -> Result<Terminator, Ambiguity> {
    let mut rest = PartialCommand::default();
    let end = rest.read(lexer)?;
    let is_plain =
        rest.words.is_empty() && rest.redirects.is_empty() && lexer.substituted.is_empty();
    let sets_variable = rest.sets_variable || rest.assigned.is_some();
    if is_plain && !sets_variable { Ok(end) } else { Err(GROUP) }
}

impl PartialCommand {
    fn read(&mut self, lexer: &mut Lexer<'_>) -> Result<Terminator, Ambiguity> {
        let mut number = None;
        loop {
            lexer.is_at_folder =
                self.words.len() == 1 && matches!(self.words[0].text.as_str(), "cd" | "pushd");
            match lexer.next()? {
                Token::Terminator(end) => return Ok(end),
                Token::Word(raw) if raw.touches_redirect && raw.is_number() => {
                    if raw.text.len() > 1 {
                        return Err("it uses an unusual file descriptor");
                    }
                    number = Some(raw.text == "1");
                }
                Token::Word(raw) => self.add_word(raw)?,
                Token::Redirect(kind) => {
                    let is_input = matches!(kind, RedirectKind::Read | RedirectKind::HereString);
                    let is_stdout = number.take().unwrap_or(!is_input);
                    self.add_redirect(kind, is_stdout, &lexer.next()?)?;
                }
                Token::RedirectBoth => {
                    self.add_redirect(RedirectKind::Write, true, &lexer.next()?)?;
                }
            }
        }
    }

    fn add_word(&mut self, raw: RawWord) -> Result<(), Ambiguity> {
        if raw.touches_redirect && raw.text.ends_with('}') {
            return Err("it uses an unusual file descriptor");
        }
        if self.words.is_empty() {
            if raw.may_be_assignment
                && let Some((variable, value)) = shell_state::assignment(&raw.text)
            {
                let is_harmless = shell_state::is_harmless_variable(variable, value);
                if is_harmless && !raw.is_unknown {
                    self.sets_variable = true;
                    return Ok(());
                }
                let is_own = shell_state::is_own_variable(variable) && !raw.is_inherited;
                if !is_own || self.assigned.is_some() {
                    return Err(SETS_VARIABLE);
                }
                let is_known = !raw.is_unknown && !raw.is_expanded;
                let value = is_known.then(|| Word::plain(value));
                self.assigned = Some((variable.to_owned(), value));
                return Ok(());
            }
            if raw.is_expanded {
                return Err(VARIABLE);
            }
            if raw.is_glob && raw.text != "[" {
                return Err("it runs a program whose name is not known");
            }
        }
        let is_bracket = self.words.is_empty() && raw.text == "[";
        self.has_inherited_args |= raw.is_inherited;
        if raw.is_unknown {
            self.has_unknown_args = true;
            self.words.push(Word { text: read_only::UNKNOWN_WORDS.to_owned(), is_glob: true });
            return Ok(());
        }
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
        if kind == RedirectKind::HereString {
            return Ok(());
        }
        if kind == RedirectKind::Duplicate {
            let is_known = raw.is_number() && raw.text.len() == 1 && !raw.touches_redirect;
            let is_closed = raw.text == "-" && !raw.is_quoted;
            return if is_known || is_closed { Ok(()) } else { Err("it uses an unusual redirect") };
        }
        if raw.is_glob || raw.is_unknown || raw.has_brace || raw.text.is_empty() {
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
pub(in crate::shell) fn redirect(
    path: &str,
    is_write: bool,
) -> Result<Option<Redirect>, Ambiguity> {
    match path {
        "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr" => Ok(None),
        _ if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") => {
            Err("it opens a network connection")
        }
        _ => Ok(Some(Redirect { path: PathBuf::from(path), is_write })),
    }
}

/// The commands read so far, and the state after them.
pub(in crate::shell) struct LineState {
    pub(super) commands: Vec<SimpleCommand>,
    /// The end of the last command.
    last: Terminator,
    /// The folder in which the next command runs, if it is known.
    pub(in crate::shell) folder: Option<PathBuf>,
    /// The folder before that, which `cd -` means, if it is known.
    previous: Option<PathBuf>,
    /// The folders that `pushd` has left.
    left_folders: Vec<PathBuf>,
    /// The folder in which the current chain of `&&`, `||` and `|` began.
    chain_folder: Option<PathBuf>,
    /// True if the current chain has changed the folder.
    has_moved: bool,
    /// True if each command of the current chain runs only if all commands before it succeeded.
    only_and: bool,
}

impl LineState {
    pub(in crate::shell) fn new(folder: PathBuf) -> LineState {
        LineState {
            commands: Vec::new(),
            last: Terminator::Newline,
            chain_folder: Some(folder.clone()),
            folder: Some(folder),
            previous: None,
            left_folders: Vec::new(),
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
    ) -> Result<(), Ambiguity> {
        let PartialCommand { words, redirects, stdout_is_file, has_unknown_args, .. } = command;
        let folder = Some(self.folder.clone().ok_or(UNKNOWN_FOLDER)?);
        let mut simple = SimpleCommand {
            words,
            folder,
            redirects,
            has_unknown_args,
            ..SimpleCommand::default()
        };
        let inner = strip_wrappers(&mut simple, stdout_is_file)?;
        let target =
            if changes_folder(&simple) { Some(self.changed_folder(&simple, end)?) } else { None };
        match inner {
            Some((line, dialect)) => {
                self.commands.append(&mut parse_nested(simple, &line, dialect, depth)?);
            }
            None => {
                self.commands.extend(read_only::started_by_find(&simple));
                self.commands.push(simple);
            }
        }
        self.advance(target, end);
        Ok(())
    }

    /// Sets a variable for the rest of the list. It must be certain that this happens, in this
    /// shell, and it must not change the value that another part of the line reads.
    fn set_variable(
        &mut self,
        lexer: &mut Lexer<'_>,
        assigned: Option<Variable>,
        end: Terminator,
    ) -> Result<(), Ambiguity> {
        let is_certain = matches!(self.last, Terminator::Semicolon | Terminator::Newline)
            && !matches!(end, Terminator::Or | Terminator::Pipe | Terminator::Background);
        let assigned = assigned.filter(|_| is_certain).ok_or(SETS_VARIABLE)?;
        compound::add_variable(lexer, assigned)?;
        self.advance(None, end);
        Ok(())
    }

    /// The folder that a command changes to.
    fn changed_folder(
        &mut self,
        simple: &SimpleCommand,
        end: Terminator,
    ) -> Result<PathBuf, Ambiguity> {
        if self.last == Terminator::Pipe || end == Terminator::Pipe || !simple.wrappers.is_empty() {
            return Err(UNKNOWN_FOLDER);
        }
        let here = self.folder.clone().ok_or(UNKNOWN_FOLDER)?;
        // If the folder that a path leads back to was moved, the shell follows it.
        let is_unmoved = || self.commands.iter().all(|command| read_only::reads(command).is_some());
        let words: Vec<_> = simple.argv().collect();
        let folder = match (words.as_slice(), simple.words.last()) {
            (["cd", "-"], _) => self.previous.clone().filter(|_| is_unmoved()),
            (["popd"], _) => self.left_folders.pop().filter(|_| is_unmoved()),
            (["cd" | "pushd", target], Some(word))
                if !word.is_glob && !target.is_empty() && !target.starts_with(['-', '+']) =>
            {
                let joined = join(&here, Path::new(target));
                joined.filter(|(_, goes_back)| !goes_back || is_unmoved()).map(|joined| joined.0)
            }
            _ => None,
        };
        let folder = folder.ok_or(UNKNOWN_FOLDER)?;
        if simple.program() == "pushd" {
            self.left_folders.push(here.clone());
        }
        self.previous = Some(here);
        Ok(folder)
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
                self.previous = None;
                self.left_folders.clear();
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
    line: &str,
    dialect: ShellDialect,
    depth: usize,
) -> Result<Vec<SimpleCommand>, Ambiguity> {
    let SimpleCommand { folder, redirects, wrappers, .. } = outer;
    let mut inner = parse(line, dialect, folder.unwrap_or_default(), depth + 1)?;
    let first = inner.first_mut().ok_or(INCOMPLETE)?;
    first.redirects.splice(0..0, redirects);
    for simple in &mut inner {
        simple.wrappers.splice(0..0, wrappers.iter().cloned());
    }
    Ok(inner)
}

/// The target of `cd` from a folder, as shells resolve it: by the text of the path, and not by following links as other
/// programs do; and true if it leads through a `..` behind a folder. Within one word the folder in front of a `..` need
/// not exist, so then the target is unknown.
fn join(here: &Path, target: &Path) -> Option<(PathBuf, bool)> {
    let mut folder = if target.is_absolute() { PathBuf::new() } else { here.to_path_buf() };
    let mut goes_back = false;
    let mut goes_below = false;
    for part in target.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if folder.components().all(|component| component == Component::ParentDir) =>
            {
                folder.push(part);
            }
            Component::ParentDir if !goes_below && folder.file_name().is_some() => {
                folder.pop();
                goes_back = true;
            }
            Component::ParentDir => return None,
            _ => {
                folder.push(part);
                goes_below = true;
            }
        }
    }
    Some((folder, goes_back))
}
