//! A file of any bytes: what is read as text is written back byte by byte, and a line put before
//! it leaves the bytes of the others.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::files::inside::{decode, decode_lines};

fuzz_target!(|bytes: &[u8]| {
    let lines: Vec<_> = bytes.split(|it| *it == b'\n').map(<[u8]>::to_vec).collect();
    assert_eq!(decode_lines(&lines).len(), lines.len());
    let Some((text, form)) = decode(bytes.to_vec()) else { return };
    assert_eq!(form.encode(&text).as_deref(), Ok(bytes));
    if let Ok(longer) = form.encode(&format!("x = 1;\n{text}")) {
        let mark = if form.mark { if bytes[0] == 0xef { 3 } else { 2 } } else { 0 };
        assert!(longer.ends_with(&bytes[mark..]) && longer.starts_with(&bytes[..mark]));
    }
});
