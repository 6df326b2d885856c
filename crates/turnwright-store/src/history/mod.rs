//! Queries for calls and messages across all sessions: filtered, searched for words, newest first,
//! page by page. Needs only a reading connection.

mod text_search;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::SystemTime;

use rusqlite::types::Value as Sql;
use rusqlite::{Connection, Row, params_from_iter};

use super::read::{path_to_value, session_key, time_from_millis, to_millis};
use super::{Audience, CallStatus, Entry, Result, RewoundEntries, blobs, rows};
use crate::blobs::packed_json::unpack;
use text_search::TextSearch;
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{Message, PromptPart, UserMessage, render_part};
use turnwright_types::text;

/// The limit for the texts of one page, since a few rows may be very long.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The most characters of a prompt that a call's record has.
const MAX_PROMPT_CHARS: usize = 1024;

/// A query. The default matches everything but has a limit of no rows.
#[derive(Clone, Debug, Default)]
pub struct HistoryQuery {
    /// Only in this session.
    pub session: Option<SessionId>,
    /// Only in sessions of this folder, as the client named it or with its links resolved.
    pub cwd: Option<PathBuf>,
    /// Only calls of this tool.
    pub tool: Option<String>,
    /// Only calls with one of these statuses; any status if it is empty.
    pub statuses: Vec<CallStatus>,
    /// Nothing that began earlier.
    pub since: Option<SystemTime>,
    /// Nothing that began later.
    pub until: Option<SystemTime>,
    /// Each of these words has to occur somewhere in the row, regardless of case.
    pub words: String,
    /// The maximum number of rows.
    pub limit: usize,
    /// Continues after the page that ended here.
    pub after: Option<HistoryCursor>,
}

/// The position at which a page has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryCursor(i64, i64);

impl fmt::Display for HistoryCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

impl FromStr for HistoryCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<HistoryCursor, ()> {
        let (time, number) = text.split_once('.').ok_or(())?;
        Ok(HistoryCursor(time.parse().map_err(drop)?, number.parse().map_err(drop)?))
    }
}

/// A page of results.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryPage<T> {
    /// Newest first.
    pub rows: Vec<T>,
    /// Where to continue, if there may be more.
    pub next: Option<HistoryCursor>,
    /// True if the word search has skipped long texts because there are too many.
    pub is_truncated: bool,
}

/// A stored call, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// The row id in the database.
    pub id: i64,
    pub session: SessionId,
    /// The title of the session.
    pub title: Option<String>,
    pub turn: u64,
    /// The answer that contains the call.
    pub message: MessageId,
    /// The id of the call within the session.
    pub call: CallId,
    pub tool: String,
    /// The complete arguments as JSON.
    pub arguments: String,
    /// The result; `None` if the call has not ended or has failed.
    pub result: Option<String>,
    /// The error message, if the call has failed.
    pub error: Option<String>,
    pub status: CallStatus,
    pub duration_ms: Option<f64>,
    /// When it was requested. Queries about times mean this one.
    pub at: SystemTime,
    /// The beginning of the prompt in whose turn it was made.
    pub user_message: String,
    /// The helper that it has started, as a JSON object.
    pub spawn_task: Option<String>,
}

impl CallRecord {
    /// The helper that the call has started; null if it has started none.
    pub fn spawn_task(&self) -> serde_json::Value {
        let task = self.spawn_task.as_deref().map(serde_json::from_str);
        task.and_then(Result::ok).unwrap_or_default()
    }
}

/// A stored message, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageRecord {
    pub session: SessionId,
    /// The title of the session.
    pub title: Option<String>,
    pub turn: u64,
    /// The id that the client knows the message by.
    pub message: MessageId,
    /// True if the user wrote it.
    pub is_from_user: bool,
    pub text: String,
    pub at: SystemTime,
    /// The calls of the message in the model's order, if the query is about one session.
    pub calls: Vec<CallRecord>,
}

/// Finds calls. `{order}` stands for the column of their order.
const CALL_QUERY: &str = "SELECT calls.id, {order}, sessions.id, sessions.title, calls.turn, \
                     calls.message_id, calls.call, calls.tool_name, calls.arguments, \
                     calls.arguments_refs, calls.status, calls.result, calls.result_blob, \
                     calls.duration_ms, calls.asked_at, turns.words, \
                     calls.spawn_task, turns.first_entry, calls.session FROM calls CROSS JOIN sessions ON sessions.key = \
                     calls.session LEFT JOIN turns ON turns.session = calls.session AND turns.number = \
                     calls.turn WHERE ";

/// Finds calls. Calls of rewound turns are included, since they were made.
pub fn find_calls(
    connection: &Connection,
    query: &HistoryQuery,
) -> Result<HistoryPage<CallRecord>> {
    let mut conditions = SearchConditions::default();
    // The unary `+` keeps the query planner from using an index that is worse than the session's.
    let mut no_index = "";
    let mut order = "calls.asked_at";
    if let Some(session) = &query.session {
        conditions.add_with_value("calls.session = ?", session_key(connection, session)?.into());
        no_index = "+";
        order = "calls.seq";
    }
    if let Some(tool) = &query.tool {
        conditions.add_with_value(&format!("{no_index}calls.tool_name = ?"), tool.clone().into());
        no_index = "+";
    }
    if !query.statuses.is_empty() {
        let list: Vec<_> =
            query.statuses.iter().map(|status| format!("'{}'", status.as_str())).collect();
        conditions.add_condition(&format!("{no_index}calls.status IN ({})", list.join(", ")));
        if no_index.is_empty() && query.statuses == [CallStatus::Error] {
            // The condition of the partial index, so that the planner uses it.
            conditions.add_condition("calls.status = 'error'");
        }
    }
    conditions.add_common(query, "calls.session", (order, "calls.id"));
    let sql = format!(
        "{}{} ORDER BY {order} DESC, calls.id DESC",
        CALL_QUERY.replace("{order}", order),
        conditions.sql()
    );
    let mut prompts = PromptReader::new(connection);
    collect_page(connection, (&sql, conditions.values), query, |search, row| {
        let prompt = prompts.prompt_of_call(row)?;
        if !search.matches_row(row, prompt, &[7, 11], (8, 9), Some(12))? {
            return Ok(None);
        }
        let done = call_record(connection, row, prompt)?;
        let bytes = done.arguments.len()
            + done.user_message.len()
            + done.result.as_ref().map_or(0, String::len)
            + done.error.as_ref().map_or(0, String::len);
        Ok(Some((done, bytes)))
    })
}

const MESSAGE_QUERY: &str = "SELECT entries.rowid, {time}, sessions.id, sessions.title, \
                        entries.turn, entries.message_id, entries.kind, entries.body, \
                        entries.refs, entries.seq, entries.session, entries.at FROM entries CROSS JOIN \
                        sessions ON sessions.key = entries.session WHERE entries.kind IN \
                        ('message', 'note') AND ";

/// Finds messages that the user has seen and that were not rewound.
pub fn find_messages(
    connection: &Connection,
    query: &HistoryQuery,
) -> Result<HistoryPage<MessageRecord>> {
    let mut conditions = SearchConditions::default();
    let mut time = "entries.at";
    if let Some(session) = &query.session {
        conditions.add_with_value("entries.session = ?", session_key(connection, session)?.into());
        time = "entries.seq";
    }
    conditions.add_common(query, "entries.session", (time, "entries.rowid"));
    let order = format!("ORDER BY {time} DESC, entries.rowid DESC");
    let sql = format!("{}{} {order}", MESSAGE_QUERY.replace("{time}", time), conditions.sql());
    let mut rewound_sessions: HashMap<i64, RewoundEntries> = HashMap::new();
    collect_page(connection, (&sql, conditions.values), query, |search, row| {
        if !search.matches_row(row, "", &[], (7, 8), None)? {
            return Ok(None);
        }
        let (seq, session): (u64, i64) = (row.get(9)?, row.get(10)?);
        let rewound_sessions = match rewound_sessions.entry(session) {
            Slot::Occupied(known) => known.into_mut(),
            Slot::Vacant(slot) => slot.insert(RewoundEntries::load(connection, session)?),
        };
        if rewound_sessions.contains(seq) {
            return Ok(None);
        }
        let Some((is_from_user, text)) = message_text(connection, row)? else { return Ok(None) };
        // The row matched the JSON around the message; only its text counts.
        if !search.matches_text(&text) {
            return Ok(None);
        }
        let calls = match query.session {
            Some(_) if !is_from_user => calls_of(connection, session, seq)?,
            _ => Vec::new(),
        };
        let results = calls.iter().flat_map(|call| [&call.result, &call.error]).flatten();
        let bytes = text.len()
            + results.map(String::len).sum::<usize>()
            + calls.iter().map(|call| call.arguments.len()).sum::<usize>();
        let message = MessageRecord {
            session: row.get::<_, String>(2)?.into(),
            title: row.get(3)?,
            turn: row.get(4)?,
            message: row.get::<_, Option<String>>(5)?.unwrap_or_default().into(),
            is_from_user,
            text,
            at: time_from_millis(row.get(11)?),
            calls,
        };
        Ok(Some((message, bytes)))
    })
}

/// The text of an entry and whether the user wrote it; `None` if the user was not meant to see it.
fn message_text(connection: &Connection, row: &Row<'_>) -> Result<Option<(bool, String)>> {
    let kind: String = row.get(6)?;
    let refs: Option<String> = row.get(8)?;
    let body = unpack(connection, &row.get::<_, String>(7)?, refs.as_deref())?;
    let entry = rows::read_entry(&kind, body).unwrap_or(Entry::Unknown);
    Ok(match entry {
        Entry::Note { text, .. } => Some((false, text)),
        Entry::Message { message, audience, .. } if audience != Audience::Model => {
            match message.as_ref() {
                Message::User(user) => Some((true, visible_prompt_text(user))),
                Message::Assistant(answer) => Some((false, answer.text.clone())),
                Message::Tool(_) => None,
            }
        }
        _ => None,
    })
}

/// A prompt as the user has seen it, with placeholders for media.
pub fn visible_prompt_text(prompt: &UserMessage) -> String {
    let mut text = String::new();
    for part in &prompt.parts {
        match part {
            PromptPart::Context(_) => {}
            PromptPart::Image(media) => text.push_str(&format!("[{}]", media.kind())),
            PromptPart::Audio(_) => text.push_str("[recording]"),
            part => render_part(part, &mut text),
        }
    }
    text
}

/// The calls of one answer.
fn calls_of(connection: &Connection, session: i64, seq: u64) -> Result<Vec<CallRecord>> {
    let sql = CALL_QUERY.replace("{order}", "calls.seq")
        + "calls.session = ? AND calls.seq = ? ORDER BY calls.position";
    let mut find = connection.prepare_cached(&sql)?;
    let mut prompts = PromptReader::new(connection);
    let calls = find.query_and_then(rusqlite::params![session, seq], |row| {
        call_record(connection, row, prompts.prompt_of_call(row)?)
    })?;
    calls.collect()
}

/// The texts that the user has typed in a prompt: each is in the entry or has a blob.
const TYPED_TEXTS: &str = "SELECT json_extract(part.value, '$.text'), json_extract(ref.value, '$[1]') \
                           FROM entries JOIN json_each(body, '$.message.user.parts') AS part \
                           LEFT JOIN json_each(refs) AS ref ON json_extract(ref.value, '$[0]') = \
                           '$.\"message\".\"user\".\"parts\"[' || part.key || '].\"text\"' \
                           WHERE session = ? AND entries.turn = ? AND seq = ? \
                           AND json_type(part.value, '$.text') IS NOT NULL";

/// Reads the user's texts in the turns of calls.
struct PromptReader<'a> {
    connection: &'a Connection,
    /// The session and the turn of the last call, and their prompt. The next call is often of the same turn.
    last: (i64, i64, String),
}

impl PromptReader<'_> {
    fn new(connection: &Connection) -> PromptReader<'_> {
        PromptReader { connection, last: (0, 0, String::new()) }
    }

    /// The prompt of a row of [`CALL_QUERY`]. For a row from an older version, only its beginning.
    fn prompt_of_call(&mut self, row: &Row<'_>) -> Result<&str> {
        let session: i64 = row.get(18)?;
        let turn: i64 = row.get(4)?;
        if (self.last.0, self.last.1) != (session, turn) {
            let entry: Option<i64> = row.get(17)?;
            let typed = entry.map(|entry| self.typed_text([session, turn, entry])).transpose()?;
            let words = row.get::<_, Option<String>>(15)?.unwrap_or_default();
            self.last = (session, turn, typed.flatten().unwrap_or(words));
        }
        Ok(&self.last.2)
    }

    /// The text that the user has typed in a prompt; `None` if the entry is not a prompt.
    fn typed_text(&self, entry: [i64; 3]) -> Result<Option<String>> {
        let mut find = self.connection.prepare_cached(TYPED_TEXTS)?;
        let mut rows = find.query(entry)?;
        let mut typed = None;
        while let Some(row) = rows.next()? {
            let text = match row.get(1)? {
                Some(blob) => blobs::get_text(self.connection, blob)?,
                None => row.get(0)?,
            };
            typed.get_or_insert_with(String::new).push_str(&text);
        }
        Ok(typed)
    }
}

/// Reads a row of [`CALL_QUERY`], in whose turn the user has typed `prompt`.
fn call_record(connection: &Connection, row: &Row<'_>, prompt: &str) -> Result<CallRecord> {
    let body: String = row.get(8)?;
    let arguments = match row.get::<_, Option<String>>(9)? {
        Some(refs) => unpack(connection, &body, Some(&refs))?.to_string(),
        None => body,
    };
    let text = blobs::text(connection, row.get(11)?, row.get(12)?)?;
    let status = CallStatus::parse(&row.get::<_, String>(10)?);
    let (result, error) = if status == CallStatus::Error { (None, text) } else { (text, None) };
    Ok(CallRecord {
        id: row.get(0)?,
        session: row.get::<_, String>(2)?.into(),
        title: row.get(3)?,
        turn: row.get(4)?,
        message: row.get::<_, String>(5)?.into(),
        call: row.get::<_, String>(6)?.into(),
        tool: row.get(7)?,
        arguments,
        result,
        error,
        status,
        duration_ms: row.get(13)?,
        at: time_from_millis(row.get(14)?),
        user_message: text::first_chars(prompt, MAX_PROMPT_CHARS).to_owned(),
        spawn_task: row.get(16)?,
    })
}

/// The conditions of a query and their values.
#[derive(Default)]
struct SearchConditions {
    conditions: Vec<String>,
    values: Vec<Sql>,
}

impl SearchConditions {
    fn add_condition(&mut self, condition: &str) {
        self.conditions.push(condition.to_owned());
    }

    fn add_with_value(&mut self, condition: &str, value: Sql) {
        self.add_condition(condition);
        self.values.push(value);
    }

    /// Adds the conditions that calls and messages share. `order` names the columns that rows are
    /// sorted by.
    fn add_common(&mut self, query: &HistoryQuery, session: &str, order: (&str, &str)) {
        let (time, number) = order;
        let moment = match time {
            "calls.seq" => "calls.asked_at",
            "entries.seq" => "entries.at",
            other => other,
        };
        if let Some(cwd) = &query.cwd {
            let folder =
                format!("+{session} IN (SELECT key FROM sessions WHERE ? IN (cwd, real_cwd))");
            self.add_with_value(&folder, path_to_value(cwd));
        }
        if let Some(since) = query.since {
            self.add_with_value(&format!("{moment} >= ?"), to_millis(since).into());
        }
        if let Some(until) = query.until {
            self.add_with_value(&format!("{moment} <= ?"), to_millis(until).into());
        }
        if let Some(HistoryCursor(at, id)) = query.after {
            self.add_with_value(&format!("({time}, {number}) < (?, ?)"), at.into());
            self.values.push(id.into());
        }
    }

    fn sql(&self) -> String {
        if self.conditions.is_empty() { "true".to_owned() } else { self.conditions.join(" AND ") }
    }
}

/// Collects a page. The first two columns must be the row's id and the column that rows are sorted
/// by. `read` returns the row and its size in bytes if it matches.
fn collect_page<T>(
    connection: &Connection,
    (sql, values): (&str, Vec<Sql>),
    query: &HistoryQuery,
    mut read: impl FnMut(&mut TextSearch<'_>, &Row<'_>) -> Result<Option<(T, usize)>>,
) -> Result<HistoryPage<T>> {
    let mut search = TextSearch::new(connection, &query.words);
    let mut find = connection.prepare_cached(sql)?;
    let mut rows = find.query(params_from_iter(values))?;
    let mut page = HistoryPage { rows: Vec::new(), next: None, is_truncated: false };
    let mut remaining_bytes = MAX_PAGE_BYTES;
    let mut last = None;
    while let Some(row) = rows.next()? {
        if page.rows.len() == query.limit || remaining_bytes == 0 {
            page.next = last;
            break;
        }
        if let Some((taken, bytes)) = read(&mut search, row)? {
            page.rows.push(taken);
            remaining_bytes = remaining_bytes.saturating_sub(bytes);
        }
        last = Some(HistoryCursor(row.get(1)?, row.get(0)?));
    }
    page.is_truncated = search.is_truncated;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Value, json};

    use super::*;
    use crate::{CallOutcome, SessionLog, SessionRow, Store, StoreError, TurnKind};
    use turnwright_types::message::{AssistantMessage, ToolCall};

    fn session(store: &Store, id: &str, cwd: &str) -> SessionLog {
        let log = SessionLog::new(store.clone(), id.into());
        drop(log.create_session(SessionRow {
            title: Some(format!("About {id}")),
            created_at: UNIX_EPOCH,
            updated_at: UNIX_EPOCH,
            ..SessionRow::new(id.into(), cwd.into())
        }));
        log
    }

    fn message(log: &SessionLog, id: &str, message: Message) -> u64 {
        let id = MessageId::from(id);
        log.add_entry(Entry::Message { id, message: Arc::new(message), audience: Audience::Both })
    }

    /// Adds a turn with one call, which stays pending without a result.
    fn add_turn(
        log: &SessionLog,
        number: u64,
        call: (&str, Value),
        result: Option<(bool, &str)>,
    ) -> u64 {
        log.begin_turn(TurnKind::Prompt, format!("Prompt {number}"));
        let text = format!("Prompt {number}");
        let first = message(log, &format!("u-{number}"), Message::User(UserMessage::text(text)));
        let id = CallId::from(format!("call-{number}"));
        let call = ToolCall::new(id.clone(), "p", call.0, call.1);
        let tool = call.name.clone();
        let answer =
            AssistantMessage::new(format!("a-{number}"), format!("Answer {number}"), vec![call]);
        message(log, &format!("a-{number}"), Message::Assistant(answer));
        if let Some((ok, text)) = result {
            let length = Some(Duration::from_micros(1_500));
            let outcome = CallOutcome {
                is_success: ok,
                tool,
                text: text.to_owned(),
                duration: length,
                ..CallOutcome::default()
            };
            log.finish_call(&id, outcome).in_background();
        }
        first
    }

    fn seeded() -> Store {
        let store = Store::in_memory();
        let one = session(&store, "one", "/a");
        let long = format!("{}\nÄrger in the END\n", "x".repeat(5_000));
        add_turn(&one, 1, ("read_file", json!({ "path": "a \"b\".txt" })), Some((true, &long)));
        add_turn(&one, 2, ("exec", json!({ "command": "make" })), Some((false, "no rule: make")));
        let two = session(&store, "two", "/b");
        let text = format!("{} needle", "y".repeat(2_000));
        add_turn(&two, 3, ("write_file", json!({ "content": text })), Some((true, "Written.")));
        add_turn(&two, 4, ("exec", json!({ "command": "MAKE all" })), None);
        store
    }

    fn ask(store: &Store, query: HistoryQuery) -> Vec<String> {
        let query = HistoryQuery { limit: 9, ..query };
        let page = store.write_blocking(move |connection| find_calls(connection, &query)).unwrap();
        page.rows.iter().map(|row| row.call.to_string()).collect()
    }

    #[test]
    fn calls_are_found_by_session_folder_tool_status_and_time_the_newest_first() {
        let store = seeded();
        let all = HistoryQuery::default();
        assert_eq!(ask(&store, all.clone()), ["call-4", "call-3", "call-2", "call-1"]);
        let one = HistoryQuery { session: Some("one".into()), ..all.clone() };
        assert_eq!(ask(&store, one.clone()), ["call-2", "call-1"]);
        assert_eq!(
            ask(&store, HistoryQuery { cwd: Some("/b".into()), ..all.clone() }),
            ["call-4", "call-3"]
        );
        let exec = HistoryQuery { tool: Some("exec".to_owned()), ..all.clone() };
        assert_eq!(ask(&store, exec.clone()), ["call-4", "call-2"]);
        for (status, expected) in [
            (CallStatus::Success, vec!["call-3", "call-1"]),
            (CallStatus::Error, vec!["call-2"]),
            (CallStatus::Pending, vec!["call-4"]),
            (CallStatus::Running, vec![]),
        ] {
            let query = HistoryQuery { statuses: vec![status], ..all.clone() };
            assert_eq!(ask(&store, query), expected, "{status:?}");
        }
        let now = SystemTime::now();
        let hour = Duration::from_secs(3_600);
        assert_eq!(ask(&store, HistoryQuery { since: Some(now - hour), ..all.clone() }).len(), 4);
        assert!(ask(&store, HistoryQuery { since: Some(now + hour), ..all.clone() }).is_empty());
        assert!(ask(&store, HistoryQuery { until: Some(now - hour), ..all.clone() }).is_empty());
        let nobody = HistoryQuery { session: Some("nobody".into()), ..all };
        let found = store.write_blocking(move |connection| find_calls(connection, &nobody));
        assert_eq!(found, Err(StoreError::NoSuchSession));
    }

    #[test]
    fn a_folder_is_found_by_its_real_path_as_well() {
        let store = seeded();
        let update = "UPDATE sessions SET cwd = '/link' WHERE id = 'two'";
        store.write_blocking(move |connection| Ok(connection.execute(update, [])?)).unwrap();
        for folder in ["/link", "/b"] {
            let query = HistoryQuery { cwd: Some(folder.into()), ..HistoryQuery::default() };
            assert_eq!(ask(&store, query), ["call-4", "call-3"], "{folder}");
        }
    }

    #[test]
    fn words_are_found_wherever_they_stand_in_whatever_case() {
        let store = seeded();
        for (words, expected) in [
            ("make", vec!["call-4", "call-2"]),
            ("rule MAKE", vec!["call-2"]),
            ("\"b\".txt", vec!["call-1"]),
            ("needle", vec!["call-3"]),
            ("ärger end", vec!["call-1"]),
            ("ärger prompt", vec!["call-1"]),
            ("write_file", vec!["call-3"]),
            ("make needle", vec![]),
            ("100%_", vec![]),
        ] {
            let query = HistoryQuery { words: words.to_owned(), ..HistoryQuery::default() };
            assert_eq!(ask(&store, query), expected, "{words}");
        }
    }

    #[test]
    fn a_row_holds_all_of_a_call() {
        let store = seeded();
        let query =
            HistoryQuery { session: Some("two".into()), limit: 9, ..HistoryQuery::default() };
        let page = store.write_blocking(move |connection| find_calls(connection, &query)).unwrap();
        let pending = &page.rows[0];
        let written = &page.rows[1];
        assert_eq!((pending.result.as_ref(), pending.error.as_ref()), (None, None));
        assert!(written.arguments.ends_with("y needle\"}"), "{}", written.arguments);
        assert_eq!(written.result.as_deref(), Some("Written."));
        assert_eq!(written.duration_ms, Some(1.5));
        assert_eq!((written.user_message.as_str(), written.message.as_str()), ("Prompt 3", "a-3"));
        assert_eq!((written.title.as_deref(), written.turn), (Some("About two"), 1));
    }

    #[test]
    fn page_by_page_every_row_comes_once() {
        let store = seeded();
        let mut query = HistoryQuery { limit: 3, ..HistoryQuery::default() };
        let first = query.clone();
        let page = store.write_blocking(move |connection| find_calls(connection, &first)).unwrap();
        assert_eq!(page.rows.len(), 3);
        query.after = page.next.map(|position| position.to_string().parse().unwrap());
        assert_eq!(ask(&store, query), ["call-1"]);
        for junk in ["", "1", "a.b", "1.2.3", "9999999999999999999.1"] {
            assert!(junk.parse::<HistoryCursor>().is_err(), "{junk}");
        }
    }

    #[test]
    fn messages_are_what_the_user_has_seen_and_not_taken_back() {
        let store = seeded();
        let ask = |query: HistoryQuery| {
            let query = HistoryQuery { limit: 9, ..query };
            store.write_blocking(move |connection| find_messages(connection, &query)).unwrap()
        };
        let texts = |page: &HistoryPage<MessageRecord>| -> Vec<String> {
            page.rows.iter().map(|row| row.text.clone()).collect()
        };
        let one = HistoryQuery { session: Some("one".into()), ..HistoryQuery::default() };
        let page = ask(one.clone());
        assert_eq!(texts(&page), ["Answer 2", "Prompt 2", "Answer 1", "Prompt 1"]);
        assert_eq!(page.rows[0].calls[0].error.as_deref(), Some("no rule: make"));
        assert!(page.rows[1].is_from_user && page.rows[1].calls.is_empty());
        let words = HistoryQuery { words: "answer".to_owned(), ..HistoryQuery::default() };
        assert_eq!(texts(&ask(words)), ["Answer 4", "Answer 3", "Answer 2", "Answer 1"]);
        // A word of the surrounding JSON is not a word of the message.
        assert!(
            ask(HistoryQuery { words: "audience".to_owned(), ..HistoryQuery::default() })
                .rows
                .is_empty()
        );

        let log = SessionLog::new(store.clone(), "one".into());
        log.resume_after((4, 2));
        log.add_entry(Entry::Rewound { to: 3 });
        assert_eq!(texts(&ask(one)), ["Answer 1", "Prompt 1"]);
    }

    #[test]
    fn no_query_sorts_or_looks_at_every_row_of_a_long_history() {
        let store = seeded();
        let steps = |sql: &str| -> String {
            let sql = format!("EXPLAIN QUERY PLAN {sql}");
            let steps = store.write_blocking(move |connection| {
                let mut find = connection.prepare(&sql)?;
                let count = find.parameter_count();
                let rows = find
                    .query_map(params_from_iter(vec![1; count]), |row| row.get::<_, String>(3))?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            });
            steps.unwrap().join("; ")
        };
        for (condition, order, index) in [
            ("true", "calls.asked_at", "calls_by_time"),
            ("calls.session = ?", "calls.seq", "calls_by_seq"),
            ("calls.session = ? AND +calls.tool_name = ?", "calls.seq", "calls_by_seq"),
            ("calls.session = ? AND (calls.seq, calls.id) < (?, ?)", "calls.seq", "calls_by_seq"),
            ("calls.tool_name = ?", "calls.asked_at", "calls_of_tool"),
            (
                "calls.tool_name = ? AND (calls.asked_at, calls.id) < (?, ?)",
                "calls.asked_at",
                "calls_of_tool",
            ),
            ("calls.asked_at >= ?", "calls.asked_at", "calls_by_time"),
            (
                "calls.status IN ('error') AND calls.status = 'error'",
                "calls.asked_at",
                "calls_with_errors",
            ),
        ] {
            let query = CALL_QUERY.replace("{order}", order);
            let steps = steps(&format!("{query}{condition} ORDER BY {order} DESC, calls.id DESC"));
            assert!(steps.contains(index) && !steps.contains("B-TREE"), "{condition}: {steps}");
        }
        for query in [TYPED_TEXTS, "SELECT user_message FROM tool_conversations WHERE id = ?"] {
            let steps = steps(query);
            let scans = steps.split("; ").filter(|step| step.starts_with("SCAN"));
            assert!(scans.clone().all(|step| step.contains("VIRTUAL TABLE")), "{steps}");
        }
    }
}
