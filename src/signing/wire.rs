//! What the command and the agent say to each other, and where.

use serde::{Deserialize, Serialize};

/// The socket in the folder.
pub(super) const SOCKET: &str = "socket";
/// How the names of the links begin.
pub(super) const LINK_PREFIX: &str = "sign-";
/// The maximum size of what is signed, in bytes.
pub(super) const MAX_PAYLOAD: usize = 16 * 1024 * 1024;
/// The maximum length of a request without what is to be signed, and of an answer, in bytes.
pub(super) const MAX_LINE: u64 = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SignatureFormat {
    OpenPgp,
    X509,
    Ssh,
}

impl SignatureFormat {
    pub(super) const ALL: [SignatureFormat; 3] =
        [SignatureFormat::OpenPgp, SignatureFormat::X509, SignatureFormat::Ssh];

    /// The name in git's settings.
    pub(super) fn name(self) -> &'static str {
        match self {
            SignatureFormat::OpenPgp => "openpgp",
            SignatureFormat::X509 => "x509",
            SignatureFormat::Ssh => "ssh",
        }
    }

    /// The program that git runs without a setting.
    pub(super) fn default_program(self) -> &'static str {
        match self {
            SignatureFormat::OpenPgp => "gpg",
            SignatureFormat::X509 => "gpgsm",
            SignatureFormat::Ssh => "ssh-keygen",
        }
    }
}

/// What the client sends, as a line, before what is to be signed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SigningRequest {
    pub(super) format: SignatureFormat,
    /// The key as git names it: an identifier, or the path of a file.
    pub(super) key: String,
    /// The content of a public key that is in git's settings.
    pub(super) literal_key: Option<String>,
    pub(super) payload_bytes: usize,
}

/// What the agent answers, as a line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SigningAnswer {
    /// `None` if nothing was signed.
    pub(super) signature: Option<String>,
    /// What the signing program has said, which git reads.
    pub(super) messages: String,
}
