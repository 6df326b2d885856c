//! The walls of Linux. Everything is prepared in the parent; the child, between fork and exec, makes
//! system calls only.

mod filter;
mod powers;
mod room;
mod sys;
mod walls;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit};
use seccompiler::BpfProgram;

use super::{Capabilities, Network, NoWalls, Profile, Rooms, capabilities, rooms};
use room::Room;

/// Walls, ready to be put up.
#[derive(Debug)]
pub struct Jail {
    ruleset: OwnedFd,
    filter: &'static BpfProgram,
    room: Option<Room>,
    is_root: bool,
    /// The child says here which step failed.
    failed: (PipeReader, PipeWriter),
}

/// What is done in the child, and its name for people.
type Step = (&'static str, fn(&Jail) -> io::Result<()>);

/// In this order.
const STEPS: &[Step] = &[
    ("closing descriptors", |_| sys::close_on_exec()),
    ("no core dumps", |_| no_core()),
    ("a view of the files", Jail::enter_room),
    ("dropping privileges", |it| powers::drop_powers(it.is_root)),
    ("no new privileges", |_| Ok(rustix::thread::set_no_new_privs(true)?)),
    ("Landlock", |it| sys::restrict_self(it.ruleset.as_fd())),
    // Last: it denies what the others do.
    ("seccomp", |it| seccompiler::apply_filter(it.filter).map_err(|error| reason(&error))),
];

impl Jail {
    /// Makes walls for the profile.
    ///
    /// # Errors
    /// When there can be none. The command must not run then.
    pub fn prepare(profile: &Profile) -> io::Result<Jail> {
        Jail::with(profile, rooms()).map_err(|error| failure(&error.to_string()))
    }

    /// The same, with what a command can be given of its own.
    fn with(profile: &Profile, rooms: Rooms) -> io::Result<Jail> {
        if !super::can_confine() {
            return Err(io::Error::other(capabilities().missing.join(" ")));
        }
        let abi = capabilities().landlock_abi.unwrap_or_default();
        // Where a symlink leads counts. What cannot be found cannot be read either.
        let hidden: Vec<_> =
            profile.hide.iter().filter_map(|it| fs::canonicalize(it).ok()).collect();
        let network = match profile.network {
            Network::Loopback if !(rooms.mounts && rooms.network) => Network::Off,
            other => other,
        };
        let room =
            rooms.mounts.then(|| Room::plan(profile, &hidden, walls::own_folder(abi), rooms));
        let left: &[PathBuf] = if room.is_some() { &[] } else { &hidden };
        Ok(Jail {
            ruleset: walls::build(profile, left)?,
            filter: filter::program(network)?,
            room,
            is_root: room::is_root(),
            failed: io::pipe()?,
        })
    }

    /// Puts the walls up around the calling process, for good. To be called between fork and exec.
    ///
    /// # Errors
    /// When one cannot be put up. The command must not run then.
    pub fn enter(&self) -> io::Result<()> {
        for (number, (_, step)) in (0_u8..).zip(STEPS) {
            if let Err(error) = step(self) {
                rustix::io::write(&self.failed.1, &[number]).ok();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Why a command did not start: because of the walls, or of itself.
    pub fn explain(&self, error: io::Error) -> io::Error {
        let mut number = [0];
        rustix::io::ioctl_fionbio(&self.failed.0, true).ok();
        let told = (&self.failed.0).read_exact(&mut number).ok();
        match told.and_then(|()| STEPS.get(usize::from(number[0]))) {
            Some((step, _)) => failure(&format!("{step}: {error}")),
            None => error,
        }
    }

    fn enter_room(&self) -> io::Result<()> {
        self.room.as_ref().map_or(Ok(()), |it| it.enter(Some(self.ruleset.as_fd())))
    }
}

fn failure(why: &str) -> io::Error {
    io::Error::other(NoWalls(why.trim_end_matches('.').to_owned()))
}

/// A dump of memory would be written by the kernel, which knows no walls.
fn no_core() -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    Ok(rustix::process::setrlimit(Resource::Core, none)?)
}

/// Without making anything: there is no memory to be had between fork and exec.
fn reason(error: &seccompiler::Error) -> io::Error {
    let number = match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
            error.raw_os_error()
        }
        _ => None,
    };
    io::Error::from_raw_os_error(number.unwrap_or(libc::EINVAL))
}

pub(super) fn probe() -> Capabilities {
    let (landlock_abi, seccomp) = (sys::landlock_abi(), sys::has_seccomp());
    let mut missing = Vec::new();
    let files = match landlock_abi {
        None => Some(
            "Landlock is not there (Linux 5.19 or newer, with `landlock` in \
             /sys/kernel/security/lsm): commands cannot be kept to folders.",
        ),
        Some(1) => Some(
            "Landlock is too old (Linux 5.19 or newer is needed): builds would not work in the \
             sandbox.",
        ),
        Some(2) => Some(
            "Landlock is older than Linux 6.2: a command can empty files outside of its folders.",
        ),
        Some(3..6) => Some(
            "Landlock is older than Linux 6.12: a command can send signals to the user's other \
             programs and reach their abstract sockets.",
        ),
        Some(_) => None,
    };
    missing.extend(files.map(str::to_owned));
    if !seccomp {
        let text = "seccomp is not there: commands cannot be kept from the network.";
        missing.push(text.to_owned());
    }
    Capabilities { landlock_abi, seccomp, seatbelt: false, missing }
}

/// Tries it, in children that never become a command.
pub(super) fn probe_rooms() -> Rooms {
    let tries = |network, rooms| {
        let profile = Profile { network, ..Profile::default() };
        let room = Room::plan(&profile, &[], 0, rooms);
        comes_out(move || room.enter(None))
    };
    let mounts = tries(Network::Off, Rooms { mounts: true, network: false });
    let network = mounts && tries(Network::Loopback, Rooms { mounts: true, network: true });
    Rooms { mounts, network }
}

/// Whether something works in a child.
#[expect(unsafe_code, reason = "pre_exec: the closure makes system calls and allocates nothing")]
#[expect(clippy::disallowed_methods, reason = "nothing is started: the child ends before that")]
fn comes_out(work: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> bool {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("/");
    // SAFETY: runs between fork and exec; `work` makes system calls only.
    unsafe {
        command.pre_exec(move || {
            work()?;
            Err(io::Error::from_raw_os_error(libc::ECANCELED))
        });
    }
    command.spawn().is_err_and(|error| error.raw_os_error() == Some(libc::ECANCELED))
}
