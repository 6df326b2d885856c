//! Finds out what a model at a server can do, by asking it a few small things, one after the
//! other. What is seen is remembered; what goes wrong on the way teaches nothing.

mod ask;
mod judge;
mod plan;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use super::quirks::{Dialect, Leaked, Patch};
use super::{Kind, Model, Request};
use turnwright_types::message::Effort;
use ask::{Heard, Trouble, Until, ask};
use judge::{Leak, Thoughts};

/// How long all questions together may take.
const TOTAL: Duration = Duration::from_secs(300);
/// How long the list of models may take.
const LISTING: Duration = Duration::from_secs(15);

/// What came of one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is as it should be.
    Ok,
    /// It is not.
    No,
    /// Nobody can tell.
    Unknown,
    /// It was not asked.
    Skipped,
}

impl State {
    /// A stable word for programs.
    pub fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::No => "no",
            State::Unknown => "unknown",
            State::Skipped => "skipped",
        }
    }
}

/// One question and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// A stable word for what was asked.
    pub name: &'static str,
    /// The outcome.
    pub state: State,
    /// The outcome for people.
    pub text: String,
    /// What to do about it, where there is something to do.
    pub advice: Option<String>,
    /// What sort of error it was, if it was one.
    pub kind: Option<Kind>,
    /// The outcome in numbers.
    pub facts: Map<String, Value>,
}

impl Check {
    fn new(name: &'static str, state: State, text: impl Into<String>) -> Check {
        Check { name, state, text: text.into(), advice: None, kind: None, facts: Map::new() }
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

/// The names of all questions, in their order.
pub const NAMES: [&str; 11] = [
    "answer",
    "streaming",
    "usage",
    "tools",
    "result",
    "parallel",
    "images",
    "reasoning",
    "effort",
    "models",
    "window",
];

/// What may be asked.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Whether the user has not said that the model takes no pictures.
    pub images: bool,
    /// Whether the server may be asked which models it has.
    pub list: bool,
}

/// Whether the agent can work with the model: it answers, it calls, and it goes on with what the
/// call gave.
pub fn works(checks: &[Check]) -> bool {
    let state = |name| checks.iter().find(|it| it.name == name).map(|it| it.state);
    let is_ok = |name| state(name) == Some(State::Ok);
    is_ok("answer") && is_ok("tools") && state("result") != Some(State::No)
}

/// Asks everything, and tells each outcome as soon as it is there: one for each of [`NAMES`], in
/// their order.
pub async fn run(model: &dyn Model, allowed: Allowed, tell: &mut dyn FnMut(Check)) {
    let end = Instant::now() + TOTAL;
    let mut probe = Probe { model, allowed, tell, end, thoughts: Thoughts::default() };
    if probe.answer().await {
        probe.call().await;
        probe.images().await;
        probe.think().await;
        probe.list().await;
    }
}

struct Probe<'a> {
    model: &'a dyn Model,
    allowed: Allowed,
    tell: &'a mut dyn FnMut(Check),
    /// When it is over.
    end: Instant,
    /// What was seen of the reasoning so far.
    thoughts: Thoughts,
}

impl Probe<'_> {
    async fn ask(&mut self, request: &Request) -> Result<Heard, Trouble> {
        let heard = ask(self.model, request, Until::End, self.end).await?;
        self.thoughts.note(&heard);
        Ok(heard)
    }

    fn tell(&mut self, check: Check) {
        (self.tell)(check);
    }

    fn skip(&mut self, names: &[&'static str], why: &str) {
        for name in names {
            self.tell(Check::new(name, State::Skipped, why));
        }
    }

    /// Whether it answers at all; returns whether there is more to ask.
    async fn answer(&mut self) -> bool {
        let heard = self.ask(&plan::count()).await;
        let mut check = judge::answer(&heard);
        if check.kind == Some(Kind::ModelNotFound) && !check.text.contains("Did you mean") {
            check.advice = self.served().await.or(check.advice);
        }
        let is_ok = check.state == State::Ok;
        self.tell(check);
        match heard {
            Ok(heard) if is_ok => {
                self.tell(judge::streaming(&heard));
                self.tell(judge::usage(&heard));
                true
            }
            _ => {
                self.skip(&NAMES[1..], "not asked");
                false
            }
        }
    }

    /// The names that there are, for somebody who has used one that there is not.
    async fn served(&self) -> Option<String> {
        if !self.allowed.list {
            return None;
        }
        let names = timeout(LISTING, self.model.list()).await.ok()?.ok()?;
        let first: Vec<_> = names.iter().take(5).map(String::as_str).collect();
        let more = if names.len() > first.len() { ", …" } else { "" };
        (!first.is_empty()).then(|| format!("It serves {}{more}", first.join(", ")))
    }

    async fn call(&mut self) {
        let request = plan::weather();
        let mut heard = self.ask(&request).await;
        let mut leak = heard.as_ref().map_or(Leak::None, |it| judge::leak(it, &request.tools));
        if leak == Leak::Readable && self.model.is_nudged() {
            // The next answer shows whether it helps.
            self.model.teach(Patch { leaked: Some(Leaked::Parse), ..Patch::NONE });
            heard = self.ask(&request).await;
        } else if leak == Leak::Readable {
            leak = Leak::Unreadable;
        }
        let check = judge::tools(&heard, leak);
        let is_ok = check.state == State::Ok;
        self.tell(check);
        match heard {
            Ok(heard) if is_ok => {
                let result = self.ask(&plan::with_results(request, &heard)).await;
                self.tell(judge::result(&result));
                self.parallel().await;
            }
            _ => self.skip(&["result", "parallel"], "not asked, as it does not call"),
        }
    }

    async fn parallel(&mut self) {
        let heard = self.ask(&plan::two_cities()).await;
        let check = judge::parallel(&heard);
        let seen = match check.state {
            State::Ok => Some(true),
            State::No if check.kind.is_none() => Some(false),
            _ => None,
        };
        if seen.is_some() {
            self.model.teach(Patch { parallel: seen, ..Patch::NONE });
        }
        self.tell(check);
    }

    async fn images(&mut self) {
        if !self.allowed.images {
            return self.skip(&["images"], "the settings say that it takes none");
        }
        // As if it was known to take them: else the picture would not go out.
        let bold = self.model.trial(Patch { images: Some(true), ..Patch::NONE });
        let Some(bold) = bold else { return self.skip(&["images"], "cannot be asked") };
        let heard = ask(bold.as_ref(), &plan::picture(), Until::End, self.end).await;
        let check = judge::images(&heard, bold.senses().images);
        let seen = match check.state {
            State::Ok => Some(true),
            State::No => Some(false),
            State::Unknown | State::Skipped => None,
        };
        if seen.is_some() {
            self.model.teach(Patch { images: seen, ..Patch::NONE });
        }
        self.tell(check);
    }

    async fn think(&mut self) {
        if !self.model.has_effort() {
            self.tell(judge::reasoning(&self.thoughts));
            return self.skip(&["effort"], "no way to choose it is known for this model");
        }
        let low = self.takes(Effort::Low).await;
        let none = self.takes(Effort::None).await;
        if low == Some(false) {
            self.model.teach(Patch { effort: Some(Dialect::None), ..Patch::NONE });
        }
        self.tell(judge::reasoning(&self.thoughts));
        self.tell(judge::effort(low, none));
    }

    /// Whether an effort is accepted; nothing if that cannot be told.
    async fn takes(&mut self, effort: Effort) -> Option<bool> {
        // One that is refused would have it learn that there is no effort to choose at all.
        let careless = self.model.trial(Patch::NONE)?;
        let request = Request { effort, ..plan::count() };
        match ask(careless.as_ref(), &request, Until::Beginning, self.end).await {
            Ok(heard) => {
                self.thoughts.note(&heard);
                Some(careless.has_effort())
            }
            Err(trouble) if trouble.is_refusal() => Some(false),
            Err(_) => None,
        }
    }

    async fn list(&mut self) {
        if self.allowed.list {
            let names = match timeout(LISTING, self.model.list()).await {
                Ok(Ok(names)) => Ok(names),
                Ok(Err(error)) => Err(Trouble::Model(error)),
                Err(_) => Err(Trouble::TimeUp(LISTING)),
            };
            self.tell(judge::models(&names, self.model.name()));
        } else {
            self.skip(&["models"], "the settings say that it must not be asked");
        }
        // The list may have told it.
        self.tell(judge::window(self.model.window()));
    }
}
