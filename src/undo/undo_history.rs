//! Determines which turns can be undone and which can be redone. Pure.

use turnwright_store::TurnKind;
use turnwright_store::file_versions::UndoableTurn;

/// Turns that were undone and can be redone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UndoneTurns {
    /// The undo turns. Several if some of them were interrupted.
    pub undo_turns: Vec<u64>,
    /// The turns that were undone.
    pub turns: Vec<u64>,
}

/// What can be undone and redone in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UndoHistory {
    /// The turns that have changed files and are not undone, in order.
    pub undoable: Vec<u64>,
    /// What can be redone, the most recent last.
    pub undone: Vec<UndoneTurns>,
}

impl UndoHistory {
    /// Replays all turns. An interrupted undo counts as not done: repeating it finds the paths that
    /// it has restored already.
    pub(crate) fn from_turns(turns: &[UndoableTurn]) -> UndoHistory {
        let mut history = UndoHistory::default();
        let mut unfinished_undos = Vec::new();
        for turn in turns {
            match turn.kind {
                TurnKind::Prompt | TurnKind::Command if turn.has_file_changes => {
                    history.undoable.push(turn.number);
                    history.undone.clear();
                    unfinished_undos.clear();
                }
                TurnKind::Prompt | TurnKind::Command => {}
                TurnKind::Undo if turn.target_turns.is_empty() => {}
                TurnKind::Undo => {
                    unfinished_undos.push(turn.number);
                    if turn.has_ended {
                        history.undoable.retain(|it| !turn.target_turns.contains(it));
                        let undo_turns = std::mem::take(&mut unfinished_undos);
                        history
                            .undone
                            .push(UndoneTurns { undo_turns, turns: turn.target_turns.clone() });
                    }
                }
                TurnKind::Redo if turn.has_ended && !turn.target_turns.is_empty() => {
                    history.undone.pop();
                    history.undoable.extend(&turn.target_turns);
                    history.undoable.sort_unstable();
                }
                TurnKind::Redo => {}
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
            &UndoneTurns { undo_turns: vec![5], turns: vec![1] }
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
    fn an_interrupted_undo_can_be_repeated() {
        use TurnKind::{Prompt, Undo};
        let mut turns = vec![turn(1, Prompt, &[]), turn(2, Undo, &[1])];
        turns[1].has_ended = false;
        assert_eq!(UndoHistory::from_turns(&turns).undoable, [1]);
        turns.push(turn(3, Undo, &[1]));
        let undone = UndoHistory::from_turns(&turns).undone;
        assert_eq!(undone, [UndoneTurns { undo_turns: vec![2, 3], turns: vec![1] }]);
    }
}
