//! Resolves host names for connections, on blocking threads, and returns only addresses that may be
//! reached. Each connection resolves the name again, so DNS rebinding is caught.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::task::spawn_blocking;

use super::address_guard;

/// A function that resolves a name.
pub(super) type LookupFn = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// The system's resolver.
pub(super) fn system() -> LookupFn {
    Arc::new(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
}

/// Why a name was not resolved.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookupError {
    /// All its addresses are of a kind that is not reached.
    #[error("it is {what} address")]
    Blocked {
        /// As in "a private".
        what: &'static str,
    },
    /// The name does not exist, or the lookup failed.
    #[error("{0}")]
    Failed(io::Error),
}

/// A resolver that returns only public addresses.
pub(super) struct PublicResolver {
    pub(super) lookup: LookupFn,
    /// The names of proxies from the environment, which may have any address.
    pub(super) proxies: Vec<String>,
}

impl fmt::Debug for PublicResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PublicResolver")
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = Arc::clone(&self.lookup);
        let is_proxy = self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name.as_str()));
        Box::pin(async move {
            let looking = spawn_blocking(move || lookup(name.as_str()));
            let found = looking.await.map_err(io::Error::other)?.map_err(LookupError::Failed)?;
            let checked = if is_proxy { found } else { public_addresses(found)? };
            let addresses: Addrs =
                Box::new(checked.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// Keeps the addresses that may be reached. Others are never tried, not even if these fail.
fn public_addresses(found: Vec<IpAddr>) -> Result<Vec<IpAddr>, LookupError> {
    let mut blocked = None;
    let mut checked = Vec::new();
    for address in found {
        match address_guard::reserved_kind(address) {
            Some(what) => blocked = Some(what),
            None => checked.push(address),
        }
    }
    match blocked {
        Some(what) if checked.is_empty() => Err(LookupError::Blocked { what }),
        _ => Ok(checked),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    async fn ask(guarded: &PublicResolver) -> Result<Vec<String>, String> {
        match guarded.resolve("name.example".parse().unwrap()).await {
            Ok(addresses) => Ok(addresses.map(|address| address.ip().to_string()).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn guarded(answers: &'static [&'static [&'static str]], proxies: &[&str]) -> PublicResolver {
        let asked = AtomicUsize::new(0);
        PublicResolver {
            lookup: Arc::new(move |_| {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                Ok(answers[number].iter().map(|address| address.parse().unwrap()).collect())
            }),
            proxies: proxies.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[tokio::test]
    async fn a_name_that_turns_private_is_caught_at_the_next_connect() {
        let rebinding = guarded(&[&["93.184.216.34"], &["127.0.0.1"], &["::1", "10.0.0.1"]], &[]);
        assert_eq!(ask(&rebinding).await, Ok(vec!["93.184.216.34".to_owned()]));
        assert_eq!(ask(&rebinding).await, Err("it is a loopback address".to_owned()));
        assert_eq!(ask(&rebinding).await, Err("it is a private address".to_owned()));
    }

    #[tokio::test]
    async fn a_private_address_among_public_ones_is_left_out() {
        let mixed = guarded(&[&["169.254.169.254", "93.184.216.34", "::ffff:10.0.0.1"]], &[]);
        assert_eq!(ask(&mixed).await, Ok(vec!["93.184.216.34".to_owned()]));
    }

    #[tokio::test]
    async fn a_proxy_may_be_anywhere() {
        let proxied = guarded(&[&["10.0.0.1"]], &["Name.Example"]);
        assert_eq!(ask(&proxied).await, Ok(vec!["10.0.0.1".to_owned()]));
    }
}
