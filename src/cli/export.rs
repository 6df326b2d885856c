//! `turnwright sessions export`: writes a session as a document.

use std::io::{self, BufWriter, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use turnwright_store::Store;
use turnwright_store::export::{ExportError, ExportFormat, export};
use turnwright_types::effect::escape_hidden;
use turnwright_types::ids::SessionId;
use turnwright_types::io_error_text::without_error_numbers;

#[derive(Debug, Args)]
pub(super) struct ExportCliArgs {
    /// Session id, a prefix of one, or `last`
    id: String,
    /// Markdown (default)
    #[arg(long, group = "form")]
    md: bool,
    /// One self-contained HTML page (default if FILE ends in .html)
    #[arg(long, group = "form")]
    html: bool,
    /// JSON (default if FILE ends in .json)
    #[arg(long, group = "form")]
    json: bool,
    /// Output file (default: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ExportCliArgs {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn form(&self) -> ExportFormat {
        if self.json || !self.html && self.ends_in("json") {
            return ExportFormat::Json;
        }
        if self.html || self.ends_in("html") { ExportFormat::Html } else { ExportFormat::Markdown }
    }

    /// Returns true if the name of the output file decides for the form with this extension.
    fn ends_in(&self, extension: &str) -> bool {
        let end = self.output.as_deref().and_then(Path::extension);
        !self.md && end.is_some_and(|end| end.eq_ignore_ascii_case(extension))
    }
}

pub(super) fn run(args: &ExportCliArgs, store: &Store, id: &SessionId) -> ExitCode {
    let session = (store, id);
    let result = match &args.output {
        Some(path) => write_file(session, args, path),
        None => write_stdout(session, args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // A closed pipe is not an error: the reader has seen enough.
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            let text = format!(
                "turnwright: {}\n",
                escape_hidden(&without_error_numbers(&error.to_string()))
            );
            stderr().write_all(text.as_bytes()).ok();
            ExitCode::FAILURE
        }
    }
}

/// Writes atomically, to a file that only its owner can read.
fn write_file(
    session: (&Store, &SessionId),
    args: &ExportCliArgs,
    path: &Path,
) -> Result<(), ExportError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    write(session, args, &mut file)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this subcommand speaks no protocol on stdout")]
fn write_stdout(session: (&Store, &SessionId), args: &ExportCliArgs) -> Result<(), ExportError> {
    write(session, args, &mut stdout())
}

fn write(
    (store, id): (&Store, &SessionId),
    args: &ExportCliArgs,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut out = BufWriter::new(out);
    store.read_blocking(|connection| Ok(export(connection, id, args.form(), &mut out)))?
}
