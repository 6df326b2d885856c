//! The results as a table for a terminal, and how numbers are written for people.

use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use crate::schedule::short_time;
use crate::summary::{Cell, Column, Comparison, MEASURES, Summary};
use turnwright_types::effect::escape_hidden_line;

/// Stands for what is not known.
pub(crate) const UNKNOWN: &str = "–";

/// The results as text. The last lines tell what the server named a model, and what the comparison says.
pub fn text(summary: &Summary) -> String {
    let Summary { tasks, columns, comparisons } = summary;
    let mut rows = vec![row("", columns.iter().map(|column| column.name.clone()))];
    for task in tasks {
        rows.push(row(task, columns.iter().map(|column| tally(column.cells.get(task)))));
    }
    rows.push(Vec::new());
    rows.push(row("passed", columns.iter().map(|column| tally(Some(&column.total)))));
    rows.push(row("rate", columns.iter().map(|column| percent(column.rate))));
    rows.push(row("interval", columns.iter().map(|column| interval(column.interval))));
    rows.push(Vec::new());
    rows.push(vec![MEDIANS_TITLE.to_owned()]);
    for (key, name, _) in MEASURES {
        rows.push(row(name, columns.iter().map(|column| median_text(column, key))));
    }
    let mut text = aligned(&rows);
    let served = columns.iter().filter_map(served_note);
    let compared = comparisons.iter().flat_map(Comparison::sentences);
    text.extend(served.chain(compared).map(|line| format!("\n{}\n", escape_hidden_line(&line))));
    text
}

pub(crate) const MEDIANS_TITLE: &str = "Medians of a trial";

/// The median of a measure, as it is shown.
pub(crate) fn median_text(column: &Column, key: &str) -> String {
    let median = column.medians.get(key).copied().flatten();
    match key {
        "cost" => money(median),
        "seconds" => seconds(median),
        _ => count(median),
    }
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    let cells = [name.to_owned()].into_iter().chain(cells);
    cells.map(|cell| escape_hidden_line(&cell)).collect()
}

/// Tells the model that the server named, if it is another one.
fn served_note(column: &Column) -> Option<String> {
    let mut others = column.served.clone();
    others.retain(|served| !column.variant.model.ends_with(served.as_str()));
    let named = others.join(", ");
    (!named.is_empty()).then(|| format!("{}: the server named it {named}.", column.name))
}

/// `4/5`, with the invalid ones if there are any.
pub(crate) fn tally(cell: Option<&Cell>) -> String {
    known(cell, |cell| match cell.invalid {
        0 => format!("{}/{}", cell.passed, cell.trials),
        invalid => format!("{}/{} ({invalid} invalid)", cell.passed, cell.trials),
    })
}

pub(crate) fn percent(rate: Option<f64>) -> String {
    known(rate, |rate| format!("{:.0} %", rate * 100.0))
}

pub(crate) fn interval(rates: Option<(f64, f64)>) -> String {
    known(rates, |(low, high)| format!("{:.0}–{:.0} %", low * 100.0, high * 100.0))
}

/// A count with at most three digits: `950`, `12.3 k`, `1.24 M`.
pub(crate) fn count(value: Option<f64>) -> String {
    known(value, |value| match value {
        value if value < 999.5 => format!("{value:.0}"),
        value if value < 99_950.0 => format!("{:.1} k", value / 1e3),
        value if value < 999_500.0 => format!("{:.0} k", value / 1e3),
        value => format!("{:.2} M", value / 1e6),
    })
}

/// US dollars; small amounts with more digits.
pub(crate) fn money(value: Option<f64>) -> String {
    known(value, |value| if value < 0.1 { format!("${value:.4}") } else { format!("${value:.2}") })
}

fn seconds(value: Option<f64>) -> String {
    let time = value.map(|value| Duration::try_from_secs_f64(value.max(0.0)));
    known(time, |time| short_time(time.unwrap_or(Duration::MAX)))
}

/// A value as it is shown, if it is known.
pub(crate) fn known<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), shown)
}

/// Lays out rows: the first column is on the left, and the others, which are numbers, on the right.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(index, (cell, width))| {
            let padding = " ".repeat(width - cell.width());
            if index == 0 { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Outcome;
    use crate::results::tests::line;

    #[test]
    fn numbers_are_on_the_right_and_names_on_the_left() {
        let lines = [
            line("修复", "m", 1, Outcome::Passed),
            line("修复", "m", 2, Outcome::Failed),
            line("rename", "other", 1, Outcome::Invalid),
        ];
        let found = text(&Summary::of(&lines));
        assert!(
            found.lines().any(|line| line.starts_with("修复  ") && line.ends_with("–")),
            "{found}"
        );
        assert!(found.lines().any(|line| line.ends_with("0/0 (1 invalid)")), "{found}");
        let sentence = "\nother: the server named it other-served.\n";
        assert!(found.contains(sentence) && found.contains("Cannot tell: "), "{found}");
    }

    #[test]
    fn numbers_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (950.0, "950"),
            (12_345.0, "12.3 k"),
            (123_456.0, "123 k"),
            (1_240_000.0, "1.24 M"),
        ] {
            assert_eq!(count(Some(value)), expected);
        }
        assert_eq!([money(Some(0.0123)), money(Some(2.5)), money(None)], ["$0.0123", "$2.50", "–"]);
        assert_eq!([percent(Some(0.6)), interval(Some((0.231, 0.88)))], ["60 %", "23–88 %"]);
        assert_eq!([seconds(Some(40.2)), seconds(None)], ["40 s", "–"]);
    }

    #[test]
    fn no_number_in_the_results_of_a_stranger_ends_the_program() {
        for wrong in [1e308, f64::INFINITY, f64::NAN, -1.0] {
            let value = Some(wrong);
            let shown = [seconds(value), count(value), money(value), percent(value)];
            assert!(shown.iter().all(|text| !text.is_empty()), "{shown:?}");
        }
    }
}
