//! Renders file changes as a unified diff of bounded length. Pure.

use std::time::{Duration, Instant};

use turnwright_types::effect::{escape_hidden_line, terminal_safe};
use turnwright_types::line_diff;
use turnwright_types::text;

#[derive(Clone, Copy, Debug)]
pub struct DiffLimits {
    /// A side with more bytes is not compared.
    pub file: usize,
    /// Bytes of the diffs of all files together.
    pub all: usize,
}

/// The old or the new content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffSide {
    /// The file does not exist.
    Absent,
    Bytes(Vec<u8>),
    /// Something else, described in a few words.
    Description(String),
}

/// How long two texts are compared. After that, the rest counts as rewritten.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// The diff of one file. `room` is the number of bytes that are left for all files.
pub fn unified_diff(
    name: &str,
    old: &DiffSide,
    new: &DiffSide,
    bounds: DiffLimits,
    room: &mut usize,
) -> String {
    let name = escape_hidden_line(name);
    let text = match (text(old, bounds), text(new, bounds)) {
        (Ok(before), Ok(after)) => {
            let deadline = Instant::now() + DIFF_TIMEOUT;
            let hunks = line_diff::unified_diff(before, after, 3, Some(deadline));
            let from = label(old, "a", &name);
            let to = label(new, "b", &name);
            match hunks.as_str() {
                "" => hunks,
                hunks => format!("--- {from}\n+++ {to}\n{hunks}"),
            }
        }
        (before, after) => {
            format!("{name}: {} → {}\n", description(before, old), description(after, new))
        }
    };
    let mut text = terminal_safe(text);
    if text.len() > *room {
        text.truncate(text::whole_lines(text::prefix(&text, *room)).len());
        text.push_str(&format!("… {name}: too much to show all of it\n"));
        *room = 0;
    } else {
        *room -= text.len();
    }
    text
}

/// The name of one side in the head of a diff.
fn label(side: &DiffSide, mark: &str, name: &str) -> String {
    match side {
        DiffSide::Absent => "/dev/null".to_owned(),
        _ => format!("{mark}/{name}"),
    }
}

/// Describes one side if there is no diff.
fn description(text: Result<&str, String>, side: &DiffSide) -> String {
    match (text, side) {
        (Err(words), _) => words,
        (Ok(_), DiffSide::Absent) => "nothing".to_owned(),
        (Ok(text), _) => format!("a text of {} bytes", text.len()),
    }
}

fn text(side: &DiffSide, bounds: DiffLimits) -> Result<&str, String> {
    match side {
        DiffSide::Absent => Ok(""),
        DiffSide::Description(words) => Err(words.clone()),
        DiffSide::Bytes(bytes) if bytes.len() > bounds.file => {
            Err(format!("{} bytes", bytes.len()))
        }
        DiffSide::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text),
            _ => Err(format!("{} bytes that are not text", bytes.len())),
        },
    }
}
