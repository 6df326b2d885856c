//! Between the lines of our own stdin and stdout and `rmcp`: a frame in, a message out. What is no
//! message is answered here.

use std::convert::Infallible;

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use turnwright_rpc::{Frame, Input, Line, Outbox, Params, RequestId, RpcError};

/// Bytes of the parameters of one message.
const LARGEST: usize = 8 * 1024 * 1024;
/// Where a request says which revision of the protocol it is of.
const REVISION: &str = "io.modelcontextprotocol/protocolVersion";

/// The two ways.
pub(super) struct Wire {
    input: Input,
    outbox: Outbox,
    stop: CancellationToken,
    /// The client has begun. What comes before is no reason to end.
    has_begun: bool,
}

impl Wire {
    /// When the input ends, so does everything else, at once.
    pub(super) fn new(input: Input, outbox: Outbox, stop: CancellationToken) -> Wire {
        Wire { input, outbox, stop, has_begun: false }
    }

    async fn next(&mut self) -> Option<Line> {
        // A client that does not read its answers gets no more of them.
        tokio::select! {
            biased;
            () = self.outbox.settled() => self.input.next().await,
            () = self.input.ended() => None,
        }
    }

    fn message(&mut self, frame: Frame) -> Option<RxJsonRpcMessage<RoleServer>> {
        let id = match &frame {
            Frame::Request { id, .. } => Some(id.clone()),
            // Nothing can be meant by it yet, and `rmcp` would give up.
            _ if !self.has_begun => return None,
            _ => None,
        };
        let message = whole(frame).and_then(|it| {
            let begins = begins(&it);
            let message = serde_json::from_value(it);
            let message = message.map_err(|_| "it is no message of this protocol".to_owned())?;
            Ok((message, begins))
        });
        match message {
            Ok((message, begins)) => {
                self.has_begun |= begins;
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

/// Whether a client begins with it: by the handshake, or by a request that says all by itself. A
/// client may knock before.
fn begins(message: &Value) -> bool {
    match message["method"].as_str() {
        Some("initialize") => true,
        Some("ping" | "server/discover") | None => false,
        Some(_) => message["params"]["_meta"][REVISION].is_string(),
    }
}

/// The message as one value.
fn whole(frame: Frame) -> Result<Value, String> {
    let mut message = Map::new();
    message.insert("jsonrpc".to_owned(), "2.0".into());
    match frame {
        Frame::Request { id, method, params } => {
            message.insert("id".to_owned(), plain(&id)?);
            message.insert("method".to_owned(), method.as_ref().into());
            message.extend(read(&params)?);
        }
        Frame::Notification { method, params } => {
            message.insert("method".to_owned(), method.as_ref().into());
            message.extend(read(&params)?);
        }
        Frame::Response { id, result } => {
            message.insert("id".to_owned(), plain(&id)?);
            match result {
                Ok(result) => message.insert("result".to_owned(), value(&result)?),
                Err(error) => message.insert("error".to_owned(), value(&error)?),
            };
        }
    }
    Ok(Value::Object(message))
}

fn read(params: &Params) -> Result<Option<(String, Value)>, String> {
    let raw: Box<RawValue> = params.read().map_err(|it| it.to_string())?;
    if raw.get().len() > LARGEST {
        return Err("the parameters may have at most 8 MiB".to_owned());
    }
    let params = value(&raw)?;
    Ok((!params.is_null()).then(|| ("params".to_owned(), params)))
}

fn plain(id: &RequestId) -> Result<Value, String> {
    match value(id)? {
        Value::Null => Err("an id is a string or a number".to_owned()),
        id => Ok(id),
    }
}

fn value(of: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(of).map_err(|it| it.to_string())
}

impl Transport<RoleServer> for Wire {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        // Put in at once: the order in which answers were given is that in which they are written.
        self.outbox.send(&message);
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        while let Some(line) = self.next().await {
            match line {
                Line::Message(frame) => {
                    if let Some(message) = self.message(frame) {
                        return Some(message);
                    }
                }
                Line::Refused { id, error } => self.outbox.respond::<()>(&id, Err(&error)),
                Line::Ignored => {}
            }
        }
        self.stop.cancel();
        None
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
