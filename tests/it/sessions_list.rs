//! Titles of sessions (R-TITLE): a title that the user has set is kept across restarts.

use serde_json::{Value, json};
use turnwright_testing::session_requests::{code, open, result};

use crate::agent::{TestAgent, says};

fn list(agent: &mut TestAgent, params: &Value) -> Vec<Value> {
    let page = result(agent.call("session/list", params));
    page["sessions"].as_array().unwrap().clone()
}

#[test]
fn r_title_1_a_title_from_the_user_is_stored_before_the_answer_and_is_final() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    let session = agent.session.clone();
    let params = json!({ "sessionId": session, "title": "  My\n\u{202e}title " });
    let id = agent.request("session/set_title", &params);
    assert_eq!(agent.answer_to(&id)["result"], json!({ "title": "My title" }));
    let update = agent.wait_for_update("session_info_update");
    assert_eq!(update["title"], "My title");
    agent.turn("Another title");
    assert_eq!(agent.updates_of("session_info_update").len(), 1);
    agent.kill();
    agent.restart();
    assert_eq!(list(&mut agent, &json!({}))[0]["title"], "My title");
    // The session need not be open.
    let params = json!({ "sessionId": session, "title": "Later" });
    result(agent.call("session/set_title", &params));
    assert_eq!(list(&mut agent, &json!({}))[0]["title"], "Later");
    result(open(&mut agent, "session/resume", &session));
    agent.turn("Yet another");
    assert_eq!(list(&mut agent, &json!({}))[0]["title"], "Later");
    for empty in ["", " \n", "\u{200b}"] {
        let params = json!({ "sessionId": session, "title": empty });
        assert_eq!(code(&agent.call("session/set_title", &params)), -32602, "{empty:?}");
    }
    for params in [json!({ "sessionId": session }), json!({ "sessionId": session, "title": null })]
    {
        assert_eq!(code(&agent.call("session/set_title", &params)), -32602);
    }
    let params = json!({ "sessionId": "nobody", "title": "x" });
    assert_eq!(code(&agent.call("session/set_title", &params)), -32002);
}
