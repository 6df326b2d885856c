//! Decides what a turn does after each answer of the model. Pure: no I/O and no clock. Each
//! situation that matters is a row in the tests.

use std::time::Duration;

use super::TurnStep;
use super::limits::ReachedLimit;
use crate::error::{Error, as_sentence, error_chain};
use crate::turn::answer::failures::Nudge;
use turnwright_llm::{EndReason, ErrorKind, LlmError, MAX_RETRY_WAIT};
use turnwright_store::ProofWord;
use turnwright_types::message::{StopReason, ToolCall};
use turnwright_types::work_settings::Verify;

/// Maximum number of retries of a request after a transient failure.
const MAX_RETRIES: u32 = 4;
/// Retries when the answer was empty or unreadable. With the last one the model is told so.
const MAX_FRAGILE_RETRIES: u32 = 2;
/// Retries when the stream broke before the user has seen anything of the answer.
const MAX_BROKEN_STREAMS: u32 = 3;
/// The longest wait for a server that restarts, loads its model, is overloaded or limits requests. Gateways restart in
/// 9 to 18 seconds.
const MAX_OUTAGE: Duration = Duration::from_secs(60);
/// The longest of these waits: the server may be back any moment.
const MAX_OUTAGE_WAIT: Duration = Duration::from_secs(8);
/// How often a model that reaches its output limit within a call is told to send less, until it has made a call.
const MAX_CUT_CALLS: u32 = 2;
/// How often a model that announces a call or writes it as text is asked for it, until it has made a call.
const MAX_NUDGES: u32 = 1;
/// How often the model is asked to continue one answer that the user has seen a part of.
const MAX_RESUMPTIONS: u32 = 3;
/// The interval at which the user is told how much of a wait is left.
const COUNTDOWN_INTERVAL: Duration = Duration::from_secs(10);

/// How many requests, retries and continuations a turn has left.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnBudget {
    requests: u32,
    pub(super) retries: u32,
    fragile_retries: u32,
    broken_streams: u32,
    /// The silence of failed requests since the model last sent something.
    pub(super) silence: Duration,
    /// How long the server was waited for since it last answered.
    outage: Duration,
    cuts: u32,
    resumptions: u32,
    nudges: u32,
    /// True if the model was already asked to go on after the answer has filled the window.
    has_made_room: bool,
    /// The most requests of the turn.
    max_requests: u32,
    /// Another limit that is reached by now.
    pub(super) reached: Option<ReachedLimit>,
    /// The limit because of which the model was asked for its last answer.
    pub(super) ending: Option<ReachedLimit>,
}

impl TurnBudget {
    pub(super) fn new(requests: u32) -> TurnBudget {
        // The first request is made without asking the budget.
        TurnBudget {
            requests: requests.saturating_sub(1),
            retries: MAX_RETRIES,
            fragile_retries: MAX_FRAGILE_RETRIES,
            broken_streams: MAX_BROKEN_STREAMS,
            cuts: MAX_CUT_CALLS,
            resumptions: MAX_RESUMPTIONS,
            nudges: MAX_NUDGES,
            max_requests: requests,
            ..TurnBudget::default()
        }
    }

    /// Returns true if the turn may make one more request.
    pub(super) fn has_request(&self) -> bool {
        self.reached.is_none() && self.requests > 0
    }

    /// Counts one more request.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn take_request(&mut self) -> Result<(), ReachedLimit> {
        match self.reached {
            Some(limit) => Err(limit),
            None if TurnBudget::take(&mut self.requests) => Ok(()),
            None => Err(ReachedLimit::turn_requests(self.max_requests)),
        }
    }

    /// Gives back what was taken for an answer, because it is complete.
    fn on_answer(&mut self) {
        self.retries = MAX_RETRIES;
        self.fragile_retries = MAX_FRAGILE_RETRIES;
        self.broken_streams = MAX_BROKEN_STREAMS;
        self.resumptions = MAX_RESUMPTIONS;
        self.outage = Duration::ZERO;
    }

    pub(super) fn take(count: &mut u32) -> bool {
        let left = *count > 0;
        *count = count.saturating_sub(1);
        left
    }
}

/// The outcome of one request to the model.
#[derive(Debug)]
pub(super) enum SampleOutcome {
    /// A complete answer.
    Reply {
        end: EndReason,
        calls: Vec<ToolCall>,
        /// True if the text contains a tool call or announces one, or one was lost, and the model is told so.
        has_leaked_call: bool,
        /// True if the answer has ended because the window is full.
        fills_window: bool,
    },
    /// The request failed, or the answer is incomplete.
    Failed {
        error: LlmError,
        /// The part of the answer that the user has seen: a plain retry would show it twice.
        shown: ShownSoFar,
    },
}

/// The part of a failed answer that the user has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownSoFar {
    Nothing,
    /// Reasoning, or cards of calls that have failed by now. The model gets none of it with the
    /// next request.
    ReasoningOrCards,
    /// Text of the answer, which is in the history.
    AnswerText,
}

/// Decides what to do after an answer or a failure. Calls that come back with [`TurnStep::End`] are
/// not run. `jitter` is between 0 and 1.
pub(super) fn after_sample(
    sampled: SampleOutcome,
    budget: &mut TurnBudget,
    jitter: f64,
) -> TurnStep {
    if let Some(limit) = budget.ending {
        return after_last_request(sampled, limit, budget, jitter);
    }
    match sampled {
        SampleOutcome::Failed { error, shown } => after_failure(error, shown, budget, jitter),
        SampleOutcome::Reply { end, calls, has_leaked_call, fills_window } => {
            budget.on_answer();
            let is_continued = std::mem::take(&mut budget.has_made_room);
            if end == EndReason::Complete && !calls.is_empty() {
                budget.cuts = MAX_CUT_CALLS;
                budget.nudges = MAX_NUDGES;
            }
            match end {
                EndReason::Refused(_) => TurnStep::End(Ok(StopReason::Refusal)),
                // Before the next request the conversation is compacted.
                EndReason::Length
                    if fills_window
                        && calls.is_empty()
                        && !is_continued
                        && budget.take_request().is_ok() =>
                {
                    budget.has_made_room = true;
                    let why = "The model's window is full. Making room and continuing from there.";
                    TurnStep::Continue(Duration::ZERO, why.to_owned(), Nudge::Full)
                }
                // The last call may be incomplete: none runs, but the model is told so.
                EndReason::Length if calls.is_empty() || !TurnBudget::take(&mut budget.cuts) => {
                    TurnStep::End(Ok(StopReason::MaxTokens))
                }
                EndReason::Complete
                    if has_leaked_call
                        && calls.is_empty()
                        && TurnBudget::take(&mut budget.nudges)
                        && budget.take_request().is_ok() =>
                {
                    let why = "A tool call was announced, written as text or lost. Asking for it.";
                    TurnStep::Continue(Duration::ZERO, why.to_owned(), Nudge::Leaked)
                }
                EndReason::Complete if calls.is_empty() => TurnStep::End(Ok(StopReason::EndTurn)),
                EndReason::Complete | EndReason::Length => match budget.take_request() {
                    Ok(()) => TurnStep::RunCalls(calls),
                    Err(limit) => TurnStep::Summarize(calls, limit),
                },
            }
        }
    }
}

/// Decides what to do after the answer to the last request of a turn. Whatever it is, it ends the turn
/// for the reason why it was the last.
fn after_last_request(
    sampled: SampleOutcome,
    limit: ReachedLimit,
    budget: &mut TurnBudget,
    jitter: f64,
) -> TurnStep {
    let end = TurnStep::End(Ok(limit.stop_reason()));
    match sampled {
        SampleOutcome::Reply { end: EndReason::Refused(_), .. } => {
            TurnStep::End(Ok(StopReason::Refusal))
        }
        SampleOutcome::Reply { .. } => end,
        SampleOutcome::Failed { error, shown } => {
            match after_failure(error, shown, budget, jitter) {
                TurnStep::End(_) => end,
                step => step,
            }
        }
    }
}

/// Decides what to do after a request has failed. `shown` is how much of its answer the user has seen.
pub(super) fn after_failure(
    error: LlmError,
    shown: ShownSoFar,
    budget: &mut TurnBudget,
    jitter: f64,
) -> TurnStep {
    match error.kind() {
        ErrorKind::Refused => return TurnStep::End(Ok(StopReason::Refusal)),
        ErrorKind::ContextOverflow { .. } => return TurnStep::End(Ok(StopReason::MaxTokens)),
        _ => {}
    }
    let wanted = error.retry_after();
    let is_too_long = wanted.is_some_and(|wait| wait > MAX_RETRY_WAIT);
    if is_too_long || !error.is_transient() {
        return TurnStep::End(Err(Error::Llm(error)));
    }
    let is_wordless =
        shown == ShownSoFar::ReasoningOrCards && matches!(error, LlmError::EmptyReply { .. });
    if is_wordless {
        // The model is told so at once.
        budget.fragile_retries = budget.fragile_retries.min(1);
    }
    let Some(usual) = usual_wait(&error, shown, budget) else {
        return TurnStep::End(Err(Error::Llm(error)));
    };
    let is_first_break = matches!(error, LlmError::Truncated { .. })
        && budget.broken_streams + 1 == MAX_BROKEN_STREAMS;
    // The first retry after an answer that was cut off or empty is not announced.
    let is_silent = error.is_reply_specific() || is_first_break;
    let usual = usual.mul_f64(0.8 + 0.4 * jitter);
    // A server that asks for a wait of zero is in trouble all the same.
    let delay = wanted.map_or(usual, |wanted| wanted.max(usual));
    let what = as_sentence(match &error {
        LlmError::Truncated { host } => format!("The answer from {host} broke off"),
        error => error_chain(error),
    });
    match shown {
        ShownSoFar::AnswerText => {
            TurnStep::Continue(delay, format!("{what} Continuing from there."), Nudge::Cut)
        }
        // The same request would often get the same answer.
        _ if error.is_reply_specific() && budget.fragile_retries == 0 => {
            let nudge = if is_wordless { Nudge::Wordless } else { Nudge::Unreadable };
            TurnStep::Continue(delay, format!("{what} Trying again."), nudge)
        }
        ShownSoFar::ReasoningOrCards => {
            TurnStep::Wait(delay, Some(format!("{what} Trying again.")))
        }
        ShownSoFar::Nothing if is_silent => TurnStep::Wait(delay, None),
        ShownSoFar::Nothing => {
            let seconds = delay.as_secs_f32().ceil();
            TurnStep::Wait(delay, Some(format!("{what} Trying again in {seconds:.0} s.")))
        }
    }
}

/// How long to wait before the model is asked again, unless the server has a wish. `None` if it was asked
/// often enough.
fn usual_wait(error: &LlmError, shown: ShownSoFar, budget: &mut TurnBudget) -> Option<Duration> {
    // First, because such an error may quote the model, in words that sound like another.
    if error.is_reply_specific() {
        return TurnBudget::take(&mut budget.fragile_retries).then_some(Duration::ZERO);
    }
    // Most limits are those of a minute, even where a server names a second. Each request may count.
    let is_short = error.retry_after().is_none_or(|wait| wait < MAX_OUTAGE / MAX_RETRIES);
    let is_limited = error.kind() == ErrorKind::RateLimit && is_short;
    if shown == ShownSoFar::Nothing && (error.is_outage() || is_limited) {
        let left = MAX_OUTAGE.saturating_sub(budget.outage);
        let longest = if is_limited { MAX_OUTAGE / 2 } else { MAX_OUTAGE_WAIT };
        let next = (budget.outage + Duration::from_millis(500)).min(longest);
        let wait = next.min(left);
        budget.outage += wait.max(error.retry_after().unwrap_or_default());
        return (!wait.is_zero()).then_some(wait);
    }
    let is_broken = matches!(error, LlmError::Truncated { .. });
    let (left, most) = match shown {
        ShownSoFar::Nothing if is_broken => (&mut budget.broken_streams, MAX_BROKEN_STREAMS),
        ShownSoFar::Nothing => (&mut budget.retries, MAX_RETRIES),
        ShownSoFar::ReasoningOrCards | ShownSoFar::AnswerText => {
            (&mut budget.resumptions, MAX_RESUMPTIONS)
        }
    };
    let attempt = most - *left;
    TurnBudget::take(left).then(|| Duration::from_millis(500 << attempt))
}

/// Returns how much of the wait will be left when the user is told the next time.
pub(super) fn next_countdown(left: Duration) -> Option<Duration> {
    // Not shortly before the end of the wait.
    let rounds =
        left.saturating_sub(COUNTDOWN_INTERVAL / 2).as_secs() / COUNTDOWN_INTERVAL.as_secs();
    (rounds > 0).then(|| Duration::from_secs(rounds * COUNTDOWN_INTERVAL.as_secs()))
}

/// The facts that decide if a turn may end whose model says that it is done.
#[derive(Clone, Debug)]
pub(super) struct ClosingFacts {
    pub(super) verify: Verify,
    pub(super) work: WorkDone,
    pub(super) proof: ProofWord,
    /// The steps of the plan that are not completed.
    pub(super) open_steps: usize,
    /// True if a check of the project is known that has not run since the last change.
    pub(super) has_unrun_check: bool,
    /// True if the model is a small one.
    pub(super) is_small: bool,
    /// True if the turn may end in any case: in plan mode, if the user has said something, if the answer is a question,
    /// or if the model was asked already or cannot be asked.
    pub(super) is_excused: bool,
}

/// The work of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkDone {
    /// No tool was called.
    OnlyWords,
    /// Tools were called, but nothing has changed.
    Nothing,
    OnlyPlan,
    /// It has changed files.
    Files,
}

/// Decides if the model is asked to prove its work, or to begin with it, before the turn ends.
pub(super) fn must_prove(facts: &ClosingFacts) -> bool {
    let is_strict = facts.verify == Verify::Always;
    let is_open = facts.open_steps > 0;
    let is_due = match facts.work {
        WorkDone::Files => {
            facts.proof != ProofWord::Green && (is_strict || is_open || facts.has_unrun_check)
        }
        WorkDone::OnlyPlan => is_open && (is_strict || facts.is_small),
        // Small models tell the user how it is done, instead of doing it.
        WorkDone::OnlyWords => is_strict && facts.is_small,
        WorkDone::Nothing => false,
    };
    is_due && !facts.is_excused && facts.verify != Verify::Off
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_llm::ConnectionFault;

    fn reply(end: EndReason, calls: usize) -> SampleOutcome {
        let call = |number: usize| {
            ToolCall::new(
                format!("call-{number}"),
                String::new(),
                "read_file",
                serde_json::Value::Null,
            )
        };
        let calls = (0..calls).map(call).collect();
        SampleOutcome::Reply { end, calls, has_leaked_call: false, fills_window: false }
    }

    fn status(status: u16, retry_after: Option<u64>) -> SampleOutcome {
        let error = LlmError::Status {
            host: "h".into(),
            status,
            proxy: None,
            message: "m".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
            kind: match status {
                400 => ErrorKind::BadRequest,
                401 => ErrorKind::Auth,
                402 => ErrorKind::Quota,
                429 => ErrorKind::RateLimit,
                _ => ErrorKind::Unavailable,
            },
            key_advice: None,
            failed_generation: None,
        };
        SampleOutcome::Failed { error, shown: ShownSoFar::Nothing }
    }

    fn reported(kind: ErrorKind, shown: ShownSoFar) -> SampleOutcome {
        let error = LlmError::in_stream("h".to_owned(), "m".to_owned(), kind);
        SampleOutcome::Failed { error, shown }
    }

    fn cut(shown: ShownSoFar) -> SampleOutcome {
        SampleOutcome::Failed { error: LlmError::Truncated { host: "h".to_owned() }, shown }
    }

    fn name(step: &TurnStep) -> String {
        match step {
            TurnStep::MakeRoom(..) => "make room".to_owned(),
            TurnStep::Sample => "sample".to_owned(),
            TurnStep::RunCalls(calls) => format!("act {}", calls.len()),
            TurnStep::Wait(delay, _) => format!("pause {delay:?}"),
            TurnStep::Continue(delay, ..) => format!("continue {delay:?}"),
            TurnStep::Summarize(calls, limit) => {
                format!("{} calls, {:?}", calls.len(), limit.stop_reason())
            }
            TurnStep::End(Ok(reason)) => format!("{reason:?}"),
            TurnStep::End(Err(error)) => format!("error {error}"),
        }
    }

    fn next(sampled: SampleOutcome, budget: &mut TurnBudget) -> String {
        name(&after_sample(sampled, budget, 0.5))
    }

    #[test]
    fn calls_are_run_until_the_request_limit() {
        let mut budget = TurnBudget::new(3);
        assert_eq!(next(reply(EndReason::Complete, 0), &mut budget), "EndTurn");
        assert_eq!(next(reply(EndReason::Complete, 2), &mut budget), "act 2");
        assert_eq!(next(reply(EndReason::Complete, 1), &mut budget), "act 1");
        let last = next(reply(EndReason::Complete, 1), &mut budget);
        assert_eq!(last, "1 calls, MaxTurnRequests");
        assert_eq!(next(reply(EndReason::Refused(String::new()), 1), &mut budget), "Refusal");
        assert_eq!(next(reply(EndReason::Length, 0), &mut budget), "MaxTokens");
    }

    #[test]
    fn after_the_last_request_the_turn_ends_whatever_comes_back() {
        let limit = ReachedLimit::turn_requests(1);
        for (sampled, expected) in [
            (reply(EndReason::Complete, 2), "MaxTurnRequests"),
            (reply(EndReason::Complete, 0), "MaxTurnRequests"),
            (reply(EndReason::Length, 0), "MaxTurnRequests"),
            (reply(EndReason::Refused(String::new()), 0), "Refusal"),
            (status(400, None), "MaxTurnRequests"),
            (status(503, None), "pause 500ms"),
        ] {
            let mut budget = TurnBudget { ending: Some(limit), ..TurnBudget::new(1) };
            assert_eq!(next(sampled, &mut budget), expected);
        }
    }

    #[test]
    fn a_call_written_as_text_is_asked_for_once_more() {
        let mut budget = TurnBudget::new(10);
        let leaked_reply = || SampleOutcome::Reply {
            end: EndReason::Complete,
            calls: vec![],
            has_leaked_call: true,
            fills_window: false,
        };
        for _ in 0..2 {
            assert!(next(leaked_reply(), &mut budget).starts_with("continue"));
            assert_eq!(next(reply(EndReason::Complete, 1), &mut budget), "act 1");
        }
        assert!(next(leaked_reply(), &mut budget).starts_with("continue"));
        assert_eq!(next(leaked_reply(), &mut budget), "EndTurn");
    }

    #[test]
    fn an_answer_that_fills_the_window_goes_on_once() {
        let full = |end| SampleOutcome::Reply {
            end,
            calls: vec![],
            has_leaked_call: false,
            fills_window: true,
        };
        let mut budget = TurnBudget::new(4);
        for (end, expected) in [
            (EndReason::Length, "continue 0ns"),
            (EndReason::Length, "MaxTokens"),
            (EndReason::Length, "continue 0ns"),
            (EndReason::Complete, "EndTurn"),
            (EndReason::Length, "continue 0ns"),
            (EndReason::Refused(String::new()), "Refusal"),
            (EndReason::Length, "MaxTokens"),
        ] {
            assert_eq!(next(full(end), &mut budget), expected);
        }
    }

    #[test]
    fn a_model_that_cuts_its_calls_is_told_twice_in_a_row() {
        let mut budget = TurnBudget::new(100);
        for _ in 0..3 {
            assert_eq!(next(reply(EndReason::Length, 1), &mut budget), "act 1");
            assert_eq!(next(reply(EndReason::Complete, 1), &mut budget), "act 1");
        }
        assert_eq!(next(reply(EndReason::Length, 1), &mut budget), "act 1");
        assert_eq!(next(reply(EndReason::Length, 1), &mut budget), "act 1");
        assert_eq!(next(reply(EndReason::Length, 1), &mut budget), "MaxTokens");
    }

    #[test]
    fn waiting_grows_and_ends() {
        let mut budget = TurnBudget::new(100);
        for expected in ["pause 500ms", "pause 1s", "pause 2s", "pause 4s"] {
            assert_eq!(next(status(503, None), &mut budget), expected);
        }
        let end = next(status(503, None), &mut budget);
        assert!(end.starts_with("error h answered 503: m. Prompt again later"), "{end}");
    }

    #[test]
    fn every_failure_of_the_server_is_tried_again() {
        for code in [500, 502, 503, 504, 520, 522, 524, 529] {
            let step = next(status(code, None), &mut TurnBudget::new(100));
            assert_eq!(step, "pause 500ms", "{code}");
        }
    }

    #[test]
    fn a_good_answer_gives_the_attempts_back() {
        let mut budget = TurnBudget::new(100);
        next(status(503, None), &mut budget);
        next(reply(EndReason::Complete, 1), &mut budget);
        assert_eq!(next(status(503, None), &mut budget), "pause 500ms");
    }

    #[test]
    fn the_provider_may_say_how_long_but_not_for_ever() {
        let mut budget = TurnBudget::new(100);
        assert_eq!(next(status(429, Some(7)), &mut budget), "pause 7s");
        let too_long = next(status(429, Some(61)), &mut budget);
        assert_eq!(too_long, "error h answered 429: m. Prompt again in 2 min");
    }

    #[test]
    fn a_server_that_says_zero_is_not_hammered() {
        let mut budget = TurnBudget::new(100);
        for expected in ["pause 500ms", "pause 1s", "pause 2s", "pause 4s"] {
            assert_eq!(next(status(429, Some(0)), &mut budget), expected);
        }
    }

    #[test]
    fn a_cut_answer_does_not_use_up_the_attempts_of_a_busy_server() {
        let mut budget = TurnBudget::new(100);
        next(cut(ShownSoFar::Nothing), &mut budget);
        for expected in ["pause 500ms", "pause 1s", "pause 2s", "pause 4s"] {
            assert_eq!(next(status(503, None), &mut budget), expected);
        }
    }

    #[test]
    fn an_unseen_cut_answer_is_retried_three_times_and_announced_from_the_second_on() {
        let mut budget = TurnBudget::new(100);
        for (expected, is_told) in [(500, false), (1_000, true), (2_000, true)] {
            let step = after_sample(cut(ShownSoFar::Nothing), &mut budget, 0.5);
            let TurnStep::Wait(delay, why) = step else { panic!("{}", name(&step)) };
            assert_eq!((delay, why.is_some()), (Duration::from_millis(expected), is_told));
        }
        assert!(next(cut(ShownSoFar::Nothing), &mut budget).starts_with("error"));
    }

    #[test]
    fn a_seen_answer_is_continued_three_times() {
        let mut budget = TurnBudget::new(100);
        for _ in 0..2 {
            assert_eq!(next(cut(ShownSoFar::AnswerText), &mut budget), "continue 500ms");
            assert_eq!(next(cut(ShownSoFar::ReasoningOrCards), &mut budget), "pause 1s");
            assert_eq!(next(cut(ShownSoFar::AnswerText), &mut budget), "continue 2s");
            assert!(next(cut(ShownSoFar::AnswerText), &mut budget).starts_with("error"));
            next(reply(EndReason::Complete, 1), &mut budget);
        }
    }

    fn unreachable(fault: ConnectionFault, has_answered: bool) -> SampleOutcome {
        let error = LlmError::Connect { host: "h".to_owned(), fault, proxy: None, has_answered };
        SampleOutcome::Failed { error, shown: ShownSoFar::Nothing }
    }

    #[test]
    fn a_server_that_has_answered_is_waited_for_up_to_a_minute() {
        let mut budget = TurnBudget::new(100);
        for round in 0..2 {
            let mut waits = Vec::new();
            while let TurnStep::Wait(delay, Some(why)) =
                after_sample(unreachable(ConnectionFault::Refused, true), &mut budget, 0.5)
            {
                assert!(why.contains("Nothing answers at h"), "{why}");
                waits.push(delay.as_secs_f32());
            }
            assert_eq!(waits, [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 4.5], "{round}");
            next(reply(EndReason::Complete, 1), &mut budget);
        }
        for (fault, has_answered) in
            [(ConnectionFault::Refused, false), (ConnectionFault::Tls("wrong".to_owned()), true)]
        {
            let mut budget = TurnBudget::new(100);
            for _ in 0..4 {
                assert!(
                    next(unreachable(fault.clone(), has_answered), &mut budget)
                        .starts_with("pause")
                );
            }
            assert!(next(unreachable(fault, has_answered), &mut budget).starts_with("error"));
        }
    }

    /// The waits until the turn ends, in milliseconds, if each answer is this one.
    fn waits(status: u16, kind: ErrorKind, said: &str, retry_after: Option<u64>) -> Vec<u128> {
        let error = LlmError::Status {
            host: "h".into(),
            status,
            proxy: None,
            message: said.to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
            kind,
            key_advice: None,
            failed_generation: None,
        };
        let mut budget = TurnBudget::new(100);
        let mut waits = Vec::new();
        while let TurnStep::Wait(delay, _) =
            after_failure(error.clone(), ShownSoFar::Nothing, &mut budget, 0.5)
        {
            waits.push(delay.as_millis());
        }
        waits
    }

    #[test]
    fn a_server_that_loads_its_model_is_waited_for_up_to_a_minute() {
        for (status, said, expected) in [
            (503, "Loading model", 60_000),
            (503, "Model m is currently loading", 60_000),
            (503, "The upstream does not answer", 7_500),
            (500, "Error loading plugin", 7_500),
        ] {
            let waited = waits(status, ErrorKind::Unavailable, said, None).iter().sum::<u128>();
            assert_eq!(waited, expected, "{said}");
        }
        let named = waits(503, ErrorKind::Unavailable, "Loading model", Some(20));
        assert_eq!(named, [20_000, 20_000, 20_000]);
    }

    /// Anthropic, Gemini, OpenAI and Groq.
    #[test]
    fn an_overloaded_server_is_waited_for_up_to_a_minute() {
        for (status, said) in [
            (529, "Please wait"),
            (500, "Overloaded"),
            (503, "The model is overloaded. Please try again later."),
            (503, "This model is currently experiencing high demand."),
            (503, "m is currently over capacity. Please try again and back off exponentially."),
        ] {
            let waited = waits(status, ErrorKind::Unavailable, said, None).iter().sum::<u128>();
            assert_eq!(waited, 60_000, "{said}");
        }
        let waited = waits(429, ErrorKind::Quota, "overloaded", None);
        assert_eq!(waited, [0; 0]);
        let quoted = "error parsing tool call: raw='fn overload('";
        assert_eq!(waits(500, ErrorKind::Unavailable, quoted, None), [0]);
    }

    #[test]
    fn the_end_of_a_minute_is_waited_for_if_a_server_does_not_say_when_its_limit_ends() {
        let found = waits(429, ErrorKind::RateLimit, "Too Many Requests", None);
        assert_eq!(found, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 28_500]);
    }

    /// Moonshot names a second, whatever its limit.
    #[test]
    fn the_end_of_a_minute_is_waited_for_if_a_server_names_a_short_time_again_and_again() {
        let waited = |seconds| waits(429, ErrorKind::RateLimit, "RPM: 3", Some(seconds));
        assert_eq!(waited(1), [1_000, 1_500, 3_000, 6_000, 12_000, 24_000, 12_500]);
        assert_eq!(waited(15), [15_000; 4]);
        assert_eq!(waited(60), [60_000; 4]);
    }

    #[test]
    fn reasoning_without_an_answer_is_asked_for_once_more_and_the_user_is_told() {
        let mut budget = TurnBudget::new(100);
        let empty = || SampleOutcome::Failed {
            error: LlmError::EmptyReply { host: "h".to_owned(), what: "reasoning".to_owned() },
            shown: ShownSoFar::ReasoningOrCards,
        };
        let TurnStep::Continue(Duration::ZERO, why, Nudge::Wordless) =
            after_sample(empty(), &mut budget, 0.5)
        else {
            panic!("not asked again");
        };
        assert_eq!(why, "h sent reasoning. Trying again.");
        assert!(next(empty(), &mut budget).starts_with("error"));
    }

    #[test]
    fn an_answer_is_continued_after_a_transient_error() {
        for (kind, expected) in [
            (ErrorKind::Unavailable, "continue 500ms"),
            (ErrorKind::RateLimit, "continue 500ms"),
            (ErrorKind::Quota, "error"),
            (ErrorKind::BadRequest, "error"),
            (ErrorKind::Auth, "error"),
        ] {
            let step = next(reported(kind, ShownSoFar::AnswerText), &mut TurnBudget::new(100));
            assert!(step.starts_with(expected), "{kind:?}: {step}");
        }
    }

    #[test]
    fn a_refusal_and_a_full_window_are_no_errors() {
        for shown in [ShownSoFar::Nothing, ShownSoFar::ReasoningOrCards, ShownSoFar::AnswerText] {
            let mut budget = TurnBudget::new(100);
            assert_eq!(next(reported(ErrorKind::Refused, shown), &mut budget), "Refusal");
            let overflow = ErrorKind::ContextOverflow { limit: None, used: None };
            assert_eq!(next(reported(overflow, shown), &mut budget), "MaxTokens");
        }
    }

    #[test]
    fn a_long_wait_is_counted_down_in_tens() {
        let first = [(1, None), (10, None), (14, None), (15, Some(10)), (20, Some(10))];
        let table = first.into_iter().chain([(34, Some(20)), (60, Some(50))]);
        for (left, expected) in table {
            let next = next_countdown(Duration::from_secs(left));
            assert_eq!(next, expected.map(Duration::from_secs), "{left}");
        }
    }

    #[test]
    fn the_model_is_asked_for_a_proof_only_where_one_is_due() {
        use ProofWord::{Green, None as Nothing, Red, Thin};
        use Verify::{Always, Auto, Off};
        let files = WorkDone::Files;
        let plan = WorkDone::OnlyPlan;
        let words = WorkDone::OnlyWords;
        // The setting, the work, its proof, the open steps, a known check that was not run, a small model.
        let table = [
            (Off, files, Nothing, 2, true, true, false),
            (Off, plan, Nothing, 2, true, true, false),
            (Always, files, Nothing, 0, false, false, true),
            (Always, files, Thin, 0, false, false, true),
            (Always, files, Red, 0, false, false, true),
            (Always, files, Green, 2, true, true, false),
            (Auto, files, Nothing, 0, false, true, false),
            (Auto, files, Thin, 0, false, false, false),
            (Auto, files, Red, 0, false, false, false),
            (Auto, files, Nothing, 1, false, false, true),
            (Auto, files, Thin, 0, true, false, true),
            (Auto, files, Red, 0, true, false, true),
            (Auto, files, Green, 2, true, false, false),
            (Always, plan, Nothing, 1, false, false, true),
            (Always, plan, Nothing, 0, true, false, false),
            (Auto, plan, Nothing, 1, true, false, false),
            (Auto, plan, Nothing, 1, false, true, true),
            (Always, words, Nothing, 0, false, true, true),
            (Always, words, Nothing, 0, true, false, false),
            (Auto, words, Nothing, 0, true, true, false),
            (Always, WorkDone::Nothing, Nothing, 2, true, true, false),
        ];
        for row in table {
            let (verify, work, proof, open_steps, has_unrun_check, is_small, expected) = row;
            let mut facts = ClosingFacts {
                verify,
                work,
                proof,
                open_steps,
                has_unrun_check,
                is_small,
                is_excused: false,
            };
            assert_eq!(must_prove(&facts), expected, "{row:?}");
            facts.is_excused = true;
            assert!(!must_prove(&facts), "{row:?}");
        }
    }
}
