//! Judges a command line under a small set of rules and prints the verdict with its reasons.
//!
//! ```sh
//! cargo run -p turnwright-policy --example judge_command -- 'cargo test && git push'
//! ```

use std::path::Path;
use std::sync::Arc;

use turnwright_policy::permission::{
    Grants, Mode, PathBases, PolicyRules, Rule, RuleAction, Scope, decide, explain, verdict_name,
};
use turnwright_policy::shell::{self, classify};
use turnwright_types::dialect::ShellDialect;
use turnwright_types::effect::{Effect, PathScope, ResolvedPath};

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
    let effects = effects(&line, &policy);
    let decision = decide(&policy, Mode::Ask, &Grants::default(), &effects);
    println!("{}", verdict_name(decision.verdict()));
    for part in explain(&policy, Mode::Ask, &effects, &decision) {
        println!("  {:5}  {}  ({})", verdict_name(part.verdict), part.subject, part.reason);
    }
    Ok(())
}

/// What a command line does, as far as its words say: it runs, it reads files that are its
/// operands, and the shell opens files for its redirects.
fn effects(line: &str, policy: &PolicyRules) -> Vec<Effect> {
    let mut command = shell::command(line, PROJECT, ShellDialect::Bash);
    let mut redirects = Vec::new();
    let script = Arc::clone(&command.script);
    for simple in &script.commands {
        let Some(folder) = &simple.folder else { continue };
        let resolve = |path: &Path| resolve(&Path::new(PROJECT).join(folder).join(path), policy);
        command.reads.extend(classify(simple).reads.iter().map(|path| resolve(path)));
        redirects.extend(simple.redirects.iter().map(|redirect| {
            let target = resolve(&redirect.path);
            if redirect.is_write { Effect::Write(target) } else { Effect::Read(target) }
        }));
    }
    [vec![Effect::Exec(Box::new(command))], redirects].concat()
}

/// An agent would resolve symlinks and `..` here.
fn resolve(path: &Path, policy: &PolicyRules) -> ResolvedPath {
    let is_inside = policy.bases.roots.iter().any(|root| path.starts_with(root));
    let scope = if is_inside { PathScope::Workspace } else { PathScope::Outside };
    ResolvedPath { path: path.to_owned(), scope }
}
