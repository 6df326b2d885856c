//! A scripted MCP server on stdin and stdout: plays a scenario, well-behaved or hostile. For tests,
//! demos and bug reports. Shares no protocol code with the agent.
//!
//! ```text
//! cargo run --example scripted_server -- '{"tools": [{"name": "echo"}]}'
//! ```
//!
//! The argument is the scenario, or the path of a file with it. All keys are optional:
//!
//! - `"name"`, `"version"`, `"instructions"`: the server's info. `"revision"`: its protocol revision;
//!   the client's by default.
//! - `"modern": true`: speaks only revision 2026-07-28: no `initialize`, but `server/discover`, `_meta`
//!   in each request, and change notifications only for subscribers. `"refuses": {"code": -1,
//!   "message": "…"}`: the error that answers `initialize` and `server/discover`.
//! - `"tools"`: as in `tools/list`; a missing description or schema is filled in. `"page"`: tools per
//!   page. `"endless": true`: there is always another page.
//! - `"answers"`: for each tool, by name, the steps of a call. Without it, the tool returns its
//!   arguments. A step is one of
//!   `{"text": "…"}`, `{"text": "…", "repeat": 9}` and `{"content": [BLOCK, …]}`: content of the result;
//!   `{"result": {…}}`: more fields of the result, such as `isError` and `structuredContent`;
//!   `{"error": {"code": -32000, "message": "…"}}`: an error instead of a result;
//!   `{"wait_ms": 5}`; `{"until": "path"}`: waits until there is a file; `{"progress": {"progress": 1, "total": 2, "message": "…"}}`;
//!   `{"say": "…", "repeat": 2}`: a raw line on stdout, with `$ID` replaced by the id of the call and
//!   `$N` by the number of the line; `{"shout": "…"}`: a line on stderr;
//!   `{"ask": {"method": "…", "params": {…}}}`: a request to the client, whose answer becomes text;
//!   `{"updated": "URI"}`: notifies the client that the resource has changed;
//!   `{"tools": […]}`: replaces the tools and notifies the client; `{"prompts": […]}`: likewise;
//!   `{"skills": […]}` and `{"got": {…}}`: replace these without notifying the client;
//!   `{"die": 3}`: exits with this code; `{"never": true}`: never answers;
//!   `{"needs": {"inputRequests": {…}, "requestState": "…"}}`: asks for input as revision 2026-07-28
//!   does, by ending the call so that the client repeats it with the input, which becomes text; with
//!   `"again": true` it asks every time;
//!   `{"task": {"taskId": "…", "status": "working"}}`: makes a task of the call;
//!   `{"write": ["path", "text"]}`: writes a file and returns the outcome; `{"read": "path"}`,
//!   `{"env": "NAME"}` and `{"pwd": true}` return a file, a variable and the working folder.
//! - `"states"`: what `tasks/get` is answered, one after the other, the last one for ever: the fields of a task,
//!   `{"error": {…}}` or `{"die": 3}`, which creates the file `"died"`. `"later_states"`: the same once there is
//!   that file.
//! - `"prompts"`, `"resources"`, `"skills"`: as in the lists; `"got"`: by the name of a prompt or the URI of a
//!   resource, the result of `prompts/get` and `resources/read`, or `{"error": {…}}`. `"completions"`: by the name
//!   of an argument, the result of `completion/complete`, or `null` for no answer.
//! - `"mute"`: the methods that are never answered.
//! - `"subscribes": true`: the client can subscribe to resources.
//! - `"start_ms"`: a delay before it reads anything. `"start_file"`: it reads nothing before there is this
//!   file. `"first"`: lines on stdout before that.
//!   `"shouts"`: bytes on stderr before that. `"exit"`: exits with this code at once. `"once"`: a file;
//!   if it exists, `"exit"` is ignored, otherwise the file is created.
//! - `"stays": true`: keeps running after the end of stdin.
//! - `"log"`: a file to which each received message is appended.
#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods, reason = "an example")]

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

/// The revision without a handshake.
const MODERN: &str = "2026-07-28";
/// The `_meta` key with the revision of a request.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "{}".to_owned());
    let text = if argument.starts_with('{') {
        argument
    } else {
        match std::fs::read_to_string(&argument) {
            Ok(text) => text,
            Err(error) => return fail(&format!("{argument}: {error}")),
        }
    };
    match serde_json::from_str(&text) {
        Ok(scenario) => {
            let tools = tools(&scenario);
            ScriptedServer {
                tools,
                scenario,
                own_requests: 0,
                subscription: None,
                current_call: Value::Null,
                states_told: 0,
            }
            .run()
        }
        Err(error) => fail(&format!("the scenario: {error}")),
    }
}

fn fail(why: &str) -> ExitCode {
    write_stderr(&format!("scripted_server: {why}"));
    ExitCode::from(2)
}

fn write_stderr(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

fn tools(from: &Value) -> Vec<Value> {
    let mut tools = from["tools"].as_array().cloned().unwrap_or_default();
    for tool in &mut tools {
        if tool.get("description").is_none() {
            tool["description"] = format!("Does {}.", tool["name"]).into();
        }
        if tool.get("inputSchema").is_none() {
            tool["inputSchema"] = json!({ "type": "object" });
        }
    }
    tools
}

struct ScriptedServer {
    scenario: Value,
    tools: Vec<Value>,
    /// The number of requests sent to the client.
    own_requests: u64,
    /// The id of the client's `subscriptions/listen` request.
    subscription: Option<Value>,
    /// The id of the call that is being answered.
    current_call: Value,
    /// The number of answers to `tasks/get`.
    states_told: usize,
}

impl ScriptedServer {
    fn run(mut self) -> ExitCode {
        pause(&self.scenario["start_ms"]);
        wait_for_file(&self.scenario["start_file"]);
        for line in self.scenario["first"].as_array().into_iter().flatten() {
            write_line(line.as_str().unwrap_or_default());
        }
        if let Some(bytes) = self.scenario["shouts"].as_u64() {
            write_stderr(&"x".repeat(number(bytes)));
        }
        let is_first = match self.scenario["once"].as_str() {
            Some(file) => std::fs::File::create_new(file).is_ok(),
            None => true,
        };
        if let Some(code) = self.scenario["exit"].as_u64().filter(|_| is_first) {
            write_stderr("cannot go on");
            return ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
        while let Some(message) = self.receive() {
            if let Some(code) = self.answer(&message) {
                return ExitCode::from(code);
            }
        }
        if self.scenario["stays"] == true {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        ExitCode::SUCCESS
    }

    fn receive(&self) -> Option<Value> {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(log) = self.scenario["log"].as_str() {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
            drop(file.and_then(|mut it| it.write_all(line.as_bytes())));
        }
        Some(serde_json::from_str(&line).unwrap_or_default())
    }

    /// Answers a message. Returns an exit code if the server must exit.
    fn answer(&mut self, message: &Value) -> Option<u8> {
        let id = message.get("id")?;
        let params = &message["params"];
        let method = message["method"].as_str()?;
        if method == "subscriptions/listen" && self.is_modern() {
            self.subscription = Some(id.clone());
            let wanted = json!({ "notifications": params["notifications"] });
            self.notify_subscriber("notifications/subscriptions/acknowledged", wanted);
            return None;
        }
        let result = match method {
            _ if self.is_mute(method) => return None,
            "initialize" | "server/discover" if self.scenario["refuses"].is_object() => {
                Err(self.scenario["refuses"].clone())
            }
            _ if self.is_modern() && params["_meta"][VERSION_KEY] != MODERN => {
                let data = json!({ "supported": [MODERN] });
                Err(json!({ "code": -32022, "message": "no such revision here", "data": data }))
            }
            "server/discover" if self.is_modern() => Ok(self.discovered()),
            "initialize" if !self.is_modern() => Ok(self.greeting(params)),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(self.page(params)),
            "tools/call" => {
                self.current_call = id.clone();
                match self.call(params) {
                    Ok(result) => result,
                    Err(end) => return end,
                }
            }
            "tasks/get" if self.has_tasks() => match self.next_state(params) {
                Ok(state) => state,
                Err(code) => return Some(code),
            },
            "tasks/update" | "tasks/cancel" if self.has_tasks() => Ok(json!({})),
            "prompts/list" => Ok(json!({ "prompts": self.scenario["prompts"] })),
            "skills/list" if !self.scenario["skills"].is_null() => {
                Ok(json!({ "skills": self.scenario["skills"] }))
            }
            "resources/list" => Ok(json!({ "resources": self.scenario["resources"] })),
            "resources/templates/list" => Ok(json!({ "resourceTemplates": [] })),
            "prompts/get" => self.got(&params["name"]),
            "resources/read" => self.got(&params["uri"]),
            "resources/subscribe" | "resources/unsubscribe" if !self.is_modern() => Ok(json!({})),
            "completion/complete" => {
                let name = params["argument"]["name"].as_str()?;
                match &self.scenario["completions"][name] {
                    Value::Null => return None,
                    completion => Ok(completion.clone()),
                }
            }
            method => Err(json!({ "code": -32601, "message": format!("no {method} here") })),
        };
        let answer = match result {
            Ok(mut result) if self.is_modern() => {
                if result["resultType"].is_null() {
                    result["resultType"] = "complete".into();
                }
                if method.ends_with("/list") || method == "server/discover" {
                    result["ttlMs"] = 60_000.into();
                    result["cacheScope"] = "private".into();
                }
                json!({ "jsonrpc": "2.0", "id": id, "result": result })
            }
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        };
        write_line(&answer.to_string());
        None
    }

    fn is_modern(&self) -> bool {
        self.scenario["modern"] == true
    }

    fn is_mute(&self, method: &str) -> bool {
        let methods = self.scenario["mute"].as_array();
        methods.is_some_and(|methods| methods.iter().any(|known| known == method))
    }

    fn has_tasks(&self) -> bool {
        self.scenario["states"].is_array()
    }

    /// Returns the next state of a task, or the code with which the server exits instead.
    fn next_state(&mut self, params: &Value) -> Result<Result<Value, Value>, u8> {
        let died = self.scenario["died"].as_str().unwrap_or_default();
        let has_died = std::path::Path::new(died).exists();
        let key = if has_died { "later_states" } else { "states" };
        let states = self.scenario[key].as_array().cloned().unwrap_or_default();
        let state = states.get(self.states_told).or(states.last()).cloned().unwrap_or_default();
        self.states_told += 1;
        if let Some(code) = state["die"].as_u64() {
            drop(std::fs::write(died, ""));
            return Err(u8::try_from(code).unwrap_or(1));
        }
        if state["status"].is_null() {
            return Ok(Err(state["error"].clone()));
        }
        let mut task = json!({ "taskId": params["taskId"], "ttlMs": null, "pollIntervalMs": 250 });
        for (name, value) in state.as_object().into_iter().flatten() {
            task[name] = value.clone();
        }
        Ok(Ok(task))
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        if self.has_tasks() {
            capabilities["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
        }
        for key in ["prompts", "resources"] {
            if self.scenario[key].is_array() {
                capabilities[key] = json!({});
            }
        }
        if !self.scenario["skills"].is_null() {
            capabilities["extensions"]["io.modelcontextprotocol/skills"] = json!({});
        }
        if self.scenario["subscribes"] == true {
            capabilities["resources"]["subscribe"] = true.into();
        }
        if self.scenario["completions"].is_object() {
            capabilities["completions"] = json!({});
        }
        capabilities
    }

    fn discovered(&self) -> Value {
        let about = json!({ "name": "scripted", "version": "1" });
        json!({
            "supportedVersions": [MODERN],
            "capabilities": self.capabilities(),
            "_meta": { "io.modelcontextprotocol/serverInfo": about },
        })
    }

    fn greeting(&self, params: &Value) -> Value {
        let or = |key: &str, other: Value| match &self.scenario[key] {
            Value::Null => other,
            value => value.clone(),
        };
        let mut greeting = json!({
            "protocolVersion": or("revision", params["protocolVersion"].clone()),
            "capabilities": self.capabilities(),
            "serverInfo": { "name": or("name", "scripted".into()), "version": or("version", "1".into()) },
        });
        if let Some(instructions) = self.scenario.get("instructions") {
            greeting["instructions"] = instructions.clone();
        }
        greeting
    }

    fn page(&self, params: &Value) -> Value {
        let size = self.scenario["page"].as_u64().map_or(usize::MAX, number);
        let from = params["cursor"].as_str().and_then(|it| it.parse().ok()).unwrap_or(0_usize);
        let tools: Vec<_> = self.tools.iter().skip(from).take(size).cloned().collect();
        let mut page = json!({ "tools": tools });
        if from.saturating_add(size) < self.tools.len() || self.scenario["endless"] == true {
            page["nextCursor"] = from.saturating_add(size).to_string().into();
        }
        page
    }

    fn got(&self, what: &Value) -> Result<Value, Value> {
        let key = what.as_str().unwrap_or_default();
        let got = self.scenario["got"].get(key).cloned();
        if let Some(error) = got.as_ref().and_then(|got| got.get("error")) {
            return Err(error.clone());
        }
        got.ok_or_else(|| json!({ "code": -32602, "message": format!("there is no {key}") }))
    }

    /// Plays a call. `Err(Some(code))` exits, `Err(None)` leaves the call unanswered.
    fn call(&mut self, params: &Value) -> Result<Result<Value, Value>, Option<u8>> {
        let name = params["name"].as_str().unwrap_or_default();
        if !self.tools.iter().any(|it| it["name"] == name) {
            let error = json!({ "code": -32602, "message": format!("Unknown tool: {name}") });
            return Ok(Err(error));
        }
        let steps = match &self.scenario["answers"][name] {
            Value::Array(steps) => steps.clone(),
            _ => vec![json!({ "text": params["arguments"].to_string() })],
        };
        let mut result = json!({ "content": [] });
        for step in &steps {
            if let Some(error) = step.get("error") {
                return Ok(Err(error.clone()));
            }
            if let Some(code) = step["die"].as_u64() {
                return Err(Some(u8::try_from(code).unwrap_or(1)));
            }
            if step["never"] == true {
                return Err(None);
            }
            if step["task"].is_object() {
                let mut task = step["task"].clone();
                task["resultType"] = "task".into();
                return Ok(Ok(task));
            }
            let is_given = params.get("requestState").is_some() && step["again"] != true;
            if step["needs"].is_object() && !is_given {
                let mut needs = step["needs"].clone();
                needs["resultType"] = "input_required".into();
                return Ok(Ok(needs));
            }
            let blocks = self.step(step, params, &mut result);
            if let Some(content) = result["content"].as_array_mut() {
                content.extend(blocks);
            }
        }
        Ok(Ok(result))
    }

    /// Plays a step and returns the content that it adds to the result.
    fn step(&mut self, step: &Value, params: &Value, result: &mut Value) -> Vec<Value> {
        let text = |it: String| vec![json!({ "type": "text", "text": it })];
        pause(&step["wait_ms"]);
        wait_for_file(&step["until"]);
        if let Some(words) = step["text"].as_str() {
            return text(words.repeat(number(step["repeat"].as_u64().unwrap_or(1))));
        }
        if let Some(blocks) = step["content"].as_array() {
            return blocks.clone();
        }
        if let Some(fields) = step["result"].as_object() {
            for (name, value) in fields {
                result[name] = value.clone();
            }
        }
        for key in ["skills", "got"] {
            if let Some(new) = step.get(key) {
                self.scenario[key] = new.clone();
            }
        }
        if let Some(progress) = step["progress"].as_object() {
            let mut progress = Value::Object(progress.clone());
            progress["progressToken"] = params["_meta"]["progressToken"].clone();
            ScriptedServer::notify("notifications/progress", &progress);
        }
        if let Some(line) = step["say"].as_str() {
            for number in 0..step["repeat"].as_u64().unwrap_or(1) {
                let id = self.current_call.to_string();
                write_line(&line.replace("$ID", &id).replace("$N", &number.to_string()));
            }
        }
        if let Some(line) = step["shout"].as_str() {
            write_stderr(line);
        }
        if step["tools"].is_array() {
            self.tools = tools(step);
            self.notify_subscriber("notifications/tools/list_changed", json!({}));
        }
        if step["updated"].is_string() {
            let params = json!({ "uri": step["updated"] });
            self.notify_subscriber("notifications/resources/updated", params);
        }
        if step["prompts"].is_array() {
            self.scenario["prompts"] = step["prompts"].clone();
            ScriptedServer::notify("notifications/prompts/list_changed", &json!({}));
        }
        if step["ask"].is_object() {
            return text(self.ask(&step["ask"]).to_string());
        }
        if let (Some(path), Some(words)) = (step["write"][0].as_str(), step["write"][1].as_str()) {
            let written = std::fs::write(path, words);
            return text(written.map_or_else(|it| it.to_string(), |()| "written".to_owned()));
        }
        if let Some(path) = step["read"].as_str() {
            return text(std::fs::read_to_string(path).unwrap_or_else(|it| it.to_string()));
        }
        if step["needs"].is_object() {
            let given = json!([params["inputResponses"], params["requestState"]]);
            return text(given.to_string());
        }
        if let Some(name) = step["env"].as_str() {
            return text(std::env::var(name).unwrap_or_else(|it| it.to_string()));
        }
        if step["pwd"] == true {
            return text(
                std::env::current_dir().map(|it| it.display().to_string()).unwrap_or_default(),
            );
        }
        Vec::new()
    }

    /// Notifies the client, but in the modern revision only if it has subscribed.
    fn notify_subscriber(&self, method: &str, mut params: Value) {
        if let Some(id) = &self.subscription {
            params["_meta"]["io.modelcontextprotocol/subscriptionId"] = id.clone();
        }
        if !self.is_modern() || self.subscription.is_some() {
            ScriptedServer::notify(method, &params);
        }
    }

    fn notify(method: &str, params: &Value) {
        write_line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request to the client and waits for the answer. Other messages are answered meanwhile.
    fn ask(&mut self, request: &Value) -> Value {
        self.own_requests += 1;
        let id = json!(format!("own-{}", self.own_requests));
        let (method, params) = (&request["method"], &request["params"]);
        write_line(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
        while let Some(message) = self.receive() {
            if message["id"] == id && message.get("method").is_none() {
                return message.get("result").or(message.get("error")).cloned().unwrap_or_default();
            }
            if self.answer(&message).is_some() {
                break;
            }
        }
        Value::Null
    }
}

fn wait_for_file(path: &Value) {
    while path.as_str().is_some_and(|it| !std::path::Path::new(it).exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn write_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    drop(writeln!(stdout, "{line}").and_then(|()| stdout.flush()));
}

fn pause(length: &Value) {
    if let Some(length) = length.as_u64() {
        std::thread::sleep(Duration::from_millis(length));
    }
}

fn number(it: u64) -> usize {
    usize::try_from(it).unwrap_or(usize::MAX)
}
