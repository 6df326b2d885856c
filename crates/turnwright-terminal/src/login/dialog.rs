//! A login's questions and answers: on a terminal a provider from a list, its key, and a model from its list; from a
//! pipe the lines in an order that scripts and clients rely on.

use std::fmt::Write;

use turnwright_config::{PRESETS, ProviderKey, ProviderPreset, StoredLogin, looks_like_key};
use turnwright_types::error_text::as_sentence;
use turnwright_types::secret::Secret;

use super::target::{LOOK_LIMIT, LoginTarget, Trial, find_local};
use super::{Login, LoginError};
use crate::{block_on, prompt};

/// How often a key is asked for.
const MAX_ATTEMPTS: usize = 3;
/// The entry of the list that stands for a server of the user's own.
const ANOTHER_SERVER: &str = "another server";

impl Login<'_> {
    /// Asks for everything that the flags leave open.
    pub(super) fn ask(&self, provider: Option<&str>) -> Result<StoredLogin, LoginError> {
        let mut target = match self.named_target(provider)? {
            Some(target) => target,
            // A provider without a base URL of its own.
            None if provider.is_some() => ask_server()?,
            None => self.ask_target()?,
        };
        let (key, models) = self.ask_key(&mut target)?;
        let model = match self.named_model(&target, &models) {
            Some(model) => Some(model),
            None => self.ask_model(&target, &models)?,
        };
        Ok(Login::stored(&target, key, model))
    }

    fn ask_target(&self) -> Result<LoginTarget, LoginError> {
        let (local, hosted): (Vec<_>, Vec<_>) =
            PRESETS.iter().partition(|provider| provider.key_env.is_none());
        let found = self.look_for(&local)?;
        let (running, others): (Vec<_>, Vec<_>) =
            local.into_iter().zip(found).partition(|(_, count)| count.is_some());
        let running = running
            .into_iter()
            .map(|(provider, count)| (provider, models_note(count.unwrap_or(0))));
        let hosted = hosted.into_iter().map(|provider| (provider, self.key_note(provider)));
        let shown: Vec<(&'static ProviderPreset, String)> = running.chain(hosted).collect();
        let mut names: Vec<&str> = shown.iter().map(|(provider, _)| provider.name).collect();
        names.push(ANOTHER_SERVER);
        prompt::say(&provider_list(&shown))?;
        let count = names.len();
        // Servers that do not run now can be named, too.
        names.extend(others.iter().map(|(provider, _)| provider.name));
        loop {
            let answer = prompt::ask("Provider (number or name, or the base URL of a server): ")?;
            if answer.contains("://") {
                match LoginTarget::server(&answer) {
                    Ok(target) => return Ok(target),
                    Err(why) => prompt::say(&format!("{why}.\n"))?,
                }
                continue;
            }
            match choose(&answer, &names, count) {
                Ok(at) => {
                    let preset = PRESETS.iter().find(|provider| provider.name == names[at]);
                    return preset.and_then(LoginTarget::provider).map_or_else(ask_server, Ok);
                }
                Err(why) => prompt::say(&format!("{why}.\n"))?,
            }
        }
    }

    /// How many models each of these servers has that runs on this machine.
    fn look_for(&self, local: &[&ProviderPreset]) -> Result<Vec<Option<usize>>, LoginError> {
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
    fn ask_key(
        &self,
        target: &mut LoginTarget,
    ) -> Result<(Option<ProviderKey>, Vec<String>), LoginError> {
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
                        return Err(LoginError::Other("you decided not to".to_owned()));
                    }
                    return Ok((key, Vec::new()));
                }
            }
        }
        Err(LoginError::Other(format!("there was no valid key in {MAX_ATTEMPTS} attempts")))
    }

    fn ask_one_key(
        &self,
        target: &LoginTarget,
        known: Option<&ProviderKey>,
    ) -> Result<Option<ProviderKey>, LoginError> {
        let empty = match known {
            Some(key) => format!("; empty for the one in {}", key.origin),
            None if target.needs_key() => String::new(),
            None => "; empty if the server needs none".to_owned(),
        };
        let question = format!("API key for {} (hidden{empty}): ", target.name());
        let typed = prompt::ask_hidden(&question)?;
        Ok(Secret::from_copied(&typed)
            .map(|secret| self.new_key(secret))
            .or_else(|| known.cloned()))
    }

    fn ask_model(
        &self,
        target: &LoginTarget,
        models: &[String],
    ) -> Result<Option<String>, LoginError> {
        let usual = self.usual_model(target, models);
        prompt::say(&model_list(models))?;
        let what = if models.is_empty() { "name" } else { "number or name" };
        let empty = usual.map(|model| format!("; empty for {model}")).unwrap_or_default();
        let question = format!("Model ({what}{empty}): ");
        loop {
            match choose_model(&prompt::ask(&question)?, models, usual) {
                Ok(model) => return Ok(model),
                Err(why) => prompt::say(&format!("{why}.\n"))?,
            }
        }
    }
}

/// Asks for the base URL of a server of the user's own.
fn ask_server() -> Result<LoginTarget, LoginError> {
    loop {
        let answer = prompt::ask("Base URL, such as https://example.com/v1: ")?;
        match LoginTarget::server(&answer) {
            Ok(target) => return Ok(target),
            Err(why) => prompt::say(&format!("{why}.\n"))?,
        }
    }
}

fn models_note(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("on this machine, {count} model{plural}")
}

/// The list of providers with a note on each, and the entry for another server.
fn provider_list(shown: &[(&'static ProviderPreset, String)]) -> String {
    let mut text = String::new();
    let another = (ANOTHER_SERVER, "");
    let entries =
        shown.iter().map(|(provider, note)| (provider.name, note.as_str())).chain([another]);
    for (number, (name, note)) in entries.enumerate() {
        let line = format!("{:4}  {name:14}  {note}", number + 1);
        writeln!(text, "{}", line.trim_end()).ok();
    }
    text.push('\n');
    text
}

/// The first models with their numbers.
fn model_list(models: &[String]) -> String {
    let mut text = String::new();
    for (number, name) in models.iter().take(MAX_SHOWN).enumerate() {
        writeln!(text, "{:4}  {name}", number + 1).ok();
    }
    if models.len() > MAX_SHOWN {
        writeln!(text, "      … and {} more; any name can be typed", models.len() - MAX_SHOWN).ok();
    }
    text
}

/// The most models that are shown.
pub(super) const MAX_SHOWN: usize = 30;

/// No provider has a longer name, and no key is as short.
const MAX_NAME: usize = 16;

/// Finds the one of `names` that an answer means: the number of one of the first `shown`, the name, or the
/// beginning of only one name.
pub(super) fn choose(answer: &str, names: &[&str], shown: usize) -> Result<usize, String> {
    let answer = answer.trim().to_lowercase();
    if answer.is_empty() {
        return Err(format!("Enter a number from 1 to {shown}, or a name"));
    }
    if let Ok(number) = answer.parse::<usize>() {
        let is_shown = (1..=shown).contains(&number);
        return is_shown
            .then(|| number - 1)
            .ok_or_else(|| format!("Enter a number from 1 to {shown}, or a name"));
    }
    if let Some(exact) = names.iter().position(|name| name.to_lowercase() == answer) {
        return Ok(exact);
    }
    let all: Vec<usize> = (0..names.len()).collect();
    let matching = all.iter().filter(|index| names[**index].to_lowercase().starts_with(&answer));
    match matching.collect::<Vec<_>>()[..] {
        [one] => Ok(*one),
        [] => Err(format!("Nothing here is called {}", quoted(&answer))),
        ref several => {
            let several: Vec<_> = several.iter().map(|index| names[**index]).collect();
            Err(format!("`{}` may be {}", answer.escape_debug(), several.join(" or ")))
        }
    }
}

/// A name that is not known, as it may be shown. What is longer than any name may be a key that was meant
/// for another question.
pub(super) fn quoted(name: &str) -> String {
    if name.chars().count() > MAX_NAME {
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
    match answer.parse::<usize>() {
        Ok(number) if (1..=shown).contains(&number) => Ok(Some(models[number - 1].clone())),
        Ok(_) if shown > 0 => Err(format!("Enter a number from 1 to {shown}, or a name")),
        _ => Ok(Some(answer.to_owned())),
    }
}

impl Login<'_> {
    /// Reads the key of a well-known provider, which is the first line, and tries it.
    pub(super) fn read_key_of(&self, provider: &str) -> Result<StoredLogin, LoginError> {
        let named = self.named_target(Some(provider))?;
        let mut target = named.ok_or_else(|| {
            LoginError::Other(format!(
                "each account of {provider} has its own server: add --base-url"
            ))
        })?;
        let typed = if target.is_local() { String::new() } else { prompt::read_line()? };
        let key = Secret::from_copied(&typed)
            .map(|secret| self.new_key(secret))
            .or_else(|| self.known_key(&target));
        if key.is_none() && target.needs_key() {
            return Err(LoginError::Other(format!("{} needs a key", target.name())));
        }
        let models = match self.try_key(&mut target, key.as_ref().map(|key| &key.secret))? {
            Trial::Models(models) => models,
            Trial::Refused(why) => return Err(LoginError::Other(why)),
            Trial::Unknown(why) => {
                // There is nobody to ask.
                prompt::say(&format!("The key could not be tried: {why}\n"))?;
                Vec::new()
            }
        };
        let model = self
            .named_model(&target, &models)
            .or_else(|| self.usual_model(&target, &models).map(str::to_owned));
        Ok(Login::stored(&target, key, model))
    }

    /// Reads the base URL, the key and the model, each in a line, as far as flags do not give them.
    pub(super) fn read_all(&self) -> Result<StoredLogin, LoginError> {
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
        let model = choose_model(&model, &[], None).map_err(LoginError::Other)?;
        match base_url.trim() {
            "" if key.is_none() => Err(LoginError::Other("enter a key or a base URL".to_owned())),
            "" => {
                let key = key.map(|key| key.expose().to_owned());
                Ok(StoredLogin { key, model, ..StoredLogin::default() })
            }
            base_url => {
                let target = LoginTarget::server(base_url).map_err(LoginError::Other)?;
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
