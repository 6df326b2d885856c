//! The Rust toolchain that a folder names: rustup runs the programs of that one, even to tell
//! their version.

use std::path::Path;

use turnwright_workspace::files::glance;

const NAMES: [&str; 2] = ["rust-toolchain.toml", "rust-toolchain"];
/// Bytes of a file that are read.
const MOST: usize = 16 * 1024;

/// Why a program of Rust may be another one than the user's in this real folder. Reads the disk.
pub(super) fn doubt(folder: &Path) -> Option<String> {
    let names_folder = |it: &Path| {
        NAMES.iter().map(|name| it.join(name)).any(|file| {
            file.symlink_metadata().is_ok()
                && glance(&file, None, MOST).is_none_or(|it| {
                    !it.is_whole || it.text.contains("path") || it.text.contains('\\')
                })
        })
    };
    let is_named = folder.ancestors().any(names_folder);
    is_named.then(|| "the project names a folder with its own Rust programs".to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_that_lies_in_a_folder_may_be_anything() {
        for (name, text, expected) in [
            ("rust-toolchain.toml", "[toolchain]\npath = \"/ws/evil\"", true),
            ("rust-toolchain", "[toolchain]\n'path' = '/ws/evil'", true),
            ("rust-toolchain.toml", "[toolchain]\n\"p\\u0061th\" = '/ws/evil'", true),
            ("rust-toolchain.toml", "[toolchain]\nchannel = \"1.88\"", false),
            ("rust-toolchain", "stable\n", false),
            ("README.md", "path", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("sub")).unwrap();
            std::fs::write(dir.path().join(name), text).unwrap();
            assert_eq!(doubt(&dir.path().join("sub")).is_some(), expected, "{name}: {text}");
        }
    }
}
