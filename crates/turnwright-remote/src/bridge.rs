//! Connects stdin and stdout with an agent elsewhere, for editors that only know pipes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use http::header::{
    AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderValue, StatusCode};
use reqwest::Upgraded;
use reqwest::redirect::Policy;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use crate::silence::{SocketReads, WatchedSocket};
use crate::websocket::{PING_INTERVAL, accept_key, config};
use turnwright_http::{ConnectionFault, build_client, client_builder, names_this_machine};
use turnwright_rpc::{Stdio, read_line};

/// How long the agent may take to accept the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the agent may take to send its last messages after the input has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of lines that wait for the agent.
const MAX_WAITING_LINES: usize = 8;

/// Why a bridge could not be opened, or has ended before its input.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("{0} is not an address of an agent; it begins with ws:// or wss://")]
    Url(Url),
    #[error("the token would go to {0} unencrypted; use wss://, or an SSH tunnel to this machine")]
    Unencrypted(String),
    #[error("{host} cannot be reached: {fault}")]
    Unreachable { host: String, fault: ConnectionFault },
    #[error("the agent at {0} refuses the token")]
    Token(String),
    #[error("{0} refuses this name (403). Behind a proxy, start the agent with --allow-host {0}")]
    Host(String),
    #[error("{host} has no agent there (status {status})")]
    NoAgent { host: String, status: u16 },
    #[error("the connection to {0} was lost")]
    Lost(String),
    #[error("stdin and stdout cannot be used: {0}")]
    Stdio(#[from] io::Error),
}

/// Connects stdin and stdout with the agent at this URL, until stdin ends or `stop` is cancelled.
///
/// # Errors
/// If the agent cannot be reached, refuses the token, or ends the connection first.
pub async fn bridge(
    url: &Url,
    token: &str,
    stdio: Stdio,
    stop: CancellationToken,
) -> Result<(), BridgeError> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let Some(socket) = stop.run_until_cancelled(connect(url, &host, token)).await else {
        return Ok(());
    };
    let (socket, reads) = WatchedSocket::new(socket?, None);
    let socket = WebSocketStream::from_raw_socket(socket, Role::Client, Some(config())).await;
    let Stdio { input, output } = stdio;
    let (mut sink, source) = socket.split();
    let lines = read_lines(input)?;
    let ended = CancellationToken::new();
    let sending = async {
        stop.run_until_cancelled(send_lines(&mut sink, lines)).await.unwrap_or(Ok(()))?;
        ended.cancel();
        let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("") };
        sink.send(Message::Close(Some(frame))).await
    };
    let receiving = receive(source, &reads, output);
    tokio::pin!(receiving);
    let is_lost = tokio::select! {
        // The agent has ended the connection, or nobody reads our output.
        () = &mut receiving => !ended.is_cancelled(),
        sent = sending => match sent {
            // The agent sends its last messages, and then closes the connection, too.
            Ok(()) => {
                timeout(CLOSE_TIMEOUT, receiving).await.ok();
                false
            }
            Err(_) => true,
        },
    };
    if is_lost { Err(BridgeError::Lost(host)) } else { Ok(()) }
}

/// Opens the WebSocket: to another machine encrypted, and through the proxy of the environment if there is one.
async fn connect(url: &Url, host: &str, token: &str) -> Result<Upgraded, BridgeError> {
    let mut http_url = url.clone();
    let scheme = match url.scheme() {
        "ws" | "http" => "http",
        "wss" | "https" => "https",
        _ => return Err(BridgeError::Url(url.clone())),
    };
    if host.is_empty() || http_url.set_scheme(scheme).is_err() {
        return Err(BridgeError::Url(url.clone()));
    }
    if scheme == "http" && !names_this_machine(url) {
        return Err(BridgeError::Unencrypted(host.to_owned()));
    }
    let built = spawn_blocking(move || {
        // Neither another server nor a proxy gets the token in plain text.
        let mut builder = client_builder().http1_only().redirect(Policy::none());
        if scheme == "http" {
            builder = builder.no_proxy();
        }
        build_client(builder, scheme == "https")
    });
    let client = built
        .await
        .map_err(|_| BridgeError::Lost(host.to_owned()))?
        .map_err(|error| unreachable(host, ConnectionFault::of(&error)))?;
    let key = BASE64.encode(Uuid::new_v4().as_bytes());
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| BridgeError::Token(host.to_owned()))?;
    bearer.set_sensitive(true);
    let request = client
        .get(http_url)
        .header(AUTHORIZATION, bearer)
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key);
    let response = timeout(CONNECT_TIMEOUT, request.send())
        .await
        .map_err(|_| unreachable(host, ConnectionFault::TimedOut))?
        .map_err(|error| unreachable(host, ConnectionFault::of(&error)))?;
    let status = response.status();
    let is_accepted = response
        .headers()
        .get(SEC_WEBSOCKET_ACCEPT)
        .is_some_and(|accept| accept.as_bytes() == accept_key(key.as_bytes()).as_bytes());
    match status {
        StatusCode::SWITCHING_PROTOCOLS if is_accepted => {}
        StatusCode::UNAUTHORIZED => return Err(BridgeError::Token(host.to_owned())),
        StatusCode::FORBIDDEN => return Err(BridgeError::Host(host.to_owned())),
        _ => return Err(BridgeError::NoAgent { host: host.to_owned(), status: status.as_u16() }),
    }
    response.upgrade().await.map_err(|error| unreachable(host, ConnectionFault::of(&error)))
}

fn unreachable(host: &str, fault: ConnectionFault) -> BridgeError {
    BridgeError::Unreachable { host: host.to_owned(), fault }
}

/// Reads lines on a thread of its own.
fn read_lines(input: File) -> io::Result<mpsc::Receiver<Utf8Bytes>> {
    let (sender, lines) = mpsc::channel(MAX_WAITING_LINES);
    std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut input = BufReader::new(input);
        while let Some(line) = next_line(&mut input) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    })?;
    Ok(lines)
}

/// The next line that is not blank. One that is too long is replaced with one that the agent refuses in the same way.
/// Bytes that are not UTF-8, which no text frame can carry, are replaced here and not by the agent.
fn next_line(input: &mut impl BufRead) -> Option<Utf8Bytes> {
    loop {
        let mut line = Vec::new();
        match read_line(input, &mut line) {
            Err(_) => return None,
            Ok(Some(long)) => return Some(long.stand_in().into()),
            Ok(None) if line.is_empty() => return None,
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => {
                let text = String::from_utf8(line)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
                return Some(text.into());
            }
        }
    }
}

/// Sends lines until there are no more. In between it sends unsolicited signs of life: while nobody reads our
/// output, the agent's pings are not read either.
async fn send_lines(
    sink: &mut (impl Sink<Message, Error = SocketError> + Unpin),
    mut lines: mpsc::Receiver<Utf8Bytes>,
) -> Result<(), SocketError> {
    let mut signs = interval(PING_INTERVAL);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    signs.reset();
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => sink.send(Message::Text(line)).await?,
                None => return Ok(()),
            },
            _ = signs.tick() => sink.send(Message::Pong(Bytes::new())).await?,
        }
    }
}

/// Writes the agent's messages, until it closes the connection, it is lost, or nobody reads them.
async fn receive(
    mut source: impl Stream<Item = Result<Message, SocketError>> + Unpin,
    reads: &SocketReads,
    mut output: File,
) {
    while let Some(Ok(message)) = reads.next_message(&mut source).await {
        let text = match message {
            Message::Text(text) => text,
            Message::Close(_) => return,
            _ => continue,
        };
        // A pipe that nobody reads must not keep the runtime from sending signs of life.
        let writing = spawn_blocking(move || {
            let line = [text.as_bytes(), b"\n"].concat();
            output.write_all(&line).map(|()| output)
        });
        match writing.await {
            Ok(Ok(file)) => output = file,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_are_sent_unasked() {
        let (sent, mut messages) = mpsc::channel(1);
        let mut sink = Box::pin(futures_util::sink::unfold(sent, |sent, message| async move {
            sent.send(message).await.ok();
            Ok::<_, SocketError>(sent)
        }));
        let (_input, lines) = mpsc::channel(1);
        let first = tokio::select! {
            ended = send_lines(&mut sink, lines) => panic!("{ended:?}"),
            first = messages.recv() => first,
        };
        assert_eq!(first, Some(Message::Pong(Bytes::new())));
    }

    #[test]
    fn bytes_that_no_text_frame_can_carry_do_not_spoil_a_line() {
        let mut input = io::Cursor::new(b"{\"a\":1}\n\n \r\n{\"a\":\"\xff\"}\nlast".to_vec());
        let lines: Vec<_> = std::iter::from_fn(|| next_line(&mut input)).collect();
        assert_eq!(lines, ["{\"a\":1}\n", "{\"a\":\"\u{fffd}\"}\n", "last"]);
    }
}
