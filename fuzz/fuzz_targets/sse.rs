//! Any bytes as server-sent events. The first byte determines how the rest is cut into pieces, which
//! must not matter.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_llm::sse::{Decoder, Event};

fn decode(bytes: &[u8], size: usize) -> Vec<(String, String)> {
    let mut decoder = Decoder::default();
    let mut events = Vec::new();
    let mut keep = |it: Event<'_>| events.push((it.name.to_owned(), it.data.to_owned()));
    for chunk in bytes.chunks(size) {
        decoder.push(chunk, &mut keep).expect("the fuzzer's inputs are small");
    }
    decoder.finish(&mut keep);
    events
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, stream)) = bytes.split_first() {
        let whole = decode(stream, stream.len().max(1));
        assert_eq!(whole, decode(stream, 1 + usize::from(*size)));
    }
});
