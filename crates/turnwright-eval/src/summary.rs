//! Sums up the lines of trials: a cell for each task of a column, the totals of a column, and the comparison of two
//! columns. A column is a model with its settings and a version of the program.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::results::{Outcome, TrialLine};
use crate::statistics::{mcnemar, median, number, trials_needed, whole, wilson};

/// Below this number of tasks that changed sides, chance explains everything.
const MIN_FLIPS: usize = 6;
const MAX_CHANCE: f64 = 0.05;
/// At most as many columns of one folder are compared.
const MAX_COMPARED: usize = 4;
/// The difference for which the necessary number of trials is told.
const DIFFERENCE: f64 = 0.1;

/// The results of one or two folders. As JSON it is for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The names of the tasks, sorted.
    pub tasks: Vec<String>,
    pub columns: Vec<Column>,
    pub comparisons: Vec<Comparison>,
}

/// The trials of a model with the same settings and version.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Column {
    /// A name that no other column has.
    pub name: String,
    pub model: String,
    /// The models that the server named.
    pub served: Vec<String>,
    pub version: String,
    pub set: Vec<String>,
    #[serde(skip)]
    settings: String,
    pub passed: usize,
    /// The trials that count: all but the invalid ones.
    pub trials: usize,
    pub invalid: usize,
    /// The rate of all trials; `None` without trials that count.
    pub rate: Option<f64>,
    pub interval: Option<(f64, f64)>,
    /// US dollars of all trials, if known.
    pub cost: Option<f64>,
    /// By the keys of the measures.
    pub medians: BTreeMap<&'static str, Option<f64>>,
    #[serde(rename = "tasks")]
    pub cells: BTreeMap<String, Cell>,
}

/// The trials of a task in a column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    pub passed: usize,
    /// The trials that count: all but the invalid ones.
    pub trials: usize,
    pub invalid: usize,
    #[serde(skip)]
    hash: String,
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

impl Column {
    fn is_column_of(&self, line: &TrialLine) -> bool {
        self.model == line.model && self.settings == line.settings && self.version == line.version
    }
}

impl Summary {
    /// The results of a folder. Its first column is compared with the others.
    pub fn of(lines: &[TrialLine]) -> Summary {
        let mut columns: Vec<Column> = Vec::new();
        for line in lines {
            if !columns.iter().any(|column| column.is_column_of(line)) {
                columns.push(column_of(line, lines));
            }
        }
        columns.sort_by(|one, other| {
            let key = (&other.model, &other.set, &other.version, &other.settings);
            (&one.model, &one.set, &one.version, &one.settings).cmp(&key)
        });
        name_columns(&mut columns);
        let mut tasks: Vec<_> = lines.iter().map(|line| line.task.clone()).collect();
        tasks.sort();
        tasks.dedup();
        // More pairs would be a table of their own, and one of them would be told apart by chance.
        let mut comparisons = Vec::new();
        if let [first, others @ ..] = &columns[..]
            && others.len() < MAX_COMPARED
        {
            comparisons.extend(others.iter().map(|other| compare(first, other)));
        }
        Summary { tasks, columns, comparisons }
    }

    /// The results of two folders, side by side, and their comparison.
    pub fn of_both(one: &[TrialLine], other: &[TrialLine]) -> Summary {
        let mut left = Summary::of(one);
        let mut right = Summary::of(other);
        for (side, name) in [(&mut left, "A"), (&mut right, "B")] {
            for column in &mut side.columns {
                column.name = format!("{name}: {}", column.name);
            }
        }
        let comparisons = compare_all(&left.columns, &right.columns);
        let mut tasks = [left.tasks, right.tasks].concat();
        tasks.sort();
        tasks.dedup();
        Summary { tasks, columns: [left.columns, right.columns].concat(), comparisons }
    }
}

fn column_of(first: &TrialLine, lines: &[TrialLine]) -> Column {
    let mut column = Column {
        model: first.model.clone(),
        version: first.version.clone(),
        set: first.set.clone(),
        settings: first.settings.clone(),
        ..Column::default()
    };
    let own: Vec<_> = lines.iter().filter(|line| column.is_column_of(line)).collect();
    let mut counted = Vec::new();
    for line in &own {
        let cell = column.cells.entry(line.task.clone()).or_default();
        cell.hash.clone_from(&line.task_hash);
        if line.outcome == Outcome::Invalid {
            cell.invalid += 1;
            column.invalid += 1;
        } else {
            let passed = usize::from(line.outcome == Outcome::Passed);
            cell.trials += 1;
            cell.passed += passed;
            column.passed += passed;
            counted.push(*line);
        }
        column.served.extend(line.served.iter().cloned());
        if let Some(cost) = line.counts.cost {
            *column.cost.get_or_insert_default() += cost;
        }
    }
    column.served.sort();
    column.served.dedup();
    column.trials = counted.len();
    column.interval = wilson(column.passed, column.trials);
    column.rate = column.interval.map(|_| number(column.passed) / number(column.trials));
    let medians = MEASURES.map(|(key, _, value)| {
        (key, median(counted.iter().filter_map(|line| value(line))))
    });
    column.medians.extend(medians);
    column
}

/// Gives each column the name of its model, with what tells it from others of that model.
fn name_columns(columns: &mut [Column]) {
    let all = columns.to_vec();
    for column in columns {
        let same: Vec<_> = all.iter().filter(|other| other.model == column.model).collect();
        let mut parts = vec![column.model.clone()];
        if same.iter().any(|other| other.set != column.set) {
            let set = column.set.join(", ");
            parts.push(if set.is_empty() { "as set".to_owned() } else { set });
        }
        if same.iter().any(|other| other.version != column.version) {
            parts.push(column.version.clone());
        }
        column.name = parts.join(" · ");
        let alike = same.iter().filter(|other| other.set == column.set);
        if alike.filter(|other| other.version == column.version).count() > 1 {
            column.name.push_str(&format!(" · settings {}", column.settings));
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
    /// A sentence about the tasks that are left out; `None` if there are none.
    pub(crate) fn note(&self) -> Option<String> {
        let names = self.left_out.join(", ");
        let note = "Not compared, because they are not the same on both sides";
        (!names.is_empty()).then(|| format!("{note}: {names}."))
    }
}

/// Compares the columns of the same model, or the only ones.
fn compare_all(one: &[Column], other: &[Column]) -> Vec<Comparison> {
    if let ([left], [right]) = (one, other) {
        return vec![compare(left, right)];
    }
    let pairs = one.iter().flat_map(|left| {
        let same = other.iter().filter(move |right| right.model == left.model);
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
    let verdict = verdict(&names, &flips, tallies, chance);
    Comparison { names, flips, left_out, chance, verdict }
}

fn is_mostly_passed(cell: &Cell) -> bool {
    cell.passed * 2 > cell.trials
}

/// Says what can be told, and honestly if that is nothing. `tallies` are the passed and all trials of each.
fn verdict(
    names: &[String; 2],
    flips: &[Vec<String>; 2],
    tallies: [(usize, usize); 2],
    chance: f64,
) -> String {
    let [one, other] = names;
    let [(passed, trials), (other_passed, other_trials)] = tallies;
    if trials == 0 || other_trials == 0 {
        return format!("Cannot tell: {one} and {other} have no task in common.");
    }
    let [to_one, to_other] = [flips[0].len(), flips[1].len()];
    let count = to_one + to_other;
    let tasks = if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") };
    let facts = format!(
        "{one} passed {passed} of {trials}, {other} {other_passed} of {other_trials}; {tasks} changed sides \
         ({to_other} to {other}, {to_one} to {one})"
    );
    if count < MIN_FLIPS || chance > MAX_CHANCE {
        let rate = number(passed + other_passed) / number(trials + other_trials);
        let low = (rate - DIFFERENCE / 2.0).clamp(0.0, 1.0 - DIFFERENCE);
        let needed = trials_needed(low, low + DIFFERENCE).unwrap_or_default();
        return format!(
            "Cannot tell: {facts}. To see a difference of 10 points you need about {} trials a side.",
            rounded(needed)
        );
    }
    let better = if to_one > to_other { one } else { other };
    format!(
        "{better} is better on these tasks: {facts}. Chance alone does so with p = {chance:.3}."
    )
}

/// Two significant digits are all that such a number is worth.
fn rounded(count: usize) -> usize {
    if count < 100 { count } else { (count + 5) / 10 * 10 }
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
        assert_eq!(summary.tasks, ["a", "b"]);
        let [column] = &summary.columns[..] else { panic!() };
        assert_eq!((column.passed, column.trials, column.invalid), (3, 4, 1));
        assert_eq!(column.rate, Some(0.75));
        assert_eq!(column.medians["input"], Some(10_000.0));
        assert_eq!(column.served, ["m-served"]);
    }

    #[test]
    fn columns_of_one_model_are_told_apart() {
        let mut all = lines("m", &[("a", "p")]);
        let mut other = line("a", "m", 1, Outcome::Failed);
        other.set = vec!["verify=off".to_owned()];
        other.settings = "t".to_owned();
        all.push(other);
        let summary = Summary::of(&all);
        assert!(summary.comparisons[0].verdict.starts_with("Cannot tell: "));
        let names: Vec<_> = summary.columns.into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["m · as set", "m · verify=off"]);
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
            "Cannot tell: A: m passed 3 of 6, B: m 4 of 6; 3 tasks changed sides (2 to B: m, 1 to A: m). To see a \
             difference of 10 points you need about 380 trials a side."
        );
    }

    #[test]
    fn many_changes_to_one_side_tell_something() {
        let names: Vec<_> = (0..8).map(|index| format!("t{index}")).collect();
        let [failed, passed] = ["f", "p"].map(|outcome| {
            lines("m", &names.iter().map(|name| (name.as_str(), outcome)).collect::<Vec<_>>())
        });
        let summary = Summary::of_both(&failed, &passed);
        let verdict = &summary.comparisons[0].verdict;
        assert!(
            verdict.starts_with("B: m is better on these tasks: A: m passed 0 of 8, "),
            "{verdict}"
        );
        assert!(verdict.ends_with("p = 0.008."), "{verdict}");
    }

    #[test]
    fn a_task_that_was_changed_is_left_out() {
        let one = lines("m", &[("a", "p"), ("b", "p")]);
        let mut other = lines("m", &[("a", "f"), ("c", "f")]);
        other[0].task_hash = "changed".to_owned();
        let summary = Summary::of_both(&one, &other);
        assert_eq!(summary.tasks, ["a", "b", "c"]);
        assert_eq!(summary.comparisons[0].left_out, ["a", "b", "c"]);
        assert!(summary.comparisons[0].verdict.contains("no task in common"));
    }
}
