//! The parts that HTTP clients share: the TLS provider, the proxies of the environment, the user agent, why a
//! connection failed, and the decoder of server-sent events.

mod connection_fault;
mod proxies;
pub mod sse;
#[cfg(not(target_os = "linux"))]
mod trusted_file;

pub use connection_fault::{ConnectionFault, PROXY_LOGIN};
pub use proxies::{Proxies, plain_proxy, proxy_of, proxy_url, use_proxies};
#[cfg(not(target_os = "linux"))]
pub use trusted_file::trust_certificates_in;

use std::net::IpAddr;
use std::sync::Arc;

use reqwest::{Client, ClientBuilder, Url};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};

/// Returns a builder for a client that uses the proxies of the environment.
pub fn client_builder() -> ClientBuilder {
    install_tls_provider();
    let builder = Client::builder().user_agent(concat!("turnwright/", env!("CARGO_PKG_VERSION")));
    proxies::with_proxies(builder)
}

/// Builds a client. Loading the certificates of the system blocks, and plain HTTP needs none.
pub fn build_client(builder: ClientBuilder, is_https: bool) -> reqwest::Result<Client> {
    if is_https {
        #[cfg(not(target_os = "linux"))]
        let builder = builder.tls_certs_merge(trusted_file::trusted_certificates()?);
        return builder.build();
    }
    let no_roots = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|config| config.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    match no_roots {
        Ok(config) => builder.tls_backend_preconfigured(config).build(),
        Err(_) => builder.build(),
    }
}

/// Installs the TLS provider for all clients of this process.
pub fn install_tls_provider() {
    // Fails if one is installed already, which is just as good.
    CryptoProvider::install_default(ring::default_provider()).ok();
}

/// Returns true if a URL leads to the machine itself: in a network namespace, to that namespace.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.');
    let address = host.parse().ok().map(|ip: IpAddr| ip.to_canonical());
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

/// Returns true if the URL of a web server names this machine, so that nobody else can listen in.
pub fn names_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_localhost_and_loopback_addresses_name_this_machine() {
        for (url, expected) in [
            ("ws://LOCALHOST:4077/acp", true),
            ("http://127.1/", true),
            ("https://127.9.9.9/", true),
            ("http://[::1]:8000/", true),
            ("http://localhost.example/", false),
            ("http://192.168.0.1/", false),
            ("ws://[::2]/", false),
            ("http://0.0.0.0/", false),
            ("data:,x", false),
        ] {
            assert_eq!(names_this_machine(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
