//! Finds the path that a model means by an argument: models put blanks and quotes around paths, name lines behind
//! them, copy names as they or git showed them, write them as on Windows, and compose characters in another way than
//! the disk. For a path that does not exist, existing ones with a similar name are suggested.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, MAIN_SEPARATOR, Path, PathBuf};
use std::time::{Duration, Instant};

use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden_line, unescape_hidden_line};
use turnwright_types::file_link::FileLink;
use turnwright_types::look_alike::{
    Resemblance, composed, is_invisible, resemblance, with_code_points,
};
use turnwright_types::text::join_first;

use super::{Files, Roots};
use crate::search::unignored;

/// A name is compared with at most this many entries of a folder.
const MAX_COMPARED: usize = 100_000;
/// The characters that models put around a path.
const QUOTES: [(char, char); 5] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('‘', '’')];

/// The characters before which people and shells put a backslash.
const OPENING: &[char] = &['(', '[', '{'];
const ESCAPED: &[char] =
    &[' ', ')', ']', '}', '\'', '"', '&', ';', '$', '!', '#', '*', '?', '<', '>', '|', '`'];

/// Words for the working folder that models put in front of a path. The last one is also a usual name of a new folder.
const FOLDER_WORDS: [&str; 4] = ["project", "workspace", "repo", NEW_FOLDER];
const NEW_FOLDER: &str = "app";

impl Files {
    /// Finds what a path argument means: the path, with the lines that the argument names as well, and a note about
    /// other names that look the same. Returns `None` if something has exactly that name. `may_be_new` is true if
    /// the path may be that of a new file. Blocks.
    pub fn meant_path(&self, sent: &str, may_be_new: bool) -> Option<(FileLink, Option<String>)> {
        if !sent.ends_with(['\n', '\r']) && self.roots.has_entry(sent) {
            return None;
        }
        let spellings = spellings(sent);
        let literal = spellings.iter().map(|path| plain_link(path.clone().into_owned()));
        let mut links = spellings.iter().filter_map(|path| FileLink::from_argument(path));
        let locations = spellings.iter().filter_map(|path| FileLink::from_location(path));
        let all: Vec<_> = literal.chain(links.clone()).chain(locations).collect();
        if let Some(found) = all.iter().find(|link| self.roots.has_entry(&link.path)) {
            return Some((found.clone(), None));
        }
        let mut twins = Vec::new();
        for link in &all {
            if let Some(path) = self.similar_path(&link.path, may_be_new, &mut twins) {
                let is_shown = resemblance(&link.path, &path).is_some();
                let [sent, shown] = [&link.path, &path].map(|path| with_code_points(path));
                let note = format!("[{sent} was taken for {shown}, which looks the same.]");
                let link = FileLink { path, ..link.clone() };
                return Some((link, is_shown.then_some(note)));
            }
        }
        for link in all {
            if twins.is_empty()
                && let Some(path) = self.without_folder_word(&link.path, may_be_new)
            {
                let [sent, meant] = [&link.path, &path].map(|path| with_code_points(path));
                let note = format!(
                    "[{sent} was taken for {meant}: paths are relative to the working folder.]"
                );
                return Some((FileLink { path, ..link }, Some(note)));
            }
        }
        let link = links.next_back().unwrap_or_else(|| plain_link(self.name_of_new(&spellings)));
        let path = with_code_points(&link.path);
        let others = twins.join(", ");
        let note = format!(
            "[⚠ {path} looks like {others}, and is another name. Names can be given as they are written here.]"
        );
        Some((link, (!twins.is_empty()).then_some(note)))
    }

    /// The path without the working folder's own name, or a word for it, with which it begins and leads nowhere.
    /// `None` unless something is there. The path of a new file is one of a file that the model knows, or in a folder
    /// that is there.
    fn without_folder_word(&self, path: &str, may_be_new: bool) -> Option<String> {
        let roots = &self.roots;
        let mut parts = Path::new(path).components();
        let first = parts.find(|part| !matches!(part, Component::CurDir | Component::RootDir))?;
        let word = first.as_os_str().to_str()?;
        let is_own_name = roots.cwd().file_name().is_some_and(|name| name == word);
        let is_plain = parts.clone().all(|part| matches!(part, Component::Normal(_)));
        let is_word = is_own_name || FOLDER_WORDS.contains(&word);
        if !is_word || !is_plain || !roots.can_look_at(path) {
            return None;
        }
        let root = if Path::new(path).has_root() { "/" } else { "" };
        if roots.has_entry(&format!("{root}{word}")) {
            return None;
        }
        let rest = parts.as_path();
        let meant = rest.to_str().map(|rest| if rest.is_empty() { "." } else { rest })?;
        let is_there = roots.has_entry(meant);
        let is_meant = match rest.parent() {
            _ if !may_be_new => is_there,
            _ if word == NEW_FOLDER => false,
            _ if is_there => self.seen.contains(&roots.resolve(meant).path),
            Some(folder) => folder.to_str().is_some_and(|folder| roots.has_entry(folder)),
            None => false,
        };
        is_meant.then(|| meant.to_owned())
    }

    /// The path of something that does not exist yet.
    fn name_of_new(&self, spellings: &[Cow<'_, str>]) -> String {
        let spellings = match spellings {
            [plain @ .., Cow::Owned(foreign)] => {
                let folder = foreign.split_once('/').map_or("", |(folder, _)| folder);
                let may_be_shown =
                    plain.last().is_some_and(|name| unescape_hidden_line(name).is_some());
                // In a name that was shown, `\n` and `\t` stand for characters.
                if !may_be_shown || self.roots.has_entry(folder) {
                    return foreign.clone();
                }
                plain
            }
            plain => plain,
        };
        // An apparent decoration belongs to the name if there is a folder of that name.
        let mut ends = spellings.iter().map(|path| path.trim_end_matches(is_filler));
        let named = ends.find(|path| {
            path.split_once('/').is_some_and(|(folder, _)| self.roots.has_entry(folder))
        });
        let path = named.unwrap_or(match spellings {
            // The folder of a package scope, such as `@types`, begins with this mark, too.
            [.., marked, plain] if marked.starts_with('@') && plain.contains('/') => marked,
            _ => spellings.last().map_or(".", |path| path),
        });
        let unescaped = unescape_hidden_line(path).filter(|name| name.contains(is_invisible));
        unescaped.unwrap_or_else(|| path.to_owned())
    }

    /// Finds an entry that is shown like a path that does not exist, or looks the same. Adds ambiguous ones to
    /// `twins`.
    fn similar_path(
        &self,
        path: &str,
        may_be_new: bool,
        twins: &mut Vec<String>,
    ) -> Option<String> {
        let unescaped = unescape_hidden_line(path).filter(|name| self.roots.has_entry(name));
        if unescaped.is_some() || !self.roots.can_look_at(path) {
            return unescaped;
        }
        let mut at = self.roots.real_cwd().to_path_buf();
        let mut found = PathBuf::new();
        let mut is_other = false;
        let mut parts = Path::new(path).components();
        while let Some(part) = parts.next() {
            let mut name = part.as_os_str().to_str()?.to_owned();
            if matches!(part, Component::Normal(_)) && at.join(part).symlink_metadata().is_err() {
                let similar = look_alikes(&at, &name);
                let is_new = may_be_new && parts.as_path().as_os_str().is_empty();
                let [(closeness, only)] = similar.as_slice() else {
                    if similar.is_empty() {
                        found.push(part);
                        break;
                    }
                    twins.extend(similar.iter().map(|(_, name)| with_code_points(name)));
                    return None;
                };
                // A name whose characters have other forms may be meant for another file, unless the model
                // knows this one.
                let place = self.roots.resolve(at.join(only)).path;
                if is_new && *closeness == Resemblance::Form && !self.seen.contains(&place) {
                    twins.push(with_code_points(only));
                    return None;
                }
                name.clone_from(only);
                is_other = true;
            }
            at.push(&name);
            found.push(&name);
        }
        found.extend(parts);
        found.into_os_string().into_string().ok().filter(|_| is_other)
    }
}

impl Roots {
    /// True if something has exactly this path. A link counts, wherever it leads.
    fn has_entry(&self, path: &str) -> bool {
        let at = self.real_cwd().join(path);
        !path.is_empty() && self.can_look_at(path) && at.symlink_metadata().is_ok()
    }

    /// The path of something that is in the working folder relative to it, if it is absolute and plain. As a relative
    /// one it means the same, whoever reads it.
    pub fn below_cwd(&self, path: &str) -> Option<String> {
        let whole = Path::new(path);
        let rest = whole.strip_prefix(self.cwd()).or_else(|_| whole.strip_prefix(self.real_cwd()));
        let rest = rest.ok().filter(|_| whole.is_absolute())?;
        if rest.as_os_str().is_empty() {
            return Some(".".to_owned());
        }
        let name = rest.to_str().filter(|name| !name.ends_with(['\n', '\r']))?;
        let mut parts = rest.components();
        let is_plain = parts.all(|part| matches!(part, Component::Normal(name) if name != "~"));
        (is_plain && self.has_entry(name)).then(|| name.to_owned())
    }

    /// True if the disk may be asked about a path. It knows nothing of folders that were described.
    fn can_look_at(&self, path: &str) -> bool {
        !self.is_described && !self.leads_elsewhere(Path::new(path))
    }
}

/// The ways to read an argument: as it was sent, apart from line ends around it, then ever plainer, then
/// without the `@` by which people mention a file, at last as git quotes it, as a shell escapes it, or as it is
/// on the other kind of system.
fn spellings(sent: &str) -> Vec<Cow<'_, str>> {
    let literal = sent.trim_matches(['\n', '\r']);
    let trimmed_end = literal.trim_end_matches(is_filler);
    let trimmed = trimmed_end.trim_start_matches(is_filler);
    let plain = without_quotes(trimmed);
    let mut all = vec![literal, trimmed_end, trimmed, plain];
    all.extend(plain.strip_prefix('@').map(without_quotes));
    all.dedup();
    all.retain(|path| !path.trim_matches(is_filler).is_empty());
    let foreign = all.last().and_then(|plain| {
        unquoted(plain).or_else(|| without_escapes(plain)).or_else(|| as_on_this_system(plain))
    });
    all.into_iter().map(Cow::Borrowed).chain(foreign.map(Cow::Owned)).collect()
}

/// The name that git shows with the octal numbers of its bytes, such as `\344\270\255`.
fn unquoted(name: &str) -> Option<String> {
    let mut parts = name.split('\\');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..3).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        bytes.push(u8::from_str_radix(digits, 8).ok()?);
        bytes.extend(&part.as_bytes()[3..]);
    }
    String::from_utf8(bytes).ok().filter(|unquoted| !unquoted.is_ascii() && unquoted != name)
}

/// The path that is escaped as for a shell, such as `my\ file.txt`. On Windows the name of a folder may begin
/// with an opening bracket behind a backslash, but with none of the other characters.
fn without_escapes(path: &str) -> Option<String> {
    let mut escaped = path.split('\\').skip(1);
    let are_escapes =
        escaped.clone().all(|rest| rest.starts_with([OPENING, ESCAPED].concat().as_slice()));
    (are_escapes && escaped.any(|rest| rest.starts_with(ESCAPED))).then(|| path.replace('\\', ""))
}

fn plain_link(path: String) -> FileLink {
    FileLink { path, symbol: None, lines: None }
}

/// The path that a model writes as on Windows where folders are separated by slashes, or the other way round. What
/// the Windows subsystem calls `/mnt/c` is the drive `C:`.
fn as_on_this_system(path: &str) -> Option<String> {
    if MAIN_SEPARATOR != '/' {
        return on_drive(path);
    }
    if !path.contains('\\') || path.contains("\\u{") {
        return None;
    }
    let path = path.replace('\\', "/");
    match path.as_bytes() {
        [drive, b':', b'/', ..] if drive.is_ascii_alphabetic() => {
            Some(format!("/mnt/{}{}", drive.to_ascii_lowercase() as char, &path[2..]))
        }
        _ => Some(path),
    }
}

/// The Windows path that a model writes as in Git Bash (`/c/…`), in the Windows subsystem (`/mnt/c/…`) or in a link
/// (`/C:/…`).
fn on_drive(path: &str) -> Option<String> {
    let named = path.strip_prefix("/mnt/").or_else(|| path.strip_prefix('/'))?;
    let (drive, rest) = named.split_once('/')?;
    let letter = drive.strip_suffix(':').unwrap_or(drive);
    let is_drive = matches!(letter.as_bytes(), [byte] if byte.is_ascii_alphabetic());
    is_drive.then(|| format!("{}:/{rest}", letter.to_ascii_uppercase()))
}

fn is_filler(char: char) -> bool {
    char.is_whitespace() || is_invisible(char)
}

fn without_quotes(text: &str) -> &str {
    let inside =
        QUOTES.iter().find_map(|(open, close)| text.strip_prefix(*open)?.strip_suffix(*close));
    inside.map_or(text, str::trim)
}

/// The names in a folder that look most like a name, and how much they do.
fn look_alikes(folder: &Path, name: &str) -> Vec<(Resemblance, String)> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_COMPARED);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<_> =
        names.filter_map(|other| Some((resemblance(name, &other)?, other))).collect();
    found.sort();
    let closest = found.first().map(|(closeness, _)| *closeness);
    found.retain(|(closeness, _)| Some(*closeness) == closest);
    found
}

/// The most suggestions from the same folder, and from elsewhere.
const MAX_SUGGESTIONS: usize = 3;
/// The most entries of a folder that are named where a path leads nowhere.
const MAX_NAMED_ENTRIES: usize = 30;
/// The most entries examined in the folder, and in the whole project.
const MAX_SIBLINGS: usize = 2_000;
const MAX_WALKED: usize = 20_000;
/// How long the project is searched for the name.
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// Returns paths in the same folder with similar names, the most similar first, then files of
/// exactly that name elsewhere below `root`. Blocks.
fn similar_paths(path: &Path, root: &Path) -> Vec<PathBuf> {
    let mut found = similar_siblings(path);
    for other in same_name_elsewhere(path, root) {
        if !found.contains(&other) {
            found.push(other);
        }
    }
    found
}

/// See [`Files::names_near`]. Hidden entries are left out. Blocks.
pub(super) fn names_near(
    path: &Path,
    roots: &Roots,
    is_closed: &dyn Fn(&Path) -> bool,
) -> Option<String> {
    let scope = PathScope::Workspace;
    let mut near = similar_paths(path, &roots.resolve("").path);
    near.retain(|path| roots.resolve(path).scope == scope && !is_closed(path));
    if !near.is_empty() {
        let places = near.into_iter().map(|path| ResolvedPath { path, scope });
        let names: Vec<_> = places.map(|place| roots.display_path(&place)).collect();
        return Some(format!("Similar names: {}.", names.join(", ")));
    }
    let folder = path.ancestors().skip(1).find(|folder| folder.is_dir())?;
    let resolved = roots.resolve(folder);
    let entries = fs::read_dir(folder).ok().filter(|_| resolved.scope == scope)?;
    let named = entries.take(MAX_SIBLINGS).filter_map(Result::ok).filter_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
        if is_closed(&folder.join(&name)) {
            return None;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        Some(format!("{}{}", escape_hidden_line(&name), if is_folder { "/" } else { "" }))
    });
    let mut names: Vec<_> = named.collect();
    names.sort();
    let place = match roots.display_path(&resolved).as_str() {
        "." => "Here".to_owned(),
        folder => format!("In {folder}"),
    };
    let named = join_first(&names, MAX_NAMED_ENTRIES);
    (!names.is_empty()).then(|| format!("{place} are: {named}."))
}

fn similar_siblings(path: &Path) -> Vec<PathBuf> {
    let name = plain_name(path.file_name().unwrap_or_default());
    let Ok(entries) = fs::read_dir(path.parent().unwrap_or(Path::new("/"))) else {
        return Vec::new();
    };
    let mut near: Vec<(f64, PathBuf)> = entries
        .filter_map(Result::ok)
        .take(MAX_SIBLINGS)
        .map(|entry| {
            let other = plain_name(&entry.file_name());
            (strsim::normalized_damerau_levenshtein(&name, &other), entry.path())
        })
        .filter(|(similarity, _)| *similarity > 0.6)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, path)| path).collect()
}

/// A name in the form in which names are compared.
fn plain_name(name: &OsStr) -> String {
    composed(&name.to_string_lossy()).to_lowercase()
}

fn same_name_elsewhere(path: &Path, root: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name() else { return Vec::new() };
    let until = Instant::now() + SEARCH_TIME;
    let mut found: Vec<_> = unignored(root)
        .build()
        .take(MAX_WALKED)
        .take_while(|_| Instant::now() < until)
        .filter_map(Result::ok)
        .filter(|entry| {
            entry.file_name() == name && entry.file_type().is_some_and(|kind| kind.is_file())
        })
        .map(ignore::DirEntry::into_path)
        .take(MAX_SUGGESTIONS)
        .collect();
    found.sort();
    found
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let files = Files::new(Roots::new(folder.path()).unwrap(), None);
        (folder, files)
    }

    #[cfg(unix)]
    #[test]
    fn decorations_of_a_path_go_unless_something_has_the_name() {
        let names = ["a.txt", "src/x", " lead", "'q'", "@m", "@scope/y", "a b.txt", "c:2", "d#L3"];
        let (_folder, files) = files(&names);
        for (sent, may_be_new, path, lines) in [
            ("a.txt\n", true, "a.txt", None),
            ("\r\na.txt\r\n", false, "a.txt", None),
            ("src/\n", true, "src/", None),
            (" a.txt ", true, "a.txt", None),
            ("\u{a0}a.txt\u{200b}", true, "a.txt", None),
            ("\"src/x\"", false, "src/x", None),
            ("`src/x`", true, "src/x", None),
            ("'src/new'", true, "src/new", None),
            ("\" a b.txt \"", false, "a b.txt", None),
            ("@src/x", false, "src/x", None),
            ("@\"a b.txt\"", false, "a b.txt", None),
            ("@src/new", true, "src/new", None),
            ("@new", true, "new", None),
            ("@scope/new", true, "@scope/new", None),
            ("@types/new", true, "@types/new", None),
            ("@/new", true, "@/new", None),
            (" lead/new ", true, " lead/new", None),
            (" new.md", true, "new.md", None),
            ("new\n", true, "new", None),
            ("a.txt:2-3", false, "a.txt", Some((2, 3))),
            ("`a.txt:2:5`", false, "a.txt", Some((2, 2))),
            ("@a.txt#L2-L3", false, "a.txt", Some((2, 3))),
            ("new:2", true, "new:2", None),
            (" \n", true, ".", None),
        ] {
            let meant = files.meant_path(sent, may_be_new).unwrap();
            let link = FileLink { path: path.to_owned(), symbol: None, lines };
            assert_eq!(meant, (link, None), "{sent:?}");
        }
        for sent in names {
            assert_eq!(files.meant_path(sent, true), None, "{sent:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_word_for_the_working_folder_that_leads_nowhere_is_left_out() {
        let (folder, files) = files(&["a.py", "src/b.py", "repo/c.py"]);
        let own = folder.path().file_name().unwrap().to_str().unwrap();
        let with_own_name = format!("{own}/a.py");
        let from_the_root = format!("/{own}/src/b.py");
        for (sent, may_be_new, path) in [
            ("project/a.py", false, "a.py"),
            ("./project/src/b.py", false, "src/b.py"),
            (with_own_name.as_str(), false, "a.py"),
            (from_the_root.as_str(), false, "src/b.py"),
            ("project", false, "."),
            ("app/a.py", false, "a.py"),
            ("project/src/new.py", true, "src/new.py"),
            // Something else is there, or nothing.
            ("repo/a.py", false, "repo/a.py"),
            ("project/none.py", false, "project/none.py"),
            ("project/../a.py", false, "project/../a.py"),
            ("other/a.py", false, "other/a.py"),
            // A new file may be meant.
            ("project/a.py", true, "project/a.py"),
            ("project/new.py", true, "project/new.py"),
            ("app/src/new.py", true, "app/src/new.py"),
        ] {
            let (link, note) = files.meant_path(sent, may_be_new).unwrap();
            assert_eq!(link.path, path, "{sent}");
            assert_eq!(note.is_some(), sent != path, "{sent}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn paths_of_windows_and_names_that_git_quotes_mean_the_files_that_are_here() {
        let (folder, files) =
            files(&["src/main.rs", "中文/文件 1.md", "odd\\name", "new/x", "a (b)/c d.txt"]);
        let at = folder.path().to_str().unwrap();
        for (sent, may_be_new, path) in [
            ("src\\main.rs", false, "src/main.rs"),
            (".\\src\\main.rs", true, "./src/main.rs"),
            ("`src\\main.rs`", false, "src/main.rs"),
            ("src\\", false, "src/"),
            ("src\\new.rs", true, "src/new.rs"),
            ("src\\tests\\new.rs", true, "src/tests/new.rs"),
            ("lib\\a.rs", true, "lib/a.rs"),
            ("none\\nline", true, "none\\nline"),
            ("a\\ \\(b\\)/c\\ d.txt", false, "a (b)/c d.txt"),
            ("new\\ file.txt", true, "new file.txt"),
            ("app\\[id]\\page.tsx", true, "app/[id]/page.tsx"),
            ("app\\[id]", true, "app/[id]"),
            ("C:\\Users\\me\\a.rs", true, "/mnt/c/Users/me/a.rs"),
            (
                "\"\\344\\270\\255\\346\\226\\207/\\346\\226\\207\\344\\273\\266 1.md\"",
                false,
                "中文/文件 1.md",
            ),
            ("\\344\\270\\255\\346\\226\\207/new.md", true, "中文/new.md"),
        ] {
            assert_eq!(files.meant_path(sent, may_be_new).unwrap().0.path, path, "{sent}");
        }
        assert_eq!(files.meant_path("odd\\name", true), None);
        for (path, expected) in [
            (format!("{at}/src/main.rs"), Some("src/main.rs")),
            (at.to_owned(), Some(".")),
            (format!("{at}/src/../odd\\name"), None),
            (format!("{at}/none"), None),
            (format!("{at}x/src"), None),
            ("src/main.rs".to_owned(), None),
        ] {
            assert_eq!(files.roots().below_cwd(&path).as_deref(), expected, "{path}");
        }
        assert_eq!(files.meant_path(&format!("{at}/src/main.rs"), true), None);
    }

    #[test]
    fn a_path_of_git_bash_is_on_the_drive_that_it_names() {
        for (path, expected) in [
            ("/c/Users/me/a b.rs", Some("C:/Users/me/a b.rs")),
            ("/mnt/d/x", Some("D:/x")),
            ("/C:/Users/x", Some("C:/Users/x")),
            ("/d/", Some("D:/")),
            ("/src/main.rs", None),
            ("/mnt/data/x", None),
            ("c/x", None),
            ("//c/x", None),
            ("/c", None),
        ] {
            assert_eq!(on_drive(path).as_deref(), expected, "{path}");
        }
    }

    #[cfg(windows)]
    #[test]
    fn a_path_of_git_bash_means_the_file_that_is_here() {
        let (folder, files) = files(&["src/main.rs"]);
        let at = crate::real_path(folder.path()).unwrap().to_str().unwrap().replace('\\', "/");
        let (drive, rest) = at.split_once(':').unwrap();
        for (name, may_be_new) in [("src/main.rs", false), ("src/new.rs", true)] {
            let sent = format!("/{}{rest}/{name}", drive.to_lowercase());
            let meant = files.meant_path(&sent, may_be_new).unwrap().0.path;
            assert_eq!(meant, format!("{drive}:{rest}/{name}"));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_looks_the_same_is_used_if_there_is_only_one() {
        let (_folder, files) = files(&[
            "U\u{308}bersicht.md",
            "U\u{308}ber/한.md",
            "at 1\u{202f}PM.png",
            "t\u{a0}w",
            "t\u{202f}w",
            "（一）.md",
            "👨\u{200d}👩.md",
            "line\nbreak",
            "x2.md",
            "Capture d’e\u{301}cran à 1.png",
        ]);
        for (sent, may_be_new, expected) in [
            ("\u{dc}bersicht.md", true, "U\u{308}bersicht.md"),
            ("\u{dc}bersicht.md:7", false, "U\u{308}bersicht.md"),
            ("\u{dc}ber/\u{1112}\u{1161}\u{11ab}.md", true, "U\u{308}ber/한.md"),
            ("\u{dc}ber/new.md", true, "U\u{308}ber/new.md"),
            ("at 1 PM.png", true, "at 1\u{202f}PM.png"),
            ("(一).md", false, "（一）.md"),
            ("Capture d'écran à 1.png", false, "Capture d’e\u{301}cran à 1.png"),
            ("👨\\u{200d}👩.md", false, "👨\u{200d}👩.md"),
            ("👨\\u{200d}👦.md", true, "👨\u{200d}👦.md"),
            ("line\\nbreak", false, "line\nbreak"),
            ("new\\nline", true, "new\\nline"),
        ] {
            let (link, note) = files.meant_path(sent, may_be_new).unwrap();
            assert_eq!(link.path, expected, "{sent}");
            assert_eq!(note.is_some(), !sent.contains('\\'), "{sent}");
        }
        for (sent, may_be_new, twins) in [
            ("t w", false, vec!["t\u{a0}w", "t\u{202f}w"]),
            ("t w", true, vec!["t\u{a0}w", "t\u{202f}w"]),
            ("(一).md", true, vec!["（一）.md"]),
            ("x².md", true, vec!["x2.md"]),
        ] {
            let (link, note) = files.meant_path(sent, may_be_new).unwrap();
            let twins: Vec<_> = twins.into_iter().map(with_code_points).collect();
            assert!(note.unwrap().contains(&twins.join(", ")), "{sent}");
            assert_eq!(link.path, sent);
        }
        let known = files.roots().resolve("（一）.md");
        files.mark_seen_blocking(
            &known,
            &crate::files::FileText::new("x", crate::files::TextSource::Disk),
        );
        assert_eq!(files.meant_path("(一).md", true).unwrap().0.path, "（一）.md");
    }
}
