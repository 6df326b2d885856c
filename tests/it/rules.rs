//! Rules for commands, what the log says of a wrong rule, and a project that is the home folder.

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
fn a_rule_spares_a_question_or_forbids_and_the_strictest_counts() {
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
        let (asked, told) = write(&mut agent, path);
        assert_eq!((asked, agent.path(path).exists()), (questions, is_there), "{path}: {told}");
    }
    let (_, told) = write(&mut agent, "gen/frozen/b");
    assert!(told.contains("edit(/gen/frozen)") && told.contains("it is frozen"), "{told}");
    std::os::unix::fs::symlink("secret/key", agent.path("link")).unwrap();
    for path in ["secret/key", "link"] {
        let (asked, told) = attempt(&mut agent, "read_file", &json!({ "path": path }));
        assert!(asked == 0 && told.contains("read(secret)") && !told.contains("hidden"), "{told}");
    }
    let (asked, told) = attempt(&mut agent, "exec", &json!({ "command": "touch \"$x\" mark" }));
    assert!(asked == 0 && told.contains("A rule denies this: exec"), "{told}");
}

#[test]
fn a_wrong_rule_takes_the_permissions_of_its_file_and_is_told() {
    let wrong = "[permissions]\nallow = ['edit(/src/**)', 'edit(../up)']\ndeny = ['edit(/ci)']";
    let mut agent = TestAgent::builder().own_file(FILE, wrong).permission("reject_once").start();
    assert_eq!(write(&mut agent, "src/a").0, 1);
    let (asked, told) = write(&mut agent, "ci/a");
    assert!(asked == 0 && told.contains("edit(/ci)"), "{told}");
    let notice = agent.thoughts();
    assert_eq!(notice.matches("`edit(../up)` is not a valid rule").count(), 1, "{notice}");
    let output = process_waits::output(
        Command::new(env!("CARGO_BIN_EXE_turnwright"))
            .args(["config", "show"])
            .env_clear()
            .env("TURNWRIGHT_HOME", agent.home())
            .env("TURNWRIGHT_MODEL", "offline"),
    )
    .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("! ") && shown.contains("`edit(../up)` is not a valid rule"), "{shown}");
}

#[test]
fn in_the_home_folder_nothing_of_ours_is_a_part_of_the_project() {
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
        let (asked, told) = write(&mut agent, path);
        assert_eq!(asked, 1, "{path}: {told}");
    }
    let (asked, _) = attempt(&mut agent, "read_file", &json!({ "path": "state/projects" }));
    assert_eq!(asked, 1);
    let (asked, told) = attempt(&mut agent, "grep", &json!({ "pattern": "word", "hidden": true }));
    assert!(asked == 0 && told.contains("mine/a.txt"), "{told}");
    assert!(!told.contains("login.json") && !told.contains("permissions.toml"), "{told}");
    let (asked, told) = write(&mut agent, "mine/b.txt");
    assert_eq!(asked, 0, "{told}");
}
