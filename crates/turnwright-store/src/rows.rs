//! How what a session says becomes rows. For the thread that writes.

use std::borrow::Cow;
use std::sync::Arc;

use rusqlite::{Connection, params};
use serde_json::Value;

use super::blobs::{self, Form};
use super::entry::Card;
use super::pack::pack;
use super::read::{millis, path_value};
use super::sessions::folders_text;
use super::{CallStatus, Entry, SessionRow, Settled, StoreError};
use turnwright_types::file_change::Change;
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::{Arguments, Message};
use turnwright_types::redact;

/// Texts of results that are longer lie beside the others.
const LONG_RESULT: usize = 1024;

pub(super) fn insert(connection: &Connection, row: &SessionRow) -> Result<i64, StoreError> {
    connection.execute(
        "INSERT INTO sessions (id, cwd, real_cwd, folders, title, title_is_final, created_at, \
         updated_at, parent, mode, model, effort) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            row.id.as_str(),
            path_value(&row.cwd),
            path_value(&row.real_cwd),
            folders_text(&row.folders)?,
            row.title,
            row.title_is_final,
            millis(row.created),
            millis(row.updated),
            row.parent.as_ref().map(SessionId::as_str),
            row.mode,
            row.model,
            row.effort,
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

pub(super) fn touch(connection: &Connection, session: i64, now: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE sessions SET updated_at = ? WHERE key = ?")?
        .execute([now, session])?;
    Ok(())
}

pub(super) fn add(
    connection: &Connection,
    session: i64,
    (seq, turn, now): (u64, u64, i64),
    entry: &Entry,
) -> Result<(), StoreError> {
    let value = serde_json::to_value(entry)?;
    let (kind, body) = match value {
        Value::Object(fields) => fields.into_iter().next().unwrap_or_default(),
        Value::String(kind) => (kind, Value::Null),
        _ => return Err(StoreError::Damaged("an entry".to_owned())),
    };
    let id = match entry {
        Entry::Message { id, .. } | Entry::Note { id, .. } => Some(id.as_str()),
        _ => None,
    };
    let packed = pack(connection, session, body, Form::Small)?;
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO entries (session, seq, turn, at, kind, message_id, body, refs) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![session, seq, turn, now, kind, id, packed.body, packed.refs])?;
    connection
        .prepare_cached("DELETE FROM drafts WHERE session = ? AND seq = ?")?
        .execute(params![session, seq])?;
    let Entry::Message { id, message, .. } = entry else { return Ok(()) };
    let Message::Assistant(answer) = message.as_ref() else { return Ok(()) };
    for (position, call) in answer.calls.iter().enumerate() {
        let arguments = match &call.arguments {
            Arguments::Object(value) => value.clone(),
            unusable @ Arguments::Unusable { .. } => serde_json::to_value(unusable)?,
        };
        let status = CallStatus::Pending.word();
        let packed = pack(connection, session, arguments, Form::Plain)?;
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO calls (session, call, seq, position, turn, message_id, \
                 tool_name, arguments, arguments_refs, status, asked_at) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                session,
                call.id.as_str(),
                seq,
                position,
                turn,
                id.as_str(),
                redact::text(&call.name),
                packed.body,
                packed.refs,
                status,
                now
            ])?;
    }
    Ok(())
}

pub(super) fn settle(
    connection: &Connection,
    session: i64,
    (call, turn, now): (&CallId, u64, i64),
    settled: &Settled,
) -> Result<(), StoreError> {
    let (text, blob) = result_of(connection, session, &settled.text)?;
    let card = Card {
        images: settled.images.clone(),
        view: settled.view.clone(),
        content: settled.content.clone(),
        raw: settled.raw.clone(),
    };
    let card = pack(connection, session, serde_json::to_value(card)?, Form::Small)?;
    let status = if settled.ok { CallStatus::Success } else { CallStatus::Error };
    let took = settled.took.map(|it| (it.as_secs_f64() * 1e6).round() / 1e3);
    connection
        .prepare_cached(
            "UPDATE calls SET status = ?, tool_name = ?, result = ?, result_blob = ?, card = ?, \
             card_refs = ?, ended_at = ?, duration_ms = ? WHERE session = ? AND call = ?",
        )?
        .execute(params![
            status.word(),
            redact::text(&settled.tool),
            text,
            blob,
            card.body,
            card.refs,
            now,
            took,
            session,
            call.as_str()
        ])?;
    put_contents(connection, session, &settled.bytes)?;
    changes(connection, session, (turn, call), &settled.files)
}

/// A result without the keys, where it belongs by its length.
pub(super) fn result_of<'a>(
    connection: &Connection,
    session: i64,
    text: &'a str,
) -> Result<(Option<Cow<'a, str>>, Option<i64>), StoreError> {
    let text = redact::text(text);
    if text.len() <= LONG_RESULT {
        return Ok((Some(text), None));
    }
    Ok((None, Some(blobs::put(connection, session, text.as_bytes(), Form::Plain)?)))
}

/// Contents of files, as they are; so none with a key of ours in it.
pub(super) fn put_contents(
    connection: &Connection,
    session: i64,
    contents: &[Arc<[u8]>],
) -> Result<(), StoreError> {
    for bytes in contents.iter().filter(|it| redact::bytes(it).is_none()) {
        blobs::put(connection, session, bytes, Form::Small)?;
    }
    Ok(())
}

pub(super) fn changes(
    connection: &Connection,
    session: i64,
    (turn, call): (u64, &CallId),
    changes: &[Change],
) -> Result<(), StoreError> {
    // A path is of use only as it is.
    let is_clean = |it: &&Change| redact::bytes(it.path.as_os_str().as_encoded_bytes()).is_none();
    for Change { path, before, after } in changes.iter().filter(is_clean) {
        if after.as_ref() == Some(before) {
            // It was going to change this and has not.
            connection
                .prepare_cached(
                    "DELETE FROM file_versions \
                     WHERE session = ? AND turn = ? AND call = ? AND path = ?",
                )?
                .execute(params![session, turn, call.as_str(), path_value(path)])?;
            continue;
        }
        let before = serde_json::to_string(before)?;
        let after = after.as_ref().map(serde_json::to_string).transpose()?;
        connection
            .prepare_cached(
                "INSERT INTO file_versions (session, turn, call, path, before, after) \
                 VALUES (?, ?, ?, ?, ?, ?) \
                 ON CONFLICT (session, turn, call, path) DO UPDATE SET after = excluded.after",
            )?
            .execute(params![
                session,
                turn,
                call.as_str(),
                path_value(path),
                redact::text(&before),
                after.as_deref().map(redact::text)
            ])?;
    }
    Ok(())
}
