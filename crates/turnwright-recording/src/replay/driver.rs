//! Plays the client of a recording: sends each of its lines once the agent has got as far as it had then, and compares
//! what the agent sends with what was recorded. Also compares the results of tool calls that the model is sent.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::PlayedAgent;
use super::observed::{
    Difference, Observation, ObservedPiece, ObservedStream, Observer, RunNormalizer,
    around_difference, compare, describe, is_tool_request,
};
use crate::playback::{EventKind, PlaybackEvent, RecordedEvent};
use crate::recording_writer::describe_request;

/// How long the agent may take for a step that was immediate in the recording.
const STEP_LIMIT: Duration = Duration::from_secs(10);
/// The most that a pause in the recording adds to [`STEP_LIMIT`].
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// Commands that another machine or version answers differently. Their turns are run but not compared.
const DISK_COMMANDS: [&str; 14] = [
    "/checks",
    "/hooks",
    "/diff",
    "/init",
    "/mcp",
    "/memory",
    "/models",
    "/permissions",
    "/redo",
    "/remember",
    "/resume",
    "/rewind",
    "/trust",
    "/undo",
];

/// A replay in progress.
pub(super) struct ReplayDriver {
    agent: PlayedAgent,
    /// Observe the messages in the recording and those of this run.
    recorded_observer: Observer,
    live_observer: Observer,
    /// Observations of this run that have not been compared yet.
    uncompared: HashMap<ObservedStream, VecDeque<Observation>>,
    /// The ids of the agent's requests in this run, by their ids in the recording.
    request_ids: HashMap<String, Value>,
    /// The session's id in the recording, and its id in this run.
    session_ids: (Value, Value),
    /// The ids of the prompts whose recorded answers are still to come.
    open_prompts: HashSet<String>,
    /// Digests of the messages in the last request to the model.
    sent_digests: Vec<u64>,
    /// The new messages of each request to the model, by the number of the recorded request.
    asked: HashMap<u64, Vec<Value>>,
    /// The numbers of the pieces of the model's answers that the agent has taken.
    taken_pieces: HashSet<u64>,
    /// Descriptions of the agent's actions that are not in the recording.
    unrecorded: Vec<String>,
    has_ended: bool,
    /// True if the current turn is not compared.
    skips_turn: bool,
    /// The line of the recording that is being played.
    line: usize,
    /// The number of turns so far.
    turns: usize,
}

impl ReplayDriver {
    pub(super) fn new(agent: PlayedAgent, recorded: Observer, live: Observer) -> ReplayDriver {
        ReplayDriver {
            agent,
            recorded_observer: recorded,
            live_observer: live,
            uncompared: HashMap::new(),
            request_ids: HashMap::new(),
            session_ids: (Value::Null, Value::Null),
            open_prompts: HashSet::new(),
            sent_digests: Vec::new(),
            asked: HashMap::new(),
            taken_pieces: HashSet::new(),
            unrecorded: Vec::new(),
            has_ended: false,
            skips_turn: false,
            line: 0,
            turns: 0,
        }
    }

    /// Plays the recording to its end or to the first difference. Returns a summary for the user if there is none.
    pub(super) fn run(mut self, events: &[RecordedEvent]) -> Result<String, Difference> {
        let mut end = self.run_events(events);
        if let Some(what) = self.unrecorded.first() {
            let mut difference = end.err().unwrap_or_else(|| {
                self.difference("what the agent does", "nothing of it".into(), what.clone())
            });
            difference.now.push_str(&format!(" (the recording does not have {what})"));
            end = Err(difference);
        }
        self.agent.end();
        end?;
        let open = if events.iter().any(|event| matches!(event.kind, EventKind::End)) {
            ""
        } else {
            " The recording has no end: the agent was killed, or lines are missing."
        };
        let lines = events.iter().filter(|event| matches!(event.kind, EventKind::Out(_))).count();
        let turns = self.turns;
        Ok(format!("The same: {lines} lines of the agent, turns: {turns}.{open}\n"))
    }

    fn run_events(&mut self, events: &[RecordedEvent]) -> Result<(), Difference> {
        let mut last = 0;
        for event in events {
            self.line = event.line;
            self.agent.playback.advance(event.number);
            let pause = Duration::from_millis(event.milliseconds.saturating_sub(last));
            let limit = STEP_LIMIT + pause.min(MAX_PAUSE);
            last = event.milliseconds;
            match &event.kind {
                EventKind::In(message) => {
                    self.wait_for_pieces(events, event.number, limit);
                    self.send(message);
                }
                EventKind::Out(message) => self.expect(message, limit)?,
                EventKind::Request { id, messages } => {
                    self.wait(limit, |driver| driver.asked.contains_key(id));
                    let Some(now) = self.asked.get(id) else {
                        let recorded = "a request".to_owned();
                        let now = self.absence();
                        return Err(self.difference("what the model is asked", recorded, now));
                    };
                    if let Some((recorded, now)) = first_result_difference(messages, now) {
                        return Err(self.difference("what the model is told", recorded, now));
                    }
                }
                EventKind::Reply(_)
                | EventKind::Servers(_)
                | EventKind::Project(_)
                | EventKind::Stored(_)
                | EventKind::Answer(..)
                | EventKind::End => {}
            }
        }
        Ok(())
    }

    /// Waits until the agent has taken all that the model had sent before the recorded event of this number: a
    /// cancel must not come before the words that the user had seen.
    fn wait_for_pieces(&mut self, events: &[RecordedEvent], number: u64, limit: Duration) {
        let mut pieces = Vec::new();
        for event in events {
            if let EventKind::Reply(reply) = &event.kind
                && self.asked.contains_key(&reply.to)
            {
                pieces.extend(
                    reply.pieces.iter().map(|piece| piece.0).filter(|piece| *piece < number),
                );
            }
        }
        self.wait(limit, |driver| pieces.iter().all(|piece| driver.taken_pieces.contains(piece)));
    }

    /// Sends a line of the client, with the ids of this run in place of the recorded ones.
    fn send(&mut self, recorded: &Value) {
        let mut message = recorded.clone();
        self.recorded_observer.on_client(&message);
        self.live_observer.on_client(&message);
        if message["method"].is_null() {
            // An answer to a tool's request is left out: tools do not run in a replay.
            let Some(id) = self.request_ids.get(&message["id"].to_string()) else { return };
            message["id"] = id.clone();
        }
        if message["params"]["sessionId"] == self.session_ids.0 && !self.session_ids.0.is_null() {
            message["params"]["sessionId"] = self.session_ids.1.clone();
        }
        if message["method"] == "session/prompt" {
            self.turns += 1;
            self.open_prompts.insert(message["id"].to_string());
            let text = message["params"]["prompt"][0]["text"].as_str().unwrap_or_default();
            let word = text.split_whitespace().next().unwrap_or_default();
            self.skips_turn = DISK_COMMANDS.contains(&word);
        }
        self.agent.send(message);
    }

    /// Waits until the agent has sent what this recorded message says.
    fn expect(&mut self, recorded: &Value, limit: Duration) -> Result<(), Difference> {
        if let Some(session) = recorded["result"].get("sessionId") {
            self.session_ids.0 = session.clone();
        }
        for observation in self.recorded_observer.on_agent(recorded.clone()) {
            if self.skips_turn && !matches!(observation.stream, ObservedStream::Answer(_)) {
                continue;
            }
            self.expect_piece(&observation, limit)?;
            if let ObservedStream::Answer(id) = &observation.stream
                && self.open_prompts.remove(id)
            {
                self.expect_no_more()?;
            }
        }
        Ok(())
    }

    /// Waits for one observation. A text may arrive in other pieces than it did in the recording.
    fn expect_piece(&mut self, expected: &Observation, limit: Duration) -> Result<(), Difference> {
        let mut left = expected.piece.clone();
        loop {
            let stream = &expected.stream;
            // Nothing more of a turn follows its answer.
            self.wait(limit, |driver| {
                driver.has_uncompared(stream) || stream.is_of_turn() && driver.is_turn_over()
            });
            let Some(found) = self.uncompared.get_mut(stream).and_then(VecDeque::pop_front) else {
                let recorded = describe(&left);
                let now = self.absence();
                return Err(self.difference(&stream.describe(), recorded, now));
            };
            let Observation { piece, request, .. } = found;
            match (left, piece) {
                (
                    ObservedPiece::Text { kind, text },
                    ObservedPiece::Text { kind: kind_now, text: now },
                ) if kind == kind_now && (text.starts_with(&now) || now.starts_with(&text)) => {
                    if now.len() > text.len() {
                        let more = now[text.len()..].to_owned();
                        let piece = ObservedPiece::Text { kind, text: more };
                        let more = Observation { stream: stream.clone(), piece, request: None };
                        self.uncompared.entry(stream.clone()).or_default().push_front(more);
                        return Ok(());
                    }
                    if now.len() == text.len() {
                        return Ok(());
                    }
                    left = ObservedPiece::Text { kind, text: text[now.len()..].to_owned() };
                }
                (ObservedPiece::Text { text, .. }, ObservedPiece::Text { text: now, .. }) => {
                    let (recorded, now) = around_difference(&text, &now);
                    return Err(self.difference(&stream.describe(), recorded, now));
                }
                (ObservedPiece::Whole(recorded), ObservedPiece::Whole(now)) => {
                    if let Some((path, one, other)) = compare(&recorded, &now) {
                        let what = format!("{}, {}", stream.describe(), path.trim_end_matches('.'));
                        return Err(self.difference(&what, one, other));
                    }
                    if let (Some(recorded), Some(now)) = (&expected.request, request) {
                        self.request_ids.insert(recorded.to_string(), now);
                    }
                    return Ok(());
                }
                (recorded, now) => {
                    let recorded = describe(&recorded);
                    let now = describe(&now);
                    return Err(self.difference(&stream.describe(), recorded, now));
                }
            }
        }
    }

    fn has_uncompared(&self, stream: &ObservedStream) -> bool {
        self.uncompared.get(stream).is_some_and(|observations| !observations.is_empty())
    }

    /// Returns true if the agent has answered a prompt whose recorded answer is still to come.
    fn is_turn_over(&self) -> bool {
        self.open_prompts.iter().any(|id| self.has_uncompared(&ObservedStream::Answer(id.clone())))
    }

    /// Checks that the turn that has just ended did nothing beyond what was recorded.
    fn expect_no_more(&mut self) -> Result<(), Difference> {
        if std::mem::take(&mut self.skips_turn) {
            self.uncompared.retain(|stream, _| !stream.is_of_turn());
            return Ok(());
        }
        let of_turn = self.uncompared.iter().filter(|(stream, _)| stream.is_of_turn());
        let more = of_turn
            .filter_map(|(stream, left)| Some((stream.describe(), describe(&left.front()?.piece))))
            .min();
        more.map_or(Ok(()), |(what, now)| {
            Err(self.difference(&what, "nothing more".to_owned(), now))
        })
    }

    /// Handles the agent's events until `holds` returns true, the agent has ended, or the time is up.
    fn wait(&mut self, limit: Duration, mut holds: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + limit;
        while !holds(self) && !self.has_ended {
            let left = end.saturating_duration_since(Instant::now());
            let Some(event) = self.agent.next_event(left) else { return };
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: PlaybackEvent) {
        match event {
            PlaybackEvent::Message(message) => self.on_message(message),
            PlaybackEvent::ModelRequested { request, body } => {
                let mut described = describe_request(&mut self.sent_digests, &body);
                let messages = described["messages"].as_array_mut().map(std::mem::take);
                self.asked.insert(request, messages.unwrap_or_default());
            }
            PlaybackEvent::PieceTaken(number) => drop(self.taken_pieces.insert(number)),
            PlaybackEvent::Unrecorded(what) => self.unrecorded.push(what),
            PlaybackEvent::Ended => self.has_ended = true,
        }
    }

    fn on_message(&mut self, message: Value) {
        if let Some(session) = message["result"].get("sessionId") {
            self.session_ids.1 = session.clone();
        }
        if let Some(id) = message.get("id").filter(|_| is_tool_request(&message)) {
            let error = json!({ "code": -32603, "message": "not available in a replay" });
            return self.agent.send(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
        for observation in self.live_observer.on_agent(message) {
            self.uncompared.entry(observation.stream.clone()).or_default().push_back(observation);
        }
    }

    /// The text that is shown in place of something that did not come.
    fn absence(&self) -> String {
        if self.has_ended { "the agent has ended".to_owned() } else { "nothing".to_owned() }
    }

    fn difference(&self, what: &str, recorded: String, now: String) -> Difference {
        let line = self.line;
        let turn = self.turns;
        Difference { line, turn, what: what.to_owned(), recorded, now }
    }
}

/// Finds the first result of a call that differs between the requests to the model. Prompts are not compared,
/// because the text around them contains the date and a listing of the folder. Project instructions at the end
/// of a result are not compared either, because a replay reads no files.
fn first_result_difference(recorded: &[Value], now: &[Value]) -> Option<(String, String)> {
    let recorded = tool_results(recorded);
    let now = tool_results(now);
    let count = recorded.len().max(now.len());
    (0..count).find_map(|index| match (recorded.get(index), now.get(index)) {
        (Some(one), Some(other)) if one == other => None,
        (Some(one), Some(other)) if !other.is_empty() && one.starts_with(other.as_str()) => None,
        (Some(one), Some(other)) => Some(around_difference(one, other)),
        (one, other) => Some((shown_result(one), shown_result(other))),
    })
}

fn shown_result(result: Option<&String>) -> String {
    result.map_or("nothing".to_owned(), |text| format!("{text:?}"))
}

fn tool_results(messages: &[Value]) -> Vec<String> {
    let of_calls = messages
        .iter()
        .filter(|message| message["role"] == "tool" || message["type"] == "function_call_output");
    of_calls.map(result_text).collect()
}

fn result_text(message: &Value) -> String {
    let mut content =
        message.get("content").or_else(|| message.get("output")).cloned().unwrap_or_default();
    RunNormalizer::default().normalize(&mut content);
    content.as_str().map_or_else(|| content.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_results_are_compared_and_what_a_project_adds_is_not() {
        let told = |result: &str| {
            [
                json!({ "role": "user", "content": result }),
                json!({ "role": "tool", "content": result }),
            ]
        };
        assert_eq!(first_result_difference(&told("a"), &told("a")), None);
        assert_eq!(first_result_difference(&told("a\nInstructions"), &told("a")), None);
        assert!(first_result_difference(&told("a"), &told("b")).is_some());
        assert!(first_result_difference(&told("a"), &told("a")[..1]).is_some());
        let output = [json!({ "type": "function_call_output", "output": "a" })];
        assert_eq!(first_result_difference(&output, &told("a")), None);
    }
}
