//! The proxy through which the commands of a coding agent reach other machines, host by host.
//!
//! * A [`CommandProxy`] belongs to one command. It listens where only the session's commands connect, wants a token
//!   that only this command has, and ends with it, and with it every connection.
//! * [`CommandHosts`] says which hosts the command reaches: those of a [`HostList`], those that rules allow, and those
//!   that the user is asked about while the connection waits.
//! * A host is looked up here, once, and only public addresses are connected to. What is passed on is not looked into,
//!   so a host that shares its addresses with others can lead to those.

mod command_hosts;
mod connection;
mod dial;
mod hosts;
mod variables;

use std::fmt::{self, Debug};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use command_hosts::{CommandHosts, HostQuestion, HostReport, HostVerdict, RefusedHosts};
pub use hosts::{HostAccess, HostList, REGISTRIES, Target};

use dial::Dialer;

/// At most this many connections are open at the same time. Others wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// The pause after a connection could not be accepted, for example because too many files are open.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The name with which programs log in.
const NAME: &str = "tw";

/// The proxy of one command.
pub struct CommandProxy {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    /// False for programs that cannot be given a token. The port tells whose connections they are.
    needs_token: bool,
    dialer: Dialer,
}

impl Debug for CommandProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CommandProxy")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl CommandProxy {
    /// A proxy that accepts connections here. Only the command itself should be able to connect without a token.
    pub fn new(listener: TcpListener, needs_token: bool) -> io::Result<CommandProxy> {
        let address = listener.local_addr()?;
        let token = uuid::Uuid::new_v4().simple().to_string();
        Ok(CommandProxy { listener, address, token, needs_token, dialer: Dialer::default() })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value of the header with which programs log in.
    fn login(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{NAME}:{}", self.token)))
    }

    /// Serves the command, forever. Dropped when the command ends.
    pub async fn serve(self, hosts: Arc<CommandHosts>) {
        let proxy = Arc::new(self);
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match proxy.listener.accept().await {
                Ok((client, _)) => {
                    let proxy = Arc::clone(&proxy);
                    let hosts = Arc::clone(&hosts);
                    connections.spawn(async move {
                        // The program notices by itself if its connection fails.
                        connection::serve(client, &proxy, &hosts).await.ok();
                        drop(permit);
                    });
                }
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
            while connections.try_join_next().is_some() {}
        }
    }
}

/// The token in the value of a header.
#[cfg(test)]
fn token_of(login: &str) -> String {
    let decoded = BASE64_STANDARD.decode(login.trim_start_matches("Basic ")).unwrap();
    String::from_utf8(decoded).unwrap().trim_start_matches("tw:").to_owned()
}
