//! Renders Markdown on a terminal while it arrives: headings, lists, quotes, fenced code, tables and what
//! [`emit_inline`] knows. Line breaks stay where the model has made them, and code is shown as it is. A table
//! is shown once it is complete, because its last row may be the widest. No text is lost: only marks are hidden,
//! and without styles not even those.
//!
//! A parser of CommonMark would have to see a paragraph's end before it could say what the paragraph is.

mod inline;
mod table;

use super::text_style::{TextStyle, WordWrap};

use inline::emit_inline;
use table::{begins_table, laid_out};

/// How many bytes of a table, and of a line of one, are held back at most. What is behind them is shown as it is.
const MAX_TABLE_BYTES: usize = 64 * 1024;
/// The same for its lines: one character may be a row, which has all columns of the table when it is laid out.
const MAX_TABLE_LINES: usize = 1_000;

/// A message that is being rendered.
#[derive(Debug, Default)]
pub(super) struct MarkdownStream {
    is_styled: bool,
    wrap: WordWrap,
    /// The part of the line that has arrived and was not rendered yet.
    held: String,
    /// `None` at the beginning of a line.
    line: Option<LineKind>,
    /// The character and the length of the fence around the code that is being shown.
    fence: Option<(char, usize)>,
    /// The lines of the table that is arriving, or a line that may be the heading of one.
    table: Vec<String>,
    /// The last character of the line that was rendered.
    last: Option<char>,
}

/// How the rest of a line is rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Words(TextStyle),
    Verbatim(TextStyle),
    /// A row of a table, which is shown with the whole table.
    Row,
}

/// The kind of a line, as its beginning tells it.
#[derive(Debug, PartialEq, Eq)]
enum LineStart {
    /// More of the line is needed to tell.
    Unknown,
    /// A heading of this level, whose text begins at this byte.
    Heading(usize, usize),
    Fence(char, usize),
    /// A line that is shown as it is, such as a rule.
    Verbatim(TextStyle),
    Row,
    /// Text that begins at this byte, after the mark of a list or of a quote.
    Words {
        text: usize,
        is_quote: bool,
    },
}

impl MarkdownStream {
    /// A new message. Without styles, marks are shown.
    pub(super) fn new(is_styled: bool) -> MarkdownStream {
        let wrap = WordWrap::new(is_styled);
        MarkdownStream { is_styled, wrap, ..MarkdownStream::default() }
    }

    /// Appends a piece of the message and returns what can be shown.
    pub(super) fn push(&mut self, piece: &str, width: usize) -> String {
        for part in piece.split_inclusive('\n') {
            self.held.push_str(part);
            self.render(part.ends_with('\n'), width);
        }
        self.wrap.take()
    }

    /// Returns the rest of the message, which ends here.
    pub(super) fn finish(&mut self, width: usize) -> String {
        if !self.held.is_empty() {
            self.render(true, width);
        }
        self.end_table(width);
        self.wrap.flush_word(width);
        if !self.wrap.is_at_line_start() {
            self.wrap.end_line(width);
        }
        (self.line, self.fence, self.last) = (None, None, None);
        self.wrap.take()
    }

    /// True if the cursor is at the beginning of a line: nothing of the line was shown yet.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.wrap.is_at_line_start()
    }

    /// Renders what is held as far as it is known what it is.
    fn render(&mut self, is_complete: bool, width: usize) {
        let held = std::mem::take(&mut self.held);
        let has_ended = held.ends_with('\n');
        let mut text = held.trim_end_matches('\n');
        let kind = match self.line {
            Some(kind) => kind,
            None => match self.begin_line(text, is_complete, width) {
                Some((kind, used)) => {
                    text = &text[used..];
                    kind
                }
                None => {
                    self.held = held;
                    return;
                }
            },
        };
        let used = match kind {
            LineKind::Row => return self.add_row(text.to_owned(), width),
            LineKind::Verbatim(style) => {
                self.wrap.verbatim(text, style, width);
                text.len()
            }
            LineKind::Words(style) => {
                let wrap = &mut self.wrap;
                let emit = &mut |text: &str, style| wrap.words(text, style, width);
                emit_inline(text, is_complete, self.last, (style, !self.is_styled), emit)
            }
        };
        self.line = Some(kind);
        self.last = text[..used].chars().next_back().or(self.last);
        text[used..].clone_into(&mut self.held);
        if has_ended {
            self.wrap.end_line(width);
            (self.line, self.last) = (None, None);
        }
    }

    /// Adds a row to the table, if it is one.
    fn add_row(&mut self, line: String, width: usize) {
        self.table.push(line);
        if let [heading, delimiter] = &self.table[..]
            && !begins_table(heading, delimiter)
        {
            // The second line may be the heading of a table as well.
            let second = self.table.pop();
            self.end_table(width);
            self.table.extend(second);
        }
        let bytes: usize = self.table.iter().map(String::len).sum();
        if bytes > MAX_TABLE_BYTES || self.table.len() >= MAX_TABLE_LINES {
            self.end_table(width);
        }
    }

    /// Shows the table that ends here, or the line that is none.
    fn end_table(&mut self, width: usize) {
        let lines = std::mem::take(&mut self.table);
        match &lines[..] {
            [] => {}
            [line] => {
                self.wrap.verbatim(line, TextStyle::PLAIN, width);
                self.wrap.end_line(width);
            }
            lines => self.wrap.painted_lines(&laid_out(lines, self.is_styled, width)),
        }
    }

    /// Decides what kind of line begins, and writes its mark. Returns how many bytes that has used.
    fn begin_line(
        &mut self,
        text: &str,
        is_complete: bool,
        width: usize,
    ) -> Option<(LineKind, usize)> {
        if let Some(fence) = self.fence {
            let is_end = closes_fence(text, fence);
            // Until the line is complete, it may be the closing fence.
            if !is_complete && text.trim_start().chars().all(|letter| letter == fence.0) {
                return None;
            }
            if is_end && is_complete {
                self.fence = None;
                return Some((LineKind::Verbatim(TextStyle::DIM), 0));
            }
            return Some((LineKind::Verbatim(TextStyle::PLAIN), 0));
        }
        let start = line_start(text, is_complete);
        if !matches!(start, LineStart::Unknown | LineStart::Row) {
            self.end_table(width);
        }
        match start {
            LineStart::Unknown => None,
            LineStart::Row => Some((LineKind::Row, 0)),
            LineStart::Heading(level, start) => {
                let style = TextStyle { underline: level == 1, ..TextStyle::BOLD };
                if !self.is_styled {
                    self.wrap.words(&text[..start], style, width);
                }
                Some((LineKind::Words(style), start))
            }
            LineStart::Fence(char, length) => {
                self.fence = Some((char, length));
                Some((LineKind::Verbatim(TextStyle::DIM), 0))
            }
            LineStart::Verbatim(style) => Some((LineKind::Verbatim(style), 0)),
            LineStart::Words { text: start, is_quote } => {
                self.wrap.verbatim(&text[..start], TextStyle::DIM, width);
                self.wrap.set_indent(start);
                let style = if is_quote { TextStyle::DIM } else { TextStyle::PLAIN };
                Some((LineKind::Words(style), start))
            }
        }
    }
}

fn closes_fence(text: &str, (char, length): (char, usize)) -> bool {
    let text = text.trim();
    text.chars().count() >= length && text.chars().all(|letter| letter == char)
}

fn line_start(text: &str, is_complete: bool) -> LineStart {
    let trimmed = text.trim_start_matches(' ');
    let indent = text.len() - trimmed.len();
    let Some(first) = trimmed.chars().next() else {
        let text = LineStart::Words { text: indent, is_quote: false };
        return if is_complete { text } else { LineStart::Unknown };
    };
    let run = trimmed.len() - trimmed.trim_start_matches(first).len();
    let after = &trimmed[run..];
    let is_open = after.is_empty() && !is_complete;
    let words = LineStart::Words { text: indent, is_quote: false };
    match first {
        '#' if !is_complete && after.trim_start().is_empty() => LineStart::Unknown,
        '#' if run <= 6 && after.starts_with(' ') => {
            LineStart::Heading(run, text.len() - after.trim_start().len())
        }
        // The line of a fence may name the language, which has no such character.
        '`' | '~' if run >= 3 && !after.contains('`') => {
            if is_complete {
                LineStart::Fence(first, run)
            } else {
                LineStart::Unknown
            }
        }
        '`' | '~' if is_open => LineStart::Unknown,
        '|' if text.len() > MAX_TABLE_BYTES => LineStart::Verbatim(TextStyle::PLAIN),
        '|' if is_complete => LineStart::Row,
        '|' => LineStart::Unknown,
        '>' => {
            let space = usize::from(after.starts_with(' '));
            let text = indent + run + space;
            if is_open { LineStart::Unknown } else { LineStart::Words { text, is_quote: true } }
        }
        '-' | '*' | '_' if is_rule(trimmed, first) => {
            if is_complete {
                LineStart::Verbatim(TextStyle::DIM)
            } else {
                LineStart::Unknown
            }
        }
        '-' | '*' | '+' | '_' if is_open => LineStart::Unknown,
        '-' | '*' | '+' if run == 1 && after.starts_with(' ') => list_item(indent + 2),
        '0'..='9' => ordered_item(text, indent, is_complete).unwrap_or(words),
        _ => words,
    }
}

/// The item of a numbered list, if the digits at `indent` begin one.
fn ordered_item(text: &str, indent: usize, is_complete: bool) -> Option<LineStart> {
    let digits = text[indent..].find(|letter: char| !letter.is_ascii_digit());
    let end = digits.map_or(text.len(), |length| indent + length);
    let mut rest = text[end..].chars();
    match (rest.next(), rest.next()) {
        _ if end - indent > 9 => None,
        (Some('.' | ')'), Some(' ')) => Some(list_item(end + 2)),
        (None, _) | (Some('.' | ')'), None) if !is_complete => Some(LineStart::Unknown),
        _ => None,
    }
}

/// An item whose mark and the space behind it end at this byte.
fn list_item(text: usize) -> LineStart {
    LineStart::Words { text, is_quote: false }
}

/// True for a line of only such signs and spaces, three of them at least; and for its beginning.
fn is_rule(text: &str, sign: char) -> bool {
    let count = text.chars().filter(|letter| *letter == sign).count();
    count >= 3 && text.chars().all(|letter| letter == sign || letter == ' ')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(text: &str, is_styled: bool, width: usize, piece: usize) -> String {
        let mut stream = MarkdownStream::new(is_styled);
        let chars: Vec<char> = text.chars().collect();
        let mut shown = String::new();
        for piece in chars.chunks(piece) {
            shown += &stream.push(&piece.iter().collect::<String>(), width);
        }
        shown + &stream.finish(width)
    }

    #[test]
    fn each_kind_of_line_has_its_look() {
        for (text, expected) in [
            ("# Title", "\x1b[1;4mTitle\x1b[0m\n"),
            ("### Part *two*\n", "\x1b[1mPart\x1b[0m \x1b[1;3mtwo\x1b[0m\n"),
            ("#no heading", "#no heading\n"),
            ("- one\n- **two**\n", "\x1b[2m- \x1b[0mone\n\x1b[2m- \x1b[0m\x1b[1mtwo\x1b[0m\n"),
            ("12. x", "\x1b[2m12. \x1b[0mx\n"),
            ("3.14 is pi", "3.14 is pi\n"),
            ("> said", "\x1b[2m> \x1b[0m\x1b[2msaid\x1b[0m\n"),
            ("| a\n*b*", "| a\n\x1b[3mb\x1b[0m\n"),
            (
                "```rust\nlet *x* = `y`;\n\n```\n*after*",
                "\x1b[2m```rust\x1b[0m\nlet *x* = `y`;\n\n\x1b[2m```\x1b[0m\n\x1b[3mafter\x1b[0m\n",
            ),
            ("~~~\n```\n~~~\na", "\x1b[2m~~~\x1b[0m\n```\n\x1b[2m~~~\x1b[0m\na\n"),
            ("---\na", "\x1b[2m---\x1b[0m\na\n"),
            ("a *b\nc* d", "a *b\nc* d\n"),
            ("evil \x1b[31m \u{9b}2J", "evil ␛[31m \u{fffd}2J\n"),
            ("```\n\x1b]0;x\x07", "\x1b[2m```\x1b[0m\n␛]0;x␇\n"),
        ] {
            for piece in [1, 3, 1000] {
                assert_eq!(rendered(text, true, 80, piece), expected, "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn items_are_indented_where_they_are_wrapped_and_code_is_not_wrapped() {
        let text = "- one two three four\n1. five six seven\n\n    let indented = code;\n```\nlet long = line;\n```\n";
        let expected = "- one two\n  three four\n1. five six\n   seven\n\n    let\n    indented\n    = code;\n\
                        ```\nlet long = line;\n```\n";
        assert_eq!(rendered(text, false, 12, 5), expected);
    }

    #[test]
    fn a_terminal_may_be_resized_within_a_line() {
        let mut stream = MarkdownStream::new(false);
        let mut shown = stream.push("one two three four ", 40);
        shown += &stream.push("five six seven ", 12);
        shown += &stream.push("eight nine ten", 24);
        assert_eq!(
            shown + &stream.finish(24),
            "one two three four\nfive six\nseven eight nine ten\n"
        );
    }

    #[test]
    fn words_are_shown_before_their_line_is_complete() {
        let mut stream = MarkdownStream::new(true);
        assert_eq!(stream.push("Hello wor", 80), "Hello");
        assert_eq!(stream.push("ld, **bo", 80), " world,");
        assert_eq!(stream.push("ld** and", 80), " \x1b[1mbold\x1b[0m");
        assert_eq!(stream.finish(80), " and\n");
    }

    fn without(text: &str, hidden: &str) -> String {
        text.chars().filter(|letter| !letter.is_whitespace() && !hidden.contains(*letter)).collect()
    }

    /// The text between the escape sequences that we write.
    fn plain(shown: &str) -> String {
        let mut parts = shown.split("\x1b[");
        let first = parts.next().unwrap_or_default().to_owned();
        first + &parts.map(|part| part.split_once('m').unwrap().1).collect::<String>()
    }

    /// Each character with the sequence that selects its style.
    fn looks(shown: &str) -> Vec<(&str, char)> {
        let parts = shown.split("\x1b[").enumerate().flat_map(|(number, part)| {
            let end = if number == 0 { None } else { part.find('m') };
            let (style, text) = end.map_or(("0", part), |mark| (&part[..mark], &part[mark + 1..]));
            text.chars().map(move |letter| (style, letter))
        });
        parts.collect()
    }

    proptest! {
        #[test]
        fn no_text_is_lost(
            text in "([-ab1 \\n*_`#>|~.()\\[\\]\\\\]|[\\n一é👩\u{1b}]){0,60}",
            width in 1_usize..40,
            piece in 1_usize..9,
        ) {
            let safe = turnwright_types::effect::terminal_safe(text.clone());
            let marks = rendered(&text, false, width, piece);
            // The lines of a table take the place of its marks.
            let table = "|:-│─┼";
            prop_assert_eq!(without(&marks, table), without(&safe, table));
            let styled = plain(&rendered(&text, true, width, piece));
            let hidden = "\\`*_[]()#|:-│─┼";
            prop_assert_eq!(without(&styled, hidden), without(&safe, hidden));
            prop_assert!(!styled.contains('\x1b'));
        }

        #[test]
        fn it_looks_the_same_however_it_arrives(
            text in "[-ab1 \\n*_`#>|~.()\\[\\]\\\\]{0,60}",
            piece in 1_usize..9,
        ) {
            let whole = rendered(&text, true, 20, 1000);
            let in_pieces = rendered(&text, true, 20, piece);
            prop_assert_eq!(looks(&in_pieces), looks(&whole));
        }
    }
}
