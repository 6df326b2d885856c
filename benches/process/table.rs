//! The table of figures that a benchmark prints, and the statistics of measured times.

use std::thread;
use std::time::Duration;

/// What an earlier figure would be here, and whether this one is clearly worse; `None` if there is no earlier one.
pub(crate) type Comparison = Box<dyn FnMut(&Figure) -> Option<(f64, bool)>>;

/// A table on stdout. Each row is printed as soon as its figure is known.
#[derive(Default)]
pub(crate) struct Table {
    figures: Vec<Figure>,
    missed: usize,
    is_silent: bool,
    /// What the figures are compared with.
    comparison: Option<Comparison>,
    worse: usize,
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
        Table::default().headed(subject)
    }

    /// The same for a table whose figures are compared with those of the last release.
    pub(crate) fn begin_beside(subject: &str, comparison: Comparison) -> Table {
        Table { comparison: Some(comparison), ..Table::default() }.headed(subject)
    }

    fn headed(self, subject: &str) -> Table {
        let cores = thread::available_parallelism().map_or(0, usize::from);
        let profile = if cfg!(debug_assertions) { "debug" } else { "bench" };
        println!("{cores} cores, profile {profile}, {subject}\n");
        let release = if self.comparison.is_some() { "last release" } else { "" };
        println!("{:<50} {:>14} {release:>14} {:>12}", "benchmark", "measured", "budget");
        self
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
        let verdict = if met { "met" } else { "NOT MET" };
        self.add(name, measured, unit, &format!("{:>12}  {verdict}", format!("≤ {budget} {unit}")));
    }

    /// Prints a figure that has no budget.
    pub(crate) fn note(&mut self, name: &str, measured: f64, unit: &str) {
        self.add(name, measured, unit, "");
    }

    fn add(&mut self, name: &str, measured: f64, unit: &str, verdict: &str) {
        let figure = Figure { name: name.to_owned(), measured, unit: unit.to_owned() };
        let compared = self.comparison.as_mut().and_then(|it| it(&figure));
        self.figures.push(figure);
        if self.is_silent {
            return;
        }
        let shown = |figure: f64| format!("{figure:.2} {unit}");
        let release = compared.map(|(expected, _)| shown(expected)).unwrap_or_default();
        let is_worse = compared.is_some_and(|(_, is_worse)| is_worse);
        self.worse += usize::from(is_worse);
        let worse = if is_worse { "  WORSE" } else { "" };
        let line = format!("{name:<50} {:>14} {release:>14} {verdict}{worse}", shown(measured));
        println!("{}", line.trim_end());
    }

    pub(crate) fn end(&self) {
        let (figures, missed, worse) = (self.figures.len(), self.missed, self.worse);
        println!(
            "\n{figures} figures, {missed} budgets not met, {worse} worse than in the last release"
        );
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
