//! The limits of a turn and a session, and how much of them is used up. Pure.

pub(super) mod end;
pub(super) mod shared;

use std::time::Duration;

use turnwright_llm::Model;
use turnwright_types::message::{History, Spending, StopReason, TokenUsage};

/// The part of a limit at which the user is told.
const NOTICE_SHARE: f64 = 0.8;

/// A limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Requests,
    Tokens,
    /// US dollars.
    Cost,
    /// Minutes of turns, including the time in which the user is waited for.
    Minutes,
}

impl Resource {
    const ALL: [Resource; 4] =
        [Resource::Requests, Resource::Tokens, Resource::Cost, Resource::Minutes];
}

/// An amount of each resource.
pub(super) type Amounts = [f64; Resource::ALL.len()];

/// The limits of a session; infinite where there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SpendingLimits {
    /// True if a model that goes round in circles is stopped.
    pub stops_loops: bool,
    /// For one turn.
    turn: Amounts,
    /// For all turns together.
    session: Amounts,
}

impl SpendingLimits {
    /// No limits.
    pub(crate) fn new(stops_loops: bool) -> SpendingLimits {
        let none = [f64::INFINITY; Resource::ALL.len()];
        SpendingLimits { stops_loops, turn: none, session: none }
    }

    /// Sets a limit by the name of its setting, such as `turn_tokens`. An unknown name has no effect.
    pub(crate) fn set(&mut self, name: &str, number: f64) {
        let (amounts, resource) = match name.split_once('_') {
            Some(("turn", resource)) => (&mut self.turn, resource),
            Some(("session", resource)) => (&mut self.session, resource),
            _ => return,
        };
        let resource = match resource {
            "requests" => Resource::Requests,
            "tokens" => Resource::Tokens,
            "cost" => Resource::Cost,
            "minutes" => Resource::Minutes,
            _ => return,
        };
        amounts[resource as usize] = number;
    }

    /// True if the cost is limited.
    pub(super) fn has_cost(&self) -> bool {
        let cost = Resource::Cost as usize;
        self.turn[cost].min(self.session[cost]).is_finite()
    }
}

/// A limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReachedLimit {
    resource: Resource,
    is_session: bool,
    amount: f64,
}

impl ReachedLimit {
    /// The limit of requests in one turn.
    pub(super) fn turn_requests(most: u32) -> ReachedLimit {
        let amount = f64::from(most);
        ReachedLimit { resource: Resource::Requests, is_session: false, amount }
    }

    pub(super) fn stop_reason(self) -> StopReason {
        match self.resource {
            Resource::Tokens => StopReason::MaxTokens,
            Resource::Requests | Resource::Cost | Resource::Minutes => StopReason::MaxTurnRequests,
        }
    }

    /// The limit as part of a sentence.
    pub(super) fn description(self) -> String {
        let amount = self.amount;
        let what = match self.resource {
            Resource::Requests => format!("{amount} requests"),
            Resource::Tokens => format!("{amount} tokens"),
            Resource::Cost => format!("${amount:.2}"),
            Resource::Minutes => format!("{amount} minutes"),
        };
        format!(
            "limit of {what} {}",
            if self.is_session { "for this session" } else { "for one turn" }
        )
    }

    /// The setting that raises it.
    fn setting(self) -> &'static str {
        match (self.is_session, self.resource) {
            (false, Resource::Requests) => "max_turn_requests",
            (false, Resource::Tokens) => "limits.turn_tokens",
            (false, Resource::Cost) => "limits.turn_cost",
            (false, Resource::Minutes) => "limits.turn_minutes",
            (true, Resource::Requests) => "limits.session_requests",
            (true, Resource::Tokens) => "limits.session_tokens",
            (true, Resource::Cost) => "limits.session_cost",
            (true, Resource::Minutes) => "limits.session_minutes",
        }
    }

    /// Advice for the user for when the turn ends because of it.
    pub(super) fn advice(self) -> String {
        let next = if self.is_session {
            "Start a new session, or raise it in the settings and open this one again"
        } else {
            "Prompt again to go on, or raise it in the settings for new sessions"
        };
        format!("The {} is reached. {next} (`{}`).", self.description(), self.setting())
    }
}

/// The amounts that were used up before a turn began, and the limits of which the user was told.
#[derive(Clone, Debug)]
pub(super) struct SpendingMeter {
    limits: SpendingLimits,
    pub(super) before: Amounts,
    told: Vec<ReachedLimit>,
}

impl SpendingMeter {
    /// Starts with the amounts that a conversation has used up. If a limit is nearly reached already, the user
    /// was told in an earlier turn.
    pub(super) fn new(limits: SpendingLimits, history: &History) -> SpendingMeter {
        let before = amounts(&history.spent, history.cost, Duration::ZERO);
        let mut meter = SpendingMeter { limits, before, told: Vec::new() };
        meter.told = meter.used_beyond(NOTICE_SHARE, before).collect();
        meter
    }

    /// Takes note of requests that do not belong to this turn.
    #[expect(clippy::cast_precision_loss, reason = "no count needs 52 bits")]
    pub(super) fn leave_out_requests(&mut self, count: u64) {
        self.before[Resource::Requests as usize] += count as f64;
    }

    /// A limit that is used up by now.
    pub(super) fn reached(&self, now: Amounts) -> Option<ReachedLimit> {
        self.used_beyond(1.0, now).next()
    }

    /// The limits that are now nearly used up, each once.
    pub(super) fn take_notices(&mut self, now: Amounts) -> Vec<String> {
        let full: Vec<_> = self.used_beyond(1.0, now).collect();
        let near = self.used_beyond(NOTICE_SHARE, now);
        let new: Vec<_> = near.filter(|limit| !self.told.contains(limit)).collect();
        self.told.extend(&new);
        let new = new.into_iter().filter(|limit| !full.contains(limit));
        new.map(|limit| format!("80 % of the {} is used up.", limit.description())).collect()
    }

    /// The limits of which at least this share is used up.
    fn used_beyond(&self, share: f64, now: Amounts) -> impl Iterator<Item = ReachedLimit> {
        let SpendingMeter { limits, before, .. } = *self;
        [true, false].into_iter().flat_map(move |is_session| {
            Resource::ALL.into_iter().filter_map(move |resource| {
                let at = resource as usize;
                let (limit, used) = if is_session {
                    (limits.session[at], now[at])
                } else {
                    (limits.turn[at], now[at] - before[at])
                };
                let is_used = limit.is_finite() && used >= limit * share;
                is_used.then_some(ReachedLimit { resource, is_session, amount: limit })
            })
        })
    }
}

/// A limit of the session that is used up while no turn runs.
pub(super) fn used_up_limit(limits: SpendingLimits, history: &History) -> Option<ReachedLimit> {
    let now = amounts(&history.spent, history.cost, Duration::ZERO);
    SpendingMeter::new(limits, history).reached(now)
}

/// Adds what an answer has cost, as the server reports it or else by the price of the model. Returns it,
/// if it is known.
pub(super) fn add_cost(
    history: &mut History,
    model: &dyn Model,
    reported: Option<f64>,
    usage: TokenUsage,
) -> Option<f64> {
    let price = model.price().filter(|_| usage.total() > 0);
    let cost = reported.or_else(|| Some(price?.cost(&usage)))?;
    *history.cost.get_or_insert_default() += cost;
    Some(cost)
}

/// The amounts that were used up `elapsed` after the turn has begun.
#[expect(clippy::cast_precision_loss, reason = "no count needs 52 bits")]
pub(super) fn amounts(spent: &Spending, cost: Option<f64>, elapsed: Duration) -> Amounts {
    let minutes = (spent.time + elapsed).as_secs_f64() / 60.0;
    [spent.requests as f64, spent.usage.total() as f64, cost.unwrap_or_default(), minutes]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(requests: u64, input: u64, cost: f64, minutes: u64) -> History {
        let usage = TokenUsage { input, ..TokenUsage::default() };
        let time = Duration::from_secs(60 * minutes);
        let spent = Spending { requests, usage, time };
        History { spent, cost: Some(cost), ..History::default() }
    }

    #[test]
    fn each_limit_is_told_at_four_fifths_and_reached_at_the_whole() {
        let none = SpendingLimits::new(true);
        let with = |name: &str, amount: f64| {
            let mut limits = none;
            limits.set(name, amount);
            limits
        };
        let before = history(10, 1000, 1.0, 10);
        for (limits, now, notices, reached) in [
            (none, history(9999, 9_999_999, 99.0, 9999), 0, None),
            (with("turn_requests", 10.0), history(17, 0, 0.0, 0), 0, None),
            (with("turn_requests", 10.0), history(18, 0, 0.0, 0), 1, None),
            (with("turn_requests", 10.0), history(20, 0, 0.0, 0), 0, Some("max_turn_requests")),
            (with("session_requests", 20.0), history(17, 0, 0.0, 0), 1, None),
            (with("session_requests", 12.0), history(11, 0, 0.0, 0), 0, None),
            (
                with("session_requests", 12.0),
                history(12, 0, 0.0, 0),
                0,
                Some("limits.session_requests"),
            ),
            (with("turn_tokens", 500.0), history(0, 1500, 0.0, 0), 0, Some("limits.turn_tokens")),
            (
                with("session_tokens", 1500.0),
                history(0, 1500, 0.0, 0),
                0,
                Some("limits.session_tokens"),
            ),
            (with("turn_cost", 0.5), history(0, 0, 1.45, 0), 1, None),
            (with("session_cost", 1.5), history(0, 0, 1.5, 0), 0, Some("limits.session_cost")),
            (with("turn_minutes", 5.0), history(0, 0, 0.0, 15), 0, Some("limits.turn_minutes")),
        ] {
            let mut meter = SpendingMeter::new(limits, &before);
            let now = amounts(&now.spent, now.cost, Duration::ZERO);
            let told = meter.take_notices(now);
            assert_eq!(told.len(), notices, "{limits:?} {told:?}");
            assert_eq!(meter.take_notices(now).len(), 0, "told once");
            let found = meter.reached(now);
            assert_eq!(found.map(ReachedLimit::setting), reached, "{limits:?}");
        }
        let meter = SpendingMeter::new(with("turn_minutes", 5.0), &before);
        let later = amounts(&before.spent, before.cost, Duration::from_secs(300));
        assert!(meter.reached(later).is_some());
    }

    #[test]
    fn tokens_end_a_turn_with_a_reason_of_their_own() {
        let limit = |resource, amount| ReachedLimit { resource, is_session: true, amount };
        assert_eq!(limit(Resource::Tokens, 5.0).stop_reason(), StopReason::MaxTokens);
        let cost = limit(Resource::Cost, 2.5);
        assert_eq!(cost.stop_reason(), StopReason::MaxTurnRequests);
        assert!(cost.advice().starts_with("The limit of $2.50 for this session is reached. "));
    }
}
