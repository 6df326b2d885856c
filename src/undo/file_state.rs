//! Reads the state of the entry at a path. Blocks.

use std::fs;
use std::io;
use std::path::Path;

use turnwright_types::file_change::FileState;
use turnwright_types::hash::{hex, sha256_of_reader};
use turnwright_types::io_error_text::io_error_text;
use turnwright_workspace::nofollow;

/// The state at a path. Links in its parent folders are not followed.
pub(crate) fn file_state(path: &Path) -> FileState {
    let Some((folder, name)) = path.parent().zip(path.file_name()) else {
        return FileState::Unknown { why: "it is not a file".to_owned() };
    };
    let found =
        nofollow::open_folder(folder).and_then(|(_held, folder)| state_of(&folder.join(name)));
    found.unwrap_or_else(|error| match error.kind() {
        // A path through a link is a different file.
        _ if nofollow::is_link_error(&error) => FileState::Absent,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileState::Absent,
        _ => FileState::Unknown { why: io_error_text(&error) },
    })
}

/// The same for a path whose parent folder is pinned.
pub(super) fn state_of(path: &Path) -> io::Result<FileState> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = metadata.file_type();
    if kind.is_symlink() {
        return Ok(FileState::Link { target: fs::read_link(path)? });
    }
    if kind.is_dir() {
        return Ok(FileState::Folder { mode: mode_of(&metadata) });
    }
    if !kind.is_file() {
        return Ok(FileState::Unknown { why: "it is not a regular file".to_owned() });
    }
    let file = nofollow::open_pinned_file(path, false)?;
    // Checked again on the open file, because the entry at the path may have been replaced.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(FileState::Unknown { why: "it is not a regular file".to_owned() });
    }
    let (hash, size) = sha256_of_reader(file)?;
    Ok(FileState::File { hash: hex(&hash), size, mode: mode_of(&metadata), is_kept: false })
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
