//! What there is at a path now. For a thread that may wait.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA256};

use turnwright_types::ids::hex;
use turnwright_workspace::pinned;
use turnwright_types::file_change::FileState;

/// What there is at a path that was reached without a link.
pub fn state(path: &Path) -> FileState {
    let Some((folder, name)) = path.parent().zip(path.file_name()) else {
        return FileState::Unknown { why: "it is no file".to_owned() };
    };
    let found = pinned::folder(folder).and_then(|(_held, folder)| found(&folder.join(name)));
    found.unwrap_or_else(|error| match error.kind() {
        // What is seen through a link is another file.
        _ if pinned::is_link(&error) => FileState::Absent,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileState::Absent,
        _ => FileState::Unknown { why: error.to_string() },
    })
}

/// The same, through a folder that is held.
pub(super) fn found(path: &Path) -> io::Result<FileState> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = metadata.file_type();
    if kind.is_symlink() {
        return Ok(FileState::Link { target: fs::read_link(path)? });
    }
    if kind.is_dir() {
        return Ok(FileState::Folder { mode: mode_of(&metadata) });
    }
    if !kind.is_file() {
        return Ok(FileState::Unknown { why: "it is no regular file".to_owned() });
    }
    let mut file = open(path)?;
    // Asked again of the open file: what the name means may have changed.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(FileState::Unknown { why: "it is no regular file".to_owned() });
    }
    let (mut context, mut size, mut chunk) = (Context::new(&SHA256), 0, vec![0; 64 * 1024]);
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        context.update(&chunk[..count]);
        size += count as u64;
    }
    let hash = hex(context.finish().as_ref());
    Ok(FileState::File { hash, size, mode: mode_of(&metadata), is_kept: false })
}

/// Never follows a link, never blocks on a FIFO.
#[cfg(unix)]
pub(super) fn open(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits();
    fs::File::options().read(true).custom_flags(flags.cast_signed()).open(path)
}

#[cfg(not(unix))]
pub(super) fn open(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

#[cfg(unix)]
fn mode_of(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o7777
}

#[cfg(not(unix))]
fn mode_of(metadata: &fs::Metadata) -> u32 {
    if metadata.permissions().readonly() { 0o444 } else { 0o644 }
}
