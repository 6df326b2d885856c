//! The server that a login is for. A key is tried by asking the server for its models, and so are servers on this
//! machine found, at the usual ports of the well-known ones.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Login, quoted};
use crate::{CliResult, block_on, prompt};
use turnwright_config::{PRESETS, ProviderPreset, is_openai_url, pasted_base_url, preset};
use turnwright_llm::{Endpoint, ErrorKind, LlmError, Model, ModelSettings, Protocol, RemoteModel};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::error_chain;
use turnwright_types::redact;
use turnwright_types::secret::Secret;

/// The server that a login is for.
#[derive(Debug)]
pub(super) struct LoginTarget {
    /// The well-known provider; `None` for a server of the user's own.
    pub(super) provider: Option<&'static ProviderPreset>,
    pub(super) base_url: String,
}

impl LoginTarget {
    /// A well-known provider. Where each account has its own base URL, that must be given, and names the
    /// server.
    pub(super) fn provider(preset: &'static ProviderPreset) -> Option<LoginTarget> {
        Some(LoginTarget { provider: Some(preset), base_url: preset.base_url?.to_owned() })
    }

    /// A server of the user's own, unless its base URL is not usable.
    pub(super) fn server(base_url: &str) -> Result<LoginTarget, String> {
        let base_url = pasted_base_url(base_url);
        Endpoint::new(&base_url, None).map_err(|error| error.to_string())?;
        Ok(LoginTarget { provider: None, base_url })
    }

    /// The server that the flags name; `None` if they leave it open.
    pub(super) fn named(
        provider: Option<&str>,
        base_url: Option<&str>,
    ) -> Result<Option<LoginTarget>, String> {
        let Some(name) = provider else { return base_url.map(LoginTarget::server).transpose() };
        let preset = preset(&name.to_ascii_lowercase()).ok_or_else(|| unknown_provider(name))?;
        match (LoginTarget::provider(preset), base_url) {
            (Some(_), Some(_)) => Err(format!(
                "{name} has a base URL of its own. Leave out --base-url, or --provider for another server"
            )),
            (Some(target), None) => Ok(Some(target)),
            (None, base_url) => base_url.map(LoginTarget::server).transpose(),
        }
    }

    /// The user's name for the server, without what may be secret.
    pub(super) fn name(&self) -> String {
        self.provider
            .map_or_else(|| redact::url(&self.base_url), |provider| provider.name.to_owned())
    }

    /// A model that the user has named, as the server knows it: without the provider's name before it, and in the
    /// capitals of the list.
    pub(super) fn model(&self, named: &str, listed: &[String]) -> String {
        let prefix = named.split_once('/').filter(|(prefix, _)| {
            self.provider.is_some_and(|provider| provider.name.eq_ignore_ascii_case(prefix))
        });
        let short = prefix.map_or(named, |(_, model)| model);
        let mut names = [named, short].into_iter();
        // Two names in the list may differ only in their capitals.
        let known = names.find_map(|name| {
            let exact = listed.iter().find(|one| *one == name);
            exact.or_else(|| listed.iter().find(|one| one.eq_ignore_ascii_case(name)))
        });
        known.map_or(short, String::as_str).to_owned()
    }

    /// Returns true if there must be a key. Servers of the user's own may do without.
    pub(super) fn needs_key(&self) -> bool {
        is_openai_url(&self.base_url)
            || self.provider.is_some_and(|provider| provider.key_env.is_some())
    }

    /// Returns true if the server usually has no key.
    pub(super) fn is_local(&self) -> bool {
        self.provider.is_some_and(|provider| provider.key_env.is_none())
    }
}

/// The error about a provider that is not well known.
pub(super) fn unknown_provider(name: &str) -> String {
    let known: Vec<_> = PRESETS.iter().map(|provider| provider.name).collect();
    format!(
        "no provider is called {}. Known are {}. For another server use --base-url",
        quoted(name),
        known.join(", ")
    )
}

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
    ) -> CliResult<Trial> {
        if !self.config.snapshot().list_models() {
            let file = self.config.user_file_path().display();
            return Ok(Trial::Unknown(format!(
                "{} was not asked for its models, because {file} forbids it",
                target.name()
            )));
        }
        let (models, corrected_base_url) = block_on(list_models(&target.base_url, key))?;
        if let Some(base_url) = corrected_base_url {
            target.base_url = base_url;
            prompt::say(&format!(
                "The base URL lacks its version. The server answers at {}, so that is used.\n",
                target.name()
            ))?;
        }
        let trial = Trial::of(&target.name(), models);
        if matches!(trial, Trial::Models(_))
            && key.is_some()
            && block_on(count_models(&target.base_url))?.is_some()
        {
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
                    && error.kind() != ErrorKind::Unavailable
                    || matches!(error.kind(), ErrorKind::Auth | ErrorKind::Config);
                if is_refusal { Trial::Refused(text) } else { Trial::Unknown(text) }
            }
        }
    }
}

/// Asks a server for its models. Also returns the base URL that works, if this one lacks its version.
async fn list_models(
    base_url: &str,
    key: Option<&Secret>,
) -> (Result<Vec<String>, LlmError>, Option<String>) {
    let endpoint = match Endpoint::new(base_url, key.cloned()) {
        Ok(endpoint) => endpoint.with_key_advice(Some("Check the key".to_owned())),
        Err(error) => return (Err(error), None),
    };
    let model = RemoteModel::new(Protocol::Chat, endpoint, ModelSettings::default());
    let models = model.list_models().await;
    (models, model.corrected_base_url())
}

/// How long all servers together may take to answer.
pub(super) const LOOK_LIMIT: Duration = Duration::from_millis(500);

/// Asks all these servers at once for their models. Returns, in the same order, how many each has that
/// answers in time and has any.
pub(super) async fn find_local(base_urls: &[&str], limit: Duration) -> Vec<Option<usize>> {
    let counts = base_urls.iter().map(|base_url| async move {
        tokio::time::timeout(limit, count_models(base_url)).await.ok().flatten()
    });
    join_all(counts).await
}

/// Returns how many models a server lists to everybody, as OpenRouter does, if it lists any.
async fn count_models(base_url: &str) -> Option<usize> {
    let models = list_models(base_url, None).await.0.ok()?;
    Some(models.len()).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use turnwright_testing::scripted_model::{Scenario, Server};

    #[test]
    fn flags_name_a_provider_or_a_server() {
        let mine = Some("http://mine/v1");
        let with_secret = Some("http://mine/v1?key=secret");
        for (provider, base_url, expected) in [
            (None, None, Ok(None)),
            (Some("DeepSeek"), None, Ok(Some("deepseek"))),
            (Some("ollama"), None, Ok(Some("ollama"))),
            (None, mine, Ok(mine)),
            (None, with_secret, Ok(mine)),
            (None, Some("\"http://mine/v1/chat/completions\""), Ok(mine)),
            (Some("azure"), mine, Ok(mine)),
            (Some("azure"), None, Ok(None)),
            (Some("deepseek"), mine, Err("deepseek has a base URL of its own")),
            (Some("deep"), None, Err("no provider is called `deep`. Known are openai, azure, ")),
            (None, Some("mine"), Err("is not an http or https URL")),
        ] {
            let found = LoginTarget::named(provider, base_url);
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found.map(|target| target.name()).as_deref(), expected);
                }
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (found, _) => panic!("{provider:?} {base_url:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_model_is_stored_as_the_server_knows_it() {
        let listed = ["qwen3:8b", "Org/Model", "ollama/own", "org/Model"].map(str::to_owned);
        let provider = preset("ollama").and_then(LoginTarget::provider).unwrap();
        let server = LoginTarget::server("http://mine/v1").unwrap();
        for (target, named, expected) in [
            (&provider, "qwen3:8b", "qwen3:8b"),
            (&provider, "ollama/qwen3:8b", "qwen3:8b"),
            (&provider, "Ollama/Qwen3:8B", "qwen3:8b"),
            (&provider, "ollama/own", "ollama/own"),
            (&provider, "ollama/unlisted", "unlisted"),
            (&provider, "org/model", "Org/Model"),
            (&server, "ORG/model", "Org/Model"),
            (&server, "org/Model", "org/Model"),
            (&server, "ollama/qwen3:8b", "ollama/qwen3:8b"),
            (&server, "/models/x.gguf", "/models/x.gguf"),
        ] {
            assert_eq!(target.model(named, &listed), expected, "{named}");
        }
    }

    #[tokio::test]
    async fn servers_that_answer_are_found_and_the_others_do_not_delay_them() {
        let scenario = Scenario::from_value(serde_json::json!({ "replies": [] })).unwrap();
        let server = Server::start(scenario, 0).unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent_url = format!("http://{}/v1", silent.local_addr().unwrap());
        // Port 9 is not ephemeral, so no other test can get it.
        let closed_url = "http://127.0.0.1:9/v1";
        let base_urls = [&silent_url, &server.base_url(), closed_url, "http://localhost:x"];
        let found = find_local(&base_urls, Duration::from_secs(5)).await;
        assert_eq!(found, [None, Some(1), None, None]);
    }
}
