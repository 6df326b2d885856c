//! Tests of undo and redo with real files and a real store: fixed scenarios and random ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::apply::file_state;
use crate::{UndoAction, UndoContext, UndoReport, UndoRequest};
use turnwright_store::{
    CallOutcome, Durability, SessionLog, SessionRow, Store, TurnKind, file_versions,
};
use turnwright_types::file_change::{ChangeIntent, FileChange, FileState};
use turnwright_types::ids::{CallId, SessionId};
use turnwright_workspace::checkpoint::CallChanges;
use turnwright_workspace::files::{Files, Roots};

type Tree = BTreeMap<PathBuf, FileState>;

/// A folder, and a session that works in it.
struct UndoFixture {
    _folder: tempfile::TempDir,
    _state: tempfile::TempDir,
    root: PathBuf,
    undo: UndoContext,
}

impl UndoFixture {
    async fn new(files: &[(&str, &'static str)]) -> UndoFixture {
        let folder = tempfile::tempdir().unwrap();
        let root = turnwright_workspace::real_path(folder.path()).unwrap();
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path());
        let session = SessionId::from("s");
        let log = SessionLog::new(store.clone(), session.clone());
        let row = SessionRow::new(session.clone(), root.clone());
        log.create_session(row).written().await;
        let files_of = Files::new(Roots::new(&root).unwrap(), None);
        let cancel = CancellationToken::new();
        let undo = UndoContext { store, log, files: files_of, session, cancel };
        let fixture = UndoFixture { _folder: folder, _state: state, root, undo };
        for (name, text) in files {
            FileOp::Write(text).run(&fixture.root.join(name));
        }
        fixture
    }

    /// Runs a turn of the model, one call for each operation.
    async fn turn(&self, work: &[(&str, FileOp)]) {
        self.undo.log.begin_turn(TurnKind::Prompt, "do it".to_owned());
        for (number, (name, op)) in work.iter().enumerate() {
            let call = CallId::from(format!("call-{}-{number}", self.undo.log.turn()));
            let before = self.tree();
            let bytes = self.bytes();
            op.run(&self.root.join(name));
            let after = self.tree();
            let settled = CallOutcome {
                file_changes: self.changes(&before, &after),
                file_contents: bytes,
                ..CallOutcome::default()
            };
            self.undo.log.finish_call(&call, settled).written().await;
        }
        self.undo.log.end_turn("end_turn", 0, None, None).written().await;
    }

    fn changes(&self, before: &Tree, after: &Tree) -> Vec<FileChange> {
        let paths: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let all = paths.into_iter().map(|path| FileChange {
            path: self.root.join(path),
            before: before.get(path).cloned().unwrap_or(FileState::Absent),
            after: Some(after.get(path).cloned().unwrap_or(FileState::Absent)),
        });
        all.filter(|change| Some(&change.before) != change.after.as_ref()).collect()
    }

    async fn carry_out(&self, wish: UndoRequest) -> Option<UndoReport> {
        let planned = self.undo.plan(wish).await.unwrap()?;
        let is_redo = wish == UndoRequest::Redo;
        self.undo
            .log
            .begin_turn(if is_redo { TurnKind::Redo } else { TurnKind::Undo }, String::new());
        let report = self.undo.execute(planned, |_| {}).await;
        self.undo.log.end_turn("end_turn", 0, None, None).written().await;
        Some(report)
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        walk(&self.root, &mut |path| {
            tree.insert(path.strip_prefix(&self.root).unwrap().to_path_buf(), file_state(path));
        });
        tree
    }

    fn bytes(&self) -> Vec<Arc<[u8]>> {
        let mut all = Vec::new();
        walk(&self.root, &mut |path| {
            if path.symlink_metadata().unwrap().is_file() {
                all.push(fs::read(path).unwrap().into());
            }
        });
        all
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).unwrap_or_default()
    }

    fn names(&self, paths: &[(PathBuf, String)]) -> Vec<String> {
        let names = paths.iter().map(|(path, why)| {
            format!("{}: {why}", path.strip_prefix(&self.root).unwrap().display())
        });
        names.collect()
    }
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    let mut entries: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        visit(&path);
        if path.symlink_metadata().unwrap().is_dir() {
            walk(&path, visit);
        }
    }
}

/// An operation on a path.
#[derive(Clone, Debug)]
enum FileOp {
    Write(&'static str),
    /// Replaces the file by a new one, as `sed -i` does.
    Replace(&'static str),
    Remove,
    Mode(u32),
    Link(&'static str),
    Folder,
}

impl FileOp {
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn run(&self, path: &Path) {
        let kind = path.symlink_metadata().ok().map(|metadata| metadata.file_type());
        let is_dir = kind.is_some_and(|kind| kind.is_dir());
        if !matches!(self, FileOp::Remove | FileOp::Mode(_))
            && fs::create_dir_all(path.parent().unwrap()).is_err()
        {
            return;
        }
        match self {
            FileOp::Write(text) if !is_dir && !kind.is_some_and(|kind| kind.is_symlink()) => {
                fs::write(path, text).unwrap();
            }
            FileOp::Replace(text) if !is_dir => {
                let other = path.with_extension("new");
                fs::write(&other, text).unwrap();
                fs::rename(other, path).unwrap();
            }
            FileOp::Remove if is_dir => fs::remove_dir_all(path).unwrap(),
            FileOp::Remove => drop(fs::remove_file(path)),
            FileOp::Mode(mode) if kind.is_some_and(|kind| !kind.is_symlink()) => {
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            FileOp::Link(target) if kind.is_none() => symlink(target, path).unwrap(),
            FileOp::Folder if kind.is_none() => fs::create_dir(path).unwrap(),
            _ => {}
        }
    }
}

#[tokio::test]
async fn later_changes_of_the_user_are_left_alone_and_reported() {
    let fixture = UndoFixture::new(&[("a", "1"), ("b", "1"), ("c", "1"), ("mine", "1")]).await;
    fixture
        .turn(&[("a", FileOp::Write("2")), ("b", FileOp::Write("2")), ("c", FileOp::Mode(0o700))])
        .await;
    fixture.turn(&[("n/new", FileOp::Write("2"))]).await;
    FileOp::Write("the user's").run(&fixture.root.join("a"));
    FileOp::Write("the user's").run(&fixture.root.join("mine"));
    FileOp::Write("the user's").run(&fixture.root.join("n/own"));
    FileOp::Mode(0o640).run(&fixture.root.join("c"));
    let report = fixture.carry_out(UndoRequest::Undo(2)).await.unwrap();
    assert_eq!(
        fixture.names(&report.conflicts),
        [
            "a: it was changed since",
            "c: its mode was changed since",
            "n: something else lies in the folder"
        ]
    );
    assert!(report.failed.is_empty(), "{report:?}");
    assert_eq!(
        ["a", "b", "mine", "n/own", "n/new"].map(|name| fixture.read(name)),
        ["the user's", "1", "the user's", "the user's", ""]
    );
    let text = report.text(fixture.undo.files.roots());
    for part in [
        "Restored (1)",
        "Removed (1)",
        "* `b`",
        "Conflicts, left untouched (3)",
        "* `a` – it was changed",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// Such as a cache, or the repository that `cargo new` has made.
#[tokio::test]
async fn a_folder_that_is_not_empty_does_not_keep_earlier_turns_from_being_undone() {
    let fixture = UndoFixture::new(&[("a", "1")]).await;
    fixture.turn(&[("a", FileOp::Write("2"))]).await;
    fixture.turn(&[("n/new", FileOp::Write("2"))]).await;
    FileOp::Write("a cache").run(&fixture.root.join("n/cache"));
    for (wish, expected) in [
        (UndoRequest::Undo(1), ["2", ""]),
        (UndoRequest::Undo(1), ["1", ""]),
        (UndoRequest::Redo, ["2", ""]),
        (UndoRequest::Redo, ["2", "2"]),
    ] {
        let report = fixture.carry_out(wish).await.unwrap();
        assert_eq!(["a", "n/new"].map(|name| fixture.read(name)), expected, "{report:?}");
    }
    assert_eq!(fixture.read("n/cache"), "a cache");
}

#[tokio::test]
async fn a_change_of_the_users_between_two_turns_is_not_lost_by_undoing_both() {
    let fixture = UndoFixture::new(&[("a", "1")]).await;
    fixture.turn(&[("a", FileOp::Write("2"))]).await;
    FileOp::Write("the user's").run(&fixture.root.join("a"));
    fixture.turn(&[("a", FileOp::Write("3"))]).await;
    let report = fixture.carry_out(UndoRequest::Undo(2)).await.unwrap();
    assert_eq!(report.conflicts.len(), 1);
    assert_eq!(fixture.read("a"), "3");
    // Undoing the turns one by one goes as far as possible.
    assert!(fixture.carry_out(UndoRequest::Undo(1)).await.unwrap().is_complete());
    assert_eq!(fixture.read("a"), "the user's");
    assert_eq!(fixture.carry_out(UndoRequest::Undo(1)).await.unwrap().conflicts.len(), 1);
    assert_eq!(fixture.read("a"), "the user's");
}

#[tokio::test]
async fn content_that_was_not_stored_is_reported_and_nothing_is_changed() {
    let fixture = UndoFixture::new(&[("big", "1"), ("a", "1")]).await;
    let log = &fixture.undo.log;
    log.begin_turn(TurnKind::Prompt, "do it".to_owned());
    let before = file_state(&fixture.root.join("big"));
    FileOp::Write("2").run(&fixture.root.join("big"));
    let change = |name: &str, before| {
        let path = fixture.root.join(name);
        FileChange { after: Some(file_state(&path)), path, before }
    };
    let unknown = FileState::Unknown { why: "it is ignored".to_owned() };
    let file_changes = vec![change("big", before), change("a", unknown)];
    log.finish_call(&CallId::from("c"), CallOutcome { file_changes, ..CallOutcome::default() })
        .written()
        .await;
    log.end_turn("end_turn", 0, None, None).written().await;
    let report = fixture.carry_out(UndoRequest::Undo(1)).await.unwrap();
    assert_eq!(
        fixture.names(&report.lost),
        ["a: it is ignored", "big: its content was not stored"]
    );
    assert_eq!(fixture.read("big"), "2");
    assert!(fixture.carry_out(UndoRequest::Undo(1)).await.is_some(), "nothing was undone");
}

#[tokio::test]
async fn an_interrupted_call_is_undone_only_where_its_change_is_known() {
    let fixture = UndoFixture::new(&[("known", "1"), ("unknown", "1"), ("not yet", "1")]).await;
    let log = &fixture.undo.log;
    log.begin_turn(TurnKind::Prompt, "do it".to_owned());
    let before = fixture.tree();
    let bytes = fixture.bytes();
    FileOp::Write("2").run(&fixture.root.join("known"));
    FileOp::Write("2").run(&fixture.root.join("unknown"));
    let change = |name: &str, after: Option<FileState>| FileChange {
        path: fixture.root.join(name),
        before: before[Path::new(name)].clone(),
        after,
    };
    let files = vec![
        change("known", Some(file_state(&fixture.root.join("known")))),
        change("unknown", None),
        change("not yet", None),
    ];
    let intent = ChangeIntent { files, bytes };
    log.record_intent(&CallId::from("c"), intent, Durability::PowerLoss).written().await;
    let report = fixture.carry_out(UndoRequest::Undo(1)).await.unwrap();
    assert_eq!(report.already, [fixture.root.join("not yet")]);
    assert_eq!(report.conflicts[0].0, fixture.root.join("unknown"));
    assert_eq!(["known", "unknown", "not yet"].map(|name| fixture.read(name)), ["1", "2", "1"]);
}

#[tokio::test]
async fn an_interrupted_undo_can_be_completed_and_redone() {
    let fixture = UndoFixture::new(&[("a", "1"), ("b", "1")]).await;
    fixture.turn(&[("a", FileOp::Write("2")), ("b", FileOp::Write("2"))]).await;
    let log = &fixture.undo.log;
    let planned = fixture.undo.plan(UndoRequest::Undo(1)).await.unwrap().unwrap();
    log.begin_turn(TurnKind::Undo, String::new());
    let files = planned.steps.iter().map(|step| FileChange {
        path: step.path.clone(),
        before: step.now.clone(),
        after: match &step.action {
            UndoAction::Restore(to) => Some(to.clone()),
            _ => None,
        },
    });
    let intent = ChangeIntent { files: files.collect(), bytes: fixture.bytes() };
    log.record_intent(&CallId::from("undo-2"), intent, Durability::PowerLoss).written().await;
    log.set_target_turns(&[1]).written().await;
    FileOp::Write("1").run(&fixture.root.join("a"));
    // The process is killed here, with one of two files restored.
    let report = fixture.carry_out(UndoRequest::Undo(1)).await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(["a", "b"].map(|name| fixture.read(name)), ["1", "1"]);
    let report = fixture.carry_out(UndoRequest::Redo).await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(["a", "b"].map(|name| fixture.read(name)), ["2", "2"]);
}

/// On macOS and Windows, both names find the file.
#[tokio::test]
async fn a_file_whose_name_was_changed_only_in_its_letters_comes_back() {
    let fixture = UndoFixture::new(&[("Hello", "1"), ("Src/a", "2")]).await;
    let before = fixture.tree();
    let rename = [
        ("Hello", FileOp::Remove),
        ("hello", FileOp::Write("1")),
        ("Src", FileOp::Remove),
        ("src/a", FileOp::Write("2")),
    ];
    fixture.turn(&rename).await;
    let after = fixture.tree();
    let report = fixture.carry_out(UndoRequest::Undo(1)).await.unwrap();
    assert!(report.is_complete() && report.already.is_empty(), "{report:?}");
    assert_eq!(fixture.tree(), before);
    assert!(fixture.carry_out(UndoRequest::Redo).await.unwrap().is_complete());
    assert_eq!(fixture.tree(), after);
}

#[tokio::test]
async fn undo_does_not_follow_a_folder_that_has_become_a_link() {
    let fixture = UndoFixture::new(&[("d/a", "1"), ("elsewhere/a", "2")]).await;
    fixture.turn(&[("d/a", FileOp::Write("2"))]).await;
    FileOp::Remove.run(&fixture.root.join("d"));
    symlink("elsewhere", fixture.root.join("d")).unwrap();
    let report = fixture.carry_out(UndoRequest::Undo(1)).await.unwrap();
    assert!(report.restored.is_empty(), "{report:?}");
    assert_eq!(fixture.read("elsewhere/a"), "2");
}

#[tokio::test]
async fn an_undo_is_a_turn_with_its_own_versions() {
    let fixture = UndoFixture::new(&[("a", "1")]).await;
    fixture.turn(&[("a", FileOp::Write("2"))]).await;
    fixture.carry_out(UndoRequest::Undo(1)).await.unwrap();
    let reading = fixture.undo.store.read(|connection| {
        Ok((
            file_versions::undoable_turns(connection, 1)?,
            file_versions::file_versions(connection, 1, &[2])?,
            file_versions::changed_files(connection, 1, "undo-2", 9)?,
        ))
    });
    let (turns, changes, of_call) = reading.await.unwrap();
    let undo = &turns[1];
    assert_eq!(
        (undo.kind, undo.target_turns.as_slice(), undo.has_ended),
        (TurnKind::Undo, &[1][..], true)
    );
    assert_eq!(changes.len(), 1);
    assert_eq!(of_call, [(changes[0].path.clone(), 1)]);
    assert_eq!(changes[0].after, Some(file_state(&fixture.root.join("a"))));
}

#[tokio::test]
async fn turns_of_whose_commands_nothing_is_known_are_named_each_time() {
    let fixture = UndoFixture::new(&[("a", "1")]).await;
    fixture.turn(&[("a", FileOp::Write("2"))]).await;
    for is_unknown in [true, false, true] {
        let turn = fixture.undo.log.begin_turn(TurnKind::Prompt, "run it".to_owned());
        let call = CallId::from(format!("call-{turn}"));
        let files = vec![CallChanges::of_running_command()];
        let intent = ChangeIntent { files, bytes: Vec::new() };
        fixture.undo.log.record_intent(&call, intent, Durability::ProcessCrash).written().await;
        let mut changes = CallChanges { is_unknown, ..CallChanges::default() };
        changes.settle_command();
        let settled = CallOutcome { file_changes: changes.files, ..CallOutcome::default() };
        fixture.undo.log.finish_call(&call, settled).written().await;
        fixture.undo.log.end_turn("end_turn", 0, None, None).written().await;
    }
    let named = "\nNot covered is what commands have changed in:\n\n\
                 * turn 4 (run it) – too many files, or the disk is too slow\n\
                 * turn 2 (run it) – too many files, or the disk is too slow\n";
    let report = fixture.carry_out(UndoRequest::Undo(1)).await.unwrap();
    assert_eq!((report.restored.len(), report.uncovered.as_str()), (1, named));
    assert!(report.text(fixture.undo.files.roots()).ends_with(named));
    assert_eq!(fixture.read("a"), "1");
    assert_eq!(fixture.undo.plan(UndoRequest::Undo(1)).await.unwrap().map(|plan| plan.turns), None);
    assert_eq!(fixture.undo.uncovered().await.unwrap(), named);
}

const NAMES: [&str; 6] = ["a", "b", "d", "d/a", "d/e/c", "f/g"];
const TEXTS: [&str; 4] = ["", "one\n", "two\r\n", "\u{feff}three"];

fn op() -> impl Strategy<Value = (&'static str, FileOp)> {
    let op = prop_oneof![
        4 => prop::sample::select(TEXTS.to_vec()).prop_map(FileOp::Write),
        2 => prop::sample::select(TEXTS.to_vec()).prop_map(FileOp::Replace),
        3 => Just(FileOp::Remove),
        1 => prop::sample::select(vec![0o600, 0o755, 0o444]).prop_map(FileOp::Mode),
        1 => Just(FileOp::Link("a")),
        1 => Just(FileOp::Folder),
    ];
    (prop::sample::select(NAMES.to_vec()), op)
}

/// Excludes read-only folders, in which the test itself could not create files unless it runs as
/// root.
fn is_allowed_op(operation: &(&'static str, FileOp)) -> bool {
    !matches!(operation, ("d" | "f", FileOp::Mode(_)))
}

fn turns() -> impl Strategy<Value = Vec<Vec<(&'static str, FileOp)>>> {
    let op = op().prop_filter("tame", is_allowed_op);
    prop::collection::vec(prop::collection::vec(op, 1..5), 1..4)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn undo_restores_the_state_before_and_redo_the_state_after(turns in turns()) {
        block_on(async {
            let fixture = UndoFixture::new(&[("a", "start"), ("d/a", "start")]).await;
            let before = fixture.tree();
            for turn in &turns {
                fixture.turn(turn).await;
            }
            let after = fixture.tree();
            let Some(report) = fixture.carry_out(UndoRequest::Since(1)).await else { return };
            assert!(report.is_complete(), "{report:?}");
            assert_eq!(fixture.tree(), before);
            fixture.carry_out(UndoRequest::Redo).await.unwrap();
            assert_eq!(fixture.tree(), after);
        });
    }

    #[test]
    fn foreign_changes_are_left_alone_and_reported(
        (first, second) in (turns(), turns()),
        names in prop::collection::vec(prop::sample::select(NAMES.to_vec()), 1..4),
        is_last in any::<bool>(),
    ) {
        block_on(async {
            let fixture = UndoFixture::new(&[("a", "start"), ("d/a", "start")]).await;
            let before = fixture.tree();
            for turn in &first {
                fixture.turn(turn).await;
            }
            if is_last {
                for turn in &second {
                    fixture.turn(turn).await;
                }
            }
            let mine: Vec<_> = names.iter().filter(|name| {
                // Through a link it would be another file.
                let path = fixture.root.join(name);
                path.is_file() && turnwright_workspace::real_path(&path).unwrap() == path
            }).collect();
            for name in &mine {
                FileOp::Replace("the user's").run(&fixture.root.join(name));
            }
            let foreign = fixture.tree();
            if !is_last {
                for turn in &second {
                    fixture.turn(turn).await;
                }
            }
            let end = fixture.tree();
            // A path through a link is a different file.
            let direct_names = NAMES.iter().filter(|name| {
                let folder = fixture.root.join(name).parent().unwrap().to_path_buf();
                turnwright_workspace::real_path(&folder).map_or(true, |real| real == folder)
            });
            let direct: Vec<_> = direct_names.map(Path::new).collect();
            let Some(report) = fixture.carry_out(UndoRequest::Since(1)).await else { return };
            let now = fixture.tree();
            for name in direct {
                let is_mine = mine.iter().any(|own| Path::new(own) == name);
                if is_mine {
                    let kept = now.get(name) == end.get(name) || now.get(name) == foreign.get(name);
                    assert!(kept, "{name:?}: {report:?}");
                    let path = fixture.root.join(name);
                    let told = report.conflicts.iter().any(|conflict| conflict.0 == path);
                    let was_there = before.get(name) == foreign.get(name)
                        || now.get(name) == foreign.get(name)
                        || report.failed.iter().any(|failure| failure.0 == path);
                    assert!(told || was_there, "{name:?}: {report:?}");
                } else if !mine.iter().any(|own| name.starts_with(own) || Path::new(own).starts_with(name)) {
                    assert_eq!(now.get(name), before.get(name), "{name:?}: {report:?}");
                }
            }
        });
    }
}
