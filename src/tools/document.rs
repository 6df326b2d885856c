//! Reads the text of a document in a separate process of this program, with little memory and time, in a sandbox where
//! the process can read only its own program file and its input. A hostile document can spoil only that call.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use turnwright_documents::DocumentText;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::exec::{
    Environment, PipedProgram, ProcessGroup, ProcessPipes, RunningCommand, launcher_program,
};

const MAX_TIME: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_millis(200);
/// Allows for JSON escapes, which may take six bytes for one byte of text.
const MAX_ANSWER_BYTES: u64 = 32 * 1024 * 1024;

const CRASHED: &str = "cannot be read: its reader crashed, or needed more than 512 MiB. Try other `pages`, or convert it \
                       with exec";

/// Limits the readers that this process runs at the same time.
static READER_SLOTS: Semaphore = Semaphore::const_new(2);

/// Reads the text of a document, or of some of its pages; `None` if the bytes are not a document.
///
/// # Errors
/// Returns the problem and the remedy, in words that follow the document's name.
pub(super) async fn read_document(
    bytes: &[u8],
    pages: Option<&str>,
) -> Result<Option<DocumentText>, String> {
    let _slot = READER_SLOTS.acquire().await.map_err(|error| error.to_string())?;
    let (mut group, pipes) = start_reader(pages).await.map_err(|error| start_problem(&error))?;
    // Nothing reads stderr, and a reader that fills the pipe would block.
    drop(pipes.stderr);
    let mut stdin = pipes.stdin;
    let mut output = pipes.stdout.take(MAX_ANSWER_BYTES);
    let mut answer = Vec::new();
    let writing = async move {
        // This fails if the reader has already exited; its output then tells the result.
        stdin.write_all(bytes).await.ok();
    };
    let work = future::join(writing, output.read_to_end(&mut answer));
    let is_late = timeout(MAX_TIME, work).await.is_err();
    group.stop(GRACE).await;
    if is_late {
        return Err("cannot be read: it takes longer than 20 seconds".to_owned());
    }
    serde_json::from_slice(&answer).unwrap_or_else(|_| Err(CRASHED.to_owned()))
}

/// Explains why no reader was started. A package manager may have deleted the version that is running.
fn start_problem(error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "the user must restart turnwright, which was updated".to_owned(),
        _ => io_error_text(error),
    };
    format!("cannot be read, because its reader was not started: {why}")
}

async fn start_reader(pages: Option<&str>) -> io::Result<(ProcessGroup, ProcessPipes)> {
    let program = launcher_program().ok_or(io::ErrorKind::Unsupported)?.to_owned();
    let mut command_line = vec![program.clone().into_os_string(), OsString::from("document-text")];
    command_line.extend(pages.map(|pages| OsString::from(format!("--pages={pages}"))));
    // Where there is no sandbox, only the limits on time and memory protect this machine.
    let sandbox = turnwright_sandbox::can_confine()
        .then(|| SandboxProfile { readable: Some(vec![program]), ..SandboxProfile::default() });
    let workdir = PathBuf::from(if cfg!(windows) { "C:\\" } else { "/" });
    let environment = Environment::default();
    ProcessGroup::start_piped(&PipedProgram { command_line, workdir, environment, sandbox }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_an_update_has_deleted_is_no_missing_document() {
        for (kind, expected) in [
            (io::ErrorKind::NotFound, "the user must restart turnwright, which was updated"),
            (io::ErrorKind::PermissionDenied, "permission denied"),
        ] {
            let told = start_problem(&kind.into());
            assert!(told.ends_with(expected), "{told}");
        }
    }
}
