//! A session as a client sees it, in pieces that do not depend on timing: text in one stream however it was cut, each
//! card in a stream of its own with its states instead of its updates. What differs between any two runs gets the same
//! placeholder, and the first place where a replay differs from its recording is found.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use turnwright_mcp::SERVER_ASKS;
use turnwright_types::secret::EXPOSED_KEY;
use turnwright_types::text;

/// A part of what the client sees.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ObservedPiece {
    /// Text that goes on where the last piece of the same kind has ended.
    Text {
        kind: String,
        text: String,
    },
    Whole(Value),
}

/// A piece with the stream that it belongs to.
#[derive(Debug, PartialEq)]
pub(super) struct Observation {
    pub(super) stream: ObservedStream,
    pub(super) piece: ObservedPiece,
    /// The id of the agent's request that this is.
    pub(super) request: Option<Value>,
}

/// The pieces of a stream keep their order; there is none between streams.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ObservedStream {
    Text,
    Card(String),
    Requests,
    /// The answers to the client's requests, by the id of each.
    Answer(String),
    Other(String),
}

impl ObservedStream {
    /// Describes what the client sees there, for people.
    pub(super) fn describe(&self) -> String {
        match self {
            ObservedStream::Text => "the text".to_owned(),
            ObservedStream::Card(id) => format!("the card of call {id}"),
            ObservedStream::Requests => "a request to the client".to_owned(),
            ObservedStream::Answer(id) => format!("the answer to the client's request {id}"),
            ObservedStream::Other(kind) => format!("the update `{kind}`"),
        }
    }

    /// Returns true if it says all of what a turn does, so that nothing of it may be left at its end.
    pub(super) fn is_of_turn(&self) -> bool {
        matches!(self, ObservedStream::Text | ObservedStream::Card(_) | ObservedStream::Requests)
    }
}

/// Turns the lines of one run into pieces.
#[derive(Debug, Default)]
pub(super) struct Observer {
    folders: RunNormalizer,
    /// The calls in the order in which the client has seen them. Their ids depend on what was before
    /// the recording.
    calls: Vec<String>,
    /// The state of each card that has not ended.
    cards: HashMap<String, Map<String, Value>>,
    /// The methods of the client's requests, by their ids.
    methods: HashMap<String, String>,
    /// The sessions of helpers that the client was told of. They are not in the recording.
    helpers: HashSet<String>,
    /// The last state of the session in version 2.
    state: Value,
}

/// Returns true if a message belongs to a helper's session. Adds the session of a helper that it announces to
/// `helpers`.
pub(super) fn is_of_helper(helpers: &mut HashSet<String>, message: &Value) -> bool {
    let update = &message["params"]["update"];
    if update["sessionUpdate"] == "subagent_update" {
        helpers.extend(update["sessionId"].as_str().map(str::to_owned));
    }
    message["params"]["sessionId"].as_str().is_some_and(|session| helpers.contains(session))
}

/// Updates that are not compared, because they depend on the client's disk, on the size of the requests to the model,
/// on what happened before the recording (the ids of cursors), or on chance (the order in which helpers end; their
/// cards are compared).
const IGNORED_UPDATES: [&str; 5] = [
    "available_commands_update",
    "config_option_update",
    "usage_update",
    "cursor_update",
    "subagent_update",
];

/// The beginnings of lines in notices about the disk on which sessions are stored and the sandbox, of which a session
/// that is recorded from its midst has told before, and about files that a recording does not have.
const MACHINE_NOTICES: [&str; 15] = [
    "The sandbox is not available here",
    "Part of this session was not saved",
    "This session is not being saved",
    "Sessions are being saved again",
    "Too much was waiting to be saved",
    "Untrusted settings of ",
    "SSL_CERT_FILE is ",
    "Other users have rights to ",
    "The file system of ",
    ".mcp.json",
    ".lsp.json",
    ".turnwright/hooks.json: ",
    ".claude/settings",
    "There are hooks of Claude Code here",
    "Not used, because only files of the session's own folder count",
];

fn is_about_the_machine(line: &str) -> bool {
    line.contains(EXPOSED_KEY) || MACHINE_NOTICES.iter().any(|start| line.starts_with(start))
}

/// Leaves out the lines of a notice about the machine, which a replay does not know. Returns false if nothing is left
/// of it.
fn forget_the_machine(update: &mut Value) -> bool {
    let place = if update["title"].is_string() { "/title" } else { "/content/text" };
    let Some(Value::String(text)) = update.pointer_mut(place) else { return true };
    let left: String =
        text.split_inclusive('\n').filter(|line| !is_about_the_machine(line)).collect();
    if left.len() == text.len() {
        return true;
    }
    // The title of a notice does not end with a line break, and a text does.
    *text = if place == "/title" { left.trim_end().to_owned() } else { left };
    !text.trim().is_empty()
}

impl Observer {
    pub(super) fn new(folders: RunNormalizer) -> Observer {
        Observer { folders, ..Observer::default() }
    }

    /// Notes a message of the client.
    pub(super) fn on_client(&mut self, message: &Value) {
        if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
            self.methods.insert(id.to_string(), method.to_owned());
        }
    }

    /// The pieces that a message of the agent brings.
    pub(super) fn on_agent(&mut self, mut message: Value) -> Vec<Observation> {
        if is_of_helper(&mut self.helpers, &message) {
            return Vec::new();
        }
        let id = message.get("id").cloned();
        self.folders.normalize(&mut message);
        // In the questions of either version of the protocol.
        for place in ["/params/toolCall/toolCallId", "/params/subject/toolCall/toolCallId"] {
            if let Some(call) = message.pointer_mut(place) {
                *call = self.number_of_call(call.as_str().unwrap_or_default()).into();
            }
        }
        // It depends on how many messages there were before the recording.
        for place in ["/params/update", "/result"] {
            if let Some(Value::Object(fields)) = message.pointer_mut(place) {
                fields.remove("messageId");
            }
        }
        match (message["method"].as_str(), id) {
            (Some("session/update"), _) => self.on_update(&mut message["params"]["update"]),
            (Some(method), Some(id)) if !is_tool_request(&message) => {
                let piece = json!({ "method": method, "params": message["params"] });
                vec![Observation { request: Some(id), ..whole(ObservedStream::Requests, piece) }]
            }
            (None, Some(id)) => {
                let id = id.to_string();
                let answer = self.answer(&id, &message);
                vec![whole(ObservedStream::Answer(id), answer)]
            }
            _ => Vec::new(),
        }
    }

    /// The part of an answer that is compared: not what the machine or its settings decide.
    fn answer(&self, id: &str, message: &Value) -> Value {
        let method = self.methods.get(id).map(String::as_str);
        if message.get("error").is_some() {
            // Why a stored session is not opened depends on the store, of which a replay has one session.
            let why = match method {
                Some("session/load" | "session/resume" | "session/fork") => &Value::Null,
                _ => &message["error"]["message"],
            };
            return json!({ "error": why });
        }
        let result = &message["result"];
        match method {
            // A newer version offers more than that which has made the recording.
            Some("initialize") => json!({ "protocolVersion": result["protocolVersion"] }),
            Some("session/prompt") => result.clone(),
            _ => json!({}),
        }
    }

    fn on_update(&mut self, update: &mut Value) -> Vec<Observation> {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            _ if IGNORED_UPDATES.contains(&kind.as_str()) => Vec::new(),
            "agent_thought_chunk" | "notice" if !forget_the_machine(update) => Vec::new(),
            "agent_message_chunk" | "agent_thought_chunk"
                if update["content"]["text"].is_string() =>
            {
                let text = update["content"]["text"].as_str().unwrap_or_default().to_owned();
                let piece = ObservedPiece::Text { kind, text };
                vec![Observation { stream: ObservedStream::Text, piece, request: None }]
            }
            "tool_call" | "tool_call_update" => self.on_card(update),
            // The state is sent again when work in the background begins or ends.
            "state_update" if update["state"] == self.state => Vec::new(),
            _ => {
                if let Some(fields) = update.as_object_mut().filter(|_| kind == "state_update") {
                    fields.remove("background");
                    self.state = fields.get("state").cloned().unwrap_or_default();
                }
                vec![whole(ObservedStream::Other(kind), update.take())]
            }
        }
    }

    fn number_of_call(&mut self, id: &str) -> String {
        let known = self.calls.iter().position(|call| call == id);
        let index = known.unwrap_or_else(|| {
            self.calls.push(id.to_owned());
            self.calls.len() - 1
        });
        (index + 1).to_string()
    }

    /// The states of a card: the last one before it ran, that it runs, and the last one of all. What is
    /// shown in between depends on how fast it came.
    fn on_card(&mut self, update: &mut Value) -> Vec<Observation> {
        let id = self.number_of_call(update["toolCallId"].as_str().unwrap_or_default());
        let Some(fields) = update.as_object_mut() else { return Vec::new() };
        // An empty list says the same as none, and which of them is sent depends on how many updates were
        // shown on the way.
        fields.retain(|name, value| {
            !matches!(name.as_str(), "_meta" | "sessionUpdate" | "toolCallId")
                && (name != "locations" || value.as_array().is_some_and(|list| !list.is_empty()))
        });
        // Older recordings have no references to the sessions of helpers.
        if let Some(Value::Array(items)) = fields.get_mut("content") {
            items.retain(|item| item["type"] != "session");
        }
        let status = fields.remove("status").unwrap_or_default();
        let card = self.cards.entry(id.clone()).or_default();
        let before = card.get("status").cloned().unwrap_or_else(|| json!("pending"));
        let mut states = Vec::new();
        let has_new = !status.is_null() && status != before;
        if has_new && before == "pending" {
            states.push(Value::Object(card.clone()));
        }
        card.extend(std::mem::take(fields));
        card.insert("status".to_owned(), if status.is_null() { before } else { status.clone() });
        if has_new && status == "in_progress" {
            states.push(json!({ "status": status }));
        }
        if status == "completed" || status == "failed" {
            states.extend(self.cards.remove(&id).map(Value::Object));
        }
        let stream = ObservedStream::Card(id);
        states.into_iter().map(|state| whole(stream.clone(), state)).collect()
    }
}

/// Returns true if a message is a request that a tool makes while it runs. In a replay it does not run.
pub(super) fn is_tool_request(message: &Value) -> bool {
    let Some(method) = message["method"].as_str() else { return false };
    let text = message["params"]["message"].as_str().unwrap_or_default();
    let is_form_of_server = method == "elicitation/create" && text.starts_with(SERVER_ASKS);
    method.starts_with("fs/") || method.starts_with("terminal/") || is_form_of_server
}

fn whole(stream: ObservedStream, piece: Value) -> Observation {
    Observation { stream, piece: ObservedPiece::Whole(piece), request: None }
}

/// The folders of one run's own files, with the placeholders that stand for them.
#[derive(Clone, Debug, Default)]
pub(super) struct RunNormalizer(Vec<(String, &'static str)>);

impl RunNormalizer {
    pub(super) fn new(config: &str, state: &str) -> RunNormalizer {
        let folders = [(config.to_owned(), "<config>"), (state.to_owned(), "<state>")];
        RunNormalizer(folders.into_iter().filter(|folder| !folder.0.is_empty()).collect())
    }

    /// Replaces identifiers, times and the folders in all strings of the value.
    pub(super) fn normalize(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                for (folder, placeholder) in &self.0 {
                    if text.contains(folder.as_str()) {
                        *text = text.replace(folder.as_str(), placeholder);
                    }
                }
                *text = mask_ids_and_times(text);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.normalize(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.normalize(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The shapes of identifiers and times: `x` is a hexadecimal digit, `0` a decimal one.
const SHAPES: [(&str, &str); 2] =
    [("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "<id>"), ("0000-00-00T00:00:00", "<time>")];

fn mask_ids_and_times(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    'text: while let Some(first) = rest.chars().next() {
        for (shape, placeholder) in SHAPES {
            if let Some(found) = rest.get(..shape.len()).filter(|start| has_shape(start, shape)) {
                clean.push_str(placeholder);
                rest = &rest[found.len()..];
                if placeholder == "<time>" {
                    // Fractions of a second, and the zone.
                    rest = rest.trim_start_matches(|letter: char| {
                        letter == '.' || letter.is_ascii_digit()
                    });
                    rest = rest.strip_prefix('Z').unwrap_or(rest);
                }
                continue 'text;
            }
        }
        clean.push(first);
        rest = &rest[first.len_utf8()..];
    }
    clean
}

fn has_shape(text: &str, shape: &str) -> bool {
    text.chars().zip(shape.chars()).all(|(found, wanted)| match wanted {
        'x' => found.is_ascii_hexdigit(),
        '0' => found.is_ascii_digit(),
        same => found == same,
    })
}

/// The most characters that are shown of one side.
const MAX_SHOWN: usize = 300;
/// How much of the text before a difference is shown.
const CONTEXT: usize = 40;

/// The first place where a replay differs from its recording.
#[derive(Debug)]
pub(super) struct Difference {
    /// The line of the recording, from 1.
    pub(super) line: usize,
    /// The prompt, from 1; 0 before the first.
    pub(super) turn: usize,
    /// The part of the session that is not the same.
    pub(super) what: String,
    pub(super) recorded: String,
    pub(super) now: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Difference { line, turn, what, recorded, now } = self;
        let place = match turn {
            0 => "before the first prompt".to_owned(),
            turn => format!("in turn {turn}"),
        };
        writeln!(formatter, "Different {place}, at line {line} of the recording: {what}")?;
        writeln!(formatter, "  recorded: {recorded}\n  now:      {now}")
    }
}

/// Where two values differ first: the path there, and both sides.
pub(super) fn compare(recorded: &Value, now: &Value) -> Option<(String, String, String)> {
    let compare_part = |name: &dyn std::fmt::Display, recorded: &Value, now: &Value| {
        let (path, recorded, now) = compare(recorded, now)?;
        Some((format!("{name}.{path}"), recorded, now))
    };
    match (recorded, now) {
        (Value::Object(one), Value::Object(other)) => {
            let mut names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            names.find_map(|name| compare_part(name, &recorded[name], &now[name]))
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut indices = 0..one.len().max(other.len());
            indices.find_map(|index| compare_part(&index, &recorded[index], &now[index]))
        }
        (Value::String(one), Value::String(other)) if one != other => {
            let (one, other) = around_difference(one, other);
            Some((String::new(), one, other))
        }
        _ if recorded == now => None,
        _ => Some((String::new(), shortened(recorded), shortened(now))),
    }
}

/// Both texts from shortly before the place where they differ.
pub(super) fn around_difference(one: &str, other: &str) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(left, right)| left == right).count();
    let skipped = same.saturating_sub(CONTEXT);
    let cut = |text: &str| {
        let text: String = text.chars().skip(skipped).take(MAX_SHOWN).collect();
        format!("{}{text:?}", if skipped > 0 { "…" } else { "" })
    };
    (cut(one), cut(other))
}

/// A piece, for people.
pub(super) fn describe(piece: &ObservedPiece) -> String {
    match piece {
        ObservedPiece::Text { text, .. } => shortened(&Value::from(text.as_str())),
        ObservedPiece::Whole(value) => shortened(value),
    }
}

fn shortened(value: &Value) -> String {
    if value.is_null() {
        return "nothing".to_owned();
    }
    text::clip(value.to_string(), MAX_SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_and_the_sandbox_of_the_machine_are_not_compared() {
        let pieces = |update: Value| {
            Observer::default().on_agent(json!({ "method": "session/update", "params": { "sessionId": "s", "update": update } }))
        };
        let thought = |text: &str| json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": text } });
        for notice in MACHINE_NOTICES {
            assert!(pieces(thought(&format!("{notice}: x.\n\n"))).is_empty(), "{notice}");
            let update = json!({ "sessionUpdate": "notice", "severity": "info", "title": notice });
            assert!(pieces(update).is_empty(), "{notice}");
        }
        assert_eq!(pieces(thought("This session is done.")).len(), 1);
        let key = format!("/k {EXPOSED_KEY} read it. Run `chmod 600 /k`");
        assert!(pieces(thought(&format!("{key}\n\n"))).is_empty());
        assert_eq!(pieces(thought(&format!("One.\n{key}\n\n"))), pieces(thought("One.\n\n")));
        let notice = |title: &str| pieces(json!({ "sessionUpdate": "notice", "title": title }));
        assert!(notice(&key).is_empty());
        assert_eq!(notice(&format!("{key}\nOne.")), notice("One."));
        assert_eq!(notice(&format!("One.\n{key}")), notice("One."));
        let untrusted = "Untrusted settings of .mcp.json ignored: the MCP server a (`a`). Run `/trust` to review them.";
        assert_eq!(notice(&format!("One.\n{untrusted}")), notice("One."));
    }

    #[test]
    fn why_a_session_is_not_opened_is_not_compared() {
        let answer = |method: &str, message: &str| {
            let mut observer = Observer::default();
            observer.on_client(&json!({ "id": 1, "method": method }));
            let error = json!({ "code": -32002, "message": message });
            let pieces = observer.on_agent(json!({ "id": 1, "error": error }));
            pieces.into_iter().map(|observation| observation.piece).collect::<Vec<_>>()
        };
        assert_eq!(answer("session/load", "It is locked"), answer("session/load", "It is missing"));
        assert_ne!(answer("session/prompt", "One"), answer("session/prompt", "Another"));
    }

    #[test]
    fn a_card_is_compared_by_its_states() {
        let update = |update: Value| json!({ "method": "session/update", "params": { "sessionId": "s", "update": update } });
        let mut observer = Observer::default();
        let mut states = Vec::new();
        for change in [
            json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "status": "pending", "title": "R" }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "Read a" }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress" }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": ["half"] }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
                    "content": ["all"] }),
        ] {
            states.extend(
                observer.on_agent(update(change)).into_iter().map(|observation| observation.piece),
            );
        }
        let expected = [
            json!({ "title": "Read a", "status": "pending" }),
            json!({ "status": "in_progress" }),
            json!({ "title": "Read a", "status": "completed", "content": ["all"] }),
        ];
        assert_eq!(states, expected.map(ObservedPiece::Whole));
    }

    #[test]
    fn identifiers_times_and_folders_get_placeholders() {
        let folders = RunNormalizer::new("/home/a/.config/turnwright", "/home/a/.state");
        let mut value = json!({
            "id": "0a1b2c3d-0000-4000-8000-0123456789ab",
            "at": ["2026-01-02T03:04:05.678Z, 2026-01-02T03:04:05"],
            "path": "see /home/a/.state/x and é 2026-01-02",
            "n": 1,
        });
        folders.normalize(&mut value);
        let expected = json!({
            "id": "<id>",
            "at": ["<time>, <time>"],
            "path": "see <state>/x and é 2026-01-02",
            "n": 1,
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn the_first_difference_is_named_by_its_path() {
        let recorded = json!({ "a": [1, { "b": "same text" }], "c": 1 });
        let path = |now: Value| compare(&recorded, &now);
        assert_eq!(path(recorded.clone()), None);
        let found = path(json!({ "a": [1, { "b": "same test" }], "c": 2 })).unwrap();
        assert_eq!(found, ("a.1.b.".into(), "\"same text\"".into(), "\"same test\"".into()));
        let found = path(json!({ "a": [1] })).unwrap();
        assert_eq!(found, ("a.1.".into(), "{\"b\":\"same text\"}".into(), "nothing".into()));
        let (one, other) = around_difference(&"x".repeat(100), &format!("{}y", "x".repeat(99)));
        assert_eq!(one, format!("…{:?}", "x".repeat(41)));
        assert_eq!(other, format!("…{:?}", format!("{}y", "x".repeat(40))));
    }

    #[test]
    fn a_state_that_is_told_again_because_of_work_in_the_background_is_not_compared() {
        let mut observer = Observer::default();
        let work = json!([{ "type": "terminal", "terminalId": "call-1" }]);
        let states = [("running", json!([])), ("running", work.clone()), ("idle", work)];
        let mut told = Vec::new();
        for (state, background) in states {
            let update = json!({
                "sessionUpdate": "state_update", "state": state, "background": background,
            });
            let params = json!({ "sessionId": "s", "update": update });
            told.extend(observer.on_agent(json!({ "method": "session/update", "params": params })));
        }
        let piece = |state: &str| {
            ObservedPiece::Whole(json!({ "sessionUpdate": "state_update", "state": state }))
        };
        let pieces: Vec<_> = told.into_iter().map(|observation| observation.piece).collect();
        assert_eq!(pieces, [piece("running"), piece("idle")]);
    }
}
