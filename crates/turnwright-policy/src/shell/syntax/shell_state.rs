//! The words that the shell itself knows: reserved words, builtins that change it, and variables. Keeps for each command of a
//! line what it takes over from those before it: the folders in which it may run, and in an ambiguous line also the values
//! of variables that the line sets, so that `d=target; rm -rf "$d"` is judged by what it deletes. A variable with
//! several values makes several commands.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::super::args::only_reads;
use super::super::harm::{is_home, ruin};
use super::super::programs::{WordList, is_in, is_number};
use super::super::{SimpleCommand, Word};
use super::lexer::{Ambiguity, Terminator};

/// Reserved words, which are not commands.
const RESERVED: &[&str] = &[
    "!", "[[", "]]", "{", "}", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "until", "while",
];

/// Builtins that evaluate text or change the meaning of later commands.
pub(super) const STATEFUL_BUILTINS: WordList = ". alias bg bind break builtin caller chdir \
    compgen complete compopt continue declare dirs disown enable eval exec export fc fg getopts \
    hash history jobs let local logout mapfile read readarray readonly return set setvar shift \
    shopt source suspend times trap typeset ulimit umask unalias unset wait";

/// Variables that only influence output.
const HARMLESS_VARIABLES: WordList = "CARGO_INCREMENTAL CARGO_TERM_COLOR CGO_ENABLED CI CLICOLOR \
    CLICOLOR_FORCE COLUMNS CUDA_VISIBLE_DEVICES DEBUG DO_NOT_TRACK FORCE_COLOR \
    GIT_TERMINAL_PROMPT GOMAXPROCS LINES NEXT_TELEMETRY_DISABLED NODE_ENV NO_COLOR \
    OMP_NUM_THREADS PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONIOENCODING PYTHONUNBUFFERED \
    PYTHONUTF8 RUST_BACKTRACE RUST_LIB_BACKTRACE RUST_LOG RUST_MIN_STACK RUST_TEST_THREADS \
    TOKENIZERS_PARALLELISM";

/// Variables that hold no secret and have for a command that only reads the same value as for all others.
const PLAIN_VARIABLES: WordList = "CARGO_HOME GOPATH GOROOT HOME JAVA_HOME LANG LOGNAME NVM_DIR \
    PWD RUSTUP_HOME SHELL USER XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME";

/// The most words that are made of one with braces.
const MAX_WORDS: usize = 256;

/// Returns true if everybody may see the value of this variable.
pub(in crate::shell) fn is_plain_variable(name: &str) -> bool {
    is_in(PLAIN_VARIABLES, name)
}

pub(super) fn is_assignment(word: &str) -> bool {
    assignment(word).is_some()
}

/// Returns true for a word that may stand in front of a command.
pub(super) fn is_prefix(word: &str) -> bool {
    is_reserved(word) || is_assignment(word)
}

pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// True for the actions of `find` that run a command for each file.
pub(in crate::shell) fn is_find_exec(word: &str) -> bool {
    matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir")
}

/// The name of a program without its folder. A program in the current folder (`./x`) keeps it,
/// because it may be anything.
pub(in crate::shell) fn program_name(program: &str) -> &str {
    match program.strip_prefix("./") {
        Some(rest) if !rest.contains('/') => program,
        _ => program.rsplit('/').next().unwrap_or_default(),
    }
}

/// The words that the shell makes of one with lists in braces, `ac` and `bc` of `{a,b}c`, and true if they are more than
/// can be looked at.
pub(super) fn expand_braces(word: Word) -> (Vec<Word>, bool) {
    let mut words = Vec::new();
    let mut left = vec![word.text];
    let mut is_cut = false;
    while let Some(text) = left.pop() {
        let Some(marks) = first_list(&text) else {
            words.push(Word { text, is_glob: word.is_glob });
            continue;
        };
        is_cut |= left.len() + words.len() >= MAX_WORDS || marks.len() * text.len() >= 1 << 20;
        if is_cut {
            break;
        }
        let end = marks.last().map_or("", |at| &text[at + 1..]);
        let parts = marks.windows(2).rev().map(|pair| &text[pair[0] + 1..pair[1]]);
        left.extend(parts.map(|part| format!("{}{part}{end}", &text[..marks[0]])));
    }
    words.retain(|word| !word.text.is_empty());
    (words, is_cut)
}

/// The places of the first braces that hold a list, and are not within others that do, with the commas between its parts.
fn first_list(word: &str) -> Option<Vec<usize>> {
    let mut open: Vec<Vec<usize>> = Vec::new();
    let mut found: Option<Vec<usize>> = None;
    for (at, mark) in word.match_indices(['{', ',', '}']) {
        if mark == "{" {
            open.push(vec![at]);
        } else if mark == "," {
            if let Some(marks) = open.last_mut() {
                marks.push(at);
            }
        } else if let Some(mut marks) = open.pop() {
            marks.push(at);
            let is_list = marks.len() > 2 && !word[..marks[0]].ends_with('$');
            if is_list && found.as_ref().is_none_or(|other| marks[0] < other[0]) {
                found = Some(marks);
            }
            if open.is_empty() && found.is_some() {
                break;
            }
        }
    }
    found
}

/// True if this assignment does not change what is run.
pub(in crate::shell) fn is_harmless_variable(variable: &str, value: &str) -> bool {
    match variable {
        "TERM" => matches!(value, "dumb" | "xterm" | "xterm-256color"),
        "LANG" | "LANGUAGE" | "LC_ALL" | "LC_COLLATE" | "LC_CTYPE" | "LC_MESSAGES" => {
            is_locale(value)
        }
        // Anything else may name a file.
        "TZ" => {
            !value.starts_with('/')
                && !value.contains("..")
                && value.chars().all(|char| char.is_ascii_alphanumeric() || "_+-/,.".contains(char))
        }
        // git starts none of these itself, or they do nothing.
        "GIT_PAGER" | "PAGER" => value == "cat",
        "EDITOR" | "GIT_EDITOR" | "GIT_SEQUENCE_EDITOR" | "VISUAL" => matches!(value, "true" | ":"),
        "APP_ENV" | "MIX_ENV" | "RACK_ENV" | "RAILS_ENV" => value == "test",
        "NODE_OPTIONS" => value.split(' ').all(is_harmless_node_option),
        _ => is_in(HARMLESS_VARIABLES, variable),
    }
}

fn is_harmless_node_option(option: &str) -> bool {
    option.strip_prefix("--max-old-space-size=").is_some_and(is_number)
        || is_in(
            "--experimental-vm-modules --no-deprecation --no-warnings --trace-warnings",
            option,
        )
}

/// True for a name that scripts give to a variable of their own, which no program obeys.
pub(super) fn is_own_variable(name: &str) -> bool {
    name.starts_with(|char: char| char.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !name.contains("proxy")
}

fn is_locale(value: &str) -> bool {
    let language = value.strip_suffix(".UTF-8").or_else(|| value.strip_suffix(".utf8"));
    matches!(value, "C" | "POSIX")
        || language
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_'))
}

/// The name and the value of an assignment.
pub(in crate::shell) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (variable, value) = word.split_once('=')?;
    let is_name = !variable.starts_with(|char: char| char.is_ascii_digit())
        && !variable.is_empty()
        && variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((variable, value))
}

pub(super) const UNKNOWN_FOLDER: Ambiguity = "it runs in an unknown folder";
/// The most folders in which one command is judged. If it may run in more, they count as unknown.
const MAX_FOLDERS: usize = 4;

/// Returns the folders in which a command may run, unless there are none, which means that they are not known.
pub(super) fn known_folders(folders: &BTreeSet<PathBuf>) -> Result<BTreeSet<PathBuf>, Ambiguity> {
    if folders.is_empty() { Err(UNKNOWN_FOLDER) } else { Ok(folders.clone()) }
}

/// The commands read so far, and the state after them.
///
/// A `cd` may fail: its folder may be missing or closed, and what is there now may be gone when the line runs. After
/// `&&` it has succeeded. After `;`, `||` or a new line the next command runs either in the folder that the `cd` leads
/// to or in the one before, so that command is there once for each and judged in both.
pub(super) struct LineState {
    pub(super) commands: Vec<SimpleCommand>,
    /// The end of the last command.
    pub(super) last: Terminator,
    /// The folders in which the next command may run; none if they are not known.
    pub(super) folders: BTreeSet<PathBuf>,
    /// The folder before that, which `cd -` means, if it is certain.
    previous: Option<PathBuf>,
    /// The folders that `pushd` has certainly left.
    left_folders: Vec<PathBuf>,
    /// The folders in which the current chain of `&&`, `||` and `|` may have begun.
    chain_folders: BTreeSet<PathBuf>,
    /// `chain_folders`, and all folders that a `cd` of the chain leads to: nobody knows how far the chain gets.
    reached: BTreeSet<PathBuf>,
    /// True if each command of the current chain runs only if all commands before it succeeded.
    only_and: bool,
    /// True if nothing but a `cd` that succeeds comes before the current commands.
    pub(super) is_at_start: bool,
}

impl LineState {
    pub(super) fn new(folders: BTreeSet<PathBuf>) -> LineState {
        LineState {
            commands: Vec::new(),
            last: Terminator::Newline,
            chain_folders: folders.clone(),
            reached: folders.clone(),
            folders,
            previous: None,
            left_folders: Vec::new(),
            only_and: true,
            is_at_start: true,
        }
    }

    /// True if another command must follow.
    pub(super) fn is_continued(&self) -> bool {
        matches!(self.last, Terminator::And | Terminator::Or | Terminator::Pipe)
    }

    pub(super) fn may_be_empty(&self, end: Terminator) -> bool {
        end == Terminator::Newline || end == Terminator::EndOfLine && !self.is_continued()
    }

    /// The folders that a command changes to if it succeeds: one for each in which it may run, or none if it changes
    /// no folder.
    pub(super) fn changed_folders(
        &mut self,
        simple: &SimpleCommand,
        end: Terminator,
    ) -> Result<BTreeSet<PathBuf>, Ambiguity> {
        if !changes_folder(simple) {
            return Ok(BTreeSet::new());
        }
        if self.last == Terminator::Pipe || end == Terminator::Pipe || !simple.wrappers.is_empty() {
            return Err(UNKNOWN_FOLDER);
        }
        let folders = known_folders(&self.folders)?;
        // If the folder that a path leads back to was moved, the shell follows it.
        let is_unmoved = || self.commands.iter().all(only_reads);
        let words: Vec<_> = simple.argv().collect();
        let found: Vec<Option<PathBuf>> = match (words.as_slice(), simple.words.last()) {
            (["cd", "-"], _) => vec![self.previous.clone().filter(|_| is_unmoved())],
            (["popd"], _) => vec![self.left_folders.pop().filter(|_| is_unmoved())],
            (["cd" | "pushd", target], Some(word))
                if !word.is_glob && !target.is_empty() && !target.starts_with(['-', '+']) =>
            {
                let joined = folders.iter().map(|here| {
                    let (folder, goes_back) = join(here, Path::new(target))?;
                    (!goes_back || is_unmoved()).then_some(folder)
                });
                joined.collect()
            }
            _ => return Err(UNKNOWN_FOLDER),
        };
        let targets: Option<BTreeSet<PathBuf>> = found.into_iter().collect();
        // With several folders, nobody knows which of them is left.
        let left = folders.first().filter(|_| folders.len() == 1).cloned();
        if simple.program() == "pushd" {
            match &left {
                Some(left) => self.left_folders.push(left.clone()),
                None => self.left_folders.clear(),
            }
        }
        self.previous = left;
        // Behind the last command it does not matter.
        let is_last = end == Terminator::EndOfLine && !self.commands.is_empty();
        targets.or_else(|| is_last.then(BTreeSet::new)).ok_or(UNKNOWN_FOLDER)
    }

    /// Goes on to the next command. `targets` has the folders that this one changes to if it succeeds.
    pub(super) fn advance(&mut self, targets: BTreeSet<PathBuf>, end: Terminator) {
        self.reached.extend(targets.iter().cloned());
        self.is_at_start &=
            end == Terminator::Pipe || end == Terminator::And && !targets.is_empty();
        if self.only_and && matches!(end, Terminator::And | Terminator::Pipe) {
            if !targets.is_empty() {
                self.folders = targets;
            }
        } else {
            // A chain in the background runs in another process, so its `cd` has no effect.
            let is_apart = end == Terminator::Background;
            self.folders.clone_from(if is_apart { &self.chain_folders } else { &self.reached });
            if self.folders.len() > MAX_FOLDERS {
                self.folders.clear();
            }
            self.previous = None;
            self.left_folders.clear();
        }
        self.last = end;
        if self.is_continued() {
            self.only_and &= end != Terminator::Or;
        } else {
            self.only_and = true;
            self.chain_folders.clone_from(&self.folders);
            self.reached.clone_from(&self.folders);
        }
    }
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

/// The folder in which a command runs, relative to that of the line, as far as the commands before it tell.
#[derive(Clone)]
pub(super) struct ShellFolder {
    /// Absolute, or relative to that of the line; `None` if it is not known.
    pub(super) path: Option<PathBuf>,
    pub(super) is_home: bool,
}

impl Default for ShellFolder {
    /// The folder of the line.
    fn default() -> ShellFolder {
        ShellFolder { path: Some(PathBuf::new()), is_home: false }
    }
}

impl ShellFolder {
    /// The folder in which wrappers run a command.
    pub(super) fn follow_wrappers(&mut self, words: &[Word]) {
        let program = words.first().map_or("", |word| program_name(&word.text));
        if program == "su"
            && words.iter().any(|word| matches!(word.text.as_str(), "-" | "-l" | "--login"))
        {
            *self = ShellFolder { path: None, is_home: true };
        } else if let Some(target) = ruin::folder_of_wrapper(words) {
            self.go_to(target);
        }
    }

    /// The folder after a command that changes it.
    pub(super) fn change(&mut self, simple: &SimpleCommand) {
        let program = simple.program();
        let target = simple.argv().skip(1).find(|text| !matches!(*text, "--" | "-L" | "-P"));
        match target {
            Some(target) => self.go_to(target),
            None => *self = ShellFolder { path: None, is_home: program == "cd" },
        }
    }

    fn go_to(&mut self, target: &str) {
        let is_plain = target.starts_with('/') && !target.contains(['$', '*', '?', '[', '{']);
        let path = is_plain.then(|| PathBuf::from(target));
        *self = ShellFolder { path, is_home: is_home(target, None) };
    }
}

/// True for a command after which the next one runs in another folder.
pub(super) fn changes_folder(simple: &SimpleCommand) -> bool {
    matches!(simple.program(), "cd" | "chdir" | "pushd" | "popd")
}

/// Commands that may set any variable.
const SETTERS: WordList = "read mapfile readarray getopts eval source . unset let select printf";
/// Those that set the variables among their arguments.
const DECLARATIONS: WordList = "export declare typeset local readonly";
/// Variables that have a value in any case, which a subshell that sets them does not change.
const INHERITED: WordList = "HOME PWD OLDPWD USER LOGNAME TMPDIR";
/// How many commands may take the place of one, and how often values may contain variables.
const MAX_VARIANTS: usize = 16;
const MAX_ROUNDS: usize = 4;
/// How many commands are added at most.
const MAX_ADDED: usize = 256;

/// The commands with all values that their words can have. What is not known stays as it is.
pub(in crate::shell) fn resolve(
    commands: Vec<SimpleCommand>,
    assigned: &[(String, String)],
) -> Vec<SimpleCommand> {
    let has_setter = commands
        .iter()
        .map(SimpleCommand::program)
        .any(|program| is_in(SETTERS, program) || program.contains("+=") || program.contains("]="));
    let own = assigned.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let all = own.chain(commands.iter().flat_map(set_by));
    let values: Vec<_> = all.filter(|assignment| !is_in(INHERITED, assignment.0)).collect();
    if has_setter || values.is_empty() {
        return commands;
    }
    let mut resolved = Vec::with_capacity(commands.len());
    let count = commands.len();
    for command in &commands {
        let variants = variants(command, &values);
        let is_affordable = resolved.len() + variants.len() <= count + MAX_ADDED;
        resolved.extend(if is_affordable { variants } else { vec![command.clone()] });
    }
    resolved
}

/// A command with the values of the variables that have only one.
pub(super) fn with_values(command: &SimpleCommand, assigned: &[(String, String)]) -> SimpleCommand {
    let own = assigned.iter().filter(|assignment| !is_in(INHERITED, &assignment.0));
    let values: Vec<_> =
        own.map(|assignment| (assignment.0.as_str(), assignment.1.clone())).collect();
    match variants(command, &values).as_slice() {
        [only] => only.clone(),
        _ => command.clone(),
    }
}

/// The variables that a command sets: `export a=b`, and `for a in b c`, which is found as `a in b c`.
fn set_by(command: &SimpleCommand) -> Vec<(&str, String)> {
    let words: Vec<&str> = command.argv().collect();
    match words.as_slice() {
        [name, "in", values @ ..] => {
            values.iter().map(|value| (*name, (*value).to_owned())).collect()
        }
        [program, rest @ ..] if is_in(DECLARATIONS, program) => {
            let set = rest.iter().filter_map(|word| word.split_once('='));
            set.map(|(name, value)| (name, value.to_owned())).collect()
        }
        _ => Vec::new(),
    }
}

fn variants(command: &SimpleCommand, values: &[(&str, String)]) -> Vec<SimpleCommand> {
    let mut all = vec![command.clone()];
    for _ in 0..MAX_ROUNDS {
        let used =
            all.iter().find_map(|command| values.iter().find(|value| uses(command, value.0)));
        let Some((name, _)) = used else { break };
        let of_name = || values.iter().filter(|value| value.0 == *name);
        if all.len() * of_name().count() > MAX_VARIANTS {
            return vec![command.clone()];
        }
        all = all
            .iter()
            .flat_map(|command| of_name().map(|value| with_value(command, name, &value.1)))
            .collect();
    }
    if all.iter().any(has_blanks) && !has_blanks(command) {
        all.extend(all.clone().into_iter().map(split_words));
    }
    all
}

fn with_value(command: &SimpleCommand, name: &str, value: &str) -> SimpleCommand {
    let mut command = command.clone();
    for word in &mut command.words {
        word.text = replace(&word.text, name, value);
    }
    command
}

fn has_blanks(command: &SimpleCommand) -> bool {
    command.words.iter().any(|word| word.text.contains([' ', '\t', '\n']))
}

/// The command as it is if no variable was quoted.
fn split_words(command: SimpleCommand) -> SimpleCommand {
    let words = command.words.iter().flat_map(split_word).collect();
    SimpleCommand { words, ..command }
}

fn split_word(word: &Word) -> impl Iterator<Item = Word> {
    word.text.split_whitespace().map(|part| Word { text: part.to_owned(), is_glob: word.is_glob })
}

fn uses(command: &SimpleCommand, name: &str) -> bool {
    let mut words = command.words.iter();
    words.any(|word| word.text.contains('$') && replace(&word.text, name, "") != word.text)
}

/// Replaces `$name` and `${name}`.
fn replace(text: &str, name: &str, value: &str) -> String {
    let mut parts = text.split('$');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (start, rest) = after_name(part, name).map_or(("$", part), |rest| (value, rest));
        whole.push_str(start);
        whole.push_str(rest);
    }
    whole
}

/// The rest of a part that begins with `name` or `{name}`, as if a `$` stood before it.
fn after_name<'a>(part: &'a str, name: &str) -> Option<&'a str> {
    let braced = part.strip_prefix('{').and_then(|rest| rest.strip_prefix(name)?.strip_prefix('}'));
    braced.or_else(|| {
        let rest = part.strip_prefix(name)?;
        (!rest.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '_'))
            .then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        for table in [STATEFUL_BUILTINS, HARMLESS_VARIABLES, PLAIN_VARIABLES] {
            assert!(table.split(' ').is_sorted(), "{table:?}");
        }
    }
}
