//! Measures version 2 of the protocol beside version 1. Both are measured in turn, in pairs, and each pair has a
//! ratio: what slows the machine down for a while slows down both halves of a pair, and the median of the ratios
//! does not depend on the few pairs of which it slows down one. Half of the pairs begin with version 2.

use std::io;

use crate::agent::{draw_terminals, speak_version};
use crate::model::Model;
use crate::table::{Figure, Table, median};
use crate::{Measurement, Rounds};

/// How much more than version 1 a row of version 2 may have.
const BUDGET: f64 = 1.1;
/// From this number of pairs on, the lowest and the highest ratio are not part of the range.
const MANY_PAIRS: usize = 7;

pub(crate) fn compare(
    measurements: impl Iterator<Item = Measurement>,
    pairs: usize,
    rounds: Rounds,
) -> io::Result<()> {
    let model = Model::start()?;
    // All clients of version 2 do.
    draw_terminals();
    println!("{pairs} pairs of each row\n");
    println!(
        "{:<50} {:>14} {:>14} {:>6}  {:<11} ≤ {BUDGET}",
        "benchmark", "version 1", "version 2", "ratio", "range"
    );
    let mut verdicts = Vec::new();
    for (_, measure) in measurements {
        let run = |version| {
            speak_version(version);
            let mut table = Table::silent();
            measure(&mut table, &model, rounds)?;
            io::Result::Ok(table.into_figures())
        };
        let mut rows = Vec::new();
        for pair in 0..pairs {
            let (one, two) = if pair % 2 == 0 {
                let one = run(1)?;
                (one, run(2)?)
            } else {
                let two = run(2)?;
                (run(1)?, two)
            };
            rows.resize_with(one.len(), ComparedRow::default);
            for (row, (one, two)) in rows.iter_mut().zip(one.into_iter().zip(two)) {
                row.add(one, &two);
            }
        }
        verdicts.extend(rows.iter().map(ComparedRow::print));
    }
    let count = |verdict| verdicts.iter().filter(|it| **it == verdict).count();
    println!(
        "\n{} rows: {} within the budget, {} above it, {} too close to it to tell, {} without a ratio",
        verdicts.len(),
        count(Verdict::Met),
        count(Verdict::NotMet),
        count(Verdict::Unclear),
        count(Verdict::NoRatio),
    );
    Ok(())
}

/// The figures of a row in all pairs.
#[derive(Default)]
struct ComparedRow {
    name: String,
    unit: String,
    one: Vec<f64>,
    two: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    /// The whole range is within the budget.
    Met,
    /// No part of it is.
    NotMet,
    /// The budget lies in the range.
    Unclear,
    /// What was measured is zero or less in some of version 1.
    NoRatio,
}

impl ComparedRow {
    fn add(&mut self, one: Figure, two: &Figure) {
        (self.name, self.unit) = (one.name, one.unit);
        self.one.push(one.measured);
        self.two.push(two.measured);
    }

    /// The ratios of the pairs, the lowest first. Two zeros are equal.
    fn ratios(&self) -> Option<Vec<f64>> {
        let ratio = |(one, two): (&f64, &f64)| match one {
            one if one.total_cmp(two).is_eq() => Some(1.0),
            one => (*one > 0.0).then(|| two / one),
        };
        let mut ratios: Vec<_> =
            self.one.iter().zip(&self.two).map(ratio).collect::<Option<_>>()?;
        ratios.sort_by(f64::total_cmp);
        Some(ratios)
    }

    fn print(&self) -> Verdict {
        let shown = |it: &Vec<f64>| format!("{:.2} {}", median(it.clone()), self.unit);
        let (one, two) = (shown(&self.one), shown(&self.two));
        let figures = format!("{:<50} {one:>14} {two:>14}", self.name);
        let Some(ratios) = self.ratios() else {
            println!("{figures}");
            return Verdict::NoRatio;
        };
        let left_out = usize::from(ratios.len() >= MANY_PAIRS);
        let (low, high) = (ratios[left_out], ratios[ratios.len() - 1 - left_out]);
        let (verdict, words) = if high <= BUDGET {
            (Verdict::Met, "yes")
        } else if low > BUDGET {
            (Verdict::NotMet, "NO")
        } else {
            (Verdict::Unclear, "not sure")
        };
        let (range, ratio) = (format!("{low:.2}–{high:.2}"), median(ratios));
        println!("{figures} {ratio:>6.2}  {range:<11} {words}");
        verdict
    }
}
