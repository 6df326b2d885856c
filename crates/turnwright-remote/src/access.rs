//! Who may use the agent: a request must have the token, must not come from a web page of another address that
//! was not allowed by name, and must be for this machine. A web page whose name suddenly leads to this machine (DNS
//! rebinding) would otherwise be taken for one of the agent's own.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use ring::digest::{Digest, SHA256, digest};
use uuid::Uuid;

/// The token and the web pages that are allowed.
#[derive(Debug)]
pub struct AccessRules {
    /// Compared instead of the token, so that the timing reveals nothing about it.
    token: Digest,
    origins: Vec<String>,
    /// Further names that requests may be for.
    hosts: Vec<String>,
    /// The address where the agent listens without TLS. With TLS, the certificate determines the served
    /// names.
    unencrypted: Option<IpAddr>,
}

/// A refused request: the status and the text for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpRefusal(pub(crate) StatusCode, pub(crate) &'static str);

/// The beginning of a subprotocol that is the token. Clients in browsers offer it beside `acp.v1`.
pub(crate) const BEARER: &str = "bearer.";

const WRONG_TOKEN: HttpRefusal = HttpRefusal(
    StatusCode::UNAUTHORIZED,
    "The token is missing or wrong. Send `Authorization: Bearer TOKEN`.\n",
);
const FOREIGN_PAGE: HttpRefusal =
    HttpRefusal(StatusCode::FORBIDDEN, "Web pages of this origin are not allowed.\n");
const OTHER_MACHINE: HttpRefusal = HttpRefusal(
    StatusCode::FORBIDDEN,
    "The agent is not served under the name in `Host`. Use the address that it has printed, or \
     start it with --allow-host NAME.\n",
);

impl AccessRules {
    /// Allows requests with this token, from web pages of these origins, such as `https://example.com`, and
    /// also for these hosts, such as the name of a proxy.
    pub fn new(token: &str, origins: Vec<String>, hosts: Vec<String>) -> AccessRules {
        let token = digest(&SHA256, token.as_bytes());
        AccessRules { token, origins, hosts, unencrypted: None }
    }

    /// Checks the host that requests name, for an agent that listens here without TLS.
    pub(crate) fn listening_unencrypted(self, address: IpAddr) -> AccessRules {
        AccessRules { unencrypted: Some(address), ..self }
    }

    /// Checks which host a request is for, before anything else: whoever reaches the wrong one learns nothing.
    pub(crate) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let Some(address) = self.unencrypted else { return Ok(()) };
        let mut named = headers.get_all(HOST).iter();
        let (Some(host), None) = (named.next(), named.next()) else { return Err(OTHER_MACHINE) };
        let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let all_allowed = uri.authority().into_iter().chain(&host).all(|authority| {
            !authority.as_str().contains('@') && self.allows_host(authority.host(), address)
        });
        if host.is_some() && all_allowed { Ok(()) } else { Err(OTHER_MACHINE) }
    }

    fn allows_host(&self, host: &str, address: IpAddr) -> bool {
        let name = host.trim_end_matches('.');
        // A copied address may have a port.
        let mut allowed = self.hosts.iter().filter_map(|host| host.parse::<Authority>().ok());
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        literal.is_ok_and(|ip| ip.is_loopback() || ip == address)
            || name.eq_ignore_ascii_case("localhost")
            || allowed.any(|allowed| allowed.host().eq_ignore_ascii_case(name))
    }

    /// Checks the headers of a request. The origin comes first, so that a web page learns nothing of tokens.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        if !self.allows_origin(headers) {
            return Err(FOREIGN_PAGE);
        }
        let shown = digest(&SHA256, shown_token(headers).unwrap_or_default().as_bytes());
        if shown.as_ref() == self.token.as_ref() { Ok(()) } else { Err(WRONG_TOKEN) }
    }

    /// True if the request comes from no web page, or from one that is allowed. Some clients that are no pages, such
    /// as those in React Native, name the host to which they connect. It is one of the agent's own: without TLS,
    /// `check_host` has made sure of that, with it the certificate does.
    pub(crate) fn allows_origin(&self, headers: &HeaderMap) -> bool {
        let own = headers.get(HOST).and_then(|host| host.to_str().ok());
        headers.get_all(ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            let is_own = origin.split_once("://").is_some_and(|(_, host)| Some(host) == own);
            // A copied address ends with a slash, which no browser sends.
            let mut allowed = self.origins.iter().map(|allowed| allowed.trim_end_matches('/'));
            is_own || allowed.any(|allowed| allowed.eq_ignore_ascii_case(origin))
        })
    }
}

/// Returns the token of a request. A web page cannot send the header with a WebSocket, only subprotocols.
fn shown_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return words(headers, SEC_WEBSOCKET_PROTOCOL).find_map(|name| name.strip_prefix(BEARER));
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    (values.next().is_none() && scheme.eq_ignore_ascii_case("bearer")).then(|| token.trim())
}

/// Returns the words of a header that is a list. A list may have several lines.
pub(crate) fn words(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Makes a token of 122 random bits.
pub fn new_token() -> String {
    Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_requests_for_this_machine_are_served() {
        let hosts = ["agent.example", "proxy.example:8443"].map(str::to_owned).to_vec();
        let listening = AccessRules::new("secret", Vec::new(), hosts)
            .listening_unencrypted("127.0.0.2".parse().unwrap());
        let encrypted = AccessRules::new("secret", Vec::new(), Vec::new());
        let table: [(&str, &[&str], bool); 19] = [
            ("/acp", &["127.0.0.1:4077"], true),
            ("/acp", &["127.0.0.2:4077"], true),
            ("/acp", &["[::1]:4077"], true),
            ("/acp", &["localhost"], true),
            ("/acp", &["LOCALHOST.:4077"], true),
            ("/acp", &["Agent.example:80"], true),
            ("/acp", &["proxy.example:8443"], true),
            ("/acp", &["proxy.example"], true),
            ("http://localhost:4077/acp", &["localhost:4077"], true),
            ("/acp", &["evil.example:4077"], false),
            ("/acp", &["localhost.evil.example"], false),
            ("/acp", &["127.0.0.1.evil.example"], false),
            ("/acp", &["localhost@evil.example"], false),
            ("/acp", &["evil.example@localhost"], false),
            ("/acp", &["10.0.0.7:4077"], false),
            ("/acp", &["localhost", "evil.example"], false),
            ("http://evil.example/acp", &["localhost"], false),
            ("/acp", &[""], false),
            ("/acp", &[], false),
        ];
        for (uri, hosts, expected) in table {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_str(host).unwrap());
            }
            let uri: Uri = uri.parse().unwrap();
            let denial = if expected { Ok(()) } else { Err(OTHER_MACHINE) };
            assert_eq!(listening.check_host(&uri, &headers), denial, "{uri} {hosts:?}");
            assert_eq!(encrypted.check_host(&uri, &headers), Ok(()), "the certificate decides");
        }
    }

    #[test]
    fn a_web_page_shows_the_token_as_a_subprotocol() {
        type Row = (&'static [&'static str], Option<&'static str>, Result<(), HttpRefusal>);

        let origins = vec!["https://a.example".to_owned()];
        let rules = AccessRules::new("secret", origins, Vec::new());
        let table: [Row; 8] = [
            (&["acp.v1, bearer.secret"], None, Ok(())),
            (&["bearer.secret,acp.v1"], None, Ok(())),
            (&["acp.v1", "bearer.secret"], None, Ok(())),
            (&["acp.v1, bearer.wrong"], None, Err(WRONG_TOKEN)),
            (&["acp.v1, secret"], None, Err(WRONG_TOKEN)),
            (&["bearer."], None, Err(WRONG_TOKEN)),
            (&["acp.v1, bearer.secret"], Some("Bearer wrong"), Err(WRONG_TOKEN)),
            (&["acp.v1, bearer.wrong"], Some("Bearer secret"), Ok(())),
        ];
        for (protocols, authorization, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(ORIGIN, HeaderValue::from_static("https://a.example"));
            for list in protocols {
                headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(list));
            }
            if let Some(value) = authorization {
                headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            }
            assert_eq!(rules.check(&headers), expected, "{protocols:?} {authorization:?}");
            headers.insert(ORIGIN, HeaderValue::from_static("https://b.example"));
            assert_eq!(rules.check(&headers), Err(FOREIGN_PAGE), "{protocols:?}");
        }
    }

    #[test]
    fn only_the_token_and_allowed_pages_have_access() {
        type Row = (&'static [&'static str], &'static [&'static str], Result<(), HttpRefusal>);

        let origins = ["https://a.example", "https://c.example/"].map(str::to_owned).to_vec();
        let rules = AccessRules::new("secret", origins, Vec::new());
        let token = Err(WRONG_TOKEN);
        let origin = Err(FOREIGN_PAGE);
        let table: [Row; 18] = [
            (&["Bearer secret"], &[], Ok(())),
            (&["bearer secret"], &[], Ok(())),
            (&["Bearer secret"], &["https://a.example"], Ok(())),
            (&["Bearer secret"], &["https://c.example"], Ok(())),
            (&["Bearer secret"], &["http://agent.example:4077"], Ok(())),
            (&["Bearer secret"], &["http://agent.example"], origin),
            (&["Bearer secret"], &["http://agent.example:4077", "https://b.example"], origin),
            (&["Bearer secret"], &["https://b.example"], origin),
            (&["Bearer secret"], &["https://a.example", "https://b.example"], origin),
            (&["Bearer secret"], &["null"], origin),
            (&["Bearer secret"], &[""], origin),
            (&[], &[], token),
            (&["Bearer"], &[], token),
            (&["Bearer "], &[], token),
            (&["Bearer secret2"], &[], token),
            (&["Bearer secre"], &[], token),
            (&["Basic secret"], &[], token),
            (&["Bearer secret", "Bearer wrong"], &[], token),
        ];
        for (authorizations, origins, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("agent.example:4077"));
            for value in authorizations {
                headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            for value in origins {
                headers.append(ORIGIN, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(rules.check(&headers), expected, "{authorizations:?} {origins:?}");
        }
    }
}
