//! The results of trials: a line of JSON for each, in the file `trials.jsonl` of a folder.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{EvalError, EvalResult};
use turnwright_store::stats::WorkCounts;
use turnwright_types::private_file::{self, FileLock};

/// The name of the file with the lines.
const LINES: &str = "trials.jsonl";
const LOCK: &str = ".lock";
/// The folder of all results in the folder of the tasks.
const RESULTS: &str = ".results";
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The verdict on a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Passed,
    Failed,
    /// The machine or the model's server failed, so nothing is known of the agent.
    #[default]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    pub seconds: f64,
    #[serde(flatten)]
    pub counts: WorkCounts,
}

impl TrialLine {
    /// The parts by which a trial is known.
    pub(crate) fn key(&self) -> (&str, &str, &Variant, u32) {
        (&self.task, &self.task_hash, &self.variant, self.run)
    }
}

/// The folder with the results of a run, which this process is writing.
pub(crate) struct ResultsFolder {
    file: PathBuf,
    pub(crate) lines: Vec<TrialLine>,
    _lock: FileLock,
}

impl ResultsFolder {
    /// Opens the folder for writing, and makes it if it is missing.
    pub(crate) fn open(path: &Path) -> EvalResult<ResultsFolder> {
        private_file::create_folder(path)?;
        let Some(lock) = FileLock::try_acquire(&path.join(LOCK))? else {
            return Err(EvalError::Unusable(format!(
                "Another run is writing to {}. Wait for it, or name another folder with --out.",
                path.display()
            )));
        };
        let file = path.join(LINES);
        if !file.exists() {
            private_file::write(&file, b"")?;
        }
        Ok(ResultsFolder { file, lines: read_lines(path)?, _lock: lock })
    }

    /// Adds a line, which replaces those of the same trial and of an older form of the task. The file is written as a
    /// whole, so a kill or a full disk leaves the lines from before.
    pub(crate) fn add(&mut self, line: TrialLine) -> EvalResult<()> {
        self.lines.retain(|known| {
            known.task != line.task
                || (known.task_hash == line.task_hash && known.key() != line.key())
        });
        self.lines.push(line);
        let lines = self.lines.iter().map(|line| Ok(serde_json::to_string(line)? + "\n"));
        let text = lines.collect::<std::io::Result<String>>()?;
        Ok(private_file::write(&self.file, text.as_bytes())?)
    }
}

/// Reads the results of a folder. A damaged line is left out, and costs only its own trial, which is made again.
pub fn read_lines(folder: &Path) -> EvalResult<Vec<TrialLine>> {
    let text = match private_file::read(&folder.join(LINES), MAX_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let text = format!("{} has no results of `turnwright eval run`.", folder.display());
            return Err(EvalError::Unusable(text));
        }
        read => read?,
    };
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// A new folder for results in the folder of the tasks, named after the day. Git ignores it.
pub fn new_folder(tasks: &Path, day: &str) -> EvalResult<PathBuf> {
    let place = tasks.join(RESULTS);
    private_file::write(&place.join(".gitignore"), b"*\n")?;
    let mut names = (1..).map(|number| place.join(format!("{day}-{number}")));
    let free = names.find(|path| !path.exists());
    Ok(free.unwrap_or(place))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
pub(crate) mod tests {
    use std::fs;

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
    fn lines_are_kept_until_others_replace_them() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("results");
        let mut results = ResultsFolder::open(&folder).unwrap();
        assert!(results.lines.is_empty());
        assert!(ResultsFolder::open(&folder).is_err(), "another process writes to it");
        results.add(line("a", "m", 1, Outcome::Invalid)).unwrap();
        results.add(line("b", "m", 1, Outcome::Failed)).unwrap();
        drop(results);
        let mut results = ResultsFolder::open(&folder).unwrap();
        let old = [line("a", "m", 1, Outcome::Invalid), line("b", "m", 1, Outcome::Failed)];
        assert_eq!(results.lines, old);
        results.add(line("a", "m", 1, Outcome::Passed)).unwrap();
        let new = [line("b", "m", 1, Outcome::Failed), line("a", "m", 1, Outcome::Passed)];
        assert_eq!(read_lines(&folder).unwrap(), new);
        let mut changed = line("a", "m", 2, Outcome::Failed);
        changed.task_hash = "changed".to_owned();
        results.add(changed.clone()).unwrap();
        let last = [line("b", "m", 1, Outcome::Failed), changed];
        assert_eq!(read_lines(&folder).unwrap(), last);
    }

    #[test]
    fn a_damaged_line_costs_only_its_own_trial() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("results");
        let mut results = ResultsFolder::open(&folder).unwrap();
        for name in ["a", "b", "c"] {
            results.add(line(name, "m", 1, Outcome::Passed)).unwrap();
        }
        drop(results);
        let text = fs::read_to_string(folder.join(LINES)).unwrap();
        fs::write(folder.join(LINES), text.replace("\"task\":\"b\"", "\"task\":\"b")).unwrap();
        let mut results = ResultsFolder::open(&folder).unwrap();
        assert_eq!(results.lines, ["a", "c"].map(|name| line(name, "m", 1, Outcome::Passed)));
        results.add(line("b", "m", 1, Outcome::Failed)).unwrap();
        assert_eq!(read_lines(&folder).unwrap().len(), 3);
    }

    #[test]
    fn each_run_has_a_new_folder_which_git_ignores() {
        let tasks = tempfile::tempdir().unwrap();
        let first = new_folder(tasks.path(), "2026-11-29").unwrap();
        assert!(first.ends_with(".results/2026-11-29-1"));
        let mut results = ResultsFolder::open(&first).unwrap();
        results.add(line("a", "m", 1, Outcome::Passed)).unwrap();
        assert!(new_folder(tasks.path(), "2026-11-29").unwrap().ends_with("2026-11-29-2"));
        let ignored = fs::read_to_string(tasks.path().join(".results/.gitignore")).unwrap();
        assert_eq!(ignored, "*\n");
    }
}
