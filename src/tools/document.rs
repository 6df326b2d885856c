//! Has the text of a document read by a process of its own: this program again, with little memory and time, and in a
//! sandbox in which it reads nothing but itself and what it is given. Whatever a document does to its reader costs that
//! reading only.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use turnwright_documents::DocumentText;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::exec::{Environment, PipedProgram, ProcessGroup, RunningCommand};

const MAX_TIME: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_millis(200);
/// JSON may have six bytes for one of the text.
const MAX_ANSWER_BYTES: u64 = 32 * 1024 * 1024;
const MAX_MESSAGE_BYTES: u64 = 64 * 1024;

/// The readers that may run at the same time in this process.
static PLACES: Semaphore = Semaphore::const_new(2);

/// Reads the text of a document, or of some of its pages. `None` if it is no document.
///
/// # Errors
/// What is wrong, and what to do, in words that follow the document's name.
pub(crate) async fn read_document(
    bytes: Vec<u8>,
    pages: Option<&str>,
) -> Result<Option<DocumentText>, String> {
    if let Some(pages) = pages {
        turnwright_documents::parse_range(pages)?;
    }
    let _place = PLACES.acquire().await.map_err(|error| error.to_string())?;
    let program = reader(pages).map_err(|error| not_started(&error))?;
    let started = ProcessGroup::start_piped(&program).await;
    let (mut group, pipes) = started.map_err(|error| not_started(&error))?;
    let mut stdin = pipes.stdin;
    let work = async {
        let writing = async move {
            // A reader that has ended says why.
            stdin.write_all(&bytes).await.ok();
        };
        let output = read_bounded(pipes.stdout, MAX_ANSWER_BYTES);
        let messages = read_bounded(pipes.stderr, MAX_MESSAGE_BYTES);
        let ((), answer, messages) = tokio::join!(writing, output, messages);
        group.wait_for_end().await;
        (answer, messages)
    };
    let done = timeout(MAX_TIME, work).await;
    group.stop(GRACE).await;
    let Ok((answer, messages)) = done else {
        return Err("cannot be read: it takes longer than 20 seconds".to_owned());
    };
    serde_json::from_slice(&answer).unwrap_or_else(|_| {
        let message = String::from_utf8_lossy(&messages);
        tracing::debug!(%message, "the reader of a document failed");
        let has_no_memory = message.contains("memory allocation");
        let why = if has_no_memory { "it takes more than 512 MiB" } else { "its reader crashed" };
        Err(format!("cannot be read: {why}. Try other `pages`, or convert it with exec"))
    })
}

fn not_started(error: &io::Error) -> String {
    format!("cannot be read, because its reader was not started: {}", io_error_text(error))
}

fn reader(pages: Option<&str>) -> io::Result<PipedProgram> {
    let program = std::env::current_exe()?;
    let mut command_line = vec![program.clone().into(), "document-text".into()];
    command_line.extend(pages.map(|pages| format!("--pages={pages}").into()));
    // Where nothing can be confined, its limits are all that it has.
    let sandbox = turnwright_sandbox::can_confine()
        .then(|| SandboxProfile { readable: Some(vec![program]), ..SandboxProfile::default() });
    let workdir = PathBuf::from(if cfg!(windows) { "C:\\" } else { "/" });
    Ok(PipedProgram { command_line, workdir, environment: Environment::default(), sandbox })
}

/// Reads the beginning of a stream, and its rest only so that its writer ends.
async fn read_bounded(mut stream: impl AsyncRead + Unpin, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    (&mut stream).take(most).read_to_end(&mut bytes).await.ok();
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
    bytes
}
