//! What turns have made of files, as diffs. For a thread that may wait.

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

use super::undo::short;
use turnwright_workspace::files::Roots;
use turnwright_types::ids::SessionId;
use turnwright_store::{StoreError, read, versions};
use turnwright_types::file_change::FileState;
use crate::undo::{Bounds, Side, fold, same, state, unified};

/// Of which turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The last that has changed files.
    Last,
    /// That one.
    Turn(u64),
    /// All of the session.
    All,
}

/// What turns have changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Each with its words.
    pub turns: Vec<(u64, String)>,
    /// The files, by name.
    pub files: Vec<Changed>,
}

/// What has become of one file.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Absolute.
    pub path: PathBuf,
    /// What was there.
    pub before: FileState,
    /// What is there, or was after the turn.
    pub after: FileState,
    /// The difference.
    pub diff: String,
}

/// Looks them up.
///
/// # Errors
/// When the store cannot be read.
pub fn changes(
    connection: &Connection,
    session: &SessionId,
    what: What,
    roots: &Roots,
    bounds: Bounds,
) -> Result<Changes, StoreError> {
    let key = read::key(connection, session)?;
    let mut turns = versions::turns(connection, key)?;
    turns.retain(|it| it.has_files);
    match what {
        What::Last => drop(turns.drain(..turns.len().saturating_sub(1))),
        What::Turn(number) => turns.retain(|it| it.number == number),
        What::All => {}
    }
    let numbers: Vec<_> = turns.iter().map(|it| it.number).collect();
    let (mut files, mut room) = (Vec::new(), bounds.all);
    for folded in fold(&versions::versions(connection, key, &numbers)?) {
        let after = folded.after.unwrap_or_else(|| state(&folded.path));
        let old = side(connection, &folded.before, None, bounds)?;
        let new = side(connection, &after, Some(&folded.path), bounds)?;
        let mut diff = if room == 0 {
            format!("… {}\n", short(roots, &folded.path))
        } else {
            unified(&short(roots, &folded.path), &old, &new, bounds, &mut room)
        };
        if let (FileState::File { mode: was, .. }, FileState::File { mode, .. }) =
            (&folded.before, &after)
            && was != mode
        {
            diff.push_str(&format!("{}: mode {was:o} → {mode:o}\n", short(roots, &folded.path)));
        }
        files.push(Changed { path: folded.path, before: folded.before, after, diff });
    }
    Ok(Changes { turns: turns.into_iter().map(|it| (it.number, it.words)).collect(), files })
}

/// What is shown of one side: the bytes as they are kept, or as they still lie on the disk.
fn side(
    connection: &Connection,
    what: &FileState,
    path: Option<&PathBuf>,
    bounds: Bounds,
) -> Result<Side, StoreError> {
    Ok(match what {
        FileState::Absent => Side::Nothing,
        FileState::Folder { .. } => Side::Words("a folder".to_owned()),
        FileState::Link { target } => Side::Words(format!("a link to {}", target.display())),
        FileState::Unknown { why } => Side::Words(format!("unknown ({why})")),
        FileState::File { size, .. } if *size > bounds.file as u64 => {
            Side::Words(format!("{size} bytes"))
        }
        FileState::File { hash, size, .. } => match read::bytes(connection, hash)? {
            Some(bytes) => Side::Bytes(bytes),
            None => match path.filter(|it| same(&state(it), what)).map(fs::read) {
                Some(Ok(bytes)) => Side::Bytes(bytes),
                _ => Side::Words(format!("{size} bytes that were not kept")),
            },
        },
    })
}
