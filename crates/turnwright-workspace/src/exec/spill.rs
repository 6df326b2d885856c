//! The file for output that is too long to be shown: made when it is needed, private, bounded, and
//! gone after a week. Nothing here runs on the runtime's thread but the copying of text.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes that are held before there is a file. What is shorter is shown whole.
const HELD: usize = 30 * 1024;
/// Bytes that are written in one go.
const CHUNK: usize = 64 * 1024;
/// Bytes that may wait to be written; of what comes faster than the disk takes it, the rest of
/// the file is missing.
const MOST_WAITING: usize = 2 * 1024 * 1024;
/// Bytes of a file.
const LARGEST: u64 = 50 * 1024 * 1024;
/// How long files are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Output on its way to a file.
#[derive(Debug)]
pub(super) struct Spill {
    path: PathBuf,
    waiting: Vec<u8>,
    file: Option<File>,
    /// Whether a file is needed at all.
    needed: bool,
    /// Bytes that were taken for the file.
    taken: u64,
    /// Nothing more goes to the file.
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is as long as it may be.
    Full,
    /// It could not be written.
    Failed,
}

/// A piece of work for a blocking thread.
#[derive(Debug)]
pub(super) struct Work {
    path: PathBuf,
    bytes: Vec<u8>,
    file: Option<File>,
    failed: bool,
}

impl Spill {
    pub(super) fn new(path: PathBuf) -> Spill {
        Spill { path, waiting: Vec::new(), file: None, needed: false, taken: 0, end: None }
    }

    /// Takes more.
    pub(super) fn push(&mut self, text: &[u8]) {
        if self.end.is_some() {
            return;
        }
        let room = usize::try_from(LARGEST - self.taken).unwrap_or(usize::MAX);
        if text.len() > room || self.waiting.len() + text.len() > MOST_WAITING {
            self.end = Some(End::Full);
            return;
        }
        self.taken += text.len() as u64;
        self.waiting.extend_from_slice(text);
        self.needed |= self.waiting.len() > HELD;
    }

    /// A file has to be there: the text is not shown whole.
    pub(super) fn need(&mut self) {
        self.needed = true;
    }

    /// Whether something waits for being written.
    pub(super) fn lags(&self) -> bool {
        self.needed && !self.waiting.is_empty()
    }

    /// What to write now, `all` or only what is worth the while.
    pub(super) fn work(&mut self, all: bool) -> Option<Work> {
        if !self.lags() || !all && self.waiting.len() < CHUNK {
            return None;
        }
        let (bytes, file) = (std::mem::take(&mut self.waiting), self.file.take());
        Some(Work { path: self.path.clone(), bytes, file, failed: false })
    }

    /// Takes the file back.
    pub(super) fn done(&mut self, work: Work) {
        self.file = work.file;
        if work.failed {
            self.end = Some(End::Failed);
            self.waiting = Vec::new();
        }
    }

    /// Where the rest is, for the note that something is missing.
    pub(super) fn told(&self) -> String {
        let what = match self.end {
            Some(End::Failed) => return String::new(),
            Some(End::Full) => "its beginning",
            None => "full output",
        };
        format!("; {what}: {}. Use grep or read_file on it.", self.path.display())
    }
}

impl Work {
    /// Writes. Not for the runtime's thread.
    pub(super) fn run(mut self) -> Work {
        if let Err(error) = self.write() {
            tracing::warn!(%error, path = %self.path.display(), "long output could not be kept");
            self.failed = true;
        }
        self
    }

    fn write(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create(&self.path)?),
        };
        file.write_all(&self.bytes)
    }
}

/// A new file that only its owner can read, in folders that only their owner can enter.
fn create(path: &Path) -> io::Result<File> {
    let mut folders = fs::DirBuilder::new();
    let mut options = OpenOptions::new();
    folders.recursive(true);
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        folders.mode(0o700);
        options.mode(0o600);
    }
    folders.create(path.parent().unwrap_or(Path::new(".")))?;
    options.open(path)
}

/// Removes what is older than a week, and folders that are empty then. Not for the runtime's
/// thread.
pub(super) fn sweep(folder: &Path, now: SystemTime) {
    let is_old = |path: &Path| {
        let changed = fs::symlink_metadata(path).and_then(|it| it.modified());
        changed.is_ok_and(|it| now.duration_since(it).is_ok_and(|age| age > KEPT))
    };
    for session in entries(folder) {
        let is_done = is_old(&session);
        for file in entries(&session).into_iter().filter(|it| is_old(it)) {
            fs::remove_file(file).ok();
        }
        // Only an empty one goes, and not one that was made this moment.
        if is_done {
            fs::remove_dir(session).ok();
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    // A link is not followed: what is behind it is not ours.
    if !fs::symlink_metadata(folder).is_ok_and(|it| it.is_dir()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(Result::ok).map(|it| it.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(spill: &mut Spill, all: bool) {
        if let Some(work) = spill.work(all) {
            spill.done(work.run());
        }
    }

    #[test]
    fn a_file_is_made_only_when_it_is_needed_and_holds_everything() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("outputs/s/p1.txt");
        let mut spill = Spill::new(path.clone());
        spill.push(b"short\n");
        flush(&mut spill, true);
        assert!(!path.exists());
        let mut expected = "short\n".to_owned();
        for number in 0..50_000 {
            let line = format!("line {number}\n");
            spill.push(line.as_bytes());
            expected.push_str(&line);
            flush(&mut spill, false);
        }
        flush(&mut spill, true);
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |it: &Path| fs::metadata(it).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        }
    }

    #[test]
    fn a_file_has_an_end_and_a_disk_that_refuses_costs_no_memory() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("p1.txt");
        let mut spill = Spill::new(path.clone());
        let megabyte = vec![b'x'; 1024 * 1024];
        for _ in 0..60 {
            spill.push(&megabyte);
            flush(&mut spill, true);
        }
        assert_eq!(fs::metadata(path).unwrap().len(), LARGEST);
        assert!(spill.told().starts_with("; its beginning: "));

        let mut spill = Spill::new(PathBuf::from("/proc/none/p1.txt"));
        spill.push(&megabyte);
        flush(&mut spill, true);
        spill.push(&megabyte);
        assert_eq!((spill.told().as_str(), spill.waiting.capacity()), ("", 0));
    }

    #[test]
    fn what_is_older_than_a_week_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let files = [base.path().join("a/p1.txt"), base.path().join("b/p2.txt")];
        for file in &files {
            drop(create(file).unwrap());
        }
        let past = SystemTime::now() - KEPT - Duration::from_secs(60);
        let old = OpenOptions::new().write(true).open(&files[0]).unwrap();
        old.set_modified(past).unwrap();
        File::open(base.path().join("a")).unwrap().set_modified(past).unwrap();
        sweep(base.path(), SystemTime::now());
        assert!(!base.path().join("a").exists() && files[1].exists());
    }
}
