//! A login whose answers come from a pipe: scripts and clients rely on their order.

use crate::config::StoredLogin;
use turnwright_types::secret::Secret;

use super::super::CliError;
use super::answers::choose_model;
use super::target::LoginTarget;
use super::trial::Trial;
use super::{Login, prompt};

impl Login<'_> {
    /// Reads the key of a well-known provider, which is the first line, and tries it.
    pub(super) fn read_key_of(&self, provider: &str) -> Result<StoredLogin, CliError> {
        let named = self.named_target(Some(provider))?;
        let mut target = named.ok_or_else(|| {
            CliError::Other(format!(
                "each account of {provider} has its own server: add --base-url"
            ))
        })?;
        let typed = if target.is_local() { String::new() } else { prompt::read_line()? };
        let key = Secret::from_copied(&typed)
            .map(|secret| self.new_key(secret))
            .or_else(|| self.known_key(&target));
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
        let model = self
            .named_model(&target, &models)
            .or_else(|| self.usual_model(&target, &models).map(str::to_owned));
        Ok(Login::stored(&target, key, model))
    }

    /// Reads the base URL, the key and the model, each in a line, as far as flags do not give them.
    pub(super) fn read_all(&self) -> Result<StoredLogin, CliError> {
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
