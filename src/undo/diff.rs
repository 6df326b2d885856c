//! What has become of files, as a unified diff that is never too long. Pure.

use std::time::Duration;

use similar::TextDiff;

use turnwright_types::effect::{plain, visible_line};

/// How much may be shown.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of one side of a file that is compared.
    pub file: usize,
    /// Bytes of all that is shown.
    pub all: usize,
}

/// One side of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// There is nothing.
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Something else, in a few words.
    Words(String),
}

/// How long two texts are compared. After that what is left counts as rewritten.
const PATIENCE: Duration = Duration::from_millis(500);

/// The diff of one file, with its name and what is left of `room`.
pub fn unified(name: &str, old: &Side, new: &Side, bounds: Bounds, room: &mut usize) -> String {
    let name = visible_line(name);
    let text = match (text(old, bounds), text(new, bounds)) {
        (Ok(before), Ok(after)) => {
            let label = |side: &Side, mark: &str| match side {
                Side::Nothing => "/dev/null".to_owned(),
                _ => format!("{mark}/{name}"),
            };
            let mut config = TextDiff::configure();
            let diff = config.timeout(PATIENCE).diff_lines(before, after);
            let mut unified = diff.unified_diff();
            unified.header(&label(old, "a"), &label(new, "b")).to_string()
        }
        (before, after) => {
            let words = |it: Result<&str, String>, side: &Side| match (it, side) {
                (Err(words), _) => words,
                (Ok(_), Side::Nothing) => "nothing".to_owned(),
                (Ok(text), _) => format!("a text of {} bytes", text.len()),
            };
            format!("{name}: {} → {}\n", words(before, old), words(after, new))
        }
    };
    let mut text = plain(text);
    if text.len() > *room {
        let end = (0..=*room).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
        let end = text[..end].rfind('\n').map_or(0, |it| it + 1);
        text.truncate(end);
        text.push_str(&format!("… {name}: too much to show all of it\n"));
        *room = 0;
    } else {
        *room -= text.len();
    }
    text
}

fn text(side: &Side, bounds: Bounds) -> Result<&str, String> {
    match side {
        Side::Nothing => Ok(""),
        Side::Words(words) => Err(words.clone()),
        Side::Bytes(bytes) if bytes.len() > bounds.file => Err(format!("{} bytes", bytes.len())),
        Side::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text),
            _ => Err(format!("{} bytes that are no text", bytes.len())),
        },
    }
}
