//! The resolved provider and model, as plain values.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::secret::Secret;

/// The provider to use. Equal values can share one model client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Provider {
    /// The built-in offline model.
    Offline,
    /// A model at an endpoint.
    Endpoint(Box<EndpointSettings>),
    /// No provider is configured.
    Unconfigured,
}

/// An endpoint and a model at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EndpointSettings {
    /// The name of the settings section or the well-known provider; `None` for the default endpoint.
    pub name: Option<String>,
    pub base_url: String,
    pub key: Option<Secret>,
    /// The model's name as the endpoint knows it, if one is known.
    pub model: Option<String>,
    pub api: Api,
    /// Headers of each request, which may contain credentials.
    pub headers: Vec<(String, Secret)>,
    /// Provider and model quirks, which the `llm` crate interprets.
    pub quirks: Map<String, Value>,
    /// The model's context window in tokens, if set.
    pub window: Option<u64>,
    /// The most output tokens of one answer, if set.
    pub max_output: Option<u64>,
    pub price: Option<Price>,
}

impl EndpointSettings {
    /// The base URL without user info, query and fragment, which may contain a secret.
    pub(crate) fn redacted_url(&self) -> String {
        let url = self.base_url.split(['?', '#']).next().unwrap_or_default();
        match url.split_once("://") {
            Some((scheme, rest)) => {
                let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let host = place.rsplit('@').next().unwrap_or_default();
                format!("{scheme}://{host}{path}")
            }
            None => url.to_owned(),
        }
    }

    /// The name of the model in the settings: `NAME/model`, or `model` at the default endpoint.
    pub(crate) fn full_name(&self) -> Option<String> {
        let model = self.model.as_ref()?;
        Some(self.name.as_ref().map_or_else(|| model.clone(), |name| format!("{name}/{model}")))
    }
}

/// The API of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Api {
    /// Chat Completions.
    #[default]
    Chat,
    /// OpenAI's Responses API.
    Responses,
}

impl Api {
    /// Parses the value of a settings file.
    pub(crate) fn parse(word: &str) -> Option<Api> {
        match word {
            "chat" => Some(Api::Chat),
            "responses" => Some(Api::Responses),
            _ => None,
        }
    }
}

/// Prices in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Price {
    pub input: f64,
    /// Input that was in the provider's cache; the same as `input` if not set.
    pub cached: Option<f64>,
    pub output: f64,
}
