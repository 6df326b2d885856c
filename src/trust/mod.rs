//! Records what the user trusts of a project's files: exactly these bytes, for this folder.
//! Changing one byte makes the file untrusted again. This module does not interpret the bytes.

mod pin_store;
mod trust_store;
mod project_file;

use turnwright_types::hash::sha256_hex;

pub(crate) use pin_store::{Pin, PinLookup, PinStore};
pub(crate) use project_file::read_project_file;
pub(crate) use trust_store::TrustStore;

/// The SHA-256 of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(String);

impl Fingerprint {
    pub(crate) fn of(content: &[u8]) -> Fingerprint {
        Fingerprint(sha256_hex(content))
    }

    /// The first 8 digits, for a user to type within the process that shows the content and
    /// compares all of it afterwards.
    pub(crate) fn short_code(&self) -> &str {
        &self.0[..8]
    }

    /// Enough digits that no other content with the same ones can be constructed.
    pub(crate) fn long_code(&self) -> &str {
        &self.0[..32]
    }
}
