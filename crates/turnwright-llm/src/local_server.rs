//! Asks servers on the user's own machine how they were started: with which context window, which may be
//! smaller than the model's maximum, and with how many slots.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::http::Endpoint;

/// How long to wait for each answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The port that Ollama listens on unless it is told otherwise.
const OLLAMA_PORT: u16 = 11_434;

/// The port that llama.cpp listens on unless it is told otherwise. Others use it, too.
const LLAMA_CPP_PORT: u16 = 8_080;
/// The port that LM Studio listens on unless it is told otherwise.
const LM_STUDIO_PORT: u16 = 1_234;

/// A server that says how it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalServer {
    Ollama,
    LlamaCpp,
    LmStudio,
}

impl LocalServer {
    /// The server that lists its models with this owner.
    pub(super) fn from_owner(owner: &str) -> Option<LocalServer> {
        match owner {
            "library" => Some(LocalServer::Ollama),
            "llamacpp" => Some(LocalServer::LlamaCpp),
            "organization_owner" => Some(LocalServer::LmStudio),
            _ => None,
        }
    }

    /// The server that usually has this port.
    pub(super) fn from_port(port: Option<u16>) -> Option<LocalServer> {
        (port == Some(OLLAMA_PORT)).then_some(LocalServer::Ollama)
    }

    /// The server that may have this port. Only asking it shows if it is this one.
    pub(super) fn probably_at(port: Option<u16>) -> Option<LocalServer> {
        match port {
            Some(LLAMA_CPP_PORT) => Some(LocalServer::LlamaCpp),
            Some(LM_STUDIO_PORT) => Some(LocalServer::LmStudio),
            port => LocalServer::from_port(port),
        }
    }

    /// Asks the server about a model. Returns the size of the context window in tokens, and the number of slots: how
    /// many requests it works on at the same time. Each may be missing, for example because the model is not loaded
    /// yet.
    pub(super) async fn facts(
        self,
        endpoint: &Endpoint,
        model: &str,
    ) -> (Option<u64>, Option<u32>) {
        let get = async |method, path, body| {
            let asking = endpoint.outside_version(method, path, body);
            tokio::time::timeout(TIMEOUT, asking).await.ok()?.ok()
        };
        match self {
            LocalServer::LlamaCpp => {
                let props = get(Method::GET, "/props", None).await;
                props_facts(&props.unwrap_or_default())
            }
            LocalServer::Ollama => {
                let running = get(Method::GET, "/api/ps", None).await;
                let mut window = running.and_then(|running| loaded_window(&running, model));
                if window.is_none() {
                    let request = json!({ "model": model });
                    let about = get(Method::POST, "/api/show", Some(request)).await;
                    window = about.and_then(|about| configured_window(&about));
                }
                (window.filter(|tokens| *tokens > 0), None)
            }
            LocalServer::LmStudio => {
                let models = get(Method::GET, "/api/v0/models", None).await;
                (models.and_then(|models| loaded_window(&models, model)), None)
            }
        }
    }
}

/// Reads the properties that llama.cpp reports. Each of its slots has a window of this size.
fn props_facts(props: &Value) -> (Option<u64>, Option<u32>) {
    let window = positive_number(props, "/default_generation_settings/n_ctx");
    let slots = positive_number(props, "/total_slots");
    (window, slots.and_then(|count| count.try_into().ok()))
}

fn positive_number(props: &Value, pointer: &str) -> Option<u64> {
    props.pointer(pointer)?.as_u64().filter(|number| *number > 0)
}

/// The window of a model that Ollama or LM Studio has loaded.
fn loaded_window(list: &Value, model: &str) -> Option<u64> {
    let tagged = format!("{model}:latest");
    let mut models = list.get("models").or_else(|| list.get("data"))?.as_array()?.iter();
    let loaded = models.find(|entry| {
        ["name", "model", "id"].iter().any(|key| entry[*key] == *model || entry[*key] == *tagged)
    })?;
    ["/context_length", "/loaded_context_length"]
        .iter()
        .find_map(|pointer| positive_number(loaded, pointer))
}

/// The window that the file of an Ollama model sets. The model's maximum, which the answer also
/// contains, is ignored.
fn configured_window(about: &Value) -> Option<u64> {
    let parameters = about.get("parameters")?.as_str()?;
    parameters.lines().find_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        (name == "num_ctx").then(|| value.trim().parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_ports_say_which_server_to_ask() {
        for (port, server) in [
            (Some(11_434), Some(LocalServer::Ollama)),
            (Some(8_080), Some(LocalServer::LlamaCpp)),
            (Some(1_234), Some(LocalServer::LmStudio)),
            (Some(8_000), None),
            (None, None),
        ] {
            assert_eq!(LocalServer::probably_at(port), server, "{port:?}");
        }
        // Many others are found at this one.
        assert_eq!(LocalServer::from_port(Some(8_080)), None);
    }

    #[test]
    fn the_properties_of_a_server_have_its_window_and_its_slots() {
        let table = [
            (
                json!({ "default_generation_settings": { "n_ctx": 8_192 }, "total_slots": 1 }),
                (8_192, 1),
            ),
            (json!({ "default_generation_settings": { "n_ctx": 0 }, "total_slots": 4 }), (0, 4)),
            (json!({ "total_slots": -1 }), (0, 0)),
            (json!("no properties"), (0, 0)),
        ];
        for (props, expected) in table {
            let (window, slots) = props_facts(&props);
            let found = (window.unwrap_or_default(), slots.unwrap_or_default());
            assert_eq!(found, expected, "{props}");
        }
    }

    #[test]
    fn the_window_is_that_of_the_loaded_model_or_of_its_file() {
        let running = json!({ "models": [
            { "name": "other:latest", "context_length": 1 },
            { "name": "qwen3:latest", "model": "qwen3:latest", "context_length": 8_192 },
        ] });
        assert_eq!(loaded_window(&running, "qwen3"), Some(8_192));
        assert_eq!(loaded_window(&running, "qwen3:30b"), None);
        assert_eq!(loaded_window(&json!({}), "qwen3"), None);
        // LM Studio (openfox#49).
        let models = json!({ "data": [
            { "id": "a", "state": "not-loaded", "max_context_length": 262_144 },
            { "id": "b", "state": "loaded", "max_context_length": 262_144, "loaded_context_length": 8_192 },
        ] });
        assert_eq!(loaded_window(&models, "a"), None);
        assert_eq!(loaded_window(&models, "b"), Some(8_192));
        let parameters =
            "stop                           \"<|im_end|>\"\nnum_ctx                        16384";
        let about = json!({ "parameters": parameters,
            "model_info": { "qwen3.context_length": 262_144 } });
        assert_eq!(configured_window(&about), Some(16_384));
        let about = json!({ "model_info": { "qwen3.context_length": 262_144 } });
        assert_eq!(configured_window(&about), None);
    }
}
