//! Asks servers on the user's own machine for the size of the context window. The window is the one that
//! the server was started with, which may be smaller than the model's maximum.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::http::Endpoint;

/// How long to wait for each answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The port that Ollama listens on unless it is told otherwise.
const OLLAMA_PORT: u16 = 11_434;

/// A server whose window can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalServer {
    Ollama,
    LlamaCpp,
}

impl LocalServer {
    /// The server that lists its models with this owner.
    pub(super) fn from_owner(owner: &str) -> Option<LocalServer> {
        match owner {
            "library" => Some(LocalServer::Ollama),
            "llamacpp" => Some(LocalServer::LlamaCpp),
            _ => None,
        }
    }

    /// The server that usually has this port.
    pub(super) fn from_port(port: Option<u16>) -> Option<LocalServer> {
        (port == Some(OLLAMA_PORT)).then_some(LocalServer::Ollama)
    }

    /// The size of the window of a model; `None` if the server does not say, for example because it
    /// has not loaded the model yet.
    pub(super) async fn window(self, endpoint: &Endpoint, model: &str) -> Option<u64> {
        let get = async |method, path, body| {
            let asking = endpoint.outside_version(method, path, body);
            tokio::time::timeout(TIMEOUT, asking).await.ok()?.ok()
        };
        match self {
            LocalServer::LlamaCpp => {
                let props: Value = get(Method::GET, "/props", None).await?;
                props.pointer("/default_generation_settings/n_ctx")?.as_u64()
            }
            LocalServer::Ollama => {
                if let Some(running) = get(Method::GET, "/api/ps", None).await
                    && let Some(window) = loaded_window(&running, model)
                {
                    return Some(window);
                }
                let about = get(Method::POST, "/api/show", Some(json!({ "model": model }))).await?;
                configured_window(&about)
            }
        }
        .filter(|it| *it > 0)
    }
}

/// The window of a model that Ollama has loaded.
fn loaded_window(running: &Value, model: &str) -> Option<u64> {
    let tagged = format!("{model}:latest");
    let is_model =
        |it: &&Value| ["name", "model"].iter().any(|key| it[*key] == *model || it[*key] == *tagged);
    running.get("models")?.as_array()?.iter().find(is_model)?.get("context_length")?.as_u64()
}

/// The window that the file of an Ollama model sets. The model's maximum, which the answer also
/// contains, is ignored.
fn configured_window(about: &Value) -> Option<u64> {
    let parameters = about.get("parameters")?.as_str()?;
    let value = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        (name == "num_ctx").then(|| value.trim().parse().ok()).flatten()
    };
    parameters.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_that_of_the_loaded_model_or_of_its_file() {
        let running = json!({ "models": [
            { "name": "other:latest", "context_length": 1 },
            { "name": "qwen3:latest", "model": "qwen3:latest", "context_length": 8_192 },
        ] });
        assert_eq!(loaded_window(&running, "qwen3"), Some(8_192));
        assert_eq!(loaded_window(&running, "qwen3:30b"), None);
        assert_eq!(loaded_window(&json!({}), "qwen3"), None);
        let parameters =
            "stop                           \"<|im_end|>\"\nnum_ctx                        16384";
        let about = json!({ "parameters": parameters,
            "model_info": { "qwen3.context_length": 262_144 } });
        assert_eq!(configured_window(&about), Some(16_384));
        let about = json!({ "model_info": { "qwen3.context_length": 262_144 } });
        assert_eq!(configured_window(&about), None);
    }
}
