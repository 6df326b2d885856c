//! `turnwright config`: shows the settings and where each of them comes from.

use std::io::{self, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use crate::config::Config;
use crate::session::rule_problems;
use turnwright_types::redact;

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
}

/// Unusable settings are shown as well, and make the exit status 1.
pub(super) fn run(action: &ConfigCommand, config: &Config) -> ExitCode {
    let text = match action {
        ConfigCommand::Path => format!("{}\n", config.user_file_path().display()),
        ConfigCommand::Show { json: true } => as_json(config),
        ConfigCommand::Show { json: false } => as_text(config),
    };
    let is_usable = matches!(action, ConfigCommand::Path)
        || config.provider().is_ok() && errors(config).is_empty();
    match write_stdout(&text) {
        Ok(()) if is_usable => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[expect(clippy::disallowed_methods, reason = "this subcommand speaks no protocol on stdout")]
fn write_stdout(text: &str) -> io::Result<()> {
    stdout().write_all(redact::text(text).as_bytes())
}

/// Wrong values and invalid rules, one sentence each.
fn errors(config: &Config) -> Vec<String> {
    rule_problems(config, Path::new("."))
}

fn as_json(config: &Config) -> String {
    let value = json!({
        "settings": config.settings(), "errors": errors(config), "warnings": config.warnings(),
    });
    format!("{value:#}\n")
}

fn as_text(config: &Config) -> String {
    let settings = config.settings();
    let name = settings.iter().map(|it| it.name.chars().count()).max().unwrap_or_default();
    let value =
        settings.iter().map(|it| it.value.chars().count()).max().unwrap_or_default().min(60);
    let lines =
        settings.iter().map(|it| format!("{:name$}  {:value$}  {}\n", it.name, it.value, it.from));
    let errors = errors(config).into_iter().map(|it| format!("error: {it}\n"));
    let warnings = config.warnings().into_iter().map(|it| format!("warning: {it}\n"));
    lines.chain(errors).chain(warnings).collect()
}
