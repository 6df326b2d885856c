//! Reads a hook file into handlers. A faulty entry is reported and skipped; the other entries still work.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::event::HookEvent;
use crate::matcher::{Condition, Matcher};
use crate::scripts::{Script, named_scripts};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;

/// The most handlers of a file.
const MAX_HANDLERS: usize = 100;
/// Once the handlers of a file name more project files than this, its remaining handlers are rejected.
const MAX_SCRIPTS: usize = 200;
/// The most characters in the display name of a handler.
const MAX_NAME_CHARS: usize = 60;
/// The longest time limit, in seconds.
const MAX_SECONDS: u64 = 24 * 60 * 60;
/// The known fields of a handler. Others are reported as having no effect.
const FIELDS: [&str; 11] = [
    "type",
    "command",
    "args",
    "shell",
    "timeout",
    "if",
    "once",
    "async",
    "statusMessage",
    "onFailure",
    "description",
];

/// The owner of a hook file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookScope {
    User,
    /// Project hooks run only if they are trusted, and only in the sandbox.
    Project,
}

/// A command that runs at an event.
#[derive(Clone, Debug)]
pub struct Handler {
    pub event: HookEvent,
    /// The display name of the hook file.
    pub file: Arc<str>,
    pub scope: HookScope,
    /// The matcher of the handler's group, as written in the file.
    pub matcher_text: String,
    pub(crate) matcher: Matcher,
    pub(crate) condition: Option<Condition>,
    pub(crate) action: HookAction,
    pub(crate) time_limit: Duration,
    /// True if a failure counts as a refusal.
    pub blocks_on_failure: bool,
    pub(crate) runs_once: bool,
    /// True if the session does not wait for the handler.
    pub in_background: bool,
    status: Option<String>,
    /// The project files that the command names, as they were when the hook file was read.
    pub scripts: Vec<Script>,
}

/// The program of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookAction {
    /// A command line for a shell.
    Line { line: String, is_powershell: bool },
    /// A program with its arguments.
    Program(Vec<String>),
}

impl HookAction {
    /// Returns the words that may name files. A single word is a whole command line; a program always has two or more.
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            HookAction::Line { line, .. } => vec![line.clone()],
            HookAction::Program(words) => words.iter().cloned().chain([String::new()]).collect(),
        }
    }
}

impl Handler {
    /// Returns a short display name on one line.
    pub fn name(&self) -> String {
        let whole = self.status.clone().unwrap_or_else(|| self.command_line());
        text::clip(escape_hidden_line(&text::one_line(&whole)), MAX_NAME_CHARS)
    }

    /// Returns the whole command as written.
    pub fn command_line(&self) -> String {
        match &self.action {
            HookAction::Line { line, .. } => line.clone(),
            HookAction::Program(words) => words.join(" "),
        }
    }

    /// Describes the event, the matcher and the command on one line.
    pub fn line(&self) -> String {
        let command = text::clip(escape_hidden_line(&self.command_line()), 4 * MAX_NAME_CHARS);
        match self.matcher_text.as_str() {
            "" => format!("{}: {command}", self.event.name()),
            matcher => format!("{} {}: {command}", self.event.name(), escape_hidden_line(matcher)),
        }
    }

    /// Returns true if the handler may run only in the sandbox: because every handler must, because it belongs to the
    /// project, or because it runs a file of the project.
    pub(crate) fn needs_sandbox(&self, confines_all: bool) -> bool {
        confines_all || self.scope == HookScope::Project || !self.scripts.is_empty()
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
    let mut unknown = Vec::new();
    for (name, groups) in events {
        match HookEvent::parse(name) {
            Some(event) => reader.read_groups(event, groups),
            None => unknown.push(escape_hidden_line(&text::clip(name.as_str(), MAX_NAME_CHARS))),
        }
    }
    if !unknown.is_empty() {
        let named = text::join_first(&unknown, 10);
        reader.problems.push(format!("no hooks run here for {named}"));
    }
    if reader.handlers.len() > MAX_HANDLERS {
        reader.problems.push(format!("only its first {MAX_HANDLERS} hooks are used"));
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
    fn note(&mut self, event: HookEvent, number: usize, what: &str) {
        self.problems.push(format!("{} {number}: {what}", event.name()));
    }

    fn read_groups(&mut self, event: HookEvent, groups: &Value) {
        let Value::Array(groups) = groups else {
            return self.note(event, 1, "it must be a list of groups of hooks");
        };
        for (number, group) in (1..).zip(groups).take(MAX_HANDLERS + 1) {
            let Some(hooks) = group.get("hooks").and_then(Value::as_array) else {
                let what = "it has no list `hooks`, so nothing of it runs. Write \
                            {\"matcher\": …, \"hooks\": [{\"type\": \"command\", \"command\": …}]}";
                self.note(event, number, what);
                continue;
            };
            let matcher_text = match group.get("matcher") {
                None | Some(Value::Null) => "",
                Some(Value::String(text)) => text.as_str(),
                Some(_) => {
                    self.note(event, number, "its `matcher` is no text, so nothing of it runs");
                    continue;
                }
            };
            let matcher = match Matcher::parse(matcher_text) {
                Ok(_) if !event.has_subject() => Matcher::Everything,
                Ok(matcher) => matcher,
                Err(why) => {
                    let why = escape_hidden_line(&text::one_line(&why));
                    let what =
                        format!("its `matcher` cannot be used, so nothing of it runs: {why}");
                    self.note(event, number, &what);
                    continue;
                }
            };
            for hook in hooks {
                // Stop here: reading further handlers would also read the files that they name.
                if self.handlers.len() > MAX_HANDLERS {
                    return;
                }
                self.read_handler(event, number, hook, matcher_text, &matcher);
            }
        }
    }

    fn read_handler(
        &mut self,
        event: HookEvent,
        number: usize,
        hook: &Value,
        matcher_text: &str,
        matcher: &Matcher,
    ) {
        let Value::Object(fields) = hook else {
            return self.note(event, number, "a hook is no table, and does not run");
        };
        let action = match action(fields) {
            Ok(action) => action,
            Err(why) => return self.note(event, number, &why),
        };
        if self.handlers.iter().map(|handler| handler.scripts.len()).sum::<usize>() > MAX_SCRIPTS {
            let what = "the hooks before name too many files, so a hook does not run";
            return self.note(event, number, what);
        }
        for name in fields.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
            let name = escape_hidden_line(&text::clip(name.as_str(), MAX_NAME_CHARS));
            self.note(event, number, &format!("`{name}` has no effect"));
        }
        let wanted = fields.get("timeout").filter(|value| !value.is_null());
        let seconds = wanted.and_then(Value::as_f64).filter(|seconds| *seconds > 0.0);
        if wanted.is_some() && seconds.is_none() {
            self.note(event, number, "`timeout` must be a number of seconds; the usual one holds");
        }
        let condition = fields.get("if").and_then(Value::as_str).map(Condition::parse);
        if condition == Some(None) {
            self.note(event, number, "`if` is no rule such as Bash(git push *), so it always runs");
        }
        let limit = seconds.map(|seconds| {
            Duration::from_secs_f64(seconds.min(Duration::from_secs(MAX_SECONDS).as_secs_f64()))
        });
        let is_set = |name: &str| fields.get(name) == Some(&Value::Bool(true));
        self.handlers.push(Handler {
            event,
            file: Arc::clone(&self.file),
            scope: self.scope,
            matcher_text: matcher_text.to_owned(),
            matcher: matcher.clone(),
            condition: condition.flatten(),
            scripts: named_scripts(&action.words(), self.project),
            action,
            time_limit: event.time_limit(limit),
            blocks_on_failure: fields.get("onFailure").and_then(Value::as_str) == Some("block"),
            runs_once: is_set("once"),
            in_background: is_set("async"),
            status: fields.get("statusMessage").and_then(Value::as_str).map(str::to_owned),
        });
    }
}

/// Returns the strings of a list; `None` if it has anything else or a string contains NUL.
fn texts_in(list: &Value) -> Option<Vec<String>> {
    let texts = list.as_array()?.iter().map(Value::as_str);
    texts.map(|text| text.filter(|text| !text.contains('\0')).map(str::to_owned)).collect()
}

/// Reads the program of a handler. An error says why the handler cannot run.
fn action(fields: &Map<String, Value>) -> Result<HookAction, String> {
    match fields.get("type").and_then(Value::as_str) {
        Some("command") | None => {}
        Some(other) => {
            let other = escape_hidden_line(&text::clip(other, MAX_NAME_CHARS));
            return Err(format!("a hook of the type `{other}` does not run here, only `command`"));
        }
    }
    let line = fields.get("command").and_then(Value::as_str).unwrap_or_default();
    if line.trim().is_empty() || line.contains('\0') {
        return Err("a hook has no `command`, and does not run".to_owned());
    }
    if let Some(list) = fields.get("args").filter(|list| !list.is_null()) {
        let wrong = "`args` must be a list of texts; the hook does not run";
        let arguments = texts_in(list).ok_or(wrong)?;
        let words = std::iter::once(line.to_owned()).chain(arguments);
        return Ok(HookAction::Program(words.collect()));
    }
    let is_powershell = match fields.get("shell").and_then(Value::as_str) {
        None | Some("bash" | "sh") => false,
        Some("powershell" | "pwsh") => true,
        Some(_) => {
            return Err("`shell` must be bash or powershell; the hook does not run".to_owned());
        }
    };
    Ok(HookAction::Line { line: line.to_owned(), is_powershell })
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
            (json!({ "matcher": "Bash", "command": "x" }), "PreToolUse 1: it has no list `hooks`"),
            (json!({ "matcher": 7, "hooks": [] }), "`matcher` is no text"),
            (json!({ "matcher": "(x", "hooks": [] }), "`matcher` cannot be used"),
            (json!({ "hooks": ["x"] }), "a hook is no table"),
            (json!({ "hooks": [{ "type": "prompt", "prompt": "x" }] }), "type `prompt`"),
            (json!({ "hooks": [{ "type": "command" }] }), "has no `command`"),
            (json!({ "hooks": [{ "command": "x", "args": "y" }] }), "`args` must be a list"),
            (json!({ "hooks": [{ "command": "x", "shell": "fish" }] }), "`shell` must be"),
            (json!("x"), "it has no list `hooks`"),
        ] {
            let (handlers, problems) = read(&json!({ "PreToolUse": [group, good] }));
            assert_eq!(handlers.len(), 1, "{group}");
            assert_eq!(handlers[0].name(), "good");
            assert!(problems.contains(problem), "{group}: {problems}");
        }
        let (handlers, problems) = read(&json!({ "Stop": good, "WorktreeCreate": [], "x": 1 }));
        assert!(handlers.is_empty());
        assert_eq!(
            problems,
            "Stop 1: it must be a list of groups of hooks\nno hooks run here for WorktreeCreate, x"
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
        assert_eq!(handler.name(), "Linting");
        assert_eq!(handler.command_line(), "/bin/lint --fix a b");
        assert_eq!(handler.time_limit, Duration::from_secs(5));
        assert!(handler.blocks_on_failure && handler.runs_once && handler.in_background);
        assert!(handler.condition.is_some() && !handler.needs_sandbox(false));
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
    fn a_file_has_no_endless_number_of_hooks() {
        let hooks: Vec<_> =
            (0..300).map(|number| json!({ "command": format!("x{number}") })).collect();
        let (handlers, problems) = read(&json!({ "Stop": [{ "hooks": hooks }] }));
        assert_eq!(handlers.len(), 100);
        assert_eq!(problems, "only its first 100 hooks are used");
    }
}
