//! The walls around a command: what a profile says, enforced by the kernel. Knows nothing of who
//! decides on the profile.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a command may do. It may read what is not hidden and start any program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Files and folders that it may change, real paths.
    pub write: Vec<PathBuf>,
    /// Parts of these that it may not change all the same, as far as the system can tell them apart.
    pub keep: Vec<PathBuf>,
    /// What it may not read.
    pub hide: Vec<PathBuf>,
    /// If there is a list, all that it may read besides `write`, the system's programs and libraries.
    pub read: Option<Vec<PathBuf>>,
    /// The network.
    pub network: Network,
}

/// What a command has of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Nothing.
    #[default]
    Off,
    /// A loopback interface of its own, where the system can give it one; else nothing.
    Loopback,
    /// All of it.
    On,
}

/// Whether a command can be confined here at all: to folders that it may write, and without the
/// network.
pub fn can_confine() -> bool {
    false
}
