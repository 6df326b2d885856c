//! The protocol between a command and the agent, and its socket.

use serde::{Deserialize, Serialize};

/// The socket in the folder.
pub const SOCKET: &str = "socket";
/// The prefix of the links' names.
pub const LINK_PREFIX: &str = "sign-";
/// The variable with the token that a request needs: others may reach the socket, but do not know it.
pub const TOKEN_VARIABLE: &str = "TURNWRIGHT_SIGNING_TOKEN";
/// The maximum size of a payload, in bytes.
pub const MAX_PAYLOAD: usize = 16 * 1024 * 1024;
/// The maximum length of a request without its payload, and of an answer, in bytes.
pub const MAX_LINE: u64 = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignatureFormat {
    OpenPgp,
    X509,
    Ssh,
}

impl SignatureFormat {
    pub const ALL: [SignatureFormat; 3] =
        [SignatureFormat::OpenPgp, SignatureFormat::X509, SignatureFormat::Ssh];

    /// The name in git's settings.
    pub fn name(self) -> &'static str {
        match self {
            SignatureFormat::OpenPgp => "openpgp",
            SignatureFormat::X509 => "x509",
            SignatureFormat::Ssh => "ssh",
        }
    }

    /// A pattern of the settings that name the program. `gpg.program` is another name of the one for OpenPGP.
    pub fn settings_pattern(self) -> &'static str {
        match self {
            SignatureFormat::OpenPgp => r"^gpg\.(openpgp\.)?program$",
            SignatureFormat::X509 => r"^gpg\.x509\.program$",
            SignatureFormat::Ssh => r"^gpg\.ssh\.program$",
        }
    }

    /// The program that git runs without a setting.
    pub fn default_program(self) -> &'static str {
        match self {
            SignatureFormat::OpenPgp => "gpg",
            SignatureFormat::X509 => "gpgsm",
            SignatureFormat::Ssh => "ssh-keygen",
        }
    }
}

/// A client's request: one line, followed by the payload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SigningRequest {
    pub token: String,
    pub format: SignatureFormat,
    /// The key as git names it: an identifier, or the path of a file.
    pub key: String,
    /// The content of a public key that is in git's settings.
    pub literal_key: Option<String>,
    pub payload_bytes: usize,
}

/// The agent's answer: one line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SigningAnswer {
    /// `None` if nothing was signed.
    pub signature: Option<String>,
    /// The messages of the signing program, which git reads.
    pub messages: String,
}
