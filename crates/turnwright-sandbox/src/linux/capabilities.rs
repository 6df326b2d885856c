//! Drops the Linux capabilities that no command needs. They also leave the bounding set, so that no
//! program that the command executes as root gets them back.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

use super::syscalls;

/// What root keeps: access to files and processes, which the rest of the sandbox restricts.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all other capabilities. Makes system calls only.
pub(super) fn drop_capabilities(is_root: bool) -> io::Result<()> {
    let before = rustix::thread::capabilities(None)?;
    if before.permitted.contains(CapabilitySet::SETPCAP) {
        drop_from_bounding_set()?;
    }
    // Without root, a process has capabilities only in its own user namespace.
    let kept = if is_root { KEPT } else { CapabilitySet::empty() };
    let sets = CapabilitySets {
        effective: before.effective & kept,
        permitted: before.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    // With `no_new_privs`, no executed program gets more than is permitted here.
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

fn drop_from_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        let is_kept = KEPT.bits() & (1 << number) != 0;
        if !is_kept {
            match syscalls::drop_bounding_capability(number.cast_signed()) {
                Some(result) => result?,
                None => break,
            }
        }
    }
    Ok(())
}
