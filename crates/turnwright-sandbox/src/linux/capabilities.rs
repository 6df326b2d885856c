//! Drops the Linux capabilities that no command needs. They also leave the bounding set, so that no
//! program that the command executes as root gets them back.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::mount_namespace::is_root;

/// The capabilities that root keeps: access to files and processes, which the rest of the sandbox restricts.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all capabilities but those that the program keeps. Makes only system calls.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let before = rustix::thread::capabilities(None)?;
    if before.permitted.contains(CapabilitySet::SETPCAP) {
        drop_from_bounding_set()?;
    }
    // With `no_new_privs`, no executed program gets more than is permitted here.
    keep_only(before, kept_by_program())
}

/// The capabilities that the sandboxed program keeps: none unless it is root, because other users have capabilities
/// only in their own user namespace.
fn kept_by_program() -> CapabilitySet {
    if is_root() { KEPT } else { CapabilitySet::empty() }
}

fn keep_only(before: CapabilitySets, kept: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: before.effective & kept,
        permitted: before.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Drops all capabilities but the program's and the one to inspect other processes. The supervisor, which makes
/// connections on behalf of the program, needs that one. Makes only system calls.
pub(super) fn keep_tracing() -> io::Result<()> {
    let kept = kept_by_program() | CapabilitySet::SYS_PTRACE;
    keep_only(rustix::thread::capabilities(None)?, kept)
}

/// Returns true if this process may inspect all processes of its namespace.
pub(super) fn can_trace() -> io::Result<bool> {
    Ok(rustix::thread::capabilities(None)?.effective.contains(CapabilitySet::SYS_PTRACE))
}

fn drop_from_bounding_set() -> io::Result<()> {
    let all = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
    for capability in all.filter(|capability| !KEPT.contains(*capability)) {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The kernel knows no capability of this number, so there are no more.
            Err(Errno::INVAL) => break,
            dropped => dropped?,
        }
    }
    Ok(())
}
