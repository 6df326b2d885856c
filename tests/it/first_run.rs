//! The first run on a model of one's own: `turnwright login` on a terminal, then a prompt with a tool call,
//! with nothing but what the login has stored. The servers answer as Ollama, LM Studio and a server with
//! keys do.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};
use turnwright_testing::pseudo_terminal::PseudoTerminal;
use turnwright_testing::raw_server::{RawServer, text_stream, write_stream};

use crate::agent::{TestAgent, subcommand};

const KEY: &str = "sk-first-0123456789";

/// A model server: its list of models, and whether it wants the key.
struct Shape {
    models: Value,
    has_keys: bool,
    /// The calls of its models have this many pieces of arguments.
    pieces: usize,
}

impl Shape {
    fn start(self) -> RawServer {
        RawServer::with_models(move |_, request, stream| self.answer(request, stream))
    }

    fn answer(&self, request: &str, stream: &mut TcpStream) {
        let authorization = format!("authorization: bearer {KEY}\r\n");
        if self.has_keys && !request.to_lowercase().contains(&authorization) {
            let error = json!({ "error": {
                "message": "Incorrect API key provided.", "type": "invalid_request_error",
                "code": "invalid_api_key",
            } });
            return respond(stream, 401, &error);
        }
        if request.starts_with("GET /v1/models ") {
            return respond(stream, 200, &json!({ "object": "list", "data": self.models }));
        }
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/chat/completions "), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        let is_listed = |it: &Value| it["id"] == body["model"];
        if !self.models.as_array().unwrap().iter().any(is_listed) {
            let error = json!({ "error": { "message": "model not found", "type": "api_error" } });
            return respond(stream, 404, &error);
        }
        let last = body["messages"].as_array().unwrap().last().unwrap();
        match last["role"].as_str().unwrap() {
            "tool" => write_stream(stream, &text_stream(&answer(&last["content"].to_string()))),
            _ => write_stream(stream, &self.call(&json!({ "path": "note.txt" }))),
        }
    }

    /// A call of `read_file` as an event stream.
    fn call(&self, arguments: &Value) -> String {
        let arguments = arguments.to_string();
        let size = arguments.len().div_ceil(self.pieces);
        let pieces = arguments.as_bytes().chunks(size).map(|it| str::from_utf8(it).unwrap());
        let mut events = String::new();
        for (number, piece) in pieces.enumerate() {
            let mut call = json!({ "index": 0, "function": { "arguments": piece } });
            if number == 0 {
                call["id"] = json!("call_first");
                call["type"] = json!("function");
                call["function"]["name"] = json!("read_file");
            }
            events += &event(&json!({ "tool_calls": [call] }), &Value::Null);
        }
        events + &event(&json!({}), &json!("tool_calls")) + "data: [DONE]\n\n"
    }
}

fn event(delta: &Value, finish: &Value) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    format!("data: {}\n\n", json!({ "choices": [choice] }))
}

fn answer(result: &str) -> String {
    let word = if result.contains("PELICAN") { "PELICAN" } else { "unknown" };
    format!("The word is {word}.")
}

fn respond(stream: &mut TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} \r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
}

/// An agent without a model, and the login to this server on a terminal.
fn first_run(server: &RawServer) -> (TestAgent, PseudoTerminal) {
    let agent = TestAgent::unconfigured().file("note.txt", "The word of the day is PELICAN.\n");
    let agent = agent.initialize();
    let command = subcommand(agent.home(), &["login", "--base-url", &server.base_url()]);
    (agent, PseudoTerminal::start(command))
}

/// Ends the login with the choice of a model, and takes a turn with it.
fn choose_and_ask(mut agent: TestAgent, mut terminal: PseudoTerminal, choice: &str, model: &str) {
    terminal.answer("Model (number or name; empty for ", choice);
    let (status, shown) = terminal.wait_for_end(&format!("turnwright now starts with {model}."));
    assert!(status.success() && !shown.contains(KEY), "{shown}");
    agent.session = agent.new_session();
    assert_eq!(agent.turn("Read note.txt: what is the word of the day?"), "end_turn");
    assert_eq!(agent.text(), "The word is PELICAN.");
}

#[test]
fn ollama_needs_no_key_and_starts_with_the_model_that_is_there() {
    let models = json!([
        { "id": "qwen3:4b", "object": "model", "created": 1, "owned_by": "library" },
        { "id": "nomic-embed-text:latest", "object": "model", "created": 1, "owned_by": "library" },
    ]);
    let server = Shape { models, has_keys: false, pieces: 1 }.start();
    let (agent, mut terminal) = first_run(&server);
    terminal.answer("(hidden; empty if the server needs none): ", "");
    terminal.wait_for("1  qwen3:4b\r\n");
    choose_and_ask(agent, terminal, "", "qwen3:4b");
}

#[test]
fn a_server_with_keys_asks_for_one_before_anything_is_stored() {
    let models = json!([
        { "id": "gpt-5-mini", "object": "model", "owned_by": "system" },
        { "id": "gpt-5", "object": "model", "owned_by": "system" },
    ]);
    let server = Shape { models, has_keys: true, pieces: 5 }.start();
    let (agent, mut terminal) = first_run(&server);
    terminal.answer("(hidden; empty if the server needs none): ", "");
    terminal.wait_for("Incorrect API key provided. Check the key. Nothing was stored.");
    terminal.answer("(hidden; empty if the server needs none): ", KEY);
    choose_and_ask(agent, terminal, "gpt-5-mini", "gpt-5-mini");
}

#[test]
fn a_model_of_lm_studio_has_a_path_as_its_name() {
    let models = json!([
        { "id": "qwen/qwen3-4b", "object": "model", "owned_by": "organization_owner" },
        { "id": "openai/gpt-oss-20b", "object": "model", "owned_by": "organization_owner" },
        { "id": "text-embedding-nomic-embed-text-v1.5", "object": "model", "owned_by": "organization_owner" },
    ]);
    // `openai/` is not a provider here: both names belong to this server.
    for (choice, model) in [("1", "openai/gpt-oss-20b"), ("qwen/qwen3-4b", "qwen/qwen3-4b")] {
        let server = Shape { models: models.clone(), has_keys: false, pieces: 3 }.start();
        let (agent, mut terminal) = first_run(&server);
        terminal.answer("(hidden; empty if the server needs none): ", "");
        choose_and_ask(agent, terminal, choice, model);
    }
}
