//! The stored logins: keys, the servers that they are for, and the models that were chosen, in a file that
//! only its owner can read.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::provider::{is_openai_url, pasted_base_url, preset};
use crate::{ConfigError, OPENAI_PROVIDER, Paths};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;
use turnwright_types::redact;

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A login to one server, as `turnwright login` stores it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredLogin {
    /// The well-known provider; `None` for a server of the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The base URL of a server of the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The key; local servers need none, and another one may be in the provider's variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The model as the server knows it, if one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl fmt::Debug for StoredLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StoredLogin")
            .field("provider", &self.provider)
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl StoredLogin {
    /// The base URL of the server; `None` if the provider is not known to this version.
    pub fn server(&self) -> Option<&str> {
        let url = self.base_url.as_deref().or_else(|| preset(self.provider.as_deref()?)?.base_url);
        url.map(|url| url.trim_end_matches('/'))
    }

    /// The name that users know the login by: the provider's, or the base URL, without what may be secret.
    pub fn name(&self) -> String {
        let name = self.provider.as_deref().or(self.base_url.as_deref());
        redact::url(name.unwrap_or(OPENAI_PROVIDER))
    }

    /// Returns true if the login defines the default endpoint, whose models have no prefix.
    pub(crate) fn is_default_endpoint(&self) -> bool {
        self.provider.as_deref().is_none_or(|provider| provider == OPENAI_PROVIDER)
    }

    /// The name of the chosen model in the settings.
    pub(crate) fn full_model_name(&self) -> Option<String> {
        let model = self.model.as_ref()?;
        match &self.provider {
            Some(provider) if !self.is_default_endpoint() => Some(format!("{provider}/{model}")),
            _ => Some(model.clone()),
        }
    }

    /// Names OpenAI as such: earlier versions stored no provider. A login with a base URL is for that server
    /// and not for a provider, so that its key is sent nowhere else.
    fn normalized(mut self) -> StoredLogin {
        if let Some(base_url) = &mut self.base_url {
            *base_url = pasted_base_url(base_url);
            self.provider = None;
        }
        let is_openai = self.base_url.as_deref().is_none_or(is_openai_url);
        if self.provider.is_none() && is_openai {
            self.base_url = None;
            self.provider = Some(OPENAI_PROVIDER.to_owned());
        }
        self
    }
}

/// All stored logins, one for each server. The last one was made last.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Logins {
    logins: Vec<StoredLogin>,
}

/// The content of the file, now or as earlier versions wrote it: a single login.
#[derive(Deserialize)]
struct LoginFile {
    logins: Option<Vec<StoredLogin>>,
    #[serde(flatten)]
    single: StoredLogin,
}

impl Logins {
    /// The path of the file.
    pub fn path(paths: &Paths) -> PathBuf {
        paths.config.join("login.json")
    }

    /// The stored logins.
    pub fn load(paths: &Paths) -> Result<Logins, ConfigError> {
        let path = Logins::path(paths);
        let unusable = |why: String| {
            ConfigError::new(format!(
                "The stored login {} {why}. Run `turnwright login` again, or delete the file",
                path.display()
            ))
        };
        let text = match private_file::read(&path, MAX_FILE_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Logins::default()),
            text => text
                .map_err(|error| unusable(format!("cannot be read ({})", io_error_text(&error))))?,
        };
        let file: LoginFile =
            serde_json::from_str(&text).map_err(|_| unusable("is damaged".to_owned()))?;
        let single =
            Some(file.single).filter(|login| login.key.is_some() || login.base_url.is_some());
        let logins = file.logins.unwrap_or_else(|| single.into_iter().collect());
        Ok(Logins { logins: logins.into_iter().map(StoredLogin::normalized).collect() })
    }

    /// Stores a login, which becomes the last one and replaces an earlier one for the same server.
    pub fn add(&mut self, login: StoredLogin, paths: &Paths) -> io::Result<()> {
        let _lock = paths.lock_settings()?;
        self.reload(paths);
        let login = login.normalized();
        self.logins.retain(|stored| stored.server() != login.server());
        self.logins.push(login);
        self.store(paths)
    }

    /// Removes the logins for which `is_removed` is true, and the file with the last one. Returns the
    /// removed ones.
    pub fn remove(
        &mut self,
        is_removed: impl Fn(&StoredLogin) -> bool,
        paths: &Paths,
    ) -> io::Result<Vec<StoredLogin>> {
        let _lock = paths.lock_settings()?;
        self.reload(paths);
        let (removed, kept) = std::mem::take(&mut self.logins).into_iter().partition(is_removed);
        self.logins = kept;
        if self.logins.is_empty() {
            private_file::remove(&Logins::path(paths))?;
        } else {
            self.store(paths)?;
        }
        Ok(removed)
    }

    /// Takes over what other processes have stored since the file was loaded.
    fn reload(&mut self, paths: &Paths) {
        if let Ok(stored) = Logins::load(paths) {
            *self = stored;
        }
    }

    /// Writes the file atomically, with mode 0600.
    fn store(&self, paths: &Paths) -> io::Result<()> {
        private_file::write(&Logins::path(paths), serde_json::to_string_pretty(self)?.as_bytes())
    }

    /// Returns all logins, in the order in which they were made.
    pub fn all(&self) -> &[StoredLogin] {
        &self.logins
    }

    /// The login that was made last.
    pub fn last(&self) -> Option<&StoredLogin> {
        self.logins.last()
    }

    /// The login that defines the default endpoint. OpenAI is nothing without a key.
    pub(crate) fn default_endpoint(&self) -> Option<&StoredLogin> {
        let mut usable =
            self.logins.iter().filter(|login| login.key.is_some() || login.base_url.is_some());
        usable.rfind(|login| login.is_default_endpoint())
    }

    /// The login for the server with this base URL.
    pub fn for_server(&self, base_url: &str) -> Option<&StoredLogin> {
        let base_url = base_url.trim_end_matches('/');
        self.logins.iter().find(|login| login.server() == Some(base_url))
    }

    /// The key of a well-known provider.
    pub(crate) fn provider_key(&self, provider: &str) -> Option<&str> {
        let mut logins = self.logins.iter();
        logins.find(|login| login.provider.as_deref() == Some(provider))?.key.as_deref()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test damages a file")]
mod tests {
    use std::fs;

    use super::*;

    fn login(provider: Option<&str>, base_url: Option<&str>, key: &str) -> StoredLogin {
        StoredLogin {
            provider: provider.map(str::to_owned),
            base_url: base_url.map(str::to_owned),
            key: Some(key.to_owned()),
            model: None,
        }
    }

    fn stored(paths: &Paths) -> Vec<(String, String)> {
        let logins = Logins::load(paths).unwrap();
        let shown = |login: &StoredLogin| (login.name(), login.key.clone().unwrap_or_default());
        logins.all().iter().map(shown).collect()
    }

    fn pair(name: &str, key: &str) -> (String, String) {
        (name.to_owned(), key.to_owned())
    }

    #[test]
    fn logins_are_kept_private_and_can_be_removed() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut logins = Logins::load(&paths).unwrap();
        logins.add(login(Some("deepseek"), None, "sk-secret"), &paths).unwrap();
        assert!(!format!("{logins:?}").contains("secret"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(Logins::path(&paths)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(stored(&paths), [pair("deepseek", "sk-secret")]);
        assert_eq!(logins.remove(|login| login.name() == "groq", &paths).unwrap(), []);
        assert_eq!(stored(&paths).len(), 1);
        assert_eq!(logins.remove(|_| true, &paths).unwrap()[0].name(), "deepseek");
        assert!(!Logins::path(&paths).exists());
        assert_eq!(logins.remove(|_| true, &paths).unwrap(), []);
    }

    #[test]
    fn a_login_replaces_the_one_for_its_server_and_becomes_the_last() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut logins = Logins::default();
        for (provider, base_url, key) in [
            (Some("deepseek"), None, "first"),
            (None, None, "openai"),
            (None, Some("http://mine/v1/"), "mine"),
            (Some("groq"), None, "groq"),
            (None, Some("https://api.deepseek.com/v1/"), "second"),
            (Some("openai"), None, "openai again"),
        ] {
            logins.add(login(provider, base_url, key), &paths).unwrap();
        }
        let expected = [
            pair("http://mine/v1/", "mine"),
            pair("groq", "groq"),
            pair("https://api.deepseek.com/v1/", "second"),
            pair("openai", "openai again"),
        ];
        assert_eq!(stored(&paths), expected);
        assert_eq!(logins.last().unwrap().name(), "openai");
        assert_eq!(logins.for_server("http://mine/v1").unwrap().key.as_deref(), Some("mine"));
        assert_eq!(logins.provider_key("groq"), Some("groq"));
        assert_eq!(logins.provider_key("deepseek"), None);
    }

    #[test]
    fn the_format_of_earlier_versions_is_read_and_replaced_by_the_next_login() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        fs::create_dir_all(&paths.config).unwrap();
        for (text, expected) in [
            (r#"{ "key": "k" }"#, vec![pair("openai", "k")]),
            (r#"{ "base_url": "http://h/v1", "model": "m" }"#, vec![pair("http://h/v1", "")]),
            (
                r#"{ "key": "k", "base_url": "https://api.openai.com/v1/" }"#,
                vec![pair("openai", "k")],
            ),
            ("{}", vec![]),
        ] {
            fs::write(Logins::path(&paths), text).unwrap();
            assert_eq!(stored(&paths), expected, "{text}");
        }
        fs::write(Logins::path(&paths), r#"{ "key": "k", "model": "m" }"#).unwrap();
        let mut logins = Logins::load(&paths).unwrap();
        logins.add(login(Some("groq"), None, "g"), &paths).unwrap();
        assert_eq!(stored(&paths), [pair("openai", "k"), pair("groq", "g")]);
        let file: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(Logins::path(&paths)).unwrap()).unwrap();
        let expected = serde_json::json!({ "logins": [
            { "provider": "openai", "key": "k", "model": "m" }, { "provider": "groq", "key": "g" },
        ] });
        assert_eq!(file, expected);
    }

    #[test]
    fn a_login_keeps_those_that_others_have_stored_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let [mut one, mut other] = [Logins::default(), Logins::default()];
        one.add(login(Some("groq"), None, "g"), &paths).unwrap();
        other.add(login(Some("mistral"), None, "m"), &paths).unwrap();
        assert_eq!(stored(&paths), [pair("groq", "g"), pair("mistral", "m")]);
        one.remove(|login| login.name() == "groq", &paths).unwrap();
        assert_eq!(stored(&paths), [pair("mistral", "m")]);
    }

    #[test]
    fn a_login_with_a_base_url_is_not_for_the_provider_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let mut logins = Logins::default();
        logins.add(login(Some("deepseek"), Some("http://mine/v1"), "mine"), &paths).unwrap();
        assert_eq!(logins.provider_key("deepseek"), None);
        assert_eq!(logins.for_server("http://mine/v1").unwrap().key.as_deref(), Some("mine"));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_small_file_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        fs::create_dir_all(&paths.config).unwrap();
        std::os::unix::fs::symlink("/dev/zero", Logins::path(&paths)).unwrap();
        let error = Logins::load(&paths).unwrap_err().to_string();
        assert!(error.contains("cannot be read (it is not a regular file)"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_an_error_that_says_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        fs::create_dir_all(&paths.config).unwrap();
        for text in ["{", "[]", r#"{ "logins": 5 }"#, r#"{ "logins": [5] }"#, r#"{ "key": 5 }"#] {
            fs::write(Logins::path(&paths), text).unwrap();
            let error = Logins::load(&paths).unwrap_err().to_string();
            assert!(
                error.contains("login.json is damaged. Run `turnwright login` again"),
                "{text}"
            );
        }
    }
}
