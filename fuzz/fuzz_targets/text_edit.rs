//! Applies an edit to any text. The input is the text, the old and the new piece, separated by NUL
//! bytes. The result differs only in the reported lines.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_workspace::edit::{TextEdit, apply, line_changes};

fuzz_target!(|input: &str| {
    let mut parts = input.splitn(3, '\0');
    let (Some(text), Some(old), Some(new)) = (parts.next(), parts.next(), parts.next()) else {
        return;
    };
    for all in [false, true] {
        let edit = TextEdit { old: old.to_owned(), new: new.to_owned(), replace_all: all };
        match apply(text, &[edit]) {
            Ok(applied) => {
                line_changes::render_changed_lines(&applied.text, &applied.changes, &mut {
                    line_changes::MAX_SHOWN_LINES
                });
                line_changes::render_diff(text, &applied.text, &applied.changes);
                let first = applied.changes.first().map_or(usize::MAX, |it| it.before.start);
                let same = text.split_inclusive('\n').zip(applied.text.split_inclusive('\n'));
                assert!(same.take(first).all(|(a, b)| a == b));
            }
            Err(error) => {
                error.explain("f", 1);
            }
        }
    }
});
