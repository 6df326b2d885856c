//! Converts what a command prints to readable text: in UTF-8 or the encoding that it seems to have, without
//! colours and cursor movements, and only the last state of a line that was redrawn. The result does not
//! depend on how the bytes are split.

use std::borrow::Cow;

use crate::files::LineDecoder;
use turnwright_types::text;

/// The most bytes of a line that are held; a longer one is passed on in pieces.
const MAX_PIECE: usize = 4 * 1024;
/// The most characters of a string for the terminal, such as its title.
const MAX_STRING_CHARS: usize = 4 * 1024;
/// The most lines that a program draws again and again.
const MAX_ROWS: usize = 100;
/// Stands for the first carriage return within a line: what was added to a line of a file with CRLF follows one, and
/// hides nothing.
const RETURN_MARK: char = '␍';

/// The position within an escape sequence.
#[derive(Clone, Copy, Debug, Default)]
enum EscapeState {
    #[default]
    Plain,
    /// After ESC.
    Escape,
    /// In a control sequence, such as a colour, with its number.
    Control(usize),
    /// In a string for the terminal, such as its title, after this many characters.
    Text(usize),
    /// After ESC in such a string.
    TextEscape,
}

/// Cleans output as it arrives.
#[derive(Default)]
pub(super) struct TerminalCleaner {
    /// The beginning of an incomplete character, or of the end of a line that is not UTF-8.
    incomplete: Vec<u8>,
    decoder: LineDecoder,
    state: EscapeState,
    line: String,
    /// After a carriage return: the next text replaces the line, or follows it behind [`RETURN_MARK`].
    after_return: bool,
    /// A program draws the line: what it has drawn before does not count.
    is_redrawn: bool,
    /// The lines that are drawn again since the cursor was moved up, without their ends. The place of `line`
    /// is empty, and so are lines that are not drawn again.
    rows: Vec<String>,
    /// The place of `line` among them.
    row: usize,
}

impl TerminalCleaner {
    /// Adds output and passes on what is complete: lines with their line ends, and pieces of very
    /// long lines without.
    pub(super) fn push(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&str)) {
        let joined;
        let mut bytes = bytes;
        if !self.incomplete.is_empty() {
            self.incomplete.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.incomplete);
            bytes = &joined;
        }
        loop {
            let error = match std::str::from_utf8(bytes) {
                Ok(text) => return self.text(text, sink),
                Err(error) => error,
            };
            let (valid, after) = bytes.split_at(error.valid_up_to());
            self.text(&String::from_utf8_lossy(valid), sink);
            let line_end =
                memchr::memchr2(b'\n', b'\r', after).unwrap_or(after.len()).min(MAX_PIECE);
            if error.error_len().is_none() || line_end == after.len() && line_end < MAX_PIECE {
                self.incomplete = after.to_vec();
                return;
            }
            let line = self.decoder.decode(&self.line, &after[..line_end]);
            self.text(&line, sink);
            bytes = &after[line_end..];
        }
    }

    /// Ends the output.
    pub(super) fn finish(&mut self, sink: &mut dyn FnMut(&str)) {
        let incomplete = std::mem::take(&mut self.incomplete);
        let rest = self.decoder.decode(&self.line, &incomplete);
        self.text(&rest, sink);
        self.end_redrawing(sink);
        if !self.line.is_empty() {
            sink(&self.line);
        }
        *self = TerminalCleaner::default();
    }

    /// True if the next byte begins a line.
    pub(super) fn is_at_start(&self) -> bool {
        let is_plain = matches!(self.state, EscapeState::Plain) && !self.after_return;
        let holds_nothing = self.rows.is_empty() && self.incomplete.is_empty();
        is_plain && self.line.is_empty() && holds_nothing && !self.is_redrawn
    }

    /// The incomplete last line. What is not UTF-8 in it is decoded as well as its beginning allows.
    pub(super) fn line(&self) -> Cow<'_, str> {
        match std::str::from_utf8(&self.incomplete) {
            Err(error) if error.error_len().is_some() => {
                let mut rest = LineDecoder::default().decode(&self.line, &self.incomplete);
                rest.retain(|char| !char.is_control());
                Cow::Owned(format!("{}{rest}", self.line))
            }
            // Nothing, or the first bytes of a character.
            _ => Cow::Borrowed(&self.line),
        }
    }

    fn text(&mut self, text: &str, sink: &mut dyn FnMut(&str)) {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let before = self.state;
            if !matches!(before, EscapeState::Plain) && self.is_escape_char(first) {
                if let (EscapeState::Control(number), EscapeState::Plain) = (before, self.state) {
                    self.move_cursor(first, number);
                }
                rest = &rest[first.len_utf8()..];
                continue;
            }
            let end = rest.find(char::is_control).unwrap_or(rest.len());
            self.append(&rest[..end], sink);
            rest = &rest[end..];
            if let Some(control) = rest.chars().next() {
                self.control(control, sink);
                rest = &rest[control.len_utf8()..];
            }
        }
    }

    fn append(&mut self, text: &str, sink: &mut dyn FnMut(&str)) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.after_return) && !self.line.is_empty() {
            if std::mem::replace(&mut self.is_redrawn, true) {
                self.line.clear();
            } else {
                self.line.push(RETURN_MARK);
            }
        }
        self.line.push_str(text);
        let mut start = 0;
        while self.line.len() - start > MAX_PIECE {
            let end = text::floor(&self.line, start + MAX_PIECE);
            sink(&self.line[start..end]);
            start = end;
        }
        self.line.drain(..start);
    }

    fn control(&mut self, control: char, sink: &mut dyn FnMut(&str)) {
        match control {
            '\n' if self.row + 1 < self.rows.len() => self.go_to_row(self.row + 1),
            '\n' => {
                let last = std::mem::take(&mut self.line);
                self.end_redrawing(sink);
                self.line = last;
                self.after_return = false;
                self.is_redrawn = false;
                self.line.push('\n');
                sink(&self.line);
                self.line.clear();
            }
            '\t' => self.append("\t", sink),
            '\r' => self.after_return = true,
            '\u{8}' if !self.after_return => drop(self.line.pop()),
            '\u{1b}' => self.state = EscapeState::Escape,
            '\u{9b}' => self.state = EscapeState::Control(0),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.state = EscapeState::Text(0),
            _ => {}
        }
    }

    /// Follows a movement of the cursor, or an erasure, by which a program draws lines again.
    fn move_cursor(&mut self, command: char, number: usize) {
        let lines = number.max(1);
        self.is_redrawn |= "ABDEFGJK".contains(command);
        match command {
            'A' | 'F' if lines <= MAX_ROWS && self.rows.len() <= MAX_ROWS => {
                let missing = lines.saturating_sub(self.row);
                if self.rows.is_empty() {
                    self.rows.push(String::new());
                }
                self.rows.splice(..0, std::iter::repeat_n(String::new(), missing));
                self.row += missing;
                self.go_to_row(self.row - lines);
            }
            'B' | 'E' if !self.rows.is_empty() => {
                self.go_to_row(self.row.saturating_add(lines).min(self.rows.len() - 1));
            }
            'D' if !self.after_return => match self.line.char_indices().rev().nth(lines - 1) {
                Some((end, _)) if end > 0 => self.line.truncate(end),
                _ => self.after_return = true,
            },
            'G' if number <= 1 => self.after_return = true,
            'K' if number == 2 => self.after_return = true,
            'J' if number == 0 => {
                self.rows.iter_mut().skip(self.row + 1).for_each(String::clear);
            }
            _ => {}
        }
    }

    fn go_to_row(&mut self, row: usize) {
        self.rows[self.row] = std::mem::take(&mut self.line);
        self.row = row;
        self.line = std::mem::take(&mut self.rows[row]);
        self.after_return = true;
    }

    /// Passes on the lines that were drawn again.
    fn end_redrawing(&mut self, sink: &mut dyn FnMut(&str)) {
        if !self.rows.is_empty() {
            self.rows[self.row] = std::mem::take(&mut self.line);
        }
        for mut row in std::mem::take(&mut self.rows) {
            if !row.is_empty() {
                row.push('\n');
                sink(&row);
            }
        }
        self.row = 0;
    }

    /// True if the character belongs to an escape sequence. One that cannot ends the sequence and
    /// is handled again.
    fn is_escape_char(&mut self, char: char) -> bool {
        let next = match (self.state, char) {
            (EscapeState::Escape, '[') => Some(EscapeState::Control(0)),
            (EscapeState::Escape, ']' | 'P' | 'X' | '^' | '_') => Some(EscapeState::Text(0)),
            (EscapeState::Escape, ' '..='/') => Some(EscapeState::Escape),
            (EscapeState::Escape, '0'..='~') => Some(EscapeState::Plain),
            (EscapeState::Control(number), '0'..='9') => {
                let digit = usize::from(char as u8 - b'0');
                Some(EscapeState::Control(number.saturating_mul(10).saturating_add(digit)))
            }
            (EscapeState::Control(number), ' '..='?') => Some(EscapeState::Control(number)),
            (EscapeState::Control(_), '@'..='~') => Some(EscapeState::Plain),
            (EscapeState::Text(_), '\u{7}' | '\u{9c}') => Some(EscapeState::Plain),
            (EscapeState::Text(_), '\u{1b}') => Some(EscapeState::TextEscape),
            // No title has several lines, so the end of this one got lost.
            (EscapeState::Text(_), '\n') => None,
            (EscapeState::Text(count), _) if count < MAX_STRING_CHARS => {
                Some(EscapeState::Text(count + 1))
            }
            (EscapeState::TextEscape, '\\') => Some(EscapeState::Plain),
            (EscapeState::TextEscape, _) => {
                self.state = EscapeState::Escape;
                return self.is_escape_char(char);
            }
            _ => None,
        };
        self.state = next.unwrap_or_default();
        next.is_some()
    }
}

/// Replaces repeated lines by one line and a count.
#[derive(Debug, Default)]
pub(super) struct RepeatedLines {
    line: String,
    count: u64,
    /// In the middle of a line that is too long to be compared.
    in_long_line: bool,
}

/// Up to this many repetitions are shown as they are.
const MAX_SHOWN_REPEATS: u64 = 3;

impl RepeatedLines {
    /// Adds a piece as [`TerminalCleaner`] passes it on.
    pub(super) fn push(&mut self, piece: &str, sink: &mut dyn FnMut(&str)) {
        let is_line = piece.ends_with('\n') && !self.in_long_line;
        self.in_long_line = !piece.ends_with('\n');
        if is_line && self.count > 0 && self.line == piece {
            self.count += 1;
            return;
        }
        self.finish(sink);
        if is_line {
            self.line.push_str(piece);
            self.count = 1;
        } else {
            sink(piece);
        }
    }

    /// Counts repetitions of the held line at the start of `bytes` without splitting them into
    /// lines: a command may print "y" a hundred million times. Returns how many bytes were counted.
    pub(super) fn count_repeats(&mut self, bytes: &[u8]) -> usize {
        let line = self.line.as_bytes();
        if self.count == 0 || bytes.len() < line.len() {
            return 0;
        }
        let times = bytes.len() / line.len();
        let (same, _) = bytes.split_at(times * line.len());
        // Each line equals the one before it.
        if !same.starts_with(line) || same[line.len()..] != same[..same.len() - line.len()] {
            return 0;
        }
        self.count += times as u64;
        same.len()
    }

    /// Passes on what is held.
    pub(super) fn finish(&mut self, sink: &mut dyn FnMut(&str)) {
        self.show(sink);
        self.line.clear();
        self.count = 0;
    }

    /// True if nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Passes on what is held, and keeps it.
    pub(super) fn show(&self, sink: &mut dyn FnMut(&str)) {
        if self.count > MAX_SHOWN_REPEATS {
            sink(format!("{} [× {}]", self.line.trim_end(), self.count).trim_start_matches(' '));
            sink("\n");
        } else {
            (0..self.count).for_each(|_| sink(&self.line));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Cleans chunks completely.
    fn clean<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut cleaner = TerminalCleaner::default();
        let mut repeats = RepeatedLines::default();
        let mut text = String::new();
        for chunk in chunks {
            cleaner.push(chunk, &mut |cleaned| {
                repeats.push(cleaned, &mut |shown| text.push_str(shown));
            });
            assert!(cleaner.line.len() <= MAX_PIECE && cleaner.incomplete.len() < MAX_PIECE);
        }
        cleaner.finish(&mut |cleaned| repeats.push(cleaned, &mut |shown| text.push_str(shown)));
        repeats.finish(&mut |shown| text.push_str(shown));
        text
    }

    #[test]
    fn escape_sequences_are_removed() {
        for (raw, text) in [
            ("plain\n\ttext", "plain\n\ttext"),
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;a title\u{7}a\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "alink"),
            ("\u{1b}(Ba\u{1b}=b\u{1b}Mc\u{1b}7", "abc"),
            ("\u{1b}]lost title\nnext", "\nnext"),
            ("\u{1b}[12\nnext", "\nnext"),
            ("\u{9b}1mred\u{9d}title\u{9c}.", "red."),
            ("a\0b\u{7}c", "abc"),
            ("b\u{8}bo\u{8}ol\u{8}ld\u{8}d", "bold"),
            ("|\u{8}/\u{8}-\u{8}done", "done"),
            ("\u{1b}", ""),
        ] {
            assert_eq!(clean([raw.as_bytes()]), text, "{raw:?}");
        }
    }

    #[test]
    fn only_the_last_state_of_a_redrawn_line_is_left() {
        for (raw, text) in [
            ("10%\r50%\r100%\ndone", "100%\ndone"),
            ("10%\r50%\r100%", "100%"),
            ("10%\u{1b}[K\r100%\u{1b}[K", "100%"),
            ("dos\r\nline\r\n", "dos\nline\n"),
            ("dos\r\r\n", "dos\n"),
            ("last\r", "last"),
            ("10%\r\u{1b}[K100%\r\u{1b}[K\n", "100%\n"),
            ("a long state\r             \rok\n", "ok\n"),
        ] {
            assert_eq!(clean([raw.as_bytes()]), text, "{raw:?}");
        }
    }

    #[test]
    fn what_is_added_to_a_line_that_ends_with_a_carriage_return_does_not_replace_it() {
        for (raw, text) in [
            ("name.txt\r: missing\r\nb\r: found\r\n", "name.txt␍: missing\nb␍: found\n"),
            ("a1\r,b1\r\n", "a1␍,b1\n"),
            ("\rtext\r\n", "text\n"),
            ("1%\r2%\r3%\na\rb\n", "3%\na␍b\n"),
            ("\u{1b}[1mbold\u{1b}[0m\r: ok\n", "bold␍: ok\n"),
            ("\u{1b}[K1\ny\ny\ny\na\rb\n", "1\ny\ny\ny\na␍b\n"),
        ] {
            assert_eq!(clean([raw.as_bytes()]), text, "{raw:?}");
            assert_eq!(clean(raw.as_bytes().chunks(1)), text, "{raw:?}");
        }
    }

    #[test]
    fn lines_that_the_cursor_is_moved_to_are_left_in_their_last_state() {
        for (raw, text) in [
            // One line, by erasing it, by a column, by going back.
            ("10%\u{1b}[2K\u{1b}[1G50%\u{1b}[2K\u{1b}[1G100%\ndone", "100%\ndone"),
            ("10%\u{1b}[G50%\u{1b}[G100%\n", "100%\n"),
            ("10%\u{1b}[1000D50%\u{1b}[1000D\u{1b}[K100%", "100%"),
            ("at 10%\u{1b}[3D50%\u{1b}[3D99%\n", "at 99%\n"),
            // A line that was ended, and is drawn again.
            (
                "10%\n\u{1b}[1A\u{1b}[2K50%\n\u{1b}[1A\u{1b}[2K90%\n\u{1b}[1A\u{1b}[2K100%\nend\n",
                "10%\n100%\nend\n",
            ),
            ("10%\n\u{1b}[F50%\n\u{1b}[F99%\n", "10%\n99%\n"),
            // Several, as a package manager draws them.
            (
                "a 1\nb 1\n\u{1b}[2A\r\u{1b}[Ka 2\n\r\u{1b}[Kb 2\n\u{1b}[2Aa 3\nb 3\nend\n",
                "a 1\nb 1\na 3\nb 3\nend\n",
            ),
            // One of several, and back.
            (
                "a 1\nb 1\n\u{1b}[2A\ra 2\u{1b}[2B\r\u{1b}[1A\rb 2\u{1b}[1B\rend\n",
                "a 1\nb 1\na 2\nb 2\nend\n",
            ),
            // Line by line, without an end of the last.
            (
                "a 1\nb 1\u{1b}[2K\u{1b}[1A\u{1b}[2K\u{1b}[Ga 2\nb 2\u{1b}[2K\u{1b}[1A\u{1b}[2K\u{1b}[Ga 3\nb 3\n",
                "a 1\na 3\nb 3\n",
            ),
            ("a 1\nb 1\n\u{1b}[2A\u{1b}[Ja 2\n\u{1b}[1A\u{1b}[Jdone\n", "a 1\nb 1\ndone\n"),
            // Nothing is lost if there is no such line, or the number is none.
            ("a\n\u{1b}[99999Ab\n", "a\nb\n"),
            ("a\n\u{1b}[3Bb\n", "a\nb\n"),
        ] {
            assert_eq!(clean([raw.as_bytes()]), text, "{raw:?}");
            assert_eq!(clean(raw.as_bytes().chunks(1)), text, "{raw:?}");
        }
    }

    #[test]
    fn lines_that_come_more_than_three_times_are_counted() {
        for (raw, text) in [
            ("a\na\na\nb\n", "a\na\na\nb\n"),
            ("a\na\na\na\nb\n", "a [× 4]\nb\n"),
            ("\n\n\n\n\nb", "[× 5]\nb"),
            ("a\na\na\na\na", "a [× 4]\na"),
        ] {
            assert_eq!(clean([raw.as_bytes()]), text, "{raw:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_wherever_they_are_cut() {
        let bytes = b"a\xffb\xe2\x82c\xf0\x9f\xa6\x80d\xc3";
        let whole = clean([bytes.as_slice()]);
        assert_eq!(whole, String::from_utf8_lossy(bytes));
        assert_eq!(clean(bytes.chunks(1)), whole);
    }

    #[test]
    fn text_in_another_encoding_is_decoded_wherever_it_is_cut() {
        let text = "编译 main.c：找不到文件\nok é\n\u{1b}[31m错误\u{1b}[0m: 语法\n";
        let gbk = [b"plain\n", &*encoding_rs::GBK.encode(text).0].concat();
        let japanese = encoding_rs::SHIFT_JIS.encode("日本語のファイル").0;
        let expected = "plain\n编译 main.c：找不到文件\nok é\n错误: 语法\n";
        for (bytes, expected) in [
            (gbk, expected),
            (
                encoding_rs::SHIFT_JIS.encode("ファイルが見つかりません").0.into(),
                "ファイルが見つかりません",
            ),
            (b"caf\xe9 cr\xe8me\n".to_vec(), "café crème\n"),
            ([&*japanese, b"\ncaf\xe9\n"].concat(), "日本語のファイル\ncafé\n"),
            ("日本語\n".as_bytes().to_vec(), "日本語\n"),
            (b"\xe6\x97\xa5 \xff \xe6\x9c\xac\n".to_vec(), "日 \u{fffd} 本\n"),
            (b"\xff\x01\x02\x00\x03\n".to_vec(), "\u{fffd}\n"),
            // As `cut -b`, `head -c` and `printf %.10s` leave it.
            (b"\xe6\x97\xa5\xe6\n\xe6\x97\xa5\xe6\x97".to_vec(), "日\u{fffd}\n日\u{fffd}"),
        ] {
            assert_eq!(clean([bytes.as_slice()]), expected);
            assert_eq!(clean(bytes.chunks(1)), expected);
        }
    }

    #[test]
    fn a_question_in_another_encoding_is_shown_before_its_line_ends() {
        let mut cleaner = TerminalCleaner::default();
        cleaner.push(b"Passw\xf6rt: ", &mut |_| {});
        assert_eq!(cleaner.line(), "Passwört: ");
        let mut cleaner = TerminalCleaner::default();
        cleaner.push(b"Gr\xc3", &mut |_| {});
        assert_eq!(cleaner.line(), "Gr");
    }

    /// Typical and adversarial parts of output.
    fn parts() -> impl Strategy<Value = Vec<u8>> {
        let texts = prop_oneof![
            "[ -~]{0,20}",
            "(ab\n){0,9}",
            "[\r\n\u{8}\t]{1,3}",
            "\u{1b}[\\[\\]()P\\\\a-z0-9;]{0,4}",
            "\u{1b}\\[[0-9]{0,3}[A-GJK]",
            "[\u{7}\u{1b}\u{9b}\u{9c}ä€🦀]{0,4}",
            "x{4000,9000}",
        ];
        prop_oneof![
            4 => texts.prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..6),
        ]
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_changes_nothing(
            parts in proptest::collection::vec(parts(), 0..12),
            sizes in proptest::collection::vec(1_usize..40, 1..8),
        ) {
            let bytes = parts.concat();
            let mut chunks = Vec::new();
            let mut rest = bytes.as_slice();
            let mut sizes = sizes.iter().cycle();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                chunks.push(chunk);
                rest = after;
            }
            let whole = clean([bytes.as_slice()]);
            prop_assert_eq!(&whole, &clean(chunks));
            prop_assert!(!whole.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
