//! Lists, deletes, moves and forks the sessions of a database.

use std::sync::Arc;

use memchr::memmem;

use super::*;
use crate::database::open_writer;
use crate::read::current_goal;
use crate::rows::insert_entry;
use crate::writer::cleanup::{empty_log, free_pages};
use crate::{Audience, Entry, GoalState, GoalStatus};
use turnwright_types::message::{Message, UserMessage};

fn id(number: usize) -> SessionId {
    SessionId::from(format!("s{number}"))
}

/// A store with this many sessions, each with a turn; the last is the newest.
fn filled(count: usize) -> Connection {
    let connection = crate::database::open_in_memory().unwrap();
    for number in 0..count {
        let at = 1_000 + i64::try_from(number).unwrap() / 2;
        connection
            .execute(
                "INSERT INTO sessions (key, id, cwd, real_cwd, created_at, updated_at) VALUES \
                     (?1, ?2, '/link', '/real', ?3, ?3)",
                params![number, id(number).as_str(), at],
            )
            .unwrap();
        add_turn(&connection, number, at);
    }
    connection
}

fn add_turn(connection: &Connection, session: usize, at: i64) {
    connection
        .execute(
            "INSERT INTO turns (session, number, kind, begun_at) SELECT ?1, coalesce(max(number), \
                 0) + 1, 'prompt', ?2 FROM turns WHERE session = ?1",
            params![session, at],
        )
        .unwrap();
    connection
        .execute("UPDATE sessions SET updated_at = ? WHERE key = ?", params![at, session])
        .unwrap();
}

fn names(rows: &[SessionRow]) -> Vec<String> {
    rows.iter().map(|row| row.id.to_string()).collect()
}

#[test]
fn pages_hold_each_session_once_whatever_happens_between_them() {
    let connection = filled(20);
    let (first, mut next) = list(&connection, &SessionFilter::default(), None, 6).unwrap();
    let mut seen = names(&first);
    assert_eq!(seen, ["s19", "s18", "s17", "s16", "s15", "s14"]);
    let mut at = 5_000;
    while let Some(cursor) = next {
        // A listed and an unlisted session are used again, and one is deleted.
        for session in [18, 3, 0] {
            at += 1;
            add_turn(&connection, session, at);
        }
        delete(&connection, &id(17)).unwrap();
        let cursor = SessionCursor::parse(&cursor.encode()).unwrap();
        let (page, more) = list(&connection, &SessionFilter::default(), Some(cursor), 6).unwrap();
        seen.extend(names(&page));
        next = more;
    }
    let expected: Vec<_> = (0..20).rev().map(|number| id(number).to_string()).collect();
    assert_eq!(seen, expected);
    let (again, _) = list(&connection, &SessionFilter::default(), None, 3).unwrap();
    assert_eq!(names(&again), ["s0", "s3", "s18"]);
}

#[test]
fn a_session_that_was_opened_while_the_clock_was_ahead_is_listed() {
    let connection = filled(7);
    connection.execute("UPDATE sessions SET created_at = 9000000 WHERE key = 2", []).unwrap();
    let (first, next) = list(&connection, &SessionFilter::default(), None, 3).unwrap();
    // It is used again between the pages.
    add_turn(&connection, 2, 5_000);
    let cursor = SessionCursor::parse(&next.unwrap().encode()).unwrap();
    let (second, _) = list(&connection, &SessionFilter::default(), Some(cursor), 9).unwrap();
    assert_eq!(names(&first), ["s6", "s5", "s4"]);
    assert_eq!(names(&second), ["s3", "s2", "s1", "s0"]);
    assert_eq!(names(&list(&connection, &SessionFilter::default(), None, 1).unwrap().0), ["s2"]);
}

#[test]
fn a_cursor_is_what_was_given_out_and_nothing_else() {
    let cursor = SessionCursor { snapshot: 12_345, last: (77, 3) };
    assert_eq!(SessionCursor::parse(&cursor.encode()), Some(cursor));
    let more = format!("{}.1", cursor.encode());
    for junk in ["", "x", "1.2", "1.2.-3", "1.2.3.4", "01.2.3", "+1.2.3", " 1.2.3", &more] {
        assert_eq!(SessionCursor::parse(junk), None, "{junk}");
    }
}

#[test]
fn a_copy_stands_alone_and_shares_its_blobs() {
    let connection = filled(1);
    connection
        .execute_batch(
            "INSERT INTO blobs (id, hash, bytes) VALUES (1, x'01', x'aa'), (2, x'02', x'bb');
                 INSERT INTO blob_uses (session, blob) VALUES (0, 1), (0, 2);
                 INSERT INTO calls (session, call, seq, position, turn, message_id, tool_name,
                   arguments, status, result_blob, asked_at) VALUES
                   (0, 'call-1', 1, 0, 1, 'msg-1', 'exec', '{}', 'success', 1, 0),
                   (0, 'call-2', 1, 1, 1, 'msg-1', 'exec', '{}', 'running', NULL, 0),
                   (0, 'call-3', 1, 2, 1, 'msg-1', 'exec', '{}', 'pending', NULL, 0);",
        )
        .unwrap();
    fork(&connection, &id(0), &id(1), None).unwrap();
    let status = |session: &SessionId| -> Vec<(String, Option<String>)> {
        let key = session_key(&connection, session).unwrap();
        let mut find = connection
            .prepare("SELECT status, result FROM calls WHERE session = ? ORDER BY position")
            .unwrap();
        let rows = find.query_map([key], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let words = |session: &SessionId| {
        status(session).into_iter().map(|status| status.0).collect::<Vec<_>>()
    };
    assert_eq!(words(&id(0)), ["success", "running", "pending"]);
    assert_eq!(words(&id(1)), ["success", "error", "error"]);
    assert!(status(&id(1))[1].1.as_ref().unwrap().contains("may or may not"));
    assert!(status(&id(1))[2].1.as_ref().unwrap().contains("Nothing was done here"));
    let blobs = || -> i64 {
        connection.query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(delete(&connection, &id(0)).unwrap(), [id(0)]);
    assert_eq!((blobs(), words(&id(1)).len()), (2, 3));
    assert_eq!(delete(&connection, &id(1)).unwrap(), [id(1)]);
    assert!(delete(&connection, &id(1)).unwrap().is_empty());
    assert_eq!(blobs(), 0);
    assert_eq!(fork(&connection, &id(0), &id(2), None), Err(StoreError::NoSuchSession));
}

#[test]
fn a_goal_stays_with_its_session_and_is_paused_if_its_turn_has_died() {
    let connection = filled(1);
    let current = |number: usize| {
        let key = session_key(&connection, &id(number)).unwrap();
        current_goal(&connection, key).unwrap()
    };
    assert_eq!(current(0), None);
    for (seq, goal) in [
        (1, Some(GoalState { text: "old".to_owned(), ..GoalState::default() })),
        (2, Some(GoalState { text: "new".to_owned(), ..GoalState::default() })),
    ] {
        let entry = Entry::Goal { goal: goal.map(Box::new) };
        insert_entry(&connection, 0, (seq, 1, 5), &entry).unwrap();
    }
    let goal = current(0).unwrap();
    let paused = GoalStatus::Paused("its turn was interrupted".to_owned());
    assert_eq!((goal.text.as_str(), goal.status), ("new", paused));
    fork(&connection, &id(0), &id(1), None).unwrap();
    assert_eq!(current(1), None);
    insert_entry(&connection, 0, (3, 1, 5), &Entry::Rewound { to: 2 }).unwrap();
    assert_eq!(current(0).unwrap().text, "old");
    insert_entry(&connection, 0, (4, 1, 5), &Entry::Goal { goal: None }).unwrap();
    assert_eq!(current(0), None);
}

#[test]
fn a_copy_that_ends_at_a_cursor_has_nothing_of_what_follows() {
    let connection = filled(1);
    add_turn(&connection, 0, 2_000);
    add_turn(&connection, 0, 3_000);
    let said = |text: &str| Arc::new(Message::User(UserMessage::text(text)));
    let prompt = |id: &str, audience| Entry::Message { id: id.into(), message: said(id), audience };
    let compacted =
        Entry::Compacted { id: "sum-4".into(), replacement: said("all"), kept: 0, max_result: 0 };
    let entries = [
        (1, 1, prompt("msg-1", Audience::Both)),
        (2, 1, prompt("msg-2", Audience::Model)),
        (3, 2, prompt("msg-3", Audience::Both)),
        (4, 2, compacted),
        (5, 2, prompt("msg-5", Audience::Both)),
        (6, 3, prompt("msg-6", Audience::User)),
        (7, 3, Entry::Rewound { to: 6 }),
        (8, 3, prompt("steering-8", Audience::Both)),
    ];
    for (seq, turn, entry) in &entries {
        insert_entry(&connection, 0, (*seq, *turn, 0), entry).unwrap();
    }
    connection
        .execute_batch(
            "INSERT INTO file_versions (session, turn, call, path, before) VALUES
               (0, 1, 'call-1', 'a', '{}'), (0, 2, 'call-2', 'b', '{}'), (0, 3, 'call-3', 'c', '{}')",
        )
        .unwrap();
    let count = |table: &str, session: &SessionId| -> i64 {
        let key = session_key(&connection, session).unwrap();
        let query = format!("SELECT count(*) FROM {table} WHERE session = ?");
        connection.query_row(&query, [key], |row| row.get(0)).unwrap()
    };
    let places =
        [("msg-1", [0, 0, 0]), ("msg-3", [2, 1, 1]), ("sum-4", [4, 2, 1]), ("msg-5", [4, 2, 1])];
    for (number, (at, expected)) in (1..).zip(places) {
        let cursor = MessageId::from(at).cursor_id();
        fork(&connection, &id(0), &id(number), Some(&cursor)).unwrap();
        let found = ["entries", "turns", "file_versions"].map(|table| count(table, &id(number)));
        assert_eq!(found, expected, "{at}");
    }
    let none = ["cursor-msg-2", "cursor-msg-6", "cursor-msg-7", "cursor-steering-8", "msg-1", ""];
    for unknown in none {
        let refused = fork(&connection, &id(0), &id(9), Some(unknown));
        assert_eq!(refused, Err(StoreError::NoSuchCursor), "{unknown}");
        assert!(!exists(&connection, &id(9)).unwrap(), "{unknown}");
    }
    assert_eq!(count("entries", &id(0)), 8);
}

#[test]
fn only_a_session_without_a_prompt_gets_a_copy_and_it_can_be_taken_out_again() {
    let connection = filled(2);
    suggest_title(&connection, &id(0), "first").unwrap();
    let turns = |session: i64| -> i64 {
        let query = "SELECT count(*) FROM turns WHERE session = ?";
        connection.query_row(query, [session], |row| row.get(0)).unwrap()
    };
    let title = || super::super::read::session(&connection, &id(1)).unwrap().title;
    let of_others = turns(0);
    let named = |name: &str| Entry::Note { id: name.into(), text: "x".to_owned() };
    insert_entry(&connection, 0, (1, 1, 0), &named("msg-1")).unwrap();
    assert_eq!(copy_into_empty(&connection, &id(0), &id(1), 7).unwrap(), None);
    connection.execute("DELETE FROM turns WHERE session = 1", []).unwrap();
    for _ in 0..2 {
        assert_eq!(copy_into_empty(&connection, &id(0), &id(1), 7).unwrap(), Some(Vec::new()));
        let (page, _) = entries_page(&connection, 1, (0, 9), &RewoundEntries::default()).unwrap();
        let copied: Vec<_> = page.into_iter().map(|stored| stored.entry).collect();
        assert_eq!(copied, [named("msg-1-7")]);
        assert_eq!((turns(1), title().as_deref()), (of_others, Some("first")));
        remove_copy(&connection, &id(1)).unwrap();
        assert_eq!((turns(0), turns(1), title()), (of_others, 0, None));
    }
}

#[test]
fn the_session_of_a_helper_is_in_no_list_and_is_deleted_with_its_session() {
    let connection = filled(4);
    let helper = "UPDATE sessions SET helper_of = 's0' WHERE id IN ('s1', 's3')";
    connection.execute(helper, []).unwrap();
    let listed = |open: &[SessionId]| -> Vec<String> {
        let filter = SessionFilter { open: open.to_vec(), ..SessionFilter::default() };
        let (rows, _) = list(&connection, &filter, None, 9).unwrap();
        rows.iter().map(|row| row.id.to_string()).collect()
    };
    assert_eq!(listed(&[id(1)]), ["s2", "s0"]);
    assert!(exists(&connection, &id(1)).unwrap());
    assert_eq!(delete(&connection, &id(0)).unwrap(), [id(0), id(1), id(3)]);
    assert!(!exists(&connection, &id(1)).unwrap() && !exists(&connection, &id(3)).unwrap());
    assert_eq!(listed(&[]), ["s2"]);
}

#[test]
fn what_was_deleted_is_overwritten_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let connection = open_writer(&path).unwrap();
    for (key, words) in [(0, "deleted words "), (1, "kept words ")] {
        let insert = "INSERT INTO sessions (key, id, cwd, created_at, updated_at, title) \
                      VALUES (?1, 's' || ?1, '/', 1, 1, ?2)";
        // They fill several pages.
        connection.execute(insert, params![key, words.repeat(2_000)]).unwrap();
    }
    let holds = |words: &str| {
        empty_log(&connection).unwrap();
        memmem::find(&std::fs::read(&path).unwrap(), words.as_bytes()).is_some()
    };
    assert!(holds("kept words") && holds("deleted words"));
    assert_eq!(delete(&connection, &id(0)).unwrap(), [id(0)]);
    assert!(free_pages(&connection, 100).unwrap());
    assert!(holds("kept words") && !holds("deleted words"));
    assert!(!free_pages(&connection, 100).unwrap(), "all were freed at once");
}
