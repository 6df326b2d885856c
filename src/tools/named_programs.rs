//! The files of a project that package managers, toolchains and editors run because a settings file beside them names
//! them: `yarnPath: .yarn/releases/yarn.cjs`. They are protected as the settings are.

use std::collections::BTreeSet;
use std::path::Path;

use super::repository::normalize_lexically;
use turnwright_workspace::files::read_head;

/// The settings files. Of all that they say, the names of files are what matters here.
const SETTINGS: [&str; 6] =
    [".luarc.json", ".luarc.jsonc", ".npmrc", ".yarnrc", ".yarnrc.yml", "pnpm-workspace.yaml"];
/// The settings files that name the folder of a toolchain.
const TOOLCHAINS: [&str; 2] = ["rust-toolchain", "rust-toolchain.toml"];
/// More of a file is not read, and no more names are looked up.
const MAX_BYTES: usize = 64 * 1024;
const MAX_WORDS: usize = 5_000;

/// Returns the files in a folder that its settings name, relative to it. Blocks: not for the runtime's thread.
pub(crate) fn named_programs(folder: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    for name in SETTINGS.iter().chain(&TOOLCHAINS) {
        let Some(head) = read_head(&folder.join(name), None, MAX_BYTES) else { continue };
        let lines = head.text.lines().map(without_comment);
        let words = lines.flat_map(|line| line.split(is_separator)).filter(|word| !word.is_empty());
        for word in words.take(MAX_WORDS) {
            let path = normalize_lexically(&folder.join(word));
            let Ok(relative) = path.strip_prefix(folder) else { continue };
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let is_program = !metadata.is_dir() || TOOLCHAINS.contains(name);
            if is_program && relative != Path::new("") {
                found.insert(relative.to_string_lossy().into_owned());
            }
        }
    }
    found.into_iter().collect()
}

fn without_comment(line: &str) -> &str {
    let comments = ["#", ";", "//"];
    if comments.iter().any(|sign| line.trim_start().starts_with(sign)) {
        return "";
    }
    let end = ["# ", "// "].iter().filter_map(|sign| line.find(&format!(" {sign}"))).min();
    &line[..end.unwrap_or(line.len())]
}

fn is_separator(letter: char) -> bool {
    letter.is_whitespace() || "\"'`,;:=[]{}()<>".contains(letter)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_files_that_settings_name_are_known() {
        for (file, text, expected) in [
            (".yarnrc.yml", "yarnPath: .yarn/y.cjs", vec![".yarn/y.cjs"]),
            (".yarnrc.yml", "\"yarn\\x50ath\": \"./x.js\"", vec!["x.js"]),
            (".yarnrc.yml", "plugins:\n  - path: x.js\n    spec: s", vec!["x.js"]),
            (".yarnrc", "yarn-path \".yarn/y.cjs\"", vec![".yarn/y.cjs"]),
            (".npmrc", "node-options=--require ./x.js", vec!["x.js"]),
            (".npmrc", "cache=.yarn\nregistry=https://r.example", vec![]),
            (".luarc.json", "{\"runtime.plugin\": \"x.js\"}", vec!["x.js"]),
            ("rust-toolchain.toml", "[toolchain]\npath = \".yarn\"", vec![".yarn"]),
            (".yarnrc.yml", "yarnPath: ../x.js", vec![]),
            (".yarnrc.yml", "# as x.js\nnodeLinker: pnp # or x.js", vec![]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join(".yarn")).unwrap();
            for path in [".yarn/y.cjs", "x.js"] {
                fs::write(folder.path().join(path), "").unwrap();
            }
            fs::write(folder.path().join(file), text).unwrap();
            assert_eq!(named_programs(folder.path()), expected, "{text}");
        }
    }
}
