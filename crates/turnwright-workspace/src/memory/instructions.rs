//! Project instructions: `AGENTS.md` and similar files, from the root of each project down to the session's folder,
//! after the user's own, with the files that they import: `@docs/style.md` in a line of text stands for that file.
//! They are untrusted data from the author of the project.

use std::path::{Component, Path, PathBuf};

use crate::files::{FileHead, read_head};
use crate::skills::code_and_comments;

/// The most bytes of all instructions together.
const MAX_TOTAL_BYTES: usize = 32 * 1024;
/// The most folders from the root to the working folder.
const MAX_FOLDERS: usize = 32;

/// The most files, beyond which imports are not followed.
const MAX_FILES: usize = 64;
/// How deep the files that instructions import may import others.
const MAX_IMPORT_DEPTH: usize = 3;

/// The names of instruction files; the first non-empty one in a folder counts. Names in other letters come from
/// systems that ignore their case.
const FILE_NAMES: &[&str] = &[
    "AGENTS.override.md",
    "AGENTS.md",
    "agents.md",
    "Agents.md",
    "AGENTS.MD",
    "CLAUDE.md",
    ".claude/CLAUDE.md",
    "claude.md",
    "Claude.md",
    "CLAUDE.MD",
    "GEMINI.md",
    "AGENT.md",
    ".rules",
    ".cursorrules",
    ".windsurfrules",
    ".github/copilot-instructions.md",
];

/// The instructions of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions {
    pub path: PathBuf,
    /// The text, or its beginning.
    pub text: String,
    /// True if `text` is the whole file.
    pub is_complete: bool,
    /// True if the file is the user's own, and not the project's.
    pub is_user: bool,
    /// False for a file that is not text, and for a link that leads out of the project.
    pub is_text: bool,
}

/// Reads the instructions for the folders of a session. Each folder comes with the root of its
/// project; both have no links, and the folder is at or below the root. The result is ordered by
/// folder, and for each folder from the root down; what a file imports follows it. Blocks.
pub fn read(user_folder: Option<&Path>, projects: &[(PathBuf, PathBuf)]) -> Vec<Instructions> {
    let mut reader = InstructionReader { remaining_bytes: MAX_TOTAL_BYTES, found: Vec::new() };
    if let Some(user_folder) = user_folder {
        reader.add_first(user_folder, None, &["AGENTS.md"]);
    }
    let mut seen = Vec::new();
    for (folder, root) in projects {
        let above: Vec<_> = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(root))
            .take(MAX_FOLDERS)
            .filter(|folder| !seen.contains(folder))
            .collect();
        for folder in above.into_iter().rev() {
            seen.push(folder);
            reader.add_folder(folder, root);
        }
    }
    reader.found
}

/// Reads the instructions of these folders, at most `limit` bytes. They have no links and are below the
/// root. Blocks.
pub fn read_folders(root: &Path, folders: &[PathBuf], limit: usize) -> Vec<Instructions> {
    let mut reader = InstructionReader { remaining_bytes: limit, found: Vec::new() };
    for folder in folders {
        reader.add_folder(folder, root);
    }
    reader.found
}

/// Collects the instructions of several files within one limit.
struct InstructionReader {
    /// How many more bytes may be read.
    remaining_bytes: usize,
    found: Vec<Instructions>,
}

impl InstructionReader {
    /// Adds the file of a folder, and the one that users write for themselves. That one may come from the repository,
    /// too, so it is bounded in the same way.
    fn add_folder(&mut self, folder: &Path, root: &Path) {
        self.add_first(folder, Some(root), FILE_NAMES);
        self.add_first(folder, Some(root), &["CLAUDE.local.md"]);
    }

    /// Adds the first of these files that exists and says something, and what it imports.
    fn add_first(&mut self, folder: &Path, within: Option<&Path>, names: &[&str]) {
        let files = names.iter().map(|name| folder.join(name));
        let Some((path, head)) = files.clone().find_map(|path| {
            let head = read_head(&path, within, self.remaining_bytes)?;
            // An empty file must not hide another.
            let is_empty = head.is_text && head.is_complete && head.text.trim().is_empty();
            (!is_empty).then_some((path, head))
        }) else {
            // A user who has linked instructions from elsewhere must be told that they are not read.
            let mut linked = files.filter(|path| path.is_symlink() && path.is_file());
            let unread = linked.find(|path| read_head(path, within, 1).is_none());
            self.found.extend(unread.map(|path| Instructions {
                path,
                text: String::new(),
                is_complete: true,
                is_user: within.is_none(),
                is_text: false,
            }));
            return;
        };
        // Another file may have imported it.
        if self.found.iter().any(|known| known.path == head.real_path) {
            return;
        }
        // The user's own file imports files below the folder in which it really is.
        let limit = within.or_else(|| head.real_path.parent()).map(Path::to_path_buf);
        self.add(path, head, within.is_none(), limit.as_deref(), MAX_IMPORT_DEPTH);
    }

    fn add(
        &mut self,
        path: PathBuf,
        head: FileHead,
        is_user: bool,
        within: Option<&Path>,
        depth: usize,
    ) {
        self.remaining_bytes -= head.text.len().min(self.remaining_bytes);
        let FileHead { real_path, text, is_complete, is_text, .. } = head;
        let index = self.found.len();
        self.found.push(Instructions { path, text, is_complete, is_user, is_text });
        let Some(folder) = real_path.parent().filter(|_| depth > 0 && within.is_some()) else {
            return;
        };
        let imports =
            imported_paths(&self.found[index].text).into_iter().map(|path| folder.join(path));
        for import in imports.collect::<Vec<_>>() {
            if self.remaining_bytes == 0 || self.found.len() >= MAX_FILES {
                return;
            }
            // Two files may import each other.
            let Some(head) = read_head(&import, within, self.remaining_bytes) else { continue };
            let is_known = self.found.iter().any(|known| known.path == head.real_path);
            if !is_known && head.real_path != real_path {
                self.add(head.real_path.clone(), head, is_user, within, depth - 1);
            }
        }
    }
}

/// The most imports of one file that are followed.
const MAX_IMPORTS: usize = 20;

/// The paths that a text imports, in their order. Code, in which `@` has other meanings, and comments import nothing.
fn imported_paths(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut at = 0;
    for hidden in code_and_comments(text) {
        // `None` for a range within the one before.
        if let Some(shown) = text.get(at..hidden.start) {
            add_imports(shown, &mut found);
        }
        at = at.max(hidden.end);
    }
    found.extend(Some(text.trim_end()).filter(|text| is_link_text(text)));
    found.retain(|path| is_relative(path));
    found.truncate(MAX_IMPORTS);
    found
}

/// Returns true for a path that starts at the folder of its text. On Windows, only looking at another one may connect
/// to another machine.
fn is_relative(path: &str) -> bool {
    let first = Path::new(path).components().next();
    !matches!(first, Some(Component::Prefix(_) | Component::RootDir))
}

/// Returns true if a text is that of a symbolic link, as git leaves it where it makes none: a path.
fn is_link_text(text: &str) -> bool {
    let is_markdown = Path::new(text).extension().is_some_and(|ending| ending == "md");
    is_markdown && !text.contains(char::is_whitespace) && !text.starts_with(['~', '@'])
}

fn add_imports<'a>(text: &'a str, found: &mut Vec<&'a str>) {
    for word in text.split(ends_word) {
        let word = word.trim_start_matches(['(', '[', '*', '"']);
        let Some((before, path)) = word.split_once('@') else { continue };
        // Chinese and Japanese have no blanks between words, and addresses of mail no such letters.
        if before.ends_with(|char: char| char.is_ascii()) {
            continue;
        }
        let path = path
            .trim_end_matches(['.', ',', ';', ':', ')', ']', '*', '"', '!', '?'])
            .trim_end_matches(['）', '】', '」', '』', '》', '”', '’']);
        if !path.is_empty() && !path.starts_with('~') && !found.contains(&path) {
            found.push(path);
        }
    }
}

fn ends_word(char: char) -> bool {
    char.is_whitespace() || "，。；：、！？،؛؟".contains(char)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;

    use super::*;

    /// Checks which of these files are read for `ws/a/b`, as names and texts.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let temp = tempfile::tempdir().unwrap();
        let base = crate::real_path(temp.path()).unwrap();
        fs::create_dir_all(base.join("ws/a/b")).unwrap();
        for folder in ["config", "ws/c/.claude", "ws/docs", "d"] {
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
        let line = |instructions: &Instructions| {
            let path = crate::files::display(instructions.path.strip_prefix(&base).unwrap());
            let text = match &instructions.text {
                _ if !instructions.is_text => "(not text)".to_owned(),
                long if long.len() > 9 => long.len().to_string(),
                short => short.clone(),
            };
            format!("{path} {text}{}", if instructions.is_complete { "" } else { " …" })
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
    fn files_of_other_agents_count_where_there_is_none_and_those_of_the_user_besides() {
        check(
            &[
                ("ws/.cursorrules", "c"),
                ("ws/.windsurfrules", "no"),
                ("ws/CLAUDE.local.md", "l"),
                ("ws/a/AGENTS.md", "a"),
                ("ws/a/.rules", "no"),
                ("ws/a/b/CLAUDE.local.md", "m"),
            ],
            &[
                "ws/.cursorrules c",
                "ws/CLAUDE.local.md l",
                "ws/a/AGENTS.md a",
                "ws/a/b/CLAUDE.local.md m",
            ],
        );
        check(
            &[("ws/CLAUDE.md", "@CLAUDE.local.md"), ("ws/CLAUDE.local.md", "l")],
            &["ws/CLAUDE.md 16", "ws/CLAUDE.local.md l"],
        );
    }

    #[test]
    fn an_empty_file_hides_no_other() {
        check(
            &[("ws/AGENTS.md", " \n"), ("ws/CLAUDE.md", "c"), ("ws/a/AGENTS.override.md", "")],
            &["ws/CLAUDE.md c"],
        );
    }

    #[test]
    fn a_name_in_other_letters_counts_if_there_is_none_in_the_usual_ones() {
        check(
            &[("ws/agents.md", "a"), ("ws/a/Claude.md", "c")],
            &["ws/agents.md a", "ws/a/Claude.md c"],
        );
        check(&[("ws/AGENTS.MD", "a"), ("ws/CLAUDE.md", "c")], &["ws/AGENTS.MD a"]);
        check(
            &[("ws/c/.claude/CLAUDE.md", "c"), ("ws/c/GEMINI.md", "g")],
            &["ws/c/.claude/CLAUDE.md c"],
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
    fn imported_files_follow_once_and_none_from_outside_of_the_project() {
        check(
            &[
                ("ws/AGENTS.md", "@docs/x.md @../out.md @.env @none.md @bin\n"),
                ("ws/docs/x.md", "@y.md @../AGENTS.md\n"),
                ("ws/docs/y.md", "@x.md\n"),
                ("ws/.env", "KEY=1"),
                ("ws/bin", "\0"),
                ("out.md", "outside"),
                ("config/AGENTS.md", "@more.md"),
                ("config/more.md", "own"),
            ],
            &[
                "config/AGENTS.md @more.md",
                "config/more.md own",
                "ws/AGENTS.md 42",
                "ws/docs/x.md 20",
                "ws/docs/y.md @x.md\n",
                "ws/bin (not text)",
            ],
        );
    }

    #[test]
    fn a_link_that_was_checked_out_as_a_text_is_followed() {
        check(
            &[
                ("ws/AGENTS.md", "CLAUDE.md"),
                ("ws/CLAUDE.md", "c"),
                ("ws/a/CLAUDE.md", "../d.md\n"),
            ],
            &["ws/AGENTS.md CLAUDE.md", "ws/CLAUDE.md c", "ws/a/CLAUDE.md ../d.md\n"],
        );
        check(&[("ws/AGENTS.md", "../out.md"), ("out.md", "x")], &["ws/AGENTS.md ../out.md"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_out_of_the_project_is_named_if_nothing_else_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let base = crate::real_path(temp.path()).unwrap();
        let ws = base.join("ws");
        fs::create_dir(&ws).unwrap();
        fs::write(base.join("out.md"), "outside").unwrap();
        std::os::unix::fs::symlink("../none.md", ws.join("GEMINI.md")).unwrap();
        assert!(read(None, &[(ws.clone(), ws.clone())]).is_empty());
        std::os::unix::fs::symlink("../out.md", ws.join("AGENTS.md")).unwrap();
        let found = read(None, &[(ws.clone(), ws.clone())]);
        assert_eq!((found[0].path.as_path(), found[0].is_text), (&*ws.join("AGENTS.md"), false));
        fs::write(ws.join("CLAUDE.md"), "c").unwrap();
        assert_eq!(read(None, &[(ws.clone(), ws)])[0].text, "c");
    }

    #[cfg(windows)]
    #[test]
    fn no_import_is_looked_for_on_another_machine_or_drive() {
        for path in [r"\\host\share\b.md", "//host/share/b.md", r"C:\b.md", "C:b.md", r"\b.md"] {
            assert!(imported_paths(path).is_empty(), "{path}");
            assert!(imported_paths(&format!("@{path}")).is_empty(), "{path}");
        }
    }

    #[test]
    fn imports_end_with_the_limit_of_the_text_and_that_of_the_files() {
        let long = format!("@a.md @b.md\n{}", "x".repeat(40_000));
        let files = [("ws/AGENTS.md", long.as_str()), ("ws/a.md", "a"), ("ws/b.md", "b")];
        check(&files, &["ws/AGENTS.md 32768 …"]);
        let folder = tempfile::tempdir().unwrap();
        let base = crate::real_path(folder.path()).unwrap();
        let list = |from: usize, count: usize| {
            let names: Vec<_> =
                (from..from + count).map(|number| format!("@{number}.md")).collect();
            names.join(" ")
        };
        fs::write(base.join("AGENTS.md"), list(0, 20)).unwrap();
        for number in 0..500 {
            let text = if number < 20 { list(20 + number * 20, 20) } else { "x".to_owned() };
            fs::write(base.join(format!("{number}.md")), text).unwrap();
        }
        assert_eq!(read(None, &[(base.clone(), base)]).len(), MAX_FILES);
    }

    #[test]
    fn imports_are_followed_only_so_deep() {
        let chain: Vec<_> = (1..9)
            .map(|number| (format!("ws/{number}.md"), format!("@{}.md", number + 1)))
            .collect();
        let files: Vec<_> =
            chain.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check(
            &[&[("ws/AGENTS.md", "@1.md")], &files[..]].concat(),
            &["ws/AGENTS.md @1.md", "ws/1.md @2.md", "ws/2.md @3.md", "ws/3.md @4.md"],
        );
    }

    #[test]
    fn all_of_them_have_one_limit() {
        let most = "x".repeat(32_000);
        let more = "y".repeat(1_000);
        check(
            &[("ws/AGENTS.md", &most), ("ws/a/AGENTS.md", &more), ("ws/a/b/AGENTS.md", "z")],
            &["ws/AGENTS.md 32000", "ws/a/AGENTS.md 768 …", "ws/a/b/AGENTS.md  …"],
        );
    }

    #[test]
    fn imports_are_words_outside_of_code() {
        let table: [(&str, &[&str]); 19] = [
            ("请看@docs/规范.md。另见（@b.md）、“@c.md”", &["docs/规范.md", "b.md", "c.md"]),
            ("اقرأ @docs/a.md، ثم @b.md؟ mail@例子.cn", &["docs/a.md", "b.md"]),
            ("See @README.md and @docs/a.md.", &["README.md", "docs/a.md"]),
            ("@a.md\n- @b.md\n(@c.md), **@d.md**", &["a.md", "b.md", "c.md", "d.md"]),
            ("@a.md @a.md", &["a.md"]),
            ("mail me@example.com or ask @", &[]),
            ("`@types/node` and ``@x`` but @y", &["y"]),
            ("```\n@a\n~~~\n@b\n```\n@c", &["c"]),
            ("~~~\n@never closed", &[]),
            ("Do.\n\n<!-- Not now:\n@a.md\n--> @b.md\n@c.md", &["b.md", "c.md"]),
            ("See @a.md <!-- or @b.md --> @c.md", &["a.md", "c.md"]),
            ("<important>\n@a.md\n</important>\n\n<!-- @never closed", &["a.md"]),
            ("<!-- @a.md --> <!-- @b.md -->\n@c.md", &["c.md"]),
            ("<details>\n<!-- @a.md -->\n@b.md\n</details>", &["b.md"]),
            ("It's a ` and @a.md", &["a.md"]),
            ("@/etc/passwd @~/.ssh/id_ed25519", &[]),
            ("/etc/a.md", &[]),
            ("@../up.md @./here.md", &["../up.md", "./here.md"]),
            ("", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(imported_paths(text), expected, "{text}");
        }
        let many: Vec<_> = (0..99).map(|number| format!("@{number}")).collect();
        assert_eq!(imported_paths(&many.join(" ")).len(), MAX_IMPORTS);
    }
}
