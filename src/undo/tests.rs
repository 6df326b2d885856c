//! What undo does to real files, with rows in a real store: stories, and random ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::now::state;
use turnwright_workspace::files::{Files, Roots};
use turnwright_types::ids::{CallId, SessionId};
use crate::session::{Desk, Report, Wish};
use turnwright_store::{Durability, Log, SessionRow, Settled, Store, TurnKind, versions};
use turnwright_types::file_change::{Change, FileState, Intent};

type Tree = BTreeMap<PathBuf, FileState>;

/// A folder, and a session that has worked in it.
struct Stage {
    _folder: tempfile::TempDir,
    root: PathBuf,
    desk: Desk,
}

impl Stage {
    async fn new(files: &[(&str, &'static str)]) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let (store, session) = (Store::in_memory(), SessionId::from("s"));
        let log = Log::new(store.clone(), session.clone());
        let row = SessionRow::new(session.clone(), root.clone());
        log.create(row).written().await;
        let files_of = Files::new(Roots::new(&root).unwrap(), None);
        let cancel = CancellationToken::new();
        let desk = Desk { store, log, files: files_of, session, cancel };
        let stage = Stage { _folder: folder, root, desk };
        for (name, text) in files {
            Op::Write(text).run(&stage.root.join(name));
        }
        stage
    }

    /// A turn of the model that does this, a call each.
    async fn turn(&self, work: &[(&str, Op)]) {
        self.desk.log.begin(TurnKind::Prompt, "do it".to_owned());
        for (number, (name, op)) in work.iter().enumerate() {
            let call = CallId::from(format!("call-{}-{number}", self.desk.log.turn()));
            let (before, bytes) = (self.tree(), self.bytes());
            op.run(&self.root.join(name));
            let after = self.tree();
            let settled =
                Settled { files: self.changes(&before, &after), bytes, ..Settled::default() };
            self.desk.log.settle(&call, settled).written().await;
        }
        self.desk.log.end("end_turn", 0, None).written().await;
    }

    fn changes(&self, before: &Tree, after: &Tree) -> Vec<Change> {
        let paths: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let at = |tree: &Tree, path: &PathBuf| tree.get(path).cloned().unwrap_or(FileState::Absent);
        let change = |path: &PathBuf| Change {
            path: self.root.join(path),
            before: at(before, path),
            after: Some(at(after, path)),
        };
        let all = paths.into_iter().map(change);
        all.filter(|it| Some(&it.before) != it.after.as_ref()).collect()
    }

    async fn go(&self, wish: Wish) -> Option<Report> {
        let planned = self.desk.look(wish).await.unwrap()?;
        let is_redo = wish == Wish::Redo;
        self.desk.log.begin(if is_redo { TurnKind::Redo } else { TurnKind::Undo }, String::new());
        let report = self.desk.carry_out(planned, |_| {}).await;
        self.desk.log.end("end_turn", 0, None).written().await;
        Some(report)
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        walk(&self.root, &mut |path| {
            tree.insert(path.strip_prefix(&self.root).unwrap().to_path_buf(), state(path));
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
        let name = |it: &PathBuf| it.strip_prefix(&self.root).unwrap().display().to_string();
        paths.iter().map(|(path, why)| format!("{}: {why}", name(path))).collect()
    }
}

fn walk(folder: &Path, see: &mut impl FnMut(&Path)) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        see(&path);
        if path.symlink_metadata().unwrap().is_dir() {
            walk(&path, see);
        }
    }
}

/// Something that is done to a path.
#[derive(Clone, Debug)]
enum Op {
    Write(&'static str),
    /// As `sed -i` does it: another file takes the place.
    Replace(&'static str),
    Remove,
    Mode(u32),
    Link(&'static str),
    Folder,
}

impl Op {
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn run(&self, path: &Path) {
        let kind = path.symlink_metadata().ok().map(|it| it.file_type());
        let is_dir = kind.is_some_and(|it| it.is_dir());
        if !matches!(self, Op::Remove | Op::Mode(_))
            && fs::create_dir_all(path.parent().unwrap()).is_err()
        {
            return;
        }
        match self {
            Op::Write(text) if !is_dir && !kind.is_some_and(|it| it.is_symlink()) => {
                fs::write(path, text).unwrap();
            }
            Op::Replace(text) if !is_dir => {
                let other = path.with_extension("new");
                fs::write(&other, text).unwrap();
                fs::rename(other, path).unwrap();
            }
            Op::Remove if is_dir => fs::remove_dir_all(path).unwrap(),
            Op::Remove => drop(fs::remove_file(path)),
            Op::Mode(mode) if kind.is_some_and(|it| !it.is_symlink()) => {
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Op::Link(target) if kind.is_none() => symlink(target, path).unwrap(),
            Op::Folder if kind.is_none() => fs::create_dir(path).unwrap(),
            _ => {}
        }
    }
}

#[tokio::test]
async fn all_that_a_turn_can_do_to_files_goes_back_and_forth() {
    let table: &[&[(&str, Op)]] = &[
        &[("a", Op::Write("edited"))],
        &[("a", Op::Write("once")), ("a", Op::Write("twice"))],
        &[("a", Op::Replace("as sed -i does it"))],
        &[("a", Op::Remove)],
        &[("new", Op::Write("new")), ("x/y/z", Op::Write("deep"))],
        &[("a", Op::Mode(0o755)), ("d/b", Op::Mode(0o400))],
        &[("a", Op::Write("both")), ("a", Op::Mode(0o600))],
        &[("d/b", Op::Write("read only")), ("d/b", Op::Mode(0o444))],
        &[("d", Op::Remove)],
        &[("d", Op::Remove), ("d", Op::Write("a file now"))],
        &[("a", Op::Remove), ("a/below", Op::Write("a folder now"))],
        &[("link", Op::Remove), ("link", Op::Link("d/b"))],
        &[("a", Op::Remove), ("a", Op::Link("d/b")), ("empty", Op::Folder)],
        // As a switch to another branch does it.
        &[("a", Op::Replace("1")), ("d/b", Op::Remove), ("d/c", Op::Replace("2"))],
    ];
    for work in table {
        let stage = Stage::new(&[("a", "the text"), ("d/b", "another"), ("d/c", "third")]).await;
        symlink("a", stage.root.join("link")).unwrap();
        let before = stage.tree();
        stage.turn(work).await;
        let after = stage.tree();
        assert_ne!(before, after, "{work:?}");
        let report = stage.go(Wish::Undo(1)).await.unwrap();
        assert!(report.is_whole(), "{work:?}: {report:?}");
        assert_eq!(stage.tree(), before, "{work:?}");
        assert!(stage.go(Wish::Undo(1)).await.is_none(), "{work:?}");
        let report = stage.go(Wish::Redo).await.unwrap();
        assert!(report.is_whole(), "{work:?}: {report:?}");
        assert_eq!(stage.tree(), after, "{work:?}");
        assert!(stage.go(Wish::Redo).await.is_none(), "{work:?}");
        stage.go(Wish::Undo(1)).await.unwrap();
        assert_eq!(stage.tree(), before, "{work:?}");
    }
}

#[tokio::test]
async fn what_the_user_has_changed_since_is_left_alone_and_told_and_the_rest_is_restored() {
    let stage = Stage::new(&[("a", "1"), ("b", "1"), ("c", "1"), ("mine", "1")]).await;
    stage.turn(&[("a", Op::Write("2")), ("b", Op::Write("2")), ("c", Op::Mode(0o600))]).await;
    stage.turn(&[("n/new", Op::Write("2"))]).await;
    Op::Write("the user's").run(&stage.root.join("a"));
    Op::Write("the user's").run(&stage.root.join("mine"));
    Op::Write("the user's").run(&stage.root.join("n/own"));
    Op::Mode(0o640).run(&stage.root.join("c"));
    let report = stage.go(Wish::Undo(2)).await.unwrap();
    assert_eq!(
        stage.names(&report.conflicts),
        ["a: it was changed since", "c: its mode was changed since"]
    );
    assert_eq!(stage.names(&report.failed), ["n: something else lies in the folder"]);
    assert_eq!(
        ["a", "b", "mine", "n/own", "n/new"].map(|it| stage.read(it)),
        ["the user's", "1", "the user's", "the user's", ""]
    );
    let text = report.text(stage.desk.files.roots());
    for part in ["Restored (2)", "* `b`", "Conflicts, left untouched (2)", "* `a` – it was changed"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_change_of_the_users_between_two_turns_is_not_lost_by_undoing_both() {
    let stage = Stage::new(&[("a", "1")]).await;
    stage.turn(&[("a", Op::Write("2"))]).await;
    Op::Write("the user's").run(&stage.root.join("a"));
    stage.turn(&[("a", Op::Write("3"))]).await;
    let report = stage.go(Wish::Undo(2)).await.unwrap();
    assert_eq!(report.conflicts.len(), 1);
    assert_eq!(stage.read("a"), "3");
    // One by one it goes as far as it can.
    assert!(stage.go(Wish::Undo(1)).await.unwrap().is_whole());
    assert_eq!(stage.read("a"), "the user's");
    assert_eq!(stage.go(Wish::Undo(1)).await.unwrap().conflicts.len(), 1);
    assert_eq!(stage.read("a"), "the user's");
}

#[tokio::test]
async fn turns_are_undone_one_after_the_other_or_together() {
    let stage = Stage::new(&[("a", "0")]).await;
    for text in ["1", "2", "3"] {
        stage.turn(&[("a", Op::Write(text))]).await;
    }
    for expected in ["2", "1"] {
        stage.go(Wish::Undo(1)).await.unwrap();
        assert_eq!(stage.read("a"), expected);
    }
    for expected in ["2", "3"] {
        stage.go(Wish::Redo).await.unwrap();
        assert_eq!(stage.read("a"), expected);
    }
    assert!(stage.go(Wish::Redo).await.is_none());
    let report = stage.go(Wish::Undo(9)).await.unwrap();
    assert_eq!((report.turns.len(), stage.read("a").as_str()), (3, "0"));
    stage.turn(&[("b", Op::Write("new work"))]).await;
    assert!(stage.go(Wish::Redo).await.is_none());
}

#[tokio::test]
async fn bytes_that_were_not_kept_are_told_and_nothing_is_done_about_them() {
    let stage = Stage::new(&[("big", "1"), ("a", "1")]).await;
    let log = &stage.desk.log;
    log.begin(TurnKind::Prompt, "do it".to_owned());
    let before = state(&stage.root.join("big"));
    Op::Write("2").run(&stage.root.join("big"));
    let change = |name: &str, before| {
        let path = stage.root.join(name);
        Change { after: Some(state(&path)), path, before }
    };
    let unknown = FileState::Unknown { why: "it is ignored".to_owned() };
    let files = vec![change("big", before), change("a", unknown)];
    log.settle(&CallId::from("c"), Settled { files, ..Settled::default() }).written().await;
    log.end("end_turn", 0, None).written().await;
    let report = stage.go(Wish::Undo(1)).await.unwrap();
    assert_eq!(stage.names(&report.lost), ["a: it is ignored", "big: its bytes were not kept"]);
    assert_eq!(stage.read("big"), "2");
    assert!(stage.go(Wish::Undo(1)).await.is_some(), "nothing was undone");
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_undone_only_where_it_is_known_what_it_left() {
    let stage = Stage::new(&[("known", "1"), ("unknown", "1"), ("not yet", "1")]).await;
    let log = &stage.desk.log;
    log.begin(TurnKind::Prompt, "do it".to_owned());
    let (before, bytes) = (stage.tree(), stage.bytes());
    Op::Write("2").run(&stage.root.join("known"));
    Op::Write("2").run(&stage.root.join("unknown"));
    let change = |name: &str, after: Option<FileState>| Change {
        path: stage.root.join(name),
        before: before[Path::new(name)].clone(),
        after,
    };
    let files = vec![
        change("known", Some(state(&stage.root.join("known")))),
        change("unknown", None),
        change("not yet", None),
    ];
    let intent = Intent { files, bytes };
    log.intend(&CallId::from("c"), intent, Durability::Machine).written().await;
    let report = stage.go(Wish::Undo(1)).await.unwrap();
    assert_eq!(report.already, [stage.root.join("not yet")]);
    assert_eq!(report.conflicts[0].0, stage.root.join("unknown"));
    assert_eq!(["known", "unknown", "not yet"].map(|it| stage.read(it)), ["1", "2", "1"]);
}

#[tokio::test]
async fn an_undo_that_was_cut_off_is_gone_on_with_and_can_be_done_again() {
    let stage = Stage::new(&[("a", "1"), ("b", "1")]).await;
    stage.turn(&[("a", Op::Write("2")), ("b", Op::Write("2"))]).await;
    let log = &stage.desk.log;
    let planned = stage.desk.look(Wish::Undo(1)).await.unwrap().unwrap();
    log.begin(TurnKind::Undo, String::new());
    let to = |it: &super::Step| match &it.action {
        super::Action::Restore { to } => Some(to.clone()),
        _ => None,
    };
    let files = planned.steps.iter().map(|it| Change {
        path: it.path.clone(),
        before: it.now.clone(),
        after: to(it),
    });
    let intent = Intent { files: files.collect(), bytes: stage.bytes() };
    log.intend(&CallId::from("undo-2"), intent, Durability::Machine).written().await;
    log.about(&[1]).written().await;
    Op::Write("1").run(&stage.root.join("a"));
    // The process ends here, with one of two files as it was.
    let report = stage.go(Wish::Undo(1)).await.unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(["a", "b"].map(|it| stage.read(it)), ["1", "1"]);
    let report = stage.go(Wish::Redo).await.unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(["a", "b"].map(|it| stage.read(it)), ["2", "2"]);
}

#[tokio::test]
async fn a_folder_that_has_become_a_link_leads_nowhere() {
    let stage = Stage::new(&[("d/a", "1"), ("elsewhere/a", "2")]).await;
    stage.turn(&[("d/a", Op::Write("2"))]).await;
    Op::Remove.run(&stage.root.join("d"));
    symlink("elsewhere", stage.root.join("d")).unwrap();
    let report = stage.go(Wish::Undo(1)).await.unwrap();
    assert!(report.restored.is_empty(), "{report:?}");
    assert_eq!(stage.read("elsewhere/a"), "2");
}

#[tokio::test]
async fn an_undo_is_a_turn_with_its_own_versions() {
    let stage = Stage::new(&[("a", "1")]).await;
    stage.turn(&[("a", Op::Write("2"))]).await;
    stage.go(Wish::Undo(1)).await.unwrap();
    let read = |it: &_| Ok((versions::turns(it, 1)?, versions::versions(it, 1, &[2])?));
    let (turns, rows) = stage.desk.store.read(read).await.unwrap();
    let undo = &turns[1];
    assert_eq!(
        (undo.kind, undo.about.as_slice(), undo.has_ended),
        (TurnKind::Undo, &[1][..], true)
    );
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].call, CallId::from("undo-2"));
    assert_eq!(rows[0].change.after, Some(state(&stage.root.join("a"))));
}

const NAMES: [&str; 6] = ["a", "b", "d", "d/a", "d/e/c", "f/g"];
const TEXTS: [&str; 4] = ["", "one\n", "two\r\n", "\u{feff}three"];

fn op() -> impl Strategy<Value = (&'static str, Op)> {
    let op = prop_oneof![
        4 => prop::sample::select(TEXTS.to_vec()).prop_map(Op::Write),
        2 => prop::sample::select(TEXTS.to_vec()).prop_map(Op::Replace),
        3 => Just(Op::Remove),
        1 => prop::sample::select(vec![0o600, 0o755, 0o444]).prop_map(Op::Mode),
        1 => Just(Op::Link("a")),
        1 => Just(Op::Folder),
    ];
    (prop::sample::select(NAMES.to_vec()), op)
}

/// A mode of a folder that nothing can be made in would stop the test's own work where it is not
/// root's.
fn is_tame(it: &(&'static str, Op)) -> bool {
    !matches!(it, ("d" | "f", Op::Mode(_)))
}

fn turns() -> impl Strategy<Value = Vec<Vec<(&'static str, Op)>>> {
    let op = op().prop_filter("tame", is_tame);
    prop::collection::vec(prop::collection::vec(op, 1..5), 1..4)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn after_undo_all_is_as_before_and_after_redo_as_after(turns in turns()) {
        block_on(async {
            let stage = Stage::new(&[("a", "start"), ("d/a", "start")]).await;
            let before = stage.tree();
            for turn in &turns {
                stage.turn(turn).await;
            }
            let after = stage.tree();
            let Some(report) = stage.go(Wish::Since(1)).await else { return };
            assert!(report.is_whole(), "{report:?}");
            assert_eq!(stage.tree(), before);
            stage.go(Wish::Redo).await.unwrap();
            assert_eq!(stage.tree(), after);
        });
    }

    #[test]
    fn what_somebody_else_has_changed_is_untouched_and_told(
        (first, second) in (turns(), turns()),
        names in prop::collection::vec(prop::sample::select(NAMES.to_vec()), 1..4),
        is_last in any::<bool>(),
    ) {
        block_on(async {
            let stage = Stage::new(&[("a", "start"), ("d/a", "start")]).await;
            let before = stage.tree();
            for turn in &first {
                stage.turn(turn).await;
            }
            if is_last {
                for turn in &second {
                    stage.turn(turn).await;
                }
            }
            let mine: Vec<_> = names.iter().filter(|it| {
                // Not through a link, by which it would be another file.
                let path = stage.root.join(it);
                path.is_file() && fs::canonicalize(&path).unwrap() == path
            }).collect();
            for name in &mine {
                Op::Replace("the user's").run(&stage.root.join(name));
            }
            let foreign = stage.tree();
            if !is_last {
                for turn in &second {
                    stage.turn(turn).await;
                }
            }
            let end = stage.tree();
            // What is seen through a link is another file.
            let is_direct = |it: &&&str| {
                let folder = stage.root.join(it).parent().unwrap().to_path_buf();
                fs::canonicalize(&folder).map_or(true, |real| real == folder)
            };
            let direct: Vec<_> = NAMES.iter().filter(is_direct).map(Path::new).collect();
            let Some(report) = stage.go(Wish::Since(1)).await else { return };
            let now = stage.tree();
            for name in direct {
                let is_mine = mine.iter().any(|it| Path::new(it) == name);
                if is_mine {
                    let kept = now.get(name) == end.get(name) || now.get(name) == foreign.get(name);
                    assert!(kept, "{name:?}: {report:?}");
                    let path = stage.root.join(name);
                    let told = report.conflicts.iter().any(|it| it.0 == path);
                    let was_there = before.get(name) == foreign.get(name)
                        || now.get(name) == foreign.get(name)
                        || report.failed.iter().any(|it| it.0 == path);
                    assert!(told || was_there, "{name:?}: {report:?}");
                } else if !mine.iter().any(|it| name.starts_with(it) || Path::new(it).starts_with(name)) {
                    assert_eq!(now.get(name), before.get(name), "{name:?}: {report:?}");
                }
            }
        });
    }
}
