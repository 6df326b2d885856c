//! The service that searches the web: the one that `[web]` names, with its key.

use crate::environment::variable_name;
use crate::file::WebSection;
use crate::wrong_values::unexpected;
use crate::{KeyOrigin, Logins, ProviderKey, SettingsSnapshot};
use turnwright_workspace::web::parse_url;
use turnwright_workspace::web::search::{SEARCH_BACKENDS, SearchService, search_backend};

impl WebSection {
    /// The service without its key; `None` if none is named or it has no address.
    fn search_service(&self) -> Option<SearchService> {
        let backend = search_backend(self.search.as_deref()?)?;
        SearchService::new(backend, self.search_url.as_deref())
    }

    /// Says why no service can be asked although one is named.
    pub(crate) fn missing_search_url(&self) -> Option<String> {
        let name = self.search.as_deref().filter(|name| search_backend(name).is_some())?;
        let is_missing = self.search_url.is_none() && self.search_service().is_none();
        is_missing.then(|| format!("`web.search` is {name}, which needs `web.search_url`"))
    }
}

impl SettingsSnapshot<'_> {
    /// The service that searches the web, and the place of its key. `None` if there is none, or the settings are wrong.
    pub fn search(&self) -> Option<(SearchService, Option<KeyOrigin>)> {
        let mut service = self.values.web.search_service()?;
        let key = self.search_key(&service).filter(|_| service.needs_key());
        let (secret, origin) = key.map(|key| (key.secret, key.origin)).unzip();
        service.key = secret;
        Some((service, origin))
    }

    /// A key is sent only to the server that it was given for: the usual variable to the usual address, and a login to
    /// the address with which it was made.
    fn search_key(&self, service: &SearchService) -> Option<ProviderKey> {
        let web = &self.values.web;
        let usual = search_backend(service.name())?.key_env.filter(|_| web.search_url.is_none());
        let named = web.search_key_env.as_deref().or(usual);
        let variables = &self.config.variables.keys;
        let found = named.and_then(|name| Some((name, variables.get(&*variable_name(name))?)));
        if let Some((name, secret)) = found {
            let origin = KeyOrigin::Variable(name.to_owned());
            return Some(ProviderKey { secret: secret.clone(), origin });
        }
        let secret = self.logins.search_key(service.url())?.into();
        Some(ProviderKey { secret, origin: KeyOrigin::Login(Logins::path(&self.config.paths)) })
    }
}

/// The names of the services.
pub(crate) fn search_names() -> Vec<&'static str> {
    SEARCH_BACKENDS.iter().map(|backend| backend.name).collect()
}

pub(crate) fn wrong_search(key: &str, name: &str) -> Option<String> {
    let known = search_names().join(", ");
    unexpected(key, name, search_backend(name).is_some(), &format!("one of {known}"))
}

pub(crate) fn wrong_search_url(key: &str, text: &str) -> Option<String> {
    // It is not quoted: it may contain a password.
    let is_right = parse_url(text).is_ok();
    (!is_right).then(|| format!("`{key}` is not a URL with http or https and without a password"))
}

#[cfg(test)]
mod tests {
    use turnwright_types::private_file;
    use turnwright_types::secret::Secret;

    use super::*;
    use crate::{Config, EnvironmentVariables, Flags, Paths, StoredLogin, UserFile};

    #[test]
    fn a_key_goes_only_to_the_address_that_it_was_given_for() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut logins = Logins::default();
        logins.add_search("https://api.exa.ai/search", "exa-login", &paths).unwrap();
        logins.add_search("https://mine.example/exa", "mine-login", &paths).unwrap();
        let provider = |provider: &str, key: &str| StoredLogin {
            provider: Some(provider.to_owned()),
            key: Some(key.to_owned()),
            ..StoredLogin::default()
        };
        logins.add(provider("deepseek", "model-login"), &paths).unwrap();
        logins.add(provider("ollama", "local-login"), &paths).unwrap();
        for (settings, expected) in [
            ("", "none"),
            ("search = 'google'", "none"),
            ("search = 'searxng'", "none"),
            ("search = 'searxng'\nsearch_url = 'http://box:8080'", "no key for box:8080"),
            ("search = 'exa'", "exa-login for api.exa.ai"),
            ("search = 'exa'\nsearch_url = 'https://mine.example/exa'", "mine-login for mine.example"),
            ("search = 'exa'\nsearch_url = 'https://other.example/'", "no key for other.example"),
            ("search = 'exa'\nsearch_key_env = 'OTHER'", "exa-login for api.exa.ai"),
            ("search = 'brave'", "brave-key for api.search.brave.com"),
            ("search = 'brave'\nsearch_url = 'https://mine.example/'", "no key for mine.example"),
            (
                "search = 'brave'\nsearch_url = 'https://mine.example/'\nsearch_key_env = 'MINE_KEY'",
                "mine-key for mine.example",
            ),
            ("search = 'deepseek'", "model-login for api.deepseek.com"),
            ("search = 'ollama'", "no key for ollama.com"),
        ] {
            let file = UserFile::at_default_path(&paths);
            private_file::write(file.path(), format!("[web]\n{settings}").as_bytes()).unwrap();
            let environment = [("BRAVE_API_KEY", "brave-key"), ("MINE_KEY", "mine-key")]
                .map(|(name, value)| (name.into(), value.into()));
            let named = ["MINE_KEY".to_owned()];
            let (variables, _) = EnvironmentVariables::classify(environment, &named);
            let config = Config::new(variables, Flags::default(), file, Paths::below(home.path()));
            let snapshot = config.snapshot();
            let shown = snapshot.search().map_or("none".to_owned(), |(service, origin)| {
                assert_eq!(service.key.is_some(), origin.is_some());
                let key = service.key.as_ref().map_or("no key", Secret::expose);
                format!("{key} for {}", service.host())
            });
            assert_eq!(shown, expected, "{settings}");
            let secrets = snapshot.secrets();
            for key in ["exa-login", "mine-login", "model-login", "brave-key"] {
                assert!(secrets.iter().any(|secret| secret == key), "{key}: {secrets:?}");
            }
        }
        assert!(!format!("{logins:?}").contains("exa-login"), "{logins:?}");
        logins.remove(|_| true, &paths).unwrap();
        assert!(Logins::path(&paths).exists(), "the keys of the services are still there");
        assert_eq!(logins.remove_searches(&paths).unwrap(), 2);
        assert!(!Logins::path(&paths).exists());
    }
}
