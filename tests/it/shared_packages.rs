//! Packages that uv, pnpm and Bun link from a store (hard links): what a command writes there changes no other
//! project.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// The store of a package manager, and a file of the home.
struct Store(tempfile::TempDir);

const SITE_PACKAGES: &str = ".venv/lib/python3.12/site-packages";

impl Store {
    fn new() -> Store {
        let store = Store(turnwright_testing::temporary_folder());
        for name in ["a.py", "b.py", "c.py", "index.js", "profile"] {
            fs::write(store.0.path().join(name), "good\n").unwrap();
        }
        store
    }

    /// Links the packages into the project.
    fn fill(&self, agent: &TestAgent) {
        let packages = [
            (SITE_PACKAGES, "a.py"),
            (SITE_PACKAGES, "b.py"),
            (&format!("{SITE_PACKAGES}/sub"), "c.py"),
            ("node_modules/.pnpm/x@1/node_modules/x", "index.js"),
            ("dotfiles", "profile"),
        ];
        for (folder, name) in packages {
            fs::create_dir_all(agent.path(folder)).unwrap();
            let path = agent.path(&format!("{folder}/{name}"));
            fs::hard_link(self.0.path().join(name), path).unwrap();
        }
    }

    fn assert_unchanged(&self) {
        for file in fs::read_dir(self.0.path()).unwrap() {
            let path = file.unwrap().path();
            assert_eq!(fs::read_to_string(&path).unwrap(), "good\n", "{}", path.display());
        }
    }
}

fn agent(command: &str) -> TestAgentBuilder {
    let replies: Value =
        json!([calls("exec", &json!({ "command": command, "timeout": 20 })), says("Ok.")]);
    TestAgent::builder()
        .file(".gitignore", ".venv\nnode_modules\n")
        .variable("TURNWRIGHT_MODE", "auto")
        .permission("allow_once")
        .model(replies)
}

/// Runs a command in a project with packages from the store. Returns `None` where commands are not kept from them.
fn run(command: &str, store: &Store) -> Option<(TestAgent, String)> {
    if !turnwright_sandbox::namespace_support().mounts {
        eprintln!("NOT TESTED: there are no mount namespaces here");
        return None;
    }
    let mut agent = agent(command).start();
    store.fill(&agent);
    assert_eq!(agent.turn("go"), "end_turn");
    store.assert_unchanged();
    let result = agent.model_request(1)["messages"].to_string();
    Some((agent, result))
}

#[test]
fn what_a_command_changes_in_packages_of_a_store_is_changed_for_the_project_alone() {
    let store = Store::new();
    let command = "cd .venv/lib/python3.12/site-packages && echo evil >> a.py; rm b.py; echo new > d.py; \
                   rm -r sub; mkdir sub; echo deep > sub/e.py; cat a.py d.py; \
                   cd \"$OLDPWD\"; echo evil >> node_modules/.pnpm/x@1/node_modules/x/index.js; \
                   echo evil >> dotfiles/profile; sh -c 'echo over'";
    let Some((agent, result)) = run(command, &store) else { return };
    assert!(result.contains("over"), "{result}");
    assert_eq!(fs::read_to_string(agent.path("dotfiles/profile")).unwrap(), "good\n");
    if !turnwright_sandbox::can_layer_caches(agent.home()) {
        return eprintln!("NOT TESTED: there are no overlay file systems for users here");
    }
    let packages = agent.path(SITE_PACKAGES);
    let read = |name: &str| fs::read_to_string(packages.join(name)).unwrap_or_default();
    assert_eq!((read("a.py"), read("d.py")), ("good\nevil\n".into(), "new\n".into()), "{result}");
    assert_eq!(read("sub/e.py"), "deep\n");
    assert!(!packages.join("b.py").exists() && !packages.join("sub/c.py").exists());
    assert_eq!(fs::metadata(packages.join("a.py")).unwrap().nlink(), 1);
    let module = agent.path("node_modules/.pnpm/x@1/node_modules/x/index.js");
    assert_eq!(fs::read_to_string(module).unwrap(), "good\nevil\n");
    let projects = fs::read_dir(agent.home().join("state/projects")).unwrap();
    for project in projects {
        let layers = fs::read_dir(project.unwrap().path().join("caches/layers")).unwrap();
        assert_eq!(layers.count(), 0, "a layer is left");
    }
}

#[test]
fn an_environment_with_packages_of_a_store_can_be_deleted_and_made_anew() {
    let store = Store::new();
    let command = "rm -rf .venv && mkdir -p .venv/lib && echo new > .venv/lib/x";
    let Some((agent, result)) = run(command, &store) else { return };
    assert!(!agent.path(SITE_PACKAGES).exists(), "{result}");
    assert_eq!(fs::read_to_string(agent.path(".venv/lib/x")).unwrap(), "new\n");
}

#[test]
fn a_script_that_deletes_packages_of_a_store_is_told_why_it_cannot() {
    let store = Store::new();
    let command = "sh -c 'rm -rf node_modules'";
    let Some((_, result)) = run(command, &store) else { return };
    assert!(result.contains("node_modules/.pnpm") && result.contains("rm -rf"), "{result}");
}

#[test]
fn what_a_command_prints_into_a_file_with_another_name_changes_only_the_name_that_it_gives() {
    let store = Store::new();
    let Some((agent, _)) = run("cat .gitignore > dotfiles/profile", &store) else { return };
    assert_eq!(agent.read("dotfiles/profile"), ".venv\nnode_modules\n");
}

#[test]
fn what_a_command_in_the_background_changes_in_packages_is_there_when_it_has_ended() {
    let store = Store::new();
    if !turnwright_sandbox::can_layer_caches(store.0.path()) {
        return eprintln!("NOT TESTED: there are no overlay file systems for users here");
    }
    let line = format!(
        "echo evil >> {SITE_PACKAGES}/a.py; touch ready; until [ -e go ]; do sleep 0.1; done"
    );
    let run = calls("exec", &json!({ "command": line, "background": true }));
    let mut agent = agent("true")
        .model(json!([
            run,
            says("Ok."),
            calls("exec", &json!({ "command": "touch go" })),
            says("Ok.")
        ]))
        .start();
    store.fill(&agent);
    assert_eq!(agent.turn("go"), "end_turn");
    crate::agent::eventually("it runs", || agent.path("ready").exists());
    assert_eq!(agent.turn("go on"), "end_turn");
    let changed = agent.path(&format!("{SITE_PACKAGES}/a.py"));
    crate::agent::eventually("it is published", || {
        fs::read_to_string(&changed).unwrap() == "good\nevil\n"
    });
    store.assert_unchanged();
}

#[test]
fn a_server_changes_nothing_in_packages_of_a_store() {
    let store = Store::new();
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("NOT TESTED: there are no mount namespaces here");
    }
    let program = turnwright_testing::example_program("scripted_server");
    let scenario = json!({ "tools": [{ "name": "echo" }] }).to_string();
    let script = format!(
        "echo evil >> {SITE_PACKAGES}/a.py; echo evil >> node_modules/.pnpm/x@1/node_modules/x/index.js; exec \"$0\" \"$1\""
    );
    let server = json!({ "name": "notes", "command": "/bin/sh", "env": [],
        "args": ["-c", script, program, scenario] });
    let mut agent = agent("true")
        .model(json!([calls("mcp__notes__echo", &json!({})), says("Ok.")]))
        .server_as(server)
        .initialize();
    store.fill(&agent);
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    store.assert_unchanged();
}
