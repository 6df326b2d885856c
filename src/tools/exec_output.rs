//! `exec_output`: the new output of a running command; also sends it input and signals.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::exec::{self, command_outcome, finished_outcome, seconds};
use super::{CallPlan, CallSite, Previewed, Tool, ToolAnswer, ToolCtx, ToolEnv, ToolOutcome};
use turnwright_policy::permission::{Grants, Mode, Pass, Verdict, decide};
use turnwright_policy::shell;
use turnwright_types::effect::{
    CallContent, CallView, Effect, ResolvedPath, ToolKind, escape_hidden, escape_hidden_line,
    fenced,
};
use turnwright_types::error_text::io_error_text;
use turnwright_types::lists::add_new;
use turnwright_types::message::{Arguments, ToolCall};
use turnwright_types::patience::timeout;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::update::COMMAND_TOOL;
use turnwright_workspace::exec::{Job, Signal, dialect};

/// The default wait, in seconds.
const DEFAULT_WAIT_SECS: u64 = 5;
/// The longest wait, in seconds.
const MAX_WAIT_SECS: u64 = 600;
/// The call returns early if the command has printed something and then nothing for this long.
const QUIET_PERIOD: Duration = Duration::from_millis(200);
/// The longest input. A pipe buffers this much even if the program does not read.
const MAX_INPUT_BYTES: usize = 32 * 1024;

/// Wait for new output of a job; can send it input or a signal.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ExecOutput {
    /// As exec has named it
    #[serde(alias = "job")]
    id: String,
    /// Seconds (default 5)
    wait: Option<u64>,
    #[schemars(skip)]
    wait_ms: Option<u64>,
    /// A line for stdin, if started with background
    input: Option<String>,
    #[schemars(with = "Option<String>", extend("enum" = ["int", "term", "kill"]))]
    signal: Option<Signal>,
    /// The job is not confined; set by [`Tool::plan`].
    #[serde(skip)]
    is_unconfined: bool,
    /// The job has more access than the sandbox gives; set by [`Tool::plan`].
    #[serde(skip)]
    has_extra_access: bool,
}

impl ExecOutput {
    /// The job's id, even if the model sent only its number.
    fn id(&self) -> String {
        let id = self.id.trim();
        let prefix = if id.starts_with(|char: char| char.is_ascii_digit()) { "p" } else { "" };
        format!("{prefix}{id}")
    }

    fn input(&self) -> Option<&str> {
        self.input.as_deref().filter(|input| !input.is_empty())
    }

    fn input_effect(&self) -> Effect {
        Effect::Input {
            job: self.id(),
            is_unsandboxed: self.is_unconfined,
            has_extra_access: self.has_extra_access,
        }
    }

    /// The command with this input, if a rule is about the input or it destroys something: the command may be a shell,
    /// or the client of a database.
    fn harmful_line(&self, input: &str, site: &CallSite<'_>) -> Option<[Effect; 1]> {
        let job = site.env.jobs.find(&self.id())?;
        let rules = site.env.shared.rules.get();
        let judge = |input: &str| {
            // The input itself must not end the document.
            let input = input.replace("end of input", "end");
            let line = format!("{} <<'end of input'\n{input}\nend of input", job.command());
            let command = shell::command(line, site.roots().real_cwd(), dialect());
            let stakes = shell::stakes(&command.script);
            let effects = [Effect::Exec(Box::new(command))];
            let decision = decide(&rules, Mode::Full, &Grants::default(), &effects);
            let mut reasons = Vec::new();
            let denied = decision.findings.into_iter().filter(|one| one.verdict != Verdict::Allow);
            denied.for_each(|finding| add_new(&mut reasons, finding.reason));
            (effects, (reasons, stakes))
        };
        let (effects, harm) = judge(input);
        // The user has been asked about the command itself when it was started.
        (harm != judge("").1).then_some(effects)
    }

    fn wait(&self) -> Duration {
        let wait = seconds(self.wait, self.wait_ms, MAX_WAIT_SECS);
        Duration::from_secs(wait.unwrap_or(DEFAULT_WAIT_SECS).min(MAX_WAIT_SECS))
    }
}

impl Tool for ExecOutput {
    const NAME: &'static str = "exec_output";
    const KIND: ToolKind = ToolKind::Execute;
    const PENDING_TITLE: &'static str = "Output of a command";
    type Preview = ();

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let env = site.env;
        env.shared.rules.get().look_at_sandbox();
        // Only a terminal turns Control-C into a signal.
        if self.input().is_some_and(|input| ["\u{3}", "^C", "C-c"].contains(&input.trim_end())) {
            self.input = None;
            self.signal.get_or_insert(Signal::Int);
        }
        let job = self.id();
        self.is_unconfined = env.shared.guard.is_unconfined(&job);
        self.has_extra_access = env.shared.guard.has_extra_access(&job);
        let id = escape_hidden_line(&job);
        let title = match (self.input(), self.signal) {
            (Some(_), _) => format!("Input to {id}"),
            (None, Some(_)) => format!("Stop {id}"),
            (None, None) => format!("Output of {id}"),
        };
        let view = CallView::new(title, Self::KIND);
        let mut effects = Vec::new();
        if let Some(input) = self.input() {
            effects.push(self.input_effect());
            effects.extend(self.harmful_line(input, site).into_iter().flatten());
        }
        if self.signal.is_some() {
            effects.push(Effect::Signal { job });
        }
        if effects.is_empty() {
            return CallPlan::in_session(view);
        }
        CallPlan { view, effects }
    }

    async fn preview(&self, _: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<()> {
        let job = find(self, ctx)?;
        let Some(input) = self.input() else { return Ok(((), Vec::new())) };
        if input.len() > MAX_INPUT_BYTES {
            let why = "The input has more than 32 KiB. Nothing was sent. Write it to a file with \
                write_file and let a command read that.";
            return Err(why.into());
        }
        let command = fenced(&escape_hidden(job.command()));
        let text = format!("{}\nto {}:\n{command}", fenced(&escape_hidden(input)), job.id());
        Ok(((), vec![CallContent::Text(text)]))
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let job = find(&self, ctx)?;
        job.mark_looked_at();
        if let Some(input) = self.input() {
            if !pass.effects().contains(&self.input_effect()) {
                return Err("Nothing was sent: there is no permission for it.".into());
            }
            if let Err(error) = job.write_input(line(input)).await {
                let id = job.id();
                let fault = io_error_text(&error);
                return Err(format!(
                    "{id} did not take the input: {fault}. Only commands that were started with \
                     background=true take input, while they run. {}",
                    ctx.env.jobs.describe()
                )
                .into());
            }
        }
        if let Some(signal) = self.signal {
            job.send_signal(signal).await;
        }
        wait(&job, &self, ctx).await;
        let mut outcome = report(&job, self.signal.is_some());
        if job.end().is_some() {
            exec::add_findings(&mut outcome, &job, &ctx.env).await;
        }
        Ok(outcome)
    }
}

/// Returns true if a call waits: it asks for the output of a running command, or sleeps.
pub(crate) fn is_waiting(env: &ToolEnv, call: &ToolCall) -> bool {
    let Arguments::Object(arguments) = &call.arguments else { return false };
    match call.name.as_str() {
        ExecOutput::NAME => {
            let args = serde_json::from_value::<ExecOutput>(arguments.clone());
            args.is_ok_and(|args| {
                let is_running = env.jobs.find(&args.id()).is_some_and(|job| job.end().is_none());
                is_running && args.input().is_none() && args.signal.is_none()
            })
        }
        COMMAND_TOOL => exec::sleeps(arguments),
        _ => false,
    }
}

fn find(args: &ExecOutput, ctx: &ToolCtx) -> Result<Arc<Job>, ToolRefusal> {
    let jobs = &ctx.env.jobs;
    let id = args.id();
    jobs.find(&id).ok_or_else(|| {
        format!("There is no job {id:?}. {} `exec` runs commands.", jobs.describe()).into()
    })
}

/// The input, ended by a newline for programs that read lines. Control-D stands for the end of the
/// input.
fn line(input: &str) -> Vec<u8> {
    let end = if input.ends_with(['\n', '\u{4}']) { "" } else { "\n" };
    format!("{input}{end}").into_bytes()
}

async fn wait(job: &Job, args: &ExecOutput, ctx: &ToolCtx) {
    // After a signal, the remaining output is returned together with the exit code.
    let quiet = if args.signal.is_some() { Duration::MAX } else { QUIET_PERIOD };
    let waiting = timeout(args.wait(), job.wait_until_quiet(quiet));
    ctx.cancel.run_until_cancelled(waiting).await;
}

fn report(job: &Job, was_signalled: bool) -> ToolOutcome {
    if let Some(end) = job.end() {
        let mut outcome = finished_outcome(job, &end, false);
        // Ending the command was the purpose of the call.
        outcome.ok |= was_signalled;
        return outcome;
    }
    let how = format!("{} running for {:.1} s", job.id(), job.age().as_secs_f32());
    // `rg x` and `cat` wait for an end of stdin that never comes.
    let advice = "(If it was started with background=true and waits on stdin, input \"\\u0004\" \
                  ends that.)";
    let hint = (job.bytes() == 0).then_some(advice);
    let quiet = (!job.has_new_output()).then_some("(no new output)");
    let notes = hint.into_iter().chain(quiet).map(str::to_owned).collect();
    command_outcome(job, (true, None), &how, &format!("[{how}]"), notes)
}
