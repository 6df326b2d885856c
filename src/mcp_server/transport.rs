//! Connects `rmcp` to our own reader of stdin and writer of stdout. Malformed messages are answered here
//! and never reach `rmcp`.

use std::convert::Infallible;

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use turnwright_rpc::{LineReader, Outbox, Params, ParsedLine, RequestId, RpcError, RpcMessage};

/// Maximum size of the parameters of one message.
const MAX_PARAMS_BYTES: usize = 8 * 1024 * 1024;
/// The `_meta` key in which a request without a handshake states its protocol version.
const PROTOCOL_VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

pub(super) struct StdioTransport {
    input: LineReader,
    outbox: Outbox,
    stop: CancellationToken,
    /// The client has initialised the connection, or sent a request that needs no handshake.
    /// Anything else before that is ignored, because `rmcp` would end the connection.
    has_started: bool,
}

impl StdioTransport {
    /// Creates a transport that cancels `stop` at the end of the input.
    pub(super) fn new(
        input: LineReader,
        outbox: Outbox,
        stop: CancellationToken,
    ) -> StdioTransport {
        StdioTransport { input, outbox, stop, has_started: false }
    }

    async fn next(&mut self) -> Option<ParsedLine> {
        // No more requests are read from a client that does not read the responses.
        tokio::select! {
            biased;
            () = self.outbox.wait_for_read_capacity() => self.input.next().await,
            () = self.input.ended() => None,
        }
    }

    /// Converts a message for `rmcp`. Answers it with an error and returns `None` if it is malformed.
    fn accept(&mut self, message: RpcMessage) -> Option<RxJsonRpcMessage<RoleServer>> {
        let id = match &message {
            RpcMessage::Request { id, .. } => Some(id.clone()),
            // Only requests have a meaning before the start, and `rmcp` would end the connection.
            _ if !self.has_started => return None,
            _ => None,
        };
        let converted = to_value(message).and_then(|value| {
            let starts_session = starts_session(&value);
            let message = serde_json::from_value(value);
            let message = message.map_err(|_| "not a message of this protocol".to_owned())?;
            Ok((message, starts_session))
        });
        match converted {
            Ok((message, starts_session)) => {
                self.has_started |= starts_session;
                Some(message)
            }
            Err(why) => {
                let error = RpcError::invalid_request(&why);
                if let Some(id) = id {
                    self.outbox.respond::<()>(&id, Err(&error));
                }
                None
            }
        }
    }
}

/// True for the messages with which a client starts: the handshake, or a request that states its protocol
/// version itself. `ping` and `server/discover` may precede them.
fn starts_session(message: &Value) -> bool {
    match message["method"].as_str() {
        Some("initialize") => true,
        Some("ping" | "server/discover") | None => false,
        Some(_) => message["params"]["_meta"][PROTOCOL_VERSION_KEY].is_string(),
    }
}

/// Rebuilds the message as one JSON value.
fn to_value(rpc_message: RpcMessage) -> Result<Value, String> {
    let mut message = Map::new();
    message.insert("jsonrpc".to_owned(), "2.0".into());
    match rpc_message {
        RpcMessage::Request { id, method, params } => {
            message.insert("id".to_owned(), id_value(&id)?);
            message.insert("method".to_owned(), method.as_ref().into());
            message.extend(params_field(&params)?);
        }
        RpcMessage::Notification { method, params } => {
            message.insert("method".to_owned(), method.as_ref().into());
            message.extend(params_field(&params)?);
        }
        RpcMessage::Response { id, result } => {
            message.insert("id".to_owned(), id_value(&id)?);
            match result {
                Ok(result) => message.insert("result".to_owned(), value(&result)?),
                Err(error) => message.insert("error".to_owned(), value(&error)?),
            };
        }
    }
    Ok(Value::Object(message))
}

fn params_field(params: &Params) -> Result<Option<(String, Value)>, String> {
    let raw: Box<RawValue> = params.read().map_err(|it| it.to_string())?;
    if raw.get().len() > MAX_PARAMS_BYTES {
        return Err("the parameters may have at most 8 MiB".to_owned());
    }
    let params = value(&raw)?;
    Ok((!params.is_null()).then(|| ("params".to_owned(), params)))
}

fn id_value(id: &RequestId) -> Result<Value, String> {
    match value(id)? {
        Value::Null => Err("an id must be a string or a number".to_owned()),
        id => Ok(id),
    }
}

fn value(content: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(content).map_err(|it| it.to_string())
}

impl Transport<RoleServer> for StdioTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        // Enqueued before the future is polled, so that responses are written in the order in which
        // they were given.
        self.outbox.send(&message);
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        while let Some(line) = self.next().await {
            match line {
                ParsedLine::Message(message) => {
                    if let Some(message) = self.accept(message) {
                        return Some(message);
                    }
                }
                ParsedLine::Rejected { id, error } => self.outbox.respond::<()>(&id, Err(&error)),
                ParsedLine::Ignored => {}
            }
        }
        self.stop.cancel();
        None
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
