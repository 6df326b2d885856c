//! The connection between the agent and the launcher in the editor's terminal: frames over a Unix
//! socket, each with one byte for its type, four for its length, and its content.
//!
//! Any process of the user may find the socket on which the agent waits and connect first, also a command in the
//! sandbox. So each launcher gets a nonce that it has to send before it is believed and told what to run. It is in an
//! environment variable: everybody can read the arguments of a process, but Landlock keeps a sandboxed program from the
//! environment of processes outside of its sandbox, with or without a PID namespace. What runs without a sandbox as the
//! same user could read it, and could control the editor and the launcher as well.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::job::{CommandExit, Signal};
use crate::temp_folder::PrivateTempFolder;
use turnwright_sandbox::{Refusal, SandboxProfile, SessionNetwork};

/// The variable with the path of the socket, which makes a process the launcher. The command does not get
/// it, as it gets no variable of ours.
pub const SOCKET_VARIABLE: &str = "TURNWRIGHT_LAUNCHER_SOCKET";
/// The variable with the launcher's nonce. The command does not get it either.
pub const NONCE_VARIABLE: &str = "TURNWRIGHT_LAUNCHER_NONCE";
const NONCE_LENGTH: usize = uuid::fmt::Simple::LENGTH;
/// How long a peer may take to send the nonce. The launcher sends it at once.
const NONCE_TIMEOUT: Duration = Duration::from_millis(500);
/// At most this many peers can be about to send the nonce. Others wait to be accepted.
const MAX_PEERS: usize = 16;
/// The pause after a connection could not be accepted, for example because too many files are open.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The name of the socket in its folder.
const SOCKET: &str = "line";

/// A socket to which one launcher can connect. Dropping it removes the socket and ends the connections
/// of all other peers.
pub(super) struct LauncherListener {
    listener: UnixListener,
    pub(super) nonce: String,
    /// Peers that have not sent the nonce yet; each ends with its connection if the nonce was right.
    peers: FuturesUnordered<BoxFuture<'static, Option<UnixStream>>>,
    folder: PrivateTempFolder,
}

impl LauncherListener {
    /// Binds a socket in a private folder with a random name.
    pub(super) async fn bind() -> io::Result<LauncherListener> {
        let bound = spawn_blocking(|| {
            let folder = PrivateTempFolder::create()?;
            let listener = std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET))?;
            listener.set_nonblocking(true)?;
            io::Result::Ok((folder, listener))
        });
        let (folder, listener) = bound.await.map_err(io::Error::other)??;
        Ok(LauncherListener {
            listener: UnixListener::from_std(listener)?,
            nonce: uuid::Uuid::new_v4().simple().to_string(),
            peers: FuturesUnordered::new(),
            folder,
        })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Waits for the launcher, whoever connects before it. Cancel safe.
    pub(super) async fn accept(&mut self) -> UnixStream {
        loop {
            tokio::select! {
                biased;
                Some(peer) = self.peers.next() => if let Some(launcher) = peer {
                    return launcher;
                },
                accepted = self.listener.accept(), if self.peers.len() < MAX_PEERS => match accepted {
                    Ok((peer, _)) if is_same_user(&peer) => {
                        self.peers.push(Box::pin(identify(peer, self.nonce.clone())));
                    }
                    Ok(_) => {}
                    Err(_) => sleep(RETRY_INTERVAL).await,
                },
            }
        }
    }
}

/// Returns the connection if the peer sends the nonce.
async fn identify(mut peer: UnixStream, nonce: String) -> Option<UnixStream> {
    let mut received = [0; NONCE_LENGTH];
    timeout(NONCE_TIMEOUT, peer.read_exact(&mut received)).await.ok()?.ok()?;
    is_equal(&received, nonce.as_bytes()).then_some(peer)
}

/// Compares in constant time.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let differences = left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differences) == 0
}

/// True if the other side belongs to the same user. Nobody else can enter the folder either.
fn is_same_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

/// The longest valid frame. Whoever announces a longer one is not our launcher.
const MAX_FRAME_BYTES: usize = 1024 * 1024;
const READ_SIZE: usize = 64 * 1024;

/// A message between the agent and the launcher: JSON, except for what the command reads and prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum LinkFrame {
    /// To the launcher: what to run.
    Run(Box<LaunchRequest>),
    /// To the launcher: pass this signal on.
    Signal(Signal),
    /// To the launcher: end the command, which has this long to clean up.
    Stop(Duration),
    /// To the launcher: write this to the command's input.
    #[serde(skip)]
    Input(Vec<u8>),
    /// From the launcher: the command has printed this.
    #[serde(skip)]
    Output(Vec<u8>),
    /// From the launcher: what the sandbox has refused to the command.
    Refused(Vec<Refusal>),
    /// From the launcher: the command has ended, and there is no more output. The flag is true if it had left processes
    /// running.
    Exit(CommandExit, bool),
}

/// The command for the launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LaunchRequest {
    /// The program and its arguments.
    pub(super) program: Vec<String>,
    /// The folder to run it in, whatever folder the editor has opened the terminal in.
    pub(super) workdir: String,
    /// True if the agent may write to its input; otherwise its stdin is empty.
    pub(super) accepts_input: bool,
    /// Its confinement; `None` to run it unconfined. It must be there: without it, it would not be clear that none is
    /// wanted.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) sandbox: Option<SandboxProfile>,
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

    /// Waits for the next frame; `None` when everything that was to be sent has been sent. Cancel safe.
    ///
    /// # Errors
    /// If the connection fails, or the other side has closed it.
    pub(super) async fn next(&mut self) -> io::Result<Option<LinkFrame>> {
        loop {
            let frame = decode(&mut self.incoming)?;
            if frame.is_some() {
                return Ok(frame);
            }
            let interest = if self.outgoing.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.stream.ready(interest).await?;
            if ready.is_readable() && !self.read()? {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if ready.is_writable() && !self.outgoing.is_empty() {
                self.write()?;
                if self.outgoing.is_empty() {
                    return Ok(None);
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
    let message;
    let (kind, content): (u8, &[u8]) = match frame {
        LinkFrame::Input(bytes) => (b'i', bytes),
        LinkFrame::Output(bytes) => (b'o', bytes),
        other => {
            message = json!(other).to_string();
            (b'm', message.as_bytes())
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
    let frame = match kind {
        b'i' => LinkFrame::Input(content.to_vec()),
        b'o' => LinkFrame::Output(content.to_vec()),
        b'm' => serde_json::from_slice(content)?,
        _ => return Err(invalid_frame()),
    };
    bytes.drain(..5 + length);
    Ok(Some(frame))
}

fn invalid_frame() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "invalid frame from the launcher")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use turnwright_sandbox::{Network, RefusedCall};

    async fn peer(listener: &LauncherListener, sends: &str) -> UnixStream {
        let mut stream = UnixStream::connect(listener.socket()).await.unwrap();
        stream.write_all(sends.as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn only_the_peer_with_the_nonce_is_accepted_whoever_comes_first() {
        // On a busy machine it may take longer once, but not each time.
        for _ in 0..20 {
            if accepts_before_the_silent_peer_gives_up().await {
                return;
            }
        }
        panic!("the silent peer must not be waited for");
    }

    async fn accepts_before_the_silent_peer_gives_up() -> bool {
        let mut listener = LauncherListener::bind().await.unwrap();
        let nonce = listener.nonce.clone();
        drop(peer(&listener, "").await);
        drop(peer(&listener, &nonce[1..]).await);
        let silent = peer(&listener, "").await;
        let mut wrong = peer(&listener, &"0".repeat(NONCE_LENGTH)).await;
        let launcher = peer(&listener, &format!("{nonce}!")).await;
        let Ok(mut accepted) = timeout(NONCE_TIMEOUT / 2, listener.accept()).await else {
            return false;
        };
        assert_eq!(accepted.read_u8().await.unwrap(), b'!');
        drop(listener);
        // Unread bytes make this an error instead of an end.
        assert!(!matches!(wrong.read(&mut [0]).await, Ok(1..)));
        drop((silent, launcher));
        true
    }

    /// Parts of the nonce, others of its length, frames, and more than a frame may have. The launcher comes last.
    #[tokio::test]
    async fn no_forged_client_is_taken_for_the_launcher() {
        let mut listener = LauncherListener::bind().await.unwrap();
        let nonce = listener.nonce.clone();
        let parts = (0..NONCE_LENGTH).map(|length| nonce[..length].to_owned());
        let changed = (0..NONCE_LENGTH).map(|at| {
            let mut all = nonce.clone().into_bytes();
            all[at] ^= 1;
            String::from_utf8(all).unwrap()
        });
        let others = [
            nonce.to_uppercase() + "A",
            format!("\n{nonce}"),
            format!(" {nonce}"),
            format!("\0{nonce}"),
            nonce.chars().rev().collect(),
            "m\u{2}\0\0\0{}".to_owned(),
            format!("o\u{20}\0\0\0{nonce}"),
            "o\u{7f}\u{7f}\u{7f}\u{7f}".repeat(10_000),
        ];
        let mut forged = Vec::new();
        for sent in parts.chain(changed).chain(others) {
            let mut stream = UnixStream::connect(listener.socket()).await.unwrap();
            // More than the buffer holds is not taken.
            stream.try_write(sent.as_bytes()).ok();
            forged.push(sent.len());
            let accepted = timeout(Duration::from_millis(5), listener.accept()).await;
            assert!(accepted.is_err(), "{sent:?}");
            stream.shutdown().await.ok();
        }
        assert_eq!(forged.len(), 2 * NONCE_LENGTH + 8);
        let socket = listener.socket();
        let launcher = async {
            let mut stream = UnixStream::connect(socket).await.unwrap();
            for byte in format!("{nonce}!").bytes() {
                stream.write_u8(byte).await.unwrap();
            }
            stream
        };
        let (mut accepted, _stream) = tokio::join!(listener.accept(), launcher);
        assert_eq!(accepted.read_u8().await.unwrap(), b'!');
    }

    #[tokio::test]
    async fn many_silent_peers_only_delay_the_launcher() {
        let mut listener = LauncherListener::bind().await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..MAX_PEERS {
            silent.push(peer(&listener, "").await);
        }
        let nonce = listener.nonce.clone();
        let _launcher = peer(&listener, &nonce).await;
        let accepted = timeout(NONCE_TIMEOUT * 8, listener.accept()).await;
        assert!(accepted.is_ok(), "the launcher was not accepted");
        assert_eq!(silent.len(), MAX_PEERS);
    }

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
            LinkFrame::Refused(vec![
                Refusal::Connection("127.0.0.1:80".parse().unwrap()),
                Refusal::Call(RefusedCall::Mount),
            ]),
            LinkFrame::Refused(Vec::new()),
            LinkFrame::Exit(CommandExit::Code(-3), false),
            LinkFrame::Exit(CommandExit::Signal("SIGKILL".to_owned()), true),
            LinkFrame::Exit(CommandExit::TerminalClosed, true),
            LinkFrame::Exit(CommandExit::Unknown, false),
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
        for bytes in [&b"x\0\0\0\0"[..], b"o\xff\xff\xff\xff", b"m\0\0\0\0", b"m\x01\0\0\0?"] {
            assert!(decode(&mut bytes.to_vec()).is_err(), "{bytes:?}");
        }
        // A request without a field could mean anything, and above all no sandbox.
        for message in [
            r#"{"Run":{"program":["a"],"workdir":"/","accepts_input":1,"sandbox":null}}"#,
            r#"{"Run":{"program":["a"],"workdir":"/","accepts_input":false}}"#,
            r#"{"Run":{"program":["a"],"accepts_input":false,"sandbox":null}}"#,
            r#"{"Exit":["c-a",false]}"#,
            r#"{"Signal":"z"}"#,
            r#"{"Output":[0]}"#,
        ] {
            let length = u32::try_from(message.len()).unwrap().to_le_bytes();
            let mut frame = [b"m", &length[..], message.as_bytes()].concat();
            assert!(decode(&mut frame).is_err(), "{message}");
        }
        assert_eq!(decode(&mut b"o\x05\0\0\0abc".to_vec()).unwrap(), None);
    }
}
