//! Calls of our own, which the model has not made and whose results its conversation does not have: checks, the proof
//! of a goal, and its judge. The user sees a card of each.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::calls::records::abridged_arguments;
use super::calls::runner::refused;
use super::{SharedGrants, Turn};
use crate::tools::{AnyTool, ToolCtx};
use turnwright_store::{Audience, CallOutcome, Entry};
use turnwright_types::effect::{CallView, ToolKind};
use turnwright_types::ids::CallId;
use turnwright_types::message::{AssistantMessage, Message, ToolCall};
use turnwright_types::patience::sleep_until;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::update::COMMAND_TOOL;

/// The reason why a command does not run once the turn is cancelled.
const CANCELLED: &str = "the turn was cancelled";

/// The consent of the user to a command of ours. Without a sandbox the user is asked each time, because it may run
/// what the model has written. Rules that deny it, or ask about it, apply in any case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Consent {
    /// The same is needed as for a call of the model.
    Asked,
    /// The user has written the command down, so it is allowed exactly as it is.
    Given,
}

/// The end of a command of ours.
#[derive(Debug)]
pub(super) enum CommandEnd {
    Ran(Box<CallOutcome>),
    /// It was stopped at its limit.
    TooSlow,
    /// Why it was denied, refused or cancelled, as a part of a sentence.
    NotRun(String),
}

impl Turn {
    /// Logs a call of ours, which only the user sees, and opens its card.
    pub(super) fn open_own_call(
        &mut self,
        tool: &str,
        arguments: &Value,
        view: &CallView,
    ) -> CallId {
        let id = CallId::from(format!("call-{}", self.history.mint()));
        let call = ToolCall::new(id.clone(), id.to_string(), tool, arguments.clone());
        let message_id = self.history.mint_message_id();
        let answer = AssistantMessage::new(message_id.clone(), "", vec![call]);
        self.conversation.log().add_entry(Entry::Message {
            id: message_id,
            message: Arc::new(Message::Assistant(answer)),
            audience: Audience::User,
        });
        self.cards.open(&id, tool.to_owned(), view.clone());
        self.cards.show_arguments(&id, abridged_arguments(arguments));
        id
    }

    /// Runs a command of ours to its end, or to its limit, which does not include the time of a question about it. Its
    /// card has this title.
    pub(super) async fn run_own_command(
        &mut self,
        line: &str,
        title: String,
        limit: Duration,
        consent: Consent,
    ) -> CommandEnd {
        let Ok(tool) = self.conversation.tools.find(COMMAND_TOOL) else {
            return CommandEnd::NotRun("no command can be run here".to_owned());
        };
        if self.cancel.is_cancelled() {
            return CommandEnd::NotRun(CANCELLED.to_owned());
        }
        let seconds = limit.as_secs();
        // The limit is ours, so that the command does not go on in the background.
        let arguments = json!({ "command": line, "timeout": seconds * 2 });
        let view = CallView::new(title, ToolKind::Execute);
        let id = self.open_own_call(COMMAND_TOOL, &arguments, &view);
        let cancel = self.cancel.child_token();
        let ctx = self.runner.ctx(id.clone(), cancel.clone(), self.cancel.clone());
        let (begins, begun) = oneshot::channel();
        let mut is_late = false;
        let mut outcome = {
            let shown = view.clone();
            let call = self.run_as_call(consent, tool, arguments, ctx, shown, begins);
            let mut running = std::pin::pin!(call);
            let time_is_up = async {
                if begun.await.is_err() {
                    std::future::pending::<()>().await;
                }
                sleep_until(Instant::now() + limit).await;
            };
            tokio::select! {
                biased;
                outcome = &mut running => outcome,
                () = time_is_up => {
                    is_late = true;
                    cancel.cancel();
                    running.await
                }
            }
        };
        if is_late {
            let why = format!("Stopped: a check may run {seconds} s");
            outcome = refused(ToolRefusal::new(&why, &why), Vec::new());
        }
        // A command that never ran is shown as failed, also after a cancel.
        outcome.is_cancelled &= outcome.has_run();
        self.settle_own_command(&id, &view, &outcome).await;
        if self.cancel.is_cancelled() {
            CommandEnd::NotRun(CANCELLED.to_owned())
        } else if is_late {
            CommandEnd::TooSlow
        } else if outcome.has_run() {
            CommandEnd::Ran(Box::new(outcome))
        } else {
            let why = outcome.raw_output["message"].as_str().unwrap_or("it was refused");
            CommandEnd::NotRun(why.trim_end_matches('.').to_owned())
        }
    }

    /// Gives the card its end. What has not run is also stored, as a call that has run is already.
    async fn settle_own_command(&mut self, id: &CallId, view: &CallView, outcome: &CallOutcome) {
        let stored = outcome.to_stored(COMMAND_TOOL, Some(view));
        if outcome.has_run() {
            self.cards.finish(stored.final_update(id));
        } else {
            self.conversation.log().finish_call(id, stored).written().await;
            self.cards.finish(outcome.final_update(id));
        }
    }

    /// Runs a command of ours under the session's rules.
    async fn run_as_call(
        &self,
        consent: Consent,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        ctx: ToolCtx,
        view: CallView,
        begins: oneshot::Sender<()>,
    ) -> CallOutcome {
        let grants = match consent {
            Consent::Asked => Arc::clone(&self.conversation.grants),
            // The answers of the user are about what the model and the project name.
            Consent::Given => SharedGrants::default(),
        };
        let runner = self.conversation.runner(Arc::clone(&grants));
        let (mut pending, ticket) = match runner.enqueue(tool, arguments, ctx).await {
            Ok(queued) => queued,
            Err(why) => return refused(why, Vec::new()),
        };
        pending.view = Some(view);
        pending.begins = Some(begins);
        if matches!(consent, Consent::Given) && self.conversation.rules().get().can_confine {
            for effect in &pending.plan.effects {
                grants.lock().allow_exactly(effect.clone());
            }
        }
        runner.run(pending, ticket).await
    }
}

/// The output of a command that has run.
pub(super) fn output_of(outcome: &CallOutcome) -> &str {
    outcome.raw_output["output"].as_str().unwrap_or_default()
}
