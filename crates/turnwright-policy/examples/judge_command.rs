//! Judges a command line under a small set of rules and prints the verdict with its reasons.
//!
//! ```sh
//! cargo run -p turnwright-policy --example judge_command -- 'cargo test && git push'
//! ```

use std::path::Path;

use turnwright_policy::permission::{
    Grants, JudgedCall, Mode, PathBases, PolicyRules, Rule, RuleAction, Scope, decide, verdict_name,
};
use turnwright_policy::shell::{command, effects_of};
use turnwright_types::effect::{PathScope, ResolvedPath};
use turnwright_types::shell_script::ShellDialect;

/// The project folder of this example. It need not exist, because deciding reads no files.
const PROJECT: &str = "/project";

#[expect(clippy::print_stdout, reason = "the verdict is the output of this example")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = std::env::args().nth(1).ok_or("usage: judge_command 'COMMAND LINE'")?;
    let policy = PolicyRules {
        rules: vec![
            Rule::parse("exec(cargo test)", RuleAction::Allow, Scope::User)?,
            Rule::parse("exec(git commit)", RuleAction::Ask, Scope::User)?,
            Rule::parse("exec(git push)", RuleAction::Deny, Scope::User)?,
            Rule::parse("read(secrets)", RuleAction::Deny, Scope::User)?,
        ],
        bases: PathBases { roots: vec![PROJECT.into()], home: None },
        ..PolicyRules::default()
    };
    let command = command(line, PROJECT, ShellDialect::Bash);
    let effects = effects_of(command, |path| resolve(path, &policy));
    let decision = decide(&policy, Mode::Ask, &Grants::default(), &effects);
    println!("{}", verdict_name(decision.verdict()));
    let call =
        JudgedCall { policy: &policy, mode: Mode::Ask, effects: &effects, decision: &decision };
    for part in call.explain() {
        println!("  {:5}  {}  ({})", verdict_name(part.verdict), part.subject, part.reason);
    }
    Ok(())
}

/// An agent would resolve symlinks and `..` here.
fn resolve(path: &Path, policy: &PolicyRules) -> ResolvedPath {
    let is_inside = policy.bases.roots.iter().any(|root| path.starts_with(root));
    let scope = if is_inside { PathScope::Workspace } else { PathScope::Outside };
    ResolvedPath { path: path.to_owned(), scope }
}
