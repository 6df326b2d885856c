//! The conversation that the doctor has with an agent: what it sends, how it answers questions, and what
//! must come of it. The model is the offline one, which does what these prompts say.

use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::AgentProcess;
use super::frame_checker::{FrameChecker, FrameRule, Incoming};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How long to listen for messages that must not come after an answer.
const QUIET: Duration = Duration::from_millis(300);
/// How long the agent may live after its input has ended.
const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// The result of a step.
pub(super) enum StepEnd {
    Ok(String),
    /// The agent does not do what the step is about, such as calling tools when it is asked to.
    Skipped(String),
}

/// The end of a step, or the fault that it has found.
pub(super) type StepResult = Result<StepEnd, String>;

type ScriptStep = fn(&mut AcpScript) -> StepResult;

/// The steps in their order. Each needs the ones before it.
pub(super) const STEPS: &[(&str, ScriptStep)] = &[
    ("initialize", AcpScript::initialize),
    ("new", AcpScript::new_session),
    ("prompt", AcpScript::prompt),
    ("tool", AcpScript::allowed_call),
    ("reject", AcpScript::rejected_call),
    ("cancel", AcpScript::cancelled_turn),
    ("errors", AcpScript::errors),
    ("exit", AcpScript::exit),
    ("list", AcpScript::list),
    ("load", AcpScript::load),
];

/// The kind of the option that answers questions. Without one, the turn is cancelled while a question is open.
type QuestionReply = Option<&'static str>;
const ALLOW: QuestionReply = Some("allow_once");
const REJECT: QuestionReply = Some("reject_once");
const CANCEL: QuestionReply = None;

/// Everything that came until a request was answered.
struct Exchange {
    body: Value,
    updates: Vec<Value>,
    questions: usize,
}

pub(super) struct AcpScript {
    /// Starts the agent.
    command: Command,
    /// The project in which it works.
    folder: PathBuf,
    agent: Option<AgentProcess>,
    pub(super) checker: FrameChecker,
    last_id: u64,
    session: String,
    capabilities: Value,
    reply: QuestionReply,
    /// True if nothing can follow: the agent has ended or does not answer.
    pub(super) is_over: bool,
}

fn kinds<'a>(updates: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    updates.iter().filter(move |update| update["sessionUpdate"] == kind)
}

impl AcpScript {
    pub(super) fn new(command: Command, folder: PathBuf) -> AcpScript {
        AcpScript {
            command,
            folder,
            agent: None,
            checker: FrameChecker::default(),
            last_id: 0,
            session: String::new(),
            capabilities: Value::Null,
            reply: REJECT,
            is_over: false,
        }
    }

    fn send(&mut self, line: &str) {
        if let Some(agent) = &mut self.agent {
            agent.send(line);
        }
    }

    fn send_frame(&mut self, frame: &Value) {
        self.send(&frame.to_string());
    }

    /// Sends a request and waits for its answer. Questions in between are answered.
    fn request(&mut self, method: &str, params: &Value) -> Result<Exchange, String> {
        self.last_id += 1;
        let id = json!(self.last_id);
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.checker.sent(&frame);
        self.send_frame(&frame);
        self.answer_to(&id, method)
    }

    fn answer_to(&mut self, id: &Value, method: &str) -> Result<Exchange, String> {
        let end = Instant::now() + ANSWER_LIMIT;
        let mut updates = Vec::new();
        let mut questions = 0;
        loop {
            match self.next(end) {
                Ok(Incoming::Answer { id: of, body }) if of == *id => {
                    return Ok(Exchange { body, updates, questions });
                }
                Ok(Incoming::Update(update)) => updates.push(update),
                Ok(Incoming::Request(request)) => {
                    questions += 1;
                    self.answer_question(&request);
                }
                Ok(_) if self.checker.fault(FrameRule::Json).is_some() => {
                    self.is_over = true;
                    return Err("the agent has sent what is no message".to_owned());
                }
                Ok(_) => {}
                Err(why) => {
                    self.is_over = true;
                    let seconds = ANSWER_LIMIT.as_secs();
                    return Err(match why {
                        RecvTimeoutError::Timeout => {
                            format!("no answer to {method} within {seconds} s")
                        }
                        RecvTimeoutError::Disconnected => {
                            format!("the agent has ended before its answer to {method}")
                        }
                    });
                }
            }
        }
    }

    fn next(&mut self, until: Instant) -> Result<Incoming, RecvTimeoutError> {
        let agent = self.agent.as_ref().ok_or(RecvTimeoutError::Disconnected)?;
        let line = agent.next_line(until)?;
        Ok(self.checker.received(&line))
    }

    /// Listens for messages that must not come.
    fn listen(&mut self) {
        let end = Instant::now() + QUIET;
        while let Ok(incoming) = self.next(end) {
            if let Incoming::Request(request) = incoming {
                self.answer_question(&request);
            }
        }
    }

    fn answer_question(&mut self, request: &Value) {
        let id = &request["id"];
        if request["method"] != "session/request_permission" {
            let error = json!({ "code": -32601, "message": "Method not found" });
            return self.send_frame(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
        if self.reply == CANCEL {
            let params = json!({ "sessionId": self.session });
            let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params });
            self.send_frame(&cancel);
        }
        let mut options = request["params"]["options"].as_array().into_iter().flatten();
        let chosen = self.reply.and_then(|kind| options.find(|option| option["kind"] == kind));
        let outcome = match chosen {
            Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
            None => json!({ "outcome": "cancelled" }),
        };
        let result = json!({ "outcome": outcome });
        self.send_frame(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    /// Sends a prompt, and waits for the end of the turn. Returns the stop reason as well.
    fn turn(&mut self, prompt: &str, reply: QuestionReply) -> Result<(Exchange, String), String> {
        self.reply = reply;
        let prompt = json!([{ "type": "text", "text": prompt }]);
        let params = json!({ "sessionId": self.session, "prompt": prompt });
        let exchange = self.request("session/prompt", &params)?;
        let reason = result(&exchange)?["stopReason"].as_str().unwrap_or_default().to_owned();
        self.listen();
        Ok((exchange, reason))
    }

    fn initialize(&mut self) -> StepResult {
        self.agent = Some(AgentProcess::start(&mut self.command).map_err(|error| {
            self.is_over = true;
            format!("it cannot be started: {error}")
        })?);
        let params = json!({
            "protocolVersion": 1,
            "clientInfo": { "name": "turnwright doctor", "version": env!("CARGO_PKG_VERSION") },
            "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false } },
        });
        let exchange = self.request("initialize", &params)?;
        let offered = result(&exchange).inspect_err(|_| self.is_over = true)?;
        if offered["protocolVersion"] != 1 {
            return Err(format!("protocol version {}", offered["protocolVersion"]));
        }
        self.capabilities = offered["agentCapabilities"].clone();
        let info = |field: &str| offered["agentInfo"][field].as_str().unwrap_or("?").to_owned();
        Ok(StepEnd::Ok(format!("{} {}, protocol 1", info("name"), info("version"))))
    }

    fn new_session(&mut self) -> StepResult {
        let params = json!({ "cwd": self.folder, "mcpServers": [] });
        let exchange = self.request("session/new", &params)?;
        let session = result(&exchange).inspect_err(|_| self.is_over = true)?["sessionId"].clone();
        session.as_str().unwrap_or_default().clone_into(&mut self.session);
        self.listen();
        Ok(StepEnd::Ok("a session in a new folder".to_owned()))
    }

    fn prompt(&mut self) -> StepResult {
        let (exchange, reason) = self.turn("hello", REJECT)?;
        let pieces = kinds(&exchange.updates, "agent_message_chunk").count();
        if reason != "end_turn" || pieces == 0 {
            return Err(format!("stop reason {reason:?} after {pieces} pieces of an answer"));
        }
        Ok(StepEnd::Ok(format!("an answer in {pieces} pieces")))
    }

    fn allowed_call(&mut self) -> StepResult {
        let (exchange, reason) = self.turn("write allowed.txt: hello", ALLOW)?;
        if exchange.questions == 0 {
            return Ok(StepEnd::Skipped("it has asked nothing".to_owned()));
        }
        let written = self.folder.join("allowed.txt").exists();
        let ended = kinds(&exchange.updates, "tool_call_update")
            .any(|update| update["status"] == "completed");
        if reason != "end_turn" || !written || !ended {
            return Err(format!("stop reason {reason:?}, written: {written}, completed: {ended}"));
        }
        Ok(StepEnd::Ok("a file was written after a yes".to_owned()))
    }

    fn rejected_call(&mut self) -> StepResult {
        let (exchange, _) = self.turn("write rejected.txt: hello", REJECT)?;
        if exchange.questions == 0 {
            return Ok(StepEnd::Skipped("it has asked nothing".to_owned()));
        }
        if self.folder.join("rejected.txt").exists() {
            return Err("the file was written after a no".to_owned());
        }
        Ok(StepEnd::Ok("nothing was written after a no".to_owned()))
    }

    fn cancelled_turn(&mut self) -> StepResult {
        let (exchange, reason) = self.turn("write cancelled.txt: hello", CANCEL)?;
        if exchange.questions == 0 {
            return Ok(StepEnd::Skipped("it has asked nothing".to_owned()));
        }
        if reason != "cancelled" || self.folder.join("cancelled.txt").exists() {
            return Err(format!("stop reason {reason:?} after session/cancel"));
        }
        let (_, reason) = self.turn("hello", REJECT)?;
        match reason.as_str() {
            "end_turn" => {
                Ok(StepEnd::Ok("the turn was cancelled, and the next one works".to_owned()))
            }
            _ => Err(format!("stop reason {reason:?} of the turn after the cancelled one")),
        }
    }

    fn errors(&mut self) -> StepResult {
        let prompt = json!({ "sessionId": "no-such-session", "prompt": [] });
        for (method, params, code) in [
            ("session/nonsense", json!({}), Some(-32601)),
            ("_doctor/nonsense", json!({}), Some(-32601)),
            ("session/new", json!({ "cwd": 1 }), Some(-32602)),
            ("session/prompt", prompt, None),
        ] {
            let found = self.request(method, &params)?.body["error"]["code"].as_i64();
            if found.is_none() || code.is_some_and(|code| found != Some(code)) {
                let found = found.map_or_else(|| "no error".to_owned(), |code| code.to_string());
                let expected = code.map_or_else(|| "an error".to_owned(), |code| code.to_string());
                return Err(format!("{method} {params}: {found} instead of {expected}"));
            }
        }
        self.send("{ this is no JSON");
        let exchange = self.answer_to(&Value::Null, "a line that is no JSON")?;
        let code = &exchange.body["error"]["code"];
        if *code != -32700 {
            return Err(format!("{code} instead of -32700 for a line that is no JSON"));
        }
        Ok(StepEnd::Ok("unknown methods, wrong parameters and bad JSON are refused".to_owned()))
    }

    fn exit(&mut self) -> StepResult {
        let has_ended = self.agent.take().is_none_or(|mut agent| agent.end(EXIT_LIMIT));
        // The next steps need an agent that knows of the session only what is stored.
        self.checker.restart();
        if has_ended {
            Ok(StepEnd::Ok("it ends when its input ends".to_owned()))
        } else {
            Err(format!("it still runs {} s after its input has ended", EXIT_LIMIT.as_secs()))
        }
    }

    fn list(&mut self) -> StepResult {
        let session = std::mem::take(&mut self.session);
        self.initialize()?;
        self.session = session;
        if self.capabilities["sessionCapabilities"]["list"].is_null() {
            return Ok(StepEnd::Skipped("it does not offer that".to_owned()));
        }
        let exchange = self.request("session/list", &json!({ "cwd": self.folder }))?;
        let sessions = result(&exchange)?["sessions"].as_array().cloned().unwrap_or_default();
        if sessions.iter().any(|listed| listed["sessionId"] == self.session.as_str()) {
            return Ok(StepEnd::Ok("another process lists the session".to_owned()));
        }
        Err("the session is not in the list of another process".to_owned())
    }

    fn load(&mut self) -> StepResult {
        if self.capabilities["loadSession"] != true {
            return Ok(StepEnd::Skipped("it does not offer that".to_owned()));
        }
        let params = json!({ "sessionId": self.session, "cwd": self.folder, "mcpServers": [] });
        let exchange = self.request("session/load", &params)?;
        result(&exchange)?;
        self.listen();
        let words = kinds(&exchange.updates, "user_message_chunk").count();
        let answers = kinds(&exchange.updates, "agent_message_chunk").count();
        if words == 0 || answers == 0 {
            return Err(format!("{words} prompts and {answers} answers came before the response"));
        }
        let (_, reason) = self.turn("hello", REJECT)?;
        match reason.as_str() {
            "end_turn" => Ok(StepEnd::Ok("the conversation came back, and goes on".to_owned())),
            _ => Err(format!("stop reason {reason:?} in the loaded session")),
        }
    }
}

fn result(exchange: &Exchange) -> Result<&Value, String> {
    let error = &exchange.body["error"];
    let result = exchange.body.get("result");
    result.ok_or_else(|| format!("error {}: {}", error["code"], error["message"]))
}
