//! Captures what a command prints, in bounded memory: for the model the beginning, where the first
//! error is, and the end, where the result is; for a display the last raw bytes. Output that is too
//! long is also written to a file, which is created when needed, private, limited in size, and deleted after a week:
//! only copying into its buffer happens on the runtime's thread.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::terminal_text::{RepeatedLines, TerminalCleaner};
use turnwright_types::{private_file, redact, text};

/// How many bytes of the beginning are kept.
const MAX_HEAD: usize = 12 * 1024;
/// How many bytes of the end are kept.
const MAX_TAIL: usize = 18 * 1024;
/// The length at which a long line of a complete text is split.
const MAX_PIECE: usize = 4 * 1024;
/// Raw bytes kept for a display.
const MAX_RAW: usize = 64 * 1024;

/// A text whose middle may be missing. It is cut where pieces meet, which is at line ends unless a
/// line is very long.
#[derive(Debug, Default)]
struct HeadTailBuffer {
    head: String,
    tail: VecDeque<u8>,
    /// Bytes and line ends: in total, and dropped.
    bytes: (u64, u64),
    lines: (u64, u64),
}

impl HeadTailBuffer {
    fn push(&mut self, piece: &str) {
        self.bytes.0 += piece.len() as u64;
        self.lines.0 += count_lines(piece.bytes());
        if self.tail.is_empty() && self.head.len() + piece.len() <= MAX_HEAD {
            self.head.push_str(piece);
            return;
        }
        self.tail.extend(piece.as_bytes());
        // Trimming after every line would cost more than everything else.
        if self.tail.len() > 2 * MAX_TAIL {
            self.trim();
        }
    }

    /// Drops what exceeds the limit.
    fn trim(&mut self) {
        if self.tail.len() > MAX_TAIL {
            self.drop_middle(self.tail.len() - MAX_TAIL);
        }
    }

    /// Drops at least this many bytes of the middle, up to the end of the line.
    fn drop_middle(&mut self, least: usize) {
        let mut ends = least.max(1)..self.tail.len();
        let line_start = ends.clone().find(|at| self.tail[at - 1] == b'\n');
        let end = line_start
            .or_else(|| ends.find(|at| self.tail[*at] & 0xc0 != 0x80))
            .unwrap_or(self.tail.len());
        self.bytes.1 += end as u64;
        self.lines.1 += count_lines(self.tail.drain(..end));
    }

    fn is_truncated(&self) -> bool {
        self.bytes.1 > 0 || self.tail.len() > MAX_TAIL
    }

    fn tail_text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }

    /// The text, with a note where something is missing.
    fn into_excerpt(mut self, full: &str) -> OutputExcerpt {
        self.trim();
        let tail = self.tail_text();
        if !self.is_truncated() {
            let text = format!("{}{tail}", self.head);
            return OutputExcerpt { text, ..OutputExcerpt::default() };
        }
        let ((total, lost), what) = match self.lines {
            (_, 0) => (self.bytes, "bytes"),
            lines => (lines, "lines"),
        };
        let end = if self.head.is_empty() || self.head.ends_with('\n') { "" } else { "\n" };
        let lost = with_thousands(lost);
        let total = with_thousands(total);
        let omission = format!("[{lost} of {total} {what} omitted{full}]");
        OutputExcerpt { text: format!("{}{end}{omission}\n{tail}", self.head), omission }
    }
}

fn count_lines(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.filter(|byte| *byte == b'\n').count() as u64
}

/// A number with its thousands separated.
fn with_thousands(number: u64) -> String {
    match number {
        0..=999 => number.to_string(),
        _ => format!("{} {:03}", with_thousands(number / 1_000), number % 1_000),
    }
}

/// Output that was cut to a readable size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputExcerpt {
    /// The text, cut at line ends, with a note where lines are missing.
    pub text: String,
    /// The note; empty if nothing is missing.
    pub omission: String,
}

/// The captured output of a command.
#[derive(Default)]
pub struct CommandOutput {
    cleaner: TerminalCleaner,
    repeats: RepeatedLines,
    /// Output that was not taken yet.
    untaken: HeadTailBuffer,
    /// The incomplete last line as it was when it was taken.
    taken_line: String,
    pub(super) file_output: OutputFile,
    raw: VecDeque<u8>,
    total: u64,
    redactor: redact::StreamRedactor,
}

impl CommandOutput {
    /// Empty output. If it gets too long it is written to this file.
    pub fn new(file: &Path) -> CommandOutput {
        let file_output = OutputFile::new(file.to_path_buf());
        CommandOutput { file_output, ..CommandOutput::default() }
    }

    /// Adds raw output. Loaded keys are redacted first.
    pub fn push(&mut self, bytes: &[u8]) {
        let bytes = self.redactor.push(bytes);
        self.append(&bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.raw.extend(bytes);
        self.raw.drain(..self.raw.len().saturating_sub(MAX_RAW));
        let mut rest = bytes;
        if self.cleaner.is_at_start() && self.taken_line.is_empty() {
            let (same, other) = bytes.split_at(self.repeats.count_repeats(bytes));
            self.file_output.push(same);
            rest = other;
        }
        self.with_cleaner(|cleaner, keep| cleaner.push(rest, keep));
    }

    /// Ends the output.
    pub fn finish(&mut self) {
        let held = self.redactor.finish();
        self.append(&held);
        self.with_cleaner(TerminalCleaner::finish);
        let CommandOutput { repeats, untaken, .. } = self;
        repeats.finish(&mut |piece| untaken.push(piece));
    }

    fn with_cleaner(&mut self, work: impl FnOnce(&mut TerminalCleaner, &mut dyn FnMut(&str))) {
        let CommandOutput { cleaner, repeats, untaken, file_output, taken_line, .. } = self;
        work(cleaner, &mut |piece| {
            file_output.push(piece.as_bytes());
            // A line that was taken before, and of which only the line end was missing, is not new.
            let seen = std::mem::take(taken_line);
            if seen.is_empty() || piece.trim_end_matches('\n') != seen {
                repeats.push(piece, &mut |piece| untaken.push(piece));
            }
        });
        if untaken.is_truncated() {
            file_output.is_needed = true;
        }
    }

    /// The number of bytes in total.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes the output since the last call.
    pub fn take_excerpt(&mut self) -> OutputExcerpt {
        let mut untaken = std::mem::take(&mut self.untaken);
        self.repeats.finish(&mut |piece| untaken.push(piece));
        let line = self.cleaner.line();
        if line != self.taken_line {
            untaken.push(&line);
            self.taken_line = line.into_owned();
        }
        if !untaken.is_truncated() {
            return untaken.into_excerpt("");
        }
        self.file_output.is_needed = true;
        untaken.into_excerpt(&self.file_output.omission_note())
    }

    /// True if there is output that was not taken.
    pub fn has_new_output(&self) -> bool {
        self.untaken.bytes.0 > 0
            || !self.repeats.is_empty()
            || self.cleaner.line() != self.taken_line
    }

    /// The last lines of the untaken output, for a card that is still changing.
    pub fn last_lines(&self, limit: usize) -> String {
        let mut text = if self.untaken.tail.is_empty() {
            self.untaken.head.clone()
        } else {
            self.untaken.tail_text()
        };
        self.repeats.show(&mut |piece| text.push_str(piece));
        text.push_str(&self.cleaner.line());
        let end = text::suffix(&text, limit);
        match end.split_once('\n') {
            Some((_, lines)) if end.len() < text.len() => lines.to_owned(),
            _ => end.to_owned(),
        }
    }

    /// The raw bytes from byte `from` on, and the number of the first one. That is greater than
    /// `from` if the bytes are no longer kept.
    pub fn raw_since(&self, from: u64) -> (u64, Vec<u8>) {
        let first = self.total - self.raw.len() as u64;
        let from = from.clamp(first, self.total);
        let skipped = usize::try_from(from - first).unwrap_or(usize::MAX);
        (from, self.raw.iter().skip(skipped).copied().collect())
    }
}

/// Cuts a complete text like the output of a command and saves it to the file if it is too long.
/// Blocks, so it must not run on the runtime's thread.
pub fn excerpt(text: &str, file: &Path) -> OutputExcerpt {
    let mut buffer = HeadTailBuffer::default();
    for line in text.split_inclusive('\n') {
        pieces(line).for_each(|piece| buffer.push(piece));
    }
    if !buffer.is_truncated() {
        return OutputExcerpt { text: text.to_owned(), ..OutputExcerpt::default() };
    }
    let mut file_output = OutputFile::new(file.to_path_buf());
    file_output.is_needed = true;
    for piece in text.as_bytes().chunks(WRITE_SIZE) {
        file_output.push(piece);
        if let Some(work) = file_output.next_write(true) {
            file_output.finish_write(work());
        }
    }
    buffer.into_excerpt(&file_output.omission_note())
}

/// Splits a long line, so that its beginning and its end can be kept.
fn pieces(mut line: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let piece = text::prefix(line, MAX_PIECE);
        line = &line[piece.len()..];
        (!piece.is_empty()).then_some(piece)
    })
}

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
#[derive(Debug, Default)]
pub(super) struct OutputFile {
    path: PathBuf,
    waiting: Vec<u8>,
    file: Option<File>,
    /// True if a file is needed at all: the output is too long to be held, or is not shown completely.
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

impl OutputFile {
    fn new(path: PathBuf) -> OutputFile {
        OutputFile { path, ..OutputFile::default() }
    }

    /// Adds output.
    fn push(&mut self, text: &[u8]) {
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

    /// True if output waits to be written.
    pub(super) fn is_behind(&self) -> bool {
        self.is_needed && !self.waiting.is_empty()
    }

    /// The next write, for a blocking thread: `all` that waits, or only a full chunk. Returns the file unless it fails,
    /// for [`OutputFile::finish_write`].
    pub(super) fn next_write(
        &mut self,
        all: bool,
    ) -> Option<impl FnOnce() -> Option<File> + Send + use<>> {
        if !self.is_behind() || !all && self.waiting.len() < WRITE_SIZE {
            return None;
        }
        let bytes = std::mem::take(&mut self.waiting);
        let file = self.file.take();
        let path = self.path.clone();
        Some(move || {
            let written = write(file, &path, &bytes).inspect_err(|error| {
                tracing::warn!(%error, path = %path.display(), "long output could not be saved");
            });
            written.ok()
        })
    }

    /// Takes the file back after a write.
    pub(super) fn finish_write(&mut self, file: Option<File>) {
        if file.is_none() {
            self.end = Some(FileEnd::Failed);
            self.waiting = Vec::new();
        }
        self.file = file;
    }

    /// The part of the omission note that says where the full output is.
    fn omission_note(&self) -> String {
        let what = match self.end {
            Some(FileEnd::Failed) => return String::new(),
            Some(FileEnd::Full) => "its beginning",
            None => "full output",
        };
        format!("; {what}: {}. Use grep or read_file on it.", self.path.display())
    }
}

/// Adds to the file. If there is none it is created with mode 0600, in folders with mode 0700.
fn write(file: Option<File>, path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = match file {
        Some(file) => file,
        None => {
            private_file::create_folder(path.parent().unwrap_or(Path::new(".")))?;
            private_file::create_new(path)?
        }
    };
    file.write_all(bytes)?;
    Ok(file)
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
    use proptest::prelude::*;

    use super::*;

    fn output() -> CommandOutput {
        CommandOutput::new(Path::new("/nowhere/p1.txt"))
    }

    #[test]
    fn short_output_is_kept_whole_and_looked_at_once() {
        let mut output = output();
        output.push(b"one\n");
        output.push(b"two");
        assert_eq!(
            output.take_excerpt(),
            OutputExcerpt { text: "one\ntwo".to_owned(), ..OutputExcerpt::default() }
        );
        assert!(!output.has_new_output());
        output.push(b"\nthree\n");
        assert_eq!(output.take_excerpt().text, "three\n");
        output.push(b"name? ");
        assert_eq!(output.take_excerpt().text, "name? ");
        output.push(b"hello\n");
        output.finish();
        assert_eq!(output.take_excerpt().text, "name? hello\n");
        assert_eq!((output.take_excerpt().text.as_str(), output.total()), ("", 26));
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let mut output = output();
        for number in 1..=100_000 {
            output.push(format!("line {number}\n").as_bytes());
        }
        output.finish();
        let part = output.take_excerpt();
        assert!(part.text.contains(&part.omission) && !part.omission.is_empty());
        assert!(part.text.starts_with("line 1\n") && part.text.ends_with("\nline 100000\n"));
        assert!(part.text.len() < 32 * 1024, "{}", part.text.len());
        let kept = part.text.lines().filter(|line| line.starts_with("line ")).count();
        let note = part.text.lines().find(|line| !line.starts_with("line ")).unwrap();
        let expected =
            format!("[{} of 100 000 lines omitted", with_thousands(100_000 - kept as u64));
        assert!(note.starts_with(&expected), "{note} and not {expected}");
    }

    #[test]
    fn a_complete_text_is_cut_alike_and_saved() {
        let base = tempfile::tempdir().unwrap();
        let lines: Vec<_> = (0..100_000).map(|number| format!("line {number}")).collect();
        let many_lines = lines.join("\n") + "\n";
        for (number, text) in [many_lines, "é".repeat(2_000_000)].iter().enumerate() {
            let file = base.path().join(format!("{number}.txt"));
            let part = excerpt(text, &file);
            assert!(part.text.len() < 32 * 1024, "{}", part.text.len());
            assert!(part.omission.contains(" omitted; full output: "), "{}", part.omission);
            assert!(part.text.contains(&part.omission) && !part.text.contains('\u{fffd}'));
            assert_eq!(fs::read_to_string(file).unwrap(), *text);
        }
        let file = base.path().join("none.txt");
        let short = "a\n".repeat(100);
        let whole = OutputExcerpt { text: short.clone(), ..OutputExcerpt::default() };
        assert_eq!(excerpt(&short, &file), whole);
        assert!(!file.exists());
    }

    #[test]
    fn one_endless_line_is_cut_between_characters() {
        let mut output = output();
        output.push("ä".repeat(100_000).as_bytes());
        output.finish();
        let text = output.take_excerpt().text;
        assert!(text.contains(" of 200 000 bytes omitted") && !text.contains('\u{fffd}'), "{text}");
    }

    #[test]
    fn a_display_gets_the_bytes_as_they_came() {
        let mut output = output();
        output.push(b"\x1b[1mbold\r");
        assert_eq!(output.raw_since(0), (0, b"\x1b[1mbold\r".to_vec()));
        assert_eq!(output.raw_since(4), (4, b"bold\r".to_vec()));
        output.push(&vec![b'x'; MAX_RAW]);
        assert_eq!(output.raw_since(0), (9, vec![b'x'; MAX_RAW]));
        assert_eq!(output.raw_since(99_999), (MAX_RAW as u64 + 9, Vec::new()));
    }

    #[test]
    fn the_same_line_again_and_again_is_counted_however_it_is_cut() {
        for size in [1, 3, 1000, 32 * 1024] {
            let mut output = output();
            for chunk in "first\n"
                .bytes()
                .chain("yes\n".bytes().cycle().take(40_002))
                .collect::<Vec<_>>()
                .chunks(size)
            {
                output.push(chunk);
            }
            output.finish();
            assert_eq!(output.take_excerpt().text, "first\nyes [× 10000]\nye", "{size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn memory_is_bounded_whatever_comes(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9000), 0..20),
            looks in proptest::collection::vec(any::<bool>(), 20),
        ) {
            let mut output = output();
            for (piece, part) in pieces.iter().zip(looks) {
                output.push(piece);
                prop_assert!(output.untaken.head.len() <= MAX_HEAD && output.untaken.tail.len() <= 2 * MAX_TAIL);
                prop_assert!(output.raw.len() <= MAX_RAW && output.last_lines(100).len() <= 100);
                if part {
                    prop_assert!(output.take_excerpt().text.len() < MAX_HEAD + MAX_TAIL + 9000);
                }
            }
            output.finish();
            output.take_excerpt();
            prop_assert_eq!(output.total(), pieces.concat().len() as u64);
            prop_assert!(!output.has_new_output());
        }
    }

    fn flush(output: &mut OutputFile, all: bool) {
        if let Some(work) = output.next_write(all) {
            output.finish_write(work());
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
            drop(write(None, file, b"").unwrap());
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
