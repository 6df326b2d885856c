//! The surroundings as only a process can show them: the user's programs and their versions.

use serde_json::{Value, json};
use turnwright_testing::write_program;

use crate::agent::{TestAgent, eventually, says};

/// The line that begins with these words in what the model was told with the n-th request.
fn line(agent: &TestAgent, number: usize, start: &str) -> Option<String> {
    let messages = agent.model_request(number)["messages"].clone();
    let texts = messages.as_array().unwrap().iter().filter_map(|it| it["content"].as_str());
    let all = texts.collect::<Vec<_>>().join("\n");
    all.lines().find(|it| it.starts_with(start)).map(str::to_owned)
}

fn replies() -> Value {
    json!([says("One."), says("Two.")])
}

#[test]
fn a_tool_without_a_known_version_has_only_its_name_and_the_next_process_tells_it() {
    let programs = turnwright_testing::temporary_folder();
    let path = |name: &str| programs.path().join(name);
    write_program(&path("git"), "#!/bin/sh\necho git version 9.8.7\n");
    write_program(&path("cargo"), "#!/bin/sh\nexit 1\n");
    // What a program writes, and what it does not answer in time, costs nothing.
    write_program(&path("node"), "#!/bin/sh\necho x > \"$0.written\"; exec /bin/sleep 100\n");
    std::fs::write(path("go"), "cannot be run").unwrap();
    let mut agent = TestAgent::builder()
        .model(replies())
        .file("Cargo.toml", "[package]\n")
        .surroundings()
        .variable("PATH", programs.path().to_str().unwrap())
        .start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(line(&agent, 0, "tools: ").as_deref(), Some("tools: cargo, git, node"));
    let check = line(&agent, 0, "check: ");
    assert_eq!(check.as_deref(), Some("check: cargo check --message-format short"));
    if !turnwright_sandbox::can_confine() {
        eprintln!("NOT TESTED: there is no sandbox, so no program is asked for its version");
        return;
    }
    let cache = agent.home().join("state/tool-versions.json");
    let kept = || std::fs::read_to_string(&cache).unwrap_or_default();
    eventually("all are asked", || kept().matches("\"day\"").count() == 3);
    assert!(!path("node.written").exists());
    agent.restart();
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(line(&agent, 1, "tools: ").as_deref(), Some("tools: cargo, git 9.8, node"));
}

#[test]
fn a_program_of_the_project_is_not_run_to_tell_its_version() {
    if !turnwright_sandbox::can_confine() {
        eprintln!("NOT TESTED: there is no sandbox, so no program is asked for its version");
        return;
    }
    let place = turnwright_testing::temporary_folder();
    let link = place.path().join("link");
    let path = std::env::join_paths([link.as_path(), place.path()]).unwrap();
    let mut agent = TestAgent::builder()
        .model(replies())
        .file("bin/x", "")
        .surroundings()
        .variable("PATH", path.to_str().unwrap())
        .initialize();
    std::os::unix::fs::symlink(agent.path("bin"), &link).unwrap();
    write_program(&agent.path("bin/git"), "#!/bin/sh\necho git version 6.6\n");
    write_program(&place.path().join("git"), "#!/bin/sh\necho git version 9.8\n");
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hi"), "end_turn");
    let cache = agent.home().join("state/tool-versions.json");
    eventually("git is asked", || std::fs::read_to_string(&cache).is_ok());
    let kept = std::fs::read_to_string(&cache).unwrap();
    assert!(kept.contains("9.8") && !kept.contains("6.6"), "{kept}");
}
