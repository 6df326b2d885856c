//! The identity that all names (hard links) of a file share.

use std::path::Path;

/// The device and the number of a file on it, which all names of the file share.
pub type FileId = (u64, u64);

/// The identity of the regular file at a path, and its number of names; one if the file system does not know it.
/// Does not follow a link at the end of the path.
#[cfg(unix)]
pub fn file_id(path: &Path) -> Option<(FileId, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(((metadata.dev(), metadata.ino()), metadata.nlink().max(1)))
}

#[cfg(windows)]
#[expect(unsafe_code, reason = "a call of the system whose pointer lives as long as the call")]
pub fn file_id(path: &Path) -> Option<(FileId, u64)> {
    use std::fs::OpenOptions;
    use std::os::windows::fs::OpenOptionsExt;
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::Storage::FileSystem::{
        BY_HANDLE_FILE_INFORMATION, FILE_FLAG_OPEN_REPARSE_POINT, GetFileInformationByHandle,
    };
    // Without access to its content, a file can be opened that another program has locked.
    let mut options = OpenOptions::new();
    let file = options.access_mode(0).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path).ok()?;
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and the call fills `found`.
    let is_known = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) } != 0;
    let index = u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow);
    let id = (u64::from(found.dwVolumeSerialNumber), index);
    is_known.then(|| (id, u64::from(found.nNumberOfLinks.max(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_a_file_have_its_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "other"] {
            std::fs::File::create(path(name)).unwrap();
        }
        std::fs::hard_link(path("a"), path("b")).unwrap();
        let (id, names) = file_id(&path("a")).unwrap();
        assert_eq!((names, file_id(&path("b"))), (2, Some((id, 2))));
        let (other, names) = file_id(&path("other")).unwrap();
        assert_eq!((names, other == id), (1, false));
        assert_eq!((file_id(folder.path()), file_id(&path("missing"))), (None, None));
    }
}
