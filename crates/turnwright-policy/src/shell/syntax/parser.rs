//! The parser: turns words and operators into simple commands, each with its folder and the files
//! that the shell opens for it. A command that may run in several folders is there once for each of them. The first
//! ambiguity ends it.
//!
//! Wrappers such as `nohup` and `timeout 9` are taken off a command, so that the command that they run is judged. A
//! wrapper that is not understood exactly is an ambiguity.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::super::args::{UNKNOWN_WORDS, only_reads, started_by_find, started_by_git};
use super::super::programs::{self, Starts, WordList, is_in};
use super::super::{Redirect, SimpleCommand, Word};
use super::compound::{self, KEYWORD};
use super::here_document;
use super::lexer::{
    Ambiguity, GROUP, HERE_DOCUMENT, Lexer, RawWord, RedirectKind, Terminator, Token, VARIABLE,
    Variable, check_characters,
};
use super::shell_state::{self, LineState, UNKNOWN_FOLDER, changes_folder, known_folders};
use turnwright_types::shell_script::ShellDialect;

/// The maximum length of a line in bytes. Longer lines are ambiguous.
const MAX_UNAMBIGUOUS_BYTES: usize = 8 * 1024;
const MAX_COMMANDS: usize = 64;
const MAX_WORDS: usize = 1024;
/// How deeply `sh -c` may be nested.
const MAX_DEPTH: usize = 2;
const MAX_WRAPPERS: usize = 8;
/// Programs that print or compare a number such as the status of the last command, or end with it.
const TAKE_NUMBER: WordList = "[ echo exit printf test";

pub(super) const INCOMPLETE: Ambiguity = "it contains an incomplete command";
pub(super) const SETS_VARIABLE: Ambiguity = "it sets a variable";
const UNKNOWN_WRAPPER: Ambiguity = "it starts another program in a way that is not understood";

/// The simple commands of a line that runs in one of `folders`: the first of them once for each folder. `depth` is
/// the number of lines that it is nested in.
pub(in crate::shell) fn parse(
    line: &str,
    dialect: ShellDialect,
    folders: BTreeSet<PathBuf>,
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
    let mut state = LineState::new(folders);
    parse_list(&mut lexer, &mut state, &[])?;
    // A shell may read the text after all: from a pipe, or from the file that it went to.
    if lexer.has_document && state.commands.iter().any(here_document::runs_text) {
        return Err(HERE_DOCUMENT);
    }
    match lexer.expansion {
        Some(expansion) if !all_only_read(&state.commands) => Err(expansion),
        _ => Ok(state.commands),
    }
}

/// True if all commands only read. A line of such commands may contain loops, variables and
/// substitutions: no words that these produce change what it does.
fn all_only_read(commands: &[SimpleCommand]) -> bool {
    !commands.is_empty()
        && commands.iter().all(|command| only_reads(command) && !command.writes_file())
}

/// The commands of a substitution, whose opening bracket has been read.
pub(super) fn parse_substitution(lexer: &mut Lexer<'_>) -> Result<Vec<SimpleCommand>, Ambiguity> {
    let folders = known_folders(&lexer.folders)?;
    let outer = std::mem::take(&mut lexer.substituted);
    let mut state = LineState::new(folders.clone());
    compound::group(lexer, &mut state)?;
    (lexer.folders, lexer.substituted) = (folders, outer);
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
        lexer.folders.clone_from(&state.folders);
        if matches!(state.last, Terminator::Semicolon | Terminator::Newline)
            && let Some(keyword) = until.iter().find(|keyword| lexer.eat_keyword(keyword))
        {
            return Ok(keyword);
        }
        let first = state.commands.len();
        let is_negated = lexer.eat_keyword("!");
        let end = if compound::parse(lexer, state)? {
            let end_after_compound = end_of_compound(lexer)?;
            state.advance(BTreeSet::new(), end_after_compound);
            end_after_compound
        } else {
            simple_command(lexer, state)?
        };
        if is_negated {
            lexer.expansion.get_or_insert(KEYWORD);
            // The rest runs only if the folder has not been changed.
            if state.commands[first..].iter().any(changes_folder) {
                return Err(UNKNOWN_FOLDER);
            }
        }
        check_size(&state.commands)?;
        if end == Terminator::EndOfLine {
            return if until.is_empty() { Ok("") } else { Err(INCOMPLETE) };
        }
    }
}

/// Refuses more commands or words than are judged.
fn check_size(commands: &[SimpleCommand]) -> Result<(), Ambiguity> {
    let word_count: usize = commands.iter().map(|command| command.words.len()).sum();
    if commands.len() > MAX_COMMANDS || word_count > MAX_WORDS {
        return Err("it has more than 64 commands or 1024 words");
    }
    Ok(())
}

fn simple_command(lexer: &mut Lexer<'_>, state: &mut LineState) -> Result<Terminator, Ambiguity> {
    let (command, end) = next_command(lexer)?;
    state.commands.append(&mut lexer.substituted);
    match command {
        Some(command) if command.words.is_empty() => {
            set_variable(lexer, state, command.assigned, end)?;
        }
        Some(command) => command.run(state, end, lexer.shell_depth)?,
        None if !state.may_be_empty(end) => return Err(INCOMPLETE),
        None if !state.is_continued() => state.last = end,
        None => {}
    }
    Ok(end)
}

/// Sets a variable for the rest of the list. It must be certain that this happens, in this
/// shell, and it must not change the value that another part of the line reads.
fn set_variable(
    lexer: &mut Lexer<'_>,
    state: &mut LineState,
    assigned: Option<Variable>,
    end: Terminator,
) -> Result<(), Ambiguity> {
    let is_certain = matches!(state.last, Terminator::Semicolon | Terminator::Newline)
        && !matches!(end, Terminator::Or | Terminator::Pipe | Terminator::Background);
    let assigned = assigned.filter(|_| is_certain).ok_or(SETS_VARIABLE)?;
    compound::add_variable(lexer, assigned)?;
    state.advance(BTreeSet::new(), end);
    Ok(())
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
    has_document: bool,
    has_unknown_args: bool,
    has_inherited_args: bool,
    /// True if a number such as `$?` is an argument for which it matters which number it is.
    has_unknown_number: bool,
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
    if command.has_unknown_number {
        lexer.expansion.get_or_insert("it uses a number that only the shell knows");
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
                Token::Word(raw) => self.add_word(raw, lexer.is_bash)?,
                // Written to as `/dev/fd/2`, that file is opened again.
                Token::HereDocument | Token::Redirect(RedirectKind::Read) if number.is_some() => {
                    return Err("it uses an unusual file descriptor");
                }
                Token::Redirect(kind) => {
                    let is_input = matches!(kind, RedirectKind::Read | RedirectKind::HereString);
                    let is_stdout = number.take().unwrap_or(!is_input);
                    self.add_redirect(kind, is_stdout, &lexer.next()?)?;
                }
                Token::HereDocument => {
                    (self.has_redirect, self.has_document) = (true, true);
                }
                Token::RedirectBoth => {
                    self.add_redirect(RedirectKind::Write, true, &lexer.next()?)?;
                }
            }
        }
    }

    fn add_word(&mut self, raw: RawWord, is_bash: bool) -> Result<(), Ambiguity> {
        if raw.touches_redirect && raw.text.ends_with('}') {
            return Err("it uses an unusual file descriptor");
        }
        // There is no brace expansion without one of these.
        if raw.has_brace && (raw.text.contains(',') || raw.text.contains("..")) {
            let list = raw.expand_lists().filter(|_| is_bash && !self.words.is_empty());
            return list.ok_or("it contains a brace expansion").map(|list| self.words.extend(list));
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
            if raw.is_glob && raw.text != "[" && (raw.text != "[[" || raw.is_quoted || !is_bash) {
                return Err("it runs a program whose name is not known");
            }
        }
        let is_bracket = self.words.is_empty() && raw.text == "[";
        self.has_inherited_args |= raw.is_inherited;
        // `1` stands for `$(nproc)`, which the options for jobs may have, and `0` for a status.
        let takes_number = self.words.first().is_some_and(|word| is_in(TAKE_NUMBER, &word.text))
            || is_in("-j1 --jobs=1 --parallel=1", &raw.text)
            || raw.text == "1"
                && self.words.last().is_some_and(|word| is_in("-j --jobs --parallel", &word.text));
        self.has_unknown_number |= raw.has_number && !takes_number;
        if raw.is_unknown || raw.has_number && !takes_number {
            self.has_unknown_args = true;
            self.words.push(Word { text: UNKNOWN_WORDS.to_owned(), is_glob: true });
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
        let is_unknown = raw.is_unknown || raw.has_number;
        if raw.is_glob || is_unknown || raw.has_brace || raw.text.is_empty() {
            return Err("it redirects to or from a file whose name is not known");
        }
        if raw.touches_redirect && raw.is_number() {
            return Err("it uses an unusual file descriptor");
        }
        self.stdout_is_file |= is_stdout;
        let only_appends = kind == RedirectKind::Append;
        self.redirects.extend(redirect(&raw.text, kind != RedirectKind::Read, only_appends)?);
        Ok(())
    }

    /// Adds the command to those of the line, without its wrappers.
    fn run(self, state: &mut LineState, end: Terminator, depth: usize) -> Result<(), Ambiguity> {
        let PartialCommand {
            words, redirects, stdout_is_file, has_document, has_unknown_args, ..
        } = self;
        let folders = known_folders(&state.folders)?;
        let opens_later = !state.is_at_start;
        let mut simple = SimpleCommand {
            words,
            redirects,
            opens_later,
            has_unknown_args,
            ..SimpleCommand::default()
        };
        write_as_test(&mut simple.words);
        let inner = strip_wrappers(&mut simple, stdout_is_file)?;
        if has_document && (inner.is_some() || !here_document::takes_text(&simple)) {
            return Err(HERE_DOCUMENT);
        }
        let targets = state.changed_folders(&simple, end)?;
        match inner {
            Some((line, dialect)) => {
                state.commands.append(&mut parse_nested(simple, &line, dialect, folders, depth)?);
            }
            None => {
                let mut started = started_by_find(&simple);
                started.push(simple);
                // `find` may start hundreds of long commands, and each is copied for each folder.
                check_size(&started)?;
                for command in started {
                    let copies = folders.iter().map(|folder| SimpleCommand {
                        folder: Some(folder.clone()),
                        ..command.clone()
                    });
                    state.commands.extend(copies);
                }
            }
        }
        state.advance(targets, end);
        Ok(())
    }
}

/// Writes bash's `[[ -f x ]]` as `[ -f x ]`, which does the same. Comparisons may evaluate arithmetic, which can run
/// commands.
fn write_as_test(words: &mut [Word]) {
    let [open, negations @ .., operator, _, close] = words else { return };
    let is_plain = negations.iter().all(|word| word.text == "!")
        && is_in("-d -e -f -h -L -n -r -s -w -x -z", &operator.text);
    if is_plain && open.is_glob && open.text == "[[" && close.text == "]]" {
        *open = Word::plain("[");
        *close = Word::plain("]");
    }
}

/// The file that is opened; `None` for standard streams and `/dev/null`.
pub(in crate::shell) fn redirect(
    path: &str,
    is_write: bool,
    only_appends: bool,
) -> Result<Option<Redirect>, Ambiguity> {
    match path {
        // Written to, it is the file that is read.
        "/dev/stdin" | "/dev/fd/0" if !is_write => Ok(None),
        "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/fd/1" | "/dev/fd/2" => Ok(None),
        _ if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") => {
            Err("it opens a network connection")
        }
        _ => Ok(Some(Redirect { path: PathBuf::from(path), is_write, only_appends })),
    }
}

/// Parses a line for a nested shell. The redirects of that shell are added to its first command.
fn parse_nested(
    outer: SimpleCommand,
    line: &str,
    dialect: ShellDialect,
    folders: BTreeSet<PathBuf>,
    depth: usize,
) -> Result<Vec<SimpleCommand>, Ambiguity> {
    let SimpleCommand { redirects, opens_later, wrappers, .. } = outer;
    let folder_count = folders.len();
    let mut inner = parse(line, dialect, folders, depth + 1)?;
    if inner.is_empty() {
        return Err(INCOMPLETE);
    }
    for first in inner.iter_mut().take(folder_count) {
        first.redirects.splice(0..0, redirects.iter().cloned());
    }
    for simple in &mut inner {
        simple.wrappers.splice(0..0, wrappers.iter().cloned());
        simple.opens_later |= opens_later;
    }
    Ok(inner)
}

/// Takes the wrappers off a command. If a shell with a line of its own is left (`sh -c`), it is
/// taken off, too, and the line is returned with its dialect.
fn strip_wrappers(
    simple: &mut SimpleCommand,
    stdout_is_file: bool,
) -> Result<Option<(String, ShellDialect)>, Ambiguity> {
    loop {
        check_program(simple)?;
        let program = simple.program();
        let own_word_count = match program {
            "env" if simple.words.len() == 1 && !simple.has_unknown_args => return Ok(None),
            "command" if is_in("-v -V", word(simple, 1)) => return Ok(None),
            "sh" | "bash" | "dash" => return shell_line(simple),
            _ => {
                let starts = programs::find(shell_state::program_name(program)).starts;
                if !matches!(starts, Starts::Program | Starts::Shell) {
                    return Ok(None);
                }
                // A program that is named by its path may be another one than the known wrapper, so
                // its own words are not looked up.
                (programs::find(program).wrapper_words)(simple)
            }
        };
        let own_word_count =
            own_word_count.filter(|count| *count < simple.words.len()).ok_or(UNKNOWN_WRAPPER)?;
        let is_glob = simple.words[..=own_word_count].iter().any(|word| word.is_glob);
        if is_glob || simple.wrappers.len() == MAX_WRAPPERS {
            return Err(UNKNOWN_WRAPPER);
        }
        if simple.program() == "nohup" && !stdout_is_file {
            // If its output is a terminal, `nohup` writes to a file instead.
            simple.redirects.extend(redirect("nohup.out", true, true)?);
            simple.opens_later = true;
        }
        simple.has_unknown_args |= simple.program() == "xargs";
        let wrapper = simple.words.drain(..own_word_count).next();
        simple.wrappers.extend(wrapper.map(|word| word.text));
    }
}

/// Refuses words that are not a program, and programs that do more than their words say.
fn check_program(simple: &SimpleCommand) -> Result<(), Ambiguity> {
    let program = simple.program();
    let is_name = !program.starts_with('-')
        && program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./+@,:-".contains(&byte));
    if program != "[" && (program.is_empty() || !is_name) {
        return Err("it runs a program whose name is not known");
    }
    if shell_state::is_reserved(program) {
        return Err(KEYWORD);
    }
    // These forms change nothing about which programs later commands run, and on which files.
    let is_harmless = || matches!(program, "export" | "set" | "ulimit") && only_reads(simple);
    if is_in(shell_state::STATEFUL_BUILTINS, program) && !is_harmless() {
        return Err("it changes the state of the shell");
    }
    let arguments = &simple.words[1..];
    match shell_state::program_name(program) {
        // With these options they evaluate an array index in the name of the variable, which may
        // run commands.
        "test" | "["
            if arguments
                .iter()
                .any(|word| word.is_glob || word.text == "-v" || word.text == "-R") =>
        {
            Err("it evaluates a variable name, which can run commands")
        }
        "printf" if arguments.first().is_some_and(may_set_variable) => Err("it sets a variable"),
        "find" if simple.argv().any(shell_state::is_find_exec) && !only_reads(simple) => {
            Err("it runs a command for each file that it finds")
        }
        "git" if started_by_git(arguments).is_some() => Err("git runs a command that it is given"),
        _ => Ok(()),
    }
}

/// True if `printf` may set a variable: by an option, or by `%n`.
fn may_set_variable(format: &Word) -> bool {
    let mut conversions = format.text.split('%').skip(1);
    format.is_glob
        || format.text.starts_with('-')
        || conversions.any(|conversion| {
            conversion
                .trim_start_matches(|char: char| {
                    char.is_ascii_digit() || "-+ #.*'hlLjzt".contains(char)
                })
                .starts_with('n')
        })
}

pub(in crate::shell) fn word(simple: &SimpleCommand, index: usize) -> &str {
    simple.words.get(index).map_or("", |word| &word.text)
}

/// The line of `sh -c LINE`. `None` for a script file, which is an operand like others.
fn shell_line(simple: &mut SimpleCommand) -> Result<Option<(String, ShellDialect)>, Ambiguity> {
    let is_script = !word(simple, 1).starts_with(['-', '+']);
    if is_script && !simple.has_unknown_args && !simple.words.iter().any(|word| word.is_glob) {
        return Ok(None);
    }
    let is_line = matches!(simple.words.as_slice(), [_, option, line]
        if option.text == "-c" && !option.is_glob && !line.is_glob);
    // Unknown arguments could become part of the line.
    if !is_line || simple.has_unknown_args {
        return Err(UNKNOWN_WRAPPER);
    }
    let dialect = if simple.program() == "bash" { ShellDialect::Bash } else { ShellDialect::Posix };
    let mut words = std::mem::take(&mut simple.words).into_iter().map(|word| word.text);
    simple.wrappers.extend(words.next());
    Ok(words.nth(1).map(|line| (line, dialect)))
}
