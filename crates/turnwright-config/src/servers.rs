//! `[mcp]`: the MCP servers of every session, with variables expanded. Connecting to them is not done
//! here.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::reader::unknown_setting;
use crate::sandbox;
use crate::table::{Inner, Row, SchemaNode, SettingType, section_schema, settings};
use turnwright_mcp::{
    ServerSandbox, ServerSource, ServerSpec, ServerTimeouts, ServerTransport, ToolFilter,
};
use turnwright_types::error_text::json_error_text;
use turnwright_types::redact;
use turnwright_types::secret::Secret;

/// How long the first prompt of a session waits for its servers by default.
const DEFAULT_STARTUP_WAIT: Duration = Duration::from_secs(5);
/// The most characters of a server's name.
const MAX_NAME_LENGTH: usize = 64;

/// `[mcp]`, as in the file. An invalid server does not make the others unusable.
#[derive(Default, Deserialize)]
#[serde(from = "Value")]
pub(crate) struct McpSection {
    wait: Option<Duration>,
    servers: BTreeMap<String, Result<ServerSection, String>>,
    /// A warning about each entry that has no effect.
    pub(crate) problems: Vec<String>,
}

impl std::fmt::Debug for McpSection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A value may be a credential.
        formatter.debug_set().entries(self.servers.keys()).finish()
    }
}

/// Its entries are read one by one, so that a wrong one does not make the file unusable.
impl SettingType for McpSection {
    type Plain = McpSection;

    const INNER: Inner = Inner::Section(MCP_ROWS);

    fn plain(&self) -> Option<&McpSection> {
        Some(self)
    }

    fn schema() -> SchemaNode {
        section_schema(MCP_ROWS)
    }
}

const MCP_ROWS: &[Row] = &[
    Row {
        default: || json!(DEFAULT_STARTUP_WAIT.as_secs()),
        #[cfg(test)]
        wrong: &["mcp.wait_seconds = -1"],
        ..Row::new::<u32>(
            "wait_seconds",
            "How long the first prompt of a session waits for its servers; 0 for not at all.",
        )
    },
    Row {
        examples: || {
            json!([{
                "notes": {
                    "command": "notes-server",
                    "args": ["--all"],
                    "env": { "NOTES_TOKEN": "${NOTES_TOKEN}" },
                    "enabled": true,
                    "shared": true,
                    "start_seconds": 30,
                    "call_seconds": 120,
                    "most_seconds": 1800,
                    "tools": ["read_*", "search"],
                    "without_tools": [],
                    "sandbox": true,
                    "network": true,
                    "write": [],
                    "read": []
                },
                "web": {
                    "url": "https://example.com/mcp",
                    "headers": { "Authorization": "Bearer ${WEB_TOKEN}" }
                }
            }])
        },
        #[cfg(test)]
        wrong: &[
            r#"mcp.servers.a = { args = ["x"] }"#,
            r#"mcp.servers.a = { command = "x", url = "https://x" }"#,
            r#"mcp.servers.a = { command = "x", start_seconds = 0 }"#,
            r#"mcp.servers."a b" = { command = "x" }"#,
        ],
        ..Row::new::<BTreeMap<String, ServerSection>>(
            "servers",
            "Servers by name: a program with `command`, or an HTTP server with `url`.",
        )
    },
];

settings! {
    /// `[mcp.servers.NAME]`.
    #[derive(Clone, Deserialize)]
    #[serde(default)]
    pub(crate) section ServerSection {
        command: Option<String> {}
            "The program; ${NAME} stands for the value of an environment variable here and below.",
            "the program; `~/` is the home folder";
        args: Vec<String> {}
            "Its arguments, which other programs on the machine can read.",
            "its arguments. Other programs on the machine can read them, so put keys into `env`";
        env: BTreeMap<String, String> {}
            "Further environment variables of the program.",
            "additional environment variables";
        url: Option<String> {}
            "The URL of an HTTP server, instead of `command`.",
            "URL of an HTTP server, instead of `command`";
        headers: BTreeMap<String, String> {}
            "Headers of each request to an HTTP server.",
            "headers for each request";
        enabled: bool = true {}
            "Whether the server is used.",
            "`false` disables the server; `true`";
        shared: bool = true {}
            "Whether sessions of the same folder share one process.",
            "whether sessions in the same folder share one process; `true`";
        start_seconds: Option<NonZeroU32> { default: 30 }
            "The most seconds until the server is ready.",
            "how long it may take to get ready, in seconds; 30, or 180 for programs that may have to download it \
             first (`npx`, `uvx`, `docker` and the like)";
        call_seconds: Option<NonZeroU32> { default: 120 }
            "The most seconds of a call without progress.",
            "how long a call may go without progress, in seconds; 120";
        most_seconds: Option<NonZeroU32> { default: 1800 }
            "The most seconds of a call in total.",
            "how long a call may take in total, in seconds; 1800";
        tools: Option<Vec<String>> {}
            "The only tools to offer; * stands for any characters.",
            "offer only these tools; `*` matches any characters";
        without_tools: Vec<String> { default: [] }
            "Tools that are not offered.",
            "do not offer these tools";
        sandbox: bool = true {}
            "Whether the program runs in the sandbox.",
            "whether the program runs in the sandbox; `true`";
        network: bool = true {}
            "Whether the program has network access in the sandbox.",
            "whether it has network access there; `true`";
        write: Vec<String> { default: [] }
            "Writable paths besides the session's folders and the caches.",
            "writable paths besides the session's folders and the caches: absolute, with `~/`, or relative to the \
             session's folder";
        read: Vec<String> { default: [] }
            "Readable paths that are hidden from commands.",
            "paths that are hidden from commands but that the server may read";
    }
}

/// The MCP settings of a session.
#[derive(Debug, Default)]
pub struct McpSettings {
    /// How long the first prompt of a session waits for its servers.
    pub wait: Duration,
    /// The usable servers, sorted by name. The paths of their sandbox may be relative to the session's folder.
    pub servers: Vec<ServerSpec>,
    /// The names of disabled servers.
    pub disabled: Vec<String>,
    /// The names of unusable servers, each with the reason.
    pub broken: Vec<(String, String)>,
    /// Values of expanded variables that look like keys.
    pub secrets: Vec<Secret>,
}

impl From<Value> for McpSection {
    fn from(value: Value) -> McpSection {
        let mut section = McpSection::default();
        let Value::Object(table) = value else {
            section.problems.push("`mcp` is not a table (ignored)".to_owned());
            return section;
        };
        for (key, value) in table {
            match (key.as_str(), value) {
                ("servers", Value::Object(servers)) => {
                    for (name, value) in servers {
                        section.add_server(name, &value);
                    }
                }
                ("servers", _) => {
                    section.problems.push("`mcp.servers` is not a table (ignored)".to_owned());
                }
                ("wait_seconds", value) => {
                    let seconds = value.as_u64().and_then(|number| u32::try_from(number).ok());
                    section.wait = seconds.map(|seconds| Duration::from_secs(seconds.into()));
                    if seconds.is_none() {
                        let expected = "`mcp.wait_seconds` must be a whole number ≥ 0 (ignored)";
                        section.problems.push(expected.to_owned());
                    }
                }
                (other, _) => section.problems.push(unknown_setting(&["mcp", other])),
            }
        }
        section
    }
}

impl McpSection {
    fn add_server(&mut self, name: String, value: &Value) {
        let mut unknown = Vec::new();
        let parsed = parse_server(&name, value, &mut unknown);
        for key in unknown {
            self.problems.push(unknown_setting(&["mcp", "servers", &name, key]));
        }
        if let Err(why) = &parsed {
            let shown = name.escape_debug();
            self.problems.push(format!("`mcp.servers.{shown}` is not used: {why}"));
        }
        self.servers.insert(name, parsed);
    }

    /// Resolves paths and expands variables, which `look_up` returns.
    pub(crate) fn settings(
        &self,
        home: Option<&Path>,
        look_up: &VariableLookup<'_>,
    ) -> McpSettings {
        let mut settings = McpSettings {
            wait: self.wait.unwrap_or(DEFAULT_STARTUP_WAIT),
            ..McpSettings::default()
        };
        for (name, section) in &self.servers {
            match section {
                Err(why) => settings.broken.push((name.clone(), why.clone())),
                Ok(section) if !section.enabled => settings.disabled.push(name.clone()),
                Ok(section) => match section.server(name, home, look_up) {
                    Ok(server) => settings.servers.push(server),
                    Err(why) => settings.broken.push((name.clone(), why)),
                },
            }
        }
        settings
    }

    /// Literal values in the file that look like credentials.
    pub(crate) fn secrets(&self, is_credential: fn(&str) -> bool) -> Vec<String> {
        let sections = self.servers.values().flatten();
        let values = sections.flat_map(|section| section.env.iter().chain(&section.headers));
        let literal = values.filter(|(name, value)| is_credential(name) && !value.contains("${"));
        literal.filter_map(|(_, value)| Some(redact::header_key(value)?.to_owned())).collect()
    }

    /// The name and a description of each server. It names variables and headers, but not their values,
    /// which may be secrets.
    pub(crate) fn descriptions(&self) -> Vec<(String, String)> {
        let descriptions = self.servers.iter().map(|(name, server)| {
            let description = match server {
                Ok(section) => section.description(),
                Err(why) => format!("not used: {why}"),
            };
            (name.clone(), description)
        });
        descriptions.collect()
    }

    /// `wait_seconds`, if set.
    pub(crate) fn wait(&self) -> Option<u64> {
        self.wait.map(|wait| wait.as_secs())
    }
}

/// Returns the value of a variable, or the reason why it is not available.
pub(crate) type VariableLookup<'a> = dyn Fn(&str) -> Result<Option<String>, String> + 'a;

/// Parses a server, and adds the key of each entry that is not known to `unknown`.
fn parse_server<'a>(
    name: &str,
    value: &'a Value,
    unknown: &mut Vec<&'a str>,
) -> Result<ServerSection, String> {
    let is_allowed = |letter: char| letter.is_alphanumeric() || ['_', '-', '.'].contains(&letter);
    let is_long = name.chars().count() > MAX_NAME_LENGTH;
    if name.is_empty() || is_long || !name.chars().all(is_allowed) {
        return Err(format!(
            "its name may contain only letters, digits, `_`, `-` and `.`, at most {MAX_NAME_LENGTH}"
        ));
    }
    let Value::Object(table) = value else { return Err("it is not a table".to_owned()) };
    let keys = table.keys().map(String::as_str);
    unknown.extend(keys.filter(|key| ServerSection::ROWS.iter().all(|row| row.key != *key)));
    let text = value.to_string();
    let section: ServerSection =
        serde_json::from_str(&text).map_err(|error| json_error_text(&text, &error))?;
    let wrong = match (&section.command, &section.url) {
        (Some(_), Some(_)) => "it has both `command` and `url`",
        (None, None) => "it has neither `command` nor `url`",
        (Some(command), None) if command.trim().is_empty() => "its `command` is empty",
        (Some(_), None) if !section.headers.is_empty() => "`headers` need a `url`, not a `command`",
        (None, Some(_)) if !section.args.is_empty() || !section.env.is_empty() => {
            "`args` and `env` need a `command`, not a `url`"
        }
        _ => return Ok(section),
    };
    Err(wrong.to_owned())
}

impl ServerSection {
    fn server(
        &self,
        name: &str,
        home: Option<&Path>,
        look_up: &VariableLookup<'_>,
    ) -> Result<ServerSpec, String> {
        let transport = match (&self.command, &self.url) {
            (Some(command), _) => ServerTransport::Stdio {
                command: expand_home(&expand_variables(command, look_up)?, home),
                arguments: expand_all(&self.args, look_up)?,
                environment: expand_values(&self.env, look_up)?,
            },
            (None, url) => ServerTransport::Http {
                url: parse_url(&expand_variables(url.as_deref().unwrap_or_default(), look_up)?)?,
                headers: expand_values(&self.headers, look_up)?,
            },
        };
        let usual = ServerTimeouts::default();
        let call = seconds(self.call_seconds).unwrap_or(usual.call);
        Ok(ServerSpec {
            timeouts: ServerTimeouts {
                start: seconds(self.start_seconds),
                call,
                call_total: seconds(self.most_seconds).unwrap_or(usual.call_total).max(call),
            },
            sandbox: ServerSandbox {
                is_enabled: self.sandbox,
                network: self.network,
                write: sandbox_paths(&self.write, home),
                read: sandbox_paths(&self.read, home),
            },
            is_shared: self.shared,
            tool_filter: ToolFilter {
                only: self.tools.clone(),
                without: self.without_tools.clone(),
            },
            ..ServerSpec::new(name, ServerSource::User, transport)
        })
    }

    fn description(&self) -> String {
        let mut parts = Vec::new();
        if !self.enabled {
            parts.push("off".to_owned());
        }
        match (&self.command, &self.url) {
            (Some(command), _) => parts.push(format!("program {command}")),
            (None, url) => {
                let url = url.as_deref().and_then(|text| Url::parse(text).ok());
                // The user info and the query may contain a key.
                let shown =
                    url.map(|url| format!("{}{}", url.origin().ascii_serialization(), url.path()));
                parts.push(shown.unwrap_or_else(|| "a URL".to_owned()));
            }
        }
        if !self.args.is_empty() {
            parts.push(format!("arguments {}", self.args.len()));
        }
        for (what, names) in [("variables", &self.env), ("headers", &self.headers)] {
            if !names.is_empty() {
                let names: Vec<_> = names.keys().map(String::as_str).collect();
                parts.push(format!("{what} {}", names.join(" ")));
            }
        }
        if self.command.is_some() && !self.sandbox {
            parts.push("outside the sandbox".to_owned());
        }
        parts.join(", ")
    }
}

/// Texts with variables expanded.
pub(crate) fn expand_all(
    texts: &[String],
    look_up: &VariableLookup<'_>,
) -> Result<Vec<String>, String> {
    texts.iter().map(|text| expand_variables(text, look_up)).collect()
}

/// Pairs of name and value, with variables in the values expanded.
pub(crate) fn expand_values(
    pairs: &BTreeMap<String, String>,
    look_up: &VariableLookup<'_>,
) -> Result<Vec<(String, Secret)>, String> {
    let expanded = pairs
        .iter()
        .map(|(name, text)| Ok((name.clone(), Secret::from(expand_variables(text, look_up)?))));
    expanded.collect()
}

fn sandbox_paths(paths: &[String], home: Option<&Path>) -> Vec<PathBuf> {
    paths.iter().map(|path| expand_home(path, home)).collect()
}

fn seconds(number: Option<NonZeroU32>) -> Option<Duration> {
    Some(Duration::from_secs(number?.get().into()))
}

fn expand_home(path: &str, home: Option<&Path>) -> PathBuf {
    sandbox::resolve_path(path, home, None).unwrap_or_else(|| path.into())
}

fn parse_url(text: &str) -> Result<Url, String> {
    match Url::parse(text) {
        Ok(url) if ["http", "https"].contains(&url.scheme()) && url.has_host() => Ok(url),
        Ok(_) => Err("its `url` must start with http:// or https://".to_owned()),
        Err(error) => Err(format!("its `url` is invalid: {error}")),
    }
}

/// Expands `${NAME}`, which editors also write `${env:NAME}`, and `${NAME:-DEFAULT}` if the variable is unset or empty.
/// Any other `$` is literal.
fn expand_variables(text: &str, look_up: &VariableLookup<'_>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        expanded.push_str(before);
        let Some((written, after)) = behind.split_once('}') else {
            return Err("a `${` has no `}`".to_owned());
        };
        let inner = written.strip_prefix("env:").unwrap_or(written);
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if name.is_empty() || !is_name {
            return Err("a `${…}` contains no name of a variable".to_owned());
        }
        match (look_up(name)?.filter(|value| !value.is_empty() || default.is_none()), default) {
            (Some(value), _) => expanded.push_str(&value),
            (None, Some(default)) => expanded.push_str(default),
            (None, None) => {
                return Err(format!(
                    "the variable {name} is not set. Set it and restart turnwright, or write \
                     `${{{name}:-DEFAULT}}`"
                ));
            }
        }
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> McpSection {
        let file: Value = toml_edit::de::from_str(text).unwrap();
        file.get("mcp").cloned().map(McpSection::from).unwrap_or_default()
    }

    fn settings(text: &str) -> (McpSettings, Vec<String>) {
        let section = section(text);
        let look_up = |name: &str| match name {
            "TOKEN" => Ok(Some("t-1".to_owned())),
            "EMPTY" => Ok(Some(String::new())),
            "OPENAI_API_KEY" => Err("it is kept from everybody".to_owned()),
            _ => Ok(None),
        };
        (section.settings(Some(Path::new("/home/me")), &look_up), section.problems)
    }

    #[test]
    fn a_server_is_a_program_or_an_address_with_variables_put_in() {
        let text = r#"
            [mcp]
            wait_seconds = 0
            [mcp.servers.a]
            command = "~/bin/server"
            args = ["--token=${TOKEN}", "$TOKEN", "${NO:-x}${EMPTY:-y}${EMPTY}"]
            env = { KEY = "${TOKEN}" }
            start_seconds = 9
            tools = ["read_*"]
            network = false
            write = ["~/data", "out"]
            [mcp.servers.b]
            url = "https://example.com/mcp"
            headers = { Authorization = "Bearer ${TOKEN}" }
            shared = false
            [mcp.servers.c]
            command = "c"
            enabled = false
        "#;
        let (settings, notes) = settings(text);
        assert_eq!((notes, settings.broken), (Vec::new(), Vec::new()));
        assert_eq!((settings.wait, settings.disabled), (Duration::ZERO, vec!["c".to_owned()]));
        let [a, b] = settings.servers.try_into().unwrap();
        assert_eq!(a.sandbox.write, [PathBuf::from("/home/me/data"), PathBuf::from("out")]);
        let timeouts =
            ServerTimeouts { start: Some(Duration::from_secs(9)), ..ServerTimeouts::default() };
        assert_eq!((a.timeouts, a.sandbox.network), (timeouts, false));
        assert!(a.is_shared && a.sandbox.is_enabled && !b.is_shared);
        let ServerTransport::Stdio { command, arguments, environment } = a.transport else {
            panic!()
        };
        assert_eq!(command, PathBuf::from("/home/me/bin/server"));
        assert_eq!(arguments, ["--token=t-1", "$TOKEN", "xy"]);
        assert_eq!(environment, [("KEY".to_owned(), Secret::from("t-1"))]);
        assert!(!format!("{environment:?}").contains("t-1"));
        let ServerTransport::Http { url, headers } = b.transport else { panic!() };
        assert_eq!(url.as_str(), "https://example.com/mcp");
        assert_eq!(headers, [("Authorization".to_owned(), Secret::from("Bearer t-1"))]);
    }

    #[test]
    fn an_invalid_server_is_reported_and_does_not_affect_the_others() {
        let table = [
            ("", "neither `command` nor `url`"),
            ("command = 'a'\nurl = 'http://x'", "both"),
            ("command = ' '", "empty"),
            ("command = 3", "`command` must be text, not 3"),
            ("command = 'a'\nheaders = { x = 'y' }", "`headers`"),
            ("url = 'http://x'\nargs = ['y']", "`args`"),
            ("command = 'a'\nargs = 'sk-1 sk-2'", "`args` must be a list, not text"),
            ("command = 'a'\nstart_seconds = 0", "≥ 1"),
        ];
        for (text, expected) in table {
            let all = format!("[mcp.servers.good]\ncommand = 'g'\n[mcp.servers.bad]\n{text}");
            let (settings, notes) = settings(&all);
            assert_eq!(settings.servers.len(), 1, "{text}");
            assert_eq!((notes.len(), settings.broken.len()), (1, 1), "{text}: {notes:?}");
            assert!(notes[0].starts_with("`mcp.servers.bad` is not used: "), "{notes:?}");
            assert!(notes[0].contains(expected) && !notes[0].contains("sk-"), "{notes:?}");
        }
        for (text, expected) in [
            ("mcp = 3", "`mcp`"),
            ("[mcp]\nservers = []", "`mcp.servers`"),
            ("[mcp]\nwait_seconds = -1", "`mcp.wait_seconds`"),
            ("[mcp]\nwait = 1", "`mcp.wait`"),
            ("[mcp.servers.a]\ncommand = 'a'\ntypo = 1", "`mcp.servers.a.typo`"),
            ("[mcp.servers.'a/b']\ncommand = 'a'", "its name"),
        ] {
            let (_, notes) = settings(text);
            assert!(notes.len() == 1 && notes[0].contains(expected), "{text}: {notes:?}");
        }
        let (named, notes) = settings("[mcp.servers.'高德-地图']\ncommand = 'a'");
        assert!(named.servers.len() == 1 && notes.is_empty(), "{notes:?}");
        let (_, notes) =
            settings("[mcp.servers.a]\nenv = { any = 'x' }\ntypo = 1\ncommand = 3\nurls = {}");
        let beginnings = [
            "Unknown setting `mcp.servers.a.typo`",
            "Unknown setting `mcp.servers.a.urls`",
            "`mcp.servers.a` is not used: ",
        ];
        assert_eq!(notes.len(), beginnings.len(), "{notes:?}");
        for (note, beginning) in notes.iter().zip(beginnings) {
            assert!(note.starts_with(beginning), "{notes:?}");
        }
    }

    #[test]
    fn variables_are_put_in_once_and_a_missing_one_is_an_error() {
        let variable = |name: &str| match name {
            "A" => Ok(Some("1".to_owned())),
            "EMPTY" => Ok(Some(String::new())),
            "TRICK" => Ok(Some("${A}".to_owned())),
            _ => Ok(None),
        };
        let table = [
            ("plain $A", Ok("plain $A")),
            ("x${A}y${A}", Ok("x1y1")),
            ("${B:-two}", Ok("two")),
            ("${env:A}${env:B:-two}", Ok("1two")),
            ("${env:}", Err("no name")),
            ("${A:-two}", Ok("1")),
            ("${EMPTY:-two}${EMPTY}", Ok("two")),
            ("${TRICK}", Ok("${A}")),
            ("${B:-}", Ok("")),
            ("${B}", Err("B is not set")),
            ("${A", Err("no `}`")),
        ];
        for (text, expected) in table {
            match (expand_variables(text, &variable), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{text}"),
                (Err(got), Err(expected)) => {
                    assert!(got.contains(expected), "{text}: {got}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_unavailable_variable_makes_the_server_unusable() {
        for (value, expected) in [
            ("${NO}", "NO is not set"),
            ("${OPENAI_API_KEY}", "kept"),
            ("${OPENAI_API_KEY:-x}", "kept"),
            ("${TOKEN", "no `}`"),
            ("${a b}", "no name"),
        ] {
            let text = format!("[mcp.servers.a]\ncommand = 'a'\nenv = {{ X = '{value}' }}");
            let (settings, notes) = settings(&text);
            assert!(settings.servers.is_empty() && notes.is_empty(), "{value}: {notes:?}");
            assert!(settings.broken[0].1.contains(expected), "{:?}", settings.broken);
        }
    }

    #[test]
    fn a_description_has_names_and_no_values() {
        let text = "[mcp.servers.a]\ncommand = 'npx'\nargs = ['k-1']\nenv = { MY_TOKEN = 'k-2' }\n\
                    sandbox = false\n[mcp.servers.b]\nurl = 'https://u:k-3@h/p?key=k-4'\n\
                    headers = { X-Key = 'Bearer k-5', Accept = 'k-6' }";
        let section = section(text);
        let [a, b] = section.descriptions().try_into().unwrap();
        assert_eq!(a.1, "program npx, arguments 1, variables MY_TOKEN, outside the sandbox");
        assert_eq!(b.1, "https://h/p, headers Accept X-Key");
        assert!(!format!("{section:?}").contains("k-"));
        assert_eq!(section.secrets(crate::resolve::is_credential), ["k-2", "k-5"]);
    }
}
