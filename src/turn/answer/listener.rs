//! Receives one answer of the model: shows its words and cards as they arrive, keeps a draft of it in the
//! log, and watches over the model's silence. A slow model is never delayed: text is shown at once if the last was
//! shown a frame or more ago, and else merged until the end of the frame. So a fast one causes about sixty updates
//! a second. The draft survives a crash.

use std::cmp::min;
use std::mem::take;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::failures::omission_notice;
use super::silence::SilenceWatch;
use super::streaming_call::StreamingCall;
use crate::tools::{COMMON_ARGUMENTS, Toolbox};
use crate::turn::calls::records::{AGENT_ENDED, OpenCards};
use crate::turn::next_step::ShownSoFar;
use turnwright_llm::quirks::{QuirkPatch, ThinkTags};
use turnwright_llm::{
    Delta, DeltaBatch, EndReason, ErrorKind, LlmError, Modalities, Model, Reply, Request,
    split_unopened_thought,
};
use turnwright_store::{PendingWrite, SessionLog};
use turnwright_types::client::Client;
use turnwright_types::effect::{CallView, ToolKind, escape_hidden_line};
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::History;
use turnwright_types::patience::sleep_until;
use turnwright_types::update::Update;
use turnwright_types::{redact, text};

/// How long a card waits for complete arguments before it is shown without them. Few arguments
/// arrive in less, and their card then appears once, with its final title.
const SHOW_CARD_AFTER: Duration = Duration::from_millis(150);
/// The most characters of a tool name that are kept.
const MAX_NAME_CHARS: usize = 200;
/// The interval at which new text is stored.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);
/// How long to wait when the last write is not done yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The length of one frame at sixty frames a second.
const FRAME: Duration = Duration::from_millis(16);

/// An answer as far as it was received.
#[derive(Default)]
pub(super) struct StreamedAnswer {
    pub(in crate::turn) text: String,
    pub(super) thought: String,
    /// The card of each call slot.
    pub(super) cards: Vec<Option<StreamingCall>>,
    /// The number of its log entry, if it has one.
    pub(super) seq: Option<u64>,
    /// The tokens and the cost that the server has reported so far.
    pub(super) reported: turnwright_llm::ReportedUsage,
    /// How the request has ended; `None` if the turn was cancelled.
    pub(super) outcome: Option<Result<Reply, LlmError>>,
    /// True if the user was told that the request leaves images or audio out.
    pub(super) omits_media: bool,
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

    /// Separates reasoning that has only a closing tag. The user has seen it as text, but the model does not get it
    /// back. From then on the opening tag of the model's answers may be missing, so a text without tags is held back to
    /// its end. That is unlearned after an answer without reasoning.
    pub(super) fn separate_thought(&mut self, model: &dyn Model) {
        if !self.thought.is_empty() || self.text.is_empty() {
            return;
        }
        if let Some((thought, text)) = split_unopened_thought(&self.text) {
            if model.record_quirks(QuirkPatch::NONE.think(ThinkTags::Implicit)) {
                thought.clone_into(&mut self.thought);
                self.text = String::from(text);
            }
        } else if let Some(Ok(reply)) = &self.outcome
            && reply.end == EndReason::Complete
            && reply.calls.is_empty()
            && model.profile().quirks.think == Some(ThinkTags::Implicit)
        {
            model.record_quirks(QuirkPatch::NONE.think(ThinkTags::Tagged));
        }
    }

    /// The error of a server that has refused one image and takes others, or may have refused an image or a PDF file
    /// without saying so. Only media that the model takes are sent.
    pub(super) fn refused_image(&self, takes: Modalities) -> Option<&LlmError> {
        let error = self.outcome.as_ref()?.as_ref().err()?;
        let is_first = self.shown() == ShownSoFar::Nothing && !self.omits_media;
        let may_be_any = error.kind() == ErrorKind::BadRequest;
        let is_suspect = error.is_about_one_image()
            || takes.images && may_be_any && !error.is_about_images()
            || takes.files && (may_be_any || error.is_about_files());
        (is_first && is_suspect).then_some(error)
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
    pub(super) answer: StreamedAnswer,
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
            let kept = self.draft_writer.due(&self.answer.text, &self.answer.thought);
            let card = self.next_card();
            let moments = self.coalescer.due().into_iter().chain(kept).chain(card);
            let due = moments.fold(self.silence.due(), min);
            let received = tokio::select! {
                biased;
                reply = stream.next(&mut batch) => reply,
                () = sleep_until(due) => Ok(None),
            };
            self.answer.reported = batch.reported;
            let reply = received?;
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
            self.draft_writer.write_due(&self.answer.text, &self.answer.thought, Instant::now());
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
                self.answer.text.push_str(&words);
                self.queue_text(false, words);
            }
            Delta::Thought(words) => {
                self.answer.thought.push_str(&words);
                self.queue_text(true, words);
            }
            Delta::CallNamed { slot, name } => self.open_card(slot, &name),
            Delta::CallArguments { slot, text } => self.on_arguments(slot, &text),
        }
    }

    /// Updates a card's title as soon as the path or command is known, not only when a long value
    /// is complete.
    fn on_arguments(&mut self, slot: usize, text: &str) {
        let Some(card) = self.answer.cards.get_mut(slot).and_then(Option::as_mut) else { return };
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

    fn queue_text(&mut self, is_thought: bool, words: String) {
        if let Some(before) = self.coalescer.push(is_thought, words) {
            self.client.update(before);
        }
    }

    /// Opens the card of a call whose name is known. A later piece of the same name changes
    /// nothing.
    fn open_card(&mut self, slot: usize, name: &str) {
        if let Some(words) = self.coalescer.take() {
            self.client.update(words);
        }
        if self.answer.cards.len() <= slot {
            self.answer.cards.resize_with(slot + 1, || None);
        }
        if self.answer.cards[slot].is_none() && self.tools.find(name).is_ok() {
            self.answer.cards[slot] = Some(open_card(self.open, self.tools, self.history, name));
        }
    }

    /// When the next card is shown although its arguments are not complete.
    fn next_card(&self) -> Option<Instant> {
        let hidden = self.answer.cards.iter().flatten().filter(|card| !card.is_shown);
        hidden.map(|card| card.opened + SHOW_CARD_AFTER).min()
    }

    fn show_due_cards(&mut self, now: Instant) {
        if self.next_card().is_none_or(|due| due > now) {
            return;
        }
        for card in self.answer.cards.iter_mut().flatten().filter(|card| !card.is_shown) {
            card.is_shown = true;
            if let Some(view) = &card.view {
                self.open.set_view(&card.id, view);
                self.open.show(&card.id);
                self.draft_writer.reserve_seq();
                self.open.log_incomplete(&card.id, AGENT_ENDED);
            }
        }
    }

    pub(in crate::turn) fn finish(mut self) -> StreamedAnswer {
        if let Some(words) = self.coalescer.take() {
            self.client.update(words);
        }
        self.answer.seq = self.draft_writer.seq;
        take(&mut self.answer)
    }
}

impl Drop for AnswerListener<'_> {
    fn drop(&mut self) {
        // If the turn dies, the text that the user has seen is stored all the same.
        self.draft_writer.write_all(&self.answer.text, &self.answer.thought);
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

/// The part of one answer that was stored so far.
#[derive(Debug)]
pub(super) struct DraftWriter {
    log: SessionLog,
    id: MessageId,
    /// The number of its log entry, once there is text or a card.
    seq: Option<u64>,
    /// The bytes that were handed to the store.
    text: usize,
    thought: usize,
    next: Instant,
    in_flight: Vec<PendingWrite>,
}

impl DraftWriter {
    pub(super) fn new(log: SessionLog, id: MessageId) -> DraftWriter {
        let next = Instant::now();
        DraftWriter { log, id, seq: None, text: 0, thought: 0, next, in_flight: Vec::new() }
    }

    /// When the next write is due. A time in the past means now; `None` means that there is nothing new.
    fn due(&self, text: &str, thought: &str) -> Option<Instant> {
        let waits = text.len() > self.text || thought.len() > self.thought;
        waits.then_some(self.next)
    }

    /// Stores the new text if a write is due.
    fn write_due(&mut self, text: &str, thought: &str, now: Instant) {
        if self.due(text, thought).is_none_or(|due| due > now) {
            return;
        }
        self.in_flight.retain(|write| !write.is_done());
        if !self.in_flight.is_empty() {
            self.next = now + RETRY_INTERVAL;
            return;
        }
        self.next = now + WRITE_INTERVAL;
        // A secret that is split between two writes would not be redacted.
        self.write(true, thought, self.thought + complete_len(&thought[self.thought..]));
        self.write(false, text, self.text + complete_len(&text[self.text..]));
    }

    /// Stores the rest: the turn has died.
    fn write_all(&mut self, text: &str, thought: &str) {
        self.write(true, thought, thought.len());
        self.write(false, text, text.len());
    }

    /// Reserves the number of the answer's log entry, which comes before those of its cards.
    fn reserve_seq(&mut self) -> u64 {
        *self.seq.get_or_insert_with(|| self.log.reserve_seq())
    }

    fn write(&mut self, is_thought: bool, content: &str, end: usize) {
        let written = if is_thought { &mut self.thought } else { &mut self.text };
        if end <= *written {
            return;
        }
        let piece = content[*written..end].to_owned();
        *written = end;
        let seq = self.reserve_seq();
        self.in_flight.push(self.log.append_draft(seq, &self.id, is_thought, piece));
    }
}

/// The length of a text without a key that may be incomplete at its end.
fn complete_len(rest: &str) -> usize {
    redact::without_partial_key(rest).len()
}

/// The words of the answer, or of the reasoning, that the client does not have yet.
#[derive(Debug)]
pub(super) struct TextCoalescer {
    message: MessageId,
    is_thought: bool,
    text: String,
    /// When text may be shown again.
    next: Instant,
}

impl TextCoalescer {
    pub(super) fn new(message: MessageId) -> TextCoalescer {
        TextCoalescer { message, is_thought: false, text: String::new(), next: Instant::now() }
    }

    /// Adds a delta. Returns the pending text of the other kind, which must be sent before it.
    fn push(&mut self, is_thought: bool, text: String) -> Option<Update> {
        let before = if is_thought == self.is_thought { None } else { self.take() };
        self.is_thought = is_thought;
        if self.text.is_empty() {
            self.text = text;
        } else {
            self.text.push_str(&text);
        }
        before
    }

    /// When the pending text is due; `None` if there is none. A time in the past means now.
    fn due(&self) -> Option<Instant> {
        (!self.text.is_empty()).then_some(self.next)
    }

    /// Takes the pending text if it is due.
    fn take_due(&mut self, now: Instant) -> Option<Update> {
        self.due().filter(|due| *due <= now)?;
        self.next = now + FRAME;
        self.take()
    }

    /// Takes the pending text.
    fn take(&mut self) -> Option<Update> {
        if self.text.is_empty() {
            return None;
        }
        let text = take(&mut self.text);
        let message = self.message.clone();
        Some(if self.is_thought {
            Update::AgentThought { message, text }
        } else {
            Update::AgentText { message, text }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_store::Store;
    use turnwright_store::recovery::find_unfinished;

    #[tokio::test]
    async fn each_byte_is_written_once_at_most_four_times_a_second() {
        let (store, log) = crate::turn::fixture::store_with_session().await;
        let mut writer = DraftWriter::new(log.clone(), "msg-1".into());
        let begun = Instant::now();
        assert_eq!(writer.due("", ""), None);
        writer.write_due("", "äö", begun);
        log.flush().written().await;
        writer.write_due("", "äöä", begun + WRITE_INTERVAL / 2);
        assert_eq!(writer.due("", "äöä"), Some(begun + WRITE_INTERVAL));
        writer.write_due("é", "äöäöü", begun + WRITE_INTERVAL);
        log.flush().written().await;
        writer.write_due("éñ", "äöäöü", begun + WRITE_INTERVAL * 2);
        log.flush().written().await;
        let (drafts, pieces) = drafts(&store).await;
        assert_eq!((drafts[0].reasoning.as_str(), drafts[0].text.as_str()), ("äöäöü", "éñ"));
        assert_eq!((drafts.len(), pieces), (1, 4));
        assert_eq!(writer.seq, Some(drafts[0].seq));
    }

    async fn drafts(store: &Store) -> (Vec<turnwright_store::recovery::AnswerDraft>, u64) {
        let counting = store.read(|connection| {
            let pieces =
                connection.query_row("SELECT count(*) FROM drafts", [], |row| row.get(0))?;
            Ok((find_unfinished(connection, 1)?.drafts, pieces))
        });
        counting.await.unwrap()
    }

    fn text(update: Option<Update>) -> String {
        match update {
            Some(Update::AgentText { text, .. }) => text,
            Some(Update::AgentThought { text, .. }) => format!("({text})"),
            _ => "-".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_and_the_slow_go_out_at_once_and_the_fast_are_merged() {
        let mut coalescer = TextCoalescer::new("m".into());
        let mut log = Vec::new();
        for (wait, word) in [(0, "a"), (5, "b"), (5, "c"), (5, "d"), (5, "e"), (40, "f")] {
            tokio::time::advance(Duration::from_millis(wait)).await;
            assert_eq!(coalescer.push(false, word.to_owned()), None);
            log.push(text(coalescer.take_due(Instant::now())));
        }
        assert_eq!(log, ["a", "-", "-", "-", "bcde", "f"]);
        assert_eq!(coalescer.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_due_one_frame_after_the_last() {
        let mut coalescer = TextCoalescer::new("m".into());
        coalescer.push(false, "a".to_owned());
        let begun = Instant::now();
        coalescer.take_due(begun);
        coalescer.push(false, "b".to_owned());
        assert_eq!(coalescer.due(), Some(begun + FRAME));
    }

    #[tokio::test(start_paused = true)]
    async fn thoughts_and_text_keep_their_order() {
        let mut coalescer = TextCoalescer::new("m".into());
        coalescer.push(true, "a".to_owned());
        assert_eq!(text(coalescer.push(false, "b".to_owned())), "(a)");
        assert_eq!(text(coalescer.take()), "b");
    }
}
