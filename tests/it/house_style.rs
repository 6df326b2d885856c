//! Counts how the production code reads, and holds that to `tests/data/budgets.txt`: what goes beyond is paid by removing.

use crate::source_files::{Source, all_sources};

/// The name of a figure, and how much a line of the code or a comment adds to it.
type Figure = (&'static str, fn(&str) -> usize);

const FIGURES: [Figure; 8] = [
    ("lines of production code", |line| usize::from(!line.starts_with("//"))),
    ("types", |line| usize::from(is_type(line))),
    ("locks", |line| line.matches("Mutex<").count() + line.matches("RwLock<").count()),
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
    let files: Vec<Source> = all_sources().into_iter().filter(is_of_the_program).collect();
    let lines: Vec<&str> = files
        .iter()
        .flat_map(Source::production_lines)
        .map(|(_, line)| line.trim_start())
        .collect();
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

fn is_of_the_program(file: &Source) -> bool {
    let other = ["crates/turnwright-testing", "crates/turnwright-packages"];
    !file.is_test() && !file.is_in(&other)
}

fn is_type(line: &str) -> bool {
    let visible = line.strip_prefix("pub").map(|rest| match rest.split_once(") ") {
        Some((place, rest)) if place.starts_with('(') => rest,
        _ => rest.trim_start(),
    });
    let declared = visible.unwrap_or(line);
    ["struct ", "enum ", "trait ", "union "].iter().any(|word| declared.starts_with(word))
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
