//! The addresses of this machine's proxies, which commands with network access need.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ConfinementBuilder;
use turnwright_sandbox::Network;
use turnwright_workspace::exec::Environment;
use url::{Host, Url};

impl ConfinementBuilder<'_> {
    /// Commands never reach the machine's servers, whatever the settings say about the network.
    pub(super) fn network(&self) -> Network {
        match self.site.settings.network {
            Network::On => Network::Internet,
            _ if self.network => Network::Internet,
            other => other,
        }
    }
}

/// The variables that name proxies, in capitals or not.
const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "ftp_proxy"];

/// The addresses of the proxies that programs are told to use, if the proxies may run on this machine.
pub(super) fn proxy_addresses(environment: &Environment) -> Vec<SocketAddr> {
    let names = PROXY_VARIABLES.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]);
    let values = names.filter_map(|name| Some(environment.get(&name)?.to_str()?.to_owned()));
    values.flat_map(|value| addresses_of(&value)).collect()
}

/// The addresses of a proxy that is not named by a host of the network.
fn addresses_of(value: &str) -> Vec<SocketAddr> {
    let value = value.trim();
    let whole = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let Ok(url) = Url::parse(&whole) else { return Vec::new() };
    let default = if url.scheme().starts_with("socks") { 1080 } else { 80 };
    let port = url.port_or_known_default().unwrap_or(default);
    // The host of an unknown scheme is not parsed.
    match url.host().and_then(|host| Host::parse(&host.to_string()).ok()) {
        Some(Host::Ipv4(address)) => vec![(address, port).into()],
        Some(Host::Ipv6(address)) => vec![(address, port).into()],
        Some(Host::Domain(name)) if name == "localhost" => {
            vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_of_the_machine_is_found_however_it_is_written() {
        for (value, expected) in [
            ("http://127.0.0.1:3128", vec!["127.0.0.1:3128"]),
            ("http://localhost:3128/", vec!["127.0.0.1:3128", "[::1]:3128"]),
            ("localhost:8118", vec!["127.0.0.1:8118", "[::1]:8118"]),
            ("socks5h://me:word@127.0.0.1", vec!["127.0.0.1:1080"]),
            ("socks5://localhost:9050", vec!["127.0.0.1:9050", "[::1]:9050"]),
            ("http://[::1]:3128", vec!["[::1]:3128"]),
            ("http://10.0.0.1", vec!["10.0.0.1:80"]),
            ("http://proxy.example:3128", vec![]),
            ("", vec![]),
        ] {
            let found: Vec<_> = addresses_of(value).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{value}");
        }
    }
}
