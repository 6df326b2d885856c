//! The source files as text, for the tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

/// A `.rs` file.
pub struct Source {
    /// The path from the repository's root, with `/`.
    pub name: String,
    pub text: String,
}

impl Source {
    /// The lines with their numbers, counted from 1.
    pub fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()))
    }

    /// The lines that are not blank, without those of items for tests, with their numbers. In formatted code an item
    /// ends with a line that is indented like its attribute.
    pub fn production_lines(&self) -> Vec<(usize, &str)> {
        let mut lines = self.numbered_lines();
        let mut kept = Vec::new();
        while let Some((number, line)) = lines.next() {
            let trimmed = line.trim_start();
            if !trimmed.starts_with("#[cfg(test") && !trimmed.starts_with("#[cfg(all(test") {
                if !trimmed.is_empty() {
                    kept.push((number, line));
                }
                continue;
            }
            let indent = &line[..line.len() - trimmed.len()];
            for (_, line) in lines.by_ref() {
                let is_outer = line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' '));
                let is_attribute = line.trim_start().starts_with("#[");
                if is_outer && !is_attribute && line.ends_with(['}', ';', ',']) {
                    break;
                }
            }
        }
        kept
    }

    /// The lines of production code without comments.
    pub fn code(&self) -> Vec<(usize, &str)> {
        self.production_lines()
            .into_iter()
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(number, line)| (number, line.split(" // ").next().unwrap_or(line)))
            .collect()
    }

    /// The top-level module of the root package, or `None` for a crate root.
    pub fn module(&self) -> Option<&str> {
        let first = self.name.strip_prefix("src/")?.split('/').next()?;
        let module = first.trim_end_matches(".rs");
        (!["lib", "main"].contains(&module)).then_some(module)
    }

    /// The number of `super::` that lead from the file's own scope to the crate root.
    pub fn depth(&self) -> usize {
        self.name.split('/').skip(1).filter(|part| *part != "mod.rs").count()
    }

    /// Returns true if the file is one of `places`, each a folder or a file; `src/x` is also `src/x.rs`.
    pub fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            self.name
                .strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest == ".rs" || rest.starts_with('/'))
        })
    }

    /// Returns true if the whole file is for tests, by its name or the name of a folder.
    pub fn is_test(&self) -> bool {
        let mut parts = self.name.split('/');
        parts.any(|part| ["tests", "tests.rs", "fixture.rs"].contains(&part))
            || self.name.ends_with("_tests.rs")
    }

    pub fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.name)
    }

    pub fn uses_of(&self, banned: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        for (number, line) in self.code() {
            for what in banned.iter().filter(|what| words(line, what).next().is_some()) {
                found.push(self.at(number, what));
            }
        }
        found
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file, or an empty string if it cannot be read, in which case the caller's check fails.
pub fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_default().replace("\r\n", "\n")
}

/// The source files of the root package and of the crates, without their examples.
pub fn all_sources() -> Vec<Source> {
    let mut files = sources("src");
    files.extend(sources("crates").into_iter().filter(|file| file.name.contains("/src/")));
    files
}

/// The `.rs` files at or below `place`, sorted by path. There are none if `place` does not exist.
pub fn sources(place: &str) -> Vec<Source> {
    let mut paths = Vec::new();
    collect(&root().join(place), &mut paths);
    paths.sort();
    let names = paths.iter().filter_map(|path| path.strip_prefix(root()).ok());
    let names = names.map(|name| name.to_string_lossy().replace('\\', "/"));
    names.map(|name| Source { text: read(&name), name }).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

pub fn in_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The positions of `what` in `line`, except where it is only a part of a longer name.
pub fn words<'a>(line: &'a str, what: &'a str) -> impl Iterator<Item = usize> {
    line.match_indices(what).map(|(at, _)| at).filter(move |at| {
        let starts = !what.starts_with(in_name) || !line[..*at].ends_with(in_name);
        let ends = !what.ends_with(in_name) || !line[at + what.len()..].starts_with(in_name);
        starts && ends
    })
}
