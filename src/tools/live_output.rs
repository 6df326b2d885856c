//! Shows the output of a running command: as text in its card, in a terminal that the client draws
//! from our updates, or in a terminal of the client in which the command also runs. The display
//! never delays the command and costs a bounded number of bytes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{ToolCtx, ToolOutcome};
use turnwright_types::client::TerminalExit;
use turnwright_types::effect::{CallContent, CallView, fenced};
use turnwright_types::error_text::io_error_text;
use turnwright_types::ids::TerminalId;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::update::{TerminalDelta, Update};
use turnwright_workspace::exec::{
    CommandExit, CommandSpec, EndReason, Job, JobEnd, ProcessGroup, RunningCommand,
};
#[cfg(unix)]
use {
    turnwright_types::client::TerminalError,
    turnwright_workspace::exec::{TerminalRun, TerminalStartError},
};

/// Bytes of output that a text card shows while the command runs.
const CARD_BYTES: usize = 4 * 1024;
/// The same after [`TEXT_BUDGET`] is used up.
const SHORT_CARD_BYTES: usize = 256;
/// Bytes on the wire that a text card may cost before its updates become short.
const TEXT_BUDGET: usize = 96 * 1024;
/// The intervals of the updates of a text card: at first, later, and the number of updates before "later" begins.
const UPDATE_INTERVALS: (Duration, Duration, u32) =
    (Duration::from_millis(500), Duration::from_secs(1), 20);

/// A client-drawn terminal gets this many bytes at a time, or what there is after [`PAUSE`].
const PIECE_BYTES: usize = 8 * 1024;
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes on the wire that a client-drawn terminal may cost before the command ends; 192 KiB with
/// the end.
const TERMINAL_BUDGET: usize = 160 * 1024;
/// Bytes of the end of an output that are always shown, even if its middle is not.
const END_BYTES: usize = 16 * 1024;
/// The interval at which a client-drawn terminal that has used up its budget shows the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Estimated bytes of a message around its text.
const ENVELOPE_BYTES: usize = 320;

/// Starts a command with the best display that the client has. If the client fails to open a
/// terminal, the command runs without it, unless the user has refused it there.
pub(super) async fn start<'a>(
    spec: &CommandSpec,
    ctx: &'a ToolCtx,
) -> Result<(Box<dyn RunningCommand>, LiveOutput<'a>), ToolRefusal> {
    #[cfg(unix)]
    if let Some(terminals) = &ctx.env.terminals {
        match TerminalRun::start(Arc::clone(terminals), spec).await {
            Ok(run) => {
                let live = LiveOutput::new(ctx, OutputDisplay::ClientTerminal(run.id().clone()));
                return Ok((Box::new(run), live));
            }
            Err(TerminalStartError::Refused(TerminalError::Denied(_))) => {
                return Err(ToolRefusal::rejected());
            }
            Err(error) => tracing::info!(%error, "a command runs without its terminal"),
        }
    }
    let group = ProcessGroup::start(spec).await.map_err(|error| {
        let fault = io_error_text(&error);
        let place = spec.workdir.display();
        format!("The command could not be started: {fault} (in {place})")
    })?;
    let is_drawn = ctx.env.terminals.is_none() && ctx.env.client.draws_terminals();
    let display =
        if is_drawn { OutputDisplay::Drawn(DrawnTerminal::default()) } else { OutputDisplay::Text };
    Ok((Box::new(group), LiveOutput::new(ctx, display)))
}

pub(super) struct LiveOutput<'a> {
    ctx: &'a ToolCtx,
    display: OutputDisplay,
}

enum OutputDisplay {
    Text,
    Drawn(DrawnTerminal),
    #[cfg(unix)]
    ClientTerminal(TerminalId),
}

impl<'a> LiveOutput<'a> {
    /// Puts the terminal, if there is one, into the card at once: a terminal outside of a card is
    /// not visible (R-TERM-6).
    fn new(ctx: &'a ToolCtx, display: OutputDisplay) -> LiveOutput<'a> {
        let live = LiveOutput { ctx, display };
        if let Some(terminal) = live.terminal() {
            live.show(CallContent::Terminal(terminal));
        }
        live
    }

    /// Lets the user stop the command through the terminal that shows it, if the client draws that.
    pub(super) fn connect(&self, job: &Job) {
        if matches!(self.display, OutputDisplay::Drawn(_)) {
            job.set_terminal(self.ctx.call.clone());
        }
    }

    fn terminal(&self) -> Option<TerminalId> {
        match &self.display {
            OutputDisplay::Text => None,
            OutputDisplay::Drawn(_) => Some(TerminalId::from(self.ctx.call.as_str())),
            #[cfg(unix)]
            OutputDisplay::ClientTerminal(id) => Some(id.clone()),
        }
    }

    fn show(&self, content: CallContent) {
        self.ctx.update_card(|update| update.content = Some(vec![content]));
    }

    /// Shows the card as that of the running command again, after a question about the command.
    pub(super) fn show_again(&self, view: CallView) {
        self.ctx.update_card(|update| {
            update.view = Some(view);
            update.content = Some(self.terminal().map(CallContent::Terminal).into_iter().collect());
        });
    }

    /// Shows the output of the command. Never returns.
    pub(super) async fn follow(&mut self, job: &Job) {
        match &mut self.display {
            OutputDisplay::Text => self.follow_as_text(job).await,
            OutputDisplay::Drawn(drawn) => drawn.follow(job, self.ctx).await,
            #[cfg(unix)]
            OutputDisplay::ClientTerminal(_) => std::future::pending().await,
        }
    }

    /// Updates the card with the last lines. Never returns.
    async fn follow_as_text(&self, job: &Job) {
        let (often, seldom, many) = UPDATE_INTERVALS;
        let mut shown = 0;
        let mut count = 0;
        let mut cost = 0;
        loop {
            sleep(if count < many { often } else { seldom }).await;
            job.wait_for_more_than(shown).await;
            shown = job.bytes();
            count += 1;
            // A client that does not read fast enough misses updates of the progress, but not the
            // result.
            if !has_room(self.ctx) {
                continue;
            }
            let text = fenced(&job.last_lines(if cost < TEXT_BUDGET {
                CARD_BYTES
            } else {
                SHORT_CARD_BYTES
            }));
            cost += json_len(&text) + ENVELOPE_BYTES;
            self.show(CallContent::Text(text));
        }
    }

    /// Shows the end of the output, and puts the terminal into the content of the card.
    pub(super) fn finish(
        &mut self,
        job: &Arc<Job>,
        end: Option<&JobEnd>,
        outcome: &mut ToolOutcome,
    ) {
        let terminal = self.terminal();
        match &mut self.display {
            OutputDisplay::Text => return,
            OutputDisplay::Drawn(drawn) => {
                drawn.end(job, end, self.ctx);
                if end.is_none() {
                    report_late_end(job, self.ctx);
                }
                // Clients that draw terminals expect nothing else in such a card.
                outcome.content.clear();
            }
            // The client's terminal did not run the command, so we have run it ourselves.
            #[cfg(unix)]
            OutputDisplay::ClientTerminal(_) if turnwright_workspace::exec::is_editor_remote() => {
                return;
            }
            // The first item is the output, which the terminal shows.
            #[cfg(unix)]
            OutputDisplay::ClientTerminal(_) => {
                if !outcome.content.is_empty() {
                    outcome.content.remove(0);
                }
            }
        }
        outcome.content.splice(..0, terminal.map(CallContent::Terminal));
    }
}

/// The state of a terminal that the client draws.
#[derive(Default)]
struct DrawnTerminal {
    /// Bytes of the output that were shown or skipped.
    shown: u64,
    /// Bytes on the wire so far.
    cost: usize,
}

impl DrawnTerminal {
    async fn follow(&mut self, job: &Job, ctx: &ToolCtx) {
        let mut next = Instant::now();
        loop {
            job.wait_for_more_than(self.shown).await;
            if self.cost < TERMINAL_BUDGET {
                let enough = job.wait_for_more_than(self.shown + PIECE_BYTES as u64);
                timeout_at(next, enough).await.ok();
                ctx.env.client.wait_for_capacity().await;
                self.send(job, ctx);
                next = Instant::now() + PAUSE;
            } else {
                sleep_until(next).await;
                ctx.env.client.wait_for_capacity().await;
                let more = job.bytes() - self.shown;
                // One line that is overwritten with each update.
                self.send_text(format!("\r\x1b[0m\x1b[K[… {more} more bytes …]"), ctx);
                next = Instant::now() + PROGRESS_INTERVAL;
            }
        }
    }

    /// Sends new output, at most one message.
    fn send(&mut self, job: &Job, ctx: &ToolCtx) {
        let text = self.take(job, PIECE_BYTES, false);
        if !text.is_empty() {
            self.send_text(text, ctx);
        }
    }

    fn end(&mut self, job: &Job, end: Option<&JobEnd>, ctx: &ToolCtx) {
        while self.cost < TERMINAL_BUDGET
            && job.bytes() - self.shown > END_BYTES as u64
            && has_room(ctx)
        {
            self.send(job, ctx);
        }
        let first = job.bytes().saturating_sub(END_BYTES as u64);
        let mut text = String::new();
        if first > self.shown {
            let skipped = first - self.shown;
            self.shown = first;
            text = note(skipped);
        }
        text.push_str(&self.take(job, END_BYTES, true));
        let exit = end.map(terminal_exit).unwrap_or_default();
        if end.is_none() {
            text.push_str(&format!("\r\n\x1b[0m[goes on as {}]\n", job.id()));
        }
        let goes_on = end.is_none();
        let delta = TerminalDelta { text, exit: Some(exit), goes_on, ..TerminalDelta::default() };
        self.send_delta(delta, ctx);
    }

    /// The next output, with a note if bytes before it were skipped. An incomplete character at the
    /// end waits for its rest, unless this is the end.
    fn take(&mut self, job: &Job, most: usize, is_end: bool) -> String {
        let (from, mut bytes) = job.raw_since(self.shown);
        bytes.truncate(most);
        if !is_end
            && let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
        let output = String::from_utf8_lossy(&bytes);
        let text = match from - self.shown {
            0 => output.into_owned(),
            skipped => note(skipped) + &output,
        };
        self.shown = from + bytes.len() as u64;
        text
    }

    fn send_text(&mut self, text: String, ctx: &ToolCtx) {
        self.send_delta(TerminalDelta { text, ..TerminalDelta::default() }, ctx);
    }

    fn send_delta(&mut self, delta: TerminalDelta, ctx: &ToolCtx) {
        // As JSON or in base64, which depends on the version of the protocol.
        self.cost += json_len(&delta.text).max(delta.text.len().div_ceil(3) * 4) + ENVELOPE_BYTES;
        ctx.update_card(|update| update.terminal = Some(delta));
    }
}

/// Tells the client when a command that goes on after its call has ended.
fn report_late_end(job: &Arc<Job>, ctx: &ToolCtx) {
    let call = ctx.call.clone();
    let client = Arc::clone(&ctx.env.client);
    ctx.env.jobs.at_end(job, move |end| {
        client.update(Update::TerminalEnded { call, exit: terminal_exit(end) });
    });
}

fn terminal_exit(end: &JobEnd) -> TerminalExit {
    match &end.reason {
        EndReason::Exited(CommandExit::Signal(name)) => {
            TerminalExit { code: None, signal: Some(name.clone()) }
        }
        EndReason::Exited(exit) => {
            let code = exit.code().and_then(|code| u32::try_from(code).ok());
            TerminalExit { code, signal: None }
        }
        _ => TerminalExit::default(),
    }
}

fn note(skipped: u64) -> String {
    format!("\r\x1b[0m\x1b[K[… {skipped} bytes not shown …]\n")
}

fn has_room(ctx: &ToolCtx) -> bool {
    ctx.env.client.wait_for_capacity().now_or_never().is_some()
}

/// The length of a text in JSON, without its quotes.
fn json_len(text: &str) -> usize {
    json!(text).to_string().len() - 2
}
