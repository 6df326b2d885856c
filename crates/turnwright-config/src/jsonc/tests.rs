//! Where an entry is put, what is refused, and that nothing else of a file changes.

use proptest::prelude::*;
use serde_json::Map;

use super::*;

fn entry() -> Value {
    json!({ "command": "t" })
}

fn added(text: &str, path: &[&str]) -> String {
    with_value(text, path, &entry()).unwrap()
}

#[test]
fn an_entry_takes_the_form_of_its_file() {
    let path = ["agents", "t"];
    for (text, expected) in [
        ("", "{\n  \"agents\": {\n    \"t\": {\n      \"command\": \"t\"\n    }\n  }\n}\n"),
        (
            "// mine",
            "// mine\n{\n  \"agents\": {\n    \"t\": {\n      \"command\": \"t\"\n    }\n  }\n}\n",
        ),
        ("{}", "{\n  \"agents\": {\n    \"t\": {\n      \"command\": \"t\"\n    }\n  }\n}"),
        (
            "{ // all\r\n\t\"a\": 1, // one\r\n}",
            "{ // all\r\n\t\"agents\": {\r\n\t\t\"t\": {\r\n\t\t\t\"command\": \"t\"\r\n\t\t}\r\n\t},\
             \r\n\t\"a\": 1, // one\r\n}",
        ),
        (
            "{\n    \"agents\": { /* none\n*/ },\n    \"b\": []\n}\n",
            "{\n    \"agents\": {\n        \"t\": {\n            \"command\": \"t\"\n        }\n     \
             /* none\n*/ },\n    \"b\": []\n}\n",
        ),
        ("{\"agents\":{\"b\":1}}", "{\"agents\":{\"t\": { \"command\": \"t\" }, \"b\":1}}"),
        (
            "\u{feff}{\n  \"agents\": {\n    // his\n    \"b\": \"}\",\n  },\n}",
            "\u{feff}{\n  \"agents\": {\n    \"t\": {\n      \"command\": \"t\"\n    },\n    \
             // his\n    \"b\": \"}\",\n  },\n}",
        ),
        (
            "{\n  \"agents\": { \"t\": /* old */ [1, /* , */ 2,] /* end */, },\n}",
            "{\n  \"agents\": { \"t\": /* old */ {\n    \"command\": \"t\"\n  } /* end */, },\n}",
        ),
    ] {
        assert_eq!(added(text, &path), expected);
    }
}

#[test]
fn what_is_no_json_or_has_no_place_is_refused() {
    let deep = "[".repeat(100_000);
    let deep_objects = "{\"a\":".repeat(101);
    for (text, expected) in [
        ("[1]", "it is not an object"),
        ("{\"agents\": 1}", "agents is not an object"),
        ("{\"agents\": {}, \"agents\": {}}", "it has `agents` twice"),
        ("{\n'a': 1}", "Single-quoted strings are not allowed on line 2 column 1"),
        ("{\"a\": 1 \"b\": 2}", "Expected comma on line 1 column 8"),
        ("{\"a\": [1 2]}", "Expected comma on line 1 column 9"),
        (
            "{\"a\" 1}",
            "Expected colon after the string or word in object property on line 1 column 6",
        ),
        ("{1: 2}", "Expected string for object property on line 1 column 2"),
        ("{\"a\": NaN}", "Unexpected token on line 1 column 7"),
        ("{\"a\": 01}", "Expected comma on line 1 column 8"),
        ("{\"a\": \"secret\\q\"}", "Invalid escape on line 1 column 14"),
        ("{\"a\": \"b", "Unterminated string literal on line 1 column 7"),
        ("{,}", "Unexpected token in object on line 1 column 2"),
        ("{\"a\": 1,,}", "Unexpected token in object on line 1 column 9"),
        ("{", "Unterminated object on line 1 column 1"),
        ("{} x", "Text cannot contain more than one JSON value on line 1 column 4"),
        ("{ /* ", "Unterminated comment block on line 1 column 3"),
        ("{ // a\r \"agents\": 1\n}", "it has a line end that not all programs see"),
        (&deep, "it is nested too deeply"),
        (&deep_objects, "it is nested too deeply"),
    ] {
        assert_eq!(
            with_value(text, &["agents", "t"], &entry()).unwrap_err().to_string(),
            expected,
            "{text}"
        );
    }
}

/// Turns random bytes into random JSON with comments, blanks and trailing commas.
struct TextMaker<'a> {
    choices: std::slice::Iter<'a, u8>,
    text: String,
}

impl TextMaker<'_> {
    fn choose<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[usize::from(self.choices.next().copied().unwrap_or_default()) % from.len()]
    }

    fn blanks(&mut self) {
        let blanks = self.choose(&[
            "",
            " ",
            "\n",
            "\r\n\t",
            "\n  ",
            " // \"x\": {,\n",
            "/* } */",
            " /*\n*/ ",
            "//\n    ",
            "",
        ]);
        self.text.push_str(blanks);
    }

    fn value(&mut self, depth: usize) -> Value {
        let kinds: &[&str] = if depth == 0 { &["{"] } else { &["1", "{", "[", "\"\"", "{"] };
        match self.choose(kinds) {
            "{" if depth < 4 => Value::Object(self.object(depth)),
            "[" if depth < 4 => self.list(depth),
            _ => {
                let scalar =
                    self.choose(&["true", "null", "-1.5e3", r#""//\"{""#, r#""\u00e9\\""#, "0"]);
                self.text.push_str(scalar);
                serde_json::from_str(scalar).unwrap()
            }
        }
    }

    fn object(&mut self, depth: usize) -> Map<String, Value> {
        let mut members = Map::new();
        self.text.push('{');
        let keys =
            ["agents", "t", "a", "command"].iter().filter(|_| self.choose(&["y", ""]) == "y");
        let keys: Vec<_> = keys.collect();
        for (number, key) in keys.iter().enumerate() {
            self.blanks();
            self.text.push_str(&format!("\"{key}\""));
            self.blanks();
            self.text.push(':');
            self.blanks();
            let value = self.value(depth + 1);
            members.insert((**key).to_owned(), value);
            self.blanks();
            if number + 1 < keys.len() || self.choose(&["", "y"]) == "y" {
                self.text.push(',');
            }
        }
        self.blanks();
        self.text.push('}');
        members
    }

    fn list(&mut self, depth: usize) -> Value {
        let mut elements = Vec::new();
        self.text.push('[');
        while self.choose(&["", "y"]) == "y" {
            self.blanks();
            elements.push(self.value(depth + 1));
            self.blanks();
            self.text.push(',');
        }
        self.text.push(']');
        Value::Array(elements)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_but_the_entry_stays_byte_for_byte(choices in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut maker = TextMaker { choices: choices.iter(), text: String::new() };
        maker.blanks();
        let value = maker.value(0);
        maker.blanks();
        let text = maker.text;
        prop_assert_eq!(parse(&text).unwrap(), value.clone());
        let path = ["agents", "t"];
        let is_place = value.get("agents").is_none_or(Value::is_object);
        let changed = with_value(&text, &path, &entry());
        prop_assert_eq!(changed.is_ok(), is_place, "{:?}", changed);
        let Ok(changed) = changed else { return Ok(()) };
        let mut expected = value.clone();
        if expected.get("agents").is_none() {
            expected["agents"] = json!({});
        }
        expected["agents"]["t"] = entry();
        prop_assert_eq!(parse(&changed).unwrap(), expected.clone());

        // One part of the text is new, and what was there instead is nothing or the old entry.
        let old = value.pointer("/agents/t");
        let prefix = text.bytes().zip(changed.bytes()).take_while(|(a, b)| a == b).count();
        let ends = text[prefix..].bytes().rev().zip(changed[prefix..].bytes().rev());
        let suffix = ends.take_while(|(a, b)| a == b).count();
        let replaced = text.len() - prefix - suffix;
        match old {
            None => prop_assert_eq!(replaced, 0, "{} → {}", text, changed),
            Some(_) => {
                let Some(Node::Object(root)) = parse_document(&text).unwrap() else { panic!("no object") };
                let span = root.get_object("agents").unwrap().get("t").unwrap().value.range();
                prop_assert!(span.start <= prefix && text.len() - suffix <= span.end);
            }
        }
        // A second time it is the same entry.
        let again = with_value(&changed, &path, &entry()).unwrap();
        prop_assert_eq!(parse(&again).unwrap(), expected);
    }
}
