//! Reads a hook file into handlers. A faulty entry is reported and skipped; the other entries still work.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::event::HookEvent;
use crate::matcher::{Condition, Matcher};
use crate::scripts::{HookAction, Script, named_scripts};
use crate::translate::usual_names;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;

/// The most handlers of a file.
const MAX_HANDLERS: usize = 100;
/// Once the handlers of a file name more project files than this, its remaining handlers are withheld.
const MAX_SCRIPTS: usize = 200;
/// The most characters in the display name of a handler.
const MAX_NAME_CHARS: usize = 60;
/// The most characters of a problem, and of a command in a list.
const MAX_LINE_CHARS: usize = 240;
/// The longest time limit, in seconds.
const MAX_SECONDS: f64 = 86_400.0;
/// Variables that hooks for Claude Code count on although it does not set them, or not for hooks in settings.
const UNSET: &str =
    "CLAUDE_FILE_PATHS CLAUDE_PLUGIN_ROOT CLAUDE_TOOL_INPUT CLAUDE_TOOL_NAME TOOL_INPUT_FILE_PATH";
/// The hint for a group that cannot be read.
const RIGHT_FORM: &str =
    "Write {\"matcher\": …, \"hooks\": [{\"type\": \"command\", \"command\": …}]}";

/// The owner of a hook file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookScope {
    User,
    /// Project hooks run only if they are trusted, and only in the sandbox.
    Project,
}

/// A command that runs at an event.
#[derive(Debug)]
pub struct Handler {
    pub event: HookEvent,
    /// The display name of the hook file.
    pub file: Arc<str>,
    /// A short display name on one line.
    pub name: String,
    /// The event, the matcher and the command on one line.
    pub line: String,
    pub(crate) scope: HookScope,
    pub(crate) matcher: Matcher,
    pub(crate) condition: Option<Condition>,
    pub(crate) action: HookAction,
    pub(crate) time_limit: Duration,
    /// True if a failure counts as a refusal.
    pub(crate) blocks_on_failure: bool,
    pub(crate) runs_once: bool,
    /// Held by the run of a handler that runs once, and closed when it counts. A run that was withheld, or whose
    /// failure refuses, does not count.
    pub(crate) only_run: Semaphore,
    /// True if the session does not wait for the handler.
    pub in_background: bool,
    /// The project files that the command names, as they were when the hook file was read.
    pub scripts: Vec<Script>,
    /// The result of the most recent run.
    // Held only to read or replace it.
    pub(crate) last: Mutex<Option<String>>,
}

impl Handler {
    /// Returns the result of the most recent run.
    pub fn last_result(&self) -> Option<String> {
        self.last.lock().clone()
    }

    /// Returns true if the handler may run only in the sandbox: because every handler must, because it belongs to the
    /// project, or because it runs a file of the project.
    pub fn needs_sandbox(&self, confines_all: bool) -> bool {
        confines_all || self.scope == HookScope::Project || !self.scripts.is_empty()
    }
}

/// A group of handlers as written in a file.
#[derive(Deserialize)]
#[serde(expecting = "a table")]
struct HookGroup {
    matcher: Option<String>,
    hooks: Vec<Value>,
}

/// A handler as written in a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a table")]
struct HookFields {
    r#type: Option<String>,
    command: Option<String>,
    args: Option<Vec<String>>,
    shell: Option<String>,
    timeout: Option<f64>,
    r#if: Option<String>,
    once: Option<bool>,
    r#async: Option<bool>,
    async_rewake: Option<bool>,
    status_message: Option<String>,
    on_failure: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl HookFields {
    /// Returns the command and its arguments.
    fn words(&self) -> Vec<String> {
        self.command.iter().chain(self.args.iter().flatten()).cloned().collect()
    }

    /// Returns the program of the handler.
    ///
    /// # Errors
    /// Returns the reason, as a phrase, if the handler cannot run.
    fn action(&self) -> Result<HookAction, String> {
        if let Some(other) = self.r#type.as_deref().filter(|kind| *kind != "command") {
            return Err(format!("its type is `{other}`, not `command`"));
        }
        let words = self.words();
        if words.iter().any(|word| word.contains('\0')) {
            return Err("its `command` contains NUL".to_owned());
        }
        let Some(line) = self.command.clone().filter(|line| !line.trim().is_empty()) else {
            return Err("it has no `command`".to_owned());
        };
        match self.shell.as_deref() {
            _ if self.args.is_some() => Ok(HookAction::Program(words)),
            None | Some("bash" | "sh") => Ok(HookAction::Line(line)),
            Some("powershell" | "pwsh") => Ok(HookAction::PowerShell(line)),
            Some(other) => Err(format!("its shell is `{other}`, not bash or powershell")),
        }
    }
}

/// Reads handlers from the table of events in a hook file named `file`. Also returns the problems found, each as a
/// phrase that follows the name of the file. `project` must be a real path. Blocks, because the files that commands
/// name are read.
pub fn read_handlers(
    file: &str,
    scope: HookScope,
    project: &Path,
    events: &Value,
) -> (Vec<Handler>, Vec<String>) {
    let Value::Object(events) = events else {
        return (Vec::new(), vec!["its hooks are no table of events".to_owned()]);
    };
    let mut reader = HandlerReader {
        file: file.into(),
        scope,
        project,
        handlers: Vec::new(),
        problems: Vec::new(),
    };
    for (name, groups) in events {
        match HookEvent::parse(name) {
            Some(event) => reader.read_groups(event, groups),
            None => reader.note(&format!("no hooks run here for {name}")),
        }
    }
    if reader.handlers.len() > MAX_HANDLERS {
        reader.note(&format!("only its first {MAX_HANDLERS} hooks are used"));
        reader.handlers.truncate(MAX_HANDLERS);
    }
    (reader.handlers, reader.problems)
}

struct HandlerReader<'a> {
    file: Arc<str>,
    scope: HookScope,
    project: &'a Path,
    handlers: Vec<Handler>,
    problems: Vec<String>,
}

impl HandlerReader<'_> {
    fn note(&mut self, problem: &str) {
        self.problems.push(text::clip(escape_hidden_line(problem), MAX_LINE_CHARS));
    }

    fn read_groups(&mut self, event: HookEvent, groups: &Value) {
        let Value::Array(groups) = groups else {
            let what = format!("{}: it must be a list of groups of hooks", event.name());
            return self.note(&what);
        };
        for (number, group) in (1..).zip(groups).take(MAX_HANDLERS + 1) {
            let place = format!("{} {number}", event.name());
            if let Err(why) = self.read_group(event, &place, group) {
                self.note(&format!("{place}: none of its hooks runs: {why}"));
            }
        }
    }

    fn read_group(&mut self, event: HookEvent, place: &str, value: &Value) -> Result<(), String> {
        let group =
            HookGroup::deserialize(value).map_err(|error| format!("{error}. {RIGHT_FORM}"))?;
        let matcher = Matcher::parse(group.matcher.unwrap_or_default())
            .map_err(|error| format!("`matcher`: {}", text::one_line(&error)))?;
        if event.is_about_tool() && matcher.is_mistaken(&usual_names()) {
            let what = "`matcher` is compared with the tool's name, such as `Bash`, and fits none";
            self.note(&format!("{place}: {what}; write a rule as `if`"));
        }
        for hook in &group.hooks {
            // Stop here: reading further handlers would also read the files that they name.
            if self.handlers.len() > MAX_HANDLERS {
                break;
            }
            match self.read_handler(event, place, &matcher, hook) {
                Ok(handler) => self.handlers.push(handler),
                Err(why) => self.note(&format!("{place}: a hook does not run: {why}")),
            }
        }
        Ok(())
    }

    /// Reads a time limit; `None` if the usual one holds. A round number of a thousand seconds or more is probably
    /// meant in milliseconds, as in the files of other agents.
    fn read_time_limit(&mut self, place: &str, seconds: f64) -> Option<Duration> {
        if seconds.is_nan() || seconds <= 0.0 {
            self.note(&format!("{place}: `timeout` must be above 0; the usual one holds"));
            return None;
        }
        let limit = Duration::from_secs_f64(seconds.min(MAX_SECONDS));
        if seconds >= 1_000.0 && seconds % 500.0 == 0.0 {
            let minutes = limit.as_secs() / 60;
            let what = format!("{seconds} seconds are {minutes} minutes");
            self.note(&format!("{place}: `timeout` is in seconds, and {what}"));
        }
        Some(limit)
    }

    fn read_handler(
        &mut self,
        event: HookEvent,
        place: &str,
        matcher: &Matcher,
        hook: &Value,
    ) -> Result<Handler, String> {
        let fields = HookFields::deserialize(hook).map_err(|error| error.to_string())?;
        let action = fields.action()?;
        for name in fields.others.keys().filter(|name| *name != "description") {
            self.note(&format!("{place}: `{name}` has no effect"));
        }
        // The command may set a variable itself, or say what stands for it: `${X:-y}`.
        let written = fields.words().join(" ").replace("${", "$").replace(":-", "=");
        let unset = UNSET.split_whitespace().filter(|name| !written.contains(&format!("{name}=")));
        for name in unset.filter(|name| written.contains(&format!("${name}"))) {
            self.note(&format!("{place}: `${name}` is not set; the input is JSON on stdin"));
        }
        let wakes = fields.async_rewake == Some(true);
        if wakes {
            self.note(&format!("{place}: `asyncRewake` means only `async` here"));
        }
        let limit = fields.timeout.and_then(|seconds| self.read_time_limit(place, seconds));
        let rule = fields.r#if.as_deref().and_then(Condition::parse);
        let condition = rule.filter(Condition::is_one_rule);
        if condition.is_none() && fields.r#if.is_some() {
            let what = "`if` is no rule such as Bash(git push *), so it always runs";
            self.note(&format!("{place}: {what}"));
        }
        let named: usize = self.handlers.iter().map(|handler| handler.scripts.len()).sum();
        let scripts = if named > MAX_SCRIPTS {
            vec![Script::too_many()]
        } else {
            named_scripts(&action, self.project)
        };
        let command = text::one_line(&fields.words().join(" "));
        let selected = [event.name(), &matcher.text].join(" ");
        let line = format!("{}: {command}", selected.trim_end());
        let name = fields.status_message.unwrap_or(command);
        Ok(Handler {
            event,
            file: Arc::clone(&self.file),
            name: text::clip(escape_hidden_line(&text::one_line(&name)), MAX_NAME_CHARS),
            line: text::clip(escape_hidden_line(&line), MAX_LINE_CHARS),
            scope: self.scope,
            matcher: matcher.clone(),
            condition,
            action,
            time_limit: event.time_limit(limit),
            blocks_on_failure: fields.on_failure.as_deref() == Some("block"),
            runs_once: fields.once == Some(true),
            only_run: Semaphore::new(1),
            in_background: wakes || fields.r#async == Some(true),
            scripts,
            last: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(events: &Value) -> (Vec<Handler>, String) {
        let nowhere = Path::new("/nowhere");
        let (handlers, problems) = read_handlers("hooks.json", HookScope::User, nowhere, events);
        (handlers, problems.join("\n"))
    }

    #[test]
    fn a_wrong_entry_is_reported_and_the_rest_works() {
        let good = json!({ "hooks": [{ "type": "command", "command": "good" }] });
        for (group, problem) in [
            (json!({ "matcher": "Bash", "command": "x" }), "PreToolUse 1: none of its hooks runs"),
            (json!({ "matcher": "Bash", "command": "x" }), "missing field `hooks`"),
            (json!({ "matcher": 7, "hooks": [] }), "invalid type: integer `7`, expected a string"),
            (json!({ "matcher": "(x", "hooks": [] }), "none of its hooks runs: `matcher`: "),
            (json!({ "hooks": ["x"] }), "a hook does not run: invalid type: string"),
            (json!({ "hooks": [{ "type": "prompt", "prompt": "x" }] }), "its type is `prompt`"),
            (json!({ "hooks": [{ "type": "command" }] }), "it has no `command`"),
            (json!({ "hooks": [{ "command": "x", "args": "y" }] }), "expected a sequence"),
            (json!({ "hooks": [{ "command": "x", "shell": "fish" }] }), "its shell is `fish`"),
            (json!("x"), "expected a table"),
        ] {
            let (handlers, problems) = read(&json!({ "PreToolUse": [group, good] }));
            assert_eq!(handlers.len(), 1, "{group}");
            assert_eq!(handlers[0].name, "good");
            assert!(problems.contains(problem), "{group}: {problems}");
        }
        let (handlers, problems) = read(&json!({ "Stop": good, "WorktreeCreate": [], "x": 1 }));
        assert!(handlers.is_empty());
        assert_eq!(
            problems,
            "Stop: it must be a list of groups of hooks\nno hooks run here for WorktreeCreate\n\
             no hooks run here for x"
        );
        assert_eq!(read(&json!([])).1, "its hooks are no table of events");
    }

    #[test]
    fn each_field_of_a_handler_is_read() {
        let hook = json!({
            "type": "command", "command": "/bin/lint", "args": ["--fix", "a b"], "timeout": 5,
            "if": "Edit(*.rs)", "once": true, "async": true, "statusMessage": "Linting",
            "onFailure": "block", "other": 1,
        });
        let events = json!({ "PostToolUse": [{ "matcher": "Edit", "hooks": [hook] }] });
        let (handlers, problems) = read(&events);
        assert_eq!(problems, "PostToolUse 1: `other` has no effect");
        let handler = &handlers[0];
        assert_eq!(handler.name, "Linting");
        assert_eq!(handler.line, "PostToolUse Edit: /bin/lint --fix a b");
        assert_eq!(handler.time_limit, Duration::from_secs(5));
        assert!(handler.blocks_on_failure && handler.runs_once && handler.in_background);
        assert!(handler.condition.is_some() && !handler.needs_sandbox(false));
    }

    #[test]
    fn a_hook_that_could_wake_the_model_runs_in_the_background() {
        for (hook, in_background, problem) in [
            (json!({ "command": "x", "asyncRewake": true }), true, "`asyncRewake` means only"),
            (json!({ "command": "x", "async": true, "asyncRewake": true }), true, "means only"),
            (json!({ "command": "x", "asyncRewake": false }), false, ""),
        ] {
            let (handlers, problems) = read(&json!({ "Stop": [{ "hooks": [hook] }] }));
            assert_eq!(handlers[0].in_background, in_background, "{hook}");
            assert!(problems.contains(problem), "{hook}: {problems}");
        }
    }

    #[test]
    fn a_wrong_time_or_condition_leaves_the_hook_running() {
        let hook = json!({ "command": "x", "timeout": -1, "if": "(" });
        let (handlers, problems) = read(&json!({ "PreToolUse": [{ "hooks": [hook] }] }));
        assert_eq!(handlers[0].time_limit, Duration::from_secs(600));
        assert_eq!(handlers[0].condition, None);
        assert!(problems.contains("`timeout` must be") && problems.contains("`if` is no rule"));
    }

    #[test]
    fn a_condition_of_several_rules_leaves_the_hook_running() {
        for (rules, expected) in [
            ("Bash(git commit*) or Bash(git push*)", true),
            ("Bash(git *)|Bash(npm *)", true),
            ("Bash(git *), Bash(npm *)", true),
            ("Edit|Write(*.rs)", true),
            ("!Bash(ls *)", true),
            ("Bash(echo $(date) *)", false),
            ("mcp__notes__*", false),
            ("Bash", false),
        ] {
            let group = json!({ "hooks": [{ "command": "x", "if": rules }] });
            let (handlers, problems) = read(&json!({ "PreToolUse": [group] }));
            assert_eq!(handlers[0].condition.is_none(), expected, "{rules}");
            assert_eq!(problems.contains("so it always runs"), expected, "{rules}: {problems}");
        }
    }

    #[test]
    fn a_time_that_looks_like_milliseconds_is_reported() {
        for (timeout, expected) in
            [(5000, "5000 seconds are 83 minutes"), (30_000, "500 minutes"), (1800, ""), (600, "")]
        {
            let group = json!({ "hooks": [{ "command": "x", "timeout": timeout }] });
            let (handlers, problems) = read(&json!({ "Stop": [group] }));
            assert_eq!(handlers[0].time_limit, Duration::from_secs(timeout));
            assert_eq!(problems.is_empty(), expected.is_empty(), "{problems}");
            assert!(problems.ends_with(expected), "{problems}");
        }
    }

    #[test]
    fn a_matcher_that_is_a_rule_for_a_tool_is_reported() {
        for (matcher, expected) in [
            ("Bash(git commit*)", true),
            ("exec(git )", true),
            ("mcp__(a|b)", false),
            ("(Edit|Write)", false),
            ("Bash()", false),
            ("Edit:.*\\.cs", true),
            ("tool == \"Bash\" && tool_input.command matches \"git\"", true),
            ("git add", true),
            ("bash", true),
            ("Bash, git add", false),
            ("MultiEdit|apply_patch", false),
            ("MultiEdit", false),
            ("Skill, ExitPlanMode", false),
            ("^rename_symbol$", false),
            ("mcp__fs__(write|read)", false),
            ("", false),
        ] {
            let group = json!({ "matcher": matcher, "hooks": [{ "command": "x" }] });
            let (_, problems) = read(&json!({ "PreToolUse": [group] }));
            assert_eq!(problems.contains("write a rule as `if`"), expected, "{matcher}");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_reported() {
        for (command, expected) in [
            ("ruff format $CLAUDE_FILE_PATHS", "`$CLAUDE_FILE_PATHS` is not set"),
            ("echo \"${CLAUDE_TOOL_NAME}\"", "`$CLAUDE_TOOL_NAME` is not set"),
            ("\"$CLAUDE_PROJECT_DIR\"/check.sh", ""),
            ("ruff format \"${CLAUDE_FILE_PATHS:-src}\"", ""),
            ("TOOL_INPUT_FILE_PATH=$(jq -r .x); ruff format \"$TOOL_INPUT_FILE_PATH\"", ""),
        ] {
            let group = json!({ "hooks": [{ "command": command }] });
            let (handlers, problems) = read(&json!({ "PostToolUse": [group] }));
            assert_eq!(handlers.len(), 1, "{command}");
            assert_eq!(problems.is_empty(), expected.is_empty(), "{problems}");
            assert!(problems.contains(expected), "{command}: {problems}");
        }
    }

    #[test]
    fn a_file_has_no_endless_number_of_hooks() {
        let hooks: Vec<_> =
            (0..300).map(|number| json!({ "command": format!("x{number}") })).collect();
        let (handlers, problems) = read(&json!({ "Stop": [{ "hooks": hooks }] }));
        assert_eq!(handlers.len(), 100);
        assert_eq!(problems, "only its first 100 hooks are used");
    }
}
