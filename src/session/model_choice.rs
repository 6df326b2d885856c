//! The order of a session's model changes. A change may wait for the provider's list of models, and a slow
//! one must not undo a later one.

use crate::error::Error;

/// The most model changes that may wait for a provider's list.
const MAX_PENDING: usize = 8;

/// Numbers the model changes of a session.
#[derive(Debug, Default)]
pub(super) struct ModelChoice {
    /// The number of the last change that was requested.
    requested: u64,
    /// The number of the last change that was applied.
    applied: u64,
    /// How many queries of the provider have not ended, for changes and for its list.
    pending: usize,
}

impl ModelChoice {
    /// Begins a change and returns its number.
    pub(super) fn begin_change(&mut self) -> Result<u64, Error> {
        if self.pending >= MAX_PENDING {
            let busy = "Earlier changes of the model are still waiting for the provider";
            return Err(Error::InvalidState(busy.to_owned()));
        }
        self.pending += 1;
        self.requested += 1;
        Ok(self.requested)
    }

    /// Ends a change. Returns whether its model is to be used: it was found, and no later change was
    /// applied meanwhile.
    pub(super) fn end_change(&mut self, number: u64, is_found: bool) -> bool {
        self.pending -= 1;
        let is_newer = is_found && number > self.applied;
        if is_newer {
            self.applied = number;
        }
        is_newer
    }

    pub(super) fn begin_list(&mut self) {
        self.pending += 1;
    }

    pub(super) fn end_list(&mut self) {
        self.pending -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_change_does_not_undo_a_later_one() {
        // The order in which three changes end, whether each found its model, and which are applied.
        let table = [
            ([(1, true), (2, true), (3, true)], [true, true, true]),
            ([(3, true), (1, true), (2, true)], [true, false, false]),
            ([(2, true), (3, false), (1, true)], [true, false, false]),
            ([(3, false), (2, true), (1, true)], [false, true, false]),
        ];
        for (ends, expected) in table {
            let mut choice = ModelChoice::default();
            let numbers: Vec<_> = (0..3).map(|_| choice.begin_change().unwrap()).collect();
            assert_eq!(numbers, [1, 2, 3]);
            assert_eq!(ends.map(|(number, found)| choice.end_change(number, found)), expected);
        }
    }

    #[test]
    fn the_number_of_pending_queries_is_limited() {
        let mut choice = ModelChoice::default();
        choice.begin_list();
        while choice.begin_change().is_ok() {}
        assert_eq!((choice.requested, choice.pending), (7, MAX_PENDING));
        choice.end_list();
        assert_eq!(choice.begin_change().unwrap(), 8);
    }
}
