//! Systems without private networks: there is no `SessionNetwork`.

use std::io;

/// A private network that several sandboxed programs can share, which this system does not have: there are no values
/// of this type.
#[derive(Debug)]
pub enum NoSessionNetwork {}

impl NoSessionNetwork {
    /// Fails.
    ///
    /// # Errors
    /// Always: this system has no private networks.
    pub fn create_within(_memory_limit: Option<u64>) -> io::Result<NoSessionNetwork> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
