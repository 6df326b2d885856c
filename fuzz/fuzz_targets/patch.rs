//! Parses any text as a patch and applies it to any text. A NUL byte separates the two.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_workspace::edit::patch::{PatchOp, apply, parse};

fuzz_target!(|input: &str| {
    let Some((text, patch)) = input.split_once('\0') else { return };
    let Ok(files) = parse(patch) else { return };
    for file in files {
        assert!(!file.path.is_empty());
        if let PatchOp::Update { hunks, .. } = file.change {
            if let Ok(applied) = apply(text, &hunks, "f") {
                assert!(!hunks.is_empty() || applied.text == text);
            }
        }
    }
});
