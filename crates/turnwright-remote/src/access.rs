//! Who may use the agent: a request must have the token, and must not come from a web page that was not
//! allowed by name.

use http::header::{AUTHORIZATION, ORIGIN};
use http::{HeaderMap, StatusCode};
use ring::digest::{Digest, SHA256, digest};
use uuid::Uuid;

/// The token and the web pages that are allowed.
#[derive(Debug)]
pub struct AccessRules {
    /// Compared instead of the token, so that the time tells nothing of it.
    token: Digest,
    origins: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessDenial {
    /// The token is missing or wrong.
    Token,
    /// The request comes from a web page that is not allowed.
    Origin,
}

impl AccessDenial {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            AccessDenial::Token => StatusCode::UNAUTHORIZED,
            AccessDenial::Origin => StatusCode::FORBIDDEN,
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            AccessDenial::Token => {
                "The token is missing or wrong. Send `Authorization: Bearer TOKEN`.\n"
            }
            AccessDenial::Origin => "Web pages of this origin are not allowed.\n",
        }
    }
}

impl AccessRules {
    /// Allows requests with this token, and from web pages of these origins, such as `https://example.com`.
    pub fn new(token: &str, origins: Vec<String>) -> AccessRules {
        AccessRules { token: digest(&SHA256, token.as_bytes()), origins }
    }

    /// Checks the headers of a request. The origin comes first, so that a web page learns nothing of tokens.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), AccessDenial> {
        if !self.allows_origin(headers) {
            return Err(AccessDenial::Origin);
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(AccessDenial::Token);
        };
        let value = value.to_str().unwrap_or_default();
        let token =
            value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let token = token.map_or("", |(_, token)| token.trim());
        let is_right = digest(&SHA256, token.as_bytes()).as_ref() == self.token.as_ref();
        if is_right { Ok(()) } else { Err(AccessDenial::Token) }
    }

    /// Whether the request comes from no web page, or from one that is allowed.
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
    fn only_the_token_and_allowed_pages_have_access() {
        type Row = (&'static [&'static str], &'static [&'static str], Result<(), AccessDenial>);

        let rules = AccessRules::new("secret", vec!["https://a.example".to_owned()]);
        let (token, origin) = (Err(AccessDenial::Token), Err(AccessDenial::Origin));
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
