//! `exec_output`: what a command that runs has printed meanwhile; and input and signals for it.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::exec::{Report, finished, seconds};
use super::{Bench, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target, fenced, visible, visible_line};
use turnwright_workspace::exec::{Job, Signal};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;

/// Seconds that a call waits when the model does not say.
const USUAL_WAIT: u64 = 5;
/// Seconds that a call waits at most.
const LONGEST_WAIT: u64 = 600;
/// How long it has to be quiet before its words are passed on.
const QUIET: Duration = Duration::from_millis(200);
/// Bytes of input. A pipe takes that much even if nobody reads.
const LONGEST_INPUT: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct ExecOutput;

/// See what a job of exec has printed since the last look; also send it input or a signal.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// The job, such as p3
    #[serde(alias = "job")]
    id: String,
    /// Seconds to wait for news (default 5)
    #[serde(default)]
    wait: Option<u64>,
    #[serde(default)]
    #[schemars(skip)]
    wait_ms: Option<u64>,
    /// A line for its stdin (only with background=true)
    #[serde(default)]
    input: Option<String>,
    /// A signal to send
    #[serde(default)]
    signal: Option<Name>,
    /// Nothing keeps the job in.
    #[serde(skip)]
    is_open: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Name {
    #[serde(alias = "SIGINT", alias = "INT")]
    Int,
    #[serde(alias = "SIGTERM", alias = "TERM")]
    Term,
    #[serde(alias = "SIGKILL", alias = "KILL")]
    Kill,
}

impl Args {
    /// The job's name, even where only its number was given.
    fn id(&self) -> String {
        let id = self.id.trim();
        let prefix = if id.starts_with(|it: char| it.is_ascii_digit()) { "p" } else { "" };
        format!("{prefix}{id}")
    }

    fn input(&self) -> Option<&str> {
        self.input.as_deref().filter(|it| !it.is_empty())
    }

    fn wait(&self) -> Duration {
        let wait = self.wait.map(|it| seconds(it, LONGEST_WAIT));
        let wait = wait.or(self.wait_ms.map(|it| it.div_ceil(1_000)));
        Duration::from_secs(wait.unwrap_or(USUAL_WAIT).min(LONGEST_WAIT))
    }
}

impl Tool for ExecOutput {
    const NAME: &'static str = "exec_output";
    const KIND: Kind = Kind::Execute;
    const VERB: &'static str = "Output of a command";
    type Args = Args;
    type Seen = ();

    fn view(&self, args: &Args, _: &[Target], _: &Roots) -> CallView {
        let id = visible_line(&args.id());
        let title = match (args.input(), args.signal) {
            (Some(_), _) => format!("Input to {id}"),
            (None, Some(_)) => format!("Stop {id}"),
            (None, None) => format!("Output of {id}"),
        };
        CallView { title, kind: Self::KIND, locations: Vec::new() }
    }

    fn effects(&self, args: &Args, _: &[Target]) -> Vec<Effect> {
        let (job, is_open) = (args.id(), args.is_open);
        let mut effects = Vec::new();
        if args.input().is_some() {
            effects.push(Effect::Input { job: job.clone(), is_open });
        }
        if args.signal.is_some() {
            effects.push(Effect::Signal { job });
        }
        if effects.is_empty() { vec![Effect::Session] } else { effects }
    }

    fn study(&self, args: &mut Args, _: &[Target], bench: &Bench) {
        args.is_open = bench.cells.is_open(&args.id());
    }

    async fn look(
        &self,
        args: &Args,
        _: &[Target],
        ctx: &ToolCtx,
    ) -> Result<((), Vec<Content>), String> {
        let job = find(args, ctx)?;
        let Some(input) = args.input() else { return Ok(((), Vec::new())) };
        if input.len() > LONGEST_INPUT {
            return Err(
                "The input has more than 32 KiB. Nothing was sent. Write it to a file with \
                        write_file and let a command read that."
                    .to_owned(),
            );
        }
        let command = fenced(&visible(job.command()));
        let text = format!("{}\nto {}:\n{command}", fenced(&visible(input)), job.id());
        Ok(((), vec![Content::Text(text)]))
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let job = match find(&args, ctx) {
            Ok(job) => job,
            Err(reason) => return Outcome::failed(reason),
        };
        if let Some(input) = args.input() {
            let allowed = Effect::Input { job: args.id(), is_open: args.is_open };
            if !pass.effects().contains(&allowed) {
                return Outcome::failed("Nothing was sent: there is no permission for it.");
            }
            if let Err(error) = job.input(line(input)).await {
                let id = job.id();
                return Outcome::failed(format!(
                    "{id} did not take the input: {error}. Only commands that were started with \
                     background=true take input, while they run. {}",
                    ctx.bench.jobs.list()
                ));
            }
        }
        if let Some(signal) = args.signal {
            job.signal(match signal {
                Name::Int => Signal::Int,
                Name::Term => Signal::Term,
                Name::Kill => Signal::Kill,
            })
            .await;
        }
        wait(&job, &args, ctx).await;
        let mut outcome = report(&job, args.signal.is_some());
        if job.end().is_some() {
            ctx.bench.cells.settle(&job, &mut outcome).await;
        }
        outcome
    }
}

fn find(args: &Args, ctx: &ToolCtx) -> Result<Arc<Job>, String> {
    let jobs = &ctx.bench.jobs;
    let id = args.id();
    jobs.find(&id).ok_or_else(|| format!("There is no job {id:?}. {}", jobs.list()))
}

/// Input as a program that reads lines wants it. Control-D stands for the end of the input.
fn line(input: &str) -> Vec<u8> {
    let end = if input.ends_with(['\n', '\u{4}']) { "" } else { "\n" };
    format!("{input}{end}").into_bytes()
}

async fn wait(job: &Job, args: &Args, ctx: &ToolCtx) {
    let news = async {
        if args.signal.is_some() {
            // Its last words are told with its end.
            job.ended().await;
        } else {
            job.settled(QUIET).await;
        }
    };
    let waiting = tokio::time::timeout(args.wait(), news);
    ctx.cancel.run_until_cancelled(waiting).await;
}

fn report(job: &Job, was_signalled: bool) -> Outcome {
    if let Some(end) = job.end() {
        let mut outcome = finished(job, &end, false);
        // To end it was what was wanted.
        outcome.ok |= was_signalled;
        return outcome;
    }
    let how = format!("{} running for {:.1} s", job.id(), job.age().as_secs_f32());
    let notes = if job.has_news() { Vec::new() } else { vec!["(no new output)".to_owned()] };
    Report { job, how: &how, head: format!("[{how}]"), code: None, notes }.outcome(true)
}
