//! Makes many trials, several at a time and within the limits of the run: the first trial of every task with every
//! model comes before any second one. Trials that have a result in the results folder are not made again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::results::{Outcome, ResultsFolder, TrialLine};
use crate::statistics::number;
use crate::task::Task;
use crate::tree::Start;
use crate::trial::Trial;
use crate::workplace::Workplace;
use crate::{EvalError, EvalResult};
use turnwright_types::error_text::as_sentence;

/// The trials to make.
#[derive(Debug)]
pub struct RunPlan {
    pub tasks: Vec<Task>,
    pub models: Vec<String>,
    /// The number of trials of each task with each model.
    pub runs: u32,
    /// The number of trials at the same time.
    pub jobs: usize,
    /// The folder for the results.
    pub out: PathBuf,
    /// The most US dollars that the whole run may cost.
    pub max_cost: Option<f64>,
    /// The most time that the whole run may take.
    pub max_time: Option<Duration>,
}

/// The reason why a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All trials were made.
    Complete,
    /// The cost or the time reached its limit.
    Limit,
    /// The user stopped it.
    Stopped,
}

/// The progress of a run, in numbers of trials.
#[derive(Default)]
struct Progress {
    /// All trials of the run.
    all: usize,
    /// The trials that are done, by this process or an earlier one.
    done: usize,
    /// The trials that this process has made.
    made: usize,
    /// US dollars, as far as they are known.
    cost: f64,
}

impl Progress {
    fn add(&mut self, line: &TrialLine) {
        self.done += 1;
        self.cost += line.counts.cost.unwrap_or_default();
    }

    /// Describes the progress after this time, for people. The rest is expected to go on at the same speed.
    fn text(&self, elapsed: Duration) -> String {
        let Progress { all, done, made, cost } = *self;
        let mut text = format!("{done} of {all}");
        if cost > 0.0 {
            text += &format!(" · ${cost:.2} so far");
        }
        if made > 0 && done < all {
            let left = elapsed.mul_f64(number(all - done) / number(made));
            text += &format!(" · {} left", short_time(left));
        }
        text
    }
}

/// Names a trial, its outcome and the reason.
fn trial_text(line: &TrialLine) -> String {
    let TrialLine { task, variant, run, outcome, reason, .. } = line;
    let colon = if reason.is_empty() { "" } else { ": " };
    format!("{task} · {} · {run}: {}{colon}{reason}", variant.model, outcome.word())
}

/// A time to be read at a glance: `40 s`, `41 min`, `2 h 5 min`.
pub(crate) fn short_time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("{seconds} s"),
        seconds @ ..6_000 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Makes the trials that are missing. `report` gets a line for people before the first, and after each.
///
/// # Errors
/// If the tasks, the machine or a model cannot be used. What is finished is kept.
pub async fn run(
    plan: &RunPlan,
    workplace: &Workplace,
    report: &mut dyn FnMut(&str),
) -> EvalResult<RunEnd> {
    let begun = Instant::now();
    let until = plan.max_time.and_then(|most| begun.checked_add(most));
    let mut results = ResultsFolder::open(&plan.out)?;
    let mut starts = Vec::new();
    // All tasks are prepared first, so that no trial is made in vain if one of them cannot be used.
    for task in &plan.tasks {
        starts.push(Start::prepare(task, &plan.out.join(".starts"), workplace).await?);
    }
    let mut progress = Progress::default();
    let missing = missing_trials(plan, &starts, until, &results.lines, &mut progress);
    report(&progress.text(begun.elapsed()));
    let mut waiting = missing.into_iter();
    let mut running = FuturesUnordered::new();
    let mut fault = None;
    loop {
        let is_too_expensive = plan.max_cost.is_some_and(|most| progress.cost >= most);
        let is_over = is_too_expensive || until.is_some_and(|until| Instant::now() >= until);
        let may_start = fault.is_none() && !is_over && !workplace.stop.is_cancelled();
        let free_jobs = if may_start { plan.jobs - running.len() } else { 0 };
        running.extend(waiting.by_ref().take(free_jobs).map(Trial::make));
        let Some(made) = running.next().await else { break };
        match made.and_then(|line| results.add(line.clone()).map(|()| line)) {
            Ok(line) => {
                progress.made += 1;
                progress.add(&line);
                report(&format!("{} · {}", progress.text(begun.elapsed()), trial_text(&line)));
            }
            Err(EvalError::Stopped) => {}
            Err(error) => {
                fault.get_or_insert(error);
            }
        }
    }
    if let Some(error) = fault {
        let Progress { done, all, .. } = progress;
        let place = plan.out.display();
        let why = as_sentence(error.to_string());
        return Err(EvalError::Unusable(format!(
            "{why} {done} of {all} trials are kept in {place}. When that is mended, run the same command with --out \
             {place}."
        )));
    }
    Ok(if progress.done == progress.all {
        RunEnd::Complete
    } else if workplace.stop.is_cancelled() {
        RunEnd::Stopped
    } else {
        RunEnd::Limit
    })
}

/// Returns the trials that have no valid line yet, and adds the others to the progress. They are in rounds of all tasks
/// and models, so that even a run that is stopped early compares the models fairly.
fn missing_trials<'a>(
    plan: &'a RunPlan,
    starts: &'a [Start<'a>],
    until: Option<Instant>,
    lines: &[TrialLine],
    progress: &mut Progress,
) -> Vec<Trial<'a>> {
    let mut missing = Vec::new();
    for run in 1..=plan.runs {
        for start in starts {
            for (index, model) in plan.models.iter().enumerate() {
                // A model that is named twice is tried only once.
                if plan.models[..index].contains(model) {
                    continue;
                }
                let trial = Trial { start, model, run, until };
                let blank = trial.blank_line();
                match lines.iter().find(|line| line.key() == blank.key()) {
                    Some(line) if line.outcome != Outcome::Invalid => progress.add(line),
                    _ => missing.push(trial),
                }
            }
        }
    }
    progress.all = progress.done + missing.len();
    missing
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use tokio_util::sync::CancellationToken;

    use super::*;
    #[cfg(unix)]
    use crate::copies::write_into;
    use crate::results::tests::line;
    #[cfg(unix)]
    use crate::task::read_tasks;
    #[cfg(unix)]
    use turnwright_config::{Config, EnvironmentVariables, Flags, Paths, UserFile};

    #[test]
    fn progress_says_what_is_left_and_what_it_costs() {
        let mut progress = Progress { all: 8, ..Progress::default() };
        assert_eq!(progress.text(Duration::ZERO), "0 of 8");
        for outcome in [Outcome::Passed, Outcome::Failed, Outcome::Passed, Outcome::Invalid] {
            progress.add(&line("a", "m", 1, outcome));
        }
        progress.made = 4;
        let text = progress.text(Duration::from_secs(600));
        assert_eq!(text, "4 of 8 · $0.08 so far · 10 min left");
        assert_eq!(trial_text(&line("a", "m", 1, Outcome::Passed)), "a · m · 1: passed");
    }

    #[test]
    fn times_are_short() {
        for (seconds, expected) in
            [(0, "0 s"), (99, "99 s"), (100, "2 min"), (2_460, "41 min"), (7_500, "2 h 5 min")]
        {
            assert_eq!(short_time(Duration::from_secs(seconds)), expected);
        }
    }

    #[cfg(unix)]
    #[expect(clippy::disallowed_methods, reason = "git is found by PATH")]
    #[tokio::test]
    async fn a_fault_of_the_server_is_repeated_twice_and_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        let definition = "[check]\ncommand = 'true'\n";
        let tried = place.join("tried");
        let script = format!(
            "#!/bin/sh\necho again >>'{}'\n\
             echo '{{\"id\":\"prompt\",\"error\":{{\"message\":\"m\",\"data\":{{\"kind\":\"network\"}}}}}}'\nexit 3\n",
            tried.display()
        );
        for (name, text, mode) in [
            ("tasks/look/task.toml", definition, 0o600),
            ("tasks/look/prompt.md", "x", 0o600),
            ("tasks/look/files/a.txt", "x", 0o600),
            ("agent", script.as_str(), 0o700),
        ] {
            write_into(place, name.as_ref(), text.as_bytes(), mode).unwrap();
        }
        let (variables, _) = EnvironmentVariables::classify(std::env::vars_os(), &[]);
        let paths = Paths::below(place.join("home"));
        let file = UserFile::at_default_path(&paths);
        let config = Config::new(variables, Flags::default(), file, paths);
        let stop = CancellationToken::new();
        let made = Workplace::new(&config, place.to_path_buf(), Vec::new(), stop);
        let mut workplace = made.unwrap();
        workplace.program = place.join("agent");
        workplace.waits = [Duration::ZERO; 2];
        let mut plan = RunPlan {
            tasks: read_tasks(&place.join("tasks"), &[]).unwrap(),
            models: vec!["m".to_owned(), "m".to_owned()],
            runs: 1,
            jobs: 1,
            out: place.join("out"),
            max_cost: None,
            max_time: None,
        };
        let mut last = String::new();
        let mut report = |text: &str| text.clone_into(&mut last);
        let end = run(&plan, &workplace, &mut report).await.unwrap();
        assert_eq!(end, RunEnd::Complete);
        assert_eq!(last, "1 of 1 · look · m · 1: invalid: network: m");
        assert_eq!(std::fs::read_to_string(&tried).unwrap(), "again\n".repeat(3));
        // It is not repeated either if the wait would exceed the time of the run.
        plan.out = place.join("second");
        plan.max_time = Some(Duration::from_secs(600));
        workplace.waits = [Duration::from_secs(3600); 2];
        run(&plan, &workplace, &mut |_| {}).await.unwrap();
        assert_eq!(std::fs::read_to_string(&tried).unwrap(), "again\n".repeat(4));
    }
}
