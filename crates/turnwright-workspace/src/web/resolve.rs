//! The look-up of names for connections: off the runtime's thread, and only addresses that may
//! be reached are handed on. It is asked at each connect, so a name that means something else a
//! moment later is caught.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::guard;

/// How a name is looked up.
pub(super) type Lookup = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// The system's look-up.
pub(super) fn system() -> Lookup {
    Arc::new(|name| Ok((name, 0).to_socket_addrs()?.map(|it| it.ip()).collect()))
}

/// Why a name leads nowhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookupError {
    /// All its addresses are of this sort.
    #[error("it is {what} address")]
    Blocked {
        /// As in "a private".
        what: &'static str,
    },
    /// There is no such name, or nobody to ask.
    #[error("{0}")]
    Failed(io::Error),
}

/// A look-up that hands on public addresses only.
pub(super) struct Guarded {
    pub(super) lookup: Lookup,
    /// The names of proxies that the environment sets: they may be anywhere.
    pub(super) proxies: Vec<String>,
}

impl fmt::Debug for Guarded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Guarded").field("proxies", &self.proxies).finish_non_exhaustive()
    }
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = Arc::clone(&self.lookup);
        let is_proxy = self.proxies.iter().any(|it| it.eq_ignore_ascii_case(name.as_str()));
        Box::pin(async move {
            let looking = tokio::task::spawn_blocking(move || lookup(name.as_str()));
            let found = looking.await.map_err(io::Error::other)?.map_err(LookupError::Failed)?;
            let checked = if is_proxy { found } else { public(found)? };
            let addresses: Addrs = Box::new(checked.into_iter().map(|it| SocketAddr::new(it, 0)));
            Ok(addresses)
        })
    }
}

/// Those that may be reached. One that may not is never tried, not even if the others fail.
fn public(found: Vec<IpAddr>) -> Result<Vec<IpAddr>, LookupError> {
    let mut blocked = None;
    let mut checked = Vec::new();
    for address in found {
        match guard::forbidden(address) {
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

    async fn ask(guarded: &Guarded) -> Result<Vec<String>, String> {
        match guarded.resolve("name.example".parse().unwrap()).await {
            Ok(addresses) => Ok(addresses.map(|it| it.ip().to_string()).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn guarded(answers: &'static [&'static [&'static str]], proxies: &[&str]) -> Guarded {
        let asked = AtomicUsize::new(0);
        Guarded {
            lookup: Arc::new(move |_| {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                Ok(answers[number].iter().map(|it| it.parse().unwrap()).collect())
            }),
            proxies: proxies.iter().map(|it| (*it).to_owned()).collect(),
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
