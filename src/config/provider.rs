//! Which model is to be asked where: the outcome of all settings, as plain values.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::secret::Secret;

/// Which model is to be used. Two that are equal can share a model that was made for one.
#[derive(Clone, Debug, PartialEq)]
pub enum Provider {
    /// The built-in one, because it was asked for.
    Offline,
    /// One behind an endpoint.
    Endpoint(Box<EndpointSettings>),
    /// None is configured.
    None,
}

/// An endpoint and a model behind it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointSettings {
    /// The section of the configuration or the well-known name; none for the default endpoint.
    pub name: Option<String>,
    /// The base URL.
    pub base_url: String,
    /// The key, if one is set.
    pub key: Option<Secret>,
    /// The model's name as the endpoint knows it, if one is known.
    pub model: Option<String>,
    /// What the endpoint speaks.
    pub api: Api,
    /// Headers that each request carries, credentials possibly among them.
    pub headers: Vec<(String, Secret)>,
    /// What is particular to the provider and the model, not interpreted here.
    pub quirks: Map<String, Value>,
    /// The size of the model's window in tokens, if set.
    pub window: Option<u64>,
    /// The most tokens that one answer may have, if set.
    pub max_output: Option<u64>,
    /// What the model costs, if set.
    pub price: Option<Price>,
}

impl EndpointSettings {
    /// The base URL without what may be a secret in it.
    pub fn shown_url(&self) -> String {
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

    /// The model as it is named in the settings: `NAME/model`, or `model` at the default endpoint.
    pub fn full_name(&self) -> Option<String> {
        let model = self.model.as_ref()?;
        Some(self.name.as_ref().map_or_else(|| model.clone(), |name| format!("{name}/{model}")))
    }
}

/// What an endpoint speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    /// Chat completions.
    #[default]
    Chat,
    /// OpenAI's Responses.
    Responses,
}

impl Api {
    /// The word of the configuration.
    pub fn parse(word: &str) -> Option<Api> {
        match word {
            "chat" => Some(Api::Chat),
            "responses" => Some(Api::Responses),
            _ => None,
        }
    }
}

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Price {
    /// What is sent.
    pub input: f64,
    /// What is sent and was in the provider's cache; `input` if not set.
    pub cached: Option<f64>,
    /// What is answered.
    pub output: f64,
}
