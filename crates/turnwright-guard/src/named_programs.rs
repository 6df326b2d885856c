//! The files of a project that package managers, toolchains and editors run because a settings file beside them names
//! them: `yarnPath: .yarn/releases/yarn.cjs`. They are protected as the settings are.

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository::normalize_lexically;
use turnwright_workspace::files::read_head;

/// The settings files. Only the file names in them matter here.
const SETTINGS: [&str; 6] =
    [".luarc.json", ".luarc.jsonc", ".npmrc", ".yarnrc", ".yarnrc.yml", "pnpm-workspace.yaml"];
/// The settings files that name the folder of a toolchain.
const TOOLCHAINS: [&str; 2] = ["rust-toolchain", "rust-toolchain.toml"];
/// More of a file is not read, and no more names are looked up.
const MAX_BYTES: usize = 512 * 1024;
const MAX_NAMES: usize = 20_000;
/// The usual places of programs that the rest of a longer file may name.
const USUAL_PLACES: [&str; 2] = [".yarn/plugins", ".yarn/releases"];

/// Returns the files in a folder that its settings name, relative to it. Blocks: not for the runtime's thread.
pub fn named_programs(folder: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    for name in SETTINGS.iter().chain(&TOOLCHAINS) {
        let Some(head) = read_head(&folder.join(name), None, MAX_BYTES) else { continue };
        let lines = head.text.lines().map(without_comment);
        let possible: BTreeSet<&str> = lines.flat_map(possible_names).collect();
        if !head.is_complete || possible.len() > MAX_NAMES {
            found.extend(USUAL_PLACES.map(str::to_owned));
        }
        for possible_name in possible.into_iter().take(MAX_NAMES) {
            let path = normalize_lexically(&folder.join(possible_name));
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

/// Returns the parts of a line that may be names of files: words, and longer parts, because names may contain blanks
/// and signs.
fn possible_names(line: &str) -> impl Iterator<Item = &str> {
    let value = line.split_once([':', '=', ' ']).map(|(_, value)| value);
    let words = line.split(|letter: char| letter.is_whitespace() || is_sign(letter));
    let parts = line.split(is_sign).chain(line.split('"')).chain(line.split('\''));
    words.chain(parts).chain(value).map(str::trim).filter(|name| !name.is_empty())
}

fn is_sign(letter: char) -> bool {
    "\"'`,;:=[]{}()<>".contains(letter)
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
            (".yarnrc.yml", "yarnPath: \".yarn/my y.cjs\"", vec![".yarn/my y.cjs"]),
            (".yarnrc.yml", "yarnPath: .yarn/my y.cjs", vec![".yarn/my y.cjs"]),
            (".yarnrc.yml", "yarnPath: '.yarn/y (1), z.cjs'", vec![".yarn/y (1), z.cjs"]),
            (".yarnrc.yml", "yarnPath: .yarn/y (1), z.cjs", vec![".yarn/y (1), z.cjs"]),
            (".yarnrc", "yarn-path \".yarn/my y.cjs\"", vec![".yarn/my y.cjs"]),
            (".yarnrc.yml", &format!("{}yarnPath: x.js", "catalog:\n".repeat(8_000)), vec!["x.js"]),
            (
                ".yarnrc.yml",
                &"catalog: x\n".repeat(60_000),
                vec![".yarn/plugins", ".yarn/releases"],
            ),
            (".yarnrc.yml", "# as x.js\nnodeLinker: pnp # or x.js", vec![]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join(".yarn")).unwrap();
            for path in [".yarn/y.cjs", ".yarn/my y.cjs", ".yarn/y (1), z.cjs", "x.js"] {
                fs::write(folder.path().join(path), "").unwrap();
            }
            fs::write(folder.path().join(file), text).unwrap();
            assert_eq!(named_programs(folder.path()), expected, "{}", &text[..text.len().min(80)]);
        }
    }
}
