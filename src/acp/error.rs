//! The one place where an error becomes a JSON-RPC error.

use serde_json::json;

use crate::error::{Error, Kind, chain};
use turnwright_rpc::RpcError;

/// Characters of a message; what is longer is in the details (R-ERR-8).
const LONGEST_MESSAGE: usize = 500;

/// What the client is told. Most show nothing but the message, some nothing but
/// `data.details`; so both are a sentence that a person can act on.
pub(super) fn to_rpc(error: &Error) -> RpcError {
    let code = match error.kind() {
        Kind::Params => -32602,
        Kind::NotFound => -32002,
        kind if kind.needs_sign_in() => -32000,
        Kind::BadMoment => -32600,
        Kind::Cancelled => -32800,
        Kind::SignIn | Kind::Model(_) | Kind::Internal => -32603,
    };
    let message = chain(error);
    let mut data = json!({ "kind": error.kind().name(), "details": message });
    match error {
        Error::NoSuchSession(id) => data["sessionId"] = json!(id),
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
            if let Some(window) = error.window() {
                data["contextWindow"] = json!(window);
            }
        }
        Error::Params(_)
        | Error::BadFolder { .. }
        | Error::NotSignedIn
        | Error::BadMoment(_)
        | Error::Cancelled
        | Error::Store(_)
        | Error::Stuck
        | Error::Bug { .. } => {}
    }
    RpcError { code, message: shortened(message), data: Some(data) }
}

fn shortened(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    message
}
