//! Parses any text as a SKILL.md. The body is the end of the text, fields are not empty, and
//! substituted arguments are not substituted again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_workspace::skills::fuzzing::{split, substitute};

fuzz_target!(|input: &str| {
    let (fields, body) = split(input);
    assert!(input.ends_with(body));
    assert!(fields.iter().flatten().all(|it| !it.is_empty() && it.len() <= input.len()));
    let (args, text) = input.split_once('\0').unwrap_or(("$1 $ARGUMENTS", input));
    let filled = substitute(text, args);
    let args = args.trim();
    assert!(args.is_empty() || text.contains('$') || filled.ends_with(args));
    assert!(text.contains('$') || filled.starts_with(text));
});
