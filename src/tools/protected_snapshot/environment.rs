//! Interpreters in virtual environments of Python, which are nearly always links to one of the system.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use turnwright_policy::permission::ProtectedPaths;
use turnwright_workspace::real_path;

/// Whether a path has the name of an interpreter.
pub(super) fn is_python(path: &Path) -> bool {
    path.file_name().is_some_and(is_python_name)
}

/// Whether a link to this target leads to an interpreter that no command can have written, directly or by another
/// link beside it.
pub(super) fn leads_to_python(target: &Path, writable: &[PathBuf]) -> bool {
    if target.parent() == Some(Path::new("")) {
        return is_python(target);
    }
    let real = target.is_absolute().then(|| real_path(target).ok()).flatten();
    real.is_some_and(|it| {
        let is_writable = writable.iter().any(|folder| it.starts_with(folder));
        !is_writable && is_python(target) && is_python(&it) && it.is_file()
    })
}

/// Whether this is the file of an environment whose programs are still there.
pub(super) fn is_without_file(file: &Path) -> bool {
    let programs = file.parent().into_iter().flat_map(ProtectedPaths::environment_programs);
    ProtectedPaths::is_environment_file(file) && programs.into_iter().any(|it| it.is_dir())
}

fn is_python_name(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"python") || name.starts_with(b"pypy")
}
