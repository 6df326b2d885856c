//! One request to the model: its stream becomes updates as it comes, and one entry of the
//! history at its end, however it ends.

use std::mem::take;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep_until};

use super::cards::Cards;
use super::coalesce::{Coalescer, Sort};
use super::decide::{self, Sampled, Shown};
use super::draft::Draft;
use super::scribe::Scribe;
use super::trouble::{omission, suspect_overflow};
use super::{Step, Turn, context};
use turnwright_types::client::Client;
use turnwright_types::effect::{CallView, Kind, visible_line};
use turnwright_types::ids::{CallId, MessageId};
use turnwright_llm::{Batch, Delta, End, LlmError, Model, Reply, Request, Senses, looks_leaked};
use turnwright_types::message::{AssistantMessage, Echo, History, Message, Stop, ToolCall, Usage};
use turnwright_store::{Audience, Entry};
use crate::tools::Toolbox;
use turnwright_types::update::Update;

/// The longest name of a function.
const LONGEST_NAME: usize = 200;

impl Turn {
    pub(super) async fn sample(&mut self) -> Step {
        let equipment = self.equipment.clone();
        // A client that does not read what the last round has said gets no next one.
        self.cancel.run_until_cancelled(equipment.client().room()).await;
        let thinker = equipment.thinker.get();
        let request = context::request(
            &self.history,
            equipment.tools.specs(&equipment.offer(), thinker.model.window()),
            thinker.effort,
        );
        let message = MessageId::from(format!("msg-{}", self.history.mint()));
        let mut listener = Listener {
            client: equipment.client(),
            tools: &equipment.tools,
            cwd: equipment.bench.files.roots().cwd(),
            history: &mut self.history,
            open: &mut self.cards,
            coalescer: Coalescer::new(message.clone()),
            scribe: Scribe::new(equipment.log().clone(), message.clone()),
            text: String::new(),
            thought: String::new(),
            cards: Vec::new(),
            senses: thinker.model.senses(),
        };
        // What the request is about is kept before the model hears of it. Meanwhile it was built.
        let written = equipment.log().flush().written();
        if self.cancel.run_until_cancelled(written).await.is_none() {
            return Step::End(Ok(Stop::Cancelled));
        }
        // Dropping a half-read stream is safe, nothing has been run yet; and it aborts the
        // request at the server (R-CANCEL-1).
        let listening = listener.listen(thinker.model.as_ref(), &request);
        let outcome = self.cancel.run_until_cancelled(listening).await;
        // A refusal may also come in the stream.
        let omits = listener.tell_omission(thinker.model.as_ref(), &request);
        let heard = listener.finish();
        for draft in heard.cards.iter().flatten() {
            if let Some(view) = &draft.view {
                self.cards.looks(&draft.id, view);
            }
        }
        self.tell_lack(&thinker);
        let calls = match &outcome {
            Some(Ok(reply)) => self.name_calls(reply, &heard.cards),
            _ => Vec::new(),
        };
        let whole = outcome.as_ref().and_then(|it| it.as_ref().ok());
        self.remember(message, &heard, &calls, whole.map(|it| it.echo.clone()));
        self.drop_cards(&heard.cards, &calls).await;
        let sampled = match outcome {
            // The caller turns a cancelled token into the stop reason.
            None => return Step::End(Ok(Stop::Cancelled)),
            Some(Err(error)) => {
                if heard.shown() == Shown::Nothing
                    && !omits
                    && let Some(notice) = self.leave_pictures_out(&error)
                {
                    return Step::Pause(Duration::ZERO, Some(notice));
                }
                let error = suspect_overflow(error, &request, thinker.model.window());
                self.tell_trouble(thinker.model.as_ref(), &error);
                Sampled::Failed { error, shown: heard.shown() }
            }
            Some(Ok(reply)) => {
                self.tell_usage(thinker.model.as_ref(), reply.usage);
                self.suspect_cut(reply.usage, &request);
                if let End::Refused(why) = &reply.end {
                    self.tell_refusal(why);
                }
                if reply.end == End::Length {
                    self.tell_full_window(thinker.model.as_ref(), reply.usage);
                }
                let reads = calls.iter().all(|it| equipment.tools.reads(&it.name));
                let leaked =
                    calls.is_empty() && thinker.model.is_nudged() && looks_leaked(&heard.text);
                let most_same = decide::most_same(thinker.model.is_watched(), reads);
                Sampled::Reply { end: reply.end, calls: calls.clone(), most_same, leaked }
            }
        };
        let luck = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        let step = decide::after_sample(sampled, &mut self.budget, luck);
        if !matches!(step, Step::Act(_) | Step::Spare(_)) {
            self.abandon(calls, "Not executed: the turn ended here.").await;
        }
        step
    }

    /// Gives each call of the answer its identifiers. A call whose name came only at the very
    /// end gets its card now.
    fn name_calls(&mut self, reply: &Reply, cards: &[Option<Draft>]) -> Vec<ToolCall> {
        let mut calls = Vec::with_capacity(reply.calls.len());
        for call in &reply.calls {
            let id = match cards.get(call.slot).and_then(Option::as_ref) {
                Some(card) => card.id.clone(),
                None => {
                    let tools = &self.equipment.tools;
                    announce(&mut self.cards, tools, &mut self.history, &call.name).id
                }
            };
            let mut provider_id =
                context::unique_provider_id(&self.history, &call.provider_id, id.as_str());
            if calls.iter().any(|it: &ToolCall| it.provider_id == provider_id) {
                id.as_str().clone_into(&mut provider_id);
            }
            calls.push(ToolCall {
                id,
                provider_id,
                name: clipped(&call.name),
                arguments: call.arguments.clone(),
                extra: call.extra.clone(),
            });
        }
        calls
    }

    /// Ends the cards of calls that were begun and never completed. That is kept before it is seen.
    async fn drop_cards(&mut self, cards: &[Option<Draft>], calls: &[ToolCall]) {
        let why = if self.cancel.is_cancelled() {
            "cancelled"
        } else {
            "the answer broke off before the call was complete"
        };
        let left = |card: &&Draft| !calls.iter().any(|it| it.id == card.id);
        let lost: Vec<_> = cards.iter().flatten().filter(left).collect();
        if lost.is_empty() {
            return;
        }
        for card in &lost {
            self.cards.note_lost(&card.id, why);
        }
        self.equipment.log().flush().written().await;
        for card in lost {
            self.cards.fail(&card.id, why);
        }
    }

    fn remember(&mut self, id: MessageId, heard: &Heard, calls: &[ToolCall], echo: Option<Echo>) {
        if heard.text.is_empty() && heard.thought.is_empty() && calls.is_empty() {
            return;
        }
        let message = Arc::new(Message::Assistant(AssistantMessage {
            id: id.clone(),
            text: heard.text.clone(),
            thought: heard.thought.clone(),
            calls: calls.to_vec(),
            interrupted: echo.is_none(),
            echo: echo.unwrap_or_default(),
        }));
        // What was nothing but thoughts is of no use to the model.
        let is_answer = !heard.text.is_empty() || !calls.is_empty();
        let audience = if is_answer { Audience::Both } else { Audience::User };
        let entry = Entry::Message { id, message: Arc::clone(&message), audience };
        let log = self.equipment.log();
        log.put(heard.seq.unwrap_or_else(|| log.reserve()), entry);
        if is_answer {
            self.history.messages.push(message);
        }
    }

    /// The last request's tokens fill the window, whatever earlier ones have used. Without a known
    /// window nothing is told: a wrong gauge is worse than none.
    fn tell_usage(&mut self, model: &dyn Model, usage: Option<Usage>) {
        // A server that counts nothing knows nothing.
        let Some(usage) = usage.filter(|it| it.input + it.output > 0) else { return };
        if let Some(price) = model.price() {
            *self.history.cost.get_or_insert_default() += price.of(&usage);
        }
        let log = self.equipment.log();
        let cost = model.price().map(|it| it.of(&usage));
        log.usage(model.name(), usage, model.window(), cost);
        if let Some(size) = model.window() {
            let used = (usage.input + usage.output).min(size);
            let (cached, cost) = (usage.cached, self.history.cost);
            self.equipment.client().update(Update::Usage { used, size, cached, cost });
        }
    }

    /// Some editors remove the prompt on a refusal, so what the provider says must be seen.
    pub(super) fn tell_refusal(&mut self, why: &str) {
        let text = match why.trim() {
            "" => "The model's provider refused to answer this.".to_owned(),
            why => why.to_owned(),
        };
        self.say(text);
    }

    /// Says something to the user that the model will not know of.
    pub(super) fn say(&mut self, text: String) {
        let message = MessageId::from(format!("msg-{}", self.history.mint()));
        self.equipment.say(message, text);
    }
}

/// What was heard.
struct Heard {
    text: String,
    thought: String,
    cards: Vec<Option<Draft>>,
    /// The number of its entry, if it has one.
    seq: Option<u64>,
}

impl Heard {
    /// What the user has seen of it.
    fn shown(&self) -> Shown {
        let has_card = self.cards.iter().flatten().any(|it| it.view.is_some());
        if !self.text.trim().is_empty() {
            Shown::Words
        } else if !self.text.is_empty() || !self.thought.is_empty() || has_card {
            Shown::Traces
        } else {
            Shown::Nothing
        }
    }
}

struct Listener<'a> {
    client: &'a Arc<dyn Client>,
    tools: &'a Toolbox,
    cwd: &'a Path,
    history: &'a mut History,
    open: &'a mut Cards,
    coalescer: Coalescer,
    scribe: Scribe,
    text: String,
    thought: String,
    /// The card of each slot.
    cards: Vec<Option<Draft>>,
    /// What the model takes, as far as the user knows.
    senses: Senses,
}

impl Listener<'_> {
    async fn listen(&mut self, model: &dyn Model, request: &Request) -> Result<Reply, LlmError> {
        let mut stream = model.open(request).await?;
        self.tell_omission(model, request);
        let mut batch = Batch::default();
        loop {
            let kept = self.scribe.due(&self.text, &self.thought);
            let due = self.coalescer.due().into_iter().chain(kept).min();
            let reply = tokio::select! {
                biased;
                reply = stream.next(&mut batch) => Some(reply?),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => None,
            };
            for delta in batch.deltas.drain(..) {
                self.delta(delta);
            }
            self.scribe.keep(&self.text, &self.thought, Instant::now());
            if self.coalescer.due().is_some_and(|it| it <= Instant::now()) {
                // A client that stops reading stops us here, and we stop reading the model. The
                // words are taken only then: a cancel meanwhile must not lose them.
                self.client.room().await;
                if let Some(update) = self.coalescer.take_due(Instant::now()) {
                    self.client.update(update);
                }
            }
            if let Some(Some(reply)) = reply {
                return Ok(reply);
            }
        }
    }

    /// Tells it if the server has turned out to take less than was thought, and returns that.
    fn tell_omission(&mut self, model: &dyn Model, request: &Request) -> bool {
        let before = std::mem::replace(&mut self.senses, model.senses());
        let notice = omission(model.name(), request, before, self.senses);
        let omits = notice.is_some();
        if let Some(notice) = notice {
            self.client.update(Update::Notice(notice));
        }
        omits
    }

    fn delta(&mut self, delta: Delta) {
        match delta {
            Delta::Text(words) => {
                self.text.push_str(&words);
                self.words(Sort::Text, words);
            }
            Delta::Thought(words) => {
                self.thought.push_str(&words);
                self.words(Sort::Thought, words);
            }
            Delta::CallNamed { slot, name } => self.card(slot, &name),
            Delta::CallArguments { slot, text } => self.arguments(slot, &text),
        }
    }

    /// A card says what it is about as soon as that is known, not when a long content is
    /// complete.
    fn arguments(&mut self, slot: usize, text: &str) {
        let Some(card) = self.cards.get_mut(slot).and_then(Option::as_mut) else { return };
        let mut update = card.push(text, self.cwd);
        let now = Instant::now();
        // A client that does not read misses news of what is on its way, not what has come.
        if update.is_none() && card.is_due(now) && self.client.room().now_or_never().is_some() {
            update = card.progress(now, self.cwd);
        }
        if let Some(update) = update {
            self.client.update(Update::CallUpdate(Box::new(update)));
        }
    }

    fn words(&mut self, sort: Sort, words: String) {
        if let Some(before) = self.coalescer.push(sort, words) {
            self.client.update(before);
        }
    }

    /// The first sight of a call. A name that grows has its card already.
    fn card(&mut self, slot: usize, name: &str) {
        if let Some(words) = self.coalescer.take() {
            self.client.update(words);
        }
        if self.cards.len() <= slot {
            self.cards.resize_with(slot + 1, || None);
        }
        if self.cards[slot].is_none() && self.tools.find(name).is_ok() {
            self.cards[slot] = Some(announce(self.open, self.tools, self.history, name));
        }
    }

    fn finish(mut self) -> Heard {
        if let Some(words) = self.coalescer.take() {
            self.client.update(words);
        }
        Heard {
            text: take(&mut self.text),
            thought: take(&mut self.thought),
            cards: take(&mut self.cards),
            seq: self.scribe.seq(),
        }
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        // What the user has seen of an answer outlives the turn that dies with it.
        self.scribe.keep_all(&self.text, &self.thought);
    }
}

/// A name that a model has made up, as long as names are.
fn clipped(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

/// Shows a card for a call; the plan has a display of its own and gets none.
fn announce(cards: &mut Cards, tools: &Toolbox, history: &mut History, name: &str) -> Draft {
    let id = CallId::from(format!("call-{}", history.mint()));
    let (name, view) = match tools.find(name) {
        // The name that the model was told, not the one that it has made of it (R-TOOL-8).
        Ok(tool) => (tool.name().to_owned(), tool.first_view()),
        Err(_) => {
            let title = match name {
                "" => "A call without a name".to_owned(),
                name => clipped(&visible_line(name)),
            };
            let view = CallView { title, kind: Kind::Other, locations: Vec::new() };
            (clipped(&visible_line(name)), Some(view))
        }
    };
    if let Some(view) = view.clone() {
        cards.open(&id, name, view);
    }
    Draft::new(id, view, Instant::now())
}
