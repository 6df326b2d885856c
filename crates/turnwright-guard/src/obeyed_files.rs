//! Files of a project that programs outside of the sandbox run or obey, and that have no fixed name. Some run when
//! somebody enters a folder: its `.envrc` reads or runs them, or puts them in front of the user's programs. direnv asks
//! about a changed `.envrc`, but not about these. Others are run by package managers, toolchains and editors, because a
//! settings file beside them names them: `yarnPath: .yarn/releases/yarn.cjs`. Others again are known by a link, such as
//! a hook. They are protected as the settings are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use turnwright_policy::permission::ProtectedPaths;
use turnwright_policy::shell;
use turnwright_types::plain_path::normalize_lexically;
use turnwright_types::shell_script::{ShellDialect, SimpleCommand};
use turnwright_workspace::files::read_head;
use turnwright_workspace::{RealPaths, real_path};

const ENVRC: &str = ".envrc";
/// Longer files are not understood, and at most this many are read.
const MAX_ENVRC_BYTES: usize = 64 * 1024;
const MAX_FILES: usize = 500;
/// The entries of a folder that are searched for scripts and links.
const MAX_ENTRIES: usize = 2_000;

/// Programs that people run all day, and prompts by themselves. A folder in the user's `PATH` may get others: builds
/// write their results to such folders, too.
const SHADOWED: [&str; 26] = [
    "bash", "cargo", "cat", "cp", "curl", "direnv", "docker", "find", "git", "go", "grep", "less",
    "ls", "make", "mkdir", "node", "npm", "python", "python3", "rm", "sed", "sh", "ssh",
    "starship", "sudo", "vim",
];
/// Programs that run the file that they get.
const INTERPRETERS: [&str; 8] = ["bash", "node", "perl", "python", "python3", "ruby", "sh", "zsh"];

/// Returns the files in a folder that its `.envrc` reads, relative to the folder. Blocks.
pub fn read_by_direnv(folder: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut pending = vec![folder.join(ENVRC)];
    while let Some(file) = pending.pop().filter(|_| found.len() < MAX_FILES) {
        let Some(head) = read_head(&file, None, MAX_ENVRC_BYTES) else { continue };
        let script = shell::parse(&head.text, ShellDialect::Bash);
        // A file that `source` reads stays in the folder, `source_env` goes to the file's folder.
        let places = [folder, file.parent().unwrap_or(folder)];
        let is_output_run = runs_output(&head.text);
        let added = path_entries(&head.text);
        let named = places.into_iter().flat_map(|place| {
            let read = script
                .commands
                .iter()
                .flat_map(move |command| read_files(command, place, is_output_run));
            read.chain(added.iter().flat_map(move |entry| shadowing(&place.join(entry))))
        });
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

/// The files that a command of an `.envrc` reads or runs (<https://direnv.net/man/direnv-stdlib.1.html>).
fn read_files(command: &SimpleCommand, place: &Path, is_output_run: bool) -> Vec<PathBuf> {
    let place = command.folder.as_ref().map_or(place.to_path_buf(), |folder| place.join(folder));
    let mut words = command.argv();
    let program = words.next().unwrap_or_default();
    let runs_other = command.argv().any(|word| matches!(word, "-c" | "-m"));
    let mut operands: Vec<&str> = words.filter(|word| !word.starts_with('-')).collect();
    let first = operands.first().copied();
    let mut found: Vec<PathBuf> = Vec::new();
    if is_output_run {
        let read = command.redirects.iter().filter(|redirect| !redirect.is_write);
        found.extend(read.map(|redirect| redirect.path.clone()));
    }
    let names = match program {
        "source" | "." | "source_env" | "source_env_if_exists" | "direnv_load" => {
            first.into_iter().collect()
        }
        "dotenv" | "dotenv_if_exists" => vec![first.unwrap_or(".env")],
        "use_vim" => vec![first.unwrap_or(".vimrc.local")],
        "use" if first == Some("vim") => vec![operands.get(1).copied().unwrap_or(".vimrc.local")],
        "use" | "use_flake" | "use_nix" | "use_devenv" => {
            let flake = operands.iter().find(|word| word.starts_with(['.', '/']));
            let folder = flake.and_then(|flake| flake.split(['#', '?']).next()).unwrap_or(".");
            let names = ["flake.nix", "shell.nix", "default.nix", "devenv.nix", "devbox.json"];
            return names.map(|name| place.join(folder).join(name)).to_vec();
        }
        "devbox" => vec!["devbox.json"],
        "PATH_add" | "path_add" => {
            let entries = operands.iter().map(|entry| after_variables(entry).unwrap_or_default());
            return entries.flat_map(|entry| shadowing(&place.join(entry))).collect();
        }
        "load_prefix" => {
            let prefix = first.and_then(after_variables).unwrap_or_default();
            return shadowing(&place.join(prefix).join("bin"));
        }
        // The list of a loop.
        _ if first == Some("in") => operands.split_off(1),
        // The first operand is no file.
        "awk" | "grep" | "sed" if is_output_run && first.is_some() => operands.split_off(1),
        "cat" | "cut" | "head" if is_output_run => operands,
        _ if INTERPRETERS.contains(&program) && !runs_other => first.into_iter().collect(),
        _ if program.contains('/') => vec![program],
        _ => Vec::new(),
    };
    for name in names {
        let known = after_variables(name.strip_prefix("~/").unwrap_or(name));
        match known.filter(|known| !known.contains(['*', '?', '['])) {
            Some(name) => found.push(name.into()),
            None => found.extend(scripts(&place.join(Path::new(name).parent().unwrap_or(&place)))),
        }
    }
    let paths = found.into_iter().map(|path| place.join(path));
    // direnv takes a folder for the `.envrc` in it.
    paths.map(|path| if path.is_dir() { path.join(ENVRC) } else { path }).collect()
}

/// Returns the rest of a name behind its last variable, which is taken for the folder: `x.sh` of `$PWD/x.sh` and
/// `$(dirname "$0")/x.sh`. `None` if the variable may be the whole name.
fn after_variables(name: &str) -> Option<&str> {
    let Some(start) = name.rfind('$') else { return Some(name) };
    let variable = &name[start..];
    let end = if variable.starts_with("${") { variable.find('}')? } else { 0 };
    let rest = &variable[end..];
    Some(rest[rest.find('/')?..].trim_start_matches('/')).filter(|rest| !rest.is_empty())
}

/// The scripts and files of variables in a folder. Names that contain only variables may mean any of them.
fn scripts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES);
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let scripts = paths.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        [".bash", ".env", ".sh"].iter().any(|end| name.ends_with(end))
    });
    scripts.collect()
}

/// The folders that a script puts in the `PATH` by an assignment.
fn path_entries(text: &str) -> Vec<&str> {
    let assignments = text.lines().filter_map(|line| {
        let (before, value) = line.split_once("PATH=")?;
        let is_whole = before.is_empty() || before.ends_with([' ', '\t', ';']);
        is_whole.then(|| value.split([';', '#']).next().unwrap_or_default())
    });
    let entries = assignments.flat_map(|value| value.split(':'));
    entries.filter_map(|entry| after_variables(entry.trim_matches(['"', '\'', ' ']))).collect()
}

/// The files that would be run instead of the user's own programs, if a folder is in the `PATH`.
fn shadowing(folder: &Path) -> Vec<PathBuf> {
    SHADOWED.iter().map(|name| folder.join(name)).collect()
}

/// Returns true if a script runs the output of other programs, or sets variables from it.
fn runs_output(text: &str) -> bool {
    ["eval", "<(", "export $(", "export `"].iter().any(|sign| text.contains(sign))
}

/// The settings files. Only the file names in them matter here.
const SETTINGS: [&str; 6] =
    [".luarc.json", ".luarc.jsonc", ".npmrc", ".yarnrc", ".yarnrc.yml", "pnpm-workspace.yaml"];
/// The settings files that name the folder of a toolchain.
pub(crate) const TOOLCHAINS: [&str; 2] = ["rust-toolchain", "rust-toolchain.toml"];
/// More of a file is not read, and no more names are looked up.
const MAX_SETTINGS_BYTES: usize = 512 * 1024;
const MAX_NAMES: usize = 20_000;
/// The usual places of programs that the rest of a longer file may name.
const USUAL_PLACES: [&str; 2] = [".yarn/plugins", ".yarn/releases"];

/// Returns the files in a folder that its settings name, relative to it. Blocks: not for the runtime's thread.
pub fn named_programs(folder: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    for name in SETTINGS.iter().chain(&TOOLCHAINS) {
        let Some(head) = read_head(&folder.join(name), None, MAX_SETTINGS_BYTES) else { continue };
        let lines = head.text.lines().map(without_comment);
        let possible: BTreeSet<&str> = lines.flat_map(possible_names).collect();
        if !head.is_complete || possible.len() > MAX_NAMES {
            found.extend(USUAL_PLACES.map(str::to_owned));
        }
        for possible_name in possible.into_iter().take(MAX_NAMES) {
            let path = normalize_lexically(&folder.join(possible_name));
            let Ok(relative) = path.strip_prefix(folder) else { continue };
            let Ok(metadata) = path.symlink_metadata() else { continue };
            // A folder behind a link is no program either. On Windows, no link is followed.
            let is_folder = metadata.is_dir() || cfg!(unix) && path.is_dir();
            if (!is_folder || TOOLCHAINS.contains(name)) && relative != Path::new("") {
                found.insert(relative.to_string_lossy().into_owned());
            }
        }
    }
    found.into_iter().collect()
}

/// Returns the places in the protected roots to which links at protected paths lead, and the files to which links
/// in protected folders lead, relative to their root: `scripts/check` for a hook that is a link. Blocks.
pub fn behind_links(protected: &ProtectedPaths) -> Vec<String> {
    let roots = protected.roots();
    let real_paths = RealPaths::default();
    let mut found = BTreeSet::new();
    // On Windows, following a link may already log in to another machine.
    let leaves = protected.leaf_paths().iter().filter(|_| cfg!(unix));
    // Links to programs in an environment lead into packages, which installers replace.
    for path in leaves.filter(|path| ProtectedPaths::environment_of(path).is_none()) {
        // A file that is missing in a folder behind a link may be made there.
        let real = real_paths.get(path).or_else(|| {
            let folder = path.parent()?;
            let real = real_paths.get(folder).filter(|real| real != folder && real.is_dir())?;
            Some(real.join(path.file_name()?))
        });
        // If a link leads to the project or above it, the links in there are not hooks.
        let place = real.filter(|real| !roots.iter().any(|root| root.starts_with(real)));
        let Some(place) = place else { continue };
        let files = links_below(&place).into_iter().filter_map(|link| real_path(link).ok());
        // No program runs Markdown, and commands may change the instructions of agents.
        let obeyed = files.filter(|file| file.is_file() && file.extension() != Some("md".as_ref()));
        found.extend(obeyed.chain([place]));
    }
    // Installers replace what is in `node_modules`, too.
    found.retain(|place| {
        !place.iter().any(|part| part == "node_modules") && protected.reason(place).is_none()
    });
    // The nearest root counts for a path, so it is told relative to every root.
    let below = found
        .iter()
        .flat_map(|place| roots.iter().filter_map(move |root| place.strip_prefix(root).ok()));
    below.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Returns the links in a folder and in those below it, among so many entries as are looked at.
fn links_below(place: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut folders = vec![place.to_owned()];
    let mut left = MAX_ENTRIES;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().take(left).flatten() {
            left -= 1;
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => links.push(entry.path()),
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => {}
            }
        }
    }
    links
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
    fn what_an_envrc_reads_is_known() {
        let folder = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("export A=1\nPATH_add_not bin\nexport MANPATH=man", vec![]),
            ("source scripts/env.sh", vec!["scripts/env.sh"]),
            ("source_env_if_exists .envrc.local\n. ./b.sh", vec![".envrc.local", "b.sh"]),
            (
                "if true; then source_env \"sub\"; fi",
                vec!["inner.sh", "sub/.envrc", "sub/inner.sh"],
            ),
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
            ("source \"$(pwd)/x.sh\"", vec!["x.sh"]),
            ("source \"$PWD/x.sh\"", vec!["x.sh"]),
            ("source_env ${PWD}/y.sh", vec!["y.sh"]),
            (". `pwd`/x.sh", vec!["x.sh"]),
            ("source \"$(dirname \"${BASH_SOURCE[0]}\")/x.sh\"", vec!["x.sh"]),
            ("source \"${BASH_SOURCE[0]%/*}/x.sh\"", vec!["x.sh"]),
            ("source \"$(cd \"$(dirname \"$0\")\" && pwd)/x.sh\"", vec!["x.sh"]),
            ("source \"$FILE\"", vec!["known.env", "known.sh"]),
            ("for f in env/*.sh; do source $f; done", vec!["env/a.sh", "known.env", "known.sh"]),
            ("source env/*.sh", vec!["env/a.sh"]),
            ("eval \"$(cat v.sh)\"", vec!["v.sh"]),
            ("eval \"$(< v.sh)\"", vec!["v.sh"]),
            (". <(sed 's/a/b/' x)", vec!["known.env", "known.sh", "x"]),
            ("export $(grep -v '^#' .env | xargs)", vec![".env"]),
            ("V=$(cat VERSION); export V", vec![]),
            ("./setup.sh a; bash other.sh", vec!["other.sh", "setup.sh"]),
            ("python3 -m venv venv", vec![]),
            ("use vim", vec![".vimrc.local"]),
        ] {
            for (name, text) in
                [("known.sh", ""), ("known.env", ""), ("known.txt", ""), ("env/a.sh", "")]
            {
                fs::create_dir_all(folder.path().join("env")).unwrap();
                fs::write(folder.path().join(name), text).unwrap();
            }
            fs::create_dir_all(folder.path().join("sub")).unwrap();
            fs::write(folder.path().join("sub/.envrc"), "source inner.sh").unwrap();
            fs::write(folder.path().join(ENVRC), text).unwrap();
            assert_eq!(read_by_direnv(folder.path()), expected, "{text}");
        }
        fs::remove_file(folder.path().join(ENVRC)).unwrap();
        assert_eq!(read_by_direnv(folder.path()), Vec::<String>::new());
    }

    #[cfg(unix)]
    #[test]
    fn the_places_to_which_protected_links_lead_are_known() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let root = real_path(folder.path()).unwrap();
        let folders = ".claude/hooks .git/hooks .venv/bin code node_modules skills team/.zed";
        for place in folders.split(' ') {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        for file in
            ["README.md", "check", "code/settings.json", "hook", "mcp", "node_modules/x", "rules"]
        {
            fs::write(root.join(file), "").unwrap();
        }
        for (link, target) in [
            (".claude/CLAUDE.md", "../README.md"),
            (".claude/run", "../rules"),
            (".claude/skills", "../skills"),
            (".clinerules", "README.md"),
            (".cursor", "."),
            (".envrc", "/etc/profile"),
            (".git/hooks/post-merge", "pre-commit"),
            (".git/hooks/pre-commit", "../../hook"),
            (".git/hooks/pre-push", "../../node_modules/x"),
            (".helix", "nowhere"),
            (".husky", "/"),
            (".claude/hooks/check", "../../check"),
            (".mcp.json", "mcp"),
            (".venv/bin/tool", "../../README.md"),
            (".vscode", "code"),
            (".zed", "team/.zed"),
            ("AGENTS.md", "README.md"),
            ("GEMINI.md", "AGENTS.md"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        let mut found = behind_links(&ProtectedPaths::new(vec![root], Vec::new()));
        found.retain(|path| !path.starts_with("code/") || path == "code/tasks.json");
        assert_eq!(found, ["check", "code/tasks.json", "hook", "mcp", "rules"]);
    }

    #[test]
    fn programs_in_front_of_those_of_the_user_are_known() {
        let folder = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("PATH_add bin", "bin/git"),
            ("PATH_add ./tools", "tools/ls"),
            ("path_add PATH \"$PWD/tools\"", "tools/ls"),
            ("load_prefix x", "x/bin/git"),
            ("export PATH=$PWD/bin:$PATH", "bin/git"),
            ("PATH=\"$(pwd)/bin:$PATH\"", "bin/git"),
            ("export PATH=\"$(dirname \"$0\")/bin:$PATH\" # ours", "bin/git"),
            ("PATH_add .", "git"),
        ] {
            fs::write(folder.path().join(ENVRC), text).unwrap();
            let found = read_by_direnv(folder.path());
            assert!(found.iter().any(|path| path == expected), "{text}: {found:?}");
            assert!(!found.iter().any(|path| path.ends_with("app")), "builds write there");
        }
    }

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
            ("pnpm-workspace.yaml", "packages:\n  - linked", vec![]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join(".yarn")).unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink(".yarn", folder.path().join("linked")).unwrap();
            for path in [".yarn/y.cjs", ".yarn/my y.cjs", ".yarn/y (1), z.cjs", "x.js"] {
                fs::write(folder.path().join(path), "").unwrap();
            }
            fs::write(folder.path().join(file), text).unwrap();
            assert_eq!(named_programs(folder.path()), expected, "{}", &text[..text.len().min(80)]);
        }
    }
}
