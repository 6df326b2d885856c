//! How long a call may take, against a server in memory and a clock that jumps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::CallToolRequestParams;
use rmcp::service::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::call::{Asker, Trouble, call};
use super::content::Answer;
use super::elicit::Callers;
use super::handler::Handler;
use super::progress::Progress;
use super::spec::Limits;
use turnwright_types::ids::CallId;
use crate::tools::ToolCtx;
use crate::turn::stage::stage;

/// Plays a server that tells of progress every three seconds, so many times, and then answers if
/// it is to.
async fn play(pipe: DuplexStream, steps: u64, answers: bool, heard: Arc<Mutex<Vec<Value>>>) {
    let (reader, mut writer) = tokio::io::split(pipe);
    let mut lines = BufReader::new(reader).lines();
    let mut call = Value::Null;
    let mut told = 0;
    loop {
        let is_working = !call.is_null();
        let message = tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => {
                    let message: Value = serde_json::from_str(&line).unwrap();
                    heard.lock().unwrap().push(message.clone());
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
            () = tokio::time::sleep(Duration::from_secs(3)), if is_working && told <= steps => {
                told += 1;
                if told <= steps {
                    let token = &call["params"]["_meta"]["progressToken"];
                    let params = json!({ "progressToken": token, "progress": told });
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

/// A call of such a server: what came of it, and whether it was called off.
async fn outcome(steps: u64, answers: bool) -> (Result<Answer, String>, bool) {
    let (ours, its) = tokio::io::duplex(64 * 1024);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    tasks.spawn(play(its, steps, answers, Arc::clone(&heard)));
    let progress = Progress::default();
    let changed = Arc::new(Notify::new());
    let handler = Handler {
        roots: Arc::default(),
        changed,
        server: "s".to_owned(),
        forms: false,
        callers: Callers::default(),
        progress: progress.clone(),
    };
    let (reader, writer) = tokio::io::split(ours);
    let service = handler.serve(AsyncRwTransport::new_client(reader, writer)).await.unwrap();
    let stage = stage(Vec::new(), false, None);
    let ctx = ToolCtx {
        bench: Arc::clone(&stage.equipment.bench),
        call: CallId::from("c1"),
        cancel: CancellationToken::new(),
    };
    let (call_limit, most) = (Duration::from_secs(5), Duration::from_secs(20));
    let limits = Limits { call: call_limit, most, ..Limits::default() };
    let params = CallToolRequestParams::new("t");
    let result = call(service.peer(), &progress, params, limits, Asker::default(), &ctx).await;
    let result = result.map_err(|it| match it {
        Trouble::Told(words) => words,
        Trouble::Lost => "lost".to_owned(),
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let is_off = heard.lock().unwrap().iter().any(|it| it["method"] == "notifications/cancelled");
    (result, is_off)
}

#[tokio::test(start_paused = true)]
async fn m_9_progress_gives_a_call_more_time_but_not_for_ever() {
    let (result, is_off) = outcome(0, false).await;
    assert!(result.unwrap_err().contains("nothing was heard of it for 5 s") && is_off);
    let (result, is_off) = outcome(1000, false).await;
    assert!(result.unwrap_err().contains("it went on for 20 s") && is_off);
    let (result, is_off) = outcome(4, true).await;
    assert_eq!((result, is_off), (Ok(Answer::default()), false));
}
