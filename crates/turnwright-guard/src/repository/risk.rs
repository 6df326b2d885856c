//! The risk that git starts a program in a repository because of its settings, or shows the content of another one.
//! Reads the disk: not for the runtime's thread.

use std::fs;
use std::path::{Path, PathBuf};

use turnwright_policy::shell::GitUse;
use turnwright_types::effect::Uncertainty;
use turnwright_types::git_layout::GitLayout;
use turnwright_workspace::git_repository::GitRepository;

use super::settings::{self, GitConfigError, GitSetting};
use super::{
    MAX_CONFIG_BYTES, MAX_SUBMODULES, common_folder, foreign_content_risk, is_worktree, read_text,
    submodule_configs, submodules,
};

/// Which settings of a repository are obeyed.
#[derive(Clone, Copy)]
pub(crate) enum Obeyed<'a> {
    /// Settings that matter to any program of git, now or later.
    Always,
    /// Settings that matter to one command. A command that only reads gets settings in place of the repository's hooks
    /// and file system monitor.
    By { git: &'a GitUse, only_reads: bool },
}

impl Obeyed<'_> {
    fn is_risky(self, setting: &GitSetting, fetches_on_demand: bool) -> bool {
        let Obeyed::By { git, .. } = self else { return !setting.is_harmless() };
        setting.matters_to(git) || fetches_on_demand && setting.matters_to(&GitUse::FETCH)
    }

    /// The same in a submodule. A git that is started there does not get the settings for readers.
    fn within(self, is_submodule: bool) -> Self {
        match self {
            Obeyed::By { git, only_reads } => {
                Obeyed::By { git, only_reads: only_reads && !is_submodule }
            }
            Obeyed::Always => Obeyed::Always,
        }
    }

    /// Returns true if the settings that readers get replace this one.
    fn is_replaced(self, setting: &GitSetting) -> bool {
        matches!(self, Obeyed::By { only_reads: true, .. })
            && ["core.fsmonitor", "core.hookspath"].contains(&setting.key.as_str())
    }
}

/// Why git may start a program of the repository's choice when it runs in this real folder. Reads
/// the disk: not for the runtime's thread.
pub(crate) fn program_risk(folder: &Path, obeyed: Obeyed<'_>) -> Option<Uncertainty> {
    let mut at = Some(folder);
    while let Some(folder) = at {
        if GitLayout::of(folder).is_repository() {
            let reason = "git would obey this folder's own settings as those of a repository";
            return Some(reason.to_owned().into());
        }
        match GitRepository::at(folder) {
            Ok(Some(found)) => return repository_risk(found, obeyed),
            Ok(None) => at = folder.parent(),
            Err(reason) => return Some(reason.to_string().into()),
        }
    }
    None
}

/// Why git may start a program in this repository or in one of its submodules, in which git runs itself.
fn repository_risk(found: GitRepository, obeyed: Obeyed<'_>) -> Option<Uncertainty> {
    let mut pending = vec![found];
    let mut count = 0;
    let mut of_settings = None;
    while let Some(repository) = pending.pop() {
        let is_submodule = count > 0;
        let foreign = foreign_content_risk(&repository).map(Uncertainty::from);
        match foreign.or_else(|| config_risk(&repository, obeyed.within(is_submodule))) {
            Some(risk) if risk.only_runs_programs => of_settings = of_settings.or(Some(risk)),
            Some(risk) => return Some(risk),
            None => {}
        }
        let Some(submodules) = submodules(&repository) else { return Some(not_understood()) };
        count += submodules.len();
        if count > MAX_SUBMODULES {
            return Some("the repository has too many submodules".to_owned().into());
        }
        for path in submodules {
            match GitRepository::at(&repository.top.join(path)) {
                Ok(Some(inner)) => pending.push(inner),
                Ok(None) => {}
                Err(reason) => return Some(reason.to_string().into()),
            }
        }
    }
    of_settings
}

/// Why git may start a program because of the settings of a repository and of its submodules.
pub(super) fn config_risk(found: &GitRepository, obeyed: Obeyed<'_>) -> Option<Uncertainty> {
    let Some(common) = common_folder(found) else { return Some(not_understood()) };
    let is_its_tree = is_worktree(&common, &found.top);
    let own = [common.join("config"), found.git.join("config.worktree")];
    let (configs, is_complete) = submodule_configs(&common.join("modules"), MAX_SUBMODULES);
    if !is_complete {
        return Some(not_understood());
    }
    let (Ok(own), Ok(of_modules)) = (read_settings(&own), read_settings(&configs)) else {
        return Some(not_understood());
    };
    let fetches_on_demand = own.iter().any(GitSetting::fetches_on_demand);
    let risky = own.iter().find(|setting| {
        let is_known_tree = is_its_tree && setting.key == "core.worktree";
        !is_known_tree
            && !obeyed.is_replaced(setting)
            && obeyed.is_risky(setting, fetches_on_demand)
    });
    let mut risky_of_modules = of_modules.iter().filter(|setting| {
        setting.key != "core.worktree" && obeyed.is_risky(setting, fetches_on_demand)
    });
    risky.or_else(|| risky_of_modules.next()).map(setting_risk)
}

fn setting_risk(setting: &GitSetting) -> Uncertainty {
    Uncertainty { reason: setting.reason(), only_runs_programs: setting.is_program() }
}

/// All settings of config files. Missing files have none.
fn read_settings(files: &[PathBuf]) -> Result<Vec<GitSetting>, GitConfigError> {
    let mut all = Vec::new();
    for file in files.iter().filter(|file| fs::symlink_metadata(file).is_ok()) {
        let text = read_text(file, MAX_CONFIG_BYTES).ok_or(GitConfigError)?;
        all.extend(settings::parse(&text)?);
    }
    Ok(all)
}

/// Why git may start a program because of the settings in the own folder of a repository that has just
/// appeared. Any folder of hooks counts, because it may be in the repository.
pub(crate) fn new_repository_risk(git: &Path) -> Option<Uncertainty> {
    let is_submodule = git.ancestors().any(|folder| folder.ends_with(".git/modules"));
    let config = git.join("config");
    settings_file_risk(&config, is_submodule).or_else(|| {
        let all = read_settings(&[config]).ok()?;
        all.iter().find(|setting| setting.key == "core.hookspath").map(setting_risk)
    })
}

/// Why git may start a program because of one settings file. If `is_tree` is true, the working tree that the
/// file names is the repository's own.
pub(crate) fn settings_file_risk(file: &Path, is_tree: bool) -> Option<Uncertainty> {
    let Ok(all) = read_settings(&[file.to_path_buf()]) else { return Some(not_understood()) };
    let risky = all.iter().find(|setting| {
        let is_known_tree = is_tree && setting.key == "core.worktree";
        !is_known_tree && !setting.is_harmless()
    });
    risky.map(setting_risk)
}

fn not_understood() -> Uncertainty {
    "the repository's settings are not understood".to_owned().into()
}
