//! The body of a request in pieces, most of which the prefix cache shares with the next request. A conversation
//! only grows, so its next request starts with the same bytes. They are not rendered or copied again, however
//! long the conversation is.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::exchange::RenderedTools;
use crate::quirks::Quirks;
use turnwright_types::message::{Message, ToolSpecs};

/// A body up to this size is copied and sent in one system call, which is faster.
const MAX_COPIED_BYTES: usize = 256 * 1024;
/// A piece of rendered messages is no longer extended when it has this size.
const MAX_PIECE_BYTES: usize = 128 * 1024;
/// The number of cached conversations. The least recently used ones are evicted.
const MAX_CONVERSATIONS: usize = 16;
/// Longer prefixes are not cached.
const MAX_PREFIX_BYTES: usize = 8 * 1024 * 1024;
/// The most bytes of all prefixes, including closed sessions.
const MAX_BYTES: usize = 2 * MAX_PREFIX_BYTES;

/// Bytes in several pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestBody {
    pieces: VecDeque<Bytes>,
}

impl RequestBody {
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Appends a piece, which is joined with the last one if both are short.
    pub(crate) fn append(&mut self, more: Vec<u8>) {
        match self.pieces.back_mut() {
            _ if more.is_empty() => {}
            Some(last) if last.len() + more.len() <= MAX_PIECE_BYTES => {
                *last = [&**last, &more].concat().into();
            }
            _ => self.pieces.push_back(more.into()),
        }
    }

    /// The whole body: these pieces between two others, and without their first byte if it is `left_out`.
    pub(crate) fn between(
        &self,
        start: Vec<u8>,
        end: Vec<u8>,
        left_out: Option<u8>,
    ) -> RequestBody {
        let mut pieces = self.pieces.clone();
        if let Some(first) = pieces.front_mut()
            && first.first().copied() == left_out
        {
            *first = first.slice(1..);
        }
        pieces.push_front(start.into());
        pieces.push_back(end.into());
        RequestBody { pieces }
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.len());
        self.pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole
    }
}

impl From<RequestBody> for reqwest::Body {
    fn from(body: RequestBody) -> reqwest::Body {
        if body.len() <= MAX_COPIED_BYTES {
            return body.to_vec().into();
        }
        reqwest::Body::wrap(body)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The exact size, so that it is sent as the content length. Some servers know no chunks.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// The parts of the requests to one model that are kept for the next ones.
// Held only to search a short list, or to render new tools once.
pub(crate) type PrefixCache = Mutex<KeptPrefixes>;

/// The rendered beginnings of conversations, all with the same tools.
#[derive(Debug, Default)]
pub(crate) struct KeptPrefixes {
    tools: Option<Arc<RenderedTools>>,
    prefixes: Vec<RenderedPrefix>,
}

/// The rendered beginning of one conversation.
#[derive(Debug, Default)]
pub(crate) struct RenderedPrefix {
    /// The number of messages that it contains.
    pub(crate) count: usize,
    /// The rendered messages in JSON, each preceded by a comma.
    pub(crate) json: RequestBody,
    /// The last of the messages. Messages are immutable and never shared between conversations, so
    /// a match at this position implies that everything before it matches too.
    last: Option<Arc<Message>>,
    /// The quirks that it was rendered with, which may change when something is learned.
    quirks: Quirks,
}

impl KeptPrefixes {
    /// Returns the rendered tools. `render` renders them if they are not those of the last request.
    pub(crate) fn tools(
        &mut self,
        specs: &ToolSpecs,
        render: impl FnOnce() -> RenderedTools,
    ) -> Arc<RenderedTools> {
        match &self.tools {
            Some(rendered) if Arc::ptr_eq(&rendered.specs, specs) => Arc::clone(rendered),
            _ => {
                // They contain the aliases of the previous tools.
                self.prefixes.clear();
                Arc::clone(self.tools.insert(Arc::new(render())))
            }
        }
    }

    /// Removes and returns the prefix of this conversation, or an empty one.
    pub(crate) fn take(&mut self, messages: &[Arc<Message>], quirks: Quirks) -> RenderedPrefix {
        let found = self.prefixes.iter().position(|prefix| {
            match (prefix.count.checked_sub(1), &prefix.last) {
                (Some(end), Some(last)) if prefix.quirks == quirks => {
                    messages.get(end).is_some_and(|message| Arc::ptr_eq(message, last))
                }
                _ => false,
            }
        });
        found.map(|index| self.prefixes.remove(index)).unwrap_or_default()
    }

    /// Puts a prefix back that now contains all of `messages`.
    pub(crate) fn store(
        &mut self,
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
        self.prefixes.insert(0, prefix);
        self.prefixes.truncate(MAX_CONVERSATIONS);
        let mut bytes = 0;
        self.prefixes.retain(|prefix| {
            bytes += prefix.json.len();
            bytes <= MAX_BYTES
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::message::UserMessage;

    #[test]
    fn what_was_rendered_is_shared_by_later_bodies() {
        let mut rendered = RequestBody::default();
        let mut expected = Vec::new();
        for number in 0..200_usize {
            let more = format!(",{number}").repeat(number * 10).into_bytes();
            expected.extend_from_slice(&more);
            rendered.append(more);
        }
        let first = rendered.between(b"[".to_vec(), b"]".to_vec(), Some(b','));
        assert_eq!(first.to_vec(), [b"[", &expected[1..], b"]"].concat());
        assert!(rendered.pieces.len() < expected.len() / (MAX_PIECE_BYTES / 4));
        rendered.append(b",more".to_vec());
        let second = rendered.between(b"[".to_vec(), b"]".to_vec(), None);
        assert_eq!(second.to_vec(), [b"[", &*expected, b",more]"].concat());
        // All but the last piece, which has grown, and the two around them.
        let shared: Vec<_> = first.pieces.iter().zip(&second.pieces).skip(2).collect();
        let (shared, _) = shared.split_last_chunk::<2>().unwrap();
        assert!(shared.len() > 2);
        assert!(shared.iter().all(|(one, other)| one.as_ptr() == other.as_ptr()));
    }

    #[test]
    fn the_prefixes_used_last_are_kept_as_far_as_they_fit() {
        for (bytes, kept) in [(10, MAX_CONVERSATIONS), (5 * 1024 * 1024, 3), (9 * 1024 * 1024, 0)] {
            let mut cache = KeptPrefixes::default();
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
