//! What the terminal of `run` can show, and how wide it is.

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
    /// The cursor can be moved back: `TERM` is not `dumb`.
    pub(super) moves_cursor: bool,
}

impl TerminalTraits {
    pub(super) fn detect(config: &Config) -> TerminalTraits {
        let variable = |name: &str| {
            let found = config.inherited.iter().find(|it| it.0 == name);
            found.map(|it| it.1.to_string_lossy()).filter(|it| !it.is_empty())
        };
        let is_dumb = variable("TERM").is_some_and(|it| it == "dumb");
        TerminalTraits {
            is_stdin_terminal: stdin().is_terminal(),
            is_stdout_terminal: is_stdout_a_terminal(),
            is_stderr_terminal: stderr().is_terminal(),
            is_styled: !is_dumb && variable("NO_COLOR").is_none(),
            moves_cursor: !is_dumb,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this subcommand speaks no protocol on stdout")]
fn is_stdout_a_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// The columns of the terminal, asked for anew each time because it may be resized.
pub(super) fn terminal_width() -> usize {
    #[cfg(unix)]
    {
        let size = rustix::termios::tcgetwinsize(stderr());
        let size = size.or_else(|_| rustix::termios::tcgetwinsize(stdin()));
        let columns = size.map_or(0, |it| usize::from(it.ws_col));
        if columns == 0 { DEFAULT_WIDTH } else { columns }
    }
    #[cfg(not(unix))]
    DEFAULT_WIDTH
}
