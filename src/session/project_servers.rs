//! The MCP servers that a project brings along in its `.mcp.json`. None is started before the user
//! trusts exactly what the file says.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::standing::ProjectFile;
use crate::config::Config;
use turnwright_types::effect::visible_line;
use turnwright_workspace::exec::Environment;
use crate::mcp::{Hidden, Reach, ServerSpec, Source};
use crate::trust::{self, Trust};

/// The file in which a project names its servers.
pub const SERVERS_FILE: &str = ".mcp.json";

/// Servers of one file.
const MOST: usize = 50;
/// Bytes of a name.
const LONGEST_NAME: usize = 64;
/// Characters of a command that is only named.
const LONGEST_COMMAND: usize = 80;

/// What the file comes to.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The file, if there is one that is understood.
    pub(super) file: Option<ProjectFile>,
    /// Its servers, once it is trusted.
    pub(super) servers: Vec<ServerSpec>,
    /// A sentence about each thing in it that is wrong.
    pub(super) problems: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Whole {
    #[serde(default, rename = "mcpServers")]
    servers: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Looks what the project in this folder, a real path, has. Starts nothing.
pub(super) fn find(config: &Config, trust: &Trust, folder: &Path) -> Found {
    let mut found = Found::default();
    let text = match trust::read(folder, SERVERS_FILE) {
        Ok(None) => return found,
        Ok(Some(text)) => text,
        Err(why) => {
            found.problems.push(format!("{SERVERS_FILE} {why}, and has no effect"));
            return found;
        }
    };
    let entries = match parse(&text) {
        Ok((entries, problems)) => {
            found.problems.extend(problems);
            entries
        }
        Err(why) => {
            found
                .problems
                .push(format!("{SERVERS_FILE} makes no sense ({why}), and has no effect"));
            return found;
        }
    };
    let is_trusted = trust.is_trusted(folder, SERVERS_FILE, text.as_bytes());
    let (wants, plainly) = entries.iter().map(|(name, entry)| wanted(name, entry)).unzip();
    found.file = Some(ProjectFile { what: SERVERS_FILE, text, is_trusted, wants, plainly });
    if is_trusted && !entries.is_empty() {
        let secrets = config.secrets();
        let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
        let environment = Environment::scrubbed(config.inherited.iter().cloned(), &secrets);
        let variable = |name: &str| {
            let found = environment.iter().find(|it| it.0 == name)?;
            found.1.to_str().map(str::to_owned)
        };
        for (name, entry) in entries {
            match server(&name, entry, &variable) {
                Ok(server) => found.servers.push(server),
                Err(why) => found.problems.push(problem(&name, &why)),
            }
        }
    }
    found
}

/// Of servers with the same name the editor's counts, then the user's, then the project's.
pub(super) fn one_of_each_name(mut servers: Vec<ServerSpec>) -> Vec<ServerSpec> {
    servers.sort_by_key(|it| match it.source {
        Source::Client => 0,
        Source::User => 1,
        Source::Project => 2,
    });
    let mut names = HashSet::new();
    // What an editor gives twice is the editor's business.
    servers.retain(|it| names.insert(it.name.clone()) || it.source == Source::Client);
    servers
}

fn problem(name: &str, why: &str) -> String {
    let name = visible_line(name).replace('`', "'");
    let name: String = name.chars().take(LONGEST_NAME).collect();
    format!("{SERVERS_FILE}: the server `{name}` is not started: {why}")
}

type Entries = Vec<(String, Entry)>;

fn parse(text: &str) -> Result<(Entries, Vec<String>), String> {
    let whole: Value = serde_json::from_str(text).map_err(|it| it.to_string())?;
    let whole: Whole = from_object(whole)?;
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    let count = whole.servers.len();
    for (name, value) in whole.servers.into_iter().take(MOST) {
        let understood =
            if name.is_empty() || name.len() > LONGEST_NAME || visible_line(&name) != name {
                Err("its name is empty, too long, or not to be seen".to_owned())
            } else {
                understood(value)
            };
        match understood {
            Ok(entry) => entries.push((name, entry)),
            Err(why) => problems.push(problem(&name, &why)),
        }
    }
    if count > MOST {
        problems.push(format!("{SERVERS_FILE}: of {count} servers only {MOST} are looked at"));
    }
    Ok((entries, problems))
}

/// What an object says. Without this a list would pass for one.
fn from_object<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    if !value.is_object() {
        return Err("that is no object".to_owned());
    }
    serde_json::from_value(value).map_err(|it| it.to_string())
}

fn understood(value: Value) -> Result<Entry, String> {
    let entry: Entry = from_object(value)?;
    let is_http = matches!(entry.kind.as_deref(), Some("http" | "streamable-http"));
    match entry.kind.as_deref() {
        None | Some("stdio" | "http" | "streamable-http") => {}
        Some(other) => return Err(format!("the type `{}` is not known", visible_line(other))),
    }
    match (&entry.command, &entry.url) {
        (Some(command), None) if !is_http && !command.is_empty() => is_literal(command)?,
        (None, Some(url)) if entry.kind.as_deref() != Some("stdio") => {
            is_literal(url)?;
            let url = Url::parse(url).map_err(|it| format!("its address is none ({it})"))?;
            if !matches!(url.scheme(), "http" | "https") {
                return Err("its address is not http or https".to_owned());
            }
        }
        _ => return Err("it has to have either a `command` or a `url`".to_owned()),
    }
    Ok(entry)
}

/// What is started is what was shown: it does not depend on a variable.
fn is_literal(text: &str) -> Result<(), String> {
    if text.contains("${") {
        return Err("variables may stand in `args`, `env` and `headers` only".to_owned());
    }
    Ok(())
}

/// What an entry wants, in a few words and in full.
fn wanted(name: &str, entry: &Entry) -> (String, String) {
    let argv: Vec<_> = entry.command.iter().chain(&entry.args).collect();
    let does = match &entry.url {
        Some(url) => format!("asks {url}"),
        None => format!("runs {}", serde_json::to_string(&argv).unwrap_or_default()),
    };
    let short = match &entry.url {
        Some(url) => url.clone(),
        None => argv.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(" "),
    };
    let with = |what: &str, names: &BTreeMap<String, String>| {
        let names: Vec<_> = names.keys().map(String::as_str).collect();
        if names.is_empty() { String::new() } else { format!(", with {what} {}", names.join(", ")) }
    };
    let (variables, headers) =
        (with("the variables", &entry.env), with("the headers", &entry.headers));
    let full = visible_line(&format!("{name} {does}{variables}{headers}"));
    let short: String =
        visible_line(&short).replace('`', "'").chars().take(LONGEST_COMMAND).collect();
    (format!("the MCP server {} (`{short}`)", turnwright_policy::permission::plain(name)), full)
}

fn server(
    name: &str,
    entry: Entry,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerSpec, String> {
    let hidden = |them: BTreeMap<String, String>| {
        let filled =
            them.into_iter().map(|(key, value)| Ok((key, Hidden::from(expand(&value, variable)?))));
        filled.collect::<Result<Vec<_>, String>>()
    };
    let reach = match entry.url {
        Some(url) => {
            let url = Url::parse(&url).map_err(|it| it.to_string())?;
            Reach::Http { url, headers: hidden(entry.headers)? }
        }
        None => Reach::Stdio {
            command: PathBuf::from(entry.command.unwrap_or_default()),
            arguments: entry
                .args
                .iter()
                .map(|it| expand(it, variable))
                .collect::<Result<_, String>>()?,
            environment: hidden(entry.env)?,
        },
    };
    Ok(ServerSpec::new(name, Source::Project, reach))
}

/// Puts variables in the place of `${NAME}` and `${NAME:-DEFAULT}`. What is put in is not looked at
/// again.
fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut done, mut left) = (String::new(), text);
    while let Some((before, rest)) = left.split_once("${") {
        let (inner, behind) = rest.split_once('}').ok_or("a `${` is not closed")?;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let value = variable(name).filter(|it| default.is_none() || !it.is_empty());
        let value = value.or_else(|| default.map(str::to_owned)).ok_or_else(|| {
            let name = visible_line(name);
            format!(
                "the variable `{name}` is not set, or is one that looks like a key, which no \
                 project gets"
            )
        })?;
        done.push_str(before);
        done.push_str(&value);
        left = behind;
    }
    done.push_str(left);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in_once_and_a_missing_one_is_an_error() {
        let variable = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${A}".to_owned()),
            _ => None,
        };
        let table = [
            ("plain $A", Ok("plain $A")),
            ("x${A}y${A}", Ok("x1y1")),
            ("${B:-two}", Ok("two")),
            ("${A:-two}", Ok("1")),
            ("${EMPTY:-two}${EMPTY}", Ok("two")),
            ("${TRICK}", Ok("${A}")),
            ("${B:-}", Ok("")),
            ("${B}", Err("`B` is not set")),
            ("${A", Err("not closed")),
        ];
        for (text, expected) in table {
            match (expand(text, &variable), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{text}"),
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{text}: {got}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_not_started_and_said() {
        let table = [
            (r#"{"command":"x"}"#, ""),
            (r#"{"type":"stdio","command":"x","args":["a"],"env":{"A":"b"},"more":1}"#, ""),
            (r#"{"type":"http","url":"https://example.com/mcp","headers":{"A":"${B}"}}"#, ""),
            (r#"{"url":"http://localhost:1/"}"#, ""),
            (r#"{"type":"sse","url":"https://example.com"}"#, "`sse` is not known"),
            (r#"{"type":"http","command":"x"}"#, "either"),
            (r#"{"type":"stdio","url":"https://x"}"#, "either"),
            (r#"{"command":"x","url":"https://x"}"#, "either"),
            (r#"{"command":""}"#, "either"),
            (r"{}", "either"),
            (r#"{"url":"file:///etc/passwd"}"#, "not http"),
            (r#"{"url":"x"}"#, "address"),
            (r#"{"command":"${HOME}/x"}"#, "variables may stand"),
            (r#"{"command":["x"]}"#, "invalid type"),
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
    fn what_would_run_is_shown_as_it_is() {
        let text = r#"{"mcpServers":{"n":{"command":"\u0073h","args":["-c","a b\n\u202e"],"env":{"K":"v"}}}}"#;
        let (entries, _) = parse(text).unwrap();
        let (short, full) = wanted(&entries[0].0, &entries[0].1);
        assert_eq!(full, r#"n runs ["sh","-c","a b\n\u{202e}"], with the variables K"#);
        assert_eq!(short, "the MCP server n (`sh -c a b\\n\\u{202e}`)");
    }

    #[test]
    fn of_a_name_the_editors_server_counts_then_the_users() {
        let spec = |source, command: &str| {
            let command = command.into();
            let reach = Reach::Stdio { command, arguments: Vec::new(), environment: Vec::new() };
            ServerSpec::new("notes", source, reach)
        };
        let all = vec![
            spec(Source::Project, "p"),
            spec(Source::User, "u"),
            spec(Source::Client, "c"),
            ServerSpec { name: "other".to_owned(), ..spec(Source::Project, "p") },
        ];
        let left = one_of_each_name(all.clone());
        let left: Vec<_> = left.iter().map(|it| (it.name.as_str(), it.source)).collect();
        assert_eq!(left, [("notes", Source::Client), ("other", Source::Project)]);
        assert_eq!(one_of_each_name(all[..2].to_vec())[0].source, Source::User);
    }
}
