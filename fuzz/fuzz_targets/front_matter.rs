//! The head of a SKILL.md, from any text. What follows it is the end of the text, a name or a
//! description is words, and arguments that are filled in are not filled in again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::skills::inside::{fill, split};

fuzz_target!(|input: &str| {
    let (words, body) = split(input);
    assert!(input.ends_with(body));
    assert!(words.iter().flatten().all(|it| !it.is_empty() && it.len() <= input.len()));
    let (args, text) = input.split_once('\0').unwrap_or(("$1 $ARGUMENTS", input));
    let filled = fill(text, args);
    let args = args.trim();
    assert!(args.is_empty() || text.contains('$') || filled.ends_with(args));
    assert!(text.contains('$') || filled.starts_with(text));
});
