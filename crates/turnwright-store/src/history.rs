//! What was said and done in all sessions, for whoever asks: filtered, searched for words, the
//! newest first, page by page. For a connection that only reads.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::SystemTime;

use rusqlite::types::Value as Sql;
use rusqlite::{Connection, Row, params_from_iter};

use super::blobs;
use super::pack::unpack;
use super::read::{key, millis, moment, path_value};
use super::words::Search;
use super::{Audience, CallStatus, Entry, Gone, StoreError};
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{Message, Part, UserMessage, render_part};

/// Bytes of the texts of one page: a few rows may be very long.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// What is looked for. The default is everything, and no row of it.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// In this session only.
    pub session: Option<SessionId>,
    /// In the sessions of this folder only.
    pub cwd: Option<PathBuf>,
    /// Calls of this tool only.
    pub tool: Option<String>,
    /// Calls that came so far only; if none is named, all.
    pub statuses: Vec<CallStatus>,
    /// Nothing that began before.
    pub since: Option<SystemTime>,
    /// Nothing that began after.
    pub until: Option<SystemTime>,
    /// Each of these has to stand somewhere in the row, in whatever case.
    pub words: String,
    /// Rows, at most.
    pub limit: usize,
    /// Only what is older than the page that ended here.
    pub before: Option<Cursor>,
}

/// Where a page has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(i64, i64);

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Cursor, ()> {
        let (time, number) = text.split_once('.').ok_or(())?;
        Ok(Cursor(time.parse().map_err(drop)?, number.parse().map_err(drop)?))
    }
}

/// Some rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The newest first.
    pub rows: Vec<T>,
    /// Where to go on, if there may be more.
    pub next: Option<Cursor>,
    /// Whether long texts were left out of a search for words because there are too many.
    pub is_cut: bool,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Its number in the store.
    pub id: i64,
    /// In which session.
    pub session: SessionId,
    /// What that is about.
    pub title: Option<String>,
    /// In which turn.
    pub turn: u64,
    /// Of which answer.
    pub message: MessageId,
    /// Its name in the session.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// JSON, whole.
    pub arguments: String,
    /// What came of it; `None` as long as nothing has, or if that is an error.
    pub result: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// How far it is.
    pub status: CallStatus,
    /// How long it took, in milliseconds.
    pub duration_ms: Option<f64>,
    /// When it ended; before that, when it was asked for.
    pub at: SystemTime,
    /// The beginning of the prompt that it was made for.
    pub user_message: String,
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// In which session.
    pub session: SessionId,
    /// What that is about.
    pub title: Option<String>,
    /// In which turn.
    pub turn: u64,
    /// What the client knows it by.
    pub message: MessageId,
    /// Whether the user has said it.
    pub is_users: bool,
    /// The words.
    pub text: String,
    /// When.
    pub at: SystemTime,
    /// The calls of it, in the model's order, if one session was asked about.
    pub calls: Vec<Done>,
}

const CALLS: &str = "SELECT calls.id, calls.asked_at, sessions.id, sessions.title, calls.turn, \
                     calls.message_id, calls.call, calls.tool_name, calls.arguments, \
                     calls.arguments_refs, calls.status, calls.result, calls.result_blob, \
                     calls.duration_ms, coalesce(calls.ended_at, calls.asked_at), turns.words \
                     FROM calls CROSS JOIN sessions ON sessions.key = calls.session LEFT JOIN turns \
                     ON turns.session = calls.session AND turns.number = calls.turn WHERE ";

/// The calls that are looked for. Those of turns that were taken back are among them: they were
/// made.
///
/// # Errors
/// When the store cannot be read, or there is no such session.
pub fn calls(connection: &Connection, query: &Query) -> Result<Page<Done>, StoreError> {
    let mut wanted = Wanted::default();
    // The leading `+` keeps the planner from an index that is worse than the session's own.
    let mut free = "";
    if let Some(session) = &query.session {
        wanted.add("calls.session = ?", key(connection, session)?.into());
        free = "+";
    }
    if let Some(tool) = &query.tool {
        wanted.add(&format!("{free}calls.tool_name = ?"), tool.clone().into());
        free = "+";
    }
    if !query.statuses.is_empty() {
        let list: Vec<_> = query.statuses.iter().map(|it| format!("'{}'", it.word())).collect();
        wanted.say(&format!("{free}calls.status IN ({})", list.join(", ")));
        if free.is_empty() && !query.statuses.contains(&CallStatus::Success) {
            // As the index says it.
            wanted.say("calls.status <> 'success'");
        }
    }
    wanted.common(query, "calls.session", ("calls.asked_at", "calls.id"));
    let order = "ORDER BY calls.asked_at DESC, calls.id DESC";
    let sql = format!("{CALLS}{} {order}", wanted.sql());
    let mut search = Search::new(connection, &query.words);
    collect(connection, (&sql, wanted.values), query.limit, |row| {
        if !search.fits(row, &[7, 11, 15], (8, 9), Some(12))? {
            return Ok((None, search.is_cut));
        }
        let done = done(connection, row)?;
        let length = |it: &Option<String>| it.as_ref().map_or(0, String::len);
        let bytes = done.arguments.len() + length(&done.result) + length(&done.error);
        Ok((Some((done, bytes)), search.is_cut))
    })
}

const MESSAGES: &str = "SELECT entries.rowid, {time}, sessions.id, sessions.title, \
                        entries.turn, entries.message_id, entries.kind, entries.body, \
                        entries.refs, entries.seq, entries.session, entries.at FROM entries CROSS JOIN \
                        sessions ON sessions.key = entries.session WHERE entries.kind IN \
                        ('message', 'note') AND ";

/// What was said, as far as the user has seen it and it was not taken back.
///
/// # Errors
/// When the store cannot be read, or there is no such session.
pub fn messages(connection: &Connection, query: &Query) -> Result<Page<Said>, StoreError> {
    let mut wanted = Wanted::default();
    let mut time = "entries.at";
    if let Some(session) = &query.session {
        wanted.add("entries.session = ?", key(connection, session)?.into());
        time = "entries.seq";
    }
    wanted.common(query, "entries.session", (time, "entries.rowid"));
    let order = format!("ORDER BY {time} DESC, entries.rowid DESC");
    let sql = format!("{}{} {order}", MESSAGES.replace("{time}", time), wanted.sql());
    let mut search = Search::new(connection, &query.words);
    let mut gone: HashMap<i64, Gone> = HashMap::new();
    collect(connection, (&sql, wanted.values), query.limit, |row| {
        if !search.fits(row, &[], (7, 8), None)? {
            return Ok((None, search.is_cut));
        }
        let (seq, session): (u64, i64) = (row.get(9)?, row.get(10)?);
        let gone = match gone.entry(session) {
            Slot::Occupied(known) => known.into_mut(),
            Slot::Vacant(slot) => slot.insert(Gone::find(connection, session)?),
        };
        if gone.holds(seq) {
            return Ok((None, search.is_cut));
        }
        let Some((is_users, text)) = words_of(connection, row)? else {
            return Ok((None, search.is_cut));
        };
        // What stands in it besides the words is no message.
        if !search.is_in(&text) {
            return Ok((None, search.is_cut));
        }
        let calls = match query.session {
            Some(_) if !is_users => calls_of(connection, session, seq)?,
            _ => Vec::new(),
        };
        let results = calls.iter().flat_map(|it| [&it.result, &it.error]).flatten();
        let bytes = text.len()
            + results.map(String::len).sum::<usize>()
            + calls.iter().map(|it| it.arguments.len()).sum::<usize>();
        let said = Said {
            session: row.get::<_, String>(2)?.into(),
            title: row.get(3)?,
            turn: row.get(4)?,
            message: row.get::<_, Option<String>>(5)?.unwrap_or_default().into(),
            is_users,
            text,
            at: moment(row.get(11)?),
            calls,
        };
        Ok((Some((said, bytes)), search.is_cut))
    })
}

/// The words of an entry, and whether they are the user's; nothing if nobody was meant to see it.
fn words_of(connection: &Connection, row: &Row<'_>) -> Result<Option<(bool, String)>, StoreError> {
    let kind: String = row.get(6)?;
    let refs: Option<String> = row.get(8)?;
    let body = unpack(connection, &row.get::<_, String>(7)?, refs.as_deref())?;
    let entry = serde_json::from_value(serde_json::json!({ kind: body })).unwrap_or(Entry::Unknown);
    Ok(match entry {
        Entry::Note { text, .. } => Some((false, text)),
        Entry::Message { message, audience, .. } if audience != Audience::Model => {
            match message.as_ref() {
                Message::User(user) => Some((true, typed(user))),
                Message::Assistant(answer) => Some((false, answer.text.clone())),
                Message::Tool(_) => None,
            }
        }
        _ => None,
    })
}

/// A prompt as its user has seen it.
pub fn typed(prompt: &UserMessage) -> String {
    let mut text = String::new();
    for part in &prompt.parts {
        match part {
            Part::Context(_) => {}
            Part::Image(_) => text.push_str("[image]"),
            Part::Audio(_) => text.push_str("[recording]"),
            part => render_part(part, &mut text),
        }
    }
    text
}

/// The calls of one answer.
fn calls_of(connection: &Connection, session: i64, seq: u64) -> Result<Vec<Done>, StoreError> {
    let sql = format!("{CALLS}calls.session = ? AND calls.seq = ? ORDER BY calls.position");
    let mut find = connection.prepare_cached(&sql)?;
    let mut rows = find.query(rusqlite::params![session, seq])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(done(connection, row)?);
    }
    Ok(all)
}

/// A row of [`CALLS`].
fn done(connection: &Connection, row: &Row<'_>) -> Result<Done, StoreError> {
    let body: String = row.get(8)?;
    let arguments = match row.get::<_, Option<String>>(9)? {
        Some(refs) => unpack(connection, &body, Some(&refs))?.to_string(),
        None => body,
    };
    let text = match (row.get::<_, Option<String>>(11)?, row.get::<_, Option<i64>>(12)?) {
        (None, Some(id)) => {
            Some(String::from_utf8_lossy(&blobs::get(connection, id)?).into_owned())
        }
        (text, _) => text,
    };
    let status = CallStatus::parse(&row.get::<_, String>(10)?);
    let (result, error) = if status == CallStatus::Error { (None, text) } else { (text, None) };
    Ok(Done {
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
        at: moment(row.get(14)?),
        user_message: row.get::<_, Option<String>>(15)?.unwrap_or_default(),
    })
}

/// The conditions of a query.
#[derive(Default)]
struct Wanted {
    conditions: Vec<String>,
    values: Vec<Sql>,
}

impl Wanted {
    fn say(&mut self, condition: &str) {
        self.conditions.push(condition.to_owned());
    }

    fn add(&mut self, condition: &str, value: Sql) {
        self.say(condition);
        self.values.push(value);
    }

    /// What is asked of calls and of messages. `order` is what they are sorted by.
    fn common(&mut self, query: &Query, session: &str, order: (&str, &str)) {
        let (time, number) = order;
        let moment = time.replace(".seq", ".at");
        if let Some(cwd) = &query.cwd {
            let folder = format!("+{session} IN (SELECT key FROM sessions WHERE cwd = ?)");
            self.add(&folder, path_value(cwd));
        }
        if let Some(since) = query.since {
            self.add(&format!("{moment} >= ?"), millis(since).into());
        }
        if let Some(until) = query.until {
            self.add(&format!("{moment} <= ?"), millis(until).into());
        }
        if let Some(Cursor(at, id)) = query.before {
            self.add(&format!("({time}, {number}) < (?, ?)"), at.into());
            self.values.push(id.into());
        }
    }

    fn sql(&self) -> String {
        if self.conditions.is_empty() { "true".to_owned() } else { self.conditions.join(" AND ") }
    }
}

/// Some rows, and whether there are more. `read` takes a row or leaves it, and tells how many bytes
/// it has and whether its search is cut; the first two columns are its
/// number and what rows are sorted by.
fn collect<T>(
    connection: &Connection,
    (sql, values): (&str, Vec<Sql>),
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> Result<(Option<(T, usize)>, bool), StoreError>,
) -> Result<Page<T>, StoreError> {
    let mut find = connection.prepare_cached(sql)?;
    let mut rows = find.query(params_from_iter(values))?;
    let mut page = Page { rows: Vec::new(), next: None, is_cut: false };
    let mut room = MOST_BYTES;
    let mut last = None;
    while let Some(row) = rows.next()? {
        if page.rows.len() == limit || room == 0 {
            page.next = last;
            break;
        }
        let (taken, is_cut) = read(row)?;
        page.is_cut = is_cut;
        if let Some((taken, bytes)) = taken {
            page.rows.push(taken);
            room = room.saturating_sub(bytes);
        }
        last = Some(Cursor(row.get(1)?, row.get(0)?));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Value, json};

    use super::*;
    use turnwright_types::message::{Arguments, AssistantMessage, Echo, ToolCall};
    use crate::{Log, SessionRow, Settled, Store, TurnKind};

    fn session(store: &Store, id: &str, cwd: &str) -> Log {
        let log = Log::new(store.clone(), id.into());
        drop(log.create(SessionRow {
            title: Some(format!("About {id}")),
            created: UNIX_EPOCH,
            updated: UNIX_EPOCH,
            ..SessionRow::new(id.into(), cwd.into())
        }));
        log
    }

    fn message(log: &Log, id: &str, message: Message) -> u64 {
        let id = MessageId::from(id);
        log.add(Entry::Message { id, message: Arc::new(message), audience: Audience::Both })
    }

    /// A turn with one call; without a result it is still pending.
    fn turn(log: &Log, number: u64, call: (&str, Value), result: Option<(bool, &str)>) -> u64 {
        log.begin(TurnKind::Prompt, format!("Prompt {number}"));
        let text = format!("Prompt {number}");
        let first = message(log, &format!("u-{number}"), Message::User(UserMessage::text(text)));
        let id = CallId::from(format!("call-{number}"));
        let call = ToolCall {
            id: id.clone(),
            provider_id: "p".to_owned(),
            name: call.0.to_owned(),
            arguments: Arguments::Object(call.1),
            extra: None,
        };
        let tool = call.name.clone();
        let answer = AssistantMessage {
            id: format!("a-{number}").into(),
            text: format!("Answer {number}"),
            thought: String::new(),
            calls: vec![call],
            interrupted: false,
            echo: Echo::default(),
        };
        message(log, &format!("a-{number}"), Message::Assistant(answer));
        if let Some((ok, text)) = result {
            let length = Some(Duration::from_micros(1_500));
            let settled =
                Settled { ok, tool, text: text.to_owned(), took: length, ..Settled::default() };
            drop(log.settle(&id, settled));
        }
        first
    }

    fn seeded() -> Store {
        let store = Store::in_memory();
        let one = session(&store, "one", "/a");
        let long = format!("{}\nÄrger in the END\n", "x".repeat(5_000));
        turn(&one, 1, ("read_file", json!({ "path": "a \"b\".txt" })), Some((true, &long)));
        turn(&one, 2, ("exec", json!({ "command": "make" })), Some((false, "no rule: make")));
        let two = session(&store, "two", "/b");
        let text = format!("{} needle", "y".repeat(2_000));
        turn(&two, 3, ("write_file", json!({ "content": text })), Some((true, "Written.")));
        turn(&two, 4, ("exec", json!({ "command": "MAKE all" })), None);
        store
    }

    fn ask(store: &Store, query: Query) -> Vec<String> {
        let query = Query { limit: 9, ..query };
        let page = store.write_now(move |it| calls(it, &query)).unwrap();
        page.rows.iter().map(|it| it.call.to_string()).collect()
    }

    #[test]
    fn calls_are_found_by_session_folder_tool_status_and_time_the_newest_first() {
        let (store, all) = (seeded(), Query::default());
        assert_eq!(ask(&store, all.clone()), ["call-4", "call-3", "call-2", "call-1"]);
        let one = Query { session: Some("one".into()), ..all.clone() };
        assert_eq!(ask(&store, one.clone()), ["call-2", "call-1"]);
        assert_eq!(
            ask(&store, Query { cwd: Some("/b".into()), ..all.clone() }),
            ["call-4", "call-3"]
        );
        let exec = Query { tool: Some("exec".to_owned()), ..all.clone() };
        assert_eq!(ask(&store, exec.clone()), ["call-4", "call-2"]);
        for (status, expected) in [
            (CallStatus::Success, vec!["call-3", "call-1"]),
            (CallStatus::Error, vec!["call-2"]),
            (CallStatus::Pending, vec!["call-4"]),
            (CallStatus::Running, vec![]),
        ] {
            let query = Query { statuses: vec![status], ..all.clone() };
            assert_eq!(ask(&store, query), expected, "{status:?}");
        }
        let now = SystemTime::now();
        let hour = Duration::from_secs(3_600);
        assert_eq!(ask(&store, Query { since: Some(now - hour), ..all.clone() }).len(), 4);
        assert!(ask(&store, Query { since: Some(now + hour), ..all.clone() }).is_empty());
        assert!(ask(&store, Query { until: Some(now - hour), ..all.clone() }).is_empty());
        let nobody = Query { session: Some("nobody".into()), ..all };
        let found = store.write_now(move |it| calls(it, &nobody));
        assert_eq!(found, Err(StoreError::NoSuchSession));
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
            let query = Query { words: words.to_owned(), ..Query::default() };
            assert_eq!(ask(&store, query), expected, "{words}");
        }
    }

    #[test]
    fn a_row_holds_all_of_a_call() {
        let store = seeded();
        let query = Query { session: Some("two".into()), limit: 9, ..Query::default() };
        let page = store.write_now(move |it| calls(it, &query)).unwrap();
        let (pending, written) = (&page.rows[0], &page.rows[1]);
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
        let mut query = Query { limit: 3, ..Query::default() };
        let first = query.clone();
        let page = store.write_now(move |it| calls(it, &first)).unwrap();
        assert_eq!(page.rows.len(), 3);
        query.before = page.next.map(|it| it.to_string().parse().unwrap());
        assert_eq!(ask(&store, query), ["call-1"]);
        for junk in ["", "1", "a.b", "1.2.3", "9999999999999999999.1"] {
            assert!(junk.parse::<Cursor>().is_err(), "{junk}");
        }
    }

    #[test]
    fn messages_are_what_the_user_has_seen_and_not_taken_back() {
        let store = seeded();
        let ask = |query: Query| {
            let query = Query { limit: 9, ..query };
            store.write_now(move |it| messages(it, &query)).unwrap()
        };
        let texts = |page: &Page<Said>| -> Vec<String> {
            page.rows.iter().map(|it| it.text.clone()).collect()
        };
        let one = Query { session: Some("one".into()), ..Query::default() };
        let page = ask(one.clone());
        assert_eq!(texts(&page), ["Answer 2", "Prompt 2", "Answer 1", "Prompt 1"]);
        assert_eq!(page.rows[0].calls[0].error.as_deref(), Some("no rule: make"));
        assert!(page.rows[1].is_users && page.rows[1].calls.is_empty());
        let words = Query { words: "answer".to_owned(), ..Query::default() };
        assert_eq!(texts(&ask(words)), ["Answer 4", "Answer 3", "Answer 2", "Answer 1"]);
        // A word of the JSON around it is no word of the message.
        assert!(ask(Query { words: "audience".to_owned(), ..Query::default() }).rows.is_empty());

        let log = Log::new(store.clone(), "one".into());
        log.go_on((4, 2));
        log.add(Entry::Rewound { to: 3 });
        assert_eq!(texts(&ask(one)), ["Answer 1", "Prompt 1"]);
    }

    #[test]
    fn no_query_sorts_or_looks_at_every_row_of_a_long_history() {
        let store = seeded();
        let steps = |sql: &str| -> String {
            let sql = format!("EXPLAIN QUERY PLAN {sql}");
            let steps = store.write_now(move |connection| {
                let mut find = connection.prepare(&sql)?;
                let count = find.parameter_count();
                let rows =
                    find.query_map(params_from_iter(vec![1; count]), |it| it.get::<_, String>(3))?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            });
            steps.unwrap().join("; ")
        };
        let order = "ORDER BY calls.asked_at DESC, calls.id DESC";
        for (condition, index) in [
            ("true", "calls_by_time"),
            ("calls.session = ?", "calls_of_session"),
            ("calls.session = ? AND +calls.tool_name = ?", "calls_of_session"),
            ("calls.tool_name = ?", "calls_of_tool"),
            ("calls.tool_name = ? AND (calls.asked_at, calls.id) < (?, ?)", "calls_of_tool"),
            ("calls.asked_at >= ?", "calls_by_time"),
        ] {
            let steps = steps(&format!("{CALLS}{condition} {order}"));
            assert!(steps.contains(index) && !steps.contains("B-TREE"), "{condition}: {steps}");
        }
        let failed = "calls.status IN ('error') AND calls.status <> 'success'";
        let steps = steps(&format!("{CALLS}{failed} {order}"));
        assert!(steps.contains("calls_that_failed") && !steps.contains("B-TREE"), "{steps}");
    }
}
