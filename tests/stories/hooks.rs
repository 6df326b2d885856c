//! Hooks: programs that run at prompts, before and after calls and at the end. The ten in `tests/data/hooks` have the
//! shapes that people use.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright_testing::{assert_gone, cards, is_alive};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, runs, says, writes};

const FORMAT: &str = include_str!("../data/hooks/format.py");
const GUARD: &str = include_str!("../data/hooks/guard.sh");
const PROTECT: &str = include_str!("../data/hooks/protect.py");
const LOG: &str = include_str!("../data/hooks/log.sh");
const NOTIFY: &str = include_str!("../data/hooks/notify.sh");
const CONTEXT: &str = include_str!("../data/hooks/context.sh");
const START: &str = include_str!("../data/hooks/start.py");
const REWRITE: &str = include_str!("../data/hooks/rewrite.js");
const STOP: &str = include_str!("../data/hooks/stop.py");
const LINT: &str = include_str!("../data/hooks/lint.sh");

/// Settings in which nothing but hooks asks or runs anything more.
const AUTO_EDIT: &str = "mode = 'auto-edit'\nverify = 'off'\n";
const ASK: &str = "mode = 'ask'\nverify = 'off'\n";
const FULL: &str = "mode = 'full'\nverify = 'off'\n";

/// A value as TOML in one line.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let rows: Vec<_> =
                fields.iter().map(|(key, value)| format!("{key} = {}", toml(value))).collect();
            format!("{{ {} }}", rows.join(", "))
        }
        plain => plain.to_string(),
    }
}

/// Starts an agent whose user has these hooks. `HOOKS` in a command is the folder with the scripts.
fn start(settings: &str, hooks: &Value, scripts: &[(&str, &str)], replies: &Value) -> TestAgent {
    let mut builder: TestAgentBuilder = TestAgent::builder()
        .variable("PATH", &std::env::var("PATH").unwrap())
        .permission("allow_once")
        .model(replies.clone());
    for (name, script) in scripts {
        builder = builder.own_file(&format!("hooks/{name}"), script);
    }
    let mut agent = builder.own_file("config/config.toml", "").initialize();
    let folder = agent.home().join("hooks");
    let rows: Vec<_> = hooks
        .as_object()
        .unwrap()
        .iter()
        .map(|(event, groups)| format!("{event} = {}\n", toml(groups)))
        .collect();
    let text = format!("{settings}[hooks]\n{}", rows.concat());
    let text = text.replace("HOOKS", &folder.to_string_lossy());
    std::fs::write(agent.home().join("config/config.toml"), text).unwrap();
    agent.session = agent.new_session();
    agent
}

/// A group with one command.
fn group(matcher: &str, command: &str) -> Value {
    json!([{ "matcher": matcher, "hooks": [{ "type": "command", "command": command }] }])
}

/// Returns true if a program can be run. A test that needs one says so loudly if it cannot.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {program} is not installed, so the hook that needs it was not run");
    }
    found
}

fn told(agent: &TestAgent, number: usize) -> String {
    agent.model_request(number).to_string()
}

fn kept(agent: &TestAgent, name: &str) -> String {
    std::fs::read_to_string(agent.home().join("hooks").join(name)).unwrap_or_default()
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_formatter_changes_the_file_and_the_next_edit_fits() {
    if !has("python3") {
        return;
    }
    let hooks = json!({ "PostToolUse": group("Edit|Write", "python3 HOOKS/format.py") });
    let edit = json!({ "path": "a.py", "old_string": "x = 1", "new_string": "x = 2" });
    let replies = json!([writes("a.py", "x = 1   \n"), calls("edit_file", &edit), says("Done.")]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("format.py", FORMAT)], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!(agent.read("a.py"), "x = 2\n");
    assert!(told(&agent, 1).contains("A hook has changed a.py"), "{}", told(&agent, 1));
    assert!(!told(&agent, 2).contains("changed on disk"), "{}", told(&agent, 2));
    assert!(agent.turn_text("/undo").contains("a.py"));
    assert!(!agent.path("a.py").exists(), "what the hook has changed is undone with the edit");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_formatter_does_not_make_changes_of_the_user_known() {
    if !has("python3") {
        return;
    }
    let hooks = json!({ "PostToolUse": group("Edit|Write", "python3 HOOKS/format.py") });
    let edit = json!({ "path": "a.py", "old_string": "x = 1", "new_string": "x = 2   " });
    let replies = json!([
        calls("read_file", &json!({ "path": "a.py" })),
        says("Read."),
        calls("edit_file", &edit),
        writes("a.py", "x = 3\n"),
        says("Done."),
    ]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("format.py", FORMAT)], &replies);
    for before in ["x = 1\n", "x = 1\ny = 1\n"] {
        std::fs::write(agent.path("a.py"), before).unwrap();
        assert_eq!(agent.turn("go"), "end_turn");
    }
    assert!(told(&agent, 3).contains("A hook has changed a.py"), "{}", told(&agent, 3));
    assert_eq!(agent.read("a.py"), "x = 2\ny = 1\n");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn the_model_is_told_that_a_hook_has_removed_its_file() {
    let hooks = json!({ "PostToolUse": group("Write", "rm *.tmp") });
    let replies = json!([writes("a.tmp", "x"), says("So.")]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("plain.txt", "x")], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(!agent.path("a.tmp").exists());
    assert!(told(&agent, 1).contains("A hook has removed a.tmp"), "{}", told(&agent, 1));
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_guard_refuses_a_command_before_anybody_is_asked() {
    let hooks = json!({ "PreToolUse": group("Bash", "sh HOOKS/guard.sh") });
    let replies = json!([
        runs("git push --force"),
        runs("true"),
        calls("exec", &json!({ "script": "git push --force" })),
        calls("exec", &json!({ "command": ["git", "push", "--force"] })),
        says("I will not."),
    ]);
    let mut agent = start(FULL, &hooks, &[("guard.sh", GUARD)], &replies);
    assert_eq!(agent.turn("push"), "end_turn");
    cards::check(&agent);
    assert!(told(&agent, 1).contains("no forced pushes in this house"), "{}", told(&agent, 1));
    assert!(told(&agent, 1).contains("A hook of the user refuses this."));
    assert_eq!(cards::questions(&agent), 0);
    assert_eq!(cards::card(&agent, 0)["status"], "failed");
    assert_eq!(cards::card(&agent, 1)["status"], "completed", "other commands run");
    for number in [2, 3] {
        assert_eq!(cards::card(&agent, number)["status"], "failed", "however it is written");
        let request = told(&agent, number + 1);
        assert_eq!(request.matches("no forced pushes").count(), number, "{request}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_guard_sees_each_file_of_a_patch_by_its_absolute_path() {
    if !has("python3") {
        return;
    }
    let hooks = json!({ "PreToolUse": group("Edit|MultiEdit|Write", "python3 HOOKS/protect.py") });
    let patch = "*** Begin Patch\n*** Add File: a.txt\n+a\n*** Add File: b.lock\n+b\n*** End Patch";
    let replies = json!([
        calls("apply_patch", &json!({ "patch": patch })),
        writes("c.txt", "c"),
        says("So.")
    ]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("protect.py", PROTECT)], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(told(&agent, 1).contains("b.lock is generated"), "{}", told(&agent, 1));
    assert!(!agent.path("a.txt").exists(), "one refused file refuses the call");
    assert!(agent.path("c.txt").exists());
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_logger_sees_the_calls_of_the_session_and_of_helpers() {
    let log = group("*", "sh HOOKS/log.sh");
    let hooks = json!({ "PreToolUse": log, "SubagentStart": log, "SubagentStop": log, "Stop": log,
        "SessionEnd": log });
    let task = json!({ "description": "Look", "prompt": "Look around.", "type": "explore" });
    let replies =
        json!([calls("agent", &task), calls("list_dir", &json!({})), says("Two."), says("Done.")]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("log.sh", LOG)], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    let session = agent.session.clone();
    agent.call("session/close", &json!({ "sessionId": session }));
    let lines: Vec<Value> =
        kept(&agent, "log.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let word = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", word("hook_event_name"), word("tool_name"), word("agent_type"))
        })
        .collect();
    assert_eq!(
        seen,
        [
            "PreToolUse Agent -",
            "SubagentStart - explore",
            "PreToolUse LS explore",
            "SubagentStop - explore",
            "Stop - -",
            "SessionEnd - -"
        ]
    );
    for line in &lines {
        assert_eq!(line["session_id"], session.as_str(), "{line}");
        assert_eq!(line["permission_mode"], "acceptEdits");
        assert_eq!(line["transcript_path"], Value::Null);
    }
    assert_eq!(lines[4]["last_assistant_message"], "Done.");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_guard_is_told_the_folder_in_which_a_command_runs() {
    let hooks = json!({ "PreToolUse": group("Bash", "sh HOOKS/log.sh") });
    let replies = json!([
        calls("exec", &json!({ "command": "true", "workdir": "sub" })),
        runs("true"),
        says("Done.")
    ]);
    let mut agent = start(FULL, &hooks, &[("log.sh", LOG)], &replies);
    std::fs::create_dir(agent.path("sub")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    let log = kept(&agent, "log.jsonl");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_below: Vec<_> =
        lines.map(|line| line["cwd"].as_str().unwrap().ends_with("/sub")).collect();
    assert_eq!(is_below, [true, false], "{log}");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_notifier_hears_of_questions_and_of_the_end() {
    let hooks = json!({ "Notification": group("", "sh HOOKS/notify.sh") });
    let replies = json!([writes("a.txt", "a"), says("Done.")]);
    let mut agent = start(ASK, &hooks, &[("notify.sh", NOTIFY)], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    eventually("both notifications", || {
        let notified = kept(&agent, "notified.txt");
        ["permission_prompt", "agent_completed"].iter().all(|kind| notified.contains(kind))
    });
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_sound_that_a_hook_has_started_is_played_to_its_end() {
    // It keeps the output of the hook open.
    let plays = "(sleep 1; echo played > HOOKS/sound.txt) &";
    let hooks = json!({ "Stop": group("", plays) });
    let mut agent = start(AUTO_EDIT, &hooks, &[("sound.txt", "")], &json!([says("Done.")]));
    assert_eq!(agent.turn("go"), "end_turn");
    eventually("the sound", || kept(&agent, "sound.txt") == "played\n");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn context_comes_with_the_prompt_and_with_the_first_one_that_of_the_start() {
    if !has("python3") {
        return;
    }
    let hooks = json!({
        "UserPromptSubmit": group("", "sh HOOKS/context.sh"),
        "SessionStart": group("startup", "python3 HOOKS/start.py"),
    });
    let scripts = [("context.sh", CONTEXT), ("start.py", START)];
    let mut agent = start(AUTO_EDIT, &hooks, &scripts, &json!([says("One."), says("Two.")]));
    assert_eq!(agent.turn("first"), "end_turn");
    assert_eq!(agent.turn("second"), "end_turn");
    for text in ["PARSER-17", "Begun by startup: commit messages are written in Latin."] {
        assert!(told(&agent, 0).contains(text), "{text}: {}", told(&agent, 0));
    }
    assert_eq!(told(&agent, 1).matches("PARSER-17").count(), 2);
    assert_eq!(told(&agent, 1).matches("in Latin").count(), 1, "the session begins once");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn after_a_summary_within_a_turn_the_hooks_of_the_start_are_heard_at_once() {
    let full = json!({ "code": "context_length_exceeded", "message":
        "This model's maximum context length is 32000 tokens. However, your messages resulted in \
         35000 tokens." });
    let usage = json!({ "usage": { "prompt_tokens": 29_000, "completion_tokens": 10 } });
    let replies = json!([
        [{ "text": "One." }, usage],
        [{ "status": 400, "body": { "error": full } }],
        says("A summary."),
        says("Two."),
        says("Three."),
    ]);
    let hooks = json!({ "SessionStart": group("compact", "echo In Latin.") });
    let mut agent = start(AUTO_EDIT, &hooks, &[], &replies);
    assert_eq!(agent.turn(&"Read this. ".repeat(9_000)), "end_turn");
    assert_eq!(agent.turn("go on"), "end_turn");
    assert!(told(&agent, 3).contains("In Latin."), "{}", told(&agent, 3));
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(told(&agent, 4).matches("In Latin.").count(), 1, "{}", told(&agent, 4));
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_changed_command_is_the_one_that_is_judged_shown_and_run() {
    if !has("node") {
        return;
    }
    let hooks = json!({ "PreToolUse": group("Bash", "node HOOKS/rewrite.js") });
    let replies = json!([runs("echo npm"), runs("npm test"), says("Done.")]);
    let settings = format!("{FULL}[permissions]\ndeny = ['exec(pnpm)']\n");
    let mut agent = start(&settings, &hooks, &[("rewrite.js", REWRITE)], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!(cards::card(&agent, 0)["rawInput"]["command"], "echo pnpm");
    assert!(told(&agent, 1).contains("were changed by a hook of the user"), "{}", told(&agent, 1));
    assert!(told(&agent, 2).contains("A rule denies this: exec(pnpm)"), "{}", told(&agent, 2));
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_hook_keeps_a_turn_from_ending_and_the_reason_is_told() {
    if !has("python3") {
        return;
    }
    let hooks = json!({ "Stop": group("", "python3 HOOKS/stop.py") });
    let replies = json!([says("Done."), writes("NOTES.md", "notes"), says("Now it is.")]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("stop.py", STOP)], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.model().requests().len(), 3);
    assert!(told(&agent, 1).contains("Write NOTES.md first."), "{}", told(&agent, 1));
    assert!(agent.thoughts().contains("A hook wants the turn to go on"), "{}", agent.thoughts());
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_hook_that_never_lets_a_turn_end_is_stopped_after_eight_times() {
    let hooks = json!({ "Stop": group("", "echo again >&2; exit 2") });
    let replies: Vec<_> = (0..12).map(|number| says(&format!("Done {number}."))).collect();
    let mut agent = start(AUTO_EDIT, &hooks, &[], &json!(replies));
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.model().requests().len(), 9);
    assert!(agent.thoughts().contains("8 times"), "{}", agent.thoughts());
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_linter_tells_the_model_what_is_wrong() {
    let hooks = json!({ "PostToolUse": group("Write", "sh HOOKS/lint.sh") });
    let replies = json!([writes("a.py", "print(1)\n"), writes("a.py", "1\n"), says("Done.")]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("lint.sh", LINT)], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert!(told(&agent, 1).contains("1:print(1)"), "{}", told(&agent, 1));
    assert_eq!(told(&agent, 2).matches("1:print(1)").count(), 1);
    assert_eq!(cards::card(&agent, 0)["status"], "completed", "the file is written all the same");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_refused_prompt_never_reaches_the_model() {
    let command = "grep -q 'the secret' && { echo 'say nothing of it' >&2; exit 2; }; exit 0";
    let hooks = json!({ "UserPromptSubmit": group("", command) });
    let mut agent = start(AUTO_EDIT, &hooks, &[], &json!([says("Hello.")]));
    let text = agent.turn_text("Tell me the secret.");
    assert!(text.contains("A hook has refused this prompt") && text.contains("say nothing of it"));
    assert_eq!(agent.model().requests().len(), 0);
    assert_eq!(agent.turn("Hello"), "end_turn");
    assert!(!told(&agent, 0).contains("the secret"), "{}", told(&agent, 0));
}

/// A command that answers `PreToolUse` with this decision.
fn decides(decision: &str) -> String {
    format!(r#"printf '{{"hookSpecificOutput":{{"permissionDecision":"{decision}"}}}}'"#)
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn an_allow_spares_what_mode_auto_would_not_ask_and_nothing_else() {
    let deny = format!("{ASK}[permissions]\ndeny = ['edit(/a.txt)']\n");
    let ask = format!("{ASK}[permissions]\nask = ['edit(/a.txt)']\n");
    let plan = "mode = 'plan'\nverify = 'off'\n";
    for (settings, decision, path, questions, is_written) in [
        (ASK, "allow", "a.txt", 0, true),
        (ASK, "defer", "a.txt", 1, true),
        (AUTO_EDIT, "ask", "a.txt", 1, true),
        (deny.as_str(), "allow", "a.txt", 0, false),
        (ask.as_str(), "allow", "a.txt", 1, true),
        (plan, "allow", "a.txt", 0, false),
        (ASK, "allow", ".envrc", 1, true),
        (FULL, "deny", "a.txt", 0, false),
    ] {
        let hooks = json!({ "PreToolUse": group("Write", &decides(decision)) });
        let mut agent = start(settings, &hooks, &[], &json!([writes(path, "a"), says("So.")]));
        assert_eq!(agent.turn("go"), "end_turn");
        let seen = (cards::questions(&agent), agent.path(path).exists());
        assert_eq!(seen, (questions, is_written), "{settings} {decision} {path}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_question_is_answered_before_the_client_shows_it() {
    let answer = r#"printf '{"hookSpecificOutput":{"decision":{"behavior":"allow"}}}'"#;
    let hooks = json!({ "PermissionRequest": group("", answer) });
    let mut agent = start(ASK, &hooks, &[], &json!([writes("a.txt", "a"), says("So.")]));
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!((cards::questions(&agent), agent.path("a.txt").exists()), (0, true));
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn what_goes_wrong_is_seen_and_stops_nothing_unless_the_hook_says_so() {
    for (hook, problem) in [
        (json!({ "command": "echo '{ no json'" }), "its output is no valid JSON"),
        (json!({ "command": "echo oops >&2; exit 1" }), "it failed (exit 1): oops"),
        (json!({ "command": "/no/such/hook" }), "its program was not found (exit 127)"),
        (json!({ "command": "HOOKS/plain.txt" }), "its program cannot be run (exit 126)"),
        (json!({ "command": "/no/such/hook", "args": ["x"] }), "it could not be started"),
        (json!({ "command": "kill -9 $$" }), "a signal ended it"),
        (json!({ "command": "sleep 60", "timeout": 0.3 }), "it did not end within 0.3 s"),
        (json!({ "command": "yes" }), "it printed more than 256 KiB"),
        (json!({ "type": "prompt", "prompt": "x" }), "its type is `prompt`"),
    ] {
        for blocks in [false, true] {
            let mut hook = hook.clone();
            if blocks {
                hook["onFailure"] = "block".into();
            }
            let is_run = hook["type"] != "prompt";
            let hooks = json!({ "PreToolUse": [{ "hooks": [hook] }] });
            let replies = json!([writes("a.txt", "a"), says("So.")]);
            let mut agent = start(AUTO_EDIT, &hooks, &[("plain.txt", "x")], &replies);
            assert_eq!(agent.turn("go"), "end_turn");
            let thoughts = agent.thoughts();
            assert!(thoughts.contains(problem), "{problem}: {thoughts}");
            assert_eq!(agent.path("a.txt").exists(), !(blocks && is_run), "{problem} {blocks}");
        }
    }
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_cancel_ends_hooks_and_all_that_they_have_started() {
    let hooks = json!({ "PreToolUse": group("", "sleep 73914201 & sleep 73914201") });
    let replies = json!([writes("a.txt", "a"), says("Never.")]);
    let mut agent = start(AUTO_EDIT, &hooks, &[], &replies);
    let prompt = agent.prompt("go");
    eventually("the hook", || is_alive("73914201"));
    let begun = Instant::now();
    agent.cancel();
    assert_eq!(agent.stop_reason(&prompt), "cancelled");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_gone("73914201");
    assert!(!agent.path("a.txt").exists());
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_cancel_starts_no_hooks_for_further_files() {
    let hooks = json!({ "PreToolUse": [{ "hooks": [
        { "command": "echo run >> HOOKS/runs.txt", "async": true },
        { "command": "sleep 73914202" },
    ] }] });
    let patch = "*** Begin Patch\n*** Add File: a.txt\n+a\n*** Add File: b.txt\n+b\n*** End Patch";
    let replies = json!([calls("apply_patch", &json!({ "patch": patch })), says("Never.")]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("runs.txt", "")], &replies);
    let prompt = agent.prompt("go");
    eventually("the hook", || is_alive("73914202"));
    eventually("the log", || kept(&agent, "runs.txt") == "run\n");
    agent.cancel();
    assert_eq!(agent.stop_reason(&prompt), "cancelled");
    assert_gone("73914202");
    assert_eq!(kept(&agent, "runs.txt"), "run\n");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_hook_that_takes_long_is_named_while_it_runs() {
    let hooks = json!({ "UserPromptSubmit": group("", "sleep 1.2") });
    let mut agent = start(AUTO_EDIT, &hooks, &[], &json!([says("Hello.")]));
    assert_eq!(agent.turn("go"), "end_turn");
    let thoughts = agent.thoughts();
    assert!(thoughts.contains("Waiting for the hook sleep 1.2"), "{thoughts}");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn sixty_hooks_run_once_each() {
    let hooks: Vec<_> = (0..60)
        .map(|number| json!({ "command": format!("echo {number} >> HOOKS/many.txt") }))
        .collect();
    let hooks = json!({ "PreToolUse": [{ "hooks": hooks }, { "hooks": hooks }] });
    let replies = json!([writes("a.txt", "a"), says("So.")]);
    let mut agent = start(AUTO_EDIT, &hooks, &[("many.txt", "")], &replies);
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(kept(&agent, "many.txt").lines().count(), 60);
}

const PROJECT_FILE: &str = ".turnwright/hooks.json";

/// Returns the code in the output of `/trust`.
fn code(output: &str) -> String {
    let at = output.find("`/trust ").unwrap_or_else(|| panic!("no code in {output}")) + 8;
    output[at..].split('`').next().unwrap().to_owned()
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn hooks_of_a_project_run_only_as_they_and_their_scripts_were_trusted() {
    if !turnwright_sandbox::can_confine() {
        eprintln!("SKIPPED: without a sandbox no hook of a project runs");
        return;
    }
    let hooks = json!({ "hooks": { "PreToolUse": group("Write", "sh tools/hook.sh") } });
    let edits: Vec<_> =
        (0..4).flat_map(|number| [writes(&format!("{number}.txt"), "x"), says("So.")]).collect();
    let mut agent = TestAgent::builder()
        .file(PROJECT_FILE, &hooks.to_string())
        .file("tools/hook.sh", "echo ran >> ran.txt\n")
        .own_file("config/config.toml", AUTO_EDIT)
        .variable("PATH", &std::env::var("PATH").unwrap())
        .model(json!(edits))
        .start();
    let ran = |agent: &TestAgent| {
        std::fs::read_to_string(agent.path("ran.txt")).unwrap_or_default().lines().count()
    };
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.thoughts().contains(PROJECT_FILE), "{}", agent.thoughts());
    assert_eq!(ran(&agent), 0, "nothing runs before it is trusted");
    let output = agent.turn_text("/trust");
    assert!(output.contains("tools/hook.sh (SHA-256: "), "{output}");
    let trusted = agent.turn_text(&format!("/trust {}", code(&output)));
    assert!(trusted.contains("Its hooks run from now on."), "{trusted}");
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(ran(&agent), 1);
    assert!(agent.turn_text("/hooks").contains("last time: ok"));
    std::fs::write(agent.path("tools/hook.sh"), "echo changed >> ran.txt\n").unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(ran(&agent), 1, "another script is not what was trusted");
    assert!(
        agent.thoughts().contains("tools/hook.sh is not what you trusted"),
        "{}",
        agent.thoughts()
    );
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(ran(&agent), 1, "nor in a new session");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_project_cannot_switch_off_a_guard_of_the_user_by_its_files() {
    for command in
        ["sh \"${CLAUDE_PROJECT_DIR:-.}/tools/guard.sh\"", "sh HOOKS/guard.sh tools/guard.sh"]
    {
        let hooks = json!({ "PreToolUse": [{ "hooks": [{ "command": command }] }] });
        let replies = json!([writes("a.txt", "a"), says("So.")]);
        let mut agent = start(AUTO_EDIT, &hooks, &[("guard.sh", GUARD)], &replies);
        std::fs::create_dir(agent.path("tools")).unwrap();
        std::fs::write(agent.path("tools/guard.sh"), "touch ran.txt").unwrap();
        agent.session = agent.new_session();
        assert_eq!(agent.turn("go"), "end_turn");
        let thoughts = agent.thoughts();
        assert!(thoughts.contains("files run by your hooks"), "{thoughts}");
        assert!(thoughts.contains("tools/guard.sh is not what you trusted"), "{thoughts}");
        assert!(!agent.path("a.txt").exists(), "what cannot be checked is refused: {command}");
        assert!(!agent.path("ran.txt").exists());
    }
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_hook_of_a_project_leaves_no_file_that_other_programs_run() {
    if !turnwright_sandbox::can_confine() {
        eprintln!("SKIPPED: without a sandbox no hook of a project runs");
        return;
    }
    let command = "echo x > .envrc; mkdir -p sub/.git/objects sub/.git/refs; \
                   echo 'ref: refs/heads/main' > sub/.git/HEAD; \
                   printf '[core]\\n\\tfsmonitor = /x\\n' > sub/.git/config; echo ran >> ran.txt";
    let hooks = json!({ "hooks": { "PreToolUse": group("Write", command) } });
    let mut agent = TestAgent::builder()
        .file(PROJECT_FILE, &hooks.to_string())
        .own_file("config/config.toml", AUTO_EDIT)
        .variable("PATH", &std::env::var("PATH").unwrap())
        .model(json!([writes("a.txt", "x"), says("So.")]))
        .start();
    let output = agent.turn_text("/trust");
    agent.turn_text(&format!("/trust {}", code(&output)));
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.path("ran.txt").exists() && !agent.path(".envrc").exists());
    assert!(!agent.path("sub/.git/config").exists(), "git would run what it says");
    let thoughts = agent.thoughts();
    assert!(thoughts.contains("a hook, or another program meanwhile,"), "{thoughts}");
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn hooks_of_claude_code_are_offered_once_and_read_if_the_user_wants_that() {
    let theirs = json!({ "permissions": {}, "hooks": { "PreToolUse": group("Write", "echo ran >> ran.txt") } });
    let replies: Vec<_> = (0..3).flat_map(|_| [writes("a.txt", "x"), says("So.")]).collect();
    let mut agent = TestAgent::builder()
        .file(".claude/settings.json", &theirs.to_string())
        .own_file("config/config.toml", AUTO_EDIT)
        .variable("PATH", &std::env::var("PATH").unwrap())
        .model(json!(replies))
        .start();
    let mut thoughts = String::new();
    for _ in 0..2 {
        assert_eq!(agent.turn("go"), "end_turn");
        thoughts += &agent.thoughts();
        agent.session = agent.new_session();
    }
    assert_eq!(thoughts.matches("There are hooks of Claude Code here.").count(), 1, "{thoughts}");
    assert!(!agent.path("ran.txt").exists());
    let settings = format!("{AUTO_EDIT}[hooks]\nread = ['claude']\n");
    std::fs::write(agent.home().join("config/config.toml"), settings).unwrap();
    agent.session = agent.new_session();
    let output = agent.turn_text("/trust");
    assert!(output.contains("PreToolUse Write: echo ran >> ran.txt"), "{output}");
    assert!(!output.contains("permissions"), "only the hooks of the file count: {output}");
    agent.turn_text(&format!("/trust {}", code(&output)));
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.path("ran.txt").exists(), turnwright_sandbox::can_confine());
}

#[test]
#[cfg_attr(windows, ignore = "the hooks are scripts of Unix")]
fn a_wrong_file_is_named() {
    for (text, problem) in [
        ("{ no json", ".turnwright/hooks.json: it is no valid JSON"),
        ("{}", ".turnwright/hooks.json: it has no table `hooks`"),
        ("\u{feff}{\r\n // mine\r\n}", ".turnwright/hooks.json: it has no table `hooks`"),
        ("{\"hooks\":[]}", ".turnwright/hooks.json: its hooks are no table of events"),
        (
            "{\"hooks\":{\"PreToolUse\":[{\"matcher\":\"Bash\",\"command\":\"x\"}]}}",
            ".turnwright/hooks.json: PreToolUse 1: none of its hooks runs: missing field `hooks`",
        ),
    ] {
        let mut agent =
            TestAgent::builder().file(PROJECT_FILE, text).model(json!([says("Hi.")])).start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(agent.thoughts().contains(problem), "{problem}: {}", agent.thoughts());
    }
}
