//! The protected places as they were before a command, and what to do when it has changed them all
//! the same: put back what was there, and keep what it has written where nobody runs it.

mod look;
mod restore;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::repository::{self, only_tracks};
use turnwright_policy::permission::Protected;

use look::{Entry, Look, read};

/// Paths that a report names.
const MOST_NAMED: usize = 10;

/// The protected places as they were.
#[derive(Debug)]
pub(super) struct Tripwire {
    protected: Protected,
    entries: BTreeMap<PathBuf, Entry>,
    /// Places with more in them than is looked at.
    full: Vec<PathBuf>,
}

/// What a command has done to protected places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trespass {
    /// Each path, and what was done to it.
    pub(super) restored: Vec<String>,
    /// What could not be put right, and why.
    pub(super) left: Vec<String>,
    /// Where what it had written lies now.
    pub(super) aside: Option<PathBuf>,
}

impl Tripwire {
    /// Looks at what there is. What has not changed since `last` is not read again. Not for the
    /// runtime's thread.
    pub(super) fn set(protected: &Protected, last: Option<&Tripwire>) -> Tripwire {
        let mut look = Look { reads: true, last, ..Look::default() };
        look.at_all(protected);
        Tripwire { protected: protected.clone(), entries: look.entries, full: look.full }
    }

    /// Puts right what is no more as it was, except where the user has allowed it; or only tells
    /// it. What was written goes below `aside`. `None` if nothing has changed. Not for the runtime's thread.
    pub(super) fn check(
        &self,
        allowed: &[PathBuf],
        aside: &Path,
        puts_right: bool,
    ) -> Option<Trespass> {
        let mut look = Look::default();
        // Whatever else has been put there.
        for path in self.entries.keys() {
            look.at(path);
        }
        look.at_all(&self.protected);
        let Look { entries: now, full, .. } = look;
        let is_allowed = |path: &Path| {
            allowed
                .iter()
                .any(|it| path.starts_with(it) || it.starts_with(path) && is_folder(&now, path))
        };
        let mut trespass = Trespass::default();
        // What was allowed may be a folder on the way to something that was not.
        let changed = |path: &&PathBuf| {
            !is_allowed(path) && !self.is_unknown(path) && self.is_changed(path, now.get(*path))
        };
        let mut paths: Vec<_> = self.entries.keys().chain(now.keys()).collect();
        paths.sort();
        paths.dedup();
        let paths: Vec<_> = paths.into_iter().filter(changed).collect();
        let full = full.into_iter().filter(|it| !is_allowed(it) && !self.full.contains(it));
        for place in full {
            let why = std::io::Error::other("more than can be looked at");
            trespass.note(&place, "filled", Err(why));
        }
        if paths.is_empty() {
            return (!trespass.left.is_empty()).then_some(trespass);
        }
        let mut work = restore::Work::new(aside);
        // What has appeared goes first, the deepest first, so that there is room for what was.
        for path in paths.iter().rev().filter(|it| now.contains_key(**it)) {
            let before = self.entries.get(*path);
            if matches!((before, &now[*path]), (Some(Entry::Folder), Entry::Folder)) {
                continue;
            }
            let verb = if before.is_some() { "changed" } else { "created" };
            let done = if !puts_right {
                Ok(())
            } else if before.is_some_and(|it| it.is_lost() && !is_hook(path)) {
                // Git would not work without its settings. A hook that is not there does no harm.
                Err(std::io::Error::other("there is no copy of what it was"))
            } else {
                work.put_aside(path)
            };
            trespass.note(path, verb, done);
        }
        for path in paths {
            let Some(before) = self.entries.get(path) else { continue };
            if now.contains_key(path) && before.is_lost() && !is_hook(path) {
                continue;
            }
            let done = if puts_right { restore::put_back(path, before) } else { Ok(()) };
            if !now.contains_key(path) || done.is_err() {
                trespass.note(path, "removed", done);
            }
        }
        trespass.aside = work.into_folder();
        Some(trespass)
    }

    /// What was there, without the folders.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files = self.entries.iter().filter(|it| !matches!(it.1, Entry::Folder));
        files.map(|it| it.0.clone())
    }

    /// Whether it may have been there before, unseen.
    fn is_unknown(&self, path: &Path) -> bool {
        !self.entries.contains_key(path)
            && self.full.iter().any(|it| path.starts_with(it) && path != it)
    }

    /// Whether something at a path is not what it was, in a way that counts.
    fn is_changed(&self, path: &Path, now: Option<&Entry>) -> bool {
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let before = self.entries.get(path);
        match (before, now) {
            (None, None) | (Some(Entry::Folder), Some(Entry::Folder)) => false,
            // Git runs no examples, and a new repository has them.
            (None, Some(Entry::File(..))) if name.ends_with(".sample") && is_hook(path) => false,
            // Somewhere to put things acts by nothing that is not in it.
            (None, Some(Entry::Folder)) => false,
            (None, Some(Entry::File(..))) if name == "config" && self.is_new_repository(path) => {
                path.parent()
                    .and_then(Path::parent)
                    .is_some_and(|it| repository::doubt(it).is_some())
            }
            (Some(Entry::File(old, _)), Some(Entry::File(new, _))) if old == new => false,
            (Some(Entry::File(old, Some(before))), Some(Entry::File(new, _))) => {
                let Some(after) = read(path, new.length) else { return true };
                let tracks = || {
                    let (before, after) = (str::from_utf8(before), str::from_utf8(&after));
                    name == "config"
                        && matches!((before, after), (Ok(one), Ok(other)) if only_tracks(one, other))
                };
                old.mode != new.mode || before[..] != after[..] && !tracks()
            }
            (Some(Entry::Link(one)), Some(Entry::Link(other))) => one != other,
            _ => true,
        }
    }

    fn is_new_repository(&self, config: &Path) -> bool {
        config.parent().is_some_and(|it| it.ends_with(".git") && !self.entries.contains_key(it))
    }
}

impl Trespass {
    fn note(&mut self, path: &Path, verb: &str, done: std::io::Result<()>) {
        let path = turnwright_types::effect::visible_line(&path.to_string_lossy());
        match done {
            Ok(()) => self.restored.push(format!("{verb} {path}")),
            Err(error) => self.left.push(format!("{verb} {path} ({error})")),
        }
    }

    /// The words for the model and for the user.
    pub(super) fn text(&self, puts_right: bool) -> String {
        let hint = "Others run what lies there. If that is wanted, change it with the tools for \
                    files, or call again with the path as \"escalate\"; the user is asked.";
        self.text_about("the command", hint, puts_right)
    }

    /// The same about somebody else.
    pub(super) fn text_about(&self, who: &str, hint: &str, puts_right: bool) -> String {
        let list = |all: &[String]| {
            let more = all.len().saturating_sub(MOST_NAMED);
            let named: Vec<_> = all.iter().take(MOST_NAMED).map(String::as_str).collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", named.join(", "))
        };
        let mut text = format!("[protected: {who} {}", list(&self.restored));
        if !self.restored.is_empty() {
            text.push_str(if puts_right {
                ". This was undone"
            } else {
                ". It was left so, because something that was allowed may have done it"
            });
        }
        if let Some(aside) = &self.aside {
            text.push_str(&format!("; what it wrote lies in {}", aside.display()));
        }
        if !self.left.is_empty() {
            let gap = if self.restored.is_empty() { "" } else { ". " };
            text.push_str(&format!("{gap}{}: NOT undone", list(&self.left)));
        }
        text.push_str(&format!(". {hint}]"));
        text
    }
}

fn is_folder(entries: &BTreeMap<PathBuf, Entry>, path: &Path) -> bool {
    matches!(entries.get(path), Some(Entry::Folder))
}

fn is_hooks(folder: &Path) -> bool {
    folder.ends_with("hooks") && folder.parent().is_some_and(|it| it.ends_with(".git"))
}

fn is_hook(path: &Path) -> bool {
    path.parent().is_some_and(is_hooks)
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use std::fs;

    use super::look::{LONGEST_COPY, MOST_COPIES, MOST_ENTRIES};
    use super::*;

    struct Disk {
        _folder: tempfile::TempDir,
        ws: PathBuf,
        aside: PathBuf,
    }

    impl Disk {
        fn new() -> Disk {
            let folder = tempfile::tempdir().unwrap();
            let base = fs::canonicalize(folder.path()).unwrap();
            let disk = Disk { _folder: folder, ws: base.join("ws"), aside: base.join("aside") };
            fs::create_dir(&disk.ws).unwrap();
            disk
        }

        fn protected(&self) -> Protected {
            Protected { roots: vec![self.ws.clone()], more: Vec::new() }
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.ws.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        fn repository(&self) {
            self.file(".git/HEAD", "ref: refs/heads/main\n");
            self.file(".git/config", "[core]\n\tbare = false\n");
            self.file(".git/hooks/pre-commit.sample", "#!/bin/sh\n");
            fs::create_dir_all(self.ws.join(".git/objects")).unwrap();
            fs::create_dir_all(self.ws.join(".git/refs")).unwrap();
        }

        /// What there is, with what it holds.
        fn all(&self) -> Vec<(PathBuf, Vec<u8>)> {
            let mut all = Vec::new();
            let mut folders = vec![self.ws.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    let path = entry.path();
                    let kind = entry.file_type().unwrap();
                    if kind.is_dir() {
                        all.push((path.clone(), Vec::new()));
                        folders.push(path);
                    } else if kind.is_symlink() {
                        let link = fs::read_link(&path).unwrap();
                        all.push((path, link.into_os_string().into_encoded_bytes()));
                    } else {
                        let bytes = fs::read(&path).unwrap_or_default();
                        all.push((path, bytes));
                    }
                }
            }
            all.sort();
            all
        }
    }

    #[test]
    fn what_a_command_does_to_protected_places_is_undone_and_kept_aside() {
        type Deed = fn(&Disk);
        let deeds: &[(&str, Deed)] = &[
            ("created .git/hooks/pre-commit", |it| drop(it.file(".git/hooks/pre-commit", "x"))),
            ("changed .git/config", |it| drop(it.file(".git/config", "[core]\npager = x\n"))),
            ("removed .git/config", |it| fs::remove_file(it.ws.join(".git/config")).unwrap()),
            ("removed .git/config", |it| {
                fs::rename(it.ws.join(".git"), it.ws.join("away")).unwrap();
                fs::create_dir(it.ws.join(".git")).unwrap();
            }),
            ("created .vscode/tasks.json", |it| drop(it.file(".vscode/tasks.json", "{}"))),
            ("created .husky/a/b", |it| drop(it.file(".husky/a/b", "x"))),
            ("changed .envrc", |it| drop(it.file(".envrc", "echo new"))),
            ("changed .envrc", |it| {
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(it.ws.join(".envrc"), mode).unwrap();
            }),
            ("changed .envrc", |it| {
                fs::remove_file(it.ws.join(".envrc")).unwrap();
                symlink("/etc/passwd", it.ws.join(".envrc")).unwrap();
            }),
            ("changed .envrc", |it| {
                fs::remove_file(it.ws.join(".envrc")).unwrap();
                it.file(".envrc/deep", "x");
            }),
            ("changed .github", |it| {
                fs::remove_dir_all(it.ws.join(".github")).unwrap();
                symlink("/tmp", it.ws.join(".github")).unwrap();
            }),
            ("removed .github/workflows/ci.yml", |it| {
                fs::remove_dir_all(it.ws.join(".github")).unwrap();
            }),
        ];
        for (expected, deed) in deeds {
            let disk = Disk::new();
            disk.repository();
            disk.file(".envrc", "echo old");
            disk.file(".github/workflows/ci.yml", "on: push");
            let tripwire = Tripwire::set(&disk.protected(), None);
            let before = disk.all();
            deed(&disk);
            let trespass = tripwire.check(&[], &disk.aside, true).expect(expected);
            let text = trespass.text(true);
            let (verb, path) = expected.split_once(' ').unwrap();
            let expected = format!("{verb} {}", disk.ws.join(path).display());
            assert!(text.contains(&expected), "{expected}: {text}");
            assert!(trespass.left.is_empty(), "{text}");
            let known = |it: &(PathBuf, Vec<u8>)| {
                // What lies elsewhere now was moved by the command, not by us; and an empty folder
                // is nothing that acts.
                !(it.0.starts_with(disk.ws.join("away")) || it.1.is_empty() && it.0.is_dir())
            };
            let after: Vec<_> = disk.all().into_iter().filter(known).collect();
            for entry in &after {
                assert!(before.contains(entry), "{expected}: {}", entry.0.display());
            }
            for entry in before.iter().filter(|it| !it.1.is_empty() && !it.0.ends_with("HEAD")) {
                assert!(after.contains(entry), "{expected}: {} is gone", entry.0.display());
            }
            let mode = fs::metadata(disk.ws.join(".envrc")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o644);
            assert_eq!(
                tripwire.check(&[], &disk.aside, true),
                None,
                "{expected}: not all was undone"
            );
        }
    }

    #[test]
    fn what_is_usual_trips_nothing() {
        let disk = Disk::new();
        disk.repository();
        disk.file(".envrc", "echo old");
        let tripwire = Tripwire::set(&disk.protected(), None);
        disk.file(".envrc", "echo old");
        disk.file("src/a.rs", "x");
        disk.file(".git/index", "x");
        disk.file(".git/hooks/update.sample", "x");
        disk.file(".vscode/extensions.json", "x");
        let config =
            "[core]\n\tbare = false\n[branch \"x\"]\n\tremote = .\n\tmerge = refs/heads/y\n";
        disk.file(".git/config", config);
        assert_eq!(tripwire.check(&[], &disk.aside, true), None);

        let empty = Disk::new();
        let tripwire = Tripwire::set(&empty.protected(), None);
        empty.repository();
        assert_eq!(tripwire.check(&[], &empty.aside, true), None, "a new repository");
        empty.file(".git/config", "[core]\nfsmonitor = x\n");
        assert!(tripwire.check(&[], &empty.aside, true).is_some(), "a new trap");
    }

    #[test]
    fn what_the_user_has_allowed_stays_and_the_rest_does_not() {
        let disk = Disk::new();
        disk.repository();
        let tripwire = Tripwire::set(&disk.protected(), None);
        let allowed = disk.file(".git/hooks/pre-commit", "x");
        let other = disk.file(".git/hooks/pre-push", "x");
        let trespass = tripwire.check(std::slice::from_ref(&allowed), &disk.aside, true).unwrap();
        assert_eq!(trespass.restored, [format!("created {}", other.display())]);
        assert!(allowed.exists() && !other.exists());
        let kept = fs::read_dir(trespass.aside.unwrap()).unwrap().count();
        assert_eq!(kept, 1);
    }

    #[test]
    fn more_than_can_be_kept_is_noticed_all_the_same() {
        let disk = Disk::new();
        for number in 0..MOST_COPIES + 10 {
            disk.file(&format!(".claude/{number:03}"), "x");
        }
        let long = "x".repeat(usize::try_from(LONGEST_COPY).unwrap() + 1);
        disk.file(".envrc", &long);
        let tripwire = Tripwire::set(&disk.protected(), None);
        assert_eq!(tripwire.check(&[], &disk.aside, true), None);
        disk.file(".envrc", "short");
        let trespass = tripwire.check(&[], &disk.aside, true).unwrap();
        assert_eq!(trespass.left.len(), 1, "{trespass:?}");
        assert!(disk.ws.join(".envrc").exists(), "what cannot be put back stays");
    }

    #[test]
    fn however_much_lies_elsewhere_git_is_put_right() {
        let disk = Disk::new();
        disk.repository();
        for number in 0..MOST_COPIES + 10 {
            disk.file(&format!(".claude/{number:03}"), "x");
        }
        let tripwire = Tripwire::set(&disk.protected(), None);
        let before = disk.all();
        disk.file(".git/config", "[core]\npager = x\n");
        let trespass = tripwire.check(&[], &disk.aside, true).unwrap();
        assert_eq!((trespass.left.as_slice(), disk.all()), ([].as_slice(), before));
        // A flood hides nothing but itself.
        for number in 0..MOST_ENTRIES + 10 {
            disk.file(&format!(".agents/{number}"), "");
        }
        let hook = disk.file(".git/hooks/pre-commit", "x");
        let start = disk.file(".zshrc", "x");
        let trespass = tripwire.check(&[], &disk.aside, true).unwrap();
        assert!(!hook.exists() && !start.exists());
        let left =
            [format!("filled {} (more than can be looked at)", disk.ws.join(".agents").display())];
        assert_eq!(trespass.left, left);
        // What comes into view when others go was there before.
        for number in 0..500 {
            disk.file(&format!(".agents/more-{number}"), "");
        }
        let tripwire = Tripwire::set(&disk.protected(), None);
        for entry in
            tripwire.entries.keys().filter(|it| it.parent().unwrap().ends_with(".agents")).take(5)
        {
            fs::remove_file(entry).unwrap();
        }
        let trespass = tripwire.check(&[], &disk.aside, true).unwrap();
        assert!(!trespass.text(true).contains("created"), "{trespass:?}");
    }
}
