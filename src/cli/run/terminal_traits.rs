//! The abilities of the terminal of `run`, and its width.

use std::io::{IsTerminal, stderr, stdin};

use crate::config::Config;

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
