//! Styles of text on a terminal, and the abilities of the terminal of `run`. [`paint`] is the only place that writes
//! escape sequences around text, and no control character of a text passes it: one from a file or a model would be an
//! attack.

use std::io::{IsTerminal, stderr, stdin};

use turnwright_config::Config;
use turnwright_types::effect::terminal_safe;

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

/// The colours that can be read on both backgrounds in the usual palettes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalColor {
    Red,
    Green,
    Cyan,
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
    fn parameters(self) -> Vec<&'static str> {
        let attributes =
            [(self.bold, "1"), (self.dim, "2"), (self.italic, "3"), (self.underline, "4")];
        let color = self.color.map(|color| match color {
            TerminalColor::Red => "31",
            TerminalColor::Green => "32",
            TerminalColor::Cyan => "36",
        });
        let set = attributes.iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, parameter)| *parameter).chain(color).collect()
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
}

impl TerminalTraits {
    pub(super) fn detect(config: &Config) -> TerminalTraits {
        let variable = |name: &str| {
            let found = config.inherited.iter().find(|entry| entry.0 == name);
            found.map(|entry| entry.1.to_string_lossy()).filter(|value| !value.is_empty())
        };
        let is_dumb = is_plain(variable("TERM").as_deref(), variable("ACCESSIBLE").as_deref());
        TerminalTraits {
            is_stdin_terminal: stdin().is_terminal(),
            is_stdout_terminal: is_stdout_a_terminal(),
            is_stderr_terminal: stderr().is_terminal(),
            is_styled: !is_dumb && variable("NO_COLOR").is_none(),
            moves_cursor: !is_dumb,
        }
    }
}

/// True if the terminal cannot move the cursor, or if nothing may be shown twice, because a screen reader would
/// read it each time.
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
}
