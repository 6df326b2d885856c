//! The result of an undo for people: which files were restored, which were left alone, and why.

use std::path::PathBuf;

use super::{UndoPlan, one_line_excerpt, short_path};
use crate::undo::{RestoreResult, UndoAction};
use turnwright_store::file_versions::UndoableTurn;
use turnwright_types::effect::escape_hidden;
use turnwright_types::file_change::FileState;
use turnwright_workspace::files::Roots;

/// The most files of each kind that are listed.
const MAX_NAMED_FILES: usize = 50;
/// The most turns that are named because some of their changes are not known.
const MAX_NAMED_TURNS: usize = 10;

/// The result for each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UndoReport {
    /// The turns, each with the beginning of its prompt.
    pub turns: Vec<(u64, String)>,
    /// True if the turns were redone.
    pub is_redo: bool,
    /// Files that were restored.
    pub restored: Vec<PathBuf>,
    /// Files that were removed, because they were not there before.
    pub removed: Vec<PathBuf>,
    /// Files that were already as they should be.
    pub already: Vec<PathBuf>,
    /// Files that were changed since the turn, and how that is known.
    pub conflicts: Vec<(PathBuf, String)>,
    /// Files whose content is no longer available, and why.
    pub lost: Vec<(PathBuf, String)>,
    /// Files that could not be restored, and why.
    pub failed: Vec<(PathBuf, String)>,
    /// The list of the turns with commands whose changes are not known.
    pub uncovered: String,
}

impl UndoReport {
    pub(crate) fn new(planned: UndoPlan, outcomes: Vec<RestoreResult>) -> UndoReport {
        let UndoPlan { turns, is_redo, steps, uncovered } = planned;
        let mut report = UndoReport { turns, is_redo, uncovered, ..UndoReport::default() };
        for step in steps {
            match step.action {
                UndoAction::AlreadyRestored => report.already.push(step.path),
                UndoAction::Conflict { why } => report.conflicts.push((step.path, why)),
                UndoAction::Impossible { why } => report.lost.push((step.path, why)),
                UndoAction::Restore { .. } => {}
            }
        }
        for one in outcomes {
            match one.result {
                Ok(()) if one.to == FileState::Absent => report.removed.push(one.path),
                Ok(()) => report.restored.push(one.path),
                Err(why) => report.failed.push((one.path, why.to_string())),
            }
        }
        report
    }

    /// Makes the report of a plan as if it had succeeded.
    pub(crate) fn dry_run(planned: UndoPlan) -> UndoReport {
        let restored = planned.steps.iter().filter_map(|step| match &step.action {
            UndoAction::Restore { to } => Some(RestoreResult {
                path: step.path.clone(),
                was: step.now.clone(),
                to: to.clone(),
                result: Ok(()),
            }),
            _ => None,
        });
        let outcomes = restored.collect();
        UndoReport::new(planned, outcomes)
    }

    /// Returns true if every file is as it should be.
    pub(crate) fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.lost.is_empty() && self.failed.is_empty()
    }

    /// The report as Markdown.
    pub(crate) fn text(&self, roots: &Roots) -> String {
        let verb = if self.is_redo { "Redone" } else { "Undone" };
        let is_nothing = self.restored.is_empty() && self.removed.is_empty() && !self.is_complete();
        let head = if is_nothing { "Nothing could be restored of" } else { verb };
        let mut text = format!("{head}: {}.\n", turn_list(&self.turns));
        for (title, files) in [
            ("Restored", &without_reasons(&self.restored)),
            ("Removed", &without_reasons(&self.removed)),
            ("Already as it was", &without_reasons(&self.already)),
            ("Conflicts, left untouched", &self.conflicts),
            ("Cannot be restored", &self.lost),
            ("Not restored", &self.failed),
        ] {
            append_files(&mut text, title, files, roots);
        }
        if !self.failed.is_empty() {
            let (again, back) = if self.is_redo { ("redo", "undo") } else { ("undo", "redo") };
            text.push_str(&format!(
                "\nRepeat `/{again}` for the files that were not restored, or `/{back}` to take back \
                 what was.\n"
            ));
        }
        text + &self.uncovered
    }
}

fn without_reasons(paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
    paths.iter().map(|path| (path.clone(), String::new())).collect()
}

/// Lists the turns with commands whose changes are not known, the newest first.
pub(super) fn uncovered_turns<'a>(
    turns: impl DoubleEndedIterator<Item = &'a UndoableTurn>,
) -> String {
    let entries = turns.rev().filter_map(|turn| {
        let why = turn.uncovered.as_ref()?;
        let words = one_line_excerpt(&turn.prompt_excerpt);
        Some(format!("* turn {} ({words}) – {why}\n", turn.number))
    });
    let lines: String = entries.take(MAX_NAMED_TURNS).collect();
    match lines.as_str() {
        "" => lines,
        lines => format!("\nNot covered is what commands have changed in:\n\n{lines}"),
    }
}

/// The turns by number and prompt.
pub(in crate::session) fn turn_list(turns: &[(u64, String)]) -> String {
    let named: Vec<_> = turns
        .iter()
        .map(|(number, words)| format!("turn {number} ({})", one_line_excerpt(words)))
        .collect();
    named.join(", ")
}

fn append_files(text: &mut String, title: &str, files: &[(PathBuf, String)], roots: &Roots) {
    if files.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title} ({}):\n\n", files.len()));
    for (path, why) in files.iter().take(MAX_NAMED_FILES) {
        let why =
            if why.is_empty() { String::new() } else { format!(" – {}", escape_hidden(why)) };
        text.push_str(&format!("* `{}`{why}\n", short_path(roots, path)));
    }
    if files.len() > MAX_NAMED_FILES {
        text.push_str(&format!("* and {} more\n", files.len() - MAX_NAMED_FILES));
    }
}
