//! The effects of a command line, as far as its words say: it runs, it reads files, and the shell opens files for its
//! redirects. Finds out, too, what a command does with the files and folders that its operands name, and with
//! everything below them: rules about files are applied to them, and a folder that is moved takes what a rule denies
//! along.

use std::path::{Path, PathBuf};

use super::args::{self, Args, git_subcommand, is_option, operands};
use super::harm::targets::{Harm, is_recursive, option_values};
use super::{Script, SimpleCommand, Word, classify};
use turnwright_types::effect::{Effect, ResolvedPath, ShellCommand};

/// A file that a command line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The path as it is written, joined to the folder in which it is looked up.
    pub path: PathBuf,
    /// True if a redirect writes it; otherwise a redirect or a program reads it.
    pub is_write: bool,
}

/// The files that a line names if it runs in `workdir`, in order. A command whose folder is unknown
/// has none, because its script is ambiguous, and of an ambiguous script only the redirects count.
pub fn named_files(script: &Script, workdir: &Path) -> Vec<NamedFile> {
    let mut files = Vec::new();
    for command in &script.commands {
        let Some(folder) = command.folder.as_ref().map(|folder| workdir.join(folder)) else {
            continue;
        };
        let file = |path: &Path, is_write| NamedFile { path: folder.join(path), is_write };
        files.extend(
            command.redirects.iter().map(|redirect| file(&redirect.path, redirect.is_write)),
        );
        // A line that is not fully understood needs a question anyway.
        if script.ambiguity.is_none() {
            files.extend(classify(command).reads.iter().map(|path| file(path, false)));
        }
    }
    files
}

/// The effects of a command with its [`named_files`], whose symlinks are resolved: it runs and reads
/// files, and each file that it writes is an effect of its own.
pub fn effects_with_files(
    mut command: ShellCommand,
    files: impl IntoIterator<Item = (NamedFile, ResolvedPath)>,
) -> Vec<Effect> {
    let mut writes = Vec::new();
    for (file, target) in files {
        if file.is_write {
            writes.push(Effect::Write(target));
        } else {
            command.reads.push(target);
        }
    }
    std::iter::once(Effect::Exec(Box::new(command))).chain(writes).collect()
}

/// The effects of a command. `resolve` resolves the symlinks of an absolute path.
pub fn effects_of(
    command: ShellCommand,
    mut resolve: impl FnMut(&Path) -> ResolvedPath,
) -> Vec<Effect> {
    let named = named_files(&command.script, &command.workdir);
    let files = named.into_iter().map(|file| {
        let target = resolve(&file.path);
        (file, target)
    });
    effects_with_files(command, files)
}

/// The use that a program makes of the files that its operands name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OperandUse {
    #[default]
    Unknown,
    /// Changes each of them; what is below only with an option.
    Changes,
    /// Formats each of them, with what is below: with `-w` or `-i` in place.
    Formats,
    /// Deletes, replaces or moves away each of them, with what is below.
    Takes,
    /// Reads each of them, with what is below.
    Reads,
    /// Moves all but the last into the last.
    Moves,
    /// Copies all but the last into the last.
    Copies,
    /// Gives all but the last further names in the last.
    Links,
}

/// The files that a command names, and what it does with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUse {
    pub sources: Vec<Word>,
    /// True if the sources are changed or moved away; otherwise they are only read.
    pub is_change: bool,
    /// True if this also concerns everything below them.
    pub is_deep: bool,
    /// Where the sources, or copies of them, come to lie: a folder, or the new path itself.
    pub destination: Option<Word>,
    /// True if it may be the new path itself even if it is a folder: `cp -T`.
    pub is_exact: bool,
}

/// Returns the files that a command names and what it does with them; `None` if nothing is known about the command,
/// or if it is read-only, which [`classify`] finds out.
pub fn file_use(command: &SimpleCommand) -> Option<FileUse> {
    if classify(command).is_read_only {
        return None;
    }
    args::find_behind_wrappers(command, |program, words| {
        let subcommand = git_subcommand(words).map(|(name, rest)| (program.subcommand(name), rest));
        let is_known =
            |program: &super::programs::Program| program.operand_use != OperandUse::Unknown;
        let (program, words) =
            subcommand.filter(|(sub, _)| is_known(sub)).unwrap_or((program, words));
        is_known(program).then(|| {
            let takes_all =
                (program.targets)(words).iter().any(|target| target.harm == Harm::RemovesContents);
            use_of(program.operand_use, words, takes_all)
        })
    })
}

fn use_of(operand_use: OperandUse, words: Args<'_>, takes_all: bool) -> FileUse {
    let mut sources: Vec<Word> = operands(words).cloned().collect();
    let has_destination =
        matches!(operand_use, OperandUse::Moves | OperandUse::Copies | OperandUse::Links);
    let given = option_values(words, 't', "--target-directory").pop();
    let destination = match given.filter(|_| has_destination) {
        Some(folder) => {
            sources.retain(|word| word.text != folder);
            Some(Word::plain(folder))
        }
        None if has_destination && sources.len() > 1 => sources.pop(),
        None => None,
    };
    let is_exact = words.iter().any(|word| is_option(&word.text, 'T', "--no-target-directory"));
    let is_symbolic = words.iter().any(|word| is_option(&word.text, 's', "--symbolic"));
    let is_change = match operand_use {
        OperandUse::Changes | OperandUse::Takes | OperandUse::Moves => true,
        OperandUse::Links => !is_symbolic,
        OperandUse::Formats => words
            .iter()
            .any(|word| is_option(&word.text, 'w', "") || is_option(&word.text, 'i', "")),
        OperandUse::Reads | OperandUse::Copies | OperandUse::Unknown => takes_all,
    };
    let is_deep = operand_use != OperandUse::Changes || is_recursive(words);
    FileUse { sources, is_change, is_deep, destination, is_exact }
}

#[cfg(test)]
mod tests {
    use turnwright_types::shell_script::ShellDialect;

    use super::*;
    use turnwright_types::effect::PathScope;

    #[test]
    fn programs_that_handle_files_say_what_they_do_with_their_operands() {
        for (line, expected) in [
            ("mv a b c", "change deep a b -> c"),
            ("mv -t c a b", "change deep a b -> c"),
            ("cp --target-directory=c -r a", "read deep a -> c"),
            ("cp -r -- -a b", "read deep -a -> b"),
            ("sudo mv a b", "change deep a -> b"),
            ("git -C x mv a b", "change deep a -> b"),
            ("git checkout HEAD~ -- a", "change deep HEAD~ a"),
            ("git restore a", "change deep a"),
            ("ln a b", "change deep a -> b"),
            ("ln -s a b", "read deep a -> b"),
            ("tar czf x.tgz a", "read deep czf x.tgz a"),
            ("zip -r x.zip a", "read deep x.zip a"),
            ("zip -rm x.zip a", "change deep x.zip a"),
            ("rsync -a --remove-source-files a b", "change deep a -> b"),
            ("chmod 600 a", "change 600 a"),
            ("chmod -R 600 a", "change deep 600 a"),
            ("rm a", "change deep a"),
            ("touch a", "change a"),
            ("sed -i s/a/b/ c", "change s/a/b/ c"),
            ("sed s/a/b/ c", ""),
            ("cat a", ""),
            ("cargo build a", ""),
            ("git commit a", ""),
        ] {
            let script = super::super::parse(line, ShellDialect::Bash);
            let shown = file_use(&script.commands[0]).map(|used| {
                let verb = if used.is_change { "change" } else { "read" };
                let deep = if used.is_deep { "deep" } else { "" };
                let arrow = if used.destination.is_some() { "->" } else { "" };
                let words = used.sources.iter().map(|word| word.text.as_str());
                let last = used.destination.iter().map(|word| word.text.as_str());
                let all: Vec<_> =
                    [verb, deep].into_iter().chain(words).chain([arrow]).chain(last).collect();
                all.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
            });
            assert_eq!(shown.unwrap_or_default(), expected, "{line}");
        }
    }

    #[test]
    fn redirects_and_operands_are_effects() {
        for (line, reads, writes) in [
            ("cat a <b >c", "/w/b /w/a", "/w/c"),
            ("cd x && ls >>../c", "/w/x /w/x/.", "/w/x/../c"),
            ("make >/tmp/c 2>&1", "", "/tmp/c"),
            ("cat $a <b >c", "/w/b", "/w/c"),
            ("cd $x && cat a >c", "", ""),
        ] {
            let resolve =
                |path: &Path| ResolvedPath { path: path.into(), scope: PathScope::Outside };
            let command = crate::shell::command(line, "/w", ShellDialect::Bash);
            let effects = effects_of(command, resolve);
            let shown = |paths: Vec<&ResolvedPath>| {
                let paths: Vec<_> =
                    paths.iter().map(|target| target.path.to_str().unwrap()).collect();
                paths.join(" ").replace(std::path::MAIN_SEPARATOR, "/")
            };
            let Effect::Exec(command) = &effects[0] else { panic!("{line}") };
            assert_eq!(shown(command.reads.iter().collect()), reads, "{line}");
            let written = effects[1..].iter().map(|effect| match effect {
                Effect::Write(target) => target,
                other => panic!("{line}: {other:?}"),
            });
            assert_eq!(shown(written.collect()), writes, "{line}");
        }
    }
}
