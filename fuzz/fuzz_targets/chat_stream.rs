//! Any bytes as a chat completions reply. The first byte determines how the rest is cut into pieces,
//! which must not matter.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_llm::Protocol;
use turnwright_llm::internals::read_reply;

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, stream)) = bytes.split_first() {
        let pieces = stream.chunks(1 + usize::from(*size));
        let tools = ["read_file".to_owned()];
        let cut = read_reply(Protocol::Chat, "qwq", &tools, pieces);
        let whole = read_reply(Protocol::Chat, "qwq", &tools, [stream]);
        assert_eq!(format!("{cut:?}"), format!("{whole:?}"));
    }
});
