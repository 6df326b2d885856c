//! `turnwright config set` and `turnwright config unset`.

use super::print;
use crate::cli::CliError;
use crate::config::{Config, SettingChange};
use crate::session::user_rule_problems;
use turnwright_types::redact;

/// Changes a setting of the user's file, and says what was and what is now. Nothing is written if the value is
/// not allowed.
pub(super) fn set(config: &Config, key: &str, values: Option<&[String]>) -> Result<(), CliError> {
    let refused = |why: &str| CliError::Other(format!("{why}. Nothing was changed"));
    // Another change at the same time would be lost.
    let _lock = config.paths.lock_settings()?;
    let change = config.change_setting(key, values).map_err(|error| refused(&error.to_string()))?;
    let [before, after] = &change.permissions;
    let known = user_rule_problems(config, before);
    let problems = user_rule_problems(config, after);
    if let Some(problem) = problems.iter().find(|problem| !known.contains(problem)) {
        return Err(refused(problem));
    }
    change.save()?;
    print(&redact::text(&line(&change)))
}

fn line(change: &SettingChange) -> String {
    let old = change.old.as_deref().unwrap_or("not set");
    let new = change.new.as_deref().unwrap_or("not set");
    let overridden = change
        .overridden_by
        .map(|variable| format!(" ({variable} is set and takes precedence)"))
        .unwrap_or_default();
    format!("{}: {old} → {new}{overridden}\n", change.key)
}
