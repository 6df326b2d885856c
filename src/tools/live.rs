//! What a command prints, shown while it runs: as text in its card, in a terminal that the client
//! draws from what we send, or in one that is the client's own, where the command runs as well.
//! None of them ever holds up the command, and none costs more than a bounded number of bytes.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{Outcome, ToolCtx};
use turnwright_types::client::{Display, TerminalExit};
use turnwright_types::effect::{Content, fenced};
use turnwright_workspace::exec::{End, Ended, Exit, Group, Job, Spec, Started};
use turnwright_types::ids::TerminalId;
use turnwright_types::update::{CallUpdate, Status, TerminalNews, Update};

/// Bytes of output that a card shows as text while the command runs.
const TAIL: usize = 4 * 1024;
/// The same for a command that has shown much already.
const SHORT_TAIL: usize = 256;
/// Bytes that a card may cost as text before it becomes short.
const TEXT_BUDGET: usize = 96 * 1024;
/// How often text is shown, at first and after so many times.
const NEWS: (Duration, Duration, u32) = (Duration::from_millis(500), Duration::from_secs(1), 20);

/// A drawn terminal gets this much at a time, or what there is after [`PAUSE`].
const PIECE: usize = 8 * 1024;
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes on the wire that a drawn terminal may cost before its end; with the end, 192 KiB.
const BUDGET: usize = 160 * 1024;
/// The end of an output of which the middle was not shown.
const END: usize = 16 * 1024;
/// How often a drawn terminal that shows no more says how far the command is.
const STILL: Duration = Duration::from_secs(1);
/// Bytes of a message around what it says.
const ENVELOPE: usize = 320;

/// Starts a command where it can be shown best. A client that does not open a terminal costs the
/// display and not the command.
pub(super) async fn start<'a>(
    spec: &Spec,
    ctx: &'a ToolCtx,
) -> std::io::Result<(Box<dyn Started>, Live<'a>)> {
    #[cfg(unix)]
    if let Display::Terminals(terminals) = &ctx.bench.display {
        match turnwright_workspace::exec::TerminalRun::start(std::sync::Arc::clone(terminals), spec).await {
            Ok(run) => {
                let live = Live::new(ctx, Sort::Own(run.id().clone()));
                return Ok((Box::new(run), live));
            }
            Err(error) => tracing::info!(%error, "a command runs without its terminal"),
        }
    }
    let group = Group::start(spec)?;
    let sort = match ctx.bench.display {
        Display::Output => Sort::Drawn(Drawn::default()),
        Display::Text | Display::Terminals(_) => Sort::Text,
    };
    Ok((Box::new(group), Live::new(ctx, sort)))
}

/// The display of one command.
pub(super) struct Live<'a> {
    ctx: &'a ToolCtx,
    sort: Sort,
}

enum Sort {
    Text,
    Drawn(Drawn),
    Own(TerminalId),
}

impl<'a> Live<'a> {
    /// What is not in a card nobody sees: a terminal is put into it as soon as there is one
    /// (R-TERM-6).
    fn new(ctx: &'a ToolCtx, sort: Sort) -> Live<'a> {
        let live = Live { ctx, sort };
        if let Some(terminal) = live.terminal() {
            live.show(Content::Terminal(terminal));
        }
        live
    }

    fn terminal(&self) -> Option<TerminalId> {
        match &self.sort {
            Sort::Text => None,
            Sort::Drawn(_) => Some(TerminalId::from(self.ctx.call.as_str())),
            Sort::Own(id) => Some(id.clone()),
        }
    }

    fn show(&self, content: Content) {
        let mut update = CallUpdate::new(self.ctx.call.clone(), Status::InProgress);
        update.content = Some(vec![content]);
        self.ctx.bench.client.update(Update::CallUpdate(Box::new(update)));
    }

    /// Shows what the command prints, for ever.
    pub(super) async fn follow(&mut self, job: &Job) {
        match &mut self.sort {
            Sort::Text => self.tell(job).await,
            Sort::Drawn(drawn) => drawn.follow(job, self.ctx).await,
            Sort::Own(_) => std::future::pending().await,
        }
    }

    /// Shows the last lines, again and again.
    async fn tell(&self, job: &Job) {
        let (often, seldom, many) = NEWS;
        let (mut told, mut count, mut cost) = (0, 0, 0);
        loop {
            sleep(if count < many { often } else { seldom }).await;
            job.more_than(told).await;
            told = job.bytes();
            count += 1;
            // A client that does not read misses news of what is going on, not the result.
            if !has_room(self.ctx) {
                continue;
            }
            let text = fenced(&job.last_lines(if cost < TEXT_BUDGET { TAIL } else { SHORT_TAIL }));
            cost += encoded(&text) + ENVELOPE;
            self.show(Content::Text(text));
        }
    }

    /// Shows the end, as far as there is one, and puts the terminal into what the card shows.
    pub(super) fn finish(&mut self, job: &Job, end: Option<&End>, outcome: &mut Outcome) {
        let terminal = self.terminal();
        match &mut self.sort {
            Sort::Text => return,
            Sort::Drawn(drawn) => {
                drawn.end(job, end, self.ctx);
                // Clients that draw terminals want nothing else in such a card.
                outcome.content.clear();
            }
            // The terminal says that nothing was run, and then we have run it.
            #[cfg(unix)]
            Sort::Own(_) if turnwright_workspace::exec::is_elsewhere() => return,
            // The first is the output, which the terminal shows.
            Sort::Own(_) => drop(outcome.content.drain(..1.min(outcome.content.len()))),
        }
        outcome.content.splice(..0, terminal.map(Content::Terminal));
    }
}

/// A terminal that the client draws.
#[derive(Default)]
struct Drawn {
    /// Bytes of the output that were shown or passed over.
    shown: u64,
    /// What it has cost so far.
    cost: usize,
}

impl Drawn {
    async fn follow(&mut self, job: &Job, ctx: &ToolCtx) {
        let mut next = Instant::now();
        loop {
            job.more_than(self.shown).await;
            if self.cost < BUDGET {
                let enough = job.more_than(self.shown + PIECE as u64);
                drop(timeout_at(next, enough).await);
                ctx.bench.client.room().await;
                self.send(job, ctx);
                next = Instant::now() + PAUSE;
            } else {
                sleep_until(next).await;
                ctx.bench.client.room().await;
                let more = job.bytes() - self.shown;
                // In one line, which is written over again and again.
                self.say(format!("\r\x1b[0m\x1b[K[… {more} more bytes …]"), None, ctx);
                next = Instant::now() + STILL;
            }
        }
    }

    /// Sends what is new, as much as goes into one message.
    fn send(&mut self, job: &Job, ctx: &ToolCtx) {
        let text = self.take(job, END, false);
        if !text.is_empty() {
            self.say(text, None, ctx);
        }
    }

    fn end(&mut self, job: &Job, end: Option<&End>, ctx: &ToolCtx) {
        while self.cost < BUDGET && job.bytes() - self.shown > END as u64 && has_room(ctx) {
            self.send(job, ctx);
        }
        let first = job.bytes().saturating_sub(END as u64);
        let mut text = String::new();
        if first > self.shown {
            let skipped = first - self.shown;
            self.shown = first;
            text = note(skipped);
        }
        text.push_str(&self.take(job, END, true));
        let exit = match end.map(|it| &it.how) {
            Some(Ended::Exited(Exit::Signal(name))) => {
                TerminalExit { code: None, signal: Some(name.clone()) }
            }
            Some(Ended::Exited(exit)) => {
                let code = exit.code().and_then(|it| u32::try_from(it).ok());
                TerminalExit { code, signal: None }
            }
            _ => TerminalExit::default(),
        };
        if end.is_none() {
            text.push_str(&format!("\r\n\x1b[0m[goes on as {}]\n", job.id()));
        }
        self.say(text, Some(exit), ctx);
    }

    /// What comes next, with a note where something is missing before it. A character that has
    /// not come completely stays unless this is the end.
    fn take(&mut self, job: &Job, most: usize, is_end: bool) -> String {
        let (from, mut bytes) = job.raw_since(self.shown);
        bytes.truncate(most);
        if !is_end
            && let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = match from - self.shown {
            0 => text.into_owned(),
            skipped => note(skipped) + &text,
        };
        self.shown = from + bytes.len() as u64;
        text
    }

    fn say(&mut self, text: String, exit: Option<TerminalExit>, ctx: &ToolCtx) {
        self.cost += encoded(&text) + ENVELOPE;
        let mut update = CallUpdate::new(ctx.call.clone(), Status::InProgress);
        update.terminal = Some(TerminalNews { text, exit });
        ctx.bench.client.update(Update::CallUpdate(Box::new(update)));
    }
}

fn note(skipped: u64) -> String {
    format!("\r\x1b[0m\x1b[K[… {skipped} bytes not shown …]\n")
}

fn has_room(ctx: &ToolCtx) -> bool {
    ctx.bench.client.room().now_or_never().is_some()
}

/// The bytes of a text in JSON.
fn encoded(text: &str) -> usize {
    let one = |it: u8| match it {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(one).sum()
}
