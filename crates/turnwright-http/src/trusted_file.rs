//! The certificates in the file that `SSL_CERT_FILE` names. On Linux the clients read the variable
//! themselves; the certificate stores of Windows and macOS ignore it.

use std::path::PathBuf;
use std::sync::OnceLock;

use reqwest::Certificate;

static TRUSTED_FILE: OnceLock<PathBuf> = OnceLock::new();

/// Makes later clients trust the certificates in this file besides the system's.
pub fn trust_certificates_in(file: PathBuf) {
    // Fails if a file was named before. A process has one environment.
    TRUSTED_FILE.set(file).ok();
}

/// The certificates in that file; none if it cannot be read.
pub(super) fn trusted_certificates() -> reqwest::Result<Vec<Certificate>> {
    let content = TRUSTED_FILE.get().and_then(|file| std::fs::read(file).ok());
    content.map_or(Ok(Vec::new()), |content| Certificate::from_pem_bundle(&content))
}
