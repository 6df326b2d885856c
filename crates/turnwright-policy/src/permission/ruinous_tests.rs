//! Judges the commands of `tests/data/shell/ruinous.txt` in each mode.

use std::path::{Path, PathBuf};

use turnwright_types::effect::{PathScope, ResolvedPath};
use turnwright_types::shell_script::ShellDialect;

use super::{Grants, Mode, PathBases, PolicyRules, ProtectedPaths, decide};
use crate::shell;

const RUINOUS: &str = include_str!("../../tests/data/shell/ruinous.txt");
const EVERYDAY_CHANGES: &str = include_str!("../../tests/data/shell/everyday_changes.txt");
const PROJECT: &str = "/home/u/project";

fn verdicts(line: &str, modes: &[Mode]) -> String {
    let resolve = |path: &Path| {
        let is_inside = path.starts_with(PROJECT);
        let scope = if is_inside { PathScope::Workspace } else { PathScope::Outside };
        ResolvedPath { path: path.to_path_buf(), scope }
    };
    let effects = shell::effects_of(shell::command(line, PROJECT, ShellDialect::Bash), resolve);
    let policy = PolicyRules {
        can_confine: true,
        has_network: true,
        bases: PathBases { roots: vec![PROJECT.into()], home: Some("/home/u".into()) },
        protected: ProtectedPaths::new(vec![PathBuf::from(PROJECT)], Vec::new()),
        ..PolicyRules::default()
    };
    let verdict = |mode: &Mode| decide(&policy, *mode, &Grants::default(), &effects).verdict();
    let all: Vec<_> =
        modes.iter().map(|mode| format!("{:?}", verdict(mode)).to_lowercase()).collect();
    all.join(" ")
}

#[test]
fn what_could_ruin_the_system_is_asked_about_or_refused_in_every_mode() {
    let rows = RUINOUS.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    let modes = [Mode::Plan, Mode::Ask, Mode::Auto, Mode::Full];
    let mut wrong = String::new();
    let mut count = 0;
    for row in rows {
        count += 1;
        let (line, expected) = row.split_once(" ⇒ ").unwrap();
        let got = verdicts(&line.replace("⟨a⟩", "\n"), &modes);
        if got != expected {
            wrong.push_str(&format!("{line}\n    {got}, expected {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 150, "{count}");
}

#[test]
fn a_hostile_line_neither_exhausts_the_stack_nor_runs_unasked_where_commands_are_asked_about() {
    let long = [
        "a ".repeat(16_000),
        "a;".repeat(8_000),
        "rm $x;".repeat(3_000),
        "sudo ".repeat(3_000) + "rm",
        "sudo rm ".repeat(3_000),
        "docker exec ssh ".repeat(3_000),
        "ssh -a docker run 'x y';".repeat(500),
        "eval ".repeat(1_000) + &"\"x y\" ".repeat(5_000),
        "$(".repeat(30_000),
        "`".repeat(60_000),
        "<<a ".repeat(7_000) + "\n" + &"b\n".repeat(10_000),
        "sudo ".repeat(300) + "'" + &"x ".repeat(10_000) + "'",
        "find . -exec ".repeat(5_000),
        "python -c 'rm -rf x; a b' ".repeat(2_000),
        format!("python -c '{}'", " rm ".repeat(8_000)),
        format!("X='{}'; $X", " rm ".repeat(8_000)),
        format!("x=1; {}", "echo $x;".repeat(8_000)),
        format!("for x in {}; do {} done", "a ".repeat(1000), "echo $x;".repeat(7_000)),
        "x=1;rm $x;".repeat(2_000),
        "a(){".repeat(8_000),
        format!("rm {}", "{a,b}".repeat(12_000)),
        format!("rm {},{}", "{".repeat(20_000), "}".repeat(20_000)),
    ];
    for line in long {
        assert!(line.len() <= shell::MAX_LINE_BYTES);
        assert_ne!(verdicts(&line, &[Mode::Ask]), "allow", "{}", &line[..20]);
    }
}

#[test]
fn a_line_that_exhausts_the_search_for_commands_does_not_run() {
    for end in ["ls", "git push", "rm -rf /"] {
        let wide = format!("{}rm $x {}; {end}", "sudo ".repeat(300), "y ".repeat(8_000));
        let deep = format!("{}{end}", "eval ".repeat(12));
        let hidden = format!("uv run sh -c '{deep}'");
        let words = format!("echo {}; {end}", "{a,b}".repeat(9));
        for line in [wide, deep, hidden, words] {
            assert_eq!(verdicts(&line, &[Mode::Auto, Mode::Full]), "deny deny", "{end}");
        }
    }
}

#[test]
fn everyday_commands_that_change_something_run_unasked_in_full_mode() {
    let rows = EVERYDAY_CHANGES.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    let verdict = |row: &str| verdicts(&row.replace("⟨a⟩", "\n"), &[Mode::Full]);
    let asked: Vec<_> = rows.clone().filter(|row| verdict(row) != "allow").collect();
    assert!(asked.is_empty(), "{asked:#?}");
    assert!(rows.count() >= 110);
}
