//! Files of a project that other programs run or obey outside of any sandbox: hooks, editor tasks,
//! shell startup files. Changing one changes what the user's own programs do.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::repository_layout::is_in_repository;

/// The protected paths of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectedPaths {
    /// The session's folders, and the folders of the repository they lie in.
    pub roots: Vec<PathBuf>,
    /// Paths that the user has added, relative to each root.
    pub extra: Vec<String>,
}

const GIT: &str = "git's own files: its hooks and settings say what git runs";
const OWN: &str = "settings of this agent";
const AGENTS: &str = "settings of an agent, which say what it may run";
const EDITORS: &str = "editors run what it says";
const SHELLS: &str = "programs read or run it at startup";
const CI: &str = "CI servers run what it says, with their secrets";
const HOOKS: &str = "git runs it as a hook";
const MISE: &str = "mise runs it when somebody enters the folder";
const PYTHON: &str = "editors and shells run what is in a virtual environment of Python";
const TOOLCHAIN: &str = "it may say which programs run in the folder";
const PACKAGES: &str = "package managers run what it says";
const AGENTS_OBEY: &str = "agents do what it says";
const USER: &str = "your settings name it as protected, or git or direnv read it";

/// Protected paths by their last parts, at any depth, because a folder below may be cloned or
/// opened by itself. Everything below them is protected, too. In lower case.
const PROTECTED: &[(&str, &str)] = &[
    (".turnwright", OWN),
    (".agents", AGENTS),
    (".aider.conf.yml", AGENTS),
    (".amazonq", AGENTS),
    (".claude", AGENTS),
    (".codex", AGENTS),
    (".continue", AGENTS),
    (".crush.json", AGENTS),
    (".cursor", AGENTS),
    (".factory", AGENTS),
    (".gemini", AGENTS),
    (".kiro", AGENTS),
    (".mcp.json", AGENTS),
    (".opencode", AGENTS),
    (".qwen", AGENTS),
    (".roo", AGENTS),
    (".windsurf", AGENTS),
    ("opencode.json", AGENTS),
    ("opencode.jsonc", AGENTS),
    (".vscode/launch.json", EDITORS),
    (".vscode/mcp.json", EDITORS),
    (".vscode/settings.json", EDITORS),
    (".vscode/tasks.json", EDITORS),
    (".devcontainer", EDITORS),
    (".devcontainer.json", EDITORS),
    (".fleet", EDITORS),
    (".idea/runconfigurations", EDITORS),
    (".helix", EDITORS),
    (".bsp", "editors start the build servers that it names"),
    (".idea/startup.xml", EDITORS),
    (".idea/watchertasks.xml", EDITORS),
    (".idea/workspace.xml", EDITORS),
    (".run", EDITORS),
    (".zed", EDITORS),
    (".dir-locals-2.el", EDITORS),
    (".dir-locals.el", EDITORS),
    (".exrc", EDITORS),
    (".gvimrc", EDITORS),
    (".lazy.lua", EDITORS),
    (".lvimrc", EDITORS),
    (".nvim.lua", EDITORS),
    (".nvimrc", EDITORS),
    (".vimrc", EDITORS),
    (".envrc", "direnv runs it when somebody enters the folder"),
    (".config/mise", MISE),
    (".config/mise.toml", MISE),
    (".mise", MISE),
    (".mise.toml", MISE),
    ("mise.local.toml", MISE),
    ("mise.toml", MISE),
    (".hg/hgrc", "Mercurial runs what it says"),
    (".jj/repo/config.toml", "Jujutsu runs what it says"),
    (".husky", HOOKS),
    (".githooks", HOOKS),
    (".pre-commit-config.yaml", HOOKS),
    (".config/lefthook-local.yml", HOOKS),
    (".config/lefthook.yml", HOOKS),
    (".lefthook-local.json", HOOKS),
    (".lefthook-local.toml", HOOKS),
    (".lefthook-local.yaml", HOOKS),
    (".lefthook-local.yml", HOOKS),
    (".lefthook.json", HOOKS),
    (".lefthook.toml", HOOKS),
    (".lefthook.yaml", HOOKS),
    (".lefthook.yml", HOOKS),
    ("lefthook-local.json", HOOKS),
    ("lefthook-local.toml", HOOKS),
    ("lefthook-local.yaml", HOOKS),
    ("lefthook-local.yml", HOOKS),
    ("lefthook.json", HOOKS),
    ("lefthook.toml", HOOKS),
    ("lefthook.yaml", HOOKS),
    ("lefthook.yml", HOOKS),
    (".github/actions", CI),
    (".github/workflows", CI),
    (".gitea/workflows", CI),
    (".forgejo/workflows", CI),
    (".appveyor.yml", CI),
    (".build.yml", CI),
    (".builds", CI),
    (".buildkite", CI),
    (".circleci", CI),
    (".cirrus.yml", CI),
    (".drone.yml", CI),
    (".gitlab-ci.yml", CI),
    (".harness", CI),
    (".semaphore", CI),
    (".teamcity", CI),
    (".tekton", CI),
    (".travis.yml", CI),
    (".woodpecker", CI),
    (".woodpecker.yaml", CI),
    (".woodpecker.yml", CI),
    ("appveyor.yml", CI),
    ("azure-pipelines.yaml", CI),
    ("azure-pipelines.yml", CI),
    ("bitbucket-pipelines.yml", CI),
    ("bitrise.yml", CI),
    ("buildspec.yml", CI),
    ("cloudbuild.yaml", CI),
    ("codemagic.yaml", CI),
    ("jenkinsfile", CI),
    ("wercker.yml", CI),
    (".venv/bin", PYTHON),
    (".venv/pyvenv.cfg", PYTHON),
    (".venv/scripts", PYTHON),
    (".cargo/config", "cargo runs what it says, in every folder below"),
    (".cargo/config.toml", "cargo runs what it says, in every folder below"),
    (".bash_login", SHELLS),
    (".bash_logout", SHELLS),
    (".bash_profile", SHELLS),
    (".bashrc", SHELLS),
    (".config/autostart", SHELLS),
    (".config/fish", SHELLS),
    (".config/git", SHELLS),
    (".config/systemd", SHELLS),
    (".cshrc", SHELLS),
    (".gdbearlyinit", SHELLS),
    (".gdbinit", SHELLS),
    (".gitconfig", SHELLS),
    (".irbrc", SHELLS),
    (".kshrc", SHELLS),
    (".lldbinit", SHELLS),
    (".pdbrc", SHELLS),
    (".profile", SHELLS),
    (".pryrc", SHELLS),
    (".rprofile", SHELLS),
    (".ssh", SHELLS),
    (".tcshrc", SHELLS),
    (".xinitrc", SHELLS),
    (".xprofile", SHELLS),
    (".zlogin", SHELLS),
    (".zprofile", SHELLS),
    (".zshenv", SHELLS),
    (".zshrc", SHELLS),
    // What only Windows reads.
    #[cfg(windows)]
    ("_exrc", EDITORS),
    #[cfg(windows)]
    ("_gvimrc", EDITORS),
    #[cfg(windows)]
    ("_vimrc", EDITORS),
    #[cfg(windows)]
    ("documents/powershell", SHELLS),
    #[cfg(windows)]
    ("documents/windowspowershell", SHELLS),
    #[cfg(windows)]
    ("start menu/programs/startup", SHELLS),
];

/// Files of which only some contents make other programs run something, with what such a content has in it; nothing
/// for files that are programs. Git and package managers write them every day, so commands may, too, as long as the
/// content is harmless. In lower case.
const RUNNING_CONTENTS: &[(&str, &str, &[&str])] = &[
    // https://rust-lang.github.io/rustup/overrides.html#path
    ("rust-toolchain", TOOLCHAIN, &["path"]),
    ("rust-toolchain.toml", TOOLCHAIN, &["path"]),
    // https://asdf-vm.com/manage/configuration.html#tool-versions
    (".tool-versions", TOOLCHAIN, &["path:"]),
    // https://yarnpkg.com/configuration/yarnrc#yarnPath
    (".yarnrc.yml", PACKAGES, &["yarnpath", "plugins"]),
    // https://classic.yarnpkg.com/en/docs/yarnrc#toc-yarn-path
    (".yarnrc", PACKAGES, &["yarn-path"]),
    // https://docs.npmjs.com/cli/using-npm/config
    (".npmrc", PACKAGES, &["script-shell", "node-options", "git=", "git ="]),
    // https://pnpm.io/pnpmfile
    (".pnpmfile.cjs", PACKAGES, &[]),
    (".pnpmfile.mjs", PACKAGES, &[]),
    // https://luals.github.io/wiki/settings/#runtimeplugin
    (".luarc.json", EDITORS, &["plugin"]),
    (".luarc.jsonc", EDITORS, &["plugin"]),
];

/// Files that agents, of this kind and of others, take for instructions of the user. File tools ask before they
/// change one; commands may, because these files differ between the branches of a repository. In lower case.
const INSTRUCTIONS: &[&str] = &[
    ".clinerules",
    ".cursorrules",
    ".github/agents",
    ".github/chatmodes",
    ".github/copilot-instructions.md",
    ".github/instructions",
    ".github/prompts",
    ".goosehints",
    ".junie",
    ".rules",
    ".windsurfrules",
    "agent.md",
    "agents.md",
    "claude.local.md",
    "claude.md",
    "gemini.md",
];

/// The endings of files with tasks and settings of editors, in lower case.
const WORKSPACE_FILES: [&str; 2] = [".code-workspace", ".sublime-project"];

/// The file that makes a folder a virtual environment of Python.
const ENVIRONMENT_FILE: &str = "pyvenv.cfg";

/// The folders of an environment with its programs, in lower case.
const ENVIRONMENT_PROGRAMS: &[&str] = &["bin", "scripts"];

/// Usual names of environments besides `.venv`, in lower case. Others are told from their file alone.
const ENVIRONMENTS: &[&str] = &["venv", "env", "virtualenv"];

/// Folders for the packages of others, in lower case.
const PACKAGE_FOLDERS: &[&str] = &["node_modules", "site-packages", "vendor"];

/// The parts of a `.git` folder that say what git runs, or where its settings are.
pub(super) const GIT_PARTS: &[&str] = &["hooks", "config", "config.worktree", "commondir"];

/// The parts of a `.git` folder that may be changed like any other file.
const UNPROTECTED_GIT_PARTS: &[&str] = &["info/exclude", "commit_editmsg"];

impl ProtectedPaths {
    /// Why this path is protected, if it is: because it is a protected path, lies below one, or is
    /// a folder that contains one. The path must have symlinks resolved.
    pub fn reason(&self, path: &Path) -> Option<&'static str> {
        if self.roots.iter().any(|it| it.starts_with(path)) {
            return Some("the whole project, with its hooks and settings");
        }
        let root = self.roots.iter().filter(|it| path.starts_with(it));
        // The nearest root: names above a folder that the user has opened do not count.
        let root = root.max_by_key(|it| it.components().count());
        let parts = parts(root.and_then(|it| path.strip_prefix(it).ok()).unwrap_or(path));
        let is_git = root.and_then(|it| it.file_name()).is_some_and(|it| it == ".git");
        if let Some(why) = git_reason(&parts, is_git) {
            return Some(why);
        }
        if self.extra.iter().any(|it| root.is_some() && overlaps(&parts, &self::parts(it.as_ref())))
        {
            return Some(USER);
        }
        if ProtectedPaths::is_workspace_file(path) {
            return Some(EDITORS);
        }
        if root.is_some_and(|root| is_in_repository(path, root)) {
            return Some(GIT);
        }
        if is_in_environment(&parts) {
            return Some(PYTHON);
        }
        let is_at = |path: &str| contains_or_is_in(&parts, path);
        let found = PROTECTED.iter().find(|(path, _)| is_at(path)).map(|(_, why)| *why);
        let by_content = RUNNING_CONTENTS.iter().find(|row| is_at(row.0)).map(|row| row.1);
        let is_instruction = INSTRUCTIONS.iter().any(|path| is_at(path));
        found.or(by_content).or(is_instruction.then_some(AGENTS_OBEY))
    }

    /// Whether a content of the file at this path makes other programs run something; `None` for files of which every
    /// content is protected.
    pub fn runs_something(path: &Path, content: &[u8]) -> Option<bool> {
        let name = parts(Path::new(path.file_name()?)).pop()?;
        let (_, _, words) = RUNNING_CONTENTS.iter().find(|row| row.0 == name)?;
        let content = String::from_utf8_lossy(content).to_lowercase();
        Some(words.is_empty() || words.iter().any(|word| content.contains(word)))
    }

    /// Returns true if only some contents of the file at this path are protected: not if the user has named it.
    pub fn is_judged_by_content(&self, path: &Path) -> bool {
        let is_extra = |root: &PathBuf| {
            let below = path.strip_prefix(root).ok().map(parts);
            let named = |extra: &String| parts(extra.as_ref());
            below.is_some_and(|below| self.extra.iter().any(|it| overlaps(&below, &named(it))))
        };
        ProtectedPaths::runs_something(path, b"").is_some() && !self.roots.iter().any(is_extra)
    }

    /// Whether programs of the user obey what is at this path below a root, in a subfolder of it: one of
    /// the protected files, or a link that may lead to one. CI servers do not look into subfolders, and
    /// what packages bring along for their own development is obeyed by nobody.
    pub fn is_obeyed_in_subfolder(path: &Path, is_link: bool) -> bool {
        if !path.iter().skip(1).any(may_begin_obeyed) {
            return false;
        }
        let parts = parts(path);
        if parts.len() < 2 || parts.iter().any(|it| PACKAGE_FOLDERS.contains(&it.as_str())) {
            return false;
        }
        let is_in = |start: usize, pattern: &str| {
            let rest = &parts[start..];
            let (mut all, mut length) = (true, 0);
            for (index, part) in pattern.split('/').enumerate() {
                all &= rest.get(index).is_none_or(|it| it == part);
                length += 1;
            }
            all && (is_link || rest.len() >= length)
        };
        (1..parts.len()).any(|start| obeyed_in_subfolders().any(|path| is_in(start, path)))
            || ProtectedPaths::is_workspace_file(path)
            || ProtectedPaths::is_environment_file(path)
    }

    /// Whether a folder below a root, in a subfolder of it, may hold such a file at this or a further
    /// level.
    pub fn may_hold_obeyed(path: &Path) -> bool {
        ProtectedPaths::is_obeyed_in_subfolder(path, true)
    }

    /// The virtual environment of Python to which a protected path belongs, judging by the path.
    pub fn environment_of(path: &Path) -> Option<&Path> {
        if !path.iter().any(may_be_of_environment) {
            return None;
        }
        let is_programs = |it: &&Path| {
            let name = parts(Path::new(it.file_name().unwrap_or_default()));
            name.first().is_some_and(|it| ENVIRONMENT_PROGRAMS.contains(&it.as_str()))
        };
        if ProtectedPaths::is_environment_file(path) {
            return path.parent();
        }
        path.ancestors().filter(is_programs).find_map(|it| it.parent().filter(|it| is_venv(it)))
    }

    /// Whether this is the file that makes its folder a virtual environment.
    pub fn is_environment_file(path: &Path) -> bool {
        path.file_name().is_some_and(is_environment_file_name)
    }

    /// The folders with the programs of an environment.
    pub fn environment_programs(environment: &Path) -> impl Iterator<Item = PathBuf> {
        ["bin", "Scripts"].iter().map(|it| environment.join(it))
    }

    /// Whether this is a file with tasks and settings of VS Code.
    pub fn is_workspace_file(path: &Path) -> bool {
        let name = parts(path).pop();
        name.is_some_and(|name| WORKSPACE_FILES.iter().any(|ending| name.ends_with(ending)))
    }

    /// The protected paths in the session's folders that commands cannot write, whether they exist or not, but for
    /// workspace files.
    pub fn leaf_paths(&self) -> Vec<PathBuf> {
        let paths = self.paths();
        let is_parent =
            |index: usize| paths.get(index + 1).is_some_and(|it| it.starts_with(&paths[index]));
        let leaves = (0..paths.len()).filter(|index| !is_parent(*index));
        let leaves = leaves.map(|index| paths[index].clone());
        leaves.filter(|path| !self.is_judged_by_content(path)).collect()
    }

    /// The protected paths in a `.git` folder, besides the folder itself.
    pub fn git_parts(git: &Path) -> impl Iterator<Item = PathBuf> {
        GIT_PARTS.iter().map(|it| git.join(it))
    }

    /// The same, with the folders that lead to them, sorted so that a folder comes before what it
    /// contains.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for root in &self.roots {
            let git = if root.file_name().is_some_and(|it| it == ".git") {
                root.clone()
            } else {
                paths.push(root.join(".git"));
                root.join(".git")
            };
            paths.extend(ProtectedPaths::git_parts(&git));
            let by_content = RUNNING_CONTENTS.iter().map(|row| row.0);
            let built_in = PROTECTED.iter().map(|row| row.0).chain(by_content).map(usual_spelling);
            let extra = self.extra.iter().map(|path| path.trim_matches('/'));
            for path in built_in.chain(extra) {
                let mut folder = root.clone();
                for part in Path::new(path) {
                    folder.push(part);
                    paths.push(folder.clone());
                }
            }
        }
        paths.sort();
        paths.dedup();
        paths
    }
}

/// The protected files that programs obey in subfolders, too: all but those of CI servers.
fn obeyed_in_subfolders() -> impl Iterator<Item = &'static str> {
    let protected = PROTECTED.iter().filter(|row| row.1 != CI).map(|row| row.0);
    protected.chain(RUNNING_CONTENTS.iter().map(|row| row.0))
}

/// Whether a name may be that of a workspace file, or the first part of a protected path. Most names are not, and
/// this tells so without allocating.
fn may_begin_obeyed(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let ends_with = |ending: &&str| {
        let start = name.len().saturating_sub(ending.len());
        name[start..].eq_ignore_ascii_case(ending.as_bytes())
    };
    if WORKSPACE_FILES.iter().any(ends_with) {
        return true;
    }
    if name.eq_ignore_ascii_case(ENVIRONMENT_FILE.as_bytes()) {
        return true;
    }
    if cfg!(not(windows)) && !name.first().is_some_and(|it| b".mMlLoOrR".contains(it)) {
        return !name.is_ascii();
    }
    let is_ignored = |it: &&u8| matches!(it, b'.' | b' ');
    let end = name.len() - name.iter().rev().take_while(is_ignored).count();
    let begins = |path: &str| {
        let first = path.as_bytes().get(..end);
        first.is_some_and(|it| it.eq_ignore_ascii_case(&name[..end]))
            && path.as_bytes().get(end).is_none_or(|it| *it == b'/')
    };
    !name.is_ascii() || obeyed_in_subfolders().any(begins)
}

/// The usual spelling of a path that the table has in lower case.
fn usual_spelling(path: &str) -> &str {
    match path {
        "jenkinsfile" => "Jenkinsfile",
        ".rprofile" => ".Rprofile",
        ".venv/scripts" => ".venv/Scripts",
        ".idea/runconfigurations" => ".idea/runConfigurations",
        ".idea/watchertasks.xml" => ".idea/watcherTasks.xml",
        path => path,
    }
}

/// The parts of a path as the most lenient file systems compare them: without case, invisible
/// characters, and dots and blanks at the end.
fn parts(path: &Path) -> Vec<String> {
    let is_visible = |it: &char| !matches!(it, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let part = |it: &OsStr| {
        let text: String = it.to_string_lossy().chars().filter(is_visible).collect();
        let text = text.to_lowercase();
        match text.trim_end_matches(['.', ' ']) {
            // The short name on Windows.
            "git~1" => ".git".to_owned(),
            "" => text,
            plain => plain.to_owned(),
        }
    };
    path.iter().map(part).collect()
}

/// Whether a part of a path may be one that is looked for in environments. This is asked of all protected paths, of
/// which few are.
fn may_be_of_environment(part: &OsStr) -> bool {
    let name = part.as_encoded_bytes();
    let end = name.iter().rposition(|it| !matches!(it, b'.' | b' ')).map_or(0, |it| it + 1);
    let is_named = |it: &&str| it.as_bytes().eq_ignore_ascii_case(&name[..end]);
    !name.is_ascii() || ENVIRONMENT_PROGRAMS.iter().chain(&[ENVIRONMENT_FILE]).any(is_named)
}

fn is_environment_file_name(name: &OsStr) -> bool {
    parts(Path::new(name)).first().is_some_and(|it| it == ENVIRONMENT_FILE)
}

/// Whether a folder is named `.venv`.
fn is_venv(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    parts(Path::new(name)).first().is_some_and(|it| it == ".venv")
}

/// Whether a path is, or may be, a part of a virtual environment that programs of the user run: its file, its
/// programs if it has one of the usual names, and in any folder those that start it.
fn is_in_environment(parts: &[String]) -> bool {
    let starts = |it: &str| {
        let (stem, end) = it.split_once('.').unwrap_or((it, ""));
        let is_script = ["", "sh", "fish", "csh", "nu", "bat", "ps1", "xsh"].contains(&end);
        let is_version = |it: &str| it.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        let is_python = |it: &str| it.strip_prefix("python").is_some_and(is_version);
        stem == "activate" && is_script
            || it == "activate_this.py"
            || is_python(it.trim_end_matches(".exe"))
    };
    let is_programs = |it: &String| ENVIRONMENT_PROGRAMS.contains(&it.as_str());
    let mut places = (1..parts.len()).filter(|it| is_programs(&parts[*it]));
    parts.last().is_some_and(|it| it == ENVIRONMENT_FILE)
        || places.any(|at| {
            ENVIRONMENTS.contains(&parts[at - 1].as_str())
                || parts.get(at + 1).is_some_and(|it| starts(it))
        })
}

fn git_reason(parts: &[String], is_git: bool) -> Option<&'static str> {
    let inside = match parts.iter().position(|it| it == ".git") {
        Some(index) => &parts[index + 1..],
        None if is_git => parts,
        None => return None,
    };
    (!UNPROTECTED_GIT_PARTS.contains(&inside.join("/").as_str())).then_some(GIT)
}

fn contains_or_is_in(parts: &[String], path: &str) -> bool {
    let path: Vec<_> = path.split('/').collect();
    (0..parts.len()).any(|start| overlaps(&parts[start..], &path))
}

/// True if one of the paths is the other or lies below it.
fn overlaps(path: &[String], other: &[impl AsRef<str>]) -> bool {
    !path.is_empty() && path.iter().zip(other).all(|(one, other)| one == other.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected() -> ProtectedPaths {
        let roots = vec!["/home/u/.claude/ws".into(), "/repo/.git".into(), "/repo/sub".into()];
        ProtectedPaths { roots, extra: vec!["deploy/keys/".to_owned()] }
    }

    #[test]
    fn protected_paths_are_recognised_however_they_are_spelt() {
        let protected = protected();
        for path in [
            ".git",
            ".git/hooks",
            ".git/hooks/pre-commit",
            ".git/config",
            ".GIT/Config",
            ".git/HEAD",
            ".git./hooks/x",
            "git~1/config",
            ".g\u{200c}it/hooks/x",
            "vendor/lib/.git/hooks/x",
            ".git/modules/a/config",
            ".vscode",
            ".vscode/tasks.json",
            "sub/.vscode/Settings.json",
            ".github",
            ".github/workflows/ci.yml",
            "Jenkinsfile",
            ".envrc",
            "a/b/.envrc",
            ".mcp.json",
            ".turnwright/rules.toml",
            ".husky/pre-commit",
            ".idea/runConfigurations/a.xml",
            ".zshrc",
            ".cargo/config.toml",
            "sub/.cargo/Config",
            "lefthook.yaml",
            ".lefthook-local.json",
            ".Rprofile",
            ".roo/mcp.json",
            ".aider.conf.yml",
            "AGENTS.md",
            "sub/CLAUDE.md",
            ".github/copilot-instructions.md",
            "x.sublime-project",
            ".bsp/x.json",
            ".builds/a.yml",
            "codemagic.yaml",
            ".npmrc",
            "web/.yarnrc.yml",
            "rust-toolchain.toml",
            ".venv",
            ".venv/bin/python",
            ".VENV/Scripts/activate.bat",
            "sub/.venv/bin/ruff",
            ".venv/pyvenv.cfg",
            "other/pyvenv.cfg",
            "venv/bin/pytest",
            "env/Scripts/python.exe",
            "tools/py3/bin/activate",
            "scripts/venv/bin/activate",
            "bin/env/bin/python",
            "tools/py3/Scripts/Activate.ps1",
            "tools/py3/bin/python3.12",
            "sub/OpenCode.json",
            ".continue/config.yaml",
            "sub/.pdbrc",
            ".kiro",
            ".amazonq/rules/x.md",
            ".idea/workspace.xml",
            ".idea/watcherTasks.xml",
            ".helix/languages.toml",
            "sub/mise.toml",
            ".hg/hgrc",
            "my.Code-Workspace",
            ".tekton/push.yaml",
            ".claude/settings.json",
            ".cursor",
            "deploy",
            "deploy/keys",
            "deploy/keys/a",
        ] {
            let path = Path::new("/home/u/.claude/ws").join(path);
            assert!(protected.reason(&path).is_some(), "{}", path.display());
        }
        for path in
            ["/home/u/.bashrc", "/home/u", "/", "/repo", "/repo/.git/config", "/repo/.git/hooks/x"]
        {
            assert!(protected.reason(Path::new(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn some_files_run_something_only_with_some_contents() {
        for (path, content, expected) in [
            ("rust-toolchain.toml", "[toolchain]\nchannel = 'stable'", Some(false)),
            ("a/rust-toolchain.toml", "[toolchain]\npath = '../x'", Some(true)),
            (".tool-versions", "nodejs 20.1.0", Some(false)),
            (".tool-versions", "nodejs path:../x", Some(true)),
            (".yarnrc.yml", "nodeLinker: node-modules", Some(false)),
            (".YARNRC.yml", "yarnPath: ./x.cjs", Some(true)),
            (".npmrc", "registry=https://npm.pkg.github.com/", Some(false)),
            (".npmrc", "script-shell=./x", Some(true)),
            (".pnpmfile.cjs", "", Some(true)),
            (".luarc.json", "{\"runtime.plugin\": \"x.lua\"}", Some(true)),
            (".vscode/tasks.json", "{}", None),
        ] {
            let runs = ProtectedPaths::runs_something(Path::new(path), content.as_bytes());
            assert_eq!(runs, expected, "{path}: {content}");
        }
    }

    #[test]
    fn what_the_user_has_named_is_protected_with_every_content() {
        let (root, extra) = (PathBuf::from("/ws"), vec![".npmrc".to_owned(), "web".to_owned()]);
        let protected = ProtectedPaths { roots: vec![root.clone()], extra };
        for (path, expected) in
            [(".npmrc", false), ("web/.yarnrc.yml", false), (".yarnrc.yml", true)]
        {
            assert_eq!(protected.is_judged_by_content(&root.join(path)), expected, "{path}");
        }
        let leaves = protected.leaf_paths();
        assert!(
            leaves.contains(&root.join(".npmrc")) && !leaves.contains(&root.join(".yarnrc.yml"))
        );
    }

    #[test]
    fn similar_paths_are_not_protected() {
        let protected = protected();
        for path in [
            "a.txt",
            ".gitignore",
            ".gitattributes",
            "git/config",
            "hooks/x",
            "package.json",
            ".vscode/extensions.json",
            ".github/ISSUE_TEMPLATE.md",
            ".idea/misc.xml",
            ".hg/store",
            "mise/README.md",
            "agents/README.md",
            "docs/rules",
            "docs/deploy/keys",
            "x.envrc",
            ".cargo/audit.toml",
            "code-workspace",
            ".git/info/exclude",
            "npmrc",
            "rust-toolchain.md",
            ".venv/lib/python3.12/site-packages/x.py",
            "venv",
            "env/mod.rs",
            "bin/run",
            "sub/bin/activation.rs",
            "sub/bin/python-config",
            "src/workflows/ci.yml",
            "tasks.json",
        ] {
            let path = Path::new("/home/u/.claude/ws").join(path);
            assert_eq!(protected.reason(&path), None, "{}", path.display());
        }
        assert_eq!(protected.reason(Path::new("/repo/sub/a")), None);
        assert_eq!(protected.reason(Path::new("/etc/passwd")), None);
    }

    #[cfg(windows)]
    #[test]
    fn every_spelling_of_a_protected_path_is_protected_on_windows() {
        let protected = ProtectedPaths { roots: vec![r"C:\ws".into()], extra: vec!["own".into()] };
        for (path, expected) in [
            (r"C:\ws\.git\config", true),
            (r"C:\ws\.GIT\Config", true),
            (r"c:\ws/.git/hooks/pre-commit", true),
            (r"C:\ws\.git.\config. ", true),
            (r"C:\ws\GIT~1\hooks\x", true),
            (r"C:\ws\Own\x", true),
            (r"C:\ws\sub\.VSCode\tasks.json", true),
            (r"C:\ws\.venv\Scripts\python.exe", true),
            (r"C:\ws\_vimrc", true),
            // The same folder, as nothing resolves it: whatever is protected anywhere is so here.
            (r"C:\WS\.git\config", true),
            (r"\\?\C:\ws\.git\config", true),
            (r"\\server\c$\ws\.git\config", true),
            (r"C:\Users\me\Documents\PowerShell\Microsoft.PowerShell_profile.ps1", true),
            (
                r"C:\Users\me\AppData\Roaming\Microsoft\Windows\Start Menu\Programs\Startup\x.bat",
                true,
            ),
            (r"C:\ws\src\main.rs", false),
            (r"C:\ws\documents\a.txt", false),
        ] {
            assert_eq!(protected.reason(Path::new(path)).is_some(), expected, "{path}");
        }
    }

    #[test]
    fn protected_files_in_subfolders_are_told_from_others() {
        for (path, is_link, expected) in [
            ("sub/.vscode/tasks.json", false, true),
            ("a/b/.Cargo/config.toml", false, true),
            ("packages/x/.envrc", false, true),
            ("sub/lefthook.yml", false, true),
            ("sub/.idea/runConfigurations/x.xml", false, true),
            ("sub/.claude/a/b", false, true),
            ("sub/my.Code-Workspace", false, true),
            (".venv/pyvenv.cfg", false, true),
            ("any/name/Pyvenv.cfg", false, true),
            ("sub/.venv/bin/python", false, true),
            (".venv/bin/python", false, false),
            ("sub/.venv/lib/x.py", false, false),
            ("sub/.vscode", true, true),
            ("sub/.vscode", false, false),
            ("sub/.vscode/extensions.json", false, false),
            ("sub/.github/workflows/ci.yml", false, false),
            ("sub/.travis.yml", false, false),
            ("node_modules/a/.vscode/tasks.json", false, false),
            (".vscode/tasks.json", false, false),
            ("src/main.rs", false, false),
            ("src/link", true, false),
        ] {
            let found = ProtectedPaths::is_obeyed_in_subfolder(Path::new(path), is_link);
            assert_eq!(found, expected, "{path}");
        }
        for (name, _) in PROTECTED.iter().filter(|it| it.1 != CI) {
            for spelling in [name.to_string(), name.to_uppercase(), format!("{name}. ")] {
                let path = Path::new("sub").join(&spelling);
                assert!(ProtectedPaths::is_obeyed_in_subfolder(&path, false), "{spelling}");
            }
        }
        assert!(ProtectedPaths::may_hold_obeyed(Path::new("a/.config")));
        assert!(!ProtectedPaths::may_hold_obeyed(Path::new("a/target")));
    }

    #[test]
    fn the_environment_of_a_protected_path_is_known() {
        for (path, expected) in [
            ("/ws/.venv/bin/python", Some("/ws/.venv")),
            ("/ws/.venv/bin", Some("/ws/.venv")),
            ("/ws/sub/.venv/Scripts/x.exe", Some("/ws/sub/.venv")),
            ("/ws/py3/pyvenv.cfg", Some("/ws/py3")),
            ("/ws/py3/bin/python", None),
            ("/ws/.venv/lib/x.py", None),
            ("/ws/.vscode/tasks.json", None),
        ] {
            let found = ProtectedPaths::environment_of(Path::new(path));
            assert_eq!(found, expected.map(Path::new), "{path}");
        }
    }

    #[test]
    fn listed_paths_are_protected_themselves() {
        let protected = protected();
        let paths = protected.paths();
        for path in &paths {
            assert!(protected.reason(path).is_some(), "{}", path.display());
        }
        assert!(paths.contains(&"/repo/.git/hooks".into()));
        assert!(paths.contains(&"/repo/sub/.github/workflows".into()));
    }
}
