//! Tests of the whole store under faults: full disk, locks, damage and removed files.
#![expect(clippy::disallowed_methods, reason = "tests set up their files")]

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::writer::cleanup::run_cleanup;
use crate::writer::queue::{MAX_JOBS, MAX_QUEUED_BYTES};
use turnwright_types::ids::MessageId;
use turnwright_types::message::TokenUsage;

fn row(id: &str) -> SessionRow {
    SessionRow::new(SessionId::from(id), "/w".into())
}

async fn session(store: &Store, id: &str) -> SessionLog {
    let log = SessionLog::new(store.clone(), SessionId::from(id));
    log.create_session(row(id)).ended().await;
    log
}

fn note(log: &SessionLog, text: &str) {
    log.add_entry(Entry::Note { id: MessageId::from("m"), text: text.to_owned() });
}

/// The first letter of each note of a session.
async fn notes(store: &Store, id: &str) -> Result<String, StoreError> {
    let id = SessionId::from(id);
    let reading = store.read(move |connection| {
        let key = read::session_key(connection, &id)?;
        read::entries_page(connection, key, (0, 100_000), &RewoundEntries::default())
    });
    let (page, _) = reading.await?;
    let text = page.iter().filter_map(|row| match &row.entry {
        Entry::Note { text, .. } => text.chars().next(),
        _ => None,
    });
    Ok(text.collect())
}

/// A text that hardly compresses.
fn noise(first: &str, length: usize) -> String {
    let mut text = first.to_owned();
    let mut number = length as u64;
    while text.len() < length {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push(char::from(b'!' + u8::try_from((number >> 33) % 90).unwrap()));
    }
    text
}

fn count(connection: &Connection, table: &str) -> i64 {
    let query = format!("SELECT count(*) FROM {table}");
    connection.query_row(&query, [], |row| row.get(0)).unwrap()
}

/// Makes the writer thread hang, as a disk can, until the returned sender is dropped.
fn hang(store: &Store) -> mpsc::Sender<()> {
    let (release, hanging) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    drop(store.submit(Durability::ProcessCrash, move |_| {
        begun.send(()).unwrap();
        hanging.recv().unwrap_err();
        Ok(())
    }));
    has_begun.recv().unwrap();
    release
}

/// Adds a note in a write that is said to retain this many bytes.
fn sized_note(log: &SessionLog, text: &'static str, bytes: usize) -> PendingWrite {
    let seq = log.reserve_seq();
    let at = 0;
    log.submit_durable(Durability::PowerLoss, bytes, move |connection, session| {
        let note = Entry::Note { id: MessageId::from("m"), text: text.to_owned() };
        rows::insert_entry(connection, session, (seq, 1, at), &note)
    })
}

#[tokio::test]
async fn while_the_disk_hangs_what_is_waited_for_stays_and_the_oldest_of_the_rest_goes() {
    let store = Store::in_memory();
    let log = session(&store, "s").await;
    note(&log, "a");
    log.flush().ended().await;
    let release = hang(&store);
    let durable = sized_note(&log, "b", MAX_QUEUED_BYTES / 2);
    for text in ["c", "d", "e", "f"] {
        drop(sized_note(&log, text, MAX_QUEUED_BYTES / 5));
    }
    let too_large = sized_note(&log, "g", MAX_QUEUED_BYTES / 3 * 2);
    let last = sized_note(&log, "h", MAX_QUEUED_BYTES / 3);
    assert!(too_large.is_done() && !durable.is_done() && !last.is_done());
    let notices = log.take_notices();
    assert!(notices.iter().any(|notice| notice.contains("gaps")), "{notices:?}");
    drop(release);
    durable.ended().await;
    last.ended().await;
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "s").await.unwrap(), "abh");
}

#[tokio::test]
async fn a_window_without_an_end_does_not_keep_a_session_from_being_stored() {
    let store = Store::in_memory();
    let log = session(&store, "s").await;
    log.record_usage("m", "", TokenUsage::default(), Some(u64::MAX), None);
    note(&log, "a");
    log.flush().ended().await;
    assert_eq!(notes(&store, "s").await.unwrap(), "a");
    assert_eq!(log.take_notices(), Vec::<String>::new());
}

#[tokio::test]
async fn the_queue_is_bounded_by_count_and_keeps_the_order() {
    let store = Store::in_memory();
    let order = Arc::new(Mutex::new(Vec::new()));
    let release = hang(&store);
    let add = |number: usize| {
        let order = Arc::clone(&order);
        store.submit(Durability::ProcessCrash, move |_| {
            order.lock().push(number);
            Ok(())
        })
    };
    for number in 0..MAX_JOBS + 10 {
        drop(add(number));
    }
    let mut awaited: Vec<_> = (0..MAX_JOBS).map(add).collect();
    let refused = add(0).await.unwrap().unwrap_err();
    assert_eq!(refused.fault(), Some(StorageFault::Disk), "{refused}");
    drop(awaited.drain(..10));
    let last = add(MAX_JOBS);
    drop(release);
    last.await.unwrap().unwrap();
    assert!(order.lock().iter().copied().eq(1..=MAX_JOBS));
}

#[tokio::test]
async fn writes_that_find_no_room_wait_for_it() {
    let store = Store::in_memory();
    let release = hang(&store);
    let mut writes = tokio::task::JoinSet::new();
    for _ in 0..MAX_ADMITTED_WRITES * 2 {
        let store = store.clone();
        writes.spawn(async move { store.write(Durability::ProcessCrash, |_| Ok(())).await });
    }
    while store.0.admission.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    drop(release);
    assert!(writes.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_full_disk_blocks_no_session_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let log = session(&store, "s").await;
    assert_eq!(log.take_notices(), Vec::<String>::new());
    store.0.shared.max_pages.store(1, Ordering::Relaxed);
    for text in [&*noise("a", 150_000), "b", "c"] {
        note(&log, text);
    }
    let new_log = session(&store, "new").await;
    note(&new_log, "d");
    log.flush().ended().await;
    for log in [&log, &new_log] {
        let notices = log.take_notices();
        assert!(
            notices.len() == 1 && notices[0].contains("Free some space on that disk"),
            "{notices:?}"
        );
    }
    assert!(store.flush().await.is_err() && log.take_notices().is_empty());
    store.0.shared.max_pages.store(0, Ordering::Relaxed);
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "s").await.unwrap(), "abc");
    assert_eq!(notes(&store, "new").await.unwrap(), "d");
    assert!(log.take_notices()[0].contains("being saved again"));
}

#[tokio::test]
async fn a_full_backlog_drops_the_oldest_writes() {
    let folder = tempfile::tempdir().unwrap();
    // A file in the place of the state folder.
    fs::write(folder.path().join("state"), "").unwrap();
    let store = Store::new(&folder.path().join("state"));
    let log = session(&store, "s").await;
    for letter in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        note(&log, &letter.repeat(1024 * 1024));
    }
    assert!(store.flush().await.is_err());
    assert_eq!(log.take_notices().len(), 2);
    fs::remove_file(folder.path().join("state")).unwrap();
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "s").await.unwrap(), "defghij");
}

#[tokio::test]
async fn a_store_that_cannot_even_be_opened_is_waited_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    drop(database::open_writer(&path).unwrap());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE").unwrap();
    let store = Store::new(folder.path());
    let log = session(&store, "s").await;
    for text in ["a", "b", "c", "d"] {
        note(&log, text);
        log.flush().ended().await;
    }
    let notices = log.take_notices();
    assert!(notices[0].contains("Close the other program"), "{notices:?}");
    other.execute_batch("COMMIT").unwrap();
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "s").await.unwrap(), "abcd");
}

#[tokio::test]
async fn the_final_flush_waits_for_locks_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let log = session(&store, "s").await;
    let other = Connection::open(folder.path().join(DATABASE_FILE)).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    note(&log, "a");
    assert!(store.flush().await.is_err());
    let ending = tokio::spawn({
        let store = store.clone();
        async move { store.final_flush().await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    other.execute_batch("COMMIT").unwrap();
    ending.await.unwrap().unwrap();
    assert_eq!(notes(&store, "s").await.unwrap(), "a");
}

fn damaged(folder: &Path) -> Vec<String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| {
            name.contains("damaged") && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .collect()
}

#[tokio::test]
async fn a_database_that_is_damaged_while_it_is_open_is_replaced_and_the_session_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    let store = Store::new(folder.path());
    let log = session(&store, "s").await;
    note(&log, "a");
    store.flush().await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(other);
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(&vec![0xA5; usize::try_from(length).unwrap()]).unwrap();
    drop(file);
    assert_eq!(notes(&store, "s").await.unwrap_err(), StoreError::NoSuchSession);
    note(&log, "b");
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "s").await.unwrap(), "b");
    assert!(log.take_notices()[0].contains("damaged"));
    assert_eq!(damaged(folder.path()).len(), 1);
}

/// Windows replaces no file that is open.
#[cfg(unix)]
#[tokio::test]
async fn what_two_processes_write_is_kept_while_one_of_them_replaces_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let stores = [Store::new(folder.path()), Store::new(folder.path())];
    let logs = [session(&stores[0], "s").await, session(&stores[1], "t").await];
    let path = folder.path().join(DATABASE_FILE);
    let shared = SharedState { path: Some(path.clone()), ..SharedState::default() };
    for round in 0..5 {
        for _ in 0..20 {
            for log in &logs {
                note(log, "a");
            }
        }
        let shared = &shared;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let opened = damage::open(shared, database::BUSY_TIMEOUT).unwrap();
                drop(opened.connection);
                damage::replace(shared, &opened.files.unwrap()).unwrap();
            });
        });
        for (log, name) in logs.iter().zip(["s", "t"]) {
            log.flush().ended().await;
            let expected = "a".repeat(20 * (round + 1));
            assert_eq!(notes(&stores[0], name).await.unwrap(), expected, "{name}");
        }
    }
    assert_eq!(damaged(folder.path()).len(), 5);
}

#[tokio::test]
async fn the_database_of_another_program_is_left_alone() {
    let owners = ["CREATE TABLE notes (a)", "PRAGMA application_id = 7; PRAGMA user_version = 1"];
    for owner in owners {
        let folder = tempfile::tempdir().unwrap();
        // SQLite follows the links in a path, and one may lead to the folder for temporary files.
        let path = folder.path().canonicalize().unwrap().join(DATABASE_FILE);
        Connection::open(&path).unwrap().execute_batch(owner).unwrap();
        let before = fs::read(&path).unwrap();
        let store = Store::new(folder.path());
        let log = session(&store, "s").await;
        note(&log, "a");
        assert!(store.flush().await.is_err());
        let notices = log.take_notices();
        // The long form of Windows is not shown.
        let shown = path.display().to_string().replace(r"\\?\", "");
        let named = format!("{shown} is a database of another program");
        assert!(notices.len() == 1 && notices[0].contains(&named), "{notices:?}");
        assert_eq!(notes(&store, "s").await.unwrap_err().fault(), Some(StorageFault::Foreign));
        assert!(fs::read(&path).unwrap() == before && damaged(folder.path()).is_empty());
        fs::remove_file(&path).unwrap();
        store.flush().await.unwrap();
        assert_eq!(notes(&store, "s").await.unwrap(), "a");
    }
}

#[tokio::test]
async fn after_the_end_of_the_process_the_database_alone_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let log = session(&store, "s").await;
    note(&log, "a");
    store.final_flush().await.unwrap();
    fs::create_dir(folder.path().join("copy")).unwrap();
    let copy = folder.path().join("copy").join(DATABASE_FILE);
    fs::copy(folder.path().join(DATABASE_FILE), copy).unwrap();
    assert_eq!(notes(&Store::new(&folder.path().join("copy")), "s").await.unwrap(), "a");
}

#[tokio::test]
async fn readable_sessions_of_a_damaged_database_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    let store = Store::new(folder.path());
    let log = session(&store, "s").await;
    note(&log, &"a".repeat(5000));
    store.flush().await.unwrap();
    drop((log, store));
    let shared = SharedState { path: Some(path), ..SharedState::default() };
    let opened = damage::open(&shared, database::BUSY_TIMEOUT).unwrap();
    drop(opened.connection);
    damage::replace(&shared, &opened.files.unwrap()).unwrap();
    let store = Store::new(folder.path());
    assert_eq!(notes(&store, "s").await.unwrap(), "a");
}

/// Windows removes no file that is open.
#[cfg(unix)]
#[tokio::test]
async fn nothing_is_lost_with_the_files_beside_the_database() {
    for gone in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let log = session(&store, "s").await;
        note(&log, "a");
        store.flush().await.unwrap();
        for suffix in gone {
            fs::remove_file(folder.path().join(format!("{DATABASE_FILE}{suffix}"))).unwrap();
        }
        note(&log, "b");
        store.flush().await.unwrap();
        assert_eq!(notes(&store, "s").await.unwrap(), "ab", "{gone:?}");
        // Another process sees it as well.
        let copy = folder.path().join("copy.db");
        for suffix in ["", "-wal"] {
            let copy = folder.path().join(format!("copy.db{suffix}"));
            fs::copy(folder.path().join(format!("{DATABASE_FILE}{suffix}")), copy).unwrap();
        }
        assert_eq!(count(&Connection::open(copy).unwrap(), "entries"), 2, "{gone:?}");
    }
}

/// Windows removes no file that is open.
#[cfg(unix)]
#[tokio::test]
async fn a_store_that_was_removed_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(&folder.path().join("state"));
    let log = session(&store, "s").await;
    fs::remove_dir_all(folder.path().join("state")).unwrap();
    note(&log, "a");
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "s").await.unwrap(), "a");
}

/// Makes the last cleanup two days old.
fn let_a_day_pass(connection: &Connection) {
    let update = "UPDATE meta SET value = value - 172800000 WHERE name = 'swept_at'";
    connection.execute(update, []).unwrap();
}

/// As `turnwright run` with a prompt.
#[tokio::test]
async fn a_process_that_never_rests_cleans_up_at_its_end() {
    for (days, left) in [(30, 1), (0, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        for id in ["new", "old"] {
            session(&store, id).await;
        }
        let connection = database::open_writer(&folder.path().join(DATABASE_FILE)).unwrap();
        connection
            .execute_batch(
                "UPDATE meta SET value = 100 * 86400000 WHERE name = 'swept_at'; \
                 UPDATE sessions SET updated_at = 1 WHERE id = 'old'",
            )
            .unwrap();
        store.set_limits(RetentionLimits { days, bytes: 0 });
        store.final_flush().await.unwrap();
        assert_eq!(count(&connection, "sessions"), left);
    }
}

#[tokio::test]
async fn a_clock_that_was_set_ahead_deletes_no_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    for id in ["new", "old"] {
        session(&store, id).await;
    }
    let connection = database::open_writer(&folder.path().join(DATABASE_FILE)).unwrap();
    let limits = RetentionLimits { days: 5, bytes: 0 };
    run_cleanup(&connection, folder.path(), limits);
    // As it looks to a clock that is a year ahead.
    connection
        .execute_batch(
            "UPDATE meta SET value = value - 31536000000 WHERE name = 'swept_at'; \
             UPDATE sessions SET updated_at = (SELECT value FROM meta WHERE name = 'swept_at'); \
             UPDATE sessions SET updated_at = updated_at - 6 * 86400000 WHERE id = 'old'",
        )
        .unwrap();
    // Sessions that were old by the time of the last cleanup are deleted even so, since a program that is rarely used
    // has no other cleanups.
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!(notes(&store, "new").await.unwrap(), "");
    assert_eq!(count(&connection, "sessions"), 1);
    // The clock still says so a day later.
    let_a_day_pass(&connection);
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!(count(&connection, "sessions"), 0);
}

#[tokio::test]
async fn old_sessions_are_deleted_with_their_blobs() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let both = "x".repeat(5000);
    for (id, own) in [("old", "y"), ("new", "z"), ("held", "u"), ("archived", "v")] {
        let log = session(&store, id).await;
        note(&log, &both);
        note(&log, &own.repeat(5000));
    }
    store
        .write(Durability::ProcessCrash, |connection| {
            connection.execute("UPDATE sessions SET updated_at = 1 WHERE id <> 'new'", [])?;
            connection.execute("UPDATE sessions SET archived = 1 WHERE id = 'archived'", [])?;
            Ok(())
        })
        .await
        .unwrap();
    let lock = store.lock_session(&SessionId::from("held")).unwrap();
    let connection = database::open_writer(&folder.path().join(DATABASE_FILE)).unwrap();
    assert_eq!(count(&connection, "blobs"), 5);
    run_cleanup(&connection, folder.path(), RetentionLimits { days: 0, bytes: 0 });
    assert_eq!(count(&connection, "sessions"), 4);
    let limits = RetentionLimits { days: 30, bytes: 0 };
    // A cleanup has run today already.
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!(count(&connection, "sessions"), 4);
    let_a_day_pass(&connection);
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!((count(&connection, "sessions"), count(&connection, "blobs")), (3, 4));
    assert_eq!(notes(&store, "held").await.unwrap(), "xu");
    drop(lock);
    // The deletion of a session makes another cleanup due.
    connection.execute("DELETE FROM sessions WHERE id = 'new'", []).unwrap();
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!((count(&connection, "sessions"), count(&connection, "blobs")), (2, 3));
    let_a_day_pass(&connection);
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!((count(&connection, "sessions"), count(&connection, "blobs")), (1, 2));
    let free: i64 =
        connection.pragma_query_value(None, "freelist_count", |row| row.get(0)).unwrap();
    assert_eq!(free, 0);
}

#[tokio::test]
async fn the_conversation_of_a_helper_stays_as_long_as_its_session() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    for id in ["archived", "helper"] {
        session(&store, id).await;
    }
    let connection = database::open_writer(&folder.path().join(DATABASE_FILE)).unwrap();
    connection
        .execute_batch(
            "UPDATE sessions SET updated_at = 1, archived = id = 'archived'; \
             UPDATE sessions SET helper_of = 'archived' WHERE id = 'helper'",
        )
        .unwrap();
    let limits = RetentionLimits { days: 30, bytes: 1 };
    run_cleanup(&connection, folder.path(), limits);
    let_a_day_pass(&connection);
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!(count(&connection, "sessions"), 2);
    let update = "UPDATE sessions SET updated_at = 2, archived = 0 WHERE id = 'archived'";
    connection.execute(update, []).unwrap();
    let_a_day_pass(&connection);
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!(count(&connection, "sessions"), 0);
}

#[tokio::test]
async fn a_session_that_was_taken_from_the_archive_is_not_deleted_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    session(&store, "old").await;
    let connection = database::open_writer(&folder.path().join(DATABASE_FILE)).unwrap();
    let limits = RetentionLimits { days: 30, bytes: 1 };
    run_cleanup(&connection, folder.path(), limits);
    connection.execute("UPDATE sessions SET updated_at = 1", []).unwrap();
    for archived in [true, false, false] {
        sessions::set_archived(&connection, &SessionId::from("old"), archived).unwrap();
        let_a_day_pass(&connection);
        run_cleanup(&connection, folder.path(), limits);
        assert_eq!(count(&connection, "sessions"), 1, "archived: {archived}");
    }
    connection.execute("UPDATE sessions SET updated_at = 1", []).unwrap();
    sessions::set_archived(&connection, &SessionId::from("old"), false).unwrap();
    let_a_day_pass(&connection);
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!(count(&connection, "sessions"), 0, "it was in no archive");
}

#[tokio::test]
async fn the_oldest_sessions_are_deleted_above_the_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    for id in 1..=4 {
        let log = session(&store, &format!("s{id}")).await;
        note(&log, &noise(&id.to_string(), 400_000));
        store.flush().await.unwrap();
    }
    let connection = database::open_writer(&folder.path().join(DATABASE_FILE)).unwrap();
    connection.execute("UPDATE sessions SET updated_at = key WHERE id <> 's4'", []).unwrap();
    let limits = RetentionLimits { days: 0, bytes: 800_000 };
    run_cleanup(&connection, folder.path(), limits);
    let_a_day_pass(&connection);
    run_cleanup(&connection, folder.path(), limits);
    assert_eq!((count(&connection, "sessions"), count(&connection, "blobs")), (2, 2));
    assert_eq!(notes(&store, "s4").await.unwrap(), "4");
    let size = fs::metadata(folder.path().join(DATABASE_FILE)).unwrap().len();
    assert!(size < 1_000_000, "{size}");
}

#[tokio::test]
async fn the_write_ahead_log_is_emptied_while_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let log = session(&store, "s").await;
    note(&log, &noise("1", 400_000));
    store.flush().await.unwrap();
    let wal = folder.path().join(format!("{DATABASE_FILE}-wal"));
    let size = || fs::metadata(&wal).unwrap().len();
    assert!(size() > 300_000, "{}", size());
    let connection = database::open_writer(&folder.path().join(DATABASE_FILE)).unwrap();
    run_cleanup(&connection, folder.path(), RetentionLimits { days: 0, bytes: 0 });
    assert!(size() < 100_000, "{}", size());
    note(&log, "2");
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "s").await.unwrap(), "12");
}

/// The shared memory of a write-ahead log cannot be opened where a folder has its name.
#[tokio::test]
async fn sessions_are_stored_where_no_write_ahead_log_works() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    let memory = format!("sessions.db{}-shm", *journal::PROBE_SUFFIX);
    fs::create_dir(folder.path().join(memory)).unwrap();
    let store = Store::new(folder.path());
    note(&session(&store, "a").await, "1");
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "a").await.unwrap(), "1");
    let notices = store.0.shared.undelivered_notices(&mut health::DeliveredNotices::default());
    assert!(notices.len() == 1 && notices[0].contains("set XDG_STATE_HOME"), "{notices:?}");
    assert_eq!(store.file_system_notice().as_ref(), notices.first());
    let other = Store::new(folder.path());
    note(&session(&other, "b").await, "1");
    assert_eq!(notes(&other, "a").await.unwrap(), "1");
    assert_eq!(fs::read(&path).unwrap()[18..20], [1, 1], "it should have no log");
}

#[tokio::test]
#[cfg(unix)]
async fn the_user_is_told_of_a_database_that_is_not_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    note(&session(&store, "a").await, "1");
    store.flush().await.unwrap();
    assert_eq!(store.file_system_notice(), None);
    let path = folder.path().join(DATABASE_FILE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let notice = store.file_system_notice().unwrap();
    assert!(notice.contains("Other users have rights to"), "{notice}");
}

#[tokio::test]
async fn other_journals_take_a_log_over_and_several_processes_share_them() {
    for journal in [Journal::Rollback, Journal::LockFolder] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DATABASE_FILE);
        let old = Store::new(folder.path());
        note(&session(&old, "old").await, "1");
        old.flush().await.unwrap();
        // As a process leaves it that is killed.
        for suffix in ["", "-wal"] {
            let name = format!("{DATABASE_FILE}{suffix}");
            fs::create_dir_all(folder.path().join("copy")).unwrap();
            fs::copy(folder.path().join(&name), folder.path().join("copy").join(&name)).unwrap();
        }
        let path = folder.path().join("copy").join(path.file_name().unwrap());
        let stores: Vec<_> = (0..3).map(|_| Store::new(path.parent().unwrap())).collect();
        for store in &stores {
            store.0.shared.journal.set(journal).unwrap();
        }
        // The reader comes before any writer.
        assert_eq!(notes(&stores[0], "old").await.unwrap(), "1", "{journal:?}");
        let mut logs = Vec::new();
        for (store, id) in stores.iter().zip(["a", "b", "c"]) {
            logs.push((session(store, id).await, store, id));
        }
        for _ in 0..20 {
            for (log, _, _) in &logs {
                note(log, "x");
            }
        }
        for (_, store, id) in &logs {
            store.flush().await.unwrap();
            assert_eq!(notes(store, id).await.unwrap(), "x".repeat(20), "{journal:?}");
        }
        assert_eq!(fs::read(&path).unwrap()[18..20], [1, 1], "{journal:?}");
    }
}

#[tokio::test]
#[cfg(unix)]
async fn a_lock_folder_that_a_killed_process_has_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("sessions.db.lock");
    fs::create_dir(&lock).unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(&lock).unwrap().set_modified(old).unwrap();
    let store = Store::new(folder.path());
    store.0.shared.journal.set(Journal::LockFolder).unwrap();
    note(&session(&store, "a").await, "1");
    store.flush().await.unwrap();
    assert_eq!(notes(&store, "a").await.unwrap(), "1");
    let mut names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.all(|name| !name.to_string_lossy().contains("clock")));
}

#[tokio::test]
async fn that_a_store_of_another_version_cannot_be_used_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let connection = database::open_writer(&folder.path().join(DATABASE_FILE)).unwrap();
    connection
        .execute_batch("ALTER TABLE sessions RENAME COLUMN cwd TO place; PRAGMA user_version = 7;")
        .unwrap();
    drop(connection);
    let store = Store::new(folder.path());
    let mut delivered = health::DeliveredNotices::default();
    for (id, expected) in [("a", 1), ("b", 0)] {
        note(&session(&store, id).await, "1");
        store.flush().await.ok();
        let notices = store.0.shared.undelivered_notices(&mut delivered);
        assert_eq!(notices.len(), expected, "{notices:?}");
        let text = "not being saved: the session store cannot be used";
        assert!(notices.iter().all(|notice| notice.contains(text)), "{notices:?}");
    }
}
