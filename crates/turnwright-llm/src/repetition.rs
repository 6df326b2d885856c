//! Whether a model has fallen into saying the same thing again and again (quirks C.1, row 28b).
//! Pure, and the same however the stream is cut. Only exact repetition counts: lines that differ
//! in a number are work.

/// How many bytes come between two looks.
const STEP: usize = 512;
/// The longest unit, in bytes: a long paragraph.
const LONGEST_UNIT: usize = 1024;
/// A unit is repeated at least as often…
const LEAST_TIMES: usize = 12;
/// … and over at least as many bytes, which is 40 lines of 100 characters. Rulers, tables and
/// rows of zeros are shorter.
const LEAST_BYTES: usize = 4096;
const WINDOW: usize = LONGEST_UNIT * LEAST_TIMES;

/// Watches one stream.
#[derive(Debug, Default)]
pub(super) struct Repetition {
    /// The last of it, up to twice [`WINDOW`].
    recent: Vec<u8>,
    /// How many bytes have come since the last look.
    unseen: usize,
    is_found: bool,
}

impl Repetition {
    /// Takes more and says whether it has gone on like this for too long.
    pub(super) fn push(&mut self, text: &str) -> bool {
        let mut bytes = text.as_bytes();
        while !self.is_found && self.unseen + bytes.len() >= STEP {
            let (now, later) = bytes.split_at(STEP - self.unseen);
            self.recent.extend_from_slice(now);
            self.unseen = 0;
            bytes = later;
            self.look();
        }
        if !self.is_found {
            self.recent.extend_from_slice(bytes);
            self.unseen += bytes.len();
        }
        self.is_found
    }

    fn look(&mut self) {
        if self.recent.len() >= 2 * WINDOW {
            self.recent.drain(..self.recent.len() - WINDOW);
        }
        let start = self.recent.len().saturating_sub(WINDOW);
        let window = &self.recent[start..];
        self.is_found = window.len() >= LEAST_BYTES && repeats(window);
    }
}

/// Whether the window ends with enough copies of one unit. Its tails are tried from the
/// shortest on: the longest border of each, as Knuth, Morris and Pratt find it, tells the
/// shortest unit. That only grows, so most text is done with after little more than the longest.
fn repeats(window: &[u8]) -> bool {
    let last = window.len() - 1;
    let at = |position: usize| window[last - position];
    let mut borders = vec![0];
    let mut border = 0;
    for position in 1..window.len() {
        while border > 0 && at(position) != at(border) {
            border = borders[border - 1];
        }
        border += usize::from(at(position) == at(border));
        borders.push(border);
        let length = position + 1;
        let unit = length - border;
        if unit > LONGEST_UNIT {
            return false;
        }
        if length >= LEAST_BYTES && length >= unit * LEAST_TIMES {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fires(text: &str) -> bool {
        Repetition::default().push(text)
    }

    /// Pieces of hexadecimal digits that never come again, as base64 or a key would be.
    fn noise(count: u64) -> String {
        let mut text = String::new();
        for number in 1..=count {
            text.push_str(&format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
        text
    }

    #[test]
    fn a_stream_that_repeats_itself_is_found() {
        let paragraph = noise(50) + "\n\n";
        for (name, unit) in [
            ("a character", "!"),
            ("a word", "no no "),
            ("a sentence", "I will now read the file to see what it has. "),
            ("a line", "    self.assertEqual(result.status_code, 200)\n"),
            ("signs of several bytes", "我来看看这个文件。"),
            ("lines that take turns", "Wait, let me check.\nActually, I should look again.\n"),
            ("a paragraph", &paragraph),
        ] {
            let times = (LEAST_BYTES + STEP + 60).max(unit.len() * LEAST_TIMES + STEP) / unit.len();
            assert!(fires(&unit.repeat(times + 1)), "{name}");
            assert!(fires(&(noise(2000) + &unit.repeat(times + 2))), "{name}, late");
            assert!(!fires(&unit.repeat(1500 / unit.len() + 2)), "{name}, a few times");
        }
    }

    #[test]
    fn what_people_write_is_let_through() {
        let numbered = |line: fn(usize) -> String| (0..1000).map(line).collect::<String>();
        let table = format!("|{}|\n", "-".repeat(78))
            + &numbered(|it| format!("| row {it:4} | {} |\n", "x".repeat(60)));
        let code =
            numbered(|it| format!("    case {it}:\n        return handle(it);\n        break;\n"));
        for (name, text) in [
            ("a numbered list", numbered(|it| format!("{it}. Check the next file.\n"))),
            (
                "records",
                numbered(|it| format!("{{\"id\": {it}, \"name\": \"x\", \"ok\": true}},\n")),
            ),
            ("a table", table),
            ("code with a pattern", code),
            ("rulers", numbered(|it| format!("{}\n{it}\n", "=".repeat(300)))),
            ("a long ruler", "-".repeat(2000)),
            ("a key", noise(4000)),
            ("boilerplate a few times", ("fn main() {\n}\n".repeat(20) + &noise(100)).repeat(30)),
            ("nothing", String::new()),
        ] {
            assert!(!fires(&text), "{name}");
        }
    }

    #[test]
    fn it_keeps_little_and_stays_found() {
        let mut watch = Repetition::default();
        watch.push(&noise(100_000));
        assert!(watch.recent.capacity() <= 4 * WINDOW, "{}", watch.recent.capacity());
        assert!(watch.push(&"again ".repeat(2000)));
        assert!(watch.push("something else"));
    }

    proptest! {
        #[test]
        fn how_the_stream_is_cut_does_not_matter(
            unit in "[a-c]{1,40}",
            times in 1_usize..500,
            before in 0_u64..200,
            cut in 1_usize..700,
        ) {
            let text = noise(before) + &unit.repeat(times);
            let mut watch = Repetition::default();
            let mut found = false;
            for piece in text.as_bytes().chunks(cut) {
                found = watch.push(std::str::from_utf8(piece).unwrap());
            }
            prop_assert_eq!(found, fires(&text));
        }
    }
}
