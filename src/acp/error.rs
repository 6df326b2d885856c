//! Converts errors to JSON-RPC errors; nothing else does.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{Error, error_chain};
use turnwright_llm::ErrorKind;
use turnwright_rpc::RpcError;
use turnwright_store::StoreError;
use turnwright_types::error_text::json_error_text;
use turnwright_types::{redact, text};

/// The error code for a version below all of ours.
const UNSUPPORTED_VERSION: i32 = -32022;

/// Maximum length of a message. `data.details` has more of a longer text (R-ERR-8).
const MAX_MESSAGE_CHARS: usize = 500;
/// Maximum length of a text in `data`. An error may repeat words of the client, however long they are.
const MAX_DATA_CHARS: usize = 1_000;
/// The part of a text that is searched for keys before it is shortened.
const MAX_SCANNED_BYTES: usize = 64 * 1024;

/// Converts an error for the client. Its message is a sentence that the user can act on. `data.details`
/// says more where there is more to say; some clients show it in place of the message, so it is
/// complete by itself.
pub(super) fn to_rpc(error: &Error) -> RpcError {
    let (code, kind) = code_and_kind(error);
    let chain = error_chain(error);
    // A key that was cut in two would not be recognised any more.
    let redacted = redact::text(text::prefix(&chain, MAX_SCANNED_BYTES));
    let whole = text::clip(redacted, MAX_DATA_CHARS);
    let message = text::clip(whole.as_str(), MAX_MESSAGE_CHARS);
    let mut data = json!({ "kind": kind });
    if whole != message {
        data["details"] = json!(whole);
    }
    match error {
        Error::SessionNotFound(id) => {
            data["sessionId"] = json!(text::clip(id, MAX_DATA_CHARS));
            // One client looks here for the first words, and opens another session then.
            let details = format!("{message}. It may have been deleted, or never had a prompt");
            data["details"] = json!(details);
        }
        Error::Llm(error) => {
            if let Some(host) = error.host() {
                data["provider"] = json!(text::clip(host, MAX_DATA_CHARS));
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

/// The code of an error, and a stable word for programs.
fn code_and_kind(error: &Error) -> (i32, &'static str) {
    match error {
        Error::InvalidParams(_)
        | Error::InvalidFolder { .. }
        | Error::Store(StoreError::NoSuchCursor) => (-32602, "params"),
        Error::SessionNotFound(_) | Error::Store(StoreError::NoSuchSession) => {
            (-32002, "not_found")
        }
        Error::NoModelConfigured(_) => (-32000, "sign_in"),
        Error::InvalidState(_) | Error::Store(StoreError::SessionLocked(_)) => {
            (-32600, "bad_moment")
        }
        Error::Cancelled => (-32800, "cancelled"),
        Error::Llm(error) => match error.kind() {
            // Signing in, or signing in again, fixes it.
            kind @ (ErrorKind::Auth | ErrorKind::Config) => (-32000, kind.name()),
            kind => (-32603, kind.name()),
        },
        // A bug in this program, or a failure of the store.
        Error::Store(_) | Error::Internal { .. } => (-32603, "internal"),
    }
}

/// The error of a client that wants a version of the protocol below all of ours, which is version 0.
pub(super) fn unsupported_version() -> RpcError {
    let message = "This version of the protocol is not supported".to_owned();
    let data = json!({ "requested": 0, "supported": [1, 2] });
    RpcError::application(UNSUPPORTED_VERSION, message, data)
}

/// The error of a request that its client can correct.
pub(super) fn invalid(why: impl Into<String>) -> Error {
    Error::InvalidParams(why.into())
}

/// The error of parameters that do not fit their method.
pub(super) fn invalid_params(method: &str, text: &str, error: &serde_json::Error) -> Error {
    invalid(format!("Invalid parameters for {method}: {}", json_error_text(text, error)))
}

/// Reads parameters that a handler got as JSON, because they may need a correction.
pub(super) fn read_params<T: DeserializeOwned>(method: &str, params: &Value) -> Result<T, Error> {
    let text = params.to_string();
    serde_json::from_str(&text).map_err(|error| invalid_params(method, &text, &error))
}
