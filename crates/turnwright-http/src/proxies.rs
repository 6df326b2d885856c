//! The proxies that the environment names, and the hosts that are reached without one: those listed in `NO_PROXY`,
//! in any notation that curl, Go or Windows accepts, and always this machine, whose requests are none of a proxy's
//! business.

use std::net::IpAddr;
use std::sync::OnceLock;

use reqwest::{ClientBuilder, Proxy, Url};

static PROXIES: OnceLock<Proxies> = OnceLock::new();

/// The kinds of proxies that clients can use.
const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

/// Takes the place of a proxy that cannot be used, so that connections fail.
const NO_SUCH_PROXY: &str = "http://unusable-proxy.invalid";

/// The proxies of each scheme and the hosts that need none. The proxies are kept as the variables spell them, which
/// may include a password.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<String>,
    https: Option<String>,
    /// The entries of `NO_PROXY`, whose hosts are reached directly.
    direct: Vec<String>,
}

impl Proxies {
    /// Reads the usual variables, in upper or lower case.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let first_set = |names: [&str; 2]| {
            let found = names.into_iter().find_map(&variable);
            found.map(|value| plain_proxy(&value)).filter(|proxy| !proxy.is_empty())
        };
        let all = first_set(["ALL_PROXY", "all_proxy"]);
        // To a CGI program HTTP_PROXY is the `Proxy` header of the request, which anyone can send.
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let http_names = if is_cgi { ["http_proxy"; 2] } else { ["HTTP_PROXY", "http_proxy"] };
        let proxy = |names| first_set(names).or_else(|| all.clone());
        let lists = ["NO_PROXY", "no_proxy"].into_iter().filter_map(&variable);
        let direct = lists.flat_map(|list| {
            let words = list.split([',', ';', ' ', '\t', '\n']).map(plain_entry);
            words.filter(|entry| !entry.is_empty()).collect::<Vec<_>>()
        });
        Proxies {
            http: proxy(http_names),
            https: proxy(["HTTPS_PROXY", "https_proxy"]),
            direct: direct.collect(),
        }
    }

    /// Returns a `NO_PROXY` for libraries that read the variable themselves and know only names and addresses in
    /// it, or `None` if there is no proxy. An entry with a port stands for all ports of its host, because these
    /// libraries only connect to login servers.
    pub fn no_proxy_for_libraries(&self) -> Option<String> {
        self.http.as_ref().or(self.https.as_ref())?;
        let mut list = "localhost,127.0.0.0/8,0.0.0.0,::1,::".to_owned();
        for entry in &self.direct {
            match split_port(entry).0 {
                "*" => list.push_str(",*,0.0.0.0/0,::/0"),
                host => list.push_str(&format!(",{}", host.trim_start_matches('*'))),
            }
        }
        Some(list)
    }

    /// Returns the proxy for a URL.
    fn proxy_for(&self, url: &Url) -> Option<&str> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        let host = url.host_str()?.trim_matches(['[', ']']).trim_end_matches('.');
        let address = host.parse().ok().map(|ip: IpAddr| ip.to_canonical());
        let is_direct = self.direct.iter().any(|entry| {
            let (pattern, port) = split_port(entry);
            (port.is_none() || port == url.port_or_known_default())
                && matches_host(pattern, host, address)
        });
        proxy.as_deref().filter(|_| !crate::is_loopback(url) && !is_direct)
    }
}

/// Makes clients that are built from now on use these proxies.
pub fn use_proxies(proxies: Proxies) {
    // A second call changes nothing, because a process has only one environment.
    PROXIES.set(proxies).ok();
}

/// Makes a client use the proxies of this process.
pub(super) fn with_proxies(builder: ClientBuilder) -> ClientBuilder {
    let builder = builder.no_proxy();
    match PROXIES.get() {
        Some(proxies) if proxies.http.is_some() || proxies.https.is_some() => builder
            .proxy(Proxy::custom(|url| Some(client_proxy(proxies.proxy_for(url)?).to_owned()))),
        _ => builder,
    }
}

/// Returns the proxy for a URL as the variables spell it, which may include a password, or `None` if there is none.
pub fn proxy_url(url: &Url) -> Option<String> {
    PROXIES.get()?.proxy_for(url).map(str::to_owned)
}

/// Returns the host and port of the proxy for a URL, without any password, or `None` if there is no proxy for it.
pub fn proxy_of(url: &Url) -> Option<String> {
    let proxy = proxy_url(url)?;
    // A password may have a slash.
    let place = proxy.rsplit("://").next()?.rsplit('@').next()?;
    Some(place.split('/').next()?.to_owned())
}

/// The proxy as the client is given it. With one that it cannot use, the client would connect without any, so it gets
/// one that does not exist instead.
fn client_proxy(proxy: &str) -> &str {
    let scheme = proxy.split_once("://").map_or("http", |(scheme, _)| scheme);
    let is_known = SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    if is_known && Proxy::all(proxy).is_ok() { proxy } else { NO_SUCH_PROXY }
}

/// Returns a proxy without the quotes that `docker --env-file` leaves around it. Desktops write `socks` for version 5.
/// The backslash of a Windows domain (`CORP\me`) would end the host of a URL.
pub fn plain_proxy(value: &str) -> String {
    let plain = value.trim().trim_matches(['"', '\'']);
    let (login, address) = plain.split_at(plain.rfind('@').unwrap_or(0));
    let url = login.replace('\\', "%5C") + address;
    if url.starts_with("socks://") { url.replacen("socks", "socks5h", 1) } else { url }
}

/// Strips quotes, brackets, the scheme, and dots and slashes at the end from an entry of a list. The brackets of an
/// address stay if a port follows it.
fn plain_entry(entry: &str) -> String {
    let entry = entry.trim_matches(['"', '\'']).to_ascii_lowercase();
    let host = entry.rsplit("://").next().unwrap_or_default().trim_end_matches(['/', '.']);
    if host.contains("]:") { host.to_owned() } else { host.replace(['[', ']'], "") }
}

/// Splits an entry into its host and its port, if it has one.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    let is_address = entry.parse::<IpAddr>().is_ok() || entry.contains('/');
    let (host, port) = entry.rsplit_once(':').filter(|_| !is_address).unwrap_or((entry, ""));
    (host.trim_matches(['[', ']']), port.parse().ok())
}

fn matches_host(pattern: &str, host: &str, address: Option<IpAddr>) -> bool {
    if let Some(address) = address {
        // As Windows has it: `192.168.*`.
        let is_prefix = pattern.strip_suffix('*').is_some_and(|start| host.starts_with(start));
        return is_prefix || is_in_network(pattern, address);
    }
    match pattern.strip_prefix("*.") {
        Some(name) => is_below(host, name),
        None if pattern == "*" => true,
        None => {
            let name = pattern.trim_start_matches('.');
            !name.is_empty() && (host == name || is_below(host, name))
        }
    }
}

/// Returns true if the host is a subdomain of this name.
fn is_below(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
}

fn is_in_network(pattern: &str, address: IpAddr) -> bool {
    let (network, length) = pattern.split_once('/').unwrap_or((pattern, "128"));
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    let (bits, width) = bits_and_width(address);
    let (network_bits, network_width) = bits_and_width(network.to_canonical());
    let host_width = width.saturating_sub(length);
    width == network_width && bits.checked_shr(host_width) == network_bits.checked_shr(host_width)
}

fn bits_and_width(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
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
        let table: [(&str, &[&str], &[&str]); 16] = [
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
            (
                "localhost;127.*;10.*;192.168.*:8000;<local>",
                &["http://10.1.2.3:4000", "http://192.168.0.9:8000"],
                &["http://100.1.2.3", "http://192.168.0.9", "http://10.example"],
            ),
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
        let expected =
            "a.example,.b.example,10.0.0.7,10.1.0.0/16,fd00::1,*,0.0.0.0/0,::/0,both.example";
        assert_eq!(proxies(list).no_proxy_for_libraries(), Some(format!("{local},{expected}")));
        assert_eq!(Proxies::from_variables(|_| None).no_proxy_for_libraries(), None);
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
        let is_set = |name: &str| ["HTTP_PROXY", "HTTPS_PROXY", "REQUEST_METHOD"].contains(&name);
        let cgi = Proxies::from_variables(|name| is_set(name).then(|| "p:1".to_owned()));
        assert_eq!((cgi.proxy_for(&http), cgi.proxy_for(&https)), (None, Some("p:1")));
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_not_passed_over() {
        for (value, expected) in [
            ("http://me:secret@proxy:3128", "http://me:secret@proxy:3128"),
            ("proxy:3128", "proxy:3128"),
            ("10.0.0.1:3128", "10.0.0.1:3128"),
            (" \"http://proxy:3128/\"\n", "http://proxy:3128/"),
            ("SOCKS5://proxy", "SOCKS5://proxy"),
            ("socks5h://me:secret@proxy:1080", "socks5h://me:secret@proxy:1080"),
            ("socks://127.0.0.1:1080/", "socks5h://127.0.0.1:1080/"),
            (r"http://CORP\me:secret@proxy:3128", "http://CORP%5Cme:secret@proxy:3128"),
            (r"CORP\me:secret@proxy:3128", "CORP%5Cme:secret@proxy:3128"),
            (r"http://me:a@b\c@proxy:3128", "http://me:a@b%5Cc@proxy:3128"),
            (r"http:\\proxy:3128\", r"http:\\proxy:3128\"),
            ("ftp://proxy:21", NO_SUCH_PROXY),
            ("http://me:se/cret@proxy:3128", NO_SUCH_PROXY),
            ("http://me:se#cret@proxy:3128", NO_SUCH_PROXY),
            ("http://", NO_SUCH_PROXY),
        ] {
            assert_eq!(client_proxy(&plain_proxy(value)), expected, "{value}");
        }
        let empty = Proxies::from_variables(|name| (name == "ALL_PROXY").then(|| "''".to_owned()));
        assert!(empty.http.is_none() && empty.https.is_none());
    }
}
