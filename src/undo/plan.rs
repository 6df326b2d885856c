//! What turns have done to files, and what is there now → what is to be done about each. Pure.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use turnwright_types::file_change::FileState;
use turnwright_store::versions::Version;

/// Bytes of one file that are kept so that an undo can be undone. Nothing larger is replaced or
/// removed: there may be no other copy.
pub const MOST_KEPT: u64 = 10 * 1024 * 1024;

/// All that some turns have done to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// Absolute.
    pub path: PathBuf,
    /// What was there before the first change.
    pub before: FileState,
    /// What was there after the last one, if that is known.
    pub after: Option<FileState>,
    /// Somebody else has changed it in between: to go back would lose that.
    pub is_broken: bool,
}

/// What is to be done about one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Absolute.
    pub path: PathBuf,
    /// What is there now.
    pub now: FileState,
    /// What is to be done.
    pub action: Action,
}

/// What is to be done about a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this of it.
    Restore {
        /// What was there.
        to: FileState,
    },
    /// Nothing: it is as it was.
    Already,
    /// Nothing: somebody else has changed it.
    Conflict {
        /// For people.
        why: String,
    },
    /// Nothing can be done.
    Lost {
        /// For people.
        why: String,
    },
}

/// Whether that is the same, but for what is kept of it.
pub fn same(one: &FileState, other: &FileState) -> bool {
    match (one, other) {
        (
            FileState::File { hash, mode, .. },
            FileState::File { hash: other_hash, mode: other_mode, .. },
        ) => hash == other_hash && mode == other_mode,
        // Two things that nobody has seen need not be the same.
        (FileState::Unknown { .. }, _) => false,
        (one, other) => one == other,
    }
}

/// What changes, in order, come to for each path. What has come to nothing is left out.
pub fn fold(versions: &[Version]) -> Vec<Folded> {
    let mut all: BTreeMap<&PathBuf, Folded> = BTreeMap::new();
    for Version { change, .. } in versions {
        let path = &change.path;
        let Some(known) = all.get_mut(path) else {
            let folded = Folded {
                path: path.clone(),
                before: change.before.clone(),
                after: change.after.clone(),
                is_broken: false,
            };
            all.insert(path, folded);
            continue;
        };
        let follows = known.after.as_ref().is_some_and(|it| same(it, &change.before));
        // Whoever was there in between has put it back.
        let starts_anew = same(&known.before, &change.before);
        known.is_broken |= !follows && !starts_anew;
        known.after.clone_from(&change.after);
    }
    // What somebody else has done in between is not nothing.
    let is_change = |it: &Folded| {
        it.is_broken || it.after.as_ref().is_none_or(|after| !same(&it.before, after))
    };
    all.into_values().filter(is_change).collect()
}

/// What is to be done so that all is as it was before. `now` tells what is there, `is_kept` whether
/// bytes with that hash are to be had.
///
/// # Errors
/// When that cannot be told.
pub fn plan<E>(
    folded: Vec<Folded>,
    mut now: impl FnMut(&std::path::Path) -> FileState,
    mut is_kept: impl FnMut(&str) -> Result<bool, E>,
) -> Result<Vec<Step>, E> {
    let all: Vec<_> = folded.into_iter().map(|it| (now(&it.path), it)).collect();
    // What goes is kept before it goes: it may be what another path has held.
    let going: HashSet<String> = all.iter().filter_map(|(now, it)| going(it, now)).collect();
    let mut is_kept = |hash: &str| Ok(going.contains(hash) || is_kept(hash)?);
    let step = |(now, it): (FileState, Folded)| {
        let path = it.path.clone();
        let action = action(it, &now, &mut is_kept)?;
        Ok(Step { path, now, action })
    };
    let steps = all.into_iter().map(step).collect::<Result<Vec<_>, E>>()?;
    Ok(within_bounds(steps))
}

/// Nothing is put into the place of what stays as it is: a file that is to come back below it would
/// make a folder of it. The steps are sorted, so what holds others comes before them.
fn within_bounds(mut steps: Vec<Step>) -> Vec<Step> {
    let mut kept: HashSet<PathBuf> = HashSet::new();
    for step in &mut steps {
        let is_below = step.path.ancestors().skip(1).any(|it| kept.contains(it));
        if is_below && matches!(step.action, Action::Restore { .. }) {
            let why = "what is in the place of its folder was left alone".to_owned();
            step.action = Action::Conflict { why };
        }
        let is_left = matches!(step.action, Action::Conflict { .. } | Action::Lost { .. });
        if is_left && !matches!(step.now, FileState::Folder { .. }) {
            kept.insert(step.path.clone());
        }
    }
    steps
}

/// The hash of a file that makes place for something else.
fn going(folded: &Folded, now: &FileState) -> Option<String> {
    let is_ours = folded.after.as_ref().is_some_and(|it| same(it, now)) && !folded.is_broken;
    // It goes for sure: nothing has to be there for what takes its place.
    let goes = !matches!(folded.before, FileState::File { .. } | FileState::Unknown { .. });
    match now {
        FileState::File { hash, size, .. } if is_ours && goes && *size <= MOST_KEPT => {
            Some(hash.clone())
        }
        _ => None,
    }
}

fn action<E>(
    folded: Folded,
    now: &FileState,
    is_kept: &mut impl FnMut(&str) -> Result<bool, E>,
) -> Result<Action, E> {
    let Folded { before: to, after, is_broken, .. } = folded;
    let conflict = |why: &str| Ok(Action::Conflict { why: why.to_owned() });
    if is_broken {
        return conflict("somebody else has changed it between these changes");
    }
    if same(&to, now) {
        return Ok(Action::Already);
    }
    let Some(after) = after else {
        return conflict("what was to change it was cut off, so nobody knows who has changed it");
    };
    if let FileState::Unknown { why } = after {
        let why = format!("what the turn has left there is not known: {why}");
        return Ok(Action::Lost { why });
    }
    if !same(now, &after) {
        return Ok(Action::Conflict { why: changed_since(&after, now) });
    }
    if let FileState::File { hash, size, .. } = now
        && *size > MOST_KEPT
        && !has_hash(&to, hash)
        && !is_kept(hash)?
    {
        let why = "what is there now is too large to be kept, so it stays".to_owned();
        return Ok(Action::Lost { why });
    }
    match &to {
        FileState::Unknown { why } => Ok(Action::Lost { why: why.clone() }),
        FileState::File { hash, .. } if !has_hash(now, hash) && !is_kept(hash)? => {
            Ok(Action::Lost { why: "its bytes were not kept".to_owned() })
        }
        _ => Ok(Action::Restore { to }),
    }
}

fn has_hash(state: &FileState, expected: &str) -> bool {
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
