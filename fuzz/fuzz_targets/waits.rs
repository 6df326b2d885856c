//! How long a server wants us to wait, from any text: lines `name: value`, an empty line, a body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::llm::inside::wait_of;

fuzz_target!(|text: &str| {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let headers: Vec<_> = head.lines().filter_map(|it| it.split_once(':')).collect();
    wait_of(&headers, body);
});
