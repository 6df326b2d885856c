//! Figures → lines, and the little statistics there are.

use std::thread;
use std::time::Duration;

/// What is printed, line by line as it is known.
#[derive(Debug)]
pub(crate) struct Table {
    rows: usize,
    missed: usize,
}

impl Table {
    /// A table about that.
    pub(crate) fn begin(subject: &str) -> Table {
        let cores = thread::available_parallelism().map_or(0, usize::from);
        let profile = if cfg!(debug_assertions) { "debug" } else { "bench" };
        println!("{cores} cores, profile {profile}, {subject}\n");
        println!("{:<50} {:>14} {:>12}", "what", "measured", "budget");
        Table { rows: 0, missed: 0 }
    }

    /// A figure with a budget.
    pub(crate) fn row(&mut self, name: &str, measured: f64, unit: &str, budget: f64) {
        let met = measured <= budget;
        self.rows += 1;
        self.missed += usize::from(!met);
        let (measured, budget) = (format!("{measured:.2} {unit}"), format!("≤ {budget} {unit}"));
        let verdict = if met { "met" } else { "NOT MET" };
        println!("{name:<50} {measured:>14} {budget:>12}  {verdict}");
    }

    /// A figure that explains others.
    pub(crate) fn note(&mut self, name: &str, measured: f64, unit: &str) {
        self.rows += 1;
        println!("{name:<50} {:>14}", format!("{measured:.2} {unit}"));
    }

    pub(crate) fn end(&self) {
        println!("\n{} figures, {} budgets not met", self.rows, self.missed);
    }
}

/// The middle one.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// In milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// In microseconds.
pub(crate) fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
