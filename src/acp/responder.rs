//! Answers one request exactly once.

use std::marker::PhantomData;

use serde::Serialize;

use super::error::to_rpc;
use crate::completion::Completion;
use crate::error::Error;
use tokio::sync::OwnedSemaphorePermit;
use turnwright_rpc::{Outbox, RequestId};

/// Answers one request. Answering consumes it. If it is dropped unanswered (by a panic, a forgotten
/// branch, a full mailbox), it answers with an error, so that no client waits for ever (R-ERR-1).
#[must_use = "every request must be answered"]
pub(super) struct Responder<R> {
    id: RequestId,
    method: &'static str,
    is_answered: bool,
    outbox: Outbox,
    /// The place among the unanswered requests of the connection.
    _place: OwnedSemaphorePermit,
    result: PhantomData<fn(R)>,
}

impl<R: Serialize + 'static> Responder<R> {
    pub(super) fn new(
        id: RequestId,
        method: &'static str,
        outbox: Outbox,
        place: OwnedSemaphorePermit,
    ) -> Responder<R> {
        Responder { id, method, is_answered: false, outbox, _place: place, result: PhantomData }
    }

    /// The request's id, under which the client may cancel it.
    pub(super) fn id(&self) -> &RequestId {
        &self.id
    }

    /// The name of the method.
    pub(super) fn method(&self) -> &'static str {
        self.method
    }

    pub(super) fn ok(mut self, result: &R) {
        self.is_answered = true;
        self.outbox.respond(&self.id, Ok(result));
    }

    pub(super) fn fail(mut self, error: &Error) {
        self.is_answered = true;
        self.outbox.respond::<()>(&self.id, Err(&to_rpc(error)));
    }

    /// Returns the value of a result and this responder, or answers with the error.
    pub(super) fn if_ok<T>(self, result: Result<T, Error>) -> Option<(T, Responder<R>)> {
        match result {
            Ok(value) => Some((value, self)),
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    /// Turns this into a completion for code that produces domain types and must not know the wire
    /// types. `convert` makes the response.
    pub(super) fn done<T>(self, convert: impl FnOnce(T) -> R + Send + 'static) -> Completion<T> {
        Completion::new(move |result| match result {
            Ok(value) => self.ok(&convert(value)),
            Err(error) => self.fail(&error),
        })
    }
}

impl<R> Drop for Responder<R> {
    fn drop(&mut self) {
        if !self.is_answered {
            let method = self.method;
            tracing::error!(method, id = %self.id, "a request was dropped without an answer");
            let error = to_rpc(&Error::Internal { place: method });
            self.outbox.respond::<()>(&self.id, Err(&error));
        }
    }
}
