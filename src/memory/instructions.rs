//! Project instructions: `AGENTS.md` and its kin, from the project's root down to the working
//! folder, after the user's own. They are data of whoever wrote the project.

use std::path::{Path, PathBuf};

use crate::files::glance;

/// Bytes of all of them.
const LIMIT: usize = 32 * 1024;
/// Folders from the root to the working folder.
const MOST_FOLDERS: usize = 32;

/// What a folder's instructions may be called; the first that is there counts.
const NAMES: &[&str] = &["AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md"];

/// The instructions of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions {
    /// The file.
    pub path: PathBuf,
    /// What it says, or its beginning.
    pub text: String,
    /// Whether that is all of it.
    pub is_whole: bool,
    /// Whether the user has written them, and not the project.
    pub own: bool,
}

/// All that count for a working folder, the nearest last. `cwd` and `root` are real paths, the
/// one at or below the other. Not for the runtime's thread.
pub fn read(own: Option<&Path>, root: &Path, cwd: &Path) -> Vec<Instructions> {
    let mut left = LIMIT;
    let mut all = Vec::new();
    let own = own.and_then(|it| first(it, None, &["AGENTS.md"], left));
    all.extend(own.map(|it| Instructions { own: true, ..it }));
    left -= all.iter().map(|it: &Instructions| it.text.len()).sum::<usize>().min(left);
    let folders: Vec<_> =
        cwd.ancestors().take_while(|it| it.starts_with(root)).take(MOST_FOLDERS).collect();
    for folder in folders.into_iter().rev() {
        if let Some(found) = first(folder, Some(root), NAMES, left) {
            left -= found.text.len().min(left);
            all.push(found);
        }
    }
    all
}

fn first(
    folder: &Path,
    within: Option<&Path>,
    names: &[&str],
    limit: usize,
) -> Option<Instructions> {
    names.iter().find_map(|name| {
        let path = folder.join(name);
        let seen = glance(&path, within, limit)?;
        Some(Instructions { path, text: seen.text, is_whole: seen.is_whole, own: false })
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;

    use super::*;

    /// What is read in `ws/a/b` of these files, as names and texts.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        fs::create_dir_all(base.join("ws/a/b")).unwrap();
        fs::create_dir_all(base.join("config")).unwrap();
        for (path, text) in files {
            fs::write(base.join(path), text).unwrap();
        }
        let all = read(Some(&base.join("config")), &base.join("ws"), &base.join("ws/a/b"));
        let line = |it: &Instructions| {
            let path = it.path.strip_prefix(&base).unwrap().to_string_lossy().into_owned();
            let text = if it.text.len() > 9 { it.text.len().to_string() } else { it.text.clone() };
            format!("{path} {text}{}", if it.is_whole { "" } else { " …" })
        };
        assert_eq!(all.iter().map(line).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn instructions_come_from_the_root_down_and_each_folder_has_one_file() {
        check(&[], &[]);
        check(&[("AGENTS.md", "above the root")], &[]);
        check(
            &[
                ("ws/a/b/GEMINI.md", "g"),
                ("ws/a/AGENTS.md", "a"),
                ("ws/a/AGENTS.override.md", "o"),
                ("ws/AGENTS.md", "r"),
                ("ws/CLAUDE.md", "c"),
                ("config/AGENTS.md", "own"),
                ("config/CLAUDE.md", "no"),
            ],
            &[
                "config/AGENTS.md own",
                "ws/AGENTS.md r",
                "ws/a/AGENTS.override.md o",
                "ws/a/b/GEMINI.md g",
            ],
        );
    }

    #[test]
    fn all_of_them_have_one_limit() {
        let (most, more) = ("x".repeat(32_000), "y".repeat(1_000));
        check(
            &[("ws/AGENTS.md", &most), ("ws/a/AGENTS.md", &more), ("ws/a/b/AGENTS.md", "z")],
            &["ws/AGENTS.md 32000", "ws/a/AGENTS.md 768 …", "ws/a/b/AGENTS.md  …"],
        );
    }
}
