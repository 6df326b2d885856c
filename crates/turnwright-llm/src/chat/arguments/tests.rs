//! Tests of the repairs of arguments, and of what is never repaired.

use proptest::prelude::*;
use serde_json::json;

use super::*;

proptest! {
    #[test]
    fn streamed_arguments_are_known_to_be_complete(
        pieces in prop::collection::vec("([{}\\[\\]\":, 1\n\\\\aé\u{a0}]|\"a\":\\{\\}|\\{\"b\":\"\\}\"){0,6}", 0..12),
    ) {
        let mut streamed = StreamedArguments::default();
        for piece in &pieces {
            streamed.push(piece);
            prop_assert_eq!(streamed.is_json_object(), is_json_object(streamed.as_str()), "{}", streamed.as_str());
        }
    }
}

#[test]
fn one_trailing_comma_is_repaired_and_nothing_is_completed() {
    for (text, expected) in [
        (r#"{"a": 1,}"#, Some(r#"{"a":1}"#)),
        (r#"{"a": [1, 2 , ], "b": ",}"}"#, Some(r#"{"a":[1,2],"b":",}"}"#)),
        (r#"{"a": [1,], "b": 2,}"#, None),
        (r#"{"a": 1,,}"#, None),
        (r#"{"a": 1}, {"#, None),
        (r#"{"a": 1,"#, None),
        (r#"{"a": ",}"#, None),
    ] {
        let understood = match parse_arguments(text.to_owned()) {
            Arguments::Object(value) => Some(value.to_string()),
            Arguments::Unusable { .. } => None,
        };
        assert_eq!(understood.as_deref(), expected, "{text}");
    }
}

#[test]
fn arguments_with_too_many_values_are_not_parsed() {
    let text = format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(300_000));
    assert!(
        matches!(parse_arguments(text), Arguments::Unusable { reason, .. } if reason.contains("too many"))
    );
}

const WHOLE: &str =
    r#"{"n": false, "path": "a.txt", "list": [1.5, {"deep": null}], "u": "\u00e9\ud83d\ude00"}"#;

#[test]
fn the_same_object_again_is_one_object() {
    for start in [
        "",
        "{",
        r#"{"path":"a.txt","#,
        r#"{"path":"a.txt""#,
        r#"{"path":"a."#,
        r#"{"pa"#,
        r#"{"path":"a.txt","n":false"#,
        r#"{"path":"a.txt","n":fal"#,
        r#"{"u":"é😀","list":[1.5,{"deep":n"#,
        r#"{"list":[1.5,{"deep":null}],"#,
        r#"{"list":[1"#,
        r#"{"u":"\u00"#,
        r#"{"u":"\u00e9\ud83d"#,
        r#"{"u":"\u00e9\ud83d\ude"#,
        r#"{"u":"é\"#,
        r#"{"path":"a.txt","n":false,"u":"é😀","list":[1.5,{"deep":null}]}"#,
        WHOLE,
    ] {
        let expected = serde_json::from_str(WHOLE).ok();
        assert_eq!(repeated_object(&format!("{start}{WHOLE}")), expected, "{start}");
        assert_eq!(repeated_object(&format!("{start}{WHOLE}\n{WHOLE}")), expected, "{start}");
    }
}

#[test]
fn different_objects_and_lost_pieces_are_no_repetition() {
    for text in [
        r#"{"path":"a"}{"path":"b"}"#,
        r#"{"path":"a"}{}"#,
        r#"{}{"path":"a"}"#,
        r#"{"path":"a","n":1}{"path":"a"}"#,
        r#"{"path":"a","n":1{"path":"a"}"#,
        r#"{"path":"b","{"path":"a"}"#,
        r#"{"path":"a"{"path":"ab"}"#,
        r#"{"n":1,{"n":12}"#,
        r#"{"n":f{"n":true}"#,
        r#"{"path":"a","path":"a",{"path":"a","n":1}"#,
        r#"{"list":[1]{"list":[1,2]}"#,
        r#"{"list":[1,2,{"list":[1,2]}"#,
        // Something is missing between the two.
        r#"{"edits":[{"old":"a"{"old":"b"}"#,
        r#"{"path":"a","content":"x{"n":1}"#,
        // The beginning of one object.
        r#"{"a":{"a":1}"#,
        r#"{"a":[{"a":1}"#,
        r#"{"a":"{}"#,
        "{",
        "",
        "{}x",
    ] {
        assert_eq!(repeated_object(text), None, "{text}");
    }
}

fn object() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec!["", "a", "b", "{", "\"", "\\", "é"]);
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        (0..20).prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 12, 3, move |inner| {
        let fields = prop::collection::hash_map(word.clone(), inner.clone(), 0..3);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
            fields.prop_map(|fields| fields.into_iter().collect()),
        ]
    });
    value.prop_map(|value| json!({ "a": value }))
}

proptest! {
    /// Arguments that were cut off never run.
    #[test]
    fn no_beginning_of_an_object_is_a_repetition(object in object(), end in any::<prop::sample::Index>()) {
        let text = object.to_string();
        let mut end = end.index(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        prop_assert_eq!(repeated_object(&text[..end]), None);
    }

    #[test]
    fn a_beginning_before_the_whole_is_a_repetition_or_looks_like_one_object(
        object in object(), end in any::<prop::sample::Index>(),
    ) {
        let text = object.to_string();
        let mut end = end.index(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let streamed = format!("{}{text}", &text[..end]);
        let is_cut = serde_json::from_str::<IgnoredAny>(&streamed).is_err_and(|error| error.is_eof());
        prop_assert_eq!(repeated_object(&streamed), (!is_cut).then_some(object), "{}", streamed);
    }

    #[test]
    fn no_text_makes_it_panic(text in "([{}\\[\\]\":,\\\\u0-9a \n\u{e9}]|\"a\"){0,40}") {
        repeated_object(&text);
    }
}
