//! Hides from a command the files that it may read without naming them, and that nobody was asked
//! about: secrets and denied paths below the session's folders.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use turnwright_policy::permission::DeniedPaths;
use turnwright_policy::shell;
use turnwright_types::effect::is_secret_path;

/// The search visits at most this many files and folders.
const MAX_VISITED: usize = 10_000;
/// At most this many paths are hidden.
const MAX_HIDDEN: usize = 256;
/// Large folders of generated or third-party files, which are searched last.
const LARGE_FOLDERS: &[&str] = &["node_modules", "target", ".venv", "venv", "dist", "build"];
/// Programs that read everything below the folders they are given.
const RECURSIVE_PROGRAMS: &[&str] = &["grep", "egrep", "fgrep", "rg", "git", "diff"];

/// Whether a command line may read files that it does not name.
pub(super) fn reads_unnamed_files(script: &shell::Script) -> bool {
    let is_wide = |it: &shell::SimpleCommand| {
        RECURSIVE_PROGRAMS.contains(&it.program())
            || it.has_unknown_args
            || it.words.iter().any(|word| word.is_glob)
    };
    script.commands.iter().any(is_wide)
}

/// The secret and denied paths below these folders, except those in `named`.
pub(crate) fn hidden_below<'a>(
    roots: impl Iterator<Item = &'a Path>,
    denied: &DeniedPaths,
    named: &[PathBuf],
) -> Vec<PathBuf> {
    let mut folders: VecDeque<PathBuf> = roots.map(Path::to_path_buf).collect();
    let mut large = VecDeque::new();
    let (mut hidden, mut seen) = (Vec::new(), 0);
    while let Some(folder) = folders.pop_front().or_else(|| large.pop_front()) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_VISITED || hidden.len() >= MAX_HIDDEN {
                return hidden;
            }
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            let is_large = LARGE_FOLDERS.iter().any(|it| name == *it);
            if is_secret_path(&path) || denied.contains(&path) {
                if !kind.is_symlink() && !named.contains(&path) {
                    hidden.push(path);
                }
            } else if kind.is_dir() && name != ".git" {
                if is_large { &mut large } else { &mut folders }.push_back(path);
            }
        }
    }
    hidden
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use super::*;

    #[test]
    fn secrets_below_a_folder_are_hidden_unless_named() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        for name in ["a", ".env", "sub/prod.env", "sub/.ssh/id", "node_modules/.env"] {
            fs::create_dir_all(base.join(name).parent().unwrap()).unwrap();
            fs::write(base.join(name), "x").unwrap();
        }
        let hidden = |named: &[PathBuf]| {
            let mut all =
                hidden_below([base.as_path()].into_iter(), &DeniedPaths::default(), named);
            all.sort();
            all
        };
        let names = [".env", "node_modules/.env", "sub/.ssh", "sub/prod.env"];
        let names = names.map(|it| base.join(it));
        assert_eq!(hidden(&[]), names);
        assert_eq!(hidden(&[base.join(".env")]), names[1..]);
    }

    #[test]
    fn only_recursive_programs_and_globs_read_unnamed_files() {
        for (line, expected) in [
            ("cat .env", false),
            ("ls && wc -l a", false),
            ("cat *.env", true),
            ("grep -r x .", true),
            ("ls | rg x", true),
            ("git log -p", true),
        ] {
            let script = shell::parse(line, turnwright_workspace::exec::dialect());
            assert_eq!(reads_unnamed_files(&script), expected, "{line}");
        }
    }
}
