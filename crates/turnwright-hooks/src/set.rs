//! The hooks of a session: selects those for an occasion, runs them concurrently, and combines their replies into one
//! verdict.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::event::HookEvent;
use crate::handler::Handler;
use crate::output::{HandlerEnd, HandlerReply, HookDecision, MAX_CONTEXT_CHARS, read_reply};
use crate::run::{HookSite, run_handler};
use turnwright_types::text;

/// The most handlers that run at the same time for one occasion.
const MAX_AT_ONCE: usize = 16;

/// Something in a session that hooks may run for.
#[derive(Clone, Debug)]
pub struct Occasion {
    pub event: HookEvent,
    /// The words that matchers are tested against, such as the names of a tool.
    pub subjects: Vec<String>,
    /// The input fields that are specific to this event, as a JSON object.
    pub fields: Value,
}

/// The input fields that all events share.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    pub session: String,
    pub folder: String,
    /// The permission mode, by its name in Claude Code.
    pub mode: &'static str,
    /// The identifier and the type of the helper, if the occasion concerns one.
    pub helper: Option<(String, String)>,
}

impl Occasion {
    /// Returns the input for the handlers.
    pub fn input(&self, facts: &SessionFacts) -> Value {
        let mut input = json!({
            "session_id": facts.session,
            "transcript_path": null,
            "cwd": facts.folder,
            "permission_mode": facts.mode,
            "hook_event_name": self.event.name(),
        });
        if let Value::Object(fields) = &mut input {
            if let Some((id, kind)) = &facts.helper {
                fields.insert("agent_id".to_owned(), json!(id));
                fields.insert("agent_type".to_owned(), json!(kind));
            }
            fields.extend(self.fields.as_object().cloned().unwrap_or_default());
        }
        input
    }
}

/// The handlers of a session.
#[derive(Debug, Default)]
pub struct HookSet {
    handlers: Vec<Handler>,
    /// The most recent result of each handler, by the handler's number.
    // Held only to store or look up a result.
    last: Mutex<BTreeMap<usize, String>>,
}

/// The combined reply of the handlers of an occasion. The default is the verdict when no handler ran.
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
}

impl HookSet {
    pub fn new(handlers: Vec<Handler>) -> HookSet {
        HookSet { handlers, last: Mutex::default() }
    }

    /// Returns the handlers in the order of their files, each with its most recent result.
    pub fn list(&self) -> Vec<(&Handler, Option<String>)> {
        let last = self.last.lock();
        let all = self.handlers.iter().enumerate();
        all.map(|(number, handler)| (handler, last.get(&number).cloned())).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }

    /// Returns true if there are handlers for an event.
    pub fn has(&self, event: HookEvent) -> bool {
        self.handlers.iter().any(|handler| handler.event == event)
    }

    /// Returns true if any handler needs the sandbox. Otherwise no sandbox is prepared.
    pub fn has_confined(&self, confines_all: bool) -> bool {
        self.handlers.iter().any(|handler| handler.needs_sandbox(confines_all))
    }

    /// Returns the names of an occasion's handlers, either those that run in the background or the others.
    pub fn names(&self, occasion: &Occasion, in_background: bool) -> Vec<String> {
        let chosen = self.choose(occasion, in_background);
        chosen.into_iter().map(|number| self.handlers[number].name()).collect()
    }

    /// Returns true if any of the handlers that [`Self::names`] lists needs the sandbox.
    pub fn confines(&self, occasion: &Occasion, in_background: bool, site: &HookSite) -> bool {
        let mut chosen = self.choose(occasion, in_background).into_iter();
        chosen.any(|number| self.handlers[number].needs_sandbox(site.confines_all))
    }

    /// Returns the numbers of the handlers for an occasion. Of handlers with the same command, only one is chosen.
    fn choose(&self, occasion: &Occasion, in_background: bool) -> Vec<usize> {
        let input = occasion.fields.get("tool_input").unwrap_or(&Value::Null);
        let mut chosen: Vec<usize> = Vec::new();
        for (number, handler) in self.handlers.iter().enumerate() {
            let fits = handler.event == occasion.event
                && handler.in_background == in_background
                && handler.matcher.fits(&occasion.subjects)
                && handler
                    .condition
                    .as_ref()
                    .is_none_or(|rule| rule.holds(&occasion.subjects, input))
                && !(handler.runs_once && self.last.lock().contains_key(&number));
            if !fits {
                continue;
            }
            let same =
                chosen.iter().position(|known| self.handlers[*known].action == handler.action);
            let Some(place) = same else {
                chosen.push(number);
                continue;
            };
            let other = &self.handlers[chosen[place]];
            let is_stricter = handler.blocks_on_failure && !other.blocks_on_failure;
            if is_stricter && handler.scope == other.scope {
                chosen[place] = number;
            }
        }
        chosen
    }

    /// Runs the handlers of an occasion, either those that run in the background or the others.
    pub async fn run(
        &self,
        occasion: &Occasion,
        facts: &SessionFacts,
        site: &HookSite,
        cancel: &CancellationToken,
        in_background: bool,
    ) -> HookVerdict {
        let input = format!("{}\n", occasion.input(facts));
        let chosen = self.choose(occasion, in_background);
        let runs: Vec<BoxFuture<'_, (usize, HandlerReply)>> = chosen
            .into_iter()
            .map(|number| self.run_one(number, (&facts.session, &input), site, cancel).boxed())
            .collect();
        let replies: Vec<_> = stream::iter(runs).buffered(MAX_AT_ONCE).collect().await;
        self.verdict(replies)
    }

    async fn run_one(
        &self,
        number: usize,
        told: (&str, &str),
        site: &HookSite,
        cancel: &CancellationToken,
    ) -> (usize, HandlerReply) {
        let handler = &self.handlers[number];
        let run = run_handler(handler, told, site, cancel).await;
        let mut reply = read_reply(handler.event, &run.end, &run.stdout, &run.stderr);
        if run.end != HandlerEnd::Cancelled {
            let how = reply.problems.first().map_or("ok", String::as_str);
            self.last.lock().insert(number, text::clip(how, MAX_CONTEXT_CHARS / 50));
        }
        if reply.has_failed && handler.blocks_on_failure {
            reply.reason = reply.problems.first().cloned();
            reply.refuse(handler.event);
        }
        (number, reply)
    }

    /// Combines the replies, which are in the order of the files.
    fn verdict(&self, replies: Vec<(usize, HandlerReply)>) -> HookVerdict {
        let mut verdict = HookVerdict::default();
        let mut blocks = Vec::new();
        let mut contexts = Vec::new();
        for (number, reply) in replies {
            let handler = &self.handlers[number];
            let name = handler.name();
            for problem in &reply.problems {
                let goes_on = reply.has_failed && !handler.blocks_on_failure;
                let end = if goes_on { "; nothing was stopped because of that" } else { "" };
                verdict.problems.push(format!("Hook `{name}` ({}): {problem}{end}.", handler.file));
            }
            verdict.messages.extend(reply.message.map(|text| format!("Hook `{name}`: {text}")));
            let reason = reply.reason.unwrap_or_else(|| "it gave no reason".to_owned());
            if reply.decision > verdict.decision {
                verdict.decision = reply.decision;
                verdict.reason = format!("`{name}`: {reason}");
            }
            if reply.blocks {
                blocks.push(format!("`{name}`: {reason}"));
            }
            if let Some(input) = reply.updated_input {
                match &verdict.updated_input {
                    Some((other, by)) if *other != input => {
                        let why = format!("`{by}` and `{name}` change the call in different ways");
                        if verdict.decision < Some(HookDecision::Ask) {
                            verdict.decision = Some(HookDecision::Ask);
                            verdict.reason = why;
                        }
                    }
                    Some(_) => {}
                    None => verdict.updated_input = Some((input, name.clone())),
                }
            }
            contexts.extend(reply.context);
            if let Some(why) = reply.stop {
                verdict.stop.get_or_insert(format!("`{name}`: {why}"));
            }
        }
        verdict.context = contexts.join("\n");
        verdict.block = (!blocks.is_empty()).then(|| blocks.join("\n"));
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::handler::{HookScope, read_handlers};

    fn set(events: &Value) -> HookSet {
        let nowhere = Path::new("/nowhere");
        let (handlers, problems) = read_handlers("hooks.json", HookScope::User, nowhere, events);
        assert_eq!(problems, [""; 0]);
        HookSet::new(handlers)
    }

    fn three() -> HookSet {
        let hooks: Vec<_> = ["a", "b", "c"].map(|name| json!({ "command": name })).into();
        set(&json!({ "PreToolUse": [{ "hooks": hooks }] }))
    }

    fn decides(decision: HookDecision) -> HandlerReply {
        let reason = Some(format!("{decision:?}"));
        HandlerReply { decision: Some(decision), reason, ..HandlerReply::default() }
    }

    #[test]
    fn the_strictest_decision_counts_and_the_first_of_these_gives_the_reason() {
        let [allow, ask, deny] =
            [HookDecision::Allow, HookDecision::Ask, HookDecision::Deny].map(decides);
        for (replies, expected, reason) in [
            ([allow.clone(), ask.clone(), deny.clone()], HookDecision::Deny, "`c`: Deny"),
            ([deny.clone(), deny, allow.clone()], HookDecision::Deny, "`a`: Deny"),
            ([allow.clone(), ask, HandlerReply::default()], HookDecision::Ask, "`b`: Ask"),
            ([HandlerReply::default(), allow.clone(), allow], HookDecision::Allow, "`b`: Allow"),
        ] {
            let verdict = three().verdict((0..).zip(replies).collect());
            assert_eq!(verdict.decision, Some(expected));
            assert_eq!(verdict.reason, reason);
        }
        assert_eq!(three().verdict(Vec::new()), HookVerdict::default());
    }

    #[test]
    fn different_changes_of_one_call_are_a_question() {
        let changes = |input: Value| HandlerReply {
            updated_input: Some(input),
            ..decides(HookDecision::Allow)
        };
        let same = [changes(json!({ "a": 1 })), changes(json!({ "a": 1 }))];
        let verdict = three().verdict((0..).zip(same).collect());
        assert_eq!(verdict.decision, Some(HookDecision::Allow));
        assert_eq!(verdict.updated_input, Some((json!({ "a": 1 }), "a".to_owned())));
        let other = [changes(json!({ "a": 1 })), changes(json!({ "a": 2 }))];
        let verdict = three().verdict((0..).zip(other).collect());
        assert_eq!(verdict.decision, Some(HookDecision::Ask));
        assert!(verdict.reason.contains("in different ways"), "{}", verdict.reason);
    }

    #[test]
    fn an_occasion_has_the_handlers_that_fit_each_once() {
        let set = set(&json!({
            "PreToolUse": [
                { "matcher": "Bash", "hooks": [{ "command": "x" }, { "command": "x" }] },
                { "matcher": "Edit|Write", "hooks": [{ "command": "y" }] },
                { "hooks": [{ "command": "x" }, { "command": "z", "async": true }] },
            ],
            "Stop": [{ "matcher": "ignored", "hooks": [{ "command": "s" }] }],
        }));
        let names = |event, subject: &str| {
            let subjects = vec![subject.to_owned()];
            set.names(&Occasion { event, subjects, fields: json!({}) }, false)
        };
        assert_eq!(names(HookEvent::PreToolUse, "Bash"), ["x"]);
        assert_eq!(names(HookEvent::PreToolUse, "Write"), ["y", "x"]);
        assert_eq!(names(HookEvent::Stop, ""), ["s"]);
        assert!(set.has(HookEvent::Stop) && !set.has(HookEvent::SessionStart));
    }

    #[test]
    fn of_the_same_command_the_one_runs_whose_failure_refuses() {
        let plain = json!({ "command": "x" });
        let hooks = json!([plain, { "command": "x", "onFailure": "block" }, plain]);
        let set = set(&json!({ "PreToolUse": [{ "hooks": hooks }] }));
        let event = HookEvent::PreToolUse;
        let occasion = Occasion { event, subjects: Vec::new(), fields: json!({}) };
        assert_eq!(set.choose(&occasion, false), [1]);
    }

    #[test]
    fn the_input_has_the_fields_of_the_event_and_of_the_helper() {
        let fields = json!({ "prompt": "p" });
        let event = HookEvent::UserPromptSubmit;
        let occasion = Occasion { event, subjects: Vec::new(), fields };
        let facts = SessionFacts {
            session: "s".to_owned(),
            folder: "/ws".to_owned(),
            mode: "default",
            helper: Some(("h".to_owned(), "explore".to_owned())),
        };
        let expected = json!({
            "session_id": "s", "transcript_path": null, "cwd": "/ws", "permission_mode": "default",
            "hook_event_name": "UserPromptSubmit", "agent_id": "h", "agent_type": "explore", "prompt": "p",
        });
        assert_eq!(occasion.input(&facts), expected);
    }
}
