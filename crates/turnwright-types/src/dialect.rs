//! The shells that run command lines.

/// The shell that runs a command line. The dialects differ in how they parse the same line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellDialect {
    Bash,
    /// A POSIX shell such as dash.
    Posix,
    /// The command processor of Windows.
    Cmd,
}
