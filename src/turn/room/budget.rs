//! The budget of a model's context window, and the sizes at which room has to be made. Pure.

use turnwright_types::token_meter::TokenMeter;

/// The most tokens that are kept free for the answer.
const MAX_RESERVED: u64 = 20_000;

/// The window of a model, in tokens, and the part of it that is always in use.
#[derive(Clone, Copy, Debug)]
pub(in crate::turn) struct WindowBudget {
    /// The tokens that a request may have: the window without the room for the answer.
    pub(super) usable: u64,
    /// The tokens that are kept free for the answer.
    reserved: u64,
    /// The tokens of the system prompt and the tools.
    fixed: u64,
}

impl WindowBudget {
    /// `max_output` is the limit of an answer, if there is one.
    pub(in crate::turn) fn new(window: u64, max_output: Option<u64>, fixed: u64) -> WindowBudget {
        let reserved = max_output.unwrap_or(MAX_RESERVED).min(MAX_RESERVED).min(window / 4);
        WindowBudget { usable: window - reserved, reserved, fixed }
    }

    /// Old results are left out until a request has this size.
    pub(super) fn prune_to(&self) -> u64 {
        self.usable - self.room() / 10 * 4
    }

    /// The size of a request from which old results are left out, or the conversation is summarised.
    pub(super) fn compact_at(&self) -> u64 {
        self.usable - self.room() / 100 * 12
    }

    /// The tokens that the conversation may have. Never nothing: if the tools alone fill the
    /// window, the server says so.
    pub(super) fn room(&self) -> u64 {
        self.usable.saturating_sub(self.fixed).max(self.usable / 8)
    }

    /// The most tokens that the conversation has after a compaction. Less than 60 %, so that the next one
    /// is not due at once.
    pub(super) fn compacted_room(&self) -> u64 {
        self.room() / 100 * 59
    }

    /// The tokens that the results of one answer may have together. More would leave no room for what
    /// the model says about them.
    pub(in crate::turn) fn results_room(&self) -> u64 {
        self.room() / 2
    }

    /// The tokens that a summary may have.
    pub(super) fn summary_tokens(&self) -> u64 {
        (self.room() / 100 * 12).min(4_000)
    }

    /// The tokens that the conversation may have when a summary is asked for. A summary is shorter than
    /// other answers, so that the conversation need not be shortened for the request.
    pub(super) fn summary_room(&self) -> u64 {
        self.room() + self.reserved / 2
    }
}

/// The window that remains for requests if a server has refused one of `sent` tokens because it counts `max_output` as
/// a part of it. `used` is the number of tokens in the server's message, with `max_output` or without. `None` if the
/// request itself may have been too long, or if enough is kept free for the answer anyway.
pub(super) fn window_beside_answer(
    window: u64,
    max_output: Option<u64>,
    sent: u64,
    used: Option<u64>,
) -> Option<u64> {
    let reserved = WindowBudget::new(window, max_output, 0).reserved;
    let answer = max_output.filter(|answer| *answer > reserved)?;
    let left = window.checked_sub(answer)?;
    let has_answer = used
        .is_none_or(|used| used <= window || used.abs_diff(sent + answer) < used.abs_diff(sent));
    let is_likely = has_answer && (left / 2..window / 10 * 9).contains(&sent);
    (is_likely && left > 0).then_some(left)
}

/// How the room after a compaction is shared, as weights (see `token_meter`). Together no more than
/// `WindowBudget::compacted_room`.
#[derive(Clone, Copy, Debug)]
pub(in crate::turn) struct HandoffLimits {
    /// Project instructions and the like, which the first prompt has brought.
    pub(super) first_prompt_context: u64,
    /// The words of the user.
    pub(super) user_words: u64,
    /// The model's summary.
    pub(super) summary: u64,
    /// The facts that are known without asking the model.
    pub(super) facts: u64,
    /// The newest messages, which are kept as they are.
    pub(super) tail: u64,
    /// The pictures and recordings of a prompt that waits for its answer. They come in addition.
    pub(super) media: u64,
}

impl HandoffLimits {
    pub(in crate::turn) fn new(budget: &WindowBudget, meter: &TokenMeter) -> HandoffLimits {
        let room = budget.room();
        let share = |percent: u64, most: u64| meter.weight((room / 100 * percent).min(most));
        HandoffLimits {
            first_prompt_context: share(15, 20_000),
            user_words: share(15, 20_000),
            summary: meter.weight(budget.summary_tokens()),
            facts: share(5, 1_500),
            tail: share(12, 8_000),
            media: share(30, 20_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_a_small_window_and_20_000_tokens_of_a_large_one_are_kept_for_the_answer() {
        let table = [
            (4_096, None, 3_072),
            (32_000, None, 24_000),
            (200_000, None, 180_000),
            (200_000, Some(8_000), 192_000),
            (200_000, Some(64_000), 180_000),
        ];
        for (window, max_output, usable) in table {
            assert_eq!(WindowBudget::new(window, max_output, 0).usable, usable, "{window}");
        }
    }

    #[test]
    fn a_server_that_counts_a_long_answer_leaves_a_smaller_window() {
        let table = [
            (200_000, Some(64_000), 140_000, None, Some(136_000)),
            (200_000, Some(64_000), 140_000, Some(145_000), Some(136_000)),
            (200_000, Some(64_000), 140_000, Some(204_000), Some(136_000)),
            (32_000, Some(16_000), 17_000, None, Some(16_000)),
            // The request itself is too long, or something else is.
            (200_000, Some(64_000), 175_000, Some(203_000), None),
            (200_000, Some(64_000), 195_000, None, None),
            (200_000, Some(64_000), 5_000, None, None),
            (200_000, Some(8_000), 170_000, None, None),
            (200_000, None, 170_000, None, None),
            (32_000, Some(32_000), 5_000, None, None),
            (32_000, Some(64_000), 5_000, None, None),
        ];
        for (window, max_output, sent, used, expected) in table {
            let left = window_beside_answer(window, max_output, sent, used);
            assert_eq!(left, expected, "{window} {max_output:?} {sent} {used:?}");
        }
    }

    #[test]
    fn the_limits_are_parts_of_what_the_tools_leave() {
        // The window, the tools, and to where and from where on room is made.
        let table = [
            (4_096, 1_210, 2_328, 2_856),
            (4_096, 3_500, 2_920, 3_036),
            (200_000, 2_500, 109_000, 158_700),
        ];
        for (window, fixed, prune_to, compact_at) in table {
            let budget = WindowBudget::new(window, None, fixed);
            assert_eq!(
                (budget.prune_to(), budget.compact_at()),
                (prune_to, compact_at),
                "{window}"
            );
        }
    }

    #[test]
    fn what_is_left_after_a_compaction_takes_less_than_60_percent_of_the_room() {
        for window in [4_096, 8_192, 32_000, 128_000, 1_000_000] {
            let budget = WindowBudget::new(window, None, 2_500);
            let meter = TokenMeter::default();
            let HandoffLimits { first_prompt_context, user_words, summary, facts, tail, .. } =
                HandoffLimits::new(&budget, &meter);
            let all = meter.tokens(first_prompt_context + user_words + summary + facts + tail);
            assert!(all <= budget.room() * 6 / 10, "{window}: {all} of {}", budget.room());
        }
    }
}
