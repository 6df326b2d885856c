//! What a command prints, in bounded memory: for the model the beginning, where the first error
//! is, and the end, where the result is; for a display the last bytes as they came; and all of it
//! on its way to a file when it is too long.

use std::collections::VecDeque;
use std::path::Path;

use super::clean::{Cleaner, Repeats};
use super::spill::{Spill, Work};
use turnwright_types::redact;

/// Bytes kept of the beginning.
const HEAD: usize = 12 * 1024;
/// Bytes kept of the end.
const TAIL: usize = 18 * 1024;
/// Bytes of a line that are looked at in one go, of a text that is there already.
const PIECE: usize = 4 * 1024;
/// Bytes kept as they came.
const RAW: usize = 64 * 1024;

/// Text of which the middle may be missing. It is cut where pieces meet, which is at the ends of
/// lines unless a line is very long.
#[derive(Debug, Default)]
struct Ring {
    head: String,
    tail: VecDeque<u8>,
    /// Bytes and ends of lines, in all and lost.
    bytes: (u64, u64),
    lines: (u64, u64),
}

impl Ring {
    fn push(&mut self, piece: &str) {
        self.bytes.0 += piece.len() as u64;
        self.lines.0 += count_lines(piece.bytes());
        if self.tail.is_empty() && self.head.len() + piece.len() <= HEAD {
            self.head.push_str(piece);
            return;
        }
        self.tail.extend(piece.as_bytes());
        if self.tail.len() > TAIL {
            self.lose(self.tail.len() - TAIL);
        }
    }

    /// Drops so many bytes of the middle, and the rest of the line.
    fn lose(&mut self, least: usize) {
        let starts_line = |at: &usize| self.tail.get(at - 1).is_some_and(|it| *it == b'\n');
        let starts_char = |at: &usize| self.tail.get(*at).is_none_or(|it| it & 0xc0 != 0x80);
        let mut ends = least.max(1)..self.tail.len();
        let end = ends.clone().find(starts_line).or_else(|| ends.find(starts_char));
        let end = end.unwrap_or(self.tail.len());
        self.bytes.1 += end as u64;
        self.lines.1 += count_lines(self.tail.drain(..end));
    }

    fn is_cut(&self) -> bool {
        self.bytes.1 > 0
    }

    fn text(&self, full: &str) -> String {
        let (front, back) = self.tail.as_slices();
        let tail = [front, back].concat();
        let tail = String::from_utf8_lossy(&tail);
        if !self.is_cut() {
            return format!("{}{tail}", self.head);
        }
        let ((total, lost), what) = match self.lines {
            (_, 0) => (self.bytes, "bytes"),
            lines => (lines, "lines"),
        };
        let end = if self.head.is_empty() || self.head.ends_with('\n') { "" } else { "\n" };
        let (lost, total) = (grouped(lost), grouped(total));
        format!("{}{end}[{lost} of {total} {what} omitted{full}]\n{tail}", self.head)
    }
}

fn count_lines(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.filter(|it| *it == b'\n').count() as u64
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// What was printed since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The text, cut at the ends of lines, with a note where lines are missing.
    pub text: String,
    /// Whether something is missing.
    pub truncated: bool,
}

/// Captured output.
#[derive(Debug)]
pub struct Output {
    cleaner: Cleaner,
    repeats: Repeats,
    /// What nobody has looked at.
    fresh: Ring,
    /// The incomplete line as it was when somebody looked.
    seen_line: String,
    spill: Spill,
    raw: VecDeque<u8>,
    total: u64,
    keys: redact::Stream,
}

impl Output {
    /// No output yet. If it is too long it goes to this file.
    pub fn new(file: &Path) -> Output {
        Output {
            cleaner: Cleaner::default(),
            repeats: Repeats::default(),
            fresh: Ring::default(),
            seen_line: String::new(),
            spill: Spill::new(file.to_path_buf()),
            raw: VecDeque::new(),
            total: 0,
            keys: redact::Stream::default(),
        }
    }

    /// Takes more. No key of ours gets any further.
    pub fn push(&mut self, bytes: &[u8]) {
        let bytes = self.keys.push(bytes);
        self.take(&bytes);
    }

    fn take(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.raw.extend(bytes);
        self.raw.drain(..self.raw.len().saturating_sub(RAW));
        let mut rest = bytes;
        if self.cleaner.is_at_start() && self.seen_line.is_empty() {
            let (same, other) = bytes.split_at(self.repeats.count(bytes));
            self.spill.push(same);
            rest = other;
        }
        self.work(|cleaner, keep| cleaner.push(rest, keep));
    }

    /// There will be no more.
    pub fn finish(&mut self) {
        let held = self.keys.finish();
        self.take(&held);
        self.work(Cleaner::finish);
        let Output { repeats, fresh, .. } = self;
        repeats.finish(&mut |it| fresh.push(it));
    }

    fn work(&mut self, work: impl FnOnce(&mut Cleaner, &mut dyn FnMut(&str))) {
        let Output { cleaner, repeats, fresh, spill, seen_line, .. } = self;
        work(cleaner, &mut |piece| {
            spill.push(piece.as_bytes());
            // What has been looked at and then only got its end is nothing new.
            let seen = std::mem::take(seen_line);
            if seen.is_empty() || piece.trim_end_matches('\n') != seen {
                repeats.push(piece, &mut |it| fresh.push(it));
            }
        });
        if fresh.is_cut() {
            spill.need();
        }
    }

    /// How many bytes there were in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What was printed since the last look.
    pub fn look(&mut self) -> Look {
        let mut fresh = std::mem::take(&mut self.fresh);
        self.repeats.finish(&mut |it| fresh.push(it));
        let line = self.cleaner.line();
        if line != self.seen_line {
            fresh.push(line);
            line.clone_into(&mut self.seen_line);
        }
        let truncated = fresh.is_cut();
        if truncated {
            self.spill.need();
        }
        let full = if truncated { self.spill.told() } else { String::new() };
        Look { text: fresh.text(&full), truncated }
    }

    /// Whether there is something that nobody has looked at.
    pub fn has_news(&self) -> bool {
        self.fresh.bytes.0 > 0 || !self.repeats.is_empty() || self.cleaner.line() != self.seen_line
    }

    /// The last lines of what nobody has looked at, for a card that is still changing.
    pub fn last_lines(&self, limit: usize) -> String {
        let mut text = if self.fresh.tail.is_empty() {
            self.fresh.head.clone()
        } else {
            let (front, back) = self.fresh.tail.as_slices();
            String::from_utf8_lossy(&[front, back].concat()).into_owned()
        };
        self.repeats.show(&mut |it| text.push_str(it));
        text.push_str(self.cleaner.line());
        let start = text.len().saturating_sub(limit);
        let start = (start..=text.len()).find(|it| text.is_char_boundary(*it)).unwrap_or(start);
        match text[start..].find('\n') {
            Some(end) if start > 0 => text[start + end + 1..].to_owned(),
            _ => text[start..].to_owned(),
        }
    }

    /// The bytes as they came, from the `from`th on, and which is the first of them: of those that
    /// are long past only the last are kept.
    pub fn raw_since(&self, from: u64) -> (u64, Vec<u8>) {
        let first = self.total - self.raw.len() as u64;
        let from = from.clamp(first, self.total);
        let skipped = usize::try_from(from - first).unwrap_or(usize::MAX);
        (from, self.raw.iter().skip(skipped).copied().collect())
    }

    /// What is to be written to the file now. It has to be brought back.
    pub(super) fn next_work(&mut self, all: bool) -> Option<Work> {
        self.spill.work(all)
    }

    /// It was written, or not.
    pub(super) fn written(&mut self, work: Work) {
        self.spill.done(work);
    }

    /// Whether the file lags behind.
    pub(super) fn lags(&self) -> bool {
        self.spill.lags()
    }
}

/// A text that is there already, cut as the output of a command is. What is too long for that is
/// kept in the file. May take its time: not for the runtime's thread.
pub fn shortened(text: &str, file: &Path) -> Look {
    let mut ring = Ring::default();
    for line in text.split_inclusive('\n') {
        pieces(line).for_each(|it| ring.push(it));
    }
    if !ring.is_cut() {
        return Look { text: text.to_owned(), truncated: false };
    }
    let mut spill = Spill::new(file.to_path_buf());
    for piece in text.as_bytes().chunks(TAIL) {
        spill.push(piece);
        if let Some(work) = spill.work(false) {
            spill.done(work.run());
        }
    }
    spill.need();
    if let Some(work) = spill.work(true) {
        spill.done(work.run());
    }
    Look { text: ring.text(&spill.told()), truncated: true }
}

/// The parts of a line, so that of a very long one there is a beginning and an end as well.
fn pieces(mut line: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = (0..=PIECE.min(line.len())).rev().find(|it| line.is_char_boundary(*it))?;
        let (piece, rest) = line.split_at(end);
        line = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn output() -> Output {
        Output::new(Path::new("/nowhere/p1.txt"))
    }

    #[test]
    fn short_output_is_kept_whole_and_looked_at_once() {
        let mut output = output();
        output.push(b"one\n");
        output.push(b"two");
        assert_eq!(output.look(), Look { text: "one\ntwo".to_owned(), truncated: false });
        assert!(!output.has_news());
        output.push(b"\nthree\n");
        assert_eq!(output.look().text, "three\n");
        output.push(b"name? ");
        assert_eq!(output.look().text, "name? ");
        output.push(b"hello\n");
        output.finish();
        assert_eq!(output.look().text, "name? hello\n");
        assert_eq!((output.look().text.as_str(), output.total()), ("", 26));
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let mut output = output();
        for number in 1..=100_000 {
            output.push(format!("line {number}\n").as_bytes());
        }
        output.finish();
        let look = output.look();
        assert!(look.truncated);
        assert!(look.text.starts_with("line 1\n") && look.text.ends_with("\nline 100000\n"));
        assert!(look.text.len() < 32 * 1024, "{}", look.text.len());
        let kept = look.text.lines().filter(|it| it.starts_with("line ")).count();
        let note = look.text.lines().find(|it| !it.starts_with("line ")).unwrap();
        let expected = format!("[{} of 100 000 lines omitted", grouped(100_000 - kept as u64));
        assert!(note.starts_with(&expected), "{note} and not {expected}");
    }

    #[test]
    fn a_text_that_is_there_already_is_cut_alike_and_kept_whole() {
        let base = tempfile::tempdir().unwrap();
        let lines: Vec<_> = (0..100_000).map(|it| format!("line {it}")).collect();
        let lines = lines.join("\n") + "\n";
        for (number, text) in [lines, "é".repeat(2_000_000)].iter().enumerate() {
            let file = base.path().join(format!("{number}.txt"));
            let look = shortened(text, &file);
            assert!(look.truncated && look.text.len() < 32 * 1024, "{}", look.text.len());
            assert!(
                look.text.contains(" omitted; full output: ") && !look.text.contains('\u{fffd}')
            );
            assert_eq!(std::fs::read_to_string(file).unwrap(), *text);
        }
        let file = base.path().join("none.txt");
        let short = "a\n".repeat(100);
        assert_eq!(shortened(&short, &file), Look { text: short.clone(), truncated: false });
        assert!(!file.exists());
    }

    #[test]
    fn one_endless_line_is_cut_between_characters() {
        let mut output = output();
        output.push("ä".repeat(100_000).as_bytes());
        output.finish();
        let text = output.look().text;
        assert!(text.contains(" of 200 000 bytes omitted") && !text.contains('\u{fffd}'), "{text}");
    }

    #[test]
    fn a_display_gets_the_bytes_as_they_came() {
        let mut output = output();
        output.push(b"\x1b[1mbold\r");
        assert_eq!(output.raw_since(0), (0, b"\x1b[1mbold\r".to_vec()));
        assert_eq!(output.raw_since(4), (4, b"bold\r".to_vec()));
        output.push(&vec![b'x'; RAW]);
        assert_eq!(output.raw_since(0), (9, vec![b'x'; RAW]));
        assert_eq!(output.raw_since(99_999), (RAW as u64 + 9, Vec::new()));
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
            assert_eq!(output.look().text, "first\nyes [× 10000]\nye", "{size}");
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
            for (piece, look) in pieces.iter().zip(looks) {
                output.push(piece);
                prop_assert!(output.fresh.head.len() <= HEAD && output.fresh.tail.len() <= TAIL);
                prop_assert!(output.raw.len() <= RAW && output.last_lines(100).len() <= 100);
                if look {
                    prop_assert!(output.look().text.len() < HEAD + TAIL + 9000);
                }
            }
            output.finish();
            output.look();
            prop_assert_eq!(output.total(), pieces.concat().len() as u64);
            prop_assert!(!output.has_news());
        }
    }
}
