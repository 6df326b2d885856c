//! Tests of the comparison of protected paths, and of what is put back.

use std::os::unix::fs::{PermissionsExt, symlink};

use std::fs;

use super::entries::{MAX_COPIES, MAX_COPY_BYTES, MAX_ENTRIES};
use super::*;

struct TestProject {
    _folder: tempfile::TempDir,
    ws: PathBuf,
    quarantine: PathBuf,
}

impl TestProject {
    fn new() -> TestProject {
        let folder = tempfile::tempdir().unwrap();
        let base = real_path(folder.path()).unwrap();
        let disk = TestProject {
            _folder: folder,
            ws: base.join("ws"),
            quarantine: base.join("quarantine"),
        };
        fs::create_dir(&disk.ws).unwrap();
        disk
    }

    fn protected(&self) -> ProtectedPaths {
        ProtectedPaths::new(vec![self.ws.clone()], Vec::new())
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

    /// A moment after all changes so far, by the clock of the file system.
    fn later(&self) -> SystemTime {
        let last = changed_at(&self.file("clock", "")).unwrap();
        loop {
            let now = changed_at(&self.file("clock", "")).unwrap();
            if now > last {
                return now;
            }
        }
    }

    /// All paths with their contents.
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
fn changes_to_protected_paths_are_undone_and_quarantined() {
    type Attack = fn(&TestProject);
    let attacks: &[(&str, Attack)] = &[
        ("created .git/hooks/pre-commit", |disk| drop(disk.file(".git/hooks/pre-commit", "x"))),
        ("changed .git/config", |disk| drop(disk.file(".git/config", "[core]\npager = x\n"))),
        ("removed .git/config", |disk| fs::remove_file(disk.ws.join(".git/config")).unwrap()),
        ("removed .git/config", |disk| {
            fs::rename(disk.ws.join(".git"), disk.ws.join("away")).unwrap();
            fs::create_dir(disk.ws.join(".git")).unwrap();
        }),
        ("created .vscode/tasks.json", |disk| drop(disk.file(".vscode/tasks.json", "{}"))),
        ("created x.code-workspace", |disk| drop(disk.file("x.code-workspace", "{}"))),
        ("created .git/worktrees/x/commondir", |disk| {
            drop(disk.file(".git/worktrees/x/commondir", "../../../away\n"));
        }),
        ("created .git/worktrees/x/config.worktree", |disk| {
            drop(disk.file(".git/worktrees/x/config.worktree", "[core]\nfsmonitor = x\n"));
        }),
        ("created .git/rebase-merge/git-rebase-todo", |disk| {
            drop(disk.file(".git/rebase-merge/git-rebase-todo", "pick 1234 a\nexec ./x\n"));
        }),
        ("created .husky/a/b", |disk| drop(disk.file(".husky/a/b", "x"))),
        ("changed .envrc", |disk| drop(disk.file(".envrc", "echo new"))),
        ("changed .envrc", |disk| {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(disk.ws.join(".envrc"), mode).unwrap();
        }),
        ("changed .envrc", |disk| {
            fs::remove_file(disk.ws.join(".envrc")).unwrap();
            symlink("/etc/passwd", disk.ws.join(".envrc")).unwrap();
        }),
        ("changed .envrc", |disk| {
            fs::remove_file(disk.ws.join(".envrc")).unwrap();
            disk.file(".envrc/deep", "x");
        }),
        ("changed .github", |disk| {
            fs::remove_dir_all(disk.ws.join(".github")).unwrap();
            symlink("/tmp", disk.ws.join(".github")).unwrap();
        }),
        ("removed .github/workflows/ci.yml", |disk| {
            fs::remove_dir_all(disk.ws.join(".github")).unwrap();
        }),
    ];
    for (expected, attack) in attacks {
        let disk = TestProject::new();
        disk.repository();
        disk.file(".envrc", "echo old");
        disk.file(".github/workflows/ci.yml", "on: push");
        let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
        let before = disk.all();
        let mode = || fs::metadata(disk.ws.join(".envrc")).unwrap().permissions().mode();
        let mode_before = mode();
        attack(&disk);
        let changes = snapshot.check(&[], Some(&disk.quarantine)).expect(expected);
        let text = changes.message();
        let (verb, path) = expected.split_once(' ').unwrap();
        let expected = format!("{verb} {}", disk.ws.join(path).display());
        assert!(text.contains(&expected), "{expected}: {text}");
        assert!(changes.not_restored.is_empty(), "{text}");
        let known = |entry: &(PathBuf, Vec<u8>)| {
            // The command has moved the files in `away` there; and an empty folder has no
            // effect.
            !(entry.0.starts_with(disk.ws.join("away")) || entry.1.is_empty() && entry.0.is_dir())
        };
        let after: Vec<_> = disk.all().into_iter().filter(known).collect();
        for entry in &after {
            assert!(before.contains(entry), "{expected}: {}", entry.0.display());
        }
        for entry in before.iter().filter(|entry| !entry.1.is_empty() && !entry.0.ends_with("HEAD"))
        {
            assert!(after.contains(entry), "{expected}: {} is gone", entry.0.display());
        }
        assert_eq!(mode(), mode_before);
        assert_eq!(
            snapshot.check(&[], Some(&disk.quarantine)),
            None,
            "{expected}: not all was undone"
        );
    }
}

#[test]
fn usual_work_is_not_reported() {
    let disk = TestProject::new();
    disk.repository();
    disk.file(".envrc", "echo old");
    let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    disk.file(".envrc", "echo old");
    disk.file("src/a.rs", "x");
    disk.file(".git/index", "x");
    disk.file(".git/hooks/update.sample", "x");
    disk.file(".vscode/extensions.json", "x");
    disk.file(".git/worktrees/x/commondir", "../..\n");
    disk.file(".git/worktrees/x/config.worktree", "[core]\nsparseCheckout = true\n");
    disk.file(".git/rebase-merge/git-rebase-todo", "pick 1234 exec\n");
    let config = "[core]\n\tbare = false\n[branch \"x\"]\n\tremote = .\n\tmerge = refs/heads/y\n";
    disk.file(".git/config", config);
    assert_eq!(snapshot.check(&[], Some(&disk.quarantine)), None);

    let empty = TestProject::new();
    let snapshot = ProtectedSnapshot::take(&empty.protected(), Arc::default(), None);
    empty.repository();
    assert_eq!(snapshot.check(&[], Some(&empty.quarantine)), None, "a new repository");
    empty.file(".git/config", "[core]\nfsmonitor = x\n");
    assert!(snapshot.check(&[], Some(&empty.quarantine)).is_some(), "a new trap");
}

#[test]
fn what_git_would_run_in_another_repository_is_taken_away() {
    let disk = TestProject::new();
    disk.repository();
    let plain = "[core]\n\tbare = false\n";
    let trap = "[core]\n\tfsmonitor = ./x\n";
    let known = disk.file("old/.git/config", plain);
    disk.file(".git/modules/a/config", "[core]\n\tworktree = ../../../a\n");
    let repositories = Arc::new([disk.ws.join("old/.git")].into());
    let snapshot = ProtectedSnapshot::take(&disk.protected(), repositories, None);
    fs::write(&known, trap).unwrap();
    let traps = [
        disk.file(".git/modules/a/hooks/post-checkout", "x"),
        disk.file(".git/modules/b/config", trap),
        disk.file("old/.git/hooks/pre-commit", "x"),
    ];
    let good = disk.file(".git/modules/c/config", "[core]\n\tworktree = ../../../c\n");
    assert!(snapshot.check(&[], Some(&disk.quarantine)).is_some());
    assert!(traps.iter().all(|trap| !trap.exists()) && good.exists());
    assert_eq!(fs::read_to_string(known).unwrap(), plain);

    let good = [
        disk.file("new/.git/config", plain),
        disk.file("new/.git/hooks/update.sample", "x"),
        disk.file("bare/config", "[core]\n\tbare = true\n"),
    ];
    let traps = [
        disk.file("trap/.git/config", trap),
        disk.file("link/.git", "gitdir: ../trap/.git\n"),
        disk.file("bare/hooks/post-receive", "x"),
        disk.file("bad/config", trap),
        disk.file("hooked/.git/config", "[core]\n\thooksPath = .githooks\n"),
    ];
    let new = ["new/.git", "trap/.git", "link/.git", "bare", "bad", "hooked/.git"];
    let new = new.map(|path| disk.ws.join(path));
    let snapshot = ProtectedSnapshot::without_repositories(new.into(), None);
    let changes = snapshot.check(&[], Some(&disk.quarantine)).unwrap();
    assert_eq!(changes.restored.len(), traps.len(), "{changes:?}");
    assert!(traps.iter().all(|trap| !trap.exists()) && good.iter().all(|file| file.exists()));
}

#[test]
fn a_repository_around_the_sessions_folder_is_compared_with_its_submodules_and_working_trees() {
    for git in [".git", "bare"] {
        let disk = TestProject::new();
        disk.repository();
        fs::rename(disk.ws.join(".git"), disk.ws.join(git)).unwrap();
        let file = |path: &str, text| disk.file(&format!("{git}/{path}"), text);
        let plain = "[core]\n\tworktree = ../../../sub\n";
        file("worktrees/b/HEAD", "ref: refs/heads/b\n");
        file("worktrees/b/commondir", "../..\n");
        file("modules/sub/config", plain);
        file("worktrees/b/modules/sub/config", plain);
        let roots = vec![disk.ws.join("src"), disk.ws.join(git)];
        let protected = ProtectedPaths::new(roots, Vec::new());
        let snapshot = ProtectedSnapshot::take(&protected, Arc::default(), None);
        for place in ["modules/new", "worktrees/b/modules/new"] {
            file(&format!("{place}/config"), plain);
            file(&format!("{place}/hooks/update.sample"), "x");
        }
        assert_eq!(snapshot.check(&[], Some(&disk.quarantine)), None, "new submodules");
        let trap = "[core]\n\tfsmonitor = x\n";
        let traps = [
            file("modules/sub/config", trap),
            file("modules/sub/hooks/post-checkout", "x"),
            file("worktrees/b/config.worktree", trap),
            file("worktrees/b/modules/new/hooks/post-checkout", "x"),
            file("worktrees/b/modules/sub/config", trap),
        ];
        assert_eq!(snapshot.check(&[], Some(&disk.quarantine)).unwrap().paths, traps);
        fs::remove_dir_all(disk.ws.join(git).join("worktrees/b")).unwrap();
        assert_eq!(snapshot.check(&[], Some(&disk.quarantine)), None, "a removed working tree");
    }
}

#[test]
fn what_the_settings_of_a_repository_within_the_project_name_is_compared() {
    let disk = TestProject::new();
    disk.repository();
    let settings =
        "[core]\n\thooksPath = tools/hooks\n[filter \"x\"]\n\tclean = sh tools/clean.sh build\n";
    disk.file("app/.git/config", settings);
    let known = disk.file("app/tools/clean.sh", "mine");
    disk.file("app/src/lib.rs", "mine");
    let repositories = Arc::new([disk.ws.join("app/.git")].into());
    let snapshot = ProtectedSnapshot::take(&disk.protected(), repositories, None);
    disk.file("app/tools/other", "x");
    disk.file("app/build", "x");
    assert_eq!(snapshot.check(&[], Some(&disk.quarantine)), None);
    let traps =
        [disk.file("app/tools/clean.sh", "x"), disk.file("app/tools/hooks/pre-commit", "x")];
    assert_eq!(snapshot.check(&[], Some(&disk.quarantine)).unwrap().paths, traps);
    assert!(fs::read_to_string(known).unwrap() == "mine" && !traps[1].exists());
    // A setting that the user has allowed makes no traps of what was there.
    let allowed = disk.file("app/.git/config", "[core]\n\thooksPath = src\n");
    let changes = snapshot.check(std::slice::from_ref(&allowed), Some(&disk.quarantine));
    assert_eq!(changes, None);
    let beside = ProtectedSnapshot::take(&disk.protected(), snapshot.repositories.clone(), None)
        .beside_commands(&snapshot, &|path| path != allowed);
    assert_eq!(beside.check(&[], Some(&disk.quarantine)), None, "beside another command");
    fs::remove_dir_all(disk.ws.join("app")).unwrap();
    assert_eq!(snapshot.check(&[], Some(&disk.quarantine)), None, "a removed repository");
}

#[test]
fn many_new_submodules_and_working_trees_do_not_hide_what_happens_in_the_known_ones() {
    let disk = TestProject::new();
    disk.repository();
    disk.file(".git/modules/sub/config", "[core]\n\tworktree = ../../../sub\n");
    disk.file(".git/worktrees/b/commondir", "../..\n");
    let first = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    for number in 0..3_000 {
        fs::create_dir_all(disk.ws.join(format!(".git/worktrees/{number}"))).unwrap();
        fs::create_dir_all(disk.ws.join(format!(".git/modules/{number}"))).unwrap();
        fs::write(disk.ws.join(format!(".git/modules/{number}/config")), "").unwrap();
    }
    let second = ProtectedSnapshot::take(&disk.protected(), Arc::default(), Some(&first));
    for snapshot in [first, second] {
        let hook = disk.file(".git/modules/sub/hooks/post-checkout", "x");
        let config = disk.file(".git/worktrees/b/config.worktree", "[core]\n\tfsmonitor = x\n");
        let changes = snapshot.check(&[], Some(&disk.quarantine)).unwrap();
        assert!(!hook.exists() && !config.exists(), "{changes:?}");
        let mut places = vec!["modules", "worktrees"].into_iter();
        assert!(
            places.all(|place| changes.message().contains(&format!(".git/{place} (too many"))),
            "{changes:?}"
        );
    }
}

#[test]
fn the_settings_are_compared_that_a_repository_takes_from_another_folder() {
    let disk = TestProject::new();
    for (path, text) in [("sub/HEAD", "ref: refs/heads/main\n"), ("sub/commondir", "../lib\n")] {
        disk.file(path, text);
    }
    let config = disk.file("lib/config", "[core]\n\tbare = false\n");
    let repositories = Arc::new([disk.ws.join("sub")].into());
    let snapshot = ProtectedSnapshot::take(&disk.protected(), repositories, None);
    disk.file("lib/config", "[core]\n\tfsmonitor = x\n");
    let hook = disk.file("lib/hooks/post-checkout", "x");
    assert!(snapshot.check(&[], Some(&disk.quarantine)).is_some());
    assert!(!hook.exists() && !fs::read_to_string(config).unwrap().contains("fsmonitor"));
}

#[test]
fn more_repositories_than_can_be_checked_are_told() {
    let disk = TestProject::new();
    let new = (0..3_000).map(|number| disk.ws.join(format!("{number}/.git"))).collect();
    let changes = ProtectedSnapshot::without_repositories(new, None);
    let text = changes.check(&[], Some(&disk.quarantine)).unwrap().message();
    assert!(text.contains("too many entries to check"), "{text}");
}

#[test]
fn files_that_are_still_there_are_compared_in_linear_time() {
    let disk = TestProject::new();
    let files = (0..1_500).map(|number| disk.file(&format!("a{number}/.envrc"), "x"));
    let others = (0..100_000).map(|number| disk.ws.join(format!("z{number}/.envrc")));
    let all = Arc::new(files.chain(others).collect());
    let snapshot = ProtectedSnapshot::take(&disk.protected(), all, None);
    assert_eq!(snapshot.check(&[], Some(&disk.quarantine)), None);
}

#[test]
fn allowed_changes_stay_and_others_are_undone() {
    let disk = TestProject::new();
    disk.repository();
    let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    let allowed = disk.file(".git/hooks/pre-commit", "x");
    let other = disk.file(".git/hooks/pre-push", "x");
    let changes = snapshot.check(std::slice::from_ref(&allowed), Some(&disk.quarantine)).unwrap();
    assert_eq!(changes.restored, [format!("created {}", other.display())]);
    assert!(allowed.exists() && !other.exists());
    let kept = fs::read_dir(changes.quarantine.unwrap()).unwrap().count();
    assert_eq!(kept, 1);
}

#[test]
fn what_cannot_be_copied_or_seems_to_be_unchangeable_is_taken_away_all_the_same() {
    let disk = TestProject::new();
    disk.repository();
    let existing = disk.file("sub/.vscode/tasks.json", "old");
    let protected = ProtectedPaths::new(vec![disk.ws.clone(), disk.ws.join("sub")], Vec::new());
    let snapshot = ProtectedSnapshot::take(&protected, Arc::default(), None);
    let long = disk.file(&format!(".bsp/{}.json", "a".repeat(250)), "x");
    let unreadable = disk.file(".git/hooks/pre-commit", "x");
    fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o111)).unwrap();
    let new = disk.file("sub/.vscode/launch.json", "x");
    disk.file("sub/.vscode/tasks.json", "new");
    let folder = existing.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).unwrap();
    snapshot.check(&[], Some(&disk.quarantine)).unwrap();
    assert!(!long.exists() && !unreadable.exists() && !new.exists());
    assert_eq!(fs::read_to_string(existing).unwrap(), "old");

    // Nothing can be kept where there is a file instead of a folder.
    fs::remove_dir_all(&disk.quarantine).unwrap();
    fs::write(&disk.quarantine, "").unwrap();
    let trap = disk.file(".envrc", "x");
    let changes = snapshot.check(&[], Some(&disk.quarantine)).unwrap();
    assert!(!trap.exists());
    assert!(changes.message().contains("no copy could be kept"), "{changes:?}");
}

#[test]
fn changes_beyond_the_copy_limits_are_still_reported() {
    let disk = TestProject::new();
    for number in 0..MAX_COPIES + 10 {
        disk.file(&format!(".claude/{number:03}"), "x");
    }
    let long = "x".repeat(usize::try_from(MAX_COPY_BYTES).unwrap() + 1);
    disk.file(".envrc", &long);
    let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    assert_eq!(snapshot.check(&[], Some(&disk.quarantine)), None);
    disk.file(".envrc", "short");
    let changes = snapshot.check(&[], Some(&disk.quarantine)).unwrap();
    assert_eq!(changes.not_restored.len(), 1, "{changes:?}");
    assert!(disk.ws.join(".envrc").exists(), "what cannot be put back stays");
}

/// Where there are no mount namespaces, the comparison is all that holds.
#[test]
fn programs_of_environments_are_compared_and_links_to_an_interpreter_may_change() {
    let disk = TestProject::new();
    let file = disk.file("env/pyvenv.cfg", "home = /usr/bin");
    let changed = disk.file("env/bin/activate", "mine");
    let large =
        disk.file("env/bin/ruff", &"x".repeat(usize::try_from(MAX_COPY_BYTES).unwrap() + 1));
    let interpreter = disk.ws.with_file_name("python3.12");
    fs::write(&interpreter, "").unwrap();
    symlink(interpreter, disk.ws.join("env/bin/python3")).unwrap();
    let repositories = Arc::new([file].into());
    let snapshot = ProtectedSnapshot::take(&disk.protected(), repositories, None);
    assert_eq!(snapshot.check(&[], Some(&disk.quarantine)), None);
    fs::write(&changed, "evil").unwrap();
    fs::write(&large, "evil").unwrap();
    let new = disk.file("env/bin/git", "evil");
    symlink("python3", disk.ws.join("env/bin/python")).unwrap();
    symlink("../../src/evil", disk.ws.join("env/bin/python3.9")).unwrap();
    let changes = snapshot.check(&[], Some(&disk.quarantine)).unwrap();
    assert_eq!(fs::read_to_string(&changed).unwrap(), "mine", "{changes:?}");
    assert!(!new.exists() && !large.exists(), "{changes:?}");
    assert!(fs::symlink_metadata(disk.ws.join("env/bin/python3.9")).is_err());
    assert!(fs::symlink_metadata(disk.ws.join("env/bin/python")).is_ok());
    let allowed = [disk.ws.join("env")];
    disk.file("env/bin/black", "of an installer");
    assert!(snapshot.check(&allowed, Some(&disk.quarantine)).is_none());
    // A moved environment is no new one, whatever its name.
    fs::remove_file(disk.ws.join("env/bin/black")).unwrap();
    fs::rename(disk.ws.join("env"), disk.ws.join("other")).unwrap();
    let moved = vec![disk.ws.join("other/pyvenv.cfg")];
    let moved = ProtectedSnapshot::without_repositories(moved, Some(Arc::new(snapshot)));
    let changes = moved.check(&[], Some(&disk.quarantine));
    let config = disk.ws.join("other/pyvenv.cfg");
    assert!(config.exists(), "{changes:?}");
}

#[test]
fn a_file_is_moved_only_if_its_old_place_is_gone_and_never_into_the_root() {
    let disk = TestProject::new();
    let files = ["a/.envrc", "b/.envrc", "c/.npmrc", "d/.npmrc", "e/.venv/bin/activate"];
    for file in files {
        disk.file(file, &format!("script-shell=./{}", &file[..1]));
    }
    let known = Arc::new(files.iter().map(|file| disk.ws.join(file)).collect());
    let before = ProtectedSnapshot::take(&disk.protected(), known, None);
    let copies = fs::copy::<PathBuf, PathBuf>;
    let moves = fs::rename::<PathBuf, PathBuf>;
    let mut new = Vec::new();
    for (from, to) in
        [("a/.envrc", "copied/.envrc"), ("c/.npmrc", "copied/.npmrc"), ("a/.envrc", ".envrc")]
    {
        fs::create_dir_all(disk.ws.join(to).parent().unwrap()).unwrap();
        copies(disk.ws.join(from), disk.ws.join(to)).unwrap();
        new.push(to);
    }
    for (from, to) in [
        ("b/.envrc", "moved/.envrc"),
        ("d/.npmrc", ".npmrc"),
        ("e/.venv/bin/activate", "moved/.venv/bin/activate"),
    ] {
        fs::create_dir_all(disk.ws.join(to).parent().unwrap()).unwrap();
        moves(disk.ws.join(from), disk.ws.join(to)).unwrap();
        new.push(to);
    }
    let repositories = new.iter().map(|file| disk.ws.join(file)).collect();
    let below = ProtectedSnapshot::without_repositories(repositories, Some(before.into()));
    below.check(&[], Some(&disk.quarantine));
    let reference = below.reference.as_ref().unwrap();
    reference.check(&[], Some(&disk.quarantine));
    new.retain(|file| disk.ws.join(file).exists());
    assert_eq!(new, ["moved/.envrc"]);
}

#[test]
fn what_belongs_into_an_environment_is_told_from_what_a_package_puts_there() {
    let disk = TestProject::new();
    let outside = disk.ws.with_file_name("system");
    fs::create_dir_all(outside.join("bin")).unwrap();
    let templates = outside.join("lib/python3.12/venv/scripts/common");
    fs::create_dir_all(&templates).unwrap();
    fs::write(outside.join("bin/python3.12"), "interpreter").unwrap();
    fs::write(templates.join("activate"), "VIRTUAL_ENV=__VENV_DIR__\n").unwrap();
    let environment = disk.ws.join("env");
    let home = format!("home = {}\nversion = 3.12.1\n", outside.join("bin").display());
    disk.file("env/pyvenv.cfg", &home);
    let right = format!("VIRTUAL_ENV={}\n", environment.display());
    disk.file("env/bin/activate", &right);
    disk.file("env/bin/activate.fish", &format!("{right}evil\n"));
    disk.file("env/bin/Activate.ps1", "evil\n");
    disk.file("env/bin/python3.12", "interpreter");
    disk.file("env/bin/python3.11", "evil");
    disk.file("env/bin/ruff", "of a package");
    disk.file("env/bin/git", "evil");
    disk.file("env/bin/python-x", "evil");
    let list = "../../../bin/ruff,,\n../../../bin/Activate.ps1,,\n../../../bin/Python3,,\n";
    disk.file("env/lib/python3.12/site-packages/ruff-1.dist-info/RECORD", list);
    disk.file("sub/link/python3", "");
    for (link, target) in [
        ("python", "python3"),
        ("python3", &outside.join("bin/python3.12").to_string_lossy()),
        ("python2", "python-x"),
        ("python4", "/proc/self/cwd/../system/bin/python3.12"),
        ("python5", &disk.ws.join("sub/link/python3").to_string_lossy()),
        ("python6", "python6"),
        ("Python3", "../../sub/link/python3"),
    ] {
        symlink(target, environment.join("bin").join(link)).unwrap();
    }
    let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    let names = |is_installing| {
        let accepted = snapshot.accepted_programs([environment.clone()], is_installing);
        let names = accepted.iter().filter_map(|path| path.file_name()?.to_str());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let all = ["activate", "python", "python3", "python3.12", "pyvenv.cfg", "ruff"];
    let mut expected = BTreeSet::from(all.map(str::to_owned));
    assert_eq!(names(false), expected);
    expected.extend(["git", "python-x"].map(str::to_owned));
    assert_eq!(names(true), expected);
    for file in ["home = ..\n", "home = /usr/bin\nexecutable-path = x\n", "evil\n"] {
        disk.file("env/pyvenv.cfg", file);
        assert!(!names(false).contains("pyvenv.cfg"), "{file}");
    }
    disk.file("env/pyvenv.cfg", &home.replace("system", "ws/sub"));
    assert!(!names(false).contains("pyvenv.cfg"), "an interpreter of the project");
}

#[test]
fn git_is_restored_even_if_other_folders_exhaust_the_limits() {
    let disk = TestProject::new();
    disk.repository();
    for number in 0..MAX_COPIES + 10 {
        disk.file(&format!(".claude/{number:03}"), "x");
    }
    let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    let before = disk.all();
    disk.file(".git/config", "[core]\npager = x\n");
    let changes = snapshot.check(&[], Some(&disk.quarantine)).unwrap();
    assert_eq!((changes.not_restored.as_slice(), disk.all()), ([].as_slice(), before));
    // Too many files in one folder do not hide changes elsewhere.
    for number in 0..MAX_ENTRIES + 10 {
        disk.file(&format!(".agents/{number}"), "");
    }
    let hook = disk.file(".git/hooks/pre-commit", "x");
    let start = disk.file(".zshrc", "x");
    let changes = snapshot.check(&[], Some(&disk.quarantine)).unwrap();
    assert!(!hook.exists() && !start.exists());
    let left =
        [format!("filled {} (too many entries to check)", disk.ws.join(".agents").display())];
    assert_eq!(changes.not_restored, left);
    // A file that the scan visits only because others were removed is not reported as created.
    for number in 0..500 {
        disk.file(&format!(".agents/more-{number}"), "");
    }
    let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    for entry in
        snapshot.entries.keys().filter(|path| path.parent().unwrap().ends_with(".agents")).take(5)
    {
        fs::remove_file(entry).unwrap();
    }
    let changes = snapshot.check(&[], Some(&disk.quarantine)).unwrap();
    assert!(!changes.message().contains("created"), "{changes:?}");
}

#[test]
fn whoever_made_an_environment_in_a_line_with_other_commands_is_told_to_do_that_alone() {
    let told = |path: &str| {
        let restored = vec![format!("created {path}")];
        ProtectedChanges { restored, ..ProtectedChanges::default() }.message()
    };
    for path in ["/ws/.venv/pyvenv.cfg", "/ws/env/bin/activate"] {
        assert!(told(path).contains("only if it does nothing else"), "{}", told(path));
    }
    assert!(told("/ws/.envrc").contains("call again with the path as \"escalate\""));
}

#[test]
fn a_trap_that_comes_after_a_judgement_is_no_part_of_the_snapshot_that_follows() {
    let disk = TestProject::new();
    disk.repository();
    disk.file("away/post-merge", "x");
    let git = disk.ws.join(".git");
    let take = |earlier: Option<&ProtectedSnapshot>, since| {
        ProtectedSnapshot::take_settled(BTreeSet::from([git.clone()]), earlier, since)
    };
    let before = take(None, disk.later());
    assert_eq!(before.check(&[], None), None);
    let own = fs::read_to_string(git.join("config")).unwrap();
    let since = disk.later();
    disk.file(".git/config", "[core]\n\tfsmonitor = ./x\n");
    fs::remove_dir_all(git.join("hooks")).unwrap();
    // The hook itself does not change.
    fs::rename(disk.ws.join("away"), git.join("hooks")).unwrap();
    let first = take(None, since);
    assert!(first.check(&[], None).unwrap().paths.contains(&git.join("config")));
    let after = take(Some(&before), since);
    let changed = after.check(&[], None).unwrap().paths;
    assert!(changed.contains(&git.join("config")), "{changed:?}");
    assert!(changed.contains(&git.join("hooks/post-merge")), "{changed:?}");
    // Another check has undone the first change meanwhile: that is no change now.
    disk.file(".git/config", &own);
    assert!(!after.check(&[], None).unwrap().paths.contains(&git.join("config")));
}

#[test]
fn what_a_running_command_moved_to_a_place_is_no_part_of_the_snapshot_of_another() {
    let disk = TestProject::new();
    disk.repository();
    disk.file("away/hooks/post-merge", "x");
    disk.file("husky/pre-commit", "x");
    disk.file("old/.git/hooks/post-merge", "x");
    let known = disk.file(".git/hooks/pre-push", "./check");
    fs::create_dir(disk.ws.join("lib")).unwrap();
    let mut earlier = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    earlier.since = Some(disk.later());
    let moved = [".husky/pre-commit", "lib/.git/hooks/post-merge", "lib/.git/hooks/pre-push"]
        .map(|path| disk.ws.join(path));
    // The files in a folder do not change with it.
    fs::rename(disk.ws.join("husky"), disk.ws.join(".husky")).unwrap();
    fs::rename(disk.ws.join("away"), disk.ws.join("lib/.git")).unwrap();
    fs::rename(known, &moved[2]).unwrap();
    let repositories = BTreeSet::from(["lib/.git", "old/.git"].map(|git| disk.ws.join(git)));
    let beside = ProtectedSnapshot::take(&disk.protected(), Arc::new(repositories), None)
        .beside_commands(&earlier, &|_| true);
    // The hook of a repository that was not found before is not among them.
    let changed = [&[disk.ws.join(".git/hooks/pre-push")], &moved[..]].concat();
    assert_eq!(beside.check(&[], None).unwrap().paths, changed);
}

#[test]
fn a_folder_that_has_become_a_link_to_another_one_gets_its_files_back() {
    let disk = TestProject::new();
    let file = disk.file(".vscode/settings.json", "mine");
    disk.file(".zed/settings.json", "other");
    let snapshot = ProtectedSnapshot::take(&disk.protected(), Arc::default(), None);
    fs::remove_dir_all(disk.ws.join(".vscode")).unwrap();
    symlink(".zed", disk.ws.join(".vscode")).unwrap();
    let changes = snapshot.check(&[], Some(&disk.quarantine));
    assert_eq!(fs::read_to_string(file).ok().as_deref(), Some("mine"), "{changes:?}");
}
