//! `exec`: a shell command.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::command::{self, Touch};
use super::{Bench, Outcome, Tool, ToolCtx, cell, live};
use turnwright_types::effect::{
    CallView, Content, Effect, Kind, Location, Place, Target, fenced, visible, visible_line,
};
use turnwright_workspace::exec::{End, Ended, Job, Leftover, Look, Spec};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;

/// Seconds that a command gets when the model does not say.
const USUAL_LIMIT: u64 = 120;
/// Seconds that a call waits at most.
const LONGEST_LIMIT: u64 = 1_800;
/// How long a command is watched that is to run in the background: many fail at once.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// How long it has to be quiet after its first words.
const QUIET: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Exec;

/// Run a shell command (bash) in the project, in a sandbox without network, terminal or input.
/// What outlives its timeout goes on as a job for exec_output.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// The command line
    #[serde(alias = "cmd")]
    command: String,
    /// Seconds to wait for it (default 120, at most 1800)
    #[serde(default)]
    timeout: Option<u64>,
    #[serde(default)]
    #[schemars(skip)]
    timeout_ms: Option<u64>,
    /// Folder to run in (default: the project)
    #[serde(default, alias = "cwd")]
    workdir: Option<String>,
    /// Do not wait: for servers and watchers
    #[serde(default)]
    background: Option<bool>,
    /// What it needs beyond the sandbox: network, a path to write, or full
    #[serde(default)]
    escalate: Option<String>,
    /// What it is for, in a few words
    #[serde(default)]
    #[expect(dead_code, reason = "shown by clients from the raw input")]
    description: Option<String>,
    /// Why the words do not tell all, as far as the disk shows.
    #[serde(skip)]
    doubt: Option<String>,
}

impl Args {
    fn escalate(&self) -> Option<&str> {
        self.escalate.as_deref().map(str::trim).filter(|it| !it.is_empty() && *it != "none")
    }

    fn touches(&self) -> Vec<Touch> {
        command::touches(&self.command, Path::new(self.workdir()), self.escalate())
    }

    fn workdir(&self) -> &str {
        self.workdir.as_deref().filter(|it| !it.trim().is_empty()).unwrap_or(".")
    }

    fn limit(&self) -> Duration {
        let seconds = self.timeout.map(|it| seconds(it, LONGEST_LIMIT));
        let limit = seconds.or(self.timeout_ms.map(|it| it.div_ceil(1_000)));
        Duration::from_secs(limit.unwrap_or(USUAL_LIMIT).clamp(1, LONGEST_LIMIT))
    }
}

/// A number of seconds. Where it is more than there may be and a round number of thousands, it
/// was meant in milliseconds.
pub(super) fn seconds(number: u64, most: u64) -> u64 {
    if number > most && number.is_multiple_of(1_000) { number / 1_000 } else { number }
}

impl Tool for Exec {
    const NAME: &'static str = "exec";
    const KIND: Kind = Kind::Execute;
    const VERB: &'static str = "Run a command";
    type Args = Args;
    type Seen = ();

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        let workdir = PathBuf::from(args.workdir());
        std::iter::once(workdir).chain(args.touches().iter().map(Touch::path)).collect()
    }

    fn study(&self, args: &mut Args, places: &[Target], _: &Bench) {
        args.doubt = places.first().and_then(|it| command::doubt(&args.command, &it.path));
    }

    fn view(&self, args: &Args, places: &[Target], roots: &Roots) -> CallView {
        let elsewhere = places.iter().take(1).filter(|it| roots.short(it) != ".");
        CallView {
            title: match args.command.trim() {
                "" => Self::VERB.to_owned(),
                _ => visible(&args.command),
            },
            kind: Self::KIND,
            locations: elsewhere.map(|it| Location { path: roots.shown(it), line: None }).collect(),
        }
    }

    fn effects(&self, args: &Args, places: &[Target]) -> Vec<Effect> {
        let Some((workdir, places)) = places.split_first() else { return Vec::new() };
        let touched = args.touches().into_iter().zip(places.iter().cloned());
        command::effects(&args.command, workdir, args.escalate(), args.doubt.as_deref(), touched)
    }

    async fn look(
        &self,
        args: &Args,
        places: &[Target],
        ctx: &ToolCtx,
    ) -> Result<((), Vec<Content>), String> {
        if args.command.trim().is_empty() {
            return Err("exec needs a `command`. Nothing was run.".to_owned());
        }
        if args.command.contains('\0') {
            return Err(
                "The command holds a NUL character, which no system takes. Nothing was run."
                    .to_owned(),
            );
        }
        if let Some(editor) = editor(&args.command) {
            return Err(format!(
                "{editor} waits for keys that nobody can press here. Nothing was run. Use the \
                 tools for files, or {editor} with commands (-es -c …)."
            ));
        }
        // What there is outside is told only to who may look.
        let is_told = |it: &&Target| it.place == Place::Inside && args.workdir() != ".";
        for place in places.iter().take(1).filter(is_told) {
            if let Err(error) = ctx.bench.files.expect_folder(place).await {
                return Err(format!("`workdir` {} {error}. Nothing was run.", args.workdir()));
            }
        }
        let mut text = fenced(&visible(&args.command));
        for place in places.iter().take(1) {
            let folder = ctx.bench.files.roots().shown(place);
            text.push_str(&format!("\nin {}", visible_line(&folder.to_string_lossy())));
        }
        Ok(((), vec![Content::Text(text)]))
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let Some(Effect::Exec(command)) = pass.effects().first() else {
            return Outcome::failed("Nothing was run: there is no permission for it.");
        };
        let mut cell = match cell::build(pass, &ctx.bench).await {
            Ok(cell) => cell,
            Err(reason) => return Outcome::failed(reason),
        };
        let in_background = args.background.unwrap_or(false);
        let spec = Spec {
            command: command.line.clone(),
            workdir: command.workdir.clone(),
            environment: std::mem::take(&mut cell.environment),
            takes_input: in_background,
            extra: std::mem::take(&mut cell.extra),
            jail: cell.jail.clone(),
        };
        let (job, mut live) = match begin(&spec, ctx).await {
            Ok(begun) => begun,
            Err(reason) => return Outcome::failed(reason),
        };
        ctx.bench.cells.watch(&job, cell, ctx.bench.aside());
        let held = Held(Some(Arc::clone(&job)));
        let limit = if in_background { FIRST_LOOK } else { args.limit() };
        let waiting = async {
            if in_background {
                job.settled(QUIET).await;
            } else {
                job.ended().await;
            }
        };
        tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => job.stop(),
            () = waiting => {}
            () = sleep_until(Instant::now() + limit) => {}
            () = live.follow(&job) => {}
        }
        let end = if ctx.cancel.is_cancelled() { Some(job.ended().await) } else { job.end() };
        let Some(end) = end else {
            held.release();
            let mut outcome = running(&job, (!in_background).then_some(limit));
            live.finish(&job, None, &mut outcome);
            return outcome;
        };
        let mut outcome = finished(&job, &end, ctx.cancel.is_cancelled());
        ctx.bench.cells.settle(&job, &mut outcome).await;
        live.finish(&job, Some(&end), &mut outcome);
        ctx.bench.jobs.forget(&job);
        let unsaved = ctx.bench.files.unsaved_note(None, "commands do");
        if !unsaved.is_empty() {
            outcome.text = format!("{}\n{unsaved}", outcome.text.trim_end());
        }
        outcome
    }
}

/// Starts a command, unless there are too many; or says why there is none.
async fn begin<'a>(spec: &Spec, ctx: &'a ToolCtx) -> Result<(Arc<Job>, live::Live<'a>), String> {
    let berth = ctx.bench.jobs.admit(&spec.command).map_err(|it| it.to_string())?;
    match ctx.cancel.run_until_cancelled(live::start(spec, ctx)).await {
        Some(Ok((started, live))) => Ok((berth.run(started), live)),
        Some(Err(error)) => {
            let place = spec.workdir.display();
            Err(format!("The command could not be started: {error} (in {place})"))
        }
        None => Err("cancelled by the user".to_owned()),
    }
}

/// An editor that would wait for ever: it takes a pipe for its keyboard. Others end at once
/// without a terminal. What has options may know what to do.
fn editor(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace();
    let program = words.next()?;
    let name = program.rsplit('/').next()?;
    let waits = ["vi", "vim", "nvim", "view", "vimdiff"].contains(&name);
    (waits && !words.any(|it| it.starts_with(['-', '+', '<', '|']))).then_some(name)
}

/// Ends a command that nobody waits for any more.
struct Held(Option<Arc<Job>>);

impl Held {
    /// It goes on without us.
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(job) = &self.0 {
            job.stop();
        }
    }
}

/// What is said of a command that has not ended. `limit` is how long it was waited for.
fn running(job: &Job, limit: Option<Duration>) -> Outcome {
    let id = job.id();
    let (how, note) = match limit {
        Some(limit) => {
            let seconds = limit.as_secs();
            let how = format!("still running as {id} after {seconds} s");
            let note = format!(
                "Still running after {seconds} s as {id} (partial output above). Use exec_output \
                 id={id}, or signal=\"term\"."
            );
            (how, note)
        }
        None => {
            let note = format!("Use exec_output id={id} for its output, input and signals.");
            (format!("running in the background as {id}"), note)
        }
    };
    let report = Report { job, how: &how, head: format!("[{how}]"), code: None, notes: vec![note] };
    report.outcome(true)
}

/// What is said of a command that has ended.
pub(super) fn finished(job: &Job, end: &End, cancelled: bool) -> Outcome {
    job.note_end();
    let (ok, how) = match &end.how {
        _ if cancelled => (false, "cancelled by the user".to_owned()),
        Ended::Exited(exit) => (exit.is_success(), exit.to_string()),
        Ended::Stopped => (false, "stopped".to_owned()),
        Ended::TooLong => {
            let minutes = end.took.as_secs() / 60;
            (false, format!("stopped after {minutes} min, the longest that a command may run"))
        }
        Ended::Lost(why) => (false, format!("lost: {why}")),
    };
    let code = match &end.how {
        Ended::Exited(exit) => exit.code(),
        _ => None,
    };
    let mut notes = Vec::new();
    if end.leftover == Leftover::Stopped && matches!(end.how, Ended::Exited(_)) && !cancelled {
        notes.push(
            "[left running in the background and stopped; use background=true for servers]"
                .to_owned(),
        );
    }
    let head = format!("[{how} · {:.1} s]", end.took.as_secs_f32());
    let mut outcome = Report { job, how: &how, head, code, notes }.outcome(ok);
    if !ok {
        outcome.content.push(Content::Text(how));
    }
    outcome
}

/// What is said of a command, whether it has ended or not.
pub(super) struct Report<'a> {
    /// Which.
    pub(super) job: &'a Job,
    /// How it is, in a few words.
    pub(super) how: &'a str,
    /// The first line for the model.
    pub(super) head: String,
    /// Its exit code.
    pub(super) code: Option<i32>,
    /// What stands below its output.
    pub(super) notes: Vec<String>,
}

impl Report<'_> {
    /// Takes the output that nobody has looked at.
    pub(super) fn outcome(self, ok: bool) -> Outcome {
        let Look { text: output, truncated } = self.job.look();
        let took = u64::try_from(self.job.age().as_millis()).unwrap_or(u64::MAX);
        let mut text = format!("{}\n{output}", self.head);
        let mut content = vec![Content::Text(fenced(&output))];
        for note in self.notes {
            text.push_str(if text.ends_with('\n') { "" } else { "\n" });
            text.push_str(&note);
            content.push(Content::Text(note));
        }
        let raw = json!({
            "exitCode": self.code,
            "ended": self.how,
            "durationMs": took,
            "bytes": self.job.bytes(),
            "truncated": truncated,
            "job": self.job.id(),
            "output": Value::String(output),
        });
        Outcome { ok, text, view: None, content, raw, images: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_is_refused_only_when_it_can_do_nothing_but_wait() {
        for command in ["vim", "vi a.txt", "/usr/bin/vim a b"] {
            assert!(editor(command).is_some(), "{command}");
        }
        for command in ["vim -es -c q a", "vim +q", "echo vim", "vimtutor", "", "vim a < keys"] {
            assert!(editor(command).is_none(), "{command}");
        }
    }

    #[test]
    fn a_timeout_is_in_seconds_unless_it_can_only_be_milliseconds() {
        for (arguments, expected) in [
            (json!({}), 120),
            (json!({ "timeout": 5 }), 5),
            (json!({ "timeout": 0 }), 1),
            (json!({ "timeout": 1800 }), 1800),
            (json!({ "timeout": 3600 }), 1800),
            (json!({ "timeout": 120_000 }), 120),
            (json!({ "timeout": 5_000 }), 5),
            (json!({ "timeout_ms": 2_500 }), 3),
            (json!({ "timeout_ms": 120_000 }), 120),
        ] {
            let mut all = json!({ "command": "true" });
            all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
            let args: Args = serde_json::from_value(all).unwrap();
            assert_eq!(args.limit().as_secs(), expected, "{arguments}");
        }
    }
}
