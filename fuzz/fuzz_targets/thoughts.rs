//! Any text that may contain reasoning in tags. The first two bytes determine the mode and how the
//! text is cut into pieces, which must not matter.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_llm::internals::split_thinking;

fuzz_target!(|bytes: &[u8]| {
    let [mode, size, text @ ..] = bytes else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let begins_in_thought = mode % 2 == 1;
    let whole = split_thinking(begins_in_thought, [text]);
    assert!(whole.0.len() + whole.1.len() <= text.len());
    assert!(text.ends_with(&whole.1));
    let chars: Vec<char> = text.chars().collect();
    let pieces: Vec<String> =
        chars.chunks(1 + usize::from(*size)).map(|it| it.iter().collect()).collect();
    assert_eq!(split_thinking(begins_in_thought, pieces.iter().map(String::as_str)), whole);
});
