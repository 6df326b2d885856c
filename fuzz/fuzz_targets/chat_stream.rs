//! A model's answer from any bytes. The first byte says how the rest is cut, which must change
//! nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::llm::chat::transcribe;

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, stream)) = bytes.split_first() {
        let pieces = stream.chunks(1 + usize::from(*size));
        let (model, tools) = ("qwq", ["read_file".to_owned()]);
        assert_eq!(transcribe(model, &tools, pieces), transcribe(model, &tools, [stream]));
    }
});
