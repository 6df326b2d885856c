//! Judges the commands of `tests/data/shell/everyday.txt` as a session does, in a project that has some
//! of the files that they name.

use std::fs;
use std::path::Path;

use turnwright_types::dialect::ShellDialect;
use turnwright_types::effect::{PathScope, ResolvedPath};

use super::{Grants, Mode, PolicyRules, Verdict, decide};
use crate::shell;

const EVERYDAY: &str = include_str!("../../tests/data/shell/everyday.txt");
const ASKED_HEADING: &str = "# asked about, and why";

/// A project whose files the commands name.
#[expect(clippy::disallowed_methods, reason = "the test makes files")]
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["src/main.rs", "src/lib.rs", "tests/all.rs", "data/users.csv", "Cargo.toml"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x\n").unwrap();
    }
    folder
}

fn verdict(line: &str, root: &Path, can_confine: bool) -> Verdict {
    let resolve = |path: &Path| {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let is_inside = real.starts_with(root);
        let scope = if is_inside { PathScope::Workspace } else { PathScope::Outside };
        ResolvedPath { path: real, scope }
    };
    let effects = shell::effects_of(shell::command(line, root, ShellDialect::Bash), resolve);
    let policy = PolicyRules { can_confine, ..PolicyRules::default() };
    decide(&policy, Mode::Ask, &Grants::default(), &effects).verdict()
}

#[test]
fn everyday_commands_that_only_look_run_without_a_question() {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    let (silent, asked) = EVERYDAY.split_once(ASKED_HEADING).unwrap();
    let lines =
        |text: &'static str| text.lines().filter(|it| !it.is_empty() && !it.starts_with("# "));
    let asked = lines(asked).map(|it| (it.rsplit_once(" # ").unwrap().0, Verdict::Ask));
    let all: Vec<_> = lines(silent).map(|it| (it, Verdict::Allow)).chain(asked).collect();
    let wrong: Vec<_> = all.iter().filter(|it| verdict(it.0, &root, true) != it.1).collect();
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
    let silent = all.iter().filter(|it| it.1 == Verdict::Allow).count();
    assert_eq!((all.len(), silent >= 159), (174, true), "{silent}");
}

#[test]
fn without_a_sandbox_a_command_that_gets_unknown_files_is_asked_about() {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    for line in ["find src -name '*.rs' | xargs wc -l", "wc -l $(git ls-files)"] {
        assert_eq!(verdict(line, &root, true), Verdict::Allow, "{line}");
        assert_eq!(verdict(line, &root, false), Verdict::Ask, "{line}");
    }
}

#[test]
fn what_a_loop_names_is_judged_as_if_it_were_written_out() {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    for line in [
        "for f in src/main.rs .env; do cat \"$f\"; done",
        "for f in /etc/*; do cat \"$f\"; done",
        "d=/etc; ls $d",
        "f=.env; head -1 \"$f\"",
        "for d in ..; do ls \"$d\"; done",
    ] {
        assert_eq!(verdict(line, &root, true), Verdict::Ask, "{line}");
    }
    for (count, expected) in [(60, Verdict::Allow), (65, Verdict::Ask)] {
        let line = format!("for n in{}; do head -$n src/lib.rs; done", " 1".repeat(count));
        assert_eq!(verdict(&line, &root, true), expected, "{count}");
    }
}
