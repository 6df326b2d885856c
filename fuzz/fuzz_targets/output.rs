//! What commands print, from any bytes. The first byte says how the rest is cut, which must change
//! nothing; the text is bounded and holds nothing that only a terminal understands.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use turnwright::exec::Output;

fn text(bytes: &[u8], size: usize) -> String {
    let mut output = Output::new(Path::new("/nowhere/p1.txt"));
    for chunk in bytes.chunks(size) {
        output.push(chunk);
    }
    output.finish();
    output.look().text
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, printed)) = bytes.split_first() {
        let whole = text(printed, printed.len().max(1));
        assert_eq!(whole, text(printed, 1 + usize::from(*size)));
        assert!(whole.len() < 40 * 1024);
        assert!(!whole.contains(|it: char| it.is_control() && it != '\n' && it != '\t'));
    }
});
