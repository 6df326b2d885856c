//! Devices reveal more than files do: the whole content of a disk, past everything that is hidden, memory, the
//! screen, and what the user types, also in the terminal of another program. Of the devices that a program in the
//! sandbox could open, only a few are open to it. It can make terminals of its own.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};
use rustix::mount::MountFlags;

use super::super::SandboxProfile;
use super::landlock_ruleset::{allow_mounted, read_rights};
use super::mounts::{clone_target, put_mounts};
use super::syscalls;

const DEVICES: &str = "/dev";
/// Devices that hold nothing, and the program's own terminal.
const HARMLESS: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];
/// The same in a private folder of devices, and the links that belong there.
const PRIVATE_FOLDER: &CStr = c"/dev";
const PRIVATE_DEVICES: [&CStr; HARMLESS.len()] =
    [c"/dev/full", c"/dev/null", c"/dev/random", c"/dev/tty", c"/dev/urandom", c"/dev/zero"];
const LINKS: [(&CStr, &CStr); 4] = [
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
];
const SHARED_MEMORY: &CStr = c"/dev/shm";
/// The terminals that the program makes, and the device that makes them.
const TERMINALS: &CStr = c"/dev/pts";
const TERMINAL_OPTIONS: &CStr = c"ptmxmode=666,mode=600,max=256";
const TERMINAL_MAKER: (&CStr, &CStr) = (c"pts/ptmx", c"/dev/ptmx");
/// Folders without devices: the descriptors of the program, and shared memory.
const OTHER_FOLDERS: &[&str] = &["fd", "shm"];

/// All others that this process may read, and the folders that hold such, except for what the profile names.
pub(super) fn find(profile: &SandboxProfile) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from(DEVICES)];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            let is_named = profile.writable.iter().any(|writable| path.starts_with(writable));
            if is_named {
                continue;
            }
            if kind.is_dir() && !is_one_of(&name, OTHER_FOLDERS) {
                let holds_named =
                    profile.writable.iter().any(|writable| writable.starts_with(&path));
                if holds_named { &mut pending } else { &mut found }.push(path);
            } else if (kind.is_block_device() || kind.is_char_device())
                && !is_one_of(&name, &HARMLESS)
            {
                found.extend(can_read(&path).then_some(path));
            }
        }
    }
    found
}

fn is_one_of(name: &OsStr, names: &[&str]) -> bool {
    names.iter().any(|other| name == *other)
}

/// Returns true if the profile names no devices, so that the program can have a private folder of devices.
pub(super) fn are_private(profile: &SandboxProfile) -> bool {
    let mut named = profile.writable.iter().chain(&profile.unhidden);
    !named.any(|path| path.starts_with(DEVICES) || Path::new(DEVICES).starts_with(path))
}

/// Puts a folder with nothing but the harmless ones over the devices, which costs less than to hide all others.
/// `terminal_rights` are the Landlock rights on terminals. Makes only system calls.
pub(super) fn make_private(
    ruleset: Option<BorrowedFd<'_>>,
    terminal_rights: u64,
) -> io::Result<()> {
    let mut clones = [const { None }; PRIVATE_DEVICES.len()];
    for (path, clone) in PRIVATE_DEVICES.iter().zip(&mut clones) {
        // Some systems have a link to another device there.
        *clone = clone_target(path)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    rustix::mount::mount(c"tmpfs", PRIVATE_FOLDER, c"tmpfs", flags, c"mode=755,size=64k")?;
    let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    for (path, clone) in PRIVATE_DEVICES.iter().zip(&clones).filter(|(_, clone)| clone.is_some()) {
        drop(rustix::fs::open(*path, create, Mode::empty())?);
        put_mounts(clone.as_ref(), path)?;
    }
    for (target, link) in LINKS.into_iter().chain([TERMINAL_MAKER]) {
        rustix::fs::symlink(target, link)?;
    }
    rustix::fs::mkdir(SHARED_MEMORY, Mode::RWXU)?;
    rustix::fs::mkdir(TERMINALS, Mode::RWXU)?;
    syscalls::make_read_only(PRIVATE_FOLDER)?;
    // Some containers do not allow it. Then there are no terminals.
    let has_terminals =
        rustix::mount::mount(c"devpts", TERMINALS, c"devpts", flags, TERMINAL_OPTIONS).is_ok();
    let Some(ruleset) = ruleset else { return Ok(()) };
    allow_mounted(ruleset, PRIVATE_FOLDER, read_rights())?;
    if has_terminals {
        allow_mounted(ruleset, TERMINALS, terminal_rights)?;
    }
    Ok(())
}

fn can_read(path: &Path) -> bool {
    rustix::fs::access(path, Access::READ_OK).is_ok()
}
