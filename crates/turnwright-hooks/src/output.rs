//! Reads the reply of one handler from its exit code and its output.

use serde::{Deserialize, Serialize};
use serde_json::{Deserializer, Map, Value};

use crate::event::HookEvent;
use crate::run::HandlerExit;
use turnwright_types::effect::escape_hidden;
use turnwright_types::redact;
use turnwright_types::text;

/// The most characters of a text for the model.
const MAX_CONTEXT_CHARS: usize = 10_000;
/// The most characters of a reason, and of a message to the user.
const MAX_REASON_CHARS: usize = 2_000;
/// The most characters of the description of a fault.
const MAX_QUOTED_CHARS: usize = 200;
/// The exit code with which a handler refuses.
const REFUSES: i32 = 2;
/// The fields of JSON that is meant for the agent, of which it has at least one.
const AGENT_FIELDS: &str = "additionalContext continue decision hookSpecificOutput permission permissionDecision \
                       suppressOutput systemMessage";
/// JSON pointers to a decision, in the forms of all agents. Cursor has `permission`, and Copilot has
/// `permissionDecision` beside `hookSpecificOutput`; an allow in either of these two does not count.
const DECISIONS: &str = "/decision /permission /permissionDecision /hookSpecificOutput/permissionDecision \
                         /hookSpecificOutput/decision /hookSpecificOutput/decision/behavior";
/// JSON pointers to a reason. The first one that leads to a text counts.
const REASONS: &str = "/hookSpecificOutput/permissionDecisionReason /hookSpecificOutput/decision/message /reason \
                       /permissionDecisionReason /agent_message /user_message /stopReason";
/// The reason of a handler that gives none.
const NO_REASON: &str = "it gave no reason";

/// A handler's decision about a tool call. Later variants are stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum HookDecision {
    /// Skips a question that mode `auto` would not ask either.
    Allow,
    /// The user must be asked.
    Ask,
    Deny,
}

/// The reply of a handler, or the combined reply of several. The default is the verdict when no handler ran.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct HookVerdict {
    /// The strictest decision about a tool call.
    pub decision: Option<HookDecision>,
    /// The reason for the decision, with the name of the handler.
    pub reason: String,
    /// The reason to refuse an event other than a tool call, or an objection to a call that has already run.
    pub block: Option<String>,
    /// The input that replaces the whole input of the call, with the name of the handler.
    pub updated_input: Option<(Value, String)>,
    /// A text for the model.
    pub context: String,
    /// Texts for the user.
    pub messages: Vec<String>,
    /// The faults of the handlers, a sentence each.
    pub problems: Vec<String>,
    /// The reason why the turn must end, if it must.
    pub stop: Option<String>,
    /// True if a handler was waited for, so that files may have changed. Recordings do not have it.
    #[serde(skip)]
    pub has_run: bool,
}

impl HookVerdict {
    /// Returns true if the user must be asked whatever the rules say.
    pub fn asks(&self) -> bool {
        self.decision == Some(HookDecision::Ask)
    }

    pub fn allows(&self) -> bool {
        self.decision == Some(HookDecision::Allow)
    }

    /// Adds another verdict. The strictest decision counts, and the first of these gives the reason.
    pub fn add(&mut self, other: HookVerdict) {
        self.decide(other.decision, other.reason);
        if let Some((changed, name)) = other.updated_input {
            let (input, by) =
                self.updated_input.get_or_insert_with(|| (changed.clone(), name.clone()));
            if *input != changed {
                let reason = format!("`{by}` and `{name}` change the call in different ways");
                self.decide(Some(HookDecision::Ask), reason);
            }
        }
        if let Some(why) = other.block {
            match &mut self.block {
                Some(block) => text::add_line(block, &why),
                None => self.block = Some(why),
            }
        }
        self.add_context(&other.context);
        self.messages.extend(other.messages);
        self.problems.extend(other.problems);
        self.stop = self.stop.take().or(other.stop);
        self.has_run |= other.has_run;
    }

    /// Forgets a replaced input that equals the one before.
    pub(crate) fn forget_same_input(&mut self, before: Option<&Value>) {
        self.updated_input = self.updated_input.take().filter(|(input, _)| before != Some(input));
    }

    /// Adds a line to the text for the model.
    pub fn add_context(&mut self, line: &str) {
        if self.context.is_empty() {
            line.clone_into(&mut self.context);
        } else if !line.is_empty() {
            text::add_line(&mut self.context, line);
        }
    }
}

/// The JSON that a handler prints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HandlerOutput {
    #[serde(rename = "continue")]
    goes_on: Option<bool>,
    stop_reason: Option<String>,
    system_message: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    hook_specific_output: Option<EventOutput>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EventOutput {
    hook_event_name: Option<String>,
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    updated_input: Option<Map<String, Value>>,
    /// The answer to a question.
    decision: Option<Answer>,
    additional_context: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    behavior: String,
    message: Option<String>,
    interrupt: Option<bool>,
    updated_input: Option<Value>,
}

/// Reads the reply of a handler. Also returns the reason, as a phrase, if the handler has failed.
pub(crate) fn read_reply(event: HookEvent, exit: &HandlerExit) -> (HookVerdict, Option<String>) {
    let mut verdict = HookVerdict::default();
    let printed = exit.stdout.trim_start_matches('\u{feff}').trim();
    for document in documents(&text::repair_surrogates(printed, &mut None)) {
        verdict.read_refusal(event, &document);
    }
    let cause = match exit.code {
        Some(0) => {
            let read = verdict.read_output(event, printed);
            let failure = read.err().and_then(|why| clean(&why, MAX_QUOTED_CHARS));
            return (verdict, failure);
        }
        Some(REFUSES) => {
            let said = Some(exit.stderr.clone()).filter(|text| !text.trim().is_empty());
            let reason = said.unwrap_or_else(|| printed_reason(&exit.stdout));
            verdict.refuse(event, safe_reason(Some(reason)));
            return (verdict, None);
        }
        Some(127) => "its program was not found (exit 127)".to_owned(),
        Some(126) => "its program cannot be run (exit 126)".to_owned(),
        Some(code) => format!("it failed (exit {code})"),
        None => "a signal ended it".to_owned(),
    };
    let last_line = exit.stderr.trim().lines().next_back().unwrap_or_default();
    let said = clean(last_line, MAX_QUOTED_CHARS).map(|line| format!(": {line}"));
    (verdict, Some(cause + &said.unwrap_or_default()))
}

/// Returns the JSON objects in a text that begin at the start of a line.
fn documents(text: &str) -> impl Iterator<Item = Value> {
    let later = text.match_indices("\n{").map(move |(at, _)| &text[at + 1..]);
    let lines = std::iter::once(text).filter(|text| text.starts_with('{')).chain(later);
    lines.filter_map(|line| Deserializer::from_str(line).into_iter::<Value>().next()?.ok())
}

/// Returns true for JSON that is meant for the agent.
fn is_for_agent(document: &Value) -> bool {
    AGENT_FIELDS.split_whitespace().any(|name| document.get(name).is_some())
}

/// Returns true for JSON that is text for the model, such as a file that a handler prints.
fn is_data(document: &Value) -> bool {
    let is_empty = document.as_object().is_none_or(Map::is_empty);
    // Some handlers print their input again.
    !is_empty && !is_for_agent(document) && document.get("hook_event_name").is_none()
}

/// Returns the reason that a refusing handler has printed to stdout instead of stderr.
fn printed_reason(printed: &str) -> String {
    match documents(&text::repair_surrogates(printed, &mut None)).find(is_for_agent) {
        Some(output) => reason_of(&output).unwrap_or_default(),
        None => printed.to_owned(),
    }
}

/// Returns the reason in an output, in whichever form.
fn reason_of(output: &Value) -> Option<String> {
    let places = REASONS.split_whitespace();
    let mut texts = places.filter_map(|place| output.pointer(place)?.as_str());
    texts.find(|text| !text.trim().is_empty()).map(str::to_owned)
}

/// Parses the word for a decision. The word `defer` leaves it to others.
fn parse_decision(word: &str) -> Result<Option<HookDecision>, String> {
    match word {
        "allow" => Ok(Some(HookDecision::Allow)),
        "ask" => Ok(Some(HookDecision::Ask)),
        "deny" => Ok(Some(HookDecision::Deny)),
        "defer" => Ok(None),
        other => Err(format!("`{other}` is no decision")),
    }
}

/// Makes a handler's text safe to show and to send to the model: without secrets and hidden characters, and clipped.
/// Returns `None` if it is empty.
fn clean(text: &str, most: usize) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text::clip(escape_hidden(&redact::text(text)), most))
}

/// Returns a handler's reason as a safe text, or [`NO_REASON`] if it has none.
fn safe_reason(text: Option<String>) -> String {
    let reason = clean(&text.unwrap_or_default(), MAX_REASON_CHARS);
    reason.unwrap_or_else(|| NO_REASON.to_owned())
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("its output is no valid JSON, or has a wrong field ({error})")
}

impl HookVerdict {
    /// Refuses what the event is about, or adds a problem if nothing can be refused.
    pub(crate) fn refuse(&mut self, event: HookEvent, reason: String) {
        use HookEvent::{Notification, PostCompact, SessionEnd, SessionStart, SubagentStart};
        match event {
            HookEvent::PreToolUse | HookEvent::PermissionRequest => {
                self.decision = Some(HookDecision::Deny);
                self.reason = reason;
            }
            SessionStart | SessionEnd | SubagentStart | PostCompact | Notification => {
                self.problems.push(format!("nothing can be refused here: {reason}"));
            }
            _ => self.block = Some(reason),
        }
    }

    /// Decides about the call, unless something stricter was decided.
    fn decide(&mut self, decision: Option<HookDecision>, reason: String) {
        if decision > self.decision {
            self.decision = decision;
            self.reason = reason;
        }
    }

    /// Reads what a handler without a failure has printed.
    ///
    /// # Errors
    /// Returns the reason, as a phrase, if a part of it cannot be used.
    fn read_output(&mut self, event: HookEvent, printed: &str) -> Result<(), String> {
        let readable = text::repair_surrogates(printed, &mut None);
        let whole = serde_json::from_str::<Value>(&readable);
        // The model may have written the text around JSON, so only a refusal in it counts.
        let has_refused = self.decision.is_some() || self.block.is_some();
        let is_ignored = !has_refused && documents(&readable).any(|found| is_for_agent(&found));
        let takes_text = matches!(event, HookEvent::UserPromptSubmit | HookEvent::SessionStart);
        match whole {
            Ok(output) if output.is_object() && !(takes_text && is_data(&output)) => {
                self.read_document(event, &output)
            }
            Err(error) if printed.starts_with('{') => Err(unreadable(&error)),
            _ if takes_text => {
                self.context = clean(printed, MAX_CONTEXT_CHARS).unwrap_or_default();
                Ok(())
            }
            _ if is_ignored => Err("its JSON is behind other text, and was ignored".to_owned()),
            _ => Ok(()),
        }
    }

    /// Reads JSON that is meant for the agent.
    fn read_document(&mut self, event: HookEvent, document: &Value) -> Result<(), String> {
        let output = HandlerOutput::deserialize(document).map_err(|error| unreadable(&error))?;
        let message = output.system_message.unwrap_or_default();
        self.messages.extend(clean(&message, MAX_REASON_CHARS));
        if output.goes_on == Some(false) {
            self.stop = Some(safe_reason(output.stop_reason));
        }
        let reason = safe_reason(output.reason);
        let mut names = ["permissionDecision", "updatedInput"].into_iter();
        let misplaced = names.find(|name| {
            !document[*name].is_null() && document["hookSpecificOutput"][*name].is_null()
        });
        match output.decision.as_deref() {
            Some("block" | "deny") if !event.is_guarded() => self.refuse(event, reason),
            Some("approve" | "allow") if event == HookEvent::PreToolUse && misplaced.is_none() => {
                self.decide(Some(HookDecision::Allow), reason);
            }
            _ => {}
        }
        if let Some(name) = misplaced {
            return Err(format!("`{name}` belongs into `hookSpecificOutput`"));
        }
        let mut specific = output.hook_specific_output.unwrap_or_default();
        // Context at the end of a turn would prolong it, which a hook that prints the same for every event cannot mean.
        if !matches!(event, HookEvent::Stop | HookEvent::SubagentStop) {
            let top_level = document["additionalContext"].as_str().map(str::to_owned);
            specific.additional_context = specific.additional_context.or(top_level);
        }
        self.read_event_output(event, specific)
    }

    /// Reads what an output says against a call or prompt. That comes before everything else and is done even after a
    /// failure, because a mistake must not turn a refusal into a yes.
    fn read_refusal(&mut self, event: HookEvent, output: &Value) {
        let places = DECISIONS.split_whitespace();
        let mut words = places.filter_map(|place| output.pointer(place)?.as_str());
        let refuses = output["continue"] == false
            || words.clone().any(|word| matches!(word, "block" | "deny"));
        let reason = safe_reason(reason_of(output));
        if event.is_guarded() && refuses {
            self.refuse(event, reason);
        } else if event == HookEvent::PreToolUse && words.any(|word| word == "ask") {
            self.decide(Some(HookDecision::Ask), reason);
        }
    }

    fn read_event_output(&mut self, event: HookEvent, specific: EventOutput) -> Result<(), String> {
        if let Some(other) = specific.hook_event_name.filter(|name| name != event.name()) {
            return Err(format!("its output is for the event {other}, not for this one"));
        }
        for name in specific.others.keys() {
            let what = format!("`{name}` has no effect here");
            self.problems.extend(clean(&what, MAX_QUOTED_CHARS));
        }
        let context = specific.additional_context.unwrap_or_default();
        self.context = clean(&context, MAX_CONTEXT_CHARS).unwrap_or_default();
        if event == HookEvent::PreToolUse {
            let decision =
                specific.permission_decision.as_deref().map(parse_decision).transpose()?;
            self.decide(decision.flatten(), safe_reason(specific.permission_decision_reason));
            let input = specific.updated_input.map(Value::Object);
            self.updated_input = input.map(|input| (input, String::new()));
        }
        match specific.decision {
            Some(answer) if event == HookEvent::PermissionRequest => self.read_answer(answer),
            _ => Ok(()),
        }
    }

    /// Reads the answer of a handler of `PermissionRequest`.
    fn read_answer(&mut self, answer: Answer) -> Result<(), String> {
        let decision = parse_decision(&answer.behavior)?;
        // An allow that was meant for a changed input does not count for the original one.
        if decision == Some(HookDecision::Allow) && answer.updated_input.is_some() {
            self.problems.push("`updatedInput` has no effect here, so you are asked".to_owned());
            return Ok(());
        }
        let reason = safe_reason(answer.message);
        if decision == Some(HookDecision::Deny) && answer.interrupt == Some(true) {
            self.stop = Some(reason.clone());
        }
        self.decide(decision, reason);
        Ok(())
    }

    /// Adds the name of the handler to the texts.
    pub(crate) fn sign(&mut self, name: &str, file: &str) {
        for reason in [&mut self.reason].into_iter().chain(&mut self.block).chain(&mut self.stop) {
            *reason = format!("`{name}`: {reason}");
        }
        for message in &mut self.messages {
            *message = format!("Hook `{name}`: {message}");
        }
        for problem in &mut self.problems {
            *problem = format!("Hook `{name}` ({file}): {problem}.");
        }
        if let Some((_, by)) = &mut self.updated_input {
            name.clone_into(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exits(
        event: HookEvent,
        code: i32,
        stdout: &str,
        stderr: &str,
    ) -> (HookVerdict, Option<String>) {
        let code = Some(code);
        let exit = HandlerExit { code, stdout: stdout.to_owned(), stderr: stderr.to_owned() };
        read_reply(event, &exit)
    }

    fn prints(event: HookEvent, output: &Value) -> HookVerdict {
        exits(event, 0, &output.to_string(), "").0
    }

    #[test]
    fn exit_2_refuses_whatever_is_printed_and_other_failures_do_not() {
        let (denied, _) = exits(HookEvent::PreToolUse, 2, "{ no json", "no pushes\n");
        assert_eq!(denied.decision, Some(HookDecision::Deny));
        assert_eq!(denied.reason, "no pushes");
        for event in [HookEvent::Stop, HookEvent::PostToolUse] {
            assert_eq!(exits(event, 2, "", "go on").0.block.as_deref(), Some("go on"));
        }
        let (end, _) = exits(HookEvent::SessionEnd, 2, "", "x");
        assert!(end.block.is_none() && end.problems == ["nothing can be refused here: x"]);
        for (code, problem) in [
            (1, "it failed (exit 1): last words"),
            (126, "its program cannot be run (exit 126): last words"),
            (127, "its program was not found (exit 127): last words"),
        ] {
            let failed = exits(HookEvent::PreToolUse, code, "", "first\nlast words\n\n");
            assert_eq!(failed, (HookVerdict::default(), Some(problem.to_owned())));
        }
        let marked = exits(HookEvent::PreToolUse, 0, "\u{feff}{\"decision\":\"block\"}\r\n", "");
        assert_eq!(marked.0.decision, Some(HookDecision::Deny), "a byte order mark is no text");
        let exit = HandlerExit { code: None, stdout: String::new(), stderr: String::new() };
        let (_, failure) = read_reply(HookEvent::Stop, &exit);
        assert_eq!(failure.as_deref(), Some("a signal ended it"));
    }

    #[test]
    fn decisions_are_read_in_both_forms() {
        for (output, decision, reason) in [
            (json!({ "decision": "block", "reason": "r" }), Some(HookDecision::Deny), "r"),
            (json!({ "decision": "approve" }), Some(HookDecision::Allow), NO_REASON),
            (
                json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse",
                    "permissionDecision": "deny", "permissionDecisionReason": "why" } }),
                Some(HookDecision::Deny),
                "why",
            ),
            (
                json!({ "hookSpecificOutput": { "permissionDecision": "ask" } }),
                Some(HookDecision::Ask),
                NO_REASON,
            ),
            (json!({ "hookSpecificOutput": { "permissionDecision": "defer" } }), None, ""),
            (
                json!({ "decision": "approve", "reason": "r", "permission": "deny" }),
                Some(HookDecision::Deny),
                "r",
            ),
            (
                json!({ "permission": "deny", "agent_message": "why", "user_message": "x" }),
                Some(HookDecision::Deny),
                "why",
            ),
            (json!({ "decision": "ask", "reason": "r" }), Some(HookDecision::Ask), "r"),
            (json!({ "permissionDecision": "allow" }), None, ""),
            (json!({ "decision": "approve", "updatedInput": {} }), None, ""),
            (
                json!({ "decision": "block", "hookSpecificOutput": {
                    "permissionDecision": "deny", "permissionDecisionReason": "why" } }),
                Some(HookDecision::Deny),
                "why",
            ),
            (
                json!({ "hookSpecificOutput": { "permissionDecision": "allow" },
                    "permissionDecision": "deny", "permissionDecisionReason": "r" }),
                Some(HookDecision::Deny),
                "r",
            ),
            (json!({ "permission": "allow" }), None, ""),
            (json!({}), None, ""),
        ] {
            let reply = prints(HookEvent::PreToolUse, &output);
            assert_eq!((reply.decision, reply.reason.as_str()), (decision, reason), "{output}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_output_is_said() {
        for (output, problem) in [
            ("{\"decision\":", "its output is no valid JSON"),
            (
                "{\"hookSpecificOutput\":{\"hookEventName\":\"Stop\",\"permissionDecision\":\"deny\"}}",
                "its output is for the event Stop, not for this one",
            ),
            ("{\"hookSpecificOutput\":{\"permissionDecision\":\"no\"}}", "`no` is no decision"),
            ("{\"hookSpecificOutput\":{\"updatedInput\":\"x\"}}", "or has a wrong field"),
            ("{\"decision\":\"block\",\"reason\":1}", "or has a wrong field"),
            (
                "{\"permissionDecision\":\"deny\"}",
                "`permissionDecision` belongs into `hookSpecificOutput`",
            ),
            (
                "{\"updatedInput\":{\"command\":\"ls\"}}",
                "`updatedInput` belongs into `hookSpecificOutput`",
            ),
            (
                "{\"hookSpecificOutput\":{\"updatedToolOutput\":\"x\"}}",
                "`updatedToolOutput` has no effect here",
            ),
        ] {
            let (reply, failure) = exits(HookEvent::PreToolUse, 0, output, "");
            let said: Vec<_> = failure.into_iter().chain(reply.problems).collect();
            assert!(said.concat().contains(problem), "{output}: {said:?}");
        }
    }

    #[test]
    fn a_mistake_does_not_turn_a_refusal_into_a_yes() {
        for (output, decision, reason) in [
            (json!({ "permissionDecision": "deny", "reason": "r" }), Some(HookDecision::Deny), "r"),
            (json!({ "permissionDecision": "ask" }), Some(HookDecision::Ask), NO_REASON),
            (json!({ "decision": "block", "reason": 1 }), Some(HookDecision::Deny), NO_REASON),
            (json!({ "decision": "approve", "reason": 1 }), None, ""),
            (
                json!({ "hookSpecificOutput": { "decision": "deny" } }),
                Some(HookDecision::Deny),
                NO_REASON,
            ),
            (
                json!({ "hookSpecificOutput": { "permissionDecision": "block" } }),
                Some(HookDecision::Deny),
                NO_REASON,
            ),
            (
                json!({ "hookSpecificOutput": {
                    "hookEventName": "Stop", "permissionDecision": "deny" } }),
                Some(HookDecision::Deny),
                NO_REASON,
            ),
            (
                json!({ "updatedInput": {}, "hookSpecificOutput": { "permissionDecision": "deny" } }),
                Some(HookDecision::Deny),
                NO_REASON,
            ),
            (
                json!({ "continue": "x", "hookSpecificOutput": { "permissionDecision": "deny" } }),
                Some(HookDecision::Deny),
                NO_REASON,
            ),
        ] {
            let (reply, failure) = exits(HookEvent::PreToolUse, 0, &output.to_string(), "");
            assert_eq!((reply.decision, reply.reason.as_str()), (decision, reason), "{output}");
            assert!(failure.is_some(), "{output}");
        }
        let wrong = json!({ "decision": "block", "reason": 1 });
        let prompt = prints(HookEvent::UserPromptSubmit, &wrong);
        assert_eq!(prompt.block.as_deref(), Some(NO_REASON));
    }

    #[test]
    fn a_refusal_in_json_counts_whatever_the_exit_code_is() {
        for code in [1, 3, 127] {
            let says = |word: &str| {
                let own = json!({ "permissionDecision": word, "permissionDecisionReason": "r" });
                let output = json!({ "hookSpecificOutput": own });
                exits(HookEvent::PreToolUse, code, &format!("a log\n{output}\n"), "oops")
            };
            let (denied, failure) = says("deny");
            assert_eq!(denied.decision, Some(HookDecision::Deny));
            assert!(denied.reason == "r" && failure.is_some_and(|why| why.ends_with(": oops")));
            assert_eq!(says("ask").0.decision, Some(HookDecision::Ask));
            assert_eq!(says("allow").0, HookVerdict::default(), "a failure allows nothing");
        }
        let blocked = "{\"decision\":\"block\",\"reason\":\"r\"}";
        let (prompt, _) = exits(HookEvent::UserPromptSubmit, 1, blocked, "");
        assert_eq!(prompt.block.as_deref(), Some("r"));
        assert_eq!(exits(HookEvent::Stop, 1, blocked, "").0, HookVerdict::default());
    }

    #[test]
    fn a_call_with_which_the_turn_must_not_go_on_does_not_run() {
        let stop = json!({ "continue": false, "stopReason": "over" });
        for (event, decision) in [
            (HookEvent::PreToolUse, Some(HookDecision::Deny)),
            (HookEvent::PermissionRequest, Some(HookDecision::Deny)),
            (HookEvent::PostToolUse, None),
        ] {
            let verdict = prints(event, &stop);
            assert_eq!((verdict.decision, verdict.stop.as_deref()), (decision, Some("over")));
            assert!(decision.is_none() || verdict.reason == "over", "{event:?}");
        }
        let (between, _) = exits(HookEvent::PreToolUse, 0, &format!("a log\n{stop}"), "");
        assert_eq!(between.decision, Some(HookDecision::Deny));
        assert_eq!(prints(HookEvent::PreToolUse, &json!({ "continue": true })).decision, None);
    }

    #[test]
    fn a_refusal_counts_between_the_lines_of_a_log_and_a_yes_does_not() {
        let says = |word: &str| json!({ "hookSpecificOutput": { "permissionDecision": word } });
        let (deny, allow) = (says("deny"), says("allow"));
        for printed in [
            format!("nvm: now using node v22\n{deny}\n"),
            format!("{{ no json\r\n{deny}"),
            format!("{deny}\ndone in 3 ms\n"),
            format!("{{\"suppressOutput\":true}}\n{deny}"),
            format!("{allow}\n{deny}"),
            r#"{"hookSpecificOutput":{"permissionDecision":"deny"},"reason":"half a \ud83d"}"#
                .to_owned(),
        ] {
            let (reply, _) = exits(HookEvent::PreToolUse, 0, &printed, "");
            assert_eq!(reply.decision, Some(HookDecision::Deny), "{printed}");
        }
        let (reply, failure) = exits(HookEvent::PreToolUse, 0, &format!("a log\n{allow}"), "");
        assert_eq!(reply, HookVerdict::default());
        assert_eq!(failure.as_deref(), Some("its JSON is behind other text, and was ignored"));
        let (reply, failure) = exits(HookEvent::PreToolUse, 0, &format!("{allow}\na log"), "");
        assert!(reply == HookVerdict::default() && failure.is_some());
    }

    #[test]
    fn json_that_is_no_answer_is_text_for_the_model() {
        for text in ["{\"name\":\"x\"}", "a log\n{\"systemMessage\":\"x\"}"] {
            assert_eq!(exits(HookEvent::SessionStart, 0, text, "").0.context, text);
        }
        let passed_on = "{\"hook_event_name\":\"SessionStart\"}";
        for (event, printed) in
            [(HookEvent::SessionStart, passed_on), (HookEvent::Stop, "{\"name\":\"x\"}")]
        {
            assert_eq!(exits(event, 0, printed, ""), (HookVerdict::default(), None));
        }
    }

    #[test]
    fn context_counts_wherever_in_the_answer_it_is() {
        for output in [
            json!({ "hookSpecificOutput": { "additionalContext": "c" }, "additionalContext": "x" }),
            json!({ "additionalContext": "c" }),
            json!({ "systemMessage": "m", "additionalContext": "c" }),
            json!({ "hookEventName": "SessionStart", "additionalContext": "c" }),
        ] {
            for event in [HookEvent::SessionStart, HookEvent::PostToolUse] {
                assert_eq!(prints(event, &output).context, "c", "{output}");
            }
        }
        let everywhere = json!({ "additionalContext": "c" });
        assert_eq!(prints(HookEvent::Stop, &everywhere).context, "", "the turn may end");
    }

    #[test]
    fn the_reason_of_a_refusal_may_be_printed_to_stdout() {
        for (stdout, stderr, expected) in [
            ("no pushes", "", "no pushes"),
            ("no pushes", " \n", "no pushes"),
            ("{\"decision\":\"block\",\"reason\":\"why\"}", "", "why"),
            (
                "{\"hookSpecificOutput\":{\"permissionDecisionReason\":\"why\"},\"systemMessage\":\"x\"}",
                "",
                "why",
            ),
            ("a log", "why", "why"),
            ("", "", NO_REASON),
        ] {
            assert_eq!(exits(HookEvent::PreToolUse, 2, stdout, stderr).0.reason, expected);
        }
    }

    #[test]
    fn an_input_that_is_repeated_is_no_change() {
        let input = json!({ "command": "ls" });
        let output = json!({ "hookSpecificOutput": { "updatedInput": input } });
        let mut reply = prints(HookEvent::PreToolUse, &output);
        reply.forget_same_input(Some(&json!({ "command": "ls -l" })));
        assert!(reply.updated_input.is_some());
        let twice = json!({ "updatedInput": {}, "hookSpecificOutput": { "updatedInput": {} } });
        assert!(prints(HookEvent::PreToolUse, &twice).updated_input.is_some(), "for two agents");
        reply.forget_same_input(Some(&input));
        assert_eq!(reply.updated_input, None);
    }

    #[test]
    fn plain_text_is_context_only_where_a_prompt_begins() {
        let (start, _) = exits(HookEvent::SessionStart, 0, "branch: main\n", "");
        assert_eq!(start.context, "branch: main");
        let formatted = exits(HookEvent::PostToolUse, 0, "formatted\n", "");
        assert_eq!(formatted, (HookVerdict::default(), None));
        let (long, _) = exits(HookEvent::UserPromptSubmit, 0, &"x".repeat(30_000), "");
        assert_eq!(long.context.chars().count(), MAX_CONTEXT_CHARS + 1);
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
        assert_eq!((denied.reason.as_str(), denied.stop.as_deref()), ("m", Some("m")));
    }

    #[test]
    fn a_handler_ends_the_turn_and_tells_the_user() {
        let output = json!({ "continue": false, "stopReason": "over", "systemMessage": "hello" });
        let reply = prints(HookEvent::PostToolUse, &output);
        assert_eq!(reply.stop.as_deref(), Some("over"));
        assert_eq!(reply.messages, ["hello"]);
    }

    fn combined(verdicts: [HookVerdict; 3]) -> HookVerdict {
        let mut all = HookVerdict::default();
        for (mut verdict, name) in verdicts.into_iter().zip(["a", "b", "c"]) {
            verdict.sign(name, "hooks.json");
            all.add(verdict);
        }
        all
    }

    fn decides(decision: HookDecision) -> HookVerdict {
        let reason = format!("{decision:?}");
        HookVerdict { decision: Some(decision), reason, ..HookVerdict::default() }
    }

    #[test]
    fn the_strictest_decision_counts_and_the_first_of_these_gives_the_reason() {
        let [allow, ask, deny] =
            [HookDecision::Allow, HookDecision::Ask, HookDecision::Deny].map(decides);
        let silent = HookVerdict::default();
        for (verdicts, expected, reason) in [
            ([allow.clone(), ask.clone(), deny.clone()], HookDecision::Deny, "`c`: Deny"),
            ([deny.clone(), deny, allow.clone()], HookDecision::Deny, "`a`: Deny"),
            ([allow.clone(), ask, silent.clone()], HookDecision::Ask, "`b`: Ask"),
            ([silent.clone(), allow.clone(), allow], HookDecision::Allow, "`b`: Allow"),
        ] {
            let verdict = combined(verdicts);
            assert_eq!(verdict.decision, Some(expected));
            assert_eq!(verdict.reason, reason);
        }
        assert_eq!(combined([silent.clone(), silent.clone(), silent.clone()]), silent);
    }

    #[test]
    fn different_changes_of_one_call_are_a_question() {
        let changes = |input: Value| HookVerdict {
            updated_input: Some((input, String::new())),
            ..decides(HookDecision::Allow)
        };
        let agreed = combined([1, 1, 1].map(|value| changes(json!({ "a": value }))));
        assert_eq!(agreed.decision, Some(HookDecision::Allow));
        assert_eq!(agreed.updated_input, Some((json!({ "a": 1 }), "a".to_owned())));
        let different = combined([1, 1, 2].map(|value| changes(json!({ "a": value }))));
        assert_eq!(different.decision, Some(HookDecision::Ask));
        assert!(different.reason.contains("in different ways"), "{}", different.reason);
    }
}
