//! Diffs two sequences. All elements are compared as numbers and by one algorithm: the compiler
//! would generate the whole algorithm again for each element type, and for each algorithm
//! selectable at run time, which is megabytes of code.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::time::Instant;

use similar::DiffOp;
use similar::algorithms::{Capture, Compact, Replace, myers};

/// The operations that turn `old` into `new`. After `deadline` the result is coarser.
pub(super) fn align<T: Eq + Hash>(
    old: impl IntoIterator<Item = T>,
    new: impl IntoIterator<Item = T>,
    deadline: Option<Instant>,
) -> Vec<DiffOp> {
    let mut numbers = HashMap::new();
    let mut number = |it: T| {
        let next = numbers.len();
        *numbers.entry(it).or_insert(next)
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
