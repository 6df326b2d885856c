//! Probes what a model at a server can do, by asking a few small questions one after the other.
//! Observations are recorded in the model's profile; nothing is concluded from errors.

mod evaluate;
mod questions;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use super::quirks::{EffortDialect, LeakedCallHandling, QuirkPatch};
use super::{ErrorKind, LlmError, Model, Request};
use evaluate::{CallLeak, ReasoningSeen};
use questions::{ObservedReply, ReadUntil, ask};
use turnwright_types::message::ReasoningEffort;

/// The timeout for all questions together.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(300);
const LIST_TIMEOUT: Duration = Duration::from_secs(15);

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// The feature works.
    Ok,
    /// The feature does not work.
    No,
    /// The question gave no clear result.
    Unknown,
    /// The question was not asked.
    Skipped,
}

impl CheckState {
    /// A stable identifier for programs.
    pub fn name(self) -> &'static str {
        match self {
            CheckState::Ok => "ok",
            CheckState::No => "no",
            CheckState::Unknown => "unknown",
            CheckState::Skipped => "skipped",
        }
    }
}

/// A check and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// A stable identifier of the check.
    pub name: &'static str,
    pub state: CheckState,
    /// The outcome, for people.
    pub text: String,
    /// Advice on how to fix it.
    pub advice: Option<String>,
    /// The kind of error, if there was one.
    pub kind: Option<ErrorKind>,
    /// The outcome as data.
    pub facts: Map<String, Value>,
}

impl Check {
    fn new(name: &'static str, state: CheckState, text: impl Into<String>) -> Check {
        Check { name, state, text: text.into(), advice: None, kind: None, facts: Map::new() }
    }

    fn ok(name: &'static str, text: impl Into<String>) -> Check {
        Check::new(name, CheckState::Ok, text)
    }

    fn no(name: &'static str, text: impl Into<String>) -> Check {
        Check::new(name, CheckState::No, text)
    }

    fn unknown(name: &'static str, text: impl Into<String>) -> Check {
        Check::new(name, CheckState::Unknown, text)
    }

    fn advise(mut self, advice: impl Into<String>) -> Check {
        self.advice = Some(advice.into());
        self
    }

    fn fact(mut self, name: &str, value: impl Into<Value>) -> Check {
        self.facts.insert(name.to_owned(), value.into());
        self
    }
}

/// The names of all checks, in their order.
const CHECK_NAMES: &str =
    "answer streaming usage tools result parallel images reasoning effort models window";

/// The questions that a probe may ask.
#[derive(Clone, Copy, Debug)]
pub struct ProbeOptions {
    /// False if the user has configured that the model accepts no images.
    pub images: bool,
    /// True if the server's models may be listed.
    pub list_models: bool,
}

/// True if the agent can work with the model: it answers, it calls tools, and it continues with
/// their results.
pub fn is_usable(checks: &[Check]) -> bool {
    state_of(checks, "answer") == Some(CheckState::Ok)
        && state_of(checks, "tools") == Some(CheckState::Ok)
        && state_of(checks, "result") != Some(CheckState::No)
}

fn state_of(checks: &[Check], name: &str) -> Option<CheckState> {
    checks.iter().find(|check| check.name == name).map(|check| check.state)
}

/// Runs all checks and reports each outcome as soon as it is known: one for each of
/// [`CHECK_NAMES`], in their order.
pub async fn run(model: &dyn Model, options: ProbeOptions, on_check: &mut dyn FnMut(Check)) {
    let end = Instant::now() + TOTAL_TIMEOUT;
    let mut probe = Probe { model, options, on_check, end, reasoning: ReasoningSeen::default() };
    if probe.check_answer().await {
        probe.check_tools().await;
        probe.check_images().await;
        probe.check_reasoning().await;
        probe.check_listing().await;
    }
}

struct Probe<'a> {
    model: &'a dyn Model,
    options: ProbeOptions,
    on_check: &'a mut dyn FnMut(Check),
    /// The deadline for all questions.
    end: Instant,
    /// The observations of the reasoning so far.
    reasoning: ReasoningSeen,
}

impl Probe<'_> {
    async fn ask(&mut self, request: &Request) -> Result<ObservedReply, LlmError> {
        let observed = ask(self.model, request, ReadUntil::Complete, self.end).await?;
        self.reasoning.record(&observed);
        Ok(observed)
    }

    fn report(&mut self, check: Check) {
        (self.on_check)(check);
    }

    fn skip(&mut self, names: &[&'static str], why: &str) {
        for name in names {
            self.report(Check::new(name, CheckState::Skipped, why));
        }
    }

    /// Checks that the model answers at all; returns true if there is more to ask.
    async fn check_answer(&mut self) -> bool {
        let observed = self.ask(&questions::count_to_ten()).await;
        let mut check = evaluate::answer(&observed);
        if check.kind == Some(ErrorKind::ModelNotFound) && !check.text.contains("Did you mean") {
            check.advice = self.served_models().await.or(check.advice);
        }
        let is_ok = check.state == CheckState::Ok;
        self.report(check);
        match observed {
            Ok(observed) if is_ok => {
                self.report(evaluate::streaming(&observed));
                self.report(evaluate::usage(&observed));
                true
            }
            _ => {
                for name in CHECK_NAMES.split(' ').skip(1) {
                    self.skip(&[name], "not asked");
                }
                false
            }
        }
    }

    /// The models that exist, as advice for an unknown model name.
    async fn served_models(&self) -> Option<String> {
        if !self.options.list_models {
            return None;
        }
        let names = timeout(LIST_TIMEOUT, self.model.list_models()).await.ok()?.ok()?;
        let first: Vec<_> = names.iter().take(5).map(String::as_str).collect();
        let more = if names.len() > first.len() { ", …" } else { "" };
        (!first.is_empty()).then(|| format!("Available models: {}{more}", first.join(", ")))
    }

    async fn check_tools(&mut self) {
        let request = questions::weather();
        let mut observed = self.ask(&request).await;
        let mut leak = observed
            .as_ref()
            .map_or(CallLeak::None, |observed| evaluate::leak(observed, &request.tools));
        if leak == CallLeak::Readable && self.model.nudges_leaked_calls() {
            // The next reply shows whether this helps.
            self.model.record_quirks(QuirkPatch::NONE.leaked(LeakedCallHandling::Parse));
            observed = self.ask(&request).await;
        } else if leak == CallLeak::Readable {
            leak = CallLeak::Unreadable;
        }
        let check = evaluate::tools(&observed, leak);
        let is_ok = check.state == CheckState::Ok;
        self.report(check);
        match observed {
            Ok(observed) if is_ok => {
                let result = self.ask(&questions::with_results(request, &observed)).await;
                self.report(evaluate::result(&result));
                let several = self.ask(&questions::two_cities()).await;
                self.report(evaluate::parallel(&several));
            }
            _ => self.skip(&["result", "parallel"], "not asked: it doesn't call tools"),
        }
    }

    async fn check_images(&mut self) {
        if !self.options.images {
            return self.skip(&["images"], "disabled in the settings");
        }
        // Assume that images are accepted, otherwise the image would not be sent.
        let Some(trial) = self.model.with_trial_quirks(QuirkPatch::NONE.images(true)) else {
            return self.skip(&["images"], "can't be tried with this model");
        };
        let observed =
            ask(trial.as_ref(), &questions::picture(), ReadUntil::Complete, self.end).await;
        let check = evaluate::images(&observed, trial.modalities().images);
        let seen = match check.state {
            CheckState::Ok => Some(true),
            CheckState::No => Some(false),
            CheckState::Unknown | CheckState::Skipped => None,
        };
        if seen.is_some() {
            self.model.record_quirks(QuirkPatch { images: seen, ..QuirkPatch::NONE });
        }
        self.report(check);
    }

    async fn check_reasoning(&mut self) {
        if !self.model.supports_effort() {
            self.report(evaluate::reasoning(&self.reasoning));
            return self.skip(&["effort"], "can't be chosen for this model");
        }
        let low = self.accepts_effort(ReasoningEffort::Low).await;
        let none = self.accepts_effort(ReasoningEffort::None).await;
        if low == Some(false) {
            self.model.record_quirks(QuirkPatch::NONE.effort(EffortDialect::None));
        }
        self.report(evaluate::reasoning(&self.reasoning));
        self.report(evaluate::effort(low, none));
    }

    /// True if the model accepts an effort; `None` if that is unknown.
    async fn accepts_effort(&mut self, effort: ReasoningEffort) -> Option<bool> {
        // On a copy, because a rejection would teach the model that no effort can be chosen at all.
        let trial = self.model.with_trial_quirks(QuirkPatch::NONE)?;
        let request = Request { effort, ..questions::count_to_ten() };
        match ask(trial.as_ref(), &request, ReadUntil::FirstDelta, self.end).await {
            Ok(observed) => {
                self.reasoning.record(&observed);
                Some(trial.supports_effort())
            }
            Err(error) if error.kind() == ErrorKind::BadRequest => Some(false),
            Err(_) => None,
        }
    }

    async fn check_listing(&mut self) {
        if self.options.list_models {
            let silent = LlmError::Silent { host: self.model.host(), limit: LIST_TIMEOUT };
            let listing = timeout(LIST_TIMEOUT, self.model.list_models());
            let names = listing.await.unwrap_or(Err(silent));
            self.report(evaluate::models(&names, self.model.name()));
        } else {
            self.skip(&["models"], "listing is disabled in the settings");
        }
        // The list may have reported it, and a local server knows it by now.
        self.model.refresh_window().await;
        self.report(evaluate::window(self.model.window(), self.model.assumed_window()));
    }
}
