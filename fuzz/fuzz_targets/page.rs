//! Converts arbitrary bytes to a page. The first byte chooses the content type; the text is bounded and contains no
//! hidden characters.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_workspace::web::{FetchedBody, parse_url, to_page, wrap_untrusted};

const CONTENT_TYPES: &[&str] = &[
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
    let content_type = CONTENT_TYPES[usize::from(*first) % CONTENT_TYPES.len()].to_owned();
    let Ok(url) = parse_url("https://example.com/a/b?c#d") else { return };
    let (bytes, length) = (bytes.to_vec(), None);
    let fetched = FetchedBody {
        url,
        status: 200,
        content_type,
        bytes,
        length,
        is_truncated: false,
        redirect: None,
    };
    for raw in [false, true] {
        let page = to_page(&fetched, raw);
        let is_hidden = |it: char| it.is_control() && !"\n\t".contains(it);
        assert!(!page.text.contains(is_hidden), "{:?}", page.text);
        assert!(page.title.is_none_or(|it| !it.is_empty() && !it.contains('\n')));
        assert!(page.text.len() < 100_000 + 100 * fetched.bytes.len());
        wrap_untrusted("https://example.com/", &page.text);
    }
});
