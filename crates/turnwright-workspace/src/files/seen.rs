//! What the model has seen of each file, so that a change from elsewhere is noticed. Content
//! counts and not the clock: times change without a change, and change without a new time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::text::{Hash, Text};

/// Files that are remembered.
const MOST_FILES: usize = 4_096;
/// Lines of a file of which it is remembered what each was.
const MOST_LINES: usize = 20_000;
/// The same for all files together: some 4 MB.
const MOST_LINES_IN_ALL: usize = 1_000_000;
/// Regions that are told.
const MOST_REGIONS: usize = 5;

/// What was seen of the files of one session.
#[derive(Debug, Default)]
// A std mutex: held to look into a map.
pub(super) struct Seen(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    files: HashMap<PathBuf, File>,
    /// Lines in all of them.
    lines: usize,
}

#[derive(Debug)]
struct File {
    hash: Hash,
    /// A few bytes for each line; empty where there are too many.
    lines: Box<[u32]>,
}

/// How what the model knows of a file compares with what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It has not read it in this session.
    Unseen,
    /// Nothing has changed since.
    Same,
    /// Somebody else has changed it: the first and the last line of each region as it is now,
    /// counted from 1. Empty where that is not known. Where lines are only gone, it is the line
    /// after them.
    Changed(Vec<(usize, usize)>),
}

impl Seen {
    pub(super) fn note(&self, path: &Path, text: &Text) {
        let file = File { hash: text.hash(), lines: lines(&text.text).unwrap_or_default() };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(path);
        if known.files.len() >= MOST_FILES {
            // Forgetting costs a check, not a change.
            *known = Known::default();
        }
        if known.lines + file.lines.len() > MOST_LINES_IN_ALL {
            known.files.values_mut().for_each(|it| it.lines = Box::default());
            known.lines = 0;
        }
        known.lines += file.lines.len();
        known.files.insert(path.to_path_buf(), file);
    }

    pub(super) fn compare(&self, path: &Path, text: &Text) -> Freshness {
        let hash = text.hash();
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.files.get(path) {
            None => Freshness::Unseen,
            Some(file) if file.hash == hash => Freshness::Same,
            Some(file) if file.lines.is_empty() => Freshness::Changed(Vec::new()),
            Some(file) => {
                let now = lines(&text.text);
                Freshness::Changed(now.map_or_else(Vec::new, |now| regions(&file.lines, &now)))
            }
        }
    }

    pub(super) fn forget(&self, path: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }
}

impl Known {
    fn remove(&mut self, path: &Path) {
        if let Some(file) = self.files.remove(path) {
            self.lines -= file.lines.len();
        }
    }
}

fn lines(text: &str) -> Option<Box<[u32]>> {
    let hash = |line: &str| {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        // A part of it is enough: at worst a changed line is not named.
        (hasher.finish() >> 32) as u32
    };
    let mut all = Vec::new();
    for line in text.lines() {
        if all.len() == MOST_LINES {
            return None;
        }
        all.push(hash(line));
    }
    Some(all.into_boxed_slice())
}

/// Where `new` differs. What is the same at both ends is left out; if as many lines are left on
/// both sides they are compared one by one, else all of them count.
fn regions(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let same = |(a, b): &(&u32, &u32)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let whole = (head + 1, head + new.len().max(1));
    if old.len() != new.len() {
        return vec![whole];
    }
    let mut regions: Vec<(usize, usize)> = Vec::new();
    for (number, _) in (head + 1..).zip(old.iter().zip(new)).filter(|(_, pair)| !same(pair)) {
        match regions.last_mut() {
            Some(last) if last.1 + 1 == number => last.1 = number,
            _ => regions.push((number, number)),
        }
    }
    if regions.len() > MOST_REGIONS { vec![whole] } else { regions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Source;

    fn text(text: &str) -> Text {
        Text::new(text, Source::Disk)
    }

    #[test]
    fn what_has_changed_is_told_by_its_lines() {
        type Row<'a> = (&'a str, &'a str, &'a [(usize, usize)]);
        let table: &[Row<'_>] = &[
            ("a\nb\nc\n", "a\nX\nc\n", &[(2, 2)]),
            ("a\nb\nc\nd\n", "X\nb\nc\nX\n", &[(1, 1), (4, 4)]),
            ("a\nb\n", "a\nX\nY\nb\n", &[(2, 3)]),
            ("a\nb\nc\n", "a\nc\n", &[(2, 2)]),
            ("a\n", "a\nb\nc\n", &[(2, 3)]),
            ("a\na\na\n", "a\na\n", &[(3, 3)]),
            (
                "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n",
                "X\n2\nX\n4\nX\n6\nX\n8\nX\n10\nX\n",
                &[(1, 11)],
            ),
        ];
        for (old, new, regions) in table {
            let seen = Seen::default();
            let path = Path::new("/a");
            assert_eq!(seen.compare(path, &text(old)), Freshness::Unseen);
            seen.note(path, &text(old));
            assert_eq!(seen.compare(path, &text(old)), Freshness::Same);
            let changed = Freshness::Changed(regions.to_vec());
            assert_eq!(seen.compare(path, &text(new)), changed, "{old:?} {new:?}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let seen = Seen::default();
        let long = text(&"x\n".repeat(MOST_LINES));
        (0..60).for_each(|it| seen.note(Path::new(&format!("/{it}")), &long));
        seen.note(Path::new("/longer"), &text(&"x\n".repeat(MOST_LINES + 1)));
        let longer = seen.compare(Path::new("/longer"), &long);
        assert_eq!(longer, Freshness::Changed(Vec::new()));
        let known = seen.0.lock().unwrap();
        let lines: usize = known.files.values().map(|it| it.lines.len()).sum();
        assert!(lines == known.lines && lines <= MOST_LINES_IN_ALL, "{lines}");
        assert_eq!(known.files.len(), 61);
    }
}
