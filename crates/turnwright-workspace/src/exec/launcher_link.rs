//! The connection between the agent and the launcher in the editor's terminal: frames over a Unix
//! socket, each with one byte for its type, four for its length, and its content.

use std::io;
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::running::{CommandExit, Leftover, Signal};
use turnwright_sandbox::{SandboxProfile, SessionNetwork};

/// The longest valid frame. Whoever announces a longer one is not our launcher.
const MAX_FRAME_BYTES: usize = 1024 * 1024;
const READ_SIZE: usize = 64 * 1024;

/// A message between the agent and the launcher.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LinkFrame {
    /// To the launcher: what to run.
    Run(Box<LaunchRequest>),
    /// To the launcher: pass this signal on.
    Signal(Signal),
    /// To the launcher: end the command, which has this long to clean up.
    Stop(Duration),
    /// To the launcher: write this to the command's input.
    Input(Vec<u8>),
    /// From the launcher: the command has printed this.
    Output(Vec<u8>),
    /// From the launcher: the connections of the command that failed because of its sandbox.
    Refused(Vec<SocketAddr>),
    /// From the launcher: the command has ended, and there is no more output.
    Exit(CommandExit, Leftover),
}

/// The command for the launcher.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaunchRequest {
    /// The program and its arguments.
    pub(super) program: Vec<String>,
    /// The folder to run it in, whatever folder the editor has opened the terminal in.
    pub(super) workdir: String,
    /// True if the agent may write to its input; otherwise its stdin is empty.
    pub(super) accepts_input: bool,
    /// Its confinement; `None` to run it unconfined.
    pub(super) sandbox: Option<SandboxProfile>,
}

/// An event on the connection.
#[derive(Debug, PartialEq)]
pub(super) enum LinkEvent {
    Frame(LinkFrame),
    /// Everything that was to be sent has been sent.
    Drained,
    /// The other side has closed the connection.
    End,
}

/// One end of the connection.
#[derive(Debug)]
pub(super) struct LauncherLink {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl LauncherLink {
    pub(super) fn new(stream: UnixStream) -> LauncherLink {
        LauncherLink { stream, incoming: Vec::new(), outgoing: Vec::new() }
    }

    /// Sends a frame: now if the socket is writable, otherwise during the next wait.
    pub(super) fn send(&mut self, frame: &LinkFrame) {
        encode(frame, &mut self.outgoing);
        // The next wait reports errors of the connection.
        self.write().ok();
    }

    /// The number of bytes that have not been sent yet.
    pub(super) fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    /// Waits for the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> io::Result<LinkEvent> {
        loop {
            if let Some(frame) = decode(&mut self.incoming)? {
                return Ok(LinkEvent::Frame(frame));
            }
            let interest = if self.outgoing.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.stream.ready(interest).await?;
            if ready.is_readable() && !self.read()? {
                return Ok(LinkEvent::End);
            }
            if ready.is_writable() && !self.outgoing.is_empty() {
                self.write()?;
                if self.outgoing.is_empty() {
                    return Ok(LinkEvent::Drained);
                }
            }
        }
    }

    /// Waits until everything has been sent. Cancel safe.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            self.stream.writable().await?;
            self.write()?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<bool> {
        let begun = self.incoming.len();
        self.incoming.resize(begun + READ_SIZE, 0);
        let read = self.stream.try_read(&mut self.incoming[begun..]);
        self.incoming.truncate(begun + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.try_write(&self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Sends the network of the command, before all frames.
#[cfg(target_os = "linux")]
pub(super) fn send_network(
    stream: &UnixStream,
    network: Option<&SessionNetwork>,
) -> io::Result<()> {
    rustix::io::write(stream, &[u8::from(network.is_some())])?;
    network.map_or(Ok(()), |network| network.send(stream.as_fd()))
}

/// Receives the network of the command.
#[cfg(target_os = "linux")]
pub(super) async fn receive_network(
    stream: &UnixStream,
) -> io::Result<Option<Arc<SessionNetwork>>> {
    let mut is_sent = [0];
    stream.async_io(Interest::READABLE, || Ok(rustix::io::read(stream, &mut is_sent)?)).await?;
    if is_sent == [0] {
        return Ok(None);
    }
    let network = SessionNetwork::receive(async |receive| {
        stream.async_io(Interest::READABLE, || receive(stream.as_fd())).await
    });
    Ok(Some(Arc::new(network.await?)))
}

/// Sends nothing: this system has no private networks.
#[cfg(not(target_os = "linux"))]
pub(super) fn send_network(_: &UnixStream, _: Option<&SessionNetwork>) -> io::Result<()> {
    Ok(())
}

/// Receives nothing: this system has no private networks.
#[cfg(not(target_os = "linux"))]
pub(super) async fn receive_network(_: &UnixStream) -> io::Result<Option<Arc<SessionNetwork>>> {
    Ok(None)
}

fn encode(frame: &LinkFrame, bytes: &mut Vec<u8>) {
    let (number, words, request);
    let (kind, content): (u8, &[u8]) = match frame {
        LinkFrame::Run(launch) => {
            request = encode_request(launch);
            (b'r', &request)
        }
        LinkFrame::Signal(Signal::Int) => (b's', b"i"),
        LinkFrame::Signal(Signal::Term) => (b's', b"t"),
        LinkFrame::Signal(Signal::Kill) => (b's', b"k"),
        LinkFrame::Stop(grace) => {
            number = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX).to_le_bytes();
            (b'e', &number)
        }
        LinkFrame::Input(bytes) => (b'i', bytes),
        LinkFrame::Output(bytes) => (b'o', bytes),
        LinkFrame::Refused(addresses) => {
            let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            words = texts.join(" ").into_bytes();
            (b'd', &words)
        }
        LinkFrame::Exit(exit, leftover) => {
            words = encode_exit(exit, *leftover);
            (b'x', &words)
        }
    };
    bytes.push(kind);
    bytes.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(content);
}

/// Takes the first frame, if it is complete.
fn decode(bytes: &mut Vec<u8>) -> io::Result<Option<LinkFrame>> {
    let Some((head, rest)) = bytes.split_first_chunk::<5>() else { return Ok(None) };
    let [kind, length @ ..] = *head;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_FRAME_BYTES {
        return Err(invalid_frame());
    }
    let Some(content) = rest.get(..length) else { return Ok(None) };
    let frame = match (kind, content) {
        (b'r', request) => LinkFrame::Run(Box::new(decode_request(request)?)),
        (b's', b"i") => LinkFrame::Signal(Signal::Int),
        (b's', b"t") => LinkFrame::Signal(Signal::Term),
        (b's', b"k") => LinkFrame::Signal(Signal::Kill),
        (b'e', _) => {
            let number = content.try_into().map(u32::from_le_bytes).map_err(|_| invalid_frame())?;
            LinkFrame::Stop(Duration::from_millis(u64::from(number)))
        }
        (b'i', bytes) => LinkFrame::Input(bytes.to_vec()),
        (b'o', bytes) => LinkFrame::Output(bytes.to_vec()),
        (b'd', words) => {
            let words = std::str::from_utf8(words).map_err(|_| invalid_frame())?;
            let addresses = words.split_whitespace().map(str::parse);
            LinkFrame::Refused(addresses.collect::<Result<_, _>>().map_err(|_| invalid_frame())?)
        }
        (b'x', words) => {
            let (exit, leftover) = decode_exit(words).ok_or_else(invalid_frame)?;
            LinkFrame::Exit(exit, leftover)
        }
        _ => return Err(invalid_frame()),
    };
    bytes.drain(..5 + length);
    Ok(Some(frame))
}

fn encode_request(request: &LaunchRequest) -> Vec<u8> {
    let LaunchRequest { program, workdir, accepts_input, sandbox } = request;
    let request = json!({ "program": program, "workdir": workdir, "input": accepts_input,
        "sandbox": sandbox });
    request.to_string().into_bytes()
}

/// Reads a request. Every field must be there: without `sandbox` it would not be clear that none is
/// wanted.
fn decode_request(request: &[u8]) -> io::Result<LaunchRequest> {
    let mut fields: Map<String, Value> = serde_json::from_slice(request)?;
    Ok(LaunchRequest {
        program: serde_json::from_value(take_field(&mut fields, "program")?)?,
        workdir: serde_json::from_value(take_field(&mut fields, "workdir")?)?,
        accepts_input: serde_json::from_value(take_field(&mut fields, "input")?)?,
        sandbox: serde_json::from_value(take_field(&mut fields, "sandbox")?)?,
    })
}

fn take_field(fields: &mut Map<String, Value>, name: &str) -> io::Result<Value> {
    fields.remove(name).ok_or_else(invalid_frame)
}

/// Encodes how a command ended and whether processes were left: a letter each, then the details.
fn encode_exit(exit: &CommandExit, leftover: Leftover) -> Vec<u8> {
    let (kind, rest) = match exit {
        CommandExit::Code(code) => ('c', code.to_string()),
        CommandExit::Signal(name) => ('k', name.clone()),
        CommandExit::TerminalClosed => ('h', String::new()),
        CommandExit::Unknown => ('u', String::new()),
    };
    let left = if leftover == Leftover::None { '-' } else { '+' };
    format!("{kind}{left}{rest}").into_bytes()
}

fn decode_exit(words: &[u8]) -> Option<(CommandExit, Leftover)> {
    let [kind, left, rest @ ..] = words else { return None };
    let rest = std::str::from_utf8(rest).ok()?;
    let exit = match kind {
        b'c' => CommandExit::Code(rest.parse().ok()?),
        b'k' => CommandExit::Signal(rest.to_owned()),
        b'h' => CommandExit::TerminalClosed,
        b'u' => CommandExit::Unknown,
        _ => return None,
    };
    let leftover = if *left == b'-' { Leftover::None } else { Leftover::Stopped };
    Some((exit, leftover))
}

fn invalid_frame() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "invalid frame from the launcher")
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_sandbox::Network;

    #[test]
    fn frames_are_decoded_however_they_are_split() {
        let run = |sandbox| {
            let program = ["sh", "-c", "echo \"ä\""].map(str::to_owned).to_vec();
            let workdir = "/ä".to_owned();
            let request = LaunchRequest { program, workdir, accepts_input: true, sandbox };
            LinkFrame::Run(Box::new(request))
        };
        let frames = [
            run(None),
            run(Some(SandboxProfile { network: Network::On, ..SandboxProfile::default() })),
            LinkFrame::Signal(Signal::Term),
            LinkFrame::Stop(Duration::from_millis(200)),
            LinkFrame::Input(b"yes\n".to_vec()),
            LinkFrame::Output(vec![0, 255, 10]),
            LinkFrame::Output(Vec::new()),
            LinkFrame::Refused(vec!["127.0.0.1:80".parse().unwrap(), "[::1]:53".parse().unwrap()]),
            LinkFrame::Refused(Vec::new()),
            LinkFrame::Exit(CommandExit::Code(-3), Leftover::None),
            LinkFrame::Exit(CommandExit::Signal("SIGKILL".to_owned()), Leftover::Stopped),
            LinkFrame::Exit(CommandExit::TerminalClosed, Leftover::Stopped),
            LinkFrame::Exit(CommandExit::Unknown, Leftover::None),
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            encode(frame, &mut bytes);
        }
        let mut incoming = Vec::new();
        let mut found = Vec::new();
        for byte in bytes {
            incoming.push(byte);
            found.extend(decode(&mut incoming).unwrap());
        }
        assert_eq!(found, frames);
        assert!(incoming.is_empty());
    }

    #[test]
    fn invalid_frames_are_errors_and_take_no_memory() {
        for bytes in [
            &b"x\0\0\0\0"[..],
            b"o\xff\xff\xff\xff",
            b"x\x03\0\0\0c-a",
            b"s\x01\0\0\0z",
            b"d\x01\0\0\0z",
            b"r\0\0\0\0",
            b"r\x01\0\0\0?",
        ] {
            assert!(decode(&mut bytes.to_vec()).is_err(), "{bytes:?}");
        }
        // A request without a field could mean anything, and above all no sandbox.
        for request in
            [r#"{"program":["a"],"input":1,"sandbox":null}"#, r#"{"program":["a"],"input":false}"#]
        {
            let length = u32::try_from(request.len()).unwrap().to_le_bytes();
            let mut frame = [b"r", &length[..], request.as_bytes()].concat();
            assert!(decode(&mut frame).is_err(), "{request}");
        }
        assert_eq!(decode(&mut b"o\x05\0\0\0abc".to_vec()).unwrap(), None);
    }
}
