//! The additional folders of a session (R-DIR): which folders are refused, and that the others
//! belong to the project.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::session_requests::{code, open, result};

use crate::agent::{TestAgent, calls, says};

/// Returns an agent with a folder `more` outside of its workspace, and the path of that folder.
fn with_more(replies: Value) -> (TestAgent, String) {
    let agent = TestAgent::builder().model(replies).own_file("more/a.txt", "more\n").initialize();
    let more = agent.home().join("more").to_string_lossy().into_owned();
    (agent, more)
}

fn folders(agent: &TestAgent, folders: &Value) -> Value {
    json!({ "cwd": agent.workspace(), "mcpServers": [], "additionalDirectories": folders })
}

#[test]
fn r_dir_1_to_3_an_invalid_folder_is_refused_and_named() {
    let (mut agent, more) = with_more(json!([]));
    let file = format!("{more}/a.txt");
    for bad in ["relative", "", "./x", "~x", "/no/such/folder", &file] {
        let answer = agent.call("session/new", &folders(&agent, &json!([more, bad])));
        assert_eq!(code(&answer), -32602, "{bad}: {answer}");
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains(&format!("`{bad}`")), "{text}");
    }
    for bad in [json!([5]), json!([null]), json!("/tmp"), json!({ "0": "/tmp" }), json!(true)] {
        let answer = agent.call("session/new", &folders(&agent, &bad));
        assert_eq!(code(&answer), -32602, "{bad}");
    }
    for good in [json!([]), Value::Null, json!([more]), json!([more, more])] {
        let answer = agent.call("session/new", &folders(&agent, &good));
        assert!(answer["result"]["sessionId"].is_string(), "{good}: {answer}");
    }
}

#[test]
fn r_dir_5_an_additional_folder_belongs_to_the_project_and_relative_paths_start_in_cwd() {
    let write = |path: &str| calls("write_file", &json!({ "path": path, "content": "x" }));
    let base = turnwright_testing::temporary_folder();
    let put = |path: &str, text: &str| {
        let path = base.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("more/AGENTS.md", "Mind the gap.");
    put("more/.agents/skills/dig/SKILL.md", "---\nname: dig\ndescription: Digs.\n---\nx");
    put("secret/a.txt", "x");
    let more = base.path().join("more").to_string_lossy().into_owned();
    #[cfg(unix)]
    std::os::unix::fs::symlink(base.path().join("secret"), base.path().join("more/out")).unwrap();
    let out = if cfg!(unix) { "out" } else { "../secret" };
    let (inside, outside) = (format!("{more}/b.txt"), format!("{more}/{out}/b.txt"));
    let mut agent = TestAgent::builder()
        .file("AGENTS.md", "First of all.")
        .model(json!([write("b.txt"), write(&inside), write(&outside), says("Done.")]))
        .initialize();
    let answer = agent.call("session/new", &folders(&agent, &json!([more])));
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    let auto = json!({ "sessionId": agent.session, "modeId": "auto-edit" });
    result(agent.call("session/set_mode", &auto));
    let id = agent.prompt("write");
    // Writes inside the folders require no permission.
    let question = agent.wait_for_request("session/request_permission");
    let asked = question.to_string().replace(r"\\", "/");
    assert!(asked.contains("secret/b.txt"), "{question}");
    assert!(agent.path("b.txt").exists() && base.path().join("more/b.txt").exists());
    agent.choose(&question, "reject_once");
    agent.stop_reason(&id);
    assert!(!base.path().join("secret/b.txt").exists());
    let messages = agent.model_request(0)["messages"].to_string();
    let position =
        |it: &str| messages.find(it).unwrap_or_else(|| panic!("{it} is not in {messages}"));
    assert!(position("First of all.") < position("Mind the gap."));
    position("dig: Digs.");
    let in_json = more.replace('\\', r"\\");
    position(&format!("Another folder of the project: {in_json}"));
    agent.turn("/status");
    assert!(agent.text().contains(&format!("Additional folder: `{more}`")), "{}", agent.text());
}

#[test]
fn a_search_names_the_folders_of_the_session_that_it_leaves_out() {
    let (mut agent, more) = with_more(json!([]));
    let answer = agent.call("session/new", &folders(&agent, &json!([more])));
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    for (tool, arguments, is_told) in [
        ("grep", json!({ "pattern": "more" }), true),
        ("find_files", json!({ "glob": "a.txt" }), true),
        ("grep", json!({ "pattern": "more", "path": more }), false),
    ] {
        agent.model().push(calls(tool, &arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let found = cards::turn(&mut agent);
        assert_eq!(found.contains("[not searched: "), is_told, "{found}");
    }
}

#[test]
fn r_dir_4_folders_that_are_not_sent_again_are_removed() {
    let (mut agent, more) = with_more(json!([says("One."), says("Two.")]));
    let answer = agent.call("session/new", &folders(&agent, &json!([more])));
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    agent.turn("one");
    let listed = |agent: &mut TestAgent| {
        let page = result(agent.call("session/list", &json!({})));
        page["sessions"][0]["additionalDirectories"].clone()
    };
    assert_eq!(listed(&mut agent), json!([more]));
    agent.restart();
    let session = agent.session.clone();
    result(open(&mut agent, "session/load", &session));
    assert_eq!(listed(&mut agent), Value::Null);
    agent.turn("/status");
    assert!(!agent.text().contains("Additional folder"), "{}", agent.text());
    agent.turn("two");
    let messages = agent.model_request(1)["messages"].to_string();
    assert!(messages.contains("opened this conversation in other folders"), "{messages}");
}

/// The conversation can be read, and there is no folder to work in.
#[test]
fn a_session_whose_folders_are_gone_is_loaded_and_says_so() {
    let base = turnwright_testing::temporary_folder();
    let folder = |name: &str| base.path().join(name).to_string_lossy().into_owned();
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    let replies = json!([says("One."), read, says("Two.")]);
    let mut agent = TestAgent::builder().model(replies).initialize();
    for name in ["project", "more"] {
        std::fs::create_dir(base.path().join(name)).unwrap();
    }
    let params = json!({ "cwd": folder("project"), "mcpServers": [],
        "additionalDirectories": [folder("more")] });
    let answer = agent.call("session/new", &params);
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    agent.turn("the first words");
    agent.restart();
    for name in ["project", "more"] {
        std::fs::remove_dir(base.path().join(name)).unwrap();
    }
    let mut params = params;
    assert_eq!(code(&agent.call("session/new", &params)), -32602);
    params["sessionId"] = json!(agent.session);
    result(agent.call("session/load", &params));
    assert!(agent.updates().iter().any(|it| it["content"]["text"] == "the first words"));
    agent.turn("go on");
    let told = agent.thoughts();
    for name in ["project", "more"] {
        assert!(told.contains(&format!("`{}` does not exist any more", folder(name))), "{told}");
    }
    assert!(!base.path().join("project").exists());
}
