//! Runs programs with access to a few folders only, without root and without a helper program.
//!
//! A [`SandboxProfile`] says what a program may write, read and reach over the network. The kernel
//! enforces it for the program and for everything that the program starts. This crate does not
//! decide what a profile should allow: that is up to its user.
//!
//! * On Linux (x86-64 and AArch64), [`Sandbox::prepare`] builds a Landlock ruleset, a seccomp
//!   filter and, where user namespaces are available, a private mount namespace. [`Sandbox::enter`]
//!   applies them in the child process, between `fork` and `exec`.
//! * On macOS, [`wrap_command`] puts `/usr/bin/sandbox-exec` and a Seatbelt profile in front of the
//!   program.
//! * Elsewhere [`Sandbox::prepare`] fails. Nothing runs unconfined by mistake.
//!
//! A portable caller uses both, as in this example: each does nothing where the other does the
//! work.
//!
//! ```no_run
//! use std::os::unix::process::CommandExt;
//! use std::process::Command;
//! use turnwright_sandbox::{Sandbox, SandboxProfile, wrap_command};
//!
//! # fn main() -> std::io::Result<()> {
//! // Real paths: a path that leads through a symlink is refused.
//! let folder = std::env::current_dir()?.canonicalize()?;
//! let profile = SandboxProfile { writable: vec![folder], ..SandboxProfile::default() };
//!
//! let sandbox = Sandbox::prepare(&profile, None)?;
//! let words = wrap_command(Some(&profile), vec!["make".into(), "test".into()])?;
//! let mut command = Command::new(&words[0]);
//! command.args(&words[1..]);
//! // SAFETY: `enter` makes system calls only.
//! unsafe { command.pre_exec(move || sandbox.enter()) };
//! let status = command.status()?;
//! # Ok(())
//! # }
//! ```

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod linux;
#[cfg(any(
    test,
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))
))]
#[cfg_attr(target_os = "linux", allow(unreachable_pub, reason = "only its tests are here"))]
mod other_systems;

pub mod escape_tests;
mod refusals;
pub mod seatbelt;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use refusals::{Refusal, Refusals, RefusedCall};
use serde::{Deserialize, Serialize};

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use linux as system;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use other_systems as system;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use linux::{LinuxSandbox as Sandbox, SessionNetwork};
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub use other_systems::{NoSessionNetwork as SessionNetwork, OtherSandbox as Sandbox};

/// The permissions of a sandboxed program. By default it may read everything, write nothing and use no
/// network. Every profile lets the program start any other program that it can read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxProfile {
    /// Files and folders that the program may change. They must be real paths: a symlink in one is
    /// an error. A path that does not exist is ignored, so to let the program create a file, list
    /// its folder or create the file first.
    #[serde(rename = "write")]
    pub writable: Vec<PathBuf>,
    /// Parts of `writable` that stay read-only. This is enforced only where mounts can be made
    /// ([`NamespaceSupport::mounts`]), and only for paths that exist.
    #[serde(rename = "keep")]
    pub read_only: Vec<PathBuf>,
    /// Files and folders that the program must not read. A path that does not exist is ignored. Folders
    /// in `writable` and `unhidden` that lie below one stay open.
    #[serde(rename = "hide")]
    pub hidden: Vec<PathBuf>,
    /// Folders below `hidden` that the program may read all the same, as real paths.
    #[serde(rename = "show", default, skip_serializing_if = "Vec::is_empty")]
    pub unhidden: Vec<PathBuf>,
    /// If set, the only places that the program may read, besides `writable` and the programs and
    /// libraries of the system.
    #[serde(rename = "read")]
    pub readable: Option<Vec<PathBuf>>,
    /// Caches of the user's that the program may change for itself. Where this is not possible
    /// ([`can_layer_caches`]), and inside `writable`, it has no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<PrivateLayer>,
    /// Folders in `writable`, at most [`MAX_LAYERS`], of which the program changes a layer only, until that is
    /// [published](publish_layer). Where mounts can be made but no layers, they stay read-only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<PrivateLayer>,
    /// Sockets of other programs to which the program may connect, as real paths, besides sockets in
    /// `writable` and of name services. All others are closed, with and without
    /// a network, as far as [`NamespaceSupport::sockets`] says. Without a mount namespace this needs
    /// Landlock's ABI 9.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<PathBuf>,
    /// The program's own `/tmp`, where mounts can be made (Linux). It has no effect if `writable` names `/tmp`
    /// or a folder above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_tmp: Option<PrivateTmp>,
    /// The program's network access.
    pub network: Network,
    /// Addresses outside of its private network to which the program may connect all the same, such as a database of
    /// the user. They have an effect only where connections are supervised.
    #[serde(rename = "connect", default, skip_serializing_if = "Vec::is_empty")]
    pub machine_addresses: Vec<SocketAddr>,
    /// True if the program may also profile and record its children. It may trace them anyway where it has a PID
    /// namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
}

impl SandboxProfile {
    /// The folders that stay open although they lie below this hidden path.
    fn open_below(&self, hidden: &Path) -> impl Iterator<Item = &PathBuf> {
        let open = self.writable.iter().chain(&self.unhidden);
        open.filter(move |path| path.starts_with(hidden) && path.as_path() != hidden)
    }

    /// Returns true if something hides this path, or a folder above it, and nothing in between opens it.
    #[cfg(target_os = "linux")]
    fn is_below_hidden<'a>(
        &self,
        path: &Path,
        mut hidden: impl Iterator<Item = &'a PathBuf>,
    ) -> bool {
        hidden.any(|hidden_path| {
            path.starts_with(hidden_path)
                && path != hidden_path
                && !self.open_below(hidden_path).any(|open| path.starts_with(open))
        })
    }
}

/// The most [`layers`](SandboxProfile::layers) of a program.
pub const MAX_LAYERS: usize = 16;

/// A folder and the private layer over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateLayer {
    /// The folder, a real path.
    pub path: PathBuf,
    /// The folder that keeps what the program writes; it is created. It must not be in `writable`.
    pub private: PathBuf,
}

impl PrivateLayer {
    /// A folder whose layer is kept below `folder`, in a place of its own.
    pub fn new(path: PathBuf, folder: &Path) -> PrivateLayer {
        PrivateLayer { private: place_for(&path, folder), path }
    }
}

/// The place in `folder` for what is kept of a path. Its name is the path without slashes, or a hash if that is long.
pub fn place_for(path: &Path, folder: &Path) -> PathBuf {
    /// eCryptfs allows 143, and the kernel 255 for a whole path in the options of an overlay.
    const MAX_BYTES: usize = 64;
    let name = path.to_string_lossy().replace(['/', '\\'], "%");
    let named = folder.join(&name);
    // Earlier versions gave long names, too.
    if name.len() <= MAX_BYTES || named.exists() {
        return named;
    }
    // FNV-1a is the same in every version.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    folder.join(format!("%{hash:016x}"))
}

/// A folder that a program sees as `/tmp`. All other folders of its profile that lie below `/tmp` are seen there, too. If
/// it cannot be mounted, the program does not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateTmp {
    /// The folder, a real path. If it is in `writable`, the program may write in its `/tmp`.
    pub folder: PathBuf,
    /// Files and folders in the `/tmp` of the machine that are seen all the same, read-only, as real paths. Another
    /// program that shares the folder, but to which they are not shown, can put something else in their place.
    pub shown: Vec<PathBuf>,
}

/// The network access of a sandboxed program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// No network.
    #[default]
    Off,
    /// A private loopback interface where the system supports one ([`NamespaceSupport::network`]),
    /// otherwise no network. On macOS, the loopback interface of the machine, and servers on all of its addresses.
    Loopback,
    /// A private loopback interface, and all addresses except this machine's own and those on its links. Where
    /// connections cannot be supervised ([`NamespaceSupport::supervision`]), the whole network.
    Internet,
    /// The whole network.
    On,
}

impl Network {
    /// Returns true if the program may connect to other machines.
    pub fn reaches_other_machines(self) -> bool {
        matches!(self, Network::Internet | Network::On)
    }
}

/// The sandboxing mechanisms of this system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSupport {
    /// The Landlock ABI version, which restricts access to files.
    pub landlock_abi: Option<i32>,
    /// True if seccomp can filter system calls, which restricts the network and the kernel
    /// interface.
    pub seccomp: bool,
    /// True if the system has `sandbox-exec` (macOS).
    pub seatbelt: bool,
    /// The missing mechanisms and the consequences, one sentence each, to be shown to the user.
    pub missing: Vec<String>,
}

/// The sandbox could not be set up, so the program was not started.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox could not be set up: {0}. Nothing was run.")]
struct SetupError(String);

/// True if an error of this crate means that the sandbox could not be set up and that nothing was
/// run, as opposed to an error of the program itself.
pub fn is_setup_error(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<SetupError>)
}

/// The private namespaces that a sandboxed program can get on this system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSupport {
    /// A private mount namespace. With it, [`SandboxProfile::read_only`] is enforced,
    /// [`SandboxProfile::hidden`] also works inside `writable`, the sockets of daemons that could
    /// act for the program are out of reach, and `/dev/shm` is private, or shared with the programs of its
    /// [`SessionNetwork`].
    pub mounts: bool,
    /// A private network with nothing but a loopback interface.
    pub network: bool,
    /// A PID namespace: whatever the program starts ends with it, and it cannot signal other processes,
    /// nor see them unless a container covers parts of `/proc`.
    pub processes: bool,
    /// The sockets of other programs are out of reach also if they are moved, or made while the program runs:
    /// Landlock's ABI 9 denies it, or each connection of a program with a PID namespace is decided on its own.
    /// In the latter case the program has no Unix sockets for datagrams.
    pub sockets: bool,
    /// Each connection of a program with a PID namespace can be decided on its own, which [`Network::Internet`] needs.
    pub supervision: bool,
}

/// The numbers of two processes of a PID namespace, as the caller of the sandbox sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceProcesses {
    /// The first process. When it is killed, all others are.
    pub init: u32,
    pub program: u32,
}

/// The sandboxing mechanisms of this system. They are probed once, which takes microseconds, or a millisecond below a
/// filter of system calls.
pub fn sandbox_support() -> &'static SandboxSupport {
    static SUPPORT: OnceLock<SandboxSupport> = OnceLock::new();
    SUPPORT.get_or_init(system::probe)
}

/// The program and arguments to start, given the program and arguments to confine: on macOS with
/// `sandbox-exec` in front, elsewhere unchanged. Without a profile they are unchanged everywhere.
///
/// # Errors
/// When a path of the profile cannot be expressed in a Seatbelt profile.
pub fn wrap_command(
    profile: Option<&SandboxProfile>,
    words: Vec<OsString>,
) -> io::Result<Vec<OsString>> {
    let Some(profile) = profile.filter(|_| cfg!(target_os = "macos")) else { return Ok(words) };
    seatbelt::sandbox_exec_command(profile, &words).ok_or_else(|| {
        let text = "a path of the profile cannot be expressed for Seatbelt";
        io::Error::other(SetupError(text.to_owned()))
    })
}

/// The gaps of the sandbox on this system and their consequences, one sentence each, to be
/// shown to the user. The first call probes for namespaces, which takes some milliseconds.
pub fn limitations() -> Vec<String> {
    let support = sandbox_support();
    let mut all = support.missing.clone();
    if can_confine() && cfg!(target_os = "linux") {
        let namespaces = namespace_support();
        all.extend(old_landlock(support.landlock_abi, namespaces));
        all.extend(missing_namespaces(namespaces));
    }
    all
}

/// The consequences of missing namespaces.
fn missing_namespaces(namespaces: NamespaceSupport) -> impl Iterator<Item = String> {
    let NamespaceSupport { mounts, network, processes, sockets, supervision } = namespaces;
    let all = [
        (!mounts, NO_MOUNTS),
        (mounts && !processes, NO_PROCESSES),
        (mounts && !sockets, LATE_SOCKETS),
        (!(network && supervision), OPEN_MACHINE),
    ];
    all.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text.to_owned())
}

/// The consequences of an old Landlock, unless namespaces prevent them.
fn old_landlock(abi: Option<i32>, namespaces: NamespaceSupport) -> Option<String> {
    let abi = abi.unwrap_or(i32::MAX);
    let NamespaceSupport { mounts, processes, sockets, .. } = namespaces;
    let gaps = [
        (3, mounts, "truncate files outside of its folders"),
        (6, processes, "send signals to the user's other programs"),
        (6, sockets, "reach the abstract sockets of the user's other programs"),
    ];
    let open: Vec<_> = gaps
        .iter()
        .filter(|(closed_by, is_closed, _)| abi < *closed_by && !is_closed)
        .map(|(_, _, gap)| *gap)
        .collect();
    (!open.is_empty())
        .then(|| format!("Landlock is old (version {abi}): a command can {}.", open.join(", and ")))
}

const NO_MOUNTS: &str = "User namespaces are unavailable (kernel.apparmor_restrict_unprivileged_userns, \
     user.max_user_namespaces, or a container): a command can change protected files of the project, \
     read secrets in it, change modes, times and attributes of the user's other files, reach the user's \
     programs through shared memory and, unless Landlock has its ABI 9, their sockets, change their priority, \
     has no /dev/shm, and may outlive its end by starting new processes faster than they are found. In `auto` mode \
     you are asked about each command that does more than read.";

const NO_PROCESSES: &str = "PID namespaces are unavailable (user.max_pid_namespaces): a command sees the \
     user's other programs, can change their priority, and may outlive its end by starting new processes \
     faster than they are found.";

const LATE_SOCKETS: &str = "Connections cannot be supervised (no PID namespaces, another supervisor of system \
     calls, a covered /proc, or a container that forbids it) and Landlock is older than its ABI 9: a command can \
     reach sockets of the user's programs that were moved to another folder, or are made while it runs.";

const OPEN_MACHINE: &str = "There are no private networks (user namespaces), or connections cannot be supervised: a \
     command that is allowed the network also reaches the servers of this machine, such as databases and build daemons.";

/// The private namespaces that a sandboxed program can get. The first call tries them out in child processes, which
/// takes some milliseconds; so do later ones for as long as the system is short of processes, memory or open files.
pub fn namespace_support() -> NamespaceSupport {
    found_once(&NAMESPACES, system::probe_namespaces)
}

/// Returns what `probe` finds, and keeps it. A probe that cannot tell has found nothing, and the next call tries again.
fn found_once<T: Copy + Default>(known: &OnceLock<T>, probe: impl FnOnce() -> io::Result<T>) -> T {
    let found = known.get().copied().map_or_else(probe, Ok);
    found.map(|value| *known.get_or_init(|| value)).unwrap_or_default()
}

/// Makes what a program has changed in a layer the content of `folder`, which was opened before it was started. All
/// processes of the program must have ended. What cannot be moved stays in the layer.
///
/// # Errors
/// When the system refuses it.
pub fn publish_layer(layer: &PrivateLayer, folder: &File) -> io::Result<()> {
    system::publish_layer(layer, folder)
}

/// Returns true if a program with a PID namespace can get private layers over caches that are kept in `folder`.
/// The first call tries it out, which takes some milliseconds; later ones return the same, unless that failed.
pub fn can_layer_caches(folder: &Path) -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    namespace_support().processes && found_once(&CAN, || system::can_layer_caches(folder))
}

static NAMESPACES: OnceLock<NamespaceSupport> = OnceLock::new();

/// The limitation that follows from missing mount namespaces, to be shown to the user; `None` if
/// there is none, or if [`namespace_support`] has not been called yet. Never blocks.
pub fn known_limitation() -> Option<&'static str> {
    NAMESPACES.get().filter(|support| can_confine() && !support.mounts).map(|_| NO_MOUNTS)
}

/// True if this system can confine a program at all: to folders that it may write, and without the
/// network.
pub fn can_confine() -> bool {
    let support = sandbox_support();
    support.seatbelt
        || support.seccomp && support.landlock_abi.is_some_and(|abi| abi >= MIN_LANDLOCK_ABI)
}

/// Before this version Landlock denies every move of a file from one folder to another, even if
/// both are writable, so no build would work.
const MIN_LANDLOCK_ABI: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_fails_for_want_of_processes_or_files_is_repeated() {
        let known = OnceLock::<bool>::new();
        assert!(!found_once(&known, || Err(io::ErrorKind::WouldBlock.into())));
        assert!(found_once(&known, || Ok(true)));
        assert!(found_once(&known, || Ok(false)));
    }

    #[test]
    fn each_path_has_a_place_of_its_own_whose_name_is_not_too_long() {
        let kept = tempfile::tempdir().unwrap();
        let place = |path: &str| place_for(Path::new(path), kept.path());
        assert_eq!(place("/home/me/.npm"), kept.path().join("%home%me%.npm"));
        let earlier = kept.path().join("%long".repeat(20));
        std::fs::create_dir(&earlier).unwrap();
        assert_eq!(place(&"/long".repeat(20)), earlier);
        let [one, other] = ["a", "b"].map(|end| place(&format!("{}/{end}", "/long".repeat(60))));
        assert_ne!(one, other);
        assert_eq!(one.file_name().unwrap().len(), 17, "{}", one.display());
    }

    /// A row for each form of the sandbox: Landlock's version, the namespaces for mounts, processes and
    /// sockets, and words of the sentences.
    #[test]
    fn what_is_missing_is_told_and_nothing_else() {
        let truncate = "truncate files";
        let signals = "send signals";
        let names = "abstract sockets";
        let mounts = "User namespaces are unavail";
        let processes = "PID namespaces are unavail";
        let later = "Connections cannot be supervised";
        let machine = "also reaches the servers of this machine";
        let all = [truncate, signals, names, mounts, processes, later, machine];
        for (abi, [has_mounts, has_processes, has_sockets], expected) in [
            (2, [true, true, true], &[] as &[&str]),
            (2, [false, false, false], &[truncate, signals, names, mounts, machine]),
            (5, [true, true, true], &[]),
            (5, [true, true, false], &[names, later, machine]),
            (5, [true, false, false], &[signals, names, processes, later, machine]),
            (5, [false, false, false], &[signals, names, mounts, machine]),
            (7, [true, true, true], &[]),
            (7, [true, false, false], &[processes, later, machine]),
            (7, [false, false, false], &[mounts, machine]),
            (9, [true, false, true], &[processes]),
            (9, [false, false, true], &[mounts, machine]),
        ] {
            let namespaces = NamespaceSupport {
                mounts: has_mounts,
                network: has_mounts,
                processes: has_processes,
                sockets: has_sockets,
                supervision: has_sockets,
            };
            let old = old_landlock(Some(abi), namespaces);
            let text: String = old.into_iter().chain(missing_namespaces(namespaces)).collect();
            let told: Vec<_> = all.iter().copied().filter(|gap| text.contains(gap)).collect();
            assert_eq!(told, expected, "{abi}, {namespaces:?}: {text}");
        }
    }
}
