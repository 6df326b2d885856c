//! Renders Markdown on a terminal while it arrives: headings, lists, quotes, fenced code, tables, and the inline
//! markup that [`emit_inline`] handles. Line breaks stay where the model made them, and code is shown as it is. A table
//! is shown once it is complete, because its last row may be the widest. No text is lost: only marks are hidden,
//! and without styles not even those.
//!
//! A CommonMark parser would not do: it has to see the end of a paragraph before it can tell what the paragraph is.

mod table;

use super::text_style::{TerminalColor, TextStyle, WordWrap};
use table::{begins_table, laid_out};

/// The most bytes of a table, or of one of its lines, that are held back. The rest is shown as it is.
const MAX_TABLE_BYTES: usize = 64 * 1024;
/// The most lines of a table that are held back. A limit of its own, because even a row of one character gets all
/// columns of the table when it is laid out.
const MAX_TABLE_LINES: usize = 1_000;

/// A message that is being rendered.
#[derive(Debug, Default)]
pub(super) struct MarkdownStream {
    is_styled: bool,
    wrap: WordWrap,
    /// The part of the line that has arrived and is not rendered yet.
    held: String,
    /// `None` at the beginning of a line.
    line: Option<LineKind>,
    /// The character and the length of the fence around the code that is being shown.
    fence: Option<(char, usize)>,
    /// The lines of the table that is arriving, or a line that may be the heading of one.
    table: Vec<String>,
    /// The last character of the line that is rendered so far.
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

/// The kind of a line, according to its beginning.
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
    /// Text in a style that begins at this byte, after the mark of a list or of a quote.
    Words(usize, TextStyle),
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

    /// Returns true if nothing of the current line has been shown yet.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.wrap.is_at_line_start()
    }

    /// Renders the held text as far as its meaning is certain.
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

    /// Adds a row to the table, or ends the table if its first two lines do not begin one.
    fn add_row(&mut self, line: String, width: usize) {
        self.table.push(line);
        if let [heading, delimiter] = &self.table[..]
            && !begins_table(heading, delimiter)
        {
            // The second line may itself be the heading of a table.
            let second = self.table.pop();
            self.end_table(width);
            self.table.extend(second);
        }
        let bytes: usize = self.table.iter().map(String::len).sum();
        if bytes > MAX_TABLE_BYTES || self.table.len() >= MAX_TABLE_LINES {
            self.end_table(width);
        }
    }

    /// Shows the table that ends here, or the single line that turned out not to be a table.
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

    /// Decides what kind of line begins, and writes its mark. Returns the kind and the number of bytes used; `None` if
    /// more of the line is needed.
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
            LineStart::Words(start, style) => {
                self.wrap.verbatim(&text[..start], TextStyle::DIM, width);
                self.wrap.set_indent(start);
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
    let words = LineStart::Words(indent, TextStyle::PLAIN);
    let Some(first) = trimmed.chars().next() else { return once_complete(is_complete, words) };
    let run = trimmed.len() - trimmed.trim_start_matches(first).len();
    let after = &trimmed[run..];
    // More of the same signs may arrive.
    let may_grow = after.is_empty() && !is_complete;
    match first {
        '#' if !is_complete && after.trim_start().is_empty() => LineStart::Unknown,
        '#' if run <= 6 && after.starts_with(' ') => {
            LineStart::Heading(run, text.len() - after.trim_start().len())
        }
        // The line of a fence may name the language, which contains no backtick.
        '`' | '~' if run >= 3 && !after.contains('`') => {
            once_complete(is_complete, LineStart::Fence(first, run))
        }
        '`' | '~' if may_grow => LineStart::Unknown,
        '|' if text.len() > MAX_TABLE_BYTES => LineStart::Verbatim(TextStyle::PLAIN),
        '|' => once_complete(is_complete, LineStart::Row),
        '>' => {
            let space = usize::from(after.starts_with(' '));
            let words = LineStart::Words(indent + run + space, TextStyle::DIM);
            if may_grow { LineStart::Unknown } else { words }
        }
        '-' | '*' | '_' if is_rule(trimmed, first) => {
            once_complete(is_complete, LineStart::Verbatim(TextStyle::DIM))
        }
        '-' | '*' | '+' | '_' if may_grow => LineStart::Unknown,
        '-' | '*' | '+' if run == 1 && after.starts_with(' ') => {
            LineStart::Words(indent + 2, TextStyle::PLAIN)
        }
        '0'..='9' => ordered_item(text, indent, is_complete).unwrap_or(words),
        _ => words,
    }
}

/// The kind of a line that can be told only from the whole line.
fn once_complete(is_complete: bool, kind: LineStart) -> LineStart {
    if is_complete { kind } else { LineStart::Unknown }
}

/// The item of a numbered list, if the digits at `indent` begin one.
fn ordered_item(text: &str, indent: usize, is_complete: bool) -> Option<LineStart> {
    let digits = text[indent..].find(|letter: char| !letter.is_ascii_digit());
    let end = digits.map_or(text.len(), |length| indent + length);
    let mut rest = text[end..].chars();
    match (rest.next(), rest.next()) {
        _ if end - indent > 9 => None,
        (Some('.' | ')'), Some(' ')) => Some(LineStart::Words(end + 2, TextStyle::PLAIN)),
        (None, _) | (Some('.' | ')'), None) if !is_complete => Some(LineStart::Unknown),
        _ => None,
    }
}

/// Returns true if a line, as far as it has arrived, consists of spaces and at least three such signs.
fn is_rule(text: &str, sign: char) -> bool {
    let count = text.chars().filter(|letter| *letter == sign).count();
    count >= 3 && text.chars().all(|letter| letter == sign || letter == ' ')
}

/// The most bytes that are held back from a mark on.
const MAX_HELD_BYTES: usize = 600;

/// The characters that a backslash escapes.
const ESCAPABLE: &str = "\\`*_[]()#<>|~!-+.";

/// Receives the pieces of text with their styles.
type EmitPiece<'a> = &'a mut dyn FnMut(&str, TextStyle);

/// Emits a part of a line in pieces and returns how many bytes of it were used. Unless the line `is_complete`, text
/// that may still turn out to be markup is left over. `before` is the character before the text. With `keeps_marks`
/// nothing is hidden.
fn emit_inline(
    text: &str,
    is_complete: bool,
    before: Option<char>,
    (style, keeps_marks): (TextStyle, bool),
    emit: EmitPiece<'_>,
) -> usize {
    let mut at = 0;
    while let Some(offset) = text[at..].find(['\\', '`', '*', '_', '[']) {
        if offset > 0 {
            emit(&text[at..at + offset], style);
            at += offset;
        }
        let rest = &text[at..];
        let last = text[..at].chars().next_back().or(before);
        let found = match construct(rest, last, is_complete) {
            Construct::Unknown if rest.len() <= MAX_HELD_BYTES => return at,
            Construct::Unknown => Construct::Text(mark_length(rest)),
            found => found,
        };
        emit_construct(rest, &found, (style, keeps_marks), emit);
        at += found.length();
    }
    if at < text.len() {
        emit(&text[at..], style);
    }
    text.len()
}

/// The Markdown construct that begins at a mark. Lengths are in bytes.
#[derive(Debug, PartialEq, Eq)]
enum Construct {
    /// It depends on the text that has not arrived yet.
    Unknown,
    /// Plain text of this length.
    Text(usize),
    /// A character after a backslash.
    Escaped(usize),
    /// Code between two marks of this length.
    Code { mark: usize, inner: usize },
    /// Text between two marks of this length.
    Emphasis { mark: usize, inner: usize },
    /// A label, and the address after it.
    Link { label: usize, address: usize },
}

impl Construct {
    fn length(&self) -> usize {
        match self {
            Construct::Unknown => 0,
            Construct::Text(length) | Construct::Escaped(length) => *length,
            Construct::Code { mark, inner } | Construct::Emphasis { mark, inner } => {
                2 * mark + inner
            }
            Construct::Link { label, address } => label + address + 4,
        }
    }
}

fn construct(rest: &str, before: Option<char>, is_complete: bool) -> Construct {
    match rest.as_bytes()[0] {
        b'\\' => match rest[1..].chars().next() {
            Some(char) if ESCAPABLE.contains(char) => Construct::Escaped(2),
            Some(_) => Construct::Text(1),
            None => undecided(1, is_complete),
        },
        b'`' => {
            let mark = mark_length(rest);
            match find_mark(&rest[mark..], '`', |length| length == mark) {
                // The mark may become longer.
                Some(inner) if is_complete || 2 * mark + inner < rest.len() => {
                    Construct::Code { mark, inner }
                }
                _ => undecided(mark, is_complete),
            }
        }
        b'[' => link(rest).unwrap_or_else(|| {
            let label = rest.find(']');
            match label.and_then(|label| rest[label + 1..].chars().next()) {
                Some(char) if char != '(' => Construct::Text(1),
                _ => undecided(1, is_complete),
            }
        }),
        _ => emphasis(rest, before, is_complete),
    }
}

/// A mark of this length that is one only if more text arrives.
fn undecided(length: usize, is_complete: bool) -> Construct {
    if is_complete { Construct::Text(length) } else { Construct::Unknown }
}

fn emphasis(rest: &str, before: Option<char>, is_complete: bool) -> Construct {
    let mark = mark_length(rest);
    let sign = if rest.starts_with('*') { '*' } else { '_' };
    let Some(next) = rest[mark..].chars().next() else { return undecided(mark, is_complete) };
    // In `snake_case`, `__init__.py` and `2*3` the signs are not marks.
    let is_within_word = match (sign, mark) {
        ('_', 1) => before.is_some_and(char::is_alphanumeric),
        ('_', _) => true,
        (_, 1) => before.is_some_and(|letter| letter.is_ascii_alphanumeric()),
        _ => false,
    };
    if mark > 3 || next.is_whitespace() || is_within_word {
        return Construct::Text(mark);
    }
    match closing_mark(&rest[mark..], (sign, mark), is_complete) {
        Some(inner) if is_complete || 2 * mark + inner < rest.len() => {
            Construct::Emphasis { mark, inner }
        }
        _ => undecided(mark, is_complete),
    }
}

/// Finds the mark that closes an emphasis, outside code.
fn closing_mark(text: &str, (sign, mark): (char, usize), is_complete: bool) -> Option<usize> {
    let mut at = 0;
    while let Some(offset) = text[at..].find([sign, '`', '\\']) {
        let start = at + offset;
        let rest = &text[start..];
        let length = mark_length(rest);
        at = start + length;
        if let Some(escaped) = rest.strip_prefix('\\') {
            at = start + 1 + escaped.chars().next().map_or(0, char::len_utf8);
        } else if rest.starts_with('`') {
            match find_mark(&rest[length..], '`', |found| found == length) {
                Some(inner) => at += inner + length,
                // The text after it may be code.
                None if !is_complete => return None,
                None => {}
            }
        } else {
            // Three signs close both kinds of emphasis.
            let closes = length == mark || length == 3 && mark < 3;
            let is_after_word =
                text[..start].chars().next_back().is_some_and(|letter| !letter.is_whitespace());
            let is_within_word =
                sign == '_' && text[at..].chars().next().is_some_and(char::is_alphanumeric);
            if closes && is_after_word && !is_within_word {
                return Some(start + length - mark);
            }
        }
    }
    None
}

fn link(rest: &str) -> Option<Construct> {
    let label = rest.find("](").filter(|at| !rest[..*at].contains(']'))? - 1;
    let address = rest[label + 3..].find([')', ' '])?;
    let is_link = label > 0 && address > 0 && rest[label + 3 + address..].starts_with(')');
    is_link.then_some(Construct::Link { label, address })
}

fn emit_construct(
    rest: &str,
    construct: &Construct,
    (style, keeps_marks): (TextStyle, bool),
    emit: EmitPiece<'_>,
) {
    if keeps_marks {
        return emit(&rest[..construct.length()], style);
    }
    match *construct {
        Construct::Unknown => {}
        Construct::Text(length) => emit(&rest[..length], style),
        Construct::Escaped(length) => emit(&rest[1..length], style),
        Construct::Code { mark, inner } => {
            emit(&rest[mark..mark + inner], style.colored(TerminalColor::Cyan));
        }
        Construct::Emphasis { mark, inner } => {
            let bold = style.bold || mark > 1;
            let italic = style.italic || mark != 2;
            let inner = &rest[mark..mark + inner];
            emit_inline(inner, true, None, (TextStyle { bold, italic, ..style }, false), emit);
        }
        Construct::Link { label, address } => {
            let address = &rest[label + 3..label + 3 + address];
            let label = &rest[1..=label];
            emit(label, TextStyle { underline: true, ..style });
            // A bare address that is its own label is shown once.
            if label != address || !label.starts_with("http") {
                emit(" (", style);
                emit(address, style);
                emit(")", style);
            }
        }
    }
}

/// The number of times that the first character is repeated.
fn mark_length(text: &str) -> usize {
    let first = text.chars().next();
    text.len() - text.trim_start_matches(|letter| Some(letter) == first).len()
}

/// Finds the first run of the character whose length `fits`.
fn find_mark(text: &str, char: char, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let mut at = 0;
    while let Some(offset) = text[at..].find(char) {
        let length = mark_length(&text[at + offset..]);
        if fits(length) {
            return Some(at + offset);
        }
        at += offset + length;
    }
    None
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

    fn pieces(text: &str, is_complete: bool) -> (String, usize) {
        let mut found = String::new();
        let used =
            emit_inline(text, is_complete, None, (TextStyle::PLAIN, false), &mut |text, style| {
                let name = match style {
                    TextStyle { bold: true, italic: true, .. } => "BI",
                    TextStyle { bold: true, color: Some(_), .. } => "BC",
                    TextStyle { bold: true, .. } => "B",
                    TextStyle { italic: true, .. } => "I",
                    TextStyle { underline: true, .. } => "U",
                    TextStyle { color: Some(_), .. } => "C",
                    _ => "",
                };
                let text =
                    if name.is_empty() { text.to_owned() } else { format!("{name}<{text}>") };
                found.push_str(&text);
            });
        (found, used)
    }

    #[test]
    fn marks_in_pairs_are_hidden_and_all_others_are_text() {
        for (text, expected) in [
            ("a **b** c", "a B<b> c"),
            ("*a* _b_ ***c***", "I<a> I<b> BI<c>"),
            ("`a*b*` and ``c`d``", "C<a*b*> and C<c`d>"),
            ("**use `x` now**", "B<use >BC<x>B< now>"),
            ("**a *b***", "B<a >BI<b>"),
            ("这是**重点**。", "这是B<重点>。"),
            ("[docs](https://a.b/c) x", "U<docs> (https://a.b/c) x"),
            ("[https://a](https://a)", "U<https://a>"),
            (r"\*a\* C:\dir \\", r"*a* C:\dir \"),
            // No marks.
            ("snake_case_name and 2*3*4", "snake_case_name and 2*3*4"),
            ("match *.rs files", "match *.rs files"),
            ("2 * 3 * 4, a ** b", "2 * 3 * 4, a ** b"),
            ("**open, `open, [open](", "**open, `open, [open]("),
            ("[x] done, a[0][1](y z)", "[x] done, a[0][1](y z)"),
            ("****", "****"),
            ("__init__.py", "__init__.py"),
        ] {
            assert_eq!(pieces(text, true), (expected.to_owned(), text.len()), "{text}");
        }
    }

    #[test]
    fn what_may_become_something_else_waits() {
        for (text, shown) in [
            ("a **b", "a "),
            ("a **b*", "a "),
            ("a `b`", "a "),
            ("a `b` ", "a C<b> "),
            ("a [b](c", "a "),
            ("a [b] ", "a [b] "),
            ("a_", "a"),
            ("a_b", "a_b"),
            ("x\\", "x"),
        ] {
            assert_eq!(pieces(text, false).0, shown, "{text}");
        }
        let long = format!("a *{}", "b".repeat(MAX_HELD_BYTES));
        assert_eq!(pieces(&long, false), (long.clone(), long.len()));
    }
}
