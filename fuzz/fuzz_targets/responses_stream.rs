//! Any bytes as a reply of the Responses API. The first byte determines how the rest is cut into
//! pieces, which must not matter.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_llm::Protocol;
use turnwright_llm::internals::read_reply;

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, stream)) = bytes.split_first() {
        let pieces = stream.chunks(1 + usize::from(*size));
        let cut = read_reply(Protocol::Responses, "m", &[], pieces);
        let whole = read_reply(Protocol::Responses, "m", &[], [stream]);
        assert_eq!(format!("{cut:?}"), format!("{whole:?}"));
    }
});
