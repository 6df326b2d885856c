//! Project instructions: `AGENTS.md` and similar files, from the root of each project down to the
//! session's folder, after the user's own. They are untrusted data from the author of the project.

use std::path::{Path, PathBuf};

use crate::files::read_head;

/// The most bytes of all instructions together.
const MAX_TOTAL_BYTES: usize = 32 * 1024;
/// The most folders from the root to the working folder.
const MAX_FOLDERS: usize = 32;

/// The names of instruction files; the first that exists in a folder counts.
const FILE_NAMES: &[&str] = &["AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md"];

/// The instructions of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions {
    pub path: PathBuf,
    /// The text, or its beginning.
    pub text: String,
    /// Whether `text` is the whole file.
    pub is_complete: bool,
    /// Whether the file is the user's own, and not the project's.
    pub is_user: bool,
}

/// Reads the instructions for the folders of a session. Each folder comes with the root of its
/// project; both have no links, and the folder is at or below the root. The result is ordered by
/// folder, and for each folder from the root down. Blocks.
pub fn read(own: Option<&Path>, projects: &[(PathBuf, PathBuf)]) -> Vec<Instructions> {
    let mut left = MAX_TOTAL_BYTES;
    let mut all = Vec::new();
    let own = own.and_then(|it| read_first(it, None, &["AGENTS.md"], left));
    all.extend(own.map(|it| Instructions { is_user: true, ..it }));
    left -= all.iter().map(|it: &Instructions| it.text.len()).sum::<usize>().min(left);
    let mut seen = Vec::new();
    for (folder, root) in projects {
        let above = folder.ancestors().take_while(|it| it.starts_with(root)).take(MAX_FOLDERS);
        let above: Vec<_> = above.filter(|it| !seen.contains(it)).collect();
        for folder in above.into_iter().rev() {
            seen.push(folder);
            if let Some(found) = read_first(folder, Some(root), FILE_NAMES, left) {
                left -= found.text.len().min(left);
                all.push(found);
            }
        }
    }
    all
}

fn read_first(
    folder: &Path,
    within: Option<&Path>,
    names: &[&str],
    limit: usize,
) -> Option<Instructions> {
    names.iter().find_map(|name| {
        let path = folder.join(name);
        let seen = read_head(&path, within, limit)?;
        Some(Instructions { path, text: seen.text, is_complete: seen.is_complete, is_user: false })
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;

    use super::*;

    /// Checks which of these files are read for `ws/a/b`, as names and texts.
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
            format!("{path} {text}{}", if it.is_complete { "" } else { " …" })
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
