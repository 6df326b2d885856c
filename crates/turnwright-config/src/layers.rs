//! The settings files that are not the user's: the managed file of the administrator and the file of the
//! project. Each may contain only some of the settings.

use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::file::{CheckTable, read_settings, unknown_setting, wrong_checks};
use crate::sandbox::{SandboxSection, SandboxSettings};
use crate::{Config, ConfigError, PermissionSection, SettingsSnapshot};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;

/// The most bytes that are read of the managed file.
const MAX_FILE_SIZE: u64 = 1024 * 1024;

/// The settings of the machine's administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ManagedSettings {
    /// The administrator's rules.
    pub permissions: PermissionSection,
    /// The most permissive mode that a session may have, unparsed.
    pub max_mode: Option<String>,
    /// Warnings about entries that have no effect, one sentence each.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// The settings in a project's own file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ProjectSettings {
    /// The project's rules.
    pub permissions: PermissionSection,
    /// The mode in which its sessions start, unparsed.
    pub mode: Option<String>,
    /// The commands that check it.
    pub checks: CheckTable,
    /// Warnings about entries that have no effect, one sentence each.
    #[serde(skip)]
    pub warnings: Vec<String>,
    sandbox: SandboxSection,
}

impl ProjectSettings {
    /// Parses the text of a project's file.
    pub fn parse(text: &str, path: &Path) -> Result<ProjectSettings, ConfigError> {
        let (mut settings, mut warnings) = read_settings::<ProjectSettings>(text, path)?;
        // It is not a project's choice: it protects the user's files.
        if settings.sandbox.read.take().is_some() {
            warnings.push(unknown_setting(&["sandbox", "read"]));
        }
        warnings.extend(settings.sandbox.wrong_in_project());
        warnings.extend(wrong_checks("checks", &settings.checks));
        Ok(ProjectSettings { warnings, ..settings })
    }
}

impl Config {
    /// The settings of the machine's administrator; empty if there is no managed file.
    pub fn managed_settings(&self) -> Result<ManagedSettings, ConfigError> {
        let path = &self.paths.managed;
        let text = match private_file::read(path, MAX_FILE_SIZE) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ManagedSettings::default());
            }
            Err(error) => {
                let path = path.display();
                let why = io_error_text(&error);
                let what = format!("The settings cannot be read: {path}: {why}");
                return Err(ConfigError::new(what));
            }
        };
        let (settings, warnings) = read_settings(&text, path)?;
        Ok(ManagedSettings { warnings, ..settings })
    }
}

impl SettingsSnapshot<'_> {
    /// The permission rules of the user's file.
    pub fn user_permissions(&self) -> Result<PermissionSection, ConfigError> {
        Ok(self.file()?.permissions.clone())
    }

    /// The confinement of commands, with the settings of a project (its file, its folder, whether it is
    /// trusted) if one is given. Symbolic links in the paths are not resolved. Also returns the settings of
    /// an untrusted project that are ignored because they would loosen the confinement.
    pub fn sandbox_settings(
        &self,
        project: Option<(&ProjectSettings, &Path, bool)>,
    ) -> (SandboxSettings, Vec<String>) {
        let home = self.config.home();
        let own =
            self.file().map(|file| file.sandbox.settings(home.as_deref())).unwrap_or_default();
        match project {
            Some((project, folder, is_trusted)) => {
                own.with_project(&project.sandbox, folder, home.as_deref(), is_trusted)
            }
            None => (own, Vec::new()),
        }
    }
}
