//! Decodes any bytes. What is decoded as text is encoded to the same bytes again, and an inserted
//! first line leaves the bytes of the other lines as they are.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_workspace::files::fuzzing::{decode, decode_lines};

fuzz_target!(|bytes: &[u8]| {
    let lines: Vec<_> = bytes.split(|it| *it == b'\n').map(<[u8]>::to_vec).collect();
    assert_eq!(decode_lines(&lines).len(), lines.len());
    let Some((text, encoding)) = decode(bytes.to_vec()) else { return };
    assert_eq!(encoding.encode(&text).as_deref(), Ok(bytes));
    if let Ok(longer) = encoding.encode(&format!("x = 1;\n{text}")) {
        let bom = if encoding.has_bom { if bytes[0] == 0xef { 3 } else { 2 } } else { 0 };
        assert!(longer.ends_with(&bytes[bom..]) && longer.starts_with(&bytes[..bom]));
    }
});
