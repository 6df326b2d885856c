//! A provider of several models. It lists them at `/models` in the way that a test selects, and
//! answers each chat request depending on its body.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnwright_testing::raw_server::{RawServer, text_stream, wait_for_the_end, write_stream};

use crate::agent::{TestAgent, TestAgentBuilder, eventually};

/// How a request for `/models` is answered.
#[derive(Clone, Debug)]
pub enum List {
    /// The response lists these models.
    Of(Vec<&'static str>),
    /// The response has this body.
    Whole(Value),
    /// The response has this status.
    Fails(u16),
    /// The response has a head, and nothing more until the test changes the list or the client
    /// disconnects.
    Hangs,
}

/// How a chat request is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The answer has this text. With the text `…`, the server sends nothing until the client
    /// disconnects.
    Says(String),
    /// The answer has these events.
    Events(Vec<Value>),
    /// The response has this status, and an error with this message in the usual format.
    Refuses(u16, String),
    /// The response has this status and body.
    Fails(u16, Value),
}

/// Returns an answer with this text.
pub fn says(text: &str) -> Answer {
    Answer::Says(text.to_owned())
}

/// Returns a refusal with status 400.
pub fn refuses(message: &str) -> Answer {
    Answer::Refuses(400, message.to_owned())
}

/// Returns an answer with one tool call.
pub fn calls(name: &str, arguments: &Value) -> Answer {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let delta = json!({ "tool_calls": [{ "index": 0, "id": "c", "function": function }] });
    Answer::Events(vec![json!({ "choices": [
        { "index": 0, "delta": delta, "finish_reason": "tool_calls" }
    ] })])
}

/// Words of the request for a summary.
pub const SUMMARY_REQUEST: &str = "Write a summary that lets you go on";

/// Returns the text of all messages in a request.
pub fn text(body: &Value) -> String {
    body["messages"].to_string()
}

/// Returns whether a summary is asked for.
pub fn is_summary_request(body: &Value) -> bool {
    text(body).contains(SUMMARY_REQUEST)
}

/// Returns what an honest server counts in a request.
pub fn tokens(body: &Value) -> u64 {
    (text(body).len() + body["tools"].to_string().len()) as u64 / 4
}

/// Returns an answer to a request in which the server has counted so many tokens.
pub fn counted(prompt_tokens: u64, answer: Answer) -> Answer {
    let mut events = match answer {
        Answer::Says(text) => {
            let delta = json!({ "content": text });
            vec![json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": "stop" }] })]
        }
        Answer::Events(events) => events,
        other => return other,
    };
    let usage = json!({ "prompt_tokens": prompt_tokens, "completion_tokens": 20 });
    events.push(json!({ "choices": [], "usage": usage }));
    Answer::Events(events)
}

/// Returns whether a request contains the result of a call.
pub fn has_result(body: &Value) -> bool {
    body["messages"].as_array().unwrap().iter().any(|it| it["role"] == "tool")
}

/// A running provider.
pub struct Provider {
    server: RawServer,
    list: Arc<Mutex<List>>,
}

impl Provider {
    /// Starts a provider that lists these models and answers with a greeting.
    pub fn of(models: &[&'static str]) -> Provider {
        Provider::start(List::Of(models.to_vec()), |_| says("Hello."))
    }

    /// Starts a provider that lists no models and answers chat requests with `answer`.
    pub fn answering(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Provider {
        Provider::start(List::Of(Vec::new()), answer)
    }

    /// Starts a provider with this list that answers chat requests with `answer`.
    pub fn start(
        list: List,
        answer: impl Fn(&Value) -> Answer + Send + Sync + 'static,
    ) -> Provider {
        let list = Arc::new(Mutex::new(list));
        let shared = Arc::clone(&list);
        let server = RawServer::with_models(move |_, request, stream| {
            let body = request.split_once("\r\n\r\n").map_or("", |it| it.1);
            match serde_json::from_str(body) {
                Ok(body) => reply(&answer(&body), stream),
                Err(_) => listing(&shared, stream),
            }
        });
        Provider { server, list }
    }

    /// Changes how `/models` is answered. A response that hangs is then completed.
    pub fn lists(&self, list: List) {
        *self.list.lock().unwrap() = list;
    }

    /// Returns the base URL of the provider.
    pub fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// Returns a section of the settings for this provider.
    pub fn section(&self, name: &str, more: &str) -> String {
        format!("[providers.{name}]\nbase_url = '{}'\n{more}\n", self.base_url())
    }

    /// Returns every request so far, head and body.
    pub fn requests(&self) -> Vec<String> {
        self.server.requests()
    }

    /// Returns the bodies of all chat requests so far.
    pub fn chat_requests(&self) -> Vec<Value> {
        let bodies = self.requests();
        let bodies = bodies.iter().filter_map(|it| it.split_once("\r\n\r\n"));
        bodies.filter_map(|it| serde_json::from_str(it.1).ok()).collect()
    }

    /// Returns the number of requests for the models.
    pub fn list_request_count(&self) -> usize {
        self.requests().iter().filter(|it| it.starts_with("GET /v1/models ")).count()
    }

    /// Waits for this number of requests for the models.
    pub fn wait_for_listings(&self, count: usize) {
        eventually("a request for the models", || self.list_request_count() >= count);
    }
}

fn listing(list: &Mutex<List>, stream: &mut TcpStream) {
    let current = list.lock().unwrap().clone();
    match current {
        List::Of(names) => {
            let data: Vec<_> = names.iter().map(|it| json!({ "id": it })).collect();
            plain(stream, 200, &json!({ "object": "list", "data": data }));
        }
        List::Whole(body) => plain(stream, 200, &body),
        List::Fails(status) => plain(stream, status, &json!({ "error": { "message": "no" } })),
        List::Hangs => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").ok();
            stream.set_read_timeout(Some(std::time::Duration::from_millis(5))).unwrap();
            while matches!(*list.lock().unwrap(), List::Hangs) && !has_gone(stream) {}
            let changed = list.lock().unwrap().clone();
            if let List::Of(names) = changed {
                stream.write_all(json!(names).to_string().as_bytes()).ok();
            }
        }
    }
}

/// Returns whether the client has closed its end. Waits for that until the read timeout of the
/// stream.
fn has_gone(stream: &mut TcpStream) -> bool {
    matches!(std::io::Read::read(stream, &mut [0; 16]), Ok(0))
}

fn reply(answer: &Answer, stream: &mut TcpStream) {
    match answer {
        Answer::Says(text) if text == "…" => wait_for_the_end(stream),
        Answer::Says(text) => write_stream(stream, &text_stream(text)),
        Answer::Events(events) => {
            let lines: Vec<_> = events.iter().map(|it| format!("data: {it}\n\n")).collect();
            write_stream(stream, &format!("{}data: [DONE]\n\n", lines.concat()));
        }
        Answer::Fails(status, body) => plain(stream, *status, body),
        Answer::Refuses(status, message) => {
            let error = json!({ "error": { "message": message, "code": null } });
            plain(stream, *status, &error);
        }
    }
}

/// Writes a response with this status and JSON body.
pub fn plain(stream: &mut TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok();
}

/// Returns the builder of an agent with these settings and no others.
pub fn configured(settings: &str) -> TestAgentBuilder {
    TestAgent::unconfigured().own_file("config/config.toml", settings)
}

/// Opens a session, and returns the whole answer.
pub fn open(agent: &mut TestAgent) -> Value {
    let answer = agent.call_new_session();
    answer["result"]["sessionId"].as_str().unwrap_or_default().clone_into(&mut agent.session);
    answer
}

/// Sends a request to change a setting, and returns the id of the request.
pub fn ask_to_set(agent: &mut TestAgent, setting: &str, value: &str) -> Value {
    let params = json!({ "sessionId": agent.session, "configId": setting, "value": value });
    agent.request("session/set_config_option", &params)
}

/// Changes a setting, and returns the whole answer.
pub fn set(agent: &mut TestAgent, setting: &str, value: &str) -> Value {
    let id = ask_to_set(agent, setting, value);
    agent.answer_to(&id)
}

/// Returns the settings of an answer or an update as `id=current`, in their order.
pub fn current_values(options: &Value) -> Vec<String> {
    let options = options["configOptions"].as_array().unwrap_or_else(|| panic!("{options}"));
    let line = |option: &Value| {
        format!("{}={}", option["id"].as_str().unwrap(), option["currentValue"].as_str().unwrap())
    };
    options.iter().map(line).collect()
}

/// Returns the values that can be chosen for a setting.
pub fn choices(options: &Value, id: &str) -> Vec<String> {
    let options = options["configOptions"].as_array().unwrap();
    let option = options.iter().find(|it| it["id"] == id).unwrap();
    let values = option["options"].as_array().unwrap().iter();
    values.map(|it| it["value"].as_str().unwrap().to_owned()).collect()
}

/// Returns the notices to the user. The test client does not support notices, so the agent sends
/// them as thoughts.
pub fn notices(agent: &TestAgent) -> String {
    agent.thoughts()
}
