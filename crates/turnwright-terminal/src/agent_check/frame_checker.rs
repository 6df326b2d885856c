//! Checks every message of an agent: its form, whether each request is answered once, and the order of what belongs
//! to a turn. It knows what was sent, and sends nothing itself.
//!
//! The form is the part of the protocol's JSON Schema that is needed, in `shapes.json`. The types of the protocol's
//! crate would take 600 KB of the program, and they forgive wrong values, which a check must not.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Map, Value};
use turnwright_types::text;

/// A rule that every message must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameRule {
    Json,
    Answers,
    Schema,
    Offers,
    Calls,
    Order,
}

/// Each rule with its name, and with what holds if there is no fault.
pub(super) const FRAME_RULES: [(FrameRule, &str, &str); 6] = [
    (FrameRule::Json, "json", "every line is a message of JSON-RPC 2.0"),
    (FrameRule::Answers, "answers", "every request is answered once"),
    (FrameRule::Schema, "schema", "every message fits the schema of ACP 1"),
    (FrameRule::Offers, "offers", "only what the client offers is used"),
    (
        FrameRule::Calls,
        "calls",
        "every tool call is announced first and ends once; its paths are absolute",
    ),
    (FrameRule::Order, "order", "no update outside of its turn or before its session"),
];

/// The meaning of a line.
#[derive(Debug)]
pub(super) enum Incoming {
    /// An answer, with the id of its request.
    Answer {
        id: Value,
        body: Value,
    },
    /// A request, which is to be answered.
    Request(Value),
    Update(Value),
    /// A fault is noted, and the line is good for nothing.
    Nothing,
}

#[derive(Default)]
pub(super) struct FrameChecker {
    /// The requests that were sent, by their ids.
    pending: HashMap<String, Value>,
    answered: HashSet<String>,
    /// The ids of the agent's requests.
    questions: HashSet<String>,
    sessions: HashSet<String>,
    /// The calls of each session, and whether they have ended.
    calls: HashMap<(String, String), bool>,
    pub(super) frames: usize,
    faults: Vec<(FrameRule, String)>,
}

impl FrameChecker {
    /// Another process of the agent is started: it knows nothing of the first one.
    pub(super) fn restart(&mut self) {
        let faults = std::mem::take(&mut self.faults);
        *self = FrameChecker { frames: self.frames, faults, ..FrameChecker::default() };
    }

    /// The first fault of a kind, and how many there are.
    pub(super) fn fault(&self, rule: FrameRule) -> Option<(&str, usize)> {
        let mut of_rule = self.faults.iter().filter(|fault| fault.0 == rule);
        let first = of_rule.next()?;
        Some((&first.1, 1 + of_rule.count()))
    }

    fn note(&mut self, rule: FrameRule, fault: String) {
        self.faults.push((rule, fault));
    }

    /// Notes a request of the client.
    pub(super) fn sent(&mut self, request: &Value) {
        if request["method"] == "session/load" {
            self.sessions.extend(request["params"]["sessionId"].as_str().map(str::to_owned));
        }
        self.pending.insert(request["id"].to_string(), request.clone());
    }

    /// Checks a line of the agent.
    pub(super) fn received(&mut self, line: &str) -> Incoming {
        self.frames += 1;
        let frame = match serde_json::from_str::<Value>(line) {
            Ok(frame) if frame.is_object() => frame,
            _ => {
                let shown = text::first_chars(line, 80);
                self.note(FrameRule::Json, format!("not a JSON object: {shown}"));
                return Incoming::Nothing;
            }
        };
        if let Some(problem) = form_problem(&frame) {
            let shown = text::first_chars(line, 120);
            self.note(FrameRule::Json, format!("{problem}: {shown}"));
            return Incoming::Nothing;
        }
        match (frame["method"].as_str(), frame.get("id")) {
            (Some(method), Some(id)) => {
                self.question(id, method, &frame["params"]);
                Incoming::Request(frame)
            }
            (Some("session/update"), None) => {
                self.update(&frame["params"]);
                Incoming::Update(frame["params"]["update"].clone())
            }
            (Some(method), None) => {
                // Notifications that are not known are ignored.
                if !method.starts_with(['_', '$']) {
                    self.note(FrameRule::Offers, format!("the notification {method}"));
                }
                Incoming::Nothing
            }
            (None, id) => {
                let id = id.cloned().unwrap_or_default();
                self.answer(&id, &frame);
                Incoming::Answer { id, body: frame }
            }
        }
    }

    fn fits(&mut self, definition: &str, what: &str, value: &Value) {
        if let Err(problem) = check(definition, value) {
            self.note(FrameRule::Schema, format!("{what}: {problem}"));
        }
    }

    fn answer(&mut self, id: &Value, frame: &Value) {
        if let Some(error) = frame.get("error") {
            self.fits("Error", "an error", error);
        }
        let key = id.to_string();
        let Some(request) = self.pending.remove(&key) else {
            let problem = match self.answered.contains(&key) {
                true => format!("the request {key} was answered twice"),
                // A message that cannot be parsed has no id.
                false if id.is_null() && frame.get("error").is_some() => return,
                false => format!("an answer to {key}, which nobody has asked"),
            };
            return self.note(FrameRule::Answers, problem);
        };
        self.answered.insert(key);
        let Some(result) = frame.get("result") else { return };
        let method = request["method"].as_str().unwrap_or_default();
        let definition = match method {
            "initialize" => "InitializeResponse",
            "session/new" => "NewSessionResponse",
            "session/load" => "LoadSessionResponse",
            "session/list" => "ListSessionsResponse",
            "session/prompt" => "PromptResponse",
            _ => return,
        };
        self.fits(definition, method, result);
        self.sessions.extend(result["sessionId"].as_str().map(str::to_owned));
        if definition == "PromptResponse" {
            self.turn_ended(request["params"]["sessionId"].as_str().unwrap_or_default());
        }
    }

    fn turn_ended(&mut self, session: &str) {
        let open = self.calls.iter().filter(|call| call.0.0 == session && !call.1);
        let ids: Vec<String> = open.map(|call| call.0.1.clone()).collect();
        for call in ids {
            self.note(FrameRule::Calls, format!("the turn ended before its tool call {call}"));
        }
    }

    /// Returns true if the agent has something to do for a session.
    fn is_busy(&self, session: &str) -> bool {
        self.pending.values().any(|request| request["params"]["sessionId"] == session)
    }

    fn question(&mut self, id: &Value, method: &str, params: &Value) {
        if !self.questions.insert(id.to_string()) {
            self.note(FrameRule::Answers, format!("the id {id} is used twice"));
        }
        if method != "session/request_permission" {
            if !method.starts_with(['_', '$']) {
                self.note(FrameRule::Offers, format!("the request {method}"));
            }
            return;
        }
        self.fits("RequestPermissionRequest", method, params);
        let session = params["sessionId"].as_str().unwrap_or_default();
        if !self.is_busy(session) {
            self.note(FrameRule::Order, "a question outside of a turn".to_owned());
        }
    }

    fn update(&mut self, params: &Value) {
        let update = &params["update"];
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        self.fits("SessionNotification", "session/update", params);
        let session = params["sessionId"].as_str().unwrap_or_default();
        if !self.sessions.contains(session) {
            self.note(FrameRule::Order, format!("{kind} of a session before it was answered"));
        }
        // These may come at any time.
        let is_about_session = [
            "available_commands_update",
            "current_mode_update",
            "config_option_update",
            "session_info_update",
        ];
        if !is_about_session.contains(&kind) && !self.is_busy(session) {
            self.note(FrameRule::Order, format!("{kind} after the answer to the prompt"));
        }
        if kind == "tool_call" || kind == "tool_call_update" {
            self.tool_call(kind == "tool_call", session, update);
        }
    }

    fn tool_call(&mut self, is_new: bool, session: &str, update: &Value) {
        let id = update["toolCallId"].as_str().unwrap_or_default();
        let key = (session.to_owned(), id.to_owned());
        let ends = ["completed", "failed"].contains(&update["status"].as_str().unwrap_or_default());
        let problem = match (self.calls.get(&key), is_new) {
            (None, false) => Some(format!("an update of the tool call {id} before it")),
            (Some(_), true) => Some(format!("the tool call {id} is announced twice")),
            (Some(true), false) if ends => Some(format!("the tool call {id} ends twice")),
            _ => None,
        };
        let has_ended = self.calls.get(&key).copied().unwrap_or_default();
        self.calls.insert(key, ends || has_ended);
        if let Some(problem) = problem {
            self.note(FrameRule::Calls, problem);
        }
        let places = [&update["locations"], &update["content"]];
        for place in places.iter().filter_map(|list| list.as_array()).flatten() {
            let path = &place["path"];
            if path.as_str().is_some_and(|text| !Path::new(text).is_absolute()) {
                let problem = format!("the tool call {id} has the relative path {path}");
                self.note(FrameRule::Calls, problem);
            }
        }
    }
}

/// Returns the fault in a message's form, whatever it says.
fn form_problem(frame: &Value) -> Option<&'static str> {
    let has = |key: &str| frame.get(key).is_some();
    let known = ["jsonrpc", "id", "method", "params", "result", "error"];
    let id = frame.get("id");
    if frame["jsonrpc"] != "2.0" {
        return Some("jsonrpc is not \"2.0\"");
    }
    let mut members = frame.as_object().into_iter().flat_map(Map::keys);
    if members.any(|key| !known.contains(&key.as_str())) {
        return Some("a member that JSON-RPC does not have");
    }
    if id.is_some_and(|id| !(id.is_string() || id.is_number() || id.is_null())) {
        return Some("an id of a wrong type");
    }
    if has("method") {
        let is_wrong = !frame["method"].is_string() || has("result") || has("error");
        return is_wrong.then_some("neither a request nor an answer");
    }
    if id.is_none() {
        return Some("an answer without an id");
    }
    (has("result") == has("error")).then_some("an answer needs either a result or an error")
}

/// The definitions by their names.
static SHAPES: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("shapes.json")).unwrap_or_default());

/// Checks a value against its definition, which must be in the file. The error describes the first difference.
fn check(definition: &str, value: &Value) -> Result<(), String> {
    fits(&SHAPES[definition], value, "")
}

fn fits(shape: &Value, value: &Value, path: &str) -> Result<(), String> {
    let list = |name: &str| shape[name].as_array().into_iter().flatten();
    if let Some(name) = shape["$ref"].as_str() {
        fits(&SHAPES[name], value, path)?;
    }
    if !has_type(&shape["type"], value) {
        return Err(format!("{}: {value} is not of type {}", name(path), shape["type"]));
    }
    if shape.get("const").is_some_and(|wanted| wanted != value) {
        return Err(format!("{}: {value} is not {}", name(path), shape["const"]));
    }
    if let (Some(least), Some(number)) = (shape["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        return Err(format!("{}: {value} is less than {least}", name(path)));
    }
    for key in list("required").filter_map(Value::as_str) {
        if value.get(key).is_none() {
            return Err(format!("{}: `{key}` is missing", name(path)));
        }
    }
    for (key, inner) in shape["properties"].as_object().into_iter().flatten() {
        if let Some(part) = value.get(key) {
            fits(inner, part, &format!("{path}.{key}"))?;
        }
    }
    if let (Some(inner), Value::Array(elements)) = (shape.get("items"), value) {
        for (number, element) in elements.iter().enumerate() {
            fits(inner, element, &format!("{path}[{number}]"))?;
        }
    }
    for part in list("allOf") {
        fits(part, value, path)?;
    }
    let forms: Vec<&Value> = list("anyOf").chain(list("oneOf")).collect();
    if forms.is_empty() { Ok(()) } else { fits_one(shape, &forms, value, path) }
}

fn fits_one(shape: &Value, forms: &[&Value], value: &Value, path: &str) -> Result<(), String> {
    // With the name of a form only that one can be meant, which makes for a better message.
    let key = shape["discriminator"]["propertyName"].as_str();
    let chosen = key.and_then(|key| {
        forms.iter().find(|form| Some(&form["properties"][key]["const"]) == value.get(key))
    });
    if let Some(form) = chosen {
        return fits(form, value, path);
    }
    let mut problems = Vec::new();
    for form in forms {
        match fits(form, value, path) {
            Ok(()) => return Ok(()),
            Err(_) if form["type"] == "null" => {}
            Err(problem) => problems.push(problem),
        }
    }
    match problems.as_slice() {
        [only] => Err(only.clone()),
        _ => {
            let found = key.and_then(|key| value.get(key)).unwrap_or(value).to_string();
            let shown = text::first_chars(&found, 80);
            Err(format!("{}: {shown} is none of what it may be", name(path)))
        }
    }
}

fn name(path: &str) -> &str {
    let path = path.trim_start_matches('.');
    if path.is_empty() { "the message" } else { path }
}

/// Returns true if a value is of a type, or of one of several.
fn has_type(wanted: &Value, value: &Value) -> bool {
    match wanted.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("null") => value.is_null(),
        Some(_) => true,
        None => wanted.as_array().is_none_or(|all| all.iter().any(|kind| has_type(kind, value))),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use serde_json::json;

    use super::*;

    /// The definitions that are needed, with all that they refer to. The test makes the file from them.
    const ROOTS: &[&str] = &[
        "SessionNotification",
        "RequestPermissionRequest",
        "InitializeResponse",
        "NewSessionResponse",
        "LoadSessionResponse",
        "ListSessionsResponse",
        "PromptResponse",
        "Error",
    ];

    /// The faults of these lines, after a session `s` was opened and a prompt with the id 1 was sent.
    fn faults(lines: &[Value]) -> Vec<String> {
        let mut checker = FrameChecker::default();
        checker.sent(&json!({ "id": 0, "method": "session/new" }));
        checker.received(
            &json!({ "jsonrpc": "2.0", "id": 0, "result": { "sessionId": "s" } }).to_string(),
        );
        let params = json!({ "sessionId": "s" });
        checker.sent(&json!({ "id": 1, "method": "session/prompt", "params": params }));
        for line in lines {
            checker.received(&line.to_string());
        }
        let name = |rule: FrameRule| FRAME_RULES.iter().find(|row| row.0 == rule).unwrap().1;
        checker.faults.iter().map(|fault| format!("{}: {}", name(fault.0), fault.1)).collect()
    }

    fn update(update: &Value) -> Value {
        let params = json!({ "sessionId": "s", "update": update });
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
    }

    fn call(status: &str) -> Value {
        update(
            &json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "status": status }),
        )
    }

    /// A call with a location.
    fn located(place: &Value) -> Value {
        let mut call = call("pending");
        call["params"]["update"]["locations"] = json!([place]);
        call
    }

    fn call_update(status: &str) -> Value {
        update(&json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": status }))
    }

    fn text() -> Value {
        let content = json!({ "type": "text", "text": "x" });
        update(&json!({ "sessionUpdate": "agent_message_chunk", "content": content }))
    }

    fn end() -> Value {
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "stopReason": "end_turn" } })
    }

    #[test]
    fn a_turn_without_faults_has_none() {
        let commands =
            json!({ "sessionUpdate": "available_commands_update", "availableCommands": [] });
        let lines = [
            text(),
            call("pending"),
            call_update("in_progress"),
            call_update("completed"),
            end(),
            update(&commands),
        ];
        assert_eq!(faults(&lines), Vec::<String>::new());
    }

    #[test]
    fn each_fault_is_found() {
        let other = |key: &str, value: Value| {
            let mut frame = end();
            frame[key] = value;
            frame
        };
        let unknown = json!({ "jsonrpc": "2.0", "method": "session/update",
            "params": { "sessionId": "x", "update": text()["params"]["update"] } });
        for (lines, expected) in [
            (vec![json!([1])], "json: not a JSON object: [1]"),
            (vec![other("jsonrpc", json!("1"))], "json: jsonrpc is not \"2.0\""),
            (vec![other("error", json!({}))], "json: an answer needs either a result or an error"),
            (vec![other("extra", json!(1))], "json: a member that JSON-RPC does not have"),
            (vec![other("id", json!([1]))], "json: an id of a wrong type"),
            (vec![json!({ "jsonrpc": "2.0", "result": {} })], "json: an answer without an id"),
            (vec![other("id", json!("1"))], "answers: an answer to \"1\", which nobody has asked"),
            (vec![end(), end()], "answers: the request 1 was answered twice"),
            (
                vec![other("result", json!({ "stopReason": "done" }))],
                "schema: session/prompt: stopReason: \"done\" is none of what it may be",
            ),
            (
                vec![json!({ "jsonrpc": "2.0", "id": 9, "method": "fs/read_text_file" })],
                "offers: the request fs/read_text_file",
            ),
            (vec![call("pending"), end()], "calls: the turn ended before its tool call c"),
            (vec![call_update("completed")], "calls: an update of the tool call c before it"),
            (vec![call("completed"), call_update("failed")], "calls: the tool call c ends twice"),
            (vec![call("failed"), call("failed")], "calls: the tool call c is announced twice"),
            (
                vec![located(&json!({ "path": "a.rs" }))],
                "calls: the tool call c has the relative path \"a.rs\"",
            ),
            (vec![end(), text()], "order: agent_message_chunk after the answer to the prompt"),
            (vec![unknown], "order: agent_message_chunk of a session before it was answered"),
        ] {
            let found = faults(&lines);
            assert!(
                found.first().is_some_and(|fault| fault.starts_with(expected)),
                "{expected}: {found:?}"
            );
        }
    }

    const OFFICIAL: &str = include_str!("../../../../tests/data/schema/schema.v1.json");

    /// A definition without descriptions and whatever else is not checked.
    fn checked_parts(shape: &Value) -> Value {
        match shape {
            Value::Object(members) => {
                let mut kept = Map::new();
                for (key, value) in members {
                    match key.as_str() {
                        "$ref" => {
                            let name = value.as_str().unwrap().trim_start_matches("#/$defs/");
                            kept.insert(key.clone(), name.into());
                        }
                        "properties" => {
                            let of = value.as_object().unwrap().iter();
                            let of = of.filter(|it| *it.0 != "_meta");
                            let of: Map<_, _> =
                                of.map(|it| (it.0.clone(), checked_parts(it.1))).collect();
                            kept.insert(key.clone(), of.into());
                        }
                        "type" | "const" | "required" | "items" | "minimum" | "allOf" | "anyOf"
                        | "oneOf" | "discriminator" | "propertyName" => {
                            kept.insert(key.clone(), checked_parts(value));
                        }
                        _ => {}
                    }
                }
                Value::Object(kept)
            }
            Value::Array(all) => all.iter().map(checked_parts).collect(),
            other => other.clone(),
        }
    }

    fn references(shape: &Value, found: &mut Vec<String>) {
        match shape {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(all) => all.iter().for_each(|element| references(element, found)),
            _ => {}
        }
    }

    /// Run the test with `UPDATE_EXPECT=1` to renew the file.
    #[test]
    fn the_file_is_a_part_of_the_official_schema() {
        let official: Value = serde_json::from_str(OFFICIAL).unwrap();
        let mut wanted: Vec<String> = ROOTS.iter().map(|root| (*root).to_owned()).collect();
        let mut shapes = std::collections::BTreeMap::new();
        while let Some(name) = wanted.pop() {
            let shape = checked_parts(&official["$defs"][&name]);
            let mut more = Vec::new();
            references(&shape, &mut more);
            if shapes.insert(name, shape).is_none() {
                wanted.append(&mut more);
            }
        }
        let lines: Vec<_> =
            shapes.iter().map(|shape| format!("\"{}\":{}", shape.0, shape.1)).collect();
        expect_file!["shapes.json"].assert_eq(&format!("{{\n{}\n}}\n", lines.join(",\n")));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let update = |update: Value| {
            let update = json!({ "sessionId": "s", "update": update });
            check("SessionNotification", &update)
        };
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t",
            "kind": "read", "status": "pending", "content": [], "x": 1 });
        assert_eq!(update(call.clone()), Ok(()));
        for (key, value, expected) in [
            ("status", json!("finished"), "update.status: \"finished\" is none of what it may be"),
            ("title", json!(1), "update.title: 1 is not of type \"string\""),
            ("sessionUpdate", json!("call"), "update: \"call\" is none of what it may be"),
            ("locations", json!([{}]), "update.locations[0]: `path` is missing"),
            (
                "content",
                json!([{ "type": "content", "content": { "type": "text" } }]),
                "update.content[0].content: `text` is missing",
            ),
        ] {
            let mut wrong = call.clone();
            wrong[key] = value;
            assert_eq!(update(wrong), Err(expected.to_owned()));
        }
        let error = check("Error", &json!({ "code": "x", "message": "" })).unwrap_err();
        assert!(error.starts_with("code: "), "{error}");
        assert_eq!(check("Error", &json!({ "code": -32099, "message": "" })), Ok(()));
        let initialized =
            json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": 1 } });
        assert!(check("InitializeResponse", &initialized).is_err());
    }
}
