//! Keeps for each command of an ambiguous line what it takes over from those before it: the folder in which it runs,
//! and the values of variables that the line sets, so that `d=target; rm -rf "$d"` is judged by what it deletes. A
//! variable with several values makes several commands.

use std::path::PathBuf;

use super::super::programs::{WordList, is_in};

use super::super::harm::{is_home, ruin};
use super::super::{SimpleCommand, Word};
use super::known_words;

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
        let program = words.first().map_or("", |word| known_words::name(&word.text));
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
        if is_affordable {
            resolved.extend(variants);
        } else {
            resolved.push(command.clone());
        }
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
    command
        .words
        .iter()
        .any(|word| word.text.contains('$') && replace(&word.text, name, "") != word.text)
}

/// Replaces `$name` and `${name}`.
fn replace(text: &str, name: &str, value: &str) -> String {
    let mut parts = text.split('$');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match after_name(part, name) {
            Some(rest) => {
                whole.push_str(value);
                whole.push_str(rest);
            }
            None => {
                whole.push('$');
                whole.push_str(part);
            }
        }
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
