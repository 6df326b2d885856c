//! The shells whose command lines are run and judged.

/// The shell that will run the line. They differ in what a word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// bash.
    Bash,
    /// A POSIX shell such as dash.
    Posix,
}
