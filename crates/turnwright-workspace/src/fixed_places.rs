//! Tells which places no command can have changed, so that programs and settings there are still the user's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::real_path::parts_reversed;

/// A path through more links than this leads nowhere.
const MAX_LINKS: usize = 40;

/// The places, as real paths, that commands of any session have been able to write since this process was started. What
/// a command leaves there outlasts it, so no place is ever taken off the list.
// Held only to access a short list.
#[derive(Debug, Default)]
pub struct OpenedPlaces(Mutex<Vec<PathBuf>>);

impl OpenedPlaces {
    /// Adds places. Must be called before a program that may write there is started.
    pub fn add(&self, places: impl IntoIterator<Item = PathBuf>) {
        let mut known = self.0.lock();
        for place in places {
            if !known.iter().any(|outer| place.starts_with(outer)) {
                known.retain(|inner| !inner.starts_with(&place));
                known.push(place);
            }
        }
    }

    /// Returns all places that have not been added so far.
    pub fn fixed_places(&self) -> FixedPlaces {
        FixedPlaces::new(self.0.lock().clone())
    }
}

/// Tells which places no command can have written.
#[derive(Debug, Default)]
pub struct FixedPlaces {
    writable: Vec<PathBuf>,
    /// The ids of what is at these places, looked up when they are first needed: on some file systems, and through some
    /// mounts, a place has several spellings.
    writable_ids: OnceLock<Vec<FileId>>,
}

/// The device and inode of a file.
type FileId = (u64, u64);

impl FixedPlaces {
    /// Takes the places that commands can write, as real paths.
    pub fn new(writable: Vec<PathBuf>) -> FixedPlaces {
        FixedPlaces { writable, writable_ids: OnceLock::new() }
    }

    /// Returns the target of a path if no command can change a step of the way to it, and if every program is led the
    /// same way, unlike through `/proc`.
    pub fn leads_to(&self, path: &Path) -> Option<PathBuf> {
        self.end_of(path).filter(|place| place.exists())
    }

    /// Returns true if no command can change a step of the way to a path, nor create anything there.
    pub fn is_fixed(&self, path: &Path) -> bool {
        self.end_of(path).is_some()
    }

    fn end_of(&self, path: &Path) -> Option<PathBuf> {
        let mut place = PathBuf::new();
        let mut links_left = MAX_LINKS;
        let mut remaining = parts_reversed(path);
        if !path.is_absolute() {
            return None;
        }
        while let Some(part) = remaining.pop() {
            if part == ".." {
                place.pop();
                continue;
            }
            place.push(&part);
            if self.may_change(&place) || self.is_other_name_of_writable(&place) {
                return None;
            }
            if let Ok(target) = fs::read_link(&place) {
                links_left = links_left.checked_sub(1)?;
                place.pop();
                remaining.extend(parts_reversed(&target));
            }
        }
        Some(place)
    }

    /// Returns true if commands may write what is at a path under another spelling of it.
    fn is_other_name_of_writable(&self, place: &Path) -> bool {
        let ids = self
            .writable_ids
            .get_or_init(|| self.writable.iter().filter_map(|place| id_of(place)).collect());
        id_of(place).is_some_and(|id| ids.contains(&id))
    }

    /// Returns true if commands may write at a real path.
    fn may_change(&self, place: &Path) -> bool {
        let is_of_process = ["/proc", "/dev"].iter().any(|folder| place.starts_with(folder));
        is_of_process || self.writable.iter().any(|folder| place.starts_with(folder))
    }
}

/// Looks up what is at a path, without following a link.
#[cfg(unix)]
fn id_of(place: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::symlink_metadata(place).ok()?;
    Some((found.dev(), found.ino()))
}

/// Returns `None`, so that only the spelling counts.
#[cfg(not(unix))]
fn id_of(_: &Path) -> Option<FileId> {
    None
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::real_path;

    #[test]
    fn a_way_that_commands_can_change_at_any_step_leads_nowhere() {
        let temp = tempfile::tempdir().unwrap();
        let top = real_path(temp.path()).unwrap();
        let [fixed, project] = ["fixed", "project"].map(|name| {
            fs::create_dir(top.join(name)).unwrap();
            fs::write(top.join(name).join("program"), "").unwrap();
            top.join(name)
        });
        symlink(&fixed, project.join("back")).unwrap();
        symlink(&project, fixed.join("to-project")).unwrap();
        symlink("program", fixed.join("alias")).unwrap();
        symlink("loop", fixed.join("loop")).unwrap();
        let places = FixedPlaces::new(vec![project.clone()]);
        for (path, target) in [
            ("fixed/program", Some("fixed/program")),
            ("fixed/alias", Some("fixed/program")),
            ("fixed/../fixed/./program", Some("fixed/program")),
            ("project/program", None),
            // It ends outside, and the link can be changed.
            ("project/back/program", None),
            ("fixed/to-project/program", None),
            ("fixed/to-project/back/program", None),
            ("fixed/loop", None),
            ("fixed/missing", None),
        ] {
            let found = places.leads_to(&top.join(path));
            assert_eq!(found, target.map(|target| top.join(target)), "{path}");
        }
        for (path, expected) in [
            ("fixed/missing/too", true),
            ("project/missing", false),
            ("fixed/to-project/missing", false),
        ] {
            assert_eq!(places.is_fixed(&top.join(path)), expected, "{path}");
        }
        assert_eq!(places.leads_to(Path::new("fixed/program")), None);
        assert!(!places.is_fixed(Path::new("/proc/self/cwd")));
    }

    #[test]
    fn a_place_that_commands_can_write_counts_under_each_of_its_names() {
        let temp = tempfile::tempdir().unwrap();
        let top = real_path(temp.path()).unwrap();
        fs::write(top.join("opened"), "").unwrap();
        fs::write(top.join("other"), "").unwrap();
        // As a file system that ignores case has one for each spelling.
        fs::hard_link(top.join("opened"), top.join("Opened-Too")).unwrap();
        let places = FixedPlaces::new(vec![top.join("opened"), top.join("missing")]);
        for (name, expected) in [("opened", false), ("Opened-Too", false), ("other", true)] {
            assert_eq!(places.is_fixed(&top.join(name)), expected, "{name}");
        }
    }

    #[test]
    fn a_place_that_was_opened_once_never_counts_as_fixed_again() {
        let opened = OpenedPlaces::default();
        let is_fixed = |path: &str| opened.fixed_places().is_fixed(Path::new(path));
        assert!(is_fixed("/no-such-home/bin/gpg"));
        opened.add(["/no-such-home/bin/gpg".into(), "/no-such-home/bin".into()]);
        opened.add(["/no-such-home/bin/x".into()]);
        assert_eq!(*opened.0.lock(), [PathBuf::from("/no-such-home/bin")]);
        assert!(!is_fixed("/no-such-home/bin/gpg") && is_fixed("/no-such-home/.gnupg"));
    }
}
