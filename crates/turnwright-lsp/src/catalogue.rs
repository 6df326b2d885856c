//! The language servers: the built-in ones, each used where it is installed, and those of a file in the format of
//! `.lsp.json`, which other agents read as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::state::Readiness;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::{redact, text};

/// The default time limit for a server's answer to its first request.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(45);
const MAX_STARTUP_TIMEOUT: Duration = Duration::from_secs(300);
/// The most servers in one file, and the most characters of a name or a problem that are shown.
const MAX_SERVERS: usize = 32;
const MAX_SHOWN_CHARS: usize = 200;
/// The most bytes of a server's words that are looked at.
const MAX_WORDS_BYTES: usize = 4 * 1024;

/// A server that can be started, as `.lsp.json` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LanguageServer {
    #[serde(skip)]
    pub name: String,
    pub command: String,
    #[serde(default, rename = "args")]
    pub arguments: Vec<String>,
    #[serde(default, rename = "env")]
    pub(crate) environment: BTreeMap<String, String>,
    transport: Option<String>,
    /// The file name endings that the server handles, each with the name of the language.
    #[serde(rename = "extensionToLanguage")]
    languages: BTreeMap<String, String>,
    /// The files that mark the root of a project.
    #[serde(default)]
    markers: Vec<String>,
    /// The files that mark projects of another tool for the same language, which need another server.
    #[serde(default)]
    foreign_markers: Vec<String>,
    /// True if the server is of no use without a project.
    #[serde(default)]
    needs_marker: bool,
    #[serde(default)]
    pub(crate) readiness: Readiness,
    #[serde(default, rename = "initializationOptions")]
    pub(crate) options: Value,
    #[serde(default)]
    pub(crate) settings: Value,
    /// The time limit for the first answer, in milliseconds.
    startup_timeout: Option<u64>,
    /// True if the server comes from a file, and is not a built-in one.
    #[serde(skip)]
    pub is_configured: bool,
}

impl LanguageServer {
    /// Reads the entry of a server in a file.
    fn read(name: &str, entry: &Value) -> Result<LanguageServer, String> {
        let mut server = LanguageServer::deserialize(entry).map_err(|error| error.to_string())?;
        let command = Path::new(&server.command);
        if command.components().count() != 1 && !command.is_absolute() {
            return Err("its `command` is neither a name nor an absolute path".to_owned());
        }
        if server.transport.as_deref().is_some_and(|transport| transport != "stdio") {
            return Err("its `transport` is not stdio".to_owned());
        }
        name.clone_into(&mut server.name);
        server.is_configured = true;
        Ok(server)
    }

    /// Returns the time limit for the server's answer to its first request.
    pub(crate) fn startup(&self) -> Duration {
        let limit = self.startup_timeout.map_or(STARTUP_TIMEOUT, Duration::from_millis);
        limit.min(MAX_STARTUP_TIMEOUT)
    }

    /// Returns the name of a file's language if the server handles it.
    pub(crate) fn language(&self, file: &Path) -> Option<&str> {
        let name = file.file_name()?.to_str()?;
        let mut languages = self.languages.iter();
        let known = languages.find(|(ending, _)| {
            let stem = name.strip_suffix(ending.trim_start_matches('.'));
            stem.is_some_and(|stem| stem.ends_with('.'))
        });
        known.map(|(_, language)| language.as_str())
    }

    /// Returns the root folder for a server that handles `file`: the outermost folder with a marker below the session's
    /// `folder`, so that all parts of a project share one server. `None` if the server needs a project and there is
    /// none. Blocks.
    pub(crate) fn root(&self, file: &Path, folder: &Path) -> Option<PathBuf> {
        let inner = file.ancestors().skip(1).take_while(|place| place.starts_with(folder));
        let marked = inner.filter(|place| has_one(place, &self.markers)).last();
        marked.or((!self.needs_marker).then_some(folder)).map(Path::to_path_buf)
    }

    /// Returns true if the file belongs to a project of another tool, in which the server would report wrong errors: the
    /// nearest marked folder has such a marker, and not the server's first one. Blocks.
    pub(crate) fn is_foreign(&self, file: &Path) -> bool {
        let first = self.markers.get(..1).unwrap_or_default();
        let mut places = file.ancestors().skip(1);
        let nearest = places
            .find(|place| has_one(place, &self.foreign_markers) || has_one(place, &self.markers));
        nearest.is_some_and(|place| has_one(place, &self.foreign_markers) && !has_one(place, first))
    }

    /// Returns true if a path suggests that the server is useful in its folder, by its language or as a marker.
    pub fn is_about(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        self.language(path).is_some() || self.markers.iter().any(|marker| name == marker.as_str())
    }

    /// Returns the program with its arguments, for display.
    pub fn command_line(&self) -> String {
        let words = std::iter::once(&self.command).chain(&self.arguments);
        escape_hidden_line(&words.map(String::as_str).collect::<Vec<_>>().join(" "))
    }
}

/// Returns true if a folder has one of these files. Blocks.
fn has_one(folder: &Path, names: &[String]) -> bool {
    names.iter().any(|name| folder.join(name).is_file())
}

/// Returns the built-in servers. For each file, the first one that is installed and works is used. Their settings
/// override defaults that would repeat the session's checks, hold build locks, or do work in advance.
pub fn known_servers() -> &'static [LanguageServer] {
    static KNOWN: LazyLock<Vec<LanguageServer>> = LazyLock::new(|| {
        let file: Value = serde_json::from_str(include_str!("servers.json")).unwrap_or_default();
        let (mut servers, _) = configured_servers(&file);
        for server in &mut servers {
            server.is_configured = false;
        }
        servers
    });
    &KNOWN
}

/// Returns the servers in a file, and a sentence about each entry that cannot be used.
pub fn configured_servers(file: &Value) -> (Vec<LanguageServer>, Vec<String>) {
    let mut servers = Vec::new();
    let mut problems = Vec::new();
    for (name, entry) in file.as_object().into_iter().flatten().take(MAX_SERVERS) {
        match LanguageServer::read(name, entry) {
            Ok(server) => servers.push(server),
            Err(why) => {
                let name = shown_words(name).replace('`', "'");
                let why = shown_words(&why);
                problems.push(format!("the language server `{name}` is not used: {why}"));
            }
        }
    }
    (servers, problems)
}

/// Makes words of a file or a server fit into a sentence: one bounded line without secrets and hidden characters.
pub(crate) fn shown_words(words: &str) -> String {
    let known = redact::text(text::prefix(words, MAX_WORDS_BYTES));
    escape_hidden_line(text::first_chars(&text::one_line(&known), MAX_SHOWN_CHARS))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn all_known_servers_are_understood() {
        let file: Value = serde_json::from_str(include_str!("servers.json")).unwrap();
        let (servers, problems) = configured_servers(&file);
        assert_eq!((servers.len(), problems), (10, Vec::new()));
        assert!(known_servers().iter().all(|server| !server.is_configured));
        assert_eq!(known_servers()[0].readiness, Readiness::Quiescence);
    }

    #[test]
    fn a_file_has_the_language_of_its_ending() {
        let bare = json!({ "command": "x", "extensionToLanguage": { "go": "go", "": "all" } });
        let (configured, _) = configured_servers(&json!({ "x": bare }));
        assert_eq!(configured[0].language(Path::new("a.go")), Some("go"));
        assert_eq!(configured[0].language(Path::new("cargo")), None);
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
    fn a_file_of_a_deno_project_is_not_one_for_servers_that_do_not_know_deno() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        fs::create_dir_all(base.join("supabase/functions")).unwrap();
        let file = base.join("supabase/functions/a.ts");
        let server = known_servers().iter().find(|known| known.name == "vtsls").unwrap();
        for (created, expected) in [
            ("package.json", false),
            ("supabase/deno.jsonc", true),
            ("supabase/package.json", true),
            ("supabase/tsconfig.json", false),
            ("supabase/functions/deno.json", true),
        ] {
            fs::write(base.join(created), "").unwrap();
            assert_eq!(server.is_foreign(&file), expected, "{created}");
        }
        assert!(!server.is_foreign(&base.join("a.ts")));
        assert!(!known_servers()[0].is_foreign(&file));
    }

    #[test]
    fn a_project_with_the_types_of_flow_is_not_one_for_servers_of_typescript() {
        let dir = tempfile::tempdir().unwrap();
        let server = known_servers().iter().find(|known| known.name == "vtsls").unwrap();
        let file = dir.path().join("src/a.js");
        for (created, expected) in
            [("package.json", false), (".flowconfig", true), ("tsconfig.json", false)]
        {
            fs::write(dir.path().join(created), "").unwrap();
            assert_eq!(server.is_foreign(&file), expected, "{created}");
        }
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
            (json!({ "command": "gopls", "extensionToLanguage": 7 }), "expected a map"),
            (json!({ "command": "./gopls", "extensionToLanguage": languages }), "absolute"),
            (
                json!({ "command": "gopls", "transport": "socket", "extensionToLanguage": languages }),
                "stdio",
            ),
            (json!({ "extensionToLanguage": languages }), "command"),
            (json!({ "command": "", "extensionToLanguage": languages }), "absolute"),
            (json!(7), "expected struct"),
        ];
        for (entry, expected) in table {
            let (servers, problems) = configured_servers(&json!({ "go": entry }));
            assert_eq!(servers.len(), usize::from(expected.is_empty()), "{entry}");
            assert!(problems.concat().contains(expected), "{entry}: {problems:?}");
        }
        // An untrusted file must not fill the screen or hide its content.
        let arguments = "\u{1b}[2J".repeat(9_999);
        let odd = json!({ "command": "x", "args": arguments, "extensionToLanguage": {} });
        let name = "x\u{202e}".repeat(9_999);
        let (_, problems) = configured_servers(&json!({ name: odd }));
        assert!(problems[0].len() < 9 * MAX_SHOWN_CHARS, "{problems:?}");
        assert!(!problems[0].contains(['\u{1b}', '\u{202e}']), "{problems:?}");
        let entry = json!({ "command": "x", "extensionToLanguage": languages });
        let (servers, _) = configured_servers(&json!({ "x": entry }));
        assert_eq!(servers[0].startup(), STARTUP_TIMEOUT);
        assert_eq!(servers[0].language(Path::new("/w/a.go")), Some("go"));
        assert_eq!(configured_servers(&json!([1])), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_words_of_a_server_are_one_short_line() {
        assert_eq!(shown_words("a\n[system] b\t\u{1b}[31m"), "a [system] b \\u{1b}[31m");
        assert_eq!(shown_words(&"x".repeat(1_000_000)).len(), MAX_SHOWN_CHARS);
    }
}
