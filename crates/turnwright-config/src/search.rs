//! The service that searches the web: the one that `[web]` names, with its key.

use crate::environment::variable_name;
use crate::wrong_values::unexpected_word;
use crate::{KeyOrigin, Logins, ProviderKey, SettingsSnapshot, preset};
use turnwright_workspace::web::search::{SearchService, search_names};

impl SettingsSnapshot<'_> {
    /// The service that searches the web, and the place of its key. `None` if there is none, or the settings are wrong.
    pub fn search(&self) -> Option<(SearchService, Option<KeyOrigin>)> {
        let web = &self.values.web;
        let mut service = SearchService::new(web.search.as_deref()?, web.search_url.as_deref())?;
        let key = self.search_key(&service).filter(|_| service.needs_key());
        let (secret, origin) = key.map(|key| (key.secret, key.origin)).unzip();
        service.key = secret;
        service.model.clone_from(&web.search_model);
        Some((service, origin))
    }

    /// A key is sent only to the server that it was given for: what is usual for the service to its usual address, and
    /// a login to the host with which it was made.
    fn search_key(&self, service: &SearchService) -> Option<ProviderKey> {
        let web = &self.values.web;
        let usual = Some(service.name()).filter(|_| web.search_url.is_none());
        // The key of a hosted provider of models is for its searches, too.
        let hosted = usual.and_then(preset).filter(|known| known.key_env.is_some());
        let own_name = usual.filter(|_| hosted.is_none());
        let usual_variable = own_name.map(|name| format!("{}_API_KEY", name.to_uppercase()));
        if let Some(variable) = web.search_key_env.clone().or(usual_variable)
            && let Some(secret) = self.config.variables.keys.get(&*variable_name(&variable))
        {
            let origin = KeyOrigin::Variable(variable.clone());
            return Some(ProviderKey { secret: secret.clone(), origin });
        }
        let own = self.logins.provider_key(&format!("search:{}", service.host()));
        let Some(key) = own else { return self.sources(&self.values).key_at_home(hosted?) };
        let origin = KeyOrigin::Login(Logins::path(&self.config.paths));
        Some(ProviderKey { secret: key.into(), origin })
    }
}

pub(crate) fn wrong_search(key: &str, name: &str) -> Option<String> {
    unexpected_word(key, name, &search_names())
}

#[cfg(test)]
mod tests {
    use turnwright_types::private_file;
    use turnwright_types::secret::Secret;

    use super::*;
    use crate::{Config, EnvironmentVariables, Flags, Paths, StoredLogin, UserFile};

    #[test]
    fn a_key_goes_only_to_the_host_that_it_was_given_for() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut logins = Logins::default();
        let provider = |provider: &str, key: &str| StoredLogin {
            provider: Some(provider.to_owned()),
            key: Some(key.to_owned()),
            ..StoredLogin::default()
        };
        logins.add(provider("ollama", "local-login"), &paths).unwrap();
        logins.add(provider("deepseek", "model-login"), &paths).unwrap();
        for (host, key) in
            [("api.exa.ai", "first"), ("mine.example", "mine-login"), ("api.exa.ai", "exa-login")]
        {
            logins.add_search(host, key, &paths).unwrap();
        }
        assert_eq!(logins.all().len(), 4);
        assert_eq!(logins.last().unwrap().name(), "deepseek");
        for (settings, expected) in [
            ("", "none"),
            ("search = 'google'", "none"),
            ("search = 'searxng'", "none"),
            ("search = 'searxng'\nsearch_url = 'http://box:8080'", "no key for box:8080"),
            ("search = 'exa'", "exa-login for api.exa.ai"),
            ("search = 'exa'\nsearch_url = 'https://mine.example/'", "mine-login for mine.example"),
            ("search = 'exa'\nsearch_url = 'https://other.example/'", "no key for other.example"),
            ("search = 'exa'\nsearch_key_env = 'OTHER'", "exa-login for api.exa.ai"),
            ("search = 'brave'", "brave-key for api.search.brave.com"),
            ("search = 'brave'\nsearch_url = 'https://a.example/'", "no key for a.example"),
            (
                "search = 'brave'\nsearch_url = 'https://a.example/'\nsearch_key_env = 'MINE_KEY'",
                "mine-key for a.example",
            ),
            ("search = 'deepseek'", "model-login for api.deepseek.com"),
            ("search = 'deepseek'\nsearch_url = 'https://a.example/'", "no key for a.example"),
            ("search = 'ollama'", "no key for ollama.com"),
            ("search = 'openrouter'", "router-key for openrouter.ai"),
            (
                "search = 'openrouter'\n[providers.openrouter]\nkey_env = 'MINE_KEY'",
                "mine-key for openrouter.ai",
            ),
            (
                "search = 'openrouter'\n[providers.openrouter]\n\
                 base_url = 'https://a.example/v1'\nkey_env = 'OPENROUTER_API_KEY'",
                "no key for openrouter.ai",
            ),
            (
                "search = 'openrouter'\n[providers.openrouter]\n\
                 base_url = 'https://a.example/v1'\nkey_env = 'MINE_KEY'",
                "router-key for openrouter.ai",
            ),
            (
                "search = 'openrouter'\n[providers.openrouter]\n\
                 base_url = 'https://openrouter.ai/other/v1'\nkey_env = 'MINE_KEY'",
                "mine-key for openrouter.ai",
            ),
            (
                "search = 'deepseek'\n[providers.deepseek]\nbase_url = 'https://api.deepseek.com'",
                "model-login for api.deepseek.com",
            ),
            // OPENAI_API_KEY is for the server in OPENAI_BASE_URL.
            ("search = 'openai'", "no key for api.openai.com"),
        ] {
            let file = UserFile::at_default_path(&paths);
            private_file::write(file.path(), format!("[web]\n{settings}").as_bytes()).unwrap();
            let environment = [
                ("BRAVE_API_KEY", "brave-key"),
                ("MINE_KEY", "mine-key"),
                ("OPENROUTER_API_KEY", "router-key"),
                ("OPENAI_API_KEY", "other-key"),
                ("OPENAI_BASE_URL", "https://other.example/v1"),
            ]
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
    }
}
