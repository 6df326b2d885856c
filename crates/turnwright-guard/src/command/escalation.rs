//! The argument `escalate` of a command: the access beyond the sandbox that the model asks for.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use turnwright_policy::permission::{PolicyRules, RuleAction};
use turnwright_proxy::{HostList, Target};
use turnwright_types::effect::{ExtraAccess, ResolvedPath, escape_hidden_line, is_secret_path};
use turnwright_types::lists::add_new;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_workspace::files::Roots;

use crate::confinement::ConfinementSettings;

/// At most this many values are taken.
const MAX_VALUES: usize = 32;
/// At most this many characters of a value are quoted.
const MAX_QUOTED_CHARS: usize = 80;

/// The answer to an unusable value.
const VALUES: &str = "Nothing was run. Values of \"escalate\": network, a host (https://NAME), a file or folder that exists (to \
                      write there), debug, sign, localhost:PORT or IP:PORT (of the user's machine), publish:PORT (of your server, for the user), \
                      full; several as a list.";

/// The port of HTTPS.
const HTTPS: u16 = 443;

const NO_PORT: &str = "a port is a number from 1 to 65535";

/// Words that ask for access that commands have anyway: the sandbox has a loopback of its own.
const NOTHING: [&str; 12] = [
    "",
    "none",
    "no",
    "null",
    "false",
    "default",
    "use default",
    "sandbox",
    "loopback",
    "localhost",
    "127.0.0.1",
    "::1",
];
const NETWORK: [&str; 7] =
    ["network", "network access", "net", "internet", "internet access", "online", "web"];
const DEBUG: [&str; 4] = ["debug", "debugger", "debugging", "ptrace"];
const SIGN: [&str; 6] = ["sign", "signing", "gpg", "gpg agent", "ssh agent", "sign commits"];
const FULL: [&str; 6] =
    ["full", "full access", "danger full access", "unsandboxed", "no sandbox", "require escalated"];

/// The access that a call asks for, with the paths as the model has sent them.
#[derive(Debug, Default)]
pub struct Escalation {
    /// Everything but the paths.
    access: ExtraAccess,
    /// The paths to write to.
    pub paths: Vec<String>,
    /// The hosts to reach, as rules name them.
    pub hosts: Vec<String>,
    /// Why the call cannot run.
    pub refusal: Option<ToolRefusal>,
}

impl<'de> Deserialize<'de> for Escalation {
    /// Reads a text or a list of texts. Anything else is refused when the call is inspected, with the possible values.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Escalation, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::Null | Value::Bool(false) => Escalation::default(),
            Value::String(text) => Escalation::of_text(&text),
            Value::Number(number) => Escalation::of_text(&number.to_string()),
            Value::Array(items) => {
                let words: Option<Vec<_>> = items.iter().map(Value::as_str).collect();
                words.map_or_else(Escalation::unreadable, Escalation::of_words)
            }
            Value::Bool(true) | Value::Object(_) => Escalation::unreadable(),
        })
    }
}

impl Escalation {
    fn unreadable() -> Escalation {
        let refusal = format!("\"escalate\" must be a text or a list of texts. {VALUES}");
        Escalation { refusal: Some(refusal.into()), ..Escalation::default() }
    }

    /// Reads a text: one value, a list written as JSON, or several values. Commas and blanks separate values only if
    /// the text cannot be one path: with commas if one part is no path or all are absolute, with blanks if no part is
    /// a path.
    fn of_text(text: &str) -> Escalation {
        if let Ok(words) = serde_json::from_str::<Vec<String>>(text) {
            return Escalation::of_words(words.iter().map(String::as_str).collect());
        }
        let parts: Vec<_> =
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        let has_known = parts.iter().any(|part| is_known(part));
        let are_absolute =
            parts.iter().all(|part| part.starts_with("~/") || Path::new(part).is_absolute());
        let are_separate = parts.len() > 1 && (has_known || are_absolute);
        if are_separate {
            return Escalation::of_words(parts);
        }
        let words: Vec<_> =
            text.split([',', ' ', '\t', '\n']).filter(|part| !part.is_empty()).collect();
        if !is_known(text) && words.iter().all(|word| is_known(word)) {
            return Escalation::of_words(words);
        }
        Escalation::of_words(vec![text])
    }

    fn of_words(words: Vec<&str>) -> Escalation {
        if words.len() > MAX_VALUES {
            let refusal = format!("More than {MAX_VALUES} values of \"escalate\". {VALUES}");
            return Escalation { refusal: Some(refusal.into()), ..Escalation::default() };
        }
        let mut escalation = Escalation::default();
        for word in words {
            escalation.add(word.trim());
        }
        if escalation.access.unsandboxed {
            // Nothing else is left to ask for.
            escalation.access = ExtraAccess::unsandboxed();
            escalation.paths.clear();
        }
        if escalation.access.unsandboxed || escalation.access.network {
            escalation.hosts.clear();
        }
        escalation
    }

    fn add(&mut self, word: &str) {
        if let Some(host) = host_of(word) {
            return add_new(&mut self.hosts, host);
        }
        let access = &mut self.access;
        match access_of(word) {
            Some(Ok(more)) => {
                access.network |= more.network;
                access.debug |= more.debug;
                access.sign |= more.sign;
                access.unsandboxed |= more.unsandboxed;
                for address in more.connects {
                    add_new(&mut access.connects, address);
                }
                for port in more.publishes {
                    add_new(&mut access.publishes, port);
                }
            }
            Some(Err(why)) => {
                self.refusal = Some(format!("{}: {why}. {VALUES}", quoted(word)).into());
            }
            None => add_new(&mut self.paths, word.to_owned()),
        }
    }

    /// Leaves out the hosts that the settings allow anyway.
    pub fn leave_out_hosts(&mut self, listed: &HostList) {
        self.hosts.retain(|host| {
            Target::parse(host, Some(HTTPS)).is_none_or(|target| listed.access(&target).is_none())
        });
    }

    /// Replaces `~` by the home folder, as a shell does.
    pub fn expand_home(&mut self, home: Option<&Path>) {
        let Some(home) = home else { return };
        for path in &mut self.paths {
            let rest = if path == "~" { Some("") } else { path.strip_prefix("~/") };
            if let Some(rest) = rest {
                *path = home.join(rest).to_string_lossy().into_owned();
            }
        }
    }

    /// The access, with the resolved paths.
    pub fn access(&self, writes: Vec<ResolvedPath>) -> ExtraAccess {
        ExtraAccess { writes, ..self.access.clone() }
    }

    /// Why one of the paths, which are resolved in `targets`, cannot be opened. Blocks: not for the runtime's thread.
    /// Nothing is said about a secret, not even if it exists: the user is asked first.
    pub fn refusal_of_paths(
        &self,
        targets: &[ResolvedPath],
        settings: &ConfinementSettings,
        roots: &Roots,
        policy: &PolicyRules,
    ) -> Option<ToolRefusal> {
        for (sent, target) in self.paths.iter().zip(targets) {
            let path = target.path.as_path();
            if settings.read_only.iter().any(|own| path.starts_with(own)) {
                let refusal = format!(
                    "{} belongs to the agent itself; no command may write it. Nothing was run.",
                    quoted(sent)
                );
                return Some(refusal.into());
            }
            let is_concealed = settings.hidden.iter().any(|hidden| path.starts_with(hidden))
                || is_concealed(path, roots, policy);
            if !is_concealed && fs::symlink_metadata(path).is_err() {
                return Some(refusal_of_missing_path(sent, path));
            }
        }
        None
    }
}

/// Returns true if it must not be revealed that nothing is at a path.
fn is_concealed(path: &Path, roots: &Roots, rules: &PolicyRules) -> bool {
    let mut restricting = rules.rules.iter().filter(|rule| rule.action != RuleAction::Allow);
    is_secret_path(path)
        || roots.leads_elsewhere(path)
        || restricting.any(|rule| rule.matches_path(path, false, &rules.bases))
}

/// Why a path that does not exist is not opened. A word without a folder, or a URL, was probably meant as another value.
pub(crate) fn refusal_of_missing_path(sent: &str, path: &Path) -> ToolRefusal {
    if !sent.contains(['/', '\\']) || sent.contains("://") {
        let sent = quoted(sent);
        return format!("{sent} is no value of \"escalate\", and no such file exists. {VALUES}")
            .into();
    }
    let path = escape_hidden_line(&path.to_string_lossy());
    format!(
        "{path} does not exist, so only its folder could be opened. Nothing was run. Name that folder in \
         \"escalate\". Several values go in a list."
    )
    .into()
}

fn quoted(word: &str) -> String {
    format!("`{}`", text::clip(escape_hidden_line(word), MAX_QUOTED_CHARS))
}

/// The access that a value asks for, or why it asks for none although it can only be meant as an address or port; `None`
/// if it is a path.
fn access_of(word: &str) -> Option<Result<ExtraAccess, &'static str>> {
    let word = word.trim().to_lowercase();
    let spaced = word.replace(['-', '_'], " ");
    let words = [
        (&NOTHING[..], ExtraAccess::default()),
        (&NETWORK[..], ExtraAccess::network()),
        (&DEBUG[..], ExtraAccess { debug: true, ..ExtraAccess::default() }),
        (&SIGN[..], ExtraAccess::sign()),
        (&FULL[..], ExtraAccess::unsandboxed()),
    ];
    let known = words.into_iter().find(|(words, _)| words.contains(&&*spaced));
    if let Some((_, access)) = known {
        return Some(Ok(access));
    }
    if let Some(port) = word.strip_prefix("publish:") {
        return Some(match port.trim().parse() {
            Ok(0) | Err(_) => Err(NO_PORT),
            Ok(port) => Ok(ExtraAccess { publishes: vec![port], ..ExtraAccess::default() }),
        });
    }
    let found = addresses_of(&word)?;
    Some(found.map(|connects| ExtraAccess { connects, ..ExtraAccess::default() }))
}

/// Returns true if a value is no path.
fn is_known(word: &str) -> bool {
    access_of(word).is_some() || host_of(word).is_some()
}

/// The name of a host of the internet in a URL without a path, as rules name it.
fn host_of(word: &str) -> Option<String> {
    let place = word.trim();
    let rest = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://"))?;
    let target = Target::parse(rest.strip_suffix('/').unwrap_or(rest), Some(HTTPS));
    target.filter(Target::is_public_name).map(|target| target.to_string())
}

/// Reads `HOST:PORT`, also in a URL without a path.
fn addresses_of(word: &str) -> Option<Result<Vec<SocketAddr>, &'static str>> {
    let schemes = ["http://", "https://", "tcp://"];
    let rest = schemes.iter().find_map(|scheme| word.strip_prefix(scheme));
    let place = rest.map_or(word, |rest| rest.strip_suffix('/').unwrap_or(rest));
    let (host, port) = place.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    let is_address = host.starts_with('[') && host.ends_with(']');
    if !is_number || !is_name && !is_address {
        return None;
    }
    let Some(port) = port.parse().ok().filter(|port| *port != 0) else {
        return Some(Err(NO_PORT));
    };
    if host == "localhost" {
        return Some(Ok(vec![
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
        ]));
    }
    let Ok(address) = place.parse::<SocketAddr>() else {
        return Some(Err(
            "only localhost and IP addresses can be named like this; other hosts are named as https://NAME:PORT, or need \
             `network`",
        ));
    };
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() || ip.is_multicast() {
        return Some(Err("nothing can be reached there; name localhost:PORT"));
    }
    Some(Ok(vec![SocketAddr::new(ip, port)]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The access that is asked for, in words.
    fn read(value: Value) -> String {
        let escalation: Escalation = serde_json::from_value(value).unwrap();
        let Escalation { access, paths, hosts, refusal } = escalation;
        if refusal.is_some() {
            return "refused".to_owned();
        }
        let mut parts = Vec::new();
        parts.extend(access.unsandboxed.then(|| "full".to_owned()));
        parts.extend(access.network.then(|| "network".to_owned()));
        parts.extend(access.debug.then(|| "debug".to_owned()));
        parts.extend(access.sign.then(|| "sign".to_owned()));
        parts.extend(access.connects.iter().map(ToString::to_string));
        parts.extend(access.publishes.iter().map(|port| format!("publish {port}")));
        parts.extend(paths.iter().map(|path| format!("write {path}")));
        parts.extend(hosts.iter().map(|host| format!("reach {host}")));
        parts.join("; ")
    }

    #[test]
    fn the_argument_is_one_value_or_several_or_a_path() {
        for (value, expected) in [
            (json!("network"), "network"),
            (json!("Network"), "network"),
            (json!("internet"), "network"),
            (json!("network access"), "network"),
            (json!("network, debug"), "network; debug"),
            (json!("network debug"), "network; debug"),
            (json!("sign, network"), "network; sign"),
            (json!("gpg-agent"), "sign"),
            (json!("network, /tmp/x"), "network; write /tmp/x"),
            (json!("/tmp/x, network"), "network; write /tmp/x"),
            (json!("/tmp/a, /tmp/b"), "write /tmp/a; write /tmp/b"),
            (json!("~/.cache, ~/.npm"), "write ~/.cache; write ~/.npm"),
            (json!(["network"]), "network"),
            (json!(["network", "/tmp/a, b"]), "network; write /tmp/a, b"),
            (json!(r#"["network", "/tmp/x"]"#), "network; write /tmp/x"),
            (json!(["/x", "/x", "debug", "debug"]), "debug; write /x"),
            (json!("full, network, /x"), "full"),
            (json!("danger-full-access"), "full"),
            (json!("require_escalated"), "full"),
            // Commands have it already.
            (json!("loopback"), ""),
            (json!("localhost"), ""),
            (json!("127.0.0.1"), ""),
            (json!("none"), ""),
            (json!(""), ""),
            (json!(" "), ""),
            (json!(null), ""),
            (json!(false), ""),
            (json!([]), ""),
            (json!("loopback, network"), "network"),
            // Addresses and ports.
            (json!("localhost:5432"), "127.0.0.1:5432; [::1]:5432"),
            (json!("LOCALHOST:5432"), "127.0.0.1:5432; [::1]:5432"),
            (json!("127.0.0.1:5432"), "127.0.0.1:5432"),
            (json!("[::1]:5432"), "[::1]:5432"),
            (json!("[::ffff:127.0.0.1]:80"), "127.0.0.1:80"),
            (json!("http://localhost:3000/"), "127.0.0.1:3000; [::1]:3000"),
            (json!("localhost:80 publish:5173"), "127.0.0.1:80; [::1]:80; publish 5173"),
            (json!("publish:5173, publish:5173"), "publish 5173"),
            // Hosts.
            (json!("https://registry.npmjs.org"), "reach registry.npmjs.org"),
            (json!("https://Registry.NPMjs.org/"), "reach registry.npmjs.org"),
            (json!("https://a.example:9000"), "reach a.example:9000"),
            (
                json!(["debug", "https://a.example", "https://a.example:443"]),
                "debug; reach a.example",
            ),
            (
                json!("https://a.example,https://b.example:22"),
                "reach a.example; reach b.example:22",
            ),
            (json!("https://a.example https://b.example"), "reach a.example; reach b.example"),
            (json!("https://a.example, network"), "network"),
            (json!("http://a.example:8000/"), "reach a.example:8000"),
            (json!("https://a.example, full"), "full"),
            (json!("docs.rs"), "write docs.rs"),
            (json!("https://a.example/x"), "write https://a.example/x"),
            (json!("https://nexus.corp"), "write https://nexus.corp"),
            // Paths.
            (json!("/tmp/x"), "write /tmp/x"),
            (json!(" /tmp/x "), "write /tmp/x"),
            (json!("/tmp/my network"), "write /tmp/my network"),
            (json!("a,b"), "write a,b"),
            (json!("network of mine"), "write network of mine"),
            (json!("./network"), "write ./network"),
            (json!("a/b:80"), "write a/b:80"),
            (json!(5), "write 5"),
            // Texts that can only be meant as another value.
            (json!("localhost:0"), "refused"),
            (json!("localhost:65536"), "refused"),
            (json!("publish:0"), "refused"),
            (json!("publish:web"), "refused"),
            (json!("db.lan:5432"), "refused"),
            (json!("0.0.0.0:80"), "refused"),
            (json!("[::]:80"), "refused"),
            (json!("[x]:80"), "refused"),
            (json!("network, publish:0"), "refused"),
            (json!(true), "refused"),
            (json!({ "network": true }), "refused"),
            (json!(["network", 1]), "refused"),
            (json!(vec!["network"; 33]), "refused"),
        ] {
            assert_eq!(read(value.clone()), expected, "{value}");
        }
        #[cfg(windows)]
        assert_eq!(read(json!(r"C:\x")), r"write C:\x");
    }

    #[test]
    fn a_missing_path_is_told_from_a_word_that_is_no_value() {
        let refusal = |sent: &str| refusal_of_missing_path(sent, Path::new(sent)).for_model;
        assert!(
            refusal("a.example").contains("Values of \"escalate\": network, a host (https://NAME)")
        );
        assert!(refusal("https://127.0.0.1").starts_with("`https://127.0.0.1` is no value"));
        assert!(refusal("/opt/new").contains("/opt/new does not exist"));
    }
}
