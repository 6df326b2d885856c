//! Servers that are neither a program nor an HTTP endpoint: they run within the client of the session, which
//! passes each request on. This crate does not know how; whoever configures such a server brings a
//! [`ServerLink`].

use std::fmt;
use std::sync::Arc;

use super::model::JsonObject;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use serde_json::value::RawValue;

/// The way to a server that someone else runs. A request brings its own notifications, and nothing is said
/// outside of requests, so there is neither a connection to open nor one to close.
pub trait ServerLink: fmt::Debug + Send + Sync {
    /// Sends a request. The stream has the notifications that belong to it, then its outcome, and ends with
    /// that. Dropping the stream cancels the request. The queue below it must be bounded.
    fn send(&self, method: String, params: Option<JsonObject>) -> BoxStream<'static, LinkEvent>;
}

/// An event in reply to a request.
#[derive(Debug)]
pub enum LinkEvent {
    Notification { method: String, params: Option<JsonObject> },
    Outcome(Result<Box<RawValue>, LinkError>),
}

/// Why a request has no result.
#[derive(Debug)]
pub enum LinkError {
    /// The server answered with this error object.
    ErrorResponse(Box<RawValue>),
    /// There is no answer of the server, for a reason in words. The request may have been executed.
    Failed(String),
    /// The same, and there will be no answer to any other request either.
    Gone(String),
}

/// A server that is reached through a link. It equals only itself, so no other session shares it. Clones share
/// the link.
// Held only to copy the pointer.
#[derive(Clone, Debug)]
pub struct LinkedServer(Arc<Mutex<Arc<dyn ServerLink>>>);

impl LinkedServer {
    pub fn new(link: impl ServerLink + 'static) -> LinkedServer {
        LinkedServer(Arc::new(Mutex::new(Arc::new(link))))
    }

    /// Sends further requests through the link of the other one.
    pub fn use_link_of(&self, other: &LinkedServer) {
        let link = other.link();
        *self.0.lock() = link;
    }

    pub(crate) fn link(&self) -> Arc<dyn ServerLink> {
        Arc::clone(&self.0.lock())
    }
}

impl PartialEq for LinkedServer {
    fn eq(&self, other: &LinkedServer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LinkedServer {}
