//! Sorting of short lists in little code.
//!
//! The standard library makes about five kilobytes of code for each type and order that is sorted. These functions
//! sort the positions, for which there is one such copy in the program, and then move the items. Where lists
//! are long, the standard library's are faster.

use std::cmp::Ordering;
use std::mem;

/// Does what [`slice::sort_by`] does.
pub fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let mut order =
        sorted_positions(items.len(), &mut |one, other| compare(&items[one], &items[other]));
    // Each cycle of the permutation is followed once; a position is its own when its item is there.
    for start in 0..order.len() {
        let mut place = start;
        loop {
            let from = mem::replace(&mut order[place], place);
            if from == start {
                break;
            }
            items.swap(place, from);
            place = from;
        }
    }
}

/// Does what [`slice::sort_by_key`] does.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |one, other| key(one).cmp(&key(other)));
}

fn sorted_positions(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    order.sort_by(|one, other| compare(*one, *other));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Equal keys show that the order of equal items stays.
        #[test]
        fn sorts_as_the_standard_library(keys in prop::collection::vec(0_u8..8, 0..50)) {
            let items: Vec<_> = keys.into_iter().enumerate().collect();
            let (mut ours, mut theirs) = (items.clone(), items);
            sort_by_key(&mut ours, |it| it.1);
            theirs.sort_by_key(|it| it.1);
            prop_assert_eq!(ours, theirs);
        }
    }
}
