//! The retry delay of any response: lines `name: value`, an empty line, a body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_llm::internals::retry_delay;

fuzz_target!(|text: &str| {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let headers: Vec<_> = head.lines().filter_map(|it| it.split_once(':')).collect();
    retry_delay(&headers, body);
});
