//! The duty to answer one request.

use std::marker::PhantomData;

use super::error::to_rpc;
use super::wire::Method;
use crate::done::Done;
use crate::error::Error;
use turnwright_rpc::{Outbox, RequestId};

/// Answering consumes it; dropping it unanswered (a panic, a forgotten branch, a mailbox that is
/// full) still answers, so that no client waits for ever (R-ERR-1).
#[must_use = "every request must be answered"]
pub(super) struct Reply<M: Method> {
    id: Option<RequestId>,
    outbox: Outbox,
    method: PhantomData<fn(M)>,
}

impl<M: Method> Reply<M> {
    pub(super) fn new(id: RequestId, outbox: Outbox) -> Reply<M> {
        Reply { id: Some(id), outbox, method: PhantomData }
    }

    /// Answers.
    pub(super) fn ok(mut self, result: &M::Result) {
        if let Some(id) = self.id.take() {
            self.outbox.respond(&id, Ok(result));
        }
    }

    /// Answers with an error.
    pub(super) fn fail(mut self, error: &Error) {
        if let Some(id) = self.id.take() {
            self.outbox.respond::<()>(&id, Err(&to_rpc(error)));
        }
    }

    /// Hands the duty to code that speaks domain types and must not know the wire.
    pub(super) fn done<T>(self, convert: impl FnOnce(T) -> M::Result + Send + 'static) -> Done<T>
    where
        M: 'static,
    {
        Done::new(move |result| match result {
            Ok(value) => self.ok(&convert(value)),
            Err(error) => self.fail(&error),
        })
    }
}

impl<M: Method> Drop for Reply<M> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            tracing::error!(method = M::NAME, %id, "a request was forgotten");
            self.outbox.respond::<()>(&id, Err(&to_rpc(&Error::Bug { place: M::NAME })));
        }
    }
}
