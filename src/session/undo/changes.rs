//! Reads the file changes of turns as diffs. Blocks.

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

use super::report::uncovered_turns;
use super::short_path;
use crate::undo::{DiffLimits, DiffSide, file_state, is_same_state, net_changes, unified_diff};
use turnwright_store::{StoreError, file_versions, read};
use turnwright_types::file_change::FileState;
use turnwright_types::ids::SessionId;
use turnwright_workspace::files::Roots;

/// The turns whose changes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeScope {
    /// The last turn that has changed files.
    Last,
    /// The turn with this number.
    Turn(u64),
    /// All turns of the session.
    All,
}

/// The file changes of some turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnChanges {
    /// The turns, each with the beginning of its prompt.
    pub turns: Vec<(u64, String)>,
    /// The files, sorted by path.
    pub files: Vec<ChangedFile>,
    /// The list, for people, of the turns with commands whose changes are not known.
    pub uncovered: String,
}

#[derive(Clone, Debug)]
pub(crate) struct ChangedFile {
    /// The absolute path.
    pub path: PathBuf,
    /// The state before the turns.
    pub before: FileState,
    /// The current state, or the state after the turns.
    pub after: FileState,
    /// The unified diff.
    pub diff: String,
}

/// Reads the changes of these turns.
pub(crate) fn turn_changes(
    connection: &Connection,
    session: &SessionId,
    what: ChangeScope,
    roots: &Roots,
    bounds: DiffLimits,
) -> Result<TurnChanges, StoreError> {
    let key = read::session_key(connection, session)?;
    let mut turns = file_versions::undoable_turns(connection, key)?;
    match what {
        ChangeScope::Last => {
            let last = turns.iter().rposition(|turn| turn.has_file_changes).unwrap_or_default();
            turns.drain(..last);
        }
        ChangeScope::Turn(number) => turns.retain(|turn| turn.number == number),
        ChangeScope::All => {}
    }
    let uncovered = uncovered_turns(turns.iter());
    turns.retain(|turn| turn.has_file_changes);
    let numbers: Vec<_> = turns.iter().map(|turn| turn.number).collect();
    let mut files = Vec::new();
    let mut room = bounds.all;
    for folded in net_changes(&file_versions::file_versions(connection, key, &numbers)?) {
        let after = folded.after.unwrap_or_else(|| file_state(&folded.path));
        let old = side(connection, &folded.before, None, bounds)?;
        let new = side(connection, &after, Some(&folded.path), bounds)?;
        let mut diff = if room == 0 {
            format!("… {}\n", short_path(roots, &folded.path))
        } else {
            unified_diff(&short_path(roots, &folded.path), &old, &new, bounds, &mut room)
        };
        if let (FileState::File { mode: was, .. }, FileState::File { mode, .. }) =
            (&folded.before, &after)
            && was != mode
        {
            diff.push_str(&format!(
                "{}: mode {was:o} → {mode:o}\n",
                short_path(roots, &folded.path)
            ));
        }
        files.push(ChangedFile { path: folded.path, before: folded.before, after, diff });
    }
    Ok(TurnChanges {
        turns: turns.into_iter().map(|turn| (turn.number, turn.prompt_excerpt)).collect(),
        files,
        uncovered,
    })
}

/// Returns one side as the diff shows it: the stored content, or the content on the disk if it is still
/// the same.
fn side(
    connection: &Connection,
    what: &FileState,
    path: Option<&PathBuf>,
    bounds: DiffLimits,
) -> Result<DiffSide, StoreError> {
    Ok(match what {
        FileState::Absent => DiffSide::Absent,
        FileState::Folder { .. } => DiffSide::Description("a folder".to_owned()),
        FileState::Link { target } => {
            DiffSide::Description(format!("a link to {}", target.display()))
        }
        FileState::Unknown { why } => DiffSide::Description(format!("unknown ({why})")),
        FileState::File { size, .. } if *size > bounds.file as u64 => {
            DiffSide::Description(format!("{size} bytes"))
        }
        FileState::File { hash, size, .. } => match read::blob_by_hash(connection, hash)? {
            Some(bytes) => DiffSide::Bytes(bytes),
            None => {
                match path.filter(|path| is_same_state(&file_state(path), what)).map(fs::read) {
                    Some(Ok(bytes)) => DiffSide::Bytes(bytes),
                    _ => DiffSide::Description(format!("{size} bytes (not stored)")),
                }
            }
        },
    })
}
