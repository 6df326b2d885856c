//! Prompts in version 2. A prompt is answered when its words are a message of the conversation. What follows
//! is told by the state of the session, and an error is then no answer any more.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::acp::connection::Connection;
use crate::acp::error::to_rpc;
use crate::acp::methods::session_prompt;
use crate::acp::responder::Responder;
use crate::acp::subagents::ToldSessions;
use crate::acp::to_wire::{stop_meta, token_usage};
use crate::completion::Completion;
use crate::error::Error;
use turnwright_rpc::Outbox;
use turnwright_types::ids::{MessageId, SessionId};
use turnwright_types::message::{PromptEnd, StopReason};
use turnwright_types::update::PromptKey;

/// The prompts of a connection that are not answered, or whose turns have not ended. Clones share them.
#[derive(Clone, Default)]
pub(in crate::acp) struct PromptLedger {
    // Held only to look something up.
    open: Arc<Mutex<HashMap<PromptKey, OpenPrompt>>>,
    /// The states of sessions that the client was told.
    pub(super) told: ToldSessions,
}

struct OpenPrompt {
    /// `None` once the prompt is answered. The request can be cancelled until then.
    reply: Option<(Responder<Value>, Arc<()>)>,
    /// True if its turn has begun.
    has_begun: bool,
}

impl PromptLedger {
    pub(in crate::acp) fn new(told: ToldSessions) -> PromptLedger {
        PromptLedger { told, ..PromptLedger::default() }
    }

    /// Adds a prompt of the client, which is answered with `reply` unless it has been already. Returns the completion
    /// of its turn.
    pub(in crate::acp) fn add(
        &self,
        key: PromptKey,
        session: SessionId,
        outbox: Outbox,
        reply: Option<(Responder<Value>, Arc<()>)>,
        has_begun: bool,
    ) -> Completion<PromptEnd> {
        self.open.lock().insert(key, OpenPrompt { reply, has_begun });
        let prompts = self.clone();
        let mut ending = PromptEnding { key, session, prompts, outbox, is_over: false };
        Completion::new(move |result| ending.end(result))
    }

    /// The turn of a prompt begins.
    pub(super) fn begin(&self, key: PromptKey) {
        if let Some(prompt) = self.open.lock().get_mut(&key) {
            prompt.has_begun = true;
        }
    }

    /// Returns true if the turn of a prompt runs.
    pub(super) fn is_running(&self, key: PromptKey) -> bool {
        self.open.lock().get(&key).is_some_and(|prompt| prompt.has_begun)
    }

    /// Answers a prompt, whose words are this message (R-TWO-7). One without a turn has joined the running one.
    pub(super) fn answer(&self, key: PromptKey, message: &MessageId) {
        let mut prompts = self.open.lock();
        let Some(prompt) = prompts.get_mut(&key) else { return };
        let reply = prompt.reply.take();
        if !prompt.has_begun {
            prompts.remove(&key);
        }
        drop(prompts);
        if let Some((reply, _)) = reply {
            reply.ok(&json!({ "messageId": message.as_str() }));
        }
    }

    /// Returns true if the prompt waits for the running turn to read it: it has no turn of its own.
    fn has_joined(&self, key: PromptKey, result: &Result<PromptEnd, Error>) -> bool {
        let is_end = matches!(result, Ok(end) if end.stop != StopReason::Cancelled);
        is_end && self.open.lock().get(&key).is_some_and(|prompt| !prompt.has_begun)
    }
}

/// The work that is left when a prompt has ended, also if nobody says how.
struct PromptEnding {
    key: PromptKey,
    session: SessionId,
    prompts: PromptLedger,
    outbox: Outbox,
    is_over: bool,
}

impl PromptEnding {
    fn end(&mut self, result: Result<PromptEnd, Error>) {
        self.is_over = true;
        if self.prompts.has_joined(self.key, &result) {
            return;
        }
        let ended = self.prompts.open.lock().remove(&self.key);
        let Some(OpenPrompt { reply, has_begun }) = ended else { return };
        if let Some((reply, _)) = reply {
            reply.fail(result.as_ref().err().unwrap_or(&Error::Cancelled));
        }
        if has_begun {
            self.prompts.told.send_state(&self.outbox, &self.session, idle(result));
        }
    }
}

impl Drop for PromptEnding {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Err(Error::Internal { place: session_prompt::METHOD }));
        }
    }
}

/// The state of a session whose turn has ended like this.
fn idle(result: Result<PromptEnd, Error>) -> Value {
    match result {
        // Its suggestions are an update.
        Ok(PromptEnd { stop, usage, .. }) => {
            let mut state = json!({ "state": "idle", "stopReason": stop.as_str() });
            if let Some(meta) = stop_meta(stop) {
                state["_meta"] = meta.into();
            }
            if let Some(usage) = token_usage(usage) {
                state["usage"] = serde_json::to_value(usage).unwrap_or_default();
            }
            state
        }
        Err(error) => json!({ "state": "idle", "stopReason": "error", "error": to_rpc(&error) }),
    }
}

/// Follows a prompt of a session that this connection has taken over. Its own request is lost.
pub(in crate::acp) fn follow(
    connection: &Connection,
    session: SessionId,
) -> impl FnMut(PromptKey, bool) -> Completion<PromptEnd> + Send + 'static {
    let prompts = connection.prompts.clone();
    let outbox = connection.peer.outbox().clone();
    move |key, has_begun| prompts.add(key, session.clone(), outbox.clone(), None, has_begun)
}
