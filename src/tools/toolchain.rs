//! Detects a project-provided Rust toolchain: rustup runs the programs of the toolchain that a
//! folder's file names, even for `--version`.

use std::path::Path;

use turnwright_workspace::files::read_head;

const TOOLCHAIN_FILES: [&str; 2] = ["rust-toolchain.toml", "rust-toolchain"];
const MAX_FILE_BYTES: usize = 16 * 1024;

/// Why `cargo` or `rustc` in this real folder may not be the user's own program; `None` if it is.
/// Reads the disk.
pub(super) fn untrusted_toolchain_reason(folder: &Path) -> Option<String> {
    let may_set_path = |folder: &Path| {
        TOOLCHAIN_FILES.iter().map(|name| folder.join(name)).any(|file| {
            file.symlink_metadata().is_ok()
                && read_head(&file, None, MAX_FILE_BYTES).is_none_or(|head| {
                    // With a TOML escape, the key `path` could be spelled in another way.
                    !head.is_complete || head.text.contains("path") || head.text.contains('\\')
                })
        })
    };
    folder.ancestors().any(may_set_path).then(|| {
        "the project's `rust-toolchain` file may select a toolchain inside the project".to_owned()
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
}
