//! Tests of writing files on Linux, where a test can make all kinds of them.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

async fn write(path: &Path, bytes: Vec<u8>) -> Result<(), FileError> {
    super::write(path, WritePrecondition::Any, bytes).await
}

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn new() -> TestFolder {
        TestFolder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        crate::real_path(self.0.path()).unwrap().join(name)
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, "the old text").unwrap();
        path
    }
}

#[tokio::test]
async fn a_file_is_replaced_in_one_step_and_keeps_mode_and_attributes() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let folder = TestFolder::new();
    let path = folder.file("f");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    let has_attributes = setxattr(&path, "user.note", b"kept", XattrFlags::empty()).is_ok();
    let mut reader = File::open(&path).unwrap();
    let before = fs::metadata(&path).unwrap();
    write(&path, b"new".to_vec()).await.unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_ne!(before.ino(), after.ino());
    assert_eq!((before.mode(), before.uid()), (after.mode(), after.uid()));
    assert_eq!(io::read_to_string(&mut reader).unwrap(), "the old text");
    if has_attributes {
        let mut value = [0; 16];
        assert_eq!(getxattr(&path, "user.note", &mut value), Ok(4));
    }
}

#[test]
fn a_file_changed_by_another_process_meanwhile_is_not_replaced() {
    let folder = TestFolder::new();
    let path = folder.file("f");
    let folder = folder.path("");
    let old = fs::metadata(&path).unwrap();
    fs::write(&path, "the work of somebody else").unwrap();
    for old in [None, Some(&old)] {
        assert!(!replace_atomically(&path, b"ours", old).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "the work of somebody else");
    }
    let old = fs::metadata(&path).unwrap();
    assert!(replace_atomically(&path, b"ours", Some(&old)).unwrap());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[tokio::test]
async fn what_has_changed_at_the_last_moment_is_not_replaced() {
    let folder = TestFolder::new();
    let path = folder.file("f");
    for before in [WritePrecondition::Absent, WritePrecondition::Bytes("an old text".into())] {
        let result = super::write(&path, before, b"new".to_vec()).await;
        assert_eq!(result, Err(FileError::Stale));
        assert_eq!(fs::read_to_string(&path).unwrap(), "the old text");
    }
    super::write(&path, WritePrecondition::Bytes("the old text".into()), b"new".to_vec())
        .await
        .unwrap();
    super::write(&folder.path("g"), WritePrecondition::Absent, b"new".to_vec()).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

#[tokio::test]
async fn only_one_name_of_a_file_gets_the_new_content() {
    let folder = TestFolder::new();
    let path = folder.file("f");
    let other = folder.path("other");
    fs::hard_link(&path, &other).unwrap();
    for bytes in ["a text that is longer than the old one", "short", ""] {
        write(&path, bytes.into()).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), bytes);
        assert_eq!(fs::read_to_string(&other).unwrap(), "the old text");
    }
    assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 2);
}

#[test]
fn what_an_editor_writes_in_place_does_not_change_other_names() {
    let folder = TestFolder::new();
    let path = folder.file("f");
    let other = folder.path("other");
    fs::hard_link(&path, &other).unwrap();
    for place in [path.clone(), folder.path("none"), folder.path("")] {
        separate_from_other_names(&place).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "the old text");
    fs::write(&path, "new").unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "the old text");
}

#[tokio::test]
async fn a_read_only_file_and_what_is_no_file_are_left_alone() {
    let folder = TestFolder::new();
    let path = folder.file("f");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(write(&path, b"x".to_vec()).await, Err(FileError::ReadOnly));
    assert_eq!(fs::read_to_string(&path).unwrap(), "the old text");
    std::os::unix::fs::symlink(&path, folder.path("link")).unwrap();
    assert_eq!(write(&folder.path("link"), b"x".to_vec()).await, Err(FileError::Moved));
    assert_eq!(write(&folder.path(""), b"x".to_vec()).await, Err(FileError::Folder));
}

#[tokio::test]
async fn an_error_does_not_name_the_descriptor_of_the_folder() {
    let folder = TestFolder::new();
    let long = "x".repeat(300);
    let paths = [Path::new("/sys/turnwright").to_owned(), folder.path(&long)];
    for path in paths {
        let error = write(&path, b"x".to_vec()).await.unwrap_err().to_string();
        assert!(!error.contains("/proc"), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_replaced_is_written_in_place() {
    let table = [
        (rustix::io::Errno::XDEV, true),
        (rustix::io::Errno::BUSY, true),
        (rustix::io::Errno::ACCESS, true),
        (rustix::io::Errno::ROFS, true),
        (rustix::io::Errno::NOSPC, false),
        (rustix::io::Errno::LOOP, false),
    ];
    for (errno, expected) in table {
        assert_eq!(must_write_in_place(&errno.into()), expected, "{errno}");
    }
    let folder = TestFolder::new();
    let path = folder.file("f");
    write_in_place(&path, b"new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn a_full_disk_leaves_the_old_text_intact() {
    let folder = TestFolder::new();
    let path = folder.file("f");
    let file = File::options().write(true).open(&path).unwrap();
    assert!(reserve_space(&file, usize::MAX >> 1).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "the old text");
}
