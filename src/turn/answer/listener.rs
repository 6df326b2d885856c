//! Receives one answer of the model: shows its words and cards as they arrive, keeps a draft of it in the
//! log, and watches over the model's silence.

use std::cmp::min;
use std::mem::take;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::coalesce::{TextCoalescer, TextKind};
use super::draft_writer::DraftWriter;
use super::failures::omission_notice;
use super::silence::SilenceWatch;
use super::streaming_call::StreamingCall;
use crate::tools::{COMMON_ARGUMENTS, Toolbox};
use crate::turn::calls::cards::OpenCards;
use crate::turn::next_step::ShownSoFar;
use turnwright_llm::{Delta, DeltaBatch, LlmError, Modalities, Model, Reply, Request};
use turnwright_types::client::Client;
use turnwright_types::effect::{CallView, ToolKind, escape_hidden_line};
use turnwright_types::ids::CallId;
use turnwright_types::message::History;
use turnwright_types::patience::sleep_until;
use turnwright_types::text;
use turnwright_types::update::Update;

/// How long a card waits for complete arguments before it is shown without them. Few arguments
/// arrive in less, and their card then appears once, with its final title.
const SHOW_CARD_AFTER: Duration = Duration::from_millis(150);
/// The most characters of a tool name that are kept.
const MAX_NAME_CHARS: usize = 200;

/// An answer as far as it was received.
pub(super) struct StreamedAnswer {
    pub(in crate::turn) text: String,
    pub(super) thought: String,
    pub(super) cards: Vec<Option<StreamingCall>>,
    /// The number of its log entry, if it has one.
    pub(super) seq: Option<u64>,
}

impl StreamedAnswer {
    pub(super) fn shown(&self) -> ShownSoFar {
        let has_card = self.cards.iter().flatten().any(|card| card.view.is_some());
        if !self.text.trim().is_empty() {
            ShownSoFar::AnswerText
        } else if !self.text.is_empty() || !self.thought.is_empty() || has_card {
            ShownSoFar::ReasoningOrCards
        } else {
            ShownSoFar::Nothing
        }
    }
}

/// Receives one answer.
pub(super) struct AnswerListener<'a> {
    pub(super) client: &'a Arc<dyn Client>,
    pub(super) tools: &'a Toolbox,
    pub(super) cwd: &'a Path,
    pub(super) history: &'a mut History,
    pub(in crate::turn) open: &'a mut OpenCards,
    pub(super) coalescer: TextCoalescer,
    pub(super) draft_writer: DraftWriter,
    pub(in crate::turn) text: String,
    pub(super) thought: String,
    /// The card of each call slot.
    pub(super) cards: Vec<Option<StreamingCall>>,
    /// The input kinds that the model accepts, as far as the user knows.
    pub(super) modalities: Modalities,
    pub(super) silence: SilenceWatch,
}

impl AnswerListener<'_> {
    /// Sends the request and shows the reply as it arrives. The request need not wait until the prompt and
    /// the results in it are stored, but the user sees nothing of the reply before that.
    pub(super) async fn listen(
        &mut self,
        model: &dyn Model,
        request: &Request,
        stored: impl Future<Output = ()>,
    ) -> Result<Reply, LlmError> {
        let opening = self.until_silent(model.open_stream(request));
        let (stream, ()) = tokio::join!(opening, stored);
        let mut stream = stream??;
        self.report_omission(model, request);
        let mut batch = DeltaBatch::default();
        loop {
            let kept = self.draft_writer.due(&self.text, &self.thought);
            let card = self.next_card();
            let moments = self.coalescer.due().into_iter().chain(kept).chain(card);
            let due = moments.fold(self.silence.due(), min);
            let reply = tokio::select! {
                biased;
                reply = stream.next(&mut batch) => reply?,
                () = sleep_until(due) => None,
            };
            if batch.take_progress() {
                self.silence.restart();
            } else if reply.is_none() {
                self.check_silence()?;
            }
            for delta in batch.deltas.drain(..) {
                self.on_delta(delta);
            }
            // With the rest of the answer come the complete arguments, with which the card begins.
            if reply.is_none() {
                self.show_due_cards(Instant::now());
            }
            if self.coalescer.due().is_some_and(|due| due <= Instant::now()) {
                // While the client does not read, neither do we read the model's stream. The
                // pending text is taken only after the wait: a cancel during the wait must not lose
                // it.
                self.client.wait_for_capacity().await;
                self.silence.restart();
                if let Some(update) = self.coalescer.take_due(Instant::now()) {
                    self.client.update(update);
                }
            }
            // After the words are on their way: it wakes the store's thread.
            self.draft_writer.write_due(&self.text, &self.thought, Instant::now());
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
    }

    /// Waits for the future, at most until the model's silence reaches its limit.
    async fn until_silent<T>(&mut self, future: impl Future<Output = T>) -> Result<T, LlmError> {
        tokio::pin!(future);
        loop {
            tokio::select! {
                biased;
                outcome = &mut future => return Ok(outcome),
                () = sleep_until(self.silence.due()) => self.check_silence()?,
            }
        }
    }

    /// Tells the user if the model has been silent for a while.
    fn check_silence(&mut self) -> Result<(), LlmError> {
        if let Some(notice) = self.silence.check()? {
            self.client.update(Update::Notice(notice));
        }
        Ok(())
    }

    /// Tells the client if the server has turned out not to accept images or recordings of this
    /// request. Returns true if so.
    pub(super) fn report_omission(&mut self, model: &dyn Model, request: &Request) -> bool {
        let before = std::mem::replace(&mut self.modalities, model.modalities());
        let notice = omission_notice(model.name(), request, before, self.modalities);
        let omits = notice.is_some();
        if let Some(notice) = notice {
            self.client.update(Update::Notice(notice));
        }
        omits
    }

    fn on_delta(&mut self, delta: Delta) {
        match delta {
            Delta::Text(words) => {
                self.text.push_str(&words);
                self.queue_text(TextKind::Text, words);
            }
            Delta::Thought(words) => {
                self.thought.push_str(&words);
                self.queue_text(TextKind::Thought, words);
            }
            Delta::CallNamed { slot, name } => self.open_card(slot, &name),
            Delta::CallArguments { slot, text } => self.on_arguments(slot, &text),
        }
    }

    /// Updates a card's title as soon as the path or command is known, not only when a long value
    /// is complete.
    fn on_arguments(&mut self, slot: usize, text: &str) {
        let Some(card) = self.cards.get_mut(slot).and_then(Option::as_mut) else { return };
        let mut update = card.push(text, self.cwd);
        if !card.is_shown {
            return;
        }
        let now = Instant::now();
        // A client that does not read misses progress, but no complete value.
        if update.is_none()
            && card.is_due(now)
            && self.client.wait_for_capacity().now_or_never().is_some()
        {
            update = card.progress(now, self.cwd);
        }
        if let Some(update) = update {
            self.client.update(update.into());
        }
    }

    fn queue_text(&mut self, kind: TextKind, words: String) {
        if let Some(before) = self.coalescer.push(kind, words) {
            self.client.update(before);
        }
    }

    /// Opens the card of a call whose name is known. A later piece of the same name changes
    /// nothing.
    fn open_card(&mut self, slot: usize, name: &str) {
        if let Some(words) = self.coalescer.take() {
            self.client.update(words);
        }
        if self.cards.len() <= slot {
            self.cards.resize_with(slot + 1, || None);
        }
        if self.cards[slot].is_none() && self.tools.find(name).is_ok() {
            self.cards[slot] = Some(open_card(self.open, self.tools, self.history, name));
        }
    }

    /// When the next card is shown although its arguments are not complete.
    fn next_card(&self) -> Option<Instant> {
        let hidden = self.cards.iter().flatten().filter(|card| !card.is_shown);
        hidden.map(|card| card.opened + SHOW_CARD_AFTER).min()
    }

    fn show_due_cards(&mut self, now: Instant) {
        if self.next_card().is_none_or(|due| due > now) {
            return;
        }
        for card in self.cards.iter_mut().flatten().filter(|card| !card.is_shown) {
            card.is_shown = true;
            if let Some(view) = &card.view {
                self.open.set_view(&card.id, view);
                self.open.show(&card.id);
                self.draft_writer.reserve_seq();
                self.open.log_announced(&card.id);
            }
        }
    }

    pub(in crate::turn) fn finish(mut self) -> StreamedAnswer {
        if let Some(words) = self.coalescer.take() {
            self.client.update(words);
        }
        StreamedAnswer {
            text: take(&mut self.text),
            thought: take(&mut self.thought),
            cards: take(&mut self.cards),
            seq: self.draft_writer.seq(),
        }
    }
}

impl Drop for AnswerListener<'_> {
    fn drop(&mut self) {
        // If the turn dies, the text that the user has seen is stored all the same.
        self.draft_writer.write_all(&self.text, &self.thought);
    }
}

/// Bounds a name, which the model may have made up.
pub(super) fn clip_name(name: &str) -> String {
    text::cut(name, MAX_NAME_CHARS)
}

/// Opens a card for a call. The plan is displayed differently and gets none.
pub(super) fn open_card(
    cards: &mut OpenCards,
    tools: &Toolbox,
    history: &mut History,
    name: &str,
) -> StreamingCall {
    let id = CallId::from(format!("call-{}", history.mint()));
    let (name, view, shown) = match tools.find(name) {
        // The tool's real name, not the model's spelling of it (R-TOOL-8).
        Ok(tool) => (tool.name().to_owned(), tool.pending_view(), tool.shown_arguments()),
        Err(_) => {
            let title = match name {
                "" => "A call without a name".to_owned(),
                name => clip_name(&escape_hidden_line(name)),
            };
            let view = CallView::new(title, ToolKind::Other);
            (clip_name(&escape_hidden_line(name)), Some(view), COMMON_ARGUMENTS)
        }
    };
    if let Some(view) = view.clone() {
        cards.open(&id, name, view);
    }
    StreamingCall::new(id, view, shown, Instant::now())
}
