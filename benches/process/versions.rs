//! Measures version 2 of the protocol beside version 1: each row with both figures and their ratio.

use std::io;

use crate::agent::{draw_terminals, speak_version};
use crate::model::Model;
use crate::table::{Figure, Table};
use crate::{Measurement, Rounds};

/// How much more than version 1 a row of version 2 may have.
const BUDGET: f64 = 1.1;

pub(crate) fn compare(
    measurements: impl Iterator<Item = Measurement>,
    rounds: Rounds,
) -> io::Result<()> {
    let model = Model::start()?;
    // All clients of version 2 do.
    draw_terminals();
    println!("{:<50} {:>14} {:>14} {:>8}", "benchmark", "version 1", "version 2", "ratio");
    let (mut rows, mut over) = (0, 0);
    for (_, measure) in measurements {
        let run = |version| {
            speak_version(version);
            let mut table = Table::silent();
            measure(&mut table, &model, rounds)?;
            io::Result::Ok(table.into_figures())
        };
        // In this order, what becomes slower or faster meanwhile counts for both.
        let (one, two) = (run(1)?, run(2)?);
        let (two, one) = (lower(two, run(2)?), lower(one, run(1)?));
        for (one, two) in one.iter().zip(&two) {
            let ratio = two.measured / one.measured;
            let verdict = if ratio > BUDGET { "NOT MET" } else { "" };
            rows += 1;
            over += usize::from(ratio > BUDGET);
            let shown = |it: &Figure| format!("{:.2} {}", it.measured, it.unit);
            println!(
                "{:<50} {:>14} {:>14} {ratio:>8.2} {verdict}",
                one.name,
                shown(one),
                shown(two)
            );
        }
    }
    println!("\n{rows} rows, {over} of version 2 above {BUDGET} × version 1");
    Ok(())
}

/// The lower figures of two runs, which other programs have disturbed least.
fn lower(one: Vec<Figure>, other: Vec<Figure>) -> Vec<Figure> {
    let lower = |(one, other): (Figure, Figure)| {
        if one.measured <= other.measured { one } else { other }
    };
    one.into_iter().zip(other).map(lower).collect()
}
