//! What the user trusts of what projects bring along: exactly these bytes, for this folder. A
//! change of one byte makes it untrusted again. Knows nothing of what the bytes mean.

mod pins;
mod records;
mod repository;

use turnwright_types::ids::hex;
use ring::digest::{SHA256, digest};

pub use pins::{Pin, Pinned, Pins};
pub use records::{Record, Trust};
pub use repository::{LARGEST, read};

/// What identifies a content: its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Print(String);

impl Print {
    /// Of a content.
    pub fn of(content: &[u8]) -> Print {
        Print(hex(digest(&SHA256, content).as_ref()))
    }

    /// Its beginning, for somebody to type who is shown the content by the process that compares
    /// all of it afterwards.
    pub fn code(&self) -> &str {
        &self.0[..8]
    }

    /// Enough of it that no other content can be made that has the same.
    pub fn long_code(&self) -> &str {
        &self.0[..32]
    }
}
