//! A patch from any text, applied to any text; a zero byte stands between them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::edit::patch::{Change, apply, parse};

fuzz_target!(|input: &str| {
    let Some((text, patch)) = input.split_once('\0') else { return };
    let Ok(files) = parse(patch) else { return };
    for file in files {
        assert!(!file.path.is_empty());
        if let Change::Update { hunks, .. } = file.change {
            match apply(text, &hunks) {
                Ok(applied) => assert!(!hunks.is_empty() || applied.text == text),
                Err(refusal) => drop(refusal.explain("f")),
            }
        }
    }
});
