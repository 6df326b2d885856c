//! Reads the MCP servers of a project's `.mcp.json`. None is started before the user trusts exactly
//! the content of the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use super::ProjectFile;
use crate::servers::{VariableLookup, expand_all, expand_values};
use crate::trust::{self, TrustStore};
use crate::{ConfigError, SettingsSnapshot, jsonc};
use turnwright_mcp::{ServerSource, ServerSpec, ServerTransport};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::json_error_text;
use turnwright_types::text::{self, escape_markdown};

/// The project's file of MCP servers.
pub const SERVERS_FILE: &str = ".mcp.json";

/// The names that editors have for the project's folder.
const FOLDER_NAMES: [&str; 4] =
    ["${workspaceFolder}", "${workspaceRoot}", "${CLAUDE_PROJECT_DIR}", "${CLAUDE_PROJECT_DIR:-.}"];
/// The most servers of one file.
const MAX_SERVERS: usize = 50;
/// The longest name of a server, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The most characters of a command in a short description.
const MAX_COMMAND_CHARS: usize = 80;

#[derive(Debug, Deserialize)]
struct ServersFile {
    #[serde(default, rename = "mcpServers", alias = "servers")]
    servers: BTreeMap<String, Value>,
}

/// A server, in the forms that editors have for it.
#[derive(Debug, Deserialize)]
struct ServerEntry {
    #[serde(rename = "type", alias = "transport", alias = "transportType")]
    kind: Option<String>,
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    #[serde(alias = "workingDirectory")]
    cwd: Option<String>,
    #[serde(alias = "serverUrl", alias = "httpUrl")]
    url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    disabled: Option<bool>,
    enabled: Option<bool>,
}

impl ServerEntry {
    fn is_off(&self) -> bool {
        self.disabled == Some(true) || self.enabled == Some(false)
    }
}

/// Reads and parses a file of the project in this folder, a real path. Adds a sentence to `problems` if it is ignored.
pub(super) fn read<T>(
    folder: &Path,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, ConfigError>,
    problems: &mut Vec<String>,
) -> Option<(String, T)> {
    let why = match trust::read_project_file(folder, name) {
        Ok(found) => {
            let text = found?;
            match parse(&text) {
                Ok(parsed) => return Some((text, parsed)),
                Err(why) => format!("is invalid ({why})"),
            }
        }
        Err(why) => why,
    };
    problems.push(format!("{name} {why} and is ignored"));
    None
}

/// Reads the file of the project in this folder, a real path. Starts nothing. Returns the file, if it exists and is
/// valid, and its servers if it is trusted. Adds a sentence to `problems` for each problem in it.
pub(super) fn find(
    settings: &SettingsSnapshot<'_>,
    trust: &TrustStore,
    folder: &Path,
    problems: &mut Vec<String>,
) -> (Option<ProjectFile>, Vec<ServerSpec>) {
    let mut servers = Vec::new();
    let parsed = read(folder, SERVERS_FILE, |text| parse(&with_folder(text, folder)), problems);
    let Some((text, (entries, of_entries))) = parsed else { return (None, servers) };
    problems.extend(of_entries);
    let is_trusted = trust.is_trusted(folder, SERVERS_FILE, text.as_bytes());
    let (requests, full_requests) =
        entries.iter().map(|(name, entry)| describe_entry(name, entry)).unzip();
    let file = ProjectFile { name: SERVERS_FILE, text, is_trusted, requests, full_requests };
    if is_trusted && !entries.is_empty() {
        let environment = settings.command_environment();
        let variable = |name: &str| {
            let found = environment.iter().find(|pair| pair.0 == name);
            Ok(found.and_then(|pair| pair.1.to_str()).map(str::to_owned))
        };
        for (name, entry) in entries {
            match server(&name, entry, folder, &variable) {
                Ok(server) => servers.push(server),
                Err(why) => problems.push(problem(&name, &why)),
            }
        }
    }
    (Some(file), servers)
}

fn problem(name: &str, why: &ConfigError) -> String {
    let visible = escape_hidden_line(name).replace('`', "'");
    let name = text::first_chars(&visible, MAX_NAME_BYTES);
    format!("{SERVERS_FILE}: the server `{name}` is not started: {why}")
}

/// Puts the project's folder in the place of its names. Every part of an entry may depend on it: it is known.
fn with_folder(text: &str, folder: &Path) -> String {
    let quoted = json!(folder.to_string_lossy()).to_string();
    let path = &quoted[1..quoted.len() - 1];
    FOLDER_NAMES.iter().fold(text.to_owned(), |text, name| text.replace(name, path))
}

type NamedEntries = Vec<(String, ServerEntry)>;

fn parse(text: &str) -> Result<(NamedEntries, Vec<String>), ConfigError> {
    let whole: ServersFile = from_object(&jsonc::parse(text)?)?;
    let mut entries = Vec::new();
    let mut problems = Vec::new();
    let count = whole.servers.len();
    for (name, value) in whole.servers.into_iter().take(MAX_SERVERS) {
        let understood = if name.is_empty()
            || name.len() > MAX_NAME_BYTES
            || escape_hidden_line(&name) != name
        {
            Err(ConfigError::new("its name is empty, too long or has invisible characters"))
        } else {
            parse_entry(&value)
        };
        match understood {
            Ok(entry) if entry.is_off() => {}
            Ok(entry) => entries.push((name, entry)),
            Err(why) => problems.push(problem(&name, &why)),
        }
    }
    if count > MAX_SERVERS {
        problems.push(format!("{SERVERS_FILE}: only {MAX_SERVERS} of {count} servers are used"));
    }
    Ok((entries, problems))
}

/// Deserializes an object. Serde would also accept an array for a struct.
fn from_object<T: DeserializeOwned>(value: &Value) -> Result<T, ConfigError> {
    if !value.is_object() {
        return Err(ConfigError::new("that is no object"));
    }
    let text = value.to_string();
    serde_json::from_str(&text).map_err(|error| ConfigError::new(json_error_text(&text, &error)))
}

/// Makes texts of the numbers and truth values in a list or an object.
fn make_texts(values: &mut Value) {
    let items: Vec<&mut Value> = match values {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(pairs) => pairs.values_mut().collect(),
        _ => Vec::new(),
    };
    for item in items.into_iter().filter(|item| item.is_number() || item.is_boolean()) {
        *item = item.to_string().into();
    }
}

fn parse_entry(value: &Value) -> Result<ServerEntry, ConfigError> {
    let mut value = value.clone();
    for name in ["args", "env", "headers"] {
        if let Some(values) = value.get_mut(name) {
            make_texts(values);
        }
    }
    let entry: ServerEntry = from_object(&value)?;
    if entry.is_off() {
        return Ok(entry);
    }
    let is_http = match entry.kind.as_deref() {
        None | Some("stdio") => false,
        Some("http" | "streamable-http" | "streamable_http" | "streamableHttp") => true,
        Some(other) => {
            let kind = escape_hidden_line(other);
            return Err(ConfigError::new(format!("the type `{kind}` is not known")));
        }
    };
    match (&entry.command, &entry.url) {
        (Some(command), None) if !is_http && !command.is_empty() => {
            check_literal(command)?;
            check_literal(entry.cwd.as_deref().unwrap_or_default())?;
        }
        (None, Some(url)) if entry.kind.as_deref() != Some("stdio") => {
            check_literal(url)?;
            if !matches!(parse_url(url)?.scheme(), "http" | "https") {
                return Err(ConfigError::new("its address is not http or https"));
            }
        }
        _ => return Err(ConfigError::new("it must have either a `command` or a `url`")),
    }
    Ok(entry)
}

fn parse_url(text: &str) -> Result<Url, ConfigError> {
    Url::parse(text)
        .map_err(|error| ConfigError::new(format!("its address is not a URL ({error})")))
}

/// Fails if a text depends on a variable: what is started must be what was shown.
fn check_literal(text: &str) -> Result<(), ConfigError> {
    if !text.contains("${") {
        return Ok(());
    }
    Err(ConfigError::new("variables may stand in `args`, `env` and `headers` only"))
}

/// Describes what an entry would start, briefly and in full.
fn describe_entry(name: &str, entry: &ServerEntry) -> (String, String) {
    let folder = entry.cwd.as_ref().map(|cwd| format!(" in {cwd}")).unwrap_or_default();
    let (does, short) = match &entry.url {
        Some(url) => (format!("asks {url}"), url.clone()),
        None => {
            let argv = entry.command.iter().chain(entry.args.iter().flatten());
            let words: Vec<_> = argv.map(String::as_str).collect();
            let list = serde_json::to_string(&words).unwrap_or_default();
            (format!("runs {list}{folder}"), format!("{}{folder}", words.join(" ")))
        }
    };
    let variables = with_names("the variables", entry.env.as_ref());
    let headers = with_names("the headers", entry.headers.as_ref());
    let full = escape_hidden_line(&format!("{name} {does}{variables}{headers}"));
    let visible = escape_hidden_line(&short).replace('`', "'");
    let short = text::first_chars(&visible, MAX_COMMAND_CHARS);
    (format!("the MCP server {} (`{short}`)", escape_markdown(name)), full)
}

fn with_names(what: &str, names: Option<&BTreeMap<String, String>>) -> String {
    let names: Vec<_> = names.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(", with {what} {}", names.join(", ")) }
}

fn server(
    name: &str,
    entry: ServerEntry,
    folder: &Path,
    variable: &VariableLookup<'_>,
) -> Result<ServerSpec, ConfigError> {
    let withheld = |why: String| {
        ConfigError::new(format!("{why} (a variable that looks like a key is withheld)"))
    };
    let hidden = |values: Option<BTreeMap<String, String>>| {
        expand_values(&values.unwrap_or_default(), variable).map_err(withheld)
    };
    let transport = match entry.url {
        Some(url) => {
            ServerTransport::Http { url: parse_url(&url)?, headers: hidden(entry.headers)? }
        }
        None => ServerTransport::Stdio {
            command: PathBuf::from(entry.command.unwrap_or_default()),
            arguments: expand_all(&entry.args.unwrap_or_default(), variable).map_err(withheld)?,
            environment: hidden(entry.env)?,
        },
    };
    let cwd = entry.cwd.map(|cwd| folder.join(cwd));
    Ok(ServerSpec { folder: cwd, ..ServerSpec::new(name, ServerSource::Project, transport) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_not_started_and_said() {
        let table = [
            (r#"{"command":"x"}"#, ""),
            (r#"{"type":"stdio","command":"x","args":["a"],"env":{"A":"b"},"more":1}"#, ""),
            (r#"{"type":"http","url":"https://example.com/mcp","headers":{"A":"${B}"}}"#, ""),
            (r#"{"url":"http://localhost:1/"}"#, ""),
            (r#"{"type":"streamable-http","serverUrl":"http://localhost:1/"}"#, ""),
            (r#"{"transport":"streamableHttp","httpUrl":"http://localhost:1/"}"#, ""),
            (r#"{"command":"x","cwd":"tools"}"#, ""),
            (r#"{"command":"x","args":null,"env":null,"headers":null,"cwd":null}"#, ""),
            (r#"{"command":"x","disabled":false,"enabled":true}"#, ""),
            (r#"{"command":"x","args":["--port",80],"env":{"N":7,"B":true}}"#, ""),
            (r#"{"command":"x","cwd":"${HOME}"}"#, "variables may stand"),
            (r#"{"command":"x","disabled":"yes"}"#, "`disabled` must be true or false, not text"),
            (r#"{"command":"x","env":{"A":null}}"#, "`env.A`"),
            (r#"{"type":"sse","url":"https://example.com"}"#, "`sse` is not known"),
            (r#"{"type":"http","command":"x"}"#, "either"),
            (r#"{"type":"stdio","url":"https://x"}"#, "either"),
            (r#"{"command":"x","url":"https://x"}"#, "either"),
            (r#"{"command":""}"#, "either"),
            (r"{}", "either"),
            (r#"{"url":"file:///etc/passwd"}"#, "not http"),
            (r#"{"url":"x"}"#, "address"),
            (r#"{"command":"${HOME}/x"}"#, "variables may stand"),
            (r#"{"command":["x"]}"#, "`command` must be text, not a list"),
            ("7", "no object"),
            ("[\"stdio\", \"x\"]", "no object"),
        ];
        for (entry, expected) in table {
            let (entries, problems) =
                parse(&format!(r#"{{"mcpServers":{{"notes":{entry}}}}}"#)).unwrap();
            let problem = problems.concat();
            assert_eq!(entries.is_empty(), !expected.is_empty(), "{entry}");
            assert!(problem.contains(expected), "{entry}: {problem}");
        }
        let (entries, problems) =
            parse(r#"{"mcpServers":{"":{"command":"x"},"a\u202eb":{"command":"x"}}}"#).unwrap();
        assert_eq!((entries.len(), problems.len()), (0, 2));
        assert!(parse("[]").is_err() && parse("{\"mcpServers\": 1}").is_err());
    }

    #[test]
    fn a_file_of_an_editor_is_read_and_what_is_off_is_not_started() {
        let text = "\u{feff}{\n  // my servers\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\", },\n\
                    /* off */ \"b\": { \"command\": \"y\", \"disabled\": true },\n\
                    \"c\": { \"enabled\": false },\n  },\n}\n";
        let (entries, problems) = parse(text).unwrap();
        let names: Vec<_> = entries.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, problems), (vec!["a"], Vec::new()));
        assert_eq!(parse(r#"{"servers":{"a":{"command":"x"}}}"#).unwrap().0.len(), 1);
        assert!(parse("{\"mcpServers\": {").unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn the_names_of_editors_for_the_folder_and_for_variables_are_understood() {
        let text = r#"{"mcpServers":{"n":{"command":"${workspaceFolder}/run","cwd":"${CLAUDE_PROJECT_DIR:-.}",
            "args":["${workspaceRoot}/a","${env:USER}","${CLAUDE_PROJECT_DIR}"],"env":{"P":8080}}}}"#;
        let (mut entries, problems) = parse(&with_folder(text, Path::new("/my \"ws\""))).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let (name, entry) = entries.remove(0);
        let shown = describe_entry(&name, &entry).1;
        assert!(shown.contains(r#"in /my "ws", with the variables P"#), "{shown}");
        let spec =
            server(&name, entry, Path::new("/x"), &|name| Ok(Some(name.to_lowercase()))).unwrap();
        assert_eq!(spec.folder.as_deref(), Some(Path::new("/my \"ws\"")));
        let ServerTransport::Stdio { command, arguments, environment } = spec.transport else {
            panic!("no program")
        };
        assert_eq!(command, Path::new("/my \"ws\"/run"));
        assert_eq!(arguments, ["/my \"ws\"/a", "user", "/my \"ws\""]);
        assert_eq!(environment[0].1.expose(), "8080");
    }

    #[test]
    fn a_program_runs_in_its_folder_which_is_shown() {
        let text = r#"{"mcpServers":{"n":{"command":"./run","args":["1"],"cwd":"tools/mcp"}}}"#;
        let (mut entries, _) = parse(text).unwrap();
        let (name, entry) = entries.remove(0);
        let (short, full) = describe_entry(&name, &entry);
        assert_eq!(full, r#"n runs ["./run","1"] in tools/mcp"#);
        assert_eq!(short, "the MCP server n (`./run 1 in tools/mcp`)");
        let spec = server(&name, entry, Path::new("/project"), &|_| Ok(None)).unwrap();
        assert_eq!(spec.folder.as_deref(), Some(Path::new("/project/tools/mcp")));
    }

    #[test]
    fn what_would_run_is_shown_as_it_is() {
        let text = r#"{"mcpServers":{"n":{"command":"\u0073h","args":["-c","a b\n\u202e"],"env":{"K":"v"}}}}"#;
        let (entries, _) = parse(text).unwrap();
        let (short, full) = describe_entry(&entries[0].0, &entries[0].1);
        assert_eq!(full, r#"n runs ["sh","-c","a b\n\u{202e}"], with the variables K"#);
        assert_eq!(short, "the MCP server n (`sh -c a b\\n\\u{202e}`)");
    }
}
