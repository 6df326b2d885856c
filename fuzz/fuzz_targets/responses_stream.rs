//! A model's answer in the Responses API from any bytes. The first byte says how the rest is cut,
//! which must change nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::llm::responses::transcribe;

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, stream)) = bytes.split_first() {
        let pieces = stream.chunks(1 + usize::from(*size));
        assert_eq!(transcribe("m", &[], pieces), transcribe("m", &[], [stream]));
    }
});
