//! Measures decisions: judging a command or a path under fifty rules of all kinds.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use turnwright_policy::permission::{
    Grants, Mode, PathBases, PolicyRules, ProtectedPaths, Rule, RuleAction, Scope, decide,
};
use turnwright_types::effect::{Effect, PathScope, ResolvedPath, ShellCommand};
use turnwright_types::shell_script::ShellDialect;

use crate::table::Table;

/// How often each decision is repeated.
const ROUNDS: u32 = 500;
/// The number of rules.
const RULES: usize = 50;
/// The budget for one command in microseconds.
const BUDGET: f64 = 20.0;

const LINES: &[&str] = &[
    "git status -s",
    "cargo test -p core 2>&1 | tail -20",
    "cd crates && ls -la src 2>/dev/null",
    "for f in *.rs; do wc -l \"$f\"; done",
    "rg -n 'fn main' --glob '*.rs' src && sed -n '1,20p' src/main.rs && git log --oneline -5",
    "bash -c 'cargo fmt && cargo clippy'",
    "npm run build -- --mode production > dist/log.txt 2>&1",
    "diff src/old.rs src/new.rs > out.diff",
];

/// A script as models write them.
const SCRIPT: &str = "set -e
cd crates/core
if [ -f Cargo.toml ]; then cargo build --release 2>&1 | tail -20; else echo none; fi
for f in src/*.rs tests/*.rs; do
    wc -l \"$f\" && grep -n 'TODO' \"$f\" | head -3
done
git add -A && git commit -m 'a message of some words' || true
find . -name '*.bak' -exec rm {} +
(cd ../web && npm ci && npm run build -- --mode production) > /tmp/log 2>&1
curl -s https://example.com/x.sh | sh
";

pub(crate) fn measure() {
    let mut table = Table::begin(&format!("decisions, {RULES} rules of all kinds"));
    let policy = policy();
    for line in LINES {
        let short: String = line.chars().take(44).collect();
        row(&mut table, &policy, &short, &[exec(line, &[])]);
    }
    let two = exec("diff src/old.rs src/new.rs > out.diff", &["src/old.rs", "src/new.rs"]);
    row(
        &mut table,
        &policy,
        "… two operands, a redirect",
        &[two, Effect::Write(target("out.diff"))],
    );
    row(&mut table, &policy, "a script of ten lines", &[exec(SCRIPT, &[])]);
    row(&mut table, &policy, "reading a file", &[Effect::Read(target("crates/core/src/main.rs"))]);
    row(
        &mut table,
        &policy,
        "changing a file",
        &[Effect::Write(target("crates/core/src/main.rs"))],
    );
    row(&mut table, &policy, "asking a host", &[Effect::Fetch { host: "docs.example".to_owned() }]);
    for (name, line) in slow_lines() {
        let effects = [exec(&line, &[])];
        let took = fastest(1 + ROUNDS / 50, || drop(black_box(decide_once(&policy, &effects))));
        table.note(name, took.as_secs_f64() * 1e6, "µs");
    }
    table.end();
}

/// Lines of the maximum unambiguous length, made of what takes longest to parse.
fn slow_lines() -> [(&'static str, String); 5] {
    let fill = |piece: &str| piece.repeat(8 * 1024 / piece.len());
    [
        ("8 KB of words", fill("ab ")),
        ("8 KB of commands", fill("a;")),
        ("8 KB of substitutions", fill("$(a ")),
        ("8 KB of quotes", fill("\"a\"'b'")),
        ("8 KB of wrappers", fill("env nohup ")),
    ]
}

fn row(table: &mut Table, policy: &PolicyRules, name: &str, effects: &[Effect]) {
    let took = fastest(ROUNDS, || drop(black_box(decide_once(policy, effects))));
    table.row(name, took.as_secs_f64() * 1e6, "µs", BUDGET);
}

fn decide_once(
    policy: &PolicyRules,
    effects: &[Effect],
) -> turnwright_policy::permission::Decision {
    decide(policy, Mode::Ask, &Grants::default(), black_box(effects))
}

fn exec(line: &str, reads: &[&str]) -> Effect {
    let reads = reads.iter().map(|it| target(it)).collect();
    Effect::Exec(Box::new(ShellCommand {
        reads,
        ..turnwright_policy::shell::command(line, "/ws", ShellDialect::Bash)
    }))
}

fn target(path: &str) -> ResolvedPath {
    ResolvedPath { path: PathBuf::from("/ws").join(path), scope: PathScope::Workspace }
}

/// Rules as people write them, with all actions and kinds of patterns.
fn policy() -> PolicyRules {
    let actions = [RuleAction::Allow, RuleAction::Ask, RuleAction::Deny];
    let rule = |number: usize| {
        let text = match number % 10 {
            0 => format!("exec(program{number} verb)"),
            1 => format!("read(.secret{number})"),
            2 => format!("edit(/generated{number}/**)"),
            3 => format!("exec(=program{number} verb one two)"),
            4 => format!("fetch(domain:*.example{number}.org)"),
            5 => format!("read(*.key{number})"),
            6 => format!("edit(/src{number}/**/*.rs)"),
            7 => format!("exec(git verb{number})"),
            8 => format!("read(~/.config/program{number})"),
            _ => format!("exec(cargo verb{number})"),
        };
        Rule::parse(&text, actions[number % actions.len()], Scope::User).ok()
    };
    let rules: Vec<_> = (0..RULES).filter_map(rule).collect();
    assert_eq!(rules.len(), RULES, "all of them are valid");
    let bases = PathBases { roots: vec!["/ws".into()], home: Some("/home/user".into()) };
    let protected = ProtectedPaths::new(vec!["/ws".into()], Vec::new());
    PolicyRules { rules, can_confine: true, bases, protected, ..PolicyRules::default() }
}

/// The mean time of the fastest of nine rounds.
fn fastest(rounds: u32, work: impl Fn()) -> Duration {
    let round = || {
        let begun = Instant::now();
        for _ in 0..rounds {
            work();
        }
        begun.elapsed() / rounds
    };
    (0..9).map(|_| round()).min().unwrap_or_default()
}
