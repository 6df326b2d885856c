//! Captures arbitrary command output. The first byte chooses how the rest is split, which must not change the
//! result; the text is bounded and contains no control characters for a terminal.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use turnwright_workspace::exec::CommandOutput;

fn text(bytes: &[u8], chunk_size: usize) -> String {
    let mut output = CommandOutput::new(Path::new("/nowhere/p1.txt"));
    for chunk in bytes.chunks(chunk_size) {
        output.push(chunk);
    }
    output.finish();
    output.take_excerpt().text
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, printed)) = bytes.split_first() {
        let whole = text(printed, printed.len().max(1));
        assert_eq!(whole, text(printed, 1 + usize::from(*size)));
        assert!(whole.len() < 40 * 1024);
        assert!(!whole.contains(|it: char| it.is_control() && it != '\n' && it != '\t'));
    }
});
