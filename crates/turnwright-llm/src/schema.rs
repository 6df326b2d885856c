//! A tool's JSON Schema → the subset that the strictest servers take (quirks C.4, rows 10 and
//! 10b). Pure. What the subset cannot say goes into the descriptions, for the model to read.

#[cfg(test)]
mod strict;
#[cfg(test)]
mod tests;
mod union;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use union::{add_sentence, bare, choices, described, union};

#[cfg(test)]
pub(super) use strict::is_portable;

type Fields = Map<String, Value>;

/// How deep a result may nest. One that is too large with every `$ref` written out is cut at the
/// next of these.
const DEPTHS: [usize; 5] = [24, 12, 6, 3, 1];
/// More than this, in about bytes, no window has room for.
const LARGEST: usize = 128 * 1024;
/// What may be looked at on the way. Several times what a result may weigh, so that a result is
/// always taken as it is.
const WORK: usize = 6 * LARGEST;
/// What looking at one schema costs, besides its words.
const VISIT: usize = 32;
/// And what one name in a list costs.
const NAME: usize = 8;
/// Schemas that `$ref` and `allOf` may lay over one another.
const MOST_PARTS: usize = 64;
/// Branches of one `anyOf`.
const MOST_BRANCHES: usize = 256;
/// A longer pattern, default or list of values is not put into words.
const LONGEST_HINT: usize = 400;

const KINDS: [&str; 6] = ["string", "number", "integer", "boolean", "object", "array"];

/// What a keyword says about the type where none is given.
const TELLING: [(&str, &str); 16] = [
    ("properties", "object"),
    ("required", "object"),
    ("additionalProperties", "object"),
    ("patternProperties", "object"),
    ("items", "array"),
    ("prefixItems", "array"),
    ("minItems", "array"),
    ("maxItems", "array"),
    ("pattern", "string"),
    ("format", "string"),
    ("minLength", "string"),
    ("maxLength", "string"),
    ("minimum", "number"),
    ("maximum", "number"),
    ("exclusiveMinimum", "number"),
    ("exclusiveMaximum", "number"),
];

/// A branch without any of these only narrows what stands beside it.
const SHAPES: [&str; 10] = [
    "type",
    "$ref",
    "enum",
    "const",
    "properties",
    "items",
    "prefixItems",
    "anyOf",
    "oneOf",
    "allOf",
];

/// The schema without anything that a strict server refuses. Doing it twice changes nothing.
pub(super) fn portable(schema: &Value) -> Value {
    DEPTHS
        .into_iter()
        .find_map(|depth| Walk::new(schema, depth).result())
        .unwrap_or_else(|| json!({ "type": "object", "properties": {} }))
}

/// One way through a schema. `None` from any of its methods: it is too large for this depth.
#[derive(Debug)]
struct Walk<'a> {
    root: &'a Value,
    depth: usize,
    work: usize,
    /// What each `$ref` on the way here has led to.
    open: Vec<&'a Value>,
}

/// A schema with what its `$ref` and `allOf` lay under it. The first that has a keyword counts.
#[derive(Debug, Default)]
struct Parts<'a> {
    maps: Vec<&'a Fields>,
    /// A `$ref` leads nowhere, or back to where it stands.
    is_broken: bool,
}

/// Properties by name, in the order in which they were met, each with its alternatives.
#[derive(Debug, Default)]
struct Properties<'a> {
    list: Vec<(&'a str, Vec<&'a Value>)>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value, depth: usize) -> Walk<'a> {
        Walk { root, depth, work: WORK, open: vec![root] }
    }

    fn result(&mut self) -> Option<Value> {
        let parts = self.parts(self.root)?;
        let mut fields = self.object(&parts, 0)?;
        fields.entry("properties").or_insert_with(|| json!({}));
        let description = self.describe(&parts, true)?;
        let result = described(fields, &description);
        (weight(&result) <= LARGEST).then_some(result)
    }

    fn spend(&mut self, work: usize) -> Option<()> {
        self.work = self.work.checked_sub(work)?;
        Some(())
    }

    fn parts(&mut self, schema: &'a Value) -> Option<Parts<'a>> {
        let mut parts = Parts::default();
        self.collect(schema, &mut parts)?;
        Some(parts)
    }

    fn collect(&mut self, schema: &'a Value, parts: &mut Parts<'a>) -> Option<()> {
        self.spend(VISIT)?;
        let Value::Object(fields) = schema else { return Some(()) };
        if parts.maps.len() == MOST_PARTS {
            return Some(());
        }
        parts.maps.push(fields);
        if let Some(reference) = fields.get("$ref") {
            let reference = reference.as_str().unwrap_or_default();
            self.spend(reference.len())?;
            match resolve(self.root, reference) {
                Some(target) if !self.open.iter().any(|it| std::ptr::eq(*it, target)) => {
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

    /// Any schema but the root; `kind` is its type where nothing in it tells one.
    fn node(
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
        parts: &Parts<'a>,
        level: usize,
        kind: Option<&'static str>,
    ) -> Option<Value> {
        let mut kinds = parts.kinds();
        if kinds.is_empty() {
            kinds.extend(kind.or(parts.is_broken.then_some("object")));
        }
        let values = parts.values();
        self.spend(values.iter().map(|it| NAME + it.as_str().map_or(0, str::len)).sum())?;
        let branches = parts.branches(&kinds);
        let is_deep = level > self.depth;
        let description = self.describe(parts, kinds.contains(&"object"))?;
        let mut options = match kinds.as_slice() {
            _ if !values.is_empty() => choices(&values),
            _ if !is_deep && !branches.is_empty() => {
                let kind = kinds.first().copied().filter(|_| kinds.len() == 1);
                self.each(&branches, level + 1, kind)?
            }
            [] if is_deep => vec![bare("object")],
            [] => KINDS.into_iter().filter(|it| *it != "integer").map(bare).collect(),
            [only] => vec![self.typed(only, parts, level)?],
            _ if is_deep => vec![self.typed(kinds[0], parts, level)?],
            _ => {
                let each = kinds.iter().map(|it| self.typed(it, parts, level + 1));
                each.collect::<Option<Vec<_>>>()?
            }
        };
        if is_deep {
            options.truncate(1);
        }
        Some(union(options, description))
    }

    fn each(
        &mut self,
        schemas: &[&'a Value],
        level: usize,
        kind: Option<&'static str>,
    ) -> Option<Vec<Value>> {
        schemas.iter().take(MOST_BRANCHES).map(|it| self.node(it, level, kind)).collect()
    }

    /// What may be any one of these, if there is more than one.
    fn one_of(&mut self, schemas: &[&'a Value], level: usize) -> Option<Value> {
        match schemas {
            [] => self.node(&Value::Null, level, None),
            [first, _, ..] if level > self.depth => self.node(first, level, None),
            [only] => self.node(only, level, None),
            _ => Some(union(self.each(schemas, level + 1, None)?, String::new())),
        }
    }

    fn typed(&mut self, kind: &'static str, parts: &Parts<'a>, level: usize) -> Option<Value> {
        let keep = |keys: [&str; 2], is_fit: fn(&Value) -> bool| {
            let mut fields = Map::from_iter([("type".to_owned(), json!(kind))]);
            for key in keys {
                if let Some(value) = parts.get(key).filter(|it| is_fit(it)) {
                    fields.insert(key.to_owned(), value.clone());
                }
            }
            fields
        };
        let fields = match kind {
            "object" | "array" if level > self.depth => return Some(bare(kind)),
            "object" => self.object(parts, level)?,
            "array" => {
                let tuple = list(parts.get("prefixItems")).chain(list(parts.get("items")));
                let mut items: Vec<&Value> = tuple.take(MOST_BRANCHES).collect();
                items.extend(parts.get("items").filter(|it| it.is_object()));
                let mut fields = keep(["minItems", "maxItems"], Value::is_u64);
                fields.insert("items".to_owned(), self.one_of(&items, level + 1)?);
                fields
            }
            "string" => keep(["minLength", "maxLength"], Value::is_u64),
            "number" | "integer" => keep(["minimum", "maximum"], Value::is_number),
            _ => return Some(bare(kind)),
        };
        Some(Value::Object(fields))
    }

    /// An object. Branches of one that has properties, or is the root, become properties of its
    /// own: it may have them, and must have what each branch asks for.
    fn object(&mut self, parts: &Parts<'a>, level: usize) -> Option<Fields> {
        let mut found = Properties::default();
        let mut required: Vec<&str> = Vec::new();
        for map in &parts.maps {
            self.properties(map, &mut found, &mut required, false)?;
        }
        let fixed = found.list.len();
        let branches = if fixed > 0 || level == 0 { parts.all_branches() } else { Vec::new() };
        let mut asked: Vec<&str> = Vec::new();
        for branch in &branches {
            let mut own = Vec::new();
            for map in self.parts(branch)?.maps {
                self.properties(map, &mut found, &mut own, true)?;
            }
            own.sort_unstable();
            own.dedup();
            asked.extend(own);
        }
        required.extend(in_all(&asked, branches.len()));
        let mut properties = Map::new();
        for (position, (name, schemas)) in found.list.iter().enumerate() {
            let schemas = if position < fixed { &schemas[..1] } else { schemas };
            properties.insert((*name).to_owned(), self.one_of(schemas, level + 1)?);
        }
        let mut seen = HashSet::new();
        required.retain(|it| !it.is_empty() && properties.contains_key(*it) && seen.insert(*it));
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
        map: &'a Fields,
        found: &mut Properties<'a>,
        required: &mut Vec<&'a str>,
        are_alternatives: bool,
    ) -> Option<()> {
        for name in list(map.get("required")).filter_map(Value::as_str) {
            self.spend(NAME)?;
            required.push(name);
        }
        let Some(Value::Object(properties)) = map.get("properties") else { return Some(()) };
        for (name, schema) in properties {
            self.spend(NAME + name.len())?;
            match found.places.get(name.as_str()) {
                Some(place) if are_alternatives => found.list[*place].1.push(schema),
                Some(_) => {}
                None => {
                    found.places.insert(name, found.list.len());
                    found.list.push((name, vec![schema]));
                }
            }
        }
        Some(())
    }

    /// The description, and in words what the subset cannot say.
    fn describe(&mut self, parts: &Parts<'a>, is_object: bool) -> Option<String> {
        let said = parts.get("description").and_then(Value::as_str).unwrap_or_default();
        self.spend(said.len())?;
        let mut text = said.trim().to_owned();
        let mut hint = |before: &str, value: Option<&Value>| {
            let value = match value {
                Some(Value::String(value)) if (1..=LONGEST_HINT).contains(&value.len()) => {
                    value.clone()
                }
                Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
                _ => return,
            };
            add_sentence(&mut text, &format!("{before}{value}."));
        };
        hint("Format: ", parts.get("format"));
        hint("Pattern: ", parts.get("pattern"));
        let bound = |key: &str, other: &str| {
            parts.get(key).filter(|it| it.is_number() && parts.get(other).is_none())
        };
        hint("Greater than ", bound("exclusiveMinimum", "minimum"));
        hint("Less than ", bound("exclusiveMaximum", "maximum"));
        hint("Multiple of ", parts.get("multipleOf").filter(|it| it.is_number()));
        if is_object {
            let values = parts.get("additionalProperties").and_then(|it| it.get("type"));
            hint("Any keys, each with a value of type ", values.filter(|it| it.is_string()));
        }
        hint("Default: ", parts.get("default"));
        Some(text)
    }
}

impl<'a> Parts<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.maps.iter().find_map(|it| it.get(key))
    }

    /// The types it may have, besides null.
    fn kinds(&self) -> Vec<&'static str> {
        let known = |it: &Value| {
            let name = it.as_str()?;
            KINDS.into_iter().find(|kind| kind.eq_ignore_ascii_case(name))
        };
        let mut kinds = Vec::new();
        match self.get("type") {
            Some(Value::Array(types)) => {
                for kind in types.iter().take(KINDS.len() + 1).filter_map(known) {
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                }
            }
            Some(Value::String(name)) if name == "null" => kinds.push("string"),
            Some(name) => kinds.extend(known(name)),
            None => {}
        }
        if kinds.is_empty() {
            let told = TELLING.into_iter().find(|(key, _)| self.get(key).is_some());
            kinds.extend(told.map(|(_, kind)| kind));
        }
        kinds
    }

    /// The values it is limited to, besides null.
    fn values(&self) -> Vec<&'a Value> {
        let all = match (self.get("enum"), self.get("const")) {
            (Some(Value::Array(all)), _) => all.iter().collect(),
            (_, Some(only)) => vec![only],
            _ => Vec::new(),
        };
        all.into_iter().filter(|it| !it.is_null()).collect()
    }

    fn all_branches(&self) -> Vec<&'a Value> {
        let branches = self.get("anyOf").or_else(|| self.get("oneOf"));
        list(branches).take(MOST_BRANCHES).filter(|it| !is_null(it)).collect()
    }

    /// The branches, if they say more than what stands beside them.
    fn branches(&self, kinds: &[&str]) -> Vec<&'a Value> {
        let has_properties = kinds == ["object"] && self.get("properties").is_some();
        let branches = self.all_branches();
        let has_shape = |it: &&Value| SHAPES.iter().any(|key| it.get(key).is_some());
        let says_more = !has_properties && (kinds.is_empty() || branches.iter().any(has_shape));
        if says_more { branches } else { Vec::new() }
    }
}

fn list(value: Option<&Value>) -> std::slice::Iter<'_, Value> {
    value.and_then(Value::as_array).map(|it| it.iter()).unwrap_or_default()
}

fn is_null(schema: &Value) -> bool {
    let only = |it: &Value| it.as_array().is_some_and(|it| it.len() == 1 && it[0].is_null());
    schema.get("type").is_some_and(|it| it == "null")
        || schema.get("const").is_some_and(Value::is_null)
        || schema.get("enum").is_some_and(only)
}

/// Which of the names occur as often as this.
fn in_all<'a>(names: &[&'a str], times: usize) -> Vec<&'a str> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut is_first = |it: &&&str| counts.remove(**it).is_some_and(|count| count == times);
    names.iter().filter(|it| is_first(it)).copied().collect()
}

/// What a local pointer leads to.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(pointer).or_else(|| root.pointer(&percent_decoded(pointer)?))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// About how many bytes it has as JSON.
fn weight(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.iter().map(|(key, it)| key.len() + 4 + weight(it)).sum(),
        Value::Array(all) => all.iter().map(|it| 2 + weight(it)).sum(),
        Value::String(text) => text.len(),
        _ => 4,
    }
}
