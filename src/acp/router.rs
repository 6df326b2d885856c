//! Routes each request and notification to its handler. Handlers are not async, so none can delay the
//! next message: `session/cancel` always gets through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::connection::{Connection, MAX_UNANSWERED};
use super::error::{invalid_params, to_rpc, unsupported_version};
use super::methods::initialize::Initialize;
use super::methods::{NOTIFICATIONS, REQUESTS, RequestMethod};
use super::responder::Responder;
use super::versions::{self, Version};
use crate::error::Error;
use turnwright_rpc::{Params, RequestId, RpcError};

/// A line of the table of requests.
pub(super) struct RequestRoute {
    name: &'static str,
    versions: &'static [Version],
    serve: fn(&mut Connection, RequestId, &Params),
}

impl RequestRoute {
    /// A method of version 1 only, or one that version 2 has in another form.
    pub(super) const fn v1<M: RequestMethod>() -> RequestRoute {
        RequestRoute { name: M::NAME, versions: &[Version::V1], serve: serve::<M> }
    }

    /// A method of version 2 only, or one that version 1 has in another form.
    pub(super) const fn v2<M: RequestMethod>() -> RequestRoute {
        RequestRoute { name: M::NAME, versions: &[Version::V2], serve: serve::<M> }
    }

    /// A method with the same parameters and results in both versions.
    pub(super) const fn both<M: RequestMethod>() -> RequestRoute {
        RequestRoute { name: M::NAME, versions: &[Version::V1, Version::V2], serve: serve::<M> }
    }

    fn is_for(&self, method: &str, version: Version) -> bool {
        self.name == method && self.versions.contains(&version)
    }
}

impl Connection {
    /// Handles one request.
    pub(super) fn dispatch(&mut self, id: RequestId, method: &str, params: &Params) {
        if self.client.is_none() && method == Initialize::NAME {
            match versions::choose(params, self.allows_v2) {
                Some(version) => self.version = version,
                None => {
                    let error = unsupported_version();
                    return self.peer.outbox().respond::<()>(&id, Err(&error));
                }
            }
        } else if self.client.is_none() {
            let error = to_rpc(&Error::InvalidState("Send `initialize` first".to_owned()));
            return self.peer.outbox().respond::<()>(&id, Err(&error));
        }
        let version = self.version;
        if version == Version::V2 && id == RequestId::null() {
            let error = to_rpc(&Error::InvalidState("A request must have an id".to_owned()));
            return self.peer.outbox().respond::<()>(&id, Err(&error));
        }
        match REQUESTS.iter().find(|route| route.is_for(method, version)) {
            Some(route) => (route.serve)(self, id, params),
            None => {
                let error = RpcError::method_not_found(method);
                self.peer.outbox().respond::<()>(&id, Err(&error));
            }
        }
    }

    /// Handles one notification. It is never answered, even if it is malformed (R-ERR-2).
    pub(super) fn on_notification(&mut self, method: &str, params: &Params) {
        match NOTIFICATIONS.iter().find(|(name, _)| *name == method) {
            Some((_, handle)) => handle(self, params),
            None => tracing::debug!(method, "unknown notification"),
        }
    }
}

/// Reads the parameters of a request and hands it to its handler.
fn serve<M: RequestMethod>(connection: &mut Connection, id: RequestId, params: &Params) {
    let outbox = connection.peer.outbox().clone();
    let Ok(place) = Arc::clone(&connection.unanswered).try_acquire_owned() else {
        let text = format!("{MAX_UNANSWERED} requests are not answered yet. Wait or cancel");
        return outbox.respond::<()>(&id, Err(&to_rpc(&Error::InvalidState(text))));
    };
    let reply = Responder::<M>::new(id, outbox, place);
    let parsed = match params.read::<M::Params>() {
        Ok(parsed) => parsed,
        Err(error) => return reply.fail(&invalid_params(M::NAME, params.text(), &error)),
    };
    // A handler that panics drops its responder, which answers the request. The connection goes on.
    if catch_unwind(AssertUnwindSafe(|| M::handle(connection, parsed, reply))).is_err() {
        tracing::error!(method = M::NAME, "a handler panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_in_the_table_once_a_version() {
        for version in [Version::V1, Version::V2] {
            for route in REQUESTS.iter().filter(|route| route.versions.contains(&version)) {
                let known = REQUESTS.iter().filter(|other| other.is_for(route.name, version));
                assert_eq!(known.count(), 1, "{} in {version:?}", route.name);
            }
        }
        for (name, _) in NOTIFICATIONS {
            let known = NOTIFICATIONS.iter().filter(|(other, _)| other == name);
            assert_eq!(known.count(), 1, "{name}");
        }
    }
}
