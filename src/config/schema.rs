//! The JSON Schema of the settings file: the key, type, allowed words, default and description of each
//! setting. Editors complete and check the file with it; `config init` and `config set` are based on it.

use serde_json::Value;
use toml_edit::Value as TomlValue;

use super::document::string_text;

/// The schema, as it is printed.
pub(crate) const SETTINGS_SCHEMA: &str = include_str!("../../docs/config.schema.json");

/// The schema of all settings.
pub(super) fn root() -> Value {
    // A test reads it.
    serde_json::from_str(SETTINGS_SCHEMA).unwrap_or_default()
}

/// A setting that does not exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownSetting {
    /// How many parts of the key are known.
    pub(super) depth: usize,
    /// The keys that may follow them.
    pub(super) known: Vec<String>,
}

/// The schema of one setting. `true` allows anything.
pub(super) fn find<'a>(root: &'a Value, path: &[String]) -> Result<&'a Value, UnknownSetting> {
    let mut node = root;
    for (depth, key) in path.iter().enumerate() {
        let named = &node["properties"];
        let others = &node["additionalProperties"];
        node = match named.get(key) {
            Some(found) => found,
            None if others.is_object() => others,
            None if named.is_null() && (node["type"] == "object" || node == &ANYTHING) => &ANYTHING,
            None => {
                let known = named.as_object().into_iter().flatten();
                return Err(UnknownSetting {
                    depth,
                    known: known.map(|entry| entry.0.clone()).collect(),
                });
            }
        };
    }
    Ok(node)
}

static ANYTHING: Value = Value::Bool(true);

/// The allowed values, as a phrase.
pub(super) fn expected(node: &Value) -> String {
    if let Some(words) = node["enum"].as_array() {
        let words: Vec<_> = words.iter().filter_map(Value::as_str).collect();
        return format!("one of {}", words.join(", "));
    }
    match node["type"].as_str() {
        Some("integer") => format!("a whole number ≥ {}", node["minimum"]),
        Some("number") => "a number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("array") if node["items"]["type"] == "string" => "a list of texts".to_owned(),
        Some("array") => "a list of tables".to_owned(),
        Some("object") => "a table".to_owned(),
        _ => "a text".to_owned(),
    }
}

/// The TOML text of a value that was typed: itself if it is TOML of the right type, else what it says. Several
/// values are a list.
///
/// # Errors
/// A phrase says what is expected instead.
pub(super) fn value_text(node: &Value, typed: &[String]) -> Result<String, String> {
    let is_list = node["type"] == "array" && node["items"]["type"] == "string";
    let [one] = typed else {
        let all: Vec<_> = typed.iter().map(|word| string_text(word)).collect();
        let list = format!("[{}]", all.join(", "));
        return if is_list { Ok(list) } else { Err(format!("{}, and only one", expected(node))) };
    };
    let value: Option<TomlValue> = one.trim().parse().ok();
    let word = value.as_ref().and_then(TomlValue::as_str).unwrap_or(one).trim();
    if let Some(words) = node["enum"].as_array() {
        let mut words = words.iter().filter_map(Value::as_str);
        let found = words.find(|allowed| allowed.eq_ignore_ascii_case(word));
        return found.map(string_text).ok_or_else(|| expected(node));
    }
    match value.as_ref().filter(|value| fits(node, value)) {
        Some(_) => Ok(one.trim().to_owned()),
        None if is_list && !one.trim_start().starts_with('[') => {
            Ok(format!("[{}]", string_text(word)))
        }
        None if node["type"] == "string" || node == &ANYTHING => Ok(string_text(one)),
        None => Err(expected(node)),
    }
}

/// Returns true if a value has the type of a setting.
fn fits(node: &Value, value: &TomlValue) -> bool {
    match (node["type"].as_str(), value) {
        (Some("string"), TomlValue::String(_)) | (Some("boolean"), TomlValue::Boolean(_)) => true,
        (Some("object"), TomlValue::InlineTable(_)) => true,
        (Some("number"), TomlValue::Float(_) | TomlValue::Integer(_)) => true,
        (Some("integer"), TomlValue::Integer(number)) => {
            let least = node["minimum"].as_i64().unwrap_or(i64::MIN);
            let most = node["maximum"].as_i64().unwrap_or(i64::MAX);
            (least..=most).contains(number.value())
        }
        (Some("array"), TomlValue::Array(all)) => all.iter().all(|one| fits(&node["items"], one)),
        (None, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt;

    use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
    use serde_json::{Value, json};

    use super::*;
    use crate::config::file::{
        AcpSection, AgentSection, ConfigFile, ModelSection, ModelsSection, NamedModelSection,
        ProviderSection, WebSection,
    };
    use crate::config::limits::LimitsSection;
    use crate::config::permissions::{PermissionSection, RuleEntry};
    use crate::config::provider::Price;
    use crate::config::sandbox::SandboxSection;
    use crate::config::servers::ServerSection;
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
        validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect()
    }

    /// The fields of the struct that a reader asks for. It is an error, so that nothing has to be read.
    #[derive(Debug)]
    struct Fields(&'static [&'static str]);

    impl fmt::Display for Fields {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "{:?}", self.0)
        }
    }

    impl std::error::Error for Fields {}

    impl Error for Fields {
        fn custom<T: fmt::Display>(_: T) -> Fields {
            Fields(&[])
        }
    }

    struct FieldReader;

    impl<'de> Deserializer<'de> for FieldReader {
        type Error = Fields;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fields> {
            Err(Fields(&[]))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Fields> {
            Err(Fields(fields))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn keys<T: DeserializeOwned>() -> &'static [&'static str] {
        T::deserialize(FieldReader).err().unwrap().0
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
            ("", keys::<ConfigFile>()),
            ("/properties/models", keys::<ModelsSection>()),
            (
                "/properties/models/properties/model/additionalProperties",
                keys::<NamedModelSection>(),
            ),
            ("/properties/agent", keys::<AgentSection>()),
            ("/properties/web", keys::<WebSection>()),
            ("/properties/acp", keys::<AcpSection>()),
            ("/properties/sessions", keys::<SessionRetention>()),
            ("/properties/limits", keys::<LimitsSection>()),
            ("/properties/permissions", keys::<PermissionSection>()),
            ("/properties/permissions/properties/rule/items", keys::<RuleEntry>()),
            ("/properties/sandbox", keys::<SandboxSection>()),
            (PROVIDER, keys::<ProviderSection>()),
            (MODEL, keys::<ModelSection>()),
            (&price, keys::<Price>()),
            ("/properties/mcp", &["wait_seconds", "servers"]),
            (SERVER, keys::<ServerSection>()),
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
            let known = known.iter().copied().filter(|key| !["key", "api_key"].contains(key));
            assert_eq!(described, known.collect(), "{place}");
            let manual = include_str!("../../docs/configuration.md");
            for key in described {
                let is_section = schema.pointer(&format!("/properties/{key}/properties")).is_some();
                let is_named = is_section || MAPS.contains(&key);
                assert!(manual.contains(&format!("`{key}`")) || is_named, "{key}");
            }
        }
    }

    /// Tables whose entries the user names, and lists of tables. The manual has them as headers.
    const MAPS: &[&str] = &["providers", "model", "checks", "rule", "servers"];

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
            (
                "/properties/models/properties/assumed_window",
                json!(turnwright_llm::DEFAULT_ASSUMED_WINDOW),
            ),
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
            let value: Value = toml_edit::de::from_str(text).unwrap();
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
            let value: Value = toml_edit::de::from_str(wrong).unwrap();
            assert_ne!(errors(&value), Vec::<String>::new(), "{wrong}");
        }
    }

    /// All defaults and examples of the schema.
    fn samples<'a>(node: &'a Value, found: &mut Vec<(&'a Value, &'a Value)>) {
        let examples = node["examples"].as_array().into_iter().flatten();
        found.extend(node.get("default").into_iter().chain(examples).map(|sample| (node, sample)));
        let properties =
            node["properties"].as_object().into_iter().flatten().map(|property| property.1);
        let inner = [&node["items"], &node["additionalProperties"]].into_iter();
        properties
            .chain(inner.filter(|node| node.is_object()))
            .for_each(|node| samples(node, found));
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
