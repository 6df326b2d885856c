//! What a command must not come across that nobody was asked about, because its words only say where
//! it looks: files with secrets, and what rules close, below the folders of the session.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use turnwright_types::effect::is_secret;
use turnwright_policy::permission::Closed;
use turnwright_policy::shell;

/// Files and folders that are looked at.
const MOST_ENTRIES: usize = 5_000;
/// Files that are hidden.
const MOST_HIDDEN: usize = 64;
/// Folders that are large and hold what others have made.
const PASSED_BY: &[&str] = &[".git", "node_modules", "target", ".venv", "venv", "dist", "build"];
/// Programs that read what lies below what they name.
const WIDE: &[&str] = &["grep", "egrep", "fgrep", "rg", "git", "diff"];

/// Whether a line may read files that it does not name.
pub(super) fn reads_widely(line: &str) -> bool {
    let script = shell::read(line, turnwright_workspace::exec::dialect());
    let is_wide = |it: &shell::Simple| {
        WIDE.contains(&it.program()) || it.is_open || it.words.iter().any(|word| word.is_glob)
    };
    script.commands.iter().any(is_wide)
}

/// The files below these folders that are to be hidden, but for those that were named.
pub(super) fn below<'a>(
    roots: impl Iterator<Item = &'a Path>,
    closed: &Closed,
    named: &[PathBuf],
) -> Vec<PathBuf> {
    let mut folders: VecDeque<PathBuf> = roots.map(Path::to_path_buf).collect();
    let (mut hidden, mut seen) = (Vec::new(), 0);
    while let Some(folder) = folders.pop_front() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MOST_ENTRIES || hidden.len() >= MOST_HIDDEN {
                return hidden;
            }
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            let is_passed_by = PASSED_BY.iter().any(|it| name == *it);
            if is_secret(&path) || closed.holds(&path) {
                if !kind.is_symlink() && !named.contains(&path) {
                    hidden.push(path);
                }
            } else if kind.is_dir() && !is_passed_by {
                folders.push_back(path);
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
    fn what_is_secret_is_found_below_and_what_was_named_is_not_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        for name in ["a", ".env", "sub/prod.env", "sub/.ssh/id", "node_modules/.env"] {
            fs::create_dir_all(base.join(name).parent().unwrap()).unwrap();
            fs::write(base.join(name), "x").unwrap();
        }
        let below = |named: &[PathBuf]| {
            let mut all = below([base.as_path()].into_iter(), &Closed::default(), named);
            all.sort();
            all
        };
        let names = [".env", "sub/.ssh", "sub/prod.env"].map(|it| base.join(it));
        assert_eq!(below(&[]), names);
        assert_eq!(below(&[base.join(".env")]), names[1..]);
    }

    #[test]
    fn only_what_names_a_folder_or_a_pattern_reads_widely() {
        for (line, expected) in [
            ("cat .env", false),
            ("ls && wc -l a", false),
            ("cat *.env", true),
            ("grep -r x .", true),
            ("ls | rg x", true),
            ("git log -p", true),
        ] {
            assert_eq!(reads_widely(line), expected, "{line}");
        }
    }
}
