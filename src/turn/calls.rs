//! Runs the tool calls of an answer, and gives each its one result and its final card. Calls that cannot
//! affect each other run concurrently; the results keep the order of the calls. The user can cancel them one by one,
//! while their turn goes on. Calls of the model of an MCP client take the same way without a conversation, and their
//! results go back to the caller.

pub(super) mod admission_queue;
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
use tokio_util::sync::CancellationToken;

use crate::tools::{AnyTool, ToolEnv, ToolOutcome, patch_call};
use crate::turn::{SharedGrants, Turn, TurnStep};
use turnwright_store::CallOutcome;
use turnwright_types::ids::CallId;
use turnwright_types::message::{Arguments, Message, StopReason, ToolCall, ToolMessage};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;

use admission_queue::AdmissionTicket;
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
                    let paths = self.conversation.told.folders().new_paths(effects);
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
            Arguments::Unusable { reason, .. } => return Err(reason.into()),
        };
        let (tool, arguments) = match patch_call(tool.name(), &arguments) {
            Some(patch) => (self.conversation.tools.find("apply_patch")?, patch),
            None => (tool, arguments),
        };
        self.cards.set_name(&call.id, tool.name());
        let cancel = self.cancel.child_token();
        self.cards.make_cancellable(&call.id, cancel.clone());
        let ctx = self.runner.ctx(call.id, cancel, self.cancel.clone());
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
