//! The space that commands take in their temporary folder. A command that would fill the disk with it is
//! stopped before.

use std::fs::{self, Metadata};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

/// How often the free space is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most entries that are counted.
const MAX_ENTRIES: usize = 200_000;

/// How much a temporary folder may hold, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceLimits {
    /// The most, however much is free.
    pub(super) most: u64,
    /// The space to leave free on its disk.
    pub(super) reserve: u64,
    /// The folder is measured whenever its disk has lost as much. If it holds less, it is not what
    /// fills the disk.
    pub(super) step: u64,
}

impl Default for SpaceLimits {
    fn default() -> SpaceLimits {
        SpaceLimits { most: 8 << 30, reserve: 1 << 30, step: 256 << 20 }
    }
}

/// Waits until folders on one disk exceed their common limit, and returns their size. Waits for ever without a folder,
/// or if the free space is unknown.
pub(super) async fn wait_until_full(folders: Vec<PathBuf>, limits: SpaceLimits) -> u64 {
    if folders.is_empty() {
        return std::future::pending().await;
    }
    let folders: Arc<[PathBuf]> = folders.into();
    // The free space when the folder was measured last.
    let mut mark = None;
    loop {
        let places = Arc::clone(&folders);
        let looking = spawn_blocking(move || look(&places, limits, mark));
        match looking.await {
            Ok(ControlFlow::Break(bytes)) => return bytes,
            Ok(ControlFlow::Continue(free)) => mark = free,
            // The process is ending.
            Err(_) => std::future::pending().await,
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Looks at the free space. Breaks with the bytes that the folders hold if that is too much, and otherwise continues
/// with the new mark.
fn look(
    folders: &[PathBuf],
    limits: SpaceLimits,
    mark: Option<u64>,
) -> ControlFlow<u64, Option<u64>> {
    let Some(free) = folders.first().and_then(|folder| free_bytes(folder)) else {
        return ControlFlow::Continue(mark);
    };
    let Some(before) = mark.filter(|mark| *mark > free) else {
        return ControlFlow::Continue(Some(free));
    };
    if before - free < limits.step {
        return ControlFlow::Continue(mark);
    }
    let held = size_below(folders);
    if held > limits.most || held > limits.step && free < limits.reserve {
        return ControlFlow::Break(held);
    }
    ControlFlow::Continue(Some(free))
}

/// The bytes that the files below folders take on the disk.
fn size_below(folders: &[PathBuf]) -> u64 {
    let mut open = folders.to_vec();
    let mut size = 0;
    let mut entries = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                return size;
            }
            // The metadata of a link is its own.
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => open.push(entry.path()),
                Ok(metadata) => size += size_on_disk(&metadata),
                Err(_) => {}
            }
        }
    }
    size
}

#[cfg(unix)]
fn size_on_disk(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn size_on_disk(metadata: &Metadata) -> u64 {
    metadata.len()
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_the_folder_counts() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("in");
        let outside = folder.path().join("out");
        fs::create_dir_all(inside.join("deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(inside.join("deep/a"), vec![1; 300_000]).unwrap();
        fs::write(outside.join("b"), vec![1; 3_000_000]).unwrap();
        fs::File::create(inside.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let size = size_below(std::slice::from_ref(&inside));
        assert!((300_000..400_000).contains(&size), "{size}");
        let limits = |most, reserve| SpaceLimits { most, reserve, step: 200_000 };
        let is_full = |limits| {
            let before = free_bytes(&inside).map(|free| free + (1 << 30));
            look(std::slice::from_ref(&inside), limits, before).is_break()
        };
        assert!(is_full(limits(250_000, 0)));
        assert!(is_full(limits(u64::MAX, u64::MAX)));
        assert!(!is_full(limits(u64::MAX, 0)));
        assert!(!is_full(SpaceLimits { step: 500_000, ..limits(u64::MAX, u64::MAX) }));
    }
}
