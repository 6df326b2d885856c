//! Any text that may contain leaked tool calls. The first byte determines how the rest is cut into
//! pieces, which must not matter. Only declared tools are called, and everything else is shown.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use turnwright_llm::internals::{filter_leaked_calls, find_leaked};
use turnwright_llm::looks_like_leaked_call;

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
    looks_like_leaked_call(text);
    let whole = filter_leaked_calls(&tools, [text]);
    assert!(text.starts_with(&whole.0));
    assert!(whole.1 > 0 || whole.0 == text);
    assert!(whole.1 == 0 || found.is_some());
    let chars: Vec<char> = text.chars().collect();
    let pieces: Vec<String> =
        chars.chunks(1 + usize::from(*size)).map(|it| it.iter().collect()).collect();
    assert_eq!(filter_leaked_calls(&tools, pieces.iter().map(String::as_str)), whole);
});
