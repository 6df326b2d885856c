//! What a command prints, in bounded memory: the beginning, where the first error is, and the
//! end, where the result is.

use std::collections::VecDeque;

/// Bytes kept of the beginning.
const HEAD: usize = 12 * 1024;
/// Bytes kept of the end.
const TAIL: usize = 18 * 1024;

/// Captured output.
#[derive(Debug, Default)]
pub struct Output {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    lines_lost: u64,
    total: u64,
}

impl Output {
    /// Takes more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        if self.tail.len() > TAIL {
            let lost = self.tail.len() - TAIL;
            self.lines_lost += self.tail.drain(..lost).filter(|it| *it == b'\n').count() as u64;
        }
    }

    /// How many bytes there were in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether something had to be left out.
    pub fn is_cut(&self) -> bool {
        self.total > (self.head.len() + self.tail.len()) as u64
    }

    /// The text for the model and the card, cut at line ends, with a note where lines are
    /// missing. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let tail = [front, back].concat();
        if !self.is_cut() {
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        let head = match self.head.iter().rposition(|it| *it == b'\n') {
            Some(end) => &self.head[..=end],
            None => &self.head,
        };
        let tail = match tail.iter().position(|it| *it == b'\n') {
            Some(end) if end + 1 < tail.len() => &tail[end + 1..],
            _ => &tail,
        };
        let missing = self.total - (head.len() + tail.len()) as u64;
        format!(
            "{}[… {missing} bytes, about {} lines, left out …]\n{}",
            String::from_utf8_lossy(head),
            self.lines_lost + 1,
            String::from_utf8_lossy(tail),
        )
    }

    /// The last lines, for a card that is still changing.
    pub fn last_lines(&self, limit: usize) -> String {
        let text = self.text();
        let start = text.len().saturating_sub(limit);
        let start = (start..=text.len()).find(|it| text.is_char_boundary(*it)).unwrap_or(start);
        match text[start..].find('\n') {
            Some(end) if start > 0 => text[start + end + 1..].to_owned(),
            _ => text[start..].to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut output = Output::default();
        output.push(b"one\n");
        output.push(b"two");
        assert_eq!(output.text(), "one\ntwo");
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let mut output = Output::default();
        for number in 1..=100_000 {
            output.push(format!("line {number}\n").as_bytes());
        }
        let text = output.text();
        assert!(text.starts_with("line 1\n") && text.ends_with("\nline 100000\n"));
        assert!(text.contains(" left out …]\n"), "it does not say what is missing");
        assert!(text.len() < 32 * 1024, "{}", text.len());
        assert!(text.lines().all(|it| it.starts_with("line ") || it.starts_with("[…")));
    }

    proptest! {
        #[test]
        fn memory_is_bounded_whatever_comes(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9000), 0..20),
        ) {
            let mut output = Output::default();
            for piece in &pieces {
                output.push(piece);
            }
            prop_assert!(output.head.len() <= HEAD && output.tail.len() <= TAIL);
            let all = pieces.concat();
            prop_assert_eq!(output.total(), all.len() as u64);
            if !output.is_cut() {
                prop_assert_eq!(output.text(), String::from_utf8_lossy(&all));
            }
            output.last_lines(100);
        }
    }
}
