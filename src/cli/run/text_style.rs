//! Styles of text on a terminal. [`paint`] is the only place that writes escape sequences around text, and
//! no control character of a text passes it: one from a file or a model would be an attack.

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
}
