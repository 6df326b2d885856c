//! Reads the state of the entry at a path. Blocks.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA256};

use turnwright_types::file_change::FileState;
use turnwright_types::ids::hex;
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
    let mut file = nofollow::open_pinned_file(path, false)?;
    // Checked again on the open file, because the entry at the path may have been replaced.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(FileState::Unknown { why: "it is not a regular file".to_owned() });
    }
    let mut context = Context::new(&SHA256);
    let mut size = 0;
    let mut chunk = vec![0; 64 * 1024];
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

#[cfg(unix)]
fn mode_of(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o7777
}

#[cfg(not(unix))]
fn mode_of(metadata: &fs::Metadata) -> u32 {
    if metadata.permissions().readonly() { 0o444 } else { 0o644 }
}
