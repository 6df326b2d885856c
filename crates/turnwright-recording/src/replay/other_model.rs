//! Sends the recorded prompts to another model. The agent's requests get the recorded answers where there are
//! any, and an error otherwise.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{PlayedAgent, StartedAgent};
use crate::Recording;
use crate::events::{EventKind, RecordedEvent};
use crate::playback::PlaybackEvent;
use turnwright_types::effect::escape_hidden;
use turnwright_types::text;

/// How long the agent may send no message before the replay ends.
const SILENCE_LIMIT: Duration = Duration::from_secs(600);
/// The most characters of a prompt or a message that are printed.
const MAX_SHOWN: usize = 600;
/// The requests that open a session.
const OPENING_METHODS: [&str; 4] =
    ["session/new", "session/load", "session/resume", "session/fork"];

/// Runs the prompts of a recording with the model of the settings, in the agent that `start` starts and whose sessions
/// are in the folder `state`. Returns a report on what the turns did, and why the others were not run.
///
/// # Errors
/// Those of `start`, or if the conversation that the recording begins with cannot be stored.
pub fn ask_other_model(
    head: &Value,
    events: &[RecordedEvent],
    state: &Path,
    start: impl FnOnce(Recording) -> io::Result<StartedAgent>,
) -> io::Result<(String, Option<String>)> {
    let agent = PlayedAgent::start(head, events, true, state, start)?;
    let mut run = OtherModelRun {
        agent,
        answers: recorded_answers(events),
        session: Value::Null,
        report: String::new(),
    };
    let mut failure = None;
    for event in events {
        if let EventKind::In(message) = &event.kind
            && message["method"].is_string()
            && message.get("id").is_some()
            && let Err(why) = run.ask(message.clone())
        {
            failure = Some(why);
            break;
        }
    }
    run.agent.end();
    Ok((run.report, failure))
}

/// The client's answers to each method, in the order of the requests.
fn recorded_answers(events: &[RecordedEvent]) -> HashMap<String, VecDeque<Value>> {
    let mut asked = HashMap::new();
    let mut answers = HashMap::<String, VecDeque<Value>>::new();
    for event in events {
        match &event.kind {
            EventKind::Out(message) => {
                if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
                    asked.insert(id.to_string(), method.to_owned());
                }
            }
            EventKind::In(message) if message["method"].is_null() => {
                if let Some(method) = asked.remove(&message["id"].to_string()) {
                    answers.entry(method).or_default().push_back(message["result"].clone());
                }
            }
            _ => {}
        }
    }
    answers
}

struct OtherModelRun {
    agent: PlayedAgent,
    answers: HashMap<String, VecDeque<Value>>,
    session: Value,
    report: String,
}

/// The steps of a turn, in their order.
#[derive(Default)]
struct TurnReport(Vec<ReportedStep>);

/// A message of the model, or a tool call.
struct ReportedStep {
    id: String,
    /// The text of a message, or the title of a call.
    text: String,
    /// Of a call.
    status: Option<String>,
}

impl OtherModelRun {
    /// Sends a request of the client and waits for its answer.
    ///
    /// # Errors
    /// If there is none, or no session; in words.
    fn ask(&mut self, mut message: Value) -> Result<(), String> {
        if let Some(session) = message["params"].get_mut("sessionId") {
            match &self.session {
                // It has the id that it had in the store.
                Value::Null => self.session = session.clone(),
                known => *session = known.clone(),
            }
        }
        if message["params"]["mcpServers"].is_array() {
            message["params"]["mcpServers"] = json!([]);
        }
        self.agent.send(&message);
        let mut turn = TurnReport::default();
        loop {
            let answer = match self.agent.next_event(SILENCE_LIMIT) {
                Some(PlaybackEvent::Message(answer)) => answer,
                Some(PlaybackEvent::Ended) | None => {
                    return Err("The agent does not answer any more".to_owned());
                }
                Some(_) => continue,
            };
            match (answer["method"].as_str(), answer.get("id")) {
                (Some("session/update"), _) => turn.on_update(&answer["params"]["update"]),
                (Some(method), Some(id)) => {
                    let recorded = self.answers.get_mut(method).and_then(VecDeque::pop_front);
                    let answer = match recorded {
                        Some(result) if !super::observed::is_tool_request(&answer) => {
                            json!({ "jsonrpc": "2.0", "id": id, "result": result })
                        }
                        _ => {
                            let error =
                                json!({ "code": -32603, "message": "not in the recording" });
                            json!({ "jsonrpc": "2.0", "id": id, "error": error })
                        }
                    };
                    self.agent.send(&answer);
                }
                (None, Some(id)) if *id == message["id"] => {
                    if let Some(session) = answer["result"].get("sessionId") {
                        self.session = session.clone();
                    }
                    return self.append_report(&message, &answer, &turn);
                }
                _ => {}
            }
        }
    }

    /// Appends the result of a request to the report.
    fn append_report(
        &mut self,
        message: &Value,
        answer: &Value,
        turn: &TurnReport,
    ) -> Result<(), String> {
        let error = answer["error"]["message"].as_str();
        let method = message["method"].as_str().unwrap_or_default();
        if method != "session/prompt" {
            return match error {
                Some(error) if OPENING_METHODS.contains(&method) => Err(escape_hidden(error)),
                Some(error) => {
                    self.report.push_str(&format!("{method}: {}\n", escape_hidden(error)));
                    Ok(())
                }
                None => Ok(()),
            };
        }
        let prompt = message["params"]["prompt"][0]["text"].as_str().unwrap_or_default();
        let mut text = format!("> {}\n", escape_hidden(&text::clip(prompt, MAX_SHOWN)));
        for step in &turn.0 {
            let line = match &step.status {
                Some(status) => format!("  {status}: {}\n", escape_hidden(&step.text)),
                None => {
                    format!("{}\n", escape_hidden(&text::clip(step.text.trim_end(), MAX_SHOWN)))
                }
            };
            text.push_str(&line);
        }
        let end = error.or_else(|| answer["result"]["stopReason"].as_str()).unwrap_or_default();
        text.push_str(&format!("[{}]\n\n", escape_hidden(end)));
        self.report.push_str(&text);
        Ok(())
    }
}

impl TurnReport {
    fn on_update(&mut self, update: &Value) {
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => {
                let step = self.step(&update["messageId"], None);
                step.text.push_str(update["content"]["text"].as_str().unwrap_or_default());
            }
            Some("tool_call" | "tool_call_update") => {
                let step = self.step(&update["toolCallId"], Some("pending"));
                if let Some(title) = update["title"].as_str() {
                    title.clone_into(&mut step.text);
                }
                if let Some(status) = update["status"].as_str() {
                    step.status = Some(status.to_owned());
                }
            }
            _ => {}
        }
    }

    /// The step with this id, which is a new one if there is none.
    fn step(&mut self, id: &Value, status: Option<&str>) -> &mut ReportedStep {
        let id = id.as_str().unwrap_or_default();
        let index = self.0.iter().position(|step| step.id == id).unwrap_or_else(|| {
            let status = status.map(str::to_owned);
            self.0.push(ReportedStep { id: id.to_owned(), text: String::new(), status });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}
