//! One trial, from the fresh tree to the verdict. What the agent's exit means follows Harbor's policy: a fault of the
//! machine or of the model's server says nothing about the agent, while a crash, a limit or a refusal is its result.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::home::TrialHome;
use crate::process::{Finished, ProgramEnd};
use crate::results::{Outcome, TrialLine, Variant};
use crate::tree::Start;
use crate::{EvalError, EvalResult};
use turnwright_store::Store;
use turnwright_store::stats::count_work;
use turnwright_types::hash::sha256_hex;
use turnwright_types::text;

/// The agent ends its turn by itself within this time after the limit.
const TURN_END: Duration = Duration::from_secs(90);
/// The exit status of `turnwright sandbox` if it could not start the command.
const NOT_STARTED: i32 = 125;
const MAX_REASON_CHARS: usize = 200;

/// A trial to make.
pub(crate) struct Trial<'a> {
    pub(crate) start: &'a Start<'a>,
    pub(crate) model: &'a str,
    /// Its number, from 1.
    pub(crate) run: u32,
    /// The end of the time for the whole run. The trial is not made again after it.
    pub(crate) until: Option<Instant>,
}

impl Trial<'_> {
    /// Makes the trial, again if the model's server fails.
    ///
    /// # Errors
    /// If the user stops it, the machine cannot make it, or the model cannot be used.
    pub(crate) async fn make(self) -> EvalResult<TrialLine> {
        let workplace = self.start.workplace;
        let mut line = self.attempt().await?;
        for wait in workplace.waits {
            let is_too_late = self.until.is_some_and(|until| Instant::now() + wait >= until);
            if line.outcome != Outcome::Invalid || is_too_late {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = workplace.stop.cancelled() => return Err(EvalError::Stopped),
            }
            let spent = line.counts.cost;
            line = self.attempt().await?;
            if let Some(spent) = spent {
                *line.counts.cost.get_or_insert_default() += spent;
            }
        }
        Ok(line)
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
                settings: sha256_hex(workplace.settings.as_bytes())[..12].to_owned(),
            },
            run: self.run,
            ..TrialLine::default()
        }
    }

    async fn attempt(&self) -> EvalResult<TrialLine> {
        let Start { task, workplace, .. } = self.start;
        let home = TrialHome::create(self.start)?;
        self.start.make_tree(&home.tree(), None).await?;
        let mut line = self.blank_line();
        let program = home.program(self.command_line(), &workplace.agent_environment);
        let begun = Instant::now();
        let most = task.time + TURN_END;
        let finished = workplace.run(&program, task.prompt.as_bytes(), most).await?;
        line.seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        read_numbers(&home, &mut line)?;
        let (mut outcome, mut reason) = meaning(&finished)?;
        if outcome == Outcome::Passed
            && let Some(why) = judge(self.start, &home).await?
        {
            outcome = Outcome::Failed;
            reason = if reason.is_empty() { why } else { format!("{reason}; {why}") };
        }
        if outcome == Outcome::Failed {
            home.check_room()?;
        }
        let reason = text::clip(text::one_line(&reason), MAX_REASON_CHARS);
        Ok(TrialLine { outcome, reason, ..line })
    }

    fn command_line(&self) -> Vec<OsString> {
        let Start { task, workplace, .. } = self.start;
        let time = format!("{}s", task.time.as_secs());
        let mut words: Vec<OsString> = vec![workplace.program.clone().into()];
        words.extend(["run", "--no-input", "--json", "--mode", "auto"].map(OsString::from));
        words.extend(["--model", self.model, "--max-time", &time].map(OsString::from));
        if let Some(most) = task.definition.limits.requests {
            words.extend(["--budget".into(), format!("max_turn_requests={most}").into()]);
        }
        words.push("-".into());
        words
    }
}

/// Puts back the files of the check and runs it. Returns why it has failed.
pub(crate) async fn judge(start: &Start<'_>, home: &TrialHome) -> EvalResult<Option<String>> {
    match start.put_back(&home.tree()).await {
        // The agent may have left something there that cannot be removed.
        Err(EvalError::Io(error)) => {
            return Ok(Some(format!("the files of the check cannot be put back: {error}")));
        }
        other => other?,
    }
    let seconds = start.task.definition.check_seconds();
    let finished = run_check(start, home).await?;
    Ok(match finished.end {
        ProgramEnd::Exited(Some(0)) => None,
        ProgramEnd::Stopped => Some(format!(
            "the check did not end within {seconds} s; make it smaller, or raise check.timeout"
        )),
        ProgramEnd::Exited(Some(code)) => {
            Some(format!("check: exit {code}: {}", finished.last_words()))
        }
        ProgramEnd::Exited(None) => Some("check: ended by a signal".to_owned()),
    })
}

/// Runs the check of a task in its tree, in the sandbox where there is one.
async fn run_check(start: &Start<'_>, home: &TrialHome) -> EvalResult<Finished> {
    let Start { task, workplace, .. } = start;
    let mut words: Vec<OsString> = Vec::new();
    if cfg!(unix) {
        words.extend([workplace.program.clone().into(), "sandbox".into()]);
        if workplace.has_network {
            words.push("--network".into());
        }
        words.push("--".into());
    }
    words.extend(["sh", "-c", &task.definition.check.command].map(OsString::from));
    let program = home.program(words, &workplace.environment);
    let time = Duration::from_secs(task.definition.check_seconds());
    let finished = workplace.run(&program, &[], time).await?;
    let is_ours = finished.stderr.lines().any(|line| line.starts_with("turnwright"));
    if cfg!(unix) && finished.end == ProgramEnd::Exited(Some(NOT_STARTED)) && is_ours {
        let why = finished.last_words();
        return Err(EvalError::Unusable(format!(
            "The check of {} cannot run in the sandbox: {why}. `turnwright doctor` says more.",
            task.name
        )));
    }
    Ok(finished)
}

/// Reads what the agent has stored of its work.
fn read_numbers(home: &TrialHome, line: &mut TrialLine) -> EvalResult<()> {
    let store = Store::new(&home.paths().state);
    if !store.exists() {
        return Ok(());
    }
    if let Some(work) = store.read_blocking(|connection| count_work(connection, None))?.pop() {
        line.counts = work.counts;
        line.served = work.served.into_iter().collect();
    }
    Ok(())
}

/// Finds the answer of the prompt in the lines of `run --json`. It is null if there is none.
fn last_answer(stdout: &str) -> Value {
    let mut lines =
        stdout.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.find(|line| line["id"] == "prompt").unwrap_or_default()
}

/// Says what the end of the agent's process means, and why. It has passed as far as the check passes.
///
/// # Errors
/// If no other trial with this model would do better.
fn meaning(finished: &Finished) -> EvalResult<(Outcome, String)> {
    let ProgramEnd::Exited(code) = finished.end else {
        return Ok((Outcome::Passed, "limit: time".to_owned()));
    };
    let answer = last_answer(&finished.stdout);
    let error = &answer["error"];
    let said = error["message"].as_str().filter(|text| !text.is_empty());
    let message = said.unwrap_or_else(|| finished.last_words());
    let kind = error["data"]["kind"].as_str().unwrap_or_default();
    Ok(match (code, kind) {
        (Some(0), _) => (Outcome::Passed, String::new()),
        (Some(4), _) => (Outcome::Passed, "refused".to_owned()),
        (Some(5), _) => (Outcome::Passed, "limit: tokens".to_owned()),
        (Some(6), _) => (Outcome::Passed, "limit".to_owned()),
        (Some(2), _) | (Some(3), "quota") => return Err(EvalError::Unusable(message.to_owned())),
        (Some(3), "rate_limit" | "unavailable" | "network" | "malformed") => {
            (Outcome::Invalid, format!("{kind}: {message}"))
        }
        // The answer of the model could not be used.
        (Some(3), kind) => (Outcome::Passed, format!("model: {kind}")),
        (Some(code), _) => (Outcome::Failed, format!("agent: exit {code}: {message}")),
        (None, _) => (Outcome::Failed, format!("agent: ended by a signal: {message}")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finished(end: ProgramEnd, stdout: String) -> Finished {
        Finished { end, stdout, stderr: "first\nwhy\n\n".to_owned() }
    }

    fn exited(code: i32, kind: &str) -> Finished {
        let answer = json!({ "id": "prompt", "error": { "data": { "kind": kind } } });
        finished(ProgramEnd::Exited(Some(code)), answer.to_string())
    }

    #[test]
    fn only_faults_of_the_server_are_tried_again() {
        for (code, kind, outcome, reason) in [
            (0, "", Outcome::Passed, ""),
            (1, "internal", Outcome::Failed, "agent: exit 1: why"),
            (3, "rate_limit", Outcome::Invalid, "rate_limit: why"),
            (3, "unavailable", Outcome::Invalid, "unavailable: why"),
            (3, "network", Outcome::Invalid, "network: why"),
            (3, "malformed", Outcome::Invalid, "malformed: why"),
            (3, "overflow", Outcome::Passed, "model: overflow"),
            (4, "", Outcome::Passed, "refused"),
            (5, "", Outcome::Passed, "limit: tokens"),
            (6, "", Outcome::Passed, "limit"),
            (101, "", Outcome::Failed, "agent: exit 101: why"),
        ] {
            let found = meaning(&exited(code, kind)).unwrap();
            assert_eq!(found, (outcome, reason.to_owned()), "{code} {kind}");
        }
        for (code, kind) in [(2, "model_not_found"), (2, "auth"), (3, "quota")] {
            assert_eq!(meaning(&exited(code, kind)).unwrap_err().to_string(), "why");
        }
        let (killed, _) = meaning(&finished(ProgramEnd::Exited(None), String::new())).unwrap();
        assert_eq!(killed, Outcome::Failed);
        let late = meaning(&finished(ProgramEnd::Stopped, String::new())).unwrap();
        assert_eq!(late, (Outcome::Passed, "limit: time".to_owned()));
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
