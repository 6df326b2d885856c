//! Routes each request and notification to its handler. Handlers are not async, so none can delay the
//! next message: `session/cancel` always gets through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::connection::{Connection, MAX_UNANSWERED};
use super::error::{invalid_params, to_rpc, unsupported_version};
use super::methods::{INITIALIZE, NOTIFICATIONS, REQUESTS};
use super::opening::check_initial_values;
use super::responder::Responder;
use super::versions::{self, Version};
use crate::error::Error;
use turnwright_rpc::{Params, RequestId, RpcError};

/// A line of the table of requests.
pub(super) struct RequestRoute {
    pub(super) name: &'static str,
    pub(super) versions: &'static [Version],
    serve: fn(IncomingRequest<'_>),
}

/// A method of version 1 only, or one that version 2 has in another form.
pub(super) const fn v1(name: &'static str, serve: fn(IncomingRequest<'_>)) -> RequestRoute {
    RequestRoute { name, versions: &[Version::V1], serve }
}

/// A method of version 2 only, or one that version 1 has in another form.
pub(super) const fn v2(name: &'static str, serve: fn(IncomingRequest<'_>)) -> RequestRoute {
    RequestRoute { name, versions: &[Version::V2], serve }
}

/// A method with the same parameters and results in both versions.
pub(super) const fn both(name: &'static str, serve: fn(IncomingRequest<'_>)) -> RequestRoute {
    RequestRoute { name, versions: &[Version::V1, Version::V2], serve }
}

/// A request whose parameters are not read yet.
pub(super) struct IncomingRequest<'a> {
    connection: &'a mut Connection,
    method: &'static str,
    id: RequestId,
    params: &'a Params,
}

impl RequestRoute {
    fn is_for(&self, method: &str, version: Version) -> bool {
        self.name == method && self.versions.contains(&version)
    }
}

impl Connection {
    /// Handles one request.
    pub(super) fn dispatch(&mut self, id: RequestId, method: &str, params: &Params) {
        match self.route(&id, method, params) {
            Ok(route) => {
                let method = route.name;
                (route.serve)(IncomingRequest { connection: self, method, id, params });
            }
            Err(error) => self.peer.outbox().respond::<()>(&id, Err(&error)),
        }
    }

    /// Finds the line of a request. The first `initialize` fixes the version.
    fn route(
        &mut self,
        id: &RequestId,
        method: &str,
        params: &Params,
    ) -> Result<&'static RequestRoute, RpcError> {
        if self.client.is_none() && method == INITIALIZE {
            let version = versions::choose(params, self.allows_v2);
            self.version = version.ok_or_else(unsupported_version)?;
        } else if self.client.is_none() {
            return Err(to_rpc(&Error::InvalidState("Send `initialize` first".to_owned())));
        }
        let version = self.version;
        if version == Version::V2 && *id == RequestId::null() {
            return Err(to_rpc(&Error::InvalidState("A request must have an id".to_owned())));
        }
        let found = REQUESTS.iter().find(|route| route.is_for(method, version));
        let route = found.ok_or_else(|| RpcError::method_not_found(method))?;
        self.told.check_request(method, params).map_err(|error| to_rpc(&error))?;
        Ok(route)
    }

    /// Handles one notification. It is never answered, even if it is malformed (R-ERR-2).
    pub(super) fn on_notification(&mut self, method: &str, params: &Params) {
        match NOTIFICATIONS.iter().find(|(name, _)| *name == method) {
            Some((_, handle)) => handle(self, params),
            None => tracing::debug!(method, "unknown notification"),
        }
    }
}

impl IncomingRequest<'_> {
    /// Like [`IncomingRequest::serve`], for a request that opens a session.
    pub(super) fn serve_opening<R: Serialize + 'static>(
        self,
        handle: fn(&mut Connection, Value, Responder<R>),
    ) {
        if let Err(error) = check_initial_values(self.params) {
            let outbox = self.connection.peer.outbox();
            return outbox.respond::<()>(&self.id, Err(&to_rpc(&error)));
        }
        self.serve(handle);
    }

    /// Reads the parameters and hands them to this handler. It must not wait: what takes time is left to a
    /// task or to the session, which gets the responder.
    pub(super) fn serve<P: DeserializeOwned, R: Serialize + 'static>(
        self,
        handle: fn(&mut Connection, P, Responder<R>),
    ) {
        let IncomingRequest { connection, method, id, params } = self;
        let outbox = connection.peer.outbox().clone();
        let Ok(place) = Arc::clone(&connection.unanswered).try_acquire_owned() else {
            let text = format!("{MAX_UNANSWERED} requests are not answered yet. Wait or cancel");
            return outbox.respond::<()>(&id, Err(&to_rpc(&Error::InvalidState(text))));
        };
        let reply = Responder::new(id, method, outbox, place);
        let parsed = match params.read() {
            Ok(parsed) => parsed,
            Err(error) => return reply.fail(&invalid_params(method, params.text(), &error)),
        };
        // A handler that panics drops its responder, which answers the request. The connection goes on.
        if catch_unwind(AssertUnwindSafe(|| handle(connection, parsed, reply))).is_err() {
            tracing::error!(method, "a handler panicked");
        }
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
