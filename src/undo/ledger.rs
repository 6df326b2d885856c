//! Which turns can be undone, and which can be done again. Pure.

use turnwright_store::TurnKind;
use turnwright_store::versions::TurnRow;

/// What was undone and can be done again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// The turns that have undone it.
    pub by: Vec<u64>,
    /// The turns that were undone.
    pub about: Vec<u64>,
}

/// What the turns of a session come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Turns that have changed files and are not undone, in order.
    pub standing: Vec<u64>,
    /// What was undone since, the last one last.
    pub undone: Vec<Undone>,
}

impl Ledger {
    /// Goes through all turns. An undo that was cut off has undone nothing: whoever goes on with it
    /// finds done what it has done.
    pub fn of(turns: &[TurnRow]) -> Ledger {
        let mut ledger = Ledger::default();
        let mut begun = Vec::new();
        for turn in turns {
            match turn.kind {
                TurnKind::Prompt | TurnKind::Command if turn.has_files => {
                    ledger.standing.push(turn.number);
                    ledger.undone.clear();
                    begun.clear();
                }
                TurnKind::Prompt | TurnKind::Command => {}
                TurnKind::Undo if turn.about.is_empty() => {}
                TurnKind::Undo => {
                    begun.push(turn.number);
                    if turn.has_ended {
                        ledger.standing.retain(|it| !turn.about.contains(it));
                        let by = std::mem::take(&mut begun);
                        ledger.undone.push(Undone { by, about: turn.about.clone() });
                    }
                }
                TurnKind::Redo if turn.has_ended && !turn.about.is_empty() => {
                    ledger.undone.pop();
                    ledger.standing.extend(&turn.about);
                    ledger.standing.sort_unstable();
                }
                TurnKind::Redo => {}
            }
        }
        ledger
    }

    /// The last so many turns that can be undone, in order.
    pub fn last(&self, count: usize) -> &[u64] {
        &self.standing[self.standing.len().saturating_sub(count)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(number: u64, kind: TurnKind, about: &[u64]) -> TurnRow {
        TurnRow {
            number,
            kind,
            words: String::new(),
            about: about.to_vec(),
            has_ended: true,
            has_files: true,
        }
    }

    #[test]
    fn an_undo_takes_turns_away_a_redo_brings_them_back_and_new_work_ends_that() {
        use TurnKind::{Prompt, Redo, Undo};
        let mut turns = vec![turn(1, Prompt, &[]), turn(2, Prompt, &[]), turn(3, Prompt, &[])];
        turns[1].has_files = false;
        assert_eq!(Ledger::of(&turns).standing, [1, 3]);
        assert_eq!(Ledger::of(&turns).last(1), [3]);
        assert_eq!(Ledger::of(&turns).last(9), [1, 3]);
        turns.push(turn(4, Undo, &[3]));
        turns.push(turn(5, Undo, &[1]));
        let undone = Ledger::of(&turns);
        assert_eq!(undone.standing, [0_u64; 0]);
        assert_eq!(undone.undone.last().unwrap(), &Undone { by: vec![5], about: vec![1] });
        turns.push(turn(6, Redo, &[1]));
        let redone = Ledger::of(&turns);
        assert_eq!(redone.standing, [1]);
        assert_eq!(redone.undone.last().unwrap().about, [3]);
        turns.push(turn(7, Prompt, &[]));
        let ledger = Ledger::of(&turns);
        assert_eq!((ledger.standing, ledger.undone.len()), (vec![1, 7], 0));
    }

    #[test]
    fn an_undo_that_was_cut_off_can_be_gone_on_with() {
        use TurnKind::{Prompt, Undo};
        let mut turns = vec![turn(1, Prompt, &[]), turn(2, Undo, &[1])];
        turns[1].has_ended = false;
        assert_eq!(Ledger::of(&turns).standing, [1]);
        turns.push(turn(3, Undo, &[1]));
        let undone = Ledger::of(&turns).undone;
        assert_eq!(undone, [Undone { by: vec![2, 3], about: vec![1] }]);
    }
}
