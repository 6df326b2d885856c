//! Learns what the model of a conversation cannot do: the size of its window, from requests that were refused and from
//! counts that are too low; and that it cannot summarise, so that it is not asked again and again. Pure.

use crate::token_meter::CountFinding;

/// The number of credible counts that lift a limit which only counts have shown. It is lifted once.
const COUNTS_THAT_LIFT: u32 = 3;

/// The limit of the window that one conversation has found out for its model.
#[derive(Clone, Debug, Default)]
pub struct LearnedWindow {
    model: String,
    limit: Option<u64>,
    /// The credible counts since counts have shown the limit; `None` if a refusal has.
    credible: Option<u32>,
    /// The tokens of the last request that seemed to be cut.
    cut: Option<u64>,
    /// The limit was lifted once.
    is_lifted: bool,
}

impl LearnedWindow {
    /// The most tokens that this model takes, if that was found out.
    pub fn limit(&self, model: &str) -> Option<u64> {
        self.limit.filter(|_| self.model == model)
    }

    /// True if the limit is only assumed after a refusal that does not name one.
    pub fn is_guessed(&self, model: &str) -> bool {
        self.limit(model).is_some() && self.credible.is_none()
    }

    /// Records a refusal that names no limit, and the limit that is assumed instead, in tokens.
    pub fn refuse(&mut self, model: &str, limit: u64) {
        *self = LearnedWindow { limit: Some(limit), ..LearnedWindow::of(model) };
    }

    /// Records the finding about a count. Returns true if two counts that agree show that
    /// requests are cut, which limits the window if `may_limit` is set.
    pub fn add_count(
        &mut self,
        model: &str,
        tokens: u64,
        finding: CountFinding,
        may_limit: bool,
    ) -> bool {
        if finding == CountFinding::LooksCut {
            if self.model != model {
                *self = LearnedWindow::of(model);
            }
            let before = self.cut.replace(tokens).unwrap_or_default();
            let limit = tokens.max(before).next_multiple_of(1_024);
            let is_known = self.limit.is_some_and(|known| known <= limit);
            let is_cut = tokens.abs_diff(before) <= before / 4 && !is_known;
            if is_cut && may_limit {
                self.limit = Some(limit);
                self.credible = Some(0);
            }
            return is_cut;
        }
        if finding == CountFinding::Credible && self.model == model {
            self.add_credible_count(tokens);
        }
        false
    }

    fn add_credible_count(&mut self, tokens: u64) {
        let Some(limit) = self.limit else {
            self.cut = self.cut.filter(|_| self.is_lifted);
            return;
        };
        self.credible = self.credible.map(|count| count + 1);
        let is_refuted = !self.is_lifted && self.credible >= Some(COUNTS_THAT_LIFT);
        if tokens > limit || is_refuted {
            self.limit = None;
            self.is_lifted = true;
        }
    }

    fn of(model: &str) -> LearnedWindow {
        LearnedWindow { model: model.to_owned(), ..LearnedWindow::default() }
    }
}

/// After this many failures the older part of a conversation is left out without a summary.
const MAX_FAILURES: u32 = 3;

/// The requests for a summary in a row that a model has failed in one conversation.
#[derive(Clone, Debug, Default)]
pub struct FailedSummaries {
    model: String,
    count: u32,
    /// The model has answered something else since the first of them.
    answers_others: bool,
}

impl FailedSummaries {
    /// Counts a failed request. `has_answered` means that the server has answered it, if not with a summary.
    pub fn add(&mut self, model: &str, has_answered: bool) {
        if self.model != model {
            *self = FailedSummaries { model: model.to_owned(), ..FailedSummaries::default() };
        }
        self.count += 1;
        self.answers_others |= has_answered;
    }

    /// Records that the model has answered an ordinary request.
    pub fn note_answer(&mut self, model: &str) {
        self.answers_others |= self.model == model && self.count > 0;
    }

    /// True if another failure may be followed by a further request at once.
    pub fn may_retry(&self, model: &str) -> bool {
        self.model != model || self.count < MAX_FAILURES
    }

    /// True if this model answers, but gives no summaries.
    pub fn is_hopeless(&self, model: &str) -> bool {
        !self.may_retry(model) && self.answers_others
    }

    /// True if a hopeless model is to be asked once more: the 4th, 8th, 16th … time. Counts the time.
    pub fn is_due(&mut self) -> bool {
        self.count += 1;
        self.count.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Counts = &'static [(&'static str, u64)];

    /// Plays counts of a model: `cut` and `ok` with their tokens, or `odd`. Returns the limit after each.
    fn limits(learned: &mut LearnedWindow, counts: &[(&str, u64)]) -> Vec<Option<u64>> {
        let add = |(what, tokens): &(&str, u64)| {
            let finding = match *what {
                "cut" => CountFinding::LooksCut,
                "ok" => CountFinding::Credible,
                _ => CountFinding::Odd,
            };
            learned.add_count("m", *tokens, finding, true);
            learned.limit("m")
        };
        counts.iter().map(add).collect()
    }

    #[test]
    fn two_counts_that_agree_limit_the_window_and_one_does_not() {
        let table: [(Counts, Option<u64>); 6] = [
            (&[("cut", 4_000)], None),
            (&[("cut", 4_000), ("odd", 9), ("cut", 4_050)], Some(4_096)),
            (&[("cut", 4_000), ("cut", 2_000)], None),
            (&[("cut", 4_000), ("cut", 2_000), ("cut", 2_100)], Some(3_072)),
            (&[("cut", 4_000), ("ok", 4_100), ("cut", 4_050)], None),
            (&[("odd", 50), ("odd", 50), ("odd", 50)], None),
        ];
        for (counts, expected) in table {
            let mut learned = LearnedWindow::default();
            assert_eq!(limits(&mut learned, counts).last(), Some(&expected), "{counts:?}");
            assert_eq!(learned.limit("other"), None);
        }
    }

    #[test]
    fn a_limit_is_lifted_once_by_credible_counts_and_always_by_a_larger_one() {
        let mut learned = LearnedWindow::default();
        let limit = Some(4_096);
        let counts = [("cut", 4_000), ("cut", 4_000), ("ok", 900), ("ok", 950), ("ok", 990)];
        assert_eq!(limits(&mut learned, &counts), [None, limit, limit, limit, None]);
        // It was right after all.
        let counts = [("ok", 2_000), ("cut", 4_050), ("ok", 900), ("ok", 950), ("ok", 990)];
        assert_eq!(limits(&mut learned, &counts), [None, limit, limit, limit, limit]);
        assert_eq!(limits(&mut learned, &[("ok", 4_097)]), [None]);
    }

    #[test]
    fn a_refusal_is_refuted_only_by_what_was_taken() {
        let mut learned = LearnedWindow::default();
        learned.refuse("m", 20_000);
        let counts = [("ok", 9_000); 9];
        assert_eq!(limits(&mut learned, &counts), [Some(20_000); 9]);
        assert_eq!(limits(&mut learned, &[("ok", 21_000)]), [None]);
    }

    #[test]
    fn what_the_user_has_set_is_not_limited_but_the_user_is_told() {
        let mut learned = LearnedWindow::default();
        let mut add = || learned.add_count("m", 4_000, CountFinding::LooksCut, false);
        assert_eq!([add(), add()], [false, true]);
        assert_eq!(learned.limit("m"), None);
    }

    #[test]
    fn a_model_is_hopeless_after_three_failures_if_it_answers_other_requests() {
        let mut failed = FailedSummaries::default();
        assert!(failed.may_retry("m"));
        for _ in 0..3 {
            failed.add("m", false);
        }
        assert!(!failed.may_retry("m") && !failed.is_hopeless("m"), "the server may be down");
        failed.note_answer("other");
        assert!(!failed.is_hopeless("m"));
        failed.note_answer("m");
        assert!(failed.is_hopeless("m") && !failed.is_hopeless("other"));
        let due: Vec<_> = (4..=16).filter(|_| failed.is_due()).collect();
        assert_eq!(due.len(), 3, "{due:?}");
        failed.add("other", true);
        assert!(failed.may_retry("other") && !failed.is_hopeless("other"));
    }
}
