//! A page from any bytes, as any of the types that a server may say: the first byte says which.
//! What is made of it is bounded and hides nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::web::{Fetched, parse, unfold, wrap};

const KINDS: &[&str] = &[
    "text/html",
    "text/html; charset=utf-8",
    "text/html; charset=shift_jis",
    "text/plain; charset=utf-16le",
    "application/json",
    "image/png",
    "",
];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let kind = KINDS[usize::from(*first) % KINDS.len()].to_owned();
    let Ok(url) = parse("https://example.com/a/b?c#d") else { return };
    let (bytes, length) = (bytes.to_vec(), None);
    let fetched = Fetched { url, status: 200, kind, bytes, length, cut: false, redirect: None };
    for raw in [false, true] {
        let page = unfold(&fetched, raw);
        let is_hidden = |it: char| it.is_control() && !"\n\t".contains(it);
        assert!(!page.text.contains(is_hidden), "{:?}", page.text);
        assert!(page.title.is_none_or(|it| !it.is_empty() && !it.contains('\n')));
        assert!(page.text.len() < 100_000 + 100 * fetched.bytes.len());
        wrap("https://example.com/", &page.text);
    }
});
