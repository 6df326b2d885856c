//! The rung that overlooks indentation, if all lines are indented differently in the same way. What
//! was measured on the quoted lines is done to the new ones.

use super::rows::{Rows, answer, lines_of, windows};
use super::{Answer, MOST_NAMED, Query, Rung};

/// Comparisons of lines, in all, that finding one place may cost.
const MOST_WORK: usize = 4_000_000;
/// The widest tab that anybody sets.
const WIDEST_TAB: usize = 16;

/// How the indentation of a file differs from what was quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shift {
    /// Something goes from the beginning of each line, or comes there.
    Prefix { take: String, put: String },
    /// So many spaces, but for an offset, are a tab.
    ToTabs { width: usize, offset: isize },
    /// A tab is so many spaces, and an offset.
    ToSpaces { width: usize, offset: isize },
}

/// Overlooks a shift of the indentation.
pub(super) fn indented<'a>(rows: &Rows<'_>, query: &Query<'a>) -> Answer<'a> {
    let old = lines_of(query.old);
    let wanted: Vec<_> = old.iter().map(|it| it.trim()).collect();
    let within = rows.within(&query.within);
    let area = rows.rows.get(within.start..).unwrap_or_default();
    let (mut hits, mut shifts, mut count, mut work) = (Vec::new(), Vec::new(), 0, 0);
    windows(area, &wanted, str::trim, |at| {
        let row = within.start + at;
        if row >= within.end || work > MOST_WORK {
            return false;
        }
        let file = &rows.rows[row..row + old.len()];
        if let Some(shift) = Shift::of(file, &old, &mut work) {
            count += 1;
            if hits.len() < MOST_NAMED {
                hits.push(row);
                shifts.push(shift);
            }
        }
        true
    });
    // Not all of the text was looked at: what was found may not be the only one.
    if work > MOST_WORK {
        return None;
    }
    let shift = shifts.into_iter().next()?;
    let rung = Rung::Indentation(shift.to_string());
    answer(rows, hits, count, rung, |row, rung| {
        rows.found(row, query, rung, |line| shift.apply(line))
    })
}

impl Shift {
    /// The one shift that explains all lines.
    fn of(file: &[&str], old: &[&str], work: &mut usize) -> Option<Shift> {
        let mut pairs = Vec::with_capacity(old.len().min(64));
        let mut prefix: Option<Option<(&str, &str)>> = None;
        let mut kinds = (Blank::default(), Blank::default());
        for (file, old) in file.iter().zip(old) {
            *work += 1;
            if old.trim().is_empty() {
                continue;
            }
            let (file, old) = (indentation(file), indentation(old));
            kinds.0.see(file);
            kinds.1.see(old);
            let this = difference(file, old);
            let so_far = *prefix.get_or_insert(this);
            if so_far != this {
                prefix = Some(None);
            }
            let pair = (file.len(), old.len());
            if pairs.last() != Some(&pair) {
                pairs.push(pair);
            }
            let is_hopeless = prefix == Some(None) && !kinds.0.differs(kinds.1);
            if is_hopeless && !(kinds.0.is_nothing() || kinds.1.is_nothing()) {
                return None;
            }
        }
        if kinds.0.is_tabs() && kinds.1.is_spaces() {
            let swapped = pairs.iter().map(|(file, old)| (*old, *file));
            return line(swapped).map(|(width, offset)| Shift::ToTabs { width, offset });
        }
        if kinds.0.is_spaces() && kinds.1.is_tabs() {
            return line(pairs.into_iter())
                .map(|(width, offset)| Shift::ToSpaces { width, offset });
        }
        let (take, put) = prefix.flatten()?;
        Some(Shift::Prefix { take: take.to_owned(), put: put.to_owned() })
    }

    /// A new line as it would have been written in the file, if that can be said.
    fn apply(&self, line: &str) -> Option<String> {
        let body = line.trim_start();
        if body.is_empty() {
            return Some(String::new());
        }
        let own = indentation(line);
        let (tabs, spaces) = match self {
            Shift::Prefix { take, put } => {
                let rest = own.strip_prefix(take.as_str())?;
                let mixes = (put.contains('\t') && rest.contains(' '))
                    || (put.contains(' ') && rest.contains('\t'));
                return (!mixes).then(|| format!("{put}{rest}{body}"));
            }
            Shift::ToTabs { width, offset } => {
                if own.contains('\t') {
                    return None;
                }
                let rest = own.len().checked_add_signed(-offset)?;
                (rest / width, rest % width)
            }
            Shift::ToSpaces { width, offset } => {
                if own.contains(' ') {
                    return None;
                }
                (0, (own.len() * width).checked_add_signed(*offset)?)
            }
        };
        Some(format!("{}{}{body}", "\t".repeat(tabs), " ".repeat(spaces)))
    }
}

/// What goes from the beginning of a line and what comes there.
fn difference<'l>(file: &'l str, old: &'l str) -> Option<(&'l str, &'l str)> {
    match file.strip_suffix(old) {
        Some(put) => Some(("", put)),
        None => old.strip_suffix(file).map(|take| (take, "")),
    }
}

/// The line through pairs of a wide and a narrow indentation: how wide one step is, and what is
/// added to all.
fn line(mut pairs: impl Iterator<Item = (usize, usize)>) -> Option<(usize, isize)> {
    let first = pairs.next()?;
    let rest: Vec<_> = pairs.filter(|it| *it != first).collect();
    let (width, offset) = match rest.first() {
        None => {
            let is_whole = first.1 > 0 && first.0.is_multiple_of(first.1);
            (first.0.checked_div(first.1).filter(|_| is_whole)?, 0)
        }
        Some(other) => {
            let (low, high) = if other.1 > first.1 { (first, *other) } else { (*other, first) };
            let (wide, narrow) = (high.0.checked_sub(low.0)?, high.1 - low.1);
            let is_whole = narrow > 0 && wide.is_multiple_of(narrow);
            let width = wide.checked_div(narrow).filter(|_| is_whole)?;
            (width, low.0.cast_signed() - (low.1 * width).cast_signed())
        }
    };
    let fits = |(wide, narrow): &(usize, usize)| {
        wide.cast_signed() == (narrow * width).cast_signed() + offset
    };
    let is_tab = (2..=WIDEST_TAB).contains(&width);
    (is_tab && rest.iter().all(fits)).then_some((width, offset))
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// What indentations are made of.
#[derive(Clone, Copy, Debug, Default)]
struct Blank {
    tabs: bool,
    spaces: bool,
    others: bool,
}

impl Blank {
    fn see(&mut self, indentation: &str) {
        for char in indentation.chars() {
            match char {
                '\t' => self.tabs = true,
                ' ' => self.spaces = true,
                _ => self.others = true,
            }
        }
    }

    fn is_tabs(self) -> bool {
        self.tabs && !self.spaces && !self.others
    }

    fn is_spaces(self) -> bool {
        self.spaces && !self.tabs && !self.others
    }

    fn is_nothing(self) -> bool {
        !self.tabs && !self.spaces && !self.others
    }

    fn differs(self, other: Blank) -> bool {
        self.is_tabs() && other.is_spaces() || self.is_spaces() && other.is_tabs()
    }
}

impl std::fmt::Display for Shift {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = |text: &str| match (text.len(), text.contains('\t')) {
            (1, true) => "1 tab".to_owned(),
            (count, true) => format!("{count} tabs"),
            (count, false) => count.to_string(),
        };
        match self {
            Shift::Prefix { take, put } if take.is_empty() => write!(formatter, "+{}", words(put)),
            Shift::Prefix { take, .. } => write!(formatter, "−{}", words(take)),
            Shift::ToTabs { width, .. } => write!(formatter, "from {width} spaces to tabs"),
            Shift::ToSpaces { width, .. } => write!(formatter, "from tabs to {width} spaces"),
        }
    }
}
