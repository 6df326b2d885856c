//! What two sequences have in common. Everything is compared as numbers, by one algorithm: the
//! compiler writes the whole of it again for each sort of thing that is compared, and for each
//! algorithm where one is chosen at run time, and that is megabytes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::time::Instant;

use similar::DiffOp;
use similar::algorithms::{Capture, Compact, Replace, myers};

/// How the one becomes the other. After `deadline` the answer is coarser.
pub(super) fn align<T: Eq + Hash>(
    old: impl IntoIterator<Item = T>,
    new: impl IntoIterator<Item = T>,
    deadline: Option<Instant>,
) -> Vec<DiffOp> {
    let mut names = HashMap::new();
    let mut number = |it: T| {
        let next = names.len();
        *names.entry(it).or_insert(next)
    };
    let old: Vec<usize> = old.into_iter().map(&mut number).collect();
    let new: Vec<usize> = new.into_iter().map(&mut number).collect();
    align_numbers(&old, &new, deadline)
}

fn align_numbers(old: &[usize], new: &[usize], deadline: Option<Instant>) -> Vec<DiffOp> {
    let mut hook = Compact::new(Replace::new(Capture::new()), old, new);
    let done: Result<(), Infallible> =
        myers::diff_deadline(&mut hook, old, 0..old.len(), new, 0..new.len(), deadline);
    match done {
        Ok(()) => hook.into_inner().into_inner().into_ops(),
    }
}
