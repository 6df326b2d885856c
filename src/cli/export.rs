//! `turnwright sessions export`: a session as a document.

use std::io::{self, BufWriter, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use turnwright_types::effect::visible;
use turnwright_store::export::{ExportError, Form, export};
use turnwright_types::ids::SessionId;
use turnwright_store::Store;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Its id, the beginning of it, or `last`
    id: String,
    /// As Markdown (the default)
    #[arg(long, group = "form")]
    md: bool,
    /// As one HTML page that needs nothing else (the default for a FILE that ends in .html)
    #[arg(long, group = "form")]
    html: bool,
    /// As JSON (the default for a FILE that ends in .json)
    #[arg(long, group = "form")]
    json: bool,
    /// Where to write it (default: here)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Options {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn form(&self) -> Form {
        let ends_in = |it: &str| {
            let end = self.output.as_deref().and_then(Path::extension);
            !self.md && end.is_some_and(|end| end.eq_ignore_ascii_case(it))
        };
        if self.json || !self.html && ends_in("json") {
            return Form::Json;
        }
        if self.html || ends_in("html") { Form::Html } else { Form::Markdown }
    }
}

/// Writes the document.
pub(super) fn run(options: &Options, store: &Store, id: &SessionId) -> ExitCode {
    let session = (store, id);
    let result = match &options.output {
        Some(path) => into_file(session, options, path),
        None => here(session, options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads has seen enough.
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            let text = format!("turnwright: {}\n", visible(&error.to_string()));
            stderr().write_all(text.as_bytes()).ok();
            ExitCode::FAILURE
        }
    }
}

/// The file is there as a whole or not at all, and only its owner can read it.
fn into_file(
    session: (&Store, &SessionId),
    options: &Options,
    path: &Path,
) -> Result<(), ExportError> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    write(session, options, &mut file)?;
    file.persist(path).map_err(|it| it.error)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "no protocol is spoken here")]
fn here(session: (&Store, &SessionId), options: &Options) -> Result<(), ExportError> {
    write(session, options, &mut stdout())
}

fn write(
    (store, id): (&Store, &SessionId),
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut out = BufWriter::new(out);
    store.read_now(|connection| Ok(export(connection, id, options.form(), &mut out)))?
}
