//! What lies in a project and is run by somebody else later, outside of any sandbox: hooks, the
//! tasks of editors, start files. A change to it is a change of what the user's own programs do.

use std::path::{Path, PathBuf};

/// The protected places of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// The session's folders, and the folders of the repository they lie in.
    pub roots: Vec<PathBuf>,
    /// What the user has added, relative to a root.
    pub more: Vec<String>,
}

const GIT: &str = "git's own files: its hooks and settings say what git runs";
const OURS: &str = "settings of this agent";
const AGENTS: &str = "settings of an agent, which say what it may run";
const EDITORS: &str = "editors run what it says";
const SHELLS: &str = "programs run it when they start";
const SERVERS: &str = "build servers run what it says, with their keys";
const HOOKS: &str = "git runs it as a hook";
const USER: &str = "the settings name it as protected";

/// Places by their last parts, at any depth: who clones or opens a folder below gets them too.
/// Everything below one is protected as well. Names in lower case.
const PLACES: &[(&str, &str)] = &[
    (".turnwright", OURS),
    (".agents", AGENTS),
    (".claude", AGENTS),
    (".codex", AGENTS),
    (".cursor", AGENTS),
    (".gemini", AGENTS),
    (".mcp.json", AGENTS),
    (".opencode", AGENTS),
    (".windsurf", AGENTS),
    (".vscode/launch.json", EDITORS),
    (".vscode/mcp.json", EDITORS),
    (".vscode/settings.json", EDITORS),
    (".vscode/tasks.json", EDITORS),
    (".devcontainer", EDITORS),
    (".devcontainer.json", EDITORS),
    (".fleet", EDITORS),
    (".idea/runconfigurations", EDITORS),
    (".run", EDITORS),
    (".zed", EDITORS),
    (".dir-locals.el", EDITORS),
    (".exrc", EDITORS),
    (".gvimrc", EDITORS),
    (".lvimrc", EDITORS),
    (".nvim.lua", EDITORS),
    (".nvimrc", EDITORS),
    (".vimrc", EDITORS),
    (".envrc", "direnv runs it for whoever enters the folder"),
    (".husky", HOOKS),
    (".githooks", HOOKS),
    (".pre-commit-config.yaml", HOOKS),
    ("lefthook.yml", HOOKS),
    (".github/actions", SERVERS),
    (".github/workflows", SERVERS),
    (".gitea/workflows", SERVERS),
    (".forgejo/workflows", SERVERS),
    (".buildkite", SERVERS),
    (".circleci", SERVERS),
    (".drone.yml", SERVERS),
    (".gitlab-ci.yml", SERVERS),
    (".travis.yml", SERVERS),
    (".woodpecker.yml", SERVERS),
    ("azure-pipelines.yml", SERVERS),
    ("bitbucket-pipelines.yml", SERVERS),
    ("jenkinsfile", SERVERS),
    (".bash_login", SHELLS),
    (".bash_logout", SHELLS),
    (".bash_profile", SHELLS),
    (".bashrc", SHELLS),
    (".config/autostart", SHELLS),
    (".config/fish", SHELLS),
    (".config/git", SHELLS),
    (".config/systemd", SHELLS),
    (".cshrc", SHELLS),
    (".gdbinit", SHELLS),
    (".gitconfig", SHELLS),
    (".kshrc", SHELLS),
    (".lldbinit", SHELLS),
    (".profile", SHELLS),
    (".ssh", SHELLS),
    (".tcshrc", SHELLS),
    (".xinitrc", SHELLS),
    (".xprofile", SHELLS),
    (".zlogin", SHELLS),
    (".zprofile", SHELLS),
    (".zshenv", SHELLS),
    (".zshrc", SHELLS),
];

/// What of a repository's folder says what git runs, or where its settings are.
const OF_GIT: &[&str] = &["hooks", "config", "config.worktree", "commondir"];

/// What of it may be changed like any other file: notes for people.
const FREE_OF_GIT: &[&str] = &["info/exclude", "commit_editmsg"];

impl Protected {
    /// Why a change to this real path needs a word of its own, if it does: because it is a
    /// protected place, lies in one, or is a folder that holds one.
    pub fn why(&self, path: &Path) -> Option<&'static str> {
        if self.roots.iter().any(|it| it.starts_with(path)) {
            return Some("all of the project, with its hooks and settings");
        }
        let root = self.roots.iter().filter(|it| path.starts_with(it));
        // The nearest: what lies above a folder that the user has opened was the user's choice.
        let root = root.max_by_key(|it| it.components().count());
        let parts = parts(root.and_then(|it| path.strip_prefix(it).ok()).unwrap_or(path));
        let is_git = root.and_then(|it| it.file_name()).is_some_and(|it| it == ".git");
        if let Some(why) = of_git(&parts, is_git) {
            return Some(why);
        }
        if self.more.iter().any(|it| root.is_some() && touches(&parts, &self::parts(it.as_ref()))) {
            return Some(USER);
        }
        PLACES.iter().find(|(place, _)| is_place(&parts, place)).map(|(_, why)| *why)
    }

    /// Where protected places may lie in the session's folders, whether they exist or not.
    pub fn ends(&self) -> Vec<PathBuf> {
        let places = self.places();
        let is_way = |number: usize| {
            places.get(number + 1).is_some_and(|it| it.starts_with(&places[number]))
        };
        (0..places.len()).filter(|it| !is_way(*it)).map(|it| places[it].clone()).collect()
    }

    /// The same, with each folder that is only there for what it holds, before that.
    pub fn places(&self) -> Vec<PathBuf> {
        let mut places = Vec::new();
        for root in &self.roots {
            let git = if root.file_name().is_some_and(|it| it == ".git") {
                root.clone()
            } else {
                places.push(root.join(".git"));
                root.join(".git")
            };
            places.extend(OF_GIT.iter().map(|it| git.join(it)));
            let usual = PLACES.iter().map(|(place, _)| spelling(place));
            for place in usual.chain(self.more.iter().map(|it| it.trim_matches('/'))) {
                let mut folder = root.clone();
                for part in Path::new(place) {
                    folder.push(part);
                    places.push(folder.clone());
                }
            }
        }
        places.sort();
        places.dedup();
        places
    }
}

/// How a place is usually written.
fn spelling(place: &'static str) -> &'static str {
    match place {
        "jenkinsfile" => "Jenkinsfile",
        ".idea/runconfigurations" => ".idea/runConfigurations",
        place => place,
    }
}

/// The parts of a path as the most careless file system sees them: without case, without what is
/// not seen, without dots and blanks at the end.
fn parts(path: &Path) -> Vec<String> {
    let is_seen = |it: &char| !matches!(it, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let part = |it: &std::ffi::OsStr| {
        let text: String = it.to_string_lossy().chars().filter(is_seen).collect();
        let text = text.to_lowercase();
        match text.trim_end_matches(['.', ' ']) {
            // Its short name on Windows.
            "git~1" => ".git".to_owned(),
            "" => text,
            plain => plain.to_owned(),
        }
    };
    path.iter().map(part).collect()
}

fn of_git(parts: &[String], is_git: bool) -> Option<&'static str> {
    let inside = match parts.iter().position(|it| it == ".git") {
        Some(place) => &parts[place + 1..],
        None if is_git => parts,
        None => return None,
    };
    (!FREE_OF_GIT.contains(&inside.join("/").as_str())).then_some(GIT)
}

fn is_place(parts: &[String], place: &str) -> bool {
    let place: Vec<_> = place.split('/').collect();
    (0..parts.len()).any(|from| touches(&parts[from..], &place))
}

/// Whether a path is a place, lies in it, or holds it.
fn touches(path: &[String], place: &[impl AsRef<str>]) -> bool {
    !path.is_empty() && path.iter().zip(place).all(|(one, other)| one == other.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected() -> Protected {
        let roots = vec!["/home/u/.claude/ws".into(), "/repo/.git".into(), "/repo/sub".into()];
        Protected { roots, more: vec!["deploy/keys/".to_owned()] }
    }

    #[test]
    fn what_others_run_is_protected_however_it_is_spelt() {
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
            ".claude/settings.json",
            ".cursor",
            "deploy",
            "deploy/keys",
            "deploy/keys/a",
        ] {
            let path = Path::new("/home/u/.claude/ws").join(path);
            assert!(protected.why(&path).is_some(), "{}", path.display());
        }
        for path in
            ["/home/u/.bashrc", "/home/u", "/", "/repo", "/repo/.git/config", "/repo/.git/hooks/x"]
        {
            assert!(protected.why(Path::new(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
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
            "AGENTS.md",
            "docs/deploy/keys",
            "x.envrc",
            ".git/info/exclude",
            ".npmrc",
            ".venv/pyvenv.cfg",
            "src/workflows/ci.yml",
            "tasks.json",
        ] {
            let path = Path::new("/home/u/.claude/ws").join(path);
            assert_eq!(protected.why(&path), None, "{}", path.display());
        }
        assert_eq!(protected.why(Path::new("/repo/sub/a")), None);
        assert_eq!(protected.why(Path::new("/etc/passwd")), None);
    }

    #[test]
    fn the_places_to_watch_are_protected_themselves() {
        let protected = protected();
        let places = protected.places();
        for place in &places {
            assert!(protected.why(place).is_some(), "{}", place.display());
        }
        assert!(places.contains(&"/repo/.git/hooks".into()));
        assert!(places.contains(&"/repo/sub/.github/workflows".into()));
    }
}
