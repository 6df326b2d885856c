//! The walls around files: a profile → a Landlock ruleset. Rights are only ever added, so what is
//! not to be read is left out, and everything beside it is named.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::super::{Network, Profile};

/// The newest version that this knows. What an older kernel does not know is left out.
const KNOWN: ABI = ABI::V9;
/// More places than this are not named one by one.
const MOST: usize = 4096;

/// Devices that every program may write to. They keep nothing and lead nowhere.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What every program reads: other programs, libraries, how the system is set up.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/proc",
    "/sys",
    "/dev",
    "/run/current-system",
    "/run/systemd/resolve",
    "/var/lib/ca-certificates",
];

/// What a command may do with what it may write. It makes no devices.
fn all_of_a_folder() -> BitFlags<AccessFs> {
    AccessFs::from_all(KNOWN) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

/// The rights on a folder of its own, as the kernel has them.
pub(super) fn own_folder(abi: i32) -> u64 {
    (all_of_a_folder() & AccessFs::from_all(ABI::from(abi))).bits()
}

/// Builds the ruleset. Hidden places must be real paths. Those that nobody may name one by one are
/// only hidden where `covered` says that something else covers them.
pub(super) fn build(profile: &Profile, hidden: &[PathBuf]) -> io::Result<OwnedFd> {
    let mut walls = Walls::new().map_err(io::Error::other)?;
    for path in &profile.write {
        let open = |it: &Path| open_real(it).map_err(|error| named(it, &error));
        if let Some(place) = exists(open(path))? {
            walls.allow(place, all_of_a_folder())?;
        }
    }
    for device in DEVICES {
        walls.allow_if_there(Path::new(device), AccessFs::WriteFile.into())?;
    }
    if profile.network == Network::On {
        // Sockets with a name in the file system, such as that of an agent which holds the keys.
        walls.allow_if_there(Path::new("/"), AccessFs::ResolveUnix.into())?;
    }
    walls.allow_reading(profile, hidden)?;
    let ruleset: Option<OwnedFd> = walls.ruleset.into();
    ruleset.ok_or_else(|| io::Error::other("this system has no Landlock"))
}

struct Walls {
    ruleset: RulesetCreated,
    rules: usize,
}

impl Walls {
    fn new() -> Result<Walls, landlock::RulesetError> {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))?
            .scope(Scope::from_all(KNOWN))?
            .create()?;
        Ok(Walls { ruleset, rules: 0 })
    }

    /// Of the rights only those count that the place can have.
    fn allow(&mut self, place: OwnedFd, rights: BitFlags<AccessFs>) -> io::Result<()> {
        let is_folder = rustix::fs::fstat(&place)
            .is_ok_and(|it| rustix::fs::FileType::from_raw_mode(it.st_mode).is_dir());
        let possible = if is_folder { rights } else { rights & AccessFs::from_file(KNOWN) };
        if possible.is_empty() {
            return Ok(());
        }
        self.rules += 1;
        let rule = PathBeneath::new(place, possible);
        (&mut self.ruleset).add_rule(rule).map(|_| ()).map_err(io::Error::other)
    }

    fn allow_if_there(&mut self, path: &Path, rights: BitFlags<AccessFs>) -> io::Result<()> {
        match exists(open(path))? {
            Some(place) => self.allow(place, rights),
            None => Ok(()),
        }
    }

    fn allow_reading(&mut self, profile: &Profile, hidden: &[PathBuf]) -> io::Result<()> {
        let looking = AccessFs::ReadDir | AccessFs::Execute;
        let all = looking | AccessFs::ReadFile;
        let Some(list) = &profile.read else {
            if hidden.is_empty() {
                return self.allow_if_there(Path::new("/"), all);
            }
            // Names are no secret, and a program that cannot be read cannot be started.
            self.allow_if_there(Path::new("/"), looking)?;
            return self.allow_all_but(Path::new("/"), hidden, AccessFs::ReadFile.into());
        };
        for place in SYSTEM.iter().map(Path::new).chain(list.iter().map(PathBuf::as_path)) {
            // Where a symlink leads counts: `hidden` are real paths.
            if let Ok(place) = fs::canonicalize(place) {
                self.allow_all_but(&place, hidden, all)?;
            }
        }
        Ok(())
    }

    /// Grants rights on what lies at and below a real path, apart from what is hidden.
    fn allow_all_but(
        &mut self,
        top: &Path,
        hidden: &[PathBuf],
        rights: BitFlags<AccessFs>,
    ) -> io::Result<()> {
        let mut open_ends = vec![top.to_owned()];
        while let Some(place) = open_ends.pop() {
            if hidden.iter().any(|it| place.starts_with(it)) {
                continue;
            }
            if !hidden.iter().any(|it| it.starts_with(&place)) {
                self.allow_if_there(&place, rights)?;
            } else if let Ok(entries) = fs::read_dir(&place) {
                // Where a symlink leads has a rule of its own, or none.
                let is_real = |it: &fs::DirEntry| it.file_type().is_ok_and(|it| !it.is_symlink());
                open_ends.extend(entries.flatten().filter(is_real).map(|it| it.path()));
            }
            if self.rules + open_ends.len() > MOST {
                return Err(io::Error::other(format!(
                    "too many files beside those that are to be hidden, in {}",
                    place.display()
                )));
            }
        }
        Ok(())
    }
}

/// Opens a place only to name it, wherever symlinks lead.
fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a place that is where its path says: who has put a symlink there in the meantime gets
/// nothing.
fn open_real(path: &Path) -> io::Result<OwnedFd> {
    let how = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(CWD, path, how, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// Not there, or not for us, and so not for what we start either.
fn exists(opened: io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match opened {
        Ok(place) => Ok(Some(place)),
        Err(error) if matches!(error.kind(), NotFound | PermissionDenied | NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
