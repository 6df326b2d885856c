//! Validates values against a server's own schemas: arguments before a call, results after it. A schema
//! that is unusable, or could take too long, accepts everything.
//!
//! The part of JSON Schema is checked that describes the arguments of tools: types, properties, items, alternatives,
//! bounds and patterns. Other keywords accept everything, as does a keyword with an unusable value: the server
//! validates its arguments too. References outside of the schema are never fetched.

pub(crate) mod model_schema;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::OnceLock;

use regex_automata::meta::{Config, Regex};
use serde_json::{Map, Number, Value};

use crate::features::SchemaText;
use turnwright_types::effect::escape_hidden_line;

use model_schema::{resolve, resolve_below};

/// Maximum length of an error message.
const MAX_ERROR_CHARS: usize = 300;

#[derive(Debug)]
pub struct SchemaValidator {
    schema: SchemaText,
    /// False if the schema is too large, recursive, or refers to another document. Known after the first
    /// use.
    is_usable: OnceLock<bool>,
}

impl SchemaValidator {
    pub fn new(schema: SchemaText) -> SchemaValidator {
        SchemaValidator { schema, is_usable: OnceLock::new() }
    }

    /// Returns the first error of a value: its place and the expected value. May take long, so it must
    /// run on a blocking thread.
    pub fn first_error(&self, value: &Value) -> Option<String> {
        let schema = self.schema.parse();
        if !self.is_usable.get_or_init(|| model_schema::model_schema(&schema).is_whole) {
            return None;
        }
        let error = escape_hidden_line(&first_mismatch(&schema, value)?);
        Some(model_schema::bounded_text(&error, MAX_ERROR_CHARS))
    }
}

/// The most steps of one validation; a step is about the work of applying an empty schema. Alternatives
/// that refer to alternatives could take exponential time.
const MAX_STEPS: usize = 200_000;
/// The deepest nesting of schemas. A schema may refer to itself.
const MAX_DEPTH: usize = 128;
/// The steps for the compilation of a pattern.
const COMPILATION_STEPS: usize = 4_000;
/// The bytes of text that one step counts or compares.
const BYTES_PER_STEP: usize = 256;
/// Maximum size of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
/// The most values that an error lists.
const MAX_LISTED: usize = 10;

/// Returns the first error of a value: a JSON pointer to its place, unless it is the value itself, and the expected
/// value. A validation that takes too many steps finds none.
pub(crate) fn first_mismatch(schema: &Map<String, Value>, value: &Value) -> Option<String> {
    let mut validation = Validation::new(schema);
    match validation.object_schema(schema, value) {
        Err(Stop::Mismatch(what)) if validation.place.is_empty() => Some(what),
        Err(Stop::Mismatch(what)) => Some(format!("`{}`: {what}", validation.place)),
        Ok(()) | Err(Stop::TooManySteps) => None,
    }
}

struct Validation<'a> {
    root: &'a Map<String, Value>,
    /// The place of the current value. After an error it is the place of the error.
    place: String,
    /// The steps that are left.
    steps: usize,
    depth: usize,
    /// The number of alternatives around the current schema. Their errors are not shown.
    alternatives: usize,
    /// The compiled patterns; `None` for one that cannot be compiled.
    patterns: HashMap<&'a str, Option<Regex>>,
}

/// Why a validation has ended early.
enum Stop {
    Mismatch(String),
    TooManySteps,
}

type Validated = Result<(), Stop>;

impl<'a> Validation<'a> {
    fn new(root: &'a Map<String, Value>) -> Validation<'a> {
        Validation {
            root,
            place: String::new(),
            steps: MAX_STEPS,
            depth: 0,
            alternatives: 0,
            patterns: HashMap::new(),
        }
    }

    fn spend(&mut self, steps: usize) -> Validated {
        self.steps = self.steps.checked_sub(steps).ok_or(Stop::TooManySteps)?;
        Ok(())
    }

    /// An error, whose text is made only if it is shown: the texts of a thousand alternatives would
    /// take longer than their validation.
    fn mismatch(&self, what: impl FnOnce() -> String) -> Validated {
        Err(Stop::Mismatch(if self.alternatives == 0 { what() } else { String::new() }))
    }

    /// Spends the steps for reading a text once.
    fn spend_on(&mut self, text: &str) -> Validated {
        self.spend(text.len() / BYTES_PER_STEP)
    }

    fn schema(&mut self, schema: &'a Value, value: &Value) -> Validated {
        if let Value::Object(schema) = schema {
            return self.object_schema(schema, value);
        }
        self.spend(1)?;
        match schema {
            Value::Bool(false) => self.mismatch(|| "nothing is allowed here".to_owned()),
            _ => Ok(()),
        }
    }

    fn object_schema(&mut self, schema: &'a Map<String, Value>, value: &Value) -> Validated {
        self.spend(1)?;
        if self.depth == MAX_DEPTH {
            return Err(Stop::TooManySteps);
        }
        self.depth += 1;
        let validated = self.keywords(schema, value);
        self.depth -= 1;
        validated
    }

    fn keywords(&mut self, schema: &'a Map<String, Value>, value: &Value) -> Validated {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            self.spend_on(reference)?;
            if let Some(target) = resolve(self.root, reference) {
                self.object_schema(target, value)?;
            } else if let Some(target) = resolve_below(self.root, reference) {
                self.schema(target, value)?;
            }
        }
        self.type_names(schema, value)?;
        self.constants(schema, value)?;
        match value {
            Value::Number(number) => self.number(schema, number)?,
            Value::String(text) => self.text(schema, text)?,
            Value::Array(items) => self.array(schema, items)?,
            Value::Object(fields) => self.object(schema, fields)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.alternatives(schema, value)
    }

    /// Validates a part of the current value.
    fn part(&mut self, step: &str, schema: &'a Value, value: &Value) -> Validated {
        self.spend_on(step)?;
        let length = self.place.len();
        self.place.push('/');
        self.place.push_str(&step.replace('~', "~0").replace('/', "~1"));
        let validated = self.schema(schema, value);
        if validated.is_ok() {
            self.place.truncate(length);
        }
        validated
    }

    fn object(&mut self, schema: &'a Map<String, Value>, fields: &Map<String, Value>) -> Validated {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            self.spend(1)?;
            self.spend_on(name)?;
            if !fields.contains_key(name) {
                return self.mismatch(|| format!("{} is a required property", quote(name)));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        // Which other names are allowed depends on keywords that are not supported.
        let additional = schema
            .get("additionalProperties")
            .filter(|_| !schema.contains_key("patternProperties"));
        for name in fields.keys() {
            self.spend(1)?;
            self.spend_on(name)?;
        }
        if additional == Some(&Value::Bool(false)) {
            let unknown: Vec<_> = fields
                .keys()
                .filter(|&name| properties.is_none_or(|declared| !declared.contains_key(name)))
                .take(MAX_LISTED)
                .collect();
            if !unknown.is_empty() {
                return self.mismatch(|| {
                    let verb = if unknown.len() == 1 { "was" } else { "were" };
                    let quoted: Vec<_> = unknown.iter().map(|name| format!("'{name}'")).collect();
                    let names = quoted.join(", ");
                    format!("Additional properties are not allowed ({names} {verb} unexpected)")
                });
            }
        }
        for (name, value) in fields {
            let declared = properties.and_then(|properties| properties.get(name));
            if let Some(schema) = declared.or(additional) {
                self.part(name, schema, value)?;
            }
        }
        Ok(())
    }

    fn array(&mut self, schema: &'a Map<String, Value>, items: &[Value]) -> Validated {
        let least = limit(schema, "minItems").unwrap_or_default();
        if items.len() < least {
            return self.mismatch(|| format!("the value has fewer than {least} items"));
        }
        let most = limit(schema, "maxItems").unwrap_or(usize::MAX);
        if items.len() > most {
            return self.mismatch(|| format!("the value has more than {most} items"));
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) && self.has_repetition(items)? {
            return self.mismatch(|| "the value has items that are not unique".to_owned());
        }
        // Older drafts have the list of the first items in `items`.
        let (first, rest) = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(Value::Array(first)), rest) => (first.as_slice(), rest),
            (_, Some(Value::Array(first))) => (first.as_slice(), schema.get("additionalItems")),
            (_, rest) => (&[][..], rest),
        };
        let described = if rest.is_some() { items.len() } else { first.len() };
        for (index, item) in items.iter().take(described).enumerate() {
            if let Some(schema) = first.get(index).or(rest) {
                self.part(&index.to_string(), schema, item)?;
            }
        }
        Ok(())
    }

    fn alternatives(&mut self, schema: &'a Map<String, Value>, value: &Value) -> Validated {
        for part in non_empty_list(schema, "allOf").into_iter().flatten() {
            self.schema(part, value)?;
        }
        if let Some(all) = non_empty_list(schema, "anyOf")
            && self.count_valid(all, value, 1)? == 0
        {
            return self
                .mismatch(|| "the value is valid under none of the schemas of `anyOf`".to_owned());
        }
        if let Some(all) = non_empty_list(schema, "oneOf") {
            let amount = match self.count_valid(all, value, 2)? {
                0 => "none of the schemas",
                1 => return Ok(()),
                _ => "more than one schema",
            };
            return self.mismatch(|| format!("the value is valid under {amount} of `oneOf`"));
        }
        Ok(())
    }

    /// Counts the schemas that accept the value, up to `enough`.
    fn count_valid(
        &mut self,
        schemas: &'a [Value],
        value: &Value,
        enough: usize,
    ) -> Result<usize, Stop> {
        let mut count = 0;
        let length = self.place.len();
        for schema in schemas {
            self.alternatives += 1;
            let validated = self.schema(schema, value);
            self.alternatives -= 1;
            match validated {
                Ok(()) => count += 1,
                Err(Stop::Mismatch(_)) => self.place.truncate(length),
                Err(Stop::TooManySteps) => return Err(Stop::TooManySteps),
            }
            if count == enough {
                break;
            }
        }
        Ok(count)
    }

    fn type_names(&mut self, schema: &Map<String, Value>, value: &Value) -> Validated {
        let names: Vec<&str> = match schema.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => {
                self.spend(names.len())?;
                names.iter().filter_map(Value::as_str).collect()
            }
            _ => return Ok(()),
        };
        if names.is_empty() || names.iter().any(|name| is_of_type(name, value)) {
            return Ok(());
        }
        self.mismatch(|| {
            let plural = if names.len() == 1 { "type" } else { "types" };
            let names: Vec<_> = names.into_iter().take(MAX_LISTED).map(quote).collect();
            format!("the value is not of {plural} {}", names.join(", "))
        })
    }

    fn constants(&mut self, schema: &Map<String, Value>, value: &Value) -> Validated {
        if let Some(Value::Array(allowed)) = schema.get("enum") {
            let mut is_allowed = false;
            for one in allowed {
                is_allowed = self.is_equal(one, value)?;
                if is_allowed {
                    break;
                }
            }
            if !is_allowed {
                return self.mismatch(|| {
                    let texts: Vec<_> =
                        allowed.iter().take(MAX_LISTED).map(Value::to_string).collect();
                    let listed = texts.join(", ");
                    let more = if allowed.len() > MAX_LISTED { ", …" } else { "" };
                    format!("the value is not one of {listed}{more}")
                });
            }
        }
        match schema.get("const") {
            Some(constant) if !self.is_equal(constant, value)? => {
                self.mismatch(|| format!("the value must be {constant}"))
            }
            _ => Ok(()),
        }
    }

    fn number(&self, schema: &Map<String, Value>, number: &Number) -> Validated {
        let bounds: [(&str, IsAllowed, &str); 4] = [
            ("minimum", Ordering::is_ge, "less than the minimum of"),
            ("maximum", Ordering::is_le, "greater than the maximum of"),
            ("exclusiveMinimum", Ordering::is_gt, "not greater than"),
            ("exclusiveMaximum", Ordering::is_lt, "not less than"),
        ];
        for (key, is_fit, what) in bounds {
            if let Some(Value::Number(bound)) = schema.get(key)
                && !is_fit(compare(number, bound))
            {
                return self.mismatch(|| format!("the value is {what} {bound}"));
            }
        }
        match schema.get("multipleOf").and_then(Value::as_number) {
            Some(step) if !is_multiple(number, step) => {
                self.mismatch(|| format!("the value is not a multiple of {step}"))
            }
            _ => Ok(()),
        }
    }

    fn text(&mut self, schema: &'a Map<String, Value>, text: &str) -> Validated {
        if let Some(least) = limit(schema, "minLength") {
            self.spend_on(text)?;
            if text.chars().take(least).count() < least {
                return self.mismatch(|| format!("the value is shorter than {least} characters"));
            }
        }
        if let Some(most) = limit(schema, "maxLength") {
            self.spend_on(text)?;
            if text.chars().nth(most).is_some() {
                return self.mismatch(|| format!("the value is longer than {most} characters"));
            }
        }
        match schema.get("pattern").and_then(Value::as_str) {
            Some(pattern) if !self.matches_pattern(pattern, text)? => {
                self.mismatch(|| format!("the value does not match {}", quote(pattern)))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the text matches the pattern. A pattern that cannot be compiled, for example because
    /// it looks ahead, matches everything.
    fn matches_pattern(&mut self, pattern: &'a str, text: &str) -> Result<bool, Stop> {
        self.spend_on(pattern)?;
        if !self.patterns.contains_key(pattern) {
            self.spend(COMPILATION_STEPS)?;
            let config = Config::new()
                .nfa_size_limit(Some(MAX_PATTERN_BYTES))
                .onepass_size_limit(Some(MAX_PATTERN_BYTES))
                .dfa_size_limit(Some(MAX_PATTERN_BYTES))
                .hybrid_cache_capacity(MAX_PATTERN_BYTES);
            let compiled = Regex::builder().configure(config).build(pattern).ok();
            self.patterns.insert(pattern, compiled);
        }
        // The worst patterns take a microsecond and more for each byte.
        self.spend(text.len())?;
        let compiled = self.patterns.get(pattern).and_then(Option::as_ref);
        Ok(compiled.is_none_or(|regex| regex.is_match(text)))
    }

    fn has_repetition(&mut self, items: &[Value]) -> Result<bool, Stop> {
        for (index, item) in items.iter().enumerate() {
            for earlier in &items[..index] {
                if self.is_equal(earlier, item)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns true if two values are equal in the sense of JSON Schema: 1 equals 1.0.
    fn is_equal(&mut self, one: &Value, other: &Value) -> Result<bool, Stop> {
        self.spend(1)?;
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => Ok(compare(one, other).is_eq()),
            (Value::String(one), Value::String(other)) if one.len() == other.len() => {
                self.spend_on(one)?;
                Ok(one == other)
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                for (one, other) in one.iter().zip(other) {
                    if !self.is_equal(one, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
                for (key, one) in one {
                    self.spend_on(key)?;
                    let Some(other) = other.get(key) else { return Ok(false) };
                    if !self.is_equal(one, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(one == other),
        }
    }
}

fn is_of_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_number().is_some_and(is_integer),
        "array" => value.is_array(),
        "object" => value.is_object(),
        // A type that does not exist accepts everything.
        _ => true,
    }
}

/// Tells from the comparison of a number with a bound whether the number is allowed.
type IsAllowed = fn(Ordering) -> bool;

fn non_empty_list<'a>(schema: &'a Map<String, Value>, key: &str) -> Option<&'a Vec<Value>> {
    schema.get(key).and_then(Value::as_array).filter(|list| !list.is_empty())
}

fn limit(schema: &Map<String, Value>, key: &str) -> Option<usize> {
    schema.get(key).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok())
}

fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or(number.as_u64().map(i128::from))
}

fn is_integer(number: &Number) -> bool {
    integer(number).is_some() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn compare(one: &Number, other: &Number) -> Ordering {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal),
    }
}

fn is_multiple(number: &Number, step: &Number) -> bool {
    match (integer(number), integer(step)) {
        (Some(_), Some(..=0)) => true,
        (Some(number), Some(step)) => number % step == 0,
        _ => {
            let (Some(number), Some(step)) = (number.as_f64(), step.as_f64()) else { return true };
            let quotient = number / step;
            !quotient.is_finite()
                || (quotient - quotient.round()).abs() < 1e-9 * quotient.abs().max(1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn first_error(schema: Value, value: &Value) -> Option<String> {
        let Value::Object(schema) = schema else { panic!("no object") };
        SchemaValidator::new(SchemaText::new(&schema)).first_error(value)
    }

    #[test]
    fn an_error_names_the_place_and_what_is_expected() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "array", "items": { "$ref": "#/$defs/n" } } },
            "required": ["a"],
            "additionalProperties": false,
            "$defs": { "n": { "type": "integer" } },
        });
        let table = [
            (json!({ "a": [1, 2] }), None),
            (json!({ "a": [1, "x"] }), Some("`/a/1`: the value is not of type \"integer\"")),
            (json!({}), Some("\"a\" is a required property")),
            (
                json!({ "a": [], "b": 1 }),
                Some("Additional properties are not allowed ('b' was unexpected)"),
            ),
        ];
        for (value, expected) in table {
            assert_eq!(first_error(schema.clone(), &value).as_deref(), expected);
        }
    }

    #[test]
    fn an_unusable_schema_accepts_everything() {
        let cyclic = json!({ "properties": { "a": { "$ref": "#" } }, "required": ["b"] });
        let mut bomb = Map::new();
        for number in 0..40 {
            let next = json!({ "not": { "$ref": format!("#/$defs/d{}", number + 1) } });
            bomb.insert(format!("d{number}"), json!({ "anyOf": [next, next] }));
        }
        let table = [
            json!({ "type": "made-up" }),
            json!({ "properties": 3, "required": "x" }),
            json!({ "$schema": "https://nowhere.example/none", "required": ["b"] }),
            json!({ "$ref": "https://nowhere.example/none" }),
            json!({ "properties": { "b": { "pattern": "(?=x)" } } }),
            cyclic,
            json!({ "$ref": "#/$defs/d0", "$defs": bomb }),
        ];
        for schema in table {
            assert_eq!(first_error(schema.clone(), &json!({ "b": "y" })), None, "{schema}");
        }
    }

    fn errors(schema: &Value, value: &Value) -> Option<String> {
        first_mismatch(schema.as_object().unwrap(), value)
    }

    #[test]
    fn an_error_says_where_it_is_and_what_is_expected() {
        let table = [
            (json!({ "type": "integer" }), json!("x"), "the value is not of type \"integer\""),
            (
                json!({ "$ref": "#/$defs/no", "$defs": { "no": false } }),
                json!(1),
                "nothing is allowed here",
            ),
            (
                json!({ "type": ["string", "null"] }),
                json!(1),
                "the value is not of types \"string\", \"null\"",
            ),
            (json!({ "enum": ["a", 1] }), json!("b"), "the value is not one of \"a\", 1"),
            (json!({ "required": ["a"] }), json!({}), "\"a\" is a required property"),
            (
                json!({ "properties": { "a/b": { "items": { "maxLength": 1 } } } }),
                json!({ "a/b": ["x", "yy"] }),
                "`/a~1b/1`: the value is longer than 1 characters",
            ),
            (json!({ "minimum": 3 }), json!(2.5), "the value is less than the minimum of 3"),
            (
                json!({ "anyOf": [{ "items": { "type": "null" } }, { "const": 1 }] }),
                json!([1]),
                "the value is valid under none of the schemas of `anyOf`",
            ),
        ];
        for (schema, value, expected) in table {
            assert_eq!(errors(&schema, &value).as_deref(), Some(expected), "{schema} {value}");
        }
    }

    #[test]
    fn what_is_not_understood_accepts_everything() {
        let mut nested = Map::new();
        for number in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", number + 1) });
            nested.insert(format!("d{number}"), json!({ "allOf": [next, next] }));
        }
        for schema in [
            json!({ "type": "made-up" }),
            json!({ "properties": 3, "required": "x", "enum": "y", "items": "z" }),
            json!({ "$ref": "https://nowhere.example/none" }),
            json!({ "pattern": "(?=y)" }),
            json!({ "not": {} }),
            json!({ "$ref": "#/$defs/d0", "$defs": nested }),
        ] {
            assert_eq!(errors(&schema, &json!("x")), None, "{schema}");
        }
    }

    /// A server chooses its schemas, and the simplified schema that the model sees has not all of their
    /// keywords: a loop in the rest must end here.
    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let value = json!({ "a": [1, 2], "b": "x" });
        let more = json!({ "$ref": "#/properties/a/additionalItems" });
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#" }] }),
            json!({ "properties": { "a": { "items": [{}], "additionalItems": more } } }),
            json!({ "properties": { "b": { "anyOf": [{ "$ref": "#/properties/b" }] } } }),
        ] {
            assert_eq!(errors(&schema, &value), None, "{schema}");
        }
    }

    /// Without the steps that these spend, each of them would take minutes.
    #[test]
    fn costly_schemas_and_values_are_given_up() {
        let patterns: Vec<_> = (0..200)
            .map(|index| json!({ "pattern": format!("(?:x{{50}}y){{20}}{index}") }))
            .collect();
        let words: Vec<_> = (0..50_000).map(|index| format!("w{index}")).collect();
        let lists: Vec<_> = (0..400).map(|index| [vec![0; 20_000], vec![index]].concat()).collect();
        let long = json!({ "minLength": 2_000_000 });
        let named = json!({ "n".repeat(50_000): 1 });
        let cases = [
            (json!({ "items": { "anyOf": patterns } }), json!(words)),
            (json!({ "items": { "enum": words.clone() } }), json!(vec!["w49999"; 50_000])),
            (json!({ "uniqueItems": true }), json!(lists)),
            (json!({ "anyOf": vec![long; 20_000] }), json!("ab".repeat(500_000))),
            (json!({ "items": { "allOf": vec![true; 20_000] } }), json!(vec![0; 50_000])),
            (json!({ "allOf": vec![json!({ "items": true }); 20_000] }), json!(vec![0; 50_000])),
            (
                json!({ "items": { "type": vec!["null"; 20_000] } }),
                json!(vec![Value::Null; 50_000]),
            ),
            (json!({ "allOf": vec![json!({ "required": ["n".repeat(50_000)] }); 20_000] }), named),
        ];
        for (number, (schema, value)) in cases.into_iter().enumerate() {
            let schema = schema.as_object().unwrap();
            let ended = Validation::new(schema).object_schema(schema, &value);
            assert!(matches!(ended, Err(Stop::TooManySteps)), "case {number}");
        }
    }

    #[test]
    fn large_ordinary_values_are_validated_to_their_end() {
        let row = json!({ "name": "n".repeat(50), "id": 7, "tags": ["a", "b"] });
        let mut rows = vec![row; 10_000];
        rows.push(json!({ "name": "n", "id": "seven" }));
        let fields = json!({
            "name": { "type": "string", "maxLength": 100 },
            "id": { "type": "integer" },
            "tags": { "items": { "enum": ["a", "b"] } },
        });
        let schema = json!({ "items": { "properties": fields, "required": ["name"] } });
        let expected = "`/10000/id`: the value is not of type \"integer\"";
        assert_eq!(errors(&schema, &json!(rows)).as_deref(), Some(expected));
    }

    /// Values of few kinds, so that schemas and values often meet.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..4).prop_map(Value::from),
            prop_oneof![Just(1.0), Just(0.5), Just(-2.0)].prop_map(Value::from),
            "[ab]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn schema() -> impl Strategy<Value = Value> {
        const TYPES: &[&str] =
            &["null", "boolean", "integer", "number", "string", "array", "object"];
        let leaf = prop_oneof![
            proptest::sample::select(TYPES).prop_map(|name| json!({ "type": name })),
            (value(), value()).prop_map(|(one, other)| json!({ "enum": [one, other] })),
            value().prop_map(|value| json!({ "const": value })),
            (-2_i64..3)
                .prop_map(|number| json!({ "minimum": number, "exclusiveMaximum": number + 2 })),
            (1_u64..3).prop_map(|number| json!({ "multipleOf": number })),
            (0_u64..3).prop_map(|number| json!({ "minLength": number, "maxLength": number + 1 })),
            (0_u64..3).prop_map(|number| json!({ "minItems": number, "maxItems": number + 1 })),
            Just(json!({ "uniqueItems": true })),
            "[ab]{1,2}".prop_map(|pattern| json!({ "pattern": format!("^{pattern}") })),
            Just(json!({ "$ref": "#/$defs/named" })),
            Just(json!({ "required": ["a"] })),
            any::<bool>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            let list = proptest::collection::vec(inner.clone(), 1..3);
            prop_oneof![
                inner.clone().prop_map(|schema| json!({ "items": schema })),
                (list.clone(), inner.clone())
                    .prop_map(|(first, rest)| json!({ "prefixItems": first, "items": rest })),
                list.clone().prop_map(|schemas| json!({ "anyOf": schemas })),
                list.clone().prop_map(|schemas| json!({ "oneOf": schemas })),
                list.prop_map(|schemas| json!({ "allOf": schemas })),
                (inner.clone(), inner).prop_map(|(one, rest)| {
                    json!({ "properties": { "a": one }, "additionalProperties": rest })
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_verdict_is_that_of_a_complete_validator(part in schema(), named in schema(), value in value()) {
            // A reference of the named schema to itself would not end.
            prop_assume!(!named.to_string().contains("$ref"));
            let whole = json!({ "allOf": [part], "$defs": { "named": named } });
            let complete = jsonschema::validator_for(&whole).unwrap();
            prop_assert_eq!(errors(&whole, &value).is_none(), complete.is_valid(&value), "{} {}", whole, value);
        }
    }
}
