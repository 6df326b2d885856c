//! Sessions as wholes: which there are, what they are called, and how one goes away or becomes two.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::read::{SESSION, key, millis, path_value, session_row, unsettled};
use super::rows::settle;
use super::{CallRow, CallStatus, SessionRow, Settled, StoreError};
use turnwright_types::ids::SessionId;

/// Which sessions are wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those of this folder, as it was named and as it really is.
    pub cwd: Option<(PathBuf, PathBuf)>,
    /// Only those that are put away, or only those that are not.
    pub archived: Option<bool>,
    /// Those that are listed although nothing has happened in them yet.
    pub open: Vec<SessionId>,
}

/// Where a list goes on. It is one of a moment: what happens to sessions afterwards moves none of
/// them in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The moment that the list is of.
    taken: i64,
    /// When something had last happened in the last session that was listed, and its key.
    last: (i64, i64),
}

impl Cursor {
    /// The cursor as a text.
    pub fn word(self) -> String {
        format!("{:x}.{:x}.{:x}", self.taken, self.last.0, self.last.1)
    }

    /// The cursor of that text.
    pub fn parse(word: &str) -> Option<Cursor> {
        let number = |it: &str| i64::from_str_radix(it, 16).ok().filter(|it| *it >= 0);
        let mut numbers = word.split('.').map(number);
        let mut next = || numbers.next().flatten();
        let cursor = Cursor { taken: next()?, last: (next()?, next()?) };
        // There is one way to write it.
        (cursor.word() == word).then_some(cursor)
    }
}

/// When something had last happened in a session, now and at a moment.
const NOW: &str = "updated_at";
const THEN: &str = "CASE WHEN updated_at <= ?1 THEN updated_at ELSE max(created_at, coalesce(( \
    SELECT max(max(CASE WHEN begun_at <= ?1 THEN begun_at ELSE 0 END), \
               max(CASE WHEN ended_at <= ?1 THEN ended_at ELSE 0 END)) \
    FROM turns WHERE session = sessions.key), 0)) END";

/// The next sessions, the newest first, at most so many; and where it goes on if there are more.
/// One in which nothing has happened is left out, unless it is open.
///
/// # Errors
/// When the store cannot be read.
pub fn list(
    connection: &Connection,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<(Vec<SessionRow>, Option<Cursor>), StoreError> {
    let time = if after.is_some() { THEN } else { NOW };
    let cwd = filter.cwd.as_ref();
    let open: Vec<_> = filter.open.iter().map(SessionId::as_str).collect();
    let taken = match after {
        Some(cursor) => cursor.taken,
        None => {
            connection.query_row("SELECT coalesce(max(updated_at), 0) FROM sessions", [], |it| {
                it.get(0)
            })?
        }
    };
    let last = after.map(|it| it.last);
    let query = format!(
        "SELECT {SESSION}, key, {time} AS at FROM sessions WHERE created_at <= ?1 \
         AND (?2 IS NULL OR (at, key) < (?2, ?3)) \
         AND (?4 IS NULL OR cwd = ?4 OR real_cwd = ?5) \
         AND (?6 IS NULL OR archived = ?6) \
         AND (archived OR title IS NOT NULL OR parent IS NOT NULL \
              OR EXISTS (SELECT 1 FROM turns WHERE session = sessions.key) \
              OR id IN (SELECT value FROM json_each(?7))) \
         ORDER BY {time} DESC, key DESC LIMIT ?8"
    );
    let mut find = connection.prepare_cached(&query)?;
    let mut rows = find.query(params![
        taken,
        last.map(|it| it.0),
        last.map(|it| it.1),
        cwd.map(|it| path_value(&it.0)),
        cwd.map(|it| path_value(&it.1)),
        filter.archived,
        serde_json::to_string(&open)?,
        limit + 1,
    ])?;
    let (mut sessions, mut place) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        if sessions.len() == limit {
            return Ok((sessions, place.map(|last| Cursor { taken, last })));
        }
        place = Some((row.get("at")?, row.get("key")?));
        sessions.push(session_row(row)?);
    }
    Ok((sessions, None))
}

/// Whether there is such a session.
///
/// # Errors
/// When the store cannot be read.
pub fn exists(connection: &Connection, id: &SessionId) -> Result<bool, StoreError> {
    match key(connection, id) {
        Ok(_) => Ok(true),
        Err(StoreError::NoSuchSession) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a session a title of its own making, unless it has one. Returns whether it got it.
///
/// # Errors
/// When it cannot be written.
pub fn suggest_title(
    connection: &Connection,
    id: &SessionId,
    title: &str,
) -> Result<bool, StoreError> {
    let update = "UPDATE sessions SET title = ? WHERE id = ? AND title IS NULL";
    Ok(connection.execute(update, params![title, id.as_str()])? > 0)
}

/// Gives a session the title that a person wants.
///
/// # Errors
/// When there is no such session, or it cannot be written.
pub fn set_title(connection: &Connection, id: &SessionId, title: &str) -> Result<(), StoreError> {
    let update = "UPDATE sessions SET title = ?, title_is_final = 1 WHERE id = ?";
    found(connection.execute(update, params![title, id.as_str()])?)
}

/// Puts a session away, or takes it back.
///
/// # Errors
/// When there is no such session, or it cannot be written.
pub fn archive(connection: &Connection, id: &SessionId, archived: bool) -> Result<(), StoreError> {
    let update = "UPDATE sessions SET archived = ? WHERE id = ?";
    found(connection.execute(update, params![archived, id.as_str()])?)
}

/// A session works in other folders from now on.
///
/// # Errors
/// When there is no such session, or it cannot be written.
pub fn move_to(
    connection: &Connection,
    id: &SessionId,
    (cwd, real_cwd): (&Path, &Path),
    folders: &[PathBuf],
) -> Result<(), StoreError> {
    let update = "UPDATE sessions SET cwd = ?, real_cwd = ?, folders = ? WHERE id = ?";
    let values =
        params![path_value(cwd), path_value(real_cwd), folders_text(folders)?, id.as_str()];
    found(connection.execute(update, values)?)
}

/// The folders besides the working folder, as they are kept.
pub(super) fn folders_text(folders: &[PathBuf]) -> Result<String, StoreError> {
    let folders: Vec<_> = folders.iter().map(|it| it.to_string_lossy()).collect();
    Ok(serde_json::to_string(&folders)?)
}

fn found(count: usize) -> Result<(), StoreError> {
    if count == 0 { Err(StoreError::NoSuchSession) } else { Ok(()) }
}

/// Takes a session away, with the blobs that no other one needs. Returns whether there was one.
///
/// # Errors
/// When it cannot be written.
pub fn delete(connection: &Connection, id: &SessionId) -> Result<bool, StoreError> {
    let Some(session) = optional_key(connection, id)? else { return Ok(false) };
    // Calls hold blobs.
    connection.execute("DELETE FROM calls WHERE session = ?", [session])?;
    connection.execute(
        "DELETE FROM blobs WHERE id IN (SELECT blob FROM blob_uses WHERE session = ?1) \
         AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = blobs.id AND session <> ?1)",
        [session],
    )?;
    connection.execute("DELETE FROM sessions WHERE key = ?", [session])?;
    Ok(true)
}

fn optional_key(connection: &Connection, id: &SessionId) -> Result<Option<i64>, StoreError> {
    let mut find = connection.prepare_cached("SELECT key FROM sessions WHERE id = ?")?;
    Ok(find.query_row([id.as_str()], |it| it.get(0)).optional()?)
}

/// The columns of a table that a copy takes over, after that of the session.
const COPIED: &[(&str, &str)] = &[
    ("turns", "number, kind, words, begun_at, ended_at, stop, about"),
    ("entries", "seq, turn, at, kind, message_id, body, refs"),
    (
        "calls",
        "call, seq, position, turn, message_id, tool_name, arguments, arguments_refs, status, \
         result, result_blob, card, card_refs, asked_at, begun_at, ended_at, duration_ms",
    ),
    ("file_versions", "turn, call, path, before, after"),
    ("blob_uses", "blob"),
];

/// Makes a session a copy of another one, as it is now. Rows are copied, blobs are shared. What was
/// under way in the other one has come to nothing here.
///
/// # Errors
/// When there is no such session, or it cannot be written.
pub fn fork(connection: &Connection, from: &SessionId, to: &SessionId) -> Result<(), StoreError> {
    let original = key(connection, from)?;
    let now = millis(SystemTime::now());
    connection.execute(
        "INSERT INTO sessions (id, cwd, real_cwd, folders, title, title_is_final, created_at, \
         updated_at, parent, mode, model, effort, minted) SELECT ?, cwd, real_cwd, folders, title, \
         title_is_final, ?, ?, id, mode, model, effort, minted FROM sessions WHERE key = ?",
        params![to.as_str(), now, now, original],
    )?;
    let copy = connection.last_insert_rowid();
    for (table, columns) in COPIED {
        connection.execute(
            &format!(
                "INSERT INTO {table} (session, {columns}) SELECT ?, {columns} FROM {table} WHERE \
                 session = ?"
            ),
            params_from_iter([copy, original]),
        )?;
    }
    // How full the window is; what it has cost was paid by the other one.
    connection.execute(
        "INSERT INTO usage (session, turn, at, model, input, output, cached, window) SELECT ?, \
         turn, at, model, input, output, cached, window FROM usage WHERE session = ? AND window IS \
         NOT NULL ORDER BY id DESC LIMIT 1",
        params_from_iter([copy, original]),
    )?;
    for call in unsettled(connection, copy)? {
        settle(connection, copy, (&call.call, call.turn, now), &left_behind(&call))?;
    }
    connection.execute(
        "UPDATE turns SET ended_at = ?, stop = 'cancelled' WHERE session = ? AND ended_at IS NULL",
        params![now, copy],
    )?;
    Ok(())
}

/// What can be said in a copy of a call that was under way in the original.
fn left_behind(call: &CallRow) -> Settled {
    let text = match call.status {
        CallStatus::Running => {
            "The conversation was copied while this was running in the original. It may or may not \
             have taken effect: look before you repeat it."
        }
        _ => {
            "The conversation was copied before this was run. Nothing was done here; the original \
             may have run it since."
        }
    };
    let mut settled = call.settled.clone();
    settled.ok = false;
    text.clone_into(&mut settled.text);
    settled.content = vec![turnwright_types::effect::Content::Text(text.to_owned())];
    settled.raw = serde_json::json!({ "error": text });
    settled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    fn id(number: usize) -> SessionId {
        SessionId::from(format!("s{number}"))
    }

    /// A store with that many sessions, each with a turn and an entry; the last is the newest.
    fn filled(count: usize) -> Connection {
        let connection = schema::writer(None).unwrap();
        for number in 0..count {
            let at = 1_000 + i64::try_from(number).unwrap() / 2;
            connection
                .execute(
                    "INSERT INTO sessions (key, id, cwd, real_cwd, created_at, updated_at) VALUES \
                     (?1, ?2, '/link', '/real', ?3, ?3)",
                    params![number, id(number).as_str(), at],
                )
                .unwrap();
            turn(&connection, number, at);
        }
        connection
    }

    fn turn(connection: &Connection, session: usize, at: i64) {
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
        rows.iter().map(|it| it.id.to_string()).collect()
    }

    #[test]
    fn pages_hold_each_session_once_whatever_happens_between_them() {
        let connection = filled(20);
        let (first, mut next) = list(&connection, &Filter::default(), None, 6).unwrap();
        let mut seen = names(&first);
        assert_eq!(seen, ["s19", "s18", "s17", "s16", "s15", "s14"]);
        let mut at = 5_000;
        while let Some(cursor) = next {
            // One that was listed and one that was not come to the front, and one goes away.
            for session in [18, 3, 0] {
                at += 1;
                turn(&connection, session, at);
            }
            delete(&connection, &id(17)).unwrap();
            let cursor = Cursor::parse(&cursor.word()).unwrap();
            let (page, more) = list(&connection, &Filter::default(), Some(cursor), 6).unwrap();
            seen.extend(names(&page));
            next = more;
        }
        let expected: Vec<_> = (0..20).rev().map(|it| id(it).to_string()).collect();
        assert_eq!(seen, expected);
        let (again, _) = list(&connection, &Filter::default(), None, 3).unwrap();
        assert_eq!(names(&again), ["s0", "s3", "s18"]);
    }

    #[test]
    fn a_cursor_is_what_was_given_out_and_nothing_else() {
        let cursor = Cursor { taken: 12_345, last: (77, 3) };
        assert_eq!(Cursor::parse(&cursor.word()), Some(cursor));
        let more = format!("{}.1", cursor.word());
        for junk in ["", "x", "1.2", "1.2.-3", "1.2.3.4", "01.2.3", "+1.2.3", " 1.2.3", &more] {
            assert_eq!(Cursor::parse(junk), None, "{junk}");
        }
    }

    #[test]
    fn a_list_is_filtered_by_folder_and_by_what_is_put_away() {
        let connection = filled(3);
        let of = |filter: Filter| names(&list(&connection, &filter, None, 9).unwrap().0);
        let cwd = |named: &str, real: &str| Some((named.into(), real.into()));
        archive(&connection, &id(1), true).unwrap();
        connection.execute("DELETE FROM turns WHERE session = 0", []).unwrap();
        assert_eq!(of(Filter::default()), ["s2", "s1"]);
        assert_eq!(of(Filter { open: vec![id(0)], ..Filter::default() }), ["s2", "s1", "s0"]);
        assert_eq!(of(Filter { archived: Some(true), ..Filter::default() }), ["s1"]);
        assert_eq!(of(Filter { archived: Some(false), ..Filter::default() }), ["s2"]);
        for (named, real, count) in
            [("/link", "/link", 2), ("/other", "/real", 2), ("/real", "/real", 2), ("/", "/", 0)]
        {
            let filter = Filter { cwd: cwd(named, real), ..Filter::default() };
            assert_eq!(of(filter).len(), count, "{named} {real}");
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
        fork(&connection, &id(0), &id(1)).unwrap();
        let status = |session: &SessionId| -> Vec<(String, Option<String>)> {
            let key = key(&connection, session).unwrap();
            let mut find = connection
                .prepare("SELECT status, result FROM calls WHERE session = ? ORDER BY position")
                .unwrap();
            let rows = find.query_map([key], |it| Ok((it.get(0)?, it.get(1)?))).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let words =
            |session: &SessionId| status(session).into_iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(words(&id(0)), ["success", "running", "pending"]);
        assert_eq!(words(&id(1)), ["success", "error", "error"]);
        assert!(status(&id(1))[1].1.as_ref().unwrap().contains("may or may not"));
        assert!(status(&id(1))[2].1.as_ref().unwrap().contains("Nothing was done here"));
        let blobs = || -> i64 {
            connection.query_row("SELECT count(*) FROM blobs", [], |it| it.get(0)).unwrap()
        };
        assert!(delete(&connection, &id(0)).unwrap());
        assert_eq!((blobs(), words(&id(1)).len()), (2, 3));
        assert!(delete(&connection, &id(1)).unwrap());
        assert!(!delete(&connection, &id(1)).unwrap());
        assert_eq!(blobs(), 0);
        assert_eq!(fork(&connection, &id(0), &id(2)), Err(StoreError::NoSuchSession));
    }

    #[test]
    fn a_persons_title_is_final() {
        let connection = filled(1);
        let title = || super::super::read::session(&connection, &id(0)).unwrap().title.unwrap();
        assert!(suggest_title(&connection, &id(0), "first").unwrap());
        assert!(!suggest_title(&connection, &id(0), "second").unwrap());
        set_title(&connection, &id(0), "mine").unwrap();
        assert!(!suggest_title(&connection, &id(0), "third").unwrap());
        assert_eq!(title(), "mine");
        assert_eq!(set_title(&connection, &id(9), "x"), Err(StoreError::NoSuchSession));
    }
}
