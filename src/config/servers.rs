//! `[mcp]`: the servers that the user wants every session to have. Says what is wanted, with the
//! values of variables put in; whoever connects decides what becomes of it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::file::note_unknown;
use super::{Secret, bounds};

pub(super) const MCP: &[&str] = &["wait_seconds", "servers"];
pub(super) const SERVER: &[&str] = &[
    "command",
    "args",
    "env",
    "url",
    "headers",
    "enabled",
    "shared",
    "start_seconds",
    "call_seconds",
    "most_seconds",
    "tools",
    "without_tools",
    "sandbox",
    "network",
    "write",
    "read",
];

/// How long the first prompt of a session waits for its servers.
const WAIT: Duration = Duration::from_secs(5);
/// Characters of a server's name.
const LONGEST_NAME: usize = 64;

/// `[mcp]`, as the file has it. One server that is wrong does not take the others away.
#[derive(Default)]
pub(super) struct McpSection {
    wait: Option<Duration>,
    servers: BTreeMap<String, Result<ServerSection, String>>,
}

impl std::fmt::Debug for McpSection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A value may be a credential.
        formatter.debug_set().entries(self.servers.keys()).finish()
    }
}

/// `[mcp.servers.NAME]`.
#[derive(Clone, Deserialize)]
#[serde(default)]
pub(super) struct ServerSection {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    enabled: bool,
    shared: bool,
    start_seconds: Option<NonZeroU32>,
    call_seconds: Option<NonZeroU32>,
    most_seconds: Option<NonZeroU32>,
    tools: Option<Vec<String>>,
    without_tools: Vec<String>,
    sandbox: bool,
    network: bool,
    write: Vec<String>,
    read: Vec<String>,
}

impl Default for ServerSection {
    fn default() -> ServerSection {
        ServerSection {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            url: None,
            headers: BTreeMap::new(),
            enabled: true,
            shared: true,
            start_seconds: None,
            call_seconds: None,
            most_seconds: None,
            tools: None,
            without_tools: Vec::new(),
            sandbox: true,
            network: true,
            write: Vec::new(),
            read: Vec::new(),
        }
    }
}

/// What is wanted of servers.
#[derive(Debug, Default)]
pub struct McpSettings {
    /// How long the first prompt of a session waits for them.
    pub wait: Duration,
    /// Those that can be used, in the order of their names.
    pub servers: Vec<McpServer>,
    /// Those that are turned off.
    pub off: Vec<String>,
    /// Those that cannot be used, and why.
    pub broken: Vec<(String, String)>,
    /// Values of variables that look like keys and were put into something.
    pub secrets: Vec<Secret>,
}

/// A server that the user wants.
#[derive(Clone, Debug)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub reach: McpReach,
    /// Whether sessions may have it together.
    pub is_shared: bool,
    /// How long it may take until it can be used.
    pub start: Option<Duration>,
    /// How long a call may take without a sign of life.
    pub call: Option<Duration>,
    /// How long a call may take at all.
    pub most: Option<Duration>,
    /// Only these tools are wanted, as globs; `None` for any.
    pub tools: Option<Vec<String>>,
    /// These are not.
    pub without_tools: Vec<String>,
    /// Whether it is kept to anything.
    pub sandbox: bool,
    /// Whether it has the network.
    pub network: bool,
    /// What it may change besides; absolute, or meant from the session's folder.
    pub write: Vec<PathBuf>,
    /// What it may read although it is hidden from commands; the same.
    pub read: Vec<PathBuf>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum McpReach {
    /// A program.
    Program {
        /// Its path or name.
        command: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
        /// Variables for it.
        environment: Vec<(String, Secret)>,
    },
    /// An address.
    Address {
        /// The address.
        url: Url,
        /// What is sent along.
        headers: Vec<(String, Secret)>,
    },
}

impl McpSection {
    /// Understands the section of a file, and says what has no effect in it.
    pub(super) fn read(file: &toml::Table, notes: &mut Vec<String>) -> McpSection {
        let Some(value) = file.get("mcp") else { return McpSection::default() };
        let Some(table) = value.as_table() else {
            notes.push("`mcp` is no table and has no effect".to_owned());
            return McpSection::default();
        };
        note_unknown(table, "mcp.", MCP, notes);
        let wait = table.get("wait_seconds").and_then(|it| {
            let seconds = it.as_integer().and_then(|it| u32::try_from(it).ok());
            if seconds.is_none() {
                notes.push("`mcp.wait_seconds` is no number of seconds".to_owned());
            }
            Some(Duration::from_secs(seconds?.into()))
        });
        let mut section = McpSection { wait, servers: BTreeMap::new() };
        let all = match table.get("servers").map(toml::Value::as_table) {
            None => return section,
            Some(Some(all)) => all,
            Some(None) => {
                notes.push("`mcp.servers` is no table and has no effect".to_owned());
                return section;
            }
        };
        for (name, value) in all {
            let shown = name.escape_debug();
            if let Some(table) = value.as_table() {
                note_unknown(table, &format!("mcp.servers.{shown}."), SERVER, notes);
            }
            let understood = understand(name, value);
            if let Err(why) = &understood {
                notes.push(format!("`mcp.servers.{shown}` is not used: {why}"));
            }
            section.servers.insert(name.clone(), understood);
        }
        section
    }

    /// What it means. `look_up` knows the variables.
    pub(super) fn settings(&self, home: Option<&Path>, look_up: &LookUp<'_>) -> McpSettings {
        let mut settings =
            McpSettings { wait: self.wait.unwrap_or(WAIT), ..McpSettings::default() };
        for (name, section) in &self.servers {
            match section {
                Err(why) => settings.broken.push((name.clone(), why.clone())),
                Ok(section) if !section.enabled => settings.off.push(name.clone()),
                Ok(section) => match section.server(name, home, look_up) {
                    Ok(server) => settings.servers.push(server),
                    Err(why) => settings.broken.push((name.clone(), why)),
                },
            }
        }
        settings
    }

    /// Values that look like credentials and stand in the file themselves.
    pub(super) fn secrets(&self, is_credential: fn(&str) -> bool) -> Vec<String> {
        let sections = self.servers.values().flatten();
        let values = sections.flat_map(|it| it.env.iter().chain(&it.headers));
        let literal = values.filter(|(name, it)| is_credential(name) && !it.contains("${"));
        // As in `Bearer KEY`.
        literal.filter_map(|it| Some(it.1.split_whitespace().next_back()?.to_owned())).collect()
    }

    /// Each server for people: what it is, with the names of what may be a secret and no value.
    pub(super) fn shown(&self) -> Vec<(String, String)> {
        let shown = |it: &Result<ServerSection, String>| match it {
            Ok(section) => section.shown(),
            Err(why) => format!("not used: {why}"),
        };
        self.servers.iter().map(|(name, it)| (name.clone(), shown(it))).collect()
    }

    /// How long the first prompt waits, if that is said.
    pub(super) fn wait(&self) -> Option<u64> {
        self.wait.map(|it| it.as_secs())
    }
}

/// Finds the value of a variable; or says why it is not to be had.
pub(super) type LookUp<'a> = dyn Fn(&str) -> Result<Option<String>, String> + 'a;

fn understand(name: &str, value: &toml::Value) -> Result<ServerSection, String> {
    let fits = |it: char| it.is_ascii_alphanumeric() || ['_', '-', '.'].contains(&it);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(fits) {
        return Err(format!(
            "its name has to be made of letters, digits, `_`, `-` and `.`, {LONGEST_NAME} at most"
        ));
    }
    let section: ServerSection = value.clone().try_into().map_err(|error| complaint(&error))?;
    let wrong = match (&section.command, &section.url) {
        (Some(_), Some(_)) => "it has both `command` and `url`",
        (None, None) => "it has neither `command` nor `url`",
        (Some(command), None) if command.trim().is_empty() => "its `command` is empty",
        (Some(_), None) if !section.headers.is_empty() => {
            "`headers` go with a `url` and not with a `command`"
        }
        (None, Some(_)) if !section.args.is_empty() || !section.env.is_empty() => {
            "`args` and `env` go with a `command` and not with a `url`"
        }
        _ => return Ok(section),
    };
    Err(wrong.to_owned())
}

/// What is wrong, without any text of the file: it may hold a secret.
fn complaint(error: &toml::de::Error) -> String {
    let mut message = error.to_string().trim().replace(['\n', '\r'], " ");
    if let (Some(first), Some(last)) = (message.find('"'), message.rfind('"'))
        && first < last
    {
        message.replace_range(first..=last, "\"…\"");
    }
    message
}

impl ServerSection {
    fn server(
        &self,
        name: &str,
        home: Option<&Path>,
        look_up: &LookUp<'_>,
    ) -> Result<McpServer, String> {
        let put_in = |text: &String| expand(text, look_up);
        let pairs = |all: &BTreeMap<String, String>| {
            let pair = |(name, text): (&String, &String)| {
                Ok((name.clone(), Secret::from(expand(text, look_up)?)))
            };
            all.iter().map(pair).collect::<Result<Vec<_>, String>>()
        };
        let path = |it: &String| {
            bounds::absolute(it, home, None).unwrap_or_else(|| PathBuf::from(it.as_str()))
        };
        let seconds = |it: Option<NonZeroU32>| Some(Duration::from_secs(it?.get().into()));
        let reach = match (&self.command, &self.url) {
            (Some(command), _) => McpReach::Program {
                command: in_home(&put_in(command)?, home),
                arguments: self.args.iter().map(put_in).collect::<Result<_, _>>()?,
                environment: pairs(&self.env)?,
            },
            (None, url) => McpReach::Address {
                url: address(&put_in(url.as_ref().unwrap_or(&String::new()))?)?,
                headers: pairs(&self.headers)?,
            },
        };
        Ok(McpServer {
            name: name.to_owned(),
            reach,
            is_shared: self.shared,
            start: seconds(self.start_seconds),
            call: seconds(self.call_seconds),
            most: seconds(self.most_seconds),
            tools: self.tools.clone(),
            without_tools: self.without_tools.clone(),
            sandbox: self.sandbox,
            network: self.network,
            write: self.write.iter().map(path).collect(),
            read: self.read.iter().map(path).collect(),
        })
    }

    fn shown(&self) -> String {
        let mut parts = Vec::new();
        if !self.enabled {
            parts.push("off".to_owned());
        }
        match (&self.command, &self.url) {
            (Some(command), _) => parts.push(format!("program {command}")),
            (None, url) => {
                let url = url.as_deref().and_then(|it| Url::parse(it).ok());
                // What stands before the host or behind the path may be a key.
                let shown =
                    url.map(|it| format!("{}{}", it.origin().ascii_serialization(), it.path()));
                parts.push(shown.unwrap_or_else(|| "an address".to_owned()));
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
            parts.push("outside of the sandbox".to_owned());
        }
        parts.join(", ")
    }
}

fn in_home(command: &str, home: Option<&Path>) -> PathBuf {
    match (command.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => command.into(),
    }
}

fn address(text: &str) -> Result<Url, String> {
    match Url::parse(text) {
        Ok(url) if ["http", "https"].contains(&url.scheme()) && url.has_host() => Ok(url),
        Ok(_) => Err("its `url` begins neither with http:// nor with https://".to_owned()),
        Err(error) => Err(format!("its `url` is none: {error}")),
    }
}

/// The text with the values of its variables: `${NAME}`, or `${NAME:-this}` where it is not set or
/// empty. Any other `$` is itself.
pub(super) fn expand(text: &str, look_up: &LookUp<'_>) -> Result<String, String> {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${") {
        expanded.push_str(before);
        let Some((inner, after)) = behind.split_once('}') else {
            return Err("a `${` in it has no `}`".to_owned());
        };
        let (name, usual) = match inner.split_once(":-") {
            Some((name, usual)) => (name, Some(usual)),
            None => (inner, None),
        };
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err("what stands in a `${…}` of it is no name of a variable".to_owned());
        }
        match (look_up(name)?.filter(|it| !it.is_empty() || usual.is_none()), usual) {
            (Some(value), _) => expanded.push_str(&value),
            (None, Some(usual)) => expanded.push_str(usual),
            (None, None) => {
                return Err(format!(
                    "the variable {name} is not set where the agent was started; `${{{name}:-TEXT}}` \
                     says what to use then"
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

    fn settings(text: &str) -> (McpSettings, Vec<String>) {
        let mut notes = Vec::new();
        let section = McpSection::read(&toml::from_str(text).unwrap(), &mut notes);
        let look_up = |name: &str| match name {
            "TOKEN" => Ok(Some("t-1".to_owned())),
            "EMPTY" => Ok(Some(String::new())),
            "OPENAI_API_KEY" => Err("it is kept from everybody".to_owned()),
            _ => Ok(None),
        };
        (section.settings(Some(Path::new("/home/me")), &look_up), notes)
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
        assert_eq!((settings.wait, settings.off), (Duration::ZERO, vec!["c".to_owned()]));
        let [a, b] = settings.servers.try_into().unwrap();
        assert_eq!(a.write, [PathBuf::from("/home/me/data"), PathBuf::from("out")]);
        assert_eq!((a.start, a.call, a.network), (Some(Duration::from_secs(9)), None, false));
        assert!(a.is_shared && a.sandbox && !b.is_shared);
        let McpReach::Program { command, arguments, environment } = a.reach else { panic!() };
        assert_eq!(command, PathBuf::from("/home/me/bin/server"));
        assert_eq!(arguments, ["--token=t-1", "$TOKEN", "xy"]);
        assert_eq!(environment, [("KEY".to_owned(), Secret::from("t-1"))]);
        assert!(!format!("{environment:?}").contains("t-1"));
        let McpReach::Address { url, headers } = b.reach else { panic!() };
        assert_eq!(url.as_str(), "https://example.com/mcp");
        assert_eq!(headers, [("Authorization".to_owned(), Secret::from("Bearer t-1"))]);
    }

    #[test]
    fn a_server_that_is_wrong_is_named_and_takes_no_other_away() {
        let table = [
            ("", "neither `command` nor `url`"),
            ("command = 'a'\nurl = 'http://x'", "both"),
            ("command = ' '", "empty"),
            ("command = 3", "invalid type"),
            ("command = 'a'\nheaders = { x = 'y' }", "`headers`"),
            ("url = 'http://x'\nargs = ['y']", "`args`"),
            ("command = 'a'\nargs = 'sk-1 sk-2'", "…"),
            ("command = 'a'\nstart_seconds = 0", "zero"),
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
    }

    #[test]
    fn a_variable_that_is_not_to_be_had_is_a_reason_not_to_start() {
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
    fn what_is_shown_of_a_server_has_names_and_no_values() {
        let text = "[mcp.servers.a]\ncommand = 'npx'\nargs = ['k-1']\nenv = { MY_TOKEN = 'k-2' }\n\
                    sandbox = false\n[mcp.servers.b]\nurl = 'https://u:k-3@h/p?key=k-4'\n\
                    headers = { X-Key = 'Bearer k-5', Accept = 'k-6' }";
        let section = McpSection::read(&toml::from_str(text).unwrap(), &mut Vec::new());
        let [a, b] = section.shown().try_into().unwrap();
        assert_eq!(a.1, "program npx, arguments 1, variables MY_TOKEN, outside of the sandbox");
        assert_eq!(b.1, "https://h/p, headers Accept X-Key");
        assert!(!format!("{section:?}").contains("k-"));
        assert_eq!(section.secrets(super::super::resolve::is_credential), ["k-2", "k-5"]);
    }
}
