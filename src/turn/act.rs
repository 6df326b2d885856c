//! One batch of calls: prepare → judge → look → maybe ask → run → settle. Calls that only read
//! run side by side; each of the others runs alone and in its turn, so that a test sees the edit
//! that stands before it.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;

use super::ledger::{Ledger, ToolResult};
use super::{Step, Turn};
use crate::client::{Answer, Question};
use crate::effect::{Content, Effect, visible_line};
use crate::ids::CallId;
use crate::message::{Arguments, Message, Stop, ToolCall};
use crate::permission::{self, Asked, Gate, Pass};
use crate::tools::{Outcome, Prepared, ToolCtx};
use crate::update::{CallUpdate, Status, Update};

/// How long a tool with side effects may take to end them after a cancel.
const GRACE: Duration = Duration::from_secs(2);
/// How many calls run side by side.
const ABREAST: usize = 8;
/// What a call is told that never ran because the user cancelled.
const CANCELLED: &str = "Cancelled by the user before it was executed.";

/// A call that has been understood.
struct Ready {
    id: CallId,
    name: String,
    raw_input: Value,
    prepared: Box<dyn Prepared>,
    ctx: ToolCtx,
    has_card: bool,
}

/// A call in the making.
type Running<'a> = FuturesUnordered<BoxFuture<'a, (CallId, bool, Outcome)>>;

impl Turn {
    pub(super) async fn act(&mut self, calls: Vec<ToolCall>) -> Step {
        let mut ledger = Ledger::open(calls.clone());
        let mut queue = self.prepare(calls, &mut ledger).await;
        while let Some(group) = next_group(&mut queue) {
            // A diff is as large as its file, and an answer may hold many calls: a client that does
            // not read gets no more of them.
            let client = Arc::clone(self.equipment.client());
            if self.cancel.run_until_cancelled(client.room()).await.is_none() {
                break;
            }
            self.run_group(group, &mut ledger).await;
        }
        self.settle_rest(&ledger, "cancelled");
        for result in ledger.close(CANCELLED) {
            self.history.push(Message::Tool(result));
        }
        if self.cancel.is_cancelled() { Step::End(Ok(Stop::Cancelled)) } else { Step::Sample }
    }

    /// Gives calls that will not run their result.
    pub(super) fn abandon(&mut self, calls: Vec<ToolCall>, why: &str) {
        let ledger = Ledger::open(calls);
        self.settle_rest(&ledger, why);
        for result in ledger.close(why) {
            self.history.push(Message::Tool(result));
        }
    }

    fn settle_rest(&self, ledger: &Ledger, why: &str) {
        for call in ledger.unsettled() {
            if self.has_card(&call.name) {
                self.finish_card(&call.id, &Outcome::failed(why));
            }
        }
    }

    fn has_card(&self, name: &str) -> bool {
        self.equipment.tools.find(name).map_or(true, |it| it.first_view().is_some())
    }

    /// Understands the calls. Those that make no sense have their result at once; the turn goes
    /// on and the model can do better (R-TOOL-14).
    async fn prepare(&self, calls: Vec<ToolCall>, ledger: &mut Ledger) -> VecDeque<Ready> {
        let mut queue = VecDeque::new();
        for call in calls {
            let id = call.id.clone();
            let has_card = self.has_card(&call.name);
            match self.ready(call).await {
                Ok(ready) => queue.push_back(ready),
                Err(reason) => self.settle(ledger, &id, has_card, &Outcome::failed(reason)),
            }
        }
        queue
    }

    async fn ready(&self, call: ToolCall) -> Result<Ready, String> {
        let tool = self.equipment.tools.find(&call.name)?;
        let raw_input = match call.arguments {
            Arguments::Object(value) => value,
            Arguments::Unusable { reason, .. } => return Err(reason),
        };
        let has_card = tool.first_view().is_some();
        let name = tool.name().to_owned();
        let prepared = Arc::clone(&tool).prepare(raw_input.clone())?;
        let prepared = self.locate(prepared).await?;
        let ctx = ToolCtx {
            bench: Arc::clone(&self.equipment.bench),
            call: call.id.clone(),
            cancel: self.cancel.child_token(),
        };
        if has_card {
            let mut update = CallUpdate::new(call.id.clone(), Status::Pending);
            update.view = Some(prepared.view(self.equipment.bench.files.roots()));
            update.raw_input = Some(raw_input.clone());
            self.equipment.client().update(Update::CallUpdate(Box::new(update)));
        }
        Ok(Ready { id: call.id, name, raw_input, prepared, ctx, has_card })
    }

    /// Looks up where a call's paths lie, off the runtime's thread. A disk that does not answer
    /// does not hold up a cancel.
    async fn locate(&self, mut prepared: Box<dyn Prepared>) -> Result<Box<dyn Prepared>, String> {
        let bench = Arc::clone(&self.equipment.bench);
        let located = tokio::task::spawn_blocking(move || {
            prepared.locate(&bench);
            prepared
        });
        match self.cancel.run_until_cancelled(located).await {
            Some(located) => located.map_err(|error| error.to_string()),
            None => Err(CANCELLED.to_owned()),
        }
    }

    async fn run_group(&mut self, group: Vec<Ready>, ledger: &mut Ledger) {
        let mut running = Running::new();
        let mut questions = Vec::new();
        for ready in group {
            self.admit(ready, &mut running, &mut questions, ledger).await;
        }
        let client = Arc::clone(self.equipment.client());
        // One question at a time, while what needs none goes on.
        for (ready, asked, question) in questions {
            let asked = match asked.again(self.equipment.mode.get(), &self.grants) {
                Gate::Ask(asked) => asked,
                Gate::Open(pass) => {
                    running.push(self.start(ready, pass));
                    continue;
                }
                Gate::Closed(reason) => {
                    self.settle(ledger, &ready.id, ready.has_card, &Outcome::failed(reason));
                    continue;
                }
            };
            let asking = async {
                let answer = self.cancel.run_until_cancelled(client.ask(question)).await;
                answer.unwrap_or(Answer::Cancelled)
            };
            tokio::pin!(asking);
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut asking => break answer,
                    Some((id, has_card, outcome)) = running.next(), if !running.is_empty() => {
                        self.settle(ledger, &id, has_card, &outcome);
                    }
                }
            };
            // A yes that comes after the cancel must not run anything (R-CANCEL-5).
            let answer = if self.cancel.is_cancelled() { Answer::Cancelled } else { answer };
            match asked.settle(answer, self.equipment.mode.get(), &mut self.grants) {
                Ok(pass) => running.push(self.start(ready, pass)),
                Err(_) if self.cancel.is_cancelled() => {}
                Err(reason) => {
                    self.settle(ledger, &ready.id, ready.has_card, &Outcome::failed(reason));
                }
            }
        }
        while let Some((id, has_card, outcome)) = running.next().await {
            self.settle(ledger, &id, has_card, &outcome);
        }
    }

    /// Judges a call and starts it, or gets its question ready, or settles it.
    async fn admit(
        &self,
        ready: Ready,
        running: &mut Running<'static>,
        questions: &mut Vec<(Ready, Asked, Question)>,
        ledger: &mut Ledger,
    ) {
        // Once more: a call before this one may have changed what its paths mean.
        let Ready { id, name, raw_input, prepared, ctx, has_card } = ready;
        let prepared = match self.locate(prepared).await {
            Ok(prepared) => prepared,
            Err(reason) => return self.settle(ledger, &id, has_card, &Outcome::failed(reason)),
        };
        let mut ready = Ready { id, name, raw_input, prepared, ctx, has_card };
        let effects = ready.prepared.effects();
        let mode = self.equipment.mode.get();
        let gate = permission::judge(mode, &self.grants, effects);
        if let Gate::Closed(reason) = gate {
            self.settle(ledger, &ready.id, ready.has_card, &Outcome::failed(reason));
            return;
        }
        let looking = ready.prepared.look(&ready.ctx);
        let content = match self.cancel.run_until_cancelled(looking).await {
            None => return,
            Some(Ok(content)) => content,
            Some(Err(reason)) => {
                self.settle(ledger, &ready.id, ready.has_card, &Outcome::failed(reason));
                return;
            }
        };
        match gate {
            Gate::Open(pass) => running.push(self.start(ready, pass)),
            Gate::Ask(asked) => {
                let question = question(&ready, &asked, content);
                questions.push((ready, asked, question));
            }
            Gate::Closed(_) => {}
        }
    }

    /// Runs a call to its outcome, whatever happens to it.
    fn start(&self, ready: Ready, pass: Pass) -> BoxFuture<'static, (CallId, bool, Outcome)> {
        let Ready { id, prepared, ctx, has_card, .. } = ready;
        let client = Arc::clone(self.equipment.client());
        let reads_only = pass.effects().iter().all(is_harmless);
        Box::pin(async move {
            if has_card {
                let update = CallUpdate::new(id.clone(), Status::InProgress);
                client.update(Update::CallUpdate(Box::new(update)));
            }
            let cancel = ctx.cancel.clone();
            // A tool that panics is our bug and not the end of the turn.
            let running = AssertUnwindSafe(prepared.run(pass, &ctx)).catch_unwind();
            let outcome = if reads_only {
                cancel.run_until_cancelled(running).await
            } else {
                // What has side effects is told and waited for; dropping it is the last resort.
                let out_of_time = async {
                    cancel.cancelled().await;
                    tokio::time::sleep(GRACE).await;
                };
                tokio::select! {
                    biased;
                    outcome = running => Some(outcome),
                    () = out_of_time => None,
                }
            };
            let outcome = match outcome {
                Some(Ok(outcome)) => outcome,
                Some(Err(_)) => Outcome::failed("The tool crashed. This is a bug in turnwright."),
                None => Outcome::failed("cancelled by the user"),
            };
            (id, has_card, outcome)
        })
    }

    fn settle(&self, ledger: &mut Ledger, id: &CallId, has_card: bool, outcome: &Outcome) {
        let result = ToolResult {
            ok: outcome.ok,
            text: outcome.text.clone(),
            images: outcome.images.clone(),
        };
        if ledger.settle(id, result) && has_card {
            self.finish_card(id, outcome);
        }
    }

    /// The one final status of a card, with everything: some clients show only the last update.
    fn finish_card(&self, id: &CallId, outcome: &Outcome) {
        let status = if outcome.ok { Status::Completed } else { Status::Failed };
        let mut update = CallUpdate::new(id.clone(), status);
        update.view.clone_from(&outcome.view);
        update.content = Some(outcome.content.clone());
        update.raw_output = Some(outcome.raw.clone());
        self.equipment.client().update(Update::CallUpdate(Box::new(update)));
    }
}

/// The next calls that may run together: one, or all the readers that follow each other.
fn next_group(queue: &mut VecDeque<Ready>) -> Option<Vec<Ready>> {
    let reads = |it: &Ready| it.prepared.reads();
    let mut group = vec![queue.pop_front()?];
    if reads(&group[0]) {
        while group.len() < ABREAST && queue.front().is_some_and(reads) {
            group.extend(queue.pop_front());
        }
    }
    Some(group)
}

fn is_harmless(effect: &Effect) -> bool {
    match effect {
        Effect::Read(_) | Effect::Session => true,
        Effect::Write(_)
        | Effect::Delete(_)
        | Effect::Exec { .. }
        | Effect::Input { .. }
        | Effect::Fetch { .. } => false,
    }
}

fn question(ready: &Ready, asked: &Asked, mut content: Vec<Content>) -> Question {
    let view = ready.prepared.view(ready.ctx.bench.files.roots());
    if asked.leaves_the_roots() {
        let places: Vec<_> =
            view.locations.iter().map(|it| visible_line(&it.path.to_string_lossy())).collect();
        content.push(Content::Text(format!("Outside the project: {}", places.join(", "))));
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
