//! Tells the user and the model about answers that failed, were cut off or lack something.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::error::Error;
use crate::turn::conversation::OnceNotice;
use crate::turn::proof::is_in;
use crate::turn::room::compaction::window;
use crate::turn::{Conversation, ModelSelection, Turn};
use turnwright_llm::quirks::QuirkPatch;
use turnwright_llm::{ErrorKind, LlmError, Modalities, Model, Request};
use turnwright_types::message::{
    AssistantMessage, History, Message, PromptPart, StopReason, TokenUsage, UserMessage,
};
use turnwright_types::text;
use turnwright_types::token_meter::{text_weight, weight_of};

/// The message to the model after its answer was cut off.
const CUT: &str = "Your last answer was cut off. Go on exactly where it stopped; \
                   do not repeat what is there.";
/// The message to the model after it has announced a tool call or written it as text (C.2 #21), or the server has lost
/// one (C.1 #11).
const LEAKED: &str = "Your last answer made no tool call: the call was only announced, was written as text, where it \
                      does nothing, or was lost. Make it as a real tool call; if all is done, say so.";
/// The beginnings of last sentences that announce a call.
const ANNOUNCEMENTS: &str =
    "Let me |Now let me |I'll now |I will now |Now I'll |Now I will |Next, I'll |Next, I will ";
/// The words that follow these beginnings.
const VERBS: &str = "add apply change check commit create edit examine find fix implement inspect look make open read \
                     remove rename replace rerun review run search test try update verify write";
/// The message to the model after it has only reasoned. It may have written a call there.
const WORDLESS: &str = "Your last answer was only reasoning: it does nothing, and the user does not \
                        see it as an answer. Make your tool call or give your answer now.";
/// The message to the model after two answers in a row without a word and without a readable call.
const UNREADABLE: &str = "Your last answer was empty, or its tool call could not be read. Make a valid tool \
                          call, or answer; if all is done, say so.";

/// The beginning of the message to the model after its answer has filled the window.
const FULL: &str =
    "Your last answer was cut off, because the context window was full. Room was made.";
/// How much of the end of such an answer the model is told.
const MAX_END_CHARS: usize = 400;

/// The reason why the model is told to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::turn) enum Nudge {
    /// Its answer was cut off.
    Cut,
    /// It has written a tool call as text, or its call was lost.
    Leaked,
    /// It has neither written a text nor made a call.
    Wordless,
    /// Its answer was empty or unreadable, and so was the next.
    Unreadable,
    /// Its answer has filled the window, and room was made.
    Full,
}

/// The message that makes the model continue its last answer.
pub(in crate::turn) fn nudge_message(why: Nudge, history: &History) -> UserMessage {
    let text = match why {
        Nudge::Cut => CUT.to_owned(),
        Nudge::Leaked => LEAKED.to_owned(),
        Nudge::Wordless => WORDLESS.to_owned(),
        Nudge::Unreadable => UNREADABLE.to_owned(),
        Nudge::Full => match history.messages.last().map(AsRef::as_ref) {
            // A summary may have replaced the answer by the time the model reads this.
            Some(Message::Assistant(AssistantMessage { text, .. })) => {
                format!(
                    "{FULL} Go on exactly where the answer stopped; do not repeat what is there. It \
                     ended with:\n{}",
                    text::last_chars(text, MAX_END_CHARS)
                )
            }
            _ => format!("{FULL} Answer now."),
        },
    };
    UserMessage::context(text)
}

/// Returns true if an answer ends by announcing a call: with a colon, or a sentence such as "Let me run the tests."
/// A last line that speaks to the user announces none.
pub(in crate::turn) fn announces_call(text: &str) -> bool {
    let line = text.trim_end().lines().next_back().unwrap_or_default().trim().replace('’', "'");
    let sentence = line.rsplit(". ").next().unwrap_or_default();
    let announced = ANNOUNCEMENTS.split('|').find_map(|start| sentence.strip_prefix(start));
    let verb = announced.and_then(|rest| rest.split([' ', '.', ':', '…']).next());
    let asks = [" you", "Please ", "please "].iter().any(|word| line.contains(word));
    !asks && (line.ends_with([':', '：']) || verb.is_some_and(|verb| is_in(VERBS, verb)))
}

fn is_nudge(message: &Message) -> bool {
    let Message::User(UserMessage { parts, .. }) = message else { return false };
    let [PromptPart::Context(text)] = &parts[..] else { return false };
    [CUT, LEAKED, WORDLESS, UNREADABLE].contains(&text.as_str()) || text.starts_with(FULL)
}

/// A message in place of an answer that never came, for a turn that has ended without one. Without
/// it servers would get this prompt and the next as one message.
pub(in crate::turn) fn unanswered_note(
    history: &History,
    result: &Result<StopReason, Error>,
) -> Option<Message> {
    let why = match result {
        Ok(StopReason::EndTurn | StopReason::Repetition | StopReason::Refusal) => return None,
        Ok(StopReason::Cancelled) => "the user cancelled the turn",
        Ok(StopReason::MaxTokens) => "the limit of tokens was reached",
        Ok(StopReason::MaxTurnRequests) => "the limit of requests in one turn was reached",
        Err(_) => "the turn failed",
    };
    stopped_note(history, why)
}

/// The same for a turn that has ended because of `why`, a clause.
pub(crate) fn stopped_note(history: &History, why: &str) -> Option<Message> {
    let last = history.messages.iter().rev().find(|message| match message.as_ref() {
        Message::Assistant(answer) => !answer.text.trim().is_empty() || !answer.calls.is_empty(),
        Message::User(_) | Message::Tool(_) => true,
    })?;
    if last.as_assistant().is_some() {
        return None;
    }
    // It has no identifier, because the client never gets it.
    let note = AssistantMessage::new("", format!("[Stopped here: {why}.]"), Vec::new());
    Some(Message::Assistant(note))
}

impl Turn {
    /// Removes a trailing nudge: without an answer after it, it would make the model misread the
    /// next prompt as a request to continue.
    pub(in crate::turn) fn remove_trailing_nudge(&mut self) {
        let taken = self.history.messages.pop_if(|last| is_nudge(last));
        if let (Some(_), Some(seq)) = (taken, self.last_hidden) {
            self.conversation.log().remove_entry(seq);
        }
    }

    /// Tells the user that the conversation does not fit into the window, although it was compacted.
    pub(in crate::turn) fn report_overflow(&mut self, model: &dyn Model, error: &LlmError) {
        let size = window(model, &self.history);
        self.conversation.report_context(&self.history, size, size, 0);
        let host = error.host().unwrap_or_default();
        let message = error.message().unwrap_or("no explanation");
        let prompt = self.prompt_tokens();
        let advice: &str = if error.exceeds_minute_limit() {
            "This request has more tokens than your account may send in a minute, whatever the model's window. Attach \
             less, ask the provider for a higher limit, or choose another model."
        } else if prompt > size / 2 {
            &format!(
                "This prompt alone has about {prompt} tokens, which does not fit into the model's window. Attach \
                 less, name files so that the model reads parts of them, or choose a model with a larger window."
            )
        } else {
            "This conversation does not fit into the model's window, although it was compacted. Use `/clear` to start \
             a new one, attach less, or choose a model with a larger window."
        };
        self.say(format!("{advice} ({host}: {message})"));
    }

    /// If the server does not support the chosen effort, falls back to another one and tells the
    /// user.
    pub(super) fn report_missing_effort(&self, selection: &ModelSelection) {
        let ModelSelection { model, effort, .. } = selection;
        let accepted = model.accepted_effort(*effort);
        if accepted != *effort {
            self.conversation.selection.set_effort(accepted);
            self.conversation.notify(format!(
                "{} does not have the reasoning effort `{}`; `{}` is used.",
                model.name(),
                effort.id(),
                accepted.id()
            ));
        }
    }

    /// Asks for longer answers from now on if one was cut off at a limit that nobody has set: some servers have their
    /// own, such as 512 or 4096 tokens.
    pub(super) fn outgrow_limit(&self, model: &dyn Model, usage: Option<TokenUsage>) {
        let output = usage.map_or(0, |usage| usage.output);
        // A round number that is less than what will be asked for.
        if (256..window(model, &self.history).min(65_536) / 4).contains(&output)
            && output.is_multiple_of(256)
            && model.max_output().is_none()
            && model.profile().quirks.long.is_none()
            && model.record_quirks(QuirkPatch::NONE.long(true))
        {
            self.conversation.notify(format!(
                "{} ends answers after {output} tokens. It is asked for more from now on.",
                model.host()
            ));
        }
    }

    /// Tells the user, once per session, that the base URL lacks its version.
    pub(super) fn report_corrected_base_url(&self, model: &dyn Model) {
        if let Some(url) = model.corrected_base_url()
            && self.conversation.told.first_time(OnceNotice::BaseUrl)
        {
            self.conversation.notify(format!(
                "The base URL lacks `/v1`, so {url} is used. Set that as `base_url` in the \
                 settings, or as OPENAI_BASE_URL."
            ));
        }
    }
}

/// Finds a model anew after the server has refused its key: the key may have expired, and another program or a login
/// may have stored the next one. Returns the model if the server may accept it now.
pub(in crate::turn) async fn renew_model(
    conversation: &Conversation,
    refused: &Arc<dyn Model>,
) -> Option<Arc<dyn Model>> {
    let name = refused.name().to_owned();
    let find = Arc::clone(&conversation.find_model);
    let found = spawn_blocking(move || find(&name)).await.ok()?.ok()?;
    let is_other = !Arc::ptr_eq(&found, refused) && found.server_id() == refused.server_id();
    // The user, or a helper with the same selection, may have set another one meanwhile.
    if is_other && Arc::ptr_eq(&conversation.selection.get().model, refused) {
        conversation.selection.restore_model(Arc::clone(&found));
    }
    is_other.then_some(found)
}

/// Returns true if an answer that stopped at a length limit has filled the window, and is shorter than the limit
/// that somebody has set, if any (C.1 #7).
pub(super) fn fills_window(model: &dyn Model, usage: Option<TokenUsage>) -> bool {
    let Some((usage, window)) = usage.zip(model.window()) else { return false };
    let is_limited = model.max_output().is_some_and(|limit| usage.output >= limit);
    !is_limited && usage.total() / 98 >= window / 100
}

/// Returns the notice for a request that was sent without its images, PDF files or recordings, because the
/// server turned out not to accept them.
pub(super) fn omission_notice(
    name: &str,
    request: &Request,
    before: Modalities,
    now: Modalities,
) -> Option<String> {
    let media = request.media();
    let what = if media.images && before.images && !now.images {
        "images"
    } else if media.files && before.files && !now.files {
        "PDF files"
    } else if media.audio && before.audio && !now.audio {
        "recordings"
    } else {
        return None;
    };
    Some(format!("{name} does not accept {what}; they were left out."))
}

/// Turns an empty answer into an overflow error if the conversation nearly fills the window: some
/// servers answer nothing at all then (C.1 #10).
pub(super) fn empty_reply_as_overflow(
    error: LlmError,
    request: &Request,
    window: Option<u64>,
) -> LlmError {
    let LlmError::EmptyReply { host, what } = &error else { return error };
    // Estimated at four bytes a token, without the tools.
    let used = (weight_of(&request.messages) + text_weight(&request.system)) / 4;
    if window.is_none_or(|window| used < window / 5 * 4) {
        return error;
    }
    let message = format!("it sent {what}, and the conversation is about as long as the window");
    let kind = ErrorKind::ContextOverflow { limit: None, used: Some(used) };
    LlmError::in_stream(host.clone(), message, kind)
}

#[cfg(test)]
mod tests {
    use turnwright_llm::{Endpoint, ModelSettings, Protocol, RemoteModel};
    use turnwright_testing::mcp_http_stub::answer;
    use turnwright_testing::raw_server::RawServer;

    use super::*;
    use crate::turn::fixture::{ScriptedReply, turn_fixture};

    #[test]
    fn an_answer_that_ends_with_the_next_step_announces_a_call() {
        for text in [
            "Now the import is there. Let me run the tests.",
            "The cause is in a.rs.\n\nNow I’ll fix `a.rs`:",
            "接下来我修改 a.rs：",
            "Two of three are done. Next, I will change b.py…",
        ] {
            assert!(announces_call(text), "{text}");
        }
        for text in [
            "",
            "I fixed `a.rs`. Let me know if the tests fail.",
            "I will now wait for your answer.",
            "Let me run the tests. They pass.",
            "Let me guess: it is late?",
            "Let me be clear: nothing was tested.",
            "I'll now await the decision.",
            "Next, I'll add the tests if you agree.",
            "Please paste the output here:",
            "Which of them do you prefer:",
            "Done: `a.rs:3` is fixed.",
        ] {
            assert!(!announces_call(text), "{text}");
        }
    }

    fn refusing_server() -> RawServer {
        RawServer::start(|_, stream| answer(stream, "401 Unauthorized", "", "No."))
    }

    fn model(base_url: &str) -> Arc<dyn Model> {
        let settings = ModelSettings {
            name: "m".to_owned(),
            model: "m".to_owned(),
            ..ModelSettings::default()
        };
        let endpoint = Endpoint::new(base_url, None).unwrap();
        Arc::new(RemoteModel::new(Protocol::Chat, endpoint, settings))
    }

    /// Settings that do not equal themselves, such as those with a price of `nan`, make another model each time.
    #[tokio::test]
    async fn a_key_that_is_always_refused_is_looked_for_a_few_times() {
        let server = refusing_server();
        let url = server.base_url();
        let mut fixture = turn_fixture(Vec::new(), false, None);
        fixture.conversation.selection.set_model(model(&url));
        fixture.conversation.find_model = Arc::new(move |_: &str| Ok(model(&url)));
        let done = fixture.turn(History::default()).run().await;
        let Err(Error::Llm(error)) = done.result else { panic!("{:?}", done.result) };
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert_eq!(server.requests().len(), 5);
    }

    #[tokio::test]
    async fn a_model_that_was_chosen_while_the_key_was_looked_for_stays() {
        let server = refusing_server();
        let url = server.base_url();
        let mut fixture = turn_fixture(vec![ScriptedReply::Text("Hello.")], false, None);
        let selection = fixture.conversation.selection.clone();
        let chosen = selection.get().model;
        selection.set_model(model(&url));
        let next = Arc::clone(&chosen);
        fixture.conversation.find_model = Arc::new(move |_: &str| {
            selection.set_model(Arc::clone(&next));
            Ok(model(&url))
        });
        let done = fixture.turn(History::default()).run().await;
        assert!(matches!(done.result, Ok(StopReason::EndTurn)), "{:?}", done.result);
        assert!(Arc::ptr_eq(&fixture.conversation.selection.get().model, &chosen));
        assert_eq!(server.requests().len(), 1);
    }
}
