//! An edit of any text: three parts with a zero byte between them. What comes out differs where that
//! is said, and the rest is what it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::edit::{Edit, apply, spots};

fuzz_target!(|input: &str| {
    let mut parts = input.splitn(3, '\0');
    let (Some(text), Some(old), Some(new)) = (parts.next(), parts.next(), parts.next()) else {
        return;
    };
    for all in [false, true] {
        let edit = Edit { old: old.to_owned(), new: new.to_owned(), all };
        match apply(text, &[edit]) {
            Ok(applied) => {
                spots::show(&applied.text, &applied.spots, &mut { spots::MOST_LINES });
                spots::changes(text, &applied.text, &applied.spots);
                let first = applied.spots.first().map_or(usize::MAX, |it| it.before.start);
                let same = text.split_inclusive('\n').zip(applied.text.split_inclusive('\n'));
                assert!(same.take(first).all(|(a, b)| a == b));
            }
            Err(refusal) => {
                refusal.explain("f", 1);
            }
        }
    }
});
