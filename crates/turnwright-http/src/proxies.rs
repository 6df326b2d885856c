//! The proxies of the environment, and the hosts that are reached without one: those that `NO_PROXY` lists in
//! the forms of curl and Go, and this machine itself in any case. What is asked of it is none of the
//! proxy's business.

use std::net::IpAddr;
use std::sync::OnceLock;

use reqwest::{ClientBuilder, Proxy, Url};

static PROXIES: OnceLock<Proxies> = OnceLock::new();

/// Which proxy a request goes through.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<String>,
    https: Option<String>,
    direct: Vec<DirectHosts>,
}

/// An entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DirectHosts {
    hosts: HostPattern,
    /// The only port that is meant; `None` for all.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    All,
    /// The addresses that have these first bits in common.
    Network(IpAddr, u32),
    /// A name and all below it.
    Domain(String),
    /// All names below this one.
    Subdomains(String),
}

impl Proxies {
    /// Reads the usual variables, in upper or lower case.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let first = |names: [&str; 2]| names.into_iter().find_map(&variable);
        let all = first(["ALL_PROXY", "all_proxy"]);
        // A web server that runs a program passes a header of the request on as HTTP_PROXY.
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let proxy = |names| first(names).or_else(|| all.clone()).filter(|_| !is_cgi);
        let lists = ["NO_PROXY", "no_proxy"].into_iter().filter_map(&variable);
        Proxies {
            http: proxy(["HTTP_PROXY", "http_proxy"]),
            https: proxy(["HTTPS_PROXY", "https_proxy"]),
            direct: lists.flat_map(|list| direct_hosts(&list)).collect(),
        }
    }

    /// `NO_PROXY` for libraries that know only names and addresses in it; `None` without a proxy. A port is left
    /// out, as all that is reached through them are the servers of logins.
    pub fn plain_direct_list(&self) -> Option<String> {
        self.http.as_ref().or(self.https.as_ref())?;
        let mut list = "localhost,127.0.0.0/8,0.0.0.0,::1,::".to_owned();
        for entry in &self.direct {
            match &entry.hosts {
                HostPattern::All => list.push_str(",*,0.0.0.0/0,::/0"),
                HostPattern::Network(address, length) => {
                    let length = (*length).min(address_bits(*address).1);
                    list.push_str(&format!(",{address}/{length}"));
                }
                HostPattern::Domain(name) => list.push_str(&format!(",{name}")),
                HostPattern::Subdomains(name) => list.push_str(&format!(",.{name}")),
            }
        }
        Some(list)
    }

    /// Returns the proxy for a URL as the variable has it, which may include a password.
    fn proxy_for(&self, url: &Url) -> Option<&str> {
        let proxy = match url.scheme() {
            "http" => self.http.as_deref()?,
            "https" => self.https.as_deref()?,
            _ => return None,
        };
        let host = url.host_str()?.trim_end_matches('.').to_ascii_lowercase();
        let address =
            host.trim_matches(['[', ']']).parse().ok().map(|it: IpAddr| it.to_canonical());
        let port = url.port_or_known_default();
        let is_direct = |entry: &DirectHosts| {
            (entry.port.is_none() || entry.port == port) && entry.hosts.matches(&host, address)
        };
        let is_own = is_this_machine(&host, address) || self.direct.iter().any(is_direct);
        (!is_own).then_some(proxy)
    }
}

/// From now on, clients use these proxies.
pub fn use_proxies(proxies: Proxies) {
    // Fails if some were set before. A process has one environment.
    drop(PROXIES.set(proxies));
}

/// Has a client use the proxies of this process.
pub(super) fn with_proxies(builder: ClientBuilder) -> ClientBuilder {
    let builder = builder.no_proxy();
    match PROXIES.get() {
        Some(proxies) if proxies.http.is_some() || proxies.https.is_some() => {
            builder.proxy(Proxy::custom(|url| proxies.proxy_for(url).map(str::to_owned)))
        }
        _ => builder,
    }
}

/// The host and port of the proxy through which requests to this URL go, if there is one.
pub fn proxy_of(url: &Url) -> Option<String> {
    let proxy = PROXIES.get()?.proxy_for(url)?;
    let place = proxy.split_once("://").map_or(proxy, |(_, place)| place);
    let place = place.split('/').next()?.rsplit('@').next()?;
    Some(place.to_owned())
}

fn is_this_machine(host: &str, address: Option<IpAddr>) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_some_and(|it| it.is_loopback() || it.is_unspecified())
}

/// The entries of a list, which commas or blanks separate. What is none is left out.
fn direct_hosts(list: &str) -> Vec<DirectHosts> {
    let entries = list.split([',', ';']).flat_map(str::split_whitespace);
    entries.filter_map(DirectHosts::parse).collect()
}

impl DirectHosts {
    fn parse(entry: &str) -> Option<DirectHosts> {
        let entry = entry.trim_matches(['"', '\'']).to_ascii_lowercase();
        let entry = entry.split_once("://").map_or(entry.as_str(), |(_, place)| place);
        let entry = entry.trim_end_matches('/');
        let (host, port) = match entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, rest)) if rest.starts_with('/') => {
                return Some(DirectHosts { hosts: network(address, &rest[1..])?, port: None });
            }
            Some((address, rest)) => (address, rest.strip_prefix(':')),
            None if entry.contains('/') || entry.parse::<IpAddr>().is_ok() => (entry, None),
            None => match entry.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (entry, None),
            },
        };
        let port = port.map(str::parse).transpose().ok()?;
        let host = host.trim_end_matches('.');
        let hosts = if host == "*" {
            HostPattern::All
        } else if let Ok(address) = host.parse::<IpAddr>() {
            HostPattern::Network(address.to_canonical(), 128)
        } else if let Some((address, length)) = host.split_once('/') {
            network(address, length)?
        } else if let Some(name) = host.strip_prefix("*.") {
            HostPattern::Subdomains(name.to_owned())
        } else if host.is_empty() {
            return None;
        } else {
            HostPattern::Domain(host.trim_start_matches('.').to_owned())
        };
        Some(DirectHosts { hosts, port })
    }
}

fn network(address: &str, length: &str) -> Option<HostPattern> {
    let address: IpAddr = address.parse().ok()?;
    let length = length.parse().ok()?;
    (length <= address_bits(address).1).then_some(HostPattern::Network(address, length))
}

impl HostPattern {
    fn matches(&self, host: &str, address: Option<IpAddr>) -> bool {
        let is_below = |name: &str| host.strip_suffix(name).is_some_and(|it| it.ends_with('.'));
        match self {
            HostPattern::All => true,
            HostPattern::Network(network, length) => address.is_some_and(|address| {
                let (own, width) = address_bits(address);
                let (common, other_width) = address_bits(*network);
                let rest = width.saturating_sub(*length);
                width == other_width && own.checked_shr(rest) == common.checked_shr(rest)
            }),
            HostPattern::Domain(name) => host == name || is_below(name),
            HostPattern::Subdomains(name) => is_below(name),
        }
    }
}

/// An address as a number, and how many bits it has.
fn address_bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(it) => (u128::from(it.to_bits()), 32),
        IpAddr::V6(it) => (it.to_bits(), 128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(direct: &str) -> Proxies {
        Proxies::from_variables(|name| match name {
            "HTTP_PROXY" => Some("http://me:secret@proxy:3128".to_owned()),
            "https_proxy" => Some("proxy:3129".to_owned()),
            "NO_PROXY" => Some(direct.to_owned()),
            "no_proxy" => Some("both.example".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn the_forms_of_curl_and_go_say_what_is_reached_directly() {
        // The list, and URLs that are reached without and with a proxy.
        let table: [(&str, &[&str], &[&str]); 15] = [
            ("*", &["http://10.0.0.1/", "https://a.example", "http://[fd00::1]:8000/"], &[]),
            ("a.example", &["http://a.example/", "https://x.y.A.example."], &["http://ba.example"]),
            (".a.example", &["http://a.example", "http://x.a.example"], &["http://ba.example"]),
            ("*.a.example", &["http://x.a.example", "http://x.y.a.example"], &["http://a.example"]),
            (
                "a.example:8000, b.example:443",
                &["http://a.example:8000", "http://x.a.example:8000", "https://b.example"],
                &["http://a.example", "http://b.example"],
            ),
            ("10.0.0.7", &["http://10.0.0.7:1"], &["http://10.0.0.8"]),
            ("10.0.0.7:81", &["http://10.0.0.7:81"], &["http://10.0.0.7"]),
            ("10.1.0.0/16", &["http://10.1.2.3"], &["http://10.2.0.1", "http://[fd00::1]"]),
            ("0.0.0.0/0", &["http://10.1.2.3"], &["http://[fd00::1]"]),
            ("fd00::/8", &["http://[fd12::1]:8000"], &["http://[fe80::1]"]),
            ("[fd00::1]", &["http://[fd00::1]/"], &["http://[fd00::2]/"]),
            ("[fd00::1]:81 [fe80::]/10", &["http://[fd00::1]:81", "http://[fe80::7]"], &[]),
            ("fd00::1", &["http://[fd00::1]:9"], &["http://[fd00::2]"]),
            ("\"http://a.example/\";b.example", &["http://a.example", "http://b.example"], &[]),
            (
                ", ,:80,/8,[x]:y,10.0.0.0/99,",
                &["http://both.example", "http://x.both.example"],
                &["http://10.0.0.1", "http://a.example"],
            ),
        ];
        for (direct, without, with) in table {
            let proxies = proxies(direct);
            for (urls, expected) in [(without, false), (with, true)] {
                for url in urls {
                    let found = proxies.proxy_for(&Url::parse(url).unwrap());
                    assert_eq!(found.is_some(), expected, "{direct}: {url}");
                }
            }
        }
    }

    #[test]
    fn the_list_for_others_has_names_and_addresses_only() {
        let local = "localhost,127.0.0.0/8,0.0.0.0,::1,::";
        let list = "a.example:80,*.b.example,10.0.0.7,10.1.0.0/16,[fd00::1]:8,*";
        let expected = "a.example,.b.example,10.0.0.7/32,10.1.0.0/16,fd00::1/128,*,0.0.0.0/0,::/0,both.example";
        assert_eq!(proxies(list).plain_direct_list(), Some(format!("{local},{expected}")));
        assert_eq!(Proxies::from_variables(|_| None).plain_direct_list(), None);
    }

    #[test]
    fn this_machine_is_never_asked_through_a_proxy() {
        for host in [
            "localhost:11434",
            "LOCALHOST",
            "models.localhost",
            "127.0.0.1",
            "127.9.9.9:1",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "2130706433",
        ] {
            let url = Url::parse(&format!("http://{host}/v1")).unwrap();
            assert_eq!(proxies("").proxy_for(&url), None, "{host}");
        }
        for host in ["localhost.example", "notlocalhost", "128.0.0.1", "host.docker.internal"] {
            let url = Url::parse(&format!("http://{host}/v1")).unwrap();
            assert!(proxies("").proxy_for(&url).is_some(), "{host}");
        }
    }

    #[test]
    fn each_scheme_has_its_proxy_and_a_web_server_s_variable_counts_for_nothing() {
        let http = Url::parse("http://a.example").unwrap();
        let https = Url::parse("https://a.example").unwrap();
        assert_eq!(proxies("").proxy_for(&http), Some("http://me:secret@proxy:3128"));
        assert_eq!(proxies("").proxy_for(&https), Some("proxy:3129"));
        let all = Proxies::from_variables(|name| (name == "all_proxy").then(|| "p:1".to_owned()));
        assert_eq!((all.proxy_for(&http), all.proxy_for(&https)), (Some("p:1"), Some("p:1")));
        let cgi = Proxies::from_variables(|_| Some("p:1".to_owned()));
        assert_eq!(cgi.proxy_for(&http), None);
    }
}
