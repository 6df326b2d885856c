//! `turnwright config`.

use std::io::{self, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use crate::config::Config;
use turnwright_types::redact;
use crate::session::rule_problems;

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Where the file with the settings is, or would be
    #[command(after_help = "Example: $EDITOR \"$(turnwright config path)\"")]
    Path,
    /// The settings in force, each with where it comes from; keys are not shown
    #[command(after_help = "Example: turnwright config show --json")]
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Shows what was asked for. Settings that cannot be used are shown too, and end with 1.
pub(super) fn run(action: &Action, config: &Config) -> ExitCode {
    let text = match action {
        Action::Path => format!("{}\n", config.file().display()),
        Action::Show { json: true } => as_json(config),
        Action::Show { json: false } => as_text(config),
    };
    let is_usable = matches!(action, Action::Path) || config.provider().is_ok();
    match say(&text) {
        Ok(()) if is_usable => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[expect(clippy::disallowed_methods, reason = "no protocol is spoken here")]
fn say(text: &str) -> io::Result<()> {
    stdout().write_all(redact::text(text).as_bytes())
}

/// A sentence about each thing in the files that has no effect, and about rules that are wrong.
fn warnings(config: &Config) -> Vec<String> {
    let rules = rule_problems(config, Path::new("."));
    config.warnings().into_iter().chain(rules).collect()
}

fn as_json(config: &Config) -> String {
    let value = json!({ "settings": config.settings(), "warnings": warnings(config) });
    format!("{value:#}\n")
}

fn as_text(config: &Config) -> String {
    let settings = config.settings();
    let name = settings.iter().map(|it| it.name.chars().count()).max().unwrap_or_default();
    let value =
        settings.iter().map(|it| it.value.chars().count()).max().unwrap_or_default().min(60);
    let lines =
        settings.iter().map(|it| format!("{:name$}  {:value$}  {}\n", it.name, it.value, it.from));
    let warnings = warnings(config).into_iter().map(|it| format!("! {it}\n"));
    lines.chain(warnings).collect()
}
