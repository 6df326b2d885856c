//! Converts errors to JSON-RPC errors; nothing else does.

use serde_json::json;

use crate::error::{Error, ErrorKind, error_chain};
use turnwright_rpc::RpcError;

/// Maximum length of a message. The whole text is in `data.details` (R-ERR-8).
const MAX_MESSAGE_CHARS: usize = 500;

/// Converts an error for the client. Most clients show only the message and some only
/// `data.details`, so both are a sentence that the user can act on.
pub(super) fn to_rpc(error: &Error) -> RpcError {
    let code = match error.kind() {
        ErrorKind::InvalidParams => -32602,
        ErrorKind::NotFound => -32002,
        kind if kind.requires_auth() => -32000,
        ErrorKind::InvalidState => -32600,
        ErrorKind::Cancelled => -32800,
        ErrorKind::AuthRequired | ErrorKind::Model(_) | ErrorKind::Internal => -32603,
    };
    let message = error_chain(error);
    let mut data = json!({ "kind": error.kind().name(), "details": message });
    match error {
        Error::SessionNotFound(id) => data["sessionId"] = json!(id),
        Error::Llm(error) => {
            if let Some(host) = error.host() {
                data["provider"] = json!(host);
            }
            if let Some(status) = error.status() {
                data["status"] = json!(status);
            }
            if let Some(delay) = error.retry_after() {
                data["retryAfter"] = json!(delay.as_secs());
            }
            if let Some(window) = error.context_window() {
                data["contextWindow"] = json!(window);
            }
        }
        Error::InvalidParams(_)
        | Error::InvalidFolder { .. }
        | Error::NoModelConfigured(_)
        | Error::InvalidState(_)
        | Error::Cancelled
        | Error::Store(_)
        | Error::ModelLoop
        | Error::Internal { .. } => {}
    }
    RpcError { code, message: truncated(message), data: Some(data) }
}

fn truncated(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
        message.truncate(end);
        message.push('…');
    }
    message
}
