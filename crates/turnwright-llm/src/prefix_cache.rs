//! Caches the rendered beginnings of conversations. A conversation only grows, so its next request
//! starts with the same bytes. Reusing them makes a turn late in a session as cheap as an early
//! one.

use parking_lot::Mutex;
use std::sync::Arc;

use crate::quirks::Quirks;
use crate::request_body::RequestBody;
use turnwright_types::message::Message;

/// The number of cached conversations. The least recently used ones are evicted.
const MAX_CONVERSATIONS: usize = 16;
/// Longer prefixes are not cached.
const MAX_PREFIX_BYTES: usize = 8 * 1024 * 1024;
/// The most bytes of all prefixes, including closed sessions.
const MAX_BYTES: usize = 2 * MAX_PREFIX_BYTES;

#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    // Held only to search a short list.
    prefixes: Mutex<Vec<RenderedPrefix>>,
}

/// The rendered beginning of one conversation.
#[derive(Debug, Default)]
pub(super) struct RenderedPrefix {
    /// The number of messages that it contains.
    pub(super) count: usize,
    /// The rendered messages in JSON, each preceded by a comma.
    pub(super) json: RequestBody,
    /// The last of the messages. Messages are immutable and never shared between conversations, so
    /// a match at this position implies that everything before it matches too.
    last: Option<Arc<Message>>,
    /// The quirks that it was rendered with, which may change when something is learned.
    quirks: Quirks,
}

impl PrefixCache {
    /// Removes and returns the prefix of this conversation, or an empty one.
    pub(super) fn take(&self, messages: &[Arc<Message>], quirks: Quirks) -> RenderedPrefix {
        let mut prefixes = self.prefixes.lock();
        let found =
            prefixes.iter().position(|prefix| match (prefix.count.checked_sub(1), &prefix.last) {
                (Some(end), Some(last)) if prefix.quirks == quirks => {
                    messages.get(end).is_some_and(|message| Arc::ptr_eq(message, last))
                }
                _ => false,
            });
        found.map(|index| prefixes.remove(index)).unwrap_or_default()
    }

    pub(super) fn clear(&self) {
        self.prefixes.lock().clear();
    }

    /// Puts a prefix back that now contains all of `messages`.
    pub(super) fn store(
        &self,
        mut prefix: RenderedPrefix,
        messages: &[Arc<Message>],
        quirks: Quirks,
    ) {
        if messages.is_empty() || prefix.json.len() > MAX_PREFIX_BYTES {
            return;
        }
        prefix.count = messages.len();
        prefix.last = messages.last().cloned();
        prefix.quirks = quirks;
        let mut prefixes = self.prefixes.lock();
        prefixes.insert(0, prefix);
        prefixes.truncate(MAX_CONVERSATIONS);
        let mut bytes = 0;
        prefixes.retain(|prefix| {
            bytes += prefix.json.len();
            bytes <= MAX_BYTES
        });
    }
}

#[cfg(test)]
mod tests {
    use turnwright_types::message::UserMessage;

    use super::*;

    #[test]
    fn the_prefixes_used_last_are_kept_as_far_as_they_fit() {
        for (bytes, kept) in [(10, MAX_CONVERSATIONS), (5 * 1024 * 1024, 3), (9 * 1024 * 1024, 0)] {
            let cache = PrefixCache::default();
            let all: Vec<_> = (0..20_usize)
                .map(|number| [Arc::new(Message::User(UserMessage::text(number.to_string())))])
                .collect();
            for messages in &all {
                let mut prefix = cache.take(messages, Quirks::default());
                prefix.json.append(vec![b'x'; bytes]);
                cache.store(prefix, messages, Quirks::default());
            }
            let found = all.iter().map(|messages| cache.take(messages, Quirks::default()).count);
            let expected = (0..20).map(|number| usize::from(number >= 20 - kept));
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{bytes}");
        }
    }
}
