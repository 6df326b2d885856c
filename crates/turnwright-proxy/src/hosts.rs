//! Hosts, as requests and settings name them, and package registries. Names are checked before they are compared: they
//! may contain only letters, digits, `-` and `_` between dots.

use std::fmt;

use turnwright_workspace::web::{USUAL_PORTS, local_name_kind};
use url::Host;

const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// The package registries by ecosystem, each with the hosts from which packages are downloaded.
pub const REGISTRIES: &[(&str, &str)] = &[
    ("node", "registry.npmjs.org registry.yarnpkg.com repo.yarnpkg.com"),
    ("python", "pypi.org files.pythonhosted.org"),
    ("rust", "index.crates.io static.crates.io crates.io"),
    ("go", "proxy.golang.org sum.golang.org"),
    (
        "java",
        "repo.maven.apache.org repo1.maven.org plugins.gradle.org plugins-artifacts.gradle.org services.gradle.org \
         downloads.gradle.org",
    ),
    ("ruby", "rubygems.org index.rubygems.org"),
    ("php", "repo.packagist.org packagist.org"),
    ("dotnet", "api.nuget.org"),
];

/// Returns all hosts of the registry to which a host belongs; none if it belongs to no registry.
pub(crate) fn registry_of(host: &str) -> impl Iterator<Item = &'static str> {
    let mut registries = REGISTRIES.iter().map(|(_, hosts)| hosts.split(' '));
    let found = registries.find(|hosts| hosts.clone().any(|known| known == host));
    found.into_iter().flatten()
}

/// The host and port to which a program wants to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl Target {
    /// Parses `HOST:PORT`, or `HOST` if there is a default port; `None` if the host is not a valid name or address.
    pub fn parse(authority: &str, default_port: Option<u16>) -> Option<Target> {
        let (host, port) = split_port(authority)?;
        Some(Target { host: parse_host(host)?, port: port.or(default_port)? })
    }

    /// Returns true for a name that has no special meaning on this machine or its network.
    pub fn is_public_name(&self) -> bool {
        self.name().is_some_and(|name| local_name_kind(name).is_none())
    }

    /// Returns the name of the host, unless it is an address.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Domain(name) => Some(name),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }
}

/// Formats the target as in rules and questions: with the port unless that is a usual one.
impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.host)?;
        if USUAL_PORTS.contains(&self.port) { Ok(()) } else { write!(formatter, ":{}", self.port) }
    }
}

/// Splits a host from its port, if it has one. An IPv6 address must be in brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, digits)) if !authority.ends_with(']') => {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            let port = digits.parse::<u16>().ok().filter(|port| is_number && *port != 0)?;
            Some((host, Some(port)))
        }
        _ => Some((authority, None)),
    }
}

/// Parses a name, which is put in lower case, or an address in any notation that programs accept.
fn parse_host(text: &str) -> Option<Host> {
    if let Some(inside) = text.strip_prefix('[') {
        return inside.strip_suffix(']')?.parse().ok().map(Host::Ipv6);
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_clean = name.len() <= MAX_NAME_BYTES && name.split('.').all(is_label);
    if is_clean { Host::parse(name).ok() } else { None }
}

fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// The kinds of addresses at which a host may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostAccess {
    /// Only public addresses.
    Public,
    /// Private addresses as well, because the user's settings name exactly this host.
    Named,
}

/// The hosts that the settings allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList(Vec<HostEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostEntry {
    name: String,
    /// The port; `None` stands for all [`USUAL_PORTS`].
    port: Option<u16>,
    /// True if the entry stands for all hosts below the name, but not for the name itself.
    is_wildcard: bool,
    access: HostAccess,
}

impl HostList {
    /// Parses a list of `NAME`, `*.NAME`, each with `:PORT` or without, and ecosystems of [`REGISTRIES`].
    /// Other entries are ignored.
    pub fn parse(entries: &[String]) -> HostList {
        HostList(entries.iter().filter_map(|entry| parse_entry(entry)).flatten().collect())
    }

    /// Returns true if this is a valid entry for the settings.
    pub fn is_entry(text: &str) -> bool {
        parse_entry(text).is_some()
    }

    /// Returns true if no host is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the kinds of addresses at which a host is allowed; `None` if it is not in the list.
    pub fn access(&self, target: &Target) -> Option<HostAccess> {
        let name = target.name()?;
        let matching = self.0.iter().filter(|entry| entry.matches(name, target.port));
        matching.map(|entry| entry.access).max()
    }
}

impl HostEntry {
    fn matches(&self, name: &str, port: u16) -> bool {
        let is_name = if self.is_wildcard {
            name.strip_suffix(self.name.as_str()).is_some_and(|rest| rest.ends_with('.'))
        } else {
            name == self.name
        };
        is_name && self.port.map_or(USUAL_PORTS.contains(&port), |own| own == port)
    }
}

fn parse_entry(text: &str) -> Option<Vec<HostEntry>> {
    if let Some((_, hosts)) = REGISTRIES.iter().find(|(ecosystem, _)| *ecosystem == text) {
        let entries = hosts.split(' ').map(|name| HostEntry {
            name: name.to_owned(),
            port: None,
            is_wildcard: false,
            access: HostAccess::Public,
        });
        return Some(entries.collect());
    }
    let above = text.strip_prefix("*.");
    let is_wildcard = above.is_some();
    let (host, port) = split_port(above.unwrap_or(text))?;
    let Host::Domain(name) = parse_host(host)? else { return None };
    let is_local = name == "localhost" || name.ends_with(".localhost");
    // A single word is probably a mistyped ecosystem, and a wildcard must not cover a top-level domain.
    let is_clear = name.contains('.') || port.is_some() && !is_wildcard;
    let access = if is_wildcard { HostAccess::Public } else { HostAccess::Named };
    (is_clear && !is_local).then(|| vec![HostEntry { name, port, is_wildcard, access }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_clean_or_no_name() {
        for (text, expected) in [
            ("Registry.NPMjs.org:443", Some("registry.npmjs.org")),
            ("a.example.:443", Some("a.example")),
            ("a_b.example:8443", Some("a_b.example")),
            ("a.example:22", Some("a.example:22")),
            ("127.1:80", Some("127.0.0.1")),
            ("0x7f000001:80", Some("127.0.0.1")),
            ("2130706433:80", Some("127.0.0.1")),
            ("[::ffff:10.0.0.1]:443", Some("[::ffff:a00:1]")),
            ("[2606:4700::1]:9000", Some("[2606:4700::1]:9000")),
            ("a.example", None),
            ("a.example:0", None),
            ("a.example:+80", None),
            ("a.example:99999", None),
            ("a.example:", None),
            ("evil.example\0.github.com:443", None),
            ("evil.example%00.github.com:443", None),
            ("evil.example/.github.com:443", None),
            ("me@github.com:443", None),
            ("a..example:443", None),
            (".example:443", None),
            ("a.example..:443", None),
            ("a example:443", None),
            ("bücher.example:443", None),
            ("[fe80::1%eth0]:443", None),
            ("1.2.3.4.5:443", None),
            (":443", None),
            ("", None),
        ] {
            let found = Target::parse(text, None).map(|target| target.to_string());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
        assert!(Target::parse(&format!("{}.example:443", "a".repeat(64)), None).is_none());
        assert!(Target::parse(&format!("{}b:443", "a.".repeat(127)), None).is_none());
    }

    #[test]
    fn an_entry_means_its_hosts_and_no_others() {
        use HostAccess::{Named, Public};
        for (entry, host, expected) in [
            ("a.example", "a.example:443", Some(Named)),
            ("A.Example", "a.EXAMPLE.:80", Some(Named)),
            ("a.example", "a.example:22", None),
            ("a.example:22", "a.example:22", Some(Named)),
            ("a.example:22", "a.example:443", None),
            ("a.example", "b.a.example:443", None),
            ("a.example", "ba.example:443", None),
            ("*.a.example", "b.a.example:443", Some(Public)),
            ("*.a.example", "c.b.a.example:443", Some(Public)),
            ("*.a.example", "a.example:443", None),
            ("*.a.example", "ba.example:443", None),
            ("*.a.example", "a.example.evil.example:443", None),
            ("nexus:8081", "nexus:8081", Some(Named)),
            ("python", "pypi.org:443", Some(Public)),
            ("python", "files.pythonhosted.org:443", Some(Public)),
            ("python", "registry.npmjs.org:443", None),
        ] {
            let list = HostList::parse(&[entry.to_owned()]);
            let target = Target::parse(host, None).unwrap();
            assert_eq!(list.access(&target), expected, "{entry}: {host}");
        }
    }

    #[test]
    fn a_list_has_no_wildcard_for_everything() {
        for wrong in [
            "*",
            "*.com",
            "*.*.example",
            "pyhton",
            "localhost",
            "localhost:80",
            "a.localhost",
            "10.0.0.7",
            "10.0.0.7:8081",
            "[2001:db8::7]",
            "https://a.example",
            "a.example/x",
            "a.example:0",
            "a b.example",
            "",
        ] {
            assert!(!HostList::is_entry(wrong), "{wrong}");
        }
        for (ecosystem, hosts) in REGISTRIES {
            assert!(HostList::is_entry(ecosystem));
            assert!(hosts.split(' ').all(HostList::is_entry), "{hosts}");
        }
        assert_eq!(
            registry_of("pypi.org").collect::<Vec<_>>(),
            ["pypi.org", "files.pythonhosted.org"]
        );
        assert_eq!(registry_of("github.com").count(), 0);
    }
}
