//! Remembers what the model has seen of each file, so that changes from elsewhere are noticed, and what was written.
//! Contents are compared and not timestamps: a timestamp can change without a change, and a change
//! can leave it as it was.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::text::{FileText, TextSource, lines};
use turnwright_types::hash::std_hash;
use turnwright_types::line_diff::common_ends;

const MAX_FILES: usize = 4_096;
/// How many written texts are remembered until they are taken.
const MAX_WRITTEN: usize = 64;
/// Line hashes are kept for files of at most this many lines.
const MAX_HASHED_LINES: usize = 20_000;
/// The most line hashes of all files together, about 4 MB.
const MAX_HASHED_LINES_TOTAL: usize = 1_000_000;
/// The most changed regions that are reported.
const MAX_REGIONS: usize = 5;

/// The lines that the model has seen of the files of one session, and what was written.
// Held only to access the maps.
#[derive(Debug, Default)]
pub(super) struct SeenFiles(Mutex<SeenState>);

#[derive(Debug, Default)]
struct SeenState {
    files: HashMap<PathBuf, SeenFile>,
    /// The number of line hashes in all files.
    lines: usize,
    /// The files written since they were last taken, with their text if the editor has it.
    written: HashMap<PathBuf, Option<FileText>>,
}

#[derive(Debug)]
struct SeenFile {
    hash: [u8; 32],
    /// A hash of each line; empty if there are too many lines.
    lines: Box<[u32]>,
}

/// How the current text of a file compares with what the model has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The model has not read the file in this session.
    Unseen,
    Same,
    /// The file was changed from elsewhere: the first and the last line of each changed region in
    /// the current text, counted from 1. Empty if the regions are not known. Where lines were only
    /// removed, it is the line after them.
    Changed(Vec<(usize, usize)>),
}

impl SeenFiles {
    pub(super) fn note(&self, path: &Path, text: &FileText) {
        let file =
            SeenFile { hash: text.hash(), lines: line_hashes(&text.text).unwrap_or_default() };
        let mut known = self.0.lock();
        known.remove(path);
        if known.files.len() >= MAX_FILES {
            // Forgetting only means that a file has to be read again before it is changed.
            known.files.clear();
            known.lines = 0;
        }
        if known.lines + file.lines.len() > MAX_HASHED_LINES_TOTAL {
            known.files.values_mut().for_each(|file| file.lines = Box::default());
            known.lines = 0;
        }
        known.lines += file.lines.len();
        known.files.insert(path.to_path_buf(), file);
    }

    pub(super) fn compare(&self, path: &Path, text: &FileText) -> Freshness {
        let hash = text.hash();
        // Lines are compared without the lock, for which the runtime's thread waits, too.
        let seen = match self.0.lock().files.get(path) {
            None => return Freshness::Unseen,
            Some(file) if file.hash == hash => return Freshness::Same,
            Some(file) => file.lines.clone(),
        };
        let now = if seen.is_empty() { None } else { line_hashes(&text.text) };
        Freshness::Changed(now.map_or_else(Vec::new, |now| changed_regions(&seen, &now)))
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.0.lock().files.contains_key(path)
    }

    pub(super) fn forget(&self, path: &Path) {
        self.0.lock().remove(path);
    }

    /// Keeps what the model has seen of a file that is moved.
    pub(super) fn rename(&self, from: &Path, to: &Path) {
        let mut known = self.0.lock();
        known.remove(to);
        let moved = known.files.remove(from).map(|file| (to.to_path_buf(), file));
        known.files.extend(moved);
    }

    pub(super) fn note_written(&self, path: &Path, text: &FileText) {
        let shown = (text.source == TextSource::Editor).then(|| text.clone());
        let written = &mut self.0.lock().written;
        if written.len() >= MAX_WRITTEN {
            written.clear();
        }
        written.insert(path.to_path_buf(), shown);
    }

    pub(super) fn take_written(&self, places: &[PathBuf]) -> HashMap<PathBuf, Option<FileText>> {
        let written = &mut self.0.lock().written;
        places.iter().filter_map(|place| written.remove_entry(place)).collect()
    }
}

impl SeenState {
    fn remove(&mut self, path: &Path) {
        self.lines -= self.files.remove(path).map_or(0, |file| file.lines.len());
    }
}

fn line_hashes(text: &str) -> Option<Box<[u32]>> {
    let mut all = Vec::new();
    for line in lines(text) {
        if all.len() == MAX_HASHED_LINES {
            return None;
        }
        // 32 bits are enough: at worst a changed line is not reported.
        all.push((std_hash(line) >> 32) as u32);
    }
    Some(all.into_boxed_slice())
}

/// The regions of `new` that differ. The common beginning and end are left out. If the rest has as
/// many lines on both sides, they are compared one by one; else the whole rest is one region.
fn changed_regions(old: &[u32], new: &[u32]) -> Vec<(usize, usize)> {
    let (head, tail) = common_ends(old, new);
    let old = &old[head..old.len() - tail];
    let new = &new[head..new.len() - tail];
    let whole = (head + 1, head + new.len().max(1));
    if old.len() != new.len() {
        return vec![whole];
    }
    let mut regions: Vec<(usize, usize)> = Vec::new();
    for (number, _) in (head + 1..).zip(old.iter().zip(new)).filter(|(_, (a, b))| a != b) {
        match regions.last_mut() {
            Some(last) if last.1 + 1 == number => last.1 = number,
            _ => regions.push((number, number)),
        }
    }
    if regions.len() > MAX_REGIONS { vec![whole] } else { regions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::TextSource;

    fn text(text: &str) -> FileText {
        FileText::new(text, TextSource::Disk)
    }

    #[test]
    fn changes_are_reported_by_line() {
        type RegionRow<'a> = (&'a str, &'a str, &'a [(usize, usize)]);
        let table: &[RegionRow<'_>] = &[
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
            let seen = SeenFiles::default();
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
        let seen = SeenFiles::default();
        let long = text(&"x\n".repeat(MAX_HASHED_LINES));
        (0..60).for_each(|number| seen.note(Path::new(&format!("/{number}")), &long));
        seen.note(Path::new("/longer"), &text(&"x\n".repeat(MAX_HASHED_LINES + 1)));
        let longer = seen.compare(Path::new("/longer"), &long);
        assert_eq!(longer, Freshness::Changed(Vec::new()));
        let known = seen.0.lock();
        let lines: usize = known.files.values().map(|file| file.lines.len()).sum();
        assert!(lines == known.lines && lines <= MAX_HASHED_LINES_TOTAL, "{lines}");
        assert_eq!(known.files.len(), 61);
    }
}
