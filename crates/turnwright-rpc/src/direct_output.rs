//! Writes without ever waiting. This saves a short message a thread switch.

use std::fs::File;

/// Larger writes are left to the writer thread, which can copy them while other work goes on.
#[cfg(target_os = "linux")]
const MAX_BYTES: usize = 16 * 1024;

/// An output whose writes never wait. Only Linux has such writes; elsewhere there is no value of this type.
pub(super) struct DirectOutput(
    #[cfg(target_os = "linux")] File,
    #[cfg(not(target_os = "linux"))] std::convert::Infallible,
);

impl DirectOutput {
    #[cfg(target_os = "linux")]
    pub(super) fn new(output: &File) -> Option<DirectOutput> {
        Some(DirectOutput(output.try_clone().ok()?))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn new(_: &File) -> Option<DirectOutput> {
        None
    }

    /// Writes as much as fits without waiting, and returns how much. Everything else, and every error,
    /// is left to the writer thread. Linux has such writes to sockets, and since 6.4 to pipes.
    #[cfg(target_os = "linux")]
    pub(super) fn write(&self, bytes: &[u8]) -> usize {
        use rustix::io::{ReadWriteFlags, pwritev2};
        if bytes.len() > MAX_BYTES {
            return 0;
        }
        // This offset stands for a plain write.
        let slices = [std::io::IoSlice::new(bytes)];
        pwritev2(&self.0, &slices, u64::MAX, ReadWriteFlags::NOWAIT).unwrap_or(0)
    }
    #[cfg(not(target_os = "linux"))]
    pub(super) fn write(&self, _: &[u8]) -> usize {
        match self.0 {}
    }
}
