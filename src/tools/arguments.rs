//! Tool arguments: those that a card shows while they are still being streamed, JSON schemas that the
//! strictest servers accept, and parsing that repairs harmless mistakes of models with the help of the
//! same schema, if they can be meant in only one way.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::{Map, Value, json};

use super::Tool;
use turnwright_types::error_text::field_error_text;
use turnwright_types::message::ToolSpec;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::shell_script::bare_command;
use turnwright_types::text;
use turnwright_types::update::COMMAND_TOOL;

#[cfg(test)]
pub(super) use derive::spec as derive_spec;

/// For each tool its description and the schema of its arguments.
static SPECS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("arguments/specs.json")).unwrap_or_default()
});

/// The description of commands on Windows, for models.
const COMMANDS_OF_CMD: &str = "Run one line of Windows' cmd, without a sandbox, terminal or input. After the \
                               timeout it continues as a job for exec_output.";

/// At most this many unknown arguments are reported.
const MAX_IGNORED: usize = 8;
/// At most this many characters of each are shown.
const MAX_NAME_CHARS: usize = 40;
/// The similarity above which an argument is suggested for an unknown one.
const MIN_SIMILARITY: f64 = 0.85;
/// An error lists at most this many argument names.
const MAX_NAMES: usize = 12;
/// An error quotes at most this many characters of a value.
const MAX_VALUE_CHARS: usize = 80;
/// An error quotes at most this many characters of a serde error.
const MAX_ERROR_CHARS: usize = 200;

/// Argument names of our tools, with other names that models use for them. Another name is accepted
/// only if the tool has ours, it is missing, and no second argument stands for it.
const ALIASES: &[(&str, &[&str])] = &[
    (
        "path",
        &["file_path", "filepath", "file", "filename", "target_file", "dir", "directory", "folder"],
    ),
    ("command", &["cmd", "script", "shell_command"]),
    ("workdir", &["cwd"]),
    ("old_string", &["old_text", "old_str", "search"]),
    ("new_string", &["new_text", "new_str", "replace"]),
    ("content", &["contents", "text", "data"]),
    ("pattern", &["regex", "query"]),
    ("glob", &["pattern"]),
    ("entries", &["todos", "plan"]),
];

/// The names that models give to an argument with all others in it, and `name`, which holds the tool's name beside it.
const WRAPPERS: [&str; 7] =
    ["arguments", "parameters", "args", "params", "input", "name", "questions"];

/// An argument that the card shows before the call is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownArgument {
    /// The name in the tool's schema.
    pub name: &'static str,
    pub role: ArgumentRole,
}

/// The role of an argument on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentRole {
    /// The command line is the whole title.
    Command,
    /// The path is the object of the title, and the card's location.
    Path,
    /// The pattern is quoted in the title, before the path in which it is searched.
    Pattern,
    /// The URL is the object of the title, without its scheme.
    Url,
    /// Something else that is the object of the title.
    Name,
    /// The content of a file is shown as it arrives.
    NewContent,
    /// The text that replaces [`ArgumentRole::OldText`] is shown as it arrives.
    NewText,
    /// The patch is shown as it arrives.
    Patch,
    /// The text that an edit replaces.
    OldText,
}

impl ArgumentRole {
    /// Returns true if the value becomes a part of the title as soon as it is complete.
    pub fn is_title(self) -> bool {
        use ArgumentRole::{Command, Name, Path, Pattern, Url};
        matches!(self, Command | Path | Pattern | Url | Name)
    }

    /// Returns true if the value may be long and is shown as it arrives.
    pub fn is_long(self) -> bool {
        matches!(self, ArgumentRole::NewContent | ArgumentRole::NewText | ArgumentRole::Patch)
    }
}

const fn shown(name: &'static str, role: ArgumentRole) -> ShownArgument {
    ShownArgument { name, role }
}

pub(super) const COMMAND: ShownArgument = shown("command", ArgumentRole::Command);
pub(super) const PATH: ShownArgument = shown("path", ArgumentRole::Path);
pub(super) const PATTERN: ShownArgument = shown("pattern", ArgumentRole::Pattern);
pub(super) const URL: ShownArgument = shown("url", ArgumentRole::Url);
pub(super) const QUERY: ShownArgument = shown("query", ArgumentRole::Pattern);
pub(super) const GLOB: ShownArgument = shown("glob", ArgumentRole::Name);
pub(super) const NAME: ShownArgument = shown("name", ArgumentRole::Name);
pub(super) const CONTENT: ShownArgument = shown("content", ArgumentRole::NewContent);
pub(super) const NEW_STRING: ShownArgument = shown("new_string", ArgumentRole::NewText);
pub(super) const OLD_STRING: ShownArgument = shown("old_string", ArgumentRole::OldText);
pub(super) const PATCH: ShownArgument = shown("patch", ArgumentRole::Patch);

/// The usual meaning of arguments with these names, for the tools of MCP servers.
pub(crate) const COMMON_ARGUMENTS: &[ShownArgument] =
    &[PATH, COMMAND, PATTERN, URL, GLOB, NAME, CONTENT, NEW_STRING, PATCH, OLD_STRING];

pub(super) fn spec<T: Tool>() -> ToolSpec {
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

/// Parses arguments. If they do not fit, repairs mistakes that can be meant in only one way. Also
/// returns the names that the tool does not know.
pub(super) fn parse_arguments<T: Tool>(args: Value) -> Result<(T, Vec<String>), ToolRefusal> {
    if let Ok((args, ignored)) = read(args.clone())
        && ignored.is_empty()
    {
        return Ok((args, ignored));
    }
    let schema = spec::<T>().parameters;
    let repaired = repair_arguments(args, &schema);
    let parsed = read::<T>(repaired.clone()).map_err(|error| {
        let message = error.inner().to_string();
        // A field is called missing only if serde says so: a tool may accept names that are not in
        // its schema.
        let is_field_missing = message.contains("missing field");
        let problem =
            describe_problem(&repaired, &schema, "", is_field_missing).unwrap_or_else(|| {
                let place = Some(error.path().to_string()).filter(|place| place != ".");
                let fault = field_error_text(&place.unwrap_or_default(), &message);
                text::clip(fault, MAX_ERROR_CHARS)
            });
        let names = argument_names(&schema);
        let name = T::NAME;
        format!("Invalid arguments for {name}: {problem}. Nothing was executed. {names}.")
    });
    let (call, ignored) = parsed?;
    let named = ignored.into_iter().map(|name| with_similar_name(name, &schema, &repaired));
    Ok((call, named.collect()))
}

/// The arguments from which [`parse_arguments`] makes a call.
pub(super) fn understood<T: Tool>(args: Value) -> Value {
    let mut known = match read::<T>(args.clone()) {
        Ok((_, ignored)) if ignored.is_empty() => args,
        _ => repair_arguments(args, &spec::<T>().parameters),
    };
    if let Some(Value::String(line)) = known.get_mut("command").filter(|_| T::NAME == COMMAND_TOOL)
    {
        *line = bare_command(line);
    }
    known
}

/// An unknown argument, with the known one that it is most like and that was not sent.
fn with_similar_name(name: String, schema: &Value, sent: &Value) -> String {
    let known = schema["properties"].as_object().into_iter().flatten();
    let missing = known.map(|(key, _)| key).filter(|key| sent.get(key.as_str()).is_none());
    let rated = missing.map(|key| (strsim::jaro_winkler(&name, key), key));
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0));
    match best.filter(|(similarity, _)| *similarity > MIN_SIMILARITY) {
        Some((_, key)) => format!("{name}, did you mean {key}?"),
        None => name,
    }
}

/// Deserializes arguments. Also returns the places of unknown ones.
fn read<T: DeserializeOwned>(
    args: Value,
) -> Result<(T, Vec<String>), serde_path_to_error::Error<serde_json::Error>> {
    let mut ignored = Vec::new();
    // One type for all tools, so that the code which reads a type of argument exists once.
    let mut ignore: &mut dyn FnMut(Path<'_>) = &mut |unknown| {
        if ignored.len() < MAX_IGNORED {
            ignored.push(text::first_chars(&place_text(&unknown), MAX_NAME_CHARS).to_owned());
        }
    };
    let reader = serde_ignored::Deserializer::new(args, &mut ignore);
    let read = serde_path_to_error::deserialize(reader)?;
    Ok((read, ignored))
}

/// The place of an argument, such as `edits[0].old_string`.
fn place_text(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", place_text(parent)),
        Path::Map { parent: Path::Root, key } => key.clone(),
        Path::Map { parent, key } => format!("{}.{key}", place_text(parent)),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => place_text(parent),
    }
}

/// Why a text with a NUL is not written.
pub(super) const NUL_REFUSAL: &str = "The text contains a NUL character, with which a file is binary for every tool. Nothing was done. Write the \
     escape of the language, such as \\0 or \\u0000, as visible characters.";

/// True if a text among the arguments contains a NUL.
pub(super) fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.values().any(has_nul),
        _ => false,
    }
}

/// Tells the model what is wrong with a value: which argument, what it must be, and what was sent.
fn describe_problem(
    value: &Value,
    schema: &Value,
    place: &str,
    is_field_missing: bool,
) -> Option<String> {
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("object", Value::Object(fields)) => {
            let required = schema["required"].as_array().into_iter().flatten();
            let mut missing =
                required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name));
            let dot = if place.is_empty() { "" } else { "." };
            if let Some(missing) = missing.next()
                && is_field_missing
            {
                let names: Vec<_> = fields.keys().take(MAX_NAMES).map(String::as_str).collect();
                let sent = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                return Some(format!(
                    "`{place}{dot}{missing}` is missing, there is {}",
                    text::clip(sent, MAX_VALUE_CHARS)
                ));
            }
            fields.iter().find_map(|(key, value)| {
                describe_problem(
                    value,
                    &schema["properties"][key],
                    &format!("{place}{dot}{key}"),
                    is_field_missing,
                )
            })
        }
        ("array", Value::Array(items)) => items.iter().enumerate().find_map(|(number, item)| {
            describe_problem(
                item,
                &schema["items"],
                &format!("{place}[{number}]"),
                is_field_missing,
            )
        }),
        ("object", _) => Some(wrong_value(place, "an object", value)),
        ("array", _) => Some(wrong_value(place, "a list", value)),
        ("string", Value::String(text)) => {
            let words: Vec<_> =
                schema["enum"].as_array()?.iter().filter_map(Value::as_str).collect();
            let is_known = words.contains(&text.as_str());
            (!is_known).then(|| wrong_value(place, &format!("one of {}", words.join(", ")), value))
        }
        ("string", _) => Some(wrong_value(place, "text", value)),
        ("integer", Value::Number(number)) if !number.is_f64() => None,
        ("integer", _) => Some(wrong_value(place, "a whole number", value)),
        ("number", _) if !value.is_number() => Some(wrong_value(place, "a number", value)),
        ("boolean", _) if !value.is_boolean() => Some(wrong_value(place, "true or false", value)),
        _ => None,
    }
}

fn wrong_value(place: &str, expected: &str, value: &Value) -> String {
    format!("`{place}` must be {expected}, not {}", quote_value(value))
}

fn quote_value(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(text::clip(text, MAX_VALUE_CHARS)).to_string(),
        Value::Array(_) | Value::Object(_) => text::clip(value.to_string(), MAX_VALUE_CHARS),
        value => value.to_string(),
    }
}

/// The list of all arguments.
fn argument_names(schema: &Value) -> String {
    match marked_names(schema).as_slice() {
        [] => "It takes no arguments".to_owned(),
        names => format!("It takes: {}", names.join(", ")),
    }
}

/// The names of all arguments, with a mark at those that are required.
pub(crate) fn marked_names(schema: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for (name, _) in schema["properties"].as_object().into_iter().flatten() {
        let mark = if is_required(schema, name) { " (required)" } else { "" };
        names.push(format!("{name}{mark}"));
    }
    names
}

/// Our name for an argument that a model calls `name`.
pub(crate) fn canonical_name(name: &str) -> Option<&'static str> {
    let name = snake_case(name);
    let mut aliases = ALIASES.iter();
    let found = aliases.find(|(usual, others)| *usual == name || others.contains(&&*name));
    found.map(|(usual, _)| *usual)
}

/// Converts a value to the type that the schema expects, as far as the meaning is clear.
pub(crate) fn repair_arguments(value: Value, schema: &Value) -> Value {
    let wanted = schema["type"].as_str().unwrap_or_default();
    match (wanted, value) {
        ("object", Value::Object(fields)) => object(fields, schema),
        ("object" | "array", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(inner @ (Value::Object(_) | Value::Array(_))) => repair_arguments(inner, schema),
            _ if wanted == "array" && schema["items"]["type"] == "string" => vec![text].into(),
            // Models write a step of a plan as bare text.
            _ if schema["required"] == json!(["content"]) => json!({ "content": text }),
            _ => Value::String(text),
        },
        ("array", Value::Array(items)) => {
            items.into_iter().map(|item| repair_arguments(item, &schema["items"])).collect()
        }
        ("array", Value::Object(fields)) if schema["items"]["type"] == "object" => {
            Value::Array(vec![object(fields, &schema["items"])])
        }
        ("integer" | "number", Value::String(text)) => match serde_json::from_str(text.trim()) {
            Ok(number @ Value::Number(_)) => repair_arguments(number, schema),
            _ => Value::String(text),
        },
        ("integer", Value::Number(number)) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "it has no fraction")]
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            _ => Value::Number(number),
        },
        ("boolean", Value::String(text)) => match text.trim() {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            _ => Value::String(text),
        },
        ("string", number @ Value::Number(_)) => Value::String(number.to_string()),
        // A choice, as the tool of Claude Code takes it.
        ("string", Value::Object(choice)) if choice.keys().eq(["label", "description"]) => {
            choice.values().filter_map(Value::as_str).collect::<Vec<_>>().join(": ").into()
        }
        ("string", Value::String(text)) => Value::String(matching_enum_value(text, schema)),
        (_, value) => value,
    }
}

/// The value of the enum that matches, regardless of case and punctuation.
fn matching_enum_value(text: String, schema: &Value) -> String {
    let mut known = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let alike = known.find(|value| letters_and_digits(value) == letters_and_digits(&text));
    alike.map_or(text, str::to_owned)
}

fn object(fields: Map<String, Value>, schema: &Value) -> Value {
    let mut repaired = unwrapped(fields, schema);
    if let Some(known) = schema["properties"].as_object() {
        repaired = rename_aliases(repaired, known);
        repaired = gather_list_item(repaired, schema, known);
    }
    let path = repaired.get("path").and_then(Value::as_str).unwrap_or_default().trim();
    let names_json =
        [".json", ".jsonc", ".ipynb", ".geojson"].iter().any(|end| path.ends_with(end));
    let fields = repaired.into_iter();
    let kept = fields.filter_map(|(key, value)| repair_field(key, value, schema, names_json));
    Value::Object(kept.collect())
}

/// The arguments that count, out of all wrappers such as `{"name": "grep", "arguments": {…}}`, which models and servers
/// add: what is repaired once must not change when it is repaired again.
fn unwrapped(mut fields: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    fields.retain(|key, value| !value.is_null() || is_required(schema, key));
    let Some(known) = schema["properties"].as_object() else { return fields };
    if fields.keys().any(|key| known.contains_key(key) || !WRAPPERS.contains(&key.as_str())) {
        return fields;
    }
    let inner = fields.values().find_map(|value| match value {
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Array(items) if items.len() == 1 => items[0].as_object().cloned(),
        value => value.as_object().cloned(),
    });
    inner.map_or(fields, |inner| unwrapped(inner, schema))
}

/// Repairs one field of an object. Returns `None` if it counts as left out.
fn repair_field(
    key: String,
    value: Value,
    schema: &Value,
    names_json: bool,
) -> Option<(String, Value)> {
    let known = &schema["properties"];
    // Other names for lines, which are in no schema.
    let is_line = known[&key].is_null() && ["offset", "limit"].contains(&key.as_str());
    let wanted = if is_line { &known["start_line"] } else { &known[&key] };
    let value = match wanted["type"].as_str() {
        Some("string") => as_text(&key, value, names_json),
        _ => value,
    };
    let is_empty = value.as_str().is_some_and(str::is_empty);
    let is_left_out = is_empty && wanted.is_object() && wanted["type"] != "string";
    let repaired = repair_arguments(value, wanted);
    (!is_left_out || is_required(schema, &key)).then_some((key, repaired))
}

/// The text that a value stands for, if it can only be one: parsers of model servers read text that is JSON, and
/// some models write a command as a list of words.
fn as_text(key: &str, value: Value, names_json: bool) -> Value {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    let are_words = value.is_array() && words.len() == items.len();
    let is_written = key == "content" || key == "new_string";
    let blocks: Option<String> = items.iter().map(|block| block["text"].as_str()).collect();
    let text = match (&value, blocks) {
        (Value::Bool(_), _) if is_written => value.to_string(),
        (Value::Array(_), _) if are_words && key == "command" && words.len() > 1 => {
            shell_line(&words)
        }
        (Value::Array(_), _) if are_words && words.len() == 1 && !is_written => words[0].to_owned(),
        // Lines, or the text of a list?
        (Value::Array(_), _) if are_words && !names_json => return value,
        (Value::Array(_), Some(text)) if is_written && !names_json => text,
        (Value::Object(_) | Value::Array(_), _) if key == "content" => format!("{value:#}\n"),
        (Value::Object(_) | Value::Array(_), _) if is_written => format!("{value:#}"),
        _ => return value,
    };
    Value::String(text)
}

/// The line that runs a program with these arguments. The script of a shell is a line already.
pub(super) fn shell_line(words: &[&str]) -> String {
    if let [shell, "-c" | "-lc", line] = words
        && ["bash", "sh", "zsh"].contains(&shell.rsplit('/').next().unwrap_or_default())
    {
        return (*line).to_owned();
    }
    let quoted = words.iter().map(|word| match word.trim_start_matches(needs_no_quotes) {
        "" if !word.is_empty() => (*word).to_owned(),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn needs_no_quotes(char: char) -> bool {
    char.is_alphanumeric() || "-_./,+:@%=".contains(char)
}

fn is_required(schema: &Value, key: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|name| name == key))
}

/// Renames unknown arguments to the names that they must have been meant for.
fn rename_aliases(fields: Map<String, Value>, known: &Map<String, Value>) -> Map<String, Value> {
    let targets: Vec<_> = fields.keys().map(|key| intended_name(key, known, &fields)).collect();
    let renamed = fields.into_iter().zip(&targets).map(|((key, value), target)| {
        let is_only = targets.iter().filter(|other| *other == target).count() == 1;
        (target.clone().filter(|_| is_only).unwrap_or(key), value)
    });
    renamed.collect()
}

/// The missing known argument that an unknown one stands for.
fn intended_name(
    key: &str,
    known: &Map<String, Value>,
    fields: &Map<String, Value>,
) -> Option<String> {
    if known.contains_key(key) {
        return None;
    }
    let is_missing = |name: &str| known.contains_key(name) && !fields.contains_key(name);
    let name = snake_case(key);
    if is_missing(&name) {
        return Some(name);
    }
    let mut aliases = ALIASES.iter();
    let found =
        aliases.find(|(usual, others)| is_missing(usual) && others.contains(&name.as_str()));
    found.map(|(usual, _)| (*usual).to_owned())
}

/// Puts the fields of a single edit at the top level into the list where they belong.
fn gather_list_item(
    fields: Map<String, Value>,
    schema: &Value,
    known: &Map<String, Value>,
) -> Map<String, Value> {
    let missing_list = known.iter().find(|(key, property)| {
        !fields.contains_key(*key)
            && is_required(schema, key)
            && property["items"]["type"] == "object"
    });
    let Some((list, property)) = missing_list else { return fields };
    let Some(inner) = property["items"]["properties"].as_object() else { return fields };
    let mut one = Map::new();
    let mut rest = Map::new();
    for (key, value) in fields {
        let is_inner = !known.contains_key(&key)
            && (inner.contains_key(&key) || intended_name(&key, inner, &Map::new()).is_some());
        if is_inner { &mut one } else { &mut rest }.insert(key, value);
    }
    if !one.is_empty() {
        rest.insert(list.clone(), Value::Array(vec![Value::Object(one)]));
    }
    rest
}

/// Converts `filePath` and `file-path` to `file_path`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for char in name.chars() {
        if char.is_ascii_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = char.is_ascii_lowercase() || char.is_ascii_digit();
        snake.push(if char == '-' { '_' } else { char.to_ascii_lowercase() });
    }
    snake
}

/// The letters and digits of a name, in lower case.
pub(super) fn letters_and_digits(name: &str) -> String {
    let letters = name.chars().filter(|char| char.is_alphanumeric());
    letters.map(|char| char.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod derive {
    use schemars::generate::SchemaSettings;
    use serde_json::json;

    use super::*;

    /// The description and the schema of a tool, from the type of its arguments.
    pub(in crate::tools) fn spec<T: Tool>() -> Value {
        let mut settings = SchemaSettings::draft07();
        // No `$ref` and no `definitions`: many servers reject them.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        let schema = settings.into_generator().into_root_schema_for::<T>();
        let mut parameters = schema.to_value();
        simplify(&mut parameters);
        let description = parameters.as_object_mut().unwrap().shift_remove("description");
        json!({ "description": description.unwrap_or_default(), "parameters": parameters })
    }

    /// Keeps only type, description, required, properties, items and enum, which every server knows. The names of the
    /// required arguments come before the arguments: models write what they have read first.
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
        if fields.contains_key("required")
            && let Some(properties) = fields.shift_remove("properties")
        {
            fields.insert("properties".to_owned(), properties);
        }
    }
}
