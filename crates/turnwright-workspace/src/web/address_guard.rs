//! Decides which network addresses may be reached, and resolves host names for connections, on blocking threads, to
//! only those. Everything that is not clearly public is refused, so that a page cannot lead into this machine, its
//! network or its cloud. Each connection resolves the name again, so DNS rebinding is caught.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::task::spawn_blocking;
use turnwright_types::text;
use url::{Host, Url};

/// Ports that a permission question does not mention.
pub const USUAL_PORTS: [u16; 4] = [80, 443, 8080, 8443];
/// The longest URL that is accepted, in bytes.
const MAX_URL_BYTES: usize = 8 * 1024;

const BENCHMARKING: &str = "a benchmarking";

/// Networks that are not public: address, prefix length and description. The first that fits counts.
const RESERVED_V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::UNSPECIFIED, 8, "an unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private"),
    // The metadata services of Volcengine and Alibaba.
    (Ipv4Addr::new(100, 96, 0, 96), 32, "a cloud's internal"),
    (Ipv4Addr::new(100, 100, 100, 200), 32, "a cloud's internal"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a carrier's internal"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback"),
    // Azure's internal services, reachable from each of its machines.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's internal"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "a documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, BENCHMARKING),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "a documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "a documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved"),
];

/// The same for IPv6, inside and outside of the public `2000::/3`.
const RESERVED_V6: &[(Ipv6Addr, u32, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "an unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback"),
    // Teredo, benchmarking, ORCHID and others.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "a documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "a documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a private"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast"),
];

/// Names and domains that never belong to a public host.
const LOCAL_NAMES: &str =
    "localhost localdomain local internal intranet private corp home lan home.arpa";

/// Describes why an address is not reached, as in "a private"; `None` if it is public.
pub fn reserved_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => reserved_kind_v4(address),
        IpAddr::V6(address) => reserved_kind_v6(address),
    }
}

fn reserved_kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    let mut ranges = RESERVED_V4.iter();
    let found =
        ranges.find(|(net, length, _)| (address.to_bits() ^ net.to_bits()) >> (32 - *length) == 0);
    found.map(|(_, _, kind)| *kind)
}

fn reserved_kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    for (net, length, kind) in RESERVED_V6 {
        if (address.to_bits() ^ net.to_bits()) >> (128 - *length) == 0 {
            return Some(*kind);
        }
    }
    // IPv6 forms of IPv4 addresses: compatible, mapped, translated and NAT64.
    if let [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
    | [0, 0, 0, 0, 0xffff, 0, high, low]
    | [0x64, 0xff9b, 0, 0, 0, 0, high, low] = address.segments()
    {
        return embedded_kind(high, low);
    }
    let [first, high, low, _, kind, mark, last_high, last_low] = address.segments();
    if first >> 13 != 1 {
        return Some("a reserved");
    }
    let six_to_four = if first == 0x2002 { embedded_kind(high, low) } else { None };
    let is_isatap = matches!((kind, mark), (0 | 0x200, 0x5efe));
    six_to_four.or_else(|| embedded_kind(last_high, last_low).filter(|_| is_isatap))
}

/// Describes the IPv4 address in two parts of an IPv6 address.
fn embedded_kind(high: u16, low: u16) -> Option<&'static str> {
    reserved_kind_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

/// Returns true if an address only stands for the name that has led to it. Proxies that act as a network device (Clash,
/// sing-box, Surge) answer every look-up with a benchmarking address and connect to the name themselves. Blocks.
pub fn is_stand_in(address: IpAddr, lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>>) -> bool {
    let kind = reserved_kind(address);
    // The addresses of this name are public ones: where it has another, every name has.
    kind == Some(BENCHMARKING)
        && lookup("example.com")
            .is_ok_and(|known| known.iter().any(|other| reserved_kind(*other) == kind))
}

/// Describes why a name is not even looked up.
pub fn local_name_kind(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches('.');
    // A name without a dot is looked up in the local network.
    let is_local = !name.contains('.')
        || LOCAL_NAMES
            .split(' ')
            .any(|suffix| name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.')));
    is_local.then_some("a private")
}

/// Parses a URL as models write it; the scheme may be missing.
///
/// # Errors
/// A message for the model that says what is wrong with it.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    if whole.len() > MAX_URL_BYTES {
        return Err(format!("The URL is longer than {MAX_URL_BYTES} bytes. Nothing was fetched."));
    }
    let mut url =
        Url::parse(&whole).map_err(|error| refusal(text, &format!("is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refusal(text, "is not an http or https URL"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("A URL with a name or a password in it is not fetched.".to_owned());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(refusal(text, "names no host"));
    }
    if url.port() == Some(0) {
        return Err(refusal(text, "names port 0"));
    }
    url.set_fragment(None);
    Ok(url)
}

fn refusal(text: &str, what: &str) -> String {
    format!("\"{}\" {what}. Nothing was fetched.", text::first_chars(text, 200))
}

/// The host that the user is asked about, with the port unless that is a usual one.
pub fn permission_host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    match url.port().filter(|port| !USUAL_PORTS.contains(port)) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

/// A host that the user has allowed wherever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowedHost {
    host: Host,
    /// Any port if it is `None`.
    port: Option<u16>,
}

impl AllowedHost {
    /// Parses an entry such as `localhost:3000`, `10.0.0.7` or `[::1]:80`.
    pub(super) fn parse(entry: &str) -> Option<AllowedHost> {
        let entry = entry.trim();
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if !entry.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (entry, None),
        };
        Some(AllowedHost { host: Host::parse(host.trim_end_matches('.')).ok()?, port })
    }

    fn matches(&self, url: &Url) -> bool {
        let host = url.host_str().and_then(|name| Host::parse(name.trim_end_matches('.')).ok());
        host.as_ref() == Some(&self.host)
            && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }
}

/// How a host may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostAccess {
    /// Only at public addresses.
    Public,
    /// At any address, because the user has allowed it by name.
    Any,
}

/// Checks what can be checked without a DNS lookup.
///
/// # Errors
/// Why the URL is not fetched, as in "a private".
pub(super) fn check(url: &Url, allowed: &[AllowedHost]) -> Result<HostAccess, &'static str> {
    if allowed.iter().any(|host| host.matches(url)) {
        return Ok(HostAccess::Any);
    }
    let reason = match url.host() {
        Some(Host::Ipv4(address)) => reserved_kind_v4(address),
        Some(Host::Ipv6(address)) => reserved_kind_v6(address),
        Some(Host::Domain(name)) => local_name_kind(name),
        None => Some("no"),
    };
    reason.map_or(Ok(HostAccess::Public), Err)
}

/// A function that resolves a name.
pub(super) type LookupFn = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// Looks a name up with the system's resolver. Blocks.
pub fn system_lookup(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

/// Why a name was not resolved.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookupError {
    /// All its addresses are of a kind that is not reached, as in "a private".
    #[error("it is {what} address")]
    Blocked { what: &'static str },
    /// The name does not exist, or the lookup failed.
    #[error("{0}")]
    Failed(io::Error),
}

/// A resolver that returns only public addresses.
pub(super) struct PublicResolver {
    pub(super) lookup: LookupFn,
    /// The names of proxies from the environment, which may have any address.
    pub(super) proxies: Vec<String>,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = Arc::clone(&self.lookup);
        let is_proxy = self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name.as_str()));
        Box::pin(async move {
            let looking = spawn_blocking(move || {
                let found = lookup(name.as_str()).map_err(LookupError::Failed)?;
                if is_proxy { Ok(found) } else { public_addresses(found, &lookup) }
            });
            let checked = looking.await.map_err(io::Error::other)??;
            let addresses: Addrs =
                Box::new(checked.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// Keeps the addresses that may be reached. Others are never tried, not even if these fail.
fn public_addresses(found: Vec<IpAddr>, lookup: &LookupFn) -> Result<Vec<IpAddr>, LookupError> {
    let mut blocked = None;
    let mut checked = Vec::new();
    for address in found {
        match reserved_kind(address) {
            Some(what) if !is_stand_in(address, &**lookup) => blocked = Some(what),
            _ => checked.push(address),
        }
    }
    match blocked {
        Some(what) if checked.is_empty() => Err(LookupError::Blocked { what }),
        _ => Ok(checked),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use turnwright_http::is_loopback;

    use super::*;

    fn verdict(url: &str, allowed: &[&str]) -> String {
        let allowed: Vec<_> =
            allowed.iter().map(|text| AllowedHost::parse(text).unwrap()).collect();
        match parse_url(url).map(|url| check(&url, &allowed)) {
            Ok(Ok(access)) => format!("{access:?}"),
            Ok(Err(what)) => what.to_owned(),
            Err(_) => "bad".to_owned(),
        }
    }

    #[test]
    fn only_public_addresses_are_reached_however_they_are_written() {
        for (host, expected) in [
            // Public addresses, among them the neighbours of reserved networks.
            ("93.184.216.34", "Public"),
            ("1.1.1.1", "Public"),
            ("9.255.255.255", "Public"),
            ("11.0.0.0", "Public"),
            ("100.63.255.255", "Public"),
            ("100.128.0.0", "Public"),
            ("126.255.255.255", "Public"),
            ("128.0.0.0", "Public"),
            ("168.63.129.17", "Public"),
            ("169.253.255.255", "Public"),
            ("169.255.0.0", "Public"),
            ("172.15.255.255", "Public"),
            ("172.32.0.0", "Public"),
            ("192.0.1.0", "Public"),
            ("192.167.255.255", "Public"),
            ("192.169.0.0", "Public"),
            ("198.17.255.255", "Public"),
            ("198.20.0.0", "Public"),
            ("223.255.255.255", "Public"),
            ("[2606:4700:4700::1111]", "Public"),
            ("[2a00:1450:4001:80e::200e]", "Public"),
            ("[64:ff9b::5db8:d822]", "Public"),
            ("[::ffff:93.184.216.34]", "Public"),
            ("[2002:5db8:d822::1]", "Public"),
            // Plain private addresses.
            ("0.0.0.0", "an unspecified"),
            ("0.1.2.3", "an unspecified"),
            ("10.0.0.1", "a private"),
            ("10.255.255.255", "a private"),
            ("100.64.0.1", "a carrier's internal"),
            ("100.96.0.96", "a cloud's internal"),
            ("100.100.100.200", "a cloud's internal"),
            ("127.0.0.1", "a loopback"),
            ("127.255.255.254", "a loopback"),
            ("168.63.129.16", "a cloud's internal"),
            ("169.254.169.254", "a link-local"),
            ("172.16.0.1", "a private"),
            ("172.31.255.255", "a private"),
            ("192.0.0.192", "a reserved"),
            ("192.0.2.1", "a documentation"),
            ("192.88.99.1", "a reserved"),
            ("192.168.1.1", "a private"),
            ("198.18.0.1", "a benchmarking"),
            ("198.19.255.255", "a benchmarking"),
            ("198.51.100.7", "a documentation"),
            ("203.0.113.7", "a documentation"),
            ("224.0.0.1", "a multicast"),
            ("239.255.255.255", "a multicast"),
            ("240.0.0.1", "a reserved"),
            ("255.255.255.255", "a reserved"),
            // The same addresses in other notations.
            ("2130706433", "a loopback"),
            ("0x7f000001", "a loopback"),
            ("0x7f.1", "a loopback"),
            ("017700000001", "a loopback"),
            ("0177.0.0.1", "a loopback"),
            ("127.1", "a loopback"),
            ("127.0.0.1.", "a loopback"),
            ("0", "an unspecified"),
            ("0xa9fea9fe", "a link-local"),
            ("2852039166", "a link-local"),
            ("169.254.43518", "a link-local"),
            ("%31%32%37.0.0.1", "a loopback"),
            ("１２７.０.０.１", "a loopback"),
            ("127。0。0。1", "a loopback"),
            // IPv6.
            ("[::]", "an unspecified"),
            ("[::1]", "a loopback"),
            ("[0:0:0:0:0:0:0:1]", "a loopback"),
            ("[fc00::1]", "a private"),
            ("[fd00:ec2::254]", "a private"),
            ("[fe80::1]", "a link-local"),
            ("[febf::1]", "a link-local"),
            ("[fec0::1]", "a private"),
            ("[ff02::1]", "a multicast"),
            ("[2001:db8::1]", "a documentation"),
            ("[3fff:123::1]", "a documentation"),
            ("[100::1]", "a reserved"),
            ("[64:ff9b:1::7f00:1]", "a reserved"),
            ("[5f00::1]", "a reserved"),
            ("[4000::1]", "a reserved"),
            // IPv4 within IPv6: mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP.
            ("[::ffff:127.0.0.1]", "a loopback"),
            ("[::ffff:a9fe:a9fe]", "a link-local"),
            ("[::ffff:0:127.0.0.1]", "a loopback"),
            ("[::127.0.0.1]", "a loopback"),
            ("[::10.0.0.1]", "a private"),
            ("[::2]", "an unspecified"),
            ("[64:ff9b::7f00:1]", "a loopback"),
            ("[64:ff9b::10.0.0.1]", "a private"),
            ("[64:ff9b::a9fe:a9fe]", "a link-local"),
            ("[2002:7f00:1::]", "a loopback"),
            ("[2002:a00:1::1]", "a private"),
            ("[2001:0:4136:e378:8000:63bf:80ff:fffe]", "a reserved"),
            ("[2a00:1450::5efe:10.0.0.1]", "a private"),
            ("[2a00:1450::200:5efe:10.0.0.1]", "a private"),
            ("[2002:7f00:1::5efe:8.8.8.8]", "a loopback"),
            ("[5f00::5efe:8.8.8.8]", "a reserved"),
        ] {
            assert_eq!(verdict(&format!("http://{host}/"), &[]), expected, "{host}");
        }
    }

    #[test]
    fn names_of_this_machine_and_its_network_are_not_looked_up() {
        for name in [
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "printer.local",
            "localhost.localdomain",
            "metadata.google.internal",
            "Metadata.Google.Internal.",
            "host.docker.internal",
            "kubernetes",
            "metadata",
            "wiki.corp",
            "router.lan",
            "nas.home.arpa",
        ] {
            assert_eq!(verdict(&format!("https://{name}/"), &[]), "a private", "{name}");
        }
        for name in
            ["docs.rs", "example.com.", "localhost.example.com", "mylocal.dev", "a.zlan.org"]
        {
            assert_eq!(verdict(&format!("https://{name}/"), &[]), "Public", "{name}");
        }
    }

    #[test]
    fn an_address_is_http_without_a_name_and_a_password() {
        for (given, expected) in [
            ("https://docs.rs/tokio#top", Ok("https://docs.rs/tokio")),
            (" docs.rs/tokio ", Ok("https://docs.rs/tokio")),
            ("HTTP://DOCS.RS:80/A", Ok("http://docs.rs/A")),
            ("localhost:3000/x", Ok("https://localhost:3000/x")),
            ("http://0x7f.1/", Ok("http://127.0.0.1/")),
            ("https://bücher.example/", Ok("https://xn--bcher-kva.example/")),
            ("file:///etc/passwd", Err("not an http")),
            ("ftp://a.example/", Err("not an http")),
            ("gopher://a.example/", Err("not an http")),
            ("javascript:alert(1)", Err("not a URL")),
            ("data:text/html,x", Err("not a URL")),
            ("https://me@a.example/", Err("name or a password")),
            ("https://me:word@a.example/", Err("name or a password")),
            ("http://a.example\\@10.0.0.1/", Ok("http://a.example/@10.0.0.1/")),
            ("http://[fe80::1%25eth0]/", Err("not a URL")),
            ("http://1.2.3.4.5.6/", Err("not a URL")),
            ("http://256.256.256.256/", Err("not a URL")),
            ("http://a.example:99999/", Err("not a URL")),
            ("http://a.example:0/", Err("port 0")),
            ("https://", Err("not a URL")),
            ("", Err("not a URL")),
        ] {
            match (parse_url(given), expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url.as_str(), expected, "{given}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{given}: {error}"),
                (got, _) => panic!("{given}: {got:?}"),
            }
        }
        assert!(parse_url(&format!("https://a.example/{}", "x".repeat(9_000))).is_err());
    }

    #[test]
    fn the_loopback_interface_is_known_by_all_its_names() {
        for (host, expected) in [
            ("localhost:5173", true),
            ("LOCALHOST.", true),
            ("app.localhost", true),
            ("127.0.0.1", true),
            ("127.1", true),
            ("0.0.0.0:80", true),
            ("[::1]", true),
            ("[::]", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost.example.com", false),
            ("notlocalhost", false),
            ("10.0.0.1", false),
            ("[fe80::1]", false),
        ] {
            assert_eq!(
                is_loopback(&parse_url(&format!("http://{host}/")).unwrap()),
                expected,
                "{host}"
            );
        }
    }

    #[test]
    fn the_question_names_an_unusual_port() {
        for (url, expected) in [
            ("https://Docs.RS./tokio", "docs.rs"),
            ("http://a.example:8080/", "a.example"),
            ("https://a.example:8443/", "a.example"),
            ("https://a.example:80/", "a.example"),
            ("https://a.example:22/", "a.example:22"),
            ("http://[2606:4700::1]:9000/", "[2606:4700::1]:9000"),
            ("http://localhost:3000/", "localhost:3000"),
        ] {
            assert_eq!(permission_host(&parse_url(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn what_the_user_allows_is_exactly_that_host_and_port() {
        for (url, allowed, expected) in [
            ("http://localhost:3000/", "localhost:3000", "Any"),
            ("http://LOCALHOST.:3000/", "localhost:3000", "Any"),
            ("http://localhost:3001/", "localhost:3000", "a private"),
            ("http://localhost/", "localhost:80", "Any"),
            ("https://localhost/", "localhost:80", "a private"),
            ("http://localhost:9/", "localhost", "Any"),
            ("http://a.localhost/", "localhost", "a private"),
            ("http://127.0.0.1:3000/", "localhost:3000", "a loopback"),
            ("http://2130706433:3000/", "127.0.0.1:3000", "Any"),
            ("http://[::1]:80/", "[::1]:80", "Any"),
            ("http://[::1]/", "[::1]", "Any"),
            ("http://10.0.0.8/", "10.0.0.7", "a private"),
        ] {
            assert_eq!(verdict(url, &[allowed]), expected, "{url} with {allowed}");
        }
        for bad in ["", "http://x/", "a b", "x:port", "x:99999"] {
            assert_eq!(AllowedHost::parse(bad), None, "{bad}");
        }
    }

    async fn ask(guarded: &PublicResolver) -> Result<Vec<String>, String> {
        match guarded.resolve("name.example".parse().unwrap()).await {
            Ok(addresses) => Ok(addresses.map(|address| address.ip().to_string()).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn guarded(answers: &'static [&'static [&'static str]], proxies: &[&str]) -> PublicResolver {
        let asked = AtomicUsize::new(0);
        PublicResolver {
            lookup: Arc::new(move |_| {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                Ok(answers[number].iter().map(|address| address.parse().unwrap()).collect())
            }),
            proxies: proxies.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[tokio::test]
    async fn a_name_that_turns_private_is_caught_at_the_next_connect() {
        let rebinding = guarded(&[&["93.184.216.34"], &["127.0.0.1"], &["::1", "10.0.0.1"]], &[]);
        assert_eq!(ask(&rebinding).await, Ok(vec!["93.184.216.34".to_owned()]));
        assert_eq!(ask(&rebinding).await, Err("it is a loopback address".to_owned()));
        assert_eq!(ask(&rebinding).await, Err("it is a private address".to_owned()));
    }

    #[tokio::test]
    async fn a_private_address_among_public_ones_is_left_out() {
        let mixed = guarded(&[&["169.254.169.254", "93.184.216.34", "::ffff:10.0.0.1"]], &[]);
        assert_eq!(ask(&mixed).await, Ok(vec!["93.184.216.34".to_owned()]));
    }

    #[tokio::test]
    async fn an_address_that_stands_for_a_name_is_passed_where_every_name_has_one() {
        let behind_proxy = guarded(&[&["fdfe:dcba:9876::7", "198.18.0.7"], &["198.19.0.1"]], &[]);
        assert_eq!(ask(&behind_proxy).await, Ok(vec!["198.18.0.7".to_owned()]));
        let elsewhere = guarded(&[&["198.18.0.7"], &["23.192.228.80"]], &[]);
        assert_eq!(ask(&elsewhere).await, Err("it is a benchmarking address".to_owned()));
        let offline = |_: &str| Err(io::Error::other("no network"));
        assert!(!is_stand_in("198.18.0.7".parse().unwrap(), offline));
    }

    #[tokio::test]
    async fn a_proxy_may_be_anywhere() {
        let proxied = guarded(&[&["10.0.0.1"]], &["Name.Example"]);
        assert_eq!(ask(&proxied).await, Ok(vec!["10.0.0.1".to_owned()]));
    }
}
