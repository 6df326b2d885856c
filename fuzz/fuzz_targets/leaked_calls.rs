//! Words that may hold tool calls, from any text. The first byte says how the rest is cut, which
//! must change nothing; what is made a call was offered, and what is no call is shown.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use turnwright::llm::inside::{find_leaked, gate};
use turnwright::llm::looks_leaked;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let schema = json!({ "properties": { "s": { "type": "string" } } });
    let tools: [(&str, &Value); 2] = [("f", &schema), ("read_file", &schema)];
    let found = find_leaked(text, &tools);
    if let Some((start, calls)) = &found {
        assert!(text.is_char_boundary(*start) && !calls.is_empty());
        for (name, arguments) in calls {
            assert!(tools.iter().any(|it| it.0 == name) && arguments.is_object());
        }
    }
    looks_leaked(text);
    let whole = gate(&tools, [text]);
    assert!(text.starts_with(&whole.0));
    assert!(whole.1 > 0 || whole.0 == text);
    assert!(whole.1 == 0 || found.is_some());
    let chars: Vec<char> = text.chars().collect();
    let pieces: Vec<String> =
        chars.chunks(1 + usize::from(*size)).map(|it| it.iter().collect()).collect();
    assert_eq!(gate(&tools, pieces.iter().map(String::as_str)), whole);
});
