//! The specs of the built-in tools for models: `specs.json`, which the tests derive from the argument
//! types. The program reads the result and does not derive it anew.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::tools::Tool;
use turnwright_types::message::ToolSpec;
use turnwright_types::update::COMMAND_TOOL;

/// For each tool its description and the schema of its arguments.
static SPECS: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("specs.json")).unwrap_or_default());

/// The description of commands on Windows, for models.
const COMMANDS_OF_CMD: &str = "Run one line of Windows' cmd, without a sandbox, terminal or input. After the \
                               timeout it continues as a job for exec_output.";

pub(in crate::tools) fn spec<T: Tool>() -> ToolSpec {
    let spec = SPECS.get(T::NAME);
    // The tools that tests define are in no file.
    #[cfg(test)]
    let derived = derive::spec::<T>();
    #[cfg(test)]
    let spec = spec.or(Some(&derived));
    let usual = spec.and_then(|spec| spec["description"].as_str()).unwrap_or_default();
    let is_cmd = cfg!(all(windows, not(test))) && T::NAME == COMMAND_TOOL;
    let description = if is_cmd { COMMANDS_OF_CMD } else { usual };
    let parameters = spec.map_or(Value::Null, |spec| spec["parameters"].clone());
    ToolSpec { name: T::NAME.into(), description: description.to_owned(), parameters }
}

#[cfg(test)]
pub(in crate::tools) mod derive {
    use schemars::generate::SchemaSettings;
    use serde_json::json;

    use super::*;

    /// The description and the schema of a tool, from the type of its arguments.
    pub(in crate::tools) fn spec<T: Tool>() -> Value {
        let mut settings = SchemaSettings::draft07();
        // No `$ref` and no `definitions`: many servers reject them.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        let schema = settings.into_generator().into_root_schema_for::<T::Args>();
        let mut parameters = schema.to_value();
        simplify(&mut parameters);
        let description = parameters.as_object_mut().unwrap().remove("description");
        json!({ "description": description.unwrap_or_default(), "parameters": parameters })
    }

    /// Keeps only type, description, properties, required, items and enum, which every server knows.
    fn simplify(schema: &mut Value) {
        let Value::Object(fields) = schema else { return };
        fields.retain(|key, _| {
            matches!(
                key.as_str(),
                "type" | "description" | "properties" | "required" | "items" | "enum"
            )
        });
        if let Some(Value::Array(types)) = fields.get("type") {
            let first = types.iter().find(|name| *name != "null").cloned().unwrap_or(Value::Null);
            fields.insert("type".to_owned(), first);
        }
        if let Some(Value::Array(values)) = fields.get_mut("enum") {
            // An optional argument does not have to accept null, too.
            values.retain(|value| !value.is_null());
        }
        if let Some(Value::String(text)) = fields.get_mut("description") {
            *text = text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
        }
        if let Some(Value::Object(properties)) = fields.get_mut("properties") {
            properties.values_mut().for_each(simplify);
        }
        if let Some(items) = fields.get_mut("items") {
            simplify(items);
        }
    }
}
