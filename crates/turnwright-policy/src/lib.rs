//! Permission rules for coding agents.
//!
//! An agent that runs commands and edits files needs to decide, for each tool call, whether it may run, must not run, or
//! needs the user's approval. This crate makes that decision from what the call would do, not from the name of the tool:
//!
//! * [`shell`] parses a command line into the simple commands that a shell would run, and classifies them: which only
//!   read, which destroy something. It recognises lines whose words do not determine what they do.
//! * [`permission`] compares the effects of a call with rules such as `exec(cargo test)` or `read(secrets/**)`, the
//!   permission mode and the user's earlier answers, and explains its verdict. It also builds the question for the user
//!   and offers permissions that cover no more than what was asked about.
//!
//! Deciding is pure. The caller resolves symlinks in paths, asks the user, and enforces the verdict, for example with
//! `turnwright-sandbox`. The words of a command are never the only line of defence: run commands in a sandbox.
//!
//! ```
//! use std::path::Path;
//!
//! use turnwright_policy::permission::{
//!     Grants, Mode, PolicyRules, Rule, RuleAction, Scope, Verdict, decide,
//! };
//! use turnwright_policy::shell::{command, effects_of};
//! use turnwright_types::shell_script::ShellDialect;
//! use turnwright_types::effect::{PathScope, ResolvedPath};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = PolicyRules {
//!     rules: vec![
//!         Rule::parse("exec(cargo test)", RuleAction::Allow, Scope::User)?,
//!         Rule::parse("exec(git push)", RuleAction::Deny, Scope::User)?,
//!     ],
//!     ..PolicyRules::default()
//! };
//! let verdict = |line: &str| {
//!     let command = command(line, "/project", ShellDialect::Bash);
//!     // An agent resolves symlinks here.
//!     let resolve = |path: &Path| ResolvedPath { path: path.into(), scope: PathScope::Workspace };
//!     let effects = effects_of(command, resolve);
//!     decide(&policy, Mode::Ask, &Grants::default(), &effects).verdict()
//! };
//! assert_eq!(verdict("cargo test --all"), Verdict::Allow);
//! assert_eq!(verdict("cargo test && make"), Verdict::Ask);
//! assert_eq!(verdict("cargo test; git -C .. push"), Verdict::Deny);
//! # Ok(())
//! # }
//! ```

pub mod permission;
pub mod shell;
