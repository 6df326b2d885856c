//! Prompts that a client may send more than once, with the same key each time (R-TWO-22). Only the first attempt
//! becomes a message of the conversation. The others are answered with it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::completion::Completion;
use crate::error::Error;
use turnwright_types::client::Client;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{Message, PromptEnd, StopReason, Submission};
use turnwright_types::update::{PromptKey, Update};

/// The most attempts at a prompt that may wait behind the first.
const MAX_ATTEMPTS: usize = 32;

/// The prompts of a session that have keys. Clones share them.
// Held only to look something up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Submissions(Arc<Mutex<HashMap<Box<str>, SubmittedPrompt>>>);

#[derive(Debug)]
struct SubmittedPrompt {
    submission: Arc<Submission>,
    /// The message that it is. Until then, the further attempts wait.
    message: Option<MessageId>,
    /// The first attempt.
    first: PromptKey,
    waiting: Vec<(PromptKey, Completion<PromptEnd>)>,
}

impl Submissions {
    /// Notes a prompt that is a message already.
    pub(crate) fn restore(&self, submission: &Arc<Submission>, message: MessageId) {
        let prompt = SubmittedPrompt {
            submission: Arc::clone(submission),
            message: Some(message),
            first: 0,
            waiting: Vec::new(),
        };
        self.0.lock().entry(submission.key.clone()).or_insert(prompt);
    }

    /// Notes a message of the conversation if it is a prompt with a key.
    pub(crate) fn restore_said(&self, id: &MessageId, message: &Message) {
        if let Some(submission) = message.as_user().and_then(|user| user.submission.as_ref()) {
            self.restore(submission, id.clone());
        }
    }

    /// Returns the completion of a prompt that is to be run. A prompt that was sent before is not: it is answered when
    /// it is known which message it is.
    pub(crate) fn admit(
        &self,
        submission: Option<&Arc<Submission>>,
        key: PromptKey,
        done: Completion<PromptEnd>,
        client: &dyn Client,
    ) -> Option<Completion<PromptEnd>> {
        let Some(submission) = submission else { return Some(done) };
        let mut all = self.0.lock();
        let known = match all.entry(submission.key.clone()) {
            Entry::Vacant(entry) => {
                let submission = Arc::clone(submission);
                let waiting = Vec::new();
                entry.insert(SubmittedPrompt { submission, message: None, first: key, waiting });
                drop(all);
                return Some(self.watch(key, done));
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        if known.submission.content != submission.content {
            drop(all);
            let text = "`idempotencyKey` is the key of another prompt of this session";
            done.complete(Err(Error::InvalidParams(text.to_owned())));
            return None;
        }
        match known.message.clone() {
            None if known.waiting.len() >= MAX_ATTEMPTS => {
                drop(all);
                let text = "This prompt was sent too often. Wait for its answer".to_owned();
                done.complete(Err(Error::InvalidState(text)));
            }
            None => known.waiting.push((key, done)),
            Some(message) => {
                drop(all);
                answer(key, message, done, client);
            }
        }
        None
    }

    /// The prompt is this message from now on.
    pub(crate) fn insert(&self, submission: &Submission, message: &MessageId, client: &dyn Client) {
        let mut all = self.0.lock();
        let Some(prompt) = all.get_mut(&submission.key) else { return };
        prompt.message = Some(message.clone());
        let waiting = std::mem::take(&mut prompt.waiting);
        drop(all);
        for (key, done) in waiting {
            answer(key, message.clone(), done, client);
        }
    }

    /// Answers an attempt that waits, because the user has cancelled it. The first one goes on.
    pub(crate) fn cancel(&self, key: PromptKey) {
        let mut all = self.0.lock();
        let mut waiting = all.values_mut().map(|prompt| &mut prompt.waiting);
        let cancelled =
            waiting.find_map(|waiting| waiting.extract_if(.., |(again, _)| *again == key).next());
        drop(all);
        if let Some((_, done)) = cancelled {
            done.complete(Ok(StopReason::Cancelled.into()));
        }
    }

    /// A completion that also answers the further attempts of a prompt that never becomes a message. Words for a running
    /// turn become one after it.
    pub(crate) fn watch(
        &self,
        key: PromptKey,
        done: Completion<PromptEnd>,
    ) -> Completion<PromptEnd> {
        let all = self.clone();
        Completion::new(move |result: Result<PromptEnd, Error>| {
            let has_failed = !matches!(&result, Ok(end) if end.stop != StopReason::Cancelled);
            let mut prompts = all.0.lock();
            let failed = prompts
                .extract_if(|_, prompt| {
                    has_failed && prompt.message.is_none() && prompt.first == key
                })
                .next();
            drop(prompts);
            for (_, again) in failed.into_iter().flat_map(|(_, prompt)| prompt.waiting) {
                let told = result.as_ref().cloned();
                again.complete(told.map_err(|error| Error::InvalidState(error.to_string())));
            }
            done.complete(result);
        })
    }
}

fn answer(prompt: PromptKey, message: MessageId, done: Completion<PromptEnd>, client: &dyn Client) {
    client.update(Update::KnownPrompt { prompt, message });
    done.complete(Ok(StopReason::EndTurn.into()));
}
