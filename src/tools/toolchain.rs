//! Detects a project-provided Rust toolchain: rustup runs the programs of the toolchain that a
//! folder's file names, even for `--version`.

use std::path::Path;

use turnwright_workspace::files::read_head;

const TOOLCHAIN_FILES: [&str; 2] = ["rust-toolchain.toml", "rust-toolchain"];
const MAX_FILE_BYTES: usize = 16 * 1024;

/// Why `cargo` or `rustc` in this real folder may not be the user's own program; `None` if it is.
/// Reads the disk.
pub(super) fn untrusted_toolchain(folder: &Path) -> Option<String> {
    let names_folder = |it: &Path| {
        TOOLCHAIN_FILES.iter().map(|name| it.join(name)).any(|file| {
            file.symlink_metadata().is_ok()
                && read_head(&file, None, MAX_FILE_BYTES).is_none_or(|it| {
                    !it.is_complete || it.text.contains("path") || it.text.contains('\\')
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
    fn a_toolchain_given_by_path_is_untrusted() {
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
            assert_eq!(
                untrusted_toolchain(&dir.path().join("sub")).is_some(),
                expected,
                "{name}: {text}"
            );
        }
    }
}
