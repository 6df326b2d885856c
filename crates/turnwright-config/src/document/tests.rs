//! Changing values in texts of all shapes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn set(text: &str, key: &str, value: &str) -> Result<String, &'static str> {
    TomlDocument::parse(text).unwrap().with_value(&parse_key(key).unwrap(), value)
}

fn unset(text: &str, key: &str) -> Result<String, &'static str> {
    TomlDocument::parse(text).unwrap().without(&parse_key(key).unwrap())
}

#[test]
fn a_key_has_parts_of_which_some_are_quoted() {
    for (text, expected) in [
        ("mode", Some(vec!["mode"])),
        ("sessions.keep_days", Some(vec!["sessions", "keep_days"])),
        ("a.\"b.c\".'d'", Some(vec!["a", "b.c", "d"])),
        (" a . b ", Some(vec!["a", "b"])),
        ("", None),
        ("a.", None),
        ("a b", None),
        ("a = 1 #", None),
        ("a = 1\nb", None),
        ("[a", None),
    ] {
        let expected =
            expected.map(|words| words.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse_key(text), expected, "{text}");
    }
    assert_eq!(key_text(&["a", "b.c", "", "d-1"]), "a.\"b.c\".\"\".d-1");
}

#[test]
fn a_value_is_replaced_where_it_is_and_nothing_else_changes() {
    for (text, key, value, expected) in [
        ("a = 1", "a", "2", "a = 2"),
        ("a = 1 # one\r\nb = 2\r\n", "a", "'x'", "a = 'x' # one\r\nb = 2\r\n"),
        ("\u{feff}a=1\n", "a", "2", "\u{feff}a=2\n"),
        ("a = [ # list\n  1, # one\n  2,\n] # end\nb = 1", "a", "[3]", "a = [3] # end\nb = 1"),
        ("a = '''\nb = 1\n[x]\n'''\nb = 2", "b", "3", "a = '''\nb = 1\n[x]\n'''\nb = 3"),
        ("t = { x = 1, y = { z = 2 } }", "t.y.z", "3", "t = { x = 1, y = { z = 3 } }"),
        ("t.x.y = 1\nt.x.z = 2", "t.x.z", "3", "t.x.y = 1\nt.x.z = 3"),
        ("[ t . 'x' ] # t\n y = 1\n", "t.x.y", "2", "[ t . 'x' ] # t\n y = 2\n"),
        ("\"a b\" = 1\n'c' = 2", "c", "3", "\"a b\" = 1\n'c' = 3"),
        (
            "[[r]]\nx = 1\n[[r]]\nx = 2\n[s]\nx = 3",
            "s.x",
            "4",
            "[[r]]\nx = 1\n[[r]]\nx = 2\n[s]\nx = 4",
        ),
        ("a = { b = 1 }", "a", "{ c = 2 }", "a = { c = 2 }"),
    ] {
        assert_eq!(set(text, key, value).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn a_new_entry_goes_into_its_section() {
    for (text, key, expected) in [
        ("", "a", "a = 0\n"),
        ("", "a.b", "[a]\nb = 0\n"),
        ("b = 1", "a", "b = 1\na = 0\n"),
        ("b = 1\r\n\r\n[s]\r\n", "a", "b = 1\r\na = 0\r\n\r\n[s]\r\n"),
        ("[s]\nx = 1\n", "a", "a = 0\n\n[s]\nx = 1\n"),
        ("# About s.\n[s]\n", "a", "a = 0\n# About s.\n[s]\n"),
        ("#:schema ./x\n\n[s]\n", "a", "#:schema ./x\na = 0\n\n[s]\n"),
        ("\u{feff}[s]\n", "a", "\u{feff}a = 0\n\n[s]\n"),
        ("# a = 1\n[s]\n# a = 3\n# b = 4\n", "s.a", "# a = 1\n[s]\n# a = 3\na = 0\n# b = 4\n"),
        ("#a=1\n# ab = 2\n", "a", "#a=1\na = 0\n# ab = 2\n"),
        (
            "[s]\nx = [\n  1,\n]\n\n# About t.\n[t]\n",
            "s.a",
            "[s]\nx = [\n  1,\n]\na = 0\n\n# About t.\n[t]\n",
        ),
        ("[s]", "s.a", "[s]\na = 0\n"),
        ("[s.t]\nx = 1", "s.a", "[s.t]\nx = 1\n\n[s]\na = 0\n"),
        ("[s]\nx = 1\n", "t.'u.v'.a", "[s]\nx = 1\n\n[t.\"u.v\"]\na = 0\n"),
        ("s.x = 1\n[t]\n", "s.a", "s.x = 1\ns.a = 0\n[t]\n"),
        ("[s]\nt.x = 1\n", "s.t.a", "[s]\nt.x = 1\nt.a = 0\n"),
        ("s = { x = 1 } # s", "s.a", "s = { x = 1, a = 0 } # s"),
        ("s = {}", "s.a", "s = { a = 0 }"),
        ("s = { t.x = [1], u = {} }", "s.t.a", "s = { t.x = [1], u = {}, t.a = 0 }"),
        ("s = { x = 1, t = { y = 2 } }", "s.u.a", "s = { x = 1, t = { y = 2 }, u.a = 0 }"),
        ("[[r]]\nx = 1\n", "s.a", "[[r]]\nx = 1\n\n[s]\na = 0\n"),
    ] {
        assert_eq!(set(text, key, "0").as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn an_entry_is_removed_with_its_line() {
    for (text, key, expected) in [
        ("a = 1 # one\nb = 2\n", "a", "b = 2\n"),
        ("b = 2\n  a = [\n1,\n] # end", "a", "b = 2\n"),
        ("\u{feff}a = 1\r\nb = 2", "a", "\u{feff}b = 2"),
        ("# About a.\na = 1", "a", "# About a.\n"),
        ("[s]\nt.a = 1\n", "s.t.a", "[s]\n"),
        ("s = { a = 1 }", "s.a", "s = { }"),
        ("s = { a = 1, b = 2 }", "s.a", "s = { b = 2 }"),
        ("s = { a = 1, b = 2 }", "s.b", "s = { a = 1 }"),
        ("s = { x = '{,', t.a = 1 , b = 2 }", "s.t.a", "s = { x = '{,', b = 2 }"),
        ("s = { t = { a = 1 } }", "s.t", "s = { }"),
    ] {
        assert_eq!(unset(text, key).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_no_single_value_is_not_changed() {
    for (text, key) in
        [("[s]\nx = 1", "s"), ("s.x = 1", "s"), ("[[r]]\nx = 1", "r"), ("[s.t]\nx = 1", "s.t")]
    {
        assert_eq!(set(text, key, "0"), Err(IS_SECTION), "{text}");
        assert_eq!(unset(text, key), Err(IS_SECTION), "{text}");
    }
    for (text, key, value) in [
        ("a = 1", "a.b", "0"),
        ("[[r]]\nx = 1", "r.x", "0"),
        ("a = 1", "b", "1\nc = 2"),
        ("a = 1", "b", ""),
    ] {
        assert_eq!(set(text, key, value), Err(NO_PLACE), "{text}");
    }
    assert!(TomlDocument::parse("a = 1\na = 2").is_err());
}

#[test]
fn a_key_has_its_line() {
    let document = TomlDocument::parse("\n[s]\n# x\nt.a = 1\n'b' = 2").unwrap();
    for (key, line) in [("s.t.a", Some(4)), ("s.b", Some(5)), ("s", Some(2)), ("s.c", None)] {
        assert_eq!(document.line(&parse_key(key).unwrap()), line, "{key}");
    }
}

/// Pieces of which each is a valid part of a file; no two define the same key.
const PIECES: &[&str] = &[
    "# A comment with [brackets] and = signs\n",
    "\n",
    "a = 1 # one\n",
    "'b' = [ # list\n  1, # [x]\n]\n",
    "c = { x = 1, 'y.z' = { d = 2 } } # inline\n",
    "e.f = '''\n[s]\na = 2\n''' # text\n",
    "e.\"g h\" = \"\\n\"\n",
    "[s] # s\n",
    "# a = 7\n",
    "[s.t]\nd = 1\n",
    "[[r]]\nx = 1\n",
    "[u.v]\n'a' = 1.5\n",
];

const KEYS: &[&str] = &[
    "a",
    "b",
    "c",
    "c.x",
    "c.'y.z'.d",
    "c.n.m",
    "e",
    "e.f",
    "e.'g h'",
    "e.n",
    "s.a",
    "s.t.d",
    "s.t.n",
    "r",
    "u.a",
    "u.v.a",
    "n",
    "n.m.o",
];

fn content(text: &str) -> Value {
    toml_edit::de::from_str(text).unwrap()
}

fn at<'a>(table: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(table, |at, key| at.get(key))
}

/// The number of bytes that two texts have in common at the beginning and at the end.
fn common(one: &str, other: &str) -> usize {
    let same = |pair: &(u8, u8)| pair.0 == pair.1;
    let start = one.bytes().zip(other.bytes()).take_while(same).count();
    let one = &one.as_bytes()[start..];
    let other = &other.as_bytes()[start..];
    let backwards = one.iter().copied().rev().zip(other.iter().copied().rev());
    start + backwards.take_while(same).count()
}

/// Without empty tables: a table exists without entries only if it has a header.
fn pruned(mut value: Value) -> Value {
    if let Value::Object(table) = &mut value {
        table.values_mut().for_each(|inner| *inner = pruned(inner.take()));
        table.retain(|_, inner| *inner != json!({}));
    }
    value
}

#[test]
fn the_table_of_a_provider_goes_with_its_last_entry() {
    for (text, key, expected) in [
        ("a = 1\n[mcp.x]\nu = 1\n[s]\nk = 1\n", "mcp.x.u", "a = 1\n[s]\nk = 1\n"),
        ("[providers.x]\n# why\nu = 1\n", "providers.x.u", "# why\n"),
        ("[s] # mine\nu = 1\n", "s.u", "[s] # mine\n"),
        ("[mcp.x]\nu = 1\n[mcp.x.h]\nc = 2\n", "mcp.x.h.c", "[mcp.x]\nu = 1\n"),
        ("[mcp.x]\nu = 1\n[mcp.x.h]\nc = 2\n", "mcp.x.u", "[mcp.x]\n[mcp.x.h]\nc = 2\n"),
        ("[mcp]\n[mcp.x]\n[mcp.x.h]\nc = 2\n", "mcp.x.h.c", ""),
        ("[mcp.x]\nu = 1\nv = 2\n", "mcp.x.u", "[mcp.x]\nv = 2\n"),
        ("[mcp]\nx = { u = 1 }\n", "mcp.x.u", "[mcp]\nx = { }\n"),
    ] {
        assert_eq!(unset(text, key).as_deref(), Ok(expected), "{text}");
    }
}

proptest! {
    #[test]
    fn setting_a_value_changes_that_value_only(
        chosen in proptest::sample::subsequence(PIECES, 0..=PIECES.len()),
        key in proptest::sample::select(KEYS),
        value in proptest::sample::select(vec!["0", "'x'", "[1, 2]", "{ k = 1 }", "true"]),
        is_crlf in any::<bool>(),
        ends_early in any::<bool>(),
    ) {
        let mut text = chosen.concat();
        if ends_early && text.ends_with('\n') {
            text.pop();
        }
        if is_crlf {
            text = text.replace('\n', "\r\n");
        }
        let path = parse_key(key).unwrap();
        let document = TomlDocument::parse(&text).unwrap();
        let old = document.value(&path);
        let changed = match document.with_value(&path, value) {
            Ok(changed) => changed,
            Err(why) => {
                prop_assert_eq!(why, IS_SECTION, "{:?}", text);
                prop_assert!(old.is_none() && document.contains(&path));
                return Ok(());
            }
        };
        let wanted = content(&format!("a = {value}"));
        let now = content(&changed);
        prop_assert_eq!(at(&now, &path), Some(&wanted["a"]));
        // Nothing is removed but the old value.
        prop_assert!(text.len() - common(&text, &changed) <= old.map_or(0, str::len), "{changed:?}");
        let again = TomlDocument::parse(&changed).unwrap();
        let unchanged = again.with_value(&path, value);
        prop_assert_eq!(unchanged.as_ref(), Ok(&changed));
        if old.is_none() {
            let without = again.without(&path).unwrap();
            prop_assert_eq!(pruned(content(&without)), pruned(content(&text)));
        }
    }
}
