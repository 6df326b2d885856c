//! Rules: what they spare, what they forbid, whose they are, and what becomes of a wrong one.

use serde_json::json;
use turnwright_testing::questions::attempt;
use turnwright_testing::raw_server::{RawServer, write_stream};

use crate::agent::TestAgent;

const FILE: &str = "config/config.toml";

const MANAGED: &str = "managed/config.toml";

fn write(agent: &mut TestAgent, path: &str) -> (usize, String) {
    attempt(agent, "write_file", &json!({ "path": path, "content": "new\n" }))
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
