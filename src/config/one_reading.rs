//! Reads each file of the settings once for all questions of one moment. Opening a session asks some
//! twenty questions, and all get their answers from the same state of the files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use turnwright_types::private_file;

thread_local! {
    /// The text of each file that was read since the current moment began, or the number of the error if there
    /// is no text.
    static FILES: RefCell<Option<HashMap<PathBuf, Result<String, i32>>>> = RefCell::default();
}

/// Ends the moment also if the work panics.
struct Moment;

impl Drop for Moment {
    fn drop(&mut self) {
        FILES.take();
    }
}

/// Does something on this thread for which a file of the settings is read at most once.
pub(crate) fn with_one_reading<T>(work: impl FnOnce() -> T) -> T {
    if FILES.with_borrow(Option::is_some) {
        return work();
    }
    FILES.set(Some(HashMap::new()));
    let _moment = Moment;
    work()
}

/// Like [`private_file::read`], unless the file was already read in this moment.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<String> {
    let known = FILES.with_borrow(|files| files.as_ref()?.get(path).cloned());
    if let Some(known) = known {
        return known.map_err(io::Error::from_raw_os_error);
    }
    let read = private_file::read(path, limit);
    let known = match &read {
        Ok(text) => Some(Ok(text.clone())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => error.raw_os_error().map(Err),
        Err(_) => None,
    };
    if let Some(known) = known {
        FILES.with_borrow_mut(|files| files.as_mut()?.insert(path.to_owned(), known));
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_in_a_moment_and_anew_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let none = folder.path().join("none");
        let write = |text: &str| private_file::write(&path, text.as_bytes()).unwrap();
        let text = || read(&path, 100).unwrap();
        write("first");
        with_one_reading(|| {
            assert_eq!(text(), "first");
            assert_eq!(read(&none, 100).unwrap_err().kind(), io::ErrorKind::NotFound);
            write("second");
            private_file::write(&none, b"now").unwrap();
            assert_eq!(with_one_reading(text), "first");
            assert_eq!(read(&none, 100).unwrap_err().kind(), io::ErrorKind::NotFound);
        });
        assert_eq!((text().as_str(), read(&none, 100).unwrap().as_str()), ("second", "now"));
    }
}
