//! Detects programs that a project provides: rustup and other version managers run the programs that a
//! folder's file names, even for `--version`.

use std::path::Path;

use turnwright_policy::permission::{IDIOMATIC_VERSION_FILES, ProtectedPaths};
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::read_head;

const TOOLCHAIN_FILES: [&str; 2] = ["rust-toolchain.toml", "rust-toolchain"];
/// Files that name the versions of several programs or of Python.
const VERSION_FILES: [&str; 3] = [".tool-versions", ".python-version", ".python-versions"];
/// Files of mise that can name anything to run.
const MISE_FILES: [&str; 8] = [
    "mise.toml",
    "mise.local.toml",
    ".mise.toml",
    ".mise.local.toml",
    "mise",
    ".mise",
    ".config/mise",
    ".config/mise.toml",
];
const MAX_FILE_BYTES: usize = 16 * 1024;

/// Why `cargo` or `rustc` in this real folder may not be the user's own program; `None` if it is.
/// Reads the disk.
pub(crate) fn untrusted_toolchain_reason(folder: &Path) -> Option<String> {
    let mut files =
        folder.ancestors().flat_map(|folder| TOOLCHAIN_FILES.map(|name| folder.join(name)));
    files.any(|file| may_run_something(&file)).then(|| {
        "the project's `rust-toolchain` file may select a toolchain inside the project".to_owned()
    })
}

/// Why a program in this real folder may be the project's own if a version manager provides it; `None` if
/// it is not, or no manager does. Reads the disk.
pub(crate) fn untrusted_version_reason(
    program: &str,
    folder: &Path,
    environment: &Environment,
) -> Option<String> {
    let path = environment.get("PATH")?;
    // A silent command does not find the programs in some of the folders, so each counts.
    let mut holders = std::env::split_paths(path).filter(|folder| folder.join(program).exists());
    let found =
        holders.find(|folder| folder.ends_with(".volta/bin") || folder.ends_with("shims"))?;
    let is_volta = found.ends_with(".volta/bin");
    let home = environment.get("HOME").map(Path::new);
    let version_files = VERSION_FILES.iter().chain(IDIOMATIC_VERSION_FILES);
    // Files in the home folder are the user's own settings.
    let mut folders = folder.ancestors().take_while(|folder| Some(*folder) != home);
    let is_named = folders.any(|folder| {
        // Volta prefers the programs that the project has installed.
        is_volta && folder.join("node_modules/.bin").join(program).exists()
            || version_files.clone().any(|name| may_run_something(&folder.join(name)))
            || MISE_FILES.iter().any(|name| folder.join(name).symlink_metadata().is_ok())
    });
    is_named.then(|| {
        format!("a version manager may run the project's `{program}` ({})", found.display())
    })
}

/// Returns true if there is a file that makes other programs run something, or one that cannot be read as a whole.
fn may_run_something(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
        && read_head(file, None, MAX_FILE_BYTES).is_none_or(|head| {
            let runs = ProtectedPaths::runs_something(file, head.text.as_bytes());
            !head.is_complete || runs != Some(false)
        })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_given_by_path_is_untrusted() {
        for (name, text, expected) in [
            ("rust-toolchain.toml", "[toolchain]\npath = \"/ws/evil\"", true),
            ("rust-toolchain", "[toolchain]\n'path' = '/ws/evil'", true),
            ("rust-toolchain.toml", "[toolchain]\n\"p\\u0061th\" = '/ws/evil'", true),
            ("rust-toolchain.toml", "[toolchain]\nchannel = \"1.88\"", false),
            ("rust-toolchain", "stable\n", false),
            ("rust-toolchain", "/ws/evil", true),
            ("rust-toolchain", "../evil", true),
            ("rust-toolchain.toml", "toolchain.channel = [", true),
            ("README.md", "path", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("sub")).unwrap();
            std::fs::write(dir.path().join(name), text).unwrap();
            assert_eq!(
                untrusted_toolchain_reason(&dir.path().join("sub")).is_some(),
                expected,
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn a_program_of_a_version_manager_is_untrusted_if_the_project_may_provide_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let file = |name: &str, text: &str| {
            let path = home.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for program in [".asdf/shims/node", ".volta/bin/tsc", "bin/node", "bin/tsc"] {
            file(program, "");
        }
        file(".config/mise/config.toml", "[env]");
        for (path, program, text, expected) in [
            (".asdf/shims", "node", (".tool-versions", "nodejs path:./evil"), true),
            (".asdf/shims", "node", (".tool-versions", "nodejs 20.1.0"), false),
            (".asdf/shims", "node", (".nvmrc", "path:./evil"), true),
            (".asdf/shims", "node", (".nvmrc", "v20"), false),
            (".asdf/shims", "node", (".python-version", "../evil"), true),
            (".asdf/shims", "node", ("mise.toml", "[env]"), true),
            (".asdf/shims", "node", ("package.json", "{}"), false),
            (".asdf/shims", "tsc", ("mise.toml", "[env]"), false),
            ("bin", "node", ("mise.toml", "[env]"), false),
            (".volta/bin", "tsc", ("node_modules/.bin/tsc", "evil"), true),
            (".volta/bin", "tsc", ("node_modules/.bin/x", "evil"), false),
            ("bin", "tsc", ("node_modules/.bin/tsc", "evil"), false),
        ] {
            file(&format!("project/{}", text.0), text.1);
            std::fs::create_dir_all(home.join("project/sub")).unwrap();
            let path = home.join(path).into_os_string();
            let environment = Environment::default().with("PATH", path).with("HOME", home);
            let reason = untrusted_version_reason(program, &home.join("project/sub"), &environment);
            assert_eq!(reason.is_some(), expected, "{program} {text:?}");
            std::fs::remove_dir_all(home.join("project")).unwrap();
        }
        // The first one may be in a folder in which a silent command does not look.
        file("project/mise.toml", "[env]");
        let path = std::env::join_paths([home.join("bin"), home.join(".asdf/shims")]).unwrap();
        let environment = Environment::default().with("PATH", path).with("HOME", home);
        assert!(untrusted_version_reason("node", &home.join("project"), &environment).is_some());
    }
}
