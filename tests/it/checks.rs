//! `[checks]`: commands of the settings that run before the first edit of a turn and when the model would
//! end it. The model is told only what is new. Checks that the project's files name do the same.

use serde_json::{Value, json};
use turnwright_policy::permission::{CheckBook, KnownCheck};
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says, writes};

/// Prints each line with a mark, and fails if there is one.
const SCRIPT: &str = "! grep -Hn BAD *.txt\n";
const SETTINGS: &str = "mode = 'auto-edit'\n[checks]\nmarks = 'sh check.sh'\n";

fn with_check() -> TestAgentBuilder {
    TestAgent::builder()
        .file("check.sh", SCRIPT)
        .file("old.txt", "fine\nBAD old\n")
        .own_file("config/config.toml", SETTINGS)
}

/// The last user message of the n-th request to the model.
fn last_prompt(agent: &TestAgent, number: usize) -> String {
    let body = agent.model_request(number);
    let messages = body["messages"].as_array().unwrap();
    let last = messages.iter().rfind(|it| it["role"] == "user").unwrap();
    last["content"].as_str().unwrap().to_owned()
}

/// The titles of the cards of checks.
fn checks(agent: &TestAgent) -> Vec<String> {
    let cards = cards::ids(agent).len();
    let titles = (0..cards).map(|it| cards::card(agent, it)["title"].as_str().unwrap().to_owned());
    titles.filter(|it| it.starts_with("Check ")).collect()
}

/// Whether the n-th request has a call of a command.
fn has_command(agent: &TestAgent, number: usize) -> bool {
    let body = agent.model_request(number);
    let messages = body["messages"].as_array().unwrap();
    let calls = messages.iter().filter_map(|it| it["tool_calls"].as_array()).flatten();
    let names: Vec<_> = calls.map(|it| it["function"]["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"write_file"), "{names:?}");
    names.contains(&"exec")
}

fn notices(agent: &TestAgent) -> String {
    agent.updates().iter().map(Value::to_string).filter(|it| it.contains("something new")).collect()
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn the_model_is_told_what_its_edits_have_broken_until_it_is_repaired() {
    let edits = [writes("a.txt", "BAD new\n"), writes("old.txt", "more\nfine\nBAD old\n")];
    let replies = json!([
        edits[0],
        edits[1],
        says("Done."),
        writes("a.txt", "good\n"),
        says("Repaired."),
        says("Nothing to do.")
    ]);
    let mut agent = with_check().model(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    let told = last_prompt(&agent, 3);
    assert!(told.contains("a.txt:1:BAD new\n") && !told.contains("old.txt"), "{told}");
    assert!(told.contains("`marks` (sh check.sh, exit 1):"), "{told}");
    assert_eq!(agent.model().requests().len(), 5);
    assert_eq!(
        checks(&agent),
        [
            "Check marks (before the first edit): sh check.sh",
            "Check marks (after the edits): sh check.sh",
            "Check marks (after the edits): sh check.sh"
        ]
    );
    assert_eq!(cards::requests(&agent), [""; 0], "the user has named this command");
    assert!(notices(&agent).contains("`marks` says something new. The model is told."));
    // A turn without an edit is not checked, and the model has no call that it did not make.
    assert_eq!(agent.turn("more"), "end_turn");
    assert_eq!(checks(&agent).len(), 3);
    assert!(!has_command(&agent, 5));
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn what_a_command_edits_after_another_edit_is_checked() {
    let command = |it: &str| calls("exec", &json!({ "command": it }));
    let replies = json!([
        writes("a.txt", "BAD new\n"),
        says("Done."),
        command("echo good > a.txt; echo BAD worse > b.txt"),
        says("Repaired."),
        command("echo good > b.txt"),
        says("Now."),
        command("cat a.txt"),
        says("It is good."),
    ]);
    let mut agent = with_check().permission("allow_once").model(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    let told = last_prompt(&agent, 4);
    assert!(told.contains("b.txt:1:BAD worse\n") && !told.contains("a.txt"), "{told}");
    assert_eq!(agent.model().requests().len(), 6);
    assert_eq!(checks(&agent).len(), 4);
    // A command that edits nothing is not checked.
    assert_eq!(agent.turn("more"), "end_turn");
    assert_eq!(checks(&agent).len(), 4);
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn a_model_that_does_not_repair_it_ends_after_three_rounds() {
    let again = |number: usize| writes("a.txt", &"BAD new\n".repeat(number));
    let mut replies = Vec::new();
    for number in 1..=4 {
        replies.extend([again(number), says("Done.")]);
    }
    let mut agent = with_check().model(json!(replies)).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!((agent.model().requests().len(), checks(&agent).len()), (8, 5));
    assert!(notices(&agent).contains("The model is not told again."), "{}", notices(&agent));
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn a_model_that_only_explains_is_not_asked_again() {
    let mut agent = with_check()
        .model(json!([writes("a.txt", "BAD new\n"), says("Done."), says("That is intended.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!((agent.model().requests().len(), checks(&agent).len()), (3, 2));
}

#[test]
fn a_rule_that_denies_the_command_applies_to_a_check() {
    let settings = format!("{SETTINGS}[permissions]\ndeny = ['exec(sh)']\n");
    let mut agent = with_check()
        .own_file("config/config.toml", &settings)
        .model(json!([writes("a.txt", "BAD new\n"), says("Done.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!((agent.model().requests().len(), checks(&agent).len()), (2, 1));
    assert_eq!(cards::card(&agent, 1)["status"], "failed");
}

#[test]
fn nothing_is_checked_in_plan_mode_because_nothing_is_edited() {
    let mut agent = with_check()
        .variable("TURNWRIGHT_MODE", "plan")
        .model(json!([writes("a.txt", "BAD new\n"), says("Done.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(checks(&agent), [""; 0]);
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn a_cancel_ends_a_check_at_once_and_no_edit_is_made() {
    let settings = "mode = 'auto-edit'\n[checks]\nslow = 'sleep 60'\n";
    let mut agent = with_check()
        .own_file("config/config.toml", settings)
        .model(json!([writes("a.txt", "x\n")]))
        .start();
    let id = agent.prompt("go");
    agent.wait_for("the check", |it| it["params"]["update"]["status"] == "in_progress");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    cards::check(&agent);
    assert!(!agent.path("a.txt").exists());
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn a_project_s_own_checks_run_only_once_it_is_trusted() {
    let mut agent = TestAgent::builder()
        .file("check.sh", SCRIPT)
        .file(".turnwright/config.toml", "[checks]\nmarks = 'sh check.sh'\n")
        .own_file("config/config.toml", "mode = 'auto-edit'\n")
        .model(json!([writes("a.txt", "x\n"), says("One."), writes("a.txt", "y\n"), says("Two.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(checks(&agent), [""; 0]);
    let told = agent.updates().iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("checks.marks = \\\"sh check.sh\\\""), "{told}");
    let shown = agent.turn_text("/trust");
    let code = shown.split("`/trust ").nth(1).and_then(|it| it.split('`').next()).unwrap();
    assert_eq!(agent.turn(&format!("/trust {code}")), "end_turn");
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(checks(&agent).len(), 2, "{shown}");
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn a_loaded_session_shows_the_checks_and_the_model_does_not_get_them_as_calls() {
    let mut agent = with_check()
        .model(json!([writes("a.txt", "BAD new\n"), says("Done."), says("So be it."), says("Hi.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let titles = checks(&agent);
    agent.restart();
    agent.log.clear();
    let params = json!({ "sessionId": agent.session, "cwd": agent.workspace(), "mcpServers": [] });
    let answer = agent.call("session/load", &params);
    assert!(answer.get("error").is_none(), "{answer}");
    assert_eq!(checks(&agent), titles);
    assert_eq!(agent.turn("more"), "end_turn");
    assert!(agent.model_request(3).to_string().contains("a.txt:1:BAD new"));
    assert!(!has_command(&agent, 3));
}

#[test]
#[cfg_attr(windows, ignore = "the check is a script of sh")]
fn what_a_helper_has_edited_is_checked_by_the_turn_that_has_started_it() {
    let helper = |kind: &str| {
        calls("agent", &json!({ "description": "x", "prompt": "the task", "type": kind }))
    };
    let mut edit = json!({ "when": "the task" });
    edit["steps"] = writes("a.txt", "BAD new\n");
    let mut done = json!({ "when": "the task" });
    done["steps"] = says("Written.");
    let replies = json!([helper("general"), says("Done."), says("It stays."), edit, done]);
    let mut agent = with_check().model(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!(agent.read("a.txt"), "BAD new\n");
    let last = agent.model().requests().len() - 1;
    assert!(
        last_prompt(&agent, last).contains("a.txt:1:BAD new\n"),
        "{}",
        last_prompt(&agent, last)
    );
    assert_eq!(checks(&agent).len(), 2);
    // A helper that only reads breaks nothing.
    let mut agent = with_check().model(json!([helper("explore"), says("Done."), done])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(checks(&agent).len(), 0);
}

/// A project whose makefile names a check, in this mode. `None` where `make` or the sandbox is missing, or `auto` asks
/// about each command.
fn with_makefile(mode: &str) -> Option<TestAgentBuilder> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_make = std::env::split_paths(&path).any(|folder| folder.join("make").is_file());
    if !has_make || !turnwright_sandbox::can_confine() {
        eprintln!("skipped: no make, or no sandbox");
        return None;
    }
    if mode == "auto" && !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: without mount namespaces `auto` asks about checks");
        return None;
    }
    let builder = TestAgent::builder()
        .surroundings()
        .file("Makefile", "check:\n\t! grep -Hn BAD *.txt\n")
        .file("old.txt", "fine\nBAD old\n")
        .own_file("config/config.toml", &format!("mode = '{mode}'\n"));
    Some(builder)
}

const FOUND_BEFORE: &str = "Check make, found by Makefile (before the first edit): make check";
const FOUND_AFTER: &str = "Check make, found by Makefile (after the edits): make check";

/// Two turns with an edit each.
fn two_edits() -> Value {
    json!([writes("a.txt", "x\n"), says("One."), writes("a.txt", "y\n"), says("Two.")])
}

fn questions(agent: &TestAgent) -> usize {
    cards::questions(agent)
}

#[test]
#[cfg_attr(windows, ignore = "the check is a makefile")]
fn a_found_check_runs_unasked_in_mode_auto_and_tells_only_what_is_new() {
    let replies = json!([
        writes("a.txt", "BAD new\n"),
        says("Done."),
        writes("a.txt", "good\n"),
        says("Repaired."),
    ]);
    let Some(builder) = with_makefile("auto") else { return };
    let mut agent = builder.model(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    let told = last_prompt(&agent, 2);
    assert!(told.contains("a.txt:1:BAD new\n") && !told.contains("old.txt"), "{told}");
    assert_eq!(checks(&agent), [FOUND_BEFORE, FOUND_AFTER, FOUND_AFTER]);
    assert_eq!((agent.model().requests().len(), questions(&agent)), (4, 0));
}

#[test]
#[cfg_attr(windows, ignore = "the check is a makefile")]
fn a_found_check_is_proposed_with_its_command_and_can_be_kept_for_the_project() {
    let Some(builder) = with_makefile("auto-edit") else { return };
    let mut agent = builder.permission("allow_always").model(two_edits()).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(checks(&agent), [FOUND_BEFORE, FOUND_AFTER]);
    assert_eq!(questions(&agent), 1, "the answer holds for the session");
    let mut asked = agent.log.iter().filter(|line| line["method"] == "session/request_permission");
    let question = asked.next().unwrap();
    assert_eq!(question["params"]["toolCall"]["title"], FOUND_BEFORE, "{question}");
    let kept = agent.turn_text("/permissions keep");
    assert!(kept.contains("make check"), "{kept}");
    agent.restart();
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!((checks(&agent).len(), questions(&agent)), (2, 0));
}

#[test]
#[cfg_attr(windows, ignore = "the check is a makefile")]
fn a_refused_check_is_not_proposed_again_until_it_is_forgotten() {
    let Some(builder) = with_makefile("auto-edit") else { return };
    let replies = json!([
        writes("a.txt", "1\n"),
        says("One."),
        writes("a.txt", "2\n"),
        says("Two."),
        writes("a.txt", "3\n"),
        says("Three."),
        writes("a.txt", "4\n"),
        says("Four."),
    ]);
    let mut agent = builder.permission("reject_always").model(replies).start();
    for _ in 0..2 {
        assert_eq!(agent.turn("go"), "end_turn");
        cards::check(&agent);
        assert_eq!((checks(&agent).len(), questions(&agent)), (1, 1));
    }
    agent.restart();
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(questions(&agent), 0);
    let shown = agent.turn_text("/checks");
    assert!(shown.contains("make check (found by Makefile, refused)"), "{shown}");
    let forgotten = agent.turn_text("/checks forget");
    assert!(forgotten.contains("will be proposed again"), "{forgotten}");
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(questions(&agent), 1);
}

#[test]
#[cfg_attr(windows, ignore = "the check is a makefile")]
fn a_slow_check_runs_only_at_the_end_and_may_tell_what_is_older() {
    let Some(builder) = with_makefile("auto") else { return };
    let replies = json!([writes("a.txt", "BAD new\n"), says("Done."), says("It stays.")]);
    let mut agent = builder.model(replies).start();
    let project = agent.workspace().canonicalize().unwrap();
    let book = CheckBook::new(&agent.home().join("state"), &project);
    book.note("make check", KnownCheck { last_ms: Some(11_000), ..KnownCheck::default() });
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(checks(&agent), [FOUND_AFTER]);
    let told = last_prompt(&agent, 2);
    assert!(told.contains("may be older than this turn"), "{told}");
    assert!(told.contains("a.txt:1:BAD new\n") && told.contains("old.txt:2:BAD old\n"), "{told}");
}

#[test]
#[cfg_attr(windows, ignore = "the check is a makefile")]
fn without_the_setting_no_check_is_looked_for() {
    let Some(builder) = with_makefile("auto") else { return };
    let mut agent = builder
        .own_file("config/config.toml", "mode = 'auto'\nfind_checks = false\n")
        .model(two_edits())
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(checks(&agent), [""; 0]);
    let shown = agent.turn_text("/checks");
    assert!(shown.contains("No checks are known here."), "{shown}");
}
