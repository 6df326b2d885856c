//! The JSON Schema of the settings file: the key, type, allowed words, default and description of each
//! setting. Editors complete and check the file with it; `config init` and `config set` are based on it.

/// The schema, as it is printed.
pub(crate) const SETTINGS_SCHEMA: &str = include_str!("../../docs/config.schema.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::config::file::{
        MODEL_KEYS, PRICE_KEYS, PROVIDER_KEYS, SESSIONS_KEYS, TOP_KEYS, WEB_KEYS,
    };
    use crate::config::permissions::{PERMISSION_KEYS, RULE_KEYS};
    use crate::config::sandbox::SANDBOX_KEYS;
    use crate::config::servers::{MCP_KEYS, SERVER_KEYS};
    use crate::config::{
        DEFAULT_MAX_TURN_REQUESTS, NetworkSetting, ReasoningEffort, SessionRetention,
    };
    use turnwright_policy::permission::Mode;

    fn schema() -> Value {
        serde_json::from_str(SETTINGS_SCHEMA).unwrap()
    }

    /// Nothing if the value is valid, else what is wrong with it.
    fn errors(value: &Value) -> Vec<String> {
        let validator = jsonschema::draft7::new(&schema()).unwrap();
        validator.iter_errors(value).map(|it| format!("{}: {it}", it.instance_path())).collect()
    }

    const PROVIDER: &str = "/properties/providers/additionalProperties";
    const MODEL: &str =
        "/properties/providers/additionalProperties/properties/model/additionalProperties";
    const SERVER: &str = "/properties/mcp/properties/servers/additionalProperties";

    #[test]
    fn the_schema_has_exactly_the_known_settings() {
        let schema = schema();
        let price = format!("{MODEL}/properties/price");
        for (place, known) in [
            ("", TOP_KEYS),
            ("/properties/web", WEB_KEYS),
            ("/properties/sessions", SESSIONS_KEYS),
            ("/properties/permissions", PERMISSION_KEYS),
            ("/properties/permissions/properties/rule/items", RULE_KEYS),
            ("/properties/sandbox", SANDBOX_KEYS),
            (PROVIDER, PROVIDER_KEYS),
            (MODEL, MODEL_KEYS),
            (&price, PRICE_KEYS),
            ("/properties/mcp", MCP_KEYS),
            (SERVER, SERVER_KEYS),
        ] {
            let node = schema.pointer(place).unwrap();
            assert_eq!(node["additionalProperties"], json!(false), "{place}");
            let described = node["properties"].as_object().unwrap();
            for (key, setting) in described {
                let description = setting["description"].as_str().unwrap();
                assert!(description.ends_with('.') && !description.contains(". "), "{key}");
            }
            let described: BTreeSet<_> = described.keys().map(String::as_str).collect();
            // Both are known only to be refused.
            let known = known.iter().copied().filter(|it| !["key", "api_key"].contains(it));
            assert_eq!(described, known.collect(), "{place}");
        }
    }

    #[test]
    fn words_and_defaults_are_those_of_the_program() {
        let schema = schema();
        let network = [NetworkSetting::Off, NetworkSetting::Loopback, NetworkSetting::On];
        for (place, words) in [
            ("/properties/mode", Mode::ALL.map(Mode::id).to_vec()),
            ("/properties/effort", ReasoningEffort::ALL.map(ReasoningEffort::id).to_vec()),
            ("/properties/sandbox/properties/network", network.map(NetworkSetting::id).to_vec()),
        ] {
            assert_eq!(schema.pointer(place).unwrap()["enum"], json!(words), "{place}");
        }
        let sessions = SessionRetention::default();
        for (place, value) in [
            ("/properties/mode", json!(Mode::default().id())),
            ("/properties/effort", json!(ReasoningEffort::default().id())),
            ("/properties/max_turn_requests", json!(DEFAULT_MAX_TURN_REQUESTS)),
            ("/properties/sessions/properties/keep_days", json!(sessions.keep_days)),
            ("/properties/sessions/properties/max_size", json!(sessions.max_size)),
            ("/properties/sandbox/properties/network", json!(NetworkSetting::default().id())),
        ] {
            assert_eq!(schema.pointer(place).unwrap()["default"], value, "{place}");
        }
    }

    #[test]
    fn the_examples_of_the_manual_are_valid_and_mistakes_are_not() {
        let manual = include_str!("../../docs/configuration.md");
        for example in manual.split("```toml\n").skip(1) {
            let text = example.split("```").next().unwrap();
            let value: Value = toml::from_str(text).unwrap();
            assert_eq!(errors(&value), Vec::<String>::new(), "{text}");
        }
        for wrong in [
            "modle = 'x'",
            "mode = 'all'",
            "max_turn_requests = 0",
            "list_models = 'yes'",
            "[sandbox]\nnetwork = true",
            "[providers.x]\nkey = 'sk-1'",
            "[providers.x]\napi = 'completions'",
            "[[permissions.rule]]\neffect = 'perhaps'\nwhen = 'exec'",
            "[mcp.servers.x]\nstart_seconds = 0",
        ] {
            let value: Value = toml::from_str(wrong).unwrap();
            assert_ne!(errors(&value), Vec::<String>::new(), "{wrong}");
        }
    }

    /// All defaults and examples of the schema.
    fn samples<'a>(node: &'a Value, found: &mut Vec<(&'a Value, &'a Value)>) {
        let examples = node["examples"].as_array().into_iter().flatten();
        found.extend(node.get("default").into_iter().chain(examples).map(|it| (node, it)));
        let properties = node["properties"].as_object().into_iter().flatten().map(|it| it.1);
        let inner = [&node["items"], &node["additionalProperties"]].into_iter();
        properties.chain(inner.filter(|it| it.is_object())).for_each(|it| samples(it, found));
    }

    #[test]
    fn defaults_and_examples_are_valid() {
        let schema = schema();
        let mut found = Vec::new();
        samples(&schema, &mut found);
        assert!(found.len() > 30, "{found:?}");
        for (node, sample) in found {
            assert!(jsonschema::draft7::is_valid(node, sample), "{sample}");
        }
    }
}
