//! Permission rules: what they allow and deny, where they come from, and what happens if a file of
//! rules cannot be read.

use std::fs;

use serde_json::{Value, json};
use turnwright_testing::questions::attempt;
use turnwright_testing::raw_server::{RawServer, write_stream};

use crate::agent::{TestAgent, real_name, says};

const FILE: &str = "config/config.toml";

const MANAGED: &str = "managed/config.toml";

fn write(agent: &mut TestAgent, path: &str) -> (usize, String) {
    attempt(agent, "write_file", &json!({ "path": path, "content": "new\n" }))
}

#[test]
fn a_rule_can_allow_fetches_from_a_host() {
    let site = RawServer::reading(|_, _, stream| {
        write_stream(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nwords");
    });
    let rules = format!(
        "[web]\nallow = ['{0}']\n[permissions]\nallow = ['fetch(domain:{0})']",
        site.host()
    );
    let mut agent = TestAgent::builder().own_file(FILE, &rules).permission("reject_once").start();
    let page = json!({ "url": format!("http://{}/", site.host()) });
    let (questions, result) = attempt(&mut agent, "web_fetch", &page);
    assert!(questions == 0 && result.contains("words"), "{result}");
    let elsewhere = json!({ "url": "http://elsewhere.example/" });
    assert_eq!(attempt(&mut agent, "web_fetch", &elsewhere).0, 1);
}

#[test]
fn managed_settings_override_the_user_and_limit_the_mode() {
    let managed = "max_mode = 'auto-edit'\n[permissions]\ndeny = ['edit(/ci)']";
    let mut agent = TestAgent::builder()
        .own_file(MANAGED, managed)
        .own_file(FILE, "mode = 'full'\n[permissions]\nallow = ['edit(/ci/**)']")
        .permission("reject_once")
        .initialize();
    let answer = agent.call_new_session();
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
fn managed_settings_that_cannot_be_read_deny_calls() {
    let mut agent = TestAgent::builder().own_file(MANAGED, "max_mode = ").start();
    let (questions, result) = write(&mut agent, "a");
    assert!(questions == 0 && result.contains("the managed settings cannot be read"), "{result}");
    assert!(agent.thoughts().contains("managed/config.toml"), "{}", agent.thoughts());
}

#[test]
fn project_settings_that_cannot_be_read_make_everything_ask() {
    let mut agent = TestAgent::builder()
        .own_file(FILE, "mode = 'auto-edit'")
        .file(".turnwright/config.toml", "[permissions]\ndeny = ['edit(/ci)'")
        .permission("reject_once")
        .start();
    let (questions, result) = write(&mut agent, "ci/a");
    assert_eq!(questions, 1, "{result}");
    assert!(agent.thoughts().contains("asked about everything"), "{}", agent.thoughts());
    assert!(!agent.path("ci/a").exists());
}

#[test]
fn no_tool_reveals_denied_files_in_an_allowed_folder() {
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
        ("read_file", json!({ "path": "docs/none" })),
        ("read_file", json!({ "path": "docs/a.prix" })),
        ("list_dir", json!({ "path": "docs/none" })),
    ] {
        let (questions, result) = attempt(&mut agent, tool, &arguments);
        assert_eq!(questions, 0, "{tool} {arguments}: {result}");
        for hidden in ["hidden-1", "hidden-2", "hidden-3", "plans.txt", "a.priv", "n.txt"] {
            assert!(!result.contains(hidden), "{tool} {arguments}: {result}");
        }
    }
    let (_, result) = attempt(&mut agent, "grep", &json!({ "pattern": "the word" }));
    assert!(result.contains("the word is open"), "{result}");
    // Permission for the folder covers the files in it.
    let mut agent = TestAgent::builder()
        .own_file(FILE, rules)
        .file("notes/n.txt", "the word is hidden-3")
        .permission("allow_once")
        .start();
    let notes = json!({ "pattern": "the word", "path": "notes" });
    let (questions, result) = attempt(&mut agent, "grep", &notes);
    assert!(questions == 1 && result.contains("hidden-3"), "{result}");
}

/// A folder is moved or deleted as a whole or not at all, by what rules say about each file in it.
#[test]
fn a_folder_is_moved_or_deleted_by_the_rules_for_everything_in_it() {
    let rules = "[permissions]\ndeny = ['read(/conf/private/**)', 'edit(*.lock)', 'edit(/gen/kept)', 'edit(/mixed/sub/no)']\n\
                 ask = ['read(/diary/**)', 'edit(/dist/asked/**)', 'edit(/mixed/**)']";
    let mut agent = TestAgent::builder()
        .own_file(FILE, rules)
        .file("conf/private/k.txt", "secret")
        .file("conf/a.txt", "a")
        .file("src/deep/er/x.lock", "lock")
        .file("src/a.rs", "a")
        .file("new/kept", "kept")
        .file("diary/monday", "dear diary")
        .file("dist/asked/x", "x")
        .file("plain/a/b", "b")
        .file("mixed/sub/no", "no")
        .variable("TURNWRIGHT_MODE", "auto")
        .permission("reject_once")
        .start();
    for (tool, arguments, questions, told) in [
        ("move_path", json!({ "from": "conf", "to": "conf2" }), 0, "read(/conf/private/**)"),
        ("move_path", json!({ "from": "conf", "to": "conf2" }), 0, "conf/private/k.txt"),
        ("delete_path", json!({ "path": "conf", "recursive": true }), 0, "conf/private/k.txt"),
        ("delete_path", json!({ "path": "src", "recursive": true }), 0, "src/deep/er/x.lock"),
        ("move_path", json!({ "from": "src", "to": "lib" }), 0, "edit(*.lock)"),
        // A rule that asks about a folder does not hide one that denies what is in it.
        ("delete_path", json!({ "path": "mixed", "recursive": true }), 0, "mixed/sub/no"),
        ("move_path", json!({ "from": "mixed", "to": "m" }), 0, "mixed/sub/no"),
        // Denied is where the file would come to lie.
        ("move_path", json!({ "from": "new", "to": "gen" }), 0, "gen/kept"),
        ("move_path", json!({ "from": "diary", "to": "d" }), 1, "rejected"),
        ("delete_path", json!({ "path": "dist", "recursive": true }), 1, "rejected"),
        ("move_path", json!({ "from": "plain", "to": "moved" }), 0, "Moved plain to moved."),
        ("delete_path", json!({ "path": "moved", "recursive": true }), 0, "Deleted moved"),
    ] {
        let (count, result) = attempt(&mut agent, tool, &arguments);
        assert_eq!(count, questions, "{tool} {arguments}: {result}");
        assert!(result.contains(told), "{tool} {arguments}: {result}");
    }
    for kept in [
        "conf/private/k.txt",
        "conf/a.txt",
        "src/a.rs",
        "new/kept",
        "diary/monday",
        "dist/asked/x",
        "mixed/sub/no",
    ] {
        assert!(agent.path(kept).exists(), "{kept}");
    }
    let is_question = |message: &&Value| message["method"] == "session/request_permission";
    let questions: Vec<_> = agent.log.iter().filter(is_question).map(Value::to_string).collect();
    assert!(questions[0].contains("diary/monday"), "{questions:?}");
    assert!(questions[1].contains("dist/asked/x"), "{questions:?}");
}

#[test]
fn the_user_is_told_that_settings_of_the_root_do_not_apply_in_a_folder_below() {
    let rules = "[permissions]\ndeny = ['exec(git push)']\n";
    let mut agent = TestAgent::builder()
        .file(".turnwright/config.toml", rules)
        .file(".mcp.json", "{}")
        .file(".lsp.json", "{}")
        .file("app/a.txt", "a\n")
        .model(json!([says("One."), says("Two.")]))
        .start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert!(!agent.thoughts().contains("Not used"), "{}", agent.thoughts());
    fs::create_dir_all(agent.path(".git/HEAD")).unwrap();
    let params = json!({ "cwd": agent.path("app"), "mcpServers": [] });
    let answer = agent.call("session/new", &params);
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(agent.turn("hi"), "end_turn");
    let files = ".turnwright/config.toml, .mcp.json, .lsp.json";
    let named = format!("{files} in {}.", real_name(agent.workspace()));
    let notice = format!("Not used, because only files of the session's own folder count: {named}");
    assert!(agent.thoughts().contains(&notice), "{}", agent.thoughts());
}
