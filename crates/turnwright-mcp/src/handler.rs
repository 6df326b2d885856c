//! Answers the requests of a server and handles its notifications.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;
use turnwright_rpc::RpcError;

use super::elicitation::{self, WaitingCalls};
use super::progress::ProgressRouter;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;

/// Maximum length of a server's log message.
const MAX_LOG_CHARS: usize = 500;

/// Handles what one server sends.
#[derive(Clone, Debug)]
pub(super) struct ServerMessageHandler {
    pub(super) roots: Arc<Vec<PathBuf>>,
    /// Notified when the server's tools or prompts have changed.
    pub(super) changed: Arc<Notify>,
    /// The server's name.
    pub(super) server: String,
    /// True if the clients of its sessions can show forms.
    pub(super) forms: bool,
    pub(super) callers: WaitingCalls,
    /// Receives the progress of running calls.
    pub(super) progress: ProgressRouter,
}

/// How a request of a server is answered.
pub(super) enum Reply {
    Now(Result<Value, RpcError>),
    /// The user is asked.
    FromUser(BoxFuture<'static, Value>),
}

impl ServerMessageHandler {
    pub(super) fn answer(&self, method: &str, params: Value) -> Reply {
        match method {
            "ping" => Reply::Now(Ok(json!({}))),
            "roots/list" => Reply::Now(Ok(list_roots_result(&self.roots))),
            "elicitation/create" => {
                let server = self.server.clone();
                let callers = self.callers.clone();
                Reply::FromUser(Box::pin(async move {
                    elicitation::ask_user(&server, &callers, params).await
                }))
            }
            method => Reply::Now(Err(RpcError::method_not_found(method))),
        }
    }

    pub(super) fn notify(&self, method: &str, params: &Value) {
        match method {
            "notifications/progress" => self.progress.deliver(params),
            "notifications/tools/list_changed" | "notifications/prompts/list_changed" => {
                self.changed.notify_one();
            }
            "notifications/message" => {
                let data = params["data"].to_string();
                let text = escape_hidden_line(text::first_chars(&data, MAX_LOG_CHARS));
                tracing::debug!(server = self.server, text, "a server says");
            }
            method => tracing::debug!(server = self.server, method, "an unknown notification"),
        }
    }

    /// A handler without a listener.
    #[cfg(test)]
    pub(super) fn silent() -> ServerMessageHandler {
        ServerMessageHandler {
            roots: Arc::default(),
            changed: Arc::default(),
            server: "s".to_owned(),
            forms: false,
            callers: WaitingCalls::default(),
            progress: ProgressRouter::default(),
        }
    }
}

/// The result of `roots/list` for these folders.
pub(super) fn list_roots_result(folders: &[PathBuf]) -> Value {
    let uris = folders.iter().filter_map(|folder| url::Url::from_file_path(folder).ok());
    let roots: Value = uris.map(|uri| json!({ "uri": uri.to_string() })).collect();
    json!({ "roots": roots })
}
