//! What the user has set, from the environment, the stored login and the flags. The only reader
//! of the environment; everybody else gets plain values.

mod credentials;
mod environment;
mod paths;

use std::ffi::OsString;

use secrecy::{ExposeSecret, SecretString};

pub use credentials::Credentials;
pub use environment::take;
pub use paths::Paths;

/// Where OpenAI itself answers.
const OPENAI: &str = "https://api.openai.com/v1";
/// The model that is asked at OpenAI when none is named.
const OPENAI_MODEL: &str = "gpt-5-mini";
/// Requests to the model that one turn may make when nothing is set.
const MAX_TURN_REQUESTS: u32 = 100;

/// What the flags of the command line say.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--model`.
    pub model: Option<String>,
    /// `--base-url`.
    pub base_url: Option<String>,
}

/// The variables that mean something to us, and those that commands may inherit.
#[derive(Debug, Default)]
pub struct Variables {
    /// `OPENAI_API_KEY`.
    pub key: Option<SecretString>,
    /// `OPENAI_BASE_URL`.
    pub base_url: Option<String>,
    /// `TURNWRIGHT_MODEL`.
    pub model: Option<String>,
    /// `TURNWRIGHT_MODE`.
    pub mode: Option<String>,
    /// `TURNWRIGHT_MAX_TURN_REQUESTS`.
    pub max_turn_requests: Option<String>,
    /// `TURNWRIGHT_CONTEXT_WINDOW`.
    pub context_window: Option<String>,
    /// `TURNWRIGHT_LOG`, else `RUST_LOG`.
    pub log: Option<String>,
    /// All the others.
    pub rest: Vec<(OsString, OsString)>,
}

/// The settings of this process.
#[derive(Debug)]
pub struct Config {
    /// Where things are kept.
    pub paths: Paths,
    /// The mode that sessions begin in, unparsed.
    pub mode: Option<String>,
    /// Requests to the model that one turn may make.
    pub max_turn_requests: u32,
    /// What is logged to stderr, if anything.
    pub log: Option<String>,
    /// Variables that commands may inherit, secrets included.
    pub inherited: Vec<(OsString, OsString)>,
    key: Option<SecretString>,
    base_url: Option<String>,
    model: Option<String>,
    context_window: Option<u64>,
}

/// Which model is to be used.
#[derive(Clone, Debug)]
pub enum Provider {
    /// The built-in one, because it was asked for.
    Offline,
    /// One behind an endpoint.
    Endpoint {
        /// Its base URL.
        base_url: String,
        /// The key, if one is set.
        key: Option<SecretString>,
        /// The model's name, if one is known.
        model: Option<String>,
        /// The size of its window, if set.
        window: Option<u64>,
    },
    /// None is configured.
    None,
}

/// Whether a model that was made for one will do for the other.
impl PartialEq for Provider {
    fn eq(&self, other: &Provider) -> bool {
        match (self, other) {
            (Provider::Offline, Provider::Offline) | (Provider::None, Provider::None) => true,
            (
                Provider::Endpoint { base_url, key, model, window },
                Provider::Endpoint { base_url: url, key: secret, model: name, window: size },
            ) => {
                let shown =
                    |it: &Option<SecretString>| it.as_ref().map(|it| it.expose_secret().to_owned());
                base_url == url && model == name && window == size && shown(key) == shown(secret)
            }
            _ => false,
        }
    }
}

impl Config {
    /// Puts the sources together: flags over environment.
    pub fn new(variables: Variables, flags: Flags, paths: Paths) -> Config {
        let number = |text: Option<String>| text.and_then(|it| it.trim().parse().ok());
        Config {
            paths,
            mode: variables.mode,
            max_turn_requests: variables
                .max_turn_requests
                .and_then(|it| it.trim().parse().ok())
                .filter(|it| *it > 0)
                .unwrap_or(MAX_TURN_REQUESTS),
            log: variables.log,
            inherited: variables.rest,
            key: variables.key,
            base_url: flags.base_url.or(variables.base_url),
            model: flags.model.or(variables.model),
            context_window: number(variables.context_window),
        }
    }

    /// The provider. The stored login is read anew each time, so that `turnwright login` helps a
    /// process that is already running; the environment and the flags win over it as a whole:
    /// a key goes to the server that it was given for and to no other.
    pub fn provider(&self) -> Provider {
        if self.model.as_deref() == Some("offline") {
            return Provider::Offline;
        }
        let is_set = self.key.is_some() || self.base_url.is_some();
        let stored = if is_set { None } else { Credentials::load(&self.paths) };
        let stored = stored.unwrap_or_default();
        let key = self.key.clone().or_else(|| stored.key.clone().map(SecretString::from));
        let base_url = self.base_url.clone().or(stored.base_url);
        if key.is_none() && base_url.is_none() {
            return Provider::None;
        }
        let base_url = base_url.unwrap_or_else(|| OPENAI.to_owned());
        let usual = (base_url.trim_end_matches('/') == OPENAI).then(|| OPENAI_MODEL.to_owned());
        Provider::Endpoint {
            key,
            model: self.model.clone().or(stored.model).or(usual),
            window: self.context_window,
            base_url,
        }
    }

    /// What must not reach any command.
    pub fn secrets(&self) -> Vec<String> {
        let stored = Credentials::load(&self.paths).unwrap_or_default().key;
        let own = self.key.as_ref().map(|it| it.expose_secret().to_owned());
        own.into_iter().chain(stored).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(variables: Variables, flags: Flags) -> String {
        let home = tempfile::tempdir().unwrap();
        let config = Config::new(variables, flags, Paths::below(home.path()));
        match config.provider() {
            Provider::Offline => "offline".to_owned(),
            Provider::None => "none".to_owned(),
            Provider::Endpoint { base_url, key, model, .. } => {
                format!("{model:?} at {base_url}, key: {}", key.is_some())
            }
        }
    }

    #[test]
    fn flags_win_over_the_environment_and_offline_over_all() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(provider(Variables::default(), Flags::default()), "none");
        let variables = || Variables { key: Some("k".into()), ..Variables::default() };
        assert_eq!(
            provider(variables(), Flags::default()),
            "Some(\"gpt-5-mini\") at https://api.openai.com/v1, key: true"
        );
        let variables = || Variables {
            base_url: some("http://localhost:1/v1"),
            model: some("a"),
            ..Variables::default()
        };
        assert_eq!(
            provider(variables(), Flags { model: some("b"), base_url: None }),
            "Some(\"b\") at http://localhost:1/v1, key: false"
        );
        assert_eq!(
            provider(variables(), Flags { model: some("offline"), base_url: None }),
            "offline"
        );
    }

    #[test]
    fn a_key_goes_only_to_the_server_that_it_was_given_for() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let login = Credentials {
            key: Some("stored".to_owned()),
            base_url: Some("https://api.deepseek.com/v1".to_owned()),
            model: Some("deepseek-chat".to_owned()),
        };
        login.store(&paths).unwrap();
        let provider =
            |variables| match Config::new(variables, Flags::default(), paths.clone()).provider() {
                Provider::Endpoint { base_url, key, .. } => {
                    let key = key.map(|it| it.expose_secret().to_owned());
                    format!("{} to {base_url}", key.unwrap_or_else(|| "no key".to_owned()))
                }
                other => format!("{other:?}"),
            };
        assert_eq!(provider(Variables::default()), "stored to https://api.deepseek.com/v1");
        let variables = Variables { key: Some("openai".into()), ..Variables::default() };
        assert_eq!(provider(variables), "openai to https://api.openai.com/v1");
        let url = Some("http://elsewhere/v1".to_owned());
        let variables = Variables { base_url: url, ..Variables::default() };
        assert_eq!(provider(variables), "no key to http://elsewhere/v1");
    }

    #[test]
    fn a_number_that_makes_no_sense_is_the_usual_one() {
        for (text, expected) in [("7", 7), ("0", 100), ("many", 100)] {
            let variables =
                Variables { max_turn_requests: Some(text.to_owned()), ..Variables::default() };
            let config = Config::new(variables, Flags::default(), Paths::below("/tmp"));
            assert_eq!(config.max_turn_requests, expected, "{text}");
        }
    }
}
