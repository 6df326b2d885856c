//! A login on a terminal: a provider from a list, its key, and a model from its list.

use std::fmt::Write;

use crate::config::{PRESETS, ProviderKey, ProviderPreset, StoredLogin};
use crate::error::as_sentence;

use turnwright_types::secret::Secret;

use super::super::{CliError, block_on};
use super::answers::{MAX_SHOWN, choose, choose_model};
use super::target::LoginTarget;
use super::trial::Trial;
use super::{Login, local_servers, prompt};

/// How often a key is asked for.
const MAX_ATTEMPTS: usize = 3;
/// The entry of the list that stands for a server of the user's own.
const ANOTHER_SERVER: &str = "another server";

impl Login<'_> {
    /// Asks for everything that the flags leave open.
    pub(super) fn ask(&self, provider: Option<&str>) -> Result<StoredLogin, CliError> {
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

    fn ask_target(&self) -> Result<LoginTarget, CliError> {
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
    fn look_for(&self, local: &[&ProviderPreset]) -> Result<Vec<Option<usize>>, CliError> {
        if !self.config.snapshot().list_models() {
            return Ok(vec![None; local.len()]);
        }
        prompt::say("Looking for model servers on this machine…\n\n")?;
        let base_urls: Vec<_> = local.iter().filter_map(|provider| provider.base_url).collect();
        Ok(block_on(local_servers::find(&base_urls, local_servers::LOOK_LIMIT))?)
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
    ) -> Result<(Option<ProviderKey>, Vec<String>), CliError> {
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
    ) -> Result<Option<ProviderKey>, CliError> {
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
    ) -> Result<Option<String>, CliError> {
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
fn ask_server() -> Result<LoginTarget, CliError> {
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
