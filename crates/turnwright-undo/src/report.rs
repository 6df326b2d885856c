//! Reports the file changes of turns to people: the changes as diffs, and the result of an undo with the files that
//! were restored or left alone, and why. Blocks where it reads files.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::apply::{NOT_EMPTY, RestoreResult, file_state};
use crate::diff::{DiffLimits, DiffSide, unified_diff};
use crate::plan::{UndoAction, UndoPlan, is_same_state, net_changes};
use turnwright_store::file_versions::{self, UndoableTurn};
use turnwright_store::{StoreError, read};
use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden, escape_hidden_line};
use turnwright_types::file_change::FileState;
use turnwright_types::ids::SessionId;
use turnwright_types::text;
use turnwright_workspace::files::Roots;

/// The most files of each kind that are listed.
const MAX_NAMED_FILES: usize = 50;
/// The most turns that are named because some of their changes are not known.
const MAX_NAMED_TURNS: usize = 10;

/// The result for each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoReport {
    /// The turns, each with the beginning of its prompt.
    pub turns: Vec<(u64, String)>,
    /// True if the turns were redone.
    pub is_redo: bool,
    /// Files that were restored.
    pub restored: Vec<PathBuf>,
    /// Files that were removed, because they were not there before.
    pub removed: Vec<PathBuf>,
    /// Files that were already as they should be.
    pub already: Vec<PathBuf>,
    /// Files that were changed since the turn, and folders in which something else lies.
    pub conflicts: Vec<(PathBuf, String)>,
    /// Files whose content is no longer available, and why.
    pub lost: Vec<(PathBuf, String)>,
    /// Files that could not be restored, and why.
    pub failed: Vec<(PathBuf, String)>,
    /// The list of the turns with commands whose changes are not known.
    pub uncovered: String,
}

impl UndoReport {
    pub(crate) fn new(planned: UndoPlan, outcomes: Vec<RestoreResult>) -> UndoReport {
        let UndoPlan { turns, is_redo, steps, uncovered } = planned;
        let mut report = UndoReport { turns, is_redo, uncovered, ..UndoReport::default() };
        for step in steps {
            match step.action {
                UndoAction::AlreadyRestored => report.already.push(step.path),
                UndoAction::Conflict(why) => report.conflicts.push((step.path, why)),
                UndoAction::Impossible(why) => report.lost.push((step.path, why)),
                UndoAction::Restore(_) => {}
            }
        }
        for one in outcomes {
            match one.result {
                Ok(()) if one.to == FileState::Absent => report.removed.push(one.path),
                Ok(()) => report.restored.push(one.path),
                // As a failure, this would block the undo of earlier turns each time.
                Err(why) if why == NOT_EMPTY => report.conflicts.push((one.path, why)),
                Err(why) => report.failed.push((one.path, why)),
            }
        }
        report
    }

    /// Makes the report of a plan as if it had succeeded.
    pub fn dry_run(planned: UndoPlan) -> UndoReport {
        let outcomes = planned.steps.iter().filter_map(RestoreResult::of).collect();
        UndoReport::new(planned, outcomes)
    }

    /// Returns true if every file is as it should be.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.lost.is_empty() && self.failed.is_empty()
    }

    /// The report as Markdown.
    pub fn text(&self, roots: &Roots) -> String {
        let verb = if self.is_redo { "Redone" } else { "Undone" };
        let is_nothing = self.restored.is_empty() && self.removed.is_empty() && !self.is_complete();
        let head = if is_nothing { "Nothing could be restored of" } else { verb };
        let mut text = format!("{head}: {}.\n", turn_list(&self.turns));
        for (title, files) in [
            ("Restored", &without_reasons(&self.restored)),
            ("Removed", &without_reasons(&self.removed)),
            ("Already as it was", &without_reasons(&self.already)),
            ("Conflicts, left untouched", &self.conflicts),
            ("Cannot be restored", &self.lost),
            ("Not restored", &self.failed),
        ] {
            append_files(&mut text, title, files, roots);
        }
        if !self.failed.is_empty() {
            let (again, back) = if self.is_redo { ("redo", "undo") } else { ("undo", "redo") };
            text.push_str(&format!(
                "\nRepeat `/{again}` for the files that were not restored, or `/{back}` to take back \
                 what was.\n"
            ));
        }
        text + &self.uncovered
    }
}

fn without_reasons(paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
    paths.iter().map(|path| (path.clone(), String::new())).collect()
}

/// Lists the turns with commands whose changes are not known, the newest first.
pub(crate) fn uncovered_turns<'a>(
    turns: impl DoubleEndedIterator<Item = &'a UndoableTurn>,
) -> String {
    let entries = turns.rev().filter_map(|turn| {
        let why = turn.uncovered.as_ref()?;
        let words = one_line_excerpt(&turn.prompt_excerpt);
        Some(format!("* turn {} ({words}) – {why}\n", turn.number))
    });
    let lines: String = entries.take(MAX_NAMED_TURNS).collect();
    match lines.as_str() {
        "" => lines,
        lines => format!("\nNot covered is what commands have changed in:\n\n{lines}"),
    }
}

/// The turns by number and prompt.
pub fn turn_list(turns: &[(u64, String)]) -> String {
    let named: Vec<_> = turns
        .iter()
        .map(|(number, words)| format!("turn {number} ({})", one_line_excerpt(words)))
        .collect();
    named.join(", ")
}

fn append_files(text: &mut String, title: &str, files: &[(PathBuf, String)], roots: &Roots) {
    if files.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title} ({}):\n\n", files.len()));
    for (path, why) in files.iter().take(MAX_NAMED_FILES) {
        let why =
            if why.is_empty() { String::new() } else { format!(" – {}", escape_hidden(why)) };
        text.push_str(&format!("* `{}`{why}\n", short_path(roots, path)));
    }
    if files.len() > MAX_NAMED_FILES {
        text.push_str(&format!("* and {} more\n", files.len() - MAX_NAMED_FILES));
    }
}

/// The turns whose changes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeScope {
    /// The last turn that has changed files.
    Last,
    /// The turn with this number.
    Turn(u64),
    /// All turns of the session.
    All,
}

/// The file changes of some turns.
#[derive(Clone, Debug, Default)]
pub struct TurnChanges {
    /// The turns, each with the beginning of its prompt.
    pub turns: Vec<(u64, String)>,
    /// The files, sorted by path.
    pub files: Vec<ChangedFile>,
    /// The list, for people, of the turns with commands whose changes are not known.
    pub uncovered: String,
}

#[derive(Clone, Debug)]
pub struct ChangedFile {
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
pub fn turn_changes(
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
    for folded in net_changes(file_versions::file_versions(connection, key, &numbers)?) {
        let after = folded.after.unwrap_or_else(|| file_state(&folded.path));
        let old = side(connection, &folded.before, None, bounds)?;
        let new = side(connection, &after, Some(&folded.path), bounds)?;
        let name = short_path(roots, &folded.path);
        let mut diff = if room == 0 {
            format!("… {name}\n")
        } else {
            unified_diff(&name, &old, &new, bounds, &mut room)
        };
        if let (FileState::File { mode: was, .. }, FileState::File { mode, .. }) =
            (&folded.before, &after)
            && was != mode
        {
            diff.push_str(&format!("{name}: mode {was:o} → {mode:o}\n"));
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

/// The path as the user sees it.
pub(crate) fn short_path(roots: &Roots, path: &Path) -> String {
    roots.display_path(&ResolvedPath { path: path.to_path_buf(), scope: PathScope::Workspace })
}

/// The beginning of a prompt as one line.
pub fn one_line_excerpt(words: &str) -> String {
    text::clip(escape_hidden_line(&text::one_line(words)), 60)
}
