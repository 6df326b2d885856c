//! The limits of a turn and a session, how much of them is used up, and the end of a turn that has reached one:
//! the model is asked for a last summary, and the user is told what to do next. A session and its helpers share
//! their spending, so that the limits hold for all of them: the turn reports its own counts, and helpers add theirs
//! as soon as they have used something.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::turn::conversation::OnceNotice;
use crate::turn::goal::LAST_WORDS;
use crate::turn::{Conversation, Turn, TurnStep};
use turnwright_llm::{Model, ReportedUsage};
use turnwright_store::GoalStatus;
use turnwright_types::message::{History, Spending, StopReason, ToolCall};
use turnwright_types::refusal::ToolRefusal;

/// The part of a limit at which the user is told.
const NOTICE_SHARE: f64 = 0.8;
/// The parts of a limit at which the model is told, with what it is told.
const HINTS: [(f64, &str, &str); 2] = [
    (0.9, "Nine tenths", "leave nothing half done, and say what is missing"),
    (0.75, "Three quarters", "finish the main thing first"),
];
/// Asks for the last answer of a turn.
const SUMMARY: &str = "Say in a few sentences what is done, what is not, and what comes next.";
/// Asks for the last answer of a helper.
const REPORT: &str = "Answer now with what you have found and done, and say what is missing.";

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
    /// Their names in settings.
    const NAMES: [&str; 4] = ["requests", "tokens", "cost", "minutes"];
}

/// An amount of each resource.
type Amounts = [f64; Resource::ALL.len()];

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
        if let Some(at) = Resource::NAMES.iter().position(|known| *known == resource) {
            amounts[at] = number;
        }
    }
}

/// The work that a limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitScope {
    Turn,
    /// The goal that the turn works towards.
    Goal,
    Session,
}

/// A limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReachedLimit {
    resource: Resource,
    scope: LimitScope,
    amount: f64,
}

impl ReachedLimit {
    /// The limit of requests in one turn.
    pub(super) fn turn_requests(most: u32) -> ReachedLimit {
        let amount = f64::from(most);
        ReachedLimit { resource: Resource::Requests, scope: LimitScope::Turn, amount }
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
        let name = Resource::NAMES[self.resource as usize];
        let what = match self.resource {
            Resource::Cost => format!("${amount:.2}"),
            _ if amount.to_string() == "1" => format!("1 {}", name.trim_end_matches('s')),
            _ => format!("{amount} {name}"),
        };
        let scope = match self.scope {
            LimitScope::Turn => "one turn",
            LimitScope::Goal => "this goal",
            LimitScope::Session => "this session",
        };
        format!("limit of {what} for {scope}")
    }

    /// The setting that raises it.
    fn setting(self) -> String {
        let name = Resource::NAMES[self.resource as usize];
        match (self.scope, self.resource) {
            (LimitScope::Turn, Resource::Requests) => "max_turn_requests".to_owned(),
            (LimitScope::Turn, _) => format!("limits.turn_{name}"),
            (LimitScope::Goal, _) => "--budget".to_owned(),
            (LimitScope::Session, _) => format!("limits.session_{name}"),
        }
    }

    /// Advice for the user for when the turn ends because of it.
    pub(super) fn advice(self) -> String {
        let next = if self.scope == LimitScope::Session {
            "Start a new session, or raise it in the settings and open this one again"
        } else {
            "Prompt again to go on, or raise it in the settings for new sessions"
        };
        format!("The {} is reached. {next} (`{}`).", self.description(), self.setting())
    }
}

/// The start of a turn, the amounts that were used up before it, and the limits of which the user was told.
#[derive(Clone, Debug)]
pub(super) struct SpendingMeter {
    began: Instant,
    limits: SpendingLimits,
    /// The resources whose limit is one of the goal, and not of the turn.
    of_goal: [bool; Resource::ALL.len()],
    before: Amounts,
    /// The limits of which the user or the model was told, each with the part of it.
    told: Vec<(ReachedLimit, f64)>,
    /// The part of a helper's spending that its session knows.
    shared: (Spending, Option<f64>),
}

impl SpendingMeter {
    /// Starts with the amounts that a conversation has used up. If a limit is nearly reached already, the user
    /// was told in an earlier turn.
    pub(super) fn new(limits: SpendingLimits, history: &History) -> SpendingMeter {
        let before = amounts(&history.spent, history.cost, Duration::ZERO);
        let shared = Default::default();
        let mut meter = SpendingMeter {
            began: Instant::now(),
            limits,
            of_goal: [false; Resource::ALL.len()],
            before,
            told: Vec::new(),
            shared,
        };
        meter.take_notices(before);
        meter.take_hint(before);
        meter
    }

    /// The time since the turn began.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Applies the limits of a goal, each by the name of a resource. Its requests are otherwise counted slice by slice.
    pub(super) fn limit_goal(&mut self, limits: &[(String, f64)]) {
        self.limits.set("turn_requests", f64::INFINITY);
        for (name, number) in limits {
            self.limits.set(&format!("turn_{name}"), *number);
            if let Some(at) = Resource::NAMES.iter().position(|known| known == name) {
                self.of_goal[at] = true;
            }
        }
    }

    /// Takes note of requests that do not belong to this turn.
    #[expect(clippy::cast_precision_loss, reason = "no count needs 52 bits")]
    fn leave_out_requests(&mut self, count: u64) {
        self.before[Resource::Requests as usize] += count as f64;
    }

    /// A limit that is used up by now.
    fn reached(&self, now: Amounts) -> Option<ReachedLimit> {
        self.used_beyond(1.0, now).next()
    }

    /// The limits that are now nearly used up, each once.
    fn take_notices(&mut self, now: Amounts) -> Vec<String> {
        let full: Vec<_> = self.used_beyond(1.0, now).collect();
        let new = self.take_new(NOTICE_SHARE, now);
        let near = new.into_iter().filter(|limit| !full.contains(limit));
        near.map(|limit| format!("80 % of the {} is used up.", limit.description())).collect()
    }

    /// Words for the model about a limit of time or money of which a great part is used up now. Each is told once.
    pub(super) fn take_hint(&mut self, now: Amounts) -> Option<String> {
        let found = HINTS.map(|(share, part, advice)| {
            let mut new = self.take_new(share, now).into_iter();
            let limit = new.find(|limit| limit.resource != Resource::Requests)?;
            Some(format!("[{part} of the {} are used up: {advice}.]", limit.description()))
        });
        found.into_iter().flatten().next()
    }

    /// The limits of which at least this share is used up now, unless that was told.
    fn take_new(&mut self, share: f64, now: Amounts) -> Vec<ReachedLimit> {
        let mut new: Vec<_> = self.used_beyond(share, now).collect();
        new.retain(|limit| !self.told.contains(&(*limit, share)));
        self.told.extend(new.iter().map(|limit| (*limit, share)));
        new
    }

    /// The limits of which at least this share is used up.
    fn used_beyond(&self, share: f64, now: Amounts) -> impl Iterator<Item = ReachedLimit> {
        let SpendingMeter { limits, of_goal, before, .. } = *self;
        [true, false].into_iter().flat_map(move |is_session| {
            Resource::ALL.into_iter().filter_map(move |resource| {
                let at = resource as usize;
                let (scope, amount, used) = if is_session {
                    (LimitScope::Session, limits.session[at], now[at])
                } else {
                    let scope = if of_goal[at] { LimitScope::Goal } else { LimitScope::Turn };
                    (scope, limits.turn[at], now[at] - before[at])
                };
                let is_used = amount.is_finite() && used >= amount * share;
                is_used.then_some(ReachedLimit { resource, scope, amount })
            })
        })
    }
}

/// A limit of the session that is used up while no turn runs.
pub(super) fn used_up_limit(limits: SpendingLimits, history: &History) -> Option<ReachedLimit> {
    let now = amounts(&history.spent, history.cost, Duration::ZERO);
    SpendingMeter::new(limits, history).reached(now)
}

impl Conversation {
    /// Adds a request, with its answer, to what the conversation has used. Its cost is the one that the server reports,
    /// or else comes from the price of the model. Tells the user, once per session, if a limit cannot count it.
    /// `window` is the size of the window if the client's gauge is to show this request.
    pub(super) fn add_request(
        &self,
        history: &mut History,
        model: &dyn Model,
        served: &str,
        (counted, reported): ReportedUsage,
        window: Option<u64>,
    ) {
        let usage = counted.unwrap_or_default();
        let has_tokens = usage.total() > 0;
        let price = model.price().filter(|_| has_tokens);
        let cost = reported.or_else(|| Some(price?.cost(&usage)));
        history.cost = total_cost([history.cost, cost]);
        history.spent.requests += 1;
        history.spent.usage += usage;
        self.env.helpers.count_tokens(usage);
        self.log().record_usage(model.name(), served, usage, window, cost);
        for (is_known, resource, notice, words) in [
            (cost.is_some(), Resource::Cost, OnceNotice::UnknownCost, "cost"),
            (has_tokens, Resource::Tokens, OnceNotice::UnknownTokens, "number of tokens"),
        ] {
            let at = resource as usize;
            let limit = self.limits.turn[at].min(self.limits.session[at]);
            if !is_known && limit.is_finite() && self.told.first_time(notice) {
                let name = model.name();
                self.notify(format!(
                    "The {words} of {name}'s answers is not known, so a limit does not count them."
                ));
            }
        }
    }
}

/// The sum of the costs that are known.
fn total_cost(costs: [Option<f64>; 2]) -> Option<f64> {
    costs.into_iter().flatten().reduce(|one, other| one + other)
}

/// The amounts that were used up `elapsed` after the turn has begun.
#[expect(clippy::cast_precision_loss, reason = "no count needs 52 bits")]
fn amounts(spent: &Spending, cost: Option<f64>, elapsed: Duration) -> Amounts {
    let minutes = (spent.time + elapsed).as_secs_f64() / 60.0;
    [spent.requests as f64, spent.usage.total() as f64, cost.unwrap_or_default(), minutes]
}

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
        history.spent.requests += helpers.requests;
        history.spent.usage += helpers.usage;
        history.cost = total_cost([history.cost, state.cost.take()]);
        helpers.requests
    }
}

impl Turn {
    /// Brings together what the session and its helpers have used up by now.
    pub(super) fn share_spending(&mut self) -> Amounts {
        let elapsed = self.meter.elapsed();
        let shared = self.conversation.spending.clone();
        if self.is_helper() {
            let own = self.history.spent;
            let cost = self.history.cost;
            let (known, known_cost) = std::mem::replace(&mut self.meter.shared, (own, cost));
            let mut state = shared.0.lock();
            state.helpers.requests += own.requests - known.requests;
            state.helpers.usage += own.usage.since(&known.usage);
            let new_cost = cost.map(|cost| cost - known_cost.unwrap_or_default());
            state.cost = total_cost([state.cost, new_cost]);
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

    /// The first step of the turn. A session that has used up a limit makes no request any more.
    pub(super) fn first_step(&mut self) -> TurnStep {
        let now = self.share_spending();
        match self.meter.reached(now) {
            Some(limit) => {
                self.budget.ending = Some(limit);
                TurnStep::End(Ok(limit.stop_reason()))
            }
            None => TurnStep::Sample,
        }
    }

    /// Tells the user of limits that are nearly reached, and notes one that is.
    pub(super) fn check_limits(&mut self) {
        let now = self.share_spending();
        let notices = self.meter.take_notices(now);
        // The user is told about the spending of helpers when the turn of the session goes on.
        for notice in notices.into_iter().filter(|_| !self.is_helper()) {
            self.conversation.notify(notice);
        }
        self.budget.reached = self.meter.reached(now);
    }

    /// The step after calls, which may have taken long or have had helpers.
    pub(super) fn step_after_calls(&mut self) -> TurnStep {
        self.check_limits();
        match self.budget.reached {
            Some(limit) => TurnStep::Summarize(Vec::new(), limit),
            None => TurnStep::Sample,
        }
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
        let wanted = if self.is_helper() {
            REPORT
        } else if self.goal_status() == Some(&GoalStatus::Active) {
            LAST_WORDS
        } else {
            SUMMARY
        };
        self.push_context(format!("The {limit_text} is reached. No tool runs any more. {wanted}"));
        self.budget.ending = Some(limit);
        TurnStep::Sample
    }

    /// Makes the last request of a helper that goes round in circles. Its user is not asked.
    pub(super) fn ask_for_report(&mut self) -> TurnStep {
        self.push_context(format!(
            "You have done the same again and again. No tool runs any more. {REPORT}"
        ));
        let requests = u32::try_from(self.history.spent.requests).unwrap_or(u32::MAX);
        self.budget.ending = Some(ReachedLimit::turn_requests(requests));
        TurnStep::Sample
    }

    /// Tells the user what to do after a limit has ended the turn.
    pub(super) fn report_limit(&mut self) {
        // The end of a goal has its own words.
        if let Some(limit) = self.budget.ending
            && !self.is_helper()
            && !matches!(self.goal_status(), Some(GoalStatus::Ended(_)))
        {
            self.say(limit.advice());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::message::TokenUsage;

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
            assert_eq!(found.map(ReachedLimit::setting).as_deref(), reached, "{limits:?}");
        }
        let meter = SpendingMeter::new(with("turn_minutes", 5.0), &before);
        let later = amounts(&before.spent, before.cost, Duration::from_secs(300));
        assert!(meter.reached(later).is_some());
    }

    #[test]
    fn the_model_is_told_of_three_quarters_and_nine_tenths_once_each() {
        let mut limits = SpendingLimits::new(true);
        limits.set("turn_cost", 1.0);
        limits.set("turn_requests", 4.0);
        let before = history(10, 0, 2.0, 10);
        let mut meter = SpendingMeter::new(limits, &before);
        let three_quarters = "[Three quarters of the limit of $1.00 for one turn are used up: \
                              finish the main thing first.]";
        let nine_tenths = "[Nine tenths of the limit of $1.00 for one turn are used up: leave \
                           nothing half done, and say what is missing.]";
        for (cost, expected) in [
            (2.7, None),
            (2.8, Some(three_quarters)),
            (2.85, None),
            (2.95, Some(nine_tenths)),
            (2.97, None),
        ] {
            let now = history(14, 0, cost, 10);
            let now = amounts(&now.spent, now.cost, Duration::ZERO);
            assert_eq!(meter.take_hint(now).as_deref(), expected, "{cost}");
        }
        // In the next turn it was told before.
        let mut session = SpendingLimits::new(true);
        session.set("session_cost", 2.0);
        let mut later = SpendingMeter::new(session, &history(14, 0, 1.6, 10));
        let now = amounts(&before.spent, Some(1.7), Duration::ZERO);
        assert_eq!(later.take_hint(now), None);
    }

    #[test]
    fn only_the_limits_of_a_goal_are_named_after_it() {
        let mut limits = SpendingLimits::new(true);
        limits.set("turn_cost", 1.0);
        let mut meter = SpendingMeter::new(limits, &history(0, 0, 0.0, 0));
        meter.limit_goal(&[("tokens".to_owned(), 1000.0)]);
        for (tokens, cost, expected) in [(0, 1.0, "limits.turn_cost"), (1000, 0.0, "--budget")] {
            let used = history(0, tokens, cost, 0);
            let reached = meter.reached(amounts(&used.spent, used.cost, Duration::ZERO));
            assert_eq!(reached.map(ReachedLimit::setting).as_deref(), Some(expected));
        }
    }

    #[test]
    fn tokens_end_a_turn_with_a_reason_of_their_own() {
        let scope = LimitScope::Session;
        let limit = |resource, amount| ReachedLimit { resource, scope, amount };
        assert_eq!(limit(Resource::Tokens, 5.0).stop_reason(), StopReason::MaxTokens);
        let cost = limit(Resource::Cost, 2.5);
        assert_eq!(cost.stop_reason(), StopReason::MaxTurnRequests);
        assert!(cost.advice().starts_with("The limit of $2.50 for this session is reached. "));
    }
}
