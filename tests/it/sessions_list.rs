//! A title that the user has chosen outlives the process (R-TITLE).

use serde_json::{Value, json};
use turnwright_testing::session_requests::{code, open, result};

use crate::agent::{TestAgent, says};

fn list(agent: &mut TestAgent, params: &Value) -> Vec<Value> {
    let page = result(agent.call("session/list", params));
    page["sessions"].as_array().unwrap().clone()
}

/// What the client was told of the session itself.
fn infos(agent: &TestAgent) -> Vec<Value> {
    let updates = agent.updates();
    updates.into_iter().filter(|it| it["sessionUpdate"] == "session_info_update").collect()
}

#[test]
fn r_title_1_a_persons_title_is_kept_before_the_answer_and_is_final() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    let session = agent.session.clone();
    let wanted = json!({ "sessionId": session, "title": "  My\n\u{202e}title " });
    let id = agent.request("session/set_title", &wanted);
    assert_eq!(agent.answer_to(&id)["result"], json!({ "title": "My title" }));
    let told = agent.wait_for_update("session_info_update");
    assert_eq!(told["title"], "My title");
    agent.turn("Another title");
    assert_eq!(infos(&agent).len(), 1);
    agent.kill();
    agent.restart();
    assert_eq!(list(&mut agent, &json!({}))[0]["title"], "My title");
    // It need not be open.
    let wanted = json!({ "sessionId": session, "title": "Later" });
    result(agent.call("session/set_title", &wanted));
    assert_eq!(list(&mut agent, &json!({}))[0]["title"], "Later");
    result(open(&mut agent, "session/resume", &session));
    agent.turn("Yet another");
    assert_eq!(list(&mut agent, &json!({}))[0]["title"], "Later");
    for nothing in ["", " \n", "\u{200b}"] {
        let params = json!({ "sessionId": session, "title": nothing });
        assert_eq!(code(&agent.call("session/set_title", &params)), -32602, "{nothing:?}");
    }
    for params in [json!({ "sessionId": session }), json!({ "sessionId": session, "title": null })]
    {
        assert_eq!(code(&agent.call("session/set_title", &params)), -32602);
    }
    let params = json!({ "sessionId": "nobody", "title": "x" });
    assert_eq!(code(&agent.call("session/set_title", &params)), -32002);
}
