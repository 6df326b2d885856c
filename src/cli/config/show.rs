//! `turnwright config show`: the effective settings, what the project adds, and what is wrong with them.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::project;
use crate::cli::write_stdout;
use crate::config::{Config, EffectiveSetting};
use crate::session::resolve_policy;
use crate::trust::TrustStore;
use turnwright_types::redact;
use turnwright_workspace::files::Roots;

/// The settings of the user, and what applies in the current folder.
struct ShownSettings {
    settings: Vec<EffectiveSetting>,
    project: Vec<EffectiveSetting>,
    /// Wrong values and invalid rules, one sentence each.
    errors: Vec<String>,
    warnings: Vec<String>,
}

/// Unusable settings are shown as well, and make the exit status 1.
pub(super) fn run(is_json: bool, config: &Config) -> ExitCode {
    let shown = ShownSettings::read(config);
    let text = if is_json { shown.as_json() } else { shown.as_text() };
    let is_usable = config.provider().is_ok() && shown.errors.is_empty();
    match write_stdout(&redact::text(&text)) {
        Ok(()) if is_usable => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

impl ShownSettings {
    fn read(config: &Config) -> ShownSettings {
        let (project, errors) = match Roots::new(Path::new(".")) {
            Ok(roots) => {
                let trust = TrustStore::new(&config.paths.state);
                let policy = resolve_policy(config, &trust, &roots);
                (project::settings(config, &policy, &roots), policy.problems)
            }
            Err(_) => (Vec::new(), config.wrong_values()),
        };
        let (settings, warnings) = (config.settings(), config.warnings());
        ShownSettings { settings, project, errors, warnings }
    }

    fn as_json(&self) -> String {
        let value = json!({
            "settings": self.settings,
            "project": self.project,
            "errors": self.errors,
            "warnings": self.warnings,
        });
        format!("{value:#}\n")
    }

    fn as_text(&self) -> String {
        let mut text = table(&self.settings);
        if !self.project.is_empty() {
            text.push_str(&format!("\nin this folder:\n{}", table(&self.project)));
        }
        let errors = self.errors.iter().map(|it| format!("error: {it}\n"));
        let warnings = self.warnings.iter().map(|it| format!("warning: {it}\n"));
        text.extend(errors.chain(warnings));
        text
    }
}

fn table(settings: &[EffectiveSetting]) -> String {
    let name = settings.iter().map(|it| it.name.chars().count()).max().unwrap_or_default();
    let value =
        settings.iter().map(|it| it.value.chars().count()).max().unwrap_or_default().min(60);
    let lines =
        settings.iter().map(|it| format!("{:name$}  {:value$}  {}\n", it.name, it.value, it.from));
    lines.collect()
}
