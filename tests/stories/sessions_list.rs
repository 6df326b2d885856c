//! Lists of sessions, and the titles of sessions (R-LIST, R-INFO, R-TITLE).

use std::collections::HashSet;

use serde_json::{Value, json};
use turnwright_testing::cancellation::hangs;
use turnwright_testing::session_requests::{code, open, result};

use crate::agent::{TestAgent, prompt, says};

fn list(agent: &mut TestAgent, params: &Value) -> Vec<Value> {
    let page = result(agent.call("session/list", params));
    page["sessions"].as_array().unwrap().clone()
}

fn ids(sessions: &[Value]) -> Vec<String> {
    sessions.iter().map(|it| it["sessionId"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn r_list_1_a_list_may_be_empty_and_all_parameters_are_optional() {
    let mut agent = TestAgent::builder().initialize();
    for params in [
        json!({}),
        Value::Null,
        json!({ "cwd": null, "cursor": null, "archived": null }),
        json!({ "cwd": agent.path("no such folder") }),
    ] {
        let page = result(agent.call("session/list", &params));
        assert_eq!(page, json!({ "sessions": [] }), "{params}");
    }
    assert_eq!(code(&agent.call("session/list", &json!({ "cwd": "relative" }))), -32602);
}

#[test]
fn r_list_2_sessions_of_a_folder_are_listed_newest_first_under_both_names_of_the_folder() {
    let mut agent = TestAgent::builder()
        .file("other/x", "")
        .model(json!([says("1"), says("2"), says("3")]))
        .initialize();
    let link = agent.path(if cfg!(unix) { "link" } else { "OTHER" });
    #[cfg(unix)]
    std::os::unix::fs::symlink(agent.path("other"), &link).unwrap();
    let mut all = Vec::new();
    for cwd in [agent.workspace().to_path_buf(), agent.path("other"), link.clone()] {
        let answer = agent.call("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
        agent.turn("hello");
        all.push(agent.session.clone());
    }
    all.reverse();
    assert_eq!(ids(&list(&mut agent, &json!({}))), all);
    for cwd in [agent.path("other"), link.clone()] {
        let found = list(&mut agent, &json!({ "cwd": cwd }));
        assert_eq!(ids(&found), all[..2], "{}", cwd.display());
        assert_eq!(
            found[0]["cwd"],
            json!(link),
            "the folder must have the name that the client gave"
        );
    }
    for item in list(&mut agent, &json!({})) {
        assert_eq!(item["title"], "hello");
        assert_eq!(item["archived"], false);
        assert!(item["updatedAt"].as_str().unwrap().ends_with('Z'), "{item}");
    }
}

#[test]
fn r_list_3_pages_have_each_session_once_and_an_invalid_cursor_is_refused() {
    let mut agent = TestAgent::builder().model(json!([says("1"), says("2")])).initialize();
    let all: HashSet<_> = (0..120).map(|_| agent.new_session()).collect();
    let (mut seen, mut cursor) = (Vec::new(), json!(""));
    loop {
        let page = result(agent.call("session/list", &json!({ "cursor": cursor })));
        let sessions = page["sessions"].as_array().unwrap().clone();
        assert!(sessions.len() <= 50);
        seen.extend(ids(&sessions));
        // The order of the sessions changes between two pages.
        agent.session.clone_from(&seen[0]);
        if seen.len() < 101 {
            agent.turn("hello");
        }
        agent.new_session();
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
        assert!(cursor.is_string());
    }
    assert_eq!(seen.len(), 120);
    assert_eq!(seen.into_iter().collect::<HashSet<_>>(), all);
    for junk in ["x", "1", "0.0.0.0", "../..", "é"] {
        assert_eq!(code(&agent.call("session/list", &json!({ "cursor": junk }))), -32602, "{junk}");
    }
    assert_eq!(code(&agent.call("session/list", &json!({ "cursor": 5 }))), -32602);
}

#[test]
fn r_list_4_a_list_changes_nothing_and_is_answered_during_a_turn() {
    let mut agent = TestAgent::builder().model(json!([says("One."), hangs()])).start();
    agent.turn("one");
    let before = list(&mut agent, &json!({}));
    let id = agent.prompt("two");
    agent.wait_for("a text chunk", |it| it["params"]["update"]["content"]["text"] == "I think");
    let during = list(&mut agent, &json!({}));
    assert_eq!(ids(&before), ids(&during));
    assert_eq!(during, list(&mut agent, &json!({})));
    agent.cancel();
    agent.stop_reason(&id);
    // A session without messages is listed only while this agent has it open.
    let empty = agent.new_session();
    assert_eq!(list(&mut agent, &json!({})).len(), 2);
    agent.restart();
    let kept = list(&mut agent, &json!({}));
    assert_eq!(kept, list(&mut agent, &json!({})));
    assert_eq!(ids(&kept), ids(&before));
    result(open(&mut agent, "session/resume", &empty));
    assert_eq!(list(&mut agent, &json!({})).len(), 2);
}

#[test]
fn r_info_1_the_first_prompt_sets_the_title_once_and_a_command_sets_none() {
    let key = "sk-test-0123456789";
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("/status");
    assert_eq!(agent.updates_of("session_info_update"), [Value::Null; 0]);
    let text = format!("\n## Fix the **build** with {key}\nand more");
    let id = agent.prompt(&text);
    agent.stop_reason(&id);
    let sent = agent.updates_of("session_info_update");
    assert_eq!(sent.len(), 1, "{sent:?}");
    let title = sent[0]["title"].as_str().unwrap();
    assert!(title.starts_with("Fix the build with [hidden:"), "{title}");
    assert!(sent[0]["updatedAt"].is_string() && sent[0].get("cwd").is_none());
    let position = |fits: &dyn Fn(&Value) -> bool| agent.log.iter().position(fits).unwrap();
    let info = position(&|it| it["params"]["update"]["sessionUpdate"] == "session_info_update");
    assert!(info < position(&|it| it["id"] == id && it.get("method").is_none()));
    agent.turn("Something else");
    assert_eq!(agent.updates_of("session_info_update").len(), 1);
    agent.restart();
    assert_eq!(list(&mut agent, &json!({}))[0]["title"], title);
    let session = agent.session.clone();
    result(open(&mut agent, "session/load", &session));
    assert_eq!(agent.updates_of("session_info_update")[0]["title"], title);
}

#[test]
fn r_title_1_a_title_that_is_set_after_the_first_prompt_is_kept() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let session = agent.session.clone();
    let prompted = agent.request("session/prompt", &prompt(&session, "of the prompt"));
    let params = json!({ "sessionId": session, "title": "mine" });
    let titled = agent.request("session/set_title", &params);
    agent.stop_reason(&prompted);
    result(agent.answer_to(&titled));
    agent.sync();
    let sent = agent.updates_of("session_info_update");
    assert_eq!(sent.last().unwrap()["title"], "mine", "{sent:?}");
    assert_eq!(list(&mut agent, &json!({}))[0]["title"], "mine");
}
