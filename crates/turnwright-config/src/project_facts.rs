//! The facts besides the user's settings that decide about the questions in a project: its own settings, the
//! rules that the user has saved for it, and where its folders really are. With them, a session can run on a
//! machine that does not have the project.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Config;
use crate::effective_policy::{PROJECT_FILE, read_project_settings};
use crate::layers::ProjectSettings;
use crate::trust::TrustStore;
use turnwright_policy::permission::ProjectRuleStore;
use turnwright_types::private_file;
use turnwright_workspace::files::Roots;

/// The most bytes of saved rules that are collected.
const MAX_RULES_BYTES: u64 = 1024 * 1024;

/// Collects the facts about a project. Blocks.
pub fn project_facts(config: &Config, trust: &TrustStore, roots: &Roots) -> Value {
    let folder = roots.real_cwd();
    let named = std::iter::once(roots.cwd()).chain(roots.additional_folders());
    let folders =
        named.zip(roots.folders()).map(|(path, real)| [path, real].map(Path::to_string_lossy));
    // A file that holds no settings may be anything behind a link, so its content is not told. With text that cannot
    // be parsed either, a replay asks about everything, too.
    let settings = read_project_settings(folder, roots).unwrap_or_else(Some).map(|text| {
        let is_usable = ProjectSettings::parse(&text, Path::new(PROJECT_FILE)).is_ok();
        if is_usable { text } else { "not usable".to_owned() }
    });
    let is_trusted = settings
        .as_ref()
        .is_some_and(|text| trust.is_trusted(folder, PROJECT_FILE, text.as_bytes()));
    let rules = ProjectRuleStore::new(&config.paths.state, folder).path();
    json!({
        "is_trusted": is_trusted,
        "settings": settings,
        "rules": private_file::read(&rules, MAX_RULES_BYTES).ok(),
        "folders": folders.collect::<Vec<_>>(),
    })
}

/// The roots of a session on another machine whose client named these folders. If the facts do not say where a
/// folder really is, no links of it are known.
pub fn roots_elsewhere(project: &Value, cwd: &Path, others: &[PathBuf]) -> Roots {
    let folders = project["folders"].as_array().map_or(&[][..], Vec::as_slice);
    let real = |named: &Path| {
        let found = folders
            .iter()
            .find(|pair| pair[0].as_str().is_some_and(|path| Path::new(path) == named));
        let real = found.and_then(|pair| pair[1].as_str()).map_or(named, Path::new);
        (named.to_path_buf(), real.to_path_buf())
    };
    Roots::described(real(cwd), others.iter().map(|folder| real(folder)).collect())
}

/// Puts the facts about the project in `cwd` where this session looks for them: the settings into another
/// folder, and the rules into the state folder. Blocks.
pub fn restore_project(
    config: &Config,
    trust: &TrustStore,
    project: &Value,
    cwd: &Path,
    project_folder: &Path,
) -> io::Result<()> {
    if let Some(settings) = project["settings"].as_str() {
        private_file::write(&project_folder.join(PROJECT_FILE), settings.as_bytes())?;
        if project["is_trusted"] == true {
            trust.trust(project_folder, PROJECT_FILE, settings.as_bytes())?;
        }
    }
    if let Some(rules) = project["rules"].as_str() {
        let path = ProjectRuleStore::new(&config.paths.state, cwd).path();
        private_file::write(&path, rules.as_bytes())?;
    }
    Ok(())
}
