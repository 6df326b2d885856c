//! The body of a request in pieces, most of which the prefix cache shares with the next request. Rendered
//! bytes are not copied again, however long the conversation is.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A body up to this size is copied and sent in one system call, which is faster.
const MAX_COPIED_BYTES: usize = 256 * 1024;
/// A piece of rendered messages is no longer extended when it has this size.
const MAX_PIECE_BYTES: usize = 128 * 1024;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
