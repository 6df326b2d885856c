//! `[sandbox]`: the requested confinement of commands. What the system can enforce is decided elsewhere.

use std::num::NonZeroU32;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use turnwright_guard::HostList;
use turnwright_types::effect::MovedPlace;
use turnwright_workspace::exec::{default_caches, default_memory_limit};

use crate::table::{SettingType, settings};
use crate::wrong_values::{unexpected, unexpected_entries};

settings! {
    /// `[sandbox]`, as in a file.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default)]
    pub(crate) section SandboxSection {
        pub(crate) network: Option<NetworkValue> => wrong_network { default: "loopback" }
            wrong [r#"sandbox.network = "maybe""#, r#"sandbox.network = ["*"]"#]
            "The network access of commands: off, loopback, on, or a list of the hosts that they may reach.",
            "`loopback` (the default except on macOS: [the network of the \
             session](permissions.md#working-in-the-sandbox)), `off`, `on`, or [a list of \
             hosts](network.md#hosts-in-the-settings) such as `[\"node\", \"*.github.com\"]`";
        pub(crate) read: Option<String> => wrong_read { words: READS, default: "all" }
            wrong [r#"sandbox.read = "some""#]
            "What commands may read: all, or strict for the project, the system, `write` and `caches`.",
            "`all` (default) or `strict`: only the project, the system and the paths in `write` and `caches`";
        pub(crate) write: Vec<String> => wrong_paths { default: [], examples: [["/data"]] }
            wrong [r#"sandbox.write = ["here"]"#]
            "Writable files and folders besides the project; each begins with / or ~/.",
            "writable files and folders besides the project, absolute or with `~/`";
        pub(crate) caches: Option<Vec<String>> => wrong_paths {
            examples: [["~/.cargo/registry", "~/.npm", "~/.cache"]],
        } wrong [r#"sandbox.caches = [".npm"]"#]
            "Caches of package managers, writable for this project only; the usual ones if not set.",
            "caches of package managers: commands may change them for this project only; default: those of cargo, \
             rustup, npm, pnpm, yarn, bun, go, gradle, maven, sbt, dotnet, dart, julia, stack, cabal, pip, pipx, uv, \
             poetry, pipenv, gem and others, `~/.cache`, wherever variables such as `CARGO_HOME` and `GOPATH` put \
             them, and the folders into which these install programs for you, such as `~/.local/bin`";
        pub(crate) hide: Vec<String> => wrong_paths { default: [], examples: [["~/.ssh"]] }
            wrong [r#"sandbox.hide = ["secrets"]"#]
            "Unreadable files and folders; each begins with / or ~/.",
            "unreadable files and folders";
        pub(crate) protect: Vec<String> => wrong_protected { default: [], examples: [["deploy"]] }
            wrong [r#"sandbox.protect = ["../x"]"#, r#"sandbox.protect = ["*.sh"]"#]
            "Read-only paths in the project, relative to it; no patterns.",
            "read-only paths in the project, relative to it; patterns are not supported";
        pub(crate) memory_mb: Option<NonZeroU32> { examples: [8000] }
            "How much memory a command may hold, in MiB; three quarters of the machine's if not set.",
            "a command or local MCP server that holds more memory than this, in MiB, is stopped (Linux); default: \
             three quarters of the memory of the machine or container";
    }
}

/// The values of `read`.
const READS: [&str; 2] = ["all", "strict"];

/// A word, or the hosts that commands may reach.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "`network` must be the text off, loopback or on, or a list of hosts")]
pub(crate) enum NetworkValue {
    Word(String),
    Hosts(Vec<String>),
}

impl NetworkValue {
    /// The value in one line.
    pub(crate) fn shown(&self) -> String {
        match self {
            NetworkValue::Word(word) => word.escape_debug().to_string(),
            NetworkValue::Hosts(hosts) => hosts.join(", "),
        }
    }
}

/// The network access of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkSetting {
    Off,
    /// The private loopback interface of the session.
    Loopback,
    On,
}

/// macOS has no private loopback interface; the user's other programs listen on the machine's own.
impl Default for NetworkSetting {
    fn default() -> NetworkSetting {
        if cfg!(target_os = "macos") { NetworkSetting::Off } else { NetworkSetting::Loopback }
    }
}

impl NetworkSetting {
    const ALL: [NetworkSetting; 3] =
        [NetworkSetting::Off, NetworkSetting::Loopback, NetworkSetting::On];

    /// The value in a settings file.
    pub fn id(self) -> &'static str {
        match self {
            NetworkSetting::Off => "off",
            NetworkSetting::Loopback => "loopback",
            NetworkSetting::On => "on",
        }
    }

    fn parse(word: &str) -> Option<NetworkSetting> {
        NetworkSetting::ALL.into_iter().find(|setting| setting.id() == word)
    }
}

/// The confinement of commands. All paths are absolute, except for `protect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The network access of commands.
    pub network: NetworkSetting,
    /// The hosts that they may reach although they have no network, as they are written.
    pub hosts: Vec<String>,
    /// True if commands may read only what they are known to need.
    pub strict_reads: bool,
    /// Writable paths besides the session's folders.
    pub write: Vec<PathBuf>,
    /// Caches of package managers, which are writable too.
    pub caches: Vec<PathBuf>,
    /// Caches of `npx` and `uvx`, which MCP servers that they start need. They need not exist yet.
    pub package_runner_caches: Vec<PathBuf>,
    /// Unreadable paths.
    pub hide: Vec<PathBuf>,
    /// Read-only paths in the session's folders, relative to these.
    pub protect: Vec<String>,
    /// How much memory a command may hold, in MiB; a share of the machine's if not set.
    pub memory_mb: Option<u64>,
}

/// The caches of `npx` and `uvx`, relative to the home folder.
const PACKAGE_RUNNER_CACHES: &[&str] = &[".npm", ".cache/uv"];

impl SandboxSection {
    /// The settings of the user's own file.
    pub(crate) fn settings(&self, home: Option<&Path>, moved: &[MovedPlace]) -> SandboxSettings {
        let paths =
            |all: &[String]| all.iter().filter_map(|path| resolve_path(path, home, None)).collect();
        // The usual caches need not exist yet.
        let (caches, package_runner_caches) = match &self.caches {
            Some(caches) => (paths(caches), Vec::new()),
            None => (
                home.into_iter()
                    .flat_map(|home| default_caches(home, moved))
                    .map(|(_, path)| path)
                    .collect(),
                PACKAGE_RUNNER_CACHES.iter().filter_map(|cache| Some(home?.join(cache))).collect(),
            ),
        };
        SandboxSettings {
            network: self.network().unwrap_or_default(),
            hosts: self.hosts().to_vec(),
            strict_reads: self.read.as_deref() == Some("strict"),
            write: paths(&self.write),
            caches,
            package_runner_caches,
            hide: paths(&self.hide),
            protect: self.protect.iter().filter(|path| is_relative_path(path)).cloned().collect(),
            memory_mb: self.memory_mb(),
        }
    }

    fn memory_mb(&self) -> Option<u64> {
        self.memory_mb.map(|limit| limit.get().into())
    }

    fn network(&self) -> Option<NetworkSetting> {
        match self.network.as_ref()? {
            NetworkValue::Word(word) => NetworkSetting::parse(word),
            NetworkValue::Hosts(_) => Some(NetworkSetting::default()),
        }
    }

    /// The hosts that commands may reach.
    fn hosts(&self) -> &[String] {
        match &self.network {
            Some(NetworkValue::Hosts(hosts)) => hosts,
            Some(NetworkValue::Word(_)) | None => &[],
        }
    }

    /// The errors in the section of a project's file, whose paths may be relative to it.
    pub(crate) fn wrong_in_project(&self) -> Vec<String> {
        let others =
            SandboxSection { write: Vec::new(), caches: None, hide: Vec::new(), ..self.clone() };
        others.wrong_values("sandbox")
    }
}

fn wrong_network(key: &str, value: &NetworkValue) -> Vec<String> {
    match value {
        NetworkValue::Word(word) => {
            let is_known = NetworkSetting::parse(word).is_some();
            let wrong = unexpected(key, word, is_known, "off, loopback, on or a list of hosts");
            wrong.into_iter().collect()
        }
        NetworkValue::Hosts(hosts) => {
            let why =
                "which is no host: expected NAME, *.NAME, NAME:PORT or an ecosystem such as node";
            unexpected_entries(key, hosts, HostList::is_entry, why)
        }
    }
}

fn wrong_read(key: &str, word: &str) -> Option<String> {
    unexpected(key, word, READS.contains(&word), "all or strict")
}

fn wrong_paths(key: &str, paths: &[String]) -> Vec<String> {
    unexpected_entries(key, paths, starts_at_root_or_home, "which must start with / or ~/")
}

fn wrong_protected(key: &str, paths: &[String]) -> Vec<String> {
    let outside = "which must be a path inside the project";
    let pattern = "which protects only a file of this name: write paths, not patterns";
    let mut wrong = unexpected_entries(key, paths, is_relative_path, outside);
    wrong.extend(unexpected_entries(
        key,
        paths,
        |path| !is_relative_path(path) || !is_pattern(path),
        pattern,
    ));
    wrong
}

impl SandboxSettings {
    /// Returns true if commands can have a proxy through which they reach hosts one by one. The function may take some
    /// milliseconds.
    pub fn asks_about_hosts(&self) -> fn() -> bool {
        match self.network {
            NetworkSetting::Loopback if cfg!(target_os = "linux") => || {
                turnwright_sandbox::can_confine() && turnwright_sandbox::namespace_support().network
            },
            _ => || false,
        }
    }

    /// The network access, or the hosts that commands may reach.
    pub fn network_text(&self) -> String {
        if self.hosts.is_empty() { self.network.id().to_owned() } else { self.hosts.join(", ") }
    }

    /// Adds the settings of a project: all of them if it is trusted, otherwise only those that tighten the
    /// confinement. Returns the names of the ignored settings.
    pub(crate) fn add_project(
        &mut self,
        section: &SandboxSection,
        folder: &Path,
        home: Option<&Path>,
        is_trusted: bool,
    ) -> Vec<String> {
        let paths = |all: &[String]| -> Vec<PathBuf> {
            all.iter().filter_map(|path| resolve_path(path, home, Some(folder))).collect()
        };
        let mut ignored = Vec::new();
        self.protect.extend(section.protect.iter().filter(|path| is_relative_path(path)).cloned());
        self.hide.extend(paths(&section.hide));
        if let Some(network) = section.network() {
            let is_stricter = network <= self.network && section.hosts().is_empty();
            if is_stricter || is_trusted {
                self.network = network;
                self.hosts = section.hosts().to_vec();
            } else if section.hosts().is_empty() {
                ignored.push(format!("sandbox.network = \"{}\"", network.id()));
            } else {
                ignored.push(format!("sandbox.network = [{}]", section.hosts().join(", ")));
            }
        }
        if let Some(memory) = section.memory_mb() {
            let most = self.memory_mb.or_else(|| default_memory_limit().map(|bytes| bytes >> 20));
            if is_trusted || most.is_some_and(|limit| memory <= limit) {
                self.memory_mb = Some(memory);
            } else {
                ignored.push(format!("sandbox.memory_mb = {memory}"));
            }
        }
        if is_trusted {
            self.write.extend(paths(&section.write));
        } else if !section.write.is_empty() {
            ignored.push("sandbox.write".to_owned());
        }
        if let Some(caches) = &section.caches {
            self.package_runner_caches.clear();
            let caches = paths(caches);
            if is_trusted {
                self.caches = caches;
            } else {
                if caches.iter().any(|cache| !self.caches.contains(cache)) {
                    ignored.push("sandbox.caches".to_owned());
                }
                self.caches.retain(|cache| caches.contains(cache));
            }
        }
        ignored
    }
}

pub(crate) fn resolve_path(
    text: &str,
    home: Option<&Path>,
    folder: Option<&Path>,
) -> Option<PathBuf> {
    match text.strip_prefix("~/") {
        Some(rest) => Some(home?.join(rest)),
        None if text == "~" => Some(home?.to_path_buf()),
        None if Path::new(text).is_absolute() => Some(text.into()),
        None => Some(folder?.join(text)),
    }
}

fn starts_at_root_or_home(path: &str) -> bool {
    path == "~" || path.starts_with("~/") || Path::new(path).is_absolute()
}

/// Returns true if the text is a relative path without `..`.
fn is_relative_path(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    !text.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Returns true if a path is probably meant as a pattern, or as one below the home folder. Brackets are usual in names
/// (`[id].tsx`).
fn is_pattern(path: &str) -> bool {
    let alternatives = path.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    path.contains(['*', '?'])
        || path.starts_with('!')
        || path.starts_with("~/")
        || alternatives.is_some_and(|(inside, _)| inside.contains(','))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use turnwright_types::effect::moved_places;
    use turnwright_workspace::exec::DEFAULT_CACHES;

    use super::*;

    fn section(text: &str) -> SandboxSection {
        toml_edit::de::from_str(text).unwrap()
    }

    /// Its absolute paths are those of Unix.
    #[cfg(unix)]
    #[test]
    fn the_users_paths_are_absolute_or_below_the_home_folder() {
        let text = "network = 'loopback'\nread = 'strict'\nwrite = ['/data', '~/x', 'rel', '~you']\n\
                    caches = ['~/.cache']\nhide = ['~/.ssh']\nprotect = ['ci/x.yml', '../y', '/z', '']";
        let written = section(text);
        let settings = written.settings(Some(Path::new("/home/me")), &[]);
        assert_eq!(
            settings,
            SandboxSettings {
                network: NetworkSetting::Loopback,
                hosts: Vec::new(),
                strict_reads: true,
                write: vec!["/data".into(), "/home/me/x".into()],
                caches: vec!["/home/me/.cache".into()],
                package_runner_caches: Vec::new(),
                hide: vec!["/home/me/.ssh".into()],
                protect: vec!["ci/x.yml".to_owned()],
                memory_mb: None,
            }
        );
        let problems = written.wrong_values("sandbox");
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert_eq!(written.wrong_in_project().len(), 3);
        let wrong = section("network = 'maybe'\nread = 'some'");
        assert_eq!(wrong.wrong_values("sandbox").len(), 2);
        assert_eq!(
            wrong.settings(None, &[]),
            SandboxSettings::default(),
            "an unknown value means the strictest setting"
        );
    }

    #[test]
    fn a_list_of_hosts_is_a_network_that_only_a_trusted_project_has() {
        let list = section("network = ['node', '*.a.example', 'http://x', '*']");
        let settings = list.settings(None, &[]);
        assert_eq!(settings.network, NetworkSetting::default());
        assert_eq!(list.wrong_values("sandbox").len(), 2);
        assert_eq!(settings.network_text(), "node, *.a.example, http://x, *");
        let mut user = section("network = ['a.example']").settings(None, &[]);
        let ignored = user.add_project(&list, Path::new("/p"), None, false);
        assert_eq!(ignored, ["sandbox.network = [node, *.a.example, http://x, *]"]);
        assert_eq!(user.hosts, ["a.example"]);
        user.add_project(&section("network = 'off'"), Path::new("/p"), None, false);
        assert_eq!((user.network, user.hosts.len()), (NetworkSetting::Off, 0));
        user.add_project(&list, Path::new("/p"), None, true);
        assert_eq!(user.hosts.len(), 4);
    }

    #[test]
    fn a_pattern_among_the_protected_paths_is_told() {
        for (path, expected) in [
            ("*.sh", true),
            ("ci/**", true),
            ("x?.yml", true),
            ("{a,b}.yml", true),
            ("!ci", true),
            ("~/x", true),
            ("ci/x.yml", false),
            ("app/[id]/page.tsx", false),
            ("a{b}.txt", false),
            ("~x", false),
        ] {
            let written = section(&format!("protect = ['{path}']"));
            let wrong = written.wrong_values("sandbox");
            assert_eq!(!wrong.is_empty(), expected, "{path}: {wrong:?}");
            assert_eq!(written.settings(None, &[]).protect, [path], "a file may have this name");
        }
    }

    #[test]
    fn without_a_list_the_caches_are_the_default_ones_whether_they_exist_or_not() {
        let home = tempfile::tempdir().unwrap();
        let settings = SandboxSection::default().settings(Some(home.path()), &[]);
        assert!(settings.caches.contains(&home.path().join(".cargo/registry")));
        assert_eq!(settings.caches.len(), DEFAULT_CACHES.len());
        let variable = |name: &str| (name == "GOPATH").then_some(OsStr::new("/go"));
        let moved = moved_places(variable);
        let settings = SandboxSection::default().settings(Some(home.path()), &moved);
        assert!(settings.caches.contains(&PathBuf::from("/go/pkg/mod")));
        assert_eq!(
            settings.package_runner_caches,
            [home.path().join(".npm"), home.path().join(".cache/uv")]
        );
        let none = section("caches = []").settings(Some(home.path()), &[]);
        assert!(none.caches.is_empty() && none.package_runner_caches.is_empty());
    }

    /// Its absolute paths are those of Unix.
    #[cfg(unix)]
    #[test]
    fn a_project_tightens_the_sandbox_and_loosens_it_only_if_trusted() {
        let user =
            section("network = 'loopback'\nwrite = ['/a']\ncaches = ['/c', '/d']\nhide = ['/h']");
        let user = user.settings(None, &[]);
        let with = |text: &str, is_trusted| {
            let mut settings = user.clone();
            let section = section(text);
            let ignored = settings.add_project(&section, Path::new("/ws"), None, is_trusted);
            (settings, ignored)
        };
        let (narrow, ignored) =
            with("network = 'off'\ncaches = ['/d']\nhide = ['secrets']\nprotect = ['ci']", false);
        assert_eq!(ignored, Vec::<String>::new());
        assert_eq!(narrow.network, NetworkSetting::Off);
        assert_eq!((narrow.caches, narrow.write), (vec!["/d".into()], vec![PathBuf::from("/a")]));
        assert_eq!(narrow.hide, [PathBuf::from("/h"), PathBuf::from("/ws/secrets")]);
        assert_eq!(narrow.protect, ["ci"]);
        let limited = section("memory_mb = 4000").settings(None, &[]);
        for (text, is_trusted, expected) in [
            ("memory_mb = 500", false, (Some(500), 0)),
            ("memory_mb = 5000", false, (Some(4000), 1)),
            ("memory_mb = 5000", true, (Some(5000), 0)),
        ] {
            let section = section(text);
            let mut settings = limited.clone();
            let ignored = settings.add_project(&section, Path::new("/ws"), None, is_trusted);
            assert_eq!((settings.memory_mb, ignored.len()), expected, "{text}");
        }
        let wide = "network = 'on'\nwrite = ['/', '../up']\ncaches = ['/d', '/e']";
        let (same, ignored) = with(wide, false);
        assert_eq!(ignored, ["sandbox.network = \"on\"", "sandbox.write", "sandbox.caches"]);
        assert_eq!((same.network, same.write), (NetworkSetting::Loopback, vec!["/a".into()]));
        assert_eq!(same.caches, [PathBuf::from("/d")]);
        let (wide, ignored) = with(wide, true);
        assert_eq!(ignored, Vec::<String>::new());
        assert_eq!((wide.network, wide.write.len()), (NetworkSetting::On, 3));
        assert_eq!(wide.caches, [PathBuf::from("/d"), PathBuf::from("/e")]);
    }
}
