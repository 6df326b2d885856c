//! Runs a recorded session again, in an agent that gets its outside world from the recording, and says where the
//! agent now behaves in another way. The caller starts the agent, which is at the other end of two pipes.
//!
//! The recorded prompts can also be sent to another model. The agent's requests then get the recorded answers where
//! there are any, and an error otherwise.

mod driver;
mod observed;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Recording;
use crate::playback::{EventKind, Playback, PlaybackEvent, RecordedEvent};
use driver::ReplayDriver;
use observed::{Observer, RunNormalizer, is_of_helper};
use turnwright_rpc::AgentThread;
use turnwright_store::{Store, insert_conversation};
use turnwright_types::effect::escape_hidden;
use turnwright_types::text;

/// Plays a recording back in the agent that `start` starts, with its settings in the folder `config` and its sessions in
/// the folder `state`. Returns a report for people, and true if nothing differs.
///
/// # Errors
/// Those of `start`, or if the conversation that the recording begins with cannot be stored.
pub fn play_back(
    head: &Value,
    events: &[RecordedEvent],
    config: &Path,
    state: &Path,
    start: impl FnOnce(Recording) -> io::Result<AgentThread>,
) -> io::Result<(String, bool)> {
    let now = RunNormalizer::new(&config.to_string_lossy(), &state.to_string_lossy());
    let recorded = &head["folders"];
    let then = RunNormalizer::new(
        recorded["config"].as_str().unwrap_or_default(),
        recorded["state"].as_str().unwrap_or_default(),
    );
    let agent = PlayedAgent::start(head, events, false, state, start)?;
    let driver = ReplayDriver::new(agent, Observer::new(then), Observer::new(now));
    Ok(match driver.run(events) {
        Ok(report) => (report, true),
        Err(difference) => (difference.to_string(), false),
    })
}

/// The capacity of the queue of events.
const MAX_WAITING_EVENTS: usize = 1024;

/// A running agent.
struct PlayedAgent {
    playback: Arc<Playback>,
    input: File,
    events: Receiver<PlaybackEvent>,
    stop: CancellationToken,
    thread: JoinHandle<io::Result<()>>,
}

impl PlayedAgent {
    /// Starts the agent, whose sessions are in the folder `state`, with the recording as its outside world.
    fn start(
        head: &Value,
        events: &[RecordedEvent],
        asks_model: bool,
        state: &Path,
        start: impl FnOnce(Recording) -> io::Result<AgentThread>,
    ) -> io::Result<PlayedAgent> {
        store_conversation(state, events)?;
        let (sender, receiver) = sync_channel(MAX_WAITING_EVENTS);
        let playback = Arc::new(Playback::new(head, events, asks_model, sender.clone()));
        let recording = Recording { playback: Some(Arc::clone(&playback)), ..Recording::default() };
        let AgentThread { requests, messages, stop, thread } = start(recording)?;
        thread::Builder::new()
            .name("replay".to_owned())
            .spawn(move || read_messages(messages, &sender))?;
        Ok(PlayedAgent { playback, input: requests, events: receiver, stop, thread })
    }

    /// Sends a message, without the MCP servers of the client. If the agent has ended, the message is dropped, and
    /// [`PlayedAgent::next_event`] returns [`PlaybackEvent::Ended`].
    fn send(&mut self, mut message: Value) {
        if message["params"]["mcpServers"].is_array() {
            message["params"]["mcpServers"] = json!([]);
        }
        self.input.write_all(format!("{message}\n").as_bytes()).ok();
    }

    /// Waits at most `limit` for the next event.
    fn next_event(&self, limit: Duration) -> Option<PlaybackEvent> {
        self.events.recv_timeout(limit).ok()
    }

    /// Ends the agent, and waits for it.
    fn end(self) {
        // Neither its messages nor the recorded events are awaited any more.
        drop(self.events);
        self.playback.advance(u64::MAX);
        self.stop.cancel();
        drop(self.input);
        // The end of its thread is not compared.
        self.thread.join().ok();
    }
}

/// Puts the conversation that the recording begins with where the agent looks for it.
fn store_conversation(state: &Path, events: &[RecordedEvent]) -> io::Result<()> {
    let stored = events.iter().find_map(|event| match &event.kind {
        EventKind::Stored(stored) => Some(stored.clone()),
        _ => None,
    });
    let Some(stored) = stored else { return Ok(()) };
    let store = Store::new(state);
    let stored = store.write_blocking(move |connection| insert_conversation(connection, &stored));
    stored.map_err(|error| io::Error::other(format!("its conversation is damaged: {error}")))
}

fn read_messages(output: File, sender: &SyncSender<PlaybackEvent>) {
    for line in BufReader::new(output).lines() {
        let Ok(message) = line.map(|line| serde_json::from_str(&line).unwrap_or_default()) else {
            break;
        };
        // The output is read to its end even without a receiver, so that the agent is never blocked.
        sender.send(PlaybackEvent::Message(message)).ok();
    }
    sender.send(PlaybackEvent::Ended).ok();
}

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
    start: impl FnOnce(Recording) -> io::Result<AgentThread>,
) -> io::Result<(String, Option<String>)> {
    let agent = PlayedAgent::start(head, events, true, state, start)?;
    let mut run = OtherModelRun {
        agent,
        helpers: HashSet::new(),
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
    /// The sessions of helpers that the client was told of.
    helpers: HashSet<String>,
    answers: HashMap<String, VecDeque<Value>>,
    session: Value,
    report: String,
}

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
        self.agent.send(message.clone());
        let mut steps = Vec::new();
        loop {
            let answer = match self.agent.next_event(SILENCE_LIMIT) {
                Some(PlaybackEvent::Message(answer)) => answer,
                Some(PlaybackEvent::Ended) | None => {
                    return Err("The agent does not answer any more".to_owned());
                }
                Some(_) => continue,
            };
            match (answer["method"].as_str(), answer.get("id")) {
                (Some("session/update"), _) if is_of_helper(&mut self.helpers, &answer) => {}
                (Some("session/update"), _) => note_update(&mut steps, &answer["params"]["update"]),
                (Some(method), Some(id)) => {
                    let recorded = self.answers.get_mut(method).and_then(VecDeque::pop_front);
                    let (name, body) = match recorded {
                        Some(result) if !observed::is_tool_request(&answer) => ("result", result),
                        _ => {
                            ("error", json!({ "code": -32603, "message": "not in the recording" }))
                        }
                    };
                    self.agent.send(json!({ "jsonrpc": "2.0", "id": id, name: body }));
                }
                (None, Some(id)) if *id == message["id"] => {
                    if let Some(session) = answer["result"].get("sessionId") {
                        self.session = session.clone();
                    }
                    return self.append_report(&message, &answer, &steps);
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
        steps: &[ReportedStep],
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
        for step in steps {
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
        error.map_or(Ok(()), |error| Err(escape_hidden(error)))
    }
}

/// Adds an update of the agent to the steps of a turn.
fn note_update(steps: &mut Vec<ReportedStep>, update: &Value) {
    match update["sessionUpdate"].as_str() {
        Some("agent_message_chunk") => {
            let step = step_of(steps, &update["messageId"], None);
            step.text.push_str(update["content"]["text"].as_str().unwrap_or_default());
        }
        Some("tool_call" | "tool_call_update") => {
            let step = step_of(steps, &update["toolCallId"], Some("pending"));
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
fn step_of<'a>(
    steps: &'a mut Vec<ReportedStep>,
    id: &Value,
    status: Option<&str>,
) -> &'a mut ReportedStep {
    let id = id.as_str().unwrap_or_default();
    let index = steps.iter().position(|step| step.id == id).unwrap_or_else(|| {
        let status = status.map(str::to_owned);
        steps.push(ReportedStep { id: id.to_owned(), text: String::new(), status });
        steps.len() - 1
    });
    &mut steps[index]
}
