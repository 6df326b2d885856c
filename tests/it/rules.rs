//! Rules: what they spare, what they forbid, whose they are, and what becomes of a wrong one.

use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, says};
use crate::ended;
use crate::raw_server::{RawServer, write_stream};

const FILE: &str = "config/config.toml";
const MANAGED: &str = "managed/config.toml";

/// Lets the model make a call. Returns how many questions were asked (each is answered with no)
/// and what the model was told.
fn attempt(agent: &mut TestAgent, name: &str, arguments: &Value) -> (usize, String) {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let before = agent.log.len();
    assert_eq!(agent.turn("go"), "end_turn");
    let asks = |it: &&Value| it["method"] == "session/request_permission";
    let questions = agent.log[before..].iter().filter(asks).count();
    let last = agent.model().requests().len() - 1;
    (questions, agent.model_transcript(last).pop().unwrap())
}

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
fn a_host_is_allowed_by_its_name() {
    let site = RawServer::reading(|_, _, stream| {
        write_stream(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nwords");
    });
    let rules = format!(
        "[web]\nallow = ['{0}']\n[permissions]\nallow = ['fetch(domain:{0})']",
        site.host()
    );
    let mut agent = TestAgent::builder().own_file(FILE, &rules).permission("reject_once").start();
    let page = json!({ "url": format!("http://{}/", site.host()) });
    let (asked, told) = attempt(&mut agent, "web_fetch", &page);
    assert!(asked == 0 && told.contains("words"), "{told}");
    let elsewhere = json!({ "url": "http://elsewhere.example/" });
    assert_eq!(attempt(&mut agent, "web_fetch", &elsewhere).0, 1);
}

#[test]
fn what_is_managed_beats_the_user_and_limits_the_mode() {
    let managed = "max_mode = 'auto-edit'\n[permissions]\ndeny = ['edit(/ci)']";
    let mut agent = TestAgent::builder()
        .own_file(MANAGED, managed)
        .own_file(FILE, "mode = 'full'\n[permissions]\nallow = ['edit(/ci/**)']")
        .permission("reject_once")
        .initialize();
    let params = json!({ "cwd": agent.workspace(), "mcpServers": [] });
    let answer = agent.call("session/new", &params);
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    let modes = &answer["result"]["modes"];
    assert_eq!(modes["currentModeId"], "auto-edit", "{modes}");
    let ids: Vec<_> =
        modes["availableModes"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, ["ask", "plan", "auto-edit"]);
    let session = agent.session.clone();
    let full = json!({ "sessionId": session, "modeId": "full" });
    assert_eq!(agent.call("session/set_mode", &full)["error"]["code"], -32602);
    let full = json!({ "sessionId": session, "configId": "mode", "value": "full" });
    assert_eq!(agent.call("session/set_config_option", &full)["error"]["code"], -32602);
    assert!(write(&mut agent, "ci/a").1.contains("edit(/ci)"));
    assert_eq!(write(&mut agent, "b").0, 0);
    assert!(agent.path("b").exists() && !agent.path("ci/a").exists());
}

#[test]
fn a_managed_file_that_cannot_be_read_denies() {
    let mut agent = TestAgent::builder().own_file(MANAGED, "max_mode = ").start();
    let (asked, told) = write(&mut agent, "a");
    assert!(asked == 0 && told.contains("the managed settings cannot be read"), "{told}");
    assert!(agent.thoughts().contains("managed/config.toml"), "{}", agent.thoughts());
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
    let output = ended::output(
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
fn no_way_through_an_allowed_folder_leads_to_what_must_not_be_read() {
    let rules = "[permissions]\ndeny = ['read(/secret)', 'read(*.priv)']\nask = ['read(/notes)']";
    let mut agent = TestAgent::builder()
        .own_file(FILE, rules)
        .file("secret/plans.txt", "the word is hidden-1")
        .file("docs/a.priv", "the word is hidden-2")
        .file("docs/a.txt", "the word is open")
        .file("notes/n.txt", "the word is hidden-3")
        .permission("reject_once")
        .start();
    for (tool, arguments) in [
        ("grep", json!({ "pattern": "the word" })),
        ("grep", json!({ "pattern": "the word", "hidden": true, "glob": "**/*.*" })),
        ("grep", json!({ "pattern": "hidden-" })),
        ("find_files", json!({ "glob": "*" })),
        ("find_files", json!({ "glob": "plans.tx", "hidden": true })),
        ("list_dir", json!({ "depth": 3, "hidden": true })),
        ("read_file", json!({ "path": "." })),
        ("read_file", json!({ "path": "docs" })),
    ] {
        let (asked, told) = attempt(&mut agent, tool, &arguments);
        assert_eq!(asked, 0, "{tool} {arguments}: {told}");
        for hidden in ["hidden-1", "hidden-2", "hidden-3", "plans.txt", "a.priv", "n.txt"] {
            assert!(!told.contains(hidden), "{tool} {arguments}: {told}");
        }
    }
    let (_, told) = attempt(&mut agent, "grep", &json!({ "pattern": "the word" }));
    assert!(told.contains("the word is open"), "{told}");
    // Who has been asked about the folder has been asked about what is in it.
    let mut agent = TestAgent::builder()
        .own_file(FILE, rules)
        .file("notes/n.txt", "the word is hidden-3")
        .permission("allow_once")
        .start();
    let notes = json!({ "pattern": "the word", "path": "notes" });
    let (asked, told) = attempt(&mut agent, "grep", &notes);
    assert!(asked == 1 && told.contains("hidden-3"), "{told}");
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
