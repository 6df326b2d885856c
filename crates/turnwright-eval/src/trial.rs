//! One trial, from the fresh tree to the verdict. What the agent's exit means follows Harbor's policy: a fault of the
//! machine or of the model's server says nothing about the agent, while a crash, a limit or a refusal is its result.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::EvalError;
use crate::copies::{copy_all, remove};
use crate::home::TrialHome;
use crate::process::{Finished, Program, ProgramEnd};
use crate::results::{Outcome, TrialLine, Variant};
use crate::tree::Start;
use crate::workplace::budget;
use turnwright_store::Store;
use turnwright_store::stats::{WorkCounts, all_work};
use turnwright_types::text;

/// The agent ends its turn by itself within this time after the limit.
const TURN_END: Duration = Duration::from_secs(90);
const SETUP_TIME: Duration = Duration::from_secs(10 * 60);
/// The exit status of `turnwright sandbox` if it could not start the command.
const NOT_STARTED: i32 = 125;
/// The beginning of the reason if a check has not ended in time.
pub(crate) const LATE_CHECK: &str = "the check did not end";
const MAX_REASON_CHARS: usize = 200;

/// A trial to make.
pub(crate) struct Trial<'a> {
    pub(crate) start: &'a Start<'a>,
    pub(crate) model: &'a str,
    /// Its number, from 1.
    pub(crate) run: u32,
    /// The folder in which its tree and sessions are kept, if they are.
    pub(crate) kept: Option<PathBuf>,
    /// The end of the time for the whole run. The trial is not made again after it.
    pub(crate) until: Option<Instant>,
}

/// The meaning of the end of the agent's process.
#[derive(Debug, PartialEq)]
enum AgentEnd {
    /// The check decides. The text names a limit or a fault of the model, or is empty.
    Judge(String),
    /// The agent has failed.
    Failed(String),
    /// The server has failed, perhaps only for a while.
    Retry(String),
    /// No other trial with this model would do better.
    Unusable(String),
}

impl Trial<'_> {
    /// Makes the trial, again if the model's server fails.
    ///
    /// # Errors
    /// If the user stops it, the machine cannot make it, or the model cannot be used.
    pub(crate) async fn make(self) -> Result<TrialLine, EvalError> {
        let workplace = self.start.workplace;
        let mut cost = None::<f64>;
        let mut waits = workplace.waits.iter();
        loop {
            let mut line = self.attempt().await?;
            if let Some(spent) = line.counts.cost {
                *cost.get_or_insert_default() += spent;
            }
            line.counts.cost = cost;
            let wait = (line.outcome == Outcome::Invalid).then(|| waits.next()).flatten();
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            let Some(wait) = wait.filter(|next| left.is_none_or(|most| most > **next)) else {
                return Ok(line);
            };
            tokio::select! {
                () = tokio::time::sleep(*wait) => {}
                () = workplace.stop.cancelled() => return Err(EvalError::Stopped),
            }
        }
    }

    /// The line of this trial before anything of it is known.
    pub(crate) fn blank_line(&self) -> TrialLine {
        let Start { task, workplace, .. } = self.start;
        TrialLine {
            task: task.name.clone(),
            task_hash: task.hash.clone(),
            variant: Variant {
                model: self.model.to_owned(),
                set: workplace.changed.clone(),
                version: workplace.version.clone(),
                settings: workplace.settings_hash(),
            },
            served: Vec::new(),
            run: self.run,
            outcome: Outcome::Invalid,
            reason: String::new(),
            stop: String::new(),
            seconds: 0.0,
            counts: WorkCounts::default(),
        }
    }

    async fn attempt(&self) -> Result<TrialLine, EvalError> {
        let home = TrialHome::create(self.start)?;
        self.start.make_tree(&home.tree(), None).await?;
        let mut line = self.blank_line();
        if let Some(fault) = set_up(self.start, &home).await? {
            line.reason = clipped(&format!("setup: {fault}"));
            return Ok(line);
        }
        let begun = Instant::now();
        let finished = self.work(&home).await?;
        line.seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        let answer = last_answer(&finished.stdout);
        answer["result"]["stopReason"].as_str().unwrap_or_default().clone_into(&mut line.stop);
        read_numbers(&home, &mut line)?;
        let not_kept = self.kept.as_deref().map(|place| keep(&home, place)).transpose()?.flatten();
        let (outcome, reason) = match meaning(&finished, &answer) {
            AgentEnd::Judge(limit) => match judge(self.start, &home).await? {
                None => (Outcome::Passed, limit),
                Some(why) if limit.is_empty() => (Outcome::Failed, why),
                Some(why) => (Outcome::Failed, format!("{limit}; {why}")),
            },
            AgentEnd::Failed(why) => (Outcome::Failed, format!("agent: {why}")),
            AgentEnd::Retry(why) => (Outcome::Invalid, why),
            AgentEnd::Unusable(why) => return Err(EvalError::unusable(why)),
        };
        if outcome == Outcome::Failed {
            home.check_room()?;
        }
        let reasons: Vec<_> =
            [Some(reason), not_kept].into_iter().flatten().filter(|why| !why.is_empty()).collect();
        Ok(TrialLine { outcome, reason: clipped(&reasons.join("; ")), ..line })
    }

    /// Has the agent work on the prompt.
    async fn work(&self, home: &TrialHome) -> Result<Finished, EvalError> {
        let Start { task, workplace, .. } = self.start;
        let program = Program {
            words: self.command_line(),
            folder: home.tree(),
            environment: home.environment(&workplace.agent_environment),
            input: task.prompt.clone().into_bytes(),
            time: task.time + TURN_END,
        };
        workplace.run(program).await
    }

    fn command_line(&self) -> Vec<OsString> {
        let Start { task, workplace, .. } = self.start;
        let mode = task.definition.mode();
        let time = format!("{}s", task.time.as_secs());
        let mut words: Vec<OsString> = vec![workplace.program.clone().into()];
        words.extend(["run", "--no-input", "--json", "--mode", mode].map(OsString::from));
        words.extend(["--model", self.model, "--max-time", &time].map(OsString::from));
        let limit = task.definition.limits.requests.map(|most| budget("max_turn_requests", &most));
        let flags = limit.iter().flatten().chain(&workplace.flags);
        words.extend(flags.map(OsString::from));
        words.push("-".into());
        words
    }
}

/// Runs the setup of a task. Returns why it has failed.
pub(crate) async fn set_up(
    start: &Start<'_>,
    home: &TrialHome,
) -> Result<Option<String>, EvalError> {
    let Some(setup) = &start.task.definition.start.setup else { return Ok(None) };
    let finished = run_in_sandbox(setup, start, SETUP_TIME, home).await?;
    Ok((!finished.is_success()).then(|| finished.last_words().to_owned()))
}

/// Puts back the files of the check and runs it. Returns why it has failed.
pub(crate) async fn judge(
    start: &Start<'_>,
    home: &TrialHome,
) -> Result<Option<String>, EvalError> {
    match start.put_back(&home.tree(), &home.second_tree()).await {
        Err(error @ EvalError::Io(_)) if !error.is_full_disk() => {
            return Ok(Some(format!("the files of the check cannot be put back: {error}")));
        }
        other => other?,
    }
    let definition = &start.task.definition;
    let seconds = definition.check_seconds();
    let time = Duration::from_secs(seconds);
    let finished = run_in_sandbox(&definition.check.command, start, time, home).await?;
    Ok(match finished.end {
        ProgramEnd::Exited(Some(0)) => None,
        ProgramEnd::Stopped => Some(format!("{LATE_CHECK} within {seconds} s")),
        ProgramEnd::Exited(Some(code)) => {
            Some(format!("check: exit {code}: {}", finished.last_words()))
        }
        ProgramEnd::Exited(None) => Some("check: ended by a signal".to_owned()),
    })
}

/// Runs a command of a task in its tree, in the sandbox where there is one.
async fn run_in_sandbox(
    command: &str,
    start: &Start<'_>,
    time: Duration,
    home: &TrialHome,
) -> Result<Finished, EvalError> {
    let Start { task, workplace, .. } = start;
    let mut words: Vec<OsString> = Vec::new();
    if cfg!(unix) {
        words.extend([workplace.own_program.clone().into(), "sandbox".into()]);
        if task.definition.run.network {
            words.push("--network".into());
        }
        words.push("--".into());
    }
    words.extend(["sh", "-c", command].map(OsString::from));
    let environment = home.environment(&workplace.environment);
    let program = Program { words, folder: home.tree(), environment, input: Vec::new(), time };
    let finished = workplace.run(program).await?;
    let is_ours = finished.stderr.lines().any(|line| line.starts_with("turnwright"));
    if cfg!(unix) && finished.end == ProgramEnd::Exited(Some(NOT_STARTED)) && is_ours {
        let why = finished.last_words();
        return Err(EvalError::unusable(format!(
            "The commands of {} cannot run in the sandbox: {why}. `turnwright doctor` says more.",
            task.name
        )));
    }
    Ok(finished)
}

/// Reads what the agent has stored of its work.
fn read_numbers(home: &TrialHome, line: &mut TrialLine) -> Result<(), EvalError> {
    let store = Store::new(&home.paths().state);
    if !store.exists() {
        return Ok(());
    }
    if let Some(work) = store.read_blocking(all_work)? {
        line.counts = work.counts;
        line.served = work.served.into_iter().collect();
    }
    Ok(())
}

/// Copies the tree and the stored sessions of a trial. Returns why one of them is not kept whole: the agent may have
/// left a file that nobody may read.
fn keep(home: &TrialHome, place: &Path) -> Result<Option<String>, EvalError> {
    let mut why = None;
    for (from, name) in [(home.tree(), "work"), (home.paths().state, "state")] {
        match replace_folder(&place.join(name), &from).map_err(EvalError::from) {
            Err(error) if !error.is_full_disk() => {
                why = Some(format!("{name} is not kept whole: {error}"));
            }
            other => other?,
        }
    }
    Ok(why)
}

/// Copies a folder in place of whatever is there. A missing one is not copied.
fn replace_folder(to: &Path, from: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    remove(to)?;
    fs::create_dir_all(to)?;
    copy_all(from, to)
}

/// Finds the answer of the prompt in the lines of `run --json`. It is null if there is none.
fn last_answer(stdout: &str) -> Value {
    let mut lines =
        stdout.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.find(|line| line["id"] == "prompt").unwrap_or_default()
}

fn meaning(finished: &Finished, answer: &Value) -> AgentEnd {
    let error = &answer["error"];
    let said = error["message"].as_str().filter(|text| !text.is_empty());
    let message = said.unwrap_or_else(|| finished.last_words());
    let kind = error["data"]["kind"].as_str().unwrap_or_default();
    let ProgramEnd::Exited(code) = finished.end else {
        return AgentEnd::Judge("limit: time".to_owned());
    };
    match (code, kind) {
        (Some(0), _) => AgentEnd::Judge(String::new()),
        (Some(4), _) => AgentEnd::Judge("refused".to_owned()),
        (Some(5), _) => AgentEnd::Judge("limit: tokens".to_owned()),
        (Some(6), _) => AgentEnd::Judge("limit".to_owned()),
        (Some(2), _) | (Some(3), "quota") => AgentEnd::Unusable(message.to_owned()),
        (Some(3), "rate_limit" | "unavailable" | "network" | "malformed") => {
            AgentEnd::Retry(format!("{kind}: {message}"))
        }
        // The answer of the model could not be used.
        (Some(3), kind) => AgentEnd::Judge(format!("model: {kind}")),
        (Some(code), _) => AgentEnd::Failed(format!("exit {code}: {message}")),
        (None, _) => AgentEnd::Failed(format!("ended by a signal: {message}")),
    }
}

fn clipped(reason: &str) -> String {
    text::clip(text::one_line(reason), MAX_REASON_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finished(end: ProgramEnd, stderr: &str) -> Finished {
        Finished { end, stdout: String::new(), stderr: stderr.to_owned() }
    }

    #[test]
    fn only_faults_of_the_server_are_tried_again() {
        for (code, kind, expected) in [
            (0, "", AgentEnd::Judge(String::new())),
            (1, "internal", AgentEnd::Failed("exit 1: why".to_owned())),
            (2, "model_not_found", AgentEnd::Unusable("why".to_owned())),
            (2, "auth", AgentEnd::Unusable("why".to_owned())),
            (3, "quota", AgentEnd::Unusable("why".to_owned())),
            (3, "rate_limit", AgentEnd::Retry("rate_limit: why".to_owned())),
            (3, "unavailable", AgentEnd::Retry("unavailable: why".to_owned())),
            (3, "network", AgentEnd::Retry("network: why".to_owned())),
            (3, "malformed", AgentEnd::Retry("malformed: why".to_owned())),
            (3, "overflow", AgentEnd::Judge("model: overflow".to_owned())),
            (4, "", AgentEnd::Judge("refused".to_owned())),
            (5, "", AgentEnd::Judge("limit: tokens".to_owned())),
            (6, "", AgentEnd::Judge("limit".to_owned())),
            (101, "", AgentEnd::Failed("exit 101: why".to_owned())),
        ] {
            let answer = json!({ "error": { "data": { "kind": kind } } });
            let end = finished(ProgramEnd::Exited(Some(code)), "first\nwhy\n\n");
            assert_eq!(meaning(&end, &answer), expected, "{code} {kind}");
        }
        let killed = meaning(&finished(ProgramEnd::Exited(None), ""), &Value::Null);
        assert!(matches!(killed, AgentEnd::Failed(_)));
        let late = meaning(&finished(ProgramEnd::Stopped, ""), &Value::Null);
        assert_eq!(late, AgentEnd::Judge("limit: time".to_owned()));
    }

    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    #[test]
    fn a_folder_that_is_kept_takes_the_place_of_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        replace_folder(&to, &from).unwrap();
        assert!(!to.exists());
        for (place, name) in [(&from, "new"), (&to, "old")] {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join(name), name).unwrap();
        }
        replace_folder(&to, &from).unwrap();
        assert!(to.join("new").is_file() && !to.join("old").exists());
    }

    #[test]
    fn the_answer_is_found_behind_the_updates() {
        let stdout = "{\"method\":\"session/update\"}\n{\"id\":\"prompt\",\"result\":{\"stopReason\":\"end_turn\"}}\n";
        assert_eq!(last_answer(stdout)["result"]["stopReason"], "end_turn");
        let error =
            "{\"id\":\"prompt\",\"error\":{\"message\":\"m\",\"data\":{\"kind\":\"auth\"}}}";
        assert_eq!(last_answer(error)["error"]["data"]["kind"], "auth");
        assert_eq!(last_answer("cut {\"id\""), Value::Null);
    }
}
