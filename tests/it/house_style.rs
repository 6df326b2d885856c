//! Counts how the production code reads, and holds that to `tests/data/budgets.txt`: what goes beyond is paid by removing.

use std::fs;
use std::path::{Path, PathBuf};

/// The name of a figure, and how much a line of the code or a comment adds to it.
type Figure = (&'static str, fn(&str) -> usize);

const FIGURES: [Figure; 6] = [
    ("lines of production code", |line| usize::from(!line.starts_with("//"))),
    ("closures with a name", |line| usize::from(is_named_closure(line))),
    ("closures with an argument called it", closures_of_it),
    ("lets packed in a tuple", |line| usize::from(is_packed_let(line))),
    ("results dropped by a call of drop", |line| {
        usize::from(line.starts_with("drop(") && line.ends_with("));"))
    }),
    ("comments that begin with What or Whether", |line| usize::from(is_riddle(line))),
];

#[test]
fn the_style_of_the_code_stays_within_its_budget() {
    let budgets = include_str!("../data/budgets.txt");
    let lines: Vec<String> =
        production_files().iter().flat_map(|file| production_lines(file)).collect();
    let mut beyond = Vec::new();
    for (name, count) in FIGURES {
        let found: usize = lines.iter().map(|line| count(line)).sum();
        let budget = budgets.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let budget: usize =
            budget.unwrap_or_else(|| panic!("no line for `{name}`")).parse().unwrap();
        if found > budget {
            beyond.push(format!("{name}: {found}, and not {budget}"));
        }
    }
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
}

#[test]
fn each_figure_counts_what_its_name_says() {
    let counted = |line: &str| -> Vec<&str> {
        FIGURES.iter().skip(1).filter(|figure| figure.1(line) > 0).map(|figure| figure.0).collect()
    };
    for (line, expected) in [
        ("let is_told = |line| line.len();", "closures with a name"),
        ("let mut add = move |line: &str| {", "closures with a name"),
        ("let told: fn(u8) -> u8 = |byte| byte;", "closures with a name"),
        ("let told = lines.map(|line| line.len());", ""),
        ("lines.map(|it| it.len())", "closures with an argument called it"),
        ("lines.map(|&(it, other)| other)", ""),
        ("lines.map(|it: &str| it)", "closures with an argument called it"),
        ("lines.map(|item| item)", ""),
        ("let (a, b) = (1, 2);", "lets packed in a tuple"),
        ("let (a, b) = pair;", ""),
        ("let (Some(a), Some(b)) = (a, b) else {", ""),
        ("drop(sender.send(1));", "results dropped by a call of drop"),
        ("drop(guard);", ""),
        ("/// What is told.", "comments that begin with What or Whether"),
        ("// Whether it is told.", "comments that begin with What or Whether"),
        ("/// Whatever is told.", ""),
    ] {
        assert_eq!(counted(line).concat(), expected, "{line}");
    }
}

fn is_named_closure(line: &str) -> bool {
    let Some((name, value)) = line.strip_prefix("let ").and_then(|rest| rest.split_once(" = "))
    else {
        return false;
    };
    let value = value.strip_prefix("async ").unwrap_or(value);
    let value = value.strip_prefix("move ").unwrap_or(value);
    value.starts_with('|') && !name.starts_with('(')
}

fn closures_of_it(line: &str) -> usize {
    let arguments = line.match_indices('|').map(|(at, _)| line[at + 1..].trim_start_matches('&'));
    let named = arguments.filter(|rest| {
        let rest = rest.strip_prefix("mut ").unwrap_or(rest);
        rest.strip_prefix("it").is_some_and(|after| after.starts_with(['|', ':', ',']))
    });
    named.count()
}

fn is_packed_let(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("let (") else { return false };
    let is_name = |char: char| char.is_alphanumeric() || "_, ".contains(char);
    rest.split_once(") = (").is_some_and(|(names, _)| names.chars().all(is_name))
}

fn is_riddle(line: &str) -> bool {
    let Some(comment) = line.strip_prefix("//") else { return false };
    let text = comment.trim_start_matches(['/', '!']);
    let word = text.strip_prefix(' ').and_then(|text| text.split(' ').next());
    matches!(word, Some("What" | "Whether"))
}

/// The files of the program without those of tests.
fn production_files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src")];
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.ends_with("turnwright-testing") && !folder.ends_with("turnwright-packages") {
            folders.push(folder.join("src"));
        }
    }
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            let is_of_tests = ["tests", "tests.rs", "fixture.rs"].contains(&name.as_ref());
            if is_of_tests || name.ends_with("_tests.rs") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The lines of a file that are not blank, without those of items for tests, which are formatted: an item ends with a line
/// that is indented like its attribute.
fn production_lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    let mut kept = Vec::new();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if !trimmed.starts_with("#[cfg(test") && !trimmed.starts_with("#[cfg(all(test") {
            if !trimmed.is_empty() {
                kept.push(trimmed.trim_end().to_owned());
            }
            continue;
        }
        let indent = &line[..line.len() - trimmed.len()];
        for line in lines.by_ref() {
            let is_outer = line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' '));
            let is_attribute = line.trim_start().starts_with("#[");
            if is_outer && !is_attribute && line.ends_with(['}', ';', ',']) {
                break;
            }
        }
    }
    kept
}
