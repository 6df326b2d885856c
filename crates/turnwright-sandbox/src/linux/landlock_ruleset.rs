//! Translates a profile into a Landlock ruleset. Landlock rules can only grant access, so to hide a
//! path, everything beside it is granted by name.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use rustix::fs::{Mode, OFlags};

use super::super::SandboxProfile;
use super::real_path::{open_without_symlinks, resolve};
use super::syscalls;
use super::unix_sockets::open_services;

/// The newest ABI that this module handles. Rights that an older kernel does not know are left out.
const NEWEST_ABI: ABI = ABI::V9;
/// At most this many rules are made to grant everything beside the hidden paths.
const MAX_RULES: usize = 4096;

/// Devices that every program may write to: they store nothing.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// The paths that every program may read: programs, libraries and the configuration of the system. One a line.
const SYSTEM_PATHS: &str = include_str!("system_paths.txt");

type Rights = BitFlags<AccessFs>;

/// The rights on a writable folder: everything but creating and controlling devices.
fn write_rights() -> Rights {
    AccessFs::from_all(NEWEST_ABI)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

/// The rights on a writable folder, as the bits of this kernel's ABI.
pub(super) fn write_rights_for_abi(abi: i32) -> u64 {
    (write_rights() & AccessFs::from_all(ABI::from(abi))).bits()
}

/// The rights on the program's own terminals, as the bits of this kernel's ABI.
pub(super) fn terminal_rights_for_abi(abi: i32) -> u64 {
    let all = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev;
    (all & AccessFs::from_all(ABI::from(abi))).bits()
}

/// The rights on a folder that may only be read.
pub(super) fn read_rights() -> u64 {
    (AccessFs::ReadFile | AccessFs::ReadDir).bits()
}

/// Builds the ruleset for a kernel with this ABI. `hidden` are real paths. `without_sockets` is a folder in which no socket
/// may be connected to.
pub(super) fn build(
    profile: &SandboxProfile,
    (hidden, without_sockets): (&[PathBuf], Option<&Path>),
    abi: i32,
) -> io::Result<OwnedFd> {
    let mut builder = RulesetBuilder::new(abi)?;
    for path in &profile.writable {
        let opened = open_without_symlinks(path).map_err(|error| with_path(path, &error));
        let has_sockets = without_sockets.is_none_or(|folder| !folder.starts_with(path));
        let mut rights = write_rights();
        rights.set(AccessFs::ResolveUnix, has_sockets);
        // Named devices, such as a GPU, are of no use otherwise.
        rights.set(AccessFs::IoctlDev, path.starts_with("/dev"));
        if let Some(place) = if_accessible(opened)? {
            builder.allow(&place, rights)?;
        }
    }
    for place in &profile.unhidden {
        builder.allow_if_accessible(place, AccessFs::ReadFile | AccessFs::ReadDir)?;
    }
    for device in DEVICES {
        builder.allow_if_accessible(Path::new(device), AccessFs::WriteFile.into())?;
    }
    let services = open_services(profile.network.reaches_other_machines()).map(PathBuf::from);
    for socket in services.chain(profile.sockets.iter().cloned()) {
        builder.allow_if_accessible(&socket, AccessFs::ResolveUnix.into())?;
    }
    builder.allow_reading(profile, hidden)?;
    Ok(builder.ruleset)
}

/// A ruleset without rules, which denies everything that it knows of.
fn create_ruleset() -> Result<Option<OwnedFd>, landlock::RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST_ABI))?
        .scope(Scope::from_all(NEWEST_ABI))?
        .create()?;
    Ok(ruleset.into())
}

struct RulesetBuilder {
    ruleset: OwnedFd,
    /// The rights that the kernel knows.
    known: Rights,
    rules: usize,
}

impl RulesetBuilder {
    fn new(abi: i32) -> io::Result<RulesetBuilder> {
        let created = create_ruleset().map_err(io::Error::other)?;
        let ruleset = created.ok_or_else(|| io::Error::other("this system has no Landlock"))?;
        Ok(RulesetBuilder { ruleset, known: AccessFs::from_all(ABI::from(abi)), rules: 0 })
    }

    /// Grants the rights that the kernel knows and that apply to this kind of file.
    fn allow(&mut self, place: &OwnedFd, rights: Rights) -> io::Result<()> {
        let is_folder = rustix::fs::fstat(place)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
        let applicable = if is_folder { rights } else { rights & AccessFs::from_file(NEWEST_ABI) };
        let possible = applicable & self.known;
        if possible.is_empty() {
            return Ok(());
        }
        self.rules += 1;
        syscalls::add_rule(self.ruleset.as_fd(), place.as_fd(), possible.bits())
    }

    fn allow_if_accessible(&mut self, path: &Path, rights: Rights) -> io::Result<()> {
        if (rights & self.known).is_empty() {
            return Ok(());
        }
        if_accessible(open(path))?.map_or(Ok(()), |place| self.allow(&place, rights))
    }

    fn allow_reading(&mut self, profile: &SandboxProfile, hidden: &[PathBuf]) -> io::Result<()> {
        let traversal = AccessFs::ReadDir | AccessFs::Execute;
        let all = traversal | AccessFs::ReadFile;
        let Some(list) = &profile.readable else {
            if hidden.is_empty() {
                return self.allow_if_accessible(Path::new("/"), all);
            }
            // Names are not secret, and a program that cannot be read cannot be started.
            self.allow_if_accessible(Path::new("/"), traversal)?;
            return self.allow_all_but(Path::new("/"), hidden, AccessFs::ReadFile.into());
        };
        let mut allowed: Vec<PathBuf> = Vec::new();
        for place in SYSTEM_PATHS.lines().map(Path::new).chain(list.iter().map(PathBuf::as_path)) {
            // Symlinks are resolved, because `hidden` are real paths.
            let Some((place, opened)) = resolve(place) else { continue };
            // Everything below a place is allowed with it.
            if allowed.iter().any(|outer| place.starts_with(outer)) {
                continue;
            }
            if hidden.iter().any(|path| place.starts_with(path)) {
                continue;
            }
            if hidden.iter().any(|path| path.starts_with(&place)) {
                // The names beside what is hidden are no secret either.
                self.allow_if_accessible(&place, traversal)?;
                self.allow_all_but(&place, hidden, all)?;
                continue;
            }
            match opened {
                Some(opened) => self.allow(&opened, all)?,
                None => self.allow_if_accessible(&place, all)?,
            }
            allowed.push(place);
        }
        Ok(())
    }

    /// Grants rights on everything at and below a real path, except for what is hidden.
    fn allow_all_but(&mut self, top: &Path, hidden: &[PathBuf], rights: Rights) -> io::Result<()> {
        let mut pending = vec![top.to_owned()];
        while let Some(place) = pending.pop() {
            if hidden.iter().any(|path| place.starts_with(path)) {
                continue;
            }
            if !hidden.iter().any(|path| path.starts_with(&place)) {
                self.allow_if_accessible(&place, rights)?;
            } else if let Ok(entries) = fs::read_dir(&place) {
                // The target of a symlink has its own rule, or none.
                let real = entries
                    .flatten()
                    .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
                pending.extend(real.map(|entry| entry.path()));
            }
            if self.rules + pending.len() > MAX_RULES {
                return Err(io::Error::other(format!(
                    "too many files beside the hidden ones in {}",
                    place.display()
                )));
            }
        }
        Ok(())
    }
}

/// Adds a rule for what was mounted at a place after the ruleset was built. Allocates nothing.
pub(super) fn allow_mounted(ruleset: BorrowedFd<'_>, place: &CStr, rights: u64) -> io::Result<()> {
    let mounted = rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    syscalls::add_rule(ruleset, mounted.as_fd(), rights)
}

/// Opens a path as a reference for a rule, following symlinks.
fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// `None` if the path does not exist or is not accessible: then it is not accessible to the command
/// either.
fn if_accessible(opened: io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match opened {
        Ok(place) => Ok(Some(place)),
        Err(error) if matches!(error.kind(), NotFound | PermissionDenied | NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
