//! The format of `config.toml`, with its sections `[permissions]` and `[checks]`: parses it and warns about entries
//! that have no effect. The policy crate parses the rules. Does no I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::agent::{AgentSection, GoalSection};
use crate::environment::{
    ALONE_VARIABLE, FIND_CHECKS_VARIABLE, MAX_TURN_REQUESTS_VARIABLE, MODE_VARIABLE, MODEL_VARIABLE,
};
use crate::limits::LimitsSection;
use crate::lsp::LspSection;
use crate::provider::{Price, ProviderPreset, preset, read_base_url, reserved_field_errors};
use crate::reader::read_settings;
use crate::resolve::is_credential;
use crate::sandbox::SandboxSection;
use crate::search::wrong_search;
use crate::servers::McpSection;
use crate::table::settings;
use crate::wrong_values::{
    wrong_api, wrong_base_url, wrong_effort, wrong_hosts, wrong_mode, wrong_quirks, wrong_verify,
};
use crate::{ConfigError, DEFAULT_MAX_TURN_REQUESTS};
use turnwright_llm::DEFAULT_ASSUMED_WINDOW;
use turnwright_policy::permission::Mode;
use turnwright_types::message::ReasoningEffort;
use turnwright_types::redact;
use turnwright_types::shell_script::Check;
use turnwright_types::work_settings::Verify;
use turnwright_workspace::web::search::search_names;

settings! {
    /// The user's settings file. Other crates see what holds as it stands there. What a flag, a variable or a project
    /// can change is a question for the snapshot or the effective policy.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub section ConfigFile {
        pub(crate) model: Option<String> {
            examples: ["openai/gpt-5.4-mini", "ollama/qwen3-coder", "offline"],
            flag: "--model",
            variable: MODEL_VARIABLE,
        } wrong [r#"modle = "x""#, "model = 7"]
            "The model with which sessions start: NAME/model, a model of the default endpoint, or offline.",
            "the model: `NAME/model`, or `model` at the default endpoint, or `offline`, the built-in one; if not \
             set, `gpt-5.4-mini` at OpenAI";
        pub(crate) mode: Option<String> => wrong_mode {
            words: (Mode::ALL.map(Mode::id)),
            default: (Mode::default().id()),
            variable: MODE_VARIABLE,
        } wrong [r#"mode = "all""#, "TURNWRIGHT_MODE=all"]
            "The mode in which sessions start, which decides what runs without a question.",
            "the mode in which sessions start: `plan`, `ask` (default), `auto-edit`, `auto` or `full` \
             ([permissions.md](permissions.md))";
        pub(crate) max_turn_requests: Option<NonZeroU32> {
            default: DEFAULT_MAX_TURN_REQUESTS,
            flag: "--budget",
            variable: MAX_TURN_REQUESTS_VARIABLE,
        } wrong ["max_turn_requests = 0", r#"max_turn_requests = "many""#, "TURNWRIGHT_MAX_TURN_REQUESTS=many"]
            "The most requests to the model for one prompt.",
            "the maximum number of requests to the model for one prompt; 100";
        pub(crate) effort: Option<String> => wrong_effort {
            words: (ReasoningEffort::ALL.map(ReasoningEffort::id)),
            default: (ReasoningEffort::default().id()),
        } wrong [r#"effort = "huge""#]
            "The reasoning effort of the model.",
            "reasoning effort: `default`, `none`, `low`, `medium`, `high`, `xhigh`";
        pub(crate) list_models: Option<bool> { default: true } wrong [r#"list_models = "yes""#]
            "Whether an endpoint may be asked for its list of models.",
            "whether the agent may ask an endpoint for its list of models, also with `/models`; `true`";
        pub(crate) silence_seconds: Option<NonZeroU32> { examples: [300] } wrong ["silence_seconds = 0"]
            "The most seconds that a model may send nothing; 300 if not set, 600 for a local server.",
            "how long a model may stay silent, in seconds; 300, or 600 for a local server \
             ([behaviour.md](behaviour.md#the-model))";
        pub(crate) verify: Option<String> => wrong_verify {
            words: (Verify::NAMES),
            default: "auto",
        } wrong [r#"verify = "perhaps""#]
            "When a turn that has changed files must prove its work; always if nobody watches.",
            "when a turn that has changed files must prove its work before it ends: `off`, `auto` or `always`; \
             `auto` if not set, and `always` with `alone`";
        pub(crate) find_checks: bool = true { variable: FIND_CHECKS_VARIABLE }
            "Whether commands that the project's files name are run as checks.",
            "whether the commands that the project's files name, such as that of its tests, are run as checks; `true`. \
             In the variable, `1` or `0`";
        pub(crate) alone: bool = false { flag: "run --no-input", variable: ALONE_VARIABLE }
            wrong ["TURNWRIGHT_ALONE=maybe"]
            "Whether nobody watches who could answer a question.",
            "whether nobody watches who could answer a question; `false`. In the variable, `1` or `0`";
        pub(crate) models: ModelsSection {} "What holds for all models.";
        pub agent: AgentSection {} "What the model is told of itself.";
        pub(crate) checks: CheckTable => wrong_checks {
            each: "A command in one line that fails, or prints where, if something is wrong.",
            examples: [{ "rust": "cargo check --message-format short" }],
        } wrong [r#"checks.rust = """#]
            "Commands that run before the first edit of a turn and after the last, of which the model is told what \
             is new.";
        pub web: WebSection {} "What `web_fetch` may reach, and the service that searches the web.";
        pub acp: AcpSection {} "How editors are spoken to.";
        pub sessions: SessionRetention {} "How long and how much session data is kept.";
        pub limits: LimitsSection {}
            "What a turn and a session may use up; without a number there is no limit.";
        pub permissions: PermissionSection {}
            "Rules such as exec(cargo test) or read(.env); the strictest matching one applies.";
        pub(crate) sandbox: SandboxSection {} "The confinement of commands.";
        pub(crate) goal: GoalSection {} "How long the agent works towards a goal.";
        pub hooks: Map<String, Value> {}
            "Programs that run at certain moments, by event in the format of Claude Code; read = [\"claude\"] also \
             runs those of its files.";
        pub lsp: LspSection {} "Which language servers say what an edit has broken.";
        pub(crate) providers: BTreeMap<String, ProviderSection> {
            examples: [{
                "mine": {
                    "base_url": "http://localhost:8000/v1",
                    "api": "chat",
                    "key_env": "MINE_API_KEY",
                    "key_file": "~/.config/turnwright/mine.key",
                    "headers": { "X-Title": "me" },
                    "models": ["qwen3-coder"],
                    "quirks": { "stream_options": false },
                    "request": { "temperature": 0.7 },
                    "model": {
                        "qwen3-coder": {
                            "window": 131_072,
                            "max_output": 8192,
                            "quirks": { "images": true },
                            "request": { "top_p": 0.95 },
                            "price": { "input": 0.3, "cached": 0.1, "output": 1.2 }
                        }
                    }
                }
            }],
        }
            "Servers of models by name; a well-known name such as deepseek or ollama needs no entry.";
        pub(crate) mcp: McpSection { warns_itself: true }
            "The MCP servers of every session, in addition to those of the editor.";
    }
}

settings! {
    /// `[models]`: settings for all models.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub(crate) section ModelsSection {
        pub(crate) assumed_window: Option<NonZeroU32> { default: DEFAULT_ASSUMED_WINDOW }
            "The context window in tokens to assume where nobody knows it.",
            "the context window in tokens to assume when it is unknown; 128000. An overflow error corrects it";
        pub(crate) request: Map<String, Value> => reserved_field_errors { examples: [{ "temperature": 0.7 }] }
            "Further fields of each request to any model, such as temperature or top_p.",
            "additional fields for each request to any model: `request = { temperature = 0.7, top_p = 0.95 }`";
        pub(crate) model: BTreeMap<String, NamedModelSection> {
            examples: [{ "deepseek/deepseek-chat": { "request": { "temperature": 0.2 } } }],
        }
            "Settings of single models by their name, as in `model`.";
    }
}

settings! {
    /// `[models.model."NAME"]`.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub(crate) section NamedModelSection {
        pub(crate) request: Map<String, Value> => reserved_field_errors {}
            "Further fields of each request to this model, which override those of all models and of its provider.",
            "as above, for this model";
    }
}

settings! {
    /// `[acp]`.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub section AcpSection {
        pub v2: Option<bool> { default: true }
            "Whether an editor that asks for version 2 of the Agent Client Protocol gets it; otherwise it gets \
             version 1.",
            "whether an editor that asks for [version 2](behaviour.md#version-2) of the protocol gets it; `true`. \
             Otherwise it gets version 1";
    }
}

settings! {
    /// `[web]`.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub section WebSection {
        pub allow: Vec<String> => wrong_hosts {
            default: [],
            examples: [["localhost:3000", "10.0.0.7"]],
        } wrong [r#"web.allow = ["http://localhost:3000/"]"#]
            "Hosts that may be fetched from although they are not public, as HOST or HOST:PORT.",
            "non-public hosts that may be fetched from, such as `[\"localhost:3000\", \"10.0.0.7\"]`; without a \
             port, any port. Each still needs approval";
        pub search: Option<String> => wrong_search { words: (search_names()), examples: ["brave"] }
            wrong [r#"web.search = "google""#]
            "The service that searches the web.",
            "the service that [searches the web](web-search.md): `searxng`, `brave`, `tavily`, `exa`, `perplexity`, \
             `serper`, `deepseek`, `zai`, `ollama`, `openai` or `openrouter`. Without one, there is no `web_search`";
        pub(crate) search_url: Option<String> => wrong_base_url { examples: ["http://localhost:8888"] }
            "The address of the service, which SearXNG needs.",
            "the address of your SearXNG, or another address of the API of any of the others";
        pub(crate) search_key_env: Option<String> { examples: ["MY_SEARCH_KEY"] }
            "The name of the environment variable that holds the key of the service.",
            "the variable that holds its key, if it is another one than usual";
        pub(crate) search_model: Option<String> { examples: ["gpt-5.4-mini"] }
            "The model that searches with `openai` or `openrouter`.",
            "the model that searches with `openai` or `openrouter`, if it is another one than usual";
    }
}

settings! {
    /// `[sessions]`: how long and how much session data is kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default)]
    pub section SessionRetention {
        pub keep_days: u32 = 90 {} wrong ["sessions.keep_days = -1"]
            "Sessions without activity for this many days are deleted; 0 keeps them forever.",
            "sessions without activity for this many days are deleted; 90 by default, 0 keeps them forever";
        pub max_size: u64 = 1024 {} wrong [r#"sessions.max_size = "1 GB""#]
            "Megabytes of all sessions above which the oldest are deleted; 0 for no limit.",
            "megabytes; above it the oldest sessions are deleted; 1024 by default, 0 for no limit";
        pub keep_start: bool = true {}
            "Whether the state of the project at the start of a session is kept.",
            "whether the state of the project at the start of a session is kept; `true`";
    }
}

settings! {
    /// `[providers.NAME]`.
    #[derive(Deserialize)]
    #[serde(default)]
    pub(crate) section ProviderSection {
        #[serde(deserialize_with = "read_base_url")]
        pub(crate) base_url: Option<String> => wrong_base_url {}
            wrong [r#"providers.x.base_url = "localhost""#,
                r#"providers.groq.base_url = "http://localhost:8000/v1""#]
            "The base URL of the API; optional for a well-known name.",
            "base URL of the API, usually ending in `/v1`; optional for a well-known name. If you paste the address \
             of a request (`/chat/completions`, `/v1/models` …), that part is left off, and a missing scheme is \
             added to a host with a port (`localhost:8080`) or a path (`example.com/v1`), here, in variables and in \
             `turnwright login`";
        pub(crate) api: Option<String> => wrong_api { words: ["chat", "responses"], default: "chat" }
            wrong [r#"providers.x.api = "completions""#]
            "Chat Completions (chat, the default) or OpenAI's Responses API (responses).",
            "`chat` (Chat Completions, default) or `responses`";
        pub(crate) key_env: Option<String> {} wrong [r#"providers.x.key_env = ["A"]"#]
            "The name of the environment variable that holds the key.",
            "the variable that holds the key";
        pub(crate) key_file: Option<String> {}
            "A file that holds only the key, if there is no `key_env` or its variable is not set.",
            "a file that holds only the key; `~/` is the home folder, other paths are relative to the settings file. \
             Used if `key_env` is missing or its variable is not set. Read again when the server refuses the key";
        #[serde(deserialize_with = "is_present")]
        key: bool { hidden: true } wrong [r#"providers.x.key = "…""#]
            "A mistake: keys do not belong in this file. The value is not read.";
        #[serde(deserialize_with = "is_present")]
        api_key: bool { hidden: true } "The same mistake.";
        pub(crate) headers: BTreeMap<String, String> {} wrong [r#"providers.x.headers = "X-Title""#]
            "Headers of each request; a value $NAME is taken from that environment variable.",
            "headers for each request. A value `$NAME`, `${NAME}` or `Bearer ${NAME}` is taken from that variable";
        pub(crate) models: Vec<String> {} wrong [r#"providers.x.models = "m""#]
            "Models to offer without asking the endpoint.",
            "models to offer without asking the endpoint for its list";
        pub(crate) quirks: Map<String, Value> => wrong_quirks {}
            wrong ["providers.x.quirks = { nonsense = 1 }", r#"providers.x.quirks = { images = "often" }"#]
            "Special needs of the server, in addition to what is known about it.",
            "special needs of the server or its models, in addition to what the agent knows about them";
        pub(crate) request: Map<String, Value> => reserved_field_errors {}
            wrong ["providers.x.request = { stream = false }"]
            "Further fields of each request, such as temperature or top_p.",
            "additional fields for each request to this provider";
        pub(crate) model: BTreeMap<String, ModelSection> {}
            "Settings of single models of this provider by their name.";
    }
}

settings! {
    /// `[providers.NAME.model."MODEL"]`.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub(crate) section ModelSection {
        pub(crate) window: Option<u64> {} wrong ["providers.x.model.m.window = -1", "TURNWRIGHT_CONTEXT_WINDOW=0"]
            "The context window in tokens.",
            "context window in tokens; overrides what the server reports (`TURNWRIGHT_CONTEXT_WINDOW` in turn \
             overrides it for the model that the process starts with)";
        pub(crate) max_output: Option<u64> {}
            "The most output tokens of one answer.",
            "the maximum number of output tokens in one answer";
        pub(crate) quirks: Map<String, Value> => wrong_quirks {}
            "Special needs of this model, which override those of its provider.",
            "as above, for this model; overrides the provider's quirks key by key";
        pub(crate) request: Map<String, Value> => reserved_field_errors {}
            wrong ["providers.x.model.m.request = { max_tokens = 9 }"]
            "Further fields of each request to this model, which override those of its provider.",
            "as above, for this model";
        pub(crate) price: Option<Price> {} wrong ["providers.x.model.m.price = { input = 1 }"]
            "US dollars per million tokens of input, of output and, if it differs, of cached input.",
            "`input`, `output` and, if it differs, `cached`: US dollars per million tokens";
    }
}

/// Skips a value, and returns that it is there.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Value::deserialize(deserializer).map(|_| true)
}

impl fmt::Debug for ProviderSection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A header may be a credential.
        formatter.debug_struct("ProviderSection").finish_non_exhaustive()
    }
}

impl ProviderSection {
    /// Says how to refer to a key, if the section contains one itself, which is refused.
    pub(crate) fn refused_key(&self, name: &str) -> Option<String> {
        (self.key || self.api_key).then(|| {
            format!("`providers.{name}` contains a key (ignored): refer to it with `key_env` or `key_file` instead")
        })
    }

    /// The variables that the section refers to.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.values().filter_map(|value| Some(referenced_variable(value)?.1));
        self.key_env.as_deref().into_iter().chain(headers)
    }
}

/// The scheme and the variable in a header's value that refers to one: `$NAME`, `${NAME}` or `Bearer ${NAME}`.
pub(crate) fn referenced_variable(value: &str) -> Option<(&str, &str)> {
    let (scheme, written) = value.split_once('$')?;
    let braced = written.strip_prefix('{').and_then(|inner| inner.strip_suffix('}'));
    let name = braced.map_or(written, |inner| inner.strip_prefix("env:").unwrap_or(inner));
    let is_scheme = ["", "Bearer ", "Basic ", "Token "].contains(&scheme);
    (is_scheme && !name.is_empty()).then_some((scheme, name))
}

impl ConfigFile {
    /// Parses the text of the file. Returns the settings and a warning about each entry that has no effect.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<(ConfigFile, Vec<String>), ConfigError> {
        let (file, mut notes) = read_settings::<ConfigFile>(text, path, ConfigFile::ROWS)?;
        notes.extend(file.mcp.problems.iter().cloned());
        file.warn_ineffective_values(&mut notes);
        let warnings = notes.into_iter().map(|note| format!("{}: {note}", path.display()));
        Ok((file, warnings.collect()))
    }

    /// The tables with fields of requests, each with the key of the table that it is in.
    pub(crate) fn request_tables(&self) -> Vec<(String, &Map<String, Value>)> {
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
    pub(crate) fn variables(&self) -> Vec<String> {
        let of_providers = self.providers.values().flat_map(ProviderSection::variables);
        of_providers.chain(self.web.search_key_env.as_deref()).map(str::to_owned).collect()
    }

    /// The values in the file that are credentials by the name of their header or variable.
    pub(crate) fn literal_credentials(&self) -> Vec<String> {
        let headers = self.providers.values().flat_map(|provider| &provider.headers);
        let literal = headers
            .filter(|header| is_credential(header.0) && referenced_variable(header.1).is_none());
        let values = literal.filter_map(|header| redact::header_key(header.1));
        values.map(str::to_owned).chain(self.mcp.secrets(is_credential)).collect()
    }

    fn warn_ineffective_values(&self, notes: &mut Vec<String>) {
        for (name, section) in &self.providers {
            notes.extend(section.refused_key(name));
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
fn withheld_key_variable(name: &str, section: &ProviderSection) -> Option<&'static str> {
    let known = preset(name)?;
    leads_elsewhere(known, section).then_some(known.key_env)?
}

/// Returns true if the section's `base_url` is not that of its well-known provider.
pub(crate) fn leads_elsewhere(known: &ProviderPreset, section: &ProviderSection) -> bool {
    match (known.base_url, section.base_url.as_deref()) {
        (Some(usual), Some(own)) => own.trim_end_matches('/') != usual,
        _ => false,
    }
}

settings! {
    /// `[permissions]`.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default)]
    pub section PermissionSection {
        pub allow: Vec<String> {
            default: [],
            examples: [["exec(cargo test)", "fetch(domain:docs.rs)"]],
        } wrong [r#"permissions.allow = ["exec("]"#]
            "Patterns of calls that run without a question.";
        pub ask: Vec<String> { default: [], examples: [["exec(git push)"]] } wrong [r#"permissions.ask = ["run(ls)"]"#]
            "Patterns of calls that always need your approval.";
        pub deny: Vec<String> { default: [], examples: [["read(.env)"]] } wrong [r#"permissions.deny = "exec""#]
            "Patterns of calls that are refused.";
        pub rule: Vec<RuleEntry> {
            examples: [[{
                "effect": "allow",
                "when": "exec(npm run build)",
                "match": ["npm run build"],
                "not": ["npm publish"],
                "why": "it is harmless"
            }]],
        }
            wrong [r#"permissions.rule = [{ effect = "perhaps", when = "exec(ls)" }]"#,
                r#"permissions.rule = [{ effect = "deny", when = "exec(ls)", match = ["rm x"] }]"#]
            "Rules with examples, which are checked whenever the file is read.";
    }
}

settings! {
    /// `[[permissions.rule]]`.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default)]
    pub section RuleEntry {
        pub effect: String { words: ["allow", "ask", "deny"], required: true }
            "What happens to a call that the pattern matches.";
        pub when: String { required: true } "The pattern of calls.";
        #[serde(rename = "match")]
        pub matches: Vec<String> { key: "match" } "Commands, paths or hosts that the pattern must match.";
        pub not: Vec<String> {} "Commands, paths or hosts that the pattern must not match.";
        pub why: Option<String> {} "The reason of the rule, which is shown with its decisions.";
    }
}

impl PermissionSection {
    /// The number of allow rules.
    pub(crate) fn allow_rule_count(&self) -> usize {
        self.allow.len() + self.rule.iter().filter(|rule| rule.effect == "allow").count()
    }
}

/// The checks of a file: a command line for each name.
pub(crate) type CheckTable = BTreeMap<String, String>;

/// The most checks of a session.
pub(crate) const MAX_CHECKS: usize = 8;
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The longest command line, in bytes.
const MAX_COMMAND_BYTES: usize = 4 * 1024;

/// The checks that can be run.
pub(crate) fn usable_checks(checks: &CheckTable) -> Vec<Check> {
    let usable = checks.iter().filter(|(name, command)| is_name(name) && is_command(command));
    usable
        .take(MAX_CHECKS)
        .map(|(name, command)| Check { name: name.clone(), command: command.clone() })
        .collect()
}

/// The errors in the checks of a file, which have this key, a sentence each.
pub(crate) fn wrong_checks(key: &str, checks: &CheckTable) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, command) in checks {
        let name = name.escape_debug();
        if !is_name(&name.to_string()) {
            wrong.push(format!(
                "`{key}.{name}`: a name may have only letters, digits, `_` and `-`, at most 64"
            ));
        } else if !is_command(command) {
            wrong.push(format!("`{key}.{name}` must be a command in one line, at most 4 KiB"));
        }
    }
    if checks.len() > MAX_CHECKS {
        wrong.push(format!("`{key}` has {} entries, and {MAX_CHECKS} are used", checks.len()));
    }
    wrong
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn is_command(command: &str) -> bool {
    !command.trim().is_empty()
        && command.len() <= MAX_COMMAND_BYTES
        && !command.contains(['\n', '\r', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(ConfigFile, Vec<String>), ConfigError> {
        ConfigFile::parse(text, Path::new("c.toml"))
    }

    #[test]
    fn a_switch_in_place_of_the_network_is_answered_with_what_can_be_set() {
        let error = parse("[sandbox]\nnetwork = true\n").unwrap_err().to_string();
        assert!(error.contains("`network` must be the text off, loopback or on"), "{error}");
    }

    #[test]
    fn a_provider_has_variables_quirks_and_prices() {
        let text = r#"
            [providers.deepseek]
            key_env = "MY_DEEP"
            headers = { "X-Title" = "me", Cookie = "$COOKIE" }
            quirks = { a = 1, b = { c = ["d"] } }

            [providers.deepseek.model."deepseek-reasoner"]
            window = 131072
            price = { input = 0.27, cached = 0.07, output = 1.10 }
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
        let manual = include_str!("../../../docs/configuration.md");
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
            ("permissions.rule = [{}, { if = 'x' }]", "`permissions.rule.if`"),
            ("[permissions]\nrule = [{ matches = [] }]", "`permissions.rule.matches`"),
            ("[models.model.'a/b']\nprice = 1", "`models.model.\"a/b\".price`"),
            ("[providers.x]\nmodel.m.price = { input = 1, output = 2, tax.a = 3 }", "m.price.tax`"),
            ("[check]\nrust = 'cargo check'", "`check`"),
            ("[mcp]\nwait = 1", "`mcp.wait`"),
            ("[mcp.servers.a]\ncommand = 'a'\ntypo = 1", "`mcp.servers.a.typo`"),
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
            "checks.any_name = 'true'",
            "[providers.x]\nheaders = { any = 'y' }\nrequest = { a = [{ b = 1 }], c.d = 2 }",
            "[[permissions.rule]]\nmatch = ['ls']",
        ] {
            assert_eq!(parse(fine).unwrap().1, Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn unknown_entries_are_named_in_the_order_of_the_file() {
        let text = "zeta = 1\n[web]\nalow = []\n[mcp]\nwait = 1\n[providers.x]\nbase = 'y'\n\
                    [[permissions.rule]]\nif = 'x'\n[[permissions.rule]]\nunless = 'x'\n\
                    [agent]\nprompt = { a = 1 }\ncolour = 1";
        let warnings = parse(text).unwrap().1;
        let keys: Vec<_> = warnings.iter().map(|text| text.split('`').nth(1).unwrap()).collect();
        assert_eq!(
            keys,
            [
                "zeta",
                "web.alow",
                "providers.x.base",
                "permissions.rule.if",
                "permissions.rule.unless",
                "agent.prompt",
                "agent.colour",
                // The servers are read last.
                "mcp.wait"
            ]
        );
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

    #[test]
    fn a_path_of_windows_is_answered_with_how_to_write_it() {
        for path in [r"C:\Users\me", r"C:\Program Files", r"D:\data"] {
            let error = parse(&format!("model = \"{path}\"")).unwrap_err().to_string();
            assert!(
                error.contains("each backslash twice, or the text in single quotes"),
                "{error}"
            );
            assert_eq!(parse(&format!("model = '{path}'")).unwrap().0.model.unwrap(), path);
        }
    }

    #[test]
    fn a_check_has_a_plain_name_and_one_line_and_there_are_not_many() {
        let table = |entries: &[(&str, &str)]| -> CheckTable {
            entries.iter().map(|(name, it)| ((*name).to_owned(), (*it).to_owned())).collect()
        };
        let mixed =
            table(&[("rust", "cargo check"), ("a b", "x"), ("empty", " "), ("two", "a\nb")]);
        let names: Vec<_> = usable_checks(&mixed).into_iter().map(|check| check.name).collect();
        assert_eq!(names, ["rust"]);
        let wrong = wrong_checks("checks", &mixed);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("`checks.a b`: a name") && wrong[1].contains("in one line"));
        let many: CheckTable =
            (0..9).map(|number| (number.to_string(), "true".to_owned())).collect();
        assert_eq!(usable_checks(&many).len(), MAX_CHECKS);
        assert_eq!(wrong_checks("checks", &many), ["`checks` has 9 entries, and 8 are used"]);
    }
}
