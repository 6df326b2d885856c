//! Tries a key by asking the server for its models.

use crate::error::error_chain;
use turnwright_llm::{Endpoint, ErrorKind, LlmError, Model, ModelSettings, Protocol, RemoteModel};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::secret::Secret;

use super::super::{CliError, block_on};
use super::target::LoginTarget;
use super::{Login, prompt};

/// The outcome of trying a key.
#[derive(Debug)]
pub(super) enum Trial {
    /// The key works. The models that the server has listed.
    Models(Vec<String>),
    /// The server refuses the key.
    Refused(String),
    /// It could not be found out whether the key works.
    Unknown(String),
}

impl Login<'_> {
    /// Asks the server for its models. The wait has a limit. A base URL that lacks its version is corrected.
    pub(super) fn try_key(
        &self,
        target: &mut LoginTarget,
        key: Option<&Secret>,
    ) -> Result<Trial, CliError> {
        if !self.config.snapshot().list_models() {
            let file = self.config.user_file_path().display();
            return Ok(Trial::Unknown(format!(
                "{} was not asked for its models, because {file} forbids it",
                target.name()
            )));
        }
        let list = block_on(list_models(&target.base_url, key))?;
        if let Some(base_url) = list.corrected_base_url {
            target.base_url = base_url;
            prompt::say(&format!(
                "The base URL lacks its version. The server answers at {}, so that is used.\n",
                target.name()
            ))?;
        }
        let trial = Trial::of(&target.name(), list.models);
        if matches!(trial, Trial::Models(_)) && key.is_some() && is_public(target)? {
            prompt::say(&format!(
                "{} lists its models without a key, too, so the key itself was not tried.\n",
                target.name()
            ))?;
        }
        Ok(trial)
    }
}

impl Trial {
    fn of(name: &str, listed: Result<Vec<String>, LlmError>) -> Trial {
        match listed {
            Ok(models) if models.is_empty() => Trial::Unknown(format!("{name} lists no models")),
            Ok(models) => Trial::Models(models),
            Err(error) => {
                let text = escape_hidden_line(&error_chain(&error));
                let is_refusal = matches!(error.status(), Some(401 | 403))
                    || matches!(error.kind(), ErrorKind::Auth | ErrorKind::Config);
                if is_refusal { Trial::Refused(text) } else { Trial::Unknown(text) }
            }
        }
    }
}

/// Returns true if the server lists its models to everybody, as OpenRouter does.
fn is_public(target: &LoginTarget) -> Result<bool, CliError> {
    let list = block_on(list_models(&target.base_url, None))?;
    Ok(list.models.is_ok_and(|models| !models.is_empty()))
}

/// A server's answer to the question for its models.
pub(super) struct ServerList {
    pub(super) models: Result<Vec<String>, LlmError>,
    /// The base URL that works, if the one that was asked lacks its version.
    corrected_base_url: Option<String>,
}

/// Asks a server for its models.
pub(super) async fn list_models(base_url: &str, key: Option<&Secret>) -> ServerList {
    let endpoint = match Endpoint::new(base_url, key.cloned()) {
        Ok(endpoint) => endpoint.with_key_advice(Some("Check the key".to_owned())),
        Err(error) => return ServerList { models: Err(error), corrected_base_url: None },
    };
    let model = RemoteModel::new(Protocol::Chat, endpoint, ModelSettings::default());
    let models = model.list_models().await;
    ServerList { models, corrected_base_url: model.corrected_base_url() }
}
