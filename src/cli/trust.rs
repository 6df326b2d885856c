//! `turnwright trust`: its arguments. `turnwright-terminal` shows what a project's files ask for, and trusts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::{CliError, exit_code};
use turnwright_config::Config;
use turnwright_config::trust::TrustStore;
use turnwright_terminal::trust;

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
pub(super) fn run(args: &TrustCliArgs, config: &Config) -> ExitCode {
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
