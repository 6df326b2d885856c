//! The text of a new settings file: every setting with its description and its default or an example, commented
//! out. It follows the schema.

use serde_json::Value;

use crate::document::{key_text, string_text};
use crate::schema;

/// The first line refers to the schema, which is written beside the file. Taplo reads it.
const BEGINNING: &str = "\
#:schema ./config.schema.json
# Settings of turnwright. Remove the # before a setting to change it; the values are the defaults, or examples.
# `turnwright config show` prints what is in force, and what is wrong.

";

/// The text of a new settings file.
pub fn settings_template() -> String {
    let mut text = BEGINNING.to_owned();
    for (key, node) in entries(&schema::root()["properties"]) {
        if node["type"] != "object" {
            add_setting(&mut text, node, &[key], sample(node));
            continue;
        }
        let description = node["description"].as_str().unwrap_or_default();
        text.push_str(&format!("\n# {description}\n[{key}]\n"));
        if is_map(node) {
            add_named(&mut text, node, &[], sample(node));
        }
        if node["additionalProperties"]["type"] == "string" {
            for (name, value) in entries(sample(node)) {
                add_setting(&mut text, &node["additionalProperties"], &[name], value);
            }
        }
        for (key, node) in entries(&node["properties"]) {
            if is_map(node) {
                add_named(&mut text, node, &[key], sample(node));
            } else {
                add_setting(&mut text, node, &[key], sample(node));
            }
        }
    }
    text
}

/// Returns true if the entries of a table have names that the user chooses, and settings of their own.
fn is_map(node: &Value) -> bool {
    node["additionalProperties"]["type"] == "object"
}

/// The default, or the first example.
fn sample(node: &Value) -> &Value {
    node.get("default").unwrap_or(&node["examples"][0])
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

fn add_named(text: &mut String, node: &Value, path: &[&str], example: &Value) {
    for (name, entry) in entries(example) {
        for (key, value) in entries(entry) {
            let node = &node["additionalProperties"]["properties"][key];
            let path = [path, &[name, key]].concat();
            if is_map(node) {
                add_named(text, node, &path, value);
            } else {
                add_setting(text, node, &path, value);
            }
        }
    }
}

fn add_setting(text: &mut String, node: &Value, path: &[&str], value: &Value) {
    let description = node["description"].as_str().unwrap_or_default();
    let allowed = node["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words = match allowed.collect::<Vec<_>>().join(", ") {
        words if words.is_empty() => words,
        words => format!(" One of {words}."),
    };
    let key = key_text(path);
    let value = toml_text(value);
    text.push_str(&format!("# {description}{words}\n#{key} = {value}\n"));
}

fn toml_text(value: &Value) -> String {
    match value {
        Value::String(text) => string_text(text),
        Value::Array(all) => {
            format!("[{}]", all.iter().map(toml_text).collect::<Vec<_>>().join(", "))
        }
        Value::Object(all) => {
            let entries = all
                .iter()
                .map(|(key, value)| format!("{} = {}", key_text(&[key]), toml_text(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::file::ConfigFile;
    use crate::table::SettingType;

    /// The problems of a file.
    fn problems(text: &str) -> Vec<String> {
        let (file, mut problems) = ConfigFile::parse(text, Path::new("c.toml")).unwrap();
        problems.extend(file.wrong_values(""));
        problems
    }

    /// The line without the `#` of a setting that is commented out.
    fn uncommented(line: &str) -> Option<&str> {
        line.strip_prefix('#')
            .filter(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()))
    }

    /// The template with the chosen settings.
    fn with(is_chosen: impl Fn(&str) -> bool) -> String {
        let template = settings_template();
        let line = |line| uncommented(line).filter(|setting| is_chosen(setting)).unwrap_or(line);
        template.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
    }

    #[test]
    fn the_template_has_no_effect_and_is_short() {
        let template = settings_template();
        assert!(template.starts_with("#:schema ./config.schema.json\n"));
        assert_eq!(problems(&template), Vec::<String>::new());
        let file = ConfigFile::parse(&template, Path::new("c.toml")).unwrap().0;
        assert_eq!(format!("{file:?}"), format!("{:?}", ConfigFile::default()));
        let longest = template.lines().map(|line| line.chars().count()).max();
        assert!(longest < Some(160) && template.lines().count() < 180, "{longest:?} {template}");
    }

    #[test]
    fn every_setting_can_be_uncommented() {
        let template = settings_template();
        let settings: Vec<_> = template.lines().filter_map(uncommented).collect();
        assert!(settings.len() > 40, "{settings:?}");
        for setting in settings {
            let needed = match setting {
                it if it.starts_with("servers.notes.") => "servers.notes.command ",
                it if it.starts_with("servers.web.") => "servers.web.url ",
                _ => setting,
            };
            let text = with(|key| key == setting || key.starts_with(needed));
            assert_ne!(text, template, "{setting}");
            assert_eq!(problems(&text), Vec::<String>::new(), "{setting}");
        }
        assert_eq!(problems(&with(|_| true)), Vec::<String>::new());
    }

    /// The keys below a node of the schema, each with its path.
    fn schema_keys(node: &Value, path: &str, found: &mut BTreeSet<String>) {
        for (key, node) in entries(&node["properties"]) {
            let path = format!("{path}/{key}");
            schema_keys(node, &path, found);
            found.insert(path);
        }
        let inner = ["items", "additionalProperties"].into_iter().map(|key| &node[key]);
        inner.filter(|inner| inner.is_object()).for_each(|inner| schema_keys(inner, path, found));
    }

    /// The keys of a value, with the path of the schema.
    fn value_keys(node: &Value, value: &Value, path: &str, found: &mut BTreeSet<String>) {
        for item in value.as_array().into_iter().flatten() {
            value_keys(&node["items"], item, path, found);
        }
        for (key, value) in entries(value) {
            match node["properties"].get(key) {
                Some(node) => {
                    let path = format!("{path}/{key}");
                    value_keys(node, value, &path, found);
                    found.insert(path);
                }
                None => value_keys(&node["additionalProperties"], value, path, found),
            }
        }
    }

    #[test]
    fn the_template_has_every_setting_and_is_valid() {
        let schema = schema::root();
        let value: Value = toml_edit::de::from_str(&with(|_| true)).unwrap();
        assert!(jsonschema::draft7::is_valid(&schema, &value));
        let mut known = BTreeSet::new();
        let mut written = BTreeSet::new();
        schema_keys(&schema, "", &mut known);
        value_keys(&schema, &value, "", &mut written);
        assert_eq!(known, written);
    }
}
