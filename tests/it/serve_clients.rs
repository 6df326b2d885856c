//! Clients of `turnwright serve` that read nothing, and many at once: what they cost, and that nobody else has to
//! wait (R-REM-6, R-REM-16).

use serde_json::{Value, json};
use turnwright_testing::process_report::{peak_memory, wait_until_idle};
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::socket_clients::{Events, HttpClient, WebSocketClient, request};

use crate::agent::{LIMIT, eventually, prompt, says};
use crate::serve::{Served, serve_with};

const TOKEN: &str = "token-of-these-clients";
const MIB: u64 = 1024 * 1024;
/// The pieces of the long answer, more than what waits in all buffers on its way.
const PIECES: usize = 4_096;
const PIECE: usize = 4_096;

/// A served agent with its model, which answers prompts with the word `much` at length.
fn served(more: &[Value]) -> (Served, Server) {
    let much = json!([{ "text": "0123456789abcdef".repeat(PIECE / 16), "repeat": PIECES }]);
    let mut replies = vec![json!({ "when": "much", "steps": much })];
    replies.extend_from_slice(more);
    let scenario = Scenario::from_value(json!({ "replies": replies })).unwrap();
    let model = Server::start(scenario, 0).unwrap();
    let url = model.base_url();
    let variables = [("OPENAI_BASE_URL", url.as_str()), ("TURNWRIGHT_MODEL", "scripted")];
    (serve_with(&[], Some(TOKEN), &variables), model)
}

/// Adds the length of a piece of the answer.
fn count(total: &mut usize, message: &Value) {
    let update = &message["params"]["update"];
    if update["sessionUpdate"] == "agent_message_chunk" {
        *total += update["content"]["text"].as_str().unwrap().len();
    }
}

/// Checks that the agent waits for the client with a bounded amount of memory, and serves another one.
fn check_others(served: &Served, model: &Server, before: u64) {
    wait_until_idle(served.process());
    let grown = peak_memory(served.process()).saturating_sub(before);
    assert!(grown < 24 * MIB, "{} MiB", grown / MIB);
    let cwd = json!(served.home());
    let mut other = WebSocketClient::connect(&served.url, TOKEN, 1);
    let session = other.new_session(&cwd);
    model.push(says("Here.")).unwrap();
    let answer = other.call("session/prompt", &prompt(&session, "still there?"));
    assert_eq!(answer["result"]["stopReason"], "end_turn");
}

#[test]
fn r_rem_16_a_websocket_that_is_not_read_waits_with_its_turn_and_when_it_is_lost_nothing_else_is() {
    let (served, model) = served(&[]);
    let cwd = json!(served.home());
    let mut client = WebSocketClient::connect(&served.url, TOKEN, 1);
    let session = client.new_session(&cwd);
    let before = peak_memory(served.process());
    client.request("session/prompt", &prompt(&session, "tell me much"));
    model.wait_for_requests(1, LIMIT).unwrap();
    check_others(&served, &model, before);
    assert_eq!(model.hung_up(), 0);

    // The turn goes on without a client, but not further than what another one can still be told.
    drop(client);
    let mut client = WebSocketClient::connect(&served.url, TOKEN, 1);
    check_others(&served, &model, before);
    let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
    let mut told = 0;
    eventually("the session is taken over", || {
        let id = client.request("session/load", &params);
        let answer = client.until(|message| {
            count(&mut told, message);
            message["id"] == id && message["method"].is_null()
        });
        answer["result"].is_object()
    });
    client.until(|message| {
        count(&mut told, message);
        message["params"]["update"]["sessionUpdate"] == "usage_update" || told == PIECE * PIECES
    });
    assert_eq!(told, PIECE * PIECES, "all of it, and once");
    model.push(says("Next.")).unwrap();
    let answer = client.call("session/prompt", &prompt(&session, "and now?"));
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(model.hung_up(), 0);
}

#[test]
fn r_rem_16_a_stream_that_is_not_read_waits_with_its_turn() {
    for is_open in [true, false] {
        let (served, model) = served(&[]);
        let http = HttpClient::new(&served.url, TOKEN);
        let connection = http.initialize(1);
        let mut events = http.stream(&connection, None);
        let session = http.new_session(&connection, &json!(served.home()), &mut events);
        let mut updates: Option<Events> = None;
        if is_open {
            updates = Some(http.stream(&connection, Some(&session)));
        }
        let before = peak_memory(served.process());
        let asked = request(3, "session/prompt", &prompt(&session, "tell me much"));
        assert_eq!(http.post(Some(&connection), &asked).status, 202);
        model.wait_for_requests(1, LIMIT).unwrap();
        check_others(&served, &model, before);
        assert_eq!(model.hung_up(), 0);

        // When it is read, all of it is there.
        let mut updates = updates.unwrap_or_else(|| http.stream(&connection, Some(&session)));
        let mut told = 0;
        let end = updates.until(|message| {
            count(&mut told, message);
            message["id"] == 3
        });
        assert_eq!(end["result"]["stopReason"], "end_turn");
        assert_eq!(told, PIECE * PIECES, "all of it, and once");
    }
}

#[test]
fn r_rem_6_two_hundred_clients_stream_at_once_and_each_gets_its_own_words() {
    const CLIENTS: usize = 200;
    let word = |number: usize| format!("[{number}]");
    let replies = (0..CLIENTS).map(|number| {
        let text = json!({ "text": word(number), "repeat": 20 });
        json!({ "when": format!("client {number}."), "steps": [text, { "hold": true }, text] })
    });
    let (served, model) = served(&replies.collect::<Vec<_>>());
    let cwd = json!(served.home());
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let version = 1 + number as u64 % 2;
            let mut client = WebSocketClient::connect(&served.url, TOKEN, version);
            let session = client.new_session(&cwd);
            let id =
                client.request("session/prompt", &prompt(&session, &format!("client {number}.")));
            (client, session, id, String::new())
        })
        .collect();
    // All turns run at once, in the middle of their answers.
    for (number, (client, session, _, said)) in clients.iter_mut().enumerate() {
        listen(client, session, said, |said, _| said.len() == 20 * word(number).len());
    }
    model.wait_for_requests(CLIENTS, LIMIT).unwrap();
    let resident = served.resident();
    (0..CLIENTS).for_each(|_| model.release());
    for (number, (client, session, id, said)) in clients.iter_mut().enumerate() {
        listen(client, session, said, |_, message| {
            let is_idle = message["params"]["update"]["state"] == "idle";
            is_idle || message["result"]["stopReason"] == "end_turn" && message["id"] == *id
        });
        assert_eq!(*said, word(number).repeat(40));
    }
    eprintln!("resident {} MiB, peak {} MiB", resident / MIB, peak_memory(served.process()) / MIB);
}

/// Reads what the model says, until `is_enough`. Every update must be of this session.
fn listen(
    client: &mut WebSocketClient,
    session: &str,
    said: &mut String,
    is_enough: impl Fn(&str, &Value) -> bool,
) {
    client.until(|message| {
        let params = &message["params"];
        if message["method"] == "session/update" {
            assert_eq!(params["sessionId"], session);
        }
        if params["update"]["sessionUpdate"] == "agent_message_chunk" {
            said.push_str(params["update"]["content"]["text"].as_str().unwrap());
        }
        is_enough(said, message)
    });
}
