//! A scripted MCP server on stdin and stdout: it plays a scenario, well-behaved or not. For tests,
//! demos and bug reports. It knows nothing of the crates that the agent uses for the protocol.
//!
//! ```text
//! cargo run --example scripted_server -- '{"tools": [{"name": "echo"}]}'
//! ```
//!
//! The argument is the scenario, or the name of a file that holds it. All keys are optional:
//!
//! - `"name"`, `"version"`, `"instructions"`: who it says it is. `"revision"`: the one that it speaks;
//!   without it, the client's.
//! - `"modern": true`: it speaks 2026-07-28 and nothing else: no `initialize`, `server/discover`, `_meta`
//!   in each request, changes told only to who has subscribed. `"refuses": {"code": -1, "message": "…"}`:
//!   what `initialize` and `server/discover` are answered with.
//! - `"tools"`: as `tools/list` gives them; what a tool lacks of description and schema is made up.
//!   `"page"`: tools on a page. `"endless": true`: there is always another page.
//! - `"answers"`: for each tool, by its name, what a call does: a list of steps. Without it the tool
//!   says its arguments. A step is one of
//!   `{"text": "…"}`, `{"text": "…", "repeat": 9}` and `{"content": [BLOCK, …]}`: content of the result;
//!   `{"result": {…}}`: more fields of the result, such as `isError` and `structuredContent`;
//!   `{"error": {"code": -32000, "message": "…"}}`: an error instead of a result;
//!   `{"wait_ms": 5}`; `{"progress": {"progress": 1, "total": 2, "message": "…"}}`;
//!   `{"say": "…", "repeat": 2}`: a line on stdout as it is, with the number of the call for `$ID` and
//!   that of the line for `$N`; `{"shout": "…"}`: the same on stderr;
//!   `{"ask": {"method": "…", "params": {…}}}`: a request to the client, whose answer becomes text;
//!   `{"tools": […]}`: there are other tools from now on, and the client is told;
//!   `{"prompts": […]}`: the same for prompts;
//!   `{"die": 3}`: the end, with this exit code; `{"never": true}`: no answer, ever;
//!   `{"needs": {"inputRequests": {…}, "requestState": "…"}}`: asks as 2026-07-28 does, by an end of the
//!   call that wants it to be made again, and then says what it was given; with `"again": true` always;
//!   `{"write": ["path", "text"]}`: a file, and whether that went well; `{"env": "NAME"}`, `{"pwd": true}`.
//! - `"prompts"`, `"resources"`: as the lists give them; `"got"`: for a prompt's name or a resource's
//!   address, the result of `prompts/get` and `resources/read`.
//! - `"start_ms"`: how long it thinks before it reads anything. `"first"`: lines on stdout before that.
//!   `"shouts"`: bytes on stderr before that. `"exit"`: it ends with this code at once. `"once"`: a file;
//!   if it exists, that is left out and the server is well-behaved, else the file is made.
//! - `"stays": true`: it does not end when its input does.
//! - `"log"`: a file to which each message that it gets is added, a line each.
#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods, reason = "an example")]

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

/// The revision without a handshake, and where a request names it.
const MODERN: &str = "2026-07-28";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "{}".to_owned());
    let text = if argument.starts_with('{') {
        argument
    } else {
        match std::fs::read_to_string(&argument) {
            Ok(text) => text,
            Err(error) => return complain(&format!("{argument}: {error}")),
        }
    };
    match serde_json::from_str(&text) {
        Ok(scenario) => {
            let tools = tools(&scenario);
            Server { tools, scenario, asked: 0, subscription: None, current: Value::Null }.run()
        }
        Err(error) => complain(&format!("the scenario: {error}")),
    }
}

fn complain(why: &str) -> ExitCode {
    shout(&format!("scripted_server: {why}"));
    ExitCode::from(2)
}

fn shout(line: &str) {
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

struct Server {
    scenario: Value,
    tools: Vec<Value>,
    /// Requests of its own.
    asked: u64,
    /// Who wants to be told of changes.
    subscription: Option<Value>,
    /// The number of the request that is being answered.
    current: Value,
}

impl Server {
    fn run(mut self) -> ExitCode {
        pause(&self.scenario["start_ms"]);
        for line in self.scenario["first"].as_array().into_iter().flatten() {
            put(line.as_str().unwrap_or_default());
        }
        if let Some(bytes) = self.scenario["shouts"].as_u64() {
            shout(&"x".repeat(number(bytes)));
        }
        let is_first = match self.scenario["once"].as_str() {
            Some(file) => std::fs::File::create_new(file).is_ok(),
            None => true,
        };
        if let Some(code) = self.scenario["exit"].as_u64().filter(|_| is_first) {
            shout("cannot go on");
            return ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
        while let Some(message) = self.hear() {
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

    fn hear(&self) -> Option<Value> {
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

    /// Answers a message; `Some` is the end.
    fn answer(&mut self, message: &Value) -> Option<u8> {
        let id = message.get("id")?;
        let params = &message["params"];
        let method = message["method"].as_str()?;
        if method == "subscriptions/listen" && self.is_modern() {
            self.subscription = Some(id.clone());
            let wanted = json!({ "notifications": params["notifications"] });
            self.tell_subscriber("notifications/subscriptions/acknowledged", wanted);
            return None;
        }
        let result = match method {
            "initialize" | "server/discover" if self.scenario["refuses"].is_object() => {
                Err(self.scenario["refuses"].clone())
            }
            _ if self.is_modern() && params["_meta"][VERSION] != MODERN => {
                let data = json!({ "supported": [MODERN] });
                Err(json!({ "code": -32022, "message": "no such revision here", "data": data }))
            }
            "server/discover" if self.is_modern() => Ok(self.discovered()),
            "initialize" if !self.is_modern() => Ok(self.greeting(params)),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(self.page(params)),
            "tools/call" => {
                self.current = id.clone();
                match self.call(params) {
                    Ok(result) => result,
                    Err(end) => return end,
                }
            }
            "prompts/list" => Ok(json!({ "prompts": self.scenario["prompts"] })),
            "resources/list" => Ok(json!({ "resources": self.scenario["resources"] })),
            "resources/templates/list" => Ok(json!({ "resourceTemplates": [] })),
            "prompts/get" => self.got(&params["name"]),
            "resources/read" => self.got(&params["uri"]),
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
        put(&answer.to_string());
        None
    }

    fn is_modern(&self) -> bool {
        self.scenario["modern"] == true
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        for key in ["prompts", "resources"] {
            if self.scenario[key].is_array() {
                capabilities[key] = json!({});
            }
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
        got.ok_or_else(|| json!({ "code": -32602, "message": format!("there is no {key}") }))
    }

    /// Plays a call. `Err(Some(_))` is the end of the program, `Err(None)` no answer.
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

    /// Content of the result that comes of a step.
    fn step(&mut self, step: &Value, params: &Value, result: &mut Value) -> Vec<Value> {
        let text = |it: String| vec![json!({ "type": "text", "text": it })];
        pause(&step["wait_ms"]);
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
        if let Some(progress) = step["progress"].as_object() {
            let mut progress = Value::Object(progress.clone());
            progress["progressToken"] = params["_meta"]["progressToken"].clone();
            Server::tell("notifications/progress", &progress);
        }
        if let Some(line) = step["say"].as_str() {
            for number in 0..step["repeat"].as_u64().unwrap_or(1) {
                let id = self.current.to_string();
                put(&line.replace("$ID", &id).replace("$N", &number.to_string()));
            }
        }
        if let Some(line) = step["shout"].as_str() {
            shout(line);
        }
        if step["tools"].is_array() {
            self.tools = tools(step);
            self.tell_subscriber("notifications/tools/list_changed", json!({}));
        }
        if step["prompts"].is_array() {
            self.scenario["prompts"] = step["prompts"].clone();
            Server::tell("notifications/prompts/list_changed", &json!({}));
        }
        if step["ask"].is_object() {
            return text(self.ask(&step["ask"]).to_string());
        }
        if let (Some(path), Some(words)) = (step["write"][0].as_str(), step["write"][1].as_str()) {
            let written = std::fs::write(path, words);
            return text(written.map_or_else(|it| it.to_string(), |()| "written".to_owned()));
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

    /// To all, or with a revision in which one subscribes to who has.
    fn tell_subscriber(&self, method: &str, mut params: Value) {
        if let Some(id) = &self.subscription {
            params["_meta"]["io.modelcontextprotocol/subscriptionId"] = id.clone();
        }
        if !self.is_modern() || self.subscription.is_some() {
            Server::tell(method, &params);
        }
    }

    fn tell(method: &str, params: &Value) {
        put(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Asks the client and waits for what it says. What else it sends meanwhile is answered as usual.
    fn ask(&mut self, request: &Value) -> Value {
        self.asked += 1;
        let id = json!(format!("own-{}", self.asked));
        let (method, params) = (&request["method"], &request["params"]);
        put(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        while let Some(message) = self.hear() {
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

fn put(line: &str) {
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
