//! Tests a connection with an in-memory server and a paused clock.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call::{CallError, ToolResult, call};
use crate::call::server_requests::{ServerMessageHandler, WaitingCall};
use crate::features::JsonObject;
use crate::server::pool::{ServerEnv, ServerPool};
use crate::server::spec::{ServerSource, ServerSpec, ServerTimeouts, ServerTransport};
use crate::server::{Server, ServerPhase, ServerState, handshake};
use crate::transport::Peer;
use crate::transport::http::login::LoginStore;
use crate::transport::process::{self, MessageReader};
use turnwright_types::client::{
    Client, ElicitationModes, FormOutcome, PermissionAnswer as Permission, PermissionRequest,
    ServerForm, UserQuestion, UserReply,
};
use turnwright_types::effect::CallContent;
use turnwright_types::update::Update;
use turnwright_workspace::exec::Environment;

/// A client that answers no question. It keeps the texts of its cards, and `withdrawn` for each withdrawn form.
#[derive(Default)]
struct SilentClient(Mutex<Vec<String>>);

/// An open form. Dropping it withdraws it.
struct OpenForm<'a>(&'a SilentClient);

impl Drop for OpenForm<'_> {
    fn drop(&mut self) {
        self.0.0.lock().push("withdrawn".to_owned());
    }
}

impl Client for SilentClient {
    fn update(&self, update: Update) {
        let Update::CallUpdate(update) = update else { return };
        for content in update.content.into_iter().flatten() {
            if let CallContent::Text(text) = content {
                self.0.lock().push(text);
            }
        }
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn request_permission(&self, _: PermissionRequest) -> BoxFuture<'_, Permission> {
        Box::pin(std::future::pending())
    }

    fn ask_user(&self, _: UserQuestion) -> BoxFuture<'_, UserReply> {
        Box::pin(std::future::pending())
    }

    fn show_form(&self, _: ServerForm) -> BoxFuture<'_, FormOutcome> {
        Box::pin(async move {
            let _open = OpenForm(self);
            std::future::pending().await
        })
    }
}

/// Plays a server that reports progress every three seconds for `steps` times, and then answers if
/// `answers`.
async fn play_server(pipe: DuplexStream, steps: u64, answers: bool, heard: Arc<Mutex<Vec<Value>>>) {
    let (reader, mut writer) = tokio::io::split(pipe);
    let mut lines = BufReader::new(reader).lines();
    let mut call = Value::Null;
    let mut progress_sent = 0;
    loop {
        let is_working = !call.is_null();
        let message = tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => {
                    let message: Value = serde_json::from_str(&line).unwrap();
                    heard.lock().push(message.clone());
                    let id = &message["id"];
                    match message["method"].as_str().unwrap_or_default() {
                        "initialize" => json!({ "jsonrpc": "2.0", "id": id, "result": {
                            "protocolVersion": message["params"]["protocolVersion"],
                            "capabilities": {}, "serverInfo": { "name": "s", "version": "1" },
                        }}),
                        "tools/call" => { call = message; continue }
                        _ => continue,
                    }
                }
                _ => return,
            },
            () = tokio::time::sleep(Duration::from_secs(3)), if is_working && progress_sent <= steps => {
                progress_sent += 1;
                if progress_sent <= steps {
                    let token = &call["params"]["_meta"]["progressToken"];
                    let params = json!({ "progressToken": token, "progress": progress_sent });
                    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
                } else if answers {
                    json!({ "jsonrpc": "2.0", "id": call["id"], "result": { "content": [] } })
                } else {
                    continue;
                }
            }
        };
        writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
}

/// A server in this state, whose calls may take five seconds without progress and twenty in total.
fn server(state: ServerState) -> Arc<Server> {
    let (spec, env) = spec_and_env();
    Server::unchanging(spec, env, state)
}

/// The configuration of such a server.
fn spec_and_env() -> (ServerSpec, ServerEnv) {
    let nowhere = PathBuf::from("/nowhere");
    let env = ServerEnv {
        cwd: nowhere.clone(),
        roots: Vec::new(),
        profile: None,
        elicitation: ElicitationModes::default(),
        memory: None,
        logins: LoginStore::new(&nowhere),
        package_caches: Vec::new(),
        private_caches: nowhere.clone(),
    };
    let transport =
        ServerTransport::Stdio { command: nowhere, arguments: Vec::new(), environment: Vec::new() };
    let mut spec = ServerSpec::new("s", ServerSource::Client, transport);
    let call = Duration::from_secs(5);
    let call_total = Duration::from_secs(20);
    spec.timeouts = ServerTimeouts { call, call_total, ..ServerTimeouts::default() };
    (spec, env)
}

fn message_of(error: CallError) -> String {
    match error {
        CallError::Failed(message) => message,
        CallError::ConnectionLost => "lost".to_owned(),
    }
}

/// Calls such a server. Returns the result, and whether the call was cancelled.
async fn outcome(steps: u64, answers: bool) -> (Result<ToolResult, String>, bool) {
    let (ours, its) = tokio::io::duplex(64 * 1024);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    tasks.spawn(play_server(its, steps, answers, Arc::clone(&heard)));
    let handler = ServerMessageHandler::silent();
    let (reader, writer) = tokio::io::split(ours);
    let reader = MessageReader::new(reader, CancellationToken::new());
    let (peer, _connection) = process::connect(reader, writer, handler);
    handshake::initialize(&peer).await.unwrap();
    let cancel = CancellationToken::new();
    let caller = WaitingCall::new("c1".into(), Arc::new(SilentClient::default()), &cancel);
    let server = server(ServerState::default());
    let tool = ("t", JsonObject::new());
    let result = call(&server, (&peer, 1), tool, &caller).await.map_err(message_of);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let is_cancelled =
        heard.lock().iter().any(|message| message["method"] == "notifications/cancelled");
    (result, is_cancelled)
}

#[tokio::test(start_paused = true)]
async fn m_9_progress_gives_a_call_more_time_but_not_for_ever() {
    let (result, is_cancelled) = outcome(0, false).await;
    assert!(result.unwrap_err().contains("there was no progress for 5 s") && is_cancelled);
    let (result, is_cancelled) = outcome(1000, false).await;
    assert!(result.unwrap_err().contains("it ran for 20 s") && is_cancelled);
    let (result, is_cancelled) = outcome(4, true).await;
    assert_eq!((result, is_cancelled), (Ok(ToolResult::default()), false));
}

#[tokio::test(start_paused = true)]
async fn a_question_with_an_id_that_is_in_use_is_refused_and_the_first_one_can_be_withdrawn() {
    let (ours, its) = tokio::io::duplex(64 * 1024);
    let handler = ServerMessageHandler::silent();
    let cancel = CancellationToken::new();
    let callers = handler.callers.clone();
    let call = WaitingCall::new("c1".into(), Arc::new(SilentClient::default()), &cancel);
    let _waiting = callers.add(call);
    let (reader, writer) = tokio::io::split(ours);
    let reader = MessageReader::new(reader, CancellationToken::new());
    let (_peer, _connection) = process::connect(reader, writer, handler);
    let (reader, mut writer) = tokio::io::split(its);
    let question = json!({ "jsonrpc": "2.0", "id": 7, "method": "elicitation/create",
        "params": { "message": "?", "requestedSchema": { "type": "object", "properties": {} } } });
    let withdrawal = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 7 } });
    // The third question comes before the first one has been answered.
    let sent = format!("{question}\n{question}\n{withdrawal}\n{question}\n");
    writer.write_all(sent.as_bytes()).await.unwrap();
    let mut answers = BufReader::new(reader).lines();
    for _ in 0..3 {
        let waited = tokio::time::timeout(Duration::from_secs(60), answers.next_line()).await;
        let line = waited.expect("each question is answered").unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&answer["id"], &answer["result"]["action"]), (&json!(7), &json!("cancel")));
    }
}

/// Plays a server of the newest revision that answers a call with the first of these states of a task, and each
/// `tasks/get` with the next one, the last for ever. `$N` is the number of the answer. A state may be
/// `{"refuse": ERROR}` and `{"silent": true}`.
async fn play_task(pipe: DuplexStream, states: Vec<Value>, heard: Arc<Mutex<Vec<Value>>>) {
    let (reader, mut writer) = tokio::io::split(pipe);
    let mut lines = BufReader::new(reader).lines();
    let mut told = 0;
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        heard.lock().push(message.clone());
        let mut result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
            }),
            "tools/call" | "tasks/get" => {
                let state = states.get(told).or(states.last()).unwrap();
                told += 1;
                let text = state.to_string().replace("$N", &told.to_string());
                serde_json::from_str(&text).unwrap()
            }
            _ => json!({}),
        };
        if message["id"].is_null() || result["silent"] == true {
            continue;
        }
        if message["method"] == "tools/call" {
            result["resultType"] = "task".into();
        }
        let answer = match result.get("refuse") {
            Some(error) => json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }),
            None => json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }),
        };
        writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
}

/// Connects to such a server. Returns the peer, the messages that the server hears, and the tasks of both.
async fn connect_to_task(states: &[Value]) -> (Peer, Arc<Mutex<Vec<Value>>>, JoinSet<()>) {
    let (ours, its) = tokio::io::duplex(64 * 1024);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (reader, writer) = tokio::io::split(ours);
    let reader = MessageReader::new(reader, CancellationToken::new());
    let (peer, mut tasks) = process::connect(reader, writer, ServerMessageHandler::silent());
    tasks.spawn(play_task(its, states.to_vec(), Arc::clone(&heard)));
    handshake::discover(&peer).await.unwrap();
    (peer, heard, tasks)
}

/// Calls such a server, and cancels the call after this time. Returns the result, the methods that the server
/// heard, and the texts on the card.
async fn task_outcome(
    states: &[Value],
    cancelled_after: Duration,
) -> (Result<ToolResult, String>, Vec<Value>, Vec<String>) {
    let (peer, heard, mut tasks) = connect_to_task(states).await;
    let cancel = CancellationToken::new();
    let client = Arc::new(SilentClient::default());
    let caller = WaitingCall::new("c1".into(), Arc::clone(&client) as Arc<dyn Client>, &cancel);
    let canceller = cancel.clone();
    tasks.spawn(async move {
        tokio::time::sleep(cancelled_after).await;
        canceller.cancel();
    });
    let server = server(ServerState::default());
    let tool = ("t", JsonObject::new());
    let result = call(&server, (&peer, 1), tool, &caller).await.map_err(message_of);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let methods = heard.lock().iter().map(|message| message["method"].clone()).collect();
    let texts = client.0.lock().clone();
    (result, methods, texts)
}

/// A state of the task, with these fields.
fn state(fields: Value) -> Value {
    let mut state = json!({ "taskId": "t-1", "status": "working" });
    let Value::Object(fields) = fields else { return fields };
    for (name, value) in fields {
        state[name] = value;
    }
    state
}

const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_end_well_fails_its_call_and_is_cancelled_if_it_runs() {
    let error = json!({ "code": -32603, "message": "over the quota" });
    let unknown = json!({ "refuse": { "code": -32602, "message": "Task not found" } });
    let table = [
        (json!({ "status": "failed", "error": error }), "ended as failed: {\"code\":-32603", false),
        (json!({ "status": "failed", "error": 7, "statusMessage": [] }), "as failed: 7", false),
        (json!({ "status": "cancelled", "statusMessage": "no time" }), "cancelled: no time", false),
        (json!({ "status": "completed" }), "it is not a tool result", false),
        (unknown, "no longer reports on the call's task: error -32602: Task not found", true),
        (json!({ "refuse": error }), "no longer reports on the call's task: error", true),
        (json!({ "taskId": "t-2" }), "it reported on another task", true),
        (json!({ "taskId": 1 }), "it reported on another task", true),
        (json!("done"), "it reported on another task", true),
        (json!({ "status": "done" }), "it does not say whether the call's task has ended", true),
        (json!({ "status": null }), "it does not say whether the call's task has ended", true),
        (json!({ "ttlMs": 3000 }), "it no longer keeps the call's task", true),
        (json!({ "ttlMs": "soon" }), "there was no progress for 5 s", true),
        (json!({ "silent": true }), "there was no progress for 5 s", true),
        (json!({ "statusMessage": "step $N" }), "it ran for 20 s", true),
        (json!({ "inputRequests": 7 }), "there was no progress for 5 s", true),
        (
            json!({ "status": "input_required", "pollIntervalMs": 0,
                "inputRequests": { "$N": { "method": "roots/list" } } }),
            "it kept asking for more input",
            true,
        ),
        (
            json!({ "status": "input_required", "inputRequests": { "a": { "method": "x" } } }),
            "it asks for something that is not supported",
            true,
        ),
    ];
    for (next, expected, is_cancelled) in table {
        let (result, methods, _) = task_outcome(&[state(json!({})), state(next)], NEVER).await;
        let why = result.expect_err(expected);
        assert!(why.contains(expected), "{expected}: {why}");
        assert_eq!(methods.contains(&json!("tasks/cancel")), is_cancelled, "{expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_id_cannot_be_used_fails_its_call() {
    for id in [json!(null), json!(""), json!(7), json!("x".repeat(2000))] {
        let (result, methods, _) = task_outcome(&[state(json!({ "taskId": id }))], NEVER).await;
        assert!(result.unwrap_err().contains("a task that cannot be used"), "{id}");
        assert!(!methods.contains(&json!("tasks/get")), "{methods:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn m_51_a_cancelled_call_cancels_its_task_without_waiting_for_the_server() {
    for next in [json!({}), json!({ "silent": true })] {
        let states = [state(json!({})), state(next)];
        let (result, methods, _) = task_outcome(&states, Duration::from_millis(2_500)).await;
        assert!(result.unwrap_err().starts_with("Cancelled by the user."));
        assert_eq!(methods.iter().filter(|method| **method == "tasks/cancel").count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn m_51_a_task_is_cancelled_over_the_connection_that_its_server_has_now() {
    let states = [state(json!({}))];
    let (lost, heard_before, _tasks) = connect_to_task(&states).await;
    let (peer, heard, _other_tasks) = connect_to_task(&states).await;
    let now = ServerState { peer: Some(peer), connection: 2, ..ServerState::default() };
    let cancel = CancellationToken::new();
    let caller = WaitingCall::new("c1".into(), Arc::new(SilentClient::default()), &cancel);
    let server = server(now);
    // The task is looked at for the first time after a second.
    let calling = call(&server, (&lost, 1), ("t", JsonObject::new()), &caller);
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        lost.close();
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(calling, cancelling);
    assert!(message_of(result.unwrap_err()).starts_with("Cancelled by the user."));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let is_cancel = |message: &&Value| message["method"] == "tasks/cancel";
    assert_eq!(heard.lock().iter().filter(is_cancel).count(), 1);
    assert_eq!(heard_before.lock().iter().filter(is_cancel).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn m_51_a_task_is_cancelled_over_the_next_connection_if_that_comes_soon() {
    for (seconds, count) in [(4, 1), (6, 0)] {
        let states = [state(json!({}))];
        let (lost, heard_before, _tasks) = connect_to_task(&states).await;
        let (next, heard, _next_tasks) = connect_to_task(&states).await;
        let reconnecting =
            ServerState { connection: 1, is_restarting: true, ..ServerState::default() };
        let (publisher, watched) = watch::channel(Arc::new(reconnecting));
        let (spec, env) = spec_and_env();
        let server = Server::new(spec, env, watched, CancellationToken::new());
        let cancel = CancellationToken::new();
        let caller = WaitingCall::new("c1".into(), Arc::new(SilentClient::default()), &cancel);
        let calling = call(&server, (&lost, 1), ("t", JsonObject::new()), &caller);
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            lost.close();
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        };
        let (result, ()) = tokio::join!(calling, cancelling);
        assert!(message_of(result.unwrap_err()).starts_with("Cancelled by the user."));
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let connected = ServerState { peer: Some(next), connection: 2, ..ServerState::default() };
        publisher.send_replace(Arc::new(connected));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let is_cancel = |message: &&Value| message["method"] == "tasks/cancel";
        assert_eq!(heard.lock().iter().filter(is_cancel).count(), count, "{seconds}");
        assert_eq!(heard_before.lock().iter().filter(is_cancel).count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn m_54_the_result_of_a_task_that_has_ended_with_the_first_answer_is_asked_for_at_once() {
    let done = state(json!({ "status": "completed", "pollIntervalMs": 30_000,
        "result": { "content": [] } }));
    let begun = Instant::now();
    let (result, methods, _) = task_outcome(&[done], NEVER).await;
    assert_eq!(result, Ok(ToolResult::default()));
    assert_eq!(methods.iter().filter(|method| **method == "tasks/get").count(), 1);
    // The helper itself waits for a second.
    assert!(begun.elapsed() < Duration::from_millis(1_200), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn m_52_a_question_is_withdrawn_when_its_task_no_longer_requires_the_answer() {
    let question = json!({ "method": "elicitation/create", "params": { "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} } } });
    let asking = state(json!({ "status": "input_required", "inputRequests": { "who": question } }));
    let working = state(json!({}));
    let goes_on = state(json!({ "statusMessage": "goes on" }));
    let done = state(json!({ "status": "completed", "result": { "content": [] } }));
    let failed = state(json!({ "status": "failed" }));
    let unlisted = state(json!({ "status": "input_required" }));
    let silent = json!({ "silent": true });
    let withdrawn = &["withdrawn"][..];
    let table = [
        (vec![&asking, &asking, &done], "", withdrawn),
        (vec![&asking, &failed], "ended as failed", withdrawn),
        (vec![&asking, &working, &goes_on, &done], "", &["withdrawn", "s: goes on"][..]),
        // The same question again is shown again, because it was not answered.
        (vec![&asking, &working, &asking, &done], "", &["withdrawn", "withdrawn"][..]),
        // While the user is asked, only the limit of the whole call counts.
        (vec![&asking], "it ran for 20 s", withdrawn),
        (vec![&asking, &unlisted], "it ran for 20 s", withdrawn),
        (vec![&asking, &silent], "it ran for 20 s", withdrawn),
    ];
    for (states, expected, shown) in table {
        let states: Vec<Value> = states.into_iter().cloned().collect();
        let (result, methods, texts) = task_outcome(&states, NEVER).await;
        match result {
            Ok(_) => assert_eq!(expected, ""),
            Err(why) => assert!(!expected.is_empty() && why.contains(expected), "{why}"),
        }
        assert_eq!(texts, shown, "{expected}");
        assert!(!methods.contains(&json!("tasks/update")), "{methods:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_message_of_a_task_that_requires_input_is_shown() {
    let asking = state(json!({ "status": "input_required", "statusMessage": "one question",
        "inputRequests": { "folders": { "method": "roots/list" } } }));
    let done = state(json!({ "status": "completed", "result": { "content": [] } }));
    let (result, methods, texts) = task_outcome(&[asking, done], NEVER).await;
    assert_eq!(result, Ok(ToolResult::default()));
    assert!(methods.contains(&json!("tasks/update")), "{methods:?}");
    assert_eq!(texts, ["s: one question"]);
}

#[tokio::test(start_paused = true)]
async fn the_messages_of_a_task_are_shown_shortened_and_at_a_readable_rate() {
    let long = "x".repeat(1024 * 1024);
    let mut states = vec![state(json!({ "statusMessage": long, "pollIntervalMs": 0 }))];
    states.extend((0..40).map(|number| {
        state(json!({ "statusMessage": format!("step {number}"), "pollIntervalMs": 0 }))
    }));
    states.push(state(json!({ "status": "completed", "result": { "content": [] } })));
    let (result, methods, texts) = task_outcome(&states, NEVER).await;
    assert_eq!(result, Ok(ToolResult::default()));
    assert!(!methods.contains(&json!("tasks/cancel")), "{methods:?}");
    assert!(texts[0].starts_with("s: xxx") && texts[0].chars().count() <= 304, "{}", texts[0]);
    assert!((5..=25).contains(&texts.len()), "{texts:?}");
}

/// As after a suspension of the machine, or if the server is started late.
#[tokio::test(start_paused = true)]
async fn a_server_over_http_that_is_down_is_looked_for_again() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let (mut spec, env) = spec_and_env();
    spec.transport = ServerTransport::http(&format!("http://{address}/mcp"), []).unwrap();
    let environment = Environment::default();
    let tracker = TaskTracker::new();
    let server = Server::start(spec, env, environment, CancellationToken::new(), &tracker);
    let mut watch = server.watch();
    let down = watch
        .wait_for(|state| matches!(state.phase, ServerPhase::Failed(_)) && !state.is_restarting);
    assert!(down.await.is_ok());
    let listener = socket.listen(1).unwrap();
    let arrival = tokio::time::timeout(Duration::from_secs(600), listener.accept());
    assert!(arrival.await.is_ok(), "it is not looked for any more");
}

/// It may have failed because of the network, and an editor may keep its session open for weeks.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_tried_again_for_the_next_session() {
    let (mut spec, env) = spec_and_env();
    spec.transport = ServerTransport::http("http://127.0.0.1:9/mcp", []).unwrap();
    let stop = CancellationToken::new();
    let pool = ServerPool::new(Environment::default(), stop, TaskTracker::new());
    let first = pool.get(&spec, &env);
    assert!(Arc::ptr_eq(&first, &pool.get(&spec, &env)));
    let mut watch = first.watch();
    let down = watch
        .wait_for(|state| matches!(state.phase, ServerPhase::Failed(_)) && !state.is_restarting);
    assert!(down.await.is_ok());
    assert!(!Arc::ptr_eq(&first, &pool.get(&spec, &env)));
}
