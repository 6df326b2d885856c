//! The arguments of `turnwright policy`, for the rules of a project, and of `turnwright trust`, for its files.
//! `turnwright-terminal` does what they say.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::mcp::parse_mode;
use super::{CliError, exit_code};
use turnwright_config::Config;
use turnwright_config::trust::TrustStore;
use turnwright_policy::permission::{AuditLog, Mode, RuleAction};
use turnwright_terminal::policy::ProjectPolicy;
use turnwright_terminal::trust;

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// List the effective rules and who set them
    #[command(after_help = "Example: turnwright policy list --json")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Explain what would happen to a command, part by part
    #[command(after_help = "Example: turnwright policy check \"cargo test 2>&1 | tail\"\n\
                            Exit status: 0 if it would run, 1 if you would be asked, 2 if it \
                            would be refused, 3 on error.")]
    Check {
        /// Command line, or an MCP tool as mcp(server/tool)
        command: String,
        /// Permission mode (default: the mode that sessions start in)
        #[arg(long, value_parser = parse_mode)]
        mode: Option<Mode>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Add allow rules for this project
    #[command(after_help = "Example: turnwright policy allow \"exec(cargo test)\"")]
    Allow {
        /// For example exec(cargo test), edit(/docs/**), fetch(domain:docs.rs), mcp(notes/search)
        #[arg(required = true, value_name = "RULE")]
        rules: Vec<String>,
    },
    /// Add deny rules for this project
    #[command(after_help = "Example: turnwright policy deny \"exec(git push)\"")]
    Deny {
        /// For example exec(git push), edit(/vendor/**)
        #[arg(required = true, value_name = "RULE")]
        rules: Vec<String>,
    },
    /// Remove rules of this project
    #[command(after_help = "Example: turnwright policy revoke 3f9a1c")]
    Revoke {
        /// Rule ids from `turnwright policy list`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Suggest rules for commands you often allow by hand
    #[command(after_help = "Example: turnwright policy suggest")]
    Suggest,
}

/// Exits with 3 if the rules cannot be read or changed.
pub(super) fn run_policy(dir: Option<PathBuf>, action: PolicyCommand, config: &Config) -> ExitCode {
    let result = ProjectPolicy::load(dir, config).and_then(|project| match action {
        PolicyCommand::List { json } => project.list(json),
        PolicyCommand::Check { command, mode, json } => project.check(&command, mode, json),
        PolicyCommand::Allow { rules } => project.add(RuleAction::Allow, &rules),
        PolicyCommand::Deny { rules } => project.add(RuleAction::Deny, &rules),
        PolicyCommand::Revoke { ids } => project.revoke(&ids),
        PolicyCommand::Suggest => project.suggest(&AuditLog::read_entries(&config.paths.state)),
    });
    exit_code("policy", result, 3)
}

#[derive(Debug, Args)]
pub(super) struct TrustCliArgs {
    /// Project folder (default: the current folder)
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Trust without confirmation if CODE matches the file's current content
    #[arg(long, value_name = "CODE", conflicts_with_all = ["forget", "list"])]
    yes: Option<String>,
    /// Withdraw the trust in the project
    #[arg(long, conflicts_with = "list")]
    forget: bool,
    /// List trusted projects
    #[arg(long)]
    list: bool,
}

/// Exits with 0 if nothing is left to trust.
pub(super) fn run_trust(args: &TrustCliArgs, config: &Config) -> ExitCode {
    let store = TrustStore::new(&config.paths.state);
    let folder = args.folder.as_deref().unwrap_or(Path::new("."));
    let result = match args {
        TrustCliArgs { list: true, .. } => trust::list(&store),
        TrustCliArgs { forget: true, .. } => trust::forget(folder, &store),
        TrustCliArgs { yes, .. } => trust::review(folder, yes.as_deref(), config, &store),
    };
    let status = result.map(|is_all| if is_all { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    exit_code("trust", status.map_err(CliError::from), 1)
}
