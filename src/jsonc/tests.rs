//! What is put where, what is refused, and that nothing else of a file changes.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const ENTRY: &str = "{\n  \"command\": \"t\"\n}";

fn added(text: &str, path: &[&str]) -> String {
    with_value(text, path, ENTRY).unwrap()
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
    let deep = "[".repeat(200);
    for (text, expected) in [
        ("[1]", "it is not an object"),
        ("{\"agents\": 1}", "agents is not an object"),
        ("{\"agents\": {}, \"agents\": {}}", "it has `agents` twice"),
        ("{\n'a': 1}", "line 2: unexpected '\\''"),
        ("{\"a\": 1 \"b\": 2}", "line 1: expected a comma or }"),
        ("{\"a\": [1 2]}", "line 1: expected a comma or ]"),
        ("{\"a\" 1}", "line 1: expected a colon after a key"),
        ("{1: 2}", "line 1: a key is not a string"),
        ("{\"a\": NaN}", "line 1: unexpected \"NaN\""),
        ("{\"a\": 01}", "line 1: unexpected \"01\""),
        ("{\"a\": \"secret\\q\"}", "line 1: a string that is not JSON"),
        ("{\"a\": \"b", "line 1: a string does not end"),
        ("{,}", "line 1: unexpected ','"),
        ("{\"a\": 1,,}", "line 1: unexpected ','"),
        ("{", "line 1: the text ends too early"),
        ("{} x", "line 1: text after the end"),
        ("{ /* ", "line 1: a comment does not end"),
        (
            "{ // a\r \"agents\": 1\n}",
            "line 1: a line end within a comment that not all programs see",
        ),
        (&deep, "line 1: nested too deeply"),
    ] {
        assert_eq!(
            with_value(text, &["agents", "t"], ENTRY).unwrap_err().to_string(),
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
        let changed = with_value(&text, &path, ENTRY);
        prop_assert_eq!(changed.is_ok(), is_place, "{:?}", changed);
        let Ok(changed) = changed else { return Ok(()) };
        let mut expected = value.clone();
        if expected.get("agents").is_none() {
            expected["agents"] = json!({});
        }
        expected["agents"]["t"] = json!({ "command": "t" });
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
                let (root, _) = parse_document(&text).unwrap().unwrap();
                let Ok(Place::Value(span)) = find(&root, &path) else { panic!("no entry") };
                prop_assert!(span.start <= prefix && text.len() - suffix <= span.end);
            }
        }
        // A second time it is the same entry.
        let again = with_value(&changed, &path, ENTRY).unwrap();
        prop_assert_eq!(parse(&again).unwrap(), expected);
    }
}
