//! Walks a folder with several threads, by the ignore rules that apply to it. Callers that list each folder themselves,
//! and so know its ignore files, get the same rules for each folder. Ignore files that must not be opened are
//! detected: the ignore library reads them whole and without a limit, and a project may link `.gitignore` to
//! `/dev/zero`.

use parking_lot::Mutex;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};
use ignore::{DirEntry, WalkBuilder, WalkState};

use super::{SearchDeadline, SearchScope};
use crate::files::is_temporary_name;
use crate::git_repository::GitRepository;
use turnwright_types::hash::std_hash;

/// More threads would only wait for the disk.
const MAX_THREADS: usize = 8;

/// Builds a walk by the project's ignore rules, or with `include_hidden` one of all files. Links
/// are never followed, and `.git` is never entered.
pub(super) fn walk_builder(scope: &SearchScope, include_hidden: bool) -> WalkBuilder {
    let mut walk_builder = ignore_rules(&scope.root, include_hidden);
    walk_builder.hidden(!include_hidden);
    let is_excluded = Arc::clone(&scope.excluded);
    walk_builder.filter_entry(move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        entry.file_name() != OsStr::new(".git")
            && !is_temporary_name(entry.file_name())
            && !is_excluded(entry.path())
            && (include_hidden || !is_folder || !has_unsafe_ignore_files(entry.path()))
    });
    walk_builder
}

/// Builds a walk with the ignore rules that apply to a folder; without rules if an ignore file
/// above it must not be opened.
pub(super) fn ignore_rules(root: &Path, include_hidden: bool) -> WalkBuilder {
    let include_hidden = include_hidden || root.ancestors().any(has_unsafe_ignore_files);
    let mut walk = base_walk(root, include_hidden);
    let in_repository = !include_hidden && parent_rules_apply(root);
    // If git is required, the library does not apply its rules to what is in another repository.
    walk.parents(in_repository).require_git(in_repository);
    walk
}

/// The ignore rules that apply below a folder, hidden files not among those that they ignore. Paths are
/// relative to the folder; the rules of each folder are read when the first path in it is matched.
#[cfg(test)]
pub(crate) fn ignore_matcher(root: &Path) -> ignore::IncrementalIgnore {
    let walk = ignore_rules(root, false);
    walk.build_matchers().swap_remove(0)
}

fn base_walk(root: &Path, include_hidden: bool) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(!include_hidden).hidden(false).parents(false).follow_links(false);
    // A `.gitignore` counts without a repository, too.
    walk.require_git(false).current_dir(root);
    walk
}

/// Returns true if the ignore rules of parent folders apply. They do only in a repository, because the
/// `.gitignore` of a home folder may say `*`; and not if they ignore the folder itself, because it
/// was named explicitly.
fn parent_rules_apply(root: &Path) -> bool {
    let Some(top) = root.ancestors().find(|folder| folder.join(".git").exists()) else {
        return false;
    };
    let Ok(below) = root.strip_prefix(top) else { return false };
    if below.as_os_str().is_empty() {
        return true;
    }
    let mut matchers = base_walk(top, false).build_matchers();
    !matchers.iter_mut().any(|matcher| matcher.matched(below, true).is_ignore())
}

/// How many threads the system lets this process start now.
fn startable_threads() -> usize {
    let most = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _closed = gate.lock();
        let started = (0..most).take_while(|_| {
            thread::Builder::new().spawn_scoped(scope, || drop(gate.lock())).is_ok()
        });
        started.count()
    })
}

/// Walks a folder with several threads, or with this one if the system starts no other. `start`
/// creates the state of each thread. Returns all states, and the number of folders that could not
/// be read.
pub(super) fn walk_parallel<T: Send>(
    mut walk_builder: WalkBuilder,
    stop: &SearchDeadline,
    start: impl Fn() -> T,
    visit: impl Fn(&mut T, DirEntry) + Sync,
) -> (Vec<T>, usize) {
    let (finished, done) = mpsc::channel();
    let errors = AtomicUsize::new(0);
    let visitor = || {
        let mut guard = WorkerGuard { worker: Some(start()), finished: finished.clone() };
        let visit = &visit;
        let errors = &errors;
        move |entry| {
            if stop.is_expired() {
                return WalkState::Quit;
            }
            match (entry, &mut guard.worker) {
                (Ok(entry), Some(worker)) => visit(worker, entry),
                _ => {
                    errors.fetch_add(1, Ordering::Relaxed);
                }
            }
            WalkState::Continue
        }
    };
    match startable_threads() {
        0 => walk_builder
            .build()
            .map(visitor())
            .take_while(|state| *state != WalkState::Quit)
            .for_each(drop),
        threads => walk_builder.threads(threads).build_parallel().run(|| Box::new(visitor())),
    }
    (done.try_iter().collect(), errors.into_inner())
}

/// Sends the state of a thread when the thread is done.
struct WorkerGuard<T> {
    worker: Option<T>,
    finished: mpsc::Sender<T>,
}

impl<T> Drop for WorkerGuard<T> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.finished.send(worker).ok();
        }
    }
}

const IGNORE_FILES: &[&str] = &[".gitignore", ".ignore", ".git/info/exclude"];
/// The size, in bytes, that a legitimate ignore file does not exceed.
const MAX_BYTES: u64 = 1024 * 1024;

/// Returns true if reading the ignore files of a folder could block, or never end.
pub(crate) fn has_unsafe_ignore_files(folder: &Path) -> bool {
    IGNORE_FILES.iter().any(|name| is_unsafe(&folder.join(name)))
}

fn is_unsafe(path: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    if metadata.is_dir() || metadata.is_file() && metadata.len() <= MAX_BYTES {
        return false;
    }
    // A link to a regular file is common; files that the kernel makes up report that they are
    // empty.
    let leads_to_safe_file = metadata.is_symlink()
        && fs::metadata(path)
            .is_ok_and(|target| target.is_file() && (1..=MAX_BYTES).contains(&target.len()));
    !leads_to_safe_file
}

/// The entries of a folder that have rules. Those of an earlier one come first, whatever folders they are in.
const RULE_ENTRIES: [&str; 3] = [".ignore", ".gitignore", ".git"];

/// Rules that apply to what is in a folder. Cloning is cheap. They are equal if they come from the same files with the
/// same content.
#[derive(Clone, Debug)]
pub(crate) struct FolderRules {
    /// The hash of the files that the rules come from.
    origin: u64,
    /// The rules of the folder and those above; `None` if none apply below the root.
    files: Option<Arc<RuleFiles>>,
    /// Those of the user for all repositories.
    global: Arc<Gitignore>,
    /// The root is in a repository, so the rules of git end where another one begins.
    in_repository: bool,
}

/// The rules in the ignore files of one folder, in the order of [`RULE_ENTRIES`].
#[derive(Debug)]
struct RuleFiles {
    above: Option<Arc<RuleFiles>>,
    own: [Gitignore; RULE_ENTRIES.len()],
    /// A repository begins here, to which the rules of git from above do not apply.
    is_top: bool,
}

impl PartialEq for FolderRules {
    fn eq(&self, other: &FolderRules) -> bool {
        self.origin == other.origin
    }
}

impl FolderRules {
    /// The rules from above a folder, whose path has no links. Blocks.
    pub(crate) fn above(root: &Path) -> FolderRules {
        let global = Arc::new(Gitignore::empty());
        let mut rules = FolderRules { origin: 0, files: None, global, in_repository: false };
        if root.ancestors().any(has_unsafe_ignore_files) {
            return rules;
        }
        rules.global = Arc::new(GitignoreBuilder::new(root).build_global().0);
        rules.origin =
            std_hash((0, root, gitconfig_excludes_path().and_then(|path| fs::read(path).ok())));
        let own = std::array::from_fn(|_| Gitignore::empty());
        rules.files = Some(Arc::new(RuleFiles { above: None, own, is_top: false }));
        rules.in_repository = parent_rules_apply(root);
        if rules.in_repository {
            let above: Vec<_> = root.ancestors().skip(1).collect();
            for folder in above.into_iter().rev() {
                rules = rules.below(folder, |_| true).unwrap_or(rules);
            }
        }
        rules
    }

    /// The rules in a folder to which these apply; `has` returns true for its entries. `None` if they must not be
    /// read. Blocks.
    pub(crate) fn below(&self, folder: &Path, has: impl Fn(&str) -> bool) -> Option<FolderRules> {
        let is_top = self.in_repository
            && [".git", ".jj"].iter().any(|name| has(name) && folder.join(name).exists());
        let present = RULE_ENTRIES.map(has);
        if !is_top && !present.contains(&true) {
            return Some(self.clone());
        }
        if has_unsafe_ignore_files(folder) {
            return None;
        }
        let Some(above) = &self.files else { return Some(self.clone()) };
        let paths =
            [Some(folder.join(".ignore")), Some(folder.join(".gitignore")), excludes(folder)];
        let mut origin = std_hash((self.origin, is_top));
        let own = [0, 1, 2].map(|kind| {
            let Some(path) = paths[kind].as_ref().filter(|_| present[kind]) else {
                return Gitignore::empty();
            };
            origin = std_hash((origin, path, fs::read(path).ok()));
            read(folder, path)
        });
        if !is_top && own.iter().all(Gitignore::is_empty) {
            return Some(self.clone());
        }
        let files = RuleFiles { above: Some(Arc::clone(above)), own, is_top };
        Some(FolderRules { origin, files: Some(Arc::new(files)), ..self.clone() })
    }

    /// The rules in a folder to which these apply, if every entry of it is ignored.
    pub(crate) fn below_ignored(&self, folder: &Path) -> FolderRules {
        let mut every = GitignoreBuilder::new(folder);
        every.add_line(None, "/*").ok();
        let ignored = every.build().unwrap_or_else(|_| Gitignore::empty());
        let own = [ignored, Gitignore::empty(), Gitignore::empty()];
        let files = RuleFiles { above: self.files.clone(), own, is_top: false };
        let origin = std_hash((self.origin, folder));
        FolderRules { origin, files: Some(Arc::new(files)), ..self.clone() }
    }

    /// Returns true if an entry of the folder is ignored, given its absolute path.
    pub(crate) fn ignores(&self, path: &Path, is_folder: bool) -> bool {
        let Some(files) = &self.files else { return false };
        for kind in 0..RULE_ENTRIES.len() {
            // Those in a `.ignore` are not git's.
            let folders = std::iter::successors(Some(files), |folder| {
                folder.above.as_ref().filter(|_| kind == 0 || !folder.is_top)
            });
            for folder in folders {
                let found = folder.own[kind].matched(path, is_folder);
                if !found.is_none() {
                    return found.is_ignore();
                }
            }
        }
        self.global.matched(path, is_folder).is_ignore()
    }
}

/// The rules of one file, of which those that are not understood are left out.
fn read(folder: &Path, file: &Path) -> Gitignore {
    let mut rules = GitignoreBuilder::new(folder);
    rules.add(file);
    rules.build().unwrap_or_else(|_| Gitignore::empty())
}

/// The file with the rules of a repository that are in no commit.
fn excludes(folder: &Path) -> Option<PathBuf> {
    const NAME: &str = "info/exclude";
    let git = folder.join(".git");
    if !git.is_file() {
        return Some(git.join(NAME));
    }
    Some(GitRepository::at(folder).ok()??.shared_folder()?.join(NAME))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::real_path;

    const FOLDERS: [&str; 5] = ["", "a", "a/b", "a/b/c", "d"];
    const RULE_FILES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];
    const PATTERNS: [&str; 12] = [
        "x",
        "*.no",
        "!x.no",
        "/x",
        "b/",
        "a/b",
        "**/c/x",
        "c/**",
        "!c",
        "d/*",
        "# x",
        "a/b/c/x.no",
    ];
    const NAMES: [&str; 7] = ["x", "x.no", "y.no", "a", "b", "c", "d"];

    type RuleFile = (&'static str, &'static str, Vec<&'static str>);

    fn rule_file() -> impl Strategy<Value = RuleFile> {
        let patterns = prop::collection::vec(prop::sample::select(&PATTERNS[..]), 0..4);
        (prop::sample::select(&FOLDERS[..]), prop::sample::select(&RULE_FILES[..]), patterns)
    }

    /// Compares the rules for everything that can be in a folder and below it.
    fn compare(root: &Path, folder: &Path, above: &FolderRules) {
        let rules = above.below(folder, |name| folder.join(name).exists()).unwrap();
        let mut expected = ignore_matcher(root);
        for (name, is_folder) in NAMES.iter().flat_map(|name| [(name, false), (name, true)]) {
            let path = folder.join(name);
            let is_ignored = rules.ignores(&path, is_folder);
            let below = path.strip_prefix(root).unwrap();
            assert_eq!(is_ignored, expected.matched(below, is_folder).is_ignore(), "{path:?}");
            if is_folder && !is_ignored && path.is_dir() {
                compare(root, &path, &rules);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn the_rules_are_those_of_the_library(files in prop::collection::vec(rule_file(), 0..6)) {
            let folder = tempfile::tempdir().unwrap();
            let top = real_path(folder.path()).unwrap();
            for folder in FOLDERS {
                fs::create_dir_all(top.join(folder)).unwrap();
            }
            for (folder, name, patterns) in &files {
                let path = top.join(folder).join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, patterns.join("\n")).unwrap();
            }
            for root in [top.clone(), top.join("a")] {
                compare(&root, &root, &FolderRules::above(&root));
            }
        }
    }

    #[test]
    fn a_working_tree_has_the_excludes_of_its_repository() {
        let folder = tempfile::tempdir().unwrap();
        let top = real_path(folder.path()).unwrap();
        let tree = top.join("tree");
        let git = top.join("main/.git/worktrees/tree");
        fs::create_dir_all(&tree).unwrap();
        fs::create_dir_all(top.join("main/.git/info")).unwrap();
        fs::create_dir_all(&git).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", git.display())).unwrap();
        fs::write(git.join("commondir"), "../..\n").unwrap();
        fs::write(top.join("main/.git/info/exclude"), "x.no\n").unwrap();
        compare(&tree, &tree, &FolderRules::above(&tree));
        let rules = FolderRules::above(&tree).below(&tree, |_| true).unwrap();
        assert!(rules.ignores(&tree.join("x.no"), false) && !rules.ignores(&tree.join("x"), false));
    }

    #[cfg(unix)]
    #[test]
    fn rules_that_must_not_be_read_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = real_path(folder.path()).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", root.join("a/.gitignore")).unwrap();
        let rules = FolderRules::above(&root).below(&root, |_| false).unwrap();
        assert!(rules.below(&root.join("a"), |_| true).is_none());
        assert!(FolderRules::above(&root.join("a")).below(&root.join("a"), |_| false).is_some());
    }
}
