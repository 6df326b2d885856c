//! The places that a command may read if nobody is asked about it: what it was judged by is the words of
//! its line, which may lead elsewhere through links and patterns.

use std::fs;
use std::path::{Path, PathBuf};

use super::repository;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::Roots;

/// Folders of programs: beside them, a toolchain keeps what they need.
const PROGRAM_FOLDERS: [&str; 3] = ["bin", "sbin", "shims"];
/// Where programs in the search path that choose a version find the one that they run, below the home
/// folder.
const TOOLCHAINS: [&str; 8] =
    [".rustup", ".nvm", ".pyenv", ".rbenv", ".asdf", ".volta", ".sdkman", ".local/share/mise"];
/// Variables that name such a folder.
const TOOLCHAIN_VARIABLES: [&str; 7] =
    ["CARGO_HOME", "RUSTUP_HOME", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "RBENV_ROOT"];

/// The places besides those of the system: the session's folders with their repositories, the user's git
/// settings, and the programs that `environment` names. Looks files up: not for the runtime's thread.
pub(super) fn readable(roots: &Roots, environment: &Environment) -> Vec<PathBuf> {
    let home = environment.get("HOME").map(Path::new);
    let folders = roots.folders().map(Path::to_path_buf);
    let mut all: Vec<_> = folders.chain(roots.readable_folders()).collect();
    all.extend(roots.folders().flat_map(repository::git_folders));
    // The project may lie in a repository of the whole home folder.
    let tops = roots.folders().filter_map(repository::top);
    all.extend(tops.filter(|it| is_below_home(it, home)));
    if let Some(home) = home {
        let config = environment.get("XDG_CONFIG_HOME");
        let config = config.map_or_else(|| home.join(".config"), PathBuf::from);
        all.extend(repository::user_settings(home, &config));
        all.extend(TOOLCHAINS.iter().map(|it| home.join(it)));
    }
    let named = TOOLCHAIN_VARIABLES.iter().filter_map(|it| environment.get(it));
    all.extend(named.map(PathBuf::from).filter(|it| is_below_home(it, home)));
    let programs = environment.get("PATH").into_iter().flat_map(std::env::split_paths);
    all.extend(programs.map(|it| installation(&it, home)));
    // Seatbelt knows a file only by its real path.
    let real = all.iter().filter(|it| it.is_absolute()).map(fs::canonicalize);
    real.filter_map(Result::ok).collect()
}

/// The folder that holds all of a toolchain, given one of its programs' folder.
fn installation(programs: &Path, home: Option<&Path>) -> PathBuf {
    let is_named =
        programs.file_name().is_some_and(|it| PROGRAM_FOLDERS.iter().any(|name| it == *name));
    match programs.parent() {
        Some(folder) if is_named && is_below_home(folder, home) => folder.to_path_buf(),
        _ => programs.to_path_buf(),
    }
}

/// True for a folder of its own, as opposed to the home folder, one above it, and `~/.local`, where
/// programs keep the user's data.
fn is_below_home(folder: &Path, home: Option<&Path>) -> bool {
    let is_shared = |home: &Path| home.starts_with(folder) || folder == home.join(".local");
    folder.parent().is_some() && !home.is_some_and(is_shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_a_toolchain_may_read_it_and_others_only_their_folder() {
        let home = Path::new("/home/a");
        for (folder, expected) in [
            ("/home/a/.cargo/bin", "/home/a/.cargo"),
            ("/home/a/.nvm/versions/node/v20/bin", "/home/a/.nvm/versions/node/v20"),
            ("/home/a/.pyenv/shims", "/home/a/.pyenv"),
            ("/home/a/bin", "/home/a/bin"),
            ("/home/a/.local/bin", "/home/a/.local/bin"),
            ("/home/bin", "/home/bin"),
            ("/bin", "/bin"),
            ("/srv/tools", "/srv/tools"),
        ] {
            assert_eq!(
                installation(Path::new(folder), Some(home)),
                Path::new(expected),
                "{folder}"
            );
        }
    }
}
