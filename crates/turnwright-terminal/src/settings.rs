//! `turnwright config`: shows, checks and changes the settings, but for those of an editor.
//!
//! Shows the effective settings, what the project adds, and what is wrong with them. Besides the user's own
//! settings these are permission rules of all origins, the project's files, whether they are trusted, and what they
//! change.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use serde_json::json;

use crate::{CliError, CliResult, print, report, write_stdout};
use turnwright_config::effective_policy::{
    EffectivePolicy, PROJECT_FILE, ProjectFile, SERVERS_FILE, resolve_policy, user_rule_problems,
};
use turnwright_config::trust::TrustStore;
use turnwright_config::{
    Config, EffectiveSetting, SandboxSettings, SettingChange, SettingsSnapshot, settings_schema,
    settings_template,
};
use turnwright_policy::permission::{Mode, ProjectRuleStore, Scope};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::{io_error_text, with_path};
use turnwright_types::{private_file, redact, text};
use turnwright_workspace::files::Roots;

/// Lists what else of the project in these folders applies, such as its instructions.
pub type ProjectListing = fn(&Config, &Roots) -> Vec<EffectiveSetting>;

/// The settings of the user, and what applies in the current folder.
struct ShownSettings {
    settings: Vec<EffectiveSetting>,
    project: Vec<EffectiveSetting>,
    /// Wrong values and invalid rules, one sentence each.
    errors: Vec<String>,
    warnings: Vec<String>,
}

/// Shows the effective settings. Unusable ones are shown as well, and make the exit status 1.
pub fn show(is_json: bool, config: &Config, listing: ProjectListing) -> ExitCode {
    let settings = config.snapshot();
    let shown = ShownSettings::new(&settings, listing);
    let text = if is_json { shown.as_json() } else { shown.as_text() };
    let is_usable = settings.provider().is_ok() && shown.errors.is_empty();
    match write_stdout(&text) {
        Ok(()) if is_usable => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => report("config", Err(error.into())),
    }
}

impl ShownSettings {
    fn new(settings: &SettingsSnapshot<'_>, listing: ProjectListing) -> ShownSettings {
        let (project, problems) = match Roots::new(Path::new(".")) {
            Ok(roots) => {
                let trust = TrustStore::new(&settings.config.paths.state);
                let policy = resolve_policy(settings, &trust, &roots);
                let mut applied = applied_settings(settings, &policy, &roots);
                applied.extend(listing(settings.config, &roots));
                (applied, policy.problems)
            }
            Err(_) => (Vec::new(), settings.wrong_values()),
        };
        let (errors, warnings) = settings.errors_and_warnings(problems);
        ShownSettings { settings: settings.settings(), project, errors, warnings }
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
        let errors = self.errors.iter().map(|error| format!("error: {error}\n"));
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        text.extend(errors.chain(warnings));
        text
    }
}

fn table(settings: &[EffectiveSetting]) -> String {
    let name =
        settings.iter().map(|setting| setting.name.chars().count()).max().unwrap_or_default();
    let value = settings
        .iter()
        .map(|setting| setting.value.chars().count())
        .max()
        .unwrap_or_default()
        .min(60);
    let lines = settings.iter().map(|setting| {
        format!("{:name$}  {:value$}  {}\n", setting.name, setting.value, setting.from)
    });
    lines.collect()
}

/// The settings that apply in these folders, each with its origin.
fn applied_settings(
    settings: &SettingsSnapshot<'_>,
    policy: &EffectivePolicy,
    roots: &Roots,
) -> Vec<EffectiveSetting> {
    let paths = &settings.config.paths;
    let folder = roots.real_cwd();
    let managed = shown(&paths.managed);
    let kept = shown(&ProjectRuleStore::new(&paths.state, folder).path());
    let project = shown(&folder.join(PROJECT_FILE));
    let mut found = Vec::new();
    let mut add = |name: &str, value: &str, from: &str| {
        found.push(EffectiveSetting::new(name, value, from));
    };
    // The number of rules in force of each origin but the user's file.
    for (scope, whose, from) in [
        (Scope::Managed, "of the administrator", &managed),
        (Scope::Local, "that you have kept for this project", &kept),
        (Scope::Project, "of the project", &project),
    ] {
        let number = policy.rules.rules.iter().filter(|rule| rule.scope == scope).count();
        if number > 0 {
            add("permissions", &format!("{} {whose}", text::counted(number, "rule")), from);
        }
    }
    if policy.max_mode != Mode::Full {
        add("max_mode", policy.max_mode.id(), &managed);
    }
    let trust = TrustStore::new(&paths.state);
    for file in &policy.project_files {
        let state = trust_state(file, &trust, folder);
        add(file.name, &state, &shown(&folder.join(file.name)));
    }
    // The mode in which sessions start here, if it is another one than elsewhere.
    let elsewhere = settings.mode();
    if policy.mode != elsewhere {
        let is_limited = policy.mode == policy.max_mode && policy.max_mode < elsewhere;
        add("mode", policy.mode.id(), if is_limited { &managed } else { &project });
    }
    // The settings of the sandbox that the project changes.
    let own = settings.sandbox_settings();
    for ((name, here), (_, of_user)) in values(&policy.sandbox).into_iter().zip(values(&own)) {
        if here != of_user {
            add(name, &escape_hidden_line(&here), &project);
        }
    }
    found
}

fn shown(path: &Path) -> String {
    escape_hidden_line(&path.to_string_lossy())
}

/// Describes whether the user trusts a file of the project, and what does not apply because of that.
fn trust_state(file: &ProjectFile, trust: &TrustStore, folder: &Path) -> String {
    let is_servers = file.name == SERVERS_FILE;
    let what = match file.requests.as_slice() {
        requests if is_servers => text::counted(requests.len(), "MCP server"),
        requests => requests.join(", "),
    };
    if file.is_trusted {
        return match what {
            what if what.is_empty() => "trusted".to_owned(),
            what => format!("trusted: {what}"),
        };
    }
    if !file.needs_trust() {
        return "needs no trust: it only makes things stricter".to_owned();
    }
    let was_trusted = trust
        .list()
        .iter()
        .any(|record| Path::new(&record.project) == folder && record.what == file.name);
    let state = if was_trusted { "changed since it was trusted" } else { "not trusted" };
    let effect = if is_servers { "not started" } else { "ignored" };
    format!("{state}: {what} {effect} until you run `turnwright trust`")
}

/// The settings of the sandbox that a project can change.
fn values(sandbox: &SandboxSettings) -> [(&'static str, String); 5] {
    [
        ("sandbox.network", sandbox.network_text()),
        ("sandbox.write", path_list(&sandbox.write)),
        ("sandbox.caches", path_list(&sandbox.caches)),
        ("sandbox.hide", path_list(&sandbox.hide)),
        ("sandbox.protect", sandbox.protect.join(", ")),
    ]
}

fn path_list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(", ")
}

/// The file beside the settings to which their first line refers.
const SCHEMA_FILE: &str = "config.schema.json";

/// Writes a settings file in which everything is commented out, unless there is one.
pub fn init(config: &Config) -> CliResult<()> {
    let path = config.user_file_path();
    let place = path.display();
    if exists(path) {
        let advice = "Change it with `turnwright config edit`";
        return Err(format!("{place} exists already. {advice}").into());
    }
    create(path)?;
    print(&format!("Created {place}\n"))
}

/// Opens the file in the user's editor, and checks it afterwards.
pub fn edit(config: &Config) -> CliResult<()> {
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
    let clean = redact::text(&list);
    Err(format!("The file is saved, but something is wrong:\n{clean}").into())
}

fn problems(config: &Config) -> Vec<String> {
    let settings = config.snapshot();
    let mut problems = settings.file_problems();
    let of_rules = user_rule_problems(config, &settings.values.permissions);
    problems.extend(of_rules.iter().map(|problem| config.locate_problem(problem)));
    problems
}

/// A link that leads nowhere exists as well.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn create(path: &Path) -> io::Result<()> {
    let written =
        write_schema(path).and_then(|()| private_file::write(path, settings_template().as_bytes()));
    written.map_err(|error| with_path(path, &error))
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
    use std::os::windows::process::CommandExt;
    // `code` is a batch file, which only `cmd` finds. `cmd` removes a quote at both ends of its line.
    let line = format!("\"{editor} \"{}\"\"", path.display());
    let mut command = Command::new("cmd");
    // Otherwise `code` could mean a file of the current folder.
    command.env("NoDefaultCurrentDirectoryInExePath", "1");
    command.args(["/d", "/s", "/c"]).raw_arg(line).status()
}

/// Changes a setting of the user's file, and says what was and what is now. Nothing is written if the value is
/// not allowed.
pub fn set(config: &Config, key: &str, values: Option<&[String]>) -> CliResult<()> {
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
    print(&line(&change))
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

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_config::{EnvironmentVariables, Flags, Paths, UserFile};
    use turnwright_types::private_file;

    #[cfg(windows)]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn an_editor_may_be_a_batch_file_with_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("code.cmd");
        std::fs::write(script, "@echo %1 %~nx2>\"%~dp0seen\"").unwrap();
        let editor = format!("\"{}\" --wait", folder.path().join("code").display());
        assert!(open(&editor, Path::new("C:\\a b\\config.toml")).unwrap().success());
        let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
        assert_eq!(seen.trim_end(), "--wait config.toml");
    }

    /// The keys and values of the table of wrong entries in the manual.
    fn wrong_entries() -> impl Iterator<Item = (&'static str, &'static str)> {
        let manual = include_str!("../../../docs/configuration.md");
        let (_, table) = manual.split_once("<!-- settings: wrong -->\n\n").unwrap();
        let lines = table.lines().take_while(|line| line.starts_with('|'));
        lines.filter_map(|line| line.split('`').nth(1)?.split_once(" = "))
    }

    /// Settings in an empty folder.
    fn config(home: &Path) -> Config {
        let paths = Paths::below(home);
        let file = UserFile::at_default_path(&paths);
        private_file::write(file.path(), b"").unwrap();
        // With a key, any model has a provider.
        let environment = vec![("OPENAI_API_KEY".into(), "k".into())];
        let (variables, _) = EnvironmentVariables::classify(environment, &[]);
        Config::new(variables, Flags::default(), file, paths)
    }

    #[test]
    fn no_wrong_entry_of_the_manual_is_written() {
        assert!(wrong_entries().count() > 40);
        for (key, value) in wrong_entries() {
            let home = tempfile::tempdir().unwrap();
            let config = config(home.path());
            let outcome = set(&config, key, Some(&[value.to_owned()]));
            let shown = ShownSettings::new(&config.snapshot(), |_, _| Vec::new());
            assert_eq!((shown.errors, shown.warnings), (Vec::new(), Vec::new()), "{key} = {value}");
            let is_written = !std::fs::read_to_string(config.user_file_path()).unwrap().is_empty();
            assert_eq!(outcome.is_ok(), is_written, "{key} = {value}");
        }
    }
}
