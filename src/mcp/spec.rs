//! A server as somebody has asked for it: an editor for one session, or the settings.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use turnwright_workspace::exec::names_secret;

/// A value that may be a key: it is not shown, and wiped when it is dropped.
#[derive(Clone)]
pub struct Hidden(SecretString);

impl Hidden {
    /// The value itself.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<String> for Hidden {
    fn from(value: String) -> Hidden {
        Hidden(value.into())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("…")
    }
}

impl PartialEq for Hidden {
    fn eq(&self, other: &Hidden) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Hidden {}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Its name, unique in a session. It is shown, and a part of the names of its tools.
    pub name: String,
    /// Who has asked for it.
    pub source: Source,
    /// How it is reached.
    pub reach: Reach,
    /// How long things may take.
    pub limits: Limits,
    /// What it is kept to, if it is a program.
    pub walls: Walls,
    /// Whether sessions with the same one may have it together.
    pub is_shared: bool,
    /// Which of its tools are wanted.
    pub choice: Choice,
}

/// Which tools of a server are wanted. In a name, `*` stands for anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// These; `None` for any.
    pub only: Option<Vec<String>>,
    /// These not.
    pub without: Vec<String>,
}

impl Choice {
    /// Whether it is wanted.
    pub fn takes(&self, tool: &str) -> bool {
        let any = |all: &[String]| all.iter().any(|it| fits(it, tool));
        self.only.as_ref().is_none_or(|it| any(it)) && !any(&self.without)
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(begin) else { return false };
    let Some((middle, end)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
    // The first place that fits leaves most for those behind it.
    for part in middle.split('*') {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

/// Who has asked for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The editor, with the session.
    Client,
    /// The user, in the settings.
    User,
    /// The project, and the user trusts what it says.
    Project,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A program that is talked to by its input and output.
    Stdio {
        /// The program.
        command: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
        /// Variables on top of those that every command gets.
        environment: Vec<(String, Hidden)>,
    },
    /// A server that is talked to by streamable HTTP.
    Http {
        /// Its address.
        url: Url,
        /// What is sent along with each request.
        headers: Vec<(String, Hidden)>,
    },
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until it can be used.
    pub start: Duration,
    /// A call, as long as no progress is told.
    pub call: Duration,
    /// A call, whatever is told.
    pub most: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            start: Duration::from_secs(30),
            call: Duration::from_secs(120),
            most: Duration::from_secs(1800),
        }
    }
}

/// What a program is kept to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walls {
    /// Whether there are any.
    pub on: bool,
    /// Whether it has the network.
    pub network: bool,
    /// What it may change, besides the folders of the session and the caches.
    pub write: Vec<PathBuf>,
    /// What it may read although it is hidden from commands.
    pub read: Vec<PathBuf>,
}

impl Default for Walls {
    /// Most servers are there to reach something on the network.
    fn default() -> Walls {
        Walls { on: true, network: true, write: Vec::new(), read: Vec::new() }
    }
}

impl ServerSpec {
    /// The values in it that are keys, as far as their names tell, to be hidden wherever they turn up.
    pub(super) fn secrets(&self) -> Vec<String> {
        let (named, is_header) = match &self.reach {
            Reach::Stdio { environment, .. } => (environment, false),
            Reach::Http { headers, .. } => (headers, true),
        };
        let mut secrets = Vec::new();
        for (name, value) in named {
            let value = value.expose();
            if names_secret(name) {
                // As in `Bearer KEY`.
                let last = value.split_whitespace().next_back().filter(|_| is_header);
                secrets.push(last.unwrap_or(value).to_owned());
            }
            let url = Url::parse(value).ok();
            secrets.extend(url.and_then(|it| it.password().map(str::to_owned)));
        }
        secrets
    }

    /// What its user has to do, when it wants a login.
    pub fn how_to_log_in(&self) -> String {
        // Only what is in the settings is known by its name. It is for somebody to type: what a shell
        // would not take as it is stays out.
        let what = match (&self.source, &self.reach) {
            (Source::Client | Source::Project, Reach::Http { url, .. }) => {
                let mut url = url.clone();
                // There may be a key in it.
                url.set_query(url.query().map(|_| "…"));
                url.to_string()
            }
            _ => self.name.clone(),
        };
        let is_safe = |it: char| it.is_alphanumeric() || "-._~:/?=%@[]…,+".contains(it);
        let what = if what.chars().all(is_safe) { what.as_str() } else { "URL" };
        format!(
            "it wants a login (HTTP 401). Run `turnwright mcp login {what}`, or set its header \
             `Authorization`"
        )
    }

    /// One that an editor or a test asks for, with the usual limits and walls.
    pub fn new(name: impl Into<String>, source: Source, reach: Reach) -> ServerSpec {
        ServerSpec {
            name: name.into(),
            source,
            reach,
            limits: Limits::default(),
            walls: Walls::default(),
            is_shared: true,
            choice: Choice::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_takes_what_one_pattern_fits_and_none_refuses() {
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
            let only = only.map(|it| vec![it.to_owned()]);
            let choice = Choice { only, without: vec![without.to_owned()] };
            assert_eq!(choice.takes(tool), expected, "{choice:?} {tool}");
        }
    }

    #[test]
    fn what_is_named_like_a_key_is_hidden_and_nothing_is_shown() {
        let pairs = |all: &[(&str, &str)]| -> Vec<_> {
            all.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned().into()))
                .collect()
        };
        let variables =
            pairs(&[("API_TOKEN", "t 1"), ("LANG", "C"), ("DB", "postgres://me:secret@host/db")]);
        let program =
            Reach::Stdio { command: "x".into(), arguments: Vec::new(), environment: variables };
        let program = ServerSpec::new("s", Source::Client, program);
        assert_eq!(program.secrets(), ["t 1", "secret"]);
        let url = Url::parse("https://example.org").unwrap();
        let headers = pairs(&[("Authorization", "Bearer abc"), ("Accept", "*/*")]);
        let http = ServerSpec::new("s", Source::User, Reach::Http { url, headers });
        assert_eq!(http.secrets(), ["abc"]);
        let shown = format!("{program:?} {http:?}");
        assert!(!shown.contains("secret@") && !shown.contains("abc"), "{shown}");
    }
}
