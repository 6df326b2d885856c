//! Where the agent waits for its launcher. Any process of the user may find the socket and connect
//! first, also a command in the sandbox. So each launcher gets a nonce that it has to send before it is
//! believed and told what to run. It is in an environment variable: everybody can read the arguments of a
//! process, but Landlock keeps a sandboxed program from the environment of processes outside of its
//! sandbox, with or without a PID namespace. What runs without a sandbox as the same user could read it,
//! and could control the editor and the launcher as well.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::temp_folder::PrivateTempFolder;

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
    nonce: String,
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

    pub(super) fn nonce(&self) -> &str {
        &self.nonce
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

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
        let nonce = listener.nonce().to_owned();
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
        let nonce = listener.nonce().to_owned();
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
            "x\u{4}\0\0\0c-0".to_owned(),
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
        let nonce = listener.nonce().to_owned();
        let _launcher = peer(&listener, &nonce).await;
        let accepted = timeout(NONCE_TIMEOUT * 8, listener.accept()).await;
        assert!(accepted.is_ok(), "the launcher was not accepted");
        assert_eq!(silent.len(), MAX_PEERS);
    }
}
