//! The table of figures that a benchmark prints, and the statistics of measured times.

use std::thread;
use std::time::Duration;

/// A table on stdout. Each row is printed as soon as its figure is known.
#[derive(Debug, Default)]
pub(crate) struct Table {
    figures: Vec<Figure>,
    missed: usize,
    is_silent: bool,
}

/// The figure of a row.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) measured: f64,
    pub(crate) unit: String,
}

impl Table {
    /// Prints the heading of a table about `subject`.
    pub(crate) fn begin(subject: &str) -> Table {
        let cores = thread::available_parallelism().map_or(0, usize::from);
        let profile = if cfg!(debug_assertions) { "debug" } else { "bench" };
        println!("{cores} cores, profile {profile}, {subject}\n");
        println!("{:<50} {:>14} {:>12}", "benchmark", "measured", "budget");
        Table::default()
    }

    /// A table that prints nothing.
    pub(crate) fn silent() -> Table {
        Table { is_silent: true, ..Table::default() }
    }

    /// What was measured, in the order of the rows.
    pub(crate) fn into_figures(self) -> Vec<Figure> {
        self.figures
    }

    /// Prints a figure and whether it is within its budget.
    pub(crate) fn row(&mut self, name: &str, measured: f64, unit: &str, budget: f64) {
        let met = measured <= budget;
        self.missed += usize::from(!met);
        self.keep(name, measured, unit);
        if self.is_silent {
            return;
        }
        let (measured, budget) = (format!("{measured:.2} {unit}"), format!("≤ {budget} {unit}"));
        let verdict = if met { "met" } else { "NOT MET" };
        println!("{name:<50} {measured:>14} {budget:>12}  {verdict}");
    }

    /// Prints a figure that has no budget.
    pub(crate) fn note(&mut self, name: &str, measured: f64, unit: &str) {
        self.keep(name, measured, unit);
        if !self.is_silent {
            println!("{name:<50} {:>14}", format!("{measured:.2} {unit}"));
        }
    }

    fn keep(&mut self, name: &str, measured: f64, unit: &str) {
        self.figures.push(Figure { name: name.to_owned(), measured, unit: unit.to_owned() });
    }

    pub(crate) fn end(&self) {
        println!("\n{} figures, {} budgets not met", self.figures.len(), self.missed);
    }
}

/// Returns the median, or NaN if there are no figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Converts a duration to milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Converts a duration to microseconds.
pub(crate) fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
