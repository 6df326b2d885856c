//! What a decision costs: a command judged under fifty rules, and what the jail adds to the start of
//! one.

use std::hint::black_box;
use std::time::{Duration, Instant};

use turnwright::effect::{Command, Effect};
use turnwright::permission::{Grants, Law, Mode, Pattern, Rule, Scope, Tier, decide};

use crate::table::Table;

/// How often each is decided.
const ROUNDS: u32 = 2_000;
/// Rules that are looked at.
const RULES: usize = 50;
/// For one command.
const BUDGET: f64 = 20.0;

const LINES: &[&str] = &[
    "git status -s",
    "cargo test -p core 2>&1 | tail -20",
    "cd crates && ls -la src 2>/dev/null",
    "for f in *.rs; do wc -l \"$f\"; done",
    "rg -n 'fn main' --glob '*.rs' src && sed -n '1,20p' src/main.rs && git log --oneline -5",
    "bash -c 'cargo fmt && cargo clippy'",
    "npm run build -- --mode production > dist/log.txt 2>&1",
];

/// All of it.
pub(crate) fn measure() {
    let mut table = Table::begin(&format!("deciding a command, {RULES} rules"));
    let law = law();
    let grants = Grants::default();
    for line in LINES {
        let effects = [Effect::Exec(Box::new(Command::new(*line, "/ws")))];
        let took = fastest(|| {
            black_box(decide(&law, Mode::Ask, &grants, black_box(&effects)));
        });
        let short: String = line.chars().take(44).collect();
        table.row(&short, took.as_secs_f64() * 1e6, "µs", BUDGET);
    }
    table.end();
}

fn law() -> Law {
    let tiers = [Tier::Allow, Tier::Ask, Tier::Deny];
    let rule = |number: usize| Rule {
        tier: tiers[number % tiers.len()],
        pattern: Pattern::Exec {
            words: vec!["program".to_owned(), format!("verb{number}")],
            exact: number.is_multiple_of(7),
        },
        scope: Scope::User,
        why: None,
    };
    Law { rules: (0..RULES).map(rule).collect(), can_confine: true, ..Law::default() }
}

/// The mean of the best of some rounds.
fn fastest(work: impl Fn()) -> Duration {
    let round = || {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            work();
        }
        begun.elapsed() / ROUNDS
    };
    (0..7).map(|_| round()).min().unwrap_or_default()
}
