//! Finds the files for which git may write something else than the blob into the working tree: they have a
//! filter (LFS, git-crypt), another encoding, `$Id$`, or CRLF by an attribute. It errs towards too many:
//! an attribute that is taken away again still counts, and unusual patterns are read broadly.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::super::snapshot::{StatSnapshot, WatchedFolders, target_stat};
use super::{FileStat, Repository, read_small};

/// The name of the files with attributes in the working tree.
const FILE_NAME: &str = ".gitattributes";
/// The attributes that make git convert, apart from ends of lines, which can be told by the size.
const CONVERTING: [&str; 4] = ["filter=", "working-tree-encoding=", "ident", "eol=crlf"];

/// A file with attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AttributeFile {
    path: PathBuf,
    stat: Option<FileStat>,
    /// The folder below which its patterns apply.
    base: PathBuf,
}

/// The files that git converts.
#[derive(Debug, Default)]
pub(in super::super) struct ConvertedFiles {
    files: Vec<AttributeFile>,
    rules: Vec<Gitignore>,
}

impl ConvertedFiles {
    /// Reads the attributes that apply in a snapshot, unless they are the known ones. Blocks.
    pub(in super::super) fn load(
        watched: &WatchedFolders,
        snapshot: &StatSnapshot,
        repositories: &[Arc<Repository>],
        known: Option<&Arc<ConvertedFiles>>,
    ) -> Arc<ConvertedFiles> {
        let mut files = Vec::new();
        for repository in repositories {
            let above = repository
                .root
                .ancestors()
                .take_while(|folder| folder.starts_with(&repository.top));
            files.extend(above.map(|folder| (folder.join(FILE_NAME), folder.to_path_buf())));
            let given = watched.attribute_files(&repository.root);
            // The user's may be links.
            let more = given.into_iter().filter_map(|path| crate::real_path(path).ok());
            files.extend(more.map(|path| (path, repository.top.clone())));
        }
        if !files.is_empty() {
            let folders = snapshot.folders_since(None);
            let having =
                folders.filter(|(_, listing)| listing.entries.get(OsStr::new(FILE_NAME)).is_some());
            files.extend(having.map(|(folder, _)| (folder.join(FILE_NAME), folder.to_path_buf())));
        }
        files.sort();
        files.dedup();
        let found = files.into_iter().map(|(path, base)| {
            let stat = target_stat(&path);
            AttributeFile { path, stat, base }
        });
        let files: Vec<_> = found.filter(|file| file.stat.is_some()).collect();
        match known {
            Some(known) if known.files == files => Arc::clone(known),
            _ => Arc::new(ConvertedFiles { rules: rules(&files), files }),
        }
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns true if git may have converted this file.
    pub(in super::super) fn contains(&self, path: &Path) -> bool {
        self.rules
            .iter()
            .any(|rule| path.starts_with(rule.path()) && rule.matched(path, false).is_ignore())
    }
}

/// Returns the patterns of each file that has such attributes.
fn rules(files: &[AttributeFile]) -> Vec<Gitignore> {
    // A file that cannot be read may say so of any other.
    let texts: Vec<_> =
        files.iter().map(|file| read_small(&file.path).unwrap_or("* ident".to_owned())).collect();
    let mut macros = HashSet::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let mut words = line.split_whitespace();
        if let Some(name) = words.next().and_then(|word| word.strip_prefix("[attr]"))
            && words.any(|word| converts(word, &macros))
        {
            macros.insert(name.to_owned());
        }
    }
    let rules = files.iter().zip(&texts).filter_map(|(file, text)| {
        let mut builder = GitignoreBuilder::new(&file.base);
        builder.case_insensitive(true).ok();
        for (pattern, attributes) in text.lines().filter_map(split_line) {
            if attributes.split_whitespace().any(|word| converts(word, &macros)) {
                builder.add_line(None, &broadened(pattern)).ok();
            }
        }
        builder.build().ok()
    });
    rules.filter(|rule| !rule.is_empty()).collect()
}

fn converts(attribute: &str, macros: &HashSet<String>) -> bool {
    let name = attribute.find('=').map_or(attribute, |at| &attribute[..=at]);
    CONVERTING.iter().any(|converting| *converting == name || *converting == attribute)
        || macros.contains(attribute)
}

/// Splits a line into the pattern, which may be quoted, and the attributes.
fn split_line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start_matches(['\u{feff}', ' ', '\t']);
    match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\" "),
        None => line
            .split_once(char::is_whitespace)
            .filter(|(pattern, _)| !pattern.starts_with(['#', '!'])),
    }
}

/// Writes `*` for what other patterns may understand otherwise, such as `[[:space:]]` and `{`, and for what
/// may be composed otherwise in the name of a file.
fn broadened(pattern: &str) -> String {
    let mut broad = String::new();
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        if next == '[' {
            let part = rest.as_str().find('/').unwrap_or(rest.as_str().len());
            let end = rest.as_str()[..part].rfind(']').map_or(0, |at| at + 1);
            rest = rest.as_str()[end..].chars();
        }
        match next {
            '[' | ']' | '{' | '}' | '\\' | '"' | '\u{80}'.. if broad.ends_with('*') => {}
            '[' | ']' | '{' | '}' | '\\' | '"' | '\u{80}'.. => broad.push('*'),
            plain => broad.push(plain),
        }
    }
    broad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_git_converts_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let top = crate::real_path(folder.path()).unwrap();
        let text = "\u{feff}*.lfs filter=lfs diff=lfs -text\n\
                    # *.txt filter=x\n\
                    \"with space.c\" ident\n\
                    /docs/**/*.Md working-tree-encoding=UTF-16\n\
                    *.sln text eol=crlf\n\
                    file[[:space:]]a.psd filter=x\n\
                    d/{a}.x filter=x\n\
                    übung.x filter=x\n\
                    [attr]secret filter=git-crypt\n\
                    [attr]deep secret -text\n\
                    keys/* deep\n\
                    *.bat text\n*.png binary\n*.rs -filter !ident eol=lf\n*.id diff=ident\n";
        #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
        std::fs::write(top.join(FILE_NAME), text).unwrap();
        let path = top.join(FILE_NAME);
        let file = AttributeFile { stat: target_stat(&path), path, base: top.clone() };
        let converted =
            ConvertedFiles { rules: rules(std::slice::from_ref(&file)), files: vec![file] };
        for (name, expected) in [
            ("a.lfs", true),
            ("sub/b.LFS", true),
            ("a.txt", false),
            ("with space.c", true),
            ("docs/a/b.md", true),
            ("other/docs/b.md", false),
            ("a.sln", true),
            ("file a.psd", true),
            ("d/{a}.x", true),
            ("übung.x", true),
            ("u\u{308}bung.x", true),
            ("b.x", false),
            ("keys/k", true),
            ("keys/deeper/k", false),
            ("a.bat", false),
            ("a.png", false),
            ("a.rs", false),
            ("a.id", false),
        ] {
            assert_eq!(converted.contains(&top.join(name)), expected, "{name}");
        }
        assert!(!converted.contains(Path::new("/elsewhere/a.lfs")));
    }
}
