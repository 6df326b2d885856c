//! The common spending of a session and its helpers, so that its limits hold for all of them. The turn reports
//! its own counts, and helpers add theirs as soon as they have used something.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::turn::Turn;
use crate::turn::limits::{Amounts, amounts};
use turnwright_types::message::{History, Spending};

/// Shared by the turns of a session and its helpers.
// Held only to copy a few numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedSpending(Arc<Mutex<SpendingState>>);

#[derive(Debug, Default)]
struct SpendingState {
    /// The amounts when the session's last turn began, and those that it has counted by now.
    before: Amounts,
    now: Amounts,
    /// The spending of helpers that no turn has added up yet.
    helpers: Spending,
    cost: Option<f64>,
}

impl SharedSpending {
    /// Adds what helpers have used to a conversation. Returns the number of their requests.
    pub(crate) fn add_helpers_to(&self, history: &mut History) -> u64 {
        let mut state = self.0.lock();
        let helpers = std::mem::take(&mut state.helpers);
        let cost = state.cost.take();
        drop(state);
        history.spent.requests += helpers.requests;
        history.spent.usage += helpers.usage;
        if let Some(cost) = cost {
            *history.cost.get_or_insert_default() += cost;
        }
        helpers.requests
    }
}

impl Turn {
    /// Brings together what the session and its helpers have used up by now.
    pub(in crate::turn) fn share_spending(&mut self) -> Amounts {
        let elapsed = self.began.elapsed();
        let shared = self.conversation.spending.clone();
        if let Some(helper) = &mut self.helper {
            let own = self.history.spent;
            let cost = self.history.cost;
            let (known, known_cost) = std::mem::replace(&mut helper.shared, (own, cost));
            let mut state = shared.0.lock();
            state.helpers.requests += own.requests - known.requests;
            state.helpers.usage += own.usage.since(&known.usage);
            if let Some(cost) = cost {
                *state.cost.get_or_insert_default() += cost - known_cost.unwrap_or_default();
            }
            self.meter.before = state.before;
            let helpers = amounts(&state.helpers, state.cost, elapsed);
            return std::array::from_fn(|at| state.now[at] + helpers[at]);
        }
        let requests = shared.add_helpers_to(&mut self.history);
        // A helper has a limit of requests of its own.
        self.meter.leave_out_requests(requests);
        let now = amounts(&self.history.spent, self.history.cost, elapsed);
        let mut state = shared.0.lock();
        state.before = self.meter.before;
        state.now = now;
        now
    }
}
