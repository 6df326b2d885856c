//! The language servers: those that are known, each used where it is installed, and those of a file in the form of
//! `.lsp.json`, which other agents read as well.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::connection::Readiness;
use turnwright_types::effect::escape_hidden_line;

/// How long a server may take to answer its first request.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(45);
const MAX_STARTUP_TIMEOUT: Duration = Duration::from_secs(300);
/// How often a server that has crashed is started again.
const MAX_RESTARTS: u32 = 3;
/// The most servers of one file.
const MAX_SERVERS: usize = 32;

/// The known servers; for a file, the first one of them that is installed and works is used. Their settings differ from
/// their own defaults where these run what the session's checks run, hold the locks of builds, or work ahead.
const KNOWN: &str = include_str!("servers.json");

/// A server that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanguageServer {
    pub name: String,
    pub command: String,
    pub arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// The endings of its files, each with the name of the language.
    languages: Vec<(String, String)>,
    /// The files that mark the root of a project.
    markers: Vec<String>,
    /// True if it can do nothing without a project.
    needs_marker: bool,
    pub(crate) readiness: Readiness,
    pub(crate) options: Value,
    pub(crate) settings: Value,
    pub(crate) startup: Duration,
    pub(crate) restarts: u32,
    /// True if a file names it, and not we.
    pub is_configured: bool,
}

impl LanguageServer {
    /// Reads an entry of a file.
    fn read(name: &str, entry: &Value) -> Result<LanguageServer, String> {
        let command = entry["command"].as_str().unwrap_or_default();
        if command.is_empty() {
            return Err("it has no `command`".to_owned());
        }
        let is_bare = Path::new(command).components().count() == 1;
        if !is_bare && !Path::new(command).is_absolute() {
            return Err("its `command` is neither a name nor an absolute path".to_owned());
        }
        if entry["transport"].as_str().is_some_and(|transport| transport != "stdio") {
            return Err("its `transport` is not stdio".to_owned());
        }
        let languages: Vec<_> = texts(&entry["extensionToLanguage"]);
        if languages.is_empty() {
            return Err("it has no `extensionToLanguage`".to_owned());
        }
        let startup = entry["startupTimeout"].as_u64().map(Duration::from_millis);
        let restarts = match (&entry["restartOnCrash"], entry["maxRestarts"].as_u64()) {
            (Value::Bool(false), _) => 0,
            (_, most) => {
                most.and_then(|most| most.try_into().ok()).unwrap_or(MAX_RESTARTS).min(MAX_RESTARTS)
            }
        };
        Ok(LanguageServer {
            name: name.to_owned(),
            command: command.to_owned(),
            arguments: words(&entry["args"]),
            environment: texts(&entry["env"]),
            languages,
            markers: words(&entry["markers"]),
            needs_marker: entry["needsMarker"] == true,
            readiness: match entry["readiness"].as_str() {
                Some("progress") => Readiness::Progress,
                Some("quiescence") => Readiness::Quiescence,
                _ => Readiness::AtOnce,
            },
            options: entry["initializationOptions"].clone(),
            settings: entry["settings"].clone(),
            startup: startup.unwrap_or(STARTUP_TIMEOUT).min(MAX_STARTUP_TIMEOUT),
            restarts,
            is_configured: true,
        })
    }

    /// The name of the language of a file, if the server knows it.
    pub(crate) fn language(&self, file: &Path) -> Option<&str> {
        let name = file.file_name()?.to_str()?;
        let known = self.languages.iter().find(|(ending, _)| name.ends_with(ending.as_str()))?;
        Some(&known.1)
    }

    /// The folder in which the server works on a file of this session folder: the outermost one that has a marker, so
    /// that all parts of a project have one server. `None` if it needs a project and there is none. Blocks.
    pub(crate) fn root(&self, file: &Path, folder: &Path) -> Option<PathBuf> {
        let inner = file.ancestors().skip(1).take_while(|place| place.starts_with(folder));
        let marked = inner
            .filter(|place| self.markers.iter().any(|marker| place.join(marker).is_file()))
            .last();
        marked.or((!self.needs_marker).then_some(folder)).map(Path::to_path_buf)
    }

    /// Returns true if a path shows that the server is useful in its folder: its language, or a marker.
    pub fn is_about(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        self.language(path).is_some() || self.markers.iter().any(|marker| name == marker.as_str())
    }

    /// The program with its arguments, for people.
    pub fn command_line(&self) -> String {
        let words = std::iter::once(&self.command).chain(&self.arguments);
        escape_hidden_line(&words.map(String::as_str).collect::<Vec<_>>().join(" "))
    }
}

/// The known servers.
pub fn known_servers() -> Vec<LanguageServer> {
    let (mut servers, _) = configured_servers(&serde_json::from_str(KNOWN).unwrap_or_default());
    for server in &mut servers {
        server.is_configured = false;
    }
    servers
}

/// The servers of a file, and a sentence about each entry that cannot be used.
pub fn configured_servers(file: &Value) -> (Vec<LanguageServer>, Vec<String>) {
    let mut servers = Vec::new();
    let mut problems = Vec::new();
    for (name, entry) in file.as_object().into_iter().flatten().take(MAX_SERVERS) {
        match LanguageServer::read(name, entry) {
            Ok(server) => servers.push(server),
            Err(why) => {
                let name = escape_hidden_line(name).replace('`', "'");
                problems.push(format!("the language server `{name}` is not used: {why}"));
            }
        }
    }
    (servers, problems)
}

fn words(list: &Value) -> Vec<String> {
    let words = list.as_array().into_iter().flatten();
    words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

fn texts(table: &Value) -> Vec<(String, String)> {
    let entries = table.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn all_known_servers_are_understood() {
        let (servers, problems) = configured_servers(&serde_json::from_str(KNOWN).unwrap());
        assert_eq!((servers.len(), problems), (10, Vec::new()));
        assert!(known_servers().iter().all(|server| !server.is_configured));
        assert_eq!(known_servers()[0].readiness, Readiness::Quiescence);
    }

    #[test]
    fn a_file_has_the_language_of_its_ending() {
        let servers = known_servers();
        let table: [(&str, &[&str]); 7] = [
            ("a.rs", &["rust"]),
            ("a.d.ts", &["typescript", "typescript"]),
            ("a.tsx", &["typescriptreact", "typescriptreact"]),
            ("x/a.h", &["c"]),
            ("a.py", &["python", "python", "python"]),
            ("rs", &[]),
            ("a.md", &[]),
        ];
        for (file, expected) in table {
            let found: Vec<_> =
                servers.iter().filter_map(|server| server.language(Path::new(file))).collect();
            assert_eq!(found, expected, "{file}");
        }
    }

    #[test]
    fn the_root_is_the_outermost_marked_folder_within_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        fs::create_dir_all(base.join("ws/in/src")).unwrap();
        fs::write(base.join("Cargo.toml"), "").unwrap();
        let server = &known_servers()[0];
        let folder = base.join("ws");
        let file = folder.join("in/src/a.rs");
        assert_eq!(server.root(&file, &folder), None);
        fs::write(folder.join("in/Cargo.toml"), "").unwrap();
        assert_eq!(server.root(&file, &folder), Some(folder.join("in")));
        fs::write(folder.join("Cargo.toml"), "").unwrap();
        assert_eq!(server.root(&file, &folder), Some(folder.clone()));
        assert_eq!(known_servers()[3].root(&folder.join("in/a.py"), &folder), Some(folder));
    }

    #[test]
    fn entries_of_other_agents_are_read_and_what_is_not_understood_is_said() {
        let languages = json!({ ".go": "go" });
        let table = [
            (json!({ "command": "gopls", "extensionToLanguage": languages }), ""),
            (
                json!({ "command": "gopls", "args": ["-v"], "env": { "A": "b" }, "transport": "stdio",
                "initializationOptions": { "x": 1 }, "settings": {}, "startupTimeout": 1,
                "shutdownTimeout": 1, "restartOnCrash": false, "maxRestarts": 9, "workspaceFolder": "/w",
                "extensionToLanguage": languages }),
                "",
            ),
            (json!({ "command": "gopls" }), "extensionToLanguage"),
            (json!({ "command": "gopls", "extensionToLanguage": 7 }), "extensionToLanguage"),
            (json!({ "command": "./gopls", "extensionToLanguage": languages }), "absolute"),
            (
                json!({ "command": "gopls", "transport": "socket", "extensionToLanguage": languages }),
                "stdio",
            ),
            (json!({ "extensionToLanguage": languages }), "command"),
            (json!(["gopls"]), "command"),
        ];
        for (entry, expected) in table {
            let (servers, problems) = configured_servers(&json!({ "go": entry }));
            assert_eq!(servers.len(), usize::from(expected.is_empty()), "{entry}");
            assert!(problems.concat().contains(expected), "{entry}: {problems:?}");
        }
        let entry = json!({ "command": "x", "maxRestarts": 99, "extensionToLanguage": languages });
        let (servers, _) = configured_servers(&json!({ "x": entry }));
        assert_eq!((servers[0].restarts, servers[0].startup), (MAX_RESTARTS, STARTUP_TIMEOUT));
        assert_eq!(servers[0].language(Path::new("/w/a.go")), Some("go"));
        assert_eq!(configured_servers(&json!([1])), (Vec::new(), Vec::new()));
    }
}
