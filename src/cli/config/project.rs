//! Everything that applies in the current folder besides the user's own settings: permission rules of all
//! origins, the project's files, whether they are trusted, and what they change.

use std::path::{Path, PathBuf};

use crate::config::{Config, EffectiveSetting, SandboxSettings, SettingsSnapshot};
use crate::session::{EffectivePolicy, PROJECT_FILE, ProjectFile, SERVERS_FILE};
use crate::tools::{UserFolders, project_sources};
use crate::trust::TrustStore;
use turnwright_policy::permission::{Mode, ProjectRuleStore, Scope};
use turnwright_types::effect::escape_hidden_line;
use turnwright_workspace::files::Roots;

/// The settings that apply in these folders, each with its origin.
pub(super) fn settings(
    settings: &SettingsSnapshot<'_>,
    policy: &EffectivePolicy,
    roots: &Roots,
) -> Vec<EffectiveSetting> {
    let config = settings.config;
    let mut found = Vec::new();
    add_rules(&mut found, config, policy, roots);
    let trust = TrustStore::new(&config.paths.state);
    for file in &policy.project_files {
        let state = trust_state(file, &trust, roots.real_cwd());
        add(&mut found, file.name, &state, &shown(&roots.real_cwd().join(file.name)));
    }
    add_mode(&mut found, settings, policy, roots);
    add_sandbox(&mut found, settings, policy, roots);
    let folders = UserFolders {
        config: config.paths.config.clone(),
        state: config.paths.state.clone(),
        home: config.paths.home.clone(),
    };
    for source in project_sources(&folders, roots) {
        add(&mut found, source.kind, &escape_hidden_line(&source.name), &shown(&source.path));
    }
    found
}

fn add(found: &mut Vec<EffectiveSetting>, name: &str, value: &str, from: &str) {
    found.push(EffectiveSetting::new(name, value, from));
}

fn shown(path: &Path) -> String {
    escape_hidden_line(&path.to_string_lossy())
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// The number of rules in force of each origin but the user's file.
fn add_rules(
    found: &mut Vec<EffectiveSetting>,
    config: &Config,
    policy: &EffectivePolicy,
    roots: &Roots,
) {
    let kept = ProjectRuleStore::new(&config.paths.state, roots.real_cwd()).path();
    let project = roots.real_cwd().join(PROJECT_FILE);
    for (scope, whose, path) in [
        (Scope::Managed, "of the administrator", config.paths.managed.as_path()),
        (Scope::Local, "that you have kept for this project", &kept),
        (Scope::Project, "of the project", &project),
    ] {
        let number = policy.rules.rules.iter().filter(|rule| rule.scope == scope).count();
        if number > 0 {
            let value = format!("{} {whose}", count(number, "rule"));
            add(found, "permissions", &value, &shown(path));
        }
    }
    if policy.max_mode != Mode::Full {
        add(found, "max_mode", policy.max_mode.id(), &shown(&config.paths.managed));
    }
}

/// Describes whether the user trusts a file of the project, and what does not apply because of that.
fn trust_state(file: &ProjectFile, trust: &TrustStore, folder: &Path) -> String {
    let is_servers = file.name == SERVERS_FILE;
    let what = match file.requests.as_slice() {
        requests if is_servers => count(requests.len(), "MCP server"),
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

/// The mode in which sessions start here, if it is another one than elsewhere.
fn add_mode(
    found: &mut Vec<EffectiveSetting>,
    settings: &SettingsSnapshot<'_>,
    policy: &EffectivePolicy,
    roots: &Roots,
) {
    let elsewhere = settings.mode();
    if policy.mode == elsewhere {
        return;
    }
    let is_limited = policy.mode == policy.max_mode && policy.max_mode < elsewhere;
    let project = roots.real_cwd().join(PROJECT_FILE);
    let from = if is_limited { &settings.config.paths.managed } else { &project };
    add(found, "mode", policy.mode.id(), &shown(from));
}

/// The settings of the sandbox that the project changes.
fn add_sandbox(
    found: &mut Vec<EffectiveSetting>,
    settings: &SettingsSnapshot<'_>,
    policy: &EffectivePolicy,
    roots: &Roots,
) {
    let from = shown(&roots.real_cwd().join(PROJECT_FILE));
    let (own, _) = settings.sandbox_settings(None);
    for ((name, here), (_, elsewhere)) in values(&policy.sandbox).into_iter().zip(values(&own)) {
        if here != elsewhere {
            add(found, name, &escape_hidden_line(&here), &from);
        }
    }
}

/// The settings of the sandbox that a project can change.
fn values(sandbox: &SandboxSettings) -> [(&'static str, String); 5] {
    [
        ("sandbox.network", sandbox.network.id().to_owned()),
        ("sandbox.write", path_list(&sandbox.write)),
        ("sandbox.caches", path_list(&sandbox.caches)),
        ("sandbox.hide", path_list(&sandbox.hide)),
        ("sandbox.protect", sandbox.protect.join(", ")),
    ]
}

fn path_list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(", ")
}
