//! Clients of `turnwright serve` that read nothing, and many at once: what they cost, and that nobody else has to
//! wait (R-REM-6, R-REM-16).

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};
use turnwright_testing::process_report::{peak_memory, wait_until_idle};
use turnwright_testing::raw_server::{RawServer, text_event, text_stream, write_stream};
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::socket_clients::{HttpClient, WebSocketClient, request};

use crate::agent::{LIMIT, eventually, prompt, says};
use crate::serve::{Served, serve_with};

const TOKEN: &str = "token-of-these-clients";
const MIB: u64 = 1024 * 1024;
/// The pieces of the long answer, more than what waits in all buffers on its way.
const PIECES: usize = 256;
const PIECE: usize = 64 * 1024;

/// A served agent with its model, which answers prompts with the word `much` at length.
fn served() -> (Served, Server) {
    let much = json!([{ "text": "0123456789abcdef".repeat(PIECE / 16), "repeat": PIECES }]);
    let replies = json!({ "replies": [{ "when": "much", "steps": much }] });
    let scenario = Scenario::from_value(replies).unwrap();
    let model = Server::start(scenario, 0).unwrap();
    let url = model.base_url();
    let variables = [("OPENAI_BASE_URL", url.as_str()), ("TURNWRIGHT_MODEL", "scripted")];
    (serve_with(&[], Some(TOKEN), &variables), model)
}

/// The length of the piece of an answer that a message has.
fn length(message: &Value) -> usize {
    let update = &message["params"]["update"];
    let is_piece = update["sessionUpdate"] == "agent_message_chunk";
    let text = update["content"]["text"].as_str().filter(|_| is_piece);
    text.map_or(0, str::len)
}

/// Checks that the agent waits with a bounded amount of memory, and serves another client. Each byte of an answer
/// takes three or more, so that an agent that does not wait needs far more than this. `earlier` other clients have had an
/// answer before; when they leave, the agent may close its connection to the model before the last bytes are written.
fn check_others(served: &Served, model: &Server, before: u64, earlier: usize) {
    wait_until_idle(served.process());
    assert!(model.hung_up() <= earlier, "the turn waits");
    let grown = peak_memory(served.process()).saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB", grown / MIB);
    let mut other = WebSocketClient::connect(&served.url, TOKEN, 1);
    let session = other.new_session(&json!(served.home()));
    model.push(says("Here.")).unwrap();
    let answer = other.call("session/prompt", &prompt(&session, "still there?"));
    assert_eq!(answer["result"]["stopReason"], "end_turn");
}

#[test]
fn r_rem_16_a_websocket_that_is_not_read_waits_with_its_turn_and_when_it_is_lost_nothing_else_is() {
    let (served, model) = served();
    let cwd = json!(served.home());
    let mut client = WebSocketClient::connect(&served.url, TOKEN, 1);
    let session = client.new_session(&cwd);
    let before = peak_memory(served.process());
    client.request("session/prompt", &prompt(&session, "tell me much"));
    model.wait_for_requests(1, LIMIT).unwrap();
    check_others(&served, &model, before, 0);

    // The turn goes on without a client, but not further than what another one can still be told.
    drop(client);
    check_others(&served, &model, before, 1);
    let mut client = WebSocketClient::connect(&served.url, TOKEN, 2);
    let from = json!({ "type": "start" });
    let params = json!({ "sessionId": session, "cwd": cwd, "replayFrom": from });
    let mut told = 0;
    eventually("the session is taken over", || {
        let id = client.request("session/resume", &params);
        let answer = client.until(|message| {
            told += length(message);
            message["id"] == id && message["method"].is_null()
        });
        answer["result"].is_object()
    });
    assert!(0 < told && told < PIECE * PIECES, "{told} bytes before anyone read");
    client.until(|message| {
        told += length(message);
        message["params"]["update"]["stopReason"] == "end_turn"
    });
    assert_eq!(told, PIECE * PIECES, "all of it, and once");
}

#[test]
fn r_rem_16_a_stream_that_is_not_read_waits_with_its_turn() {
    let (served, model) = served();
    let http = HttpClient::new(&served.url, TOKEN);
    let connection = http.initialize(1);
    let mut events = http.stream(&connection, None);
    let session = http.new_session(&connection, &json!(served.home()), &mut events);
    let mut updates = http.stream(&connection, Some(&session));
    let before = peak_memory(served.process());
    let asked = request(3, "session/prompt", &prompt(&session, "tell me much"));
    assert_eq!(http.post(Some(&connection), &asked).status, 202);
    model.wait_for_requests(1, LIMIT).unwrap();
    check_others(&served, &model, before, 0);
    let mut told = 0;
    let end = updates.until(|message| {
        told += length(message);
        message["id"] == 3
    });
    assert_eq!(end["result"]["stopReason"], "end_turn");
    assert_eq!(told, PIECE * PIECES, "all of it, and once");
}

#[test]
fn r_rem_16_a_stream_that_is_not_opened_waits_with_its_turn_which_can_be_cancelled() {
    let (served, model) = served();
    let http = HttpClient::new(&served.url, TOKEN);
    let connection = http.initialize(1);
    let mut events = http.stream(&connection, None);
    let session = http.new_session(&connection, &json!(served.home()), &mut events);
    let before = peak_memory(served.process());
    let asked = request(3, "session/prompt", &prompt(&session, "tell me much"));
    assert_eq!(http.post(Some(&connection), &asked).status, 202);
    model.wait_for_requests(1, LIMIT).unwrap();
    check_others(&served, &model, before, 0);
    let params = json!({ "sessionId": session });
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params });
    assert_eq!(http.post(Some(&connection), &cancel).status, 202);
    model.wait_for_hang_ups(1, LIMIT).unwrap();
    let mut updates = http.stream(&connection, Some(&session));
    let end = updates.until(|message| message["id"] == 3);
    assert_eq!(end["result"]["stopReason"], "cancelled");
}

/// Lets all answers go on at once.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn wait(&self) {
        let is_open = self.0.lock().unwrap();
        drop(self.1.wait_timeout_while(is_open, LIMIT, |is_open| !*is_open).unwrap());
    }

    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

/// The words of the client whose number is between two `#` in the prompt.
fn words_for(request: &str) -> String {
    let number = request.split('#').find(|it| it.parse::<usize>().is_ok()).unwrap();
    format!("[{number}]")
}

#[test]
fn r_rem_6_two_hundred_clients_stream_at_once_and_each_gets_its_own_words() {
    const CLIENTS: usize = 200;
    if turnwright_testing::lacks_under_wine("two hundred connections that are served in time") {
        return;
    }
    let gate = Arc::new(Gate::default());
    let model_gate = Arc::clone(&gate);
    let model = RawServer::reading(move |_, request, stream| {
        let words = words_for(request);
        write_stream(stream, &text_event(&words).repeat(20));
        model_gate.wait();
        for _ in 0..19 {
            stream.write_all(text_event(&words).as_bytes()).unwrap();
        }
        stream.write_all(text_stream(&words).as_bytes()).unwrap();
    });
    let url = model.base_url();
    let variables = [("OPENAI_BASE_URL", url.as_str()), ("TURNWRIGHT_MODEL", "scripted")];
    let served = serve_with(&[], Some(TOKEN), &variables);
    let cwd = json!(served.home());
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (served, cwd) = (&served, &cwd);
            scope.spawn(move || {
                let version = 1 + number as u64 % 2;
                let mut client = WebSocketClient::connect(&served.url, TOKEN, version);
                let session = client.new_session(cwd);
                assert_eq!(talk(&mut client, &session, number), format!("[{number}]").repeat(40));
            });
        }
        // Every turn is in the middle of its answer.
        model.wait_for_requests(CLIENTS);
        wait_until_idle(served.process());
        gate.open();
    });
    // The published program needs half of it: the futures of this build are larger.
    let peak = peak_memory(served.process());
    assert!(peak < 140 * MIB, "{} MiB", peak / MIB);
}

/// Sends a prompt with this number, and returns what the model has said at the end of the turn. Every update must
/// be of this session.
fn talk(client: &mut WebSocketClient, session: &str, number: usize) -> String {
    let id = client.request("session/prompt", &prompt(session, &format!("client #{number}#")));
    let mut said = String::new();
    client.until(|message| {
        let params = &message["params"];
        if message["method"] == "session/update" {
            assert_eq!(params["sessionId"], session);
        }
        if params["update"]["sessionUpdate"] == "agent_message_chunk" {
            said.push_str(params["update"]["content"]["text"].as_str().unwrap());
        }
        let is_end = message["id"] == id && message["result"]["stopReason"] == "end_turn";
        is_end || params["update"]["state"] == "idle"
    });
    said
}
