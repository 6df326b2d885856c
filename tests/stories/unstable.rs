//! Rows of the unstable surfaces of version 1 that no other story shows (R-FORK-1, R-ARCH-1, R-SYS-1, R-PROV-1, R-SUB-1).

use serde_json::{Value, json};
use turnwright_testing::session_requests::{code, result};

use crate::agent::{TestAgent, calls, says};

#[test]
fn r_fork_1_a_copy_has_the_folders_of_its_request() {
    let more = turnwright_testing::temporary_folder();
    let noted = more.path().join("noted.txt");
    std::fs::write(&noted, "from the other folder\n").unwrap();
    let read = |path: &str| calls("read_file", &json!({ "path": path }));
    let replies =
        json!([says("One."), read("only.txt"), read(noted.to_str().unwrap()), says("Done.")]);
    let mut agent =
        TestAgent::builder().file("below/only.txt", "from below\n").model(replies).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let params = json!({
        "sessionId": agent.session, "cwd": agent.path("below"), "mcpServers": [],
        "additionalDirectories": [more.path()],
    });
    let copy = result(agent.call("session/fork", &params));
    agent.session = copy["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(agent.turn("read both"), "end_turn");
    let told = agent.model_transcript(3).join("\n");
    assert!(told.contains("from below") && told.contains("from the other folder"), "{told}");
    let asked = agent.log.iter().filter(|it| it["method"] == "session/request_permission");
    assert_eq!(asked.count(), 0, "both are folders of the session");
}

#[test]
fn r_arch_1_r_prov_1_what_is_offered_goes_together() {
    let mut agent = TestAgent::builder().spawn();
    let answer = result(agent.call("initialize", &json!({ "protocolVersion": 1 })));
    let sessions = &answer["agentCapabilities"]["sessionCapabilities"];
    assert!(sessions["archive"].is_object() && sessions["list"].is_object(), "{sessions}");
    // No provider is required, so disabling one is never refused.
    let listed = result(agent.call("providers/list", &json!({})));
    let providers = listed["providers"].as_array().unwrap();
    assert!(
        !providers.is_empty() && providers.iter().all(|it| it["required"] == false),
        "{listed}"
    );
}

fn system(agent: &TestAgent, number: usize) -> String {
    agent.model_request(number)["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[test]
fn r_sys_1_every_request_that_opens_a_session_takes_a_system_prompt_or_opens_none() {
    let replies = json!([says("0"), says("1"), says("2"), says("3"), says("4")]);
    let mut agent = TestAgent::builder().model(replies).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let session = agent.session.clone();
    let with = |agent: &TestAgent, prompt: Value| {
        json!({
            "sessionId": session, "cwd": agent.workspace(), "mcpServers": [], "systemPrompt": prompt,
        })
    };
    let count = |agent: &mut TestAgent| {
        result(agent.call("session/list", &json!({})))["sessions"].as_array().unwrap().len()
    };
    let text = json!([{ "type": "text", "text": "Be brief." }]);
    for method in ["session/new", "session/load", "session/resume", "session/fork"] {
        let before = count(&mut agent);
        for refused in [
            json!({ "mode": "prepend", "content": text }),
            json!({ "mode": "_x", "content": text }),
            json!({ "mode": "append", "content": [{ "type": "image", "mimeType": "image/png", "data": "AAAA" }] }),
        ] {
            let params = with(&agent, refused);
            assert_eq!(code(&agent.call(method, &params)), -32602, "{method} {params}");
            assert_eq!(count(&mut agent), before, "{method} {params}");
        }
    }
    // What was refused has not closed the session either.
    assert_eq!(agent.turn("still there?"), "end_turn");
    let append = json!({ "mode": "append", "content": text });
    for (number, method) in [(2, "session/fork"), (3, "session/load"), (4, "session/resume")] {
        let params = with(&agent, append.clone());
        let opened = result(agent.call(method, &params));
        agent.session = opened["sessionId"].as_str().unwrap_or(&session).to_owned();
        assert_eq!(agent.turn("hi"), "end_turn");
        assert!(system(&agent, number).ends_with("\nBe brief.\n"), "{method}");
    }
}

#[test]
fn r_sub_1_a_client_without_the_capability_is_told_of_one_session_only() {
    let task = json!({ "type": "explore", "description": "task", "prompt": "the task" });
    let replies = json!({ "steps": [{ "text": "Found." }], "when": "the task" });
    let mut agent =
        TestAgent::builder().model(json!([calls("agent", &task), says("Done."), replies])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let updates = agent.log.iter().filter(|it| it["method"] == "session/update");
    for update in updates {
        assert_eq!(update["params"]["sessionId"], agent.session.as_str(), "{update}");
        assert_ne!(update["params"]["update"]["sessionUpdate"], "subagent_update");
    }
    assert_eq!(agent.model().requests().len(), 3, "the helper has run");
}
