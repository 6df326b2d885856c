//! A server as configured by the editor for one session, or in the settings.

use std::iter;
use std::mem::replace;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use crate::transport::link::LinkedServer;
use turnwright_types::redact;
use turnwright_types::secret::Secret;
use turnwright_types::text::fits_wildcard;
use turnwright_workspace::exec::is_secret_name;

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Unique in a session. It is shown, and is part of the names of the server's tools.
    pub name: String,
    pub source: ServerSource,
    pub transport: ServerTransport,
    /// Where its program runs, if not in the folder of the session.
    pub folder: Option<PathBuf>,
    pub timeouts: ServerTimeouts,
    /// How its process is confined; meaningless without a process.
    pub sandbox: ServerSandbox,
    /// True if sessions with an equal configuration may share the server.
    pub is_shared: bool,
    /// Which of its tools are offered to the model.
    pub tool_filter: ToolFilter,
}

/// Programs that download other programs to run them, which slows down the first start.
const DOWNLOADERS: [&str; 15] = [
    "bun", "bunx", "deno", "dnx", "docker", "go", "npm", "npx", "pipx", "pnpm", "pnpx", "podman",
    "uv", "uvx", "yarn",
];
/// Programs that start another one, and how many words may lead to its name.
const SHELLS: [&str; 8] = ["bash", "cmd", "env", "mise", "powershell", "pwsh", "sh", "zsh"];
const MAX_SHELL_WORDS: usize = 8;
/// A shorter value among the arguments of a program is not taken for a key.
const MIN_KEY_BYTES: usize = 16;
/// How long a server may take until it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for one that runs already, and only has to answer.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for one that may have to be downloaded.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(180);

impl ServerSpec {
    /// Creates a configuration with the default timeouts and sandbox.
    pub fn new(name: impl Into<String>, source: ServerSource, transport: ServerTransport) -> Self {
        ServerSpec {
            name: name.into(),
            source,
            transport,
            folder: None,
            timeouts: ServerTimeouts::default(),
            sandbox: ServerSandbox::default(),
            is_shared: true,
            tool_filter: ToolFilter::default(),
        }
    }

    /// How long it may take from its start until it is ready.
    pub fn start_timeout(&self) -> Duration {
        let usual = match &self.transport {
            ServerTransport::Linked(_) => LINK_TIMEOUT,
            _ if self.downloader().is_some() => DOWNLOAD_TIMEOUT,
            _ => START_TIMEOUT,
        };
        self.timeouts.start.unwrap_or(usual)
    }

    /// True if it is a program that is to run in the sandbox.
    pub fn is_confined_program(&self) -> bool {
        matches!(self.transport, ServerTransport::Stdio { .. }) && self.sandbox.is_enabled
    }

    /// The name of its program, if that may have to download the server first. A shell may start it.
    pub(crate) fn downloader(&self) -> Option<&'static str> {
        let ServerTransport::Stdio { command, arguments, .. } = &self.transport else {
            return None;
        };
        let first = command.file_stem()?.to_str()?;
        let words = arguments.iter().flat_map(|argument| argument.split(char::is_whitespace));
        let stems =
            words.take(MAX_SHELL_WORDS).filter_map(|word| Path::new(word).file_stem()?.to_str());
        let mut names = iter::once(first).chain(stems.filter(|_| SHELLS.contains(&first)));
        names.find_map(|name| DOWNLOADERS.into_iter().find(|downloader| *downloader == name))
    }

    /// The values that are keys, judging by their names. They must be redacted wherever they appear.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let (named, is_header, mut secrets) = match &self.transport {
            ServerTransport::Stdio { arguments, environment, .. } => {
                (environment, false, keys_in_arguments(arguments))
            }
            ServerTransport::Http { url, headers } => (headers, true, keys_in_url(url)),
            ServerTransport::Linked(_) => return Vec::new(),
        };
        for (name, value) in named {
            let value = value.expose();
            if is_secret_name(name) {
                let key = redact::header_key(value).filter(|_| is_header);
                secrets.push(key.unwrap_or(value).to_owned());
            }
            secrets.extend(Url::parse(value).iter().flat_map(keys_in_url));
        }
        secrets
    }

    /// Tells the user how to log in to a server that requires it.
    pub fn login_instructions(&self) -> String {
        // `turnwright mcp login` knows only the servers of the user's settings by name. The user types
        // the command, so anything that a shell would interpret is left out.
        let argument = match (&self.source, &self.transport) {
            (ServerSource::Client | ServerSource::Project, ServerTransport::Http { url, .. }) => {
                let mut url = url.clone();
                // The query may contain a key.
                url.set_query(url.query().map(|_| "…"));
                url.to_string()
            }
            _ => self.name.clone(),
        };
        let is_safe = argument
            .chars()
            .all(|character| character.is_alphanumeric() || "-._~:/?=%@[]…,+".contains(character));
        let argument = if is_safe { argument.as_str() } else { "URL" };
        format!(
            "it requires a login (HTTP 401). Run `turnwright mcp login {argument}`, or set its \
             `Authorization` header"
        )
    }
}

/// Returns each argument of a program with the byte at which the value of a key begins in it, as in `--api-key KEY`,
/// `TOKEN=KEY` and `Authorization: Bearer KEY`; `None` for an argument without one.
pub fn key_places(arguments: &[String]) -> impl Iterator<Item = (&str, Option<usize>)> {
    let mut is_value_of_key = false;
    arguments.iter().map(move |argument| {
        let mut begin = 0;
        let mut ends = argument.match_indices(['=', ':']).map(|(end, _)| end);
        let key_end = ends.find(|end| is_secret_name(&argument[replace(&mut begin, *end)..*end]));
        let is_name = key_end.is_none() && argument.starts_with('-') && is_secret_name(argument);
        let is_value = replace(&mut is_value_of_key, is_name);
        let place = if is_value { Some(0) } else { key_end.map(|end| end + 1) };
        (argument.as_str(), place)
    })
}

fn keys_in_arguments(arguments: &[String]) -> Vec<String> {
    let urls = arguments.iter().filter_map(|argument| Url::parse(argument).ok());
    let in_urls = urls.flat_map(|url| keys_in_url(&url));
    let named = key_places(arguments).filter(|(argument, _)| !argument.contains("://"));
    let values = named.filter_map(|(argument, place)| redact::header_key(&argument[place?..]));
    in_urls.chain(values.filter(|value| may_be_key(value)).map(str::to_owned)).collect()
}

/// The password in a URL, and the values in its query that are named like keys.
fn keys_in_url(url: &Url) -> Vec<String> {
    let named = url.query_pairs().filter(|(name, _)| is_secret_name(name));
    let values = named.map(|(_, value)| value.into_owned());
    values.chain(url.password().map(str::to_owned)).collect()
}

/// Returns true if a value is more likely a key than a path or a word such as `oauth2`. Keys are hidden wherever they
/// appear, so words must not be.
fn may_be_key(value: &str) -> bool {
    value.len() >= MIN_KEY_BYTES
        && value.contains(|letter: char| letter.is_ascii_digit())
        && !value.starts_with(['/', '~', '.', '$'])
        && !value.contains('\\')
        && !(value.contains('/') && value.contains('.'))
}

/// Selects tools of a server by name. `*` in a pattern matches any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Include only matching tools; `None` includes all.
    pub only: Option<Vec<String>>,
    /// Exclude matching tools.
    pub without: Vec<String>,
}

impl ToolFilter {
    /// True if the tool is selected.
    pub fn matches(&self, tool: &str) -> bool {
        self.only.as_ref().is_none_or(|patterns| matches_any(patterns, tool))
            && !matches_any(&self.without, tool)
    }
}

fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| fits_wildcard(name, pattern))
}

/// Who configured a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSource {
    /// The editor, with the session.
    Client,
    /// The user, in the settings.
    User,
    /// The project, whose settings the user trusts.
    Project,
}

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTransport {
    /// A program, over its stdin and stdout.
    Stdio {
        command: PathBuf,
        arguments: Vec<String>,
        /// Variables in addition to the ones that every command gets.
        environment: Vec<(String, Secret)>,
    },
    /// Streamable HTTP.
    Http {
        url: Url,
        /// Headers of every request.
        headers: Vec<(String, Secret)>,
    },
    /// Requests that the client of the session passes on to a server of its own.
    Linked(LinkedServer),
}

/// How long a server may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// From its start until it is ready; `None` for the usual time of its program.
    pub start: Option<Duration>,
    /// For a call, counted anew from each progress notification.
    pub call: Duration,
    /// For a call in total, even if it makes progress.
    pub call_total: Duration,
}

impl Default for ServerTimeouts {
    fn default() -> ServerTimeouts {
        ServerTimeouts {
            start: None,
            call: Duration::from_secs(120),
            call_total: Duration::from_secs(1800),
        }
    }
}

/// How the process of a server is confined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSandbox {
    pub is_enabled: bool,
    /// True if it may use the network.
    pub network: bool,
    /// Paths that it may write besides the folders of the session and the package caches.
    pub write: Vec<PathBuf>,
    /// Paths that it may read although they are hidden from commands.
    pub read: Vec<PathBuf>,
}

impl Default for ServerSandbox {
    /// Allows the network, because most servers exist to reach something on it.
    fn default() -> ServerSandbox {
        ServerSandbox { is_enabled: true, network: true, write: Vec::new(), read: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_selects_tools_that_are_included_and_not_excluded() {
        for (only, without, tool, expected) in [
            (None, "", "any", true),
            (Some("read"), "", "read", true),
            (Some("read"), "", "read_all", false),
            (Some("read*"), "", "read_all", true),
            (Some("*_all"), "", "read_all", true),
            (Some("*a*l"), "", "read_all", true),
            (Some("a*a"), "", "a", false),
            (Some("*"), "read*", "read_all", false),
            (None, "*a*b*", "xayybz", false),
            (None, "*b*a*", "xayybz", true),
        ] {
            let only = only.map(|pattern| vec![pattern.to_owned()]);
            let filter = ToolFilter { only, without: vec![without.to_owned()] };
            assert_eq!(filter.matches(tool), expected, "{filter:?} {tool}");
        }
    }

    #[test]
    fn a_program_that_downloads_is_found_behind_a_shell() {
        for (line, expected) in [
            (vec!["npx", "-y", "x"], Some("npx")),
            (vec!["cmd", "/c", "npx", "-y", "x"], Some("npx")),
            (vec!["/bin/zsh", "-lc", "cd /srv && /opt/bin/uvx x"], Some("uvx")),
            (vec!["env", "A=b", "npx.cmd", "x"], Some("npx")),
            (vec!["mise", "exec", "node@24", "--", "npx", "x"], Some("npx")),
            (vec!["sh", "-c", "exec ./server --for docker-compose"], None),
            (vec!["node", "docker.js", "go"], None),
        ] {
            let mut words = line.iter().map(|word| (*word).to_owned());
            let command = words.next().unwrap().into();
            let arguments = words.collect();
            let program = ServerTransport::Stdio { command, arguments, environment: Vec::new() };
            let spec = ServerSpec::new("s", ServerSource::User, program);
            assert_eq!(spec.downloader(), expected, "{line:?}");
        }
    }

    #[test]
    fn values_named_like_keys_are_secrets_and_debug_shows_none() {
        let pairs = |all: &[(&str, &str)]| -> Vec<_> {
            all.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned().into()))
                .collect()
        };
        let variables =
            pairs(&[("API_TOKEN", "t 1"), ("LANG", "C"), ("DB", "postgres://me:secret@host/db")]);
        let program = ServerTransport::Stdio {
            command: "x".into(),
            arguments: Vec::new(),
            environment: variables,
        };
        let program = ServerSpec::new("s", ServerSource::Client, program);
        assert_eq!(program.secrets(), ["t 1", "secret"]);
        let url = Url::parse("https://example.org").unwrap();
        let headers = pairs(&[("Authorization", "Bearer abc"), ("Accept", "*/*")]);
        let http = ServerSpec::new("s", ServerSource::User, ServerTransport::Http { url, headers });
        assert_eq!(http.secrets(), ["abc"]);
        let shown = format!("{program:?} {http:?}");
        assert!(!shown.contains("secret@") && !shown.contains("abc"), "{shown}");
    }

    #[test]
    fn keys_in_the_arguments_and_the_address_of_a_server_are_secrets() {
        let key = "Zk39xQ71vvLm2026";
        for (arguments, expected) in [
            (vec!["--access-token", key, "--read-only"], vec![key]),
            (vec!["-y", "figma-developer-mcp", "--figma-api-key=Zk39xQ71vvLm2026"], vec![key]),
            (vec!["--header", "Authorization: Bearer Zk39xQ71vvLm2026"], vec![key]),
            (vec!["https://a.example/mcp?exaApiKey=k39&a=b"], vec!["k39"]),
            (vec!["postgresql://me:word@a.example/db"], vec!["word"]),
            (vec!["--key-file", "/home/me/keys/service-2026.json"], vec![]),
            (vec!["--key-file", "keys/service-2026.json"], vec![]),
            (vec!["--key-file", r"C:\Users\me\keys\2026.json"], vec![]),
            (vec!["--auth-provider", "GoogleOAuth2", "--max-tokens", "100000"], vec![]),
            (vec!["--header", "Authorization: Bearer ${API_TOKEN_OF_2026}"], vec![]),
            (vec!["--auth-url=https://a.example/oauth2/token"], vec![]),
        ] {
            let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
            let shown = arguments.join(" ");
            let environment = Vec::new();
            let program = ServerTransport::Stdio { command: "x".into(), arguments, environment };
            let spec = ServerSpec::new("s", ServerSource::User, program);
            assert_eq!(spec.secrets(), expected, "{shown}");
        }
        let url = Url::parse("https://me:word@a.example/mcp?token=k39&a=b").unwrap();
        let address = ServerTransport::Http { url, headers: Vec::new() };
        let spec = ServerSpec::new("s", ServerSource::User, address);
        assert_eq!(spec.secrets(), ["k39", "word"]);
    }
}
