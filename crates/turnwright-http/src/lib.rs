//! What the HTTP clients of turnwright have in common: TLS, the proxies of the environment, and the user
//! agent.

use std::sync::Arc;

use reqwest::{Client, ClientBuilder};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};

/// Starts a client that uses the proxies of the environment.
pub fn client_builder() -> ClientBuilder {
    install_tls_provider();
    Client::builder().user_agent(concat!("turnwright/", env!("CARGO_PKG_VERSION")))
}

/// Builds a client. One that is not encrypted cannot use TLS, and saves the time to load the system's
/// certificates. Otherwise it blocks on reading them.
///
/// # Errors
/// Those of the TLS library.
pub fn build(builder: ClientBuilder, is_encrypted: bool) -> reqwest::Result<Client> {
    if is_encrypted {
        return builder.build();
    }
    let plain = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|it| it.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    match plain {
        Ok(tls) => builder.tls_backend_preconfigured(tls).build(),
        Err(_) => builder.build(),
    }
}

/// Installs the TLS provider for all clients of this process.
pub fn install_tls_provider() {
    // Fails if one is installed already, which is just as good.
    drop(CryptoProvider::install_default(ring::default_provider()));
}
