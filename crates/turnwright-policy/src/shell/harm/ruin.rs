//! Decides whether a command could destroy more than the files of a project: the system, a home folder, a disk,
//! or a path that is not known in advance. A command that certainly does so is never run. One that possibly
//! does so needs the user's approval in every mode.

use std::collections::HashSet;
use std::path::Path;

use super::super::args::{self, Args, is_option, only_reads, operands};
use super::super::programs::{Starts, WordList, is_in};
use super::super::syntax::command_scanner;
use super::super::{Script, SimpleCommand, Word};
use super::{
    HOME, Harm, SHUTDOWN, Target, first_danger, is_device, is_disk, is_everything, is_home,
    is_system, path_parts,
};

const FILES: &str = "deletes the system or all of a user's files";
const SOME_FILES: &str = "may delete files of the whole system";
const UNKNOWN_FILES: &str = "deletes a folder that is not known in advance";
const PERMISSIONS: &str = "changes the file permissions of the whole system";
const UNKNOWN_PERMISSIONS: &str =
    "changes the permissions of a folder that is not known in advance";
const DISK: &str = "destroys the content of a disk";
const MAYBE_DISK: &str = "may destroy the content of a disk";
const DEVICE: &str = "writes to a device";
const RUNS_FOR_EACH_FILE: &str = "runs a program for every file of the system or of a user";
const UNKNOWN_PROGRAM: &str = "may delete the system, because its program is not known in advance";
const RUINOUS_TEXT: &str = "contains a command that would ruin the system, and may run it";

/// How bad a command could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruin {
    /// It would ruin the system, and must never be run. The text completes a sentence that begins with "it".
    Certain(&'static str),
    /// It could ruin the system, and needs the user's approval in every mode. The text completes the same sentence.
    Possible(&'static str),
}

/// Finds the ruin that a command of a script could cause if the script runs in `workdir`. The user's home folder is
/// `home`.
pub fn ruin(script: &Script, index: usize, workdir: &Path, home: Option<&Path>) -> Option<Ruin> {
    let command = script.commands.get(index)?;
    let found = ruin_of_command(command, workdir, home);
    found.or_else(|| ruin_of_unknown_files(script, command, workdir, home))
}

/// Finds the ruin that a command could cause by itself, regardless of the other commands of its script.
pub(in crate::shell) fn ruin_of_command(
    command: &SimpleCommand,
    workdir: &Path,
    home: Option<&Path>,
) -> Option<Ruin> {
    let context = CommandContext::new(command, workdir, home);
    let redirects = command.redirects.iter().filter(|redirect| redirect.is_write);
    let written = redirects.filter_map(|redirect| redirect.path.to_str());
    let ruins = written
        .filter_map(|text| context.assess(Target { text, harm: Harm::Overwrites }))
        .chain(context.ruin_of_words(command))
        .chain(ruin_of_disk_argument(command))
        .chain(context.ruin_of_unknown_program(command))
        .chain(ruin_in_arguments(command));
    worst(ruins)
}

/// Returns one that is certain, or else the first.
fn worst(ruins: impl Iterator<Item = Ruin>) -> Option<Ruin> {
    ruins.min_by_key(|ruin| matches!(ruin, Ruin::Possible(_)))
}

/// Finds a ruinous command in text that a program of the line may run: an argument, the value of a variable, or
/// standard input. Returns a description that completes a sentence beginning with "it".
pub fn find_ruinous_text(script: &Script) -> Option<&'static str> {
    let reads_commands = script.commands.iter().any(is_shell_with_input);
    let mut texts: Vec<&str> = script.texts.iter().map(String::as_str).collect();
    for command in &script.commands {
        if reads_commands || !only_reads(command) {
            texts.extend(arguments_with_commands(command));
        }
    }
    // `echo rm -rf /` prints its arguments as one line, so they are also searched joined.
    let printing = script.commands.iter().filter(|command| reads_commands && is_echo(command));
    let printed: Vec<String> =
        printing.map(|command| command.argv().skip(1).collect::<Vec<_>>().join(" ")).collect();
    texts.extend(printed.iter().map(String::as_str));
    let mut budget = MAX_TEXT_BYTES;
    has_ruinous_text(&texts, 0, &mut HashSet::new(), &mut budget).then_some(RUINOUS_TEXT)
}

fn is_echo(command: &SimpleCommand) -> bool {
    is_in("echo printf", command.program())
}

/// True for a function that starts itself twice in the background: `:(){ :|:& };:`.
pub fn is_fork_bomb(line: &str) -> bool {
    let text: String = line.chars().filter(|char| !char.is_whitespace()).collect();
    text.match_indices("(){").any(|(at, head)| {
        let before = text[..at]
            .trim_end_matches(|char: char| char.is_alphanumeric() || "_:.-".contains(char));
        let name = &text[before.len()..at];
        !name.is_empty() && text[at + head.len()..].starts_with(&format!("{name}|{name}&"))
    })
}

/// The folders against which the paths of a command are resolved.
struct CommandContext<'a> {
    workdir: &'a Path,
    home: Option<&'a Path>,
    /// The folder that the line names, or that a wrapper changes to.
    folder: NamedFolder,
}

/// The working directory of a command, as far as the line determines it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NamedFolder {
    /// An absolute path, or `~`.
    Known(String),
    /// A path relative to the working directory of the line.
    Relative(String),
    Unknown,
}

/// The places that the path of a target may refer to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathKind {
    System,
    Home,
    /// The system or a home folder, once the path is resolved against the session's working directory.
    SystemOrHome,
    /// Possibly the system or a home folder: the path is not known in advance.
    Unknown,
    Other,
}

impl<'a> CommandContext<'a> {
    fn new(
        command: &'a SimpleCommand,
        workdir: &'a Path,
        home: Option<&'a Path>,
    ) -> CommandContext<'a> {
        let folder = match command.folder.as_deref().and_then(Path::to_str) {
            _ if command.is_in_home => NamedFolder::Known(HOME.to_owned()),
            // On Windows its root is `\`, whatever the line has said.
            Some(folder) if Path::new(folder).has_root() => NamedFolder::Known(folder.to_owned()),
            Some(folder) => NamedFolder::Relative(folder.to_owned()),
            None => NamedFolder::Unknown,
        };
        CommandContext { workdir, home, folder }
    }

    /// Finds the ruin that the words of the command cause, behind its wrappers.
    fn ruin_of_words(&self, command: &SimpleCommand) -> Option<Ruin> {
        let mut whole = command.clone();
        if command.has_unknown_args {
            whole.words.push(Word { text: "$*".to_owned(), is_glob: true });
        }
        args::find_behind_wrappers(&whole, |program, words| {
            let certain = (program.catastrophe)(words).map(Ruin::Certain);
            let before = &whole.words[..whole.words.len() - words.len() - 1];
            let context = CommandContext { folder: self.folder_behind(before), ..*self };
            certain
                .or_else(|| {
                    let targets = (program.targets)(words).into_iter();
                    worst(targets.filter_map(|target| context.assess(target)))
                })
                .or_else(|| first_danger(program.ruins, words, false).map(Ruin::Possible))
        })
    }

    /// The folder after options of wrappers such as `env -C`.
    fn folder_behind(&self, wrappers: Args<'_>) -> NamedFolder {
        let logs_in =
            wrappers.first().is_some_and(|word| is_in("sudo doas", args::name(&word.text)))
                && wrappers.iter().any(|word| is_in("-i --login", &word.text));
        match folder_of_wrapper(wrappers) {
            Some(folder) => after_cd(&self.folder, folder),
            None if logs_in => NamedFolder::Unknown,
            None => self.folder.clone(),
        }
    }

    fn assess(&self, target: Target<'_>) -> Option<Ruin> {
        let kind = || self.kind_of_path(target.text);
        match target.harm {
            Harm::Overwrites | Harm::Formats => assess_file(target),
            Harm::Deletes | Harm::DeletesExtraneous | Harm::RemovesContents => match kind() {
                PathKind::System
                    if target.harm == Harm::DeletesExtraneous
                        && !target.text.trim_matches(['/', '.', '*']).is_empty() =>
                {
                    Some(Ruin::Possible(FILES))
                }
                PathKind::System | PathKind::Home => Some(Ruin::Certain(FILES)),
                PathKind::SystemOrHome => Some(Ruin::Possible(FILES)),
                PathKind::Unknown if target.harm != Harm::RemovesContents => {
                    Some(Ruin::Possible(UNKNOWN_FILES))
                }
                PathKind::Unknown | PathKind::Other => None,
            },
            Harm::DeletesSome | Harm::RunsForEachFile => {
                let is_wide = matches!(kind(), PathKind::System | PathKind::Home);
                let text = if target.harm == Harm::RunsForEachFile {
                    RUNS_FOR_EACH_FILE
                } else {
                    SOME_FILES
                };
                is_wide.then_some(Ruin::Possible(text))
            }
            Harm::ChangesPermissionsRecursively => match kind() {
                PathKind::System => Some(Ruin::Certain(PERMISSIONS)),
                PathKind::SystemOrHome => Some(Ruin::Possible(PERMISSIONS)),
                PathKind::Unknown => Some(Ruin::Possible(UNKNOWN_PERMISSIONS)),
                PathKind::Home | PathKind::Other => None,
            },
            Harm::ChangesPermissions => {
                (kind() == PathKind::System).then_some(Ruin::Possible(PERMISSIONS))
            }
        }
    }

    fn kind_of_path(&self, text: &str) -> PathKind {
        if let Some(kind) = kind_of_expansion(text) {
            return kind;
        }
        let named = match &self.folder {
            NamedFolder::Known(folder) => Some(Path::new(folder)),
            _ => None,
        };
        // The user's own home, wherever it is, and the folders that contain it. In a project that contains the home,
        // as in many containers, only its absolute path counts.
        let is_at_home = |folder: Option<&Path>| {
            let parts = path_parts(text.trim_end_matches(['/', '*']), folder);
            let Some((named, home)) = parts.zip(path_parts("", self.home)) else { return false };
            let project = path_parts("", Some(self.workdir));
            let leads_out = project.is_none_or(|project| !named.starts_with(&project));
            home.starts_with(&named) && (leads_out || text.starts_with('/') && named == home)
        };
        if is_system(text, named) {
            return PathKind::System;
        } else if is_home(text, named) || is_at_home(named) {
            return PathKind::Home;
        }
        if let Some(rest) = text.strip_prefix('~') {
            // The home of another user, if there is one of that name.
            let (_, rest) = rest.split_once('/').unwrap_or_default();
            return if is_everything(rest) { PathKind::Unknown } else { PathKind::Other };
        }
        let is_relative = !text.starts_with('/');
        match &self.folder {
            NamedFolder::Relative(folder) if is_relative => {
                let folder = self.workdir.join(folder);
                let near = Some(folder.as_path());
                let is_near = is_system(text, near) || is_home(text, near) || is_at_home(near);
                if is_near { PathKind::SystemOrHome } else { PathKind::Other }
            }
            NamedFolder::Unknown if is_relative && is_everything(text) => PathKind::Unknown,
            _ => PathKind::Other,
        }
    }

    /// The ruin of a program whose name is unknown and which has the system or a home folder as an argument.
    fn ruin_of_unknown_program(&self, command: &SimpleCommand) -> Option<Ruin> {
        let (program, words) = command.words.split_first()?;
        let name = program.text.as_str();
        let is_unknown = name.is_empty() || name.contains('$') || program.is_glob && name != "[";
        let may_ruin = is_unknown
            && operands(words).any(|word| {
                matches!(self.kind_of_path(&word.text), PathKind::System | PathKind::Home)
            });
        may_ruin.then_some(Ruin::Possible(UNKNOWN_PROGRAM))
    }
}

/// The folder that the last option of a wrapper such as `env -C` names.
pub(in crate::shell) fn folder_of_wrapper(words: Args<'_>) -> Option<&str> {
    const OPTIONS: WordList = "-C -D --chdir --wd --working-directory --directory --cwd";
    (1..words.len()).rev().find_map(|at| {
        let text = words[at].text.as_str();
        match text.split_once('=') {
            Some((name, value)) => is_in(OPTIONS, name).then_some(value),
            None if is_in(OPTIONS, text) => words.get(at + 1).map(|word| word.text.as_str()),
            None => text.strip_prefix("-C").or_else(|| text.strip_prefix("-D")),
        }
    })
}

/// The working directory after `cd target`.
fn after_cd(folder: &NamedFolder, target: &str) -> NamedFolder {
    if is_home(target, None) {
        return NamedFolder::Known(HOME.to_owned());
    } else if target.starts_with('/') && !target.contains('$') {
        return NamedFolder::Known(target.to_owned());
    } else if target.contains('$') || target.starts_with(['~', '-']) {
        return NamedFolder::Unknown;
    }
    match folder {
        NamedFolder::Known(folder) => NamedFolder::Known(format!("{folder}/{target}")),
        NamedFolder::Relative(folder) if folder.is_empty() => {
            NamedFolder::Relative(target.to_owned())
        }
        NamedFolder::Relative(folder) => NamedFolder::Relative(format!("{folder}/{target}")),
        NamedFolder::Unknown => NamedFolder::Unknown,
    }
}

fn assess_file(target: Target<'_>) -> Option<Ruin> {
    let text = target.text;
    let is_unknown = text.contains('$');
    if text == "/proc/sysrq-trigger" {
        Some(Ruin::Certain(SHUTDOWN))
    } else if is_disk(text) && !is_unknown {
        Some(Ruin::Certain(DISK))
    } else if is_unknown && (target.harm == Harm::Formats || text.starts_with("/dev/")) {
        Some(Ruin::Possible(MAYBE_DISK))
    } else {
        is_device(text).then_some(Ruin::Possible(DEVICE))
    }
}

/// Assesses a path with variables or substitutions; `None` if the path has none. The path is assessed with each
/// expansion replaced by nothing, and by `*`. A name after a variable, as in `$x/target`, makes the path harmless
/// unless it is the name of a system folder.
fn kind_of_expansion(text: &str) -> Option<PathKind> {
    let home = ["$HOME", "${HOME}", "${HOME:?}"].iter().find_map(|form| text.strip_prefix(form));
    let rest = home.filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let text = rest.map_or_else(|| text.to_owned(), |rest| format!("{HOME}{rest}"));
    if !text.contains('$') {
        return None;
    }
    let empty = replace_expansions(&text, "");
    let any = replace_expansions(&text, "*");
    let is_wide = |text: &str| is_system(text, None) || is_home(text, None);
    let may_be = is_everything(&empty) || is_wide(&empty) || is_wide(&any);
    Some(if may_be { PathKind::Unknown } else { PathKind::Other })
}

/// Replaces `$x`, `${x…}` and `$()`, which stands for a substitution.
fn replace_expansions(text: &str, with: &str) -> String {
    let mut parts = text.split('$');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    for part in parts {
        let rest = match part.strip_prefix('{') {
            Some(inner) => inner.split_once('}').map_or("", |parts| parts.1),
            None if part.starts_with(is_name) => part.trim_start_matches(is_name),
            None => part.strip_prefix("()").unwrap_or(part.get(1..).unwrap_or_default()),
        };
        whole.push_str(with);
        whole.push_str(rest);
    }
    whole
}

/// The ruin of a command that has a disk among its arguments and is not known to only read.
fn ruin_of_disk_argument(command: &SimpleCommand) -> Option<Ruin> {
    const READERS: WordList = "mount umount lsblk blkid smartctl findmnt udevadm losetup";
    let is_reader = || {
        let starts_reader = command.words.iter().any(|word| is_in(READERS, args::name(&word.text)));
        starts_reader || only_reads(command)
    };
    (command.words.iter().skip(1).any(names_disk) && !is_reader())
        .then_some(Ruin::Possible(MAYBE_DISK))
}

fn names_disk(word: &Word) -> bool {
    let value = word.text.split_once('=').map_or(word.text.as_str(), |parts| parts.1);
    let attached = word.text.get(2..).filter(|_| word.text.starts_with('-'));
    let is_input = word.text.starts_with("if=");
    !is_input && (is_disk(value) || attached.is_some_and(is_disk))
}

/// The ruin of a command whose file names come from one that lists the whole system, as in `find / | xargs rm`.
fn ruin_of_unknown_files(
    script: &Script,
    command: &SimpleCommand,
    workdir: &Path,
    home: Option<&Path>,
) -> Option<Ruin> {
    const CHANGES: WordList = "rm unlink shred chmod chown chgrp setfacl";
    const LISTERS: WordList = "find fd fdfind ls echo printf locate tree du";
    let gets_unknown =
        command.has_unknown_args || command.words.iter().any(|word| word.text.contains('$'));
    let changes =
        gets_unknown && command.words.iter().any(|word| is_in(CHANGES, args::name(&word.text)));
    let lists_system = |other: &SimpleCommand| {
        if !is_in(LISTERS, args::name(other.program())) {
            return false;
        }
        let context = CommandContext::new(other, workdir, home);
        operands(other.words.get(1..).unwrap_or_default()).any(|operand| {
            matches!(
                context.kind_of_path(&operand.text),
                PathKind::System | PathKind::Home | PathKind::SystemOrHome
            )
        })
    };
    let is_long = script.commands.len() > MAX_SEARCHED;
    (changes && (is_long || script.commands.iter().any(lists_system)))
        .then_some(Ruin::Possible(SOME_FILES))
}

/// A ruinous command among the arguments of a program that may run it, as in `docker exec c rm -rf /`.
fn ruin_in_arguments(command: &SimpleCommand) -> Option<Ruin> {
    const DESTROYERS: WordList = "rm rimraf shred dd";
    let later = command.words.iter().enumerate().take(MAX_ARGUMENTS).skip(1);
    let mut starts = later
        .filter(|(_, word)| is_in(DESTROYERS, args::name(&word.text)))
        .take(MAX_STARTED)
        .map(|(at, _)| at);
    let is_ruinous = starts.any(|at| {
        let words = command.words[at..].to_vec();
        let started = SimpleCommand { words, ..SimpleCommand::default() };
        let ruin = CommandContext::new(&started, Path::new(""), None).ruin_of_words(&started);
        matches!(ruin, Some(Ruin::Certain(_)))
    });
    (is_ruinous && !only_reads(command)).then_some(Ruin::Possible(RUINOUS_TEXT))
}

/// The number of arguments that are searched, and of those that are assessed as the start of a command.
const MAX_ARGUMENTS: usize = 32;
const MAX_STARTED: usize = 4;
/// The commands of a line that are searched for one that lists files. With more, one is assumed.
const MAX_SEARCHED: usize = 256;

/// True for a shell that runs what it reads from its input, also behind a wrapper.
pub(in crate::shell) fn is_shell_with_input(command: &SimpleCommand) -> bool {
    args::find_behind_wrappers(command, |program, words| {
        let is_shell = program.starts == Starts::Shell;
        (is_shell && (command.has_unknown_args || reads_input(words))).then_some(())
    })
    .is_some()
        || is_in("source .", command.program())
            && command
                .words
                .get(1)
                .is_some_and(|word| word.text == "/dev/stdin" || word.text.contains("$()"))
        || is_in("crontab at batch", args::name(command.program()))
        || starts_default_shell(command)
}

/// True if a shell with these arguments reads commands from its input.
fn reads_input(words: Args<'_>) -> bool {
    let has = |letter| words.iter().any(|word| is_option(&word.text, letter, ""));
    has('s')
        || words.iter().all(|word| {
            is_in("- /dev/stdin", &word.text)
                || word.text.contains("$()")
                || word.text.starts_with('-') && !has('c')
        })
}

/// True for `sudo -s` and the like, which start a shell if they are given no program.
fn starts_default_shell(command: &SimpleCommand) -> bool {
    let starts = "sudo doas pkexec chroot unshare nsenter";
    let mut words = command.words.iter().skip(1);
    is_in(starts, args::name(command.program())) && words.all(|word| word.text.starts_with('-'))
}

/// The arguments that contain blanks and so may be commands, except messages such as that of `git commit -m`.
fn arguments_with_commands(command: &SimpleCommand) -> impl Iterator<Item = &str> {
    const MESSAGES: WordList =
        "-m -am -t -b --message --title --body --notes --description --grep -S -G";
    command
        .words
        .windows(2)
        .filter(|pair| {
            let word = pair[1].text.as_str();
            let name = word.split_once('=').map_or(word, |parts| parts.0);
            !is_in(MESSAGES, &pair[0].text) && !is_in(MESSAGES, name) && !word.starts_with("-m")
        })
        .map(|pair| pair[1].text.as_str())
        .filter(|word| word.contains([' ', '\t', '\n']))
}

/// The bytes of text that are searched for commands. Longer text counts as ruinous.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// How deeply text within text is searched.
const MAX_TEXT_DEPTH: usize = 3;

/// Returns true if a text contains a ruinous command. `known` are the texts that were searched, and `budget` is the
/// number of bytes that may still be.
fn has_ruinous_text(
    texts: &[&str],
    depth: usize,
    known: &mut HashSet<String>,
    budget: &mut usize,
) -> bool {
    texts.iter().flat_map(|text| candidate_commands(text)).any(|text| {
        if depth > MAX_TEXT_DEPTH || !known.insert(text.clone()) {
            return false;
        }
        let Some(left) = budget.checked_sub(text.len()) else { return true };
        *budget = left;
        let found = command_scanner::scan(&text);
        let is_ruinous = found.commands.iter().any(|command| {
            matches!(ruin_of_command(command, Path::new(""), None), Some(Ruin::Certain(_)))
        });
        is_ruinous || {
            let words = found.commands.iter().flat_map(|command| &command.words);
            let inner: Vec<&str> = words
                .map(|word| word.text.as_str())
                .filter(|text| text.contains([' ', '\t', '\n']))
                .collect();
            has_ruinous_text(&inner, depth + 1, known, budget)
        }
    })
}

/// The number of ` rm ` occurrences within a text that are tried as the start of a command.
const MAX_CANDIDATES: usize = 8;

/// The parts of a text that could be a command: all of it, a value, what follows `!` or an option's letter, and
/// what begins with `rm`, as in a script of `sed` or `expect`.
/// `printf` prints `\n` as an end of line.
fn candidate_commands(text: &str) -> impl Iterator<Item = String> {
    let value = text.split_once('=').filter(|parts| !parts.0.contains(' ')).map(|parts| parts.1);
    let last_value = text.rsplit_once('=').map(|parts| parts.1);
    let attached = text.get(2..).filter(|_| text.starts_with('-') && !text.starts_with("--"));
    let later = text.match_indices(" rm ").map(|(at, _)| &text[at + 1..]).take(MAX_CANDIDATES);
    let all = [Some(text), value, last_value, attached].into_iter().flatten().chain(later);
    all.map(|text| text.trim_start_matches('!').replace("\\n", "\n"))
}
