//! Writes sessions, entries and calls as rows, on the writer thread.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::blobs::{self, BlobFormat};
use super::read::{path_to_value, to_millis};
use super::sessions::folders_json;
use super::{CallOutcome, CallStatus, Entry, Result, SessionRow, StoreError};
use crate::blobs::packed_json::{PackedJson, Packing, pack, unpack};
use crate::blobs::result_places;
use crate::database::execute;
use turnwright_types::file_change::FileChange;
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::{Arguments, Message, ToolCall};
use turnwright_types::redact;

/// Longer result texts are stored as blobs.
const MAX_INLINE_RESULT: usize = 1024;

pub(super) fn insert_session(connection: &Connection, row: &SessionRow) -> Result<i64> {
    connection.execute(
        "INSERT INTO sessions (id, cwd, real_cwd, folders, title, title_is_final, created_at, \
         updated_at, parent, mode, model, effort, helper_of) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            row.id.as_str(),
            path_to_value(&row.cwd),
            path_to_value(&row.real_cwd),
            folders_json(&row.additional_folders)?,
            row.title,
            row.title_is_final,
            to_millis(row.created_at),
            to_millis(row.updated_at),
            row.parent.as_ref().map(SessionId::as_str),
            row.mode,
            row.model,
            row.effort,
            row.helper_of.as_ref().map(SessionId::as_str),
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

pub(super) fn set_updated_at(connection: &Connection, session: i64, now: i64) -> Result<()> {
    execute(connection, "UPDATE sessions SET updated_at = ? WHERE key = ?", [now, session])
}

pub(super) fn delete_entry(connection: &Connection, session: i64, seq: u64) -> Result<()> {
    let delete = "DELETE FROM entries WHERE session = ? AND seq = ?";
    execute(connection, delete, params![session, seq])
}

pub(super) fn insert_entry(
    connection: &Connection,
    session: i64,
    (seq, turn, now): (u64, u64, i64),
    entry: &Entry,
) -> Result<()> {
    let value = serde_json::to_value(entry)?;
    let (kind, mut body) = match value {
        Value::Object(fields) => fields.into_iter().next().unwrap_or_default(),
        Value::String(kind) => (kind, Value::Null),
        _ => return Err(StoreError::Damaged("an entry".to_owned())),
    };
    let id = match entry {
        Entry::Message { id, .. } | Entry::Note { id, .. } | Entry::Compacted { id, .. } => {
            Some(id.as_str())
        }
        _ => None,
    };
    leave_out_defaults(&mut body);
    let packed = pack(connection, session, body, packing(entry))?;
    execute(
        connection,
        // `INSERT OR REPLACE` copies each page that it changes, to be able to undo half of it.
        "INSERT INTO entries (session, seq, turn, at, kind, message_id, body, refs) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (session, seq) DO UPDATE SET turn = excluded.turn, at = excluded.at, \
         kind = excluded.kind, message_id = excluded.message_id, body = excluded.body, \
         refs = excluded.refs",
        params![session, seq, turn, now, kind, id, packed.body, packed.refs],
    )?;
    let delete = "DELETE FROM drafts WHERE session = ? AND seq = ?";
    execute(connection, delete, params![session, seq])?;
    let Entry::Message { id, message, .. } = entry else { return Ok(()) };
    let Message::Assistant(answer) = message.as_ref() else { return Ok(()) };
    for call in answer.calls.iter().enumerate() {
        insert_call(connection, (session, seq, turn, now), id.as_str(), call)?;
    }
    Ok(())
}

/// Inserts a call of the answer `message`, with its position there.
fn insert_call(
    connection: &Connection,
    (session, seq, turn, now): (i64, u64, u64, i64),
    message: &str,
    (position, call): (usize, &ToolCall),
) -> Result<()> {
    let arguments = match &call.arguments {
        Arguments::Object(value) => value.clone(),
        unusable @ Arguments::Unusable { .. } => serde_json::to_value(unusable)?,
    };
    let status = CallStatus::Pending.as_str();
    let packed = pack(connection, session, arguments, Packing::ARGUMENTS)?;
    execute(
        connection,
        "INSERT INTO calls (session, call, seq, position, turn, message_id, \
         tool_name, arguments, arguments_refs, status, asked_at) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (session, call) DO UPDATE SET seq = excluded.seq, \
         position = excluded.position, turn = excluded.turn, \
         message_id = excluded.message_id, tool_name = excluded.tool_name, \
         arguments = excluded.arguments, arguments_refs = excluded.arguments_refs, \
         status = excluded.status, asked_at = excluded.asked_at, result = NULL, \
         result_blob = NULL, card = NULL, card_refs = NULL, begun_at = NULL, \
         ended_at = NULL, duration_ms = NULL, spawn_task = NULL",
        params![
            session,
            call.id.as_str(),
            seq,
            position,
            turn,
            message,
            redact::text(&call.name),
            packed.body,
            packed.refs,
            status,
            now
        ],
    )
}

pub(super) fn read_entry(kind: &str, mut body: Value) -> serde_json::Result<Entry> {
    let id = body.get("id").cloned();
    let answer = body.pointer_mut("/message/assistant").and_then(Value::as_object_mut);
    if let (Some(answer), Some(id)) = (answer, id) {
        answer.entry("id").or_insert(id);
    }
    serde_json::from_value(if body.is_null() { kind.into() } else { json!({ kind: body }) })
}

/// Removes the fields of a message that hold defaults, and the id, which the entry has as well. The origin of an
/// answer matters only if something has to be sent back to it.
fn leave_out_defaults(body: &mut Value) {
    let Value::Object(fields) = body else { return };
    if fields.get("audience").is_some_and(|audience| audience == "both") {
        fields.remove("audience");
    }
    let id = fields.get("id").cloned();
    let answer = fields.get_mut("message").and_then(|message| message.get_mut("assistant"));
    let Some(Value::Object(answer)) = answer else { return };
    if answer.get("id") == id.as_ref() {
        answer.remove("id");
    }
    if answer.get("interrupted").is_some_and(|interrupted| *interrupted == false) {
        answer.remove("interrupted");
    }
    if answer.get("echo").is_some_and(|echo| echo["field"].is_null() && echo["blobs"] == json!([]))
    {
        answer.remove("echo");
    }
}

fn leave_out_unknown_lines(card: &mut Value) {
    let locations = card.pointer_mut("/view/locations").and_then(Value::as_array_mut);
    for location in locations.into_iter().flatten().filter_map(Value::as_object_mut) {
        if location.get("line").is_some_and(Value::is_null) {
            location.remove("line");
        }
    }
}

/// How the long texts of an entry are stored.
fn packing(entry: &Entry) -> Packing {
    match entry {
        Entry::Message { message, .. } if matches!(message.as_ref(), Message::User(_)) => {
            Packing::PROMPT
        }
        Entry::Compacted { .. } => Packing::REPLACEMENT,
        _ => Packing::TEXTS,
    }
}

pub(super) fn finish_call(
    connection: &Connection,
    session: i64,
    (call, turn, now): (&CallId, u64, i64),
    outcome: &CallOutcome,
) -> Result<()> {
    let (text, blob) = store_result(connection, session, &outcome.text)?;
    let mut card = serde_json::to_value(outcome)?;
    leave_out_unknown_lines(&mut card);
    let card = pack_card(connection, session, card, &outcome.text)?;
    let status = if outcome.is_success { CallStatus::Success } else { CallStatus::Error };
    let took = outcome.duration.map(|duration| (duration.as_secs_f64() * 1e6).round() / 1e3);
    execute(
        connection,
        "UPDATE calls SET status = ?, tool_name = ?, result = ?, result_blob = ?, card = ?, \
         card_refs = ?, ended_at = ?, duration_ms = ? WHERE session = ? AND call = ?",
        params![
            status.as_str(),
            redact::text(&outcome.tool),
            text,
            blob,
            card.body,
            card.refs,
            now,
            took,
            session,
            call.as_str()
        ],
    )?;
    record_changes(connection, session, (turn, call), &outcome.file_changes, &outcome.file_contents)
}

/// Stores what a card has besides the result.
fn pack_card(
    connection: &Connection,
    session: i64,
    mut card: Value,
    result: &str,
) -> Result<PackedJson> {
    result_places::take_out(&mut card, result);
    pack(connection, session, card, Packing::TEXTS)
}

/// Reads a card, which shows this result.
pub(super) fn unpack_card(
    connection: &Connection,
    (body, refs): (&str, Option<&str>),
    result: &str,
) -> Result<Value> {
    let mut card = unpack(connection, body, refs)?;
    result_places::put_back(&mut card, result);
    Ok(card)
}

/// Replaces the result that the model reads. The card goes on showing the first one.
pub(super) fn replace_result(
    connection: &Connection,
    session: i64,
    call: &CallId,
    new: &str,
) -> Result<()> {
    let mut find = connection.prepare_cached(
        "SELECT result, result_blob, card, card_refs FROM calls WHERE session = ? AND call = ?",
    )?;
    let mut rows = find.query(params![session, call.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(()) };
    let old = blobs::text(connection, row.get(0)?, row.get(1)?)?.unwrap_or_default();
    let (card, refs) = match row.get::<_, Option<String>>(2)? {
        Some(body) => {
            let refs: Option<String> = row.get(3)?;
            let card = unpack_card(connection, (&body, refs.as_deref()), &old)?;
            let packed = pack_card(connection, session, card, new)?;
            (Some(packed.body), packed.refs)
        }
        None => (None, None),
    };
    let (text, blob) = store_result(connection, session, new)?;
    execute(
        connection,
        "UPDATE calls SET result = ?, result_blob = ?, card = ?, card_refs = ? \
         WHERE session = ? AND call = ?",
        params![text, blob, card, refs, session, call.as_str()],
    )
}

/// Redacts a result text and stores it as a blob if it is long. Returns the values of the columns
/// `result` and `result_blob`.
pub(super) fn store_result<'a>(
    connection: &Connection,
    session: i64,
    text: &'a str,
) -> Result<(Option<Cow<'a, str>>, Option<i64>)> {
    let text = redact::text(text);
    if text.len() <= MAX_INLINE_RESULT {
        return Ok((Some(text), None));
    }
    Ok((None, Some(blobs::put(connection, session, text.as_bytes(), BlobFormat::Plain)?)))
}

/// Records file changes of a call, and stores contents of the files.
pub(super) fn record_changes(
    connection: &Connection,
    session: i64,
    (turn, call): (u64, &CallId),
    changes: &[FileChange],
    contents: &[Arc<[u8]>],
) -> Result<()> {
    for bytes in contents {
        blobs::put_file_content(connection, session, bytes)?;
    }
    for FileChange { path, before, after } in changes {
        // A redacted path would be useless, so such a change is skipped.
        if redact::bytes(path.as_os_str().as_encoded_bytes()).is_some() {
            continue;
        }
        if after.as_ref() == Some(before) {
            // The call intended a change but did not make it.
            execute(
                connection,
                "DELETE FROM file_versions \
                 WHERE session = ? AND turn = ? AND call = ? AND path = ?",
                params![session, turn, call.as_str(), path_to_value(path)],
            )?;
            continue;
        }
        let before = serde_json::to_string(before)?;
        let after = after.as_ref().map(serde_json::to_string).transpose()?;
        execute(
            connection,
            "INSERT INTO file_versions (session, turn, call, path, before, after) \
             VALUES (?, ?, ?, ?, ?, ?) \
             ON CONFLICT (session, turn, call, path) DO UPDATE SET after = excluded.after",
            params![
                session,
                turn,
                call.as_str(),
                path_to_value(path),
                redact::text(&before),
                after.as_deref().map(redact::text)
            ],
        )?;
    }
    Ok(())
}
