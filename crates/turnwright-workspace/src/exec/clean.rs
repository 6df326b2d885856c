//! What a command prints as text for reading: UTF-8, without colours and cursor movements, of a
//! line that was painted over and over only its last state. How the bytes are cut changes nothing.

/// Bytes of a line that are held; a longer one is passed on in pieces.
const LONGEST_PIECE: usize = 4 * 1024;
/// Characters of a title or the like that a terminal would swallow.
const LONGEST_STRING: usize = 4 * 1024;

/// Where in an escape sequence the text is.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Plain,
    /// After ESC.
    Escape,
    /// In a control sequence, such as a colour.
    Control,
    /// In a string for the terminal, such as its title; so many characters of it.
    Text(usize),
    /// After ESC in such a string.
    TextEscape,
}

/// Cleans output as it comes.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// The beginning of a character.
    rest: Vec<u8>,
    state: State,
    line: String,
    /// After a carriage return: what comes next is painted over the line.
    returned: bool,
}

impl Cleaner {
    /// Takes more, and hands on what is complete: lines with their ends, and pieces of very long
    /// ones without.
    pub(super) fn push(&mut self, bytes: &[u8], keep: &mut dyn FnMut(&str)) {
        let joined;
        let mut bytes = bytes;
        if !self.rest.is_empty() {
            self.rest.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.rest);
            bytes = &joined;
        }
        loop {
            let error = match std::str::from_utf8(bytes) {
                Ok(text) => return self.text(text, keep),
                Err(error) => error,
            };
            let (valid, after) = bytes.split_at(error.valid_up_to());
            self.text(&String::from_utf8_lossy(valid), keep);
            let Some(wrong) = error.error_len() else {
                self.rest = after.to_vec();
                return;
            };
            self.text("\u{fffd}", keep);
            bytes = &after[wrong..];
        }
    }

    /// There will be no more.
    pub(super) fn finish(&mut self, keep: &mut dyn FnMut(&str)) {
        if !std::mem::take(&mut self.rest).is_empty() {
            self.text("\u{fffd}", keep);
        }
        if !self.line.is_empty() {
            keep(&self.line);
            self.line.clear();
        }
        *self = Cleaner::default();
    }

    /// Whether what comes next is the beginning of a line.
    pub(super) fn is_at_start(&self) -> bool {
        let is_plain = matches!(self.state, State::Plain) && !self.returned;
        is_plain && self.line.is_empty() && self.rest.is_empty()
    }

    /// The line that is not complete yet.
    pub(super) fn line(&self) -> &str {
        &self.line
    }

    fn text(&mut self, text: &str, keep: &mut dyn FnMut(&str)) {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if !matches!(self.state, State::Plain) && self.is_swallowed(first) {
                rest = &rest[first.len_utf8()..];
                continue;
            }
            let end = rest.find(char::is_control).unwrap_or(rest.len());
            self.append(&rest[..end], keep);
            rest = &rest[end..];
            if let Some(control) = rest.chars().next() {
                self.control(control, keep);
                rest = &rest[control.len_utf8()..];
            }
        }
    }

    fn append(&mut self, text: &str, keep: &mut dyn FnMut(&str)) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.returned) {
            self.line.clear();
        }
        self.line.push_str(text);
        let mut start = 0;
        while self.line.len() - start > LONGEST_PIECE {
            let most = start + LONGEST_PIECE;
            let end = (start..=most).rev().find(|it| self.line.is_char_boundary(*it));
            let end = end.unwrap_or(most);
            keep(&self.line[start..end]);
            start = end;
        }
        self.line.drain(..start);
    }

    fn control(&mut self, control: char, keep: &mut dyn FnMut(&str)) {
        match control {
            '\n' => {
                self.returned = false;
                self.line.push('\n');
                keep(&self.line);
                self.line.clear();
            }
            '\t' => self.append("\t", keep),
            '\r' => self.returned = true,
            '\u{8}' if !self.returned => drop(self.line.pop()),
            '\u{1b}' => self.state = State::Escape,
            '\u{9b}' => self.state = State::Control,
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.state = State::Text(0),
            _ => {}
        }
    }

    /// Whether a character belongs to an escape sequence. One that cannot ends the sequence and is
    /// looked at again.
    fn is_swallowed(&mut self, char: char) -> bool {
        let (state, swallowed) = match (self.state, char) {
            (State::Plain, _) => (State::Plain, false),
            (State::Escape, '[') => (State::Control, true),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => (State::Text(0), true),
            (State::Escape, ' '..='/') => (State::Escape, true),
            (State::Escape, '0'..='~') => (State::Plain, true),
            (State::Escape, _) => (State::Plain, false),
            (State::Control, ' '..='?') => (State::Control, true),
            (State::Control, '@'..='~') => (State::Plain, true),
            (State::Control, _) => (State::Plain, false),
            (State::Text(_), '\u{7}' | '\u{9c}') => (State::Plain, true),
            (State::Text(_), '\u{1b}') => (State::TextEscape, true),
            // No title has several lines: the end of this one got lost.
            (State::Text(_), '\n') => (State::Plain, false),
            (State::Text(count), _) if count >= LONGEST_STRING => (State::Plain, false),
            (State::Text(count), _) => (State::Text(count + 1), true),
            (State::TextEscape, '\\') => (State::Plain, true),
            (State::TextEscape, _) => {
                self.state = State::Escape;
                return self.is_swallowed(char);
            }
        };
        self.state = state;
        swallowed
    }
}

/// Tells lines that come again and again once, and how often.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    line: String,
    count: u64,
    /// In the middle of a line that is too long to be looked at.
    inside: bool,
}

/// So many lines of the same words are told as they are.
const FEW: u64 = 3;

impl Repeats {
    /// Takes a piece as [`Cleaner`] hands it on.
    pub(super) fn push(&mut self, piece: &str, keep: &mut dyn FnMut(&str)) {
        let is_line = piece.ends_with('\n') && !self.inside;
        self.inside = !piece.ends_with('\n');
        if is_line && self.count > 0 && self.line == piece {
            self.count += 1;
            return;
        }
        self.finish(keep);
        if is_line {
            self.line.push_str(piece);
            self.count = 1;
        } else {
            keep(piece);
        }
    }

    /// Counts the bytes, if they are the line that is held over and over, without looking at each:
    /// a command may say "y" a hundred million times. Returns how many bytes that were.
    pub(super) fn count(&mut self, bytes: &[u8]) -> usize {
        let line = self.line.as_bytes();
        if self.count == 0 || bytes.len() < line.len() {
            return 0;
        }
        let times = bytes.len() / line.len();
        let (same, _) = bytes.split_at(times * line.len());
        // Each line is like the one before it.
        if !same.starts_with(line) || same[line.len()..] != same[..same.len() - line.len()] {
            return 0;
        }
        self.count += times as u64;
        same.len()
    }

    /// Hands on what is held.
    pub(super) fn finish(&mut self, keep: &mut dyn FnMut(&str)) {
        self.show(keep);
        self.line.clear();
        self.count = 0;
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What is held.
    pub(super) fn show(&self, keep: &mut dyn FnMut(&str)) {
        if self.count > FEW {
            keep(format!("{} [× {}]", self.line.trim_end(), self.count).trim_start_matches(' '));
            keep("\n");
        } else {
            (0..self.count).for_each(|_| keep(&self.line));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is left of chunks.
    fn clean<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
        let (mut cleaner, mut repeats, mut text) =
            (Cleaner::default(), Repeats::default(), String::new());
        for chunk in chunks {
            cleaner.push(chunk, &mut |it| repeats.push(it, &mut |it| text.push_str(it)));
            assert!(cleaner.line.len() <= LONGEST_PIECE && cleaner.rest.len() < 4);
        }
        cleaner.finish(&mut |it| repeats.push(it, &mut |it| text.push_str(it)));
        repeats.finish(&mut |it| text.push_str(it));
        text
    }

    #[test]
    fn what_only_a_terminal_understands_is_gone() {
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
    fn of_a_line_painted_over_and_over_the_last_state_is_left() {
        for (raw, text) in [
            ("10%\r50%\r100%\ndone", "100%\ndone"),
            ("10%\r100%", "100%"),
            ("dos\r\nline\r\n", "dos\nline\n"),
            ("dos\r\r\n", "dos\n"),
            ("last\r", "last"),
            ("10%\r\u{1b}[K100%\r\u{1b}[K\n", "100%\n"),
            ("a long state\rok\n", "ok\n"),
        ] {
            assert_eq!(clean([raw.as_bytes()]), text, "{raw:?}");
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

    /// What output is made of, and what breaks it.
    fn parts() -> impl Strategy<Value = Vec<u8>> {
        let texts = prop_oneof![
            "[ -~]{0,20}",
            "(ab\n){0,9}",
            "[\r\n\u{8}\t]{1,3}",
            "\u{1b}[\\[\\]()P\\\\a-z0-9;]{0,4}",
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
            let (mut rest, mut sizes) = (bytes.as_slice(), sizes.iter().cycle());
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                chunks.push(chunk);
                rest = after;
            }
            let whole = clean([bytes.as_slice()]);
            prop_assert_eq!(&whole, &clean(chunks));
            prop_assert!(!whole.contains(|it: char| it.is_control() && it != '\n' && it != '\t'));
        }
    }
}
