//! How a subcommand ends: its output, its error and its exit code.

use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::process::ExitCode;

use turnwright_store::StoreError;
use turnwright_types::effect::terminal_safe;
use turnwright_types::error_text::io_error_text;
use turnwright_types::redact;

/// Writes the output of a subcommand that speaks no protocol on stdout, without keys: one that was stored as part of
/// other words may be loaded now.
#[expect(clippy::disallowed_methods, reason = "this subcommand speaks no protocol on stdout")]
pub fn write_stdout(text: &str) -> io::Result<()> {
    stdout().write_all(redact::text(text).as_bytes())
}

/// Writes output with which a subcommand ends.
pub fn print(text: &str) -> CliResult<()> {
    Ok(write_stdout(text)?)
}

/// Prints the error of a subcommand, if any, and returns the exit code. A closed pipe is not an error: the reader,
/// such as `head`, has seen enough.
pub fn report(command: &str, result: CliResult<()>) -> ExitCode {
    match result {
        Err(CliError::Io(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        other => exit_code(command, other.map(|()| ExitCode::SUCCESS), 1),
    }
}

/// Prints the error of a subcommand, if any, and returns the exit code, which is `failure` then. It may quote a server or
/// a program.
pub fn exit_code(command: &str, result: CliResult<ExitCode>, failure: u8) -> ExitCode {
    result.unwrap_or_else(|why| {
        writeln!(stderr(), "{}", terminal_safe(format!("turnwright {command}: {why}"))).ok();
        ExitCode::from(failure)
    })
}

/// Why a subcommand failed. The text is only shown.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{}", io_error_text(.0))]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Other(String),
}

/// The result of a subcommand, or of a part of one.
pub type CliResult<T> = Result<T, CliError>;

impl From<&str> for CliError {
    fn from(text: &str) -> CliError {
        CliError::Other(text.to_owned())
    }
}

impl From<String> for CliError {
    fn from(text: String) -> CliError {
        CliError::Other(text)
    }
}
