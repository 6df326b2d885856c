//! Finds out and describes why a server could not be reached.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustls::CertificateError;

/// For small container images, which come without the certificates of authorities: no HTTPS client can be built there.
const NO_AUTHORITIES: &str = "this computer has no list of trusted certificates. Install the package ca-certificates, \
     or have the environment variable SSL_CERT_FILE name a file that has the certificates to trust";

/// Why a proxy is not tried again: after a few attempts with a wrong password, a company may lock the user's account.
pub const PROXY_LOGIN: &str = "the proxy wants a name and a password, or refuses those that it got";

/// Why a connection failed. The text continues a sentence, as in `it cannot be reached: …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionFault {
    /// No program listens at this address.
    #[error("nothing answers there")]
    Refused,
    /// The name could not be looked up.
    #[error("its name was not found")]
    UnknownHost,
    /// No network leads to the host.
    #[error("no network leads to it")]
    Unreachable,
    #[error("it did not answer in time")]
    TimedOut,
    /// The other side closed the connection instead of answering.
    #[error("it closed the connection")]
    Closed,
    /// The encrypted connection could not be made, for the TLS library's reason.
    #[error("no secure connection ({0})")]
    Tls(String),
    /// The server's certificate is not accepted, for this reason.
    #[error("{}{}", ConnectionFault::CERTIFICATE_WORDS, .0)]
    Certificate(String),
    /// Any other reason, in the words of the operating system or the HTTP library.
    #[error("{0}")]
    Other(String),
}

impl ConnectionFault {
    /// The words before the reason of [`ConnectionFault::Certificate`].
    pub const CERTIFICATE_WORDS: &str = "its certificate is not accepted: ";

    /// True if another attempt would fail in the same way.
    pub fn is_lasting(&self) -> bool {
        match self {
            ConnectionFault::Certificate(_) => true,
            ConnectionFault::Other(why) => why == PROXY_LOGIN,
            _ => false,
        }
    }

    /// Finds the cause in an error's chain of sources.
    pub fn of(error: &reqwest::Error) -> ConnectionFault {
        let mut reason = String::new();
        let mut next = Some(error as &(dyn Error + 'static));
        while let Some(error) = next {
            reason = error.to_string();
            if reason.contains("No CA certificates") {
                return ConnectionFault::Certificate(NO_AUTHORITIES.to_owned());
            }
            if reason.contains("proxy authorization required") {
                return ConnectionFault::Other(PROXY_LOGIN.to_owned());
            }
            if reason.starts_with("dns error") || reason.starts_with("failed to lookup address") {
                return ConnectionFault::UnknownHost;
            }
            let found = error.downcast_ref::<io::Error>().and_then(from_io_error);
            if let Some(fault) = found {
                return fault;
            }
            next = error.source();
        }
        if error.is_timeout() {
            return ConnectionFault::TimedOut;
        }
        if reason.starts_with("connection closed") {
            return ConnectionFault::Closed;
        }
        let words = reason.split(" (os error ").next().unwrap_or_default();
        ConnectionFault::Other(words.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

fn from_io_error(error: &io::Error) -> Option<ConnectionFault> {
    // `source` skips the error that an I/O error wraps, which may be an I/O error again.
    if let Some(inner) = error.get_ref() {
        if let Some(error) = inner.downcast_ref::<rustls::Error>() {
            return Some(match error {
                rustls::Error::InvalidCertificate(error) => {
                    ConnectionFault::Certificate(certificate_fault(error))
                }
                error => ConnectionFault::Tls(error.to_string()),
            });
        }
        if let Some(fault) = inner.downcast_ref::<io::Error>().and_then(from_io_error) {
            return Some(fault);
        }
    }
    match error.kind() {
        ErrorKind::ConnectionRefused => Some(ConnectionFault::Refused),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            Some(ConnectionFault::Unreachable)
        }
        ErrorKind::TimedOut => Some(ConnectionFault::TimedOut),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
            Some(ConnectionFault::Closed)
        }
        _ => None,
    }
}

fn certificate_fault(error: &CertificateError) -> String {
    // The signature is also bad if the authority only has the name of a trusted one, for example of its predecessor.
    use CertificateError::{BadSignature, Other, UnknownIssuer};
    if !matches!(error, UnknownIssuer | BadSignature | Other(_)) {
        return error.to_string();
    }
    let reason = error.to_string();
    // Trusting such a certificate does not help, except on macOS and Windows, which then accept it.
    if ["CaUsedAsEndEntity", "UnsupportedCertVersion"].iter().any(|word| reason.contains(word)) {
        return format!(
            "it is an authority's, or of an old version ({reason}). If you made it, make it anew with the option \
             `-addext basicConstraints=critical,CA:FALSE` of `openssl req -x509`"
        );
    }
    // It may be a company's own authority, or a proxy that inspects connections.
    format!(
        "nobody whom this computer trusts has signed it ({reason}). If you trust who has, name a file with \
         the certificates to trust in the environment variable SSL_CERT_FILE"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[test]
    fn a_certificate_that_no_server_may_have_is_not_to_be_trusted_but_made_anew() {
        for (why, expected) in [
            ("CaUsedAsEndEntity", "CA:FALSE"),
            ("UnsupportedCertVersion", "CA:FALSE"),
            ("ExtensionValueInvalid", "SSL_CERT_FILE"),
        ] {
            let inner = Arc::new(io::Error::other(why));
            let fault = certificate_fault(&CertificateError::Other(OtherError(inner)));
            assert!(fault.contains(expected) && fault.contains(why), "{fault}");
        }
        for error in [CertificateError::UnknownIssuer, CertificateError::BadSignature] {
            assert!(certificate_fault(&error).contains("SSL_CERT_FILE"), "{error}");
        }
    }
}
