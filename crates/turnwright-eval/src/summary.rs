//! Sums up the lines of trials: a cell for each task of a column, the totals of a column, and the comparison of two
//! columns. A column has the trials of a model with its settings and a version of the program.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::results::{Outcome, TrialLine, Variant};
use crate::statistics::{mcnemar, median, number, whole, wilson};
use turnwright_types::text::counted;

/// Below this number of tasks that changed sides, chance explains everything.
const MIN_FLIPS: usize = 6;
const MAX_CHANCE: f64 = 0.05;
/// At most as many columns of one folder are compared.
const MAX_COMPARED: usize = 4;

/// The results of one or two folders. As JSON it is for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The names of the tasks.
    pub tasks: BTreeSet<String>,
    pub columns: Vec<Column>,
    pub comparisons: Vec<Comparison>,
}

/// The trials of a variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Column {
    /// The model and the settings that were changed for the run, with more if other columns have the same.
    pub name: String,
    #[serde(flatten)]
    pub variant: Variant,
    /// The models that the server named.
    pub served: Vec<String>,
    #[serde(flatten)]
    pub total: Cell,
    /// The rate of all trials; `None` without trials that count.
    pub rate: Option<f64>,
    pub interval: Option<(f64, f64)>,
    /// By the keys of the measures.
    pub medians: BTreeMap<&'static str, Option<f64>>,
    #[serde(rename = "tasks")]
    pub cells: BTreeMap<String, Cell>,
}

/// Counted trials: those of a task in a column, or all of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    pub passed: usize,
    /// The trials that count: all but the invalid ones.
    pub trials: usize,
    pub invalid: usize,
    /// The hash of the task.
    #[serde(skip)]
    hash: String,
}

impl Cell {
    fn add(&mut self, outcome: Outcome) {
        self.passed += usize::from(outcome == Outcome::Passed);
        self.trials += usize::from(outcome != Outcome::Invalid);
        self.invalid += usize::from(outcome == Outcome::Invalid);
    }
}

/// A number of a trial of which the median is shown: its key and its name, and where it is kept.
type Measure = (&'static str, &'static str, fn(&TrialLine) -> Option<f64>);

pub(crate) const MEASURES: [Measure; 6] = [
    ("input", "input tokens", |line| Some(whole(line.counts.input))),
    ("cached", "of them cached", |line| Some(whole(line.counts.cached))),
    ("output", "output tokens", |line| Some(whole(line.counts.output))),
    ("cost", "cost", |line| line.counts.cost),
    ("seconds", "time", |line| Some(line.seconds)),
    ("requests", "requests", |line| Some(whole(line.counts.requests))),
];

impl Summary {
    /// The results of a folder. Its first column is compared with the others.
    pub fn of(lines: &[TrialLine]) -> Summary {
        let mut by_variant: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for line in lines {
            by_variant.entry(&line.variant).or_default().push(line);
        }
        let of_variants = by_variant.into_iter();
        let mut columns: Vec<_> =
            of_variants.map(|(variant, lines)| column_of(variant, &lines)).collect();
        tell_apart(&mut columns);
        // More pairs would be a table of their own, and one of them would be told apart by chance.
        let comparisons = match &columns[..] {
            [first, others @ ..] if others.len() < MAX_COMPARED => {
                others.iter().map(|other| compare(first, other)).collect()
            }
            _ => Vec::new(),
        };
        let tasks = lines.iter().map(|line| line.task.clone()).collect();
        Summary { tasks, columns, comparisons }
    }

    /// The results of two folders, side by side, and their comparison.
    pub fn of_both(one: &[TrialLine], other: &[TrialLine]) -> Summary {
        let [mut left, mut right] = [one, other].map(Summary::of);
        for (side, name) in [(&mut left, "A"), (&mut right, "B")] {
            for column in &mut side.columns {
                column.name = format!("{name}: {}", column.name);
            }
        }
        left.comparisons = compare_all(&left.columns, &right.columns);
        left.tasks.extend(right.tasks);
        left.columns.extend(right.columns);
        left
    }
}

fn column_of(variant: &Variant, lines: &[&TrialLine]) -> Column {
    let names: Vec<_> = [&variant.model].into_iter().chain(&variant.set).cloned().collect();
    let name = names.join(" · ");
    let mut column = Column { name, variant: variant.clone(), ..Column::default() };
    for line in lines {
        let cell = column.cells.entry(line.task.clone()).or_default();
        cell.hash.clone_from(&line.task_hash);
        cell.add(line.outcome);
        column.total.add(line.outcome);
        column.served.extend(line.served.iter().cloned());
    }
    column.served.sort();
    column.served.dedup();
    let Cell { passed, trials, .. } = column.total;
    column.interval = wilson(passed, trials);
    column.rate = column.interval.map(|_| number(passed) / number(trials));
    let counted = lines.iter().filter(|line| line.outcome != Outcome::Invalid);
    column.medians.extend(
        MEASURES
            .map(|(key, _, value)| (key, median(counted.clone().filter_map(|line| value(line))))),
    );
    column
}

/// Adds the version to the names that several columns have, and the hash of the settings if that is not enough.
fn tell_apart(columns: &mut [Column]) {
    let parts: [fn(&Variant) -> String; 2] =
        [|variant| variant.version.clone(), |variant| format!("settings {}", variant.settings)];
    for part in parts {
        let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
        for column in &mut *columns {
            if names.iter().filter(|name| **name == column.name).count() > 1 {
                column.name += &format!(" · {}", part(&column.variant));
            }
        }
    }
}

/// The comparison of two columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The names of the columns.
    #[serde(rename = "columns")]
    pub names: [String; 2],
    /// The tasks that only the first, or only the second, passes mostly.
    #[serde(rename = "passed_only_by")]
    pub flips: [Vec<String>; 2],
    /// The tasks that are left out, because they are not the same in both.
    pub left_out: Vec<String>,
    /// The probability that chance alone does this.
    #[serde(rename = "p")]
    pub chance: f64,
    /// In words.
    pub verdict: String,
}

impl Comparison {
    /// The verdict, and a sentence about the tasks that are left out, if there are any.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![self.verdict.clone()];
        if !self.left_out.is_empty() {
            let names = self.left_out.join(", ");
            let note = "Not compared, because they are not the same on both sides";
            sentences.push(format!("{note}: {names}."));
        }
        sentences
    }

    /// Says what can be told, and honestly if that is nothing. `tallies` are the passed and all trials of each.
    fn told(&self, tallies: [(usize, usize); 2]) -> String {
        let [one, other] = &self.names;
        let [(passed, trials), (other_passed, other_trials)] = tallies;
        if trials == 0 || other_trials == 0 {
            return format!("Cannot tell: {one} and {other} have no task in common.");
        }
        let [to_one, to_other] = [self.flips[0].len(), self.flips[1].len()];
        let count = to_one + to_other;
        let tasks = counted(count, "task");
        let facts = format!(
            "{one} passed {passed} of {trials}, {other} {other_passed} of {other_trials}; {tasks} changed sides \
             ({to_other} to {other}, {to_one} to {one})"
        );
        let chance = self.chance;
        if count < MIN_FLIPS || chance > MAX_CHANCE {
            return format!("Cannot tell: {facts}.");
        }
        let better = if to_one > to_other { one } else { other };
        let likely =
            if chance < 0.001 { "p < 0.001".to_owned() } else { format!("p = {chance:.3}") };
        format!(
            "{better} is better on these tasks: {facts}. Chance alone would do so with {likely}."
        )
    }
}

/// Compares the columns of the same model, or the only ones.
fn compare_all(one: &[Column], other: &[Column]) -> Vec<Comparison> {
    if let ([left], [right]) = (one, other) {
        return vec![compare(left, right)];
    }
    let pairs = one.iter().flat_map(|left| {
        let same = other.iter().filter(move |right| right.variant.model == left.variant.model);
        same.map(move |right| compare(left, right))
    });
    pairs.collect()
}

/// Compares two columns task by task.
fn compare(one: &Column, other: &Column) -> Comparison {
    let mut flips = [Vec::new(), Vec::new()];
    let mut left_out = Vec::new();
    let mut tallies = [(0, 0); 2];
    for (task, left) in &one.cells {
        let same = other.cells.get(task).filter(|right| right.hash == left.hash);
        let Some(right) = same.filter(|right| right.trials > 0 && left.trials > 0) else {
            left_out.push(task.clone());
            continue;
        };
        for (tally, cell) in tallies.iter_mut().zip([left, right]) {
            tally.0 += cell.passed;
            tally.1 += cell.trials;
        }
        match (is_mostly_passed(left), is_mostly_passed(right)) {
            (true, false) => flips[0].push(task.clone()),
            (false, true) => flips[1].push(task.clone()),
            (true, true) | (false, false) => {}
        }
    }
    left_out.extend(other.cells.keys().filter(|task| !one.cells.contains_key(*task)).cloned());
    let chance = mcnemar(flips[0].len(), flips[1].len());
    let names = [one.name.clone(), other.name.clone()];
    let mut comparison = Comparison { names, flips, left_out, chance, verdict: String::new() };
    comparison.verdict = comparison.told(tallies);
    comparison
}

fn is_mostly_passed(cell: &Cell) -> bool {
    cell.passed * 2 > cell.trials
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::line;

    /// The trials of a model: for each task a letter, which is repeated for each trial.
    fn lines(model: &str, tasks: &[(&str, &str)]) -> Vec<TrialLine> {
        let mut all = Vec::new();
        for (task, outcomes) in tasks {
            for (index, letter) in outcomes.chars().enumerate() {
                let outcome = match letter {
                    'p' => Outcome::Passed,
                    'f' => Outcome::Failed,
                    _ => Outcome::Invalid,
                };
                all.push(line(task, model, u32::try_from(index).unwrap() + 1, outcome));
            }
        }
        all
    }

    #[test]
    fn a_column_counts_what_is_valid() {
        let summary = Summary::of(&lines("m", &[("b", "ppfi"), ("a", "p")]));
        assert_eq!(summary.tasks.iter().collect::<Vec<_>>(), ["a", "b"]);
        let [column] = &summary.columns[..] else { panic!() };
        let Cell { passed, trials, invalid, .. } = column.total;
        assert_eq!((passed, trials, invalid), (3, 4, 1));
        assert_eq!(column.rate, Some(0.75));
        assert_eq!(column.medians["input"], Some(10_000.0));
        assert_eq!(column.served, ["m-served"]);
    }

    /// The names of the columns of these lines.
    fn names(lines: &[TrialLine]) -> Vec<String> {
        Summary::of(lines).columns.into_iter().map(|column| column.name).collect()
    }

    #[test]
    fn columns_of_one_model_are_told_apart() {
        let mut all = lines("m", &[("a", "p")]);
        let mut other = line("a", "m", 1, Outcome::Failed);
        other.variant.set = vec!["verify=off".to_owned()];
        other.variant.settings = "t".to_owned();
        all.push(other);
        assert!(Summary::of(&all).comparisons[0].verdict.starts_with("Cannot tell: "));
        assert_eq!(names(&all), ["m", "m · verify=off"]);
    }

    #[test]
    fn versions_and_settings_are_named_where_columns_differ_in_nothing_else() {
        let mut all = lines("m", &[("a", "ppp")]);
        all[1].variant.version = "0.1.0+2".to_owned();
        all[2].variant.settings = "t".to_owned();
        let first = ["m · 0.1.0+1 · settings s", "m · 0.1.0+1 · settings t", "m · 0.1.0+2"];
        assert_eq!(names(&all), first);
        assert_eq!(names(&all[..2]), ["m · 0.1.0+1", "m · 0.1.0+2"]);
        assert_eq!(names(&all[..1]), ["m"]);
    }

    #[test]
    fn few_changes_of_sides_tell_nothing() {
        let one = lines("m", &[("a", "pp"), ("b", "ff"), ("c", "pf")]);
        let other = lines("m", &[("a", "ff"), ("b", "pp"), ("c", "pp")]);
        let summary = Summary::of_both(&one, &other);
        let [comparison] = &summary.comparisons[..] else { panic!() };
        assert_eq!(comparison.flips, [vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]]);
        assert_eq!(
            comparison.verdict,
            "Cannot tell: A: m passed 3 of 6, B: m 4 of 6; 3 tasks changed sides (2 to B: m, 1 to A: m)."
        );
    }

    #[test]
    fn many_changes_to_one_side_tell_something() {
        for (count, likely) in [(8, "p = 0.008."), (10, "p = 0.002."), (11, "p < 0.001.")] {
            let names: Vec<_> = (0..count).map(|index| format!("t{index}")).collect();
            let [failed, passed] = ["f", "p"].map(|outcome| {
                lines("m", &names.iter().map(|name| (name.as_str(), outcome)).collect::<Vec<_>>())
            });
            let summary = Summary::of_both(&failed, &passed);
            let Comparison { verdict, chance, .. } = &summary.comparisons[0];
            let start = format!("B: m is better on these tasks: A: m passed 0 of {count}, ");
            assert!(verdict.starts_with(&start), "{verdict}");
            let end = format!("Chance alone would do so with {likely}");
            assert!(verdict.ends_with(&end) && *chance > 0.0, "{verdict}");
        }
    }

    #[test]
    fn a_task_that_was_changed_is_left_out() {
        let one = lines("m", &[("a", "p"), ("b", "p")]);
        let mut other = lines("m", &[("a", "f"), ("c", "f")]);
        other[0].task_hash = "changed".to_owned();
        let summary = Summary::of_both(&one, &other);
        assert_eq!(summary.tasks.len(), 3);
        assert_eq!(summary.comparisons[0].left_out, ["a", "b", "c"]);
        assert!(summary.comparisons[0].verdict.contains("no task in common"));
    }
}
