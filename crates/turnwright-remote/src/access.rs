//! Who may use the agent: a request must have the token, must not come from a web page that was not
//! allowed by name, and must be for this machine. A web page whose name suddenly leads to this machine (DNS
//! rebinding) would otherwise be taken for one of the agent's own.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};
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
        let (Some(host), None) = (named.next(), named.next()) else {
            return Err(OTHER_MACHINE);
        };
        let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let all_allowed = uri.authority().into_iter().chain(&host).all(|authority| {
            !authority.as_str().contains('@') && self.allows_host(authority.host(), address)
        });
        if host.is_some() && all_allowed { Ok(()) } else { Err(OTHER_MACHINE) }
    }

    fn allows_host(&self, host: &str, address: IpAddr) -> bool {
        let name = host.trim_end_matches('.');
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        literal.is_ok_and(|ip| ip.is_loopback() || ip == address)
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
    }

    /// Checks the headers of a request. The origin comes first, so that a web page learns nothing of tokens.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        if !self.allows_origin(headers) {
            return Err(FOREIGN_PAGE);
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(WRONG_TOKEN);
        };
        let value = value.to_str().unwrap_or_default();
        let scheme_and_token =
            value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let token = scheme_and_token.map_or("", |(_, token)| token.trim());
        let is_right = digest(&SHA256, token.as_bytes()).as_ref() == self.token.as_ref();
        if is_right { Ok(()) } else { Err(WRONG_TOKEN) }
    }

    /// True if the request comes from no web page, or from one that is allowed.
    pub(crate) fn allows_origin(&self, headers: &HeaderMap) -> bool {
        headers.get_all(ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
        })
    }
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
        let listening = AccessRules::new("secret", Vec::new(), vec!["agent.example".to_owned()])
            .listening_unencrypted("127.0.0.2".parse().unwrap());
        let encrypted = AccessRules::new("secret", Vec::new(), Vec::new());
        let table: [(&str, &[&str], bool); 17] = [
            ("/acp", &["127.0.0.1:4077"], true),
            ("/acp", &["127.0.0.2:4077"], true),
            ("/acp", &["[::1]:4077"], true),
            ("/acp", &["localhost"], true),
            ("/acp", &["LOCALHOST.:4077"], true),
            ("/acp", &["Agent.example:80"], true),
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
    fn only_the_token_and_allowed_pages_have_access() {
        type Row = (&'static [&'static str], &'static [&'static str], Result<(), HttpRefusal>);

        let origins = vec!["https://a.example".to_owned()];
        let rules = AccessRules::new("secret", origins, Vec::new());
        let token = Err(WRONG_TOKEN);
        let origin = Err(FOREIGN_PAGE);
        let table: [Row; 14] = [
            (&["Bearer secret"], &[], Ok(())),
            (&["bearer secret"], &[], Ok(())),
            (&["Bearer secret"], &["https://a.example"], Ok(())),
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
