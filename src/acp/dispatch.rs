//! Method → handler, one line each. Not async, so no handler can make the next message wait:
//! `session/cancel` always gets through.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::connection::Connection;
use super::error::to_rpc;
use super::extensions;
use super::handlers;
use super::reply::Reply;
use super::wire::{
    ArchiveSession, Authenticate, CloseSession, DeleteSession, ForkSession, History, Initialize,
    ListSessions, LoadSession, Method, NewSession, Prompt, ResumeSession, SetMode, SetOption,
    SetTitle, StatusOfSession, UnarchiveSession,
};
use super::{kept, sessions};
use crate::error::Error;
use turnwright_rpc::{Params, RequestId, RpcError};

impl Connection {
    /// Serves one request.
    pub(super) fn dispatch(&mut self, id: RequestId, method: &str, params: &Params) {
        if self.client.is_none() && method != Initialize::NAME {
            let error = to_rpc(&Error::BadMoment("Send `initialize` first".to_owned()));
            return self.peer.outbox().respond::<()>(&id, Err(&error));
        }
        Router { connection: self, id: Some(id), method, params }
            .on::<Initialize>(handlers::initialize)
            .on::<Authenticate>(handlers::authenticate)
            .on::<NewSession>(sessions::new)
            .on::<LoadSession>(sessions::load)
            .on::<ResumeSession>(sessions::resume)
            .on::<ForkSession>(sessions::fork)
            .on::<CloseSession>(sessions::close)
            .on::<ListSessions>(kept::list)
            .on::<DeleteSession>(kept::delete)
            .on::<ArchiveSession>(kept::archive)
            .on::<UnarchiveSession>(kept::unarchive)
            .on::<StatusOfSession>(kept::status)
            .on::<SetTitle>(kept::set_title)
            .on::<Prompt>(handlers::prompt)
            .on::<SetMode>(handlers::set_mode)
            .on::<SetOption>(handlers::set_option)
            .on::<History>(extensions::history)
            .finish();
    }

    /// Hears one notification. It is never answered, whatever is wrong with it (R-ERR-2).
    pub(super) fn notice(&mut self, method: &str, params: &Params) {
        match method {
            "session/cancel" => handlers::cancel(self, params),
            "$/cancel_request" => handlers::cancel_request(self, params),
            _ => tracing::debug!(method, "unknown notification"),
        }
    }
}

struct Router<'a> {
    connection: &'a mut Connection,
    /// `None` once somebody has taken the request.
    id: Option<RequestId>,
    method: &'a str,
    params: &'a Params,
}

impl Router<'_> {
    fn on<M: Method>(
        mut self,
        handler: fn(&mut Connection, &RequestId, M::Params, Reply<M>),
    ) -> Self {
        if self.method != M::NAME {
            return self;
        }
        let Some(id) = self.id.take() else { return self };
        let reply = Reply::<M>::new(id.clone(), self.connection.peer.outbox().clone());
        match self.params.read() {
            Ok(params) => {
                // A handler that panics drops its reply, which answers. The connection lives on.
                let connection = AssertUnwindSafe(&mut *self.connection);
                let run = AssertUnwindSafe(move || {
                    let AssertUnwindSafe(connection) = { connection };
                    handler(connection, &id, params, reply);
                });
                if catch_unwind(run).is_err() {
                    tracing::error!(method = M::NAME, "a handler died");
                }
            }
            Err(error) => {
                reply.fail(&Error::Params(format!("Invalid parameters for {}: {error}", M::NAME)));
            }
        }
        self
    }

    fn finish(self) {
        if let Some(id) = self.id {
            let error = RpcError::method_not_found(self.method);
            self.connection.peer.outbox().respond::<()>(&id, Err(&error));
        }
    }
}
