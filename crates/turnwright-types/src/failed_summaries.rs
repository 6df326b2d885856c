//! Remembers that a model cannot summarise its conversation, so that it is not asked again and again. Pure.

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
