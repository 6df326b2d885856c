//! What an undo has come to, for people: what is as it was, what was left alone, and why.

use std::path::PathBuf;

use super::undo::{Planned, brief, short};
use turnwright_types::effect::visible;
use turnwright_workspace::files::Roots;
use crate::undo::{Action, Outcome, Step};

/// Files that are named of each sort.
const MOST_NAMED: usize = 50;

/// What has become of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The turns, each with its words.
    pub turns: Vec<(u64, String)>,
    /// They were done again.
    pub is_redo: bool,
    /// As they were.
    pub restored: Vec<PathBuf>,
    /// As they were before.
    pub already: Vec<PathBuf>,
    /// Changed by somebody else, and why that is known.
    pub conflicts: Vec<(PathBuf, String)>,
    /// Not to be had any more, and why.
    pub lost: Vec<(PathBuf, String)>,
    /// What went wrong.
    pub failed: Vec<(PathBuf, String)>,
}

impl Report {
    /// What a plan and its outcomes come to.
    pub fn new(planned: Planned, outcomes: Vec<Outcome>) -> Report {
        let Planned { turns, is_redo, steps } = planned;
        let mut report = Report { turns, is_redo, ..Report::default() };
        for step in steps {
            match step.action {
                Action::Already => report.already.push(step.path),
                Action::Conflict { why } => report.conflicts.push((step.path, why)),
                Action::Lost { why } => report.lost.push((step.path, why)),
                Action::Restore { .. } => {}
            }
        }
        for one in outcomes {
            match one.result {
                Ok(()) => report.restored.push(one.path),
                Err(why) => report.failed.push((one.path, why)),
            }
        }
        report
    }

    /// What would become of it.
    pub fn dry(planned: Planned) -> Report {
        let is_wanted = |it: &&Step| matches!(it.action, Action::Restore { .. });
        let wanted = planned.steps.iter().filter(is_wanted).map(|it| it.path.clone()).collect();
        Report { restored: wanted, ..Report::new(planned, Vec::new()) }
    }

    /// Whether all is as it was.
    pub fn is_whole(&self) -> bool {
        self.conflicts.is_empty() && self.lost.is_empty() && self.failed.is_empty()
    }

    /// The same in words.
    pub fn text(&self, roots: &Roots) -> String {
        let verb = if self.is_redo { "Redone" } else { "Undone" };
        let is_nothing = self.restored.is_empty() && !self.is_whole();
        let head = if is_nothing { "Nothing could be restored of" } else { verb };
        let mut text = format!("{head}: {}.\n", turns(&self.turns));
        let plain = |all: &[PathBuf]| -> Vec<(PathBuf, String)> {
            all.iter().map(|it| (it.clone(), String::new())).collect()
        };
        for (title, files) in [
            ("Restored", &plain(&self.restored)),
            ("Already as it was", &plain(&self.already)),
            ("Conflicts, left untouched", &self.conflicts),
            ("Cannot be restored", &self.lost),
            ("Not restored", &self.failed),
        ] {
            list(&mut text, title, files, roots);
        }
        text
    }
}

/// The turns by number and words.
pub(super) fn turns(turns: &[(u64, String)]) -> String {
    let one = |(number, words): &(u64, String)| format!("turn {number} ({})", brief(words));
    turns.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn list(text: &mut String, title: &str, files: &[(PathBuf, String)], roots: &Roots) {
    if files.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title} ({}):\n\n", files.len()));
    for (path, why) in files.iter().take(MOST_NAMED) {
        let why = if why.is_empty() { String::new() } else { format!(" – {}", visible(why)) };
        text.push_str(&format!("* `{}`{why}\n", short(roots, path)));
    }
    if files.len() > MOST_NAMED {
        text.push_str(&format!("* and {} more\n", files.len() - MOST_NAMED));
    }
}
