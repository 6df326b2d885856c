//! The command of the user that proves a goal. It runs as a call of ours with a card, which the model's conversation
//! does not have.

use std::sync::Arc;
use std::time::Duration;

use super::{GoalRun, SliceVerdict};
use crate::turn::Turn;
use crate::turn::own_calls::{CommandEnd, Consent, OwnCommand, output_of};
use turnwright_store::GoalStatus;
use turnwright_types::effect::escape_hidden;
use turnwright_types::text;

/// The time limit of the command.
const TIME_LIMIT: Duration = Duration::from_secs(600);
/// The most lines of its output that the model is shown.
const MAX_LINES: usize = 20;
/// The most characters of a line.
const MAX_LINE_CHARS: usize = 400;

impl Turn {
    /// Runs the command after a slice. If it fails, the end of its output is what is missing.
    pub(super) async fn run_goal_check(&mut self, command: &str, goal: &GoalRun) -> SliceVerdict {
        let when = match goal.state.slices {
            0 => "before the work".to_owned(),
            slice => format!("after slice {slice}"),
        };
        let end = self.run_own_command(OwnCommand {
            line: command.to_owned(),
            title: format!("Goal check ({when}): {}", escape_hidden(command)),
            limit: TIME_LIMIT,
            consent: Consent::Kept(Arc::clone(&goal.grants)),
        });
        match end.await {
            CommandEnd::Ran(outcome) if outcome.is_success => SliceVerdict::Over(GoalStatus::Met),
            CommandEnd::Ran(outcome) => SliceVerdict::Open(vec![last_lines(output_of(&outcome))]),
            CommandEnd::TooSlow => {
                let seconds = TIME_LIMIT.as_secs();
                SliceVerdict::paused(format!("the check did not end within {seconds} s"))
            }
            CommandEnd::NotRun(why) => {
                SliceVerdict::paused(format!("the check was not run: {why}"))
            }
        }
    }
}

fn last_lines(output: &str) -> String {
    let lines: Vec<_> = output.lines().collect();
    let first = lines.len().saturating_sub(MAX_LINES);
    let shown = lines[first..].iter().map(|line| text::cut(line.trim_end(), MAX_LINE_CHARS));
    shown.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_bounded() {
        let lines: Vec<_> = (1..=50).map(|number| format!("line {number}")).collect();
        let shown = last_lines(&lines.join("\n"));
        assert_eq!((shown.lines().count(), shown.lines().next()), (20, Some("line 31")));
        assert_eq!(last_lines(&"é".repeat(999)).chars().count(), MAX_LINE_CHARS);
        assert_eq!(last_lines(""), "");
    }
}
