//! The hooks of a session: selects those for an occasion, runs them concurrently, and combines their replies into one
//! verdict.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::event::HookEvent;
use crate::handler::{Handler, HookScope};
use crate::output::{HookVerdict, read_reply};
use crate::run::{HookSite, NoExit, run_handler};
use turnwright_types::text;

/// The most handlers that run at the same time for one occasion.
const MAX_AT_ONCE: usize = 16;
/// The most characters that are kept of the result of a run.
const MAX_RESULT_CHARS: usize = 200;

/// Something in a session that hooks may run for.
#[derive(Clone, Debug)]
pub struct Occasion {
    pub event: HookEvent,
    /// The words that matchers are tested against, such as the names of a tool.
    pub subjects: Vec<String>,
    /// The input fields that are specific to this event, as a JSON object.
    pub fields: Value,
}

impl Occasion {
    /// Makes an occasion with one subject, or none if the subject is empty.
    pub fn new(event: HookEvent, subject: &str, fields: Value) -> Occasion {
        let subjects = if subject.is_empty() { Vec::new() } else { vec![subject.to_owned()] };
        Occasion { event, subjects, fields }
    }

    /// Returns the input for the handlers at this site.
    fn input(&self, site: &HookSite) -> Value {
        let mut input = site.fields.clone();
        input["hook_event_name"] = json!(self.event.name());
        for (name, value) in self.fields.as_object().into_iter().flatten() {
            input[name] = value.clone();
        }
        input
    }
}

/// The handlers of a session, in the order of their files.
#[derive(Debug, Default)]
pub struct HookSet(pub Vec<Arc<Handler>>);

impl HookSet {
    pub fn new(handlers: Vec<Handler>) -> HookSet {
        HookSet(handlers.into_iter().map(Arc::new).collect())
    }

    /// Returns true if there are handlers for an event.
    pub fn has(&self, event: HookEvent) -> bool {
        self.0.iter().any(|handler| handler.event == event)
    }

    /// Returns the handlers for an occasion. Of identical ones, only the first is chosen.
    pub fn choose(&self, occasion: &Occasion) -> Vec<Arc<Handler>> {
        let mut chosen: Vec<Arc<Handler>> = Vec::new();
        for handler in self.0.iter().filter(|handler| handler.fits(occasion)) {
            if !chosen.iter().any(|known| known.is_same(handler)) {
                chosen.push(Arc::clone(handler));
            }
        }
        chosen
    }
}

impl Handler {
    fn fits(&self, occasion: &Occasion) -> bool {
        let input = occasion.fields.get("tool_input").unwrap_or(&Value::Null);
        self.event == occasion.event
            && self.matcher.fits(&occasion.subjects)
            && self.condition.as_ref().is_none_or(|rule| rule.holds(&occasion.subjects, input))
            && !self.only_run.is_closed()
            // A run in the background decides nothing, so no call needs to wait for it.
            && !(self.in_background && self.only_run.available_permits() == 0)
    }

    fn is_same(&self, other: &Handler) -> bool {
        self.action == other.action
            && self.blocks_on_failure == other.blocks_on_failure
            && self.in_background == other.in_background
    }

    /// Runs the handler, unless it runs once and has run. Concurrent calls wait for that run, since it may not count.
    /// A failure refuses only if the handler says so; but a project cannot switch off a guard of the user by a file
    /// that its command then names.
    async fn run(&self, input: &str, site: &HookSite, cancel: &CancellationToken) -> HookVerdict {
        let _permit = if self.runs_once {
            let waiting = cancel.run_until_cancelled(self.only_run.acquire());
            let Some(Ok(permit)) = waiting.await else { return HookVerdict::default() };
            Some(permit)
        } else {
            None
        };
        let mut blocks = self.blocks_on_failure;
        let mut is_withheld = false;
        let (mut verdict, failure) = match run_handler(self, input, site, cancel).await {
            Ok(exit) => read_reply(self.event, &exit),
            Err(NoExit::Cancelled) => return HookVerdict::default(),
            Err(NoExit::Failed(why)) => (HookVerdict::default(), Some(why)),
            Err(NoExit::Withheld(why)) => {
                is_withheld = true;
                blocks |= self.scope == HookScope::User && self.event.is_guarded();
                (HookVerdict::default(), Some(why))
            }
        };
        let fault = failure.as_ref().or(verdict.problems.first());
        let result = text::clip(fault.map_or("ok", String::as_str), MAX_RESULT_CHARS);
        *self.last.lock() = Some(result);
        if self.runs_once && !(is_withheld || blocks && failure.is_some()) {
            self.only_run.close();
        }
        if self.in_background {
            blocks = false;
            verdict = HookVerdict { problems: verdict.problems, ..HookVerdict::default() };
        }
        if let Some(why) = failure {
            let is_stopped = blocks || verdict.decision.is_some() || verdict.block.is_some();
            let end = if is_stopped { "" } else { "; nothing was stopped because of that" };
            verdict.problems.insert(0, format!("{why}{end}"));
            if blocks {
                verdict.refuse(self.event, why);
            }
        }
        verdict.sign(&self.name, &self.file);
        verdict
    }
}

/// Runs the handlers chosen for an occasion, and combines their replies in the order of the files. Those that run in
/// the background decide nothing.
pub async fn run_handlers(
    handlers: &[Arc<Handler>],
    occasion: &Occasion,
    site: &HookSite,
    cancel: &CancellationToken,
) -> HookVerdict {
    let input = format!("{}\n", occasion.input(site));
    let runs: Vec<BoxFuture<'_, HookVerdict>> =
        handlers.iter().map(|handler| handler.run(&input, site, cancel).boxed()).collect();
    let mut verdict = HookVerdict::default();
    let mut verdicts = stream::iter(runs).buffered(MAX_AT_ONCE);
    while let Some(mut next) = verdicts.next().await {
        next.forget_same_input(occasion.fields.get("tool_input"));
        verdict.add(next);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::future;

    use super::*;
    use crate::handler::read_handlers;
    use crate::output::HookDecision;

    fn set(events: &Value) -> HookSet {
        let nowhere = Path::new("/nowhere");
        let (handlers, problems) = read_handlers("hooks.json", HookScope::User, nowhere, events);
        assert_eq!(problems, [""; 0]);
        HookSet::new(handlers)
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
        let names = |event, subject: Option<&str>| -> Vec<_> {
            let subjects = subject.map(str::to_owned).into_iter().collect();
            let chosen = set.choose(&Occasion { event, subjects, fields: json!({}) });
            chosen.iter().map(|handler| handler.name.clone()).collect()
        };
        assert_eq!(names(HookEvent::PreToolUse, Some("Bash")), ["x", "z"]);
        assert_eq!(names(HookEvent::PreToolUse, Some("Write")), ["y", "x", "z"]);
        assert_eq!(names(HookEvent::Stop, None), ["s"]);
        assert!(set.has(HookEvent::Stop) && !set.has(HookEvent::SessionStart));
    }

    fn site() -> HookSite {
        HookSite {
            project: "/nowhere".into(),
            roots: Vec::new(),
            workdir: "/nowhere".into(),
            environment: Arc::default(),
            fields: json!({}),
            sandbox: None,
            confines_all: false,
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_hook_does_not_run_in_a_session_that_it_has_started() {
        use crate::run::mark_of;
        use turnwright_workspace::exec::Environment;
        let hooks = json!([{ "hooks": [{ "command": "/bin/sh", "args": ["-c", "exit 2"] }] }]);
        let set = set(&json!({ "PreToolUse": hooks, "UserPromptSubmit": hooks }));
        let events = [HookEvent::PreToolUse, HookEvent::UserPromptSubmit];
        let [call, prompt] = events.map(|event| {
            let mut handlers = set.0.iter();
            mark_of(handlers.find(|handler| handler.event == event).unwrap())
        });
        let base = tempfile::tempdir().unwrap();
        for (within, expected) in [
            ("another".to_owned(), [true, true]),
            (call.clone(), [false, true]),
            (format!("{prompt} {call}"), [false, false]),
        ] {
            let variables = Environment::default().with("IN_TURNWRIGHT_HOOKS", &within);
            let environment = Arc::new(variables);
            let workdir = base.path().to_path_buf();
            let site = HookSite { project: workdir.clone(), workdir, environment, ..site() };
            for (event, is_run) in events.into_iter().zip(expected) {
                let occasion = Occasion::new(event, "", json!({}));
                let handlers = set.choose(&occasion);
                let cancel = CancellationToken::new();
                let verdict = run_handlers(&handlers, &occasion, &site, &cancel).await;
                assert_eq!(verdict != HookVerdict::default(), is_run, "{event:?}, {within}");
            }
        }
    }

    #[tokio::test]
    async fn a_guard_that_was_withheld_or_has_failed_has_not_run_once() {
        let set = set(&json!({ "PreToolUse": [{ "hooks": [
            { "command": "/no/such/hook", "args": [], "once": true, "onFailure": "block" },
        ] }] }));
        let occasion = Occasion::new(HookEvent::PreToolUse, "Bash", json!({}));
        for confines_all in [true, true, false, false] {
            let site = HookSite { confines_all, ..site() };
            let handlers = set.choose(&occasion);
            let cancel = CancellationToken::new();
            // A call that waited for the failed run is refused by its own.
            let calls = [0; 2].map(|_| run_handlers(&handlers, &occasion, &site, &cancel));
            for verdict in future::join_all(calls).await {
                assert_eq!(verdict.decision, Some(HookDecision::Deny), "{verdict:?}");
            }
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn concurrent_calls_run_a_handler_once() {
        let base = tempfile::tempdir().unwrap();
        let set = set(&json!({ "PreToolUse": [{ "hooks": [
            { "command": "/bin/sh", "args": ["-c", "echo ran >> runs"], "once": true },
        ] }] }));
        let workdir = base.path().to_path_buf();
        let site = HookSite { project: workdir.clone(), workdir, ..site() };
        let occasion = Occasion::new(HookEvent::PreToolUse, "Bash", json!({}));
        let cancel = CancellationToken::new();
        // Each call chooses its handlers before any of them has run.
        let chosen = [set.choose(&occasion), set.choose(&occasion), set.choose(&occasion)];
        let runs = chosen.iter().map(|chosen| run_handlers(chosen, &occasion, &site, &cancel));
        future::join_all(runs).await;
        let written = std::fs::read_to_string(base.path().join("runs")).unwrap();
        assert_eq!(written, "ran\n");
        assert!(set.choose(&occasion).is_empty());
    }

    #[test]
    fn a_call_does_not_wait_for_a_run_in_the_background() {
        let set = set(&json!({ "PreToolUse": [{ "hooks": [
            { "command": "x", "once": true, "async": true },
        ] }] }));
        let occasion = Occasion::new(HookEvent::PreToolUse, "Bash", json!({}));
        let run = set.0[0].only_run.try_acquire().unwrap();
        assert!(set.choose(&occasion).is_empty());
        drop(run);
        assert_eq!(set.choose(&occasion).len(), 1);
    }
}
