//! `turnwright login` and `turnwright logout`: store and remove keys and the models that were chosen with them.
//! Questions and answers are written to stderr. A logout says what still gives a key.
//!
//! On a terminal, a login asks for a provider from a list, its key, and a model from its list; from a pipe it reads the
//! lines in an order that scripts and clients rely on.

mod search;
mod target;

use std::fmt::{Display, Write};
use std::process::ExitCode;

use turnwright_config::{
    Config, Flags, KeyOrigin, Logins, OPENAI_BASE_URL, OPENAI_DEFAULT_MODEL, PRESETS, ProviderKey,
    ProviderPreset, StoredLogin, is_openai_url, looks_like_key,
};
use turnwright_llm::Endpoint;
use turnwright_types::error_text::as_sentence;
use turnwright_types::secret::Secret;
use turnwright_types::text::counted;

pub use self::search::login_search;
use self::target::{LOOK_LIMIT, LoginTarget, Trial, find_local};
use crate::{CliError, CliResult, block_on, prompt};

/// Asks for a provider, its key and a model, and stores them. Exits with 0 only if they were stored, because
/// clients rely on the status (R-AUTH-7). Without the name of a provider, a list is shown.
pub fn login(provider: Option<&str>, mut config: Config) -> ExitCode {
    // The flags belong to this login, and are not settings that take precedence over it.
    let flags = std::mem::take(&mut config.flags);
    prompt::finish(run(provider, &flags, &config), "Nothing was stored")
}

/// Returns what to say: where the login is stored, and what it changes.
fn run(provider: Option<&str>, flags: &Flags, config: &Config) -> CliResult<String> {
    let mut logins = match Logins::load(&config.paths) {
        Err(error) if Logins::can_be_read(&config.paths) => {
            prompt::say(&format!("{error}. This login replaces it.\n")).ok();
            Logins::default()
        }
        loaded => loaded.map_err(|error| error.to_string())?,
    };
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
        .map_err(|error| CliError::Other(error.to_string()))?;
    logins.add(new, &config.paths)?;
    let path = Logins::path(&config.paths);
    let effect = logins.last().map(|stored| config.snapshot().effect_of(stored));
    Ok(format!("Stored in {}.\n{}\n", path.display(), effect.unwrap_or_default()))
}

/// A login that is being made.
struct Login<'a> {
    config: &'a Config,
    flags: &'a Flags,
    /// The logins that are already stored.
    logins: &'a Logins,
}

impl Login<'_> {
    /// The key for this server that is already in the environment or stored.
    fn known_key(&self, target: &LoginTarget) -> Option<ProviderKey> {
        if let Some(preset) = target.provider {
            return self.config.snapshot().key_of_provider(preset);
        }
        let secret = self.logins.for_server(&target.base_url)?.key.as_deref()?.into();
        Some(self.new_key(secret))
    }

    /// A key that will be in the file of the logins.
    fn new_key(&self, secret: Secret) -> ProviderKey {
        ProviderKey { secret, origin: KeyOrigin::Login(Logins::path(&self.config.paths)) }
    }

    /// The model that is used if none is named: the one that was chosen before, or the usual one.
    fn usual_model<'a>(&'a self, target: &LoginTarget, listed: &'a [String]) -> Option<&'a str> {
        let before =
            self.logins.for_server(&target.base_url).and_then(|login| login.model.as_deref());
        let known =
            before.filter(|model| listed.is_empty() || listed.iter().any(|name| name == model));
        let openai = is_openai_url(&target.base_url).then_some(OPENAI_DEFAULT_MODEL);
        known.or(openai).or(listed.first().map(String::as_str))
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
    prompt::finish(remove(provider, removes_all, config), "Nothing was removed")
}

/// Removes what the arguments or the user's answer name, and returns what to say.
fn remove(provider: Option<&str>, removes_all: bool, config: &Config) -> CliResult<String> {
    let mut logins = match Logins::load(&config.paths) {
        Err(_) if provider.is_none() && Logins::can_be_read(&config.paths) => {
            Logins::default().remove(|_| true, &config.paths)?;
            return Ok("Removed the stored logins, which were damaged.\n".to_owned());
        }
        loaded => loaded.map_err(|error| error.to_string())?,
    };
    let names: Vec<String> = logins.all().iter().map(StoredLogin::name).collect();
    let removed = match (provider, &names[..]) {
        (Some(name), _) => {
            let is_meant = |login: &StoredLogin| plain_name(&login.name()) == plain_name(name);
            if !logins.all().iter().any(is_meant) {
                let stored = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                let shown = name.escape_debug();
                return Err(format!("there is no login of `{shown}`. Stored are: {stored}").into());
            }
            logins.remove(is_meant, &config.paths)?
        }
        (None, []) => Vec::new(),
        (None, names) if removes_all || names.len() == 1 => {
            logins.remove(|_| true, &config.paths)?
        }
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
fn ask_which(names: &[String]) -> CliResult<Option<&str>> {
    if !prompt::is_terminal() {
        let names = names.join(", ");
        let why = "there are several logins. Add --all, or --provider with one of";
        return Err(format!("{why} {names}").into());
    }
    let mut choices: Vec<&str> = names.iter().map(String::as_str).collect();
    choices.push("all");
    prompt::say(&numbered(&choices))?;
    let at = ask_until("Log out of (number or name): ", |answer| {
        choose(answer, &choices, choices.len())
    })?;
    Ok(names.get(at).map(String::as_str))
}

/// Asks until the answer can be used, and says why another one cannot.
fn ask_until<T>(question: &str, parse: impl Fn(&str) -> Result<T, String>) -> CliResult<T> {
    loop {
        match parse(&prompt::ask(question)?) {
            Ok(found) => return Ok(found),
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

/// How often a key is asked for.
const MAX_ATTEMPTS: usize = 3;
/// The entry of the list that stands for a server of the user's own.
const ANOTHER_SERVER: &str = "another server";

impl Login<'_> {
    /// Asks for everything that the flags leave open.
    fn ask(&self, provider: Option<&str>) -> CliResult<StoredLogin> {
        let mut target = match LoginTarget::named(provider, self.flags.base_url.as_deref())? {
            Some(target) => target,
            // A provider without a base URL of its own.
            None if provider.is_some() => ask_server()?,
            None => self.ask_target()?,
        };
        let (key, models) = self.ask_key(&mut target)?;
        let named = match &self.flags.model {
            Some(model) => Some(model.clone()),
            None => self.ask_model(&target, &models)?,
        };
        let model = named.map(|named| target.model(&named, &models));
        Ok(Login::stored(&target, key, model))
    }

    fn ask_target(&self) -> CliResult<LoginTarget> {
        let (local, hosted): (Vec<_>, Vec<_>) =
            PRESETS.iter().partition(|provider| provider.key_env.is_none());
        let found = self.look_for(&local)?;
        let (running, others): (Vec<_>, Vec<_>) =
            local.into_iter().zip(found).partition(|(_, count)| count.is_some());
        let running = running.into_iter().map(|(provider, count)| {
            (provider, format!("on this machine, {}", counted(count.unwrap_or(0), "model")))
        });
        let hosted = hosted.into_iter().map(|provider| (provider, self.key_note(provider)));
        let shown: Vec<(&'static ProviderPreset, String)> = running.chain(hosted).collect();
        let mut names: Vec<&str> = shown.iter().map(|(provider, _)| provider.name).collect();
        names.push(ANOTHER_SERVER);
        prompt::say(&provider_list(&shown))?;
        let count = names.len();
        // Servers that do not run now can be named, too.
        names.extend(others.iter().map(|(provider, _)| provider.name));
        let question = "Provider (number or name, or the base URL of a server): ";
        let target = ask_until(question, |answer| {
            if answer.contains([':', '/']) {
                return LoginTarget::server(answer).map(Some);
            }
            let name = names[choose(answer, &names, count)?];
            let preset = PRESETS.iter().find(|provider| provider.name == name);
            Ok(preset.and_then(LoginTarget::provider))
        })?;
        target.map_or_else(ask_server, Ok)
    }

    /// How many models each of these servers has that runs on this machine.
    fn look_for(&self, local: &[&ProviderPreset]) -> CliResult<Vec<Option<usize>>> {
        if !self.config.snapshot().list_models() {
            return Ok(vec![None; local.len()]);
        }
        prompt::say("Looking for model servers on this machine…\n\n")?;
        let base_urls: Vec<_> = local.iter().filter_map(|provider| provider.base_url).collect();
        Ok(block_on(find_local(&base_urls, LOOK_LIMIT))?)
    }

    /// A note about the known key of a provider.
    fn key_note(&self, preset: &ProviderPreset) -> String {
        let key = self.config.snapshot().key_of_provider(preset);
        key.map(|key| format!("key in {}", key.origin)).unwrap_or_default()
    }

    /// Asks for the key until the server accepts it. Returns it with the models that the server lists.
    fn ask_key(&self, target: &mut LoginTarget) -> CliResult<(Option<ProviderKey>, Vec<String>)> {
        let known = self.known_key(target);
        for attempt in 1..=MAX_ATTEMPTS {
            // A local server usually needs none.
            let key = if target.is_local() && attempt == 1 {
                known.clone()
            } else {
                self.ask_one_key(target, known.as_ref())?
            };
            if key.is_none() && target.needs_key() {
                prompt::say(&format!("{} needs a key.\n", target.name()))?;
                continue;
            }
            prompt::say(&format!("Asking {} for its models…\n", target.name()))?;
            match self.try_key(target, key.as_ref().map(|key| &key.secret))? {
                Trial::Models(models) => return Ok((key, models)),
                Trial::Refused(why) => prompt::say(&format!("{why}. Nothing was stored.\n"))?,
                Trial::Unknown(why) => {
                    let why = as_sentence(why);
                    prompt::say(&format!("{why} So it is not known whether the login works.\n"))?;
                    if !prompt::is_yes(&prompt::ask("Store it nevertheless? [y/N] ")?) {
                        return Err(CliError::Other("you decided not to".to_owned()));
                    }
                    return Ok((key, Vec::new()));
                }
            }
        }
        Err(CliError::Other(format!("there was no valid key in {MAX_ATTEMPTS} attempts")))
    }

    fn ask_one_key(
        &self,
        target: &LoginTarget,
        known: Option<&ProviderKey>,
    ) -> CliResult<Option<ProviderKey>> {
        let empty = match known {
            Some(key) => format!("; empty for the one in {}", key.origin),
            None if target.needs_key() => String::new(),
            None => "; empty if the server needs none".to_owned(),
        };
        let question = format!("API key for {} (hidden{empty}): ", target.name());
        let typed = prompt::ask_hidden(&question)?;
        let new = Secret::from_copied(&typed).map(|secret| self.new_key(secret));
        Ok(new.or_else(|| known.cloned()))
    }

    fn ask_model(&self, target: &LoginTarget, models: &[String]) -> CliResult<Option<String>> {
        let usual = self.usual_model(target, models);
        prompt::say(&model_list(models))?;
        let what = if models.is_empty() { "name" } else { "number or name" };
        let empty = usual.map(|model| format!("; empty for {model}")).unwrap_or_default();
        let question = format!("Model ({what}{empty}): ");
        ask_until(&question, |answer| choose_model(answer, models, usual))
    }
}

/// Asks for the base URL of a server of the user's own.
fn ask_server() -> CliResult<LoginTarget> {
    ask_until("Base URL, such as https://example.com/v1: ", LoginTarget::server)
}

/// The list of providers with a note on each, and the entry for another server.
fn provider_list(shown: &[(&'static ProviderPreset, String)]) -> String {
    let providers = shown.iter().map(|(provider, note)| format!("{:14}  {note}", provider.name));
    let entries: Vec<_> = providers.chain([ANOTHER_SERVER.to_owned()]).collect();
    numbered(&entries) + "\n"
}

/// A list with a number before each entry.
fn numbered(entries: &[impl Display]) -> String {
    let lines = entries.iter().enumerate().map(|(index, entry)| {
        let line = format!("{:4}  {entry}", index + 1);
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// The first models with their numbers.
fn model_list(models: &[String]) -> String {
    let mut text = numbered(&models[..models.len().min(MAX_SHOWN)]);
    if models.len() > MAX_SHOWN {
        writeln!(text, "      … and {} more; any name can be typed", models.len() - MAX_SHOWN).ok();
    }
    text
}

/// The most models that are shown.
const MAX_SHOWN: usize = 30;

/// The most characters of a name that a message repeats. No provider has a longer name, and no key is this short.
const MAX_SHOWN_NAME: usize = 16;

/// Finds the one of `names` that an answer means: the number of one of the first `shown`, the name, or the
/// beginning of only one name.
fn choose(answer: &str, names: &[&str], shown: usize) -> Result<usize, String> {
    let answer = prompt::plain_answer(answer);
    let number = answer.parse::<usize>().ok();
    if number.is_some() || answer.is_empty() {
        let index = number.filter(|number| (1..=shown).contains(number)).map(|number| number - 1);
        return index.ok_or_else(|| format!("Enter a number from 1 to {shown}, or a name"));
    }
    if let Some(exact) = names.iter().position(|name| name.to_lowercase() == answer) {
        return Ok(exact);
    }
    let all = 0..names.len();
    let matching = all.filter(|index| names[*index].to_lowercase().starts_with(&answer));
    match matching.collect::<Vec<_>>()[..] {
        [one] => Ok(one),
        [] => Err(format!("Nothing here is called {}", quoted(&answer))),
        ref several => {
            let several: Vec<_> = several.iter().map(|index| names[*index]).collect();
            Err(format!("`{}` may be {}", answer.escape_debug(), several.join(" or ")))
        }
    }
}

/// A name that is not known, as it may be shown. What is longer than any name may be a key that was meant
/// for another question.
fn quoted(name: &str) -> String {
    if name.chars().count() > MAX_SHOWN_NAME {
        "what was typed (it may be a key, so it is not shown)".to_owned()
    } else {
        format!("`{}`", name.escape_debug())
    }
}

/// The model that an answer means: the number of one of the first models, or any name, because servers do
/// not list all that they have. Empty for `usual`.
fn choose_model(
    answer: &str,
    models: &[String],
    usual: Option<&str>,
) -> Result<Option<String>, String> {
    let answer = answer.trim();
    if answer.is_empty() {
        return Ok(usual.map(str::to_owned));
    }
    if looks_like_key(answer) {
        return Err("That looks like a key, and not like the name of a model".to_owned());
    }
    let shown = models.len().min(MAX_SHOWN);
    match prompt::plain_answer(answer).parse::<usize>() {
        Ok(number) if (1..=shown).contains(&number) => Ok(Some(models[number - 1].clone())),
        Ok(_) if shown > 0 => Err(format!("Enter a number from 1 to {shown}, or a name")),
        _ => Ok(Some(answer.to_owned())),
    }
}

impl Login<'_> {
    /// Reads the key of a well-known provider, which is the first line, and tries it.
    fn read_key_of(&self, provider: &str) -> CliResult<StoredLogin> {
        let named = LoginTarget::named(Some(provider), self.flags.base_url.as_deref())?;
        let mut target = named.ok_or_else(|| {
            format!("each account of {provider} has its own server: add --base-url")
        })?;
        let typed = if target.is_local() { String::new() } else { prompt::read_line()? };
        let new = Secret::from_copied(&typed).map(|secret| self.new_key(secret));
        let key = new.or_else(|| self.known_key(&target));
        if key.is_none() && target.needs_key() {
            return Err(CliError::Other(format!("{} needs a key", target.name())));
        }
        let models = match self.try_key(&mut target, key.as_ref().map(|key| &key.secret))? {
            Trial::Models(models) => models,
            Trial::Refused(why) => return Err(CliError::Other(why)),
            Trial::Unknown(why) => {
                // There is nobody to ask.
                prompt::say(&format!("The key could not be tried: {why}\n"))?;
                Vec::new()
            }
        };
        let named = self.flags.model.as_deref();
        let model = named
            .map(|named| target.model(named, &models))
            .or_else(|| self.usual_model(&target, &models).map(str::to_owned));
        Ok(Login::stored(&target, key, model))
    }

    /// Reads the base URL, the key and the model, each in a line, as far as flags do not give them.
    fn read_all(&self) -> CliResult<StoredLogin> {
        let base_url = match &self.flags.base_url {
            Some(base_url) => base_url.clone(),
            None => prompt::ask("Base URL (empty for OpenAI): ")?,
        };
        let key = prompt::ask("API key (empty if the server needs none): ")?;
        let model = match &self.flags.model {
            Some(model) => model.clone(),
            None => prompt::ask("Model (empty for the default): ")?,
        };
        let key = Secret::from_copied(&key);
        let model = choose_model(&model, &[], None).map_err(CliError::Other)?;
        match base_url.trim() {
            "" if key.is_none() => Err(CliError::Other("enter a key or a base URL".to_owned())),
            "" => {
                let key = key.map(|key| key.expose().to_owned());
                Ok(StoredLogin { key, model, ..StoredLogin::default() })
            }
            base_url => {
                let target = LoginTarget::server(base_url).map_err(CliError::Other)?;
                let key = key.map(|secret| self.new_key(secret));
                Ok(Login::stored(&target, key, model))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_number_a_name_or_the_beginning_of_one() {
        let names = ["ollama", "openai", "openrouter", "xai", "vllm"];
        for (answer, expected) in [
            ("1", Ok(0)),
            (" 4\n", Ok(3)),
            ("openai", Ok(1)),
            ("OpenRouter", Ok(2)),
            ("ol", Ok(0)),
            // Not shown, but known.
            ("vllm", Ok(4)),
            ("5", Err("from 1 to 4")),
            ("0", Err("from 1 to 4")),
            ("", Err("from 1 to 4")),
            ("open", Err("`open` may be openai or openrouter")),
            ("nobody", Err("Nothing here is called `nobody`")),
            ("sk-0123456789abcdef", Err("Nothing here is called what was typed (it may be a key")),
        ] {
            let found = choose(answer, &names, 4);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{answer}"),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (found, _) => panic!("{answer}: {found:?}"),
            }
        }
    }

    #[test]
    fn any_name_of_a_model_can_be_typed() {
        let models: Vec<_> = (1..=40).map(|number| format!("m{number}")).collect();
        for (answer, expected) in [
            ("", Some("m3")),
            ("2", Some("m2")),
            ("30", Some("m30")),
            ("31", None),
            ("0", None),
            ("m40", Some("m40")),
            (" org/other:7b ", Some("org/other:7b")),
            ("sk-0123456789abcdef0123", None),
        ] {
            let found = choose_model(answer, &models, Some("m3")).ok().flatten();
            assert_eq!(found.as_deref(), expected, "{answer}");
        }
        let refused = choose_model("sk-0123456789abcdef0123", &models, None).unwrap_err();
        assert!(refused.contains("looks like a key") && !refused.contains("sk-"), "{refused}");
        assert_eq!(choose_model("", &[], None), Ok(None));
        assert_eq!(choose_model("7", &[], None), Ok(Some("7".to_owned())));
    }
}
