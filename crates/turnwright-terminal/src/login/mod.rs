//! `turnwright login` and `turnwright logout`: store and remove keys and the models that were chosen with them.
//! Questions and answers are written to stderr. A logout says what still gives a key.

mod dialog;
mod target;

use std::fmt::Write;
use std::io;
use std::process::ExitCode;

use turnwright_config::{
    Config, Flags, KeyOrigin, Logins, OPENAI_BASE_URL, OPENAI_DEFAULT_MODEL, ProviderKey,
    StoredLogin,
};
use turnwright_llm::Endpoint;
use turnwright_types::error_text::io_error_text;

use self::dialog::choose;
use self::target::LoginTarget;
use crate::prompt;

/// Why a login was not stored, or not removed. The text is only shown.
#[derive(Debug, thiserror::Error)]
enum LoginError {
    #[error("{}", io_error_text(.0))]
    Io(#[from] io::Error),
    #[error("{0}")]
    Other(String),
}

/// Asks for a provider, its key and a model, and stores them. Exits with 0 only if they were stored, because
/// clients rely on the status (R-AUTH-7). Without the name of a provider, a list is shown.
pub fn login(provider: Option<&str>, mut config: Config) -> ExitCode {
    // The flags belong to this login, and are not settings that take precedence over it.
    let flags = std::mem::take(&mut config.flags);
    match run(provider, &flags, &config) {
        Ok(effect) => {
            let path = Logins::path(&config.paths);
            prompt::finish(&format!("Stored in {}.\n{effect}\n", path.display()), true)
        }
        Err(error) => prompt::finish(&format!("Nothing was stored: {error}\n"), false),
    }
}

/// Returns what the login changes.
fn run(provider: Option<&str>, flags: &Flags, config: &Config) -> Result<String, LoginError> {
    let mut logins = Logins::load(&config.paths).unwrap_or_else(|error| {
        prompt::say(&format!("{error}. This login replaces it.\n")).ok();
        Logins::default()
    });
    let login = Login { config, flags, logins: &logins };
    let new = if prompt::is_terminal() {
        login.ask(provider)?
    } else if let Some(provider) = provider {
        login.read_key_of(provider)?
    } else {
        login.read_all()?
    };
    // Not every way to log in has made a request.
    Endpoint::new(new.server().unwrap_or(OPENAI_BASE_URL), new.key.clone().map(Into::into))
        .map_err(|error| LoginError::Other(error.to_string()))?;
    logins.add(new, &config.paths)?;
    Ok(logins.last().map(|stored| config.snapshot().effect_of(stored)).unwrap_or_default())
}

/// A login that is being made.
struct Login<'a> {
    config: &'a Config,
    flags: &'a Flags,
    /// The logins that are already stored.
    logins: &'a Logins,
}

impl Login<'_> {
    /// The server that the flags and this provider name; `None` if they leave it open.
    fn named_target(&self, provider: Option<&str>) -> Result<Option<LoginTarget>, LoginError> {
        LoginTarget::named(provider, self.flags.base_url.as_deref()).map_err(LoginError::Other)
    }

    /// The key for this server that is already in the environment or stored.
    fn known_key(&self, target: &LoginTarget) -> Option<ProviderKey> {
        if let Some(preset) = target.provider {
            return self.config.snapshot().key_of_provider(preset);
        }
        let secret = self.logins.for_server(&target.base_url)?.key.as_deref()?.into();
        Some(self.new_key(secret))
    }

    /// A key that will be in the file of the logins.
    fn new_key(&self, secret: turnwright_types::secret::Secret) -> ProviderKey {
        ProviderKey { secret, origin: KeyOrigin::Login(Logins::path(&self.config.paths)) }
    }

    /// The model that is used if none is named: the one that was chosen before, or the usual one.
    fn usual_model<'a>(&'a self, target: &LoginTarget, listed: &'a [String]) -> Option<&'a str> {
        let before =
            self.logins.for_server(&target.base_url).and_then(|login| login.model.as_deref());
        let known =
            before.filter(|model| listed.is_empty() || listed.iter().any(|name| name == model));
        let openai = target.is_openai().then_some(OPENAI_DEFAULT_MODEL);
        known.or(openai).or(listed.first().map(String::as_str))
    }

    /// The model of `--model`, as the server knows it.
    fn named_model(&self, target: &LoginTarget, listed: &[String]) -> Option<String> {
        let named = self.flags.model.as_ref()?;
        let full = target
            .provider
            .and_then(|provider| named.strip_prefix(provider.name)?.strip_prefix('/'));
        let is_listed = listed.iter().any(|name| name == named);
        Some(full.filter(|_| !is_listed).unwrap_or(named).to_owned())
    }

    /// The login to store. A key in the environment stays there.
    fn stored(
        target: &LoginTarget,
        key: Option<ProviderKey>,
        model: Option<String>,
    ) -> StoredLogin {
        let key = key.filter(|key| !matches!(key.origin, KeyOrigin::Variable(_)));
        StoredLogin {
            provider: target.provider.map(|provider| provider.name.to_owned()),
            base_url: target.provider.is_none().then(|| target.base_url.clone()),
            key: key.map(|key| key.secret.expose().to_owned()),
            model,
        }
    }
}

/// Removes the login of a provider, or of the server with this base URL, or all of them.
pub fn logout(provider: Option<&str>, removes_all: bool, config: &Config) -> ExitCode {
    match remove(provider, removes_all, config) {
        Ok(text) => prompt::finish(&text, true),
        Err(error) => prompt::finish(&format!("Nothing was removed: {error}\n"), false),
    }
}

/// Removes what the arguments or the user's answer name, and returns what to say.
fn remove(
    provider: Option<&str>,
    removes_all: bool,
    config: &Config,
) -> Result<String, LoginError> {
    let mut logins = match Logins::load(&config.paths) {
        Ok(logins) => logins,
        Err(error) if provider.is_some() => return Err(LoginError::Other(error.to_string())),
        Err(_) => {
            Logins::default().remove(|_| true, &config.paths)?;
            return Ok("Removed the stored logins, which were damaged.\n".to_owned());
        }
    };
    let names: Vec<String> = logins.all().iter().map(StoredLogin::name).collect();
    let removed = match (provider, &names[..]) {
        (Some(name), _) => {
            let is_meant = |login: &StoredLogin| plain_name(&login.name()) == plain_name(name);
            if !logins.all().iter().any(is_meant) {
                return Err(LoginError::Other(format!(
                    "there is no login of `{}`. Stored are: {}",
                    name.escape_debug(),
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                )));
            }
            logins.remove(is_meant, &config.paths)?
        }
        (None, []) => Vec::new(),
        (None, [_]) => logins.remove(|_| true, &config.paths)?,
        (None, _) if removes_all => logins.remove(|_| true, &config.paths)?,
        (None, names) => {
            let name = ask_which(names)?;
            logins.remove(|login| name.is_none_or(|name| login.name() == name), &config.paths)?
        }
    };
    Ok(report(&removed, config))
}

fn plain_name(name: &str) -> String {
    name.trim_end_matches('/').to_ascii_lowercase()
}

/// Asks which login is to be removed; `None` for all.
fn ask_which(names: &[String]) -> Result<Option<&str>, LoginError> {
    if !prompt::is_terminal() {
        return Err(LoginError::Other(format!(
            "there are several logins. Add --all, or --provider with one of {}",
            names.join(", ")
        )));
    }
    let mut choices: Vec<&str> = names.iter().map(String::as_str).collect();
    choices.push("all");
    for (number, name) in choices.iter().enumerate() {
        prompt::say(&format!("{:4}  {name}\n", number + 1))?;
    }
    loop {
        match choose(&prompt::ask("Log out of (number or name): ")?, &choices, choices.len()) {
            Ok(at) => return Ok(names.get(at).map(String::as_str)),
            Err(why) => prompt::say(&format!("{why}.\n"))?,
        }
    }
}

/// The text about what was removed, and what still gives a key.
fn report(removed: &[StoredLogin], config: &Config) -> String {
    let mut text = String::new();
    if removed.is_empty() {
        text.push_str("There was no stored login.\n");
    } else {
        let names: Vec<_> = removed.iter().map(StoredLogin::name).collect();
        writeln!(text, "Removed the login of {}.", names.join(", ")).ok();
    }
    let left: Vec<_> = config.snapshot().keys_of_well_known_providers();
    if !left.is_empty() {
        let left: Vec<_> = left.iter().map(|(name, key)| format!("{name} ({key})")).collect();
        writeln!(text, "There is still a key for {}.", left.join(", ")).ok();
    }
    text
}
