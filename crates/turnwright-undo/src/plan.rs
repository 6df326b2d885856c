//! Determines which turns can be undone and which can be redone, and plans an undo: the changes of turns and the
//! current state of the files → what to do about each path. Pure.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use turnwright_store::TurnKind;
use turnwright_store::file_versions::UndoableTurn;
use turnwright_types::file_change::{FileChange, FileState};

/// Turns that were undone and can be redone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoneTurns {
    /// The undo turns. Several if some of them were interrupted or could not restore all files.
    pub undo_turns: Vec<u64>,
    /// The turns that were undone.
    pub turns: Vec<u64>,
    /// True if some of their files were not restored, so that the turns can be undone as well.
    pub is_partial: bool,
}

/// The turns of a session that can be undone and redone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoHistory {
    /// The turns that have changed files and are not undone, in order.
    pub undoable: Vec<u64>,
    /// The undone turns that can be redone, the most recent last.
    pub undone: Vec<UndoneTurns>,
}

impl UndoHistory {
    /// Replays all turns. An undo or redo that was interrupted or had failures can be repeated, which finds
    /// the paths that are restored already, and can be taken back.
    pub fn from_turns(turns: &[UndoableTurn]) -> UndoHistory {
        let mut history = UndoHistory::default();
        for turn in turns {
            let is_partial = !turn.has_ended || turn.has_failures;
            match turn.kind {
                TurnKind::Prompt | TurnKind::Command if turn.has_file_changes => {
                    history.undoable.push(turn.number);
                    history.undone.clear();
                }
                TurnKind::Prompt | TurnKind::Command => {}
                TurnKind::Undo | TurnKind::Redo if turn.target_turns.is_empty() => {}
                TurnKind::Undo => {
                    let repeated = history.undone.pop_if(|last| last.is_partial);
                    let mut undo_turns = repeated.map_or(Vec::new(), |last| last.undo_turns);
                    undo_turns.push(turn.number);
                    if !is_partial {
                        history.undoable.retain(|turns| !turn.target_turns.contains(turns));
                    }
                    let turns = turn.target_turns.clone();
                    history.undone.push(UndoneTurns { undo_turns, turns, is_partial });
                }
                TurnKind::Redo => {
                    match history.undone.last_mut().filter(|_| is_partial) {
                        Some(last) => {
                            last.undo_turns.push(turn.number);
                            last.is_partial = true;
                        }
                        None => drop(history.undone.pop()),
                    }
                    history.undoable.extend(&turn.target_turns);
                    history.undoable.sort_unstable();
                    history.undoable.dedup();
                }
            }
        }
        history
    }

    /// The turn of the last undo that can be redone.
    pub fn last_undo(&self) -> Option<u64> {
        self.undone.last()?.undo_turns.last().copied()
    }

    /// The last `count` turns that can be undone, in order.
    pub fn last_undoable(&self, count: usize) -> &[u64] {
        &self.undoable[self.undoable.len().saturating_sub(count)..]
    }
}

/// The largest file whose content is stored so that an undo can be redone. A larger file is never
/// replaced or removed, because there may be no other copy.
pub(crate) const MAX_KEPT_BYTES: u64 = 10 * 1024 * 1024;

/// The combined change that several turns have made to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetChange {
    /// Absolute.
    pub path: PathBuf,
    /// The state before the first change.
    pub before: FileState,
    /// The state after the last change, if it is known.
    pub after: Option<FileState>,
    /// Someone else has changed the path between two of the changes, and an undo would lose that.
    pub is_interleaved: bool,
}

/// The step of an undo for one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoStep {
    /// Absolute.
    pub path: PathBuf,
    /// The current state.
    pub now: FileState,
    pub action: UndoAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoAction {
    /// Restore this earlier state.
    Restore(FileState),
    /// Nothing: the path is in the wanted state already.
    AlreadyRestored,
    /// Nothing: the path was changed by someone else. The text says how that is known, for people.
    Conflict(String),
    /// Nothing: the earlier state cannot be restored. The text says why, for people.
    Impossible(String),
}

/// The planned changes of an undo or redo.
#[derive(Clone, Debug)]
pub struct UndoPlan {
    /// The turns concerned, each with the beginning of its prompt.
    pub turns: Vec<(u64, String)>,
    /// True if the turns are redone.
    pub is_redo: bool,
    /// The action for each file.
    pub steps: Vec<UndoStep>,
    /// A list for people: the turns, since the first of these, with commands whose changes are not known.
    pub uncovered: String,
}

/// Returns true if two states are the same, ignoring whether the content is stored.
pub(crate) fn is_same_state(one: &FileState, other: &FileState) -> bool {
    is_same_file(one, other, true)
}

/// The same, but without comparing the modes of files and folders unless `compares_mode` is set.
pub fn is_same_file(one: &FileState, other: &FileState, compares_mode: bool) -> bool {
    match (one, other) {
        (
            FileState::File { hash, mode, .. },
            FileState::File { hash: other_hash, mode: other_mode, .. },
        ) => hash == other_hash && (!compares_mode || mode == other_mode),
        (FileState::Folder { mode }, FileState::Folder { mode: other }) => {
            !compares_mode || mode == other
        }
        // Two unknown states are not assumed to be equal.
        (FileState::Unknown { .. }, _) => false,
        (one, other) => one == other,
    }
}

/// Combines changes, given in order, into one for each path. Paths without a net change are left
/// out.
pub(crate) fn net_changes(changes: Vec<FileChange>) -> Vec<NetChange> {
    let mut all: BTreeMap<PathBuf, NetChange> = BTreeMap::new();
    for FileChange { path, before, after } in changes {
        let Some(known) = all.get_mut(&path) else {
            all.insert(path.clone(), NetChange { path, before, after, is_interleaved: false });
            continue;
        };
        let follows = known.after.as_ref().is_some_and(|known| is_same_state(known, &before));
        // Someone else has put the path back in between.
        let starts_anew = is_same_state(&known.before, &before);
        known.is_interleaved |= !follows && !starts_anew;
        known.after = after;
    }
    // A change by someone else in between must be reported as a conflict.
    let changes = all.into_values().filter(|change| {
        change.is_interleaved
            || change.after.as_ref().is_none_or(|after| !is_same_state(&change.before, after))
    });
    changes.collect()
}

/// Plans how to restore the states before the changes. `now` returns the current state of a path;
/// `is_kept` tells whether the content with a hash is stored.
///
/// # Errors
/// The error of `is_kept`.
pub(crate) fn plan_undo<E>(
    folded: Vec<NetChange>,
    mut now: impl FnMut(&Path) -> FileState,
    mut is_kept: impl FnMut(&str) -> Result<bool, E>,
) -> Result<Vec<UndoStep>, E> {
    let all: Vec<_> = folded.into_iter().map(|change| (now(&change.path), change)).collect();
    // A file that is removed is stored before, so its content is available for other paths.
    let removed: HashSet<String> =
        all.iter().filter_map(|(now, change)| removed_hash(change, now)).collect();
    let mut is_available = |hash: &str| Ok(removed.contains(hash) || is_kept(hash)?);
    let mut steps = Vec::new();
    for (now, change) in all {
        let path = change.path.clone();
        let action = action::<E>(change, &now, &mut is_available)?;
        steps.push(UndoStep { path, now, action });
    }
    let torn: Vec<_> = (0..steps.len()).filter(|at| is_torn(&steps, *at, &mut now)).collect();
    for at in torn {
        steps[at].action = UndoAction::Conflict("it would not fit the rest of its database".into());
    }
    Ok(block_below_conflicts(steps))
}

/// Returns true for a restore in a database of SQLite, as the names tell, of which not all files could be restored: a
/// log or a journal of another time damages a database, and without its log, what was written last is lost.
fn is_torn(steps: &[UndoStep], at: usize, now: &mut impl FnMut(&Path) -> FileState) -> bool {
    let path = steps[at].path.to_string_lossy();
    let ends = ["-journal", "-shm", "-wal", ""];
    let database = ends.iter().find_map(|end| path.strip_suffix(*end)).unwrap_or_default();
    matches!(steps[at].action, UndoAction::Restore(_))
        && ends.iter().any(|end| {
            let part = PathBuf::from(format!("{database}{end}"));
            match steps.binary_search_by(|step| step.path.cmp(&part)).map(|at| &steps[at].action) {
                Ok(UndoAction::Restore(_) | UndoAction::AlreadyRestored) => false,
                Ok(_) => true,
                // One that is ignored has no step. The index of a log is made anew.
                Err(_) => *end != "-shm" && matches!(now(&part), FileState::File { .. }),
            }
        })
}

/// Turns a restore below a path that is left alone into a conflict: restoring a file there would
/// replace that path by a folder. The steps are sorted, so parents come before their contents.
fn block_below_conflicts(mut steps: Vec<UndoStep>) -> Vec<UndoStep> {
    let mut kept: HashSet<PathBuf> = HashSet::new();
    for step in &mut steps {
        let is_below = step.path.ancestors().skip(1).any(|folder| kept.contains(folder));
        if is_below && matches!(step.action, UndoAction::Restore(_)) {
            step.action = UndoAction::Conflict("something else is in its folder's place".into());
        }
        let is_left = matches!(step.action, UndoAction::Conflict(_) | UndoAction::Impossible(_));
        if is_left && !matches!(step.now, FileState::Folder { .. }) {
            kept.insert(step.path.clone());
        }
    }
    steps
}

/// The hash of a file that the undo removes.
fn removed_hash(folded: &NetChange, now: &FileState) -> Option<String> {
    let is_ours = folded.after.as_ref().is_some_and(|after| is_same_state(after, now))
        && !folded.is_interleaved;
    // Its removal cannot fail for lack of the content that replaces it.
    let is_removed = !matches!(folded.before, FileState::File { .. } | FileState::Unknown { .. });
    match now {
        FileState::File { hash, size, .. } if is_ours && is_removed && *size <= MAX_KEPT_BYTES => {
            Some(hash.clone())
        }
        _ => None,
    }
}

fn action<E>(
    folded: NetChange,
    now: &FileState,
    is_kept: &mut impl FnMut(&str) -> Result<bool, E>,
) -> Result<UndoAction, E> {
    let NetChange { before: to, after, is_interleaved, .. } = folded;
    if is_interleaved {
        return Ok(UndoAction::Conflict("something else changed it between these changes".into()));
    }
    if is_same_state(&to, now) {
        return Ok(UndoAction::AlreadyRestored);
    }
    let Some(after) = after else {
        let why = "the call that changed it was interrupted, so its own change is not known";
        return Ok(UndoAction::Conflict(why.to_owned()));
    };
    if let FileState::Unknown { why } = after {
        let why = format!("the state that the turn left is not known: {why}");
        return Ok(UndoAction::Impossible(why));
    }
    if !is_same_state(now, &after) {
        return Ok(UndoAction::Conflict(changed_since(&after, now)));
    }
    if let FileState::File { hash, size, .. } = now
        && *size > MAX_KEPT_BYTES
        && !has_hash(&to, hash)
        && !is_kept(hash)?
    {
        let why = "the current file is too large to be stored, so it was left alone";
        return Ok(UndoAction::Impossible(why.to_owned()));
    }
    match &to {
        FileState::Unknown { why } => Ok(UndoAction::Impossible(why.clone())),
        FileState::File { hash, .. } if !has_hash(now, hash) && !is_kept(hash)? => {
            Ok(UndoAction::Impossible("its content was not stored".to_owned()))
        }
        _ => Ok(UndoAction::Restore(to)),
    }
}

/// Returns true for a file with this content.
pub(crate) fn has_hash(state: &FileState, expected: &str) -> bool {
    matches!(state, FileState::File { hash, .. } if hash == expected)
}

fn changed_since(after: &FileState, now: &FileState) -> String {
    match (after, now) {
        (_, FileState::Absent) => "it was removed since".to_owned(),
        (FileState::Absent, _) => "something else was put there since".to_owned(),
        (_, FileState::Unknown { why }) => format!("it cannot be looked at: {why}"),
        (FileState::File { hash, .. }, now) if has_hash(now, hash) => {
            "its mode was changed since".to_owned()
        }
        _ => "it was changed since".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(number: u64, kind: TurnKind, about: &[u64]) -> UndoableTurn {
        UndoableTurn {
            number,
            kind,
            prompt_excerpt: String::new(),
            target_turns: about.to_vec(),
            has_ended: true,
            has_file_changes: true,
            uncovered: None,
            has_failures: false,
        }
    }

    #[test]
    fn an_undo_takes_turns_away_a_redo_brings_them_back_and_new_work_ends_that() {
        use TurnKind::{Prompt, Redo, Undo};
        let mut turns = vec![turn(1, Prompt, &[]), turn(2, Prompt, &[]), turn(3, Prompt, &[])];
        turns[1].has_file_changes = false;
        assert_eq!(UndoHistory::from_turns(&turns).undoable, [1, 3]);
        assert_eq!(UndoHistory::from_turns(&turns).last_undoable(1), [3]);
        assert_eq!(UndoHistory::from_turns(&turns).last_undoable(9), [1, 3]);
        turns.push(turn(4, Undo, &[3]));
        turns.push(turn(5, Undo, &[1]));
        let undone = UndoHistory::from_turns(&turns);
        assert_eq!(undone.undoable, [0_u64; 0]);
        assert_eq!(
            undone.undone.last().unwrap(),
            &UndoneTurns { undo_turns: vec![5], turns: vec![1], is_partial: false }
        );
        turns.push(turn(6, Redo, &[1]));
        let redone = UndoHistory::from_turns(&turns);
        assert_eq!(redone.undoable, [1]);
        assert_eq!(redone.undone.last().unwrap().turns, [3]);
        turns.push(turn(7, Prompt, &[]));
        let history = UndoHistory::from_turns(&turns);
        assert_eq!((history.undoable, history.undone.len()), (vec![1, 7], 0));
    }

    #[test]
    fn a_database_and_the_files_beside_it_are_restored_only_together() {
        let file = |hash: &str| FileState::File {
            hash: hash.to_owned(),
            size: 1,
            mode: 0o644,
            is_kept: true,
        };
        let change = |path: &str, before: FileState| NetChange {
            path: path.into(),
            before,
            after: Some(file("after")),
            is_interleaved: false,
        };
        let database = change("/p/app.db", file("before"));
        let log = change("/p/app.db-wal", FileState::Absent);
        let both = &["/p/app.db", "/p/app.db-wal"][..];
        let none = &both[..0];
        // The changes, a file that is ignored or that somebody has changed since, and the files that are left alone.
        for (changes, other, expected) in [
            (vec![database.clone(), log.clone()], "", none),
            (vec![database.clone(), log.clone()], "/p/app.db", both),
            (vec![database.clone(), log.clone()], "/p/app.db-wal", both),
            (vec![database.clone(), log.clone()], "/p/app.db-shm", none),
            (vec![log], "/p/app.db", &both[1..]),
            (vec![database.clone()], "/p/app.db-wal", &both[..1]),
            (vec![database.clone()], "/p/app.db-journal", &both[..1]),
            (vec![database], "", none),
            (vec![change("/p/lab-journal", FileState::Absent)], "", none),
        ] {
            let changed: Vec<_> = changes.iter().map(|change| change.path.clone()).collect();
            let planned = plan_undo(
                changes,
                |path| {
                    if path == Path::new(other) {
                        file("since")
                    } else if changed.iter().any(|name| name == path) {
                        file("after")
                    } else {
                        FileState::Absent
                    }
                },
                |_| Ok::<_, ()>(true),
            );
            let steps = planned.unwrap();
            let left = steps.iter().filter(|step| matches!(step.action, UndoAction::Conflict(_)));
            let names: Vec<_> = left.map(|step| step.path.to_str().unwrap()).collect();
            assert_eq!(names, expected, "{other}");
        }
    }

    #[test]
    fn an_undo_that_was_interrupted_or_has_failed_can_be_repeated_and_taken_back() {
        use TurnKind::{Prompt, Redo, Undo};
        let undone = |undo_turns: &[u64], is_partial| UndoneTurns {
            undo_turns: undo_turns.to_vec(),
            turns: vec![1],
            is_partial,
        };
        for has_ended in [false, true] {
            let mut turns = vec![turn(1, Prompt, &[]), turn(2, Undo, &[1])];
            turns[1].has_ended = has_ended;
            turns[1].has_failures = has_ended;
            let history = UndoHistory::from_turns(&turns);
            assert_eq!((history.undoable, history.undone), (vec![1], vec![undone(&[2], true)]));
            turns.push(turn(3, Undo, &[1]));
            let history = UndoHistory::from_turns(&turns);
            assert_eq!((history.undoable, history.undone), (vec![], vec![undone(&[2, 3], false)]));
            turns.push(turn(4, Redo, &[1]));
            turns[3].has_failures = true;
            let history = UndoHistory::from_turns(&turns);
            assert_eq!(
                (history.undoable, history.undone),
                (vec![1], vec![undone(&[2, 3, 4], true)])
            );
            turns.push(turn(5, Redo, &[1]));
            let history = UndoHistory::from_turns(&turns);
            assert_eq!((history.undoable, history.undone), (vec![1], vec![]));
        }
    }
}
