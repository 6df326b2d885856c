//! Tests of the guard around calls of MCP servers, and of the marks of commands.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use turnwright_policy::shell;
use turnwright_types::client::{
    Client, PermissionAnswer, PermissionRequest, UserQuestion, UserReply,
};
use turnwright_types::shell_script::ShellDialect;

/// A client that notes its updates and answers nothing.
#[derive(Default)]
pub(super) struct NotingClient(Mutex<Vec<Update>>);

impl Client for NotingClient {
    fn update(&self, update: Update) {
        self.0.lock().push(update);
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn request_permission(&self, _: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(std::future::pending())
    }

    fn ask_user(&self, _: UserQuestion) -> BoxFuture<'_, UserReply> {
        Box::pin(std::future::pending())
    }
}

/// The site of a session in this folder.
pub(super) fn site_in(root: &Path, state: &Path, client: Arc<dyn Client>) -> CommandSite {
    let protected = ProtectedPaths::new(vec![root.to_path_buf()], Vec::new());
    CommandSite {
        roots: Arc::new(Roots::new(root).unwrap()),
        environment: Arc::default(),
        settings: Arc::new(ConfinementSettings { protected, ..ConfinementSettings::default() }),
        guard: Arc::default(),
        network: Arc::default(),
        tracker: Arc::default(),
        opened_places: Arc::default(),
        state_folder: state.to_path_buf(),
        outputs: state.join("outputs"),
        client,
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
async fn a_call_that_panics_is_checked_too() {
    let project = tempfile::tempdir().unwrap();
    let root = real_path(project.path()).unwrap();
    let state = tempfile::tempdir().unwrap();
    let client = Arc::new(NotingClient::default());
    let site = site_in(&root, state.path(), client.clone());
    let trap = root.join(".envrc");
    let call = async {
        let _guard = RemoteCallGuard::new(site.clone(), "1", "the server");
        fs::write(&trap, "x").unwrap();
        panic!("a bug");
    };
    assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
    site.guard.close().await;
    assert!(!trap.exists());
    assert!(site.guard.state.lock().watches.is_empty());
    let updates = client.0.lock();
    assert!(
        matches!(&updates[..], [Update::Notice(text)] if text.contains("created")),
        "{updates:?}"
    );
}

#[test]
fn only_lines_that_tell_git_to_prune_or_run_nothing_else_may_prune() {
    for (line, expected) in [
        ("git commit -qm x", true),
        ("cd sub && git fetch", true),
        ("git gc --prune=now; ./test.sh", true),
        ("git -C sub repack -ad && ls", true),
        ("git status; npm test", false),
        ("git commit -qm x && python3 x.py", false),
        ("git status | env sh", false),
        ("./gc.sh", false),
    ] {
        let script = shell::parse(line, ShellDialect::Bash);
        assert_eq!(may_prune(&script.commands), expected, "{line}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test makes a file")]
fn only_a_mark_that_nobody_holds_is_of_an_unfinished_command() {
    let folder = tempfile::tempdir().unwrap();
    let running = RunningMark::new(folder.path()).unwrap();
    assert_eq!(take_first_abandoned(folder.path()), None);
    fs::write(folder.path().join("abandoned"), "").unwrap();
    assert!(take_first_abandoned(folder.path()).is_some());
    assert_eq!(take_first_abandoned(folder.path()), None);
    drop(running);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
fn a_command_that_starts_while_another_has_set_a_trap_does_not_put_it_back() {
    let project = tempfile::tempdir().unwrap();
    let root = real_path(project.path()).unwrap();
    let state = tempfile::tempdir().unwrap();
    let site = site_in(&root, state.path(), Arc::new(NotingClient::default()));
    let git = root.join("lib/.git");
    let config = git.join("config");
    let hook = git.join("hooks/post-merge");
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::write(&config, "[core]\n").unwrap();
    let repositories = Arc::new(BTreeSet::from([git]));
    site.take_snapshot(Arc::clone(&repositories));
    let running = CommandWatch { has_snapshot: true, ..CommandWatch::default() };
    site.guard.state.lock().watches.insert("p1".to_owned(), Arc::new(running));
    fs::write(&config, "[core]\n\tfsmonitor = ./x\n").unwrap();
    fs::write(&hook, "x").unwrap();
    let beside = site.take_snapshot(Arc::clone(&repositories));
    assert_eq!(beside.check(&[], None).unwrap().paths, [config.clone(), hook.clone()]);
    // The check of the first command takes the trap away.
    fs::write(&config, "[core]\n").unwrap();
    fs::remove_file(&hook).unwrap();
    assert_eq!(beside.check(&[], None), None);
    site.guard.state.lock().watches.clear();
    fs::write(&config, "[core]\n\tbare = false\n").unwrap();
    assert_eq!(site.take_snapshot(repositories).check(&[], None), None);
}

#[tokio::test]
async fn the_use_of_caches_is_noted_again_in_a_session_that_lasts_for_weeks() {
    let state = tempfile::tempdir().unwrap();
    let caches = state.path().join("projects/own/caches");
    let used = caches.join("used");
    fs::create_dir_all(&caches).unwrap();
    let guard = ConfinementGuard::default();
    for _ in 0..2 {
        File::create(&used).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        for _ in 0..COMMANDS_PER_NOTE {
            guard.note_caches(&caches);
        }
        guard.tracker.close();
        guard.tracker.wait().await;
        guard.tracker.reopen();
        let noted = fs::metadata(&used).unwrap().modified().unwrap();
        assert_ne!(noted, SystemTime::UNIX_EPOCH);
    }
}
