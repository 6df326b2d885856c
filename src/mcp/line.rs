//! One line of a program, before the protocol reads it: what it is, and whether it can be read at
//! all. Nobody waits for an answer that cannot: an error stands in its place.

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::schema::words;

/// How deep an answer may nest. `serde_json` has 128.
const DEEPEST: usize = 100;
/// Values in one answer. Each takes many times the memory of the two bytes that it can be.
const MOST_VALUES: usize = 1_000_000;
/// Bytes at the beginning and at the end of a broken line that are looked at for its number.
pub(super) const LOOK: usize = 256;
/// Characters of an error that is none.
const LONGEST: usize = 500;

/// What a line is.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// It answers us.
    Answer,
    /// It wants something of us, or tells something.
    News,
    /// It answers us in a way that nobody understands. This says the same.
    Instead(Vec<u8>),
}

/// The outermost fields.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<IgnoredAny>,
    #[serde(borrow, default, deserialize_with = "some")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some")]
    error: Option<&'a RawValue>,
}

/// That it is `null` is not the same as that it is not there.
fn some<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

#[derive(Deserialize)]
struct Known {
    #[serde(rename = "code")]
    _code: i32,
    #[serde(rename = "message")]
    _message: String,
}

/// Looks at a line.
pub(super) fn look(line: &[u8]) -> Line {
    let Ok(head) = serde_json::from_slice::<Head<'_>>(line) else {
        let refusal = refusal(line, "The answer is not valid JSON and was dropped");
        return refusal.map_or(Line::News, Line::Instead);
    };
    let (None, Some(id)) = (&head.method, head.id) else { return Line::News };
    if !is_bearable(line) {
        return error(
            id,
            "The answer has too many values in it, or nests too deeply, and was dropped",
        );
    }
    match (head.error.map(RawValue::get), head.result.map(RawValue::get)) {
        (None, Some(_)) => Line::Answer,
        // Some servers put in both, one of them empty.
        (Some("null"), Some(result)) if result != "null" => {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            Line::Instead((answer + "\n").into_bytes())
        }
        (None | Some("null"), _) => error(id, "The answer has neither a result nor an error in it"),
        (Some(it), _) if serde_json::from_str::<Known>(it).is_ok() => Line::Answer,
        (Some(it), _) => error(id, &words(it, LONGEST)),
    }
}

fn error(id: &RawValue, message: &str) -> Line {
    Line::Instead(put(&json!(id), message))
}

fn put(id: &Value, message: &str) -> Vec<u8> {
    let error = json!({ "code": -32603, "message": message });
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_bytes()
}

/// Whether it can be taken apart without much memory. Counts what stands between values.
fn is_bearable(line: &[u8]) -> bool {
    let (mut depth, mut values, mut place) = (0_usize, 0_usize, 0);
    while let Some(byte) = line.get(place) {
        match byte {
            b'"' => place = end_of_text(line, place),
            b'[' | b'{' => (depth, values) = (depth + 1, values + 1),
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if depth > DEEPEST || values > MOST_VALUES {
            return false;
        }
        place += 1;
    }
    true
}

/// The place of the quote that ends a text.
fn end_of_text(line: &[u8], begin: usize) -> usize {
    let mut place = begin + 1;
    while let Some(next) = line.get(place..).and_then(|it| memchr::memchr2(b'"', b'\\', it)) {
        place += next;
        if line[place] == b'"' {
            return place;
        }
        place += 2;
    }
    line.len()
}

/// What stands for an answer that cannot be read, if it is one.
pub(super) fn refusal(line: &[u8], why: &str) -> Option<Vec<u8>> {
    // What asks has numbers of its own.
    let is_news = memmem::find(&line[..LOOK.min(line.len())], b"\"method\"").is_some();
    let id = number(line).filter(|it| !is_news && (it.is_number() || it.is_string()))?;
    Some(put(&id, why))
}

/// The number of an answer of which only the beginning and the end are known. It stands before the
/// result, or is among the last.
fn number(line: &[u8]) -> Option<Value> {
    let head = String::from_utf8_lossy(&line[..LOOK.min(line.len())]);
    let tail = String::from_utf8_lossy(&line[line.len().saturating_sub(LOOK)..]);
    let begin: String = head.split_whitespace().collect();
    let first = begin.strip_prefix("{\"jsonrpc\":\"2.0\",").or(begin.strip_prefix('{'));
    if let Some(rest) = first.and_then(|it| it.strip_prefix("\"id\":")) {
        return serde_json::from_str(rest.split([',', '}']).next()?).ok();
    }
    let tail = tail.trim_end();
    let last = &tail[tail.rfind("\"id\"")?..];
    let last: Value = serde_json::from_str(&format!("{{{last}")).ok()?;
    let is_outer = last.as_object()?.keys().all(|it| it == "id" || it == "jsonrpc");
    is_outer.then(|| last["id"].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_nobody_understands_becomes_one_that_says_so() {
        let deep = |depth| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#,
                "[".repeat(depth),
                "]".repeat(depth)
            )
        };
        let many =
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":[{}0]}}"#, "0,".repeat(MOST_VALUES));
        let table = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"[\"{,"}}"#.to_owned(), None),
            (r#"{"jsonrpc":"2.0","id":7,"result":null}"#.to_owned(), None),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m","data":[]}}"#
                    .to_owned(),
                None,
            ),
            (deep(90), None),
            (
                deep(10_000)
                    .replace("\"result\":", "\"error\":{\"code\":1,\"message\":\"m\",\"data\":")
                    + "}",
                Some("nests too deeply"),
            ),
            (deep(10_000), Some("nests too deeply")),
            (many, Some("too many values")),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"\x"}}"#.to_owned(), Some("not valid JSON")),
            (r#"{"jsonrpc":"2.0","result":{,"id":7}"#.to_owned(), Some("not valid JSON")),
            (r#"{"jsonrpc":"2.0","id":7}"#.to_owned(), Some("neither a result nor an error")),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":null}"#.to_owned(),
                Some("neither a result nor an error"),
            ),
            (r#"{"jsonrpc":"2.0","id":7,"error":"no paper"}"#.to_owned(), Some("no paper")),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":"E7","message":"ink"}}"#.to_owned(),
                Some("ink"),
            ),
        ];
        for (line, expected) in table {
            let short = &line[..line.len().min(80)];
            match (look(line.as_bytes()), expected) {
                (Line::Answer, None) => {}
                (Line::Instead(it), Some(words)) => {
                    let it: Value = serde_json::from_slice(&it).unwrap();
                    let message = it["error"]["message"].as_str().unwrap();
                    assert!(it["id"] == 7 && message.contains(words), "{short}: {it}");
                }
                (other, _) => panic!("{short}: {other:?}"),
            }
        }
        let both = br#"{"jsonrpc":"2.0","id":7,"result":{"a":1},"error":null}"#;
        let one = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":1}}\n";
        assert_eq!(look(both), Line::Instead(one.to_vec()));
    }

    #[test]
    fn what_asks_is_never_taken_for_an_answer() {
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
            r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#,
            r#"{"jsonrpc":"2.0"}"#,
            r#""jsonrpc""#,
        ] {
            assert_eq!(look(line.as_bytes()), Line::News, "{line}");
        }
    }
}
