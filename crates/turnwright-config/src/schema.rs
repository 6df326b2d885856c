//! Every setting described: the JSON Schema of the settings file, with the key, type, allowed words, default and
//! description of each setting as the table has them, and the text of a new settings file, which follows the schema,
//! with a default or an example of each, commented out. Editors complete and check the file with the schema; `config
//! init` and `config set` are based on it.

use serde_json::{Value, json};
use toml_edit::Value as TomlValue;

use crate::ConfigError;
use crate::document::{key_text, string_text};
use crate::file::ConfigFile;
use crate::table::{SettingType, full_key};

/// The most columns of a line of the schema.
const MAX_COLUMNS: usize = 100;
/// The least similarity of the name of a setting that is suggested.
const MIN_SIMILARITY: f64 = 0.85;

/// The schema, as it is printed.
pub fn settings_schema() -> String {
    text_of(&root(), 0, 0) + "\n"
}

/// The schema of all settings.
pub(crate) fn root() -> Value {
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Settings of turnwright (config.toml)",
    });
    if let Value::Object(members) = &mut schema {
        members.extend(ConfigFile::schema());
    }
    schema
}

/// JSON for people, behind so many columns of a line. What has a description is on several lines, and so is what does
/// not fit.
fn text_of(value: &Value, depth: usize, columns: usize) -> String {
    let line = one_line(value);
    if value.get("description").is_none() && columns + line.chars().count() < MAX_COLUMNS {
        return line;
    }
    let indent = "  ".repeat(depth + 1);
    let end = "  ".repeat(depth);
    match value {
        Value::Object(members) => {
            let lines = members.iter().map(|(key, member)| {
                let head = format!("{indent}{}: ", Value::from(key.as_str()));
                let used = head.chars().count();
                head + &text_of(member, depth + 1, used)
            });
            format!("{{\n{}\n{end}}}", lines.collect::<Vec<_>>().join(",\n"))
        }
        Value::Array(items) => {
            let lines = items.iter().map(|item| {
                format!("{indent}{}", text_of(item, depth + 1, indent.chars().count()))
            });
            format!("[\n{}\n{end}]", lines.collect::<Vec<_>>().join(",\n"))
        }
        _ => line,
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let members = members.iter().map(|(key, member)| {
                format!("{}: {}", Value::from(key.as_str()), one_line(member))
            });
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(one_line).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// The schema of one setting. `true` allows anything.
///
/// # Errors
/// If there is no such setting: which ones there are instead.
pub(crate) fn find<'a>(root: &'a Value, path: &[String]) -> Result<&'a Value, ConfigError> {
    let mut node = root;
    for (depth, key) in path.iter().enumerate() {
        let named = &node["properties"];
        let others = &node["additionalProperties"];
        node = match named.get(key) {
            Some(found) => found,
            None if others.is_object() => others,
            None if named.is_null() && (node["type"] == "object" || node == &ANYTHING) => &ANYTHING,
            None => {
                let known: Vec<_> = entries(named).map(|(name, _)| name).collect();
                return Err(unknown(path, depth, &known));
            }
        };
    }
    Ok(node)
}

/// The error about a setting of which only the first `depth` parts of the key exist, which may be followed by `known`.
fn unknown(path: &[String], depth: usize, known: &[&str]) -> ConfigError {
    let wanted = &path[depth];
    let parent = key_text(&path[..depth]);
    if ["key", "api_key"].contains(&wanted.as_str()) && parent.starts_with("providers.") {
        return ConfigError::new(format!(
            "Keys do not belong in the file: set `{parent}.key_env` to the name of the variable that holds the \
             key, or run `turnwright login`"
        ));
    }
    let similarity = |name: &str| strsim::jaro_winkler(name, wanted);
    let closest = known.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let hint = match closest.filter(|name| similarity(name) >= MIN_SIMILARITY) {
        Some(meant) => format!("Perhaps `{}` is meant", full_key(&parent, meant)),
        None if known.is_empty() => format!("`{parent}` is not a section"),
        None if parent.is_empty() => format!("Known are {}", known.join(", ")),
        None => format!("`{parent}` has {}", known.join(", ")),
    };
    ConfigError::new(format!("Unknown setting `{}`. {hint}", key_text(path)))
}

static ANYTHING: Value = Value::Bool(true);

/// The allowed values, as a phrase.
pub(crate) fn expected(node: &Value) -> String {
    if let Some(kinds) = node["anyOf"].as_array() {
        return kinds.iter().map(expected).collect::<Vec<_>>().join(", or ");
    }
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
pub(crate) fn value_text(node: &Value, typed: &[String]) -> Result<String, String> {
    if let Some(kinds) = node["anyOf"].as_array() {
        let mut texts = kinds.iter().map(|kind| value_text(kind, typed));
        return texts.find(Result::is_ok).unwrap_or_else(|| Err(expected(node)));
    }
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

/// The first line refers to the schema, which is written beside the file. Taplo reads it.
const BEGINNING: &str = "\
#:schema ./config.schema.json
# Settings of turnwright. Remove the # before a setting to change it; the values are the defaults, or examples.
# `turnwright config show` prints what is in force, and what is wrong.

";

/// The text of a new settings file.
pub fn settings_template() -> String {
    let mut text = BEGINNING.to_owned();
    for (key, node) in entries(&root()["properties"]) {
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use expect_test::expect_file;

    use super::*;
    use crate::agent::AgentSection;
    use crate::effective_policy::resolve_policy;
    use crate::table::Row;
    use crate::trust::TrustStore;
    use crate::{Config, EnvironmentVariables, Flags, Paths, UserFile};
    use turnwright_types::private_file;
    use turnwright_workspace::files::Roots;

    const MANUAL: &str = include_str!("../../../docs/configuration.md");

    /// Run the test with `UPDATE_EXPECT=1` to renew the file.
    #[test]
    fn the_schema_is_in_the_manual() {
        expect_file!["../../../docs/config.schema.json"].assert_eq(&settings_schema());
    }

    /// A section of the file with its key, which leaves out names that the user chooses, and its rows.
    type Section = (String, &'static [Row]);

    /// All sections, each before those that are in it.
    fn sections() -> Vec<Section> {
        let mut found = Vec::new();
        add_sections("", ConfigFile::ROWS, &mut found);
        found
    }

    fn add_sections(key: &str, rows: &'static [Row], found: &mut Vec<Section>) {
        found.push((key.to_owned(), rows));
        for row in rows {
            let inner = row.inner.rows();
            if !inner.is_empty() {
                add_sections(&full_key(key, row.key), inner, found);
            }
        }
    }

    /// All rows, by sections.
    fn all_rows() -> impl Iterator<Item = &'static Row> {
        sections().into_iter().flat_map(|section| section.1)
    }

    /// The sections that have a table in the manual, by the mark before it.
    fn tables() -> BTreeMap<String, &'static [Row]> {
        let sections = sections().into_iter();
        let explained = sections.filter(|(_, rows)| rows.iter().any(|row| !row.manual.is_empty()));
        explained
            .map(|(key, rows)| (if key.is_empty() { "file".to_owned() } else { key }, rows))
            .collect()
    }

    /// The type as a person calls it.
    fn kind(row: &Row) -> &'static str {
        match row.schema().get("type").and_then(Value::as_str) {
            Some("boolean") => "yes or no",
            Some("integer" | "number") => "number",
            Some("array") => "list",
            Some("object") => "table",
            _ => "text",
        }
    }

    /// The rows that have a meaning, as a table of the manual.
    fn table(rows: &[Row]) -> String {
        let rows: Vec<_> = rows.iter().filter(|row| !row.manual.is_empty()).collect();
        let is_elsewhere = rows.iter().any(|row| !row.variable.is_empty());
        let [name, rule] = if is_elsewhere { [" flag, variable |", "---|"] } else { [""; 2] };
        let mut table = format!("| key | type |{name} meaning |\n|---|---|{rule}---|\n");
        for row in rows {
            let names = [row.flag, row.variable].map(|name| format!("`{name}`"));
            let named = names.iter().filter(|name| *name != "``").map(String::as_str);
            let named = named.collect::<Vec<_>>().join(", ");
            let elsewhere = match (is_elsewhere, named.as_str()) {
                (false, _) => String::new(),
                (true, "") => " |".to_owned(),
                (true, named) => format!(" {named} |"),
            };
            let line = format!("| `{}` | {} |{elsewhere} {} |\n", row.key, kind(row), row.manual);
            table.push_str(&line);
        }
        table
    }

    /// The lines about the variables of the table, and whatever else was there.
    fn variables(old: &str) -> String {
        let rows = ConfigFile::ROWS.iter().chain(AgentSection::ROWS);
        let mut new: BTreeMap<&str, String> = rows
            .filter(|row| !row.variable.is_empty())
            .map(|row| (row.variable, format!("| `{}` | {} |\n", row.variable, row.manual)))
            .collect();
        let mut renewed = String::new();
        for line in old.lines() {
            let name = line.split('`').nth(1).unwrap_or_default();
            renewed += &new.remove(name).unwrap_or_else(|| format!("{line}\n"));
        }
        renewed + &new.into_values().collect::<String>()
    }

    /// The wrong entries of the rows, those of the file first, each with what is said of it.
    fn wrong_entries() -> String {
        let entries = all_rows().flat_map(|row| row.wrong.iter().copied());
        let (of_variables, of_file): (Vec<_>, Vec<_>) =
            entries.partition(|entry| is_variable(entry));
        let mut table = "| entry | what is said |\n|---|---|\n".to_owned();
        for entry in of_file.into_iter().chain(of_variables) {
            let said = said_of(entry);
            assert_eq!(said.len(), 1, "{entry}: {said:?}");
            table.push_str(&format!("| `{entry}` | {} |\n", said[0]));
        }
        table
    }

    fn is_variable(entry: &str) -> bool {
        entry.starts_with("TURNWRIGHT_")
    }

    /// The words of `config show` about a wrong variable, or a file with this one line.
    fn said_of(entry: &'static str) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let file = UserFile::at_default_path(&paths);
        let variable = entry.split_once('=').filter(|_| is_variable(entry));
        let text = if variable.is_some() { "" } else { entry };
        private_file::write(file.path(), text.as_bytes()).unwrap();
        let variables = variable.map(|pair| EnvironmentVariables::of(&[pair]));
        let config = Config::new(variables.unwrap_or_default(), Flags::default(), file, paths);
        let settings = config.snapshot();
        let trust = TrustStore::new(&config.paths.state);
        let policy = resolve_policy(&settings, &trust, &Roots::new(Path::new(".")).unwrap());
        let (errors, warnings) = settings.errors_and_warnings(policy.problems);
        let of_errors = errors.iter().map(|error| format!("error: {error}"));
        let of_warnings = warnings.iter().map(|warning| format!("warning: {warning}"));
        let all = of_errors.chain(of_warnings);
        let lines = all.map(|line| line.replace(&config.file_path(), "config.toml"));
        // The remedy for a file that cannot be read is said above the table.
        lines.map(|line| line.split(". Fix the file;").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn what_each_check_says_is_in_the_manual() {
        for row in all_rows().filter(|row| !row.check.is_empty()) {
            let is_shown =
                all_rows().any(|other| other.check == row.check && !other.wrong.is_empty());
            assert!(is_shown, "no row with `{}` has a `wrong` entry: {}", row.check, row.key);
        }
    }

    /// Run the test with `UPDATE_EXPECT=1` to renew the tables. That of a new section is put before the providers.
    #[test]
    fn the_manual_has_the_tables() {
        let mut missing = tables();
        let mut parts = MANUAL.split("<!-- settings: ");
        let mut renewed = parts.next().unwrap().to_owned();
        let mut others = BTreeSet::from(["variables", "wrong"]);
        for part in parts {
            let (name, rest) = part.split_once(" -->\n\n").unwrap();
            let lines = rest.split_inclusive('\n').take_while(|line| line.starts_with('|'));
            let (old, after) = rest.split_at(lines.map(str::len).sum());
            let new = match name {
                "variables" => variables(old),
                "wrong" => wrong_entries(),
                _ => table(missing.remove(name).unwrap()),
            };
            others.remove(name);
            renewed.push_str(&format!("<!-- settings: {name} -->\n\n{new}{after}"));
        }
        assert_eq!(others, BTreeSet::new(), "docs/configuration.md has no table for these");
        for (key, rows) in missing {
            let place = renewed.find("\nIn `[providers.NAME]`").unwrap() + 1;
            let head = format!("In `[{key}]`:\n\n<!-- settings: {key} -->\n\n");
            renewed.insert_str(place, &format!("{head}{}\n", table(rows)));
        }
        expect_file!["../../../docs/configuration.md"].assert_eq(&renewed);
    }

    /// The section that a setting is, or that its entries are.
    fn section(setting: &Value) -> Option<&Value> {
        let inner = [setting, &setting["items"], &setting["additionalProperties"]];
        inner.into_iter().find(|node| node["properties"].is_object())
    }

    /// All settings and sections, each with its key.
    fn settings<'a>(node: &'a Value, found: &mut Vec<(&'a str, &'a Value)>) {
        for (key, setting) in node["properties"].as_object().into_iter().flatten() {
            found.push((key.as_str(), setting));
            if let Some(section) = section(setting) {
                settings(section, found);
            }
        }
    }

    #[test]
    fn every_setting_is_described_by_one_sentence_and_is_in_the_manual() {
        let schema = root();
        let mut found = Vec::new();
        settings(&schema, &mut found);
        assert!(found.len() > 60, "{found:?}");
        for (key, setting) in found {
            let description = setting["description"].as_str().unwrap();
            assert!(description.ends_with('.') && !description.contains(". "), "{key}");
            // The manual has sections as headers.
            let is_section = section(setting).is_some() || key == "checks";
            assert!(MANUAL.contains(&format!("`{key}`")) || is_section, "{key}");
        }
    }

    /// These defaults are in the table, and once more where the value is used.
    #[test]
    fn defaults_are_in_force_without_a_file() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let variables = EnvironmentVariables::default();
        let file = UserFile::at_default_path(&paths);
        let config = Config::new(variables, Flags::default(), file, paths);
        let settings = config.snapshot();
        let schema = root();
        for (place, value) in [
            ("/properties/list_models", json!(settings.list_models())),
            ("/properties/acp/properties/v2", json!(settings.values.acp.v2 != Some(false))),
            (
                "/properties/limits/properties/stop_loops",
                json!(settings.values.limits.stop_loops != Some(false)),
            ),
        ] {
            assert_eq!(schema.pointer(place).unwrap()["default"], value, "{place}");
        }
    }

    /// Nothing if the value is valid, else what is wrong with it.
    fn errors(value: &Value) -> Vec<String> {
        let validator = jsonschema::draft7::new(&root()).unwrap();
        validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect()
    }

    #[test]
    fn the_examples_of_the_manual_are_valid_and_mistakes_are_not() {
        for example in MANUAL.split("```toml\n").skip(1) {
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
        let schema = root();
        let mut found = Vec::new();
        samples(&schema, &mut found);
        assert!(found.len() > 30, "{found:?}");
        for (node, sample) in found {
            assert!(jsonschema::draft7::is_valid(node, sample), "{sample}");
        }
    }

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
        assert!(longest < Some(160) && template.lines().count() < 210, "{longest:?} {template}");
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
        let schema = root();
        let value: Value = toml_edit::de::from_str(&with(|_| true)).unwrap();
        assert!(jsonschema::draft7::is_valid(&schema, &value));
        let mut known = BTreeSet::new();
        let mut written = BTreeSet::new();
        schema_keys(&schema, "", &mut known);
        value_keys(&schema, &value, "", &mut written);
        assert_eq!(known, written);
    }
}
