//! Connections of the WebSocket transport, in which each message is a text message.

use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use crate::access::{BEARER, HttpRefusal, words};
use crate::http_server::{HttpAnswer, HttpServer, TOO_MANY_CONNECTIONS, plain};
use crate::silence::{SocketReads, WatchedSocket};
use turnwright_rpc::{LineSender, MAX_LINE_BYTES, OutboxDrain};

/// The interval between pings, whose answers show that the client is still there.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(5);
/// How long the client may take to read the last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Appended to the client's key. The digest of both shows that the server speaks the protocol (RFC 6455, 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The limits of a WebSocket. A longer message ends the connection.
pub(crate) fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(16 * 1024)
        .write_buffer_size(16 * 1024)
        .max_message_size(Some(MAX_LINE_BYTES))
        .max_frame_size(Some(MAX_LINE_BYTES))
}

/// Returns the value of `Sec-WebSocket-Accept` for a client's key.
pub(crate) fn accept_key(key: &[u8]) -> String {
    let text = [key, KEY_SUFFIX.as_bytes()].concat();
    BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text))
}

/// Accepts a WebSocket, which the request asks for, and serves it in a task of its own.
pub(crate) fn accept(server: &Arc<HttpServer>, request: Request<Incoming>) -> HttpAnswer {
    let headers = request.headers();
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| {
        has_word(headers, CONNECTION, "upgrade") && has_word(headers, SEC_WEBSOCKET_VERSION, "13")
    });
    let Some(key) = key else {
        let text = "Only WebSockets of version 13 are accepted.\n";
        return Err(HttpRefusal(StatusCode::BAD_REQUEST, text));
    };
    let permit = Arc::clone(&server.connection_permits)
        .try_acquire_owned()
        .map_err(|_| TOO_MANY_CONNECTIONS)?;
    let accepted = HeaderValue::from_str(&accept_key(key.as_bytes())).ok();
    // A browser gives up a WebSocket if none of the subprotocols that it has offered is chosen.
    let chosen = words(headers, SEC_WEBSOCKET_PROTOCOL)
        .find(|name| !name.starts_with(BEARER))
        .and_then(|name| HeaderValue::from_str(name).ok());
    let upgrade = hyper::upgrade::on(request);
    let task_server = Arc::clone(server);
    server.tasks.spawn(async move {
        match upgrade.await {
            Ok(socket) => run(TokioIo::new(socket), &task_server).await,
            Err(error) => tracing::debug!(%error, "a WebSocket was not opened"),
        }
        drop(permit);
    });
    let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.extend(accepted.map(|accepted| (SEC_WEBSOCKET_ACCEPT, accepted)));
    headers.extend(chosen.map(|chosen| (SEC_WEBSOCKET_PROTOCOL, chosen)));
    Ok(response)
}

/// Returns true if a header's list contains this word, in upper or lower case.
pub(crate) fn has_word(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    words(headers, name).any(|part| part.eq_ignore_ascii_case(word))
}

/// Runs a connection to its end.
async fn run(socket: impl AsyncRead + AsyncWrite + Unpin, server: &HttpServer) {
    let all_incomplete = Arc::clone(&server.incomplete_bytes);
    let (socket, reads) = WatchedSocket::new(socket, Some(all_incomplete));
    let socket = WebSocketStream::from_raw_socket(socket, Role::Server, Some(config())).await;
    let (sink, source) = socket.split();
    // Cancelled if the client ends the connection for good.
    let intended_end = CancellationToken::new();
    let (lines, messages, remote) = server.open(intended_end.clone());
    let serving = (server.serve)(remote);
    let written = CancellationToken::new();
    let read = CancellationToken::new();
    let served = CancellationToken::new();
    let close_code = OnceLock::new();
    let reading = async {
        let receiving = receive(source, &reads, &lines, &intended_end);
        if let Some(code) = written.run_until_cancelled(receiving).await {
            close_code.get_or_init(|| code);
        }
        // The program's input ends.
        drop(lines);
        read.cancel();
    };
    let writing = async {
        let closing = async {
            read.cancelled().await;
            served.cancelled().await;
            sleep(FLUSH_TIMEOUT).await;
        };
        tokio::select! {
            () = send(sink, messages, &close_code) => {}
            () = closing => {}
        }
        written.cancel();
    };
    let serving = async {
        serving.await;
        served.cancel();
    };
    tokio::join!(reading, writing, serving);
}

/// Passes the client's messages to the program until the client closes the connection or it is lost. Returns the code
/// to close the connection with, if the client is still there.
async fn receive(
    mut source: impl Stream<Item = Result<Message, Error>> + Unpin,
    reads: &SocketReads,
    lines: &LineSender,
    intended_end: &CancellationToken,
) -> CloseCode {
    while let Some(message) = reads.next_message(&mut source).await {
        match message {
            Ok(Message::Text(text)) => {
                if !lines.send(Vec::from(Bytes::from(text))).await {
                    break;
                }
                reads.clear();
            }
            Ok(Message::Close(frame)) => {
                // With another code, such as that of a page that is left or a proxy that restarts, the client may
                // come back.
                if frame.is_none_or(|frame| frame.code == CloseCode::Normal) {
                    intended_end.cancel();
                }
                break;
            }
            Ok(Message::Binary(_)) => {
                tracing::debug!("a client has sent binary data, which has no meaning");
                return CloseCode::Unsupported;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "a WebSocket was lost");
                return match error {
                    Error::Utf8(_) => CloseCode::Invalid,
                    Error::Capacity(_) => CloseCode::Size,
                    Error::Io(error) if error.kind() == ErrorKind::OutOfMemory => CloseCode::Again,
                    Error::Protocol(_) => CloseCode::Protocol,
                    _ => CloseCode::Away,
                };
            }
        }
    }
    CloseCode::Away
}

/// Sends the program's messages until there are no more or the connection is lost.
async fn send(
    mut sink: impl Sink<Message, Error = Error> + Unpin,
    mut messages: OutboxDrain,
    close_code: &OnceLock<CloseCode>,
) {
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Without this, the first ping would be sent at once.
    pings.reset();
    loop {
        let sent = tokio::select! {
            lines = messages.next() => match lines {
                Some(lines) => send_lines(&mut sink, lines).await,
                None => break,
            },
            _ = pings.tick() => sink.send(Message::Ping(Bytes::new())).await,
        };
        if sent.is_err() {
            return;
        }
    }
    let code = close_code.get().copied().unwrap_or(CloseCode::Away);
    let frame = CloseFrame { code, reason: Utf8Bytes::from_static("") };
    // If it cannot be sent, the client is gone.
    sink.send(Message::Close(Some(frame))).await.ok();
}

/// Sends each line as a message, and all of them in as few packets as possible.
pub(crate) async fn send_lines(
    sink: &mut (impl Sink<Message, Error = Error> + Unpin),
    lines: &[u8],
) -> Result<(), Error> {
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let text = Utf8Bytes::try_from(Bytes::copy_from_slice(line))?;
        sink.feed(Message::Text(text)).await?;
    }
    sink.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
