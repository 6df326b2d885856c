//! Decides which lines of a connection belong to the recorded session, so that a recording does not
//! disclose the client's other sessions.

use std::collections::HashSet;

use serde_json::Value;

use turnwright_rpc::LineDirection;

/// Follows the lines of a connection and decides which of them are recorded.
#[derive(Default)]
pub(crate) struct LineFilter {
    /// The recorded session, once it is open.
    session: Option<String>,
    /// The request that opens it.
    opening_request: Option<String>,
    /// The client's requests that are recorded and not answered yet.
    client_requests: HashSet<String>,
    /// The agent's requests that are recorded and not answered yet.
    agent_requests: HashSet<String>,
    pause: Option<Pause>,
}

/// Why nothing is recorded for the moment.
enum Pause {
    /// The prompt that has started the recording still runs.
    BeforePrompt,
    /// This prompt is about the recording itself.
    UntilAnswer(String),
    /// So is the turn that runs. In version 2 of the protocol it goes on after the answer.
    WhileRunning,
}

impl LineFilter {
    /// Records this session from its next prompt on.
    pub(crate) fn of_session(session: &str) -> LineFilter {
        LineFilter {
            session: Some(session.to_owned()),
            pause: Some(Pause::BeforePrompt),
            ..LineFilter::default()
        }
    }

    /// The session that is recorded.
    pub(crate) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns true if a message is to be recorded.
    pub(crate) fn should_record(&mut self, direction: LineDirection, message: &Value) -> bool {
        let id = message.get("id").filter(|id| !id.is_null()).map(Value::to_string);
        let method = message["method"].as_str();
        match (direction, method, id) {
            (LineDirection::In, Some(method), id) => {
                let should_record = self.should_record_call(method, message, id.as_ref());
                self.client_requests.extend(id.filter(|_| should_record));
                should_record
            }
            (LineDirection::Out, Some(_), id) => {
                let is_of_session = self.is_of_session(message);
                let is_paused = matches!(self.pause, Some(Pause::WhileRunning));
                if is_paused && is_of_session && is_idle(message) {
                    self.pause = None;
                    return false;
                }
                let should_record = self.pause.is_none() && is_of_session;
                self.agent_requests.extend(id.filter(|_| should_record));
                should_record
            }
            (LineDirection::In, None, Some(id)) => self.agent_requests.remove(&id),
            (LineDirection::Out, None, Some(id)) => self.should_record_answer(&id, message),
            (_, None, None) => false,
        }
    }

    fn should_record_call(&mut self, method: &str, message: &Value, id: Option<&String>) -> bool {
        match method {
            "initialize" | "authenticate" => return self.session.is_none(),
            "$/cancel_request" => {
                return self.client_requests.contains(&message["params"]["requestId"].to_string());
            }
            "session/new" | "session/load" | "session/resume" | "session/fork"
                if self.session.is_none() && self.opening_request.is_none() =>
            {
                self.opening_request = id.cloned();
                // The messages that show a stored conversation precede the answer.
                if matches!(method, "session/load" | "session/resume") {
                    self.session = message["params"]["sessionId"].as_str().map(str::to_owned);
                }
                return true;
            }
            "session/prompt" if self.is_of_session(message) => {
                let text = message["params"]["prompt"][0]["text"].as_str().unwrap_or_default();
                let is_about_recording = text.split_whitespace().next() == Some("/record");
                match (is_about_recording, id) {
                    (true, Some(id)) => self.pause = Some(Pause::UntilAnswer(id.clone())),
                    _ if matches!(self.pause, Some(Pause::BeforePrompt)) => self.pause = None,
                    _ => {}
                }
            }
            _ => {}
        }
        self.pause.is_none() && self.is_of_session(message)
    }

    fn should_record_answer(&mut self, id: &String, message: &Value) -> bool {
        if matches!(&self.pause, Some(Pause::UntilAnswer(awaited)) if awaited == id) {
            let goes_on = message["result"]["messageId"].is_string();
            self.pause = goes_on.then_some(Pause::WhileRunning);
            return false;
        }
        if self.opening_request.as_ref() == Some(id) {
            self.opening_request = None;
            let opened = message["result"]["sessionId"].as_str().map(str::to_owned);
            self.session = match message.get("error") {
                None => opened.or_else(|| self.session.take()),
                Some(_) => None,
            };
        }
        self.client_requests.remove(id)
    }

    fn is_of_session(&self, message: &Value) -> bool {
        let named = message["params"]["sessionId"].as_str();
        named.is_some() && named == self.session()
    }
}

/// Returns true if a message says that a turn of version 2 has ended.
fn is_idle(message: &Value) -> bool {
    let update = &message["params"]["update"];
    update["sessionUpdate"] == "state_update" && update["state"] == "idle"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The lines that are kept, by their marks.
    fn kept(mut filter: LineFilter, lines: &[(char, Value)]) -> String {
        let mut kept = String::new();
        for (mark, line) in lines {
            let is_in = mark.is_ascii_lowercase();
            let direction = if is_in { LineDirection::In } else { LineDirection::Out };
            if filter.should_record(direction, line) {
                kept.push(*mark);
            }
        }
        kept
    }

    fn prompt(id: u64, session: &str, text: &str) -> Value {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        json!({ "id": id, "method": "session/prompt", "params": params })
    }

    fn update(session: &str) -> Value {
        json!({ "method": "session/update", "params": { "sessionId": session } })
    }

    #[test]
    fn a_session_that_is_loaded_is_recorded_unless_it_cannot_be_opened() {
        let load =
            |id: u64| json!({ "id": id, "method": "session/load", "params": { "sessionId": "s" } });
        let lines = [
            ('a', load(1)),
            ('A', json!({ "id": 1, "error": {} })),
            ('B', update("s")),
            ('b', load(2)),
            ('C', update("s")),
            ('D', update("t")),
            ('E', json!({ "id": 2, "result": {} })),
            ('c', json!({ "id": 3, "method": "session/new", "params": {} })),
            ('F', json!({ "id": 3, "result": { "sessionId": "t" } })),
            ('d', prompt(4, "t", "hello")),
            ('e', prompt(5, "s", "hello")),
        ];
        assert_eq!(kept(LineFilter::default(), &lines), "aAbCEe");
    }

    #[test]
    fn only_the_first_session_is_recorded() {
        let lines = [
            ('a', json!({ "id": 1, "method": "initialize", "params": {} })),
            ('A', json!({ "id": 1, "result": {} })),
            ('d', json!({ "id": 3, "method": "session/new", "params": {} })),
            ('D', json!({ "id": 3, "result": { "sessionId": "s" } })),
            ('e', json!({ "id": 4, "method": "session/new", "params": {} })),
            ('E', json!({ "id": 4, "result": { "sessionId": "t" } })),
            ('b', json!({ "id": 2, "method": "session/load", "params": { "sessionId": "old" } })),
            ('B', update("old")),
            ('C', json!({ "id": 2, "result": {} })),
            ('f', prompt(5, "s", "hello")),
            ('g', prompt(6, "t", "hello")),
            ('F', update("s")),
            ('G', update("t")),
            ('H', json!({ "id": 0, "method": "x", "params": { "sessionId": "s" } })),
            ('h', json!({ "id": 0, "result": {} })),
            ('i', json!({ "id": 1, "result": {} })),
            ('j', json!({ "method": "$/cancel_request", "params": { "requestId": 6 } })),
            ('k', json!({ "method": "$/cancel_request", "params": { "requestId": 5 } })),
            ('I', json!({ "id": 5, "result": {} })),
            ('J', json!({ "id": 6, "result": {} })),
        ];
        assert_eq!(kept(LineFilter::default(), &lines), "aAdDfFHhkI");
    }

    #[test]
    fn prompts_about_the_recording_are_left_out() {
        let lines = [
            ('A', update("s")),
            ('B', json!({ "id": 1, "result": {} })),
            ('c', prompt(2, "s", "go")),
            ('C', update("s")),
            ('D', json!({ "id": 2, "result": {} })),
            ('e', prompt(3, "s", "/record stop")),
            ('E', update("s")),
            ('F', json!({ "id": 3, "result": {} })),
            ('g', prompt(4, "s", "go on")),
        ];
        assert_eq!(kept(LineFilter::of_session("s"), &lines), "cCDg");
    }

    #[test]
    fn in_version_2_a_prompt_about_the_recording_ends_when_the_session_is_idle() {
        let state = |state: &str| {
            let update = json!({ "sessionUpdate": "state_update", "state": state });
            let params = json!({ "sessionId": "s", "update": update });
            json!({ "method": "session/update", "params": params })
        };
        let mut of_helper = state("idle");
        of_helper["params"]["sessionId"] = "helper".into();
        let lines = [
            ('a', prompt(2, "s", "go")),
            ('A', json!({ "id": 2, "result": { "messageId": "m" } })),
            ('B', state("running")),
            ('C', state("idle")),
            ('d', prompt(3, "s", "/record")),
            ('D', state("running")),
            ('E', json!({ "id": 3, "result": { "messageId": "n" } })),
            ('F', update("s")),
            ('G', of_helper),
            ('I', update("s")),
            ('G', state("idle")),
            ('h', prompt(4, "s", "go on")),
            ('H', state("running")),
        ];
        assert_eq!(kept(LineFilter::of_session("s"), &lines), "aABChH");
    }
}
