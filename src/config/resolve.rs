//! What is meant by a model's name: which provider, and what goes with it. Files are read and
//! variables looked up by whoever made the [`Sources`]; here is only the order of things.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::ConfigError;
use super::file::{File, ModelSection, Section, unused_key, variable_of};
use super::presets::{Preset, preset};
use super::provider::{Api, EndpointSettings, Provider};
use super::secret::Secret;

/// The endpoint of the environment, the flags or the login.
#[derive(Clone, Debug)]
pub(super) struct DefaultEndpoint {
    pub(super) base_url: String,
    pub(super) key: Option<Secret>,
    /// The model that is asked there if none is named.
    pub(super) model: Option<String>,
}

/// Reads the key in a file.
type KeyFile<'a> = dyn Fn(&str) -> Result<Secret, ConfigError> + 'a;

/// All that a name is looked up in.
pub(super) struct Sources<'a> {
    pub(super) file: &'a File,
    /// Where the file is, for messages.
    pub(super) path: &'a Path,
    pub(super) default: Option<DefaultEndpoint>,
    pub(super) keys: &'a BTreeMap<String, Secret>,
    pub(super) key_file: Box<KeyFile<'a>>,
}

/// What a name means.
#[derive(Debug, PartialEq)]
enum Choice<'a> {
    Offline,
    Section { name: &'a str, model: &'a str },
    Default { model: Option<&'a str> },
    Preset { name: &'static str, model: &'a str },
    None,
}

/// The meaning of a model's name. A section of the file goes first, because the user has written
/// it for that; the default endpoint next and whole, because the names of some servers have
/// slashes.
fn choose<'a>(wanted: Option<&'a str>, file: &'a File, has_default: bool) -> Choice<'a> {
    if wanted == Some("offline") {
        return Choice::Offline;
    }
    let own = wanted.and_then(|wanted| {
        file.providers.keys().find_map(|name| Some((name, model_after(wanted, name)?)))
    });
    if let Some((name, model)) = own {
        return Choice::Section { name, model };
    }
    if has_default {
        return Choice::Default { model: wanted };
    }
    let Some(wanted) = wanted else { return only_section(file) };
    let known = wanted.split_once('/').and_then(|(name, _)| preset(name));
    match known.and_then(|it| Some((it, model_after(wanted, it.name)?))) {
        Some((preset, model)) => Choice::Preset { name: preset.name, model },
        None => Choice::None,
    }
}

fn model_after<'a>(wanted: &'a str, name: &str) -> Option<&'a str> {
    wanted.strip_prefix(name)?.strip_prefix('/').filter(|it| !it.is_empty())
}

/// With one provider that has models there is nothing to choose.
fn only_section(file: &File) -> Choice<'_> {
    let mut offering = file.providers.iter().filter_map(|it| Some((it.0, it.1.models.first()?)));
    match (offering.next(), offering.next()) {
        (Some((name, model)), None) => Choice::Section { name, model },
        _ => Choice::None,
    }
}

impl Sources<'_> {
    /// The provider that a name stands for; without a name the usual one.
    pub(super) fn provider(&self, wanted: Option<&str>) -> Result<Provider, ConfigError> {
        let endpoint = match choose(wanted, self.file, self.default.is_some()) {
            Choice::Offline => return Ok(Provider::Offline),
            Choice::None => return Ok(Provider::None),
            Choice::Default { model } => match &self.default {
                Some(default) => EndpointSettings {
                    base_url: default.base_url.clone(),
                    key: default.key.clone(),
                    model: model.map(str::to_owned).or_else(|| default.model.clone()),
                    ..EndpointSettings::default()
                },
                None => return Ok(Provider::None),
            },
            Choice::Section { name, model } => self.named(name, model)?,
            Choice::Preset { name, model } => self.named(name, model)?,
        };
        Ok(Provider::Endpoint(Box::new(endpoint)))
    }

    /// A model of a provider that has a section, or is well known, or both.
    fn named(&self, name: &str, model: &str) -> Result<EndpointSettings, ConfigError> {
        let empty = Section::default();
        let section = self.file.providers.get(name).unwrap_or(&empty);
        let known = preset(name);
        let usual = known.and_then(|it| it.base_url);
        let base_url = section.base_url.as_deref().or(usual).ok_or_else(|| {
            self.wrong(&format!("`providers.{name}` needs a `base_url`, where its API answers"))
        })?;
        let headers = self.headers(name, section)?;
        let nothing = ModelSection::default();
        let own = section.model.get(model).unwrap_or(&nothing);
        Ok(EndpointSettings {
            name: Some(name.to_owned()),
            base_url: base_url.to_owned(),
            key: self.key(name, section, known, &headers)?,
            model: Some(model.to_owned()),
            api: self.api(name, section, known)?,
            headers,
            quirks: merged(&section.quirks, &own.quirks),
            window: own.window,
            max_output: own.max_output,
            price: own.price,
        })
    }

    fn api(
        &self,
        name: &str,
        section: &Section,
        known: Option<&Preset>,
    ) -> Result<Api, ConfigError> {
        let Some(word) = &section.api else {
            return Ok(known.map(|it| it.api).unwrap_or_default());
        };
        Api::parse(word).ok_or_else(|| {
            self.wrong(&format!(
                "`providers.{name}.api` is `{word}`; this version knows `chat` and `responses`"
            ))
        })
    }

    /// A key goes only to the server that it was given for: the well-known variable counts at
    /// the well-known address, and anywhere else only if the file says so.
    fn key(
        &self,
        name: &str,
        section: &Section,
        known: Option<&Preset>,
        headers: &[(String, Secret)],
    ) -> Result<Option<Secret>, ConfigError> {
        let set = section.key_env.as_ref().and_then(|it| self.keys.get(it));
        if let Some(key) = set {
            return Ok(Some(key.clone()));
        }
        if let Some(file) = &section.key_file {
            return (self.key_file)(file).map(Some);
        }
        if let Some(variable) = &section.key_env {
            return Err(self.unset(variable, &format!("`providers.{name}.key_env`")));
        }
        if section.holds_key() {
            return Err(self.wrong(&format!(
                "`providers.{name}` holds a key, which is not used: a key does not belong into this \
                 file. Say where it is with `key_env` or `key_file`"
            )));
        }
        let usual = known.and_then(|it| it.key_env).filter(|_| unused_key(name, section).is_none());
        // Who sends a header of that sort has said all, and two different proofs are one too many.
        let usual = usual.filter(|_| !headers.iter().any(|(name, _)| is_proof(name)));
        let Some(variable) = usual else { return Ok(None) };
        match self.keys.get(variable).filter(|_| !self.is_given_away(variable)) {
            Some(key) => Ok(Some(key.clone())),
            None => Err(ConfigError::new(format!(
                "There is no key for {name}. Set {variable} where turnwright is started, or add \
                 `key_env` or `key_file` to [providers.{name}] in {}",
                self.path.display()
            ))),
        }
    }

    /// `OPENAI_API_KEY` belongs to the server in `OPENAI_BASE_URL`, which may not be OpenAI's.
    fn is_given_away(&self, variable: &str) -> bool {
        let default = self.default.as_ref().map(|it| it.base_url.trim_end_matches('/'));
        variable == super::OPENAI_KEY && default.is_some_and(|it| it != super::OPENAI)
    }

    fn headers(&self, name: &str, section: &Section) -> Result<Vec<(String, Secret)>, ConfigError> {
        let value = |(header, text): (&String, &String)| {
            let value = match variable_of(text) {
                None => text.as_str().into(),
                Some(variable) => self.keys.get(variable).cloned().ok_or_else(|| {
                    self.unset(variable, &format!("`providers.{name}.headers.{header}`"))
                })?,
            };
            Ok((header.clone(), value))
        };
        section.headers.iter().map(value).collect()
    }

    fn unset(&self, variable: &str, place: &str) -> ConfigError {
        // Who pastes a key where a name belongs should not see it in a log.
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let variable = if variable.chars().all(is_name) && variable.len() < 64 {
            variable
        } else {
            "(not shown: it does not look like a name)"
        };
        self.wrong(&format!(
            "{place} names the variable {variable}, which was not set, or not named yet, when \
             turnwright was started. Set it there and start it again"
        ))
    }

    fn wrong(&self, what: &str) -> ConfigError {
        ConfigError::new(format!("{}: {what}", self.path.display()))
    }
}

/// Whether a header takes the place of the key.
fn is_proof(header: &str) -> bool {
    ["authorization", "api-key", "x-api-key"].iter().any(|it| header.eq_ignore_ascii_case(it))
}

/// Whether a header may hold a secret, by its name.
pub(super) fn is_credential(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie"].iter().any(|it| header.contains(it))
}

/// What is said about the model counts more than what is said about its provider.
fn merged(provider: &Map<String, Value>, model: &Map<String, Value>) -> Map<String, Value> {
    let both = provider.iter().chain(model);
    both.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn file(text: &str) -> File {
        File::parse(text, Path::new("c.toml")).unwrap().0
    }

    #[test]
    fn a_name_means_a_section_then_the_default_endpoint_then_a_well_known_provider() {
        let file = file(FILE);
        let section = |name, model| Choice::Section { name, model };
        let default = |model| Choice::Default { model };
        let table = [
            (Some("offline"), true, Choice::Offline),
            (Some("offline"), false, Choice::Offline),
            (Some("deepseek/r1"), true, section("deepseek", "r1")),
            (Some("mine/org/model"), false, section("mine", "org/model")),
            (Some("mistral/large"), true, default(Some("mistral/large"))),
            (Some("mistral/large"), false, Choice::Preset { name: "mistral", model: "large" }),
            (Some("ollama/org/m:7b"), false, Choice::Preset { name: "ollama", model: "org/m:7b" }),
            (Some("nobody/large"), false, Choice::None),
            (Some("minestrone/x"), true, default(Some("minestrone/x"))),
            (Some("mine/"), true, default(Some("mine/"))),
            (Some("mistral/"), false, Choice::None),
            (Some("gpt-5"), true, default(Some("gpt-5"))),
            (Some("gpt-5"), false, Choice::None),
            (None, true, default(None)),
            (None, false, section("deepseek", "deepseek-chat")),
        ];
        for (wanted, has_default, expected) in table {
            assert_eq!(choose(wanted, &file, has_default), expected, "{wanted:?} {has_default}");
        }
    }

    #[test]
    fn without_a_name_only_one_section_with_models_is_clear() {
        for (text, expected) in [
            ("", Choice::None),
            ("[providers.a]", Choice::None),
            ("[providers.a]\nmodels = []", Choice::None),
            (
                "[providers.b]\nmodels = ['x', 'y']\n[providers.a]",
                Choice::Section { name: "b", model: "x" },
            ),
            ("[providers.a]\nmodels = ['x']\n[providers.b]\nmodels = ['y']", Choice::None),
        ] {
            assert_eq!(choose(None, &file(text), false), expected, "{text}");
        }
    }

    fn resolved(wanted: &str, keys: &[&str]) -> Result<EndpointSettings, String> {
        let keys = keys.iter().map(|it| ((*it).to_owned(), format!("of {it}").into())).collect();
        let sources = Sources {
            file: &file(FILE),
            path: Path::new("c.toml"),
            default: None,
            keys: &keys,
            key_file: Box::new(|name| Ok(format!("in {name}").into())),
        };
        match sources.provider(Some(wanted)) {
            Ok(Provider::Endpoint(endpoint)) => Ok(*endpoint),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
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
            // Its header is the key.
            ("xai/m", "https://api.x.ai/v1", None),
        ];
        for (wanted, base_url, key) in table {
            let endpoint = resolved(wanted, &all).unwrap();
            assert_eq!(endpoint.base_url, base_url, "{wanted}");
            assert_eq!(endpoint.key.as_ref().map(Secret::expose), key, "{wanted}");
            assert_eq!(endpoint.full_name().as_deref(), Some(wanted));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let table = [
            ("deepseek/r1", &["ORG"][..], "DEEPSEEK_API_KEY"),
            ("deepseek/r1", &["DEEPSEEK_API_KEY"][..], "headers.X-Org` names the variable ORG"),
            ("mistral/large", &[][..], "MISTRAL_API_KEY"),
            ("mine/m", &[][..], "`providers.mine.key_env` names the variable MINE"),
            ("azure/gpt", &["AZURE_OPENAI_API_KEY"][..], "`base_url`"),
            ("future/m", &[][..], "telepathy"),
            ("inline/m", &[][..], "key_env"),
        ];
        for (wanted, keys, expected) in table {
            let error = resolved(wanted, keys).unwrap_err();
            assert!(error.contains(expected) && error.contains("c.toml"), "{wanted}: {error}");
            assert!(!error.contains("sk-inline"), "{error}");
        }
    }

    #[test]
    fn a_model_has_its_own_settings_over_those_of_its_provider() {
        let keys = ["DEEPSEEK_API_KEY", "ORG"];
        let own = resolved("deepseek/r1", &keys).unwrap();
        assert_eq!(Value::from(own.quirks), serde_json::json!({ "a": 1, "b": 2 }));
        assert_eq!((own.window, own.max_output), (Some(1000), Some(10)));
        assert_eq!(own.price.map(|it| (it.input, it.cached, it.output)), Some((1.0, None, 2.0)));
        let headers: Vec<_> = own.headers.iter().map(|it| (it.0.as_str(), it.1.expose())).collect();
        assert_eq!(headers, [("X-Org", "of ORG"), ("X-Title", "me")]);
        let other = resolved("deepseek/other", &keys).unwrap();
        assert_eq!(Value::from(other.quirks), serde_json::json!({ "a": 1, "b": 1 }));
        assert_eq!((other.window, other.price), (None, None));
    }
}
