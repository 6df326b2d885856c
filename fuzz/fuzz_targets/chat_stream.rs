//! A model's answer from any bytes. The first byte says how the rest is cut, which must change
//! nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::llm::chat::fuzz_stream;

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, stream)) = bytes.split_first() {
        assert_eq!(fuzz_stream(stream, stream.len()), fuzz_stream(stream, 1 + usize::from(*size)));
    }
});
