//! The parts of virtual environments of Python, and of conda, that shells and editors run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{ENVIRONMENT_FILE, ENVIRONMENT_PROGRAMS, part, parts, without_end};

/// The folder that makes its folder an environment of conda.
const CONDA_FOLDER: &str = "conda-meta";

/// Where an environment of conda has scripts that shells run when it is activated and left.
const CONDA_SCRIPTS: [&str; 2] = ["etc/conda/activate.d", "etc/conda/deactivate.d"];

/// Usual names of environments besides `.venv`, in lower case. Others are told from their file alone.
const ENVIRONMENTS: &[&str] = &["venv", "env", "virtualenv", ".conda"];

/// Returns true if a part of a path may be one that is looked for in environments. All protected paths are checked, and
/// most are rejected here.
pub(super) fn may_be_of_environment(name: &OsStr) -> bool {
    let name = without_end(name);
    !name.is_ascii()
        || ENVIRONMENT_PROGRAMS
            .iter()
            .chain(&[ENVIRONMENT_FILE])
            .any(|file| file.as_bytes().eq_ignore_ascii_case(name))
}

pub(super) fn is_environment_file_name(name: &OsStr) -> bool {
    part(name) == ENVIRONMENT_FILE
}

/// Returns true if a folder is named `.venv`.
pub(super) fn is_venv(folder: &Path) -> bool {
    part(folder.file_name().unwrap_or_default()) == ".venv"
}

/// Returns true for `.conda` and `.pixi/envs/NAME`.
pub(super) fn is_of_conda(folder: &Path) -> bool {
    let parts = parts(folder);
    let last_parts: Vec<_> = parts.iter().rev().take(3).map(String::as_str).collect();
    matches!(last_parts.as_slice(), [".conda", ..] | [_, "envs", ".pixi"])
}

/// Returns true for the programs of a folder that is an environment by what is in it, and for the scripts with which
/// shells activate an environment of conda.
pub(super) fn is_in_known_environment(path: &Path, root: Option<&PathBuf>) -> bool {
    let is_there = |folder: &Path, name: &str| folder.join(name).symlink_metadata().is_ok();
    let mut below = path.ancestors().take_while(|folder| root.is_some_and(|root| folder != root));
    below.any(|folder| {
        let name = folder.file_name().unwrap_or_default();
        if !may_be_of_environment(name) && !name.to_string_lossy().ends_with("activate.d") {
            return false;
        }
        CONDA_SCRIPTS.iter().any(|scripts| folder.ends_with(scripts))
            || folder.parent().is_some_and(|environment| {
                is_there(environment, ENVIRONMENT_FILE)
                    || is_there(environment, CONDA_FOLDER)
                    || is_of_conda(environment)
            })
    })
}

/// Returns true if a path is, or may be, a part of a virtual environment that programs of the user run: its file, its
/// programs if it has one of the usual names, and in any folder those that start it.
pub(super) fn is_in_environment(parts: &[String]) -> bool {
    let mut places =
        (1..parts.len()).filter(|at| ENVIRONMENT_PROGRAMS.contains(&parts[*at].as_str()));
    parts.last().is_some_and(|part| part == ENVIRONMENT_FILE)
        || places.any(|at| {
            ENVIRONMENTS.contains(&parts[at - 1].as_str())
                || parts.get(at + 1).is_some_and(|part| starts_environment(part))
        })
}

fn starts_environment(name: &str) -> bool {
    let (stem, end) = name.split_once('.').unwrap_or((name, ""));
    let is_script = ["", "sh", "fish", "csh", "nu", "bat", "ps1", "xsh"].contains(&end);
    let python_version = name.trim_end_matches(".exe").strip_prefix("python");
    stem == "activate" && is_script
        || name == "activate_this.py"
        || python_version.is_some_and(|version| {
            version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
}

#[cfg(test)]
mod tests {
    use super::super::ProtectedPaths;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn programs_of_an_environment_are_protected_whatever_its_name_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        for (file, program, expected) in [
            ("py3/pyvenv.cfg", "py3/bin/ruff", true),
            ("py3/pyvenv.cfg", "py3/bin", true),
            ("py4/pyvenv.cfg", "py4/Scripts/pip.exe", true),
            ("forge/conda-meta/history", "forge/bin/git", true),
            ("tools/x", "tools/bin/ruff", false),
            ("py3/pyvenv.cfg", "py3/lib/x.py", false),
        ] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), "").unwrap();
            let protected = ProtectedPaths::new(vec![root.clone()], Vec::new());
            assert_eq!(protected.reason(&root.join(program)).is_some(), expected, "{program}");
        }
    }
}
