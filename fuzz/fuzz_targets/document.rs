//! Reads any bytes as a document. The text is bounded and contains no hidden characters. The first byte chooses how they
//! begin.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_documents::extract;

const BEGINNINGS: [&[u8]; 4] = [b"", b"%PDF-1.7\n", b"PK\x03\x04", b"{\"nbformat\":4,\"cells\":["];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let document = [BEGINNINGS[usize::from(*first) % BEGINNINGS.len()], bytes].concat();
    let pages = std::str::from_utf8(bytes).ok();
    for pages in [None, Some("2-"), pages] {
        let Ok(Some(read)) = extract(&document, pages) else { continue };
        assert!(!read.about.contains(char::is_control), "{:?}", read.about);
        assert!(!read.text.contains(|char: char| char.is_control() && !"\n\t".contains(char)));
        assert!(read.text.len() < 10 << 20, "{}", read.text.len());
    }
});
