//! `turnwright document-text`: writes the text of the document on stdin as JSON. Hidden; the agent starts it, because a
//! hostile document must not cost more than this process.

use std::io::{Read, stdin};
use std::process::ExitCode;

use super::CliError;
use turnwright_terminal::{print, report};

/// The most memory that a reader may use. macOS does not enforce it.
#[cfg(unix)]
const MAX_MEMORY: Option<u64> = Some(512 * 1024 * 1024);

pub(super) fn run(pages: Option<&str>) -> ExitCode {
    #[cfg(unix)]
    rustix::process::setrlimit(
        rustix::process::Resource::As,
        rustix::process::Rlimit { current: MAX_MEMORY, maximum: MAX_MEMORY },
    )
    .ok();
    let mut bytes = Vec::new();
    let read = stdin().lock().read_to_end(&mut bytes).map_err(CliError::from);
    let written = read.and_then(|_| {
        let answer = serde_json::to_string(&turnwright_documents::extract(&bytes, pages));
        print(&answer.unwrap_or_default())
    });
    report("document-text", written)
}
