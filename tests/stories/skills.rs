//! Skills: they are found in folders, announced with the first prompt, and loaded with a tool.

use std::fs;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, calls, real_name, says};

const NOTES: &str = "---\nname: release-notes\ndescription: Use when: a release is made\n\
                     allowed-tools: exec\n---\nWrite $ARGUMENTS for people.\n";

fn with_skill() -> TestAgentBuilder {
    TestAgent::builder()
        .file(".claude/skills/release-notes/SKILL.md", NOTES)
        .file(".claude/skills/release-notes/scripts/list.sh", "true")
        .file(".agents/skills/mute/SKILL.md", "---\nname: mute\n---\n")
}

fn tool(agent: &TestAgent, number: usize) -> Option<Value> {
    let body = agent.model_request(number);
    let tools = body["tools"].as_array().unwrap();
    tools.iter().find(|it| it["function"]["name"] == "skill").cloned()
}

#[test]
fn skills_are_announced_once_and_named_in_the_tool() {
    let mut agent = with_skill().model(json!([says("One."), says("Two.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let messages = agent.model_request(0)["messages"].to_string();
    assert!(messages.contains("- release-notes: Use when: a release is made"), "{messages}");
    assert!(!messages.contains("mute") && !messages.contains("for people"), "{messages}");
    let offered = tool(&agent, 0).unwrap();
    let names = &offered["function"]["parameters"]["properties"]["name"]["enum"];
    assert_eq!(*names, json!(["release-notes"]));
    assert_eq!(agent.turn("more"), "end_turn");
    assert_eq!(
        tool(&agent, 1),
        Some(offered),
        "the tool must not change, because requests are cached"
    );
    assert_eq!(agent.turn("/skills"), "end_turn");
    assert!(agent.text().contains("* `release-notes` – Use when"), "{}", agent.text());
}

#[test]
fn without_skills_there_is_no_tool_and_no_announcement() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(tool(&agent, 0), None);
    assert!(!agent.model_request(0)["messages"].to_string().contains("Skills"));
}

#[test]
fn a_helper_without_the_tools_for_skills_and_notes_is_told_of_none() {
    let task = json!({ "description": "look", "prompt": "the task", "type": "explore" });
    let replies = json!([
        calls("agent", &task),
        says("Done."),
        { "when": "the task", "steps": says("Found.") },
    ]);
    let note = ".turnwright/memory/build.md";
    let mut agent = with_skill().file(note, "# How to build\n").model(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let requests = agent.model().requests().into_iter();
    let told: Vec<_> = requests.map(|request| request.body["messages"].to_string()).collect();
    let of_helper = told.iter().find(|text| text.contains("You are a helper")).unwrap();
    for part in ["release-notes", "How to build"] {
        assert!(told[0].contains(part) && !of_helper.contains(part), "{part}: {told:?}");
    }
}

#[test]
fn a_skill_is_loaded_without_permission_and_only_once() {
    let load = calls("skill", &json!({ "name": "release-notes", "args": "v2" }));
    let mut agent = with_skill().model(json!([load, load, says("Done.")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!(cards::requests(&agent), [""; 0]);
    let results = cards::results(&agent, 2);
    let dir = real_name(&agent.path(".claude/skills/release-notes"));
    let begin = format!("<skill_content name=\"release-notes\" dir=\"{dir}\">");
    assert!(results[0].starts_with(&begin), "{}", results[0]);
    assert!(results[0].contains("Write v2 for people."), "{}", results[0]);
    let files = format!("below {dir} (not the working folder):\n- scripts/list.sh");
    assert!(results[0].contains(&files), "{}", results[0]);
    assert!(results[0].ends_with("</skill_content>") && !results[0].contains("allowed-tools"));
    assert!(results[1].contains("loaded already") && results[1].len() < 200, "{}", results[1]);
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("Skill: release-notes"), &json!("read")));
}

#[test]
fn a_skill_that_was_edited_is_loaded_anew() {
    let load = calls("skill", &json!({ "name": "release-notes" }));
    let replies = json!([load, says("Done."), load, load, says("Done.")]);
    let mut agent = with_skill().model(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let path = agent.path(".claude/skills/release-notes/SKILL.md");
    fs::write(path, NOTES.replace("for people", "for users")).unwrap();
    assert_eq!(agent.turn("I have changed the skill"), "end_turn");
    let results = cards::results(&agent, 4);
    assert!(results[1].contains("for users."), "{results:?}");
    assert!(results[2].contains("loaded already"), "{results:?}");
}

#[test]
fn a_skill_of_the_user_is_found_and_a_wrong_name_gets_a_suggestion() {
    let own = "---\nname: deploy\ndescription: Puts it out\n---\nPush it.\n";
    let builder = TestAgent::builder().own_file("config/skills/deploy/SKILL.md", own);
    let (_, result) = cards::run(builder, "skill", &json!({ "name": "deploy" }));
    assert!(result.contains("Push it."), "{result}");
    let (_, result) = cards::run(with_skill(), "skill", &json!({ "name": "release_notes" }));
    assert_eq!(result, "There is no skill \"release_notes\". Did you mean release-notes?");
}

#[test]
fn of_a_skill_that_only_the_user_can_run_the_model_is_told_how() {
    let own = "---\ndescription: Puts it out\ndisable-model-invocation: true\n---\nPush it.\n";
    let builder = with_skill().file(".claude/skills/deploy/SKILL.md", own);
    let (agent, result) = cards::run(builder, "skill", &json!({ "name": "deploy" }));
    assert!(result.starts_with("Only the user can run it, by typing `/deploy`"), "{result}");
    assert!(!agent.model_request(0)["messages"].to_string().contains("Puts it out"));
}

#[test]
fn the_files_of_a_skill_are_read_without_permission_once_it_is_loaded() {
    let own = "---\nname: deploy\ndescription: Puts it out\n---\nFollow steps.md.\n";
    let mut agent = TestAgent::builder()
        .own_file("config/skills/deploy/SKILL.md", own)
        .own_file("config/skills/deploy/steps.md", "First this.\n")
        .own_file("config/skills/deploy/.env", "KEY=1\n")
        .own_file("config/skills/other/steps.md", "That.\n")
        .start();
    let path = |name: &str| agent.home().join("config/skills").join(name);
    let read = |path: std::path::PathBuf| calls("read_file", &json!({ "path": path }));
    let steps = read(path("deploy/steps.md"));
    let elsewhere = [read(path("deploy/.env")), read(path("other/steps.md"))];
    let load = calls("skill", &json!({ "name": "deploy" }));
    for reply in [&steps, &load, &steps, &elsewhere[0], &elsewhere[1], &says("Done.")] {
        agent.model().push(reply.clone()).unwrap();
    }
    let prompt = agent.prompt("go");
    let mut refuse = |what: &str| {
        let request = agent.wait_for_request("session/request_permission");
        let title = request["params"]["toolCall"]["title"].as_str().unwrap().replace('\\', "/");
        assert!(title.contains(what), "{title}");
        agent.choose(&request, "reject_once");
    };
    refuse("deploy/steps.md");
    refuse(".env");
    refuse("other/steps.md");
    assert_eq!(agent.stop_reason(&prompt), "end_turn");
    cards::check(&agent);
    let results = cards::results(&agent, 5);
    assert!(results[2].contains("First this."), "{results:?}");
}

#[test]
fn the_files_of_loaded_skills_are_read_without_permission_after_a_restart() {
    let own = "---\ndescription: Puts it out\n---\nFollow steps.md.\n";
    let mut agent = TestAgent::builder()
        .own_file("config/skills/deploy/SKILL.md", own)
        .own_file("config/skills/deploy/steps.md", "First this.\n")
        .own_file("config/skills/ship/SKILL.md", own)
        .own_file("config/skills/ship/steps.md", "Then this.\n")
        .start();
    let read = |agent: &TestAgent, name: &str| {
        calls("read_file", &json!({ "path": agent.home().join("config/skills").join(name) }))
    };
    let steps = [read(&agent, "deploy/steps.md"), read(&agent, "ship/steps.md")];
    let load = calls("skill", &json!({ "name": "deploy" }));
    let replies = [&load, &says("One."), &says("Two."), &steps[0], &steps[1], &says("Three.")];
    for reply in replies {
        agent.model().push(reply.clone()).unwrap();
    }
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.turn("/ship"), "end_turn");
    agent.restart();
    let params = json!({ "sessionId": agent.session, "cwd": agent.workspace(), "mcpServers": [] });
    agent.call("session/load", &params);
    assert_eq!(agent.turn("go on"), "end_turn");
    let results = cards::results(&agent, 5);
    assert!(results[1].contains("First this.") && results[2].contains("Then this."), "{results:?}");
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn a_skill_that_was_loaded_by_a_refused_prompt_can_be_loaded_again() {
    let load = calls("skill", &json!({ "name": "release-notes" }));
    let refused = json!([{ "finish": "content_filter" }]);
    let replies = json!([says("Hi."), load, refused, load, says("Done.")]);
    let mut agent = with_skill().model(replies).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.turn("go"), "refusal");
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, 4);
    assert!(results.len() == 1 && results[0].starts_with("<skill_content"), "{results:?}");
}

#[test]
fn the_list_of_skills_names_what_was_skipped_and_why() {
    let mut agent = TestAgent::builder()
        .file(
            ".claude/skills/python_testing/SKILL.md",
            "---\nname: Python Testing # ours\n---\nTests it.\n",
        )
        .file(".agents/skills/mute/SKILL.md", "---\nname: mute\n---\n")
        .start();
    assert_eq!(agent.turn("/skills"), "end_turn");
    let text = agent.text();
    assert!(text.contains("* `python-testing` – Tests it."), "{text}");
    assert!(
        text.contains(
            "Skipped:\n\n* `.agents/skills/mute` – it has neither a description nor a text"
        ),
        "{text}"
    );
}
