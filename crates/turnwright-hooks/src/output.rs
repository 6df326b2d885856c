//! Reads the reply of one handler from its exit code and its output.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::HookEvent;
use turnwright_types::effect::escape_hidden;
use turnwright_types::redact;
use turnwright_types::text;

/// The most characters of a text for the model.
pub(crate) const MAX_CONTEXT_CHARS: usize = 10_000;
/// The most characters of a reason, and of a message to the user.
const MAX_REASON_CHARS: usize = 2_000;
/// The exit code with which a handler refuses.
const REFUSES: i32 = 2;

/// A handler's decision about a tool call. Later variants are stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum HookDecision {
    /// Skips a question that mode `auto` would not ask either.
    Allow,
    /// The user must be asked.
    Ask,
    Deny,
}

/// The way in which a handler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandlerEnd {
    /// The handler exited with this code; `None` if a signal ended it.
    Exited(Option<i32>),
    /// The handler was stopped, or never started. The phrase says why.
    Failed(String),
    /// The user cancelled the turn or call that the handler ran for.
    Cancelled,
}

/// The reply of a handler.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HandlerReply {
    pub(crate) decision: Option<HookDecision>,
    /// The reason for the decision or for `blocks`.
    pub(crate) reason: Option<String>,
    /// True if the handler refuses an event other than a tool call, or objects to a call that has already run.
    pub(crate) blocks: bool,
    /// The input that replaces the whole input of the call.
    pub(crate) updated_input: Option<Value>,
    /// A text for the model.
    pub(crate) context: Option<String>,
    /// A text for the user.
    pub(crate) message: Option<String>,
    /// The reason why the turn must end, if it must.
    pub(crate) stop: Option<String>,
    /// The faults of the handler, a phrase each. If `has_failed`, the first is the failure.
    pub(crate) problems: Vec<String>,
    pub(crate) has_failed: bool,
}

/// Fields that have no effect here. Their use is reported, because the handler relies on them.
const WITHOUT_EFFECT: [&str; 5] = [
    "updatedToolOutput",
    "updatedPermissions",
    "initialUserMessage",
    "suppressOriginalPrompt",
    "watchPaths",
];

/// Reads the reply of a handler.
pub(crate) fn read_reply(
    event: HookEvent,
    end: &HandlerEnd,
    stdout: &str,
    stderr: &str,
) -> HandlerReply {
    let mut reply = HandlerReply::default();
    match end {
        HandlerEnd::Cancelled => {}
        HandlerEnd::Failed(why) => reply.fail(why.clone()),
        HandlerEnd::Exited(Some(0)) => {
            reply.read_output(event, stdout.trim_start_matches('\u{feff}').trim());
        }
        HandlerEnd::Exited(Some(REFUSES)) => {
            let why = stderr.trim();
            let why = if why.is_empty() { "it gave no reason" } else { why };
            reply.reason = Some(clean(why, MAX_REASON_CHARS));
            reply.refuse(event);
        }
        HandlerEnd::Exited(code) => {
            let how = match code {
                Some(127) => "its program was not found (exit 127)".to_owned(),
                Some(126) => "its program cannot be run (exit 126)".to_owned(),
                Some(code) => format!("it failed (exit {code})"),
                None => "a signal ended it".to_owned(),
            };
            let said = stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
            reply.fail(match said {
                Some(line) => format!("{how}: {}", clean(line, 200)),
                None => how,
            });
        }
    }
    reply
}

/// Makes a handler's text safe to show and to send to the model: without secrets and hidden characters, and clipped.
fn clean(text: &str, most: usize) -> String {
    text::clip(escape_hidden(&redact::text(text)), most)
}

fn text_of(value: &Value, name: &str) -> Option<String> {
    let text = value.get(name)?.as_str()?.trim();
    (!text.is_empty()).then(|| clean(text, MAX_REASON_CHARS))
}

impl HandlerReply {
    fn fail(&mut self, why: String) {
        self.has_failed = true;
        self.problems.insert(0, why);
    }

    /// Records a refusal of what the event is about, or a problem if nothing can be refused.
    pub(crate) fn refuse(&mut self, event: HookEvent) {
        match event {
            HookEvent::PreToolUse | HookEvent::PermissionRequest => {
                self.decision = Some(HookDecision::Deny);
            }
            HookEvent::PostToolUse | HookEvent::PostToolUseFailure => self.blocks = true,
            _ if event.can_block() => self.blocks = true,
            _ => {
                let why = self.reason.take().unwrap_or_default();
                self.problems.push(format!("nothing can be refused here: {why}"));
            }
        }
    }

    fn read_output(&mut self, event: HookEvent, output: &str) {
        if !output.starts_with('{') {
            if event.takes_plain_text() && !output.is_empty() {
                self.context = Some(clean(output, MAX_CONTEXT_CHARS));
            }
            return;
        }
        match serde_json::from_str(output) {
            Ok(fields) => self.read_fields(event, &fields),
            Err(error) => self.fail(format!("its output is no valid JSON ({error})")),
        }
    }

    fn read_fields(&mut self, event: HookEvent, fields: &Value) {
        self.message = text_of(fields, "systemMessage");
        if fields.get("continue") == Some(&Value::Bool(false)) {
            let why = text_of(fields, "stopReason");
            self.stop = Some(why.unwrap_or_else(|| "it gave no reason".to_owned()));
        }
        self.reason = text_of(fields, "reason");
        match fields.get("decision").and_then(Value::as_str) {
            Some("block" | "deny") => self.refuse(event),
            Some("approve" | "allow") if event == HookEvent::PreToolUse => {
                self.decision = Some(HookDecision::Allow);
            }
            _ => {}
        }
        let own = fields.get("hookSpecificOutput").unwrap_or(&Value::Null);
        let named = own.get("hookEventName").and_then(Value::as_str);
        if let Some(other) = named.filter(|name| *name != event.name()) {
            let other = clean(other, 40);
            return self.fail(format!("its output is for the event {other}, and was ignored"));
        }
        if event == HookEvent::PreToolUse && fields.get("permissionDecision").is_some() {
            self.problems.push("`permissionDecision` belongs into `hookSpecificOutput`".to_owned());
            // A misplaced denial still counts, but a misplaced allow does not.
            self.read_permission(fields, false);
        }
        for name in WITHOUT_EFFECT.iter().filter(|name| own.get(**name).is_some()) {
            self.problems.push(format!("`{name}` has no effect here"));
        }
        match event {
            HookEvent::PreToolUse => self.read_permission(own, true),
            HookEvent::PermissionRequest => {
                self.read_answer(own.get("decision").unwrap_or(&Value::Null));
            }
            _ => {}
        }
        let context = own.get("additionalContext").and_then(Value::as_str).map(str::trim);
        let context = context.filter(|text| !text.is_empty());
        self.context = context.map(|text| clean(text, MAX_CONTEXT_CHARS));
    }

    /// Reads the decision of a handler of `PreToolUse`.
    fn read_permission(&mut self, own: &Value, may_allow: bool) {
        let decision = match own.get("permissionDecision").and_then(Value::as_str) {
            Some("deny") => HookDecision::Deny,
            Some("ask") => HookDecision::Ask,
            Some("allow") if may_allow => HookDecision::Allow,
            None | Some("allow" | "defer") => {
                return self.set_input(own);
            }
            Some(other) => {
                let other = clean(other, 40);
                return self.fail(format!("`permissionDecision` is {other}, which is no decision"));
            }
        };
        self.decision = self.decision.max(Some(decision));
        self.reason = text_of(own, "permissionDecisionReason").or_else(|| self.reason.take());
        self.set_input(own);
    }

    /// Reads the decision of a handler of `PermissionRequest`.
    fn read_answer(&mut self, answer: &Value) {
        match answer.get("behavior").and_then(Value::as_str) {
            Some("allow") => self.decision = Some(HookDecision::Allow),
            Some("deny") => {
                self.decision = Some(HookDecision::Deny);
                self.reason = text_of(answer, "message");
                if answer.get("interrupt") == Some(&Value::Bool(true)) {
                    self.stop = Some(self.reason.clone().unwrap_or_default());
                }
            }
            _ => {}
        }
        if answer.get("updatedInput").is_some() {
            // An allow was meant for the changed input, so it does not count for the original one.
            self.decision = self.decision.filter(|decision| *decision == HookDecision::Deny);
            self.problems.push("`updatedInput` has no effect here, so you are asked".to_owned());
        }
    }

    fn set_input(&mut self, own: &Value) {
        match own.get("updatedInput") {
            None | Some(Value::Null) => {}
            Some(input @ Value::Object(_)) => self.updated_input = Some(input.clone()),
            Some(_) => self.fail("`updatedInput` is no table, and was ignored".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exits(event: HookEvent, code: i32, stdout: &str, stderr: &str) -> HandlerReply {
        read_reply(event, &HandlerEnd::Exited(Some(code)), stdout, stderr)
    }

    fn prints(event: HookEvent, output: &Value) -> HandlerReply {
        exits(event, 0, &output.to_string(), "")
    }

    #[test]
    fn exit_2_refuses_whatever_is_printed_and_other_failures_do_not() {
        let denied = exits(HookEvent::PreToolUse, 2, "{ no json", "no pushes\n");
        assert_eq!(denied.decision, Some(HookDecision::Deny));
        assert_eq!(denied.reason.as_deref(), Some("no pushes"));
        assert!(exits(HookEvent::Stop, 2, "", "go on").blocks);
        assert!(exits(HookEvent::PostToolUse, 2, "", "lint: 3 errors").blocks);
        let end = exits(HookEvent::SessionEnd, 2, "", "x");
        assert!(!end.blocks && end.problems == ["nothing can be refused here: x"]);
        for (code, problem) in [
            (1, "it failed (exit 1): last words"),
            (126, "its program cannot be run (exit 126): last words"),
            (127, "its program was not found (exit 127): last words"),
        ] {
            let failed = exits(HookEvent::PreToolUse, code, "", "first\nlast words\n\n");
            assert_eq!((failed.decision, failed.has_failed), (None, true));
            assert_eq!(failed.problems, [problem]);
        }
        let marked = exits(HookEvent::PreToolUse, 0, "\u{feff}{\"decision\":\"block\"}\r\n", "");
        assert_eq!(marked.decision, Some(HookDecision::Deny), "a byte order mark is no text");
        let killed = read_reply(HookEvent::Stop, &HandlerEnd::Exited(None), "", "");
        assert_eq!(killed.problems, ["a signal ended it"]);
    }

    #[test]
    fn decisions_are_read_in_both_forms() {
        for (output, decision, reason) in [
            (json!({ "decision": "block", "reason": "r" }), Some(HookDecision::Deny), Some("r")),
            (json!({ "decision": "approve" }), Some(HookDecision::Allow), None),
            (
                json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse",
                    "permissionDecision": "deny", "permissionDecisionReason": "why" } }),
                Some(HookDecision::Deny),
                Some("why"),
            ),
            (
                json!({ "hookSpecificOutput": { "permissionDecision": "ask" } }),
                Some(HookDecision::Ask),
                None,
            ),
            (json!({ "hookSpecificOutput": { "permissionDecision": "defer" } }), None, None),
            (json!({ "permissionDecision": "deny" }), Some(HookDecision::Deny), None),
            (json!({ "permissionDecision": "allow" }), None, None),
            (json!({}), None, None),
        ] {
            let reply = prints(HookEvent::PreToolUse, &output);
            assert_eq!((reply.decision, reply.reason.as_deref()), (decision, reason), "{output}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_output_is_said() {
        for (output, problem) in [
            ("{\"decision\":", "its output is no valid JSON"),
            (
                "{\"hookSpecificOutput\":{\"hookEventName\":\"Stop\",\"permissionDecision\":\"deny\"}}",
                "its output is for the event Stop, and was ignored",
            ),
            (
                "{\"hookSpecificOutput\":{\"permissionDecision\":\"no\"}}",
                "`permissionDecision` is no, which is no decision",
            ),
            ("{\"hookSpecificOutput\":{\"updatedInput\":\"x\"}}", "`updatedInput` is no table"),
            (
                "{\"permissionDecision\":\"deny\"}",
                "`permissionDecision` belongs into `hookSpecificOutput`",
            ),
            (
                "{\"hookSpecificOutput\":{\"updatedToolOutput\":\"x\"}}",
                "`updatedToolOutput` has no effect here",
            ),
        ] {
            let reply = exits(HookEvent::PreToolUse, 0, output, "");
            assert!(reply.problems.concat().contains(problem), "{output}: {:?}", reply.problems);
        }
    }

    #[test]
    fn plain_text_is_context_only_where_a_prompt_begins() {
        let start = exits(HookEvent::SessionStart, 0, "branch: main\n", "");
        assert_eq!(start.context.as_deref(), Some("branch: main"));
        assert_eq!(exits(HookEvent::PostToolUse, 0, "formatted\n", ""), HandlerReply::default());
        let long = exits(HookEvent::UserPromptSubmit, 0, &"x".repeat(30_000), "");
        assert_eq!(long.context.unwrap().chars().count(), MAX_CONTEXT_CHARS + 1);
    }

    #[test]
    fn an_answer_to_a_question_changes_no_input() {
        let answer = |decision: Value| {
            let own = json!({ "hookEventName": "PermissionRequest", "decision": decision });
            prints(HookEvent::PermissionRequest, &json!({ "hookSpecificOutput": own }))
        };
        assert_eq!(answer(json!({ "behavior": "allow" })).decision, Some(HookDecision::Allow));
        let changed = answer(json!({ "behavior": "allow", "updatedInput": {} }));
        assert_eq!((changed.decision, changed.problems.len()), (None, 1));
        let denied = answer(json!({ "behavior": "deny", "message": "m", "interrupt": true }));
        assert_eq!(denied.decision, Some(HookDecision::Deny));
        assert_eq!((denied.reason.as_deref(), denied.stop.as_deref()), (Some("m"), Some("m")));
    }

    #[test]
    fn a_handler_ends_the_turn_and_tells_the_user() {
        let output = json!({ "continue": false, "stopReason": "over", "systemMessage": "hello" });
        let reply = prints(HookEvent::PostToolUse, &output);
        assert_eq!(
            (reply.stop.as_deref(), reply.message.as_deref()),
            (Some("over"), Some("hello"))
        );
    }
}
