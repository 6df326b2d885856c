//! Interpreters in virtual environments of Python, which are nearly always links to one of the system.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use turnwright_policy::permission::ProtectedPaths;
use turnwright_workspace::{nofollow, real_path};

/// Of an environment with more packages or versions of Python, or longer lists of files, not all is read.
const MAX_PACKAGES: usize = 4_096;
const MAX_VERSIONS: usize = 16;
const MAX_LIST_BYTES: u64 = 64 << 20;
const MAX_PROGRAMS: usize = 10_000;

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

/// The programs of an environment that its packages name as their files. Those that belong to the environment itself
/// (`activate`, `python`) are none of them, whatever a package says. Blocks: not for the runtime's thread.
pub(in super::super) fn installed_programs(environment: &Path) -> Vec<PathBuf> {
    let mut programs = Vec::new();
    let mut bytes_left = MAX_LIST_BYTES;
    for package in packages(environment).into_iter().take(MAX_PACKAGES) {
        let lists = ["RECORD", "installed-files.txt"].map(|name| package.join(name));
        let list = lists.iter().find_map(|path| read_list(path, bytes_left)).unwrap_or_default();
        bytes_left -= list.len() as u64;
        let named = list.lines().filter_map(program_of_package);
        let room = MAX_PROGRAMS - programs.len();
        programs.extend(named.take(room).map(|path| environment.join(path)));
    }
    programs
}

/// The folders in which packages of an environment describe themselves.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let versions = entries(&environment.join("lib")).map(|entry| entry.path());
    let folders = versions.take(MAX_VERSIONS).chain([environment.join("Lib")]);
    let packages = folders.map(|folder| folder.join("site-packages"));
    let described = packages.flat_map(|folder| entries(&folder).map(|entry| entry.path()));
    let is_description = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "dist-info" || end == "egg-info")
    };
    described.filter(is_description).collect()
}

fn read_list(path: &Path, limit: u64) -> Option<String> {
    let file = nofollow::open_file(&real_path(path).ok()?).ok()?;
    let mut text = String::new();
    file.take(limit).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The program that a line of a package's list of files names, relative to the environment: `../../../bin/ruff,…`.
fn program_of_package(line: &str) -> Option<&str> {
    let path = line.split(',').next()?.trim();
    let path = path.trim_start_matches("../").trim_start_matches("..\\");
    let (folder, program) = path.split_once(['/', '\\'])?;
    let is_program = ["bin", "Scripts"].contains(&folder) && !program.contains(['/', '\\']);
    let is_of_environment = program.starts_with("activate")
        || program.starts_with("deactivate")
        || is_interpreter(program);
    (is_program && !is_of_environment).then_some(path)
}

/// Returns true for `python`, `python3.12`, `pypy3` and `pythonw.exe`; not for `python-argcomplete`.
fn is_interpreter(program: &str) -> bool {
    let program = program.strip_suffix(".exe").unwrap_or(program);
    let version = ["python", "pypy"].iter().find_map(|name| program.strip_prefix(name));
    version.is_some_and(|version| {
        version.bytes().all(|byte| byte.is_ascii_digit() || b".w".contains(&byte))
    })
}

fn is_python_name(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"python") || name.starts_with(b"pypy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_names_its_programs_and_none_of_the_environment() {
        for (line, expected) in [
            ("../../../bin/ruff,sha256=abc,12", Some("bin/ruff")),
            ("../../../../bin/black", Some("bin/black")),
            ("..\\..\\Scripts\\ruff.exe,,", Some("Scripts\\ruff.exe")),
            ("../../../bin/python-argcomplete,,", Some("bin/python-argcomplete")),
            ("../../../bin/activate,,", None),
            ("../../../bin/activate.fish,,", None),
            ("../../../bin/python3.12,,", None),
            ("../../../bin/../activate,,", None),
            ("../../../pyvenv.cfg,,", None),
            ("../../../share/man/x,,", None),
            ("ruff/__init__.py,sha256=abc,1", None),
            ("/bin/ls,,", None),
            ("", None),
        ] {
            assert_eq!(program_of_package(line), expected, "{line}");
        }
    }
}
