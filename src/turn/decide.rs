//! What next? No I/O, no clock: each situation that matters is a row in the test table.

use std::time::Duration;

use super::Step;
use super::trouble::Nudge;
use crate::error::{Error, chain};
use turnwright_llm::{End, Kind, LONGEST_WAIT, LlmError};
use turnwright_types::message::{Arguments, Stop, ToolCall};

/// Attempts after the first, for one request.
const RETRIES: u32 = 4;
/// Attempts after the first, when the answer was cut or empty: one that is so twice will be so
/// a third time.
const FRAGILE_RETRIES: u32 = 1;
/// How often a model that runs into its output limit within a call is told to send less.
const CUTS: u32 = 2;
/// How often in a turn an answer that the user has seen a part of is asked for again. Of one
/// answer it is once.
const RESUMPTIONS: u32 = 2;
/// How often in a row the same calls may be made by a model that is known to go round in circles
/// (quirk C.1 #28b), if they only read: the result is the same again.
const SAME_READS: u32 = 2;
/// If not: a command may wait for something.
const SAME_CALLS: u32 = 10;

/// How often in a row the same calls may be made.
pub(super) fn most_same(is_watched: bool, reads: bool) -> u32 {
    match (is_watched, reads) {
        (false, _) => u32::MAX,
        (true, true) => SAME_READS,
        (true, false) => SAME_CALLS,
    }
}

/// How often the model is told so before the turn ends.
const SPARED: u32 = 2;
/// What it is told.
pub(super) const SAME_AGAIN: &str = "Not executed: you have just made exactly this call, and its \
                                     result stands above. Use it, do something else, or say what \
                                     is missing.";
/// How often the user is told how much of a wait is left.
const COUNTDOWN: Duration = Duration::from_secs(10);

/// What a turn may still do.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    requests: u32,
    retries: u32,
    fragile_retries: u32,
    cuts: u32,
    resumptions: u32,
    nudges: u32,
    /// The calls of the last answer, and how often they were made in a row.
    last_calls: Vec<(String, Arguments)>,
    times: u32,
    /// Whether the answer that is due has been asked for again after a part of it was shown.
    is_resumed: bool,
}

impl Budget {
    pub(super) fn new(requests: u32) -> Budget {
        // The first request is being made.
        Budget {
            requests: requests.saturating_sub(1),
            retries: RETRIES,
            fragile_retries: FRAGILE_RETRIES,
            cuts: CUTS,
            resumptions: RESUMPTIONS,
            nudges: 1,
            last_calls: Vec::new(),
            times: 0,
            is_resumed: false,
        }
    }

    /// Counts answers with the same calls in a row.
    fn repeats(&mut self, calls: &[ToolCall], most: u32) -> Repeats {
        let same = |it: &ToolCall, (name, arguments): &(String, Arguments)| {
            it.name == *name && it.arguments == *arguments
        };
        let is_same = calls.len() == self.last_calls.len()
            && calls.iter().zip(&self.last_calls).all(|(it, last)| same(it, last));
        if !is_same {
            let pair = |it: &ToolCall| (it.name.clone(), it.arguments.clone());
            self.last_calls = calls.iter().map(pair).collect();
            self.times = 0;
        }
        self.times += 1;
        match self.times {
            times if times <= most => Repeats::Fine,
            times if times <= most.saturating_add(SPARED) => Repeats::TooOften,
            _ => Repeats::Hopeless,
        }
    }

    fn take(count: &mut u32) -> bool {
        let left = *count > 0;
        *count = count.saturating_sub(1);
        left
    }
}

/// Whether calls may be made once more.
enum Repeats {
    Fine,
    TooOften,
    Hopeless,
}

/// What came of asking the model.
#[derive(Debug)]
pub(super) enum Sampled {
    /// A whole answer.
    Reply {
        end: End,
        calls: Vec<ToolCall>,
        /// How often in a row the same calls may be made.
        most_same: u32,
        /// Whether a call stands in its words, for a model that is to be told so.
        leaked: bool,
    },
    /// None, or not a whole one.
    Failed {
        error: LlmError,
        /// What the user has seen of it. Asking again as if nothing had been would show it twice.
        shown: Shown,
    },
}

/// What the user has seen of an answer that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    /// Reasoning, or cards of calls that have failed now: nothing of which the model is told.
    Traces,
    /// Words of the answer, which stand in the history.
    Words,
}

/// What the answer obliges the turn to do. Calls that come back with [`Step::End`] are not run.
pub(super) fn after_sample(sampled: Sampled, budget: &mut Budget, luck: f64) -> Step {
    match sampled {
        Sampled::Failed { error, shown } => after_failure(error, shown, budget, luck),
        Sampled::Reply { end, calls, most_same, leaked } => {
            budget.retries = RETRIES;
            budget.fragile_retries = FRAGILE_RETRIES;
            budget.is_resumed = false;
            match end {
                End::Refused(_) => Step::End(Ok(Stop::Refusal)),
                // The last call may be half a call: none runs, but the model is told so.
                End::Length if calls.is_empty() || !Budget::take(&mut budget.cuts) => {
                    Step::End(Ok(Stop::MaxTokens))
                }
                End::Complete
                    if leaked
                        && calls.is_empty()
                        && Budget::take(&mut budget.nudges)
                        && Budget::take(&mut budget.requests) =>
                {
                    let why = "The model wrote a tool call as text. Asking for a real one.";
                    Step::Continue(Duration::ZERO, why.to_owned(), Nudge::Leaked)
                }
                End::Complete if calls.is_empty() => Step::End(Ok(Stop::EndTurn)),
                End::Complete | End::Length if !Budget::take(&mut budget.requests) => {
                    Step::End(Ok(Stop::MaxTurnRequests))
                }
                End::Complete | End::Length => match budget.repeats(&calls, most_same) {
                    Repeats::Fine => Step::Act(calls),
                    Repeats::TooOften => Step::Spare(calls),
                    Repeats::Hopeless => Step::End(Err(Error::Stuck)),
                },
            }
        }
    }
}

fn after_failure(error: LlmError, shown: Shown, budget: &mut Budget, luck: f64) -> Step {
    match error.kind() {
        Kind::Refused => return Step::End(Ok(Stop::Refusal)),
        Kind::Overflow { .. } => return Step::End(Ok(Stop::MaxTokens)),
        _ => {}
    }
    let fragile = error.is_fragile();
    let attempt = RETRIES - budget.retries;
    let wanted = error.retry_after();
    let is_too_long = wanted.is_some_and(|it| it > LONGEST_WAIT);
    if is_too_long || !error.is_transient() || !may_ask_again(shown, fragile, budget) {
        return Step::End(Err(Error::Llm(error)));
    }
    let usual = Duration::from_millis(500 * (1 << attempt)).mul_f64(0.8 + 0.4 * luck);
    let delay = match wanted {
        // A server that says zero is in trouble all the same.
        Some(wanted) => wanted.max(usual),
        None if fragile => Duration::ZERO,
        None => usual,
    };
    let what = match &error {
        LlmError::Truncated { host } => format!("The answer from {host} broke off"),
        error => chain(error).trim_end_matches('.').to_owned(),
    };
    match shown {
        Shown::Words => {
            Step::Continue(delay, format!("{what}. Going on where it stopped."), Nudge::Cut)
        }
        Shown::Traces => Step::Pause(delay, Some(format!("{what}. Asking once more."))),
        // One that was cut or empty is asked for once more without a word.
        Shown::Nothing if fragile => Step::Pause(delay, None),
        Shown::Nothing => {
            let seconds = delay.as_secs_f32().ceil();
            Step::Pause(delay, Some(format!("{what}. Trying again in {seconds:.0} s.")))
        }
    }
}

fn may_ask_again(shown: Shown, fragile: bool, budget: &mut Budget) -> bool {
    match shown {
        Shown::Nothing if fragile => Budget::take(&mut budget.fragile_retries),
        Shown::Nothing => Budget::take(&mut budget.retries),
        Shown::Traces | Shown::Words => {
            let is_first = !std::mem::replace(&mut budget.is_resumed, true);
            is_first && Budget::take(&mut budget.resumptions)
        }
    }
}

/// With so much of a wait left, how much of it will be left when the user is told the next time.
pub(super) fn next_word(left: Duration) -> Option<Duration> {
    // Not right behind the last word.
    let rounds = left.saturating_sub(COUNTDOWN / 2).as_secs() / COUNTDOWN.as_secs();
    (rounds > 0).then(|| Duration::from_secs(rounds * COUNTDOWN.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(end: End, calls: usize) -> Sampled {
        let call = |number: usize| ToolCall {
            id: format!("call-{number}").into(),
            provider_id: String::new(),
            name: "read_file".to_owned(),
            arguments: Arguments::Object(serde_json::Value::Null),
            extra: None,
        };
        let calls = (0..calls).map(call).collect();
        Sampled::Reply { end, calls, most_same: u32::MAX, leaked: false }
    }

    fn status(status: u16, retry_after: Option<u64>) -> Sampled {
        let error = LlmError::Status {
            host: "h".to_owned(),
            status,
            message: "m".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
            kind: match status {
                400 => Kind::BadRequest,
                401 => Kind::Auth,
                402 => Kind::Quota,
                429 => Kind::RateLimit,
                _ => Kind::Unavailable,
            },
            leaked: None,
        };
        Sampled::Failed { error, shown: Shown::Nothing }
    }

    fn reported(kind: Kind, shown: Shown) -> Sampled {
        let (host, message) = ("h".to_owned(), "m".to_owned());
        let error = LlmError::InStream { host, message, status: None, retry_after: None, kind };
        Sampled::Failed { error, shown }
    }

    fn cut(shown: Shown) -> Sampled {
        Sampled::Failed { error: LlmError::Truncated { host: "h".to_owned() }, shown }
    }

    fn name(step: &Step) -> String {
        match step {
            Step::Sample => "sample".to_owned(),
            Step::Act(calls) => format!("act {}", calls.len()),
            Step::Spare(calls) => format!("spare {}", calls.len()),
            Step::Pause(delay, _) => format!("pause {delay:?}"),
            Step::Continue(delay, ..) => format!("continue {delay:?}"),
            Step::End(Ok(reason)) => format!("{reason:?}"),
            Step::End(Err(error)) => format!("error {error}"),
        }
    }

    fn next(sampled: Sampled, budget: &mut Budget) -> String {
        name(&after_sample(sampled, budget, 0.5))
    }

    #[test]
    fn calls_decide_whether_tools_run_and_the_limits_whether_it_goes_on() {
        let mut budget = Budget::new(3);
        assert_eq!(next(reply(End::Complete, 0), &mut budget), "EndTurn");
        assert_eq!(next(reply(End::Complete, 2), &mut budget), "act 2");
        assert_eq!(next(reply(End::Complete, 1), &mut budget), "act 1");
        assert_eq!(next(reply(End::Complete, 1), &mut budget), "MaxTurnRequests");
        assert_eq!(next(reply(End::Refused(String::new()), 1), &mut budget), "Refusal");
        assert_eq!(next(reply(End::Length, 0), &mut budget), "MaxTokens");
    }

    #[test]
    fn a_call_in_the_words_is_asked_for_once_more() {
        let mut budget = Budget::new(10);
        let leaked =
            || Sampled::Reply { end: End::Complete, calls: vec![], most_same: 2, leaked: true };
        assert!(next(leaked(), &mut budget).starts_with("continue"));
        assert_eq!(next(leaked(), &mut budget), "EndTurn");
    }

    /// C.1 #28b.
    #[test]
    fn the_same_calls_are_not_made_for_ever() {
        let steps = |most_same: u32| {
            let mut budget = Budget::new(100);
            let mut steps = String::new();
            while steps.len() < 14 && !steps.ends_with('e') {
                let Sampled::Reply { end, calls, .. } = reply(End::Complete, 1) else { break };
                let sampled = Sampled::Reply { end, calls, most_same, leaked: false };
                steps.push(match after_sample(sampled, &mut budget, 0.5) {
                    Step::Act(_) => 'a',
                    Step::Spare(_) => 's',
                    _ => 'e',
                });
            }
            steps
        };
        assert_eq!(steps(most_same(true, true)), "aasse");
        assert_eq!(steps(most_same(true, false)), "aaaaaaaaaasse");
        assert_eq!(steps(most_same(false, true)), "aaaaaaaaaaaaaa");
    }

    #[test]
    fn a_model_that_cuts_its_calls_is_told_twice() {
        let mut budget = Budget::new(100);
        assert_eq!(next(reply(End::Length, 1), &mut budget), "act 1");
        assert_eq!(next(reply(End::Length, 1), &mut budget), "act 1");
        assert_eq!(next(reply(End::Length, 1), &mut budget), "MaxTokens");
    }

    #[test]
    fn waiting_grows_and_ends() {
        let mut budget = Budget::new(100);
        for expected in ["pause 500ms", "pause 1s", "pause 2s", "pause 4s"] {
            assert_eq!(next(status(503, None), &mut budget), expected);
        }
        assert_eq!(next(status(503, None), &mut budget), "error h answered 503: m");
    }

    #[test]
    fn every_failure_of_the_server_is_tried_again() {
        for code in [500, 502, 503, 504, 520, 522, 524, 529] {
            let step = next(status(code, None), &mut Budget::new(100));
            assert_eq!(step, "pause 500ms", "{code}");
        }
    }

    #[test]
    fn a_good_answer_gives_the_attempts_back() {
        let mut budget = Budget::new(100);
        next(status(503, None), &mut budget);
        next(reply(End::Complete, 1), &mut budget);
        assert_eq!(next(status(503, None), &mut budget), "pause 500ms");
    }

    #[test]
    fn the_provider_may_say_how_long_but_not_for_ever() {
        let mut budget = Budget::new(100);
        assert_eq!(next(status(429, Some(7)), &mut budget), "pause 7s");
        let too_long = next(status(429, Some(61)), &mut budget);
        assert_eq!(too_long, "error h answered 429: m. Prompt again in 2 min");
    }

    #[test]
    fn a_server_that_says_zero_is_not_hammered() {
        let mut budget = Budget::new(100);
        for expected in ["pause 500ms", "pause 1s", "pause 2s", "pause 4s"] {
            assert_eq!(next(status(429, Some(0)), &mut budget), expected);
        }
    }

    #[test]
    fn what_will_not_change_is_not_tried_again() {
        let mut budget = Budget::new(100);
        assert!(next(status(400, None), &mut budget).starts_with("error"));
        assert!(next(status(401, None), &mut budget).starts_with("error"));
        assert!(next(status(402, Some(1)), &mut budget).starts_with("error"));
    }

    #[test]
    fn a_cut_answer_does_not_use_up_the_attempts_of_a_busy_server() {
        let mut budget = Budget::new(100);
        next(cut(Shown::Nothing), &mut budget);
        for expected in ["pause 500ms", "pause 1s", "pause 2s", "pause 4s"] {
            assert_eq!(next(status(503, None), &mut budget), expected);
        }
    }

    #[test]
    fn what_broke_off_unseen_is_asked_for_once_more_in_silence() {
        let mut budget = Budget::new(100);
        let step = after_sample(cut(Shown::Nothing), &mut budget, 0.5);
        assert!(matches!(step, Step::Pause(Duration::ZERO, None)));
        assert!(next(cut(Shown::Nothing), &mut budget).starts_with("error"));
    }

    #[test]
    fn what_the_user_has_seen_is_gone_on_with_once_an_answer_and_twice_a_turn() {
        let mut budget = Budget::new(100);
        for _ in 0..2 {
            assert_eq!(next(cut(Shown::Words), &mut budget), "continue 0ns");
            assert!(next(cut(Shown::Words), &mut budget).starts_with("error"));
            assert!(next(cut(Shown::Traces), &mut budget).starts_with("error"));
            next(reply(End::Complete, 1), &mut budget);
        }
        assert!(next(cut(Shown::Words), &mut budget).starts_with("error"));
    }

    #[test]
    fn reasoning_without_an_answer_is_asked_for_once_more_and_the_user_is_told() {
        let mut budget = Budget::new(100);
        let empty = || Sampled::Failed {
            error: LlmError::Empty { host: "h".to_owned(), what: "reasoning".to_owned() },
            shown: Shown::Traces,
        };
        let Step::Pause(Duration::ZERO, Some(why)) = after_sample(empty(), &mut budget, 0.5) else {
            panic!("not asked again");
        };
        assert_eq!(why, "h sent reasoning. Asking once more.");
        assert!(next(empty(), &mut budget).starts_with("error"));
    }

    #[test]
    fn an_error_behind_words_is_gone_on_from_if_it_may_pass() {
        for (kind, expected) in [
            (Kind::Unavailable, "continue 500ms"),
            (Kind::RateLimit, "continue 500ms"),
            (Kind::Quota, "error"),
            (Kind::BadRequest, "error"),
            (Kind::Auth, "error"),
        ] {
            let step = next(reported(kind, Shown::Words), &mut Budget::new(100));
            assert!(step.starts_with(expected), "{kind:?}: {step}");
        }
    }

    #[test]
    fn a_refusal_and_a_full_window_are_no_errors() {
        for shown in [Shown::Nothing, Shown::Traces, Shown::Words] {
            let mut budget = Budget::new(100);
            assert_eq!(next(reported(Kind::Refused, shown), &mut budget), "Refusal");
            let overflow = Kind::Overflow { limit: None, used: None };
            assert_eq!(next(reported(overflow, shown), &mut budget), "MaxTokens");
        }
    }

    #[test]
    fn a_long_wait_is_counted_down_in_tens() {
        let table = [(1, None), (10, None), (14, None), (15, Some(10)), (20, Some(10))];
        let table = table.into_iter().chain([(34, Some(20)), (60, Some(50))]);
        for (left, expected) in table {
            let next = next_word(Duration::from_secs(left));
            assert_eq!(next, expected.map(Duration::from_secs), "{left}");
        }
    }
}
