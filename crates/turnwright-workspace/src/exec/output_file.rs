//! The file for output that is too long to be shown. It is created when needed, private, limited in
//! size, and deleted after a week. Only copying into the buffer happens on the runtime's thread.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use turnwright_types::private_file;

/// The most bytes that are held without a file. Shorter output is shown completely.
const MAX_HELD: usize = 30 * 1024;
const WRITE_SIZE: usize = 64 * 1024;
/// The most bytes that may wait to be written. If output arrives faster than the disk takes it, the
/// rest of the file is missing.
const MAX_WAITING: usize = 2 * 1024 * 1024;
/// The maximum size of a file.
const MAX_FILE_BYTES: u64 = 50 * 1024 * 1024;
/// How long files are kept.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The output of a command on its way to a file.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    waiting: Vec<u8>,
    file: Option<File>,
    /// True if a file is needed at all.
    is_needed: bool,
    /// Bytes accepted for the file so far.
    accepted: u64,
    /// Why nothing more is written to the file.
    end: Option<FileEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileEnd {
    /// It has reached its maximum size, or output arrived too fast.
    Full,
    /// Writing it failed.
    Failed,
}

/// A write for a blocking thread.
#[derive(Debug)]
pub(super) struct FileWrite {
    path: PathBuf,
    bytes: Vec<u8>,
    file: Option<File>,
    has_failed: bool,
}

impl OutputFile {
    pub(super) fn new(path: PathBuf) -> OutputFile {
        OutputFile {
            path,
            waiting: Vec::new(),
            file: None,
            is_needed: false,
            accepted: 0,
            end: None,
        }
    }

    /// Adds output.
    pub(super) fn push(&mut self, text: &[u8]) {
        if self.end.is_some() {
            return;
        }
        let room = usize::try_from(MAX_FILE_BYTES - self.accepted).unwrap_or(usize::MAX);
        if text.len() > room || self.waiting.len() + text.len() > MAX_WAITING {
            self.end = Some(FileEnd::Full);
            return;
        }
        self.accepted += text.len() as u64;
        self.waiting.extend_from_slice(text);
        self.is_needed |= self.waiting.len() > MAX_HELD;
    }

    /// Requires a file, because the text is not shown completely.
    pub(super) fn require_file(&mut self) {
        self.is_needed = true;
    }

    /// True if output waits to be written.
    pub(super) fn is_behind(&self) -> bool {
        self.is_needed && !self.waiting.is_empty()
    }

    /// The next write: `all` that waits, or only a full chunk.
    pub(super) fn next_write(&mut self, all: bool) -> Option<FileWrite> {
        if !self.is_behind() || !all && self.waiting.len() < WRITE_SIZE {
            return None;
        }
        let bytes = std::mem::take(&mut self.waiting);
        let file = self.file.take();
        Some(FileWrite { path: self.path.clone(), bytes, file, has_failed: false })
    }

    /// Takes the file back after a write.
    pub(super) fn finish_write(&mut self, work: FileWrite) {
        self.file = work.file;
        if work.has_failed {
            self.end = Some(FileEnd::Failed);
            self.waiting = Vec::new();
        }
    }

    /// The part of the omission note that says where the full output is.
    pub(super) fn omission_note(&self) -> String {
        let what = match self.end {
            Some(FileEnd::Failed) => return String::new(),
            Some(FileEnd::Full) => "its beginning",
            None => "full output",
        };
        format!("; {what}: {}. Use grep or read_file on it.", self.path.display())
    }
}

impl FileWrite {
    /// Writes. Must not run on the runtime's thread.
    pub(super) fn run(mut self) -> FileWrite {
        if let Err(error) = self.write() {
            tracing::warn!(%error, path = %self.path.display(), "long output could not be saved");
            self.has_failed = true;
        }
        self
    }

    fn write(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create_private_file(&self.path)?),
        };
        file.write_all(&self.bytes)
    }
}

/// Creates a file with mode 0600 in folders with mode 0700.
fn create_private_file(path: &Path) -> io::Result<File> {
    private_file::create_folder(path.parent().unwrap_or(Path::new(".")))?;
    private_file::create_new(path)
}

/// Deletes files that are older than a week and folders that are empty then. Must not run on the
/// runtime's thread.
pub(super) fn delete_old_outputs(folder: &Path, now: SystemTime) {
    for session in entries(folder) {
        let is_done = is_old(&session, now);
        for file in entries(&session).into_iter().filter(|file| is_old(file, now)) {
            fs::remove_file(file).ok();
        }
        // This removes only empty folders, and none that was created just now.
        if is_done {
            fs::remove_dir(session).ok();
        }
    }
}

fn is_old(path: &Path, now: SystemTime) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age > MAX_AGE))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    // Links are not followed: their targets are not ours.
    if !fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(Result::ok).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(output: &mut OutputFile, all: bool) {
        if let Some(work) = output.next_write(all) {
            output.finish_write(work.run());
        }
    }

    #[test]
    fn a_file_is_made_only_when_it_is_needed_and_holds_everything() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("outputs/s/p1.txt");
        let mut output = OutputFile::new(path.clone());
        output.push(b"short\n");
        flush(&mut output, true);
        assert!(!path.exists());
        let mut expected = "short\n".to_owned();
        for number in 0..50_000 {
            let line = format!("line {number}\n");
            output.push(line.as_bytes());
            expected.push_str(&line);
            flush(&mut output, false);
        }
        flush(&mut output, true);
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let modes = [path.as_path(), path.parent().unwrap()]
                .map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
            assert_eq!(modes, [0o600, 0o700]);
        }
    }

    #[test]
    fn a_file_has_an_end_and_a_disk_that_refuses_costs_no_memory() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("p1.txt");
        let mut output = OutputFile::new(path.clone());
        let megabyte = vec![b'x'; 1024 * 1024];
        for _ in 0..60 {
            output.push(&megabyte);
            flush(&mut output, true);
        }
        assert_eq!(fs::metadata(path).unwrap().len(), MAX_FILE_BYTES);
        assert!(output.omission_note().starts_with("; its beginning: "));

        let mut output = OutputFile::new(PathBuf::from("/proc/none/p1.txt"));
        output.push(&megabyte);
        flush(&mut output, true);
        output.push(&megabyte);
        assert_eq!((output.omission_note().as_str(), output.waiting.capacity()), ("", 0));
    }

    #[test]
    fn what_is_older_than_a_week_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let files = [base.path().join("a/p1.txt"), base.path().join("b/p2.txt")];
        for file in &files {
            drop(create_private_file(file).unwrap());
        }
        let past = SystemTime::now() - MAX_AGE - Duration::from_secs(60);
        let old = File::options().write(true).open(&files[0]).unwrap();
        old.set_modified(past).unwrap();
        drop(old);
        #[cfg(unix)]
        File::open(base.path().join("a")).unwrap().set_modified(past).unwrap();
        delete_old_outputs(base.path(), SystemTime::now());
        // Windows opens no folder to change its time.
        assert!(!files[0].exists() && files[1].exists());
        assert_eq!(base.path().join("a").exists(), cfg!(windows));
    }
}
