//! Tests a connection with an in-memory server and a paused clock.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::call::{CallError, ToolResult, call};
use crate::call::server_requests::{ServerMessageHandler, WaitingCall};
use crate::features::JsonObject;
use crate::server::handshake;
use crate::server::spec::ServerTimeouts;
use crate::transport::process::{self, MessageReader};
use turnwright_types::client::{
    Client, FormOutcome, PermissionAnswer as Permission, PermissionRequest, ServerForm,
    UserQuestion, UserReply,
};
use turnwright_types::update::Update;

/// A client that ignores every update and answers no question.
struct SilentClient;

impl Client for SilentClient {
    fn update(&self, _: Update) {}

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
        Box::pin(std::future::pending())
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
    let caller = WaitingCall::new("c1".into(), Arc::new(SilentClient), &cancel);
    let call_limit = Duration::from_secs(5);
    let most = Duration::from_secs(20);
    let timeouts =
        ServerTimeouts { call: call_limit, call_total: most, ..ServerTimeouts::default() };
    let tool = ("t", JsonObject::new());
    let result = call(&peer, tool, timeouts, &caller).await;
    let result = result.map_err(|error| match error {
        CallError::Failed(message) => message,
        CallError::ConnectionLost => "lost".to_owned(),
    });
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
    let call = WaitingCall::new("c1".into(), Arc::new(SilentClient), &cancel);
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
