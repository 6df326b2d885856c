//! Judges the commands of `tests/data/shell/ruinous.txt` in each mode.

use std::path::{Path, PathBuf};

use turnwright_types::dialect::ShellDialect;
use turnwright_types::effect::{PathScope, ResolvedPath};

use super::{Grants, Mode, PathBases, PolicyRules, ProtectedPaths, decide};
use crate::shell;

const RUINOUS: &str = include_str!("../../tests/data/shell/ruinous.txt");
const PROJECT: &str = "/home/u/project";

fn verdicts(line: &str) -> String {
    let resolve = |path: &Path| {
        let is_inside = path.starts_with(PROJECT);
        let scope = if is_inside { PathScope::Workspace } else { PathScope::Outside };
        ResolvedPath { path: path.to_path_buf(), scope }
    };
    let effects = shell::effects_of(shell::command(line, PROJECT, ShellDialect::Bash), resolve);
    let policy = PolicyRules {
        can_confine: true,
        bases: PathBases { roots: vec![PROJECT.into()], home: Some("/home/u".into()) },
        protected: ProtectedPaths { roots: vec![PathBuf::from(PROJECT)], extra: Vec::new() },
        ..PolicyRules::default()
    };
    let modes = [Mode::Plan, Mode::Ask, Mode::Auto, Mode::Full];
    let verdict = |mode| decide(&policy, mode, &Grants::default(), &effects).verdict();
    modes.map(|it| format!("{:?}", verdict(it)).to_lowercase()).join(" ")
}

#[test]
fn what_could_ruin_the_system_is_asked_about_or_refused_in_every_mode() {
    let rows = RUINOUS.lines().filter(|it| !it.is_empty() && !it.starts_with("# "));
    let (mut wrong, mut count) = (String::new(), 0);
    for row in rows {
        count += 1;
        let (line, expected) = row.split_once(" ⇒ ").unwrap();
        let got = verdicts(&line.replace("⟨a⟩", "\n"));
        if got != expected {
            wrong.push_str(&format!("{line}\n    {got}, expected {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 150, "{count}");
}

#[test]
#[ignore]
fn attack() {
    for line in std::fs::read_to_string("/tmp/attack.txt").unwrap().lines() {
        let v = verdicts(&line.replace("⟨a⟩", "\n"));
        let words: Vec<_> = v.split(' ').collect();
        if words[1] == "allow" {
            eprintln!("SILENT {line}");
        }
    }
}

#[test]
#[ignore]
fn attack_grants() {
    use super::{Rule, RuleAction, Scope, suggest_pattern};
    for row in std::fs::read_to_string("/tmp/grants.txt").unwrap().lines() {
        let (granted, tried) = row.split_once(" ⇒ ").unwrap();
        let script = shell::parse(granted, ShellDialect::Bash);
        let Some(pattern) = suggest_pattern(&script.commands[0]) else {
            eprintln!("NONE {granted}");
            continue;
        };
        let rule = Rule { action: RuleAction::Allow, pattern, scope: Scope::User, why: None };
        let tried_script = shell::parse(tried, ShellDialect::Bash);
        if tried_script.ambiguity.is_none()
            && tried_script.commands.iter().all(|it| rule.matches_command(it))
        {
            eprintln!("COVERED {} : {tried}", rule.pattern);
        }
    }
}
