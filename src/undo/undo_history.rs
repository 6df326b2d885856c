//! Determines which turns can be undone and which can be redone. Pure.

use turnwright_store::TurnKind;
use turnwright_store::file_versions::UndoableTurn;

/// Turns that were undone and can be redone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UndoneTurns {
    /// The undo turns. Several if some of them were interrupted or could not restore all files.
    pub undo_turns: Vec<u64>,
    /// The turns that were undone.
    pub turns: Vec<u64>,
    /// True if some of their files were not restored, so that the turns can be undone as well.
    pub is_partial: bool,
}

/// The turns of a session that can be undone and redone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UndoHistory {
    /// The turns that have changed files and are not undone, in order.
    pub undoable: Vec<u64>,
    /// The undone turns that can be redone, the most recent last.
    pub undone: Vec<UndoneTurns>,
}

impl UndoHistory {
    /// Replays all turns. An undo or redo that was interrupted or had failures can be repeated, which finds
    /// the paths that are restored already, and can be taken back.
    pub(crate) fn from_turns(turns: &[UndoableTurn]) -> UndoHistory {
        let mut history = UndoHistory::default();
        for turn in turns {
            let is_partial = !turn.has_ended || turn.has_failures;
            match turn.kind {
                TurnKind::Prompt | TurnKind::Command if turn.has_file_changes => {
                    history.undoable.push(turn.number);
                    history.undone.clear();
                }
                TurnKind::Prompt | TurnKind::Command => {}
                TurnKind::Undo | TurnKind::Redo if turn.target_turns.is_empty() => {}
                TurnKind::Undo => {
                    let repeated = history.undone.pop_if(|last| last.is_partial);
                    let mut undo_turns = repeated.map_or(Vec::new(), |last| last.undo_turns);
                    undo_turns.push(turn.number);
                    if !is_partial {
                        history.undoable.retain(|turns| !turn.target_turns.contains(turns));
                    }
                    let turns = turn.target_turns.clone();
                    history.undone.push(UndoneTurns { undo_turns, turns, is_partial });
                }
                TurnKind::Redo => {
                    match history.undone.last_mut().filter(|_| is_partial) {
                        Some(last) => {
                            last.undo_turns.push(turn.number);
                            last.is_partial = true;
                        }
                        None => drop(history.undone.pop()),
                    }
                    history.undoable.extend(&turn.target_turns);
                    history.undoable.sort_unstable();
                    history.undoable.dedup();
                }
            }
        }
        history
    }

    /// The turn of the last undo that can be redone.
    pub(crate) fn last_undo(&self) -> Option<u64> {
        self.undone.last()?.undo_turns.last().copied()
    }

    /// The last `count` turns that can be undone, in order.
    pub(crate) fn last_undoable(&self, count: usize) -> &[u64] {
        &self.undoable[self.undoable.len().saturating_sub(count)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(number: u64, kind: TurnKind, about: &[u64]) -> UndoableTurn {
        UndoableTurn {
            number,
            kind,
            prompt_excerpt: String::new(),
            target_turns: about.to_vec(),
            has_ended: true,
            has_file_changes: true,
            uncovered: None,
            has_failures: false,
        }
    }

    #[test]
    fn an_undo_takes_turns_away_a_redo_brings_them_back_and_new_work_ends_that() {
        use TurnKind::{Prompt, Redo, Undo};
        let mut turns = vec![turn(1, Prompt, &[]), turn(2, Prompt, &[]), turn(3, Prompt, &[])];
        turns[1].has_file_changes = false;
        assert_eq!(UndoHistory::from_turns(&turns).undoable, [1, 3]);
        assert_eq!(UndoHistory::from_turns(&turns).last_undoable(1), [3]);
        assert_eq!(UndoHistory::from_turns(&turns).last_undoable(9), [1, 3]);
        turns.push(turn(4, Undo, &[3]));
        turns.push(turn(5, Undo, &[1]));
        let undone = UndoHistory::from_turns(&turns);
        assert_eq!(undone.undoable, [0_u64; 0]);
        assert_eq!(
            undone.undone.last().unwrap(),
            &UndoneTurns { undo_turns: vec![5], turns: vec![1], is_partial: false }
        );
        turns.push(turn(6, Redo, &[1]));
        let redone = UndoHistory::from_turns(&turns);
        assert_eq!(redone.undoable, [1]);
        assert_eq!(redone.undone.last().unwrap().turns, [3]);
        turns.push(turn(7, Prompt, &[]));
        let history = UndoHistory::from_turns(&turns);
        assert_eq!((history.undoable, history.undone.len()), (vec![1, 7], 0));
    }

    #[test]
    fn an_undo_that_was_interrupted_or_has_failed_can_be_repeated_and_taken_back() {
        use TurnKind::{Prompt, Redo, Undo};
        let undone = |undo_turns: &[u64], is_partial| UndoneTurns {
            undo_turns: undo_turns.to_vec(),
            turns: vec![1],
            is_partial,
        };
        for has_ended in [false, true] {
            let mut turns = vec![turn(1, Prompt, &[]), turn(2, Undo, &[1])];
            turns[1].has_ended = has_ended;
            turns[1].has_failures = has_ended;
            let history = UndoHistory::from_turns(&turns);
            assert_eq!((history.undoable, history.undone), (vec![1], vec![undone(&[2], true)]));
            turns.push(turn(3, Undo, &[1]));
            let history = UndoHistory::from_turns(&turns);
            assert_eq!((history.undoable, history.undone), (vec![], vec![undone(&[2, 3], false)]));
            turns.push(turn(4, Redo, &[1]));
            turns[3].has_failures = true;
            let history = UndoHistory::from_turns(&turns);
            assert_eq!(
                (history.undoable, history.undone),
                (vec![1], vec![undone(&[2, 3, 4], true)])
            );
            turns.push(turn(5, Redo, &[1]));
            let history = UndoHistory::from_turns(&turns);
            assert_eq!((history.undoable, history.undone), (vec![1], vec![]));
        }
    }
}
