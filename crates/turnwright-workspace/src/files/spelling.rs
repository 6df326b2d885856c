//! Finds the path that a model means by an argument: models put blanks and quotes around paths, name lines
//! behind them, copy names as they were shown to them, and compose characters in another way than the disk.

use std::path::{Component, Path, PathBuf};

use turnwright_types::effect::unescape_hidden_line;
use turnwright_types::file_link::FileLink;
use turnwright_types::look_alike::{Resemblance, is_invisible, resemblance};

use super::{Files, Roots};

/// The most entries of a folder that a name is compared with.
const MAX_COMPARED: usize = 100_000;
/// What models put around a path.
const QUOTES: [(char, char); 5] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('‘', '’')];

/// A path argument as it was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeantPath {
    pub path: String,
    /// The lines that the argument names besides the file.
    pub lines: Option<(u32, u32)>,
    /// The argument names the file by another name that looks the same.
    pub looks_alike: bool,
    /// Nothing has the name, but these look the same.
    pub twins: Vec<String>,
}

impl MeantPath {
    fn plain(path: &str) -> MeantPath {
        MeantPath { path: path.to_owned(), ..MeantPath::default() }
    }

    fn of_link(link: FileLink) -> MeantPath {
        MeantPath { path: link.path, lines: link.lines, ..MeantPath::default() }
    }
}

/// What a path that leads to nothing can mean.
enum Similar {
    /// Something that is there.
    One(String),
    /// One of these, or something new.
    Several(Vec<String>),
}

/// The ways to read an argument, each plainer than the one before.
struct Spellings<'a> {
    /// As it was sent, apart from line ends around it.
    literal: &'a str,
    trimmed_end: &'a str,
    trimmed: &'a str,
    unquoted: &'a str,
    /// Without the `@` by which people mention a file.
    unmarked: &'a str,
}

impl Files {
    /// Finds what a path argument means; `None` if something has exactly that name. `may_be_new` is true if
    /// the path may be that of a new file. Blocks.
    pub fn meant_path(&self, sent: &str, may_be_new: bool) -> Option<MeantPath> {
        if !sent.ends_with(['\n', '\r']) && self.roots.has_entry(sent) {
            return None;
        }
        let spellings = Spellings::of(sent);
        let mut meant: Vec<_> = spellings.distinct().map(MeantPath::plain).collect();
        let links = spellings.distinct().filter_map(FileLink::from_argument);
        let links: Vec<_> = links.map(MeantPath::of_link).collect();
        let new = links.last().cloned();
        meant.extend(links);
        let locations = spellings.distinct().filter_map(FileLink::from_location);
        meant.extend(locations.map(MeantPath::of_link));
        if let Some(found) = meant.iter().find(|meant| self.roots.has_entry(&meant.path)) {
            return Some(found.clone());
        }
        let mut twins = Vec::new();
        for meant in meant {
            match self.similar_path(&meant.path, may_be_new) {
                Some(Similar::One(path)) => {
                    let looks_alike = resemblance(&meant.path, &path).is_some();
                    return Some(MeantPath { path, looks_alike, ..meant });
                }
                Some(Similar::Several(names)) if twins.is_empty() => twins = names,
                _ => {}
            }
        }
        let new = new.unwrap_or_else(|| MeantPath::plain(&self.name_of_new(&spellings)));
        Some(MeantPath { twins, ..new })
    }

    /// The path of something that does not exist yet. What looks like a decoration belongs to the name if
    /// there is a folder of that name.
    fn name_of_new(&self, spellings: &Spellings<'_>) -> String {
        let begins_in_folder = |path: &&str| {
            let folder = path.split_once('/').map_or("", |it| it.0);
            self.roots.has_entry(folder)
        };
        let Spellings { trimmed_end, trimmed, unquoted, unmarked, .. } = *spellings;
        let named = [trimmed_end, trimmed, unquoted].into_iter().find(begins_in_folder);
        // The folder of a package scope, such as `@types`, begins with this mark, too.
        let may_be_scope = unmarked.contains('/') && !begins_in_folder(&unmarked);
        let path = named.unwrap_or(if may_be_scope { unquoted } else { unmarked });
        let unescaped = unescape_hidden_line(path).filter(|it| it.contains(is_invisible));
        unescaped.unwrap_or_else(|| path.to_owned())
    }

    /// Finds what is shown like a path that leads to nothing, or looks the same.
    fn similar_path(&self, path: &str, may_be_new: bool) -> Option<Similar> {
        let unescaped = unescape_hidden_line(path).filter(|it| self.roots.has_entry(it));
        if let Some(unescaped) = unescaped {
            return Some(Similar::One(unescaped));
        }
        if !self.roots.can_look_at(path) {
            return None;
        }
        let mut at = self.roots.real_cwd().to_path_buf();
        let mut found = PathBuf::new();
        let mut is_other = false;
        let mut parts = Path::new(path).components();
        while let Some(part) = parts.next() {
            let is_name = matches!(part, Component::Normal(_));
            if !is_name || at.join(part).symlink_metadata().is_ok() {
                at.push(part);
                found.push(part);
                continue;
            }
            let (closeness, names) = look_alikes(&at, part.as_os_str().to_str()?);
            let is_new = may_be_new && parts.as_path().as_os_str().is_empty();
            match names.as_slice() {
                [] => {
                    found.push(part);
                    break;
                }
                // A name whose characters have other forms may be meant for another file, unless the model
                // knows this one.
                [name]
                    if closeness < Resemblance::Form
                        || !is_new
                        || self.has_seen(&at.join(name)) =>
                {
                    at.push(name);
                    found.push(name);
                    is_other = true;
                }
                names => {
                    let names = names
                        .iter()
                        .filter_map(|name| found.join(name).into_os_string().into_string().ok());
                    return Some(Similar::Several(names.collect()));
                }
            }
        }
        found.extend(parts);
        let path = found.into_os_string().into_string().ok()?;
        is_other.then_some(Similar::One(path))
    }

    fn has_seen(&self, path: &Path) -> bool {
        self.seen.contains(&self.roots.resolve(path).path)
    }
}

impl Roots {
    /// True if something has exactly this path. A link counts, wherever it leads.
    fn has_entry(&self, path: &str) -> bool {
        !path.is_empty()
            && self.can_look_at(path)
            && self.real_cwd().join(path).symlink_metadata().is_ok()
    }

    /// True if the disk may be asked about a path. It knows nothing of the folders of a recording.
    fn can_look_at(&self, path: &str) -> bool {
        !self.is_recorded() && !self.leads_elsewhere(Path::new(path))
    }
}

impl<'a> Spellings<'a> {
    fn of(sent: &'a str) -> Spellings<'a> {
        let literal = sent.trim_matches(['\n', '\r']);
        let trimmed_end = literal.trim_end_matches(is_filler);
        let trimmed = trimmed_end.trim_start_matches(is_filler);
        let unquoted = without_quotes(trimmed);
        let unmarked = unquoted.strip_prefix('@').map_or(unquoted, without_quotes);
        Spellings { literal, trimmed_end, trimmed, unquoted, unmarked }
    }

    fn distinct(&self) -> impl Iterator<Item = &'a str> {
        let Spellings { literal, trimmed_end, trimmed, unquoted, unmarked } = *self;
        let mut all = vec![literal, trimmed_end, trimmed, unquoted, unmarked];
        all.dedup();
        all.retain(|path| !path.is_empty());
        all.into_iter()
    }
}

fn is_filler(char: char) -> bool {
    char.is_whitespace() || is_invisible(char)
}

fn without_quotes(text: &str) -> &str {
    let inside = |(open, close)| text.strip_prefix(open)?.strip_suffix(close);
    QUOTES.into_iter().find_map(inside).map_or(text, str::trim)
}

/// The names in a folder that look most like a name, and how much they do.
fn look_alikes(folder: &Path, name: &str) -> (Resemblance, Vec<String>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(MAX_COMPARED);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<_> =
        names.filter_map(|other| Some((resemblance(name, &other)?, other))).collect();
    found.sort();
    let closeness = found.first().map_or(Resemblance::Form, |it| it.0);
    found.retain(|it| it.0 == closeness);
    (closeness, found.into_iter().map(|it| it.1).collect())
}

#[cfg(test)]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::fs;

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
            (" \n", true, "", None),
        ] {
            let meant = files.meant_path(sent, may_be_new).unwrap();
            let expected = MeantPath { path: path.to_owned(), lines, ..MeantPath::default() };
            assert_eq!(meant, expected, "{sent:?}");
        }
        for sent in names {
            assert_eq!(files.meant_path(sent, true), None, "{sent:?}");
        }
    }

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
        ]);
        let one = |path: &str, looks_alike| MeantPath {
            path: path.to_owned(),
            looks_alike,
            ..MeantPath::default()
        };
        for (sent, may_be_new, expected) in [
            ("\u{dc}bersicht.md", true, one("U\u{308}bersicht.md", true)),
            ("\u{dc}bersicht.md:7", false, {
                MeantPath { lines: Some((7, 7)), ..one("U\u{308}bersicht.md", true) }
            }),
            ("\u{dc}ber/\u{1112}\u{1161}\u{11ab}.md", true, one("U\u{308}ber/한.md", true)),
            ("\u{dc}ber/new.md", true, one("U\u{308}ber/new.md", true)),
            ("at 1 PM.png", true, one("at 1\u{202f}PM.png", true)),
            ("(一).md", false, one("（一）.md", true)),
            ("👨\\u{200d}👩.md", false, one("👨\u{200d}👩.md", false)),
            ("👨\\u{200d}👦.md", true, one("👨\u{200d}👦.md", false)),
            ("line\\nbreak", false, one("line\nbreak", false)),
            ("new\\nline", true, one("new\\nline", false)),
        ] {
            assert_eq!(files.meant_path(sent, may_be_new), Some(expected), "{sent}");
        }
        for (sent, may_be_new, twins) in [
            ("t w", false, vec!["t\u{a0}w", "t\u{202f}w"]),
            ("t w", true, vec!["t\u{a0}w", "t\u{202f}w"]),
            ("(一).md", true, vec!["（一）.md"]),
            ("x².md", true, vec!["x2.md"]),
        ] {
            let meant = files.meant_path(sent, may_be_new).unwrap();
            let twins: Vec<_> = twins.into_iter().map(str::to_owned).collect();
            assert_eq!(meant, MeantPath { twins, ..one(sent, false) }, "{sent}");
        }
        let known = files.roots().resolve("（一）.md");
        files.mark_seen_blocking(
            &known,
            &crate::files::FileText::new("x", crate::files::TextSource::Disk),
        );
        assert_eq!(files.meant_path("(一).md", true), Some(one("（一）.md", true)));
    }
}
