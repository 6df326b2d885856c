//! Ends a turn that has reached a limit: the model is asked for a last summary, and the user is told
//! what to do next.

use crate::turn::limits::ReachedLimit;
use crate::turn::{Turn, TurnStep};
use turnwright_llm::Model;
use turnwright_types::message::ToolCall;
use turnwright_types::refusal::ToolRefusal;

/// Asks for the last answer of a turn.
const SUMMARY: &str = "Say in a few sentences what is done, what is not, and what comes next.";
/// Asks for the last answer of a helper.
const REPORT: &str = "Answer now with what you have found and done, and say what is missing.";

impl Turn {
    /// The first step of the turn. A session that has used up a limit makes no request any more.
    pub(in crate::turn) fn first_step(&mut self) -> TurnStep {
        let now = self.share_spending();
        match self.meter.reached(now) {
            Some(limit) => {
                self.budget.ending = Some(limit);
                TurnStep::End(Ok(limit.stop_reason()))
            }
            None => TurnStep::Sample,
        }
    }

    /// Tells the user after the first answer of a session if the limits of cost have no effect.
    pub(in crate::turn) fn tell_unlimited_cost(&self, model: &dyn Model) {
        let is_first = self.history.spent.requests == 1 && !self.is_helper();
        let is_cost_unknown = self.history.cost.is_none() && model.price().is_none();
        if is_first && is_cost_unknown && self.conversation.limits.has_cost() {
            self.conversation.notify(format!(
                "The price of {} is not known, so a limit of cost has no effect.",
                model.name()
            ));
        }
    }

    /// Tells the user of limits that are nearly reached, and notes one that is.
    pub(in crate::turn) fn check_limits(&mut self) {
        let now = self.share_spending();
        let notices = self.meter.take_notices(now);
        // The user is told about the spending of helpers when the turn of the session goes on.
        for notice in notices.into_iter().filter(|_| !self.is_helper()) {
            self.conversation.notify(notice);
        }
        self.budget.reached = self.meter.reached(now);
    }

    /// The step after calls, which may have taken long or have had helpers.
    pub(in crate::turn) fn step_after_calls(&mut self) -> TurnStep {
        self.check_limits();
        match self.budget.reached {
            Some(limit) => TurnStep::Summarize(Vec::new(), limit),
            None => TurnStep::Sample,
        }
    }

    /// Makes the last request of the turn. The list of tools stays in it: without it some servers reject
    /// calls in the history, and none has it in its cache.
    pub(in crate::turn) async fn ask_for_summary(
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
        let wanted = if self.is_helper() { REPORT } else { SUMMARY };
        self.push_context(format!("The {limit_text} is reached. No tool runs any more. {wanted}"));
        self.budget.ending = Some(limit);
        TurnStep::Sample
    }

    /// Makes the last request of a helper that goes round in circles. Its user is not asked.
    pub(in crate::turn) fn ask_for_report(&mut self) -> TurnStep {
        self.push_context(format!(
            "You have done the same again and again. No tool runs any more. {REPORT}"
        ));
        let requests = u32::try_from(self.history.spent.requests).unwrap_or(u32::MAX);
        self.budget.ending = Some(ReachedLimit::turn_requests(requests));
        TurnStep::Sample
    }

    /// Tells the user what to do after a limit has ended the turn.
    pub(in crate::turn) fn report_limit(&mut self) {
        if let Some(limit) = self.budget.ending
            && !self.is_helper()
        {
            self.say(limit.advice());
        }
    }
}
