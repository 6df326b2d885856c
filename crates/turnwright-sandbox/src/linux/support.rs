//! Finds out which parts of the sandbox this system has. Namespaces and overlays are tried out in child processes that
//! never become a command.

use std::fs;
use std::io;
use std::path::Path;

use super::super::{NamespaceSupport, PrivateLayer, SandboxProfile, SandboxSupport};
use super::mount_namespace::MountNamespace;
use super::private_layer::CacheOverlay;
use super::session_network::SessionNetwork;
use super::{can_landlock_close_sockets, socket_supervisor, syscalls};

pub(in super::super) fn probe() -> SandboxSupport {
    // Termux and hardened services have filters that kill whoever makes a system call that they do not know.
    let is_killed = syscalls::has_filter() && {
        let asked = syscalls::succeeds_in_fork(|| {
            syscalls::landlock_abi();
            syscalls::seccomp_can_return_errno();
            Ok(())
        });
        matches!(asked, Ok(Some(false)))
    };
    let landlock_abi = if is_killed { None } else { syscalls::landlock_abi() };
    let seccomp = !is_killed && syscalls::seccomp_can_return_errno();
    let files = match landlock_abi {
        None if is_killed => Some(
            "A filter of system calls ends programs that ask for Landlock or seccomp (as in Termux, or with \
             `SystemCallFilter` of systemd): commands cannot be confined to folders.",
        ),
        None => Some(
            "Landlock is not available (it needs Linux 5.19 or newer, with `landlock` in \
             /sys/kernel/security/lsm): commands cannot be confined to folders.",
        ),
        Some(1) => Some(
            "Landlock is too old (it needs Linux 5.19 or newer): builds would not work in the \
             sandbox.",
        ),
        Some(_) => None,
    };
    let no_seccomp = "seccomp is not available: commands cannot be kept off the network.";
    let texts = files.into_iter().chain((!seccomp).then_some(no_seccomp));
    let missing = texts.map(str::to_owned).collect();
    SandboxSupport { landlock_abi, seccomp, seatbelt: false, missing }
}

/// Tries out the namespaces in child processes that never become a command.
pub(in super::super) fn probe_namespaces() -> io::Result<NamespaceSupport> {
    let supervision = can_enter_namespaces(true, true)?;
    let mounts = supervision || can_enter_namespaces(false, false)?;
    Ok(NamespaceSupport {
        mounts,
        network: mounts && is_possible(SessionNetwork::create().map(drop))?,
        processes: supervision || mounts && can_enter_namespaces(true, false)?,
        sockets: supervision || can_landlock_close_sockets(),
        supervision,
    })
}

fn can_enter_namespaces(has_processes: bool, is_supervised: bool) -> io::Result<bool> {
    let mut mount_namespace = MountNamespace::plan(&SandboxProfile::default(), &[], None)?;
    if has_processes {
        mount_namespace.isolate_processes();
    }
    is_possible(run_in_child(move || {
        mount_namespace.enter(None)?;
        if is_supervised { socket_supervisor::try_out() } else { Ok(()) }
    }))
}

/// Returns true if what was tried has succeeded.
///
/// # Errors
/// If it has failed because the system was short of processes, memory or open files, which may change any moment.
fn is_possible(tried: io::Result<()>) -> io::Result<bool> {
    match tried.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(libc::EAGAIN | libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => tried.and(Ok(true)),
        other => Ok(other.is_ok()),
    }
}

/// Tries out an overlay in a folder, in a child process that never becomes a command.
pub(in super::super) fn can_layer_caches(folder: &Path) -> io::Result<bool> {
    // Others may probe at the same time.
    let thread = std::thread::current().id();
    let place = folder.join(format!("probe-{}-{thread:?}", std::process::id()));
    let cache = PrivateLayer { path: place.join("cache"), private: place.join("private") };
    let prepared = fs::create_dir_all(&cache.path).and_then(|()| CacheOverlay::prepare(&cache));
    // The disk may have space again later.
    let works = prepared.and_then(|overlay| {
        let namespace = MountNamespace::plan(&SandboxProfile::default(), &[], None)?;
        is_possible(run_in_child(move || {
            namespace.join()?;
            overlay.open().map(drop)
        }))
    });
    // The kernel's folder in there can be removed, but not opened.
    fs::remove_dir(cache.private.join("work-0/work")).ok();
    fs::remove_dir_all(&place).ok();
    works
}

/// Runs `work` in a child process, which ends with it.
#[expect(unsafe_code, reason = "pre_exec: the closure makes system calls and allocates nothing")]
#[expect(
    clippy::disallowed_methods,
    reason = "no program is started: the child ends before `exec`"
)]
pub(super) fn run_in_child(
    work: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("/");
    // SAFETY: runs between fork and exec; `work` makes system calls only.
    unsafe {
        command.pre_exec(move || {
            work()?;
            Err(io::Error::from_raw_os_error(libc::ECANCELED))
        });
    }
    // The error is always there, because `/` is no program.
    let error = command.spawn().err();
    error.filter(|error| error.raw_os_error() != Some(libc::ECANCELED)).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_does_not_tell_what_the_system_can_do() {
        let try_out =
            |number| is_possible(run_in_child(move || Err(io::Error::from_raw_os_error(number))));
        for number in [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE] {
            assert_eq!(try_out(number).unwrap_err().raw_os_error(), Some(number));
        }
        // The last one is the answer of a system that allows no namespaces.
        for number in [libc::EPERM, libc::EINVAL, libc::ENOSPC] {
            assert!(!try_out(number).unwrap());
        }
        assert!(is_possible(run_in_child(|| Ok(()))).unwrap());
    }
}
