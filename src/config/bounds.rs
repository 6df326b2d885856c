//! `[sandbox]`: what commands are kept to. Says what is wanted; whoever builds the walls decides
//! what can be had.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

/// `[sandbox]`, as a file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct SandboxSection {
    pub(super) network: Option<String>,
    pub(super) read: Option<String>,
    pub(super) write: Vec<String>,
    pub(super) caches: Option<Vec<String>>,
    pub(super) hide: Vec<String>,
    pub(super) protect: Vec<String>,
}

pub(super) const SANDBOX: &[&str] = &["network", "read", "write", "caches", "hide", "protect"];

/// What commands have of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkSetting {
    /// Nothing.
    #[default]
    Off,
    /// A loopback interface of their own.
    Loopback,
    /// All of it.
    On,
}

impl NetworkSetting {
    const ALL: [NetworkSetting; 3] =
        [NetworkSetting::Off, NetworkSetting::Loopback, NetworkSetting::On];

    /// As a file has it.
    pub fn id(self) -> &'static str {
        match self {
            NetworkSetting::Off => "off",
            NetworkSetting::Loopback => "loopback",
            NetworkSetting::On => "on",
        }
    }

    fn parse(word: &str) -> Option<NetworkSetting> {
        NetworkSetting::ALL.into_iter().find(|it| it.id() == word)
    }
}

/// What commands are kept to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The network.
    pub network: NetworkSetting,
    /// Whether they may read only what they are known to need.
    pub reads_little: bool,
    /// What they may change besides the session's folders, absolute.
    pub write: Vec<PathBuf>,
    /// Folders that package managers keep things in, absolute. They may change these too.
    pub caches: Vec<PathBuf>,
    /// Where programs that fetch others keep these, whether it is there yet or not.
    pub fetched: Vec<PathBuf>,
    /// What they must not read, absolute.
    pub hide: Vec<PathBuf>,
    /// What they must not change although it lies in the session's folders, relative to these.
    pub protect: Vec<String>,
}

/// Where package managers keep what they have fetched, below the home folder.
const CACHES: &[&str] = &[
    ".cargo/registry",
    ".cargo/git",
    ".npm",
    ".cache",
    "go/pkg/mod",
    ".gradle",
    ".m2",
    ".local/share/pnpm",
];

/// Those of them that a server needs which is fetched by `npx` or `uvx`.
const FETCHED: &[&str] = &[".npm", ".cache/uv"];

impl SandboxSection {
    /// What the user's own file means.
    pub(super) fn settings(&self, home: Option<&Path>) -> SandboxSettings {
        let paths = |all: &[String]| all.iter().filter_map(|it| absolute(it, home, None)).collect();
        let caches = match &self.caches {
            Some(caches) => paths(caches),
            None => usual_caches(home),
        };
        SandboxSettings {
            network: self.network().unwrap_or_default(),
            reads_little: self.read.as_deref() == Some("strict"),
            write: paths(&self.write),
            caches,
            fetched: match (&self.caches, home) {
                (None, Some(home)) => FETCHED.iter().map(|it| home.join(it)).collect(),
                _ => Vec::new(),
            },
            hide: paths(&self.hide),
            protect: self.protect.iter().filter(|it| is_below(it)).cloned().collect(),
        }
    }

    fn network(&self) -> Option<NetworkSetting> {
        NetworkSetting::parse(self.network.as_deref()?)
    }

    /// A sentence about each value that has no effect. Paths of a project may start in it.
    pub(super) fn notes(&self, is_project: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(word) = self.network.as_ref().filter(|_| self.network().is_none()) {
            let word = word.escape_debug();
            notes
                .push(format!("`sandbox.network` is `{word}`, which is none of off, loopback, on"));
        }
        let read = self.read.as_ref().filter(|it| !["all", "strict"].contains(&it.as_str()));
        if let Some(word) = read {
            let word = word.escape_debug();
            notes.push(format!("`sandbox.read` is `{word}`, which is neither all nor strict"));
        }
        let caches = self.caches.as_deref().unwrap_or_default();
        for (key, all) in
            [("write", self.write.as_slice()), ("caches", caches), ("hide", &self.hide)]
        {
            let is_good = |it: &str| {
                is_project || it == "~" || it.starts_with("~/") || Path::new(it).is_absolute()
            };
            for path in all.iter().filter(|it| !is_good(it)) {
                let path = path.escape_debug();
                notes.push(format!(
                    "`sandbox.{key}` has `{path}`, which starts neither with / nor with ~/"
                ));
            }
        }
        for path in self.protect.iter().filter(|it| !is_below(it)) {
            let path = path.escape_debug();
            notes.push(format!("`sandbox.protect` has `{path}`, which is no path below a project"));
        }
        notes
    }
}

impl SandboxSettings {
    /// These with what a project says about itself: all of it if it is trusted, else only what
    /// makes them narrower. Returns the names of what is left out.
    pub(super) fn with_project(
        mut self,
        section: &SandboxSection,
        folder: &Path,
        home: Option<&Path>,
        is_trusted: bool,
    ) -> (SandboxSettings, Vec<String>) {
        let paths = |all: &[String]| -> Vec<PathBuf> {
            all.iter().filter_map(|it| absolute(it, home, Some(folder))).collect()
        };
        let mut left_out = Vec::new();
        self.protect.extend(section.protect.iter().filter(|it| is_below(it)).cloned());
        self.hide.extend(paths(&section.hide));
        if let Some(network) = section.network() {
            if network <= self.network || is_trusted {
                self.network = network;
            } else {
                left_out.push(format!("sandbox.network = \"{}\"", network.id()));
            }
        }
        if is_trusted {
            self.write.extend(paths(&section.write));
        } else if !section.write.is_empty() {
            left_out.push("sandbox.write".to_owned());
        }
        if let Some(caches) = &section.caches {
            self.fetched.clear();
            let caches = paths(caches);
            if is_trusted {
                self.caches = caches;
            } else {
                if caches.iter().any(|it| !self.caches.contains(it)) {
                    left_out.push("sandbox.caches".to_owned());
                }
                self.caches.retain(|it| caches.contains(it));
            }
        }
        (self, left_out)
    }
}

fn usual_caches(home: Option<&Path>) -> Vec<PathBuf> {
    let all = CACHES.iter().filter_map(|it| Some(home?.join(it)));
    all.filter(|it| it.is_dir()).collect()
}

pub(super) fn absolute(text: &str, home: Option<&Path>, folder: Option<&Path>) -> Option<PathBuf> {
    match text.strip_prefix("~/") {
        Some(rest) => Some(home?.join(rest)),
        None if text == "~" => Some(home?.to_path_buf()),
        None if Path::new(text).is_absolute() => Some(text.into()),
        None => Some(folder?.join(text)),
    }
}

/// Whether that is a path below some folder, whichever it is.
fn is_below(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    !text.is_empty() && parts.all(|it| matches!(it, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> SandboxSection {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_users_paths_are_absolute_or_below_the_home_folder() {
        let text = "network = 'loopback'\nread = 'strict'\nwrite = ['/data', '~/x', 'rel', '~you']\n\
                    caches = ['~/.cache']\nhide = ['~/.ssh']\nprotect = ['ci/x.yml', '../y', '/z', '']";
        let written = section(text);
        let settings = written.settings(Some(Path::new("/home/me")));
        assert_eq!(
            settings,
            SandboxSettings {
                network: NetworkSetting::Loopback,
                reads_little: true,
                write: vec!["/data".into(), "/home/me/x".into()],
                caches: vec!["/home/me/.cache".into()],
                fetched: Vec::new(),
                hide: vec!["/home/me/.ssh".into()],
                protect: vec!["ci/x.yml".to_owned()],
            }
        );
        assert_eq!(written.notes(false).len(), 5, "{:?}", written.notes(false));
        let wrong = section("network = 'maybe'\nread = 'some'");
        assert_eq!(wrong.notes(false).len(), 2);
        assert_eq!(
            wrong.settings(None),
            SandboxSettings::default(),
            "closed where it is not known"
        );
    }

    #[test]
    fn without_a_list_the_caches_are_those_that_are_there() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".cargo/registry")).unwrap();
        let settings = SandboxSection::default().settings(Some(home.path()));
        assert_eq!(settings.caches, [home.path().join(".cargo/registry")]);
        assert_eq!(settings.fetched, [home.path().join(".npm"), home.path().join(".cache/uv")]);
        let none = section("caches = []").settings(Some(home.path()));
        assert!(none.caches.is_empty() && none.fetched.is_empty());
    }

    #[test]
    fn a_project_makes_the_walls_narrower_and_wider_only_when_it_is_trusted() {
        let user =
            section("network = 'loopback'\nwrite = ['/a']\ncaches = ['/c', '/d']\nhide = ['/h']");
        let user = user.settings(None);
        let with = |text: &str, is_trusted| {
            user.clone().with_project(&section(text), Path::new("/ws"), None, is_trusted)
        };
        let (narrow, left_out) =
            with("network = 'off'\ncaches = ['/d']\nhide = ['secrets']\nprotect = ['ci']", false);
        assert_eq!(left_out, Vec::<String>::new());
        assert_eq!(narrow.network, NetworkSetting::Off);
        assert_eq!((narrow.caches, narrow.write), (vec!["/d".into()], vec![PathBuf::from("/a")]));
        assert_eq!(narrow.hide, [PathBuf::from("/h"), PathBuf::from("/ws/secrets")]);
        assert_eq!(narrow.protect, ["ci"]);
        let wide = "network = 'on'\nwrite = ['/', '../up']\ncaches = ['/d', '/e']";
        let (same, left_out) = with(wide, false);
        assert_eq!(left_out, ["sandbox.network = \"on\"", "sandbox.write", "sandbox.caches"]);
        assert_eq!((same.network, same.write), (NetworkSetting::Loopback, vec!["/a".into()]));
        assert_eq!(same.caches, [PathBuf::from("/d")]);
        let (wide, left_out) = with(wide, true);
        assert_eq!(left_out, Vec::<String>::new());
        assert_eq!((wide.network, wide.write.len()), (NetworkSetting::On, 3));
        assert_eq!(wide.caches, [PathBuf::from("/d"), PathBuf::from("/e")]);
    }
}
