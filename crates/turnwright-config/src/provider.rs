//! The resolved provider and model, as plain values.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use url::{Host, Url};

use crate::key::ProviderKey;
use crate::table::settings;
use turnwright_llm::{DEFAULT_SILENCE_LIMIT, Protocol};
use turnwright_types::redact;
use turnwright_types::secret::Secret;

/// How long a local server may send nothing unless it is set otherwise. It may have to load the model
/// and read a long prompt without a graphics card.
const LOCAL_SILENCE_LIMIT: Duration = Duration::from_secs(600);
/// Where requests go, below a base URL.
const REQUEST_PATHS: [&str; 4] = ["/responses", "/models", "/completions", "/embeddings"];
/// The ends of names that only a local network knows.
const LOCAL_NAMES: [&str; 4] = [".local", ".localhost", ".internal", ".lan"];

/// The provider to use. Equal values can share one model client.
#[derive(Clone, Debug, PartialEq)]
pub enum Provider {
    /// The built-in offline model.
    Offline,
    /// A model at an endpoint.
    Endpoint(Box<EndpointSettings>),
    /// No provider is configured.
    Unconfigured,
}

/// An endpoint and a model at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointSettings {
    /// The name of the settings section or the well-known provider; `None` for the default endpoint.
    pub name: Option<String>,
    /// The URL below which requests go.
    pub base_url: String,
    /// The key; local servers need none.
    pub key: Option<ProviderKey>,
    /// The model's name as the endpoint knows it, if one is known.
    pub model: Option<String>,
    /// The protocol that the endpoint speaks.
    pub api: Protocol,
    /// Headers of each request, which may contain credentials.
    pub headers: Vec<(String, Secret)>,
    /// Provider and model quirks, which the `llm` crate interprets.
    pub quirks: Map<String, Value>,
    /// Fields that the user adds to each request.
    pub request: Map<String, Value>,
    /// The model's context window in tokens, if set.
    pub window: Option<u64>,
    /// The size of the window to assume if it is not known, if set.
    pub assumed_window: Option<u64>,
    /// The most output tokens of one answer, if set.
    pub max_output: Option<u64>,
    /// The price of the model's tokens, if set.
    pub price: Option<Price>,
    /// How long the model may send nothing, if set.
    pub silence_limit: Option<Duration>,
}

impl EndpointSettings {
    /// How long the model may send nothing.
    pub fn silence_limit(&self) -> Duration {
        self.silence_limit.unwrap_or_else(|| {
            let is_local = Url::parse(&self.base_url).is_ok_and(|url| is_local(&url));
            if is_local { LOCAL_SILENCE_LIMIT } else { DEFAULT_SILENCE_LIMIT }
        })
    }

    /// The base URL without anything that may contain a secret.
    pub fn redacted_url(&self) -> String {
        redact::url(&self.base_url)
    }

    /// The name of the model in the settings: `NAME/model`, or `model` at the default endpoint.
    pub fn full_name(&self) -> Option<String> {
        let model = self.model.as_ref()?;
        Some(self.name.as_ref().map_or_else(|| model.clone(), |name| format!("{name}/{model}")))
    }
}

/// The base URL in what somebody has pasted: without blanks and quotes around it, and without the path of a
/// request that providers show as the address of their API.
pub fn pasted_base_url(text: &str) -> String {
    let url = text.trim_matches(|char: char| char.is_whitespace() || "\"'`<>".contains(char));
    let (place, query) = match url.split_once('?') {
        Some((place, query)) => (place, format!("?{query}")),
        None => (url, String::new()),
    };
    let place = place.trim_end_matches('/');
    match place.strip_suffix("/chat/completions").or_else(|| strip_versioned_path(place)) {
        Some(base) => format!("{}{query}", base.trim_end_matches('/')),
        None => url.to_owned(),
    }
}

/// Strips one of the request paths. A server may have any other path, and one of these without a version before
/// it, which is kept.
fn strip_versioned_path(place: &str) -> Option<&str> {
    let base = REQUEST_PATHS.iter().find_map(|path| place.strip_suffix(path))?;
    let version = base.rsplit('/').next()?.strip_prefix('v')?;
    version.starts_with(|char: char| char.is_ascii_digit()).then_some(base)
}

/// Reads a base URL from a file.
pub(crate) fn read_base_url<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(|text| pasted_base_url(&text)))
}

/// Returns true if the server is on this machine or in its network.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            !name.contains('.') || LOCAL_NAMES.iter().any(|local| name.ends_with(local))
        }
        Some(Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Some(Host::Ipv6(ip)) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
        None => false,
    }
}

settings! {
    /// Prices in US dollars per million tokens. Without one of its own, cached input costs as much as other input.
    #[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
    pub section Price {
        pub input: f64 { required: true } "US dollars per million input tokens.";
        pub cached: Option<f64> {} "US dollars per million input tokens from the provider's cache.";
        pub output: f64 { required: true } "US dollars per million output tokens.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pasted_address_of_an_api_is_its_base_url() {
        for (pasted, expected) in [
            ("https://h/v1", "https://h/v1"),
            ("https://h/v1/", "https://h/v1/"),
            ("https://h/v1/chat/completions", "https://h/v1"),
            ("https://h/v1/chat/completions/", "https://h/v1"),
            (" \"https://h/v1/chat/completions\"\n", "https://h/v1"),
            ("'https://h/v1'", "https://h/v1"),
            ("<https://h/api/paas/v4/chat/completions>", "https://h/api/paas/v4"),
            ("https://h/chat/completions", "https://h"),
            ("https://h/v1/responses", "https://h/v1"),
            ("https://h/v1beta/models/", "https://h/v1beta"),
            ("https://h/v1/completions", "https://h/v1"),
            ("https://h/v1/embeddings", "https://h/v1"),
            ("https://h/d/gpt/chat/completions?api-version=1", "https://h/d/gpt?api-version=1"),
            ("https://h/v1?key=k", "https://h/v1?key=k"),
            // These may be what the server calls its API.
            ("https://h/models", "https://h/models"),
            ("https://h/my/responses", "https://h/my/responses"),
            ("https://h/vllm/models", "https://h/vllm/models"),
            ("localhost:8000/v1/models", "localhost:8000/v1"),
            ("", ""),
        ] {
            assert_eq!(pasted_base_url(pasted), expected, "{pasted}");
        }
    }

    #[test]
    fn a_local_server_may_be_silent_for_longer_and_a_set_limit_applies_to_all() {
        for (base_url, expected) in [
            ("https://api.openai.com/v1", 300),
            ("https://8.8.8.8/v1", 300),
            ("https://internal.example.com/v1", 300),
            ("not a URL", 300),
            ("http://localhost:11434/v1", 600),
            ("http://ollama:11434/v1", 600),
            ("http://box.local./v1", 600),
            ("http://127.0.0.1:8080/v1", 600),
            ("http://192.168.1.7/v1", 600),
            ("http://[::1]/v1", 600),
            ("http://[fd00::1]/v1", 600),
        ] {
            let base_url = base_url.to_owned();
            let mut endpoint = EndpointSettings { base_url, ..EndpointSettings::default() };
            assert_eq!(endpoint.silence_limit().as_secs(), expected, "{}", endpoint.base_url);
            endpoint.silence_limit = Some(Duration::from_secs(7));
            assert_eq!(endpoint.silence_limit().as_secs(), 7, "{}", endpoint.base_url);
        }
    }
}
