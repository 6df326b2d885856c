//! The proxy through which the commands of a coding agent reach other machines, host by host.
//!
//! * A [`CommandProxy`] belongs to one command. The proxy listens where only the session's commands can connect and
//!   requires a token that only this command has. When the command ends, so do the proxy and all its connections.
//! * [`CommandHosts`] decides which hosts the command may reach: those of a [`HostList`], those that rules allow, and
//!   those that the user allows when asked while the connection waits.
//! * The proxy looks a host up once and connects only to addresses that are allowed for it. The traffic is not
//!   inspected, so a host that shares its addresses with other hosts can give access to those.

mod command_hosts;
mod connection;
mod dial;
mod hosts;
mod variables;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use turnwright_types::secret::Secret;
use url::Url;

pub use command_hosts::{CommandHosts, HostQuestion, HostReport, HostVerdict, RefusedHosts};
pub use hosts::{HostAccess, HostList, REGISTRIES, Target};

use dial::{Dial, MAX_LOOKUPS};

/// The most connections that are open at the same time. Others wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// The pause after a connection could not be accepted, for example because too many files are open.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The user name with which programs log in to the proxy.
const NAME: &str = "tw";

/// The proxy of one command.
#[derive(Debug)]
pub struct CommandProxy {
    listener: TcpListener,
    /// The address at which the proxy listens.
    address: SocketAddr,
    token: Secret,
    /// False if programs cannot be given a token. Then only the port shows which command a connection belongs to.
    needs_token: bool,
    dial: Dial,
    /// Finds the user's proxy for plain requests to a host.
    plain_proxy: fn(&Target) -> Option<Url>,
    /// Limits the look-ups of names.
    lookups: Arc<Semaphore>,
}

impl CommandProxy {
    /// Makes a proxy that accepts connections from `listener`. If no token is needed, only the command itself should be
    /// able to connect.
    pub fn new(listener: TcpListener, needs_token: bool) -> io::Result<CommandProxy> {
        let address = listener.local_addr()?;
        let token = Secret::from(uuid::Uuid::new_v4().simple().to_string());
        let dial: Dial = |target, access, lookups| Box::pin(dial::dial(target, access, lookups));
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        let plain_proxy = dial::plain_proxy;
        Ok(CommandProxy { listener, address, token, needs_token, dial, plain_proxy, lookups })
    }

    /// Returns the value of the header with which programs log in.
    fn login(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{NAME}:{}", self.token.expose())))
    }

    /// Serves the command until the future is dropped, which must happen when the command ends.
    pub async fn serve(self, hosts: Arc<CommandHosts>) {
        let proxy = Arc::new(self);
        serve_each(&proxy.listener, MAX_CONNECTIONS, |client| {
            let proxy = Arc::clone(&proxy);
            let hosts = Arc::clone(&hosts);
            async move {
                // If the connection fails, the program notices that itself.
                connection::serve(client, &proxy, &hosts).await.ok();
            }
        })
        .await;
    }
}

/// Serves connections, at most `most` at a time, until the future is dropped, which ends all of them.
pub async fn serve_each<F>(listener: &TcpListener, most: usize, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = serve(stream);
                connections.spawn(async move {
                    serving.await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
        while connections.try_join_next().is_some() {}
    }
}
