//! The walls around a command: what a profile says, enforced by the kernel. Knows nothing of who
//! decides on the profile.
//!
//! On Linux a process puts the walls around itself between fork and exec (`Jail::enter`), without a
//! helper program. Where there are no walls nothing is run as if there were.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod linux;
#[cfg(any(target_os = "macos", test))]
#[cfg_attr(not(target_os = "macos"), allow(unreachable_pub, reason = "only its tests are here"))]
mod macos;
#[cfg(not(any(
    target_os = "macos",
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))
)))]
mod none;

pub mod proof;
pub mod seatbelt;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;
#[cfg(not(any(
    target_os = "macos",
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))
)))]
use none as system;

pub use system::Jail;

/// What a command may do. It may read what is not hidden and start any program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Files and folders that it may change, real paths: a symlink in one is an error. What does not
    /// exist is passed over; to let it make a file, name the folder or make the file.
    pub write: Vec<PathBuf>,
    /// Parts of these that it may not change all the same, as far as the system can tell them apart
    /// (`Rooms::mounts`) and as far as they exist.
    pub keep: Vec<PathBuf>,
    /// What it may not read. What does not exist is passed over.
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

/// What this system can do for a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of Landlock, the walls around files.
    pub landlock_abi: Option<i32>,
    /// Whether system calls can be filtered: the walls around the network and the kernel.
    pub seccomp: bool,
    /// Whether the system has a program that puts up the walls (macOS).
    pub seatbelt: bool,
    /// What is missing and what follows from that, a sentence each, for people.
    pub missing: Vec<String>,
}

/// Why a command was not run: it could not be confined.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox could not be set up: {0}. Nothing was run.")]
struct NoWalls(String);

/// Whether a command was not run because it could not be confined.
pub fn is_failure(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<NoWalls>)
}

/// What a command can be given of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    /// A view of the files: then `Profile::keep` holds, `hide` holds within `write`, the way to the
    /// daemons that would act for it is closed, and `/dev/shm` is its own.
    pub mounts: bool,
    /// A network with nothing but a loopback interface.
    pub network: bool,
}

/// What this system can do. Found out once, in microseconds.
pub fn capabilities() -> &'static Capabilities {
    static FOUND: OnceLock<Capabilities> = OnceLock::new();
    FOUND.get_or_init(system::probe)
}

/// The words that start a program, with those in front that put up the walls where a program of
/// the system does that.
///
/// # Errors
/// When the profile cannot be said in words.
pub fn front(profile: Option<&Profile>, words: Vec<OsString>) -> io::Result<Vec<OsString>> {
    #[cfg(target_os = "macos")]
    if let Some(profile) = profile {
        return macos::front(profile, &words);
    }
    let _: Option<&Profile> = profile;
    Ok(words)
}

/// What is missing for the best sandbox and what follows from that, for people. The first call takes
/// some milliseconds.
pub fn shortcomings() -> Vec<String> {
    let mut found = capabilities().missing.clone();
    if can_confine() && !rooms().mounts {
        found.push(NO_MOUNTS.to_owned());
    }
    found
}

const NO_MOUNTS: &str = "Namespaces of users cannot be had (kernel.apparmor_restrict_unprivileged_userns, \
     user.max_user_namespaces, a container): a command can change protected files of the project, \
     read secrets in it, change modes, times and attributes of the user's other files, reach daemons \
     of the user by their sockets and their shared memory, and has no /dev/shm.";

/// What a command can be given of its own. The first call takes some milliseconds.
pub fn rooms() -> Rooms {
    *ROOMS.get_or_init(system::probe_rooms)
}

static ROOMS: OnceLock<Rooms> = OnceLock::new();

/// What of the best sandbox commands have to do without here, for people: a sentence, if there is
/// something and if somebody has found it out already.
pub fn known_shortcoming() -> Option<&'static str> {
    ROOMS.get().filter(|it| can_confine() && !it.mounts).map(|_| NO_MOUNTS)
}

/// Whether a command can be confined here at all: to folders that it may write, and without the
/// network.
pub fn can_confine() -> bool {
    let found = capabilities();
    found.seatbelt || found.seccomp && found.landlock_abi.is_some_and(|it| it >= OLDEST)
}

/// Before this version of Landlock no file can be moved from one folder to another, not even where
/// both may be written: no build would work.
const OLDEST: i32 = 2;

/// Where people keep what opens other doors, below their home. Not all of these exist.
pub fn secrets_below(home: &Path) -> Vec<PathBuf> {
    SECRETS.iter().map(|it| home.join(it)).collect()
}

const SECRETS: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".netrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".password-store",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".docker/config.json",
    ".gem/credentials",
    ".local/share/keyrings",
    ".vault-token",
];
