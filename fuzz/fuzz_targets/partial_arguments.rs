//! Feeds the arguments of a call in pieces cut anywhere. How they are cut makes no difference, and
//! the reported fields of valid arguments have the values that the arguments have.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use turnwright::internals::partial_arguments;

fuzz_target!(|input: (u8, &str)| {
    let (size, text) = input;
    let size = usize::from(size).max(1);
    let mut cuts: Vec<usize> = (0..text.len()).step_by(size).collect();
    cuts.retain(|it| text.is_char_boundary(*it));
    cuts.push(text.len());
    let whole = partial_arguments([text]);
    assert_eq!(partial_arguments(cuts.windows(2).map(|it| &text[it[0]..it[1]])), whole);
    if let Ok(arguments @ Value::Object(_)) = serde_json::from_str::<Value>(text) {
        for (key, value) in whole.0.clone() {
            let is_said = text.matches(&format!("\"{key}\"")).count() != 1
                || arguments[key].as_str().is_none_or(|it| it == value);
            assert!(is_said, "{key}={value} of {arguments}");
        }
    }
});
