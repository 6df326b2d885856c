//! The conversation that is held in both versions. The model plays scenario.json.

use std::fs;

use agent_client_protocol::Error;
use serde_json::{Value, json};

use crate::client::{Peer, Turn, check, shown};

pub async fn converse(peer: &Peer) -> Result<(), Error> {
    let opened = peer.call("session/new", json!({ "cwd": peer.cwd(), "mcpServers": [] })).await?;
    let session_id = text(&opened["sessionId"]);
    said("session/new", hello(peer, &session_id, "Say hello.").await)?;
    if peer.setting.has_proxies {
        said("a prompt that a proxy changes", hello(peer, &session_id, "Greet.").await)?;
    }
    said("calls and questions", calls(peer, &session_id).await)?;
    said("a command, a plan and a form", other_calls(peer, &session_id).await)?;
    said("mode and options", options(peer, &session_id).await)?;
    said("session/cancel", cancel(peer, &session_id).await)?;
    said("errors", errors(peer, &session_id).await)?;
    said("list, load and resume", again(peer, &session_id).await)?;
    said("fork, archive, status and title", unstable(peer, &session_id).await)?;
    said("delete", delete(peer, &session_id).await)
}

/// Names the step in its error, and prints it.
fn said(step: &str, outcome: Result<(), Error>) -> Result<(), Error> {
    println!("{step}");
    outcome.map_err(|mut error| {
        error.message = format!("{step}: {}", error.message);
        error
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

async fn hello(peer: &Peer, session_id: &str, prompt: &str) -> Result<(), Error> {
    let turn = peer.whole_turn(session_id, prompt).await?;
    check(turn.chunks.concat() == "Hello from the model.", &turn.chunks.concat())?;
    check(turn.chunks.len() > 1, "the text was not streamed")?;
    check(turn.thoughts.contains("A greeting."), &turn.thoughts)
}

fn status(turn: &Turn, place: usize) -> String {
    turn.cards.get(place).map(|it| text(&it["status"])).unwrap_or_default()
}

async fn calls(peer: &Peer, session_id: &str) -> Result<(), Error> {
    peer.inbox.choose("allow_once");
    let turn = peer.whole_turn(session_id, "Write allowed.txt").await?;
    check(peer.inbox.questions() == 1, "not one question")?;
    check(status(&turn, 0) == "completed", &format!("{:?}", turn.cards))?;
    let content = turn.cards[0]["content"].to_string();
    check(content.contains(r#""type":"diff""#), &content)?;
    let written = fs::read_to_string(peer.setting.project.join("allowed.txt"));
    check(written.is_ok_and(|it| it == "one\ntwo\n"), "it was not written")?;
    peer.inbox.choose("reject_once");
    let turn = peer.whole_turn(session_id, "Write rejected.txt").await?;
    check(peer.inbox.questions() == 2, "not two questions")?;
    check(status(&turn, 0) == "failed", &format!("{:?}", turn.cards))?;
    check(!peer.setting.project.join("rejected.txt").exists(), "it was written")
}

async fn other_calls(peer: &Peer, session_id: &str) -> Result<(), Error> {
    peer.inbox.choose("allow_once");
    let turn = peer.whole_turn(session_id, "Run a command").await?;
    check(status(&turn, 0) == "completed", &format!("{:?}", turn.cards))?;
    check(peer.setting.project.join("made").exists(), "it has not run")?;
    let turn = peer.whole_turn(session_id, "Make a plan").await?;
    let kind = if peer.is_v2 { "plan_update" } else { "plan" };
    check(turn.updates.iter().any(|it| it["sessionUpdate"] == kind), "no plan")?;
    peer.whole_turn(session_id, "Ask me").await?;
    check(peer.inbox.forms() == 1, "no form")
}

async fn options(peer: &Peer, session_id: &str) -> Result<(), Error> {
    if !peer.is_v2 {
        let params = json!({ "sessionId": session_id, "modeId": "auto-edit" });
        peer.call("session/set_mode", params).await?;
    }
    let mut params = json!({ "sessionId": session_id, "configId": "mode", "value": "ask" });
    if peer.is_v2 {
        params["type"] = json!("id");
    }
    let answer = peer.call("session/set_config_option", params.clone()).await?;
    let options = answer["configOptions"].as_array().cloned().unwrap_or_default();
    let is_mode = |it: &&Value| it["id"] == "mode" || it["configId"] == "mode";
    let mode = options.iter().find(is_mode).map(|it| it["currentValue"].clone());
    check(mode == Some(json!("ask")), &answer.to_string())?;
    params["value"] = json!("nonsense");
    refused(peer.call("session/set_config_option", params).await, -32602)
}

fn refused(outcome: Result<Value, Error>, code: i32) -> Result<(), Error> {
    match outcome {
        Err(error) if i32::from(error.code) == code => Ok(()),
        outcome => Err(Error::internal_error().data(format!("wanted {code}, got {outcome:?}"))),
    }
}

async fn cancel(peer: &Peer, session_id: &str) -> Result<(), Error> {
    let start = peer.inbox.len();
    let begun = peer.inbox.until(session_id, start, |updates| {
        updates.iter().find(|it| it["sessionUpdate"] == "agent_message_chunk").map(drop)
    });
    let cancelling = async {
        begun.await;
        let params = json!({ "sessionId": session_id });
        let message = agent_client_protocol::UntypedMessage::new("session/cancel", params)?;
        peer.connection.send_notification(message)
    };
    let (turn, ()) = tokio::try_join!(peer.turn(session_id, "Take long"), cancelling)?;
    check(turn.stop == "cancelled", &turn.stop)
}

async fn errors(peer: &Peer, session_id: &str) -> Result<(), Error> {
    let prompt = json!([{ "type": "text", "text": "Say hello." }]);
    let params = json!({ "sessionId": "nobody", "prompt": prompt });
    refused(peer.call("session/prompt", params).await, -32002)?;
    let params = json!({ "cwd": "relative", "mcpServers": [] });
    refused(peer.call("session/new", params).await, -32602)?;
    refused(peer.call("session/list", json!({ "cursor": "nonsense" })).await, -32602)?;
    refused(peer.call("_nobody/knows", json!({})).await, -32601)?;
    match peer.turn(session_id, "Fail").await {
        Ok(turn) if turn.stop == "error" => {
            let last = turn.updates.iter().rfind(|it| it["state"] == "idle");
            let error = last.map(|it| it["error"].to_string()).unwrap_or_default();
            check(error.contains("does not want to"), &error)
        }
        Ok(turn) => Err(Error::internal_error().data(format!("no error, but {}", turn.stop))),
        Err(error) => check(format!("{error:?}").contains("does not want to"), &error.message),
    }
}

async fn again(peer: &Peer, session_id: &str) -> Result<(), Error> {
    let listed = peer.call("session/list", json!({ "cwd": peer.cwd() })).await?;
    check(listed.to_string().contains(session_id), &listed.to_string())?;
    peer.call("session/close", json!({ "sessionId": session_id })).await?;
    let start = peer.inbox.len();
    let mut params = json!({ "sessionId": session_id, "cwd": peer.cwd(), "mcpServers": [] });
    if peer.is_v2 {
        params["replayFrom"] = json!({ "type": "start" });
        peer.call("session/resume", params.clone()).await?;
    } else {
        peer.call("session/load", params.clone()).await?;
    }
    let replayed = shown(peer.inbox.updates(session_id, start));
    check(replayed.chunks.concat().contains("Hello from the model."), "no answer was replayed")?;
    let of_user = replayed
        .updates
        .iter()
        .filter(|it| it["sessionUpdate"].as_str().is_some_and(|it| it.starts_with("user_message")));
    check(of_user.count() > 5, "no prompts were replayed")?;
    let failed = replayed.cards.iter().filter(|it| it["status"] == "failed").count();
    check(failed == 1 && replayed.cards.len() == 4, &format!("{:?}", replayed.cards))?;
    hello(peer, session_id, "Say hello.").await?;
    peer.call("session/close", json!({ "sessionId": session_id })).await?;
    let start = peer.inbox.len();
    params["replayFrom"] = Value::Null;
    peer.call("session/resume", params).await?;
    let messages = shown(peer.inbox.updates(session_id, start));
    check(messages.chunks.is_empty() && messages.cards.is_empty(), &format!("{messages:?}"))?;
    hello(peer, session_id, "Say hello.").await
}

async fn unstable(peer: &Peer, session_id: &str) -> Result<(), Error> {
    for name in ["fork", "archive", "status", "title"] {
        check(peer.capabilities[name].is_object(), &format!("no {name}"))?;
    }
    let params = json!({ "sessionId": session_id, "cwd": peer.cwd(), "mcpServers": [] });
    let fork = text(&peer.call("session/fork", params).await?["sessionId"]);
    check(fork != session_id, "the fork has the same id")?;
    hello(peer, &fork, "Say hello.").await?;
    let answer = peer.call("session/status", json!({ "sessionId": fork })).await?;
    check(answer["status"] == "open", &answer.to_string())?;
    let params = json!({ "sessionId": fork, "title": "The second" });
    let answer = peer.call("session/set_title", params).await?;
    check(answer["title"] == "The second", &answer.to_string())?;
    let only = json!({ "sessionId": fork });
    peer.call("session/close", only.clone()).await?;
    peer.call("session/archive", only.clone()).await?;
    let listed = peer.call("session/list", json!({ "cwd": peer.cwd() })).await?;
    check(!listed.to_string().contains(&fork), "an archived session is in the list")?;
    peer.call("session/unarchive", only.clone()).await?;
    peer.call("session/delete", only).await.map(drop)
}

async fn delete(peer: &Peer, session_id: &str) -> Result<(), Error> {
    let params = json!({ "sessionId": session_id });
    peer.call("session/close", params.clone()).await?;
    peer.call("session/delete", params).await?;
    let listed = peer.call("session/list", json!({ "cwd": peer.cwd() })).await?;
    check(listed["sessions"] == json!([]), &listed.to_string())
}
