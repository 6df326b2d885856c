//! The figures of the last release, in `benches/process/figures.txt`, and the comparison of a run with them. Times depend on the
//! machine, so they are compared as ratios to the floor: a mix of a process start and of a turn of the
//! floor program, measured at the beginning of each run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::floor::Floor;
use crate::model::Model;
use crate::table::{Figure, median, ms};

/// How much more than in the last release a row may have, of what differs from run to run.
const TOLERANCE: f64 = 1.25;
/// The same for sizes and numbers.
const EXACT_TOLERANCE: f64 = 1.05;
/// A row that has not grown by this much in its unit is never reported: below it is noise.
const SMALLEST_GROWTH: f64 = 0.05;

const FLOOR: &str = "floor of this machine";
const FLOOR_ROUNDS: usize = 60;

/// The figures of the last release, and how much slower this run's floor is than theirs.
#[derive(Debug)]
pub(crate) struct Recorded {
    figures: BTreeMap<String, f64>,
    floor: f64,
    /// The first half of the key of rows whose names begin with `…`.
    parent: String,
}

impl Recorded {
    /// Reads the recorded figures and measures the floor.
    pub(crate) fn read(model: &Model) -> io::Result<Recorded> {
        let text = fs::read_to_string(path())?;
        let figures = text.lines().filter_map(|line| {
            let (name, measured) = line.split_once(": ")?;
            let number = measured.split(' ').next()?.parse().ok()?;
            Some((name.to_owned(), number))
        });
        Ok(Recorded {
            figures: figures.collect(),
            floor: measure_floor(model)?,
            parent: String::new(),
        })
    }

    /// The floor of this run in milliseconds.
    pub(crate) fn floor(&self) -> f64 {
        self.floor
    }

    /// What the last release would have measured here, and whether this figure is clearly above it.
    pub(crate) fn compare(&mut self, figure: &Figure) -> Option<(f64, bool)> {
        let key = key(&figure.name, &mut self.parent);
        let recorded = *self.figures.get(&key)?;
        let (expected, tolerance) = match figure.unit.as_str() {
            "ms" | "µs" => (recorded * self.floor / self.figures.get(FLOOR)?, TOLERANCE),
            "×" => (recorded, TOLERANCE),
            _ => (recorded, EXACT_TOLERANCE),
        };
        let is_worse =
            figure.measured > expected * tolerance && figure.measured > expected + SMALLEST_GROWTH;
        Some((expected, is_worse))
    }
}

/// Writes these figures as those of the last release.
pub(crate) fn write(figures: &[Figure], floor: f64) -> io::Result<()> {
    let mut text = format!("{FLOOR}: {floor:.4} ms\n");
    let mut parent = String::new();
    for Figure { name, measured, unit } in figures {
        let key = key(name, &mut parent);
        writeln!(text, "{key}: {measured:.4} {unit}").map_err(io::Error::other)?;
    }
    fs::write(path(), text)
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/process/figures.txt")
}

/// A name that no other row has: names that begin with `…` follow the row that they belong to.
fn key(name: &str, parent: &mut String) -> String {
    if name.starts_with('…') {
        return format!("{parent} {name}");
    }
    name.clone_into(parent);
    name.to_owned()
}

/// The geometric mean of the time of a short process and that of a turn of the floor program.
fn measure_floor(model: &Model) -> io::Result<f64> {
    let mut floor = Floor::start(&model.address())?;
    let (mut starts, mut turns) = (vec![], vec![]);
    for _ in 0..FLOOR_ROUNDS {
        let begun = Instant::now();
        Command::new("true").env_clear().stdout(Stdio::null()).status()?;
        starts.push(ms(begun.elapsed()));
        let begun = floor.turn("say")?;
        turns.push(ms(begun.elapsed()));
    }
    model.take();
    Ok((median(starts) * median(turns)).sqrt())
}
