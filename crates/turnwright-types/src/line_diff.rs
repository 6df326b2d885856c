//! Diffs two sequences, and prints the differences of two texts. All elements are compared as numbers
//! and by one algorithm: the compiler would generate the whole algorithm again for each element type,
//! and for each algorithm selectable at run time, which is megabytes of code.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::ops::Range;
use std::time::Instant;

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::{ChangeTag, group_diff_ops};

pub use similar::{DiffOp, diff_ratio};

/// The operations that turn `old` into `new`. After `deadline` the result is coarser.
pub fn align<T: Eq + Hash>(
    old: impl IntoIterator<Item = T>,
    new: impl IntoIterator<Item = T>,
    deadline: Option<Instant>,
) -> Vec<DiffOp> {
    let mut numbers = HashMap::new();
    let mut number = |element: T| {
        let next = numbers.len();
        *numbers.entry(element).or_insert(next)
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

/// The least number of equal lines around the difference of two texts that are compared, so that a change
/// among equal lines can be moved to where it is clearest.
const COMPARED_LINES: usize = 16;

/// The numbers of equal elements at the beginning and at the end. None of these counts for both.
pub fn common_ends<Element: PartialEq>(old: &[Element], new: &[Element]) -> (usize, usize) {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let ends = old[head..].iter().rev().zip(new[head..].iter().rev());
    (head, ends.take_while(|(old, new)| old == new).count())
}

/// The hunks of a unified diff of two texts, with `context` unchanged lines around each change. Empty
/// if they are equal. After `deadline` the result is coarser.
pub fn unified_diff(old: &str, new: &str, context: usize, deadline: Option<Instant>) -> String {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    // Comparing lines as numbers costs more than comparing their bytes.
    let (same, same_end) = common_ends(&old, &new);
    let margin = COMPARED_LINES.max(context);
    let start = same.saturating_sub(margin);
    let cut = same_end.saturating_sub(margin);
    let old = &old[start..old.len() - cut];
    let new = &new[start..new.len() - cut];
    let ops = align(old.iter().copied(), new.iter().copied(), deadline);
    let mut text = String::new();
    for hunk in group_diff_ops(ops, context) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let before = hunk_range(start, first.old_range().start..last.old_range().end);
        let after = hunk_range(start, first.new_range().start..last.new_range().end);
        text.push_str(&format!("@@ -{before} +{after} @@\n"));
        for (tag, range) in hunk.iter().flat_map(changes) {
            let (sign, lines) = match tag {
                ChangeTag::Equal => (' ', &old[range]),
                ChangeTag::Delete => ('-', &old[range]),
                ChangeTag::Insert => ('+', &new[range]),
            };
            for line in lines {
                text.push(sign);
                text.push_str(line);
                if !line.ends_with('\n') {
                    text.push_str("\n\\ No newline at end of file\n");
                }
            }
        }
    }
    text
}

/// The parts of an operation: which lines of which text are kept, removed or added.
fn changes(op: &DiffOp) -> impl Iterator<Item = (ChangeTag, Range<usize>)> {
    let old = op.old_range();
    let new = op.new_range();
    let parts = match op {
        DiffOp::Equal { .. } => [Some((ChangeTag::Equal, old)), None],
        _ => [Some((ChangeTag::Delete, old)), Some((ChangeTag::Insert, new))],
    };
    parts.into_iter().flatten()
}

/// A range of lines as unified diffs write it. `first` is the index of the first compared line.
fn hunk_range(first: usize, lines: Range<usize>) -> String {
    let start = first + lines.start;
    match lines.len() {
        0 => format!("{start},0"),
        1 => (start + 1).to_string(),
        count => format!("{},{count}", start + 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use similar::TextDiff;

    use super::*;

    #[test]
    fn a_diff_has_hunks_with_context() {
        let old = "a\nb\nc\nd\ne\nf\n";
        let expected = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -6 +6,2 @@\n f\n+g\n\\ No newline at end of file\n";
        assert_eq!(unified_diff(old, "a\nB\nc\nd\ne\nf\ng", 1, None), expected);
        assert_eq!(unified_diff(old, old, 3, None), "");
    }

    proptest! {
        #[test]
        fn a_diff_is_that_of_the_library(
            old in "[ab\n]{0,30}",
            new in "[ab\n]{0,30}",
            context in 0_usize..4,
            before in 0_usize..60,
            after in 0_usize..60,
        ) {
            let lines = |count: usize| {
                (0..count).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat()
            };
            let [old, new] =
                [old, new].map(|middle| format!("{}{middle}\n{}", lines(before), lines(after)));
            let whole = TextDiff::from_lines(&old, &new);
            let expected = whole.unified_diff().context_radius(context).to_string();
            prop_assert_eq!(unified_diff(&old, &new, context, None), expected);
        }
    }
}
