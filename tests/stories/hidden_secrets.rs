//! Secrets that the model is not shown: their placeholders are never written where they stand, and the
//! files that hold them can be undone.

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};
use turnwright_testing::hosted_server::{answer_well, hosted_server};
use turnwright_testing::model_failures::KEY;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

const OTHER_KEY: &str = "sk-another-key-9876543210";
const PLACEHOLDER: &str = "[hidden:3fa2]";

fn builder() -> TestAgentBuilder {
    TestAgent::builder()
        .variable("DEEPSEEK_API_KEY", OTHER_KEY)
        .file("app.toml", &format!("port = 5432\nkey = \"{KEY}\"\n"))
        .model(json!([]))
        .permission("allow_once")
}

/// Runs a turn with this call and returns the result that the model got.
fn run(agent: &mut TestAgent, name: &str, arguments: &Value) -> String {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

/// The placeholders in a text.
fn placeholders(text: &str) -> Vec<&str> {
    text.match_indices("[hidden:").filter_map(|it| text.get(it.0..it.0 + 13)).collect()
}

/// Checks that no file of the agent has one of the keys in it.
fn assert_nothing_stored(agent: &TestAgent) {
    let mut open = vec![agent.home().to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
                continue;
            }
            // The database takes its log away when its last connection is closed.
            let bytes = match std::fs::read(entry.path()) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                read => read.unwrap(),
            };
            let text = String::from_utf8_lossy(&bytes);
            let has_key = text.contains(KEY) || text.contains(OTHER_KEY);
            assert!(!has_key, "{}", entry.path().display());
        }
    }
}

#[test]
fn the_first_bytes_of_a_binary_file_spell_no_secret() {
    let begin = KEY.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}"));
    let spelled = begin.collect::<Vec<_>>().join(" ");
    // The second one is not shown to its end.
    for zeros in [1, 50] {
        let mut agent = builder().file("app.bin", &format!("{}{KEY}", "\0".repeat(zeros))).start();
        let result = run(&mut agent, "read_file", &json!({ "path": "app.bin" }));
        assert!(result.contains("First bytes: 00 ") && !result.contains(&spelled), "{result}");
    }
}

#[test]
fn a_result_says_that_a_secret_is_hidden_and_one_without_says_nothing() {
    let mut agent = builder().file("plain.toml", "key = \"[key]\"\n").start();
    let result = run(&mut agent, "read_file", &json!({ "path": "app.toml" }));
    assert!(!result.contains(KEY) && result.contains("key = \"[hidden:"), "{result}");
    assert!(result.ends_with("change only the text around it.]"), "{result}");
    assert_eq!(result.matches("Secrets are hidden").count(), 1, "{result}");
    let result = run(&mut agent, "read_file", &json!({ "path": "plain.toml" }));
    assert!(!result.contains("hidden"), "{result}");
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    assert_eq!(agent.turn("and now"), "end_turn");
    let kept = agent.model_transcript(4).join("\n");
    assert_eq!(kept.matches("Secrets are hidden").count(), 1, "{kept}");
}

#[test]
fn a_placeholder_never_takes_the_place_of_a_secret() {
    let whole = |text: &str| format!("port = 5433\nkey = \"{text}\"\n");
    let mut agent = builder().start();
    let shown = run(&mut agent, "read_file", &json!({ "path": "app.toml" }));
    let seen = placeholders(&shown)[0].to_owned();
    let before = agent.read("app.toml");
    let patch = format!(
        "*** Begin Patch\n*** Update File: app.toml\n@@\n port = 5432\n-key = \"{seen}\"\n\
         +key = \"{seen}\" # old\n*** End Patch"
    );
    let edit = |old: &str, new: &str| json!({ "path": "app.toml", "edits": [{ "old_text": old, "new_text": new }] });
    for (tool, arguments) in [
        ("write_file", json!({ "path": "app.toml", "content": whole(&seen) })),
        ("write_file", json!({ "path": "copy/app.toml", "content": whole(&seen) })),
        ("write_file", json!({ "path": "app.toml", "content": seen, "mode": "append" })),
        ("edit_file", edit("port = 5432", &format!("key = \"{seen}\""))),
        ("edit_file", edit(&format!("key = \"{seen}\""), "key = \"\"")),
        ("apply_patch", json!({ "patch": patch })),
        ("exec", json!({ "command": format!("cat > app.toml <<'EOF'\n{}EOF", whole(&seen)) })),
        ("exec", json!({ "command": format!("sed -i 's/5432/{seen}/' app.toml") })),
        ("memory", json!({ "action": "write", "name": "key", "content": whole(&seen) })),
        ("web_fetch", json!({ "url": format!("https://127.0.0.1/?token={seen}") })),
        ("exec_output", json!({ "id": "p1", "input": format!("{seen}\n") })),
        ("move_path", json!({ "from": "app.toml", "to": format!("{seen}.toml") })),
    ] {
        let result = run(&mut agent, tool, &arguments);
        assert!(result.starts_with("Nothing was done. The arguments contain"), "{tool}: {result}");
        assert_eq!(result.matches("Secrets are hidden").count(), 0, "{result}");
        assert_eq!(agent.read("app.toml"), before, "{tool}");
    }
    assert_eq!(cards::questions(&agent), 0);
    assert!(!agent.path("copy").exists() && !agent.path(".turnwright").exists());
    // The text around the secret can be changed.
    let result = run(&mut agent, "edit_file", &edit("5432\nkey", "5433\nkey"));
    assert!(result.starts_with("Applied"), "{result}");
    assert_eq!(agent.read("app.toml"), whole(KEY));
}

/// Stored conversations have it, for which this agent cannot know where it comes from.
#[test]
fn the_placeholder_of_earlier_versions_takes_the_place_of_no_secret_either() {
    let url = "url = postgres://app:Zk39xQ71vvLm@db/app\n";
    let before = format!("port = 5432\n{url}");
    let mut agent = builder().file("db.toml", &before).start();
    let replaced = |text: &str| text.replace("Zk39xQ71vvLm", "[key]").replace(KEY, "[key]");
    let app = agent.read("app.toml");
    let patch =
        "*** Begin Patch\n*** Update File: app.toml\n@@\n port = 5432\n+[key]\n*** End Patch";
    for (tool, path, content) in [
        ("write_file", "db.toml", replaced(&before).replace("5432", "5433")),
        ("write_file", "app.toml", replaced(&app)),
        ("write_file", "app.toml", format!("{}# new\n", replaced(&app))),
    ] {
        run(&mut agent, "read_file", &json!({ "path": path }));
        let result = run(&mut agent, tool, &json!({ "path": path, "content": content }));
        assert!(result.starts_with("Nothing was done. The arguments contain"), "{result}");
    }
    let heredoc = format!("cat > db.toml <<'EOF'\n{}EOF", replaced(&before));
    let result = run(&mut agent, "exec", &json!({ "command": heredoc }));
    assert!(result.starts_with("Nothing was done."), "{result}");
    assert_eq!((agent.read("db.toml"), agent.read("app.toml")), (before, app.clone()));
    // A table of that name beside the secret is none.
    let result = run(&mut agent, "apply_patch", &json!({ "patch": patch }));
    assert!(!result.starts_with("Nothing"), "{result}");
    assert_eq!(agent.read("app.toml"), app.replace("5432\n", "5432\n[key]\n"));
}

#[test]
fn a_placeholder_does_not_reach_an_mcp_server() {
    let answer = |params: &Value| answer_well(params, &["echo"]);
    let mut agent = TestAgent::builder()
        .server_as(hosted_server("near"))
        .hosting(answer)
        .model(json!([]))
        .permission("allow_once")
        .start();
    let arguments = json!({ "text": { "deep": [PLACEHOLDER] } });
    let result = run(&mut agent, "mcp__near__echo", &arguments);
    assert!(result.starts_with("Nothing was done. The arguments contain"), "{result}");
    assert_eq!(agent.hosted_requests("tools/call").len(), 0);
}

#[test]
fn texts_that_only_look_like_a_placeholder_are_written() {
    let text = "[key]\nmap[key] = [hidden]\n[a](b) [[key]] [hidden:…]\n";
    let mut agent = builder().file("page.md", &format!("It looks like {PLACEHOLDER}.\n")).start();
    let result = run(&mut agent, "write_file", &json!({ "path": "page.toml", "content": text }));
    assert!(result.starts_with("Created"), "{result}");
    assert_eq!(agent.read("page.toml"), text);
    // It stands there already, and no secret does.
    let edits = json!([{ "old_text": format!("like {PLACEHOLDER}."), "new_text": format!("like “{PLACEHOLDER}”.") }]);
    let result = run(&mut agent, "edit_file", &json!({ "path": "page.md", "edits": edits }));
    assert!(result.starts_with("Applied"), "{result}");
    assert_eq!(agent.read("page.md"), format!("It looks like “{PLACEHOLDER}”.\n"));
    let result = run(&mut agent, "grep", &json!({ "pattern": "hidden:3fa2", "path": "." }));
    assert!(result.contains("page.md"), "{result}");
}

#[test]
fn a_changed_secret_is_visible_as_changed_and_undone_without_being_stored() {
    let mut agent = builder().start();
    let before = agent.read("app.toml");
    let after = format!("port = 5432\nkey = \"{OTHER_KEY}\"\n");
    run(&mut agent, "read_file", &json!({ "path": "app.toml" }));
    let result = run(&mut agent, "write_file", &json!({ "path": "app.toml", "content": after }));
    assert!(result.starts_with("Replaced"), "{result}");
    assert_eq!(agent.read("app.toml"), after);
    let question = agent.log.iter().find(|it| it["method"] == "session/request_permission");
    let diff = &question.unwrap()["params"]["toolCall"]["content"][0];
    let shown = |field: &str| placeholders(diff[field].as_str().unwrap())[0].to_owned();
    assert_ne!(shown("oldText"), shown("newText"));
    let diff = agent.turn_text("/diff");
    assert!(diff.contains(&format!("-key = \"{}\"\n", shown_in(&diff, 0))), "{diff}");
    assert_ne!(shown_in(&diff, 0), shown_in(&diff, 1));
    assert!(agent.turn_text("/undo").contains("Restored (1)"));
    assert_eq!(agent.read("app.toml"), before);
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    assert!(agent.turn_text("/redo").contains("Restored (1)"));
    assert_eq!(agent.read("app.toml"), after);
    agent.close();
    assert_nothing_stored(&agent);
    assert!(!format!("{:?}", agent.log).contains("9876543210"));
}

fn shown_in(text: &str, number: usize) -> String {
    placeholders(text)[number].to_owned()
}

#[test]
fn a_helper_is_told_of_a_placeholder_and_a_deleted_file_with_a_key_comes_back() {
    let mut agent = builder().start();
    let before = agent.read("app.toml");
    let result = cards::run_each(&mut agent, "delete_path", &[json!({ "path": "app.toml" })]);
    assert!(!agent.path("app.toml").exists(), "{result:?}");
    assert!(agent.turn_text("/undo").contains("Restored (1)"));
    assert_eq!(agent.read("app.toml"), before);
    agent
        .model()
        .push(json!([call("agent", &json!({ "task": format!("Look for {PLACEHOLDER}") }))]))
        .unwrap();
    agent.model().push(says("Found.")).unwrap();
    agent.model().push(says("Done.")).unwrap();
    assert_eq!(agent.turn("ask"), "end_turn");
    let body = agent.model().requests().last().unwrap().body.to_string();
    assert!(!body.contains("Nothing was done"), "{body}");
}

#[test]
fn file_tools_show_no_password_of_a_url_and_no_key_of_a_header() {
    let settings = "[remote \"origin\"]\n\turl = https://me:glpat-Ab3dEf6hIj@host/x.git\n\
                    [http]\n\textraheader = AUTHORIZATION: basic eDp5Z2hwXzEyMzQ=\n";
    let head = "0123abc\t\tbranch 'main' of https://ghp_0123456789abcdefghij@host/x\n";
    let mut agent = builder()
        .file(".git/config", settings)
        .file(".git/FETCH_HEAD", head)
        .file("compose.yml", "url: postgres://app:Zk39xQ71vvLm@db/app\nport: 80\n")
        .start();
    let secrets = ["glpat-Ab3", "eDp5Z2hw", "ghp_0123", "Zk39xQ71"];
    for (tool, arguments) in [
        ("read_file", json!({ "path": ".git/config" })),
        ("read_file", json!({ "paths": [".git/FETCH_HEAD", "compose.yml"] })),
        ("grep", json!({ "pattern": "url|basic|branch|port", "path": "compose.yml" })),
        ("grep", json!({ "pattern": "url|header|branch", "path": ".git", "hidden": true })),
    ] {
        let result = run(&mut agent, tool, &arguments);
        assert!(result.contains("[hidden:") && result.contains("Secrets are hidden"), "{result}");
        let log = Value::from(agent.log.clone()).to_string();
        for secret in secrets {
            assert!(
                !result.contains(secret) && !log.contains(secret),
                "{tool} {arguments}: {result}"
            );
        }
    }
    // What stands beside the secret can be changed, and its placeholder is never written.
    let edit = |old: &str, new: &str| json!({ "path": "compose.yml", "edits": [{ "old_text": old, "new_text": new }] });
    let shown = run(&mut agent, "read_file", &json!({ "path": "compose.yml" }));
    let hidden = placeholders(&shown)[0].to_owned();
    let line = format!("postgres://app:{hidden}@db/app");
    let result = run(&mut agent, "edit_file", &edit(&line, &line.replace("@db", "@db2")));
    assert!(result.starts_with("Nothing was done."), "{result}");
    run(&mut agent, "edit_file", &edit("@db/app\nport: 80", "@db2/app\nport: 81"));
    let written = std::fs::read_to_string(agent.path("compose.yml")).unwrap();
    assert_eq!(written, "url: postgres://app:Zk39xQ71vvLm@db2/app\nport: 81\n");
}

#[cfg(unix)]
#[test]
fn another_name_of_a_key_file_is_asked_about_and_not_searched() {
    let outside = turnwright_testing::temporary_folder();
    let key = outside.path().join("mine");
    std::fs::write(&key, "sk-of-the-second-provider-0\n").unwrap();
    let settings = format!(
        "[providers.second]\nbase_url = 'http://127.0.0.1:9/v1'\nkey_file = '{}'\n",
        key.display()
    );
    let builder = TestAgent::builder().own_file("config/config.toml", &settings);
    let mut agent = builder.model(json!([])).permission("reject_once").start();
    std::fs::hard_link(&key, agent.path("other")).unwrap();
    run(&mut agent, "read_file", &json!({ "path": "other" }));
    assert_eq!(cards::questions(&agent), 1);
    std::fs::rename(agent.path("other"), agent.path("third")).unwrap();
    let found = run(&mut agent, "grep", &json!({ "pattern": "second" }));
    assert!(!found.contains("third:") && cards::questions(&agent) == 1, "{found}");
}
