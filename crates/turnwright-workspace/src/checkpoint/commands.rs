//! What a command has done to files: what was there before it and after it is compared, and what
//! they held before is taken from wherever it is known.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::git::{Repository, Stat};
use super::known::{Known, MOST_OF_ONE};
use super::look::{Found, in_words, look};
use super::map::{Cut, Differs, Ground, Map, Sort, sort};
use super::{Changes, lock};
use turnwright_types::effect::is_secret;
use turnwright_types::file_change::{Change, FileState};

/// How long a map may take.
const LONGEST: Duration = Duration::from_secs(2);
/// And after a cancel.
const SHORT: Duration = Duration::from_secs(1);
/// A map that took no longer is drawn anew before each command: what the user has changed since
/// the last one is none of the command's.
const CHEAP: Duration = Duration::from_millis(30);
/// Another one is used once more if it is no older than so many times what it took.
const FRESH: u32 = 5;
/// Changes of one call that are kept.
const MOST_CHANGES: usize = 5_000;
/// Bytes of theirs.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// How long they are read.
const LONGEST_READ: Duration = Duration::from_secs(2);
/// The clock of a file system is behind by up to this.
const TICK: Duration = Duration::from_millis(20);
/// Files with ignore rules.
const RULES: [&str; 2] = [".gitignore", ".ignore"];

/// What there was before a command.
#[derive(Clone, Debug)]
pub struct Before {
    map: Arc<Map>,
    /// With their indexes as they were before.
    repositories: Arc<Vec<Repository>>,
}

impl Before {
    /// We have changed this ourselves.
    pub(super) fn touched(&mut self, path: &Path) {
        Arc::make_mut(&mut self.map).touched(path);
    }
}

impl super::Checkpoint {
    /// Looks at what a command could change; `None` if that is too much. Reads the disk.
    pub fn before(&self, cancelled: &Arc<AtomicBool>) -> Option<Before> {
        let ground = self.ground()?;
        let (last, tries) = {
            let inner = lock(&self.0.inner);
            (inner.last.clone().filter(|it| is_good(&it.map)), inner.tries)
        };
        if tries == 0 {
            return None;
        }
        let repositories = ground.folders().iter().filter_map(|it| Repository::open(it)).collect();
        let repositories = Arc::new(repositories);
        let before = match last {
            Some(last) => Before { map: last.map, repositories },
            None => {
                let map = self.drawn(&ground, LONGEST, cancelled)?;
                lock(&self.0.known).copy(&map, &repositories);
                Before { map: Arc::new(map), repositories }
            }
        };
        lock(&self.0.inner).last = None;
        Some(before)
    }

    /// Finds out what has changed since. Reads the disk.
    pub fn after(&self, before: &Before, was_cancelled: bool) -> Changes {
        let limit = if was_cancelled { SHORT } else { LONGEST };
        let Some(ground) = self.ground() else { return Changes::default() };
        let Some(now) = self.drawn(&ground, limit, &Arc::default()) else {
            return Changes { is_unseen: true, ..Changes::default() };
        };
        let differs = before.map.compare(&now);
        let changes = Comparing::new(before, &lock(&self.0.known)).all(differs);
        let mut known = lock(&self.0.known);
        for change in &changes.files {
            let found = change.after.clone().map(Found::from);
            match (now.entries.get(&change.path), found) {
                (Some(stat), Some(found)) if is_kept(&found.state) => {
                    known.learn(&change.path, *stat, found);
                }
                _ => known.forget(&change.path),
            }
        }
        drop(known);
        let repositories = Arc::clone(&before.repositories);
        lock(&self.0.inner).last = Some(Before { map: Arc::new(now), repositories });
        changes
    }

    fn drawn(&self, ground: &Ground, limit: Duration, cancelled: &Arc<AtomicBool>) -> Option<Map> {
        let drawn = Map::draw(ground, limit, cancelled);
        let mut inner = lock(&self.0.inner);
        match drawn {
            Ok(map) => Some(map),
            Err(Cut::TooMany) => {
                inner.tries = 0;
                None
            }
            Err(Cut::TooLong) => {
                if limit == LONGEST && !cancelled.load(Ordering::Relaxed) {
                    inner.tries = inner.tries.saturating_sub(1);
                }
                None
            }
        }
    }
}

/// Whether there was hardly time for the user to change anything since.
fn is_good(map: &Map) -> bool {
    let age = map.at.elapsed();
    map.took > CHEAP && age.is_ok_and(|it| it <= map.took * FRESH)
}

/// Whether undo can bring this back.
pub(super) fn is_kept(state: &FileState) -> bool {
    match state {
        FileState::Absent | FileState::Link { .. } | FileState::Folder { .. } => true,
        FileState::File { is_kept, .. } => *is_kept,
        FileState::Unknown { .. } => false,
    }
}

/// A content by what stays the same when a file gets another name.
type Same = (u64, u64, (u64, u32));

fn same(stat: &Stat) -> Same {
    (stat.ino, stat.size, stat.mtime)
}

struct Comparing<'a> {
    before: &'a Before,
    known: &'a Known,
    begun: Instant,
    bytes: usize,
    /// The files that were in the map and are not as they were.
    inodes: HashSet<u64>,
    /// What is there now, by what it was called before, maybe.
    moved: HashMap<Same, Found>,
}

impl<'a> Comparing<'a> {
    fn new(before: &'a Before, known: &'a Known) -> Comparing<'a> {
        let (inodes, moved) = (HashSet::new(), HashMap::new());
        Comparing { before, known, begun: Instant::now(), bytes: 0, inodes, moved }
    }

    fn all(mut self, mut differs: Vec<Differs>) -> Changes {
        let files = differs.iter().filter_map(|it| it.before).filter(|it| sort(it) != Sort::Folder);
        self.inodes = files.map(|it| it.ino).collect();
        differs.retain(|it| !self.was_there(it));
        let is_rule = |it: &Differs| {
            it.path.file_name().is_some_and(|it| RULES.iter().any(|rule| it == *rule))
        };
        let new_rules = differs.iter().any(is_rule);
        let mut changes =
            Changes { more: differs.len().saturating_sub(MOST_CHANGES), ..Changes::default() };
        differs.truncate(MOST_CHANGES);
        let mut looked = Vec::with_capacity(differs.len());
        for it in differs {
            let after = self.look(&it);
            if let Some(stat) = it.after.filter(|it| sort(it) == Sort::File) {
                self.moved.insert(same(&stat), after.clone());
            }
            looked.push((it, after));
        }
        for (it, after) in looked {
            let (mut after, is_strange) = (after, self.is_strange(&it));
            let before = match it.before {
                None if new_rules && is_older(&it.path, self.before.map.at) => {
                    Found::unknown("was ignored before")
                }
                None if is_strange => Found::unknown("comes from where nobody has looked"),
                _ => self.content(&it, &after),
            };
            if is_strange && it.before.is_some() {
                after = Found::unknown("it comes from where nobody has looked");
            }
            if before.state == after.state {
                // Two contents that nobody has looked at need not be the same.
                if !matches!(before.state, FileState::Unknown { .. }) {
                    continue;
                }
                after = Found::unknown("is not known either");
            }
            changes.bytes.extend(before.bytes.into_iter().chain(after.bytes));
            let (before, after) = (before.state, Some(after.state));
            changes.files.push(Change { path: it.path, before, after });
        }
        changes
    }

    /// Whether something is only ignored since, or is not any more. What was not touched has not
    /// changed.
    fn was_there(&self, it: &Differs) -> bool {
        match (it.before, it.after) {
            (None, Some(after)) if sort(&after) != Sort::Folder => {
                moment(after.ctime) + TICK < self.before.map.at && !self.inodes.contains(&after.ino)
            }
            (Some(before), None) => {
                is_behind_no_link(&it.path) && super::known::now(&it.path) == Some(before)
            }
            _ => false,
        }
    }

    /// Whether a file was there before, but elsewhere, and not in the map: it may be the only one,
    /// so it must not be removed.
    fn is_strange(&self, it: &Differs) -> bool {
        let is_new = |it: &Stat| sort(it) != Sort::Folder && !self.inodes.contains(&it.ino);
        it.after.as_ref().is_some_and(is_new) && is_older(&it.path, self.before.map.at)
    }

    fn look(&mut self, it: &Differs) -> Found {
        if it.after.is_some() && self.begun.elapsed() > LONGEST_READ {
            return Found::unknown("too much has changed at once");
        }
        // Its folder may be a link by now.
        if it.after.is_none() && !is_behind_no_link(&it.path) {
            return FileState::Absent.into();
        }
        let found = look(&it.path, self.bytes < MOST_BYTES && !is_secret(&it.path));
        self.bytes += found.bytes.as_ref().map_or(0, |it| it.len());
        found
    }

    /// What there was before.
    fn content(&mut self, it: &Differs, after: &Found) -> Found {
        let Some(stat) = it.before else { return FileState::Absent.into() };
        let mode = stat.mode & 0o7777;
        if sort(&stat) == Sort::Folder {
            return FileState::Folder { mode }.into();
        }
        if let Some(found) = self.known.get(&it.path, &stat) {
            return found.clone();
        }
        if sort(&stat) == Sort::Link {
            return Found::unknown("where it pointed to was not noted");
        }
        if let Some(found) = self.of_git(&it.path, &stat, mode) {
            return found;
        }
        // Only its name, its mode or what else is not a part of it has changed.
        if it.after.is_some_and(|it| same(&it) == same(&stat)) {
            return with_mode(after, mode);
        }
        if let Some(found) = self.moved.get(&same(&stat)) {
            return with_mode(found, mode);
        }
        Found::unknown(if is_secret(&it.path) {
            "may hold secrets".to_owned()
        } else if stat.size > MOST_OF_ONE {
            in_words(stat.size)
        } else {
            "was not copied before".to_owned()
        })
    }

    fn of_git(&mut self, path: &Path, stat: &Stat, mode: u32) -> Option<Found> {
        if self.bytes >= MOST_BYTES || self.begun.elapsed() > LONGEST_READ || is_secret(path) {
            return None;
        }
        let found =
            self.before.repositories.iter().find_map(|it| it.read(&it.clean(path, stat)?))?;
        self.bytes += found.len();
        Some(Found::file(found, mode))
    }
}

fn with_mode(found: &Found, other: u32) -> Found {
    let mut found = found.clone();
    if let FileState::File { mode, .. } = &mut found.state {
        *mode = other;
    }
    found
}

fn moment((seconds, nanos): (u64, u32)) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(seconds.min(u64::from(u32::MAX) * 16), nanos)
}

fn is_behind_no_link(path: &Path) -> bool {
    let folder = path.parent();
    folder.is_some_and(|it| std::fs::canonicalize(it).is_ok_and(|real| real == it))
}

/// Whether a file was made before then, as far as the file system knows.
fn is_older(path: &PathBuf, then: SystemTime) -> bool {
    let made = std::fs::symlink_metadata(path).and_then(|it| it.created());
    made.is_ok_and(|it| it + TICK < then)
}
