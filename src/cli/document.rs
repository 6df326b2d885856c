//! `turnwright document-text`: writes the text of the document on stdin as JSON. Hidden; the agent starts it, because a
//! hostile document must not cost more than this process.

use std::io::{Read, stdin};
use std::ops::RangeInclusive;
use std::process::ExitCode;

use super::CliError;
use turnwright_terminal::{print, report};

pub(super) fn run(pages: Option<&RangeInclusive<usize>>) -> ExitCode {
    limit_resources();
    let mut bytes = Vec::new();
    let read = stdin().lock().read_to_end(&mut bytes).map_err(CliError::from);
    let written = read.and_then(|_| {
        let answer = serde_json::to_string(&turnwright_documents::extract(&bytes, pages));
        print(&answer.unwrap_or_default())
    });
    report("document-text", written)
}

/// Bounds the memory, and the time for a reader that outlives its agent.
fn limit_resources() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        const MAX_MEMORY_BYTES: u64 = 512 * 1024 * 1024;
        const MAX_SECONDS: u64 = 30;
        for (resource, most) in [
            (Resource::As, MAX_MEMORY_BYTES),
            (Resource::Cpu, MAX_SECONDS),
            (Resource::Core, 0),
        ] {
            // macOS bounds no address space.
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).ok();
        }
    }
}
