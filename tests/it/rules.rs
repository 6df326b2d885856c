//! Permission rules in the settings: which rule applies, what happens to a file with an invalid rule, and
//! a project folder that contains the agent's own files.

use std::process::Command;

use serde_json::json;
use turnwright_testing::process_waits;
use turnwright_testing::questions::attempt;

use crate::agent::TestAgent;

const FILE: &str = "config/config.toml";

fn write(agent: &mut TestAgent, path: &str) -> (usize, String) {
    attempt(agent, "write_file", &json!({ "path": path, "content": "new\n" }))
}

#[test]
fn rules_allow_ask_or_deny_and_the_strictest_wins() {
    let rules = "[permissions]\nallow = ['edit(/src/**)', 'edit(/gen)']\nask = ['edit(*.lock)']\n\
                 deny = ['read(secret)', 'exec']\n\
                 [[permissions.rule]]\neffect = 'deny'\nwhen = 'edit(/gen/frozen)'\n\
                 match = ['gen/frozen/a']\nnot = ['gen/a']\nwhy = 'it is frozen'";
    let mut agent = TestAgent::builder()
        .own_file(FILE, rules)
        .file("secret/key", "hidden")
        .permission("reject_once")
        .start();
    for (path, questions, is_there) in [
        ("src/a.rs", 0, true),
        ("gen/a", 0, true),
        ("gen/frozen/a", 0, false),
        ("src/a.lock", 1, false),
        ("other.rs", 1, false),
        ("src/../other.rs", 1, false),
        ("secret/new", 0, false),
    ] {
        let (request_count, result) = write(&mut agent, path);
        assert_eq!(
            (request_count, agent.path(path).exists()),
            (questions, is_there),
            "{path}: {result}"
        );
    }
    let (_, result) = write(&mut agent, "gen/frozen/b");
    assert!(result.contains("edit(/gen/frozen)") && result.contains("it is frozen"), "{result}");
    #[cfg(unix)]
    std::os::unix::fs::symlink("secret/key", agent.path("link")).unwrap();
    let names =
        if cfg!(unix) { &["secret/key", "link"][..] } else { &["secret/key", "secret\\key"] };
    for path in names {
        let (request_count, result) = attempt(&mut agent, "read_file", &json!({ "path": path }));
        assert!(
            request_count == 0 && result.contains("read(secret)") && !result.contains("hidden"),
            "{result}"
        );
    }
    let (request_count, result) =
        attempt(&mut agent, "exec", &json!({ "command": "touch \"$x\" mark" }));
    assert!(request_count == 0 && result.contains("A rule denies this: exec"), "{result}");
}

#[test]
fn an_invalid_rule_disables_the_allow_rules_of_its_file_and_is_reported() {
    let wrong = "[permissions]\nallow = ['edit(/src/**)', 'edit(../up)']\ndeny = ['edit(/ci)']";
    let mut agent = TestAgent::builder().own_file(FILE, wrong).permission("reject_once").start();
    assert_eq!(write(&mut agent, "src/a").0, 1);
    let (request_count, result) = write(&mut agent, "ci/a");
    assert!(request_count == 0 && result.contains("edit(/ci)"), "{result}");
    let notice = agent.thoughts();
    assert_eq!(notice.matches("`edit(../up)` is not a valid rule").count(), 1, "{notice}");
    let output = process_waits::output(
        Command::new(env!("CARGO_BIN_EXE_turnwright"))
            .args(["config", "show"])
            .env_clear()
            .envs(turnwright_testing::basic_variables())
            .env("TURNWRIGHT_HOME", agent.home())
            .env("TURNWRIGHT_MODEL", "offline"),
    )
    .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success());
    assert!(
        shown.contains("error: ") && shown.contains("`edit(../up)` is not a valid rule"),
        "{shown}"
    );
}

#[test]
fn the_agents_own_files_are_not_part_of_a_project_that_contains_them() {
    let mut agent = TestAgent::builder()
        .own_file("state/projects/x/permissions.toml", "allow = 'exec(word)'")
        .own_file("config/login.json", "the word")
        .own_file("mine/a.txt", "the word")
        .variable("TURNWRIGHT_MODE", "auto-edit")
        .permission("reject_once")
        .initialize();
    let params = json!({ "cwd": agent.home(), "mcpServers": [] });
    let answer = agent.call("session/new", &params);
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    for path in ["state/projects/x/permissions.toml", "state/new", "config/login.json"] {
        let (request_count, result) = write(&mut agent, path);
        assert_eq!(request_count, 1, "{path}: {result}");
    }
    let (request_count, _) = attempt(&mut agent, "read_file", &json!({ "path": "state/projects" }));
    assert_eq!(request_count, 1);
    let (request_count, result) =
        attempt(&mut agent, "grep", &json!({ "pattern": "word", "hidden": true }));
    assert!(request_count == 0 && result.contains("mine/a.txt"), "{result}");
    assert!(!result.contains("login.json") && !result.contains("permissions.toml"), "{result}");
    let (request_count, result) = write(&mut agent, "mine/b.txt");
    assert_eq!(request_count, 0, "{result}");
}
