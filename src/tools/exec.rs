//! `exec`: a shell command.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx};
use crate::effect::{
    CallView, Content, Effect, Kind, Location, Target, fenced, visible, visible_line,
};
use crate::exec::{self, Ended, Finished, Output, Spec};
use crate::files::Roots;
use crate::permission::Pass;
use crate::update::{CallUpdate, Status, Update};

/// Seconds that a command gets when the model does not say.
const USUAL_LIMIT: u64 = 120;
/// Seconds that a command gets at most.
const LONGEST_LIMIT: u64 = 1_800;
/// Bytes of a command. Linux takes 128 KiB in one argument.
const LONGEST_COMMAND: usize = 100 * 1024;
/// Bytes of output that a card shows while the command runs.
const TAIL: usize = 4 * 1024;

#[derive(Debug)]
pub(super) struct Exec;

/// Run a shell command (bash) in the project. It has no terminal and no input; stdout and
/// stderr come back together with the exit code, long output without its middle. Each call is a
/// new shell, and what it leaves running in the background is stopped. Prefer read_file and
/// list_dir for reading.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// The command line
    #[serde(alias = "cmd")]
    command: String,
    /// Seconds until it is stopped (default 120, at most 1800)
    #[serde(default)]
    timeout: Option<u64>,
    /// Folder to run in (default: the project)
    #[serde(default, alias = "cwd")]
    workdir: Option<String>,
    /// What it is for, in a few words
    #[serde(default)]
    #[expect(dead_code, reason = "shown by clients from the raw input")]
    description: Option<String>,
}

impl Args {
    fn workdir(&self) -> &str {
        self.workdir.as_deref().filter(|it| !it.trim().is_empty()).unwrap_or(".")
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout.unwrap_or(USUAL_LIMIT).clamp(1, LONGEST_LIMIT))
    }
}

impl Tool for Exec {
    const NAME: &'static str = "exec";
    const KIND: Kind = Kind::Execute;
    const VERB: &'static str = "Run a command";
    type Args = Args;
    type Seen = ();

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        vec![args.workdir().into()]
    }

    fn view(&self, args: &Args, places: &[Target], roots: &Roots) -> CallView {
        let elsewhere = places.iter().filter(|it| roots.short(it) != ".");
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
        let exec =
            |it: &Target| Effect::Exec { command: args.command.clone(), workdir: it.path.clone() };
        places.iter().map(exec).collect()
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
        if args.command.len() > LONGEST_COMMAND {
            return Err("The command has more than 100 KiB; systems take no longer ones. Nothing \
                        was run. Write a script with write_file and run that."
                .to_owned());
        }
        let mut text = fenced(&visible(&args.command));
        for place in places {
            let folder = ctx.bench.files.roots().shown(place);
            text.push_str(&format!("\nin {}", visible_line(&folder.to_string_lossy())));
        }
        Ok(((), vec![Content::Text(text)]))
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let Some(Effect::Exec { command, workdir }) = pass.effects().first() else {
            return Outcome::failed("Nothing was run: there is no permission for it.");
        };
        let spec = Spec {
            command: command.clone(),
            workdir: workdir.clone(),
            limit: args.limit(),
            environment: ctx.bench.environment.clone(),
        };
        let news = |output: &Output| {
            // A client that does not read misses news of what is going on, not the result.
            if ctx.bench.client.room().now_or_never().is_none() {
                return;
            }
            let mut update = CallUpdate::new(ctx.call.clone(), Status::InProgress);
            update.content = Some(vec![Content::Text(fenced(&output.last_lines(TAIL)))]);
            ctx.bench.client.update(Update::CallUpdate(Box::new(update)));
        };
        match exec::run(&spec, &ctx.cancel, news).await {
            Ok(done) => report(&done, &args),
            Err(error) => Outcome::failed(format!("{error} (in {})", workdir.display())),
        }
    }
}

fn report(done: &Finished, args: &Args) -> Outcome {
    let seconds = done.took.as_secs_f32();
    let (ok, how) = match done.ended {
        Ended::Exited(status) => (status.success(), exit(status)),
        Ended::TimedOut => {
            (false, format!("timed out after {} s and was stopped", args.limit().as_secs()))
        }
        Ended::Cancelled => (false, "cancelled by the user".to_owned()),
    };
    let output = done.output.text();
    let code = match done.ended {
        Ended::Exited(status) => status.code(),
        Ended::TimedOut | Ended::Cancelled => None,
    };
    let raw = json!({
        "exitCode": code,
        "ended": how,
        "durationMs": u64::try_from(done.took.as_millis()).unwrap_or(u64::MAX),
        "bytes": done.output.total(),
        "output": output,
    });
    let text = format!("[{how} · {seconds:.1} s]\n{output}");
    let mut content = vec![Content::Text(fenced(&output))];
    if !ok {
        content.push(Content::Text(how));
    }
    Outcome { ok, text, view: None, content, raw, images: Vec::new() }
}

#[cfg(unix)]
fn exit(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(not(unix))]
fn exit(status: std::process::ExitStatus) -> String {
    status.code().map_or("ended".to_owned(), |it| format!("exit {it}"))
}
