//! One trial, from the fresh tree to the verdict. What the agent's exit means follows Harbor's policy: a fault of the
//! machine or of the model's server says nothing about the agent, while a crash, a limit or a refusal is its result.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::EvalError;
use crate::copies::{copy_all, remove};
use crate::home::TrialHome;
use crate::process::{Finished, Program, ProgramEnd};
use crate::results::{Outcome, TrialLine};
use crate::task::TaskFile;
use crate::tree::Start;
use crate::workplace::budget;
use turnwright_store::Store;
use turnwright_store::stats::{WorkCounts, first_session, weeks_of_work};
use turnwright_types::error_text::io_error_text;
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
    /// Where its tree and sessions are kept, if they are.
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
    pub(crate) async fn make(&self) -> Result<TrialLine, EvalError> {
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
            model: self.model.to_owned(),
            served: Vec::new(),
            set: workplace.changed.clone(),
            settings: workplace.settings_hash(),
            version: workplace.version.clone(),
            run: self.run,
            outcome: Outcome::Invalid,
            reason: String::new(),
            stop: String::new(),
            seconds: 0.0,
            counts: WorkCounts::default(),
            session: None,
        }
    }

    async fn attempt(&self) -> Result<TrialLine, EvalError> {
        let home = TrialHome::create(self.start.workplace, &self.start.task.folder)?;
        self.start.make_tree(&home.tree(), None).await?;
        let mut line = self.blank_line();
        if let Some(fault) = set_up(self.start, &home).await? {
            line.reason = clipped(&format!("setup: {fault}"));
            return Ok(line);
        }
        let begun = Instant::now();
        let (answer, end) = self.work(&home).await?;
        line.seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        answer["result"]["stopReason"].as_str().unwrap_or_default().clone_into(&mut line.stop);
        read_numbers(&home, &mut line)?;
        let not_kept = self.kept.as_deref().map(|place| keep(&home, place)).transpose()?.flatten();
        match end {
            AgentEnd::Judge(reason) => {
                let verdict = judge(self.start, &home).await?;
                line.outcome = if verdict.is_none() { Outcome::Passed } else { Outcome::Failed };
                let limit = Some(reason).filter(|why| !why.is_empty());
                let reasons: Vec<_> = limit.into_iter().chain(verdict).collect();
                line.reason = clipped(&reasons.join("; "));
            }
            AgentEnd::Failed(why) => {
                line.outcome = Outcome::Failed;
                line.reason = clipped(&format!("agent: {why}"));
            }
            AgentEnd::Retry(why) => line.reason = clipped(&why),
            AgentEnd::Unusable(why) => return Err(EvalError::unusable(why)),
        }
        if line.outcome == Outcome::Failed {
            home.check_room()?;
        }
        if let Some(why) = not_kept {
            let separator = if line.reason.is_empty() { "" } else { "; " };
            line.reason = clipped(&format!("{}{separator}{why}", line.reason));
        }
        Ok(line)
    }

    /// Has the agent work on the prompts, one process each.
    async fn work(&self, home: &TrialHome) -> Result<(Value, AgentEnd), EvalError> {
        let Start { task, workplace, .. } = self.start;
        let begun = Instant::now();
        let mut ended = (Value::Null, AgentEnd::Judge(String::new()));
        for (index, prompt) in task.prompts.iter().enumerate() {
            let left = task.time.saturating_sub(begun.elapsed());
            if left < Duration::from_secs(1) {
                ended.1 = AgentEnd::Judge("limit: time".to_owned());
                break;
            }
            let program = Program {
                words: self.command_line(index > 0, left),
                folder: home.tree(),
                environment: workplace.agent_environment(&home.path()),
                input: prompt.clone().into_bytes(),
                time: left + TURN_END,
            };
            let finished = workplace.run(program).await?;
            let answer = last_answer(&finished.stdout);
            let end = meaning(&finished, &answer);
            let goes_on = finished.is_success();
            ended = (answer, end);
            if !goes_on {
                break;
            }
        }
        Ok(ended)
    }

    fn command_line(&self, goes_on: bool, left: Duration) -> Vec<OsString> {
        let Start { task, workplace, .. } = self.start;
        let TaskFile { run, limits, .. } = &task.definition;
        let time = format!("{}s", left.as_secs().max(1));
        let mut words: Vec<OsString> = vec![workplace.agent.clone().into()];
        words.extend(["run", "--no-input", "--json", "--mode", &run.mode].map(OsString::from));
        words.extend(["--model", self.model, "--max-time", &time].map(OsString::from));
        let cost = limits.cost.map(|most| ["--max-cost".to_owned(), most.to_string()]);
        let tokens = limits.tokens.map(|most| budget(&format!("turn_tokens={most}")));
        let requests = limits.requests.map(|most| budget(&format!("max_turn_requests={most}")));
        let all = [cost, tokens, requests].into_iter().flatten().flatten();
        words.extend(all.map(OsString::from));
        words.extend(workplace.flags.iter().map(OsString::from));
        if goes_on {
            words.extend(["--session", "last"].map(OsString::from));
        }
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
        Err(EvalError::Io(error)) if !is_full(error.kind()) => {
            return Ok(Some(format!("the files of the check cannot be put back: {error}")));
        }
        other => other?,
    }
    let check = &start.task.definition.check;
    let finished = run_in_sandbox(&check.command, start, check.time(), home).await?;
    Ok(match finished.end {
        ProgramEnd::Exited(Some(0)) => None,
        ProgramEnd::Stopped => Some(format!("{LATE_CHECK} within {} s", check.time().as_secs())),
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
    let environment = workplace.environment(&home.path());
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
    let weeks =
        store.read_blocking(|connection| weeks_of_work(connection, SystemTime::UNIX_EPOCH))?;
    for week in weeks {
        line.counts.add(&week.counts);
        line.served.extend(week.served);
    }
    line.served.sort();
    line.served.dedup();
    line.session = store.read_blocking(first_session)?;
    Ok(())
}

/// Copies the tree and the stored sessions of a trial. Returns why one of them cannot be kept: the agent may have left a
/// file that nobody may read.
fn keep(home: &TrialHome, place: &Path) -> Result<Option<String>, EvalError> {
    let mut why = None;
    for (from, name) in [(home.tree(), "work"), (home.paths().state, "state")] {
        match replace_folder(&place.join(name), &from) {
            Err(error) if !is_full(error.kind()) => {
                why = Some(format!("{name} is not kept whole: {}", io_error_text(&error)));
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

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
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
