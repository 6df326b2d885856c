//! Overwrites each page of a small database with noise, closed and in use, and checks that what is
//! lost is named, that everything else can be loaded, and that nobody is told twice.
#![expect(clippy::disallowed_methods, reason = "tests set up their files")]

use std::fs;
use std::io::{Seek, SeekFrom, Write};

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use turnwright_types::file_change::{ChangeIntent, FileChange, FileState};
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::{Arguments, AssistantMessage, Message, TokenUsage, ToolCall};

const SESSIONS: [&str; 4] = ["s0", "s1", "s2", "s3"];
const PAGE_SIZE: usize = 4096;

/// Bytes that depend on the seed and look like nothing.
fn noise(seed: usize, length: usize) -> Vec<u8> {
    let mut number = seed as u64 + 1;
    let mut next = || {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

/// A text that hardly compresses.
fn text(seed: usize, length: usize) -> String {
    noise(seed, length).iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

fn note(log: &SessionLog, text: &str) {
    log.add_entry(Entry::Note { id: MessageId::from("m"), text: text.to_owned() });
}

async fn new_session(store: &Store, id: &str) -> SessionLog {
    let log = SessionLog::new(store.clone(), SessionId::from(id));
    log.create_session(SessionRow::new(SessionId::from(id), "/w".into())).ended().await;
    log
}

/// A turn with a call whose result and file are long.
fn add_turn(log: &SessionLog, seed: usize) {
    log.begin_turn(TurnKind::Prompt, format!("prompt {seed}"));
    note(log, &text(seed, 600));
    let call = CallId::from(format!("call-{seed}"));
    // A row that fills several pages without a long string.
    let lines: Vec<_> = (0..10).map(|number| text(seed + number, 600)).collect();
    let arguments = Arguments::Object(json!({ "path": "a", "lines": lines }));
    let answer = AssistantMessage::new(
        format!("msg-{seed}"),
        text(seed + 1, 500),
        vec![ToolCall {
            id: call.clone(),
            provider_id: "p".to_owned(),
            name: "write_file".to_owned(),
            arguments,
            extra: None,
        }],
    );
    log.add_entry(Entry::Message {
        id: MessageId::from(format!("msg-{seed}")),
        message: Arc::new(Message::Assistant(answer)),
        audience: Audience::Both,
    });
    let contents: Arc<[u8]> = noise(seed, 5_000).into();
    let change = FileChange {
        path: format!("/w/{seed}").into(),
        before: FileState::Absent,
        after: Some(FileState::Link { target: "/x".into() }),
    };
    let intent = ChangeIntent { files: vec![change], bytes: vec![contents] };
    drop(log.record_intent(&call, intent, Durability::ProcessCrash));
    let outcome = CallOutcome {
        is_success: true,
        tool: "write_file".to_owned(),
        text: text(seed + 2, 3_000),
        ..CallOutcome::default()
    };
    drop(log.finish_call(&call, outcome));
    log.record_usage("m", "", TokenUsage::default(), Some(1_000), None);
    log.record_permission("{}".to_owned());
    drop(log.end_turn("end_turn", 1, None, None));
}

/// The bytes of a database with a few sessions, closed without a fault, and what loading reads.
async fn sample() -> Sample {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    for (number, id) in SESSIONS.iter().enumerate() {
        let log = new_session(&store, id).await;
        for turn in 0..3 {
            add_turn(&log, number * 100 + turn * 10);
        }
    }
    store.final_flush().await.unwrap();
    let bytes = fs::read(folder.path().join(DATABASE_FILE)).unwrap();
    let mut entries = Vec::new();
    for id in SESSIONS {
        entries.push(load(&store, id).await.unwrap());
    }
    Sample { bytes, entries }
}

struct Sample {
    bytes: Vec<u8>,
    /// The entries of each session.
    entries: Vec<Vec<StoredEntry>>,
}

impl Sample {
    fn pages(&self) -> usize {
        self.bytes.len() / PAGE_SIZE
    }

    /// A state folder with the database.
    fn write(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(DATABASE_FILE), &self.bytes).unwrap();
        folder
    }
}

/// Overwrites a page of the database with noise.
fn damage(folder: &Path, page: usize) {
    let mut file = fs::File::options().write(true).open(folder.join(DATABASE_FILE)).unwrap();
    file.seek(SeekFrom::Start((page * PAGE_SIZE) as u64)).unwrap();
    file.write_all(&noise(page + 7, PAGE_SIZE)).unwrap();
}

fn page_of(file: &Path, page: usize) -> Vec<u8> {
    fs::read(file).unwrap()[page * PAGE_SIZE..(page + 1) * PAGE_SIZE].to_vec()
}

/// Everything that loading a session reads.
async fn load(store: &Store, id: &str) -> Result<Vec<StoredEntry>, StoreError> {
    let id = SessionId::from(id);
    store
        .read(move |connection| {
            read::session(connection, &id)?;
            let key = read::session_key(connection, &id)?;
            let rewound = RewoundEntries::load(connection, key)?;
            recovery::find_unfinished(connection, key)?;
            recovery::last_stop(connection, key)?;
            read::last_usage(connection, key)?;
            file_versions::undoable_turns(connection, key)?;
            Ok(read::entries_page(connection, key, (0, 1_000), &rewound)?.0)
        })
        .await
}

/// Loads all sessions. `None` stands for one that is lost.
async fn load_all(store: &Store) -> Vec<Option<Vec<StoredEntry>>> {
    let mut all = Vec::new();
    for id in SESSIONS {
        all.push(match load(store, id).await {
            Err(StoreError::NoSuchSession) => None,
            result => Some(result.unwrap()),
        });
    }
    all
}

/// Uses the store as a process does: loads all sessions, and saves a new one. Returns the sessions
/// and the notices.
async fn use_store(folder: &Path, new: &str) -> (Vec<Option<Vec<StoredEntry>>>, String) {
    let store = Store::new(folder);
    let loaded = load_all(&store).await;
    let log = new_session(&store, new).await;
    note(&log, "kept");
    store.final_flush().await.unwrap();
    assert_eq!(load(&store, new).await.unwrap().len(), 1);
    (loaded, log.take_notices().join("\n"))
}

/// Checks that every session is what it was, or is named.
fn check_loaded(
    loaded: &[Option<Vec<StoredEntry>>],
    expected: &[Vec<StoredEntry>],
    notices: &str,
    page: usize,
) {
    for ((id, loaded), expected) in SESSIONS.iter().zip(loaded).zip(expected) {
        let is_whole = loaded.as_ref() == Some(expected);
        assert!(is_whole || notices.contains(id), "page {page}, {id}: {notices}");
    }
}

/// The copies that were kept of damaged databases.
fn kept_files(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let kept = names.filter(|file| {
        let name = file.to_string_lossy();
        name.contains("damaged-") && !name.ends_with("-wal") && !name.ends_with("-shm")
    });
    kept.collect()
}

/// Checks every page, several at a time.
async fn check_pages<F: Future<Output = ()> + 'static>(
    sample: &Arc<Sample>,
    check: impl Fn(Arc<Sample>, usize) -> F,
) {
    let all = (0..sample.pages()).map(|page| check(Arc::clone(sample), page));
    stream::iter(all).buffer_unordered(8).collect::<()>().await;
}

#[tokio::test]
async fn whatever_page_of_a_closed_database_is_damaged_the_rest_is_kept() {
    let sample = Arc::new(sample().await);
    check_pages(&sample, |sample, page| async move {
        let folder = sample.write();
        damage(folder.path(), page);
        let (loaded, notices) = use_store(folder.path(), "new").await;
        check_loaded(&loaded, &sample.entries, &notices, page);
        let kept = kept_files(folder.path());
        assert_eq!(kept.len(), usize::from(!notices.is_empty()), "page {page}: {notices}");
        for file in kept {
            assert!(notices.contains(&*file.to_string_lossy()), "page {page}: {notices}");
            assert!(page_of(&file, page) == noise(page + 7, PAGE_SIZE), "page {page}");
        }
        let (again, notices) = use_store(folder.path(), "newer").await;
        assert!(again == loaded, "page {page}");
        assert_eq!(notices, "", "page {page}");
    })
    .await;
}

#[tokio::test]
async fn whatever_page_of_an_open_database_is_damaged_no_turn_is_lost_in_silence() {
    let sample = Arc::new(sample().await);
    check_pages(&sample, |sample, page| async move {
        let folder = sample.write();
        let store = Store::new(folder.path());
        let log = SessionLog::new(store.clone(), SessionId::from("s1"));
        log.set_session_row(SessionRow::new(SessionId::from("s1"), "/w".into()));
        log.resume_after((6, 3));
        add_turn(&log, 900);
        log.flush().ended().await;
        damage(folder.path(), page);
        add_turn(&log, 910);
        store.flush().await.unwrap();
        load_all(&store).await;
        add_turn(&log, 920);
        store.final_flush().await.unwrap();
        let mut notices = log.take_notices().join("\n");
        let mut here = load(&store, "s1").await.unwrap();
        here.retain(|row| row.turn > 3);
        // The damage was known when the last turn was answered.
        assert_eq!(here.iter().filter(|row| row.turn == 6).count(), 2, "page {page}");
        drop((log, store));
        let (loaded, more) = use_store(folder.path(), "new").await;
        notices.push_str(&more);
        assert!(here.len() == 6 || notices.contains("s1"), "page {page}: {notices}");
        let mut expected = sample.entries.clone();
        expected[1].extend(here);
        check_loaded(&loaded, &expected, &notices, page);
        let (again, notices) = use_store(folder.path(), "newer").await;
        assert!(again == loaded, "page {page}");
        assert_eq!(notices, "", "page {page}");
    })
    .await;
}
