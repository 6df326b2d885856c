//! Detects an answer in which the model makes the same call again and again. Some models never stop
//! by themselves, and the answer would fail at its limit of calls.

use std::ops::Range;

/// Identical consecutive calls that count as a loop.
const MAX_IN_ROW: usize = 3;
/// Identical calls that count as a loop if there are others between them.
const MAX_IN_ALL: usize = 6;

/// The place of the first call that only repeats an earlier one, once an answer goes round in
/// circles. The calls before it are what the model meant.
pub(crate) fn first_repeat<T: PartialEq>(calls: &[T]) -> Option<usize> {
    (0..calls.len()).find_map(|last| {
        let is_same = |index: &usize| calls[*index] == calls[last];
        let earlier: Range<usize> = 0..last;
        let in_row = earlier.clone().rev().take_while(is_same).count() + 1;
        let mut same = earlier.filter(is_same);
        if in_row >= MAX_IN_ROW {
            return Some(last + 2 - in_row);
        }
        let second = same.nth(1)?;
        (same.count() + 3 >= MAX_IN_ALL).then_some(second)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_repeats_is_found() {
        for (calls, expected) in [
            ("", None),
            ("a", None),
            ("aa", None),
            ("aaa", Some(1)),
            ("aaaa", Some(1)),
            ("abaa", None),
            ("abaaa", Some(3)),
            ("baaac", Some(2)),
            ("abababab", None),
            ("abacadaeaf", None),
            ("ababababab", None),
            ("ababababaca", Some(2)),
            ("ababababababab", Some(2)),
            ("abcdefghijklmnop", None),
        ] {
            let calls: Vec<_> = calls.chars().collect();
            assert_eq!(first_repeat(&calls), expected, "{calls:?}");
        }
    }
}
