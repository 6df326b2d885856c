//! Language servers: what they say of an edit is in its result, nothing that they said of an earlier text is, and no
//! misbehaviour of one does harm. A scripted server takes the place of pyright.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnwright_testing::{cards, write_program};

use crate::agent::{TestAgent, TestAgentBuilder, assert_gone, calls, is_alive, says, writes};

const ON: &str = "mode = 'auto-edit'\n[lsp]\nmode = 'on'\n";
const SERVER: &str = include_str!("../data/language-server/server.py");

/// A folder with the server under the name of a known one.
struct Programs(tempfile::TempDir);

impl Programs {
    /// `None`, with a note, where it cannot run.
    fn new(mode: &str, mark: &str) -> Option<Programs> {
        let python = ["/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let Some(python) = python.filter(|_| turnwright_sandbox::can_confine()) else {
            eprintln!("NOT TESTED: there is no sandbox, or no python3");
            return None;
        };
        let folder = turnwright_testing::temporary_folder();
        let script = folder.path().join("server.py");
        std::fs::write(&script, SERVER).unwrap();
        let line = format!("#!/bin/sh\nexec {python} -u {} {mode} {mark}\n", script.display());
        write_program(&folder.path().join("pyright-langserver"), &line);
        Some(Programs(folder))
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("pyright-langserver")
    }

    fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.0.path().display())
    }

    fn agent(&self, settings: &str) -> TestAgentBuilder {
        TestAgent::builder()
            .own_file("config/config.toml", settings)
            .variable("PATH", &self.path())
            .permission("allow_once")
            .model(json!([]))
    }
}

/// Writes a file in a turn of its own. `rounds` is how often the model says that it is done. Returns the result.
fn edit(agent: &mut TestAgent, file: &str, text: &str, rounds: usize) -> String {
    agent.model().push(writes(file, text)).unwrap();
    for _ in 0..rounds {
        agent.model().push(says("Done.")).unwrap();
    }
    cards::turn(agent)
}

fn requests(agent: &TestAgent) -> usize {
    agent.model().requests().len()
}

/// The last user message of the last request to the model.
fn last_prompt(agent: &TestAgent) -> String {
    let body = agent.model_request(requests(agent) - 1);
    let messages = body["messages"].as_array().unwrap();
    let last = messages.iter().rfind(|it| it["role"] == "user").unwrap();
    last["content"].as_str().unwrap().to_owned()
}

#[test]
fn only_errors_that_an_edit_has_made_are_in_its_result() {
    for mode in ["push", "pull", "unversioned", "old", "asks", "flood"] {
        let Some(programs) = Programs::new(mode, "1") else { return };
        let mut agent = programs.agent(ON).file("a.py", "BAD old\nfine\n").start();
        let none = "[pyright-langserver: no new errors in a.py]";
        let result = edit(&mut agent, "a.py", "more\nBAD old\nfine\n", 1);
        assert!(result.contains(none), "{mode}: {result}");
        let result = edit(&mut agent, "a.py", "more\nBAD old\n\u{1f600} BAD new\n", 2);
        let found = "[pyright-langserver: 1 new error in a.py]\n3:3: E1: wrong: \u{1f600} BAD new";
        assert!(result.contains(found) && !result.contains("stale"), "{mode}: {result}");
        let told = last_prompt(&agent);
        assert!(told.contains("new since the turn began") && told.contains("3:3: E1"), "{told}");
        let result = edit(&mut agent, "a.py", "mended\n", 1);
        assert!(result.contains(none), "{mode}: {result}");
        assert!(!agent.path("written-by-server").exists());
        agent.close();
    }
}

#[test]
fn an_error_that_is_mended_in_the_turn_is_not_told_at_its_end() {
    let Some(programs) = Programs::new("push", "1") else { return };
    let mut agent = programs.agent(ON).start();
    for reply in [writes("a.py", "BAD\n"), writes("a.py", "good\n"), says("Done.")] {
        agent.model().push(reply).unwrap();
    }
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, 2);
    assert!(results[0].contains("[pyright-langserver: 1 new error in a.py]"), "{results:?}");
    assert!(results[1].contains("no new errors"), "{results:?}");
    assert_eq!(requests(&agent), 3);
    let shown = cards::card_text(&cards::card(&agent, 0));
    assert!(shown.contains("pyright-langserver: 1 new error"), "{shown}");
}

#[test]
fn the_end_of_a_turn_looks_at_all_files_of_a_large_patch() {
    let Some(programs) = Programs::new("push", "1") else { return };
    let mut agent = programs.agent(ON).start();
    let texts = [["fine"; 11].as_slice(), &["BAD"]].concat();
    let mut body = String::new();
    for (number, text) in texts.iter().enumerate() {
        body += &format!("*** Add File: f{number}.py\n+{text}\n");
    }
    let patch = json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch") });
    for reply in [calls("apply_patch", &patch), says("Done."), says("Done.")] {
        agent.model().push(reply).unwrap();
    }
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(!cards::results(&agent, 1)[0].contains("1 new error"));
    let told = last_prompt(&agent);
    assert!(told.contains("[pyright-langserver: 1 new error in f11.py]"), "{told}");
}

#[test]
fn what_is_not_known_is_never_told_as_clean() {
    for (mode, why) in [("silent", "it has not answered in time"), ("slow", "it is still starting")]
    {
        let Some(programs) = Programs::new(mode, "1") else { return };
        let mut agent = programs.agent(ON).start();
        let result = edit(&mut agent, "a.py", "BAD\n", 1);
        let told = format!("[pyright-langserver: not known yet if a.py has new errors: {why}]");
        assert!(result.contains(&told), "{result}");
        assert_eq!(requests(&agent), 2, "the model can do nothing about it");
        assert!(agent.thoughts().contains("checked the latest version of a.py"));
    }
}

#[test]
fn a_server_that_crashes_is_started_again_three_times_and_one_that_eats_memory_is_stopped() {
    let Some(programs) = Programs::new("crash", "1") else { return };
    let mut agent = programs.agent(ON).start();
    assert!(edit(&mut agent, "a.py", "fine\n", 1).contains("no new errors"));
    for number in 0..4 {
        let result = edit(&mut agent, "a.py", &format!("CRASH {number}\n"), 1);
        assert!(result.contains("not known yet"), "{result}");
        let result = edit(&mut agent, "a.py", &format!("fine {number}\n"), 1);
        assert_eq!(result.contains("no new errors"), number < 3, "{number}: {result}");
    }
    let settings = format!("{ON}memory_mb = 128\n");
    let Some(programs) = Programs::new("memory", "1") else { return };
    let mut agent = programs.agent(&settings).start();
    assert!(edit(&mut agent, "a.py", "fine\n", 1).contains("no new errors"));
    assert!(edit(&mut agent, "a.py", "HUGE\n", 1).contains("not known yet"));
    // Only Linux tells how much memory a program holds. Without an end it would sleep.
    let result = edit(&mut agent, "a.py", "fine again\n", 1);
    assert!(result.contains("no new errors") || !cfg!(target_os = "linux"), "{result}");
}

#[test]
fn the_last_line_of_a_server_that_fails_while_it_starts_is_told() {
    let Some(programs) = Programs::new("push", "1") else { return };
    let script = "#!/bin/sh\nsleep 1\necho 'error: no such component' >&2\nexit 1\n";
    write_program(&programs.program(), script);
    let mut agent = programs.agent(ON).start();
    let result = edit(&mut agent, "a.py", "fine\n", 1);
    assert!(result.contains("It printed: error: no such component"), "{result}");
}

#[test]
fn servers_are_used_only_in_projects_that_the_user_trusts_and_end_with_the_session() {
    let Some(programs) = Programs::new("push", "83640917") else { return };
    let settings = "mode = 'auto-edit'\n";
    let mut agent = programs.agent(settings).file("a.py", "").start();
    assert!(!edit(&mut agent, "a.py", "BAD\n", 1).contains("pyright"));
    assert!(!is_alive("83640917"));
    let shown = agent.turn_text("/trust");
    assert!(shown.contains("Installed here: pyright-langserver."), "{shown}");
    let at = shown.find("`/trust ").unwrap() + 8;
    let code = shown[at..].split('`').next().unwrap().to_owned();
    let trusted = agent.turn_text(&format!("/trust {code}"));
    assert!(trusted.contains("started by the next edit"), "{trusted}");
    let result = edit(&mut agent, "a.py", "BAD\nBAD\n", 2);
    assert!(result.contains("[pyright-langserver: 1 new error in a.py]"), "{result}");
    assert!(is_alive("83640917"));
    agent.close();
    assert_gone("83640917");
}

#[test]
fn the_servers_of_a_project_run_once_exactly_its_file_is_trusted() {
    let Some(programs) = Programs::new("push", "1") else { return };
    let file = json!({ "words": {
        "command": programs.program(),
        "extensionToLanguage": { ".words": "words" }
    } });
    let mut agent = programs.agent(ON).file(".lsp.json", &file.to_string()).start();
    assert!(!edit(&mut agent, "a.words", "BAD\n", 1).contains("[words:"));
    let notice = agent.thoughts();
    assert!(notice.contains("the language server words"), "{notice}");
    let shown = agent.turn_text("/trust");
    let at = shown.find("`/trust ").unwrap() + 8;
    let code = shown[at..].split('`').next().unwrap().to_owned();
    agent.turn_text(&format!("/trust {code}"));
    agent.session = agent.new_session();
    let result = edit(&mut agent, "a.words", "BAD\nBAD\n", 2);
    assert!(result.contains("[words: 1 new error in a.words]"), "{result}");
}

#[test]
fn places_and_renames_are_offered_while_a_server_is_ready_and_a_rename_is_asked_about() {
    let Some(programs) = Programs::new("pull", "1") else { return };
    let mut agent = programs
        .agent("[lsp]\nmode = 'on'\n")
        .file("a.py", "import b\n\u{1f600} = b.thing()\n")
        .file("b.py", "def thing():\n    pass\n")
        .start();
    let names = ["definition", "references", "rename_symbol"].map(str::to_owned);
    edit(&mut agent, "c.py", "fine\n", 1);
    assert!(names.iter().all(|name| !agent.offered_tools(0).contains(name)));
    assert!(names.iter().all(|name| agent.offered_tools(1).contains(name)));
    let asked = cards::questions(&agent);
    let symbol = json!({ "path": "a.py", "symbol": "b.thing" });
    let result = cards::run_each(&mut agent, "definition", std::slice::from_ref(&symbol)).remove(0);
    assert_eq!(result, "1 place of b.thing\nb.py:1: def thing():\n");
    let result = cards::run_each(&mut agent, "references", &[symbol]).remove(0);
    assert!(result.starts_with("2 places of b.thing\na.py:2: "), "{result}");
    assert_eq!(cards::questions(&agent), asked);
    let gone = json!({ "path": "a.py", "symbol": "nothing" });
    let result = cards::run_each(&mut agent, "references", &[gone]).remove(0);
    assert_eq!(result, "`nothing` is not there. Use grep.");
    let rename = json!({ "path": "a.py", "symbol": "thing", "new_name": "matter" });
    let result = cards::run_each(&mut agent, "rename_symbol", &[rename]).remove(0);
    assert!(result.contains("Updated") && result.contains("no new errors"), "{result}");
    assert_eq!(cards::questions(&agent), asked + 1);
    assert_eq!(agent.read("a.py"), "import b\n\u{1f600} = b.matter()\n");
    assert_eq!(agent.read("b.py"), "def matter():\n    pass\n");
    std::os::unix::fs::symlink("b.py", agent.path("link.py")).unwrap();
    let back = json!({ "path": "a.py", "symbol": "matter", "new_name": "thing" });
    let result = cards::run_each(&mut agent, "rename_symbol", &[back]).remove(0);
    assert!(result.contains("by two paths"), "{result}");
    assert_eq!(agent.read("b.py"), "def matter():\n    pass\n");
}

#[test]
fn a_cancel_does_not_wait_for_a_server() {
    let Some(programs) = Programs::new("slow", "1") else { return };
    let mut agent = programs.agent(ON).start();
    agent.model().push(writes("a.py", "x\n")).unwrap();
    let id = agent.prompt("go");
    agent.wait_for_status("in_progress");
    let begun = std::time::Instant::now();
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    assert!(begun.elapsed() < std::time::Duration::from_millis(1_500));
}

#[test]
fn doctor_says_which_servers_are_used() {
    let Some(programs) = Programs::new("push", "1") else { return };
    let home = turnwright_testing::temporary_folder();
    let mut command = crate::agent::subcommand(home.path(), &["doctor", "--json"]);
    command.env("PATH", programs.path()).env("TURNWRIGHT_MODEL", "offline");
    let output = turnwright_testing::process_waits::output(&mut command).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let known = &report["language_servers"];
    assert_eq!(known["mode"], "auto", "{report}");
    let installed = known["installed"].as_array().unwrap();
    assert!(installed.contains(&json!("pyright-langserver")), "{known}");
}
