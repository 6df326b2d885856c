//! Any bytes as a chat completions reply. The first byte determines how the rest is cut into pieces,
//! which must not matter.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_llm::chat::transcribe;

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, stream)) = bytes.split_first() {
        let pieces = stream.chunks(1 + usize::from(*size));
        let (model, tools) = ("qwq", ["read_file".to_owned()]);
        assert_eq!(transcribe(model, &tools, pieces), transcribe(model, &tools, [stream]));
    }
});
