//! Model providers: the provider and model that the settings resolve to; the well-known providers with their base
//! URLs and key variables; and the default provider that a client sets for this process (`providers/set`), which is
//! kept in memory only and gets none of the user's keys. Each key has an origin, so that messages can say where it
//! comes from. The user's settings may add fields to each request to a model, such as `temperature`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use url::{Host, Url};

use crate::resolve::is_credential;
use crate::table::settings;
use crate::{Config, SettingsSnapshot};
use turnwright_llm::{DEFAULT_SILENCE_LIMIT, Protocol};
use turnwright_types::redact;
use turnwright_types::secret::Secret;

/// The default silence limit of a local server, which may have to load the model and read a long prompt without a
/// graphics card.
const LOCAL_SILENCE_LIMIT: Duration = Duration::from_secs(600);
/// Request paths that are stripped from a pasted URL only if they follow a version, such as `/v1`.
const VERSIONED_PATHS: [&str; 5] =
    ["/responses", "/models", "/completions", "/embeddings", "/messages"];
/// Request paths that are stripped in any case. The last two are Ollama's own, whose API is also below `/v1`.
const REQUEST_PATHS: [&str; 3] = ["/chat/completions", "/api/chat", "/api/generate"];
/// The endings of host names that exist only in local networks.
const LOCAL_SUFFIXES: [&str; 4] = [".local", ".localhost", ".internal", ".lan"];

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
    /// The URL that request paths are appended to.
    pub base_url: String,
    /// The key; local servers need none.
    pub key: Option<ProviderKey>,
    /// The model's name as the endpoint knows it, if one is known.
    pub model: Option<String>,
    /// The protocol that the settings name.
    pub api: Option<Protocol>,
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
    /// The time for which the model may send nothing, if set.
    pub silence_limit: Option<Duration>,
}

impl EndpointSettings {
    /// The time for which the model may send nothing.
    pub fn silence_limit(&self) -> Duration {
        self.silence_limit.unwrap_or_else(|| {
            let is_local = Url::parse(&self.base_url).is_ok_and(|url| is_local(&url));
            if is_local { LOCAL_SILENCE_LIMIT } else { DEFAULT_SILENCE_LIMIT }
        })
    }

    /// The base URL without anything that may contain a secret.
    pub fn redacted_url(&self) -> String {
        // A key may have been pasted in its place.
        redact::url(if self.base_url.contains(":/") { &self.base_url } else { "(not a URL)" })
    }

    /// The name of the model in the settings: `NAME/model`, or `model` at the default endpoint.
    pub fn full_name(&self) -> Option<String> {
        let model = self.model.as_ref()?;
        Some(self.name.as_ref().map_or_else(|| model.clone(), |name| format!("{name}/{model}")))
    }
}

/// Returns the base URL in a pasted text. Removes surrounding blanks and quotes, and the request path that some
/// providers include in the address of their API. Adds a scheme that is missing.
pub fn pasted_base_url(text: &str) -> String {
    let address = text.trim_matches(|char: char| char.is_whitespace() || "\"'`<>".contains(char));
    let url = with_scheme(address);
    let (without_query, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let path = without_query.trim_end_matches('/');
    let stripped = REQUEST_PATHS.iter().find_map(|request| path.strip_suffix(request));
    match stripped.or_else(|| strip_versioned_path(path)) {
        Some(base) => format!("{}{query}", base.trim_end_matches('/')),
        None => url,
    }
}

/// Adds the scheme that `localhost:8080` or `example.com/v1` lacks. A key may have dots, but no port and no path.
fn with_scheme(address: &str) -> String {
    let host = address.split('/').next().unwrap_or_default();
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port && (host == address || !host.contains('.')) {
        return address.to_owned();
    }
    let plain = format!("http://{address}");
    let is_near = Url::parse(&plain).is_ok_and(|url| is_local(&url));
    if is_near { plain } else { format!("https://{address}") }
}

/// Strips a request path that follows a version. Without a version, the path may belong to the base URL.
fn strip_versioned_path(address: &str) -> Option<&str> {
    let base = VERSIONED_PATHS.iter().find_map(|path| address.strip_suffix(path))?;
    let version = base.rsplit('/').next()?.strip_prefix('v')?;
    version.starts_with(|char: char| char.is_ascii_digit()).then_some(base)
}

/// Deserializes a base URL, which the user may have pasted into a settings file.
pub(crate) fn read_base_url<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(|text| pasted_base_url(&text)))
}

/// Returns true if the server is on this machine or in its local network.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            !name.contains('.') || LOCAL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        }
        Some(Host::Ipv4(ip)) => {
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()
        }
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

/// A well-known provider.
#[derive(Debug)]
pub struct ProviderPreset {
    /// The name, as in `NAME/model`.
    pub name: &'static str,
    /// The base URL; `None` if every account has its own.
    pub base_url: Option<&'static str>,
    /// The variable that the provider's own documentation uses for the key; `None` for local servers.
    pub key_env: Option<&'static str>,
}

/// A hosted provider.
const fn hosted(
    name: &'static str,
    base_url: &'static str,
    key_env: &'static str,
) -> ProviderPreset {
    ProviderPreset { name, base_url: Some(base_url), key_env: Some(key_env) }
}

/// A server on this machine, at its default port.
const fn local(name: &'static str, base_url: &'static str) -> ProviderPreset {
    ProviderPreset { name, base_url: Some(base_url), key_env: None }
}

/// The well-known providers, hosted ones first.
pub const PRESETS: &[ProviderPreset] = &[
    hosted(crate::OPENAI_PROVIDER, crate::OPENAI_BASE_URL, "OPENAI_API_KEY"),
    ProviderPreset { name: "azure", base_url: None, key_env: Some("AZURE_OPENAI_API_KEY") },
    hosted("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    hosted("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    hosted(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    hosted("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    hosted("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    hosted("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY"),
    hosted("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    hosted("together", "https://api.together.ai/v1", "TOGETHER_API_KEY"),
    hosted("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    hosted("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    hosted("anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    hosted("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    local("ollama", "http://localhost:11434/v1"),
    local("lmstudio", "http://localhost:1234/v1"),
    local("llamacpp", "http://localhost:8080/v1"),
    local("vllm", "http://localhost:8000/v1"),
    local("sglang", "http://localhost:30000/v1"),
];

/// Returns true if this is the base URL of OpenAI's own API.
pub fn is_openai_url(base_url: &str) -> bool {
    base_url.trim_end_matches('/') == crate::OPENAI_BASE_URL
}

/// The well-known provider of this name.
pub fn preset(name: &str) -> Option<&'static ProviderPreset> {
    PRESETS.iter().find(|provider| provider.name == name)
}

/// Returns true if a well-known provider keeps its key in this variable.
pub(crate) fn is_key_variable(name: &str) -> bool {
    PRESETS.iter().any(|provider| provider.key_env == Some(name))
}

/// A key and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderKey {
    /// The key itself.
    pub secret: Secret,
    /// The place to name in messages about the key.
    pub origin: KeyOrigin,
}

/// Where a key comes from. Displayed as the name of the variable or the path of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// An environment variable.
    Variable(String),
    /// The file with the stored logins.
    Login(PathBuf),
    /// A `key_file` in the settings.
    File(PathBuf),
}

impl KeyOrigin {
    /// Returns advice for the user about a key that the server has rejected.
    pub fn advice(&self) -> String {
        match self {
            // This variable takes precedence over a stored login, so it has to be unset first.
            KeyOrigin::Variable(name) if is_key_variable(name) => {
                format!("Check the key in {name}, or unset it and run `turnwright login`")
            }
            KeyOrigin::Login(_) => {
                format!("Check the key in {self}, or run `turnwright login` again")
            }
            KeyOrigin::Variable(_) | KeyOrigin::File(_) => format!("Check the key in {self}"),
        }
    }
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyOrigin::Variable(name) => formatter.write_str(name),
            KeyOrigin::Login(path) | KeyOrigin::File(path) => path.display().fmt(formatter),
        }
    }
}

/// The default provider as the client has set it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ClientProvider {
    /// Nothing: the user's settings apply.
    #[default]
    Unset,
    /// The default endpoint is this one, with these headers.
    Set { base_url: String, headers: Vec<(String, Secret)> },
    /// There is no default provider.
    Disabled,
}

/// The state of the user's sign-in to the provider of the default model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignIn {
    Done,
    Missing,
    /// The default model is the offline one, or no key is set for its server.
    NotNeeded,
    /// The settings cannot be read.
    Unknown,
}

/// The accounts that have keys, in a form that a client may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountStatus {
    /// The state for the default model.
    pub sign_in: SignIn,
    /// The name of each account, and true for the account of the default model.
    pub accounts: Vec<(String, bool)>,
}

impl Config {
    /// Replaces the default provider for this process.
    pub fn set_client_provider(&self, provider: ClientProvider) {
        *self.client_provider.lock() = provider;
    }
}

impl SettingsSnapshot<'_> {
    /// Returns true if the client has replaced or disabled the default provider.
    pub(crate) fn is_set_by_client(&self) -> bool {
        self.client_provider != ClientProvider::Unset
    }

    pub(crate) fn is_disabled_by_client(&self) -> bool {
        self.client_provider == ClientProvider::Disabled
    }

    /// The credentials among the headers that the client has set.
    pub(crate) fn client_secrets(&self) -> Vec<String> {
        let ClientProvider::Set { headers, .. } = &self.client_provider else {
            return Vec::new();
        };
        let credentials = headers.iter().filter(|header| is_credential(&header.0));
        let values = credentials.filter_map(|header| redact::header_key(header.1.expose()));
        values.map(str::to_owned).collect()
    }

    /// The base URL of the default provider, without secrets; `None` for the offline model or none at all.
    pub fn default_base_url(&self) -> Option<String> {
        let Ok(Provider::Endpoint(endpoint)) = self.provider() else { return None };
        Some(endpoint.redacted_url())
    }

    /// Returns the accounts that have keys. `is_offline` means that the offline model is used if no provider is
    /// configured.
    pub fn account_status(&self, is_offline: bool) -> AccountStatus {
        let mut logins = self.logins.all().iter().filter(|login| login.key.is_some());
        let mut accounts: Vec<_> = logins.clone().map(|login| (login.name(), false)).collect();
        let sign_in = match self.provider() {
            Ok(Provider::Unconfigured) if !is_offline => SignIn::Missing,
            Ok(Provider::Offline | Provider::Unconfigured) => SignIn::NotNeeded,
            Ok(Provider::Endpoint(endpoint)) => {
                let has_header = endpoint.headers.iter().any(|header| is_credential(&header.0));
                if endpoint.key.is_none() && !has_header {
                    SignIn::NotNeeded
                } else {
                    let server = endpoint.base_url.trim_end_matches('/');
                    match logins.position(|login| login.server() == Some(server)) {
                        Some(index) => accounts[index].1 = true,
                        None => {
                            let name = endpoint.name.unwrap_or_else(|| redact::url(server));
                            accounts.push((name, true));
                        }
                    }
                    SignIn::Done
                }
            }
            Err(_) => SignIn::Unknown,
        };
        AccountStatus { sign_in, accounts }
    }
}

/// The fields that the agent sets itself, each with the reason or with the setting to use instead.
const RESERVED: &[(&str, &str)] = &[
    ("model", "name the model in `model`"),
    ("messages", "it holds the conversation"),
    ("input", "it holds the conversation"),
    ("instructions", "set `agent.system_prompt`"),
    ("system", "set `agent.system_prompt`"),
    ("tools", "the agent decides which tools there are"),
    ("tool_choice", "the agent needs the model's choice"),
    ("functions", "the agent decides which tools there are"),
    ("function_call", "the agent needs the model's choice"),
    ("stream", "answers are always streamed"),
    ("stream_options", "set the quirk `stream_options`"),
    ("n", "one answer is read"),
    ("background", "answers are always streamed"),
    ("previous_response_id", "the conversation is sent with each request"),
    ("conversation", "the conversation is sent with each request"),
    ("max_tokens", "set `max_output`"),
    ("max_completion_tokens", "set `max_output`"),
    ("max_output_tokens", "set `max_output`"),
];

/// Merges the tables, of which later ones override earlier ones. Drops the fields that the agent sets itself.
pub(crate) fn merge_request_fields<'a>(
    tables: impl IntoIterator<Item = &'a Map<String, Value>>,
) -> Map<String, Value> {
    let fields = tables.into_iter().flatten().filter(|field| reserved(field.0).is_none());
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns a sentence for each field in the setting `key` that the agent sets itself.
pub(crate) fn reserved_field_errors(key: &str, fields: &Map<String, Value>) -> Vec<String> {
    let errors = fields.keys().filter_map(|name| {
        let why = reserved(name)?;
        Some(format!("`{key}` contains `{name}`, which the agent sets itself: {why}"))
    });
    errors.collect()
}

/// Formats the fields on one line, for display.
pub(crate) fn describe_request_fields(fields: &Map<String, Value>) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    fields.join(", ")
}

/// Returns why a field is reserved for the agent; `None` if it is not.
fn reserved(name: &str) -> Option<&'static str> {
    RESERVED.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            ("https://h/v1/messages", "https://h/v1"),
            ("http://h:11434/api/chat", "http://h:11434"),
            ("http://h:11434/api/generate", "http://h:11434"),
            ("https://h/api/chat/completions", "https://h/api"),
            // Without the scheme.
            ("localhost:8000/v1/models", "http://localhost:8000/v1"),
            ("0.0.0.0:11434", "http://0.0.0.0:11434"),
            ("192.168.1.7:8000/v1/", "http://192.168.1.7:8000/v1/"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("api.example.com/v1/chat/completions", "https://api.example.com/v1"),
            ("example.com:8443/v1?key=k", "https://example.com:8443/v1?key=k"),
            ("http:/localhost:80/v1", "http:/localhost:80/v1"),
            ("ftp://h.example/v1", "ftp://h.example/v1"),
            // Perhaps a key, or a word.
            ("0123456789abcdef.0123456789abcdef", "0123456789abcdef.0123456789abcdef"),
            ("sk-0123456789abcdef", "sk-0123456789abcdef"),
            ("localhost", "localhost"),
            ("", ""),
        ] {
            assert_eq!(pasted_base_url(pasted), expected, "{pasted}");
        }
    }

    #[test]
    fn a_key_in_the_place_of_a_base_url_is_not_shown() {
        for (given, shown) in [
            ("sk-0123456789abcdef", "(not a URL)"),
            ("0123456789abcdef.0123456789abcdef", "(not a URL)"),
            ("https://me:secret@h/v1", "https://h/v1"),
        ] {
            let base_url = pasted_base_url(given);
            let endpoint = EndpointSettings { base_url, ..EndpointSettings::default() };
            assert_eq!(endpoint.redacted_url(), shown);
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
            ("http://0.0.0.0:8080/v1", 600),
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

    #[test]
    fn names_and_keys_are_unique_and_keys_are_sent_only_over_https() {
        for (number, one) in PRESETS.iter().enumerate() {
            for other in &PRESETS[number + 1..] {
                assert_ne!(one.name, other.name);
                assert!(one.base_url != other.base_url || one.base_url.is_none(), "{}", one.name);
                assert!(one.key_env != other.key_env || one.key_env.is_none(), "{}", one.name);
            }
            let Some(url) = one.base_url else { continue };
            let scheme = if one.key_env.is_some() { "https://" } else { "http://localhost:" };
            assert!(url.starts_with(scheme) && !url.ends_with('/'), "{url}");
        }
    }

    #[test]
    fn the_manual_has_the_same_table() {
        let manual = include_str!("../../../docs/configuration.md");
        for preset in PRESETS {
            let url = preset.base_url.map_or("must be given".to_owned(), |url| format!("`{url}`"));
            let key = preset.key_env.map_or("none".to_owned(), |variable| format!("`{variable}`"));
            let row = format!("| `{}` | {url} | {key} |", preset.name);
            assert!(manual.contains(&row), "{row}");
        }
    }

    #[test]
    fn the_advice_names_the_place_of_the_key() {
        for (origin, expected) in [
            (
                KeyOrigin::Variable("OPENAI_API_KEY".to_owned()),
                "Check the key in OPENAI_API_KEY, or unset it and run `turnwright login`",
            ),
            (KeyOrigin::Variable("MINE".to_owned()), "Check the key in MINE"),
            (KeyOrigin::File("/c/mine.key".into()), "Check the key in /c/mine.key"),
            (
                KeyOrigin::Login("/c/login.json".into()),
                "Check the key in /c/login.json, or run `turnwright login` again",
            ),
        ] {
            assert_eq!(origin.advice(), expected);
        }
    }

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_model_s_fields_override_its_provider_s_and_reserved_ones_are_refused_in_words() {
        let provider = map(&json!({ "temperature": 0.2, "top_p": 0.9, "stream": false }));
        let model = map(&json!({ "temperature": 1, "messages": [], "max_tokens": 7 }));
        let merged = merge_request_fields([&provider, &model]);
        assert_eq!(Value::from(merged.clone()), json!({ "temperature": 1, "top_p": 0.9 }));
        assert_eq!(describe_request_fields(&merged), "temperature = 1, top_p = 0.9");
        assert_eq!(reserved_field_errors("providers.x.request", &merged), [""; 0]);
        let errors = reserved_field_errors("providers.x.model.\"m\".request", &model);
        assert_eq!(
            errors,
            [
                "`providers.x.model.\"m\".request` contains `messages`, which the agent sets itself: it \
                 holds the conversation",
                "`providers.x.model.\"m\".request` contains `max_tokens`, which the agent sets itself: \
                 set `max_output`",
            ]
        );
    }
}
