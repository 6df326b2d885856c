//! The virtual environments of Python that a command makes or changes, judging by its words.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::ConfinementBuilder;
use crate::repository;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_policy::shell::{self, EnvironmentUse};
use turnwright_types::effect::{Effect, ShellCommand};
use turnwright_workspace::exec::dialect;

impl ConfinementBuilder<'_> {
    /// The environments that the command makes, and those into which it installs packages: it may write there.
    pub(super) fn changed_environments(&self) -> Vec<PathBuf> {
        let usual = self.usual_environments();
        match environment_use(self.command) {
            EnvironmentUse::None | EnvironmentUse::InstallsConda => Vec::new(),
            EnvironmentUse::Creates => usual.filter(|path| !exists(path)).collect(),
            EnvironmentUse::Installs => usual.chain(self.environments()).collect(),
            EnvironmentUse::Makes => {
                let named = self.named_paths();
                let all = usual.chain(self.environments());
                all.filter(|path| !exists(path) || named.contains(path)).collect()
            }
        }
    }

    /// The environments that installers use by default.
    fn usual_environments(&self) -> impl Iterator<Item = PathBuf> {
        self.site.settings.protected.roots().iter().map(|root| root.join(".venv"))
    }

    /// The paths that the arguments may name, and the folder that `uv venv` makes without any.
    fn named_paths(&self) -> BTreeSet<PathBuf> {
        let mut named = BTreeSet::new();
        for command in &self.command.script.commands {
            let Some(folder) = &command.folder else { continue };
            let folder = self.command.workdir.join(folder);
            let words = command.argv().skip(1).chain([".venv"]);
            named.extend(words.map(|word| repository::normalize_lexically(&folder.join(word))));
        }
        named
    }

    /// The virtual environments of Python in the session's folders that are known by their file.
    pub(super) fn environments(&self) -> Vec<PathBuf> {
        let found = self.site.tracker.repositories();
        let files = found.iter().filter(|path| ProtectedPaths::is_environment_file(path));
        files.filter_map(|file| file.parent()).map(Path::to_path_buf).collect()
    }
}

/// Returns true for a command that may make virtual environments of Python, judging by its words.
pub fn makes_environments(effect: &Effect) -> bool {
    matches!(effect, Effect::Exec(command) if environment_use(command) != EnvironmentUse::None)
}

pub(super) fn environment_use(command: &ShellCommand) -> EnvironmentUse {
    shell::environment_use(&command.line, dialect())
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
