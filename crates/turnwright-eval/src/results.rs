//! The results of trials: a line of JSON for each, in the file `trials.jsonl` of a folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::EvalError;
use turnwright_store::stats::WorkCounts;
use turnwright_types::private_file::{self, FileLock};

/// The name of the file with the lines.
const LINES: &str = "trials.jsonl";
const LOCK: &str = ".lock";
/// The folder with the trees and sessions of trials, if they are kept.
pub(crate) const TREES: &str = "trees";
/// The folder of all results in the folder of the tasks.
const RESULTS: &str = ".results";
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The verdict on a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Passed,
    Failed,
    /// The machine or the model's server failed, so nothing is known of the agent.
    Invalid,
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Invalid => "invalid",
        }
    }
}

/// A column of the results: a model with its settings and a version of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Variant {
    /// The model that was asked for.
    pub model: String,
    /// The settings that were changed for the run.
    pub set: Vec<String>,
    pub version: String,
    /// The hash of all settings.
    pub settings: String,
}

/// A trial that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialLine {
    pub task: String,
    pub task_hash: String,
    #[serde(flatten)]
    pub variant: Variant,
    /// The models that the server named.
    pub served: Vec<String>,
    /// The number of the trial, from 1.
    pub run: u32,
    pub outcome: Outcome,
    /// Why it has failed or is invalid; also a limit that was reached.
    pub reason: String,
    /// The stop reason of the last turn.
    pub stop: String,
    pub seconds: f64,
    #[serde(flatten)]
    pub counts: WorkCounts,
}

impl TrialLine {
    /// Returns true if this is the trial that would be made again.
    pub(crate) fn is_same_trial(&self, other: &TrialLine) -> bool {
        self.run == other.run
            && self.task == other.task
            && self.task_hash == other.task_hash
            && self.variant == other.variant
    }
}

/// The folder with the results of a run, which this process is writing.
pub(crate) struct ResultsFolder {
    lines: File,
    _lock: FileLock,
}

impl ResultsFolder {
    /// Opens the folder for writing, and makes it if it is missing. Also returns the lines that it has.
    pub(crate) fn open(path: &Path) -> Result<(ResultsFolder, Vec<TrialLine>), EvalError> {
        private_file::create_folder(path)?;
        let Some(lock) = FileLock::try_acquire(&path.join(LOCK))? else {
            return Err(EvalError::unusable(format!(
                "Another run is writing to {}. Wait for it, or name another folder with --out.",
                path.display()
            )));
        };
        let found = if path.join(LINES).exists() { read_lines(path)? } else { Vec::new() };
        let mut lines = private_file::options().create(true).append(true).open(path.join(LINES))?;
        if fs::read(path.join(LINES))?.last().is_some_and(|last| *last != b'\n') {
            // The process was killed while it wrote the last one.
            lines.write_all(b"\n")?;
        }
        Ok((ResultsFolder { lines, _lock: lock }, found))
    }

    /// Adds a line that survives a loss of power.
    pub(crate) fn add(&mut self, line: &TrialLine) -> Result<(), EvalError> {
        let text = serde_json::to_string(line).map_err(std::io::Error::from)?;
        let end = self.lines.metadata()?.len();
        let written = self
            .lines
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| self.lines.sync_data());
        if written.is_err() {
            // A part of a line would spoil the next one.
            self.lines.set_len(end).ok();
        }
        Ok(written?)
    }
}

/// Reads the results of a folder. Lines that cannot be read are left out: the process may have been killed.
pub fn read_lines(folder: &Path) -> Result<Vec<TrialLine>, EvalError> {
    let text = match private_file::read(&folder.join(LINES), MAX_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let text = format!("{} has no results of `turnwright eval run`.", folder.display());
            return Err(EvalError::unusable(text));
        }
        read => read?,
    };
    let lines: Vec<TrialLine> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Ok(newest(lines))
}

/// Leaves out each line that a later one about the same trial replaces: an invalid trial is made again. Of a task that
/// was changed, only the last form is left.
fn newest(mut lines: Vec<TrialLine>) -> Vec<TrialLine> {
    let forms: BTreeMap<_, _> =
        lines.iter().map(|line| (line.task.clone(), line.task_hash.clone())).collect();
    lines.retain(|line| forms.get(&line.task) == Some(&line.task_hash));
    let mut kept: Vec<TrialLine> = Vec::with_capacity(lines.len());
    for line in lines {
        match kept.iter_mut().find(|known| known.is_same_trial(&line)) {
            Some(known) => *known = line,
            None => kept.push(line),
        }
    }
    kept
}

/// A new folder for results in the folder of the tasks, named after the day. Git ignores it.
pub fn new_folder(tasks: &Path, day: &str) -> Result<PathBuf, EvalError> {
    let place = tasks.join(RESULTS);
    private_file::create_folder(&place)?;
    let ignoring = place.join(".gitignore");
    if !ignoring.exists() {
        private_file::write(&ignoring, b"*\n")?;
    }
    let mut names = (1..).map(|number| place.join(format!("{day}-{number}")));
    let free = names.find(|path| !path.exists());
    Ok(free.unwrap_or(place))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
pub(crate) mod tests {
    use super::*;

    /// A trial of a task, with some numbers.
    pub(crate) fn line(task: &str, model: &str, run: u32, outcome: Outcome) -> TrialLine {
        TrialLine {
            task: task.to_owned(),
            task_hash: "t".to_owned(),
            variant: Variant {
                model: model.to_owned(),
                set: Vec::new(),
                version: "0.1.0+1".to_owned(),
                settings: "s".to_owned(),
            },
            served: vec![format!("{model}-served")],
            run,
            outcome,
            reason: String::new(),
            stop: "end_turn".to_owned(),
            seconds: 12.5,
            counts: WorkCounts {
                requests: 4,
                input: 10_000,
                cached: 8_000,
                output: 500,
                cost: Some(0.02),
                ..WorkCounts::default()
            },
        }
    }

    #[test]
    fn lines_are_kept_and_a_broken_one_does_no_harm() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("results");
        let (mut results, found) = ResultsFolder::open(&folder).unwrap();
        assert!(found.is_empty());
        assert!(ResultsFolder::open(&folder).is_err(), "another process writes to it");
        results.add(&line("a", "m", 1, Outcome::Invalid)).unwrap();
        drop(results);
        let mut text = fs::read_to_string(folder.join(LINES)).unwrap();
        text.push_str("{\"task\":");
        fs::write(folder.join(LINES), text).unwrap();
        let (mut results, found) = ResultsFolder::open(&folder).unwrap();
        assert_eq!(found, [line("a", "m", 1, Outcome::Invalid)]);
        results.add(&line("a", "m", 1, Outcome::Passed)).unwrap();
        assert_eq!(read_lines(&folder).unwrap(), [line("a", "m", 1, Outcome::Passed)]);
        let mut changed = line("a", "m", 1, Outcome::Failed);
        changed.task_hash = "changed".to_owned();
        results.add(&changed).unwrap();
        assert_eq!(read_lines(&folder).unwrap(), [changed]);
    }

    #[test]
    fn each_run_has_a_new_folder_which_git_ignores() {
        let tasks = tempfile::tempdir().unwrap();
        let first = new_folder(tasks.path(), "2026-11-29").unwrap();
        assert!(first.ends_with(".results/2026-11-29-1"));
        let (mut results, _) = ResultsFolder::open(&first).unwrap();
        results.add(&line("a", "m", 1, Outcome::Passed)).unwrap();
        assert!(new_folder(tasks.path(), "2026-11-29").unwrap().ends_with("2026-11-29-2"));
        let ignored = fs::read_to_string(tasks.path().join(".results/.gitignore")).unwrap();
        assert_eq!(ignored, "*\n");
    }
}
