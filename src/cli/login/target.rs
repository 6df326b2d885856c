//! The server that a login is for.

use super::answers::quoted;
use crate::config::{PRESETS, ProviderPreset, is_openai_url, pasted_base_url, preset};
use turnwright_llm::Endpoint;
use turnwright_types::redact;

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

    pub(super) fn is_openai(&self) -> bool {
        is_openai_url(&self.base_url)
    }

    /// Returns true if there must be a key. Servers of the user's own may do without.
    pub(super) fn needs_key(&self) -> bool {
        self.is_openai() || self.provider.is_some_and(|provider| provider.key_env.is_some())
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
