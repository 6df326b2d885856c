//! Styled text on a terminal: the styles, the abilities of the terminal that `run` writes to, and the wrapping of lines
//! between words while the text is still arriving. [`paint`] is the only place that writes escape sequences around
//! text, and it lets no control character of a text through: one from a file or a model would be an attack.

use std::io::{IsTerminal, stderr, stdin};
use std::path::Path;

use turnwright_config::Config;
use turnwright_types::effect::terminal_safe;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a piece of text looks. Only attributes and the 16 colours of the terminal's own palette are used, so
/// that it can be read on a light background and on a dark one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextStyle {
    pub(super) bold: bool,
    pub(super) dim: bool,
    pub(super) italic: bool,
    pub(super) underline: bool,
    pub(super) color: Option<TerminalColor>,
}

/// The colours that can be read on both backgrounds in the usual palettes, with the parameters of their escape
/// sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalColor {
    Red = 31,
    Green = 32,
    Cyan = 36,
}

impl TextStyle {
    pub(super) const PLAIN: TextStyle =
        TextStyle { bold: false, dim: false, italic: false, underline: false, color: None };
    pub(super) const DIM: TextStyle = TextStyle { dim: true, ..TextStyle::PLAIN };
    pub(super) const BOLD: TextStyle = TextStyle { bold: true, ..TextStyle::PLAIN };
    pub(super) const RED: TextStyle = TextStyle::PLAIN.colored(TerminalColor::Red);
    pub(super) const GREEN: TextStyle = TextStyle::PLAIN.colored(TerminalColor::Green);

    pub(super) const fn colored(self, color: TerminalColor) -> TextStyle {
        TextStyle { color: Some(color), ..self }
    }

    /// The parameters of the escape sequence that selects the style.
    fn parameters(self) -> Vec<String> {
        let attributes = [(self.bold, 1), (self.dim, 2), (self.italic, 3), (self.underline, 4)];
        let set = attributes.iter().filter(|(is_set, _)| *is_set).map(|(_, number)| *number);
        set.chain(self.color.map(|color| color as u8)).map(|number| number.to_string()).collect()
    }
}

/// Appends a text in a style, or plain if the terminal shows no styles.
pub(super) fn paint(output: &mut String, text: &str, style: TextStyle, is_styled: bool) {
    let text = terminal_safe(text.to_owned());
    let parameters = style.parameters();
    if text.is_empty() || parameters.is_empty() || !is_styled {
        output.push_str(&text);
    } else {
        output.push_str(&format!("\x1b[{}m{text}\x1b[0m", parameters.join(";")));
    }
}

/// The width that is assumed if the terminal does not report one.
const DEFAULT_WIDTH: usize = 80;

/// Which standard streams are a terminal, and what it can do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TerminalTraits {
    pub(super) is_stdin_terminal: bool,
    pub(super) is_stdout_terminal: bool,
    /// Notes, questions and progress are shown on stderr.
    pub(super) is_stderr_terminal: bool,
    /// Colours and attributes may be shown: the variable `NO_COLOR` is not set.
    pub(super) is_styled: bool,
    /// The cursor can be moved back: `TERM` is not `dumb`, and `ACCESSIBLE` is not set.
    pub(super) moves_cursor: bool,
    /// True if GitHub Actions reads stderr, too. It obeys commands in the lines of both outputs.
    pub(super) is_github: bool,
}

impl TerminalTraits {
    pub(super) fn detect(config: &Config) -> TerminalTraits {
        let variable = |name: &str| {
            let found = config.inherited.iter().find(|entry| entry.0 == name);
            found.map(|entry| entry.1.to_string_lossy()).filter(|value| !value.is_empty())
        };
        let is_dumb = is_plain(variable("TERM").as_deref(), variable("ACCESSIBLE").as_deref());
        let is_in_github = variable("GITHUB_ACTIONS").as_deref() == Some("true");
        TerminalTraits {
            is_stdin_terminal: stdin().is_terminal(),
            is_stdout_terminal: is_stdout_a_terminal(),
            is_stderr_terminal: stderr().is_terminal(),
            is_styled: !is_dumb && variable("NO_COLOR").is_none(),
            moves_cursor: !is_dumb,
            is_github: is_in_github && !Path::new("/dev/stderr").is_file(),
        }
    }
}

/// Returns true if the terminal cannot move the cursor, or if nothing may be drawn twice, because a screen reader
/// would read it each time.
fn is_plain(terminal: Option<&str>, accessible: Option<&str>) -> bool {
    terminal == Some("dumb") || accessible.is_some_and(|value| !["0", "false"].contains(&value))
}

#[expect(clippy::disallowed_methods, reason = "this subcommand speaks no protocol on stdout")]
fn is_stdout_a_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// The columns of the terminal, asked for anew each time because it may be resized.
pub(super) fn terminal_width() -> usize {
    #[cfg(unix)]
    {
        let size = rustix::termios::tcgetwinsize(stderr())
            .or_else(|_| rustix::termios::tcgetwinsize(stdin()));
        let columns = size.map_or(0, |size| usize::from(size.ws_col));
        if columns == 0 { DEFAULT_WIDTH } else { columns }
    }
    #[cfg(not(unix))]
    DEFAULT_WIDTH
}

/// The columns from one tab stop to the next.
const TAB: usize = 8;
/// Marks that must not begin a line.
const CLOSING_MARKS: &str = "、。，．：；？！）】」』》〉〕％…—”’,.:;?!)]}%";
/// Marks that must not end a line.
const OPENING_MARKS: &str = "（【「『《〈〔“‘([{";

/// Styled text on its way to a terminal. A word is held back until it is complete.
#[derive(Debug, Default)]
pub(super) struct WordWrap {
    /// True if the terminal shows styles.
    is_styled: bool,
    /// True if a word that is longer than a line is broken here, and not by the terminal.
    breaks_words: bool,
    output: String,
    /// The end of the output, which has one style and is not painted yet.
    run: String,
    run_style: TextStyle,
    /// The column of the cursor.
    column: usize,
    /// How far the lines after a break are indented.
    indent: usize,
    /// The spaces before the word, which are dropped at a break.
    spaces: usize,
    word: Vec<(String, TextStyle)>,
    word_width: usize,
}

impl WordWrap {
    pub(super) fn new(is_styled: bool) -> WordWrap {
        WordWrap { is_styled, ..WordWrap::default() }
    }

    /// Creates a wrap that also breaks words, so that no line is longer than the width.
    pub(super) fn breaking_words(is_styled: bool) -> WordWrap {
        WordWrap { is_styled, breaks_words: true, ..WordWrap::default() }
    }

    /// Sets how far the rest of the line is indented after a break.
    pub(super) fn set_indent(&mut self, indent: usize) {
        self.indent = indent;
    }

    /// Appends words. `width` is the number of the terminal's columns.
    pub(super) fn words(&mut self, text: &str, style: TextStyle, width: usize) {
        for char in text.chars() {
            match char {
                '\n' => self.end_line(width),
                ' ' | '\t' => {
                    self.flush_word(width);
                    self.spaces += if char == ' ' { 1 } else { TAB - self.column % TAB };
                }
                char => {
                    let last = self.word.last().and_then(|(text, _)| text.chars().next_back());
                    if last.is_some_and(|last| may_break_between(last, char)) {
                        self.flush_word(width);
                    }
                    let columns = added_width(last, char);
                    if self.breaks_words && self.word_width + columns > width {
                        self.flush_word(width);
                    }
                    self.push(char, columns, style);
                }
            }
        }
    }

    /// Appends a line of code. It is broken at the last column, wherever that is, and keeps all its spaces.
    pub(super) fn code(&mut self, text: &str, style: TextStyle, width: usize) {
        let mut last = None;
        for char in text.chars() {
            let (columns, shown) = match char {
                '\t' => (TAB - self.column % TAB, " ".repeat(TAB - self.column % TAB)),
                char => (added_width(last, char), char.to_string()),
            };
            if self.column + columns > width && self.column > self.indent {
                self.break_line(width);
            }
            self.write(&shown, style);
            self.column += columns;
            last = Some(char);
        }
    }

    /// Appends text that only the terminal itself breaks, such as code.
    pub(super) fn verbatim(&mut self, text: &str, style: TextStyle, width: usize) {
        self.flush_word(width);
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.end_line(width);
            }
            self.write(line, style);
            for char in line.chars() {
                self.column +=
                    if char == '\t' { TAB - self.column % TAB } else { char_width(char) };
            }
        }
    }

    /// Appends whole lines that are painted and broken already.
    pub(super) fn painted_lines(&mut self, lines: &str) {
        self.end_run();
        self.output.push_str(lines);
    }

    /// Writes the word that was held back, and the spaces before it.
    pub(super) fn flush_word(&mut self, width: usize) {
        let needed = self.column + self.spaces + self.word_width;
        if self.word.is_empty() {
            return;
        }
        let can_break = self.spaces > 0 || self.word_width > 1 || self.breaks_words;
        if needed > width && self.column > self.indent && can_break {
            self.break_line(width);
        } else {
            // Spaces within a style belong to it.
            let first = self.word.first().map_or(TextStyle::PLAIN, |(_, style)| *style);
            let style = if first == self.run_style { first } else { TextStyle::PLAIN };
            self.write(&" ".repeat(self.spaces), style);
            self.column += self.spaces;
        }
        for (text, style) in std::mem::take(&mut self.word) {
            self.write(&text, style);
        }
        // The terminal breaks a word that is longer than a line.
        self.column += self.word_width;
        if self.column > width {
            self.column %= width.max(1);
        }
        self.spaces = 0;
        self.word_width = 0;
    }

    /// Begins another line, indented.
    fn break_line(&mut self, width: usize) {
        self.write("\n", TextStyle::PLAIN);
        // On a narrow terminal an indentation would leave nothing for the words.
        let indent = if self.indent < width / 2 { self.indent } else { 0 };
        self.write(&" ".repeat(indent), TextStyle::PLAIN);
        self.column = indent;
    }

    /// Ends the line and its indentation.
    pub(super) fn end_line(&mut self, width: usize) {
        self.flush_word(width);
        self.write("\n", TextStyle::PLAIN);
        self.column = 0;
        self.indent = 0;
        self.spaces = 0;
    }

    /// Returns true if nothing of the current line has been written or is held back.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.column == 0 && self.word.is_empty() && self.spaces == 0
    }

    /// Takes what can be written to the terminal.
    pub(super) fn take(&mut self) -> String {
        self.end_run();
        std::mem::take(&mut self.output)
    }

    /// Appends text that needs no break.
    fn write(&mut self, text: &str, style: TextStyle) {
        if style != self.run_style {
            self.end_run();
            self.run_style = style;
        }
        self.run.push_str(text);
    }

    fn end_run(&mut self) {
        paint(&mut self.output, &self.run, self.run_style, self.is_styled);
        self.run.clear();
    }

    fn push(&mut self, char: char, columns: usize, style: TextStyle) {
        match self.word.last_mut() {
            Some((text, last)) if *last == style => text.push(char),
            _ => self.word.push((char.to_string(), style)),
        }
        self.word_width += columns;
    }
}

/// Returns the text, or its beginning and an ellipsis if it has more columns than `width`.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut columns = 1;
    let fitting = text.chars().take_while(|char| {
        columns += char_width(*char);
        columns <= width
    });
    fitting.chain(['…']).collect()
}

/// Returns true if a line may break between two characters without a space: one of them is of a script that has no
/// spaces, such as Chinese, the right one is not a closing mark, and the left one is not an opening mark.
fn may_break_between(left: char, right: char) -> bool {
    let is_wide = char_width(left) > 1 || char_width(right) > 1;
    is_wide
        && !is_joined(left, right)
        && !CLOSING_MARKS.contains(right)
        && !OPENING_MARKS.contains(left)
}

/// The number of columns that a character adds to the one before it. The selector of the emoji form widens some
/// characters, and a character that is joined to another has no columns of its own.
fn added_width(last: Option<char>, char: char) -> usize {
    match last {
        Some(last) if is_joined(last, char) => 0,
        Some(last) if char == '\u{fe0f}' => {
            String::from_iter([last, char]).width().saturating_sub(char_width(last))
        }
        _ => char_width(char),
    }
}

/// Returns true if `right` continues the emoji on its left: it follows a joiner or is a skin tone.
fn is_joined(left: char, right: char) -> bool {
    let is_after_joiner = left == '\u{200d}' && char_width(right) > 1;
    is_after_joiner || matches!(right, '\u{1f3fb}'..='\u{1f3ff}')
}

/// The number of columns of a character. A control character is shown as a symbol, such as `␛`.
fn char_width(char: char) -> usize {
    char.width().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_painted_and_cannot_paint_itself() {
        let both = TextStyle { underline: true, ..TextStyle::BOLD };
        for (text, style, is_styled, expected) in [
            ("a", TextStyle::PLAIN, true, "a"),
            ("a", TextStyle::RED, true, "\x1b[31ma\x1b[0m"),
            ("a", both, true, "\x1b[1;4ma\x1b[0m"),
            ("a", both, false, "a"),
            ("", TextStyle::RED, true, ""),
            ("\x1b[2J\u{9b}1m\u{7}\rb", TextStyle::DIM, true, "\x1b[2m␛[2J\u{fffd}1m␇␍b\x1b[0m"),
            ("\x1b]52;c;eA==\x07", TextStyle::PLAIN, false, "␛]52;c;eA==␇"),
        ] {
            let mut output = String::new();
            paint(&mut output, text, style, is_styled);
            assert_eq!(output, expected);
        }
    }

    #[test]
    fn nothing_is_drawn_again_for_a_screen_reader() {
        for (terminal, accessible, plain) in [
            (Some("xterm"), None, false),
            (Some("dumb"), None, true),
            (Some("xterm"), Some("1"), true),
            (Some("xterm"), Some("yes"), true),
            (Some("xterm"), Some("0"), false),
            (None, Some("false"), false),
        ] {
            assert_eq!(is_plain(terminal, accessible), plain, "{terminal:?} {accessible:?}");
        }
    }

    fn wrapped(text: &str, indent: usize, width: usize) -> String {
        let mut wrap = WordWrap::new(false);
        wrap.set_indent(indent);
        wrap.words(text, TextStyle::PLAIN, width);
        wrap.flush_word(width);
        wrap.take()
    }

    #[test]
    fn lines_break_between_words() {
        for (text, indent, expected) in [
            ("one two three four", 0, "one two\nthree four"),
            ("one two three four", 2, "one two\n  three\n  four"),
            ("onetwothreefour fiver", 0, "onetwothreefour\nfiver"),
            ("一二三四五六", 0, "一二三四五\n六"),
            ("a 一二三四五", 0, "a 一二三四\n五"),
            ("一二三四五，六", 0, "一二三四\n五，六"),
            ("一二三四五）。六", 0, "一二三四\n五）。六"),
            ("一二三四（五）", 0, "一二三四\n（五）"),
            ("ab，cdefgh", 0, "ab，cdefgh"),
            ("1234567890 next", 0, "1234567890\nnext"),
            ("ends   \nnext", 0, "ends\nnext"),
            ("  indented text", 0, "  indented\ntext"),
            ("12345 👩‍👩‍👧👍🏽", 0, "12345 👩‍👩‍👧👍🏽"),
            ("1234567 👩‍👩‍👧", 0, "1234567 👩‍👩‍👧"),
            ("123456 ⚠️⚠️", 0, "123456\n⚠️⚠️"),
        ] {
            assert_eq!(wrapped(text, indent, 10), expected);
        }
    }

    #[test]
    fn code_is_broken_at_the_last_column() {
        for (text, indent, expected) in [
            ("  +  let x = 1;", 3, "  +  let x\n    = 1;"),
            ("  +1234567890123", 3, "  +1234567\n   890123"),
            ("  +\tx", 3, "  +     x"),
            ("  -一二三四五", 3, "  -一二三\n   四五"),
            ("  ", 2, "  "),
            ("12345678👩‍👩‍👧!", 0, "12345678👩‍👩‍👧\n!"),
        ] {
            let mut wrap = WordWrap::new(false);
            wrap.set_indent(indent);
            wrap.code(text, TextStyle::PLAIN, 10);
            assert_eq!(wrap.take(), expected);
        }
    }

    #[test]
    fn a_text_is_shortened_by_its_columns() {
        for (text, expected) in [
            ("123456", "123456"),
            ("1234567", "12345…"),
            ("一二三", "一二三"),
            ("一二三四", "一二…"),
            ("", ""),
        ] {
            assert_eq!(shortened(text, 6), expected);
        }
    }

    #[test]
    fn verbatim_text_is_left_as_it_is() {
        let mut wrap = WordWrap::new(true);
        wrap.verbatim("let answer = 42;\n\tx", TextStyle::PLAIN, 10);
        assert_eq!(wrap.take(), "let answer = 42;\n\tx");
        assert_eq!(wrap.column, 9);
    }

    #[test]
    fn a_word_may_have_several_styles() {
        let mut wrap = WordWrap::new(true);
        wrap.words("123456 ab", TextStyle::PLAIN, 10);
        wrap.words("cd", TextStyle::BOLD, 10);
        wrap.flush_word(10);
        assert_eq!(wrap.take(), "123456\nab\x1b[1mcd\x1b[0m");
    }
}
