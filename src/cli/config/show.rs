//! `turnwright config show`: the effective settings, and what is wrong with them.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::cli::write_stdout;
use crate::config::Config;
use crate::session::rule_problems;
use turnwright_types::redact;

/// Unusable settings are shown as well, and make the exit status 1.
pub(super) fn run(is_json: bool, config: &Config) -> ExitCode {
    let text = if is_json { as_json(config) } else { as_text(config) };
    let is_usable = config.provider().is_ok() && errors(config).is_empty();
    match write_stdout(&redact::text(&text)) {
        Ok(()) if is_usable => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
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
