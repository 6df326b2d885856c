//! The format of `config.toml`: parses it and warns about entries that have no effect. Does no I/O.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::checks::CheckTable;
use super::document::key_text;
use super::limits::LimitsSection;
use super::presets::{ProviderPreset, preset};
use super::provider::{Price, read_base_url};
use super::resolve::is_credential;
use super::sandbox::SandboxSection;
use super::servers::McpSection;
use super::{ConfigError, PermissionSection};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::json_error_text::field_error_text;
use turnwright_types::redact;

/// The user's settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigFile {
    pub(super) model: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) max_turn_requests: Option<NonZeroU32>,
    pub(super) effort: Option<String>,
    pub(super) list_models: Option<bool>,
    pub(super) silence_seconds: Option<NonZeroU32>,
    pub(super) models: ModelsSection,
    pub(super) agent: AgentSection,
    pub(super) checks: CheckTable,
    pub(super) web: WebSection,
    pub(super) acp: AcpSection,
    pub(super) sessions: SessionRetention,
    pub(super) limits: LimitsSection,
    pub(super) permissions: PermissionSection,
    pub(super) sandbox: SandboxSection,
    pub(super) providers: BTreeMap<String, ProviderSection>,
    pub(super) mcp: McpSection,
}

/// `[models]`: settings for all models.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ModelsSection {
    /// The size of a context window in tokens to assume where it is not known.
    pub(super) assumed_window: Option<NonZeroU32>,
    /// Fields of each request.
    pub(super) request: Map<String, Value>,
    /// Models by their whole name, also at the default endpoint.
    pub(super) model: BTreeMap<String, NamedModelSection>,
}

/// `[models.model."NAME"]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedModelSection {
    pub(super) request: Map<String, Value>,
}

/// `[agent]`: the agent's name, and instructions in addition to the built-in ones.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AgentSection {
    /// The name in place of ours.
    pub name: Option<String>,
    /// Text that follows the built-in instructions.
    pub system_prompt: Option<String>,
}

/// `[acp]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AcpSection {
    /// True if a client may use version 2 of the protocol.
    pub(super) v2: Option<bool>,
}

/// `[web]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WebSection {
    pub(super) allow: Vec<String>,
}

/// `[sessions]`: how long and how much session data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SessionRetention {
    /// Days without activity after which a session is deleted; 0 for never.
    pub keep_days: u32,
    /// The most megabytes of all sessions together; 0 for no limit.
    pub max_size: u64,
}

impl Default for SessionRetention {
    fn default() -> SessionRetention {
        SessionRetention { keep_days: 90, max_size: 1024 }
    }
}

/// `[providers.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProviderSection {
    #[serde(deserialize_with = "read_base_url")]
    pub(super) base_url: Option<String>,
    pub(super) api: Option<String>,
    pub(super) key_env: Option<String>,
    pub(super) key_file: Option<String>,
    /// A mistake: keys do not belong in this file. The value is not read.
    #[serde(deserialize_with = "is_present")]
    key: bool,
    #[serde(deserialize_with = "is_present")]
    api_key: bool,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) models: Vec<String>,
    pub(super) quirks: Map<String, Value>,
    /// Fields of each request.
    pub(super) request: Map<String, Value>,
    pub(super) model: BTreeMap<String, ModelSection>,
}

/// `[providers.NAME.model."MODEL"]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ModelSection {
    pub(super) window: Option<u64>,
    pub(super) max_output: Option<u64>,
    pub(super) quirks: Map<String, Value>,
    pub(super) request: Map<String, Value>,
    pub(super) price: Option<Price>,
}

/// The longest name of the agent.
const MAX_NAME_CHARS: usize = 100;

/// Skips a value, and returns that it is there.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Value::deserialize(deserializer).map(|_| true)
}

impl AgentSection {
    /// The name, unless it cannot be one.
    pub(crate) fn usable_name(&self) -> Option<&str> {
        let name = self.name.as_deref().map(str::trim)?;
        let is_usable = !name.is_empty()
            && name.chars().count() <= MAX_NAME_CHARS
            && !name.chars().any(char::is_control);
        is_usable.then_some(name)
    }
}

impl ProviderSection {
    /// True if the section contains a key itself, which is refused.
    pub(super) fn holds_key(&self) -> bool {
        self.key || self.api_key
    }

    /// The variables that the section refers to.
    fn variables(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.values().filter_map(|value| referenced_variable(value));
        self.key_env.as_deref().into_iter().chain(headers)
    }
}

/// The variable to which a header's value refers: the whole value is `$NAME`.
pub(super) fn referenced_variable(value: &str) -> Option<&str> {
    value.strip_prefix('$').filter(|name| !name.is_empty())
}

impl ConfigFile {
    /// Parses the text of the file. Returns the settings and a warning about each entry that has no effect.
    pub(super) fn parse(text: &str, path: &Path) -> Result<(ConfigFile, Vec<String>), ConfigError> {
        let (file, mut notes) = read_settings::<ConfigFile>(text, path)?;
        notes.extend(file.mcp.problems.iter().cloned());
        file.warn_ineffective_values(&mut notes);
        let warnings = notes.into_iter().map(|note| format!("{}: {note}", path.display()));
        Ok((file, warnings.collect()))
    }

    /// The tables with fields of requests, each with the key of the table that it is in.
    pub(super) fn request_tables(&self) -> Vec<(String, &Map<String, Value>)> {
        let mut tables = vec![("models".to_owned(), &self.models.request)];
        for (model, section) in &self.models.model {
            tables.push((format!("models.model.\"{model}\""), &section.request));
        }
        for (name, provider) in &self.providers {
            tables.push((format!("providers.{name}"), &provider.request));
            for (model, section) in &provider.model {
                tables.push((format!("providers.{name}.model.\"{model}\""), &section.request));
            }
        }
        tables
    }

    /// The variables that the file refers to. They hold keys.
    pub(super) fn variables(&self) -> Vec<String> {
        self.providers.values().flat_map(ProviderSection::variables).map(str::to_owned).collect()
    }

    /// The values in the file that are credentials by the name of their header or variable.
    pub(super) fn literal_credentials(&self) -> Vec<String> {
        let headers = self.providers.values().flat_map(|provider| &provider.headers);
        let literal = headers
            .filter(|header| is_credential(header.0) && referenced_variable(header.1).is_none());
        let values = literal.filter_map(|header| redact::header_key(header.1));
        values.map(str::to_owned).chain(self.mcp.secrets(is_credential)).collect()
    }

    fn warn_ineffective_values(&self, notes: &mut Vec<String>) {
        for (name, section) in &self.providers {
            if section.holds_key() {
                notes.push(format!(
                    "`providers.{name}` contains a key (ignored): refer to it with `key_env` or \
                     `key_file` instead"
                ));
            }
            let says_key = section.key_env.is_some() || section.key_file.is_some();
            if let Some(variable) = withheld_key_variable(name, section).filter(|_| !says_key) {
                notes.push(format!(
                    "`providers.{name}` has its own `base_url`, so the key in {variable} is not \
                     sent there. To send it, add `key_env = \"{variable}\"`"
                ));
            }
        }
    }
}

/// The key variable of the well-known provider of this name, if the section's `base_url` leads elsewhere,
/// so that its key must not be sent there.
pub(super) fn withheld_key_variable(name: &str, section: &ProviderSection) -> Option<&'static str> {
    let known = preset(name)?;
    leads_elsewhere(known, section).then_some(known.key_env)?
}

/// Returns true if the section's `base_url` is not that of its well-known provider.
pub(super) fn leads_elsewhere(known: &ProviderPreset, section: &ProviderSection) -> bool {
    match (known.base_url, section.base_url.as_deref()) {
        (Some(usual), Some(own)) => own.trim_end_matches('/') != usual,
        _ => false,
    }
}

/// Reads settings from the text of a file. Also returns a warning about each entry that is not known: an entry
/// of a newer version must not be an error in an older one.
pub(super) fn read_settings<T: DeserializeOwned>(
    text: &str,
    path: &Path,
) -> Result<(T, Vec<String>), ConfigError> {
    let to_error =
        |error: toml_edit::de::Error| parse_error(error.span(), error.message(), text, path);
    let reader = toml_edit::de::Deserializer::parse(text).map_err(to_error)?;
    let mut unknown = Vec::new();
    let settings = serde_ignored::deserialize(reader, |entry| {
        unknown.push(unknown_setting(&keys_of(&entry)));
    });
    Ok((settings.map_err(to_error)?, unknown))
}

/// The keys that lead to an entry.
pub(super) fn keys_of(entry: &serde_ignored::Path<'_>) -> Vec<String> {
    use serde_ignored::Path;
    match entry {
        Path::Root => Vec::new(),
        Path::Map { parent, key } => {
            let mut keys = keys_of(parent);
            keys.push(key.clone());
            keys
        }
        Path::Seq { parent, .. }
        | Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => keys_of(parent),
    }
}

pub(super) fn unknown_setting(keys: &[impl AsRef<str>]) -> String {
    format!("Unknown setting `{}` (ignored)", escape_hidden_line(&key_text(keys)))
}

/// Describes a parse error with its position, in one line. Quotes nothing of the file, which may contain
/// a secret.
pub(super) fn parse_error(
    span: Option<Range<usize>>,
    message: &str,
    text: &str,
    path: &Path,
) -> ConfigError {
    let start = span.map_or(text.len(), |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    ConfigError::new(format!(
        "The settings cannot be read: {}, line {line}, column {column}: {}. Fix the file; new \
         sessions re-read it",
        path.display(),
        redacted_message(message)
    ))
}

/// The message of a TOML error in one line, without the quoted value, which may be a secret.
pub(super) fn redacted_message(message: &str) -> String {
    let mut message = field_error_text("", message.trim()).replace(['\n', '\r'], " ");
    if let (Some(first), Some(last)) = (message.find('"'), message.rfind('"'))
        && first < last
    {
        message.replace_range(first..=last, "\"…\"");
    }
    // JSON calls a table an object.
    message.replace("an object", "a table")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(ConfigFile, Vec<String>), ConfigError> {
        ConfigFile::parse(text, Path::new("c.toml"))
    }

    #[test]
    fn every_setting_is_known() {
        let text = r#"
            model = "deepseek/deepseek-chat"
            mode = "plan"
            max_turn_requests = 7
            effort = "high"
            list_models = false
            silence_seconds = 600

            [agent]
            name = "Ada"
            system_prompt = "Answer in verse."

            [checks]
            rust = "cargo check --message-format short"

            [web]
            allow = ["localhost:3000", "10.0.0.7"]

            [sessions]
            keep_days = 30
            max_size = 512

            [limits]
            stop_loops = false
            turn_tokens = 1000000
            turn_cost = 2
            turn_minutes = 60
            session_requests = 1000
            session_tokens = 10000000
            session_cost = 12.5
            session_minutes = 600

            [permissions]
            allow = ["exec(cargo test)"]
            ask = ["exec(git push)"]
            deny = ["read(.env)"]

            [[permissions.rule]]
            effect = "allow"
            when = "exec(npm test)"
            match = ["npm test"]
            not = ["npm install"]
            why = "it is harmless"

            [sandbox]
            network = "off"
            read = "all"
            write = ["/data"]
            caches = ["~/.npm"]
            hide = ["~/.aws"]
            protect = ["deploy"]

            [providers.deepseek]
            base_url = "https://api.deepseek.com/v1"
            api = "chat"
            key_env = "MY_DEEP"
            key_file = "~/key"
            headers = { "X-Title" = "me", Cookie = "$COOKIE" }
            models = ["deepseek-chat"]
            quirks = { a = 1, b = { c = ["d"] } }
            request = { temperature = 0.2 }

            [providers.deepseek.model."deepseek-reasoner"]
            window = 131072
            max_output = 8192
            quirks = { a = 2 }
            request = { top_p = 0.9, extra = { x = [1] } }
            price = { input = 0.27, cached = 0.07, output = 1.10 }

            [mcp]
            wait_seconds = 3

            [mcp.servers.notes]
            command = "notes-server"
            args = ["--all"]
            env = { TOKEN = "${NOTES_TOKEN}" }
            enabled = true
            shared = true
            start_seconds = 9
            call_seconds = 60
            most_seconds = 600
            tools = ["read_*"]
            without_tools = ["read_secret"]
            sandbox = true
            network = true
            write = ["~/notes"]
            read = ["~/.config/notes"]

            [mcp.servers.web]
            url = "https://example.com/mcp"
            headers = { Authorization = "Bearer ${WEB_TOKEN}" }
        "#;
        let (file, warnings) = parse(text).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(file.variables(), ["MY_DEEP", "COOKIE"]);
        let section = &file.providers["deepseek"];
        assert_eq!(Value::from(section.quirks.clone()), serde_json::json!({"a":1,"b":{"c":["d"]}}));
        let model = &section.model["deepseek-reasoner"];
        let price = Price { input: 0.27, cached: Some(0.07), output: 1.10 };
        assert_eq!((model.window, model.price), (Some(131_072), Some(price)));
    }

    #[test]
    fn the_examples_of_the_manual_have_effect() {
        let manual = include_str!("../../docs/configuration.md");
        let examples: Vec<_> = manual.split("```toml\n").skip(1).collect();
        assert!(examples.len() > 3);
        for example in examples {
            let text = example.split("```").next().unwrap();
            assert_eq!(parse(text).unwrap().1, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn ineffective_entries_are_warnings_with_their_path() {
        let table = [
            ("modle = 'x'", "`modle`"),
            ("[provider.x]", "`provider`"),
            ("[providers.x]\nbase = 'y'", "`providers.x.base`"),
            ("[providers.x.model.'m-1.5']\ncost = 1", "`providers.x.model.\"m-1.5\".cost`"),
            (
                "[providers.x.model.m]\nprice = { input = 1, output = 2, tax = 3 }",
                "`providers.x.model.m.price.tax`",
            ),
            ("[models]\nwindow = 1", "`models.window`"),
            ("[web]\nalow = []", "`web.alow`"),
            ("[agent]\nprompt = 'x'", "`agent.prompt`"),
            ("[sessions]\nkeep = 3", "`sessions.keep`"),
            ("[limits]\ncost = 3", "`limits.cost`"),
            ("[permissions]\nalways = []", "`permissions.always`"),
            ("[[permissions.rule]]\nif = 'x'", "`permissions.rule.if`"),
            ("[sandbox]\nwalls = []", "`sandbox.walls`"),
            ("[providers.x]\nkey = 'sk-1'", "key_env"),
            ("[providers.x]\napi_key = 'sk-1'", "key_env"),
            ("[providers.groq]\nbase_url = 'http://h/v1'", "key_env = \"GROQ_API_KEY\""),
        ];
        for (text, expected) in table {
            let (_, warnings) = parse(text).unwrap();
            assert_eq!(warnings.len(), 1, "{text}: {warnings:?}");
            assert!(warnings[0].contains(expected), "{text}: {warnings:?}");
            assert!(warnings[0].starts_with("c.toml: ") && !warnings[0].contains("sk-1"));
        }
        for fine in [
            "",
            "\u{feff}model = 'from an editor that marks its files'\r\n",
            "[providers.groq]\nbase_url = 'https://api.groq.com/openai/v1/'",
            "[providers.groq]\nbase_url = 'http://h/v1'\nkey_env = 'GROQ_API_KEY'",
            "[providers.ollama]\nbase_url = 'http://elsewhere:11434/v1'",
            "[providers.azure]\nbase_url = 'https://me.openai.azure.com/openai/v1'",
        ] {
            assert_eq!(parse(fine).unwrap().1, Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn a_parse_error_has_its_position_and_quotes_nothing() {
        let table = [
            ("model = 3", "c.toml, line 1, column 9"),
            ("mode = 'ask'\nmodel = sk-secret", "line 2, column 9"),
            ("max_turn_requests = 0", "line 1, column 21"),
            ("silence_seconds = 0", "line 1, column 19"),
            ("\n\n[providers.x]\nheaders = 'Bearer sk-secret'", "line 4, column 11"),
            ("[providers.x]\nmodels = ['a', 7]", "line 2, column 16"),
            ("[providers.x.model.m]\nwindow = -1", "line 2, column 10"),
            ("model = 'a'\nmodel = 'b'", "line 2"),
            ("[providers", "line 1"),
            ("model = \"sk-secret", "line 1"),
        ];
        for (text, place) in table {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(place), "{text}: {error}");
            assert!(!error.contains("sk-secret") && !error.contains('\n'), "{error}");
        }
    }
}
