//! The certificate and the key of a listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring as provider;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The files of a certificate and its key, in the format PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    #[error("{}: {}", file.display(), pem_error_text(.error))]
    Unreadable { file: PathBuf, error: pem::Error },
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

fn pem_error_text(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "there is no certificate or key in the format PEM".to_owned(),
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn unreadable(file: &Path, error: pem::Error) -> TlsFilesError {
    TlsFilesError::Unreadable { file: file.to_owned(), error }
}

/// Reads the files. Blocks.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsFilesError> {
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .and_then(|all| if all.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(all) })
        .map_err(|error| unreadable(&files.certificate, error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
