//! Project instructions: `AGENTS.md` and its kin, from each project's root down to the folder of the
//! session, after the user's own. They are data of whoever wrote the project.

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

/// All that count for the folders of a session, each with the root of its project: those of the first
/// folder first, for each folder the nearest last. Both are real paths, the folder at or below the
/// root. Not for the runtime's thread.
pub fn read(own: Option<&Path>, projects: &[(PathBuf, PathBuf)]) -> Vec<Instructions> {
    let mut left = LIMIT;
    let mut all = Vec::new();
    let own = own.and_then(|it| first(it, None, &["AGENTS.md"], left));
    all.extend(own.map(|it| Instructions { own: true, ..it }));
    left -= all.iter().map(|it: &Instructions| it.text.len()).sum::<usize>().min(left);
    let mut seen = Vec::new();
    for (folder, root) in projects {
        let above = folder.ancestors().take_while(|it| it.starts_with(root)).take(MOST_FOLDERS);
        let above: Vec<_> = above.filter(|it| !seen.contains(it)).collect();
        for folder in above.into_iter().rev() {
            seen.push(folder);
            if let Some(found) = first(folder, Some(root), NAMES, left) {
                left -= found.text.len().min(left);
                all.push(found);
            }
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
        for folder in ["config", "ws/c", "d"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        for (path, text) in files {
            fs::write(base.join(path), text).unwrap();
        }
        let projects = [
            (base.join("ws/a/b"), base.join("ws")),
            (base.join("ws/c"), base.join("ws")),
            (base.join("d"), base.join("d")),
        ];
        let all = read(Some(&base.join("config")), &projects);
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
    fn instructions_of_further_folders_follow_in_their_order_and_none_comes_twice() {
        check(
            &[
                ("d/AGENTS.md", "d"),
                ("ws/c/AGENTS.md", "c"),
                ("ws/AGENTS.md", "r"),
                ("ws/a/AGENTS.md", "a"),
            ],
            &["ws/AGENTS.md r", "ws/a/AGENTS.md a", "ws/c/AGENTS.md c", "d/AGENTS.md d"],
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
