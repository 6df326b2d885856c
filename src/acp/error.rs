//! Converts errors to JSON-RPC errors; nothing else does.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind, error_chain};
use turnwright_rpc::RpcError;
use turnwright_types::error_text::json_error_text;
use turnwright_types::text;

/// The error code for a version below all of ours.
const UNSUPPORTED_VERSION: i32 = -32022;

/// Maximum length of a message. The whole text is in `data.details` (R-ERR-8).
const MAX_MESSAGE_CHARS: usize = 500;

/// Converts an error for the client. Its message is a sentence that the user can act on. `data.details`
/// says more where there is more to say; some clients show it in place of the message, so it is
/// complete by itself.
pub(super) fn to_rpc(error: &Error) -> RpcError {
    let code = match error.kind() {
        ErrorKind::InvalidParams => -32602,
        ErrorKind::NotFound => -32002,
        kind if kind.requires_auth() => -32000,
        ErrorKind::InvalidState => -32600,
        ErrorKind::Cancelled => -32800,
        ErrorKind::AuthRequired | ErrorKind::Model(_) | ErrorKind::Internal => -32603,
    };
    let whole = error_chain(error);
    let message = text::clip(whole.as_str(), MAX_MESSAGE_CHARS);
    let mut data = json!({ "kind": error.kind().name() });
    if whole != message {
        data["details"] = json!(whole);
    }
    match error {
        Error::SessionNotFound(id) => {
            data["sessionId"] = json!(id);
            // One client looks here for the first words, and opens another session then.
            let details = format!("{message}. It may have been deleted, or never had a prompt");
            data["details"] = json!(details);
        }
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
        | Error::Internal { .. } => {}
    }
    RpcError { code, message, data: Some(data) }
}

/// The error of a client that wants a version of the protocol below all of ours, which is version 0.
pub(super) fn unsupported_version() -> RpcError {
    RpcError {
        code: UNSUPPORTED_VERSION,
        message: "This version of the protocol is not supported".to_owned(),
        data: Some(json!({ "requested": 0, "supported": [1, 2] })),
    }
}

/// The error of parameters that do not fit their method.
pub(super) fn invalid_params(method: &str, text: &str, error: &serde_json::Error) -> Error {
    Error::InvalidParams(format!(
        "Invalid parameters for {method}: {}",
        json_error_text(text, error)
    ))
}

/// Reads parameters that a handler got as JSON, because they may need a correction.
pub(super) fn read_params<T: DeserializeOwned>(method: &str, params: &Value) -> Result<T, Error> {
    let text = params.to_string();
    serde_json::from_str(&text).map_err(|error| invalid_params(method, &text, &error))
}
