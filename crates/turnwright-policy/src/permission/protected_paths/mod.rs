//! Files of a project that other programs run or obey outside of any sandbox: hooks, editor tasks, shell startup files.
//! Changing one changes what the user's own programs do. Paths that make a folder a repository of git without `.git`,
//! or are obeyed in one, are among them.

pub(super) mod files;
mod harmless_contents;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use files::{
    FileClass, NAME_FORMS, PYTHON, Protection, file_classes, is_in_environment,
    is_in_known_environment, is_of_conda, is_venv, may_be_of_environment,
};

use turnwright_types::git_layout::GitLayout;
use turnwright_types::look_alike::is_invisible;

/// The protected paths of a session.
#[derive(Clone, Debug, Default)]
pub struct ProtectedPaths {
    roots: Vec<PathBuf>,
    extra: Vec<String>,
    // The protected paths whose places are known: made when they are first asked for, which blocks, and shared by all
    // copies.
    paths: Arc<OnceLock<Vec<PathBuf>>>,
    leaves: Arc<OnceLock<Vec<PathBuf>>>,
}

const GIT: &str = "git's own files: its hooks and settings say what git runs";
const USER: &str = "your settings name it as protected, or git, direnv or a link leads to it";

/// The file that makes a folder a virtual environment of Python.
const ENVIRONMENT_FILE: &str = "pyvenv.cfg";

/// The folders of an environment with its programs, in lower case.
const ENVIRONMENT_PROGRAMS: &[&str] = &["bin", "scripts"];

/// Folders for the packages of others, in lower case.
const PACKAGE_FOLDERS: &[&str] = &["node_modules", "site-packages", "vendor"];

/// The parts of a `.git` folder that say what git runs, or where its settings are.
const GIT_PARTS: &[&str] = &["hooks", "config", "config.worktree", "commondir"];

/// The parts of a `.git` folder that may be changed like any other file.
const UNPROTECTED_GIT_PARTS: &[&str] = &["info/exclude", "commit_editmsg"];

impl ProtectedPaths {
    /// `roots` are the session's folders and the folders of the repository they lie in; `extra` are paths relative to
    /// each root that the user has added.
    pub fn new(roots: Vec<PathBuf>, extra: Vec<String>) -> ProtectedPaths {
        ProtectedPaths { roots, extra, ..ProtectedPaths::default() }
    }

    /// The session's folders, and the folders of the repository they lie in.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Why this path is protected, if it is: because it is a protected path, lies below one, or is
    /// a folder that contains one. The path must have symlinks resolved.
    pub fn reason(&self, path: &Path) -> Option<&'static str> {
        if self.roots.iter().any(|root| root.starts_with(path)) {
            return Some("the whole project, with its hooks and settings");
        }
        // The nearest root: names above a folder that the user has opened do not count.
        let above = self.roots.iter().filter(|root| path.starts_with(root));
        let root = above.max_by_key(|root| root.components().count());
        let parts = parts(root.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path));
        let is_git = root.and_then(|root| root.file_name()).is_some_and(|name| name == ".git");
        if let Some(why) = git_reason(&parts, is_git) {
            return Some(why);
        }
        let mut extra = self.extra.iter().filter(|_| root.is_some());
        if extra.any(|path| overlaps(&parts, &self::parts(path.as_ref()))) {
            return Some(USER);
        }
        if let Some(why) = reason_of_name(path) {
            return Some(why);
        }
        if root.is_some_and(|root| is_in_repository(path, root)) {
            return Some(GIT);
        }
        if is_in_environment(&parts) || is_in_known_environment(path, root) {
            return Some(PYTHON);
        }
        let has_path =
            |class: &&FileClass| class.files().any(|file| contains_or_is_in(&parts, file));
        file_classes().find(has_path).map(|class| class.reason)
    }

    /// Returns whether a content of the file at this path makes other programs run something; `None` for files of
    /// which every content is protected.
    pub fn runs_something(path: &Path, content: &[u8]) -> Option<bool> {
        let is_harmless = judge_of(path)?;
        let folder = path.parent().unwrap_or(path);
        Some(!str::from_utf8(content).is_ok_and(|text| is_harmless(folder, text)))
    }

    /// Returns true if only some contents of the file at this path are protected: not if the user has named it.
    pub fn is_judged_by_content(&self, path: &Path) -> bool {
        judge_of(path).is_some() && !self.is_extra(path)
    }

    fn is_extra(&self, path: &Path) -> bool {
        let below_roots = self.roots.iter().filter_map(|root| path.strip_prefix(root).ok());
        below_roots
            .map(parts)
            .any(|below| self.extra.iter().any(|extra| overlaps(&below, &parts(extra.as_ref()))))
    }

    /// Returns true if programs of the user obey the file at this path below a root, in a subfolder of it: one of
    /// the protected files, or a link that may lead to one. CI servers do not look into subfolders, and
    /// nothing obeys the files that packages bring along for their own development.
    pub fn is_obeyed_in_subfolder(path: &Path, is_link: bool) -> bool {
        if !path.iter().skip(1).any(may_begin_obeyed) {
            return false;
        }
        let parts = parts(path);
        if parts.len() < 2 || parts.iter().any(|part| PACKAGE_FOLDERS.contains(&part.as_str())) {
            return false;
        }
        let is_in = |start: usize, pattern: &str| {
            let rest = &parts[start..];
            let mut pairs = rest.iter().zip(pattern.split('/'));
            pairs.all(|(name, part)| name.eq_ignore_ascii_case(part))
                && (is_link || rest.len() >= pattern.split('/').count())
        };
        (1..parts.len()).any(|start| obeyed_in_subfolders().any(|path| is_in(start, path)))
            || ProtectedPaths::is_workspace_file(path)
            || ProtectedPaths::is_environment_file(path)
    }

    /// Returns true if a folder below a root, in a subfolder of it, may hold such a file at this or a
    /// further level.
    pub fn may_hold_obeyed(path: &Path) -> bool {
        ProtectedPaths::is_obeyed_in_subfolder(path, true)
    }

    /// The virtual environment of Python to which a protected path belongs, judging by the path.
    pub fn environment_of(path: &Path) -> Option<&Path> {
        if !path.iter().any(may_be_of_environment) {
            return None;
        }
        if ProtectedPaths::is_environment_file(path) {
            return path.parent();
        }
        path.ancestors().filter(|folder| holds_programs(folder)).find_map(|programs| {
            programs.parent().filter(|folder| is_venv(folder) || is_of_conda(folder))
        })
    }

    /// Returns true if this is the file that makes its folder a virtual environment.
    pub fn is_environment_file(path: &Path) -> bool {
        path.file_name().is_some_and(|name| part(name) == ENVIRONMENT_FILE)
    }

    /// The folders with the programs of an environment.
    pub fn environment_programs(environment: &Path) -> impl Iterator<Item = PathBuf> {
        ["bin", "Scripts"].iter().map(|folder| environment.join(folder))
    }

    /// Returns true if this is a file that is protected for the form of its name, as the workspace files of editors.
    pub fn is_workspace_file(path: &Path) -> bool {
        reason_of_name(path).is_some()
    }

    /// The protected paths in the session's folders that commands cannot write, whether they exist or not, but for
    /// workspace files. git's own come first, and those of virtual environments last.
    pub fn leaf_paths(&self) -> &[PathBuf] {
        self.leaves.get_or_init(|| {
            let sorted = self.sorted_paths();
            let is_parent = |index: usize| {
                sorted.get(index + 1).is_some_and(|next| next.starts_with(&sorted[index]))
            };
            let leaves = (0..sorted.len())
                .filter(|index| !is_parent(*index))
                .map(|index| sorted[index].clone())
                .filter(|path| !self.is_judged_by_content(path))
                .collect();
            ProtectedPaths::git_first(leaves)
        })
    }

    /// The same, with the folders that lead to them: a folder comes before what it contains.
    pub fn paths(&self) -> &[PathBuf] {
        self.paths.get_or_init(|| ProtectedPaths::git_first(self.sorted_paths()))
    }

    /// The protected paths in a `.git` folder, besides the folder itself.
    pub fn git_parts(git: &Path) -> impl Iterator<Item = PathBuf> {
        GIT_PARTS.iter().map(|part| git.join(part))
    }

    /// Sorts git's own paths before all others, because the number of copies of their contents is limited, and those
    /// of virtual environments behind all, because they are many. Keeps the order otherwise.
    pub fn git_first(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
        paths.sort_by_cached_key(|path| {
            let is_of_git = path.iter().any(|part| part == ".git");
            (ProtectedPaths::environment_of(path).is_some(), !is_of_git)
        });
        paths
    }

    fn sorted_paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for root in &self.roots {
            let is_git = root.file_name().is_some_and(|name| name == ".git");
            if !is_git {
                paths.push(root.join(".git"));
                paths.extend(ProtectedPaths::git_parts(&root.join(".git")));
            }
            if is_git || GitLayout::of(root).is_repository() {
                paths.extend(ProtectedPaths::git_parts(root));
            }
            let classes = file_classes().filter(|class| !is_for_file_tools(class));
            let built_in = classes.flat_map(FileClass::files).map(str::to_owned);
            let extra = self.extra.iter().map(|path| path.trim_matches('/').to_owned());
            for path in built_in.chain(extra) {
                let path = Path::new(&path);
                // Instructions for agents may be a file, which commands may change, or a folder with hooks.
                let parts = path.ancestors().filter(|part| {
                    !part.as_os_str().is_empty()
                        && (*part == path || !instructions().any(|name| Path::new(name) == *part))
                });
                paths.extend(parts.map(|part| root.join(part)));
            }
        }
        paths.sort();
        paths.dedup();
        paths
    }
}

fn is_for_file_tools(class: &FileClass) -> bool {
    matches!(class.protection, Protection::FileTools)
}

fn instructions() -> impl Iterator<Item = &'static str> {
    file_classes().filter(|class| is_for_file_tools(class)).flat_map(FileClass::files)
}

/// The judge of the contents of the file at this path, if they decide.
fn judge_of(path: &Path) -> Option<fn(&Path, &str) -> bool> {
    let name = part(path.file_name()?);
    file_classes().find_map(|class| match class.protection {
        Protection::Content(judge)
            if class.files().any(|file| file.eq_ignore_ascii_case(&name)) =>
        {
            Some(judge)
        }
        _ => None,
    })
}

/// Why a file is protected for the form of its name.
fn reason_of_name(path: &Path) -> Option<&'static str> {
    let name = part(path.file_name().filter(|name| may_have_form(name))?);
    let form = NAME_FORMS
        .iter()
        .find(|(start, end, _)| name.strip_prefix(*start).is_some_and(|rest| rest.ends_with(end)));
    form.map(|form| form.2)
}

/// The protected files that programs obey in subfolders, too: all but those of CI servers.
fn obeyed_in_subfolders() -> impl Iterator<Item = &'static str> {
    file_classes()
        .filter(|class| !matches!(class.protection, Protection::TopFolder | Protection::FileTools))
        .flat_map(FileClass::files)
}

/// Returns true if a name may have one of the protected forms. Most names have not, and this tells so without
/// allocating.
fn may_have_form(name: &OsStr) -> bool {
    let name = without_end(name);
    !name.is_ascii()
        || NAME_FORMS.iter().any(|(start, end, _)| {
            let rest = name.len().saturating_sub(end.len());
            name[rest..].eq_ignore_ascii_case(end.as_bytes())
                && name
                    .get(..start.len())
                    .is_some_and(|first| first.eq_ignore_ascii_case(start.as_bytes()))
        })
}

/// Returns true if a name may have the form of a protected one, or be the first part of a protected path. Most names are not,
/// and this tells so without allocating.
fn may_begin_obeyed(spelt: &OsStr) -> bool {
    if may_have_form(spelt) {
        return true;
    }
    let name = spelt.as_encoded_bytes();
    if name.eq_ignore_ascii_case(ENVIRONMENT_FILE.as_bytes()) {
        return true;
    }
    if cfg!(not(windows))
        && !name.first().is_some_and(|byte| b".cklmopr".contains(&byte.to_ascii_lowercase()))
    {
        return !name.is_ascii();
    }
    let first_part = without_end(spelt);
    !name.is_ascii()
        || obeyed_in_subfolders().any(|path| {
            let split = path.as_bytes().split_at_checked(first_part.len());
            split.is_some_and(|(start, rest)| {
                start.eq_ignore_ascii_case(first_part) && matches!(rest.first(), None | Some(b'/'))
            })
        })
}

/// A name without the dots and blanks at its end, which Windows ignores.
fn without_end(name: &OsStr) -> &[u8] {
    let name = name.as_encoded_bytes();
    let last = name.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    &name[..last.map_or(0, |last| last + 1)]
}

/// The parts of a path as the most lenient file systems compare them: without case, which makes `s` of `ſ` as well,
/// without invisible characters, and without dots and blanks at the end.
fn parts(path: &Path) -> Vec<String> {
    path.iter().map(part).collect()
}

fn part(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    let visible: String = name.chars().filter(|char| !is_invisible(*char)).collect();
    let text = visible.to_uppercase().to_lowercase();
    match text.trim_end_matches(['.', ' ']) {
        // The short name on Windows.
        "git~1" => ".git".to_owned(),
        "" => text,
        plain => plain.to_owned(),
    }
}

/// Returns true if a folder has the name of one with the programs of an environment.
fn holds_programs(folder: &Path) -> bool {
    let name = part(folder.file_name().unwrap_or_default());
    ENVIRONMENT_PROGRAMS.contains(&name.as_str())
}

fn git_reason(parts: &[String], is_git: bool) -> Option<&'static str> {
    let inside = match parts.iter().position(|part| part == ".git") {
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
    !path.is_empty()
        && path.iter().zip(other).all(|(one, other)| one.eq_ignore_ascii_case(other.as_ref()))
}

/// The entries by which git takes a folder for a repository: those that nothing else has, and the others.
const MAKES_REPOSITORIES: &[&str] = &["HEAD", "commondir", "config.worktree"];
const PARTS_OF_LAYOUT: &[&str] = &["objects", "refs"];

/// Returns true if git would obey what is at a path below a root, because a folder above is a repository without
/// `.git`, or becomes one by the path. Looks at the disk, only for the few names that can make one or say what it runs.
fn is_in_repository(path: &Path, root: &Path) -> bool {
    path.ancestors().take_while(|above| *above != root).any(|part| {
        let Some((folder, name)) = part.parent().zip(part.file_name()) else { return false };
        let is_same = |known: &&str| {
            name == *known || !cfg!(target_os = "linux") && name.eq_ignore_ascii_case(known)
        };
        let is_obeyed = GIT_PARTS.iter().any(is_same) && GitLayout::of(folder).is_repository();
        let is_completed = PARTS_OF_LAYOUT.iter().any(is_same)
            && !GitLayout::of(folder).is_repository()
            && GitLayout::with_entry(folder, name).is_repository();
        part == path && MAKES_REPOSITORIES.iter().any(is_same) || is_obeyed || is_completed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected() -> ProtectedPaths {
        let roots = vec!["/home/u/.claude/ws".into(), "/repo/.git".into(), "/repo/sub".into()];
        ProtectedPaths::new(roots, vec!["deploy/keys/".to_owned()])
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
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
            // Also nothing to folders of ext4 and f2fs that ignore case.
            ".g\u{ad}it/hooks/x",
            ".vs\u{fe0f}code/tasks.json",
            ".env\u{e0041}rc",
            ".v\u{17f}code/tasks.json",
            "lefthoo\u{212a}.yml",
            ".con\u{fb01}g/lefthook.json",
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
            ".conda/bin/ruff",
            ".pixi/envs/lint/bin/ruff",
            "tools/conda/etc/conda/activate.d/a.sh",
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
            "my.code-workspace. ",
            ".tekton/push.yaml",
            ".claude/settings.json",
            ".cursor",
            "deploy",
            "deploy/keys",
            "deploy/keys/a",
            ".github/hooks/x.json",
            "crush.json",
            ".crushrc",
            ".clinerules/hooks/PreToolUse",
            ".junie/mcp/mcp.json",
            ".amp/settings.json",
            ".augment/settings.json",
            ".kilocode/mcp.json",
            "kilo.jsonc",
            ".openhands/setup.sh",
            ".pi/extensions/x.ts",
            ".tabnine/agent/settings.json",
            ".trae/mcp.json",
            ".vibe/config.toml",
            ".theia/tasks.json",
            ".vscode/cmake-kits.json",
            ".vscode/c_cpp_properties.json",
            "lefthook.jsonc",
            ".lefthook-local.jsonc",
            ".config/lefthook.json",
            ".lefthook/pre-commit/x.sh",
            ".mise.local.toml",
            "mise/config.toml",
            "mise.dev.toml",
            "sub/.mise.dev.local.toml",
            ".iex.exs",
            ".ghci",
            ".octaverc",
            ".Renviron",
            ".ocamlinit",
            ".psysh.php",
            ".hg/hgrc-not-shared",
            ".hg/sharedpath",
            ".sl/config",
            "buildkite.yml",
            ".cirrus.star",
            ".drone.star",
            ".drone.jsonnet",
            "cloudbuild.json",
            ".readthedocs.yaml",
            "netlify.toml",
            ".zuul.yaml",
            "zuul.d/jobs.yaml",
            ".gitpod.yml",
            ".python-version",
            "pnpm-workspace.yaml",
            ".pdm-python",
            ".vim/coc-settings.json",
            "sub/.vs/mcp.json",
            ".kimi-code/mcp.json",
            ".letta/settings.json",
            ".agent/workflows/x.md",
            "reasonix.toml",
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
    fn what_the_user_has_named_is_protected_with_every_content() {
        let root = PathBuf::from("/ws");
        let extra = vec![".npmrc".to_owned(), "web".to_owned()];
        let protected = ProtectedPaths::new(vec![root.clone()], extra);
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
            ".agent/PLANS.md",
            ".vim/ftplugin/rust.vim",
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
        let protected = ProtectedPaths::new(vec![r"C:\ws".into()], vec!["own".into()]);
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
        for name in obeyed_in_subfolders() {
            for spelling in [name.to_owned(), name.to_uppercase(), format!("{name}. ")] {
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
            ("/ws/.conda/bin/ruff", Some("/ws/.conda")),
            ("/ws/.pixi/envs/default/bin", Some("/ws/.pixi/envs/default")),
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
        for path in paths {
            assert!(protected.reason(path).is_some(), "{}", path.display());
        }
        assert!(paths.contains(&"/repo/.git/hooks".into()));
        assert!(paths.contains(&"/repo/sub/.github/workflows".into()));
    }

    #[test]
    fn what_makes_a_folder_a_repository_or_is_obeyed_in_one_is_protected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        let protected = ProtectedPaths::new(vec![root.clone()], Vec::new());
        for path in ["bare/objects", "bare/refs", "bare/HEAD", "half/HEAD", "half/refs", "src"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        for (path, expected) in [
            ("sub/HEAD", true),
            ("sub/commondir", true),
            ("sub/config.worktree", true),
            ("half/objects/info/x", true),
            ("bare/config", true),
            ("bare/hooks/post-receive", true),
            ("bare/description", false),
            ("bare/objects/x", false),
            ("half/config", false),
            ("src/HEAD/x", false),
            ("src/config", false),
            ("src/hooks/useTheme.ts", false),
            ("src/refs/a", false),
        ] {
            let reason = protected.reason(&root.join(path));
            assert_eq!(reason.is_some(), expected, "{path}");
        }
        for (folder, expected) in [("bare", true), ("half", false)] {
            let opened = ProtectedPaths::new(vec![root.join(folder)], Vec::new());
            let hooks = root.join(folder).join("hooks");
            assert_eq!(opened.leaf_paths().contains(&hooks), expected, "{folder}");
        }
    }
}
