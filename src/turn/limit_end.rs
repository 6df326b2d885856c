//! How a turn ends that has reached a limit: the model is asked for a last summary, and the user is told
//! what to do next.

use super::limits::ReachedLimit;
use super::{Turn, TurnStep};
use turnwright_types::message::{Message, PromptPart, ToolCall, UserMessage};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::update::Update;

impl Turn {
    /// The first step of the turn. A session that has used up a limit makes no request any more.
    pub(super) fn first_step(&mut self) -> TurnStep {
        let has_cost_limit = self.services.limits.has_cost();
        let model = self.services.selection.get().model;
        if has_cost_limit && model.price().is_none() && self.history.spent.requests == 0 {
            let text = format!(
                "The price of {} is not known, so a limit of cost has no effect.",
                model.name()
            );
            self.services.client().update(Update::Notice(text));
        }
        match self.meter.reached(&self.history, self.began.elapsed()) {
            Some(limit) => {
                self.budget.ending = Some(limit);
                TurnStep::End(Ok(limit.stop_reason()))
            }
            None => TurnStep::Sample,
        }
    }

    /// Tells the user of limits that are nearly reached, and notes one that is.
    pub(super) fn check_limits(&mut self) {
        let elapsed = self.began.elapsed();
        for notice in self.meter.take_notices(&self.history, elapsed) {
            self.services.client().update(Update::Notice(notice));
        }
        self.budget.reached = self.meter.reached(&self.history, elapsed);
    }

    /// Makes the last request of the turn. The list of tools stays in it: without it some servers reject
    /// calls in the history, and none has it in its cache.
    pub(super) async fn ask_for_summary(
        &mut self,
        calls: Vec<ToolCall>,
        limit: ReachedLimit,
    ) -> TurnStep {
        let limit_text = limit.description();
        let why = ToolRefusal::new(
            format!("Not executed: the {limit_text} is reached."),
            "Not executed: a limit is reached",
        );
        self.abandon_calls(calls, why).await;
        let text = format!(
            "The {limit_text} is reached. No tool runs any more. Say in a few sentences what is done, \
             what is not, and what comes next."
        );
        let message = UserMessage { parts: vec![PromptPart::Context(text)] };
        self.push_hidden_message(Message::User(message));
        self.budget.ending = Some(limit);
        TurnStep::Sample
    }

    /// Tells the user what to do after a limit has ended the turn.
    pub(super) fn report_limit(&mut self) {
        if let Some(limit) = self.budget.ending {
            self.say(limit.advice());
        }
    }
}
