//! Skills in version 2 (R-SKILL-1 to R-SKILL-3): they are commands of their own kind for clients that know it, and blocks
//! of a prompt invoke them.

use serde_json::{Value, json};
use turnwright_testing::session_requests::{code, result};

use crate::agent::{TestAgent, TestAgentBuilder, calls, real_name, says};

const NOTES: &str = "---\nname: release-notes\ndescription: Use when: a release is made\n---\n\
                     Write $ARGUMENTS for people.\n";

fn with_skills() -> TestAgentBuilder {
    TestAgent::builder()
        .file(".claude/skills/release-notes/SKILL.md", NOTES)
        .file(".claude/skills/deploy/SKILL.md", "---\ndescription: Puts it out\n---\nPush it.\n")
        .file(".claude/skills/status/SKILL.md", "---\ndescription: Hidden\n---\nOf nobody.\n")
        .file(".claude/commands/seed.md", "Seed the database.\n")
}

fn v2() -> TestAgentBuilder {
    with_skills().v2().capabilities(json!({ "session": { "commands": { "skill": {} } } }))
}

fn skill(name: &str) -> Value {
    json!({ "type": "skill", "name": name })
}

fn text(words: &str) -> Value {
    json!({ "type": "text", "text": words })
}

/// The entry of the client's menu with this name.
fn entry(agent: &TestAgent, name: &str) -> Value {
    let menu = agent.updates_of("available_commands_update").pop().unwrap();
    let found = menu["availableCommands"].as_array().unwrap().iter().find(|it| it["name"] == name);
    found.cloned().unwrap_or_default()
}

/// The last user message of the n-th request to the model.
fn last_prompt(agent: &TestAgent, number: usize) -> String {
    let body = agent.model_request(number);
    let messages = body["messages"].as_array().unwrap();
    let last = messages.iter().rfind(|it| it["role"] == "user").unwrap();
    last["content"].as_str().unwrap().to_owned()
}

#[test]
fn v2_skills_are_entries_of_their_own_kind_only_for_a_client_that_knows_it() {
    let mut agent = v2().model(json!([says("One.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let expected = json!({
        "type": "skill", "name": "release-notes",
        "description": "Use when: a release is made (skill)",
        "path": real_name(&agent.path(".claude/skills/release-notes/SKILL.md")),
    });
    assert_eq!(entry(&agent, "release-notes"), expected);
    assert_eq!(entry(&agent, "seed")["type"], "command");
    assert_eq!(entry(&agent, "status")["type"], "command", "a command keeps its name");
    let mut agent = with_skills().v2().model(json!([says("One.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let notes = entry(&agent, "release-notes");
    assert!(notes["type"] == "command" && notes["input"].is_object(), "{notes}");
    assert!(notes.get("path").is_none(), "{notes}");
}

#[test]
fn v2_skills_are_invoked_by_blocks_at_any_place_and_replayed_as_they_were_sent() {
    let load = calls("skill", &json!({ "name": "deploy" }));
    let mut agent = v2().model(json!([load, says("Done."), says("Again.")])).start();
    let mut initialized = agent.log.iter().map(|it| &it["result"]["capabilities"]["session"]);
    let offered = initialized.find(|session| session.is_object()).unwrap();
    assert_eq!(offered["prompt"]["skill"], json!({ "inline": {} }));
    let notes = skill("release-notes");
    let blocks = json!([text("Use "), notes, text(" and "), skill("deploy"), notes]);
    let params = json!({ "sessionId": agent.session, "prompt": blocks });
    let id = agent.request("session/prompt", &params);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let prompt = last_prompt(&agent, 0);
    assert!(prompt.starts_with("Use /release-notes  and /deploy /release-notes "), "{prompt}");
    assert_eq!(prompt.matches("<skill_content name=\"release-notes\"").count(), 1, "{prompt}");
    assert!(prompt.contains("Write  for people.") && prompt.contains("Push it."), "{prompt}");
    assert!(agent.model_request(1).to_string().contains("loaded already"));
    assert_eq!(agent.updates_of("user_message")[0]["content"], blocks);
    // A skill alone is a prompt, too.
    let params = json!({ "sessionId": agent.session, "prompt": [skill("deploy")] });
    let id = agent.request("session/prompt", &params);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(last_prompt(&agent, 2).contains("Push it."));

    let session = agent.session.clone();
    agent.restart();
    let params = json!({
        "sessionId": session, "cwd": agent.workspace(), "replayFrom": { "type": "start" },
    });
    result(agent.call("session/resume", &params));
    let replayed = agent.updates_of("user_message_chunk");
    let replayed: Vec<_> = replayed.iter().map(|it| it["content"].clone()).collect();
    let mut sent = blocks.as_array().unwrap().clone();
    sent.push(skill("deploy"));
    assert_eq!(replayed, sent);
}

#[test]
fn v2_skills_that_cannot_be_invoked_refuse_the_prompt_and_nothing_is_run() {
    let mut agent = v2().model(json!([says("One.")])).start();
    for blocks in [
        json!([skill("nobody")]),
        json!([skill("")]),
        json!([skill("Release-Notes")]),
        // They are commands.
        json!([skill("status")]),
        json!([skill("seed")]),
        json!([text("go"), skill("deploy"), skill("nobody")]),
        json!([text("/steer use tabs"), skill("deploy")]),
        json!([skill("deploy"), text("/seed")]),
        json!([{ "type": "skill" }]),
        json!([{ "type": "skill", "name": 5 }]),
        json!([{ "type": "skill", "name": null }]),
        json!([{ "type": ["skill"], "name": "deploy" }]),
        json!([skill("deploy"), { "type": "skills", "name": "deploy" }]),
        json!({ "type": "skill", "name": "deploy" }),
        json!("skill"),
    ] {
        let params = json!({ "sessionId": agent.session, "prompt": blocks });
        assert_eq!(code(&agent.call("session/prompt", &params)), -32602, "{blocks}");
    }
    assert!(agent.updates_of("user_message").is_empty() && agent.model().requests().is_empty());
    assert_eq!(agent.turn("the word \"skill\" is none"), "end_turn");
}

#[test]
fn version_1_and_steering_have_no_blocks_for_skills() {
    let mut agent = with_skills().model(json!([])).start();
    let params = json!({ "sessionId": agent.session, "prompt": [skill("deploy")] });
    for method in ["session/prompt", "_session/steering"] {
        assert_eq!(code(&agent.call(method, &params)), -32602, "{method}");
    }
}
