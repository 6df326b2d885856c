//! What next? No I/O, no clock: each situation that matters is a row in the test table.

use std::time::Duration;

use super::Step;
use crate::error::{Error, chain};
use crate::llm::{End, LlmError};
use crate::message::{Stop, ToolCall};

/// Attempts after the first, for one request.
const RETRIES: u32 = 4;
/// The longest wait that a provider can impose; beyond it the turn ends with the reason.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Attempts after the first, when the answer was cut or empty: one that is so twice will be so
/// a third time.
const FRAGILE_RETRIES: u32 = 1;
/// How often a model that runs into its output limit within a call is told to send less.
const CUTS: u32 = 2;

/// What a turn may still do.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    requests: u32,
    retries: u32,
    fragile_retries: u32,
    cuts: u32,
}

impl Budget {
    pub(super) fn new(requests: u32) -> Budget {
        // The first request is being made.
        Budget {
            requests: requests.saturating_sub(1),
            retries: RETRIES,
            fragile_retries: FRAGILE_RETRIES,
            cuts: CUTS,
        }
    }

    fn take(count: &mut u32) -> bool {
        let left = *count > 0;
        *count = count.saturating_sub(1);
        left
    }
}

/// What came of asking the model.
#[derive(Debug)]
pub(super) enum Sampled {
    /// A whole answer.
    Reply { end: End, calls: Vec<ToolCall> },
    /// None, or not a whole one.
    Failed {
        error: LlmError,
        /// Whether the user has seen some of it. Asking again would show it twice.
        shown: bool,
    },
}

/// What the answer obliges the turn to do. Calls that come back with [`Step::End`] are not run.
pub(super) fn after_sample(sampled: Sampled, budget: &mut Budget, luck: f64) -> Step {
    match sampled {
        Sampled::Failed { error, shown } => after_failure(error, shown, budget, luck),
        Sampled::Reply { end, calls } => {
            budget.retries = RETRIES;
            budget.fragile_retries = FRAGILE_RETRIES;
            match end {
                End::Refused(_) => Step::End(Ok(Stop::Refusal)),
                // The last call may be half a call: none runs, but the model is told so.
                End::Length if calls.is_empty() || !Budget::take(&mut budget.cuts) => {
                    Step::End(Ok(Stop::MaxTokens))
                }
                End::Complete if calls.is_empty() => Step::End(Ok(Stop::EndTurn)),
                End::Complete | End::Length if !Budget::take(&mut budget.requests) => {
                    Step::End(Ok(Stop::MaxTurnRequests))
                }
                End::Complete | End::Length => Step::Act(calls),
            }
        }
    }
}

fn after_failure(error: LlmError, shown: bool, budget: &mut Budget, luck: f64) -> Step {
    let fragile = matches!(error, LlmError::Empty { .. } | LlmError::Truncated { .. });
    let attempt = RETRIES - budget.retries;
    let attempts = if fragile { &mut budget.fragile_retries } else { &mut budget.retries };
    if shown || !error.is_transient() || !Budget::take(attempts) {
        return Step::End(Err(Error::Llm(error)));
    }
    let delay = match error.retry_after() {
        Some(wanted) if wanted > LONGEST_WAIT => return Step::End(Err(Error::Llm(error))),
        Some(wanted) => wanted,
        None if fragile => Duration::ZERO,
        None => Duration::from_millis(500 * (1 << attempt)).mul_f64(0.8 + 0.4 * luck),
    };
    // One that was cut or empty is asked for once more without a word.
    let why = (!fragile).then(|| {
        let what = chain(&error);
        let what = what.trim_end_matches('.');
        format!("{what}. Trying again in {:.0} s.", delay.as_secs_f32().ceil())
    });
    Step::Pause(delay, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Arguments;

    fn reply(end: End, calls: usize) -> Sampled {
        let call = |number: usize| ToolCall {
            id: format!("call-{number}").into(),
            provider_id: String::new(),
            name: "read_file".to_owned(),
            arguments: Arguments::Object(serde_json::Value::Null),
            extra: None,
        };
        Sampled::Reply { end, calls: (0..calls).map(call).collect() }
    }

    fn status(status: u16, retry_after: Option<u64>) -> Sampled {
        let error = LlmError::Status {
            host: "h".to_owned(),
            status,
            message: "m".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
            exhausted: false,
        };
        Sampled::Failed { error, shown: false }
    }

    fn name(step: &Step) -> String {
        match step {
            Step::Sample => "sample".to_owned(),
            Step::Act(calls) => format!("act {}", calls.len()),
            Step::Pause(delay, _) => format!("pause {delay:?}"),
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
        assert!(next(status(429, Some(61)), &mut budget).starts_with("error"));
    }

    #[test]
    fn what_will_not_change_is_not_tried_again() {
        let mut budget = Budget::new(100);
        assert!(next(status(400, None), &mut budget).starts_with("error"));
        assert!(next(status(401, None), &mut budget).starts_with("error"));
    }

    #[test]
    fn a_cut_answer_does_not_use_up_the_attempts_of_a_busy_server() {
        let mut budget = Budget::new(100);
        let error = LlmError::Truncated { host: "h".to_owned() };
        next(Sampled::Failed { error, shown: false }, &mut budget);
        for expected in ["pause 500ms", "pause 1s", "pause 2s", "pause 4s"] {
            assert_eq!(next(status(503, None), &mut budget), expected);
        }
    }

    #[test]
    fn what_the_user_has_seen_is_not_asked_for_again() {
        let mut budget = Budget::new(100);
        let cut =
            |shown| Sampled::Failed { error: LlmError::Truncated { host: "h".to_owned() }, shown };
        assert!(next(cut(true), &mut budget).starts_with("error"));
        assert_eq!(next(cut(false), &mut budget), "pause 0ns");
        assert!(next(cut(false), &mut budget).starts_with("error"));
    }
}
