//! The powers of root that no command needs. They are taken away for good, so that what a command
//! executes as root does not have them either.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

use super::sys;

/// What root may keep: the files and processes of its own machine, within the other walls.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all powers but those. System calls only.
pub(super) fn drop_powers(is_root: bool) -> io::Result<()> {
    let before = rustix::thread::capabilities(None)?;
    if before.permitted.contains(CapabilitySet::SETPCAP) {
        forget()?;
    }
    // Whoever is not root has some only within a namespace of its own.
    let kept = if is_root { KEPT } else { CapabilitySet::empty() };
    let sets = CapabilitySets {
        effective: before.effective & kept,
        permitted: before.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    // With `no_new_privs` nothing that is executed gets more than is permitted here.
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

fn forget() -> io::Result<()> {
    for number in 0..u64::BITS {
        let is_kept = KEPT.bits() & (1 << number) != 0;
        if !is_kept {
            match sys::forget_capability(number.cast_signed()) {
                Some(result) => result?,
                None => break,
            }
        }
    }
    Ok(())
}
