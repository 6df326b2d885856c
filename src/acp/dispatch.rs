//! Routes each request and notification to its handler. Handlers are not async, so none can delay the
//! next message: `session/cancel` always gets through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::connection::{Connection, MAX_UNANSWERED};
use super::error::{invalid_params, to_rpc, unsupported_version};
use super::extensions;
use super::handlers;
use super::responder::Responder;
use super::versions::{self, Version};
use super::wire::{
    ArchiveSession, AuthStatus, Authenticate, CloseSession, DeleteSession, DisableProvider,
    ForkSession, GetMessages, GetSessionStatus, Initialize, ListProviders, ListSessions,
    LoadSession, NewSession, Prompt, RequestMethod, ResumeSession, SetConfigOption, SetMode,
    SetModel, SetProvider, SetSessionTitle, Steer, UnarchiveSession,
};
use super::{linked_servers, providers, saved_sessions, sessions, v2};
use crate::error::Error;
use turnwright_rpc::{Params, RequestId, RpcError};

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
        let router = Router { connection: self, id: Some(id), method, params };
        if version == Version::V2 {
            return v2::dispatch(router);
        }
        router
            .on::<Initialize>(handlers::initialize)
            .on::<Authenticate>(handlers::authenticate)
            .on::<AuthStatus>(providers::status)
            .on::<ListProviders>(providers::list)
            .on::<SetProvider>(providers::set)
            .on::<DisableProvider>(providers::disable)
            .on::<NewSession>(sessions::new)
            .on::<LoadSession>(sessions::load)
            .on::<ResumeSession>(sessions::resume)
            .on::<ForkSession>(sessions::fork)
            .on::<CloseSession>(sessions::close)
            .on::<ListSessions>(saved_sessions::list)
            .on::<DeleteSession>(saved_sessions::delete)
            .on::<ArchiveSession>(saved_sessions::archive)
            .on::<UnarchiveSession>(saved_sessions::unarchive)
            .on::<GetSessionStatus>(saved_sessions::status)
            .on::<SetSessionTitle>(saved_sessions::set_title)
            .on::<Prompt>(handlers::prompt)
            .on::<SetMode>(handlers::set_mode)
            .on::<SetModel>(handlers::set_model)
            .on::<SetConfigOption>(handlers::set_option)
            .on::<Steer>(extensions::steer)
            .on::<GetMessages>(extensions::history)
            .finish();
    }

    /// Handles one notification. It is never answered, even if it is malformed (R-ERR-2).
    pub(super) fn on_notification(&mut self, method: &str, params: &Params) {
        match method {
            "session/cancel" => handlers::cancel(self, params),
            "$/cancel_request" => handlers::cancel_request(self, params),
            linked_servers::METHOD => self.linked_requests.deliver(params),
            _ => tracing::debug!(method, "unknown notification"),
        }
    }
}

pub(super) struct Router<'a> {
    connection: &'a mut Connection,
    /// `None` once a handler has taken the request.
    id: Option<RequestId>,
    method: &'a str,
    params: &'a Params,
}

impl Router<'_> {
    pub(super) fn on<M: RequestMethod>(
        mut self,
        handler: fn(&mut Connection, &RequestId, M::Params, Responder<M>),
    ) -> Self {
        if self.method != M::NAME {
            return self;
        }
        let Some(id) = self.id.take() else { return self };
        let outbox = self.connection.peer.outbox().clone();
        let Ok(place) = Arc::clone(&self.connection.unanswered).try_acquire_owned() else {
            let text = format!("{MAX_UNANSWERED} requests are not answered yet. Wait or cancel");
            outbox.respond::<()>(&id, Err(&to_rpc(&Error::InvalidState(text))));
            return self;
        };
        let reply = Responder::<M>::new(id.clone(), outbox, place);
        match self.params.read() {
            Ok(params) => {
                // A handler that panics drops its responder, which answers the request. The
                // connection goes on.
                let connection = AssertUnwindSafe(&mut *self.connection);
                let run = AssertUnwindSafe(move || {
                    let AssertUnwindSafe(connection) = { connection };
                    handler(connection, &id, params, reply);
                });
                if catch_unwind(run).is_err() {
                    tracing::error!(method = M::NAME, "a handler panicked");
                }
            }
            Err(error) => {
                reply.fail(&invalid_params(M::NAME, self.params.text(), &error));
            }
        }
        self
    }

    pub(super) fn finish(self) {
        if let Some(id) = self.id {
            let error = RpcError::method_not_found(self.method);
            self.connection.peer.outbox().respond::<()>(&id, Err(&error));
        }
    }
}
