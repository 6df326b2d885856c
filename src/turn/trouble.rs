//! What an answer that failed, or that is not what it seems, means for the user and the model.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Thinker, Turn};
use turnwright_llm::{Effort, Kind, LlmError, Model, Request, Senses};
use turnwright_types::message::{Message, Part, Usage, UserMessage};
use turnwright_types::update::Update;

/// What the model is told when its answer was cut.
const CUT: &str = "Your last answer was cut off by the network. Go on exactly where it stopped; \
                   do not repeat what is there.";
/// What it is told when a call stands in its words (C.2 #21).
const LEAKED: &str = "Your last answer has a tool call in its text, where it does nothing. Make \
                      the call as a real tool call.";

/// Why the model is told to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nudge {
    /// Its answer was cut.
    Cut,
    /// It has written a call as text.
    Leaked,
}

/// A server that counts less than a third of the bytes over four has not read all. Below this
/// many tokens the guess is too coarse.
const WORTH_COMPARING: u64 = 4_000;

/// A message that makes the model go on.
pub(super) fn nudge(why: Nudge) -> UserMessage {
    let text = match why {
        Nudge::Cut => CUT,
        Nudge::Leaked => LEAKED,
    };
    UserMessage { parts: vec![Part::Context(text.to_owned())] }
}

impl Turn {
    /// If no answer followed, the next prompt must not be understood as a wish to go on.
    pub(super) fn take_back_nudge(&mut self) {
        let nudges = [Nudge::Cut, Nudge::Leaked].map(|it| Message::User(nudge(it)));
        let taken = self.history.messages.pop_if(|last| nudges.contains(last));
        if let (Some(_), Some(seq)) = (taken, self.last_told) {
            self.equipment.log().remove(seq);
        }
    }

    /// Says what ends the turn without being an error, and learns from it.
    pub(super) fn tell_trouble(&mut self, model: &dyn Model, error: &LlmError) {
        match error.kind() {
            Kind::Refused => self.tell_refusal(error.message().unwrap_or_default()),
            Kind::Overflow { .. } => self.tell_overflow(model, error),
            _ => {}
        }
    }

    /// A picture that the server can do nothing with would fail each request from now on. Leaves
    /// all of them out and returns what the user is told, if the error is about pictures.
    pub(super) fn leave_pictures_out(&mut self, error: &LlmError) -> Option<String> {
        let messages = &mut self.history.messages;
        let first = messages.iter().position(|it| it.has_images())?;
        if !error.blames_pictures() {
            return None;
        }
        // All that follow are new, too: what was rendered is kept by the last message of it.
        for message in &mut messages[first..] {
            *message = Arc::new(without_pictures(message));
        }
        let (host, message) = (error.host().unwrap_or_default(), error.message());
        let why = message.unwrap_or("no explanation");
        Some(format!("{host} could not use a picture, so those so far are left out. ({why})"))
    }

    fn tell_overflow(&mut self, model: &dyn Model, error: &LlmError) {
        if let Some(limit) = error.window() {
            model.learned_window(limit);
        }
        let mut size = String::new();
        if let Some(window) = model.window() {
            // The request did not fit, so the window is full.
            let (cached, cost) = (0, self.history.cost);
            let usage = Update::Usage { used: window, size: window, cached, cost };
            self.equipment.client().update(usage);
            size = format!(" of {window} tokens");
        }
        let (host, message) = (error.host().unwrap_or_default(), error.message());
        self.say(format!(
            "This conversation no longer fits into the model's window{size}. Use `/clear` to begin \
             a new one, or choose a model with a larger window. ({host}: {})",
            message.unwrap_or("no explanation"),
        ));
    }

    /// An answer that hits a limit which nobody has set has filled the window (C.1 #7).
    pub(super) fn tell_full_window(&mut self, model: &dyn Model, usage: Option<Usage>) {
        let Some((usage, window)) = usage.zip(model.window()) else { return };
        if (usage.input + usage.output) / 98 >= window / 100 {
            self.say(format!(
                "The model's window of {window} tokens is full. Use `/clear` to begin a new \
                 conversation, or choose a model with a larger window."
            ));
        }
    }

    /// The server does not take the chosen effort: the usual one is used from now on.
    pub(super) fn tell_lack(&self, thinker: &Thinker) {
        let Thinker { model, effort } = thinker;
        if *effort != Effort::Default && model.lacks(*effort) {
            self.equipment.thinker.set_effort(Effort::Default);
            self.equipment.client().update(Update::Notice(format!(
                "{} does not have the reasoning effort `{}`; its default is used.",
                model.name(),
                effort.id()
            )));
        }
    }

    /// Some servers drop the beginning of what does not fit, without a word (C.1 #12).
    pub(super) fn suspect_cut(&self, usage: Option<Usage>, request: &Request) {
        let Some(usage) = usage else { return };
        if self.equipment.knows_of_cuts.load(Ordering::Relaxed) {
            return;
        }
        let estimate = estimate(request);
        if estimate <= WORTH_COMPARING || usage.input == 0 || usage.input >= estimate / 3 {
            return;
        }
        if !self.equipment.knows_of_cuts.swap(true, Ordering::Relaxed) {
            self.equipment.client().update(Update::Notice(format!(
                "The server seems to have cut the prompt: it counts {} tokens where about \
                 {estimate} were sent. With Ollama, set num_ctx or OLLAMA_CONTEXT_LENGTH.",
                usage.input
            )));
        }
    }
}

/// What the user is told when a server has turned out to take less than was thought, and got the
/// request without it.
pub(super) fn omission(
    name: &str,
    request: &Request,
    before: Senses,
    now: Senses,
) -> Option<String> {
    if before == now {
        return None;
    }
    let media = request.media();
    let what = if media.images && before.images && !now.images {
        "images"
    } else if media.audio && before.audio && !now.audio {
        "recordings"
    } else {
        return None;
    };
    Some(format!("{name} takes no {what}: it is told that there were some."))
}

fn without_pictures(message: &Message) -> Message {
    const NOTE: &str = "[image left out: the server could not use it]";
    let mut message = message.clone();
    match &mut message {
        Message::User(user) => {
            for part in user.parts.iter_mut().filter(|it| matches!(it, Part::Image(_))) {
                *part = Part::Text(NOTE.to_owned());
            }
        }
        Message::Tool(tool) if !tool.images.is_empty() => {
            tool.images.clear();
            tool.text.push_str(NOTE);
        }
        Message::Tool(_) | Message::Assistant(_) => {}
    }
    message
}

/// Some servers answer a conversation that does not fit with nothing at all (C.1 #10).
pub(super) fn suspect_overflow(
    error: LlmError,
    request: &Request,
    window: Option<u64>,
) -> LlmError {
    let LlmError::Empty { host, what } = &error else { return error };
    let used = estimate(request);
    if window.is_none_or(|it| used < it / 5 * 4) {
        return error;
    }
    LlmError::InStream {
        host: host.clone(),
        message: format!("it sent {what}, and the conversation is about as long as the window"),
        status: None,
        retry_after: None,
        kind: Kind::Overflow { limit: None, used: Some(used) },
    }
}

/// About as many tokens as the conversation has, without the tools: four bytes each.
fn estimate(request: &Request) -> u64 {
    let bytes = request.messages.iter().map(|it| size(it)).sum::<usize>() + request.system.len();
    u64::try_from(bytes / 4).unwrap_or(u64::MAX)
}

fn size(message: &Message) -> usize {
    match message {
        Message::User(user) => user.parts.iter().map(part_size).sum(),
        Message::Assistant(assistant) => assistant.text.len(),
        Message::Tool(tool) => tool.text.len(),
    }
}

fn part_size(part: &Part) -> usize {
    if let Part::Text(text) | Part::Context(text) | Part::Resource { text, .. } = part {
        return text.len();
    }
    0
}
