//! Tests of the names and files that are looked up.

use super::*;

#[test]
fn a_name_is_found_as_a_whole_word_on_its_line() {
    let text = "fn sum(a: u8) {}\n// sums\nlet x = sum(1) + checksum(2);\n\u{e4}sum sum";
    let table: [(&str, Option<u32>, &[usize]); 9] = [
        ("sum", None, &[3, 33, 61]),
        ("sum", Some(3), &[33]),
        ("sum", Some(2), &[]),
        ("math::sum", Some(4), &[61]),
        ("x.sum()", Some(3), &[33]),
        ("sums", None, &[20]),
        ("", None, &[]),
        ("nothing", None, &[]),
        ("\u{e4}sum", None, &[55]),
    ];
    for (symbol, line, expected) in table {
        assert_eq!(occurrences(text, symbol, line), expected, "{symbol} {line:?}");
    }
    assert_eq!(occurrences(&"a ".repeat(99), "a", None).len(), MAX_TRIES);
}

#[test]
fn the_folder_of_a_server_has_no_path_in_its_name() {
    assert_eq!(folder_name("../a b/c"), "---a-b-c");
    assert_eq!(folder_name(&"x".repeat(999)).len(), 64);
}

#[tokio::test]
async fn only_text_of_bounded_length_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let real = real_path(dir.path()).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
        std::fs::write(real.join(name), bytes).unwrap();
        real.join(name)
    };
    let text = write("text", b"a\n");
    let binary = write("binary", b"\xff");
    let long = write("long", &vec![b'x'; 1024 * 1024 + 1]);
    assert!(matches!(read_text(&text).await, ReadText::Text(text) if &*text == "a\n"));
    for file in [&binary, &long, &real] {
        assert!(matches!(read_text(file).await, ReadText::NotText), "{}", file.display());
    }
    assert!(matches!(read_text(&real.join("gone")).await, ReadText::Missing));
}
