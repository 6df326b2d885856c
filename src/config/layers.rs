//! The files of others than the user: whoever manages the machine, and the project. Each may say
//! only a few things. Pure, but for reading the managed one.

use std::io;
use std::path::Path;

use serde::Deserialize;

use turnwright_workspace::private_file;
use super::bounds::{SANDBOX, SandboxSection, SandboxSettings};
use super::file::{complaint, note_rules, note_unknown};
use super::{Config, ConfigError, PermissionTexts};

/// The most that is read of the managed file.
const LARGEST: u64 = 1024 * 1024;

/// What whoever manages the machine has laid down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    /// Rules.
    pub permissions: PermissionTexts,
    /// The mode that no session may go beyond, unparsed.
    pub max_mode: Option<String>,
    /// A sentence about each thing in it that has no effect.
    pub warnings: Vec<String>,
}

/// What a project's own file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// Rules.
    pub permissions: PermissionTexts,
    /// The mode that its sessions are to begin in, unparsed.
    pub mode: Option<String>,
    /// A sentence about each thing in it that has no effect.
    pub warnings: Vec<String>,
    sandbox: SandboxSection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Layer {
    permissions: PermissionTexts,
    mode: Option<String>,
    max_mode: Option<String>,
    sandbox: SandboxSection,
}

/// What each file may say. A project does not choose how much is read: it is the user's.
pub(super) const MANAGED: &[&str] = &["permissions", "max_mode"];
pub(super) const PROJECT: &[&str] = &["permissions", "mode", "sandbox"];

impl Layer {
    fn parse(text: &str, path: &Path, top: &[&str]) -> Result<(Layer, Vec<String>), ConfigError> {
        let broken = |error: toml::de::Error| ConfigError::new(complaint(&error, text, path));
        let layer: Layer = toml::from_str(text).map_err(broken)?;
        let table: toml::Table = toml::from_str(text).map_err(broken)?;
        let mut notes = Vec::new();
        note_unknown(&table, "", top, &mut notes);
        note_rules(&table, &mut notes);
        if let Some(sandbox) = table.get("sandbox").filter(|_| top.contains(&"sandbox")) {
            let known: Vec<_> = SANDBOX.iter().filter(|it| **it != "read").copied().collect();
            sandbox.as_table().inspect(|it| note_unknown(it, "sandbox.", &known, &mut notes));
            notes.extend(layer.sandbox.notes(true));
        }
        Ok((layer, notes))
    }
}

impl Project {
    /// Understands the text of a project's file.
    ///
    /// # Errors
    /// When it is no TOML, or has a value of the wrong type.
    pub fn parse(text: &str, path: &Path) -> Result<Project, ConfigError> {
        let (Layer { permissions, mode, sandbox, .. }, warnings) =
            Layer::parse(text, path, PROJECT)?;
        Ok(Project { permissions, mode, warnings, sandbox })
    }
}

impl Config {
    /// What whoever manages the machine has laid down; nothing if there is no such file.
    ///
    /// # Errors
    /// When there is one and it cannot be read or understood.
    pub fn managed(&self) -> Result<Managed, ConfigError> {
        let path = &self.paths.managed;
        let text = match private_file::read(path, LARGEST) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Managed::default()),
            Err(error) => {
                let what = format!("The settings cannot be read: {}: {error}", path.display());
                return Err(ConfigError::new(what));
            }
        };
        let (Layer { permissions, max_mode, .. }, warnings) = Layer::parse(&text, path, MANAGED)?;
        Ok(Managed { permissions, max_mode, warnings })
    }

    /// The rules of the user's file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn permissions(&self) -> Result<PermissionTexts, ConfigError> {
        Ok(self.file.load()?.permissions.clone())
    }

    /// What commands are kept to, in a project if one is given. The paths are as they were
    /// written. Returns also what the project would have wider and may not.
    pub fn sandbox(
        &self,
        project: Option<(&Project, &Path, bool)>,
    ) -> (SandboxSettings, Vec<String>) {
        let home = self.home();
        let own = self.file.load().map(|it| it.sandbox.settings(home.as_deref()));
        let own = own.unwrap_or_default();
        match project {
            Some((project, folder, is_trusted)) => {
                own.with_project(&project.sandbox, folder, home.as_deref(), is_trusted)
            }
            None => (own, Vec::new()),
        }
    }
}
