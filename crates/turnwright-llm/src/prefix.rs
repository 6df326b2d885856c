//! The beginnings of conversations, as they were rendered for the last request. A conversation
//! only grows, so the next request of the same one begins with the same bytes: they are kept and
//! not made again, and a turn late in a session costs what an early one does.

use std::sync::{Arc, Mutex, PoisonError};

use crate::quirks::Quirks;
use turnwright_types::message::Message;

/// Conversations that are remembered; those that go on push out those that rest.
const MOST: usize = 16;
/// A beginning that has more bytes than this is made again each time.
const LARGEST: usize = 8 * 1024 * 1024;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    // A std mutex: held to look through a short list, never across an await.
    kept: Mutex<Vec<Prefix>>,
}

/// The beginning of one conversation.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    /// How many messages it holds.
    pub(super) count: usize,
    /// The entries in JSON, each with a comma before it.
    pub(super) json: Vec<u8>,
    /// The last of them. Messages never change, and two conversations never share one: where
    /// this one stands, everything before it is the same too.
    last: Option<Arc<Message>>,
    /// In which manner they were rendered: a server may teach us another one.
    quirks: Quirks,
}

impl Prefixes {
    /// Takes the beginning of this conversation out, or an empty one.
    pub(super) fn take(&self, messages: &[Arc<Message>], quirks: Quirks) -> Prefix {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = |it: &Prefix| match (it.count.checked_sub(1), &it.last) {
            (Some(end), Some(last)) if it.quirks == quirks => {
                messages.get(end).is_some_and(|it| Arc::ptr_eq(it, last))
            }
            _ => false,
        };
        let found = kept.iter().position(begins);
        found.map(|it| kept.remove(it)).unwrap_or_default()
    }

    /// Forgets all.
    pub(super) fn forget(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Puts it back, now that it holds all of `messages`.
    pub(super) fn keep(&self, mut prefix: Prefix, messages: &[Arc<Message>], quirks: Quirks) {
        if messages.is_empty() || prefix.json.len() > LARGEST {
            return;
        }
        prefix.count = messages.len();
        prefix.last = messages.last().cloned();
        prefix.quirks = quirks;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(0, prefix);
        kept.truncate(MOST);
    }
}
