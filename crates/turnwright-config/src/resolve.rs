//! Resolves the name of a model to its provider and settings. [`ProviderSources`] supplies files and
//! variables; this module only defines their precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};
use url::{Origin, Url};

use crate::change::{is_variable_name, looks_like_key};
use crate::environment::variable_name;
use crate::file::{
    ConfigFile, ModelSection, ProviderSection, leads_elsewhere, referenced_variable,
};
use crate::provider::{
    self, EndpointSettings, KeyOrigin, PRESETS, Provider, ProviderKey, ProviderPreset, preset,
};
use crate::{ConfigError, Logins};
use turnwright_llm::Protocol;
use turnwright_types::secret::Secret;

/// Reads a key file.
type KeyFileReader<'a> = dyn Fn(&str) -> Result<ProviderKey, ConfigError> + 'a;

/// Everything in which a name is looked up.
pub(crate) struct ProviderSources<'a> {
    pub(crate) file: &'a ConfigFile,
    /// The path of the file, for messages.
    pub(crate) path: &'a Path,
    /// The endpoint that flags, environment or login define, with the model to use if none is named.
    pub(crate) default: Option<EndpointSettings>,
    pub(crate) keys: &'a BTreeMap<String, Secret>,
    pub(crate) logins: &'a Logins,
    /// The path of the stored logins.
    pub(crate) login_path: PathBuf,
    pub(crate) read_key_file: Box<KeyFileReader<'a>>,
}

/// The provider that a model's name refers to. `Named` has a section in the file or is well known. `Unknown` is
/// neither, although the model's name begins with its name.
#[derive(Debug, PartialEq)]
enum ProviderRef<'a> {
    Offline,
    Named { name: &'a str, model: &'a str },
    Default { model: Option<&'a str> },
    Unknown { name: &'a str },
    None,
}

/// Returns true if a name with the prefix of a well-known provider means that provider. On a server of
/// the user's own, the one with this base URL, it may be one of its models (`openai/gpt-oss-20b`), unless the
/// provider runs on this machine or has a key.
fn is_preferred(
    known: &ProviderPreset,
    own_server: &str,
    has_key: impl Fn(&ProviderPreset) -> bool,
) -> bool {
    match known.key_env {
        _ if known.base_url == Some(crate::OPENAI_BASE_URL) => false,
        Some(_) => known.base_url != Some(own_server) && has_key(known),
        None => true,
    }
}

/// Resolves a model's name. A section of the file takes precedence, because the user wrote it for that
/// purpose. The prefix of a well-known provider comes next, and then the default endpoint, which has the base URL
/// `default`. If the user has named its server, it gets the whole name, because the models of many servers have
/// slashes in their names; those of OpenAI have none.
fn resolve_name<'a>(
    requested: Option<&'a str>,
    file: &'a ConfigFile,
    default: Option<&str>,
    has_key: impl Fn(&ProviderPreset) -> bool,
) -> ProviderRef<'a> {
    if requested == Some("offline") {
        return ProviderRef::Offline;
    }
    let own = requested.and_then(|requested| {
        file.providers.keys().find_map(|name| Some((name, strip_provider(requested, name)?)))
    });
    if let Some((name, model)) = own {
        return ProviderRef::Named { name, model };
    }
    let own_server = default.filter(|base_url| *base_url != crate::OPENAI_BASE_URL);
    let prefix = requested.and_then(|name| name.split_once('/'));
    if let Some((preset, model)) = prefix.and_then(|(name, model)| Some((preset(name)?, model)))
        && !model.is_empty()
        && own_server.is_none_or(|base_url| is_preferred(preset, base_url, has_key))
    {
        // The stored login may have its key.
        return if preset.name == "openai" && default.is_some() && own_server.is_none() {
            ProviderRef::Default { model: Some(model) }
        } else {
            ProviderRef::Named { name: preset.name, model }
        };
    }
    match (default, prefix, requested) {
        (_, Some((name, _)), _) if own_server.is_none() => ProviderRef::Unknown { name },
        (None, None, Some(_)) => ProviderRef::None,
        (None, None, None) => sole_section_with_models(file),
        _ => ProviderRef::Default { model: requested },
    }
}

fn strip_provider<'a>(requested: &'a str, name: &str) -> Option<&'a str> {
    requested.strip_prefix(name)?.strip_prefix('/').filter(|model| !model.is_empty())
}

/// The first model of the only section that lists models, if there is exactly one.
fn sole_section_with_models(file: &ConfigFile) -> ProviderRef<'_> {
    let mut offering =
        file.providers.iter().filter_map(|(name, section)| Some((name, section.models.first()?)));
    match (offering.next(), offering.next()) {
        (Some((name, model)), None) => ProviderRef::Named { name, model },
        _ => ProviderRef::None,
    }
}

impl ProviderSources<'_> {
    /// The provider that a name refers to; without a name, the default.
    pub(crate) fn provider(&self, requested: Option<&str>) -> Result<Provider, ConfigError> {
        if requested.is_some_and(looks_like_key) {
            return Err(ConfigError::new(
                "The name of the model looks like a key. `turnwright login` stores a key",
            ));
        }
        let found = resolve_name(requested, self.file, self.default_base_url(), |known| {
            self.usual_key(known).is_some()
        });
        let mut endpoint = match found {
            ProviderRef::Offline => return Ok(Provider::Offline),
            ProviderRef::Unknown { name } => return Err(self.unknown_provider(name)),
            ProviderRef::None => return Ok(Provider::Unconfigured),
            ProviderRef::Default { model } => {
                let Some(default) = self.default.clone() else { return Ok(Provider::Unconfigured) };
                let model = model.map(str::to_owned).or(default.model);
                let request = self.request_fields(model.as_deref(), []);
                EndpointSettings { model, request, ..default }
            }
            ProviderRef::Named { name, model } => self.named_endpoint(name, model)?,
        };
        let silence = self.file.silence_seconds.map(|seconds| u64::from(seconds.get()));
        endpoint.silence_limit = silence.map(Duration::from_secs);
        endpoint.assumed_window = self.file.models.assumed_window.map(|tokens| tokens.get().into());
        Ok(Provider::Endpoint(Box::new(endpoint)))
    }

    fn default_base_url(&self) -> Option<&str> {
        self.default.as_ref().map(|endpoint| endpoint.base_url.trim_end_matches('/'))
    }

    fn unknown_provider(&self, name: &str) -> ConfigError {
        let own = self.file.providers.keys().cloned();
        let well_known = PRESETS.iter().map(|known| known.name);
        let known: BTreeSet<_> = own.chain(well_known.map(str::to_owned)).collect();
        ConfigError::new(format!(
            "No provider is called `{}`. Known are {}. For another server set OPENAI_BASE_URL, or add \
             [providers.{0}] with a `base_url` to {}",
            name.escape_debug(),
            Vec::from_iter(known).join(", "),
            self.path.display()
        ))
    }

    /// A model of a provider that has a section, is well known, or both.
    fn named_endpoint(&self, name: &str, model: &str) -> Result<EndpointSettings, ConfigError> {
        let empty = ProviderSection::default();
        let section = self.file.providers.get(name).unwrap_or(&empty);
        let known = preset(name);
        let usual_url = known.and_then(|provider| provider.base_url);
        let Some(base_url) = section.base_url.as_deref().or(usual_url) else {
            return Err(self.error_in_file(&format!("`providers.{name}` needs a `base_url`")));
        };
        let usual = known.filter(|provider| !leads_elsewhere(provider, section));
        let whole = whole_model_name(usual, model);
        let headers = self.headers(name, section)?;
        let no_settings = ModelSection::default();
        let settings = section.model.get(&whole).or_else(|| section.model.get(model));
        let model_section = settings.unwrap_or(&no_settings);
        let mut quirks = section.quirks.clone();
        quirks.extend(model_section.quirks.clone());
        Ok(EndpointSettings {
            name: Some(name.to_owned()),
            base_url: base_url.to_owned(),
            key: self.key(name, section, usual, &headers)?,
            api: self.api(name, section)?,
            headers,
            quirks,
            request: self.request_fields(
                Some(&format!("{name}/{model}")),
                [&section.request, &model_section.request],
            ),
            model: Some(whole),
            window: model_section.window,
            max_output: model_section.max_output,
            price: model_section.price,
            ..EndpointSettings::default()
        })
    }

    /// The fields that the settings add to the requests to the model of this whole name, with those of its
    /// own section.
    fn request_fields<const N: usize>(
        &self,
        name: Option<&str>,
        own: [&Map<String, Value>; N],
    ) -> Map<String, Value> {
        let models = &self.file.models;
        let named = name.and_then(|name| models.model.get(name)).map(|section| &section.request);
        provider::merge_request_fields(std::iter::once(&models.request).chain(own).chain(named))
    }

    fn api(&self, name: &str, section: &ProviderSection) -> Result<Option<Protocol>, ConfigError> {
        let Some(word) = &section.api else { return Ok(None) };
        Protocol::parse(word).map(Some).ok_or_else(|| {
            self.error_in_file(&format!(
                "`providers.{name}.api` is `{word}`, expected `chat` or `responses`"
            ))
        })
    }

    /// The key of a provider; `usual` is the well-known one, at its own base URL. A key is sent only to the server
    /// that it was given for: the well-known variable and the login apply to the well-known base URL, and to another
    /// one only the variable, if the file says so.
    fn key(
        &self,
        name: &str,
        section: &ProviderSection,
        usual: Option<&ProviderPreset>,
        headers: &[(String, Secret)],
    ) -> Result<Option<ProviderKey>, ConfigError> {
        if let Some(key) = section.key_env.as_ref().and_then(|variable| self.variable_key(variable))
        {
            return Ok(Some(key));
        }
        if let Some(file) = &section.key_file {
            return (self.read_key_file)(file).map(Some);
        }
        if let Some(variable) = &section.key_env {
            // The name of the usual variable can also mean the login.
            let key = usual
                .filter(|provider| provider.key_env == Some(variable))
                .and_then(|provider| self.login_key(provider));
            return key.map(Some).ok_or_else(|| {
                self.unset_variable_error(variable, &format!("`providers.{name}.key_env`"))
            });
        }
        if let Some(what) = section.refused_key(name) {
            return Err(self.error_in_file(&what));
        }
        // A header that authenticates replaces the key: two credentials could contradict each other.
        let usual = usual.filter(|_| !headers.iter().any(|(name, _)| is_auth_header(name)));
        let key = usual.and_then(|provider| self.usual_key(provider));
        match usual.and_then(|provider| provider.key_env) {
            Some(variable) if key.is_none() => Err(ConfigError::new(format!(
                "No key for {name}. Run `turnwright login --provider {name}`, set {variable} in the \
                 agent's environment, or add `key_env` or `key_file` to [providers.{name}] in {}",
                self.path.display()
            ))),
            _ => Ok(key),
        }
    }

    /// The key for the base URL of a well-known provider, from its variable or a login.
    pub(crate) fn usual_key(&self, known: &ProviderPreset) -> Option<ProviderKey> {
        let variable = known.key_env.filter(|name| !self.belongs_to_other_server(name));
        variable.and_then(|name| self.variable_key(name)).or_else(|| self.login_key(known))
    }

    /// The key of a well-known provider for its own server. A variable that its section refers to is for the server
    /// that the section names.
    pub(crate) fn key_at_home(&self, known: &ProviderPreset) -> Option<ProviderKey> {
        let section = self.file.providers.get(known.name);
        let server = section.and_then(|section| section.base_url.as_deref()).or(known.base_url)?;
        if origin(server) == origin(known.base_url?) {
            let key = self.named_endpoint(known.name, "").ok()?.key;
            return key.or_else(|| self.usual_key(known));
        }
        let mut variables = section.into_iter().flat_map(ProviderSection::variables);
        let is_for_other = variables.any(|name| known.key_env == Some(&*variable_name(name)));
        if is_for_other { self.login_key(known) } else { self.usual_key(known) }
    }

    fn variable_key(&self, variable: &str) -> Option<ProviderKey> {
        let secret = self.keys.get(&*variable_name(variable))?.clone();
        Some(ProviderKey { secret, origin: KeyOrigin::Variable(variable.to_owned()) })
    }

    fn login_key(&self, known: &ProviderPreset) -> Option<ProviderKey> {
        let secret = self.logins.provider_key(known.name)?.into();
        Some(ProviderKey { secret, origin: KeyOrigin::Login(self.login_path.clone()) })
    }

    /// True for `OPENAI_API_KEY` if `OPENAI_BASE_URL` names another server than OpenAI's: the key is for
    /// that server.
    fn belongs_to_other_server(&self, variable: &str) -> bool {
        variable == crate::OPENAI_KEY_VARIABLE
            && self.default_base_url().is_some_and(|base_url| base_url != crate::OPENAI_BASE_URL)
    }

    fn headers(
        &self,
        name: &str,
        section: &ProviderSection,
    ) -> Result<Vec<(String, Secret)>, ConfigError> {
        let headers = section.headers.iter().map(|(header, text)| {
            let Some((scheme, variable)) = referenced_variable(text) else {
                return Ok((header.clone(), Secret::from(text.as_str())));
            };
            let key = self.keys.get(&*variable_name(variable)).ok_or_else(|| {
                self.unset_variable_error(variable, &format!("`providers.{name}.headers.{header}`"))
            })?;
            Ok((header.clone(), Secret::from(format!("{scheme}{}", key.expose()))))
        });
        headers.collect()
    }

    fn unset_variable_error(&self, variable: &str, place: &str) -> ConfigError {
        // A key that was pasted in place of a name must not get into a log.
        let is_name = is_variable_name(variable) && variable.len() < 64;
        let variable = if is_name { variable } else { "(hidden: not a valid name)" };
        self.error_in_file(&format!(
            "{place} names the variable {variable}, which wasn't set at startup. Set it and restart \
             turnwright"
        ))
    }

    fn error_in_file(&self, what: &str) -> ConfigError {
        ConfigError::new(format!("{}: {what}", self.path.display()))
    }
}

/// A model's name as its well-known provider knows it. Some have named models after themselves, such as
/// `openrouter/auto`; at OpenRouter and NVIDIA, all names have a slash.
fn whole_model_name(usual: Option<&ProviderPreset>, model: &str) -> String {
    match usual.map_or("", |known| known.name) {
        owner @ ("nvidia" | "openrouter") if !model.contains('/') => format!("{owner}/{model}"),
        "groq" if ["compound", "compound-mini"].contains(&model) => format!("groq/{model}"),
        _ => model.to_owned(),
    }
}

/// The scheme, host and port of a base URL.
fn origin(base_url: &str) -> Option<Origin> {
    Some(Url::parse(base_url).ok()?.origin())
}

/// Returns true if a header authenticates in place of the key.
fn is_auth_header(header: &str) -> bool {
    ["authorization", "api-key", "x-api-key"].iter().any(|name| header.eq_ignore_ascii_case(name))
}

/// Returns true if the name of a header suggests a secret.
pub(crate) fn is_credential(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie"].iter().any(|word| header.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Paths, StoredLogin};

    const FILE: &str = r#"
        [providers.deepseek]
        models = ["deepseek-chat"]
        quirks = { a = 1, b = 1 }
        headers = { "X-Title" = "me", "X-Org" = "$ORG" }
        [providers.deepseek.model.r1]
        window = 1000
        max_output = 10
        quirks = { b = 2 }
        price = { input = 1, output = 2 }

        [providers.mine]
        base_url = "http://mine/v1"
        key_env = "MINE"

        [providers.groq]
        base_url = "http://elsewhere/v1"

        [providers.azure]
        [providers.future]
        base_url = "http://f/v1"
        api = "telepathy"
        [providers.inline]
        base_url = "http://i/v1"
        key = "sk-inline"
        [providers.kept]
        base_url = "http://k/v1"
        key_file = "kept"
        [providers.xai]
        headers = { "api-key" = "mine" }
    "#;

    fn file(text: &str) -> ConfigFile {
        ConfigFile::parse(text, Path::new("c.toml")).unwrap().0
    }

    #[test]
    fn a_name_means_a_section_then_a_well_known_provider_then_the_default_endpoint() {
        let nothing = None;
        let openai = Some(crate::OPENAI_BASE_URL);
        let own = Some("https://api.groq.com/openai/v1");
        let named = |name, model| ProviderRef::Named { name, model };
        let default = |model| ProviderRef::Default { model };
        let unknown = |name| ProviderRef::Unknown { name };
        let file = file(FILE);
        let table = [
            (Some("offline"), openai, ProviderRef::Offline),
            (Some("offline"), nothing, ProviderRef::Offline),
            (Some("deepseek/r1"), own, named("deepseek", "r1")),
            (Some("mine/org/model"), nothing, named("mine", "org/model")),
            (Some("mistral/large"), openai, named("mistral", "large")),
            (Some("mistral/large"), nothing, named("mistral", "large")),
            (Some("mistral/large"), own, named("mistral", "large")),
            (Some("zai/glm"), own, default(Some("zai/glm"))),
            (Some("ollama/org/m:7b"), openai, named("ollama", "org/m:7b")),
            (Some("ollama/org/m:7b"), own, named("ollama", "org/m:7b")),
            (Some("openai/gpt-oss-20b"), own, default(Some("openai/gpt-oss-20b"))),
            (Some("openai/gpt-5"), openai, default(Some("gpt-5"))),
            (Some("openai/gpt-5"), nothing, named("openai", "gpt-5")),
            (Some("nobody/large"), nothing, unknown("nobody")),
            (Some("nobody/large"), openai, unknown("nobody")),
            (Some("nobody/large"), own, default(Some("nobody/large"))),
            (Some("minestrone/x"), own, default(Some("minestrone/x"))),
            (Some("mine/"), own, default(Some("mine/"))),
            (Some("mistral/"), nothing, unknown("mistral")),
            (Some("gpt-5"), openai, default(Some("gpt-5"))),
            (Some("gpt-5"), nothing, ProviderRef::None),
            (None, own, default(None)),
            (None, nothing, named("deepseek", "deepseek-chat")),
        ];
        for (requested, server, expected) in table {
            let has_key = |known: &ProviderPreset| ["mistral", "openai"].contains(&known.name);
            let found = resolve_name(requested, &file, server, has_key);
            assert_eq!(found, expected, "{requested:?} {server:?}");
        }
    }

    #[test]
    fn a_known_server_that_the_user_names_gets_the_whole_name() {
        let server = Some("https://openrouter.ai/api/v1");
        let file = file("");
        for (name, keys) in [("openrouter/auto", "openrouter"), ("deepseek/r1", "")] {
            let found = resolve_name(Some(name), &file, server, |known| known.name == keys);
            assert_eq!(found, ProviderRef::Default { model: Some(name) });
        }
    }

    #[test]
    fn without_a_name_only_one_section_with_models_is_clear() {
        for (text, expected) in [
            ("", ProviderRef::None),
            ("[providers.a]", ProviderRef::None),
            ("[providers.a]\nmodels = []", ProviderRef::None),
            (
                "[providers.b]\nmodels = ['x', 'y']\n[providers.a]",
                ProviderRef::Named { name: "b", model: "x" },
            ),
            ("[providers.a]\nmodels = ['x']\n[providers.b]\nmodels = ['y']", ProviderRef::None),
        ] {
            let found = file(text);
            let found = resolve_name(None, &found, None, |_| false);
            assert_eq!(found, expected, "{text}");
        }
    }

    fn resolved(requested: &str, keys: &[&str]) -> Result<EndpointSettings, String> {
        resolved_with(requested, keys, &Logins::default(), FILE)
    }

    fn resolved_with(
        requested: &str,
        keys: &[&str],
        logins: &Logins,
        text: &str,
    ) -> Result<EndpointSettings, String> {
        let keys =
            keys.iter().map(|name| ((*name).to_owned(), format!("of {name}").into())).collect();
        let sources = ProviderSources {
            file: &file(text),
            path: Path::new("c.toml"),
            default: None,
            keys: &keys,
            logins,
            login_path: "login.json".into(),
            read_key_file: Box::new(|name| {
                let origin = KeyOrigin::File(name.into());
                Ok(ProviderKey { secret: format!("in {name}").into(), origin })
            }),
        };
        match sources.provider(Some(requested)) {
            Ok(Provider::Endpoint(endpoint)) => Ok(*endpoint),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn exposed(endpoint: &EndpointSettings) -> Option<&str> {
        endpoint.key.as_ref().map(|key| key.secret.expose())
    }

    #[test]
    fn a_login_gives_the_key_exactly_where_the_usual_variable_would() {
        let home = tempfile::tempdir().unwrap();
        let mut logins = Logins::default();
        for name in ["groq", "deepseek"] {
            let provider = Some(name.to_owned());
            let key = Some(format!("login of {name}"));
            let login = StoredLogin { provider, key, ..StoredLogin::default() };
            logins.add(login, &Paths::below(home.path())).unwrap();
        }
        let usual = "key_env = 'DEEPSEEK_API_KEY'";
        let elsewhere = "base_url = 'http://elsewhere/v1'";
        let both = format!("{usual}\n{elsewhere}");
        let table = [
            // The settings of [providers.deepseek], the variables that are set, and the key.
            ("", &[][..], Ok(Some("login of deepseek"))),
            ("", &["DEEPSEEK_API_KEY"][..], Ok(Some("of DEEPSEEK_API_KEY"))),
            (usual, &[], Ok(Some("login of deepseek"))),
            ("base_url = 'https://api.deepseek.com/v1/'", &[], Ok(Some("login of deepseek"))),
            (elsewhere, &[], Ok(None)),
            (&both, &[], Err("names the variable DEEPSEEK_API_KEY")),
            (&both, &["DEEPSEEK_API_KEY"], Ok(Some("of DEEPSEEK_API_KEY"))),
            ("key_env = 'GROQ_API_KEY'", &[], Err("names the variable GROQ_API_KEY")),
            ("key_file = 'f'", &["DEEPSEEK_API_KEY"], Ok(Some("in f"))),
            ("headers = { Authorization = 'mine' }", &[], Ok(None)),
        ];
        for (section, keys, expected) in table {
            let text = format!("[providers.deepseek]\n{section}");
            let endpoint = resolved_with("deepseek/m", keys, &logins, &text);
            match expected {
                Ok(key) => assert_eq!(exposed(&endpoint.unwrap()), key, "{section} {keys:?}"),
                Err(why) => assert!(endpoint.unwrap_err().contains(why), "{section} {keys:?}"),
            }
        }
        let error = resolved("mistral/m", &[]).unwrap_err();
        assert!(
            error.contains("Run `turnwright login --provider mistral`, set MISTRAL"),
            "{error}"
        );
    }

    #[test]
    fn a_key_goes_to_the_server_of_its_section_or_name_and_to_no_other() {
        let all = ["DEEPSEEK_API_KEY", "ORG", "MINE", "GROQ_API_KEY", "OPENAI_API_KEY"];
        let table = [
            ("deepseek/r1", "https://api.deepseek.com/v1", Some("of DEEPSEEK_API_KEY")),
            ("mine/m", "http://mine/v1", Some("of MINE")),
            ("kept/m", "http://k/v1", Some("in kept")),
            // Well known, but somewhere else.
            ("groq/m", "http://elsewhere/v1", None),
            ("openai/gpt-5", "https://api.openai.com/v1", Some("of OPENAI_API_KEY")),
            ("ollama/m", "http://localhost:11434/v1", None),
            // Its header replaces the key.
            ("xai/m", "https://api.x.ai/v1", None),
        ];
        for (requested, base_url, key) in table {
            let endpoint = resolved(requested, &all).unwrap();
            assert_eq!(endpoint.base_url, base_url, "{requested}");
            assert_eq!(exposed(&endpoint), key, "{requested}");
            assert_eq!(endpoint.full_name().as_deref(), Some(requested));
        }
    }

    #[test]
    fn models_that_a_provider_has_named_after_itself_keep_its_name() {
        let text = "[providers.nvidia.model]\nnemotron-3-super.window = 1000\n\
                    'nvidia/nemotron-3-nano'.window = 1000";
        for (requested, expected) in [
            ("openrouter/auto", "openrouter/auto"),
            ("openrouter/openrouter/auto", "openrouter/auto"),
            ("openrouter/z-ai/glm-5.3", "z-ai/glm-5.3"),
            ("nvidia/nemotron-3-super", "nvidia/nemotron-3-super"),
            ("nvidia/nemotron-3-nano", "nvidia/nemotron-3-nano"),
            ("nvidia/nvidia/nemotron-3-nano", "nvidia/nemotron-3-nano"),
            ("nvidia/moonshotai/kimi-k3", "moonshotai/kimi-k3"),
            ("groq/compound-mini", "groq/compound-mini"),
            ("groq/groq/compound", "groq/compound"),
            ("groq/llama-3.3-70b-versatile", "llama-3.3-70b-versatile"),
        ] {
            let keys = ["OPENROUTER_API_KEY", "NVIDIA_API_KEY", "GROQ_API_KEY"];
            let endpoint = resolved_with(requested, &keys, &Logins::default(), text).unwrap();
            assert_eq!(endpoint.model.as_deref(), Some(expected), "{requested}");
            let is_set = requested.contains("nemotron");
            assert_eq!(endpoint.window, is_set.then_some(1000), "{requested}");
        }
        let own = "[providers.nvidia]\nbase_url = 'http://nim:8000/v1'";
        let endpoint = resolved_with("nvidia/qwen3", &[], &Logins::default(), own).unwrap();
        assert_eq!(endpoint.model.as_deref(), Some("qwen3"), "a server of the user's own");
    }

    #[test]
    fn a_key_in_place_of_a_model_is_refused_and_not_shown() {
        let error = resolved("sk-0123456789abcdef0123", &[]).unwrap_err();
        assert!(error.contains("looks like a key") && !error.contains("sk-"), "{error}");
    }

    #[test]
    fn errors_name_what_is_missing() {
        let table = [
            ("deepseek/r1", &["ORG"][..], "DEEPSEEK_API_KEY"),
            ("deepseek/r1", &["DEEPSEEK_API_KEY"][..], "headers.X-Org` names the variable ORG"),
            ("mistral/large", &[][..], "MISTRAL_API_KEY"),
            ("mine/m", &[][..], "`providers.mine.key_env` names the variable MINE"),
            ("azure/gpt", &["AZURE_OPENAI_API_KEY"][..], "`base_url`"),
            ("future/m", &[][..], "telepathy"),
            ("nobody/m", &[][..], "No provider is called `nobody`. Known are anthropic, azure"),
            ("inline/m", &[][..], "key_env"),
        ];
        for (requested, keys, expected) in table {
            let error = resolved(requested, keys).unwrap_err();
            assert!(error.contains(expected) && error.contains("c.toml"), "{requested}: {error}");
            assert!(!error.contains("sk-inline"), "{error}");
        }
    }

    #[test]
    fn a_header_refers_to_a_variable_in_each_usual_form_and_behind_a_scheme() {
        for (text, expected) in [
            ("$ORG", Some("of ORG")),
            ("${ORG}", Some("of ORG")),
            ("${env:ORG}", Some("of ORG")),
            ("Bearer $ORG", Some("Bearer of ORG")),
            ("Bearer ${ORG}", Some("Bearer of ORG")),
            ("Bearer ${NONE}", None),
            ("pa$ORG", Some("pa$ORG")),
            ("costs $ORG", Some("costs $ORG")),
        ] {
            let section =
                format!("[providers.x]\nbase_url = 'http://x/v1'\nheaders = {{ X = '{text}' }}");
            let found = resolved_with("x/m", &["ORG"], &Logins::default(), &section);
            let sent = found.map(|endpoint| endpoint.headers[0].1.expose().to_owned());
            assert_eq!(sent.as_deref().ok(), expected, "{text}");
            let is_literal = expected == Some(text);
            assert_eq!(file(&section).variables().is_empty(), is_literal, "{text}");
        }
    }

    #[test]
    fn a_model_has_its_own_settings_over_those_of_its_provider() {
        let keys = ["DEEPSEEK_API_KEY", "ORG"];
        let own = resolved("deepseek/r1", &keys).unwrap();
        assert_eq!(Value::from(own.quirks), serde_json::json!({ "a": 1, "b": 2 }));
        assert_eq!((own.window, own.max_output), (Some(1000), Some(10)));
        assert_eq!(
            own.price.map(|price| (price.input, price.cached, price.output)),
            Some((1.0, None, 2.0))
        );
        let headers: Vec<_> =
            own.headers.iter().map(|header| (header.0.as_str(), header.1.expose())).collect();
        assert_eq!(headers, [("X-Org", "of ORG"), ("X-Title", "me")]);
        let other = resolved("deepseek/other", &keys).unwrap();
        assert_eq!(Value::from(other.quirks), serde_json::json!({ "a": 1, "b": 1 }));
        assert_eq!((other.window, other.price), (None, None));
    }
}
