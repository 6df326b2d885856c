//! The files of a folder that are run when somebody enters it, besides those that are known by their names: what its
//! `.envrc` reads. direnv asks about a changed `.envrc`, but not about a file that it reads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use turnwright_policy::shell;
use turnwright_types::dialect::ShellDialect;
use turnwright_types::shell_script::SimpleCommand;
use turnwright_workspace::files::read_head;

use super::repository::normalize_lexically;

const ENVRC: &str = ".envrc";
/// Longer files are not understood, and at most this many are read.
const MAX_BYTES: usize = 64 * 1024;
const MAX_FILES: usize = 50;

/// Returns the files in a folder that its `.envrc` reads, relative to the folder. Blocks.
pub(crate) fn read_by_direnv(folder: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut pending = vec![folder.join(ENVRC)];
    while let Some(file) = pending.pop().filter(|_| found.len() < MAX_FILES) {
        let Some(head) = read_head(&file, None, MAX_BYTES) else { continue };
        let place = file.parent().unwrap_or(folder);
        let script = shell::parse(&head.text, ShellDialect::Bash);
        let named = script.commands.iter().flat_map(|command| read_files(command, place));
        let inside = named.map(|path| normalize_lexically(&path));
        for path in inside.filter(|path| path.starts_with(folder) && path != folder) {
            if found.insert(path.clone()) {
                pending.push(path);
            }
        }
    }
    let names = found.iter().filter_map(|path| path.strip_prefix(folder).ok());
    names.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// The files that a command of an `.envrc` reads (<https://direnv.net/man/direnv-stdlib.1.html>). What it names by a
/// variable is not known.
fn read_files(command: &SimpleCommand, place: &Path) -> Vec<PathBuf> {
    let place = command.folder.as_ref().map_or(place.to_path_buf(), |folder| place.join(folder));
    let mut words = command.argv();
    let program = words.next().unwrap_or_default();
    let first = words.next();
    let is_path = |word: &&str| word.starts_with(['.', '/']);
    let names: Vec<&str> = match (program, first) {
        ("source" | "." | "source_env" | "source_env_if_exists", Some(file)) => {
            vec![file]
        }
        ("dotenv" | "dotenv_if_exists", file) => vec![file.unwrap_or(".env")],
        ("use" | "use_flake" | "use_nix" | "use_devenv", _) => {
            let flake = first.into_iter().chain(words).find(is_path).unwrap_or(".");
            let flake = flake.split(['#', '?']).next().unwrap_or(".");
            let names = ["flake.nix", "shell.nix", "default.nix", "devenv.nix", "devbox.json"];
            return names.map(|name| place.join(flake).join(name)).to_vec();
        }
        _ => Vec::new(),
    };
    let is_known = |name: &&str| !name.contains(['$', '`']);
    let file = |name: &str| {
        let path = place.join(name.strip_prefix("~/").unwrap_or(name));
        // direnv takes a folder for the `.envrc` in it.
        if path.is_dir() { path.join(ENVRC) } else { path }
    };
    names.into_iter().filter(is_known).map(file).collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_an_envrc_reads_is_known() {
        let folder = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("export A=1\nPATH_add bin", vec![]),
            ("source scripts/env.sh", vec!["scripts/env.sh"]),
            ("source_env_if_exists .envrc.local\n. ./b.sh", vec![".envrc.local", "b.sh"]),
            ("if true; then source_env \"sub\"; fi", vec!["sub/.envrc", "sub/inner.sh"]),
            ("dotenv", vec![".env"]),
            ("dotenv_if_exists config/dev.env", vec!["config/dev.env"]),
            ("source ../outside.sh; source /etc/profile; source_up", vec![]),
            (
                "use flake ./nix#dev",
                vec![
                    "nix/default.nix",
                    "nix/devbox.json",
                    "nix/devenv.nix",
                    "nix/flake.nix",
                    "nix/shell.nix",
                ],
            ),
            ("source \"$(pwd)/x.sh\"", vec![]),
        ] {
            fs::create_dir_all(folder.path().join("sub")).unwrap();
            fs::write(folder.path().join("sub/.envrc"), "source inner.sh").unwrap();
            fs::write(folder.path().join(ENVRC), text).unwrap();
            assert_eq!(read_by_direnv(folder.path()), expected, "{text}");
        }
        fs::remove_file(folder.path().join(ENVRC)).unwrap();
        assert_eq!(read_by_direnv(folder.path()), Vec::<String>::new());
    }
}
