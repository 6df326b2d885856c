//! `turnwright config`: shows, checks and changes the settings.

mod show;

use std::process::ExitCode;

use clap::Subcommand;

use super::{CliError, report, write_stdout};
use crate::config::{Config, SETTINGS_SCHEMA};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the path of the settings file
    #[command(after_help = "Example: $EDITOR \"$(turnwright config path)\"")]
    Path,
    /// Show the effective settings and where each comes from (keys are not shown)
    #[command(after_help = "Example: turnwright config show --json")]
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the settings file, for editors
    #[command(after_help = "Example: turnwright config schema > config.schema.json")]
    Schema,
}

pub(super) fn run(action: &ConfigCommand, config: &Config) -> ExitCode {
    let done = match action {
        ConfigCommand::Path => print(&format!("{}\n", config.user_file_path().display())),
        ConfigCommand::Show { json } => return show::run(*json, config),
        ConfigCommand::Schema => print(SETTINGS_SCHEMA),
    };
    report("config", done)
}

fn print(text: &str) -> Result<(), CliError> {
    Ok(write_stdout(text)?)
}
