//! Runs the tool calls of an answer, and gives each its one result and its final card. Calls that cannot
//! affect each other run concurrently; the results keep the order of the calls. The user can cancel them one by one,
//! while their turn goes on. Calls of the model of an MCP client take the same way without a conversation, and their
//! results go back to the caller.
//!
//! Each call waits for the earlier calls that it could affect, a bounded number runs at a time, and the user is
//! asked about one call at a time. The turns of a session and its helpers share a queue, and so do the calls of
//! MCP clients. The effects of calls decide, never the names of the tools.

mod edit_errors;
pub(super) mod file_change_recorder;
mod hidden_secrets;
mod hooks;
pub(super) mod records;
pub(super) mod runner;
mod stopping;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::tools::{AnyTool, ToolEnv, ToolOutcome, marked_names, patch_call};
use crate::turn::{SharedGrants, Turn, TurnStep};
use turnwright_store::CallOutcome;
use turnwright_types::effect::Effect;
use turnwright_types::ids::CallId;
use turnwright_types::message::{Arguments, Message, StopReason, ToolCall, ToolMessage};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;

use runner::{CANCELLED, CallRunner, PendingCall, refused};

impl Turn {
    pub(super) async fn run_calls(&mut self, calls: Vec<ToolCall>) -> TurnStep {
        let mut results = CallResults::open(calls.clone());
        // By the index in the answer.
        let mut running = FuturesUnordered::new();
        let mut new_paths = Vec::new();
        let mut all_invalid = true;
        // All calls are queued before the first one starts: each waits for earlier ones only.
        for (index, call) in calls.into_iter().enumerate() {
            match self.queue_call(call).await {
                Ok((call, ticket)) => {
                    all_invalid = false;
                    let effects = &call.plan.effects;
                    let paths = self.conversation.told.lock().folders.new_paths(effects);
                    if !paths.is_empty() {
                        new_paths.push((index, paths));
                    }
                    let run = self.runner.clone().run(call, ticket);
                    running.push(run.map(move |outcome| (index, outcome)).boxed());
                }
                // The turn goes on and the model can correct the call (R-TOOL-14).
                Err(refusal) => {
                    self.settle(&mut results, index, refused(refusal, Vec::new())).await;
                }
            }
        }
        let mut cancelled = Vec::new();
        let mut touched = Vec::new();
        while let Some((index, outcome)) = running.next().await {
            let has_run = outcome.has_run();
            if has_run {
                let of_call = new_paths.extract_if(.., |(at, _)| *at == index);
                touched.extend(of_call.flat_map(|(_, paths)| paths));
            }
            if has_run || !self.cancel.is_cancelled() {
                self.settle(&mut results, index, outcome).await;
            } else {
                cancelled.push((index, outcome));
            }
        }
        cancelled.sort_by_key(|(index, _)| *index);
        for (index, outcome) in cancelled {
            self.settle(&mut results, index, outcome).await;
        }
        let asked = self.push_results(results, touched, all_invalid).await;
        let questions = self.conversation.env.take_open_questions();
        if self.cancel.is_cancelled() {
            TurnStep::End(Ok(StopReason::Cancelled))
        } else if questions.is_empty() {
            match asked {
                Some(asked) => self.ask_about_loop(asked).await,
                None => self.step_after_calls(),
            }
        } else {
            self.say(questions.join("\n\n"));
            TurnStep::End(Ok(StopReason::EndTurn))
        }
    }

    /// Adds the results to the history. The last one also has what the model has to know now: news of
    /// commands, and the instructions of the folders that were touched. Returns what the user must be
    /// asked about before the turn goes on.
    async fn push_results(
        &mut self,
        results: CallResults,
        touched: Vec<PathBuf>,
        all_invalid: bool,
    ) -> Option<(CallId, String)> {
        let mut results: Vec<_> = results.close(CANCELLED).collect();
        self.note_work(&results);
        let asked = self.check_loops(&mut results, all_invalid).await;
        let cut = self.cut_long_results(&mut results);
        for result in results.iter().filter(|result| cut.contains(&result.call)) {
            self.conversation.log().replace_result(&result.call, result.text.clone());
        }
        self.add_hints(&mut results);
        let instructions = self.new_folder_instructions(touched).await;
        let lines = self.conversation.env.command_news().into_iter().chain(instructions);
        let news: String = lines.collect();
        if let Some(last) = results.last_mut()
            && !news.is_empty()
        {
            text::add_line(&mut last.text, &news);
            self.conversation.log().replace_result(&last.call, last.text.clone());
        }
        for mut result in results {
            // The result goes to the model's server, which must not see keys of other providers.
            redact::redact_in_place(&mut result.text);
            self.history.push(Message::Tool(result));
        }
        asked
    }

    /// Settles calls that will not run with this reason as their result.
    pub(super) async fn abandon_calls(&mut self, calls: Vec<ToolCall>, why: ToolRefusal) {
        let mut outcome = ToolOutcome::failed(why).settle();
        outcome.is_cancelled = self.cancel.is_cancelled();
        for call in &calls {
            self.store_refused(call, &outcome);
        }
        if !calls.is_empty() {
            self.conversation.log().flush().written().await;
        }
        for call in &calls {
            self.cards.finish(outcome.final_update(&call.id));
        }
        for result in CallResults::open(calls).close(&outcome.text) {
            self.history.push(Message::Tool(result));
        }
    }

    /// Parses a call, resolves its paths, shows them on its card and queues it.
    async fn queue_call(
        &mut self,
        call: ToolCall,
    ) -> Result<(PendingCall, AdmissionTicket), ToolRefusal> {
        let tool = self.conversation.tools.find_for_call(&call.name)?;
        let arguments = match call.arguments {
            Arguments::Object(value) => value,
            Arguments::Unusable { reason, .. } => {
                // Of a call that is cut off, and of tools of servers, no more is said.
                let is_told = tool.server().is_none() && reason.ends_with("Nothing was executed.");
                let spec = tool.spec(&self.conversation.offer()).filter(|_| is_told);
                let names = spec.map(|spec| marked_names(&spec.parameters).join(", "));
                let more = names.map_or(String::new(), |names| format!(" It takes: {names}."));
                return Err((reason + &more).into());
            }
        };
        let (tool, arguments) = match patch_call(tool.name(), &arguments) {
            Some(patch) => (self.conversation.tools.find("apply_patch")?, patch),
            None => (tool, arguments),
        };
        self.cards.set_name(&call.id, tool.name());
        let cancel = self.cancel.child_token();
        self.cards.make_cancellable(&call.id, cancel.clone());
        let mut ctx = self.runner.ctx(call.id, cancel, self.cancel.clone());
        ctx.takes_files = self.conversation.selection.get().model.modalities().files;
        let (mut pending, ticket) = self.runner.enqueue(tool, arguments, ctx).await?;
        let view = pending.card_view();
        if pending.view.is_some() {
            self.cards.set_view(&pending.ctx.call, &view);
            pending.view = Some(view);
            self.cards.show_arguments(&pending.ctx.call, pending.raw_input.clone());
        }
        Ok((pending, ticket))
    }

    /// Gives a call its result, unless it has one already. Its card gets its final status once the
    /// result is stored.
    async fn settle(&mut self, results: &mut CallResults, index: usize, mut outcome: CallOutcome) {
        let Some(call) = results.settle(index, &outcome) else { return };
        if !outcome.has_run() {
            outcome.is_cancelled |= self.cancel.is_cancelled();
            self.store_refused(call, &outcome);
            self.conversation.log().flush().written().await;
        }
        self.cards.finish(outcome.final_update(&call.id));
    }

    /// Stores the outcome of a call that has not run.
    fn store_refused(&self, call: &ToolCall, outcome: &CallOutcome) {
        let known = self.conversation.tools.find(&call.name);
        let name = known.as_ref().map_or(call.name.as_str(), |tool| tool.name());
        let stored = outcome.to_stored(name, self.cards.view(&call.id));
        self.conversation.log().finish_call(&call.id, stored).in_background();
    }
}

/// The calls of one answer and their results. A provider rejects a history in which a call has no
/// result, so [`CallResults::close`], which leaves none without, is the only way to get the results
/// out.
#[must_use = "close the ledger or the next request will be invalid"]
#[derive(Debug)]
struct CallResults {
    entries: Vec<(ToolCall, Option<ToolMessage>)>,
}

impl CallResults {
    fn open(calls: Vec<ToolCall>) -> CallResults {
        CallResults { entries: calls.into_iter().map(|call| (call, None)).collect() }
    }

    /// Sets the result of a call unless it has one: a tool that finishes while it is being
    /// cancelled may report twice. Returns the call if the result was set.
    fn settle(&mut self, number: usize, outcome: &CallOutcome) -> Option<&ToolCall> {
        match self.entries.get_mut(number) {
            Some((call, slot)) if slot.is_none() => {
                *slot = Some(outcome.message(call));
                Some(call)
            }
            _ => None,
        }
    }

    /// Returns the results in the order of the calls; calls without a result get this reason.
    fn close(self, reason: &str) -> impl Iterator<Item = ToolMessage> {
        self.entries.into_iter().map(move |(call, result)| {
            result.unwrap_or_else(|| ToolMessage::new(&call, reason, false))
        })
    }
}

/// The calls without a final card. Clones share them.
// Held only to look something up.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancellableCalls(Arc<Mutex<HashMap<CallId, CancellationToken>>>);

impl CancellableCalls {
    /// Cancels a call. Returns false if there is none with this identifier.
    pub(crate) fn cancel(&self, id: &CallId) -> bool {
        let found = self.0.lock().get(id).cloned();
        // Code that waits for the token may look something up.
        found.inspect(CancellationToken::cancel).is_some()
    }

    fn add(&self, id: &CallId, cancel: CancellationToken) {
        self.0.lock().insert(id.clone(), cancel);
    }

    fn contains(&self, id: &CallId) -> bool {
        self.0.lock().contains_key(id)
    }

    fn remove(&self, id: &CallId) {
        self.0.lock().remove(id);
    }
}

impl CallRunner {
    /// Runs the calls of the model of an MCP client, which belong to no conversation.
    pub(crate) fn for_mcp_client(env: ToolEnv) -> CallRunner {
        let mut runner = CallRunner::new(Arc::new(env), SharedGrants::default(), Arc::default());
        runner.is_for_mcp_client = true;
        runner
    }

    /// Runs a call of an MCP client to its outcome. Failures are outcomes too, with an explanation for the caller.
    pub(crate) async fn run_alone(
        &self,
        id: CallId,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        cancel: CancellationToken,
    ) -> CallOutcome {
        let ctx = self.ctx(id, cancel.child_token(), cancel);
        let mut outcome = match self.enqueue(tool, arguments, ctx).await {
            Ok((call, ticket)) => self.clone().run(call, ticket).await,
            Err(refusal) => ToolOutcome::failed(refusal).settle(),
        };
        if let Some(news) = self.env.command_news() {
            text::add_line(&mut outcome.text, &news);
        }
        outcome
    }
}

/// The most calls that run concurrently, and the most that may wait for the user's answer, each
/// holding the change that it would make.
const MAX_CONCURRENT_CALLS: usize = 8;

/// The calls that wait or run, in the order of their arrival. Those that wait see each change.
#[derive(Debug, Default)]
pub(crate) struct AdmissionQueue(watch::Sender<QueuedCalls>);

impl AdmissionQueue {
    /// Adds a call to the end of the queue.
    fn enqueue(self: &Arc<Self>, effects: Vec<Effect>) -> AdmissionTicket {
        let mut number = 0;
        self.0.send_modify(|calls| number = calls.push(effects));
        AdmissionTicket { queue: Arc::clone(self), number }
    }
}

/// A call's place in the queue. Dropping it removes the call.
#[derive(Debug)]
pub(super) struct AdmissionTicket {
    queue: Arc<AdmissionQueue>,
    number: u64,
}

impl AdmissionTicket {
    /// Waits until the call may start. Returns true if it had to wait, in which case an earlier call
    /// may have changed where its paths lead.
    async fn wait_for_admission(&self) -> bool {
        self.wait_until(|calls| calls.try_start(self.number)).await
    }

    /// Replaces the call's effects, after its paths were resolved again. Returns true if it may
    /// continue; if not, it has to wait for admission again.
    fn readmit(&self, effects: &[Effect]) -> bool {
        !self.queue.0.send_if_modified(|calls| !calls.readmit(self.number, effects))
    }

    /// Waits until the user may be asked about the call.
    async fn wait_to_ask(&self) {
        self.set(CallState::AwaitingAnswer);
        self.wait_until(|calls| calls.try_ask(self.number)).await;
    }

    /// The call runs from now on; the user can be asked about the next one. A call that runs other calls
    /// must not take their room.
    fn start_running(&self, runs_calls: bool) {
        self.set(if runs_calls { CallState::RunningCalls } else { CallState::Running });
    }

    fn set(&self, state: CallState) {
        self.queue.0.send_modify(|calls| calls.set(self.number, state));
    }

    /// Waits until `holds` returns true. Returns false if it did so at once.
    async fn wait_until(&self, mut holds: impl FnMut(&mut QueuedCalls) -> bool) -> bool {
        let mut changes = self.queue.0.subscribe();
        let mut has_waited = false;
        while !self.queue.0.send_if_modified(&mut holds) {
            has_waited = true;
            // The queue is there as long as the ticket.
            changes.changed().await.ok();
        }
        has_waited
    }
}

impl Drop for AdmissionTicket {
    fn drop(&mut self) {
        self.queue.0.send_modify(|calls| calls.remove(self.number));
    }
}

/// The state of the queue. Its methods decide and never wait.
#[derive(Debug, Default)]
struct QueuedCalls {
    last_number: u64,
    calls: Vec<QueuedCall>,
}

#[derive(Debug)]
struct QueuedCall {
    number: u64,
    effects: Vec<Effect>,
    state: CallState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    /// It has not started.
    Waiting,
    /// The tool is finding out what the call would do.
    Previewing,
    /// The user will be asked about it.
    AwaitingAnswer,
    /// The user is being asked about it.
    Asking,
    Running,
    /// It runs, and its work is other calls.
    RunningCalls,
}

impl QueuedCalls {
    fn push(&mut self, effects: Vec<Effect>) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.calls.push(QueuedCall { number, effects, state: CallState::Waiting });
        number
    }

    fn set(&mut self, number: u64, state: CallState) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.number == number) {
            call.state = state;
        }
    }

    fn remove(&mut self, number: u64) {
        self.calls.retain(|call| call.number != number);
    }

    /// The first call that may start now.
    fn next(&self) -> Option<u64> {
        let has_room =
            self.has_room() && self.count_in(CallState::AwaitingAnswer) < MAX_CONCURRENT_CALLS;
        if !has_room {
            return None;
        }
        let mut waiting = self.calls.iter().filter(|call| call.state == CallState::Waiting);
        waiting.find(|call| self.is_free(call)).map(|call| call.number)
    }

    fn try_start(&mut self, number: u64) -> bool {
        let starts = self.next() == Some(number);
        if starts {
            self.set(number, CallState::Previewing);
        }
        starts
    }

    fn readmit(&mut self, number: u64, effects: &[Effect]) -> bool {
        let Some(place) = self.calls.iter().position(|call| call.number == number) else {
            return false;
        };
        effects.clone_into(&mut self.calls[place].effects);
        let is_free = self.is_free(&self.calls[place]);
        if !is_free {
            self.calls[place].state = CallState::Waiting;
        }
        is_free
    }

    /// Questions are asked one at a time, because the answer to one may decide the next call, and in the order
    /// of the calls as far as possible.
    fn try_ask(&mut self, number: u64) -> bool {
        let is_too_early = self.calls.iter().any(|call| match call.state {
            CallState::Asking => true,
            CallState::Previewing | CallState::AwaitingAnswer => call.number < number,
            CallState::Waiting | CallState::Running | CallState::RunningCalls => false,
        });
        let asks = self.has_room() && !is_too_early;
        if asks {
            self.set(number, CallState::Asking);
        }
        asks
    }

    fn has_room(&self) -> bool {
        let started = [CallState::Previewing, CallState::Asking, CallState::Running];
        started.into_iter().map(|state| self.count_in(state)).sum::<usize>() < MAX_CONCURRENT_CALLS
    }

    fn count_in(&self, state: CallState) -> usize {
        self.calls.iter().filter(|call| call.state == state).count()
    }

    /// True if no earlier call and no started call conflicts with it.
    fn is_free(&self, call: &QueuedCall) -> bool {
        !self.calls.iter().any(|other| {
            let counts = other.number != call.number
                && (other.state != CallState::Waiting || other.number < call.number);
            counts && conflicts(&other.effects, &call.effects)
        })
    }
}

/// Returns true if two calls must not run concurrently.
fn conflicts(some: &[Effect], others: &[Effect]) -> bool {
    some.iter().any(|one| others.iter().any(|other| effects_conflict(one, other)))
}

fn effects_conflict(one: &Effect, other: &Effect) -> bool {
    use Effect::{Delete, Exec, Fetch, Input, Read, Remote, Search, SessionState, Signal, Write};
    match (one, other) {
        (Fetch { .. } | Search { .. } | Signal { .. } | SessionState, _)
        | (_, Fetch { .. } | Search { .. } | Signal { .. } | SessionState) => false,
        // A command or a remote tool may touch anything.
        (Exec(_) | Input { .. } | Remote(_), _) | (_, Exec(_) | Input { .. } | Remote(_)) => true,
        (Read(_), Read(_)) => false,
        // A folder stands for everything in it.
        (Read(one) | Write(one) | Delete(one), Read(other) | Write(other) | Delete(other)) => {
            one.path.starts_with(&other.path) || other.path.starts_with(&one.path)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use turnwright_policy::shell;
    use turnwright_types::effect::{PathScope, ResolvedPath};
    use turnwright_types::shell_script::ShellDialect;

    fn effect(text: &str) -> Effect {
        let (verb, object) = text.split_once(' ').unwrap_or((text, ""));
        let target = ResolvedPath { path: object.into(), scope: PathScope::Workspace };
        match verb {
            "read" => Effect::Read(target),
            "write" => Effect::Write(target),
            "delete" => Effect::Delete(target),
            "exec" => Effect::Exec(Box::new(shell::command(object, "/w", ShellDialect::Bash))),
            "input" => Effect::Input {
                job: object.to_owned(),
                is_unsandboxed: false,
                has_extra_access: false,
            },
            "fetch" => Effect::Fetch { host: object.to_owned() },
            _ => Effect::SessionState,
        }
    }

    fn queue(calls: &[&str]) -> QueuedCalls {
        let mut queue = QueuedCalls::default();
        for call in calls {
            queue.push(call.split(" & ").map(effect).collect());
        }
        queue
    }

    /// The indices of the calls that may start at once, as digits.
    fn starting(calls: &[&str]) -> String {
        let mut queue = queue(calls);
        let mut started = String::new();
        while let Some(next) = queue.next() {
            queue.set(next, CallState::Running);
            started.push_str(&(next - 1).to_string());
        }
        started
    }

    #[test]
    fn calls_wait_for_earlier_calls_that_conflict() {
        for (calls, started) in [
            (&["read /w/a", "read /w/a", "read /w"][..], "012"),
            (&["read /w/a", "write /w/b", "read /w/c"], "012"),
            (&["write /w/a", "write /w/b", "delete /w/c"], "012"),
            (&["write /w/a", "read /w/a", "read /w/b"], "02"),
            (&["read /w/a", "write /w/a", "read /w/a"], "0"),
            (&["read /w", "write /w/a/b"], "0"),
            (&["delete /w/a", "read /w/a/b", "write /w/ab"], "02"),
            (&["write /w/a", "exec x", "read /w/b"], "0"),
            (&["exec x", "exec y", "fetch h", "session"], "023"),
            (&["exec x", "input p1"], "0"),
            (&["fetch h", "fetch h", "session", "exec x", "fetch h"], "01234"),
            (&["read /w/a & write /w/b", "read /w/b", "read /w/a"], "02"),
            (&["write /w/a", "read /w/a", "write /w/a"], "0"),
            (&["session"; 10], "01234567"),
        ] {
            assert_eq!(starting(calls), started, "{calls:?}");
        }
    }

    #[test]
    fn queued_questions_are_bounded_but_do_not_block_running_calls() {
        let mut queue = queue(&["session"; 20]);
        for number in 1..=MAX_CONCURRENT_CALLS as u64 {
            assert_eq!(queue.next(), Some(number));
            queue.set(number, CallState::AwaitingAnswer);
        }
        assert_eq!(queue.next(), None);
        queue.set(1, CallState::Running);
        assert_eq!(queue.next(), Some(9));
    }

    #[test]
    fn questions_keep_the_order_of_the_calls_and_come_one_at_a_time() {
        let mut queue = queue(&["session"; 2]);
        queue.set(1, CallState::Previewing);
        queue.set(2, CallState::AwaitingAnswer);
        assert!(!queue.try_ask(2));
        queue.set(1, CallState::AwaitingAnswer);
        assert!(!queue.try_ask(2) && queue.try_ask(1) && !queue.try_ask(2));
        queue.set(1, CallState::Running);
        assert!(queue.try_ask(2));
    }

    #[test]
    fn a_call_whose_effects_change_waits_again() {
        let mut queue = queue(&["read /w/a", "write /w/b"]);
        queue.set(1, CallState::Running);
        queue.set(2, CallState::Previewing);
        assert!(!queue.readmit(2, &[effect("write /w/a")]));
        assert_eq!(queue.next(), None);
        queue.remove(1);
        assert_eq!(queue.next(), Some(2));
    }

    #[test]
    fn a_dropped_ticket_admits_the_calls_that_waited_for_it() {
        let queue = Arc::new(AdmissionQueue::default());
        let write = |path| vec![effect(&format!("write {path}"))];
        let tickets = ["/w/a", "/w/a", "/w/b"].map(|path| queue.enqueue(write(path)));
        let [first, same, other] = tickets;
        let starts = |ticket: &AdmissionTicket| ticket.wait_for_admission().now_or_never();
        assert_eq!(
            (starts(&first), starts(&same), starts(&other)),
            (Some(false), None, Some(false))
        );
        drop(first);
        assert!(starts(&same).is_some());
        assert!(!same.readmit(&write("/w/b")));
        drop(other);
        assert!(starts(&same).is_some());
    }

    proptest! {
        /// In every order of completion, each call starts eventually, never beside a call that it
        /// conflicts with, and of two conflicting calls the earlier starts first.
        #[test]
        fn each_call_starts_in_a_valid_order(
            calls in prop::collection::vec("(read|write|delete) /w(/[ab]){0,2}|exec x|input p|fetch h|session", 0..16),
            order in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let effects: Vec<Vec<Effect>> = calls.iter().map(|call| vec![effect(call)]).collect();
            let mut queue = QueuedCalls::default();
            for effects in &effects {
                queue.push(effects.clone());
            }
            let of = |number: u64| &effects[usize::try_from(number - 1).unwrap()];
            let mut running = Vec::<u64>::new();
            let mut finished = Vec::<u64>::new();
            for choice in order {
                while let Some(next) = queue.next() {
                    for other in &running {
                        prop_assert!(!conflicts(of(next), of(*other)));
                    }
                    for earlier in 1..next {
                        let is_free = finished.contains(&earlier) || !conflicts(of(next), of(earlier));
                        prop_assert!(is_free);
                    }
                    queue.set(next, CallState::Running);
                    running.push(next);
                    prop_assert!(running.len() <= MAX_CONCURRENT_CALLS);
                }
                if running.is_empty() {
                    break;
                }
                let call = running.remove(choice.index(running.len()));
                queue.remove(call);
                finished.push(call);
            }
            prop_assert_eq!(finished.len(), calls.len());
        }
    }
}
