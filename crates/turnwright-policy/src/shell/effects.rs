//! The effects of a command line, as far as its words say: it runs, it reads files, and the shell
//! opens files for its redirects.

use std::path::{Path, PathBuf};

use turnwright_types::effect::{Effect, ResolvedPath, ShellCommand};

use super::{Script, classify};

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

#[cfg(test)]
mod tests {
    use turnwright_types::dialect::ShellDialect;
    use turnwright_types::effect::PathScope;

    use super::*;

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
