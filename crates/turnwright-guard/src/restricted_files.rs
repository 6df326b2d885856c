//! Finds secrets, and files that rules restrict, in folders.
//!
//! * From a command they are hidden if it may read them without naming them, and nobody was asked about them. What was
//!   found in a folder is remembered until the folder changes, so that the next search looks only at folders.
//! * If a call moves, deletes or copies a folder, that is judged by its whole content, because a rule for a path does not
//!   cover files that were moved elsewhere.

use std::collections::HashMap;
use std::fs::{self, FileType};
use std::path::{Path, PathBuf};
use std::time::Duration;

use turnwright_policy::permission::{DeniedPaths, Glob, PathBases, PolicyRules, RuleAction};
use turnwright_policy::shell::{self, FileUse, Script, Word};
use turnwright_types::effect::{Effect, ResolvedPath, is_secret_folder, is_secret_path};
use turnwright_types::file_id::{FileId, file_id};
use turnwright_types::secret::linked_secret_files;
use turnwright_workspace::files::Roots;
use turnwright_workspace::search::visit_unignored;

/// The search visits at most this many files and folders.
const MAX_VISITED: usize = if cfg!(test) { 1_000 } else { 500_000 };
/// At most this many paths are hidden.
const MAX_HIDDEN: usize = if cfg!(test) { 100 } else { 4_096 };
/// The names in the longest place of credentials below a home folder.
const LONGEST_PLACE: usize = 5;
/// Programs that, without further options, read only the content of files they name.
const NAMING_PROGRAMS: &[&str] = &[
    "[", "basename", "cat", "cd", "command", "date", "dirname", "echo", "false", "head", "ls",
    "printf", "pwd", "sed", "stat", "tail", "test", "true", "wc", "which",
];

/// Programs that edit files and, given a folder, show or pack its content.
const FOLDER_READERS: &[&str] = &["gofmt", "shfmt", "tar"];

/// Returns true if a command that only reads may read files that it does not name. `named` are the files that
/// it names. Looks them up: not for the runtime's thread.
pub(crate) fn reads_unnamed_files(script: &Script, named: &[ResolvedPath]) -> bool {
    script.ambiguity.is_some()
        || !script.commands.iter().all(names_all_files)
        // Another name of a file may be the name of a secret.
        || named.iter().any(|file| file_id(&file.path).is_some_and(|(_, names)| names > 1))
}

fn names_all_files(command: &shell::SimpleCommand) -> bool {
    NAMING_PROGRAMS.contains(&command.program())
        && !command.has_unknown_args
        && !command.words.iter().any(|word| word.is_glob)
}

/// Returns true if the commands of a line that also edits files may read files that they do not name. git shows no
/// secret without a question, except when it searches.
pub(crate) fn reads_unnamed_beside_edits(script: &Script) -> bool {
    script.commands.iter().any(|command| {
        let class = shell::classify(command);
        let reads = class.is_read_only || FOLDER_READERS.contains(&command.program());
        let is_search = command.words.iter().any(|word| word.text == "grep");
        reads && !names_all_files(command) && (!class.is_git || is_search)
    })
}

/// The secret and denied paths below these folders, except those in `named`, with all their names
/// there, and true if these are all. If not, there are too many files or too many secrets. `known` has what earlier
/// searches have found. Looks files up: not for the runtime's thread.
pub(crate) fn hidden_below(
    roots: &[PathBuf],
    denied: &DeniedPaths,
    named: &[PathBuf],
    known: &mut KnownFolders,
) -> (Vec<PathBuf>, bool) {
    let (mut paths, mut is_complete) = find_secrets(roots, known, TIMESTAMP_AGE);
    is_complete &= add_unreadable(roots, denied, &mut paths);
    paths.retain(|path| !named.contains(path));
    outermost(&mut paths);
    let mut linked = linked_secret_files();
    let mut note = |path: &Path| {
        linked.extend(file_id(path).filter(|(_, names)| *names > 1).map(|(id, _)| id));
    };
    is_complete &= walk(&paths, |path, kind| {
        if kind.is_file() {
            note(path);
        }
        !is_git(path)
    });
    for path in &paths {
        note(path);
    }
    is_complete &= add_other_names(roots, &linked, &mut paths);
    is_complete &= paths.len() <= MAX_HIDDEN;
    paths.truncate(MAX_HIDDEN);
    (paths, is_complete)
}

/// The files in these folders that rules deny whose paths have to be looked up: by patterns, or by names
/// at any depth.
#[derive(Debug, Default)]
pub(crate) struct DeniedFiles {
    pub(crate) unreadable: Vec<PathBuf>,
    /// Without files that ignore rules exclude: builds write them.
    pub(crate) unwritable: Vec<PathBuf>,
    /// True if these are all.
    pub(crate) is_complete: bool,
}

/// Searches for files that rules deny, and for other names of the files from which secrets of this process come.
/// Looks files up: not for the runtime's thread.
pub(crate) fn denied_below(roots: &[PathBuf], denied: &DeniedPaths) -> DeniedFiles {
    let (reads, edits) = denied.denied_patterns();
    let mut found = DeniedFiles::default();
    found.is_complete = add_unreadable(roots, &reads, &mut found.unreadable)
        && add_other_names(roots, &linked_secret_files(), &mut found.unreadable);
    for root in roots.iter().filter(|_| !edits.is_empty()) {
        found.is_complete &= visit_unignored(root, MAX_VISITED, |path| {
            let is_denied = edits.restriction(path, true).is_some() && !path.is_symlink();
            found.unwritable.extend(is_denied.then(|| path.to_path_buf()));
        });
    }
    outermost(&mut found.unwritable);
    found.is_complete &= found.unreadable.len().max(found.unwritable.len()) <= MAX_HIDDEN;
    found
}

/// Adds the unreadable paths below these folders. Returns true if everything was visited.
fn add_unreadable(roots: &[PathBuf], denied: &DeniedPaths, paths: &mut Vec<PathBuf>) -> bool {
    denied.is_empty()
        || walk(roots, |path, kind| {
            let is_denied = denied.contains(path);
            paths.extend((is_denied && !kind.is_symlink()).then(|| path.to_path_buf()));
            !is_denied && !is_git(path)
        })
}

/// Adds all names below these folders of the files that have more than one. Returns true if everything was visited.
fn add_other_names(roots: &[PathBuf], linked: &[FileId], paths: &mut Vec<PathBuf>) -> bool {
    if linked.is_empty() {
        return true;
    }
    let is_complete = walk(roots, |path, kind| {
        if kind.is_file() && file_id(path).is_some_and(|(id, _)| linked.contains(&id)) {
            paths.push(path.to_path_buf());
        }
        !is_git(path)
    });
    outermost(paths);
    is_complete
}

/// Leaves out paths below another one of them.
pub(crate) fn outermost(paths: &mut Vec<PathBuf>) {
    paths.sort();
    paths.dedup_by(|path, outer| path.starts_with(outer));
}

fn is_git(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ".git")
}

/// Returns true if a path is secret, given that the folder above is not.
fn is_secret(path: &Path, kind: FileType) -> bool {
    let path = last_names(path);
    if kind.is_dir() { is_secret_folder(path) } else { is_secret_path(path) }
}

/// The end of a path that tells whether it is secret, given that the folder above is not.
fn last_names(path: &Path) -> &Path {
    let before = path.ancestors().nth(LONGEST_PLACE);
    before.and_then(|before| path.strip_prefix(before).ok()).unwrap_or(path)
}

/// Identifies the content of a folder: its device, its inode, and when it was modified and changed. The
/// last is set by the system whenever an entry appears, goes or is renamed.
pub(crate) type FolderStamp = (u64, u64, (i64, i64), (i64, i64));

/// A folder that changed less than this ago may change again without another time. Some file systems
/// count whole seconds.
pub(crate) const TIMESTAMP_AGE: Duration = Duration::from_secs(3);

/// The stamp of a folder that changed long enough ago.
#[cfg(unix)]
pub(crate) fn folder_stamp(folder: &Path, least_age: Duration) -> Option<FolderStamp> {
    use crate::watch::server_watch::change_time;
    use std::os::unix::fs::MetadataExt;
    let found = fs::symlink_metadata(folder).ok()?;
    let modified = (found.mtime(), found.mtime_nsec());
    let changed = (found.ctime(), found.ctime_nsec());
    let is_past = change_time(&found)?.elapsed().is_ok_and(|age| age >= least_age);
    is_past.then_some((found.dev(), found.ino(), modified, changed))
}

#[cfg(not(unix))]
pub(crate) fn folder_stamp(_: &Path, _: Duration) -> Option<FolderStamp> {
    None
}

/// Visits at most [`MAX_VISITED`] entries below these folders. `visit` returns true to visit what is below a
/// folder. Returns true if everything was visited.
fn walk(roots: &[PathBuf], mut visit: impl FnMut(&Path, FileType) -> bool) -> bool {
    let mut folders = roots.to_vec();
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            count += 1;
            if count > MAX_VISITED {
                return false;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if visit(&path, kind) && kind.is_dir() {
                folders.push(path);
            }
        }
    }
    true
}

/// At most this many folders are remembered. Each takes about 200 bytes.
const MAX_KNOWN: usize = 20_000;

/// The findings of the last search.
pub(crate) type KnownFolders = HashMap<PathBuf, KnownFolder>;

#[derive(Debug)]
pub(crate) struct KnownFolder {
    /// `None` if it must be listed again next time.
    stamp: Option<FolderStamp>,
    entry_count: usize,
    /// The folders in it that are no secrets and have to be searched.
    folders: Vec<PathBuf>,
    secrets: Vec<PathBuf>,
}

/// The secrets below these folders, and true if these are all. At most [`MAX_VISITED`] entries are visited. Folders
/// that changed less than `least_age` ago are not remembered.
fn find_secrets(
    roots: &[PathBuf],
    known: &mut KnownFolders,
    least_age: Duration,
) -> (Vec<PathBuf>, bool) {
    let mut before = std::mem::take(known);
    let mut secrets = Vec::new();
    let mut count = 0;
    let mut pending = roots.to_vec();
    while let Some(path) = pending.pop() {
        let stamp = folder_stamp(&path, least_age);
        let same = before.remove(&path).filter(|known| stamp.is_some() && stamp == known.stamp);
        let found = same.unwrap_or_else(|| list(&path, stamp));
        count += found.entry_count;
        if count > MAX_VISITED {
            return (secrets, false);
        }
        pending.extend(found.folders.iter().cloned());
        secrets.extend(found.secrets.iter().cloned());
        if found.stamp.is_some() && known.len() < MAX_KNOWN {
            known.insert(path, found);
        }
    }
    (secrets, true)
}

fn list(folder: &Path, stamp: Option<FolderStamp>) -> KnownFolder {
    let mut found = KnownFolder { stamp, entry_count: 0, folders: Vec::new(), secrets: Vec::new() };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.entry_count += 1;
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if is_secret(&path, kind) {
            found.secrets.extend((!kind.is_symlink()).then_some(path));
        } else if kind.is_dir() && entry.file_name() != ".git" {
            found.folders.push(path);
        }
    }
    found
}

/// At most this many files are named in a question. The first ones say which rules apply.
const MAX_NAMED: usize = 32;

/// Why a call whose files cannot be judged one by one does not run.
pub const TOO_MANY_FILES: &str = "It concerns so many files that those which rules deny or ask about cannot be \
                                         found among them. Nothing was done. Name parts of it.";

/// The effects on files that rules restrict at and below the paths that these effects of a file tool move or delete, and
/// true if there are more files than can be looked at. Blocks.
pub fn restricted_effects(
    effects: &[Effect],
    roots: &Roots,
    policy: &PolicyRules,
) -> (Vec<Effect>, bool) {
    let [Effect::Delete(from), rest @ ..] = effects else { return (Vec::new(), false) };
    let to = rest.iter().find_map(Effect::written).map(|target| target.path.as_path());
    let mut search = RestrictedSearch::new(roots, policy);
    search.add_below(&from.path, to, true, None);
    (search.found, search.is_incomplete)
}

/// The same for the paths that the words of a command name. Blocks.
pub(crate) fn restricted_effects_of_command(
    script: &Script,
    workdir: &Path,
    roots: &Roots,
    policy: &PolicyRules,
) -> (Vec<Effect>, bool) {
    let mut search = RestrictedSearch::new(roots, policy);
    if search.rules.is_empty() {
        return (Vec::new(), false);
    }
    for command in &script.commands {
        let Some(used) = shell::file_use(command) else { continue };
        // Where the folder is not known, the line's own is the best guess.
        let folder = workdir.join(command.folder.as_deref().unwrap_or(Path::new("")));
        search.add_use(&used, &folder.join(shell::classify(command).git_folder));
    }
    (search.found, search.is_incomplete)
}

struct RestrictedSearch<'a> {
    rules: DeniedPaths,
    roots: &'a Roots,
    /// The effects on files that rules restrict.
    found: Vec<Effect>,
    /// True if there are more files than can be looked at.
    is_incomplete: bool,
    /// True if one of the files is denied, which decides about the call.
    is_denied: bool,
}

impl RestrictedSearch<'_> {
    fn new<'a>(roots: &'a Roots, policy: &PolicyRules) -> RestrictedSearch<'a> {
        let rules = DeniedPaths::all_restricted(policy);
        RestrictedSearch { rules, roots, found: Vec::new(), is_incomplete: false, is_denied: false }
    }

    fn add_use(&mut self, used: &FileUse, folder: &Path) {
        let destination = used.destination.as_ref().map(|word| self.place(word, folder, true).0);
        for source in &used.sources {
            let (from, pattern) = self.place(source, folder, used.is_change);
            let inside = destination.as_ref().and_then(|to| match from.file_name() {
                Some(name) if pattern.is_none() && to.is_dir() => Some(to.join(name)),
                _ => None,
            });
            // Of `a/.`, and for some programs of `a/`, the content is copied.
            let is_merged = used.is_exact || source.text.ends_with(['.', '/']);
            let merged = destination.clone().filter(|_| is_merged && inside.is_some());
            for to in std::iter::once(inside.or(destination.clone())).chain(merged.map(Some)) {
                if pattern.is_none() {
                    self.add(&from, to.as_deref(), used.is_change);
                }
                if used.is_deep || pattern.is_some() {
                    self.add_below(&from, to.as_deref(), used.is_change, pattern.as_ref());
                }
            }
        }
    }

    /// The target of a word, and for a pattern the folder where it begins, with the pattern there. A change of
    /// a link does not follow it.
    fn place(&self, word: &Word, folder: &Path, is_change: bool) -> (PathBuf, Option<Glob>) {
        let named = folder.join(&word.text);
        if self.roots.leads_elsewhere(&named) {
            return (named, None);
        }
        if !word.is_glob {
            let target = if is_change {
                self.roots.resolve_entry(&named)
            } else {
                self.roots.resolve(&named)
            };
            return (target.path, None);
        }
        let literal =
            named.ancestors().find(|above| !above.to_string_lossy().contains(['*', '?', '[']));
        let start = literal.unwrap_or(folder);
        let rest = named.strip_prefix(start).unwrap_or(&named).to_string_lossy().into_owned();
        let start = self.roots.resolve(start).path;
        let name = start.to_string_lossy();
        let is_plain = !name.contains(['*', '?', '[', ']', '{', '}', '\\'])
            && !rest.contains(['{', '}', '\\']);
        let matcher = Glob::parse(&format!("/{name}/{rest}"), false).ok().filter(|_| is_plain);
        // A pattern that is not understood may match everything in its folder.
        (start, Some(matcher.unwrap_or_else(Glob::everything)))
    }

    /// Adds the content of a folder, as far as the pattern matches it.
    fn add_below(
        &mut self,
        from: &Path,
        to: Option<&Path>,
        is_change: bool,
        pattern: Option<&Glob>,
    ) {
        let is_folder = from.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        if !is_folder || self.rules.is_empty() && to.is_none() {
            return;
        }
        let bases = PathBases::default();
        let is_complete = walk(&[from.to_path_buf()], |path, _| {
            let to = to.map(|to| to.join(path.strip_prefix(from).unwrap_or(path)));
            pattern.is_some_and(|pattern| !pattern.matches(path, &bases))
                || !self.add(path, to.as_deref(), is_change)
        });
        self.is_incomplete |= !is_complete && !self.rules.is_empty();
    }

    /// Adds a path if a rule restricts it. Returns true if nothing below it needs to be looked at: nothing is
    /// stricter than a denial.
    fn add(&mut self, path: &Path, to: Option<&Path>, is_change: bool) -> bool {
        let action = self.rules.restriction(path, is_change);
        if let Some(action) = action {
            self.note(path, action, if is_change { Effect::Delete } else { Effect::Read });
        }
        if let Some((to, action)) = to.and_then(|to| Some((to, self.rules.restriction(to, true)?)))
        {
            self.note(to, action, Effect::Write);
        }
        // A file that is secret only by its name must not lose that name unseen.
        if is_change && to.is_some_and(|to| is_secret_path(path) && !is_secret_path(to)) {
            self.note(path, RuleAction::Ask, Effect::Read);
        }
        action == Some(RuleAction::Deny)
    }

    fn note(&mut self, path: &Path, action: RuleAction, effect: fn(ResolvedPath) -> Effect) {
        let is_first_denial = action == RuleAction::Deny && !self.is_denied;
        self.is_denied |= is_first_denial;
        if self.found.len() < MAX_NAMED || is_first_denial {
            self.found.push(effect(self.roots.resolve_entry(path)));
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use turnwright_types::effect::{PathScope, build_credential_paths, credential_paths};
    #[cfg(unix)]
    use turnwright_types::secret::register_secret_file;
    use turnwright_types::shell_script::ShellDialect;

    use super::*;

    #[test]
    fn secrets_below_a_folder_are_hidden_unless_named() {
        let folder = tempfile::tempdir().unwrap();
        let base = turnwright_workspace::real_path(folder.path()).unwrap();
        for name in
            ["a", ".env", "sub/prod.env", "sub/.ssh/id", "node_modules/.env", "kubeconfig/x.go"]
        {
            fs::create_dir_all(base.join(name).parent().unwrap()).unwrap();
            fs::write(base.join(name), "x").unwrap();
        }
        let hidden = |named: &[PathBuf]| {
            let roots = std::slice::from_ref(&base);
            let denied = DeniedPaths::default();
            let (mut all, is_complete) =
                hidden_below(roots, &denied, named, &mut KnownFolders::default());
            assert!(is_complete);
            all.sort();
            all
        };
        let names = [".env", "node_modules/.env", "sub/.ssh", "sub/prod.env"];
        let names = names.map(|name| base.join(name));
        assert_eq!(hidden(&[]), names);
        assert_eq!(hidden(&[base.join(".env")]), names[1..]);
        // Files below a hidden folder are hidden with it.
        let one = base.join("sub/.ssh/id");
        let other = base.join("sub/.ssh/other");
        fs::hard_link(one, &other).unwrap();
        assert_eq!(hidden(&[]), names);
        fs::remove_file(other).unwrap();
        // All names of a file that is hidden are, where files have numbers.
        if cfg!(windows) {
            return;
        }
        let other = base.join("other");
        for (secret, expected) in [("sub/prod.env", true), ("sub/.ssh/id", true), ("a", false)] {
            fs::hard_link(base.join(secret), &other).unwrap();
            assert_eq!(hidden(std::slice::from_ref(&other)).contains(&other), expected, "{secret}");
            fs::remove_file(&other).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn all_names_of_a_file_that_holds_a_secret_of_this_process_are_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let base = turnwright_workspace::real_path(folder.path()).unwrap();
        let project = base.join("project");
        fs::create_dir_all(project.join("sub")).unwrap();
        fs::write(base.join("token"), "secret").unwrap();
        fs::write(project.join("a"), "x").unwrap();
        fs::hard_link(base.join("token"), project.join("sub/notes")).unwrap();
        register_secret_file(&base.join("token"));
        let roots = std::slice::from_ref(&project);
        let found = denied_below(roots, &DeniedPaths::default());
        assert_eq!(found.unreadable, [project.join("sub/notes")], "for a command that may write");
        let (found, _) =
            hidden_below(roots, &DeniedPaths::default(), &[], &mut KnownFolders::default());
        assert_eq!(found, [project.join("sub/notes")], "for one that reads, and for a server");
    }

    #[test]
    fn the_end_of_a_path_tells_whether_it_is_a_place_of_credentials() {
        let home = Path::new("/home/of/a/user");
        for place in [credential_paths(home, &[]), build_credential_paths(home)].concat() {
            assert!(is_secret_path(last_names(&place)), "{}", place.display());
        }
    }

    #[test]
    fn a_search_that_ends_early_says_so() {
        for (others, secrets, expected) in [
            (MAX_VISITED - MAX_HIDDEN, MAX_HIDDEN, true),
            (MAX_VISITED - MAX_HIDDEN + 1, MAX_HIDDEN, false),
            (0, MAX_HIDDEN + 1, false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let base = turnwright_workspace::real_path(folder.path()).unwrap();
            let names = (0..others).map(|number| number.to_string());
            for name in names.chain((0..secrets).map(|number| format!("{number}.pem"))) {
                fs::write(base.join(name), "x").unwrap();
            }
            let roots = std::slice::from_ref(&base);
            let mut known = KnownFolders::default();
            let (_, is_complete) = hidden_below(roots, &DeniedPaths::default(), &[], &mut known);
            assert_eq!(is_complete, expected, "{others} and {secrets}");
        }
    }

    #[test]
    fn only_known_programs_that_name_their_files_read_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let one = folder.path().join("one");
        let other = folder.path().join("other");
        fs::write(&one, "x").unwrap();
        let named = [ResolvedPath { path: one.clone(), scope: PathScope::Workspace }];
        for (line, expected) in [
            ("cat .env", false),
            ("ls && wc -l a", false),
            ("cat *.env", true),
            ("grep -r x .", true),
            ("/usr/bin/grep -r x .", true),
            ("timeout 5 /usr/bin/diff -r . sub", true),
            ("/usr/bin/cat a", true),
            ("ls | rg x", true),
            ("ls | xargs cat", true),
            ("find . -exec cat {} +", true),
            ("git log -p", true),
            ("sha256sum -c sums", true),
            ("unknown", true),
        ] {
            let script = shell::parse(line, ShellDialect::Bash);
            assert_eq!(reads_unnamed_files(&script, &named), expected, "{line}");
        }
        let script = shell::parse("cat one", ShellDialect::Bash);
        assert!(!reads_unnamed_files(&script, &named));
        // Files have no numbers on Windows.
        if cfg!(windows) {
            return;
        }
        fs::hard_link(one, other).unwrap();
        assert!(reads_unnamed_files(&script, &named), "the other name could be that of a secret");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_known_is_used_until_the_folder_changes() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        let mut known = KnownFolders::default();
        let roots = [folder.path().to_path_buf()];
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join(".env"), "x").unwrap();
        let search = |known: &mut KnownFolders| {
            let (mut found, is_complete) = find_secrets(&roots, known, Duration::ZERO);
            assert!(is_complete);
            found.sort();
            found
        };
        assert_eq!(search(&mut known), [inner.join(".env")]);
        assert_eq!(known.len(), 2);
        assert_eq!(search(&mut known), [inner.join(".env")]);

        let before = folder_stamp(&inner, Duration::ZERO);
        let key = inner.join("server.key");
        // The clock of a file system may tick more slowly than this test runs.
        while folder_stamp(&inner, Duration::ZERO) == before {
            fs::remove_file(&key).ok();
            fs::write(&key, "x").unwrap();
        }
        assert_eq!(search(&mut known), [inner.join(".env"), key]);
        fs::rename(&inner, folder.path().join("other")).unwrap();
        let other = folder.path().join("other");
        assert_eq!(search(&mut known), [other.join(".env"), other.join("server.key")]);
        assert_eq!(known.len(), 2);

        let mut recent = KnownFolders::default();
        find_secrets(&roots, &mut recent, TIMESTAMP_AGE);
        assert!(recent.is_empty(), "the folders have just changed");
    }
}
