//! One batch of calls: prepare → judge → look → maybe ask → run → settle. Calls that cannot
//! disturb each other run side by side, [`Schedule`] says which; the user is asked one question at
//! a time meanwhile; and the results keep the order of the calls.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cards::{brief, last, settled};
use super::ledger::{Ledger, ToolResult};
use super::schedule::{Schedule, State};
use super::witness::Witness;
use super::{Step, Turn};
use turnwright_workspace::checkpoint::Changes;
use turnwright_types::client::{Answer, Question};
use turnwright_types::effect::{CallView, Content, Effect};
use turnwright_types::ids::CallId;
use turnwright_types::message::{Arguments, Message, Stop, ToolCall};
use turnwright_policy::permission::{self, Asked, AuditEvent, Confinement, Gate, Law, Mode, Pass};
use turnwright_types::redact;
use turnwright_store::{Log, Settled};
use crate::tools::{Bench, Outcome, Prepared, ToolCtx};
use turnwright_types::update::{CallUpdate, Status, Update};

/// How long a tool with side effects may take to end them after a cancel.
const GRACE: Duration = Duration::from_secs(2);
/// What a call is told that never ran because the user cancelled.
pub(super) const CANCELLED: &str = "Cancelled by the user before it was executed.";
/// What a call is told whose paths lead elsewhere than when the user was asked.
const MOVED: &str = "What this call is about was moved or replaced while permission was asked, so \
                     nothing was done. Look again and repeat the call if it is still right.";
/// What a call is told whose tool has a bug.
const CRASHED: &str = "The tool crashed. This is a bug in turnwright.";

/// A call that has been understood.
pub(super) struct Ready {
    pub(super) id: CallId,
    pub(super) name: String,
    pub(super) raw_input: Value,
    pub(super) prepared: Box<dyn Prepared>,
    pub(super) ctx: ToolCtx,
    /// How it looks before it runs, if there is a card.
    pub(super) view: Option<CallView>,
    pub(super) log: Log,
    /// Time has passed since it was looked at.
    pub(super) was_asked: bool,
}

/// What a call has come to; the number is its place in the answer.
enum Event {
    /// Its paths have been looked up once more.
    Located(usize, Result<Ready, String>),
    /// What it would do is known.
    Looked(usize, Ready, Result<Vec<Content>, String>),
    /// The user has answered.
    Answered(usize, Ready, Asked, Answer),
    /// It has run, and that is written down; and for how long.
    Ended(usize, Outcome, Duration),
    /// Rules are kept for the project, or why they are not.
    Kept(Result<(), String>),
}

/// The calls of one answer on their way.
struct Batch {
    ledger: Ledger,
    schedule: Schedule,
    /// Those that have not begun.
    waiting: BTreeMap<usize, Ready>,
    /// Those that the user will be asked about, with what is to be shown.
    questions: BTreeMap<usize, (Ready, Asked, Vec<Content>)>,
    is_asking: bool,
    /// The last words about calls that did not run, on their way into the store first.
    ends: Vec<CallUpdate>,
    events: FuturesUnordered<BoxFuture<'static, Event>>,
}

impl Turn {
    pub(super) async fn act(&mut self, calls: Vec<ToolCall>) -> Step {
        let mut batch = self.prepare(calls).await;
        let client = Arc::clone(self.equipment.client());
        let cancel = self.cancel.clone();
        loop {
            self.end_cards(&mut batch).await;
            let next = batch.schedule.next().filter(|_| !cancel.is_cancelled());
            // A diff is as large as its file, and an answer may hold many calls: a client that does
            // not read gets no more of them.
            let room = async { cancel.run_until_cancelled(client.room()).await };
            tokio::select! {
                biased;
                Some(event) = batch.events.next() => self.on(event, &mut batch),
                Some(()) = room, if next.is_some() => begin(next, &mut batch),
                else => break,
            }
            self.ask_next(&mut batch);
        }
        self.settle_rest(&batch.ledger, "cancelled").await;
        let mut results: Vec<_> = batch.ledger.close(CANCELLED).collect();
        if let Some(last) = results.last_mut()
            && let Some(news) = self.equipment.bench.news()
        {
            last.text.push_str(if last.text.ends_with('\n') { "" } else { "\n" });
            last.text.push_str(&news);
            self.equipment.log().amend(&last.call, last.text.clone());
        }
        for mut result in results {
            // It goes to a server, which need not be the one that the key is for.
            redact::clean(&mut result.text);
            self.history.push(Message::Tool(result));
        }
        if self.cancel.is_cancelled() { Step::End(Ok(Stop::Cancelled)) } else { Step::Sample }
    }

    /// Gives calls that will not run their result.
    pub(super) async fn abandon(&mut self, calls: Vec<ToolCall>, why: &str) {
        let ledger = Ledger::open(calls);
        self.settle_rest(&ledger, why).await;
        for result in ledger.close(why) {
            self.history.push(Message::Tool(result));
        }
    }

    async fn settle_rest(&mut self, ledger: &Ledger, why: &str) {
        if ledger.unsettled().next().is_none() {
            return;
        }
        for call in ledger.unsettled() {
            let outcome = Outcome::failed(why);
            let settled = self.settled(call, &outcome, None);
            drop(self.equipment.log().settle(&call.id, settled));
        }
        self.equipment.log().flush().written().await;
        for call in ledger.unsettled() {
            self.cards.fail(&call.id, why);
        }
    }

    /// Ends the cards of calls that did not run, once that is written down.
    async fn end_cards(&mut self, batch: &mut Batch) {
        if !batch.ends.is_empty() {
            self.equipment.log().flush().written().await;
            batch.ends.drain(..).for_each(|it| self.cards.end(it));
        }
    }

    /// Understands the calls. Those that make no sense have their result at once; the turn goes
    /// on and the model can do better (R-TOOL-14).
    async fn prepare(&mut self, calls: Vec<ToolCall>) -> Batch {
        let mut batch = Batch {
            ledger: Ledger::open(calls.clone()),
            schedule: Schedule::default(),
            waiting: BTreeMap::new(),
            questions: BTreeMap::new(),
            is_asking: false,
            ends: Vec::new(),
            events: FuturesUnordered::new(),
        };
        for (number, call) in calls.into_iter().enumerate() {
            match self.ready(call).await {
                Ok((ready, effects)) => {
                    batch.schedule.push(effects);
                    batch.waiting.insert(number, ready);
                }
                Err(reason) => {
                    batch.schedule.push(Vec::new());
                    self.fail(&mut batch, number, reason);
                }
            }
        }
        batch
    }

    async fn ready(&mut self, call: ToolCall) -> Result<(Ready, Vec<Effect>), String> {
        let tool = self.equipment.tools.call(&call.name)?;
        let arguments = match call.arguments {
            Arguments::Object(value) => value,
            Arguments::Unusable { reason, .. } => return Err(reason),
        };
        let bench = Arc::clone(&self.equipment.bench);
        let view = tool.first_view();
        let name = tool.name().to_owned();
        let raw_input = brief(&arguments);
        let prepared = guarded(|| tool.prepare(arguments))??;
        let ctx = ToolCtx {
            bench: Arc::clone(&bench),
            call: call.id.clone(),
            cancel: self.cancel.child_token(),
        };
        let log = self.equipment.log().clone();
        let ready =
            Ready { id: call.id, name, raw_input, prepared, ctx, view, log, was_asked: false };
        let mut ready = located(ready).await?;
        let (view, effects) =
            guarded(|| (ready.prepared.view(bench.files.roots()), ready.prepared.effects()))?;
        if ready.view.is_some() {
            self.cards.looks(&ready.id, &view);
            ready.view = Some(view.clone());
            let mut update = CallUpdate::new(ready.id.clone(), Status::Pending);
            update.view = Some(view);
            update.raw_input = Some(ready.raw_input.clone());
            bench.client.update(Update::CallUpdate(Box::new(update)));
        }
        Ok((ready, effects))
    }

    fn on(&mut self, event: Event, batch: &mut Batch) {
        match event {
            Event::Ended(number, outcome, took) => {
                self.settle(batch, number, &outcome, Some(took));
            }
            Event::Kept(Ok(())) => {}
            Event::Kept(Err(why)) => self.equipment.client().update(Update::Notice(why)),
            // What has not run by now never does, a yes that comes late included (R-CANCEL-5).
            _ if self.cancel.is_cancelled() => {}
            Event::Located(number, Ok(ready)) => self.admit(number, ready, batch),
            Event::Located(number, Err(reason)) => self.fail(batch, number, reason),
            Event::Looked(number, ready, Ok(content)) => {
                self.judge(number, ready, content, batch);
            }
            Event::Looked(number, _, Err(reason)) => self.fail(batch, number, reason),
            Event::Answered(number, ready, asked, answer) => {
                batch.is_asking = false;
                self.note_answer(&asked, &answer);
                let (law, mode) = (self.equipment.law.get(), self.equipment.mode.get());
                match asked.settle(answer, &law, mode, &mut self.grants) {
                    Ok(settled) => {
                        let keeping = self.keep(settled.for_project, settled.pass.effects());
                        batch.events.extend(keeping.map(|it| it.map(Event::Kept).boxed()));
                        let ready = Ready { was_asked: true, ..ready };
                        self.start(number, ready, settled.pass, batch);
                    }
                    Err(reason) => self.fail(batch, number, reason),
                }
            }
        }
    }

    /// Lets a call look, unless it must not run, or has to wait after all.
    fn admit(&mut self, number: usize, ready: Ready, batch: &mut Batch) {
        let effects = match guarded(|| ready.prepared.effects()) {
            Ok(effects) => effects,
            Err(reason) => return self.fail(batch, number, reason),
        };
        if !batch.schedule.admit(number, &effects) {
            batch.waiting.insert(number, ready);
            return;
        }
        match self.judged(&effects) {
            Gate::Closed(reason) => self.fail(batch, number, reason),
            Gate::Open(_) | Gate::Ask(_) => batch.events.push(Box::pin(look(number, ready))),
        }
    }

    /// Starts a call that has looked, or gets its question ready.
    fn judge(&mut self, number: usize, ready: Ready, content: Vec<Content>, batch: &mut Batch) {
        let effects = match guarded(|| ready.prepared.effects()) {
            Ok(effects) => effects,
            Err(reason) => return self.fail(batch, number, reason),
        };
        match self.judged(&effects) {
            Gate::Open(pass) => self.start(number, ready, pass, batch),
            Gate::Closed(reason) => self.fail(batch, number, reason),
            Gate::Ask(asked) => {
                batch.schedule.set(number, State::Queued);
                batch.questions.insert(number, (ready, asked, content));
            }
        }
    }

    fn judged(&self, effects: &[Effect]) -> Gate {
        let (law, mode) = (self.equipment.law.get(), self.equipment.mode.get());
        let gate = permission::judge(&law, mode, &self.grants, effects.to_vec());
        if let Gate::Closed(_) = gate {
            self.note(AuditEvent::Denied, effects, None);
        }
        gate
    }

    fn start(&self, number: usize, ready: Ready, pass: Pass, batch: &mut Batch) {
        if pass.effects().iter().any(|it| matches!(it, Effect::Exec(_))) {
            let is_shut = matches!(pass.confinement(), Confinement::Shut { .. });
            self.note(AuditEvent::Ran, pass.effects(), Some(is_shut));
        } else if pass.effects().iter().any(|it| matches!(it, Effect::Remote(_))) {
            self.note(AuditEvent::Ran, pass.effects(), None);
        }
        start(number, ready, pass, batch);
    }

    /// Asks the next question if none is open. One that an earlier answer has settled is not asked.
    fn ask_next(&mut self, batch: &mut Batch) {
        while !batch.is_asking && !self.cancel.is_cancelled() {
            let Some(first) = batch.questions.first_entry() else { return };
            let number = *first.key();
            if !batch.schedule.may_ask(number) {
                return;
            }
            let (ready, asked, content) = first.remove();
            let (law, mode) = (self.equipment.law.get(), self.equipment.mode.get());
            match asked.again(&law, mode, &self.grants) {
                Gate::Open(pass) => self.start(number, ready, pass, batch),
                Gate::Closed(reason) => self.fail(batch, number, reason),
                Gate::Ask(asked) => match guarded(|| question(&ready, &asked, content, &law, mode))
                {
                    Err(reason) => self.fail(batch, number, reason),
                    Ok(question) => {
                        batch.is_asking = true;
                        batch.schedule.set(number, State::Running);
                        batch.events.push(Box::pin(ask(number, ready, asked, question)));
                    }
                },
            }
        }
    }

    fn fail(&mut self, batch: &mut Batch, number: usize, reason: String) {
        self.settle(batch, number, &Outcome::failed(reason), None);
    }

    /// Gives a call its result. What it has done is written down already, if it has run.
    fn settle(
        &mut self,
        batch: &mut Batch,
        number: usize,
        outcome: &Outcome,
        took: Option<Duration>,
    ) {
        batch.schedule.set(number, State::Settled);
        let result = ToolResult {
            ok: outcome.ok,
            text: outcome.text.clone(),
            images: outcome.images.clone(),
        };
        let Some(call) = batch.ledger.settle(number, result) else { return };
        let settled = self.settled(call, outcome, took);
        let mut update = last(&call.id, &settled);
        update.view.clone_from(&outcome.view);
        update.content = Some(outcome.content.clone());
        if took.is_some() {
            return self.cards.end(update);
        }
        drop(self.equipment.log().settle(&call.id, settled));
        batch.ends.push(update);
    }

    /// What is kept of a call.
    fn settled(&self, call: &ToolCall, outcome: &Outcome, took: Option<Duration>) -> Settled {
        let known = self.equipment.tools.find(&call.name);
        let name = known.as_ref().map_or(call.name.as_str(), |it| it.name());
        settled(outcome, (name, self.cards.view(&call.id)), took)
    }
}

/// Looks up once more what a call touches: one before it may have changed what its paths mean.
fn begin(next: Option<usize>, batch: &mut Batch) {
    let Some((number, ready)) = next.and_then(|it| batch.waiting.remove_entry(&it)) else { return };
    batch.schedule.set(number, State::Looking);
    batch.events.push(located(ready).map(move |it| Event::Located(number, it)).boxed());
}

/// Looks up where a call's paths lie, off the runtime's thread. A disk that does not answer does
/// not hold up a cancel.
pub(super) async fn located(ready: Ready) -> Result<Ready, String> {
    let Ready { id, name, raw_input, mut prepared, ctx, view, log, was_asked } = ready;
    let bench: Arc<Bench> = Arc::clone(&ctx.bench);
    let locating = tokio::task::spawn_blocking(move || {
        prepared.locate(&bench);
        prepared
    });
    match ctx.cancel.run_until_cancelled(locating).await {
        Some(Ok(prepared)) => {
            Ok(Ready { id, name, raw_input, prepared, ctx, view, log, was_asked })
        }
        Some(Err(_)) => Err(CRASHED.to_owned()),
        None => Err(CANCELLED.to_owned()),
    }
}

async fn look(number: usize, mut ready: Ready) -> Event {
    let seen = look_at(&mut ready).await;
    Event::Looked(number, ready, seen)
}

/// Finds out what a call would do.
pub(super) async fn look_at(ready: &mut Ready) -> Result<Vec<Content>, String> {
    let cancel = ready.ctx.cancel.clone();
    let looking = async { ready.prepared.look(&ready.ctx).await };
    match cancel.run_until_cancelled(caught(looking)).await {
        Some(seen) => seen.and_then(|it| it),
        None => Err(CANCELLED.to_owned()),
    }
}

/// What the user is asked: the real change or the command, and what is thought of it.
pub(super) fn question(
    ready: &Ready,
    asked: &Asked,
    mut content: Vec<Content>,
    law: &Law,
    mode: Mode,
) -> Question {
    let mut view = ready.prepared.view(ready.ctx.bench.files.roots());
    view.title = asked.title(law, view.title);
    let description = asked.description(law, mode);
    if !description.is_empty() {
        content.push(Content::Text(description));
    }
    Question {
        call: ready.id.clone(),
        name: ready.name.clone(),
        view,
        content,
        raw_input: ready.raw_input.clone(),
        choices: asked.choices(),
    }
}

async fn ask(number: usize, ready: Ready, asked: Asked, question: Question) -> Event {
    let asking = ready.ctx.bench.client.ask(question);
    let answer = unless_cancelled(&ready.ctx.cancel, asking).await;
    Event::Answered(number, ready, asked, answer.unwrap_or(Answer::Cancelled))
}

fn start(number: usize, ready: Ready, pass: Pass, batch: &mut Batch) {
    batch.schedule.set(number, State::Running);
    batch.events.push(Box::pin(async move {
        let begun = tokio::time::Instant::now();
        let (log, id) = (ready.log.clone(), ready.id.clone());
        let (name, view) = (ready.name.clone(), ready.view.clone());
        let (outcome, changes) = run(ready, pass).await;
        let took = begun.elapsed();
        let settled = settled(&outcome, (&name, view.as_ref()), Some(took));
        let settled = Settled { files: changes.files, bytes: changes.bytes, ..settled };
        // The user sees nothing as done that would be forgotten.
        log.settle(&id, settled).written().await;
        Event::Ended(number, outcome, took)
    }));
}

/// Runs a call to its outcome, whatever happens to it. Returns with it what it has done to files.
pub(super) async fn run(mut ready: Ready, pass: Pass) -> (Outcome, Changes) {
    if ready.was_asked {
        match unmoved(ready, &pass).await {
            Ok(same) => ready = same,
            Err(reason) => return (Outcome::failed(reason), Changes::default()),
        }
    }
    let Ready { id, mut prepared, ctx, view, .. } = ready;
    let reads_only = pass.effects().iter().all(is_harmless);
    let mut witness = Witness::default();
    if !reads_only {
        match Witness::begin(prepared, &pass, &ctx).await {
            Some(begun) => (prepared, witness) = begun,
            None => return (Outcome::failed(CRASHED), Changes::default()),
        }
    }
    if view.is_some() {
        let update = CallUpdate::new(id, Status::InProgress);
        ctx.bench.client.update(Update::CallUpdate(Box::new(update)));
    }
    let running = caught(async { prepared.run(pass, &ctx).await });
    let outcome = if reads_only {
        unless_cancelled(&ctx.cancel, running).await
    } else {
        // What has side effects is told and waited for; dropping it is the last resort.
        tokio::select! {
            biased;
            outcome = running => Some(outcome),
            () = out_of_time(&ctx.cancel) => None,
        }
    };
    let mut outcome = match outcome {
        Some(Ok(outcome)) => outcome,
        Some(Err(reason)) => Outcome::failed(reason),
        None => Outcome::failed("cancelled by the user"),
    };
    let changes = witness.end(&ctx, &mut outcome).await;
    (outcome, changes)
}

/// The answer was about what was shown: a name that leads elsewhere by now is something else.
async fn unmoved(ready: Ready, pass: &Pass) -> Result<Ready, String> {
    let ready = located(ready).await?;
    if guarded(|| ready.prepared.effects())? == pass.effects() {
        return Ok(ready);
    }
    Err(MOVED.to_owned())
}

/// Goes on with something as long as there is no cancel, and not a step further: one question that
/// is withdrawn must not make room for the next.
pub(super) async fn unless_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        done = work => Some(done),
    }
}

async fn out_of_time(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

/// A tool that panics is our bug and not the end of the turn.
async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| CRASHED.to_owned())
}

/// The same for what does not wait.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| CRASHED.to_owned())
}

fn is_harmless(effect: &Effect) -> bool {
    match effect {
        Effect::Read(_) | Effect::Signal { .. } | Effect::Session => true,
        Effect::Write(_)
        | Effect::Delete(_)
        | Effect::Exec(_)
        | Effect::Input { .. }
        | Effect::Fetch { .. }
        | Effect::Remote(_) => false,
    }
}
