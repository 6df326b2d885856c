//! Converts a tool's JSON Schema to the subset that the strictest servers accept (quirks C.4 #10 and #10b).
//! Does no I/O. Keywords outside the subset are added to the descriptions, for the model to read.

#[cfg(test)]
mod tests;
mod union;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use turnwright_types::message::ToolSpec;
use turnwright_types::text::percent_decoded;
use union::{add_sentence, bare, choices, described, union};

type JsonObject = Map<String, Value>;

/// The nesting limits that are tried in turn, until the schema with all `$ref`s expanded fits into
/// [`MAX_SCHEMA_BYTES`].
const DEPTHS: [usize; 5] = [24, 12, 6, 3, 1];
/// The approximate limit of a schema in bytes. Larger ones would fill the context window.
const MAX_SCHEMA_BYTES: usize = 128 * 1024;
/// The limit of work for one attempt. It is a multiple of the size limit, so that a converted
/// schema can always be converted again.
const MAX_WORK: usize = 6 * MAX_SCHEMA_BYTES;
/// The work for visiting one schema, besides the length of its text.
const VISIT_COST: usize = 32;
/// The work for one name in a list.
const NAME_COST: usize = 8;
/// The number of schemas that `$ref` and `allOf` may merge into one.
const MAX_PARTS: usize = 64;
/// The number of branches of one `anyOf`.
const MAX_BRANCHES: usize = 256;
/// The largest length or number of items that stays a keyword. Servers that turn schemas into grammars (llama.cpp,
/// LM Studio, Ollama) repeat a rule as often, and refuse the whole request if that is too much.
const MAX_REPEATS: u64 = 256;
/// The longest name of an argument that Anthropic's servers accept.
const MAX_NAME_BYTES: usize = 64;
/// A longer pattern, default or list of values is not added to the description.
const MAX_HINT_BYTES: usize = 400;

const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "object", "array"];

/// The type that each of these keywords implies if none is given.
const IMPLIED_TYPES: [(&str, &str); 4] = [
    ("object", "properties required additionalProperties patternProperties"),
    ("array", "items prefixItems minItems maxItems"),
    ("string", "pattern format minLength maxLength"),
    ("number", "minimum maximum exclusiveMinimum exclusiveMaximum"),
];

/// A branch without any of these keywords only narrows the schema beside it.
const SHAPE_KEYWORDS: &str = "type $ref enum const properties items prefixItems anyOf oneOf allOf";

/// The schema without anything that a strict server rejects. Idempotent.
pub fn provider_safe_schema(schema: &Value) -> Value {
    DEPTHS
        .into_iter()
        .find_map(|depth| SchemaConverter::new(schema, depth).convert_root())
        .unwrap_or_else(|| json!({ "type": "object", "properties": {} }))
}

/// The tool, with the arguments whose names Anthropic's servers refuse (`$filter`, `ids[]`, one in Chinese) in its
/// description: one such name fails the whole request. Names within the value of an argument do not matter.
pub(crate) fn with_safe_names(tool: &ToolSpec) -> ToolSpec {
    let mut spec = ToolSpec { parameters: provider_safe_schema(&tool.parameters), ..tool.clone() };
    let required = spec.parameters["required"].clone();
    if let Some(properties) = spec.parameters["properties"].as_object_mut() {
        properties.retain(|name, schema| {
            let is_safe = (1..=MAX_NAME_BYTES).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
            if !is_safe {
                let is_required = list(Some(&required)).any(|key| key == name);
                let verb = if is_required { "requires" } else { "takes" };
                add_sentence(&mut spec.description, &format!("Also {verb} `{name}`: {schema}"));
            }
            is_safe
        });
    }
    spec
}

/// One attempt to convert a schema. Any method returns `None` if the schema is too large for this
/// depth.
#[derive(Debug)]
struct SchemaConverter<'a> {
    root: &'a Value,
    depth: usize,
    work: usize,
    /// The targets of the `$ref`s on the current path, to detect cycles.
    open: Vec<&'a Value>,
}

/// A schema merged with what its `$ref` and `allOf` refer to. For each keyword, the first schema
/// that has it counts.
#[derive(Debug, Default)]
struct MergedSchema<'a> {
    maps: Vec<&'a JsonObject>,
    /// A `$ref` that cannot be resolved or is part of a cycle.
    is_broken: bool,
}

/// Properties in the order in which they were found, each with its alternatives.
#[derive(Debug, Default)]
struct PropertyList<'a> {
    list: Vec<(&'a str, Vec<&'a Value>)>,
    positions: HashMap<&'a str, usize>,
}

impl<'a> SchemaConverter<'a> {
    fn new(root: &'a Value, depth: usize) -> SchemaConverter<'a> {
        SchemaConverter { root, depth, work: MAX_WORK, open: vec![root] }
    }

    fn convert_root(&mut self) -> Option<Value> {
        let parts = self.parts(self.root)?;
        let mut fields = self.convert_object(&parts, 0)?;
        fields.entry("properties").or_insert_with(|| json!({}));
        let description = self.describe(&parts, true)?;
        let result = described(fields, &description);
        (json_size(&result) <= MAX_SCHEMA_BYTES).then_some(result)
    }

    fn spend(&mut self, work: usize) -> Option<()> {
        self.work = self.work.checked_sub(work)?;
        Some(())
    }

    fn parts(&mut self, schema: &'a Value) -> Option<MergedSchema<'a>> {
        let mut parts = MergedSchema::default();
        self.collect(schema, &mut parts)?;
        Some(parts)
    }

    fn collect(&mut self, schema: &'a Value, parts: &mut MergedSchema<'a>) -> Option<()> {
        self.spend(VISIT_COST)?;
        let Value::Object(fields) = schema else { return Some(()) };
        if parts.maps.len() == MAX_PARTS {
            return Some(());
        }
        parts.maps.push(fields);
        if let Some(reference) = fields.get("$ref") {
            let reference = reference.as_str().unwrap_or_default();
            self.spend(reference.len())?;
            match resolve(self.root, reference) {
                Some(target) if !self.open.iter().any(|open| std::ptr::eq(*open, target)) => {
                    self.open.push(target);
                    self.collect(target, parts)?;
                }
                _ => parts.is_broken = true,
            }
        }
        for part in list(fields.get("allOf")) {
            self.collect(part, parts)?;
        }
        Some(())
    }

    /// Converts any schema but the root; `kind` is its type if the schema does not imply one.
    fn convert_node(
        &mut self,
        schema: &'a Value,
        level: usize,
        kind: Option<&'static str>,
    ) -> Option<Value> {
        let open = self.open.len();
        let parts = self.parts(schema)?;
        let result = self.convert(&parts, level, kind);
        self.open.truncate(open);
        result
    }

    fn convert(
        &mut self,
        parts: &MergedSchema<'a>,
        level: usize,
        kind: Option<&'static str>,
    ) -> Option<Value> {
        let mut kinds = parts.kinds();
        if kinds.is_empty() {
            kinds.extend(kind.or(parts.is_broken.then_some("object")));
        }
        let values = parts.values();
        let sizes = values.iter().map(|value| NAME_COST + value.as_str().map_or(0, str::len));
        self.spend(sizes.sum())?;
        let branches = parts.branches(&kinds);
        let is_deep = level > self.depth;
        let description = self.describe(parts, kinds.contains(&"object"))?;
        let mut options = match kinds.as_slice() {
            _ if !values.is_empty() => choices(&values),
            _ if !is_deep && !branches.is_empty() => {
                let kind = kinds.first().copied().filter(|_| kinds.len() == 1);
                self.convert_all(&branches, level + 1, kind)?
            }
            [] if is_deep => vec![bare("object")],
            [] => TYPES.into_iter().filter(|name| *name != "integer").map(bare).collect(),
            [only] => vec![self.convert_typed(only, parts, level)?],
            _ if is_deep => vec![self.convert_typed(kinds[0], parts, level)?],
            _ => {
                let each = kinds.iter().map(|kind| self.convert_typed(kind, parts, level + 1));
                each.collect::<Option<Vec<_>>>()?
            }
        };
        if is_deep {
            options.truncate(1);
        }
        Some(union(options, description))
    }

    fn convert_all(
        &mut self,
        schemas: &[&'a Value],
        level: usize,
        kind: Option<&'static str>,
    ) -> Option<Vec<Value>> {
        schemas.iter().take(MAX_BRANCHES).map(|node| self.convert_node(node, level, kind)).collect()
    }

    /// Converts alternatives into one schema.
    fn convert_alternatives(&mut self, schemas: &[&'a Value], level: usize) -> Option<Value> {
        match schemas {
            [] => self.convert_node(&Value::Null, level, None),
            [first, _, ..] if level > self.depth => self.convert_node(first, level, None),
            [only] => self.convert_node(only, level, None),
            _ => Some(union(self.convert_all(schemas, level + 1, None)?, String::new())),
        }
    }

    fn convert_typed(
        &mut self,
        kind: &'static str,
        parts: &MergedSchema<'a>,
        level: usize,
    ) -> Option<Value> {
        let fields = match kind {
            "object" | "array" if level > self.depth => return Some(bare(kind)),
            "object" => self.convert_object(parts, level)?,
            "array" => {
                let tuple = list(parts.get("prefixItems")).chain(list(parts.get("items")));
                let mut items: Vec<&Value> = tuple.take(MAX_BRANCHES).collect();
                items.extend(parts.get("items").filter(|schema| schema.is_object()));
                let mut fields = parts.typed_fields(kind, ["minItems", "maxItems"], is_short);
                fields.insert("items".to_owned(), self.convert_alternatives(&items, level + 1)?);
                fields
            }
            "string" => parts.typed_fields(kind, ["minLength", "maxLength"], is_short),
            "number" | "integer" => {
                parts.typed_fields(kind, ["minimum", "maximum"], Value::is_number)
            }
            _ => return Some(bare(kind)),
        };
        Some(Value::Object(fields))
    }

    /// Converts an object. If it has properties, or is the root, the properties of its branches are
    /// added to its own; those that every branch requires are required.
    fn convert_object(&mut self, parts: &MergedSchema<'a>, level: usize) -> Option<JsonObject> {
        let mut found = PropertyList::default();
        let mut required: Vec<&str> = Vec::new();
        for map in &parts.maps {
            self.properties(map, &mut found, &mut required, false)?;
        }
        let fixed = found.list.len();
        let branches = if fixed > 0 || level == 0 { parts.all_branches() } else { Vec::new() };
        let mut branch_required: Vec<&str> = Vec::new();
        for branch in &branches {
            let mut required_here = Vec::new();
            for map in self.parts(branch)?.maps {
                self.properties(map, &mut found, &mut required_here, true)?;
            }
            required_here.sort_unstable();
            required_here.dedup();
            branch_required.extend(required_here);
        }
        required.extend(in_all(&branch_required, branches.len()));
        let mut properties = Map::new();
        for (position, (name, schemas)) in found.list.iter().enumerate() {
            let schemas = if position < fixed { &schemas[..1] } else { schemas };
            properties.insert((*name).to_owned(), self.convert_alternatives(schemas, level + 1)?);
        }
        let mut seen = HashSet::new();
        required
            .retain(|key| !key.is_empty() && properties.contains_key(*key) && seen.insert(*key));
        let mut fields = Map::from_iter([("type".to_owned(), json!("object"))]);
        if !properties.is_empty() {
            fields.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            fields.insert("required".to_owned(), json!(required));
        }
        Some(fields)
    }

    fn properties(
        &mut self,
        map: &'a JsonObject,
        found: &mut PropertyList<'a>,
        required: &mut Vec<&'a str>,
        are_alternatives: bool,
    ) -> Option<()> {
        for name in list(map.get("required")).filter_map(Value::as_str) {
            self.spend(NAME_COST)?;
            required.push(name);
        }
        let Some(Value::Object(properties)) = map.get("properties") else { return Some(()) };
        for (name, schema) in properties {
            self.spend(NAME_COST + name.len())?;
            match found.positions.get(name.as_str()) {
                Some(position) if are_alternatives => found.list[*position].1.push(schema),
                Some(_) => {}
                None => {
                    found.positions.insert(name, found.list.len());
                    found.list.push((name, vec![schema]));
                }
            }
        }
        Some(())
    }

    /// Returns the description, extended by the keywords that the subset cannot express.
    fn describe(&mut self, parts: &MergedSchema<'a>, is_object: bool) -> Option<String> {
        let description = parts.get("description").and_then(Value::as_str).unwrap_or_default();
        self.spend(description.len())?;
        let mut text = description.trim().to_owned();
        let mut hint = |before: &str, value: Option<&Value>| {
            let value = match value {
                Some(Value::String(value)) if (1..=MAX_HINT_BYTES).contains(&value.len()) => {
                    value.clone()
                }
                Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
                _ => return,
            };
            add_sentence(&mut text, &format!("{before}{value}."));
        };
        hint("Format: ", parts.get("format"));
        hint("Pattern: ", parts.get("pattern"));
        hint("Greater than ", parts.exclusive_bound("exclusiveMinimum", "minimum"));
        hint("Less than ", parts.exclusive_bound("exclusiveMaximum", "maximum"));
        hint("Multiple of ", parts.get("multipleOf").filter(|factor| factor.is_number()));
        for (before, key) in [
            ("Minimum length: ", "minLength"),
            ("Maximum length: ", "maxLength"),
            ("Minimum number of items: ", "minItems"),
            ("Maximum number of items: ", "maxItems"),
        ] {
            hint(before, parts.get(key).filter(|size| size.is_u64() && !is_short(size)));
        }
        if is_object {
            let values = parts.get("additionalProperties").and_then(|schema| schema.get("type"));
            hint("Any keys, each with a value of type ", values.filter(|kind| kind.is_string()));
        }
        hint("Default: ", parts.get("default"));
        Some(text)
    }
}

/// Returns true for a length or number of items that stays a keyword.
fn is_short(size: &Value) -> bool {
    size.as_u64().is_some_and(|size| size <= MAX_REPEATS)
}

impl<'a> MergedSchema<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.maps.iter().find_map(|map| map.get(key))
    }

    /// Returns the type and the keywords whose values fit.
    fn typed_fields(&self, kind: &str, keys: [&str; 2], is_fit: fn(&Value) -> bool) -> JsonObject {
        let mut fields = Map::from_iter([("type".to_owned(), json!(kind))]);
        for key in keys {
            if let Some(value) = self.get(key).filter(|value| is_fit(value)) {
                fields.insert(key.to_owned(), value.clone());
            }
        }
        fields
    }

    /// An exclusive bound, unless there is also `other`, the inclusive one.
    fn exclusive_bound(&self, key: &str, other: &str) -> Option<&'a Value> {
        self.get(key).filter(|bound| bound.is_number() && self.get(other).is_none())
    }

    /// The possible types, except null.
    fn kinds(&self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        match self.get("type") {
            Some(Value::Array(types)) => {
                for kind in types.iter().take(TYPES.len() + 1).filter_map(known_type) {
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                }
            }
            Some(Value::String(name)) if name == "null" => kinds.push("string"),
            Some(name) => kinds.extend(known_type(name)),
            None => {}
        }
        if kinds.is_empty() {
            let implied = IMPLIED_TYPES
                .into_iter()
                .find(|(_, keys)| keys.split(' ').any(|key| self.get(key).is_some()));
            kinds.extend(implied.map(|(kind, _)| kind));
        }
        kinds
    }

    /// The allowed values, except null.
    fn values(&self) -> Vec<&'a Value> {
        let all = match (self.get("enum"), self.get("const")) {
            (Some(Value::Array(all)), _) => all.iter().collect(),
            (_, Some(only)) => vec![only],
            _ => Vec::new(),
        };
        all.into_iter().filter(|value| !value.is_null()).collect()
    }

    fn all_branches(&self) -> Vec<&'a Value> {
        let branches = self.get("anyOf").or_else(|| self.get("oneOf"));
        list(branches).take(MAX_BRANCHES).filter(|branch| !is_null(branch)).collect()
    }

    /// The branches, if they say more than the schema beside them.
    fn branches(&self, kinds: &[&str]) -> Vec<&'a Value> {
        let has_properties = kinds == ["object"] && self.get("properties").is_some();
        let branches = self.all_branches();
        let mut keys = SHAPE_KEYWORDS.split(' ');
        let has_shape = keys.any(|key| branches.iter().any(|branch| branch.get(key).is_some()));
        let says_more = !has_properties && (kinds.is_empty() || has_shape);
        if says_more { branches } else { Vec::new() }
    }
}

/// The known type with this name, in upper or lower case.
fn known_type(name: &Value) -> Option<&'static str> {
    let name = name.as_str()?;
    TYPES.into_iter().find(|kind| kind.eq_ignore_ascii_case(name))
}

fn list(value: Option<&Value>) -> std::slice::Iter<'_, Value> {
    value.and_then(Value::as_array).map(|items| items.iter()).unwrap_or_default()
}

fn is_null(schema: &Value) -> bool {
    let values = schema.get("enum").and_then(Value::as_array);
    schema.get("type").is_some_and(|kind| kind == "null")
        || schema.get("const").is_some_and(Value::is_null)
        || values.is_some_and(|values| values.len() == 1 && values[0].is_null())
}

/// The names that occur exactly `times` times.
fn in_all<'a>(names: &[&'a str], times: usize) -> Vec<&'a str> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let common = names.iter().filter(|name| counts.remove(**name) == Some(times));
    common.copied().collect()
}

/// The target of a local JSON pointer.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    let decoded = String::from_utf8(percent_decoded(pointer.as_bytes())).ok();
    root.pointer(pointer).or_else(|| root.pointer(&decoded?))
}

/// The approximate size in bytes as JSON.
fn json_size(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + 4 + json_size(value)).sum(),
        Value::Array(all) => all.iter().map(|item| 2 + json_size(item)).sum(),
        Value::String(text) => text.len(),
        _ => 4,
    }
}
