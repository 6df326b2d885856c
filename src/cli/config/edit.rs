//! `turnwright config init`, `edit`, `set` and `unset`: what changes the user's settings file.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

use super::print;
use crate::cli::CliError;
use crate::session::user_rule_problems;
use turnwright_config::{Config, SettingChange, settings_schema, settings_template};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;
use turnwright_types::redact;

/// The file beside the settings to which their first line refers.
const SCHEMA_FILE: &str = "config.schema.json";

/// Writes a settings file in which everything is commented out, unless there is one.
pub(super) fn init(config: &Config) -> Result<(), CliError> {
    let path = config.user_file_path();
    if exists(path) {
        return Err(CliError::Other(format!(
            "{} exists already. Change it with `turnwright config edit`",
            path.display()
        )));
    }
    create(path)?;
    print(&format!("Created {}\n", path.display()))
}

/// Opens the file in the user's editor, and checks it afterwards.
pub(super) fn edit(config: &Config) -> Result<(), CliError> {
    let path = config.user_file_path();
    if !exists(path) {
        create(path)?;
    } else if exists(&path.with_file_name(SCHEMA_FILE)) {
        // It may be that of another version.
        write_schema(path)?;
    }
    let editor = config.editor();
    let failed = |what: String| CliError::Other(format!("The editor `{editor}` {what}"));
    match open(&editor, path) {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(failed(format!("ended with {status}"))),
        Err(error) => return Err(failed(format!("cannot be started: {}", io_error_text(&error)))),
    }
    let problems = problems(config);
    if problems.is_empty() {
        return print(&format!("No problems in {}\n", path.display()));
    }
    let list = problems.join("\n");
    Err(CliError::Other(format!(
        "The file is saved, but something is wrong:\n{}",
        redact::text(&list)
    )))
}

fn problems(config: &Config) -> Vec<String> {
    let settings = config.snapshot();
    let mut problems = settings.file_problems();
    let rules = settings.user_permissions().unwrap_or_default();
    let of_rules = user_rule_problems(config, &rules);
    problems.extend(of_rules.iter().map(|problem| config.locate_problem(problem)));
    problems
}

/// A link that leads nowhere exists as well.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn create(path: &Path) -> io::Result<()> {
    write_schema(path)?;
    private_file::write(path, settings_template().as_bytes())
}

fn write_schema(path: &Path) -> io::Result<()> {
    private_file::write(&path.with_file_name(SCHEMA_FILE), settings_schema().as_bytes())
}

/// Runs the editor, which may have arguments, and waits for its end.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "the editor has the terminal")]
fn open(editor: &str, path: &Path) -> io::Result<ExitStatus> {
    Command::new("sh").arg("-c").arg(format!("{editor} \"$@\"")).arg(editor).arg(path).status()
}

/// Runs the editor, which may have arguments, and waits for its end.
#[cfg(not(unix))]
#[expect(clippy::disallowed_methods, reason = "the editor has the terminal")]
fn open(editor: &str, path: &Path) -> io::Result<ExitStatus> {
    let mut words = editor.split_whitespace();
    Command::new(words.next().unwrap_or(editor)).args(words).arg(path).status()
}

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
