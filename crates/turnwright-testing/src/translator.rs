//! Lets a test that is written for version 1 of the protocol run in version 2: the agent is sent requests of
//! version 2, and what it sends is checked as such and then logged in the form of version 1. What has no such
//! form, such as terminals, is left out.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

/// Translates the messages of one connection.
#[derive(Default)]
pub(crate) struct Translator {
    /// The method and the session of each request, by its id.
    requests: HashMap<String, (String, Value)>,
    /// The prompt whose turn runs, by session.
    running: HashMap<String, Value>,
    /// The states of the sessions: whether a turn runs.
    is_running: HashMap<String, bool>,
    /// The calls that the test was told of.
    cards: HashSet<String>,
    /// The first item of each call's content.
    previews: HashMap<String, Value>,
    shows_notices: bool,
}

impl Translator {
    /// A request of version 1 as version 2 has it.
    pub(crate) fn request(&mut self, id: &Value, method: &str, params: &Value) -> (String, Value) {
        let mut sent = params.clone();
        for server in sent.get_mut("mcpServers").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if server.is_object() && server.get("type").is_none() {
                server["type"] = "stdio".into();
            }
        }
        let initial = sent.get_mut("configOptions").and_then(Value::as_array_mut);
        for entry in initial.into_iter().flatten().filter(|it| it.is_object()) {
            if entry.get("type").is_none() {
                entry["type"] = "id".into();
            }
        }
        self.requests.insert(id.to_string(), (method.to_owned(), params["sessionId"].clone()));
        let name = match method {
            "initialize" => {
                if params["protocolVersion"] == 1 {
                    sent = self.initialize(params);
                }
                "initialize"
            }
            "authenticate" => "auth/login",
            "session/load" => {
                sent["replayFrom"] = json!({ "type": "start" });
                "session/resume"
            }
            "session/set_mode" => {
                sent = json!({
                    "sessionId": params["sessionId"], "configId": "mode", "type": "id",
                    "value": params["modeId"],
                });
                "session/set_config_option"
            }
            "session/set_config_option" => {
                if params.get("type").is_none() {
                    sent["type"] = "id".into();
                }
                method
            }
            same => same,
        };
        (name.to_owned(), sent)
    }

    fn initialize(&mut self, params: &Value) -> Value {
        let old = &params["clientCapabilities"];
        self.shows_notices = old["session"]["notices"].is_object();
        let mut capabilities = json!({});
        if old["auth"]["terminal"] == true {
            capabilities["auth"] = json!({ "terminal": {} });
        }
        if old["elicitation"].is_object() {
            capabilities["elicitation"] = old["elicitation"].clone();
        }
        let info = params.get("clientInfo").filter(|it| it.is_object()).cloned();
        let info = info.unwrap_or_else(|| json!({ "name": "test", "version": "1" }));
        json!({ "protocolVersion": 2, "info": info, "capabilities": capabilities })
    }

    /// A message of the agent as version 1 has it.
    pub(crate) fn message(&mut self, message: Value) -> Vec<Value> {
        match message["method"].as_str() {
            Some("session/update") => self.update(message),
            Some("session/request_permission") => vec![permission(message)],
            Some(_) => vec![message],
            None => self.answer(message),
        }
    }

    fn answer(&mut self, mut message: Value) -> Vec<Value> {
        let request = self.requests.get(&message["id"].to_string()).cloned();
        let Some((method, session)) = request else { return vec![message] };
        if message["error"].is_object() {
            let is_cancelled_prompt =
                method == "session/prompt" && message["error"]["code"] == -32800;
            if is_cancelled_prompt {
                let id = &message["id"];
                let result = json!({ "stopReason": "cancelled" });
                return vec![json!({ "jsonrpc": "2.0", "id": id, "result": result })];
            }
            return vec![message];
        }
        let result = &mut message["result"];
        match method.as_str() {
            "initialize" => result["protocolVersion"] = 1.into(),
            "session/prompt" => return self.inserted(&message, &session),
            "session/set_mode" => *result = json!({}),
            _ => {}
        }
        if let Some(options) = message["result"].get("configOptions").cloned() {
            let modes =
                options.as_array().into_iter().flatten().find(|it| it["configId"] == "mode");
            if let Some(modes) = modes.filter(|_| method != "session/set_config_option") {
                message["result"]["modes"] = state_of_modes(modes);
            }
            message["result"]["configOptions"] = renamed_options(options);
        }
        vec![message]
    }

    /// A prompt is a message now. One that has no turn has joined the running one.
    fn inserted(&mut self, message: &Value, session: &Value) -> Vec<Value> {
        let session = session.as_str().unwrap_or_default().to_owned();
        let id = &message["id"];
        if self.running.contains_key(&session) {
            let result = json!({ "stopReason": "end_turn" });
            return vec![json!({ "jsonrpc": "2.0", "id": id, "result": result })];
        }
        assert_eq!(self.is_running.get(&session), Some(&true), "no turn runs: {message}");
        self.running.insert(session, id.clone());
        Vec::new()
    }

    fn update(&mut self, mut message: Value) -> Vec<Value> {
        let session = message["params"]["sessionId"].as_str().unwrap_or_default().to_owned();
        let update = &mut message["params"]["update"];
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "state_update" => return self.state(&session, update),
            "user_message" | "terminal_update" | "terminal_output_chunk" => return Vec::new(),
            "tool_call_content_chunk" => return self.more_content(&session, update),
            "subagent_update" => {
                if let Some(state) = update.get_mut("state").and_then(Value::as_object_mut) {
                    state.remove("background");
                }
            }
            "tool_call_update" => {
                rebuild_diffs(update);
                if update["status"] == "cancelled" {
                    update["status"] = "failed".into();
                }
                if let Some(fields) = update.as_object_mut() {
                    fields.remove("capabilities");
                }
                let call = format!("{} {session}", update["toolCallId"]);
                if let Some(diff) = update.pointer("/content/0") {
                    self.previews.insert(call.clone(), diff.clone());
                }
                if self.cards.insert(call) {
                    update["sessionUpdate"] = "tool_call".into();
                }
            }
            "plan_update" => {
                let entries = update["plan"]["entries"].take();
                *update = json!({ "sessionUpdate": "plan", "entries": entries });
            }
            "config_option_update" => {
                update["configOptions"] = renamed_options(update["configOptions"].take());
            }
            "available_commands_update" => {
                for command in update["availableCommands"].as_array_mut().into_iter().flatten() {
                    let fields = command.as_object_mut().expect("a command");
                    fields.remove("type");
                    if let Some(input) = fields.get_mut("input") {
                        *input = json!({ "hint": input["hint"] });
                    }
                }
            }
            "notice" if !self.shows_notices => {
                let text = format!("{}\n\n", update["title"].as_str().unwrap_or_default());
                *update = json!({
                    "sessionUpdate": "agent_thought_chunk",
                    "content": { "type": "text", "text": text },
                });
            }
            _ => {}
        }
        vec![message]
    }

    /// A further item of a card's content. Version 1 sends the whole content again.
    fn more_content(&mut self, session: &str, chunk: &Value) -> Vec<Value> {
        let call = format!("{} {session}", chunk["toolCallId"]);
        let mut card = json!({ "content": [chunk["content"]] });
        rebuild_diffs(&mut card);
        let diff = self.previews.get_mut(&call).expect("a card with content");
        let more = card["content"][0]["newText"].as_str().expect("text");
        diff["newText"] = (diff["newText"].as_str().expect("text").to_owned() + more).into();
        let update = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": chunk["toolCallId"],
            "status": "pending", "content": [diff],
        });
        let params = json!({ "sessionId": session, "update": update });
        vec![json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })]
    }

    fn state(&mut self, session: &str, update: &Value) -> Vec<Value> {
        let is_idle = update["state"] == "idle";
        let was_running = self.is_running.insert(session.to_owned(), !is_idle);
        if !is_idle {
            return Vec::new();
        }
        // Only the end of a turn is the answer to its prompt.
        let Some(id) = self.running.remove(session) else { return Vec::new() };
        assert_eq!(was_running, Some(true), "the end of a turn that did not run: {update}");
        if update["stopReason"] == "error" {
            let error = &update["error"];
            return vec![json!({ "jsonrpc": "2.0", "id": id, "error": error })];
        }
        let mut result = json!({ "stopReason": update["stopReason"] });
        if update["usage"].is_object() {
            result["usage"] = update["usage"].clone();
        }
        vec![json!({ "jsonrpc": "2.0", "id": id, "result": result })]
    }
}

fn permission(mut message: Value) -> Value {
    let call = message["params"]["subject"]["toolCall"].take();
    message["params"]["toolCall"] = call;
    rebuild_diffs(&mut message["params"]["toolCall"]);
    message
}

/// Rebuilds the texts of diffs from their patches, as far as these show them.
fn rebuild_diffs(card: &mut Value) {
    let content = card.get_mut("content").and_then(Value::as_array_mut);
    for diff in content.into_iter().flatten().filter(|it| it["type"] == "diff") {
        let change = &diff["changes"][0];
        let patch = diff["patch"]["text"].as_str().unwrap_or_default();
        let (mut old, mut new) = (String::new(), String::new());
        let mut last = [false, false];
        let hunks = patch.split_inclusive('\n').skip_while(|it| !it.starts_with("@@"));
        for line in hunks.filter(|it| !it.starts_with("@@")) {
            let (sign, text) = line.split_at(1);
            if sign == "\\" {
                for (text, is_last) in [&mut old, &mut new].into_iter().zip(last) {
                    if is_last {
                        text.pop();
                    }
                }
                continue;
            }
            last = [sign != "+", sign != "-"];
            for (side, has_line) in [&mut old, &mut new].into_iter().zip(last) {
                if has_line {
                    side.push_str(text);
                }
            }
        }
        let mut rebuilt = json!({ "type": "diff", "path": change["path"], "newText": new });
        if change["operation"] != "add" {
            rebuilt["oldText"] = old.into();
        }
        *diff = rebuilt;
    }
}

fn renamed_options(mut options: Value) -> Value {
    for option in options.as_array_mut().into_iter().flatten() {
        option["id"] = option["configId"].take();
    }
    options
}

fn state_of_modes(option: &Value) -> Value {
    let modes = option["options"].as_array().cloned().unwrap_or_default();
    let modes = modes.iter().map(
        |it| json!({ "id": it["value"], "name": it["name"], "description": it["description"] }),
    );
    json!({
        "currentModeId": option["currentValue"], "availableModes": modes.collect::<Vec<_>>(),
    })
}
