//! The settings files: the user's `config.toml`, the managed file of the administrator and the file of the
//! project.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;

use crate::environment::read_variable;
use crate::file::{CheckTable, ConfigFile, wrong_checks};
use crate::paths::with_home;
use crate::reader::{read_settings, unknown_setting};
use crate::sandbox::{SandboxSection, SandboxSettings};
use crate::table::Row;
use crate::{Config, ConfigError, Paths, PermissionSection, SettingsSnapshot};
use turnwright_types::error_text::io_error_text;
use turnwright_types::hash::std_hash;
use turnwright_types::private_file;

/// The most bytes that are read of a settings file, which has a few hundred lines.
const MAX_FILE_SIZE: u64 = 1024 * 1024;

/// The user's settings file, which is read for each snapshot.
#[derive(Debug)]
pub struct UserFile {
    path: PathBuf,
    /// True if a flag or a variable names the file.
    must_exist: bool,
    /// The hash of the content whose warnings and errors were logged last.
    logged: AtomicU64,
}

impl UserFile {
    /// The file that the flag names, else `TURNWRIGHT_CONFIG`, else `config.toml` in the configuration
    /// folder.
    pub fn find(flag: Option<PathBuf>, paths: &Paths) -> UserFile {
        let named = flag.or_else(|| read_variable("TURNWRIGHT_CONFIG").map(PathBuf::from));
        match named.map(with_home) {
            Some(path) => UserFile { path, must_exist: true, logged: AtomicU64::default() },
            None => UserFile::at_default_path(paths),
        }
    }

    /// The file in the configuration folder, which need not exist.
    pub fn at_default_path(paths: &Paths) -> UserFile {
        let path = paths.config.join("config.toml");
        UserFile { path, must_exist: false, logged: AtomicU64::default() }
    }

    /// The path of the file, which need not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of the file; empty if there is none.
    pub(crate) fn text(&self) -> Result<String, ConfigError> {
        read_or_empty(&self.path)
    }

    /// The variables that hold the keys that the file refers to. Logs nothing: logging may not have started.
    pub fn key_variables(&self) -> Vec<String> {
        let parsed = self.read().and_then(|text| ConfigFile::parse(&text, &self.path));
        parsed.map(|(file, _)| file.variables()).unwrap_or_default()
    }

    /// Reads the file. Returns the settings with warnings about entries that have no effect, one sentence each. Logs
    /// warnings and errors once per content.
    pub(crate) fn load(&self) -> Result<(ConfigFile, Vec<String>), ConfigError> {
        let text = self.read();
        let hash = std_hash(text.as_ref().map_err(ToString::to_string));
        let parsed = text.and_then(|text| ConfigFile::parse(&text, &self.path));
        if self.logged.swap(hash, Ordering::Relaxed) != hash {
            match &parsed {
                Ok((_, warnings)) => {
                    for warning in warnings {
                        tracing::warn!("{warning}");
                    }
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
        parsed
    }

    /// The text of the file; empty if there is none that must exist.
    fn read(&self) -> Result<String, ConfigError> {
        match private_file::read(&self.path, MAX_FILE_SIZE) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.must_exist => {
                Ok(String::new())
            }
            Err(error) => Err(ConfigError::new(format!(
                "The settings cannot be read: {}: {}. Check the file, --config and TURNWRIGHT_CONFIG",
                self.path.display(),
                io_error_text(&error)
            ))),
        }
    }
}

/// The text of a file; empty if there is none. A link that leads nowhere, such as to dotfiles on a disk that is not
/// mounted, is an error: there are settings, which may deny something.
fn read_or_empty(path: &Path) -> Result<String, ConfigError> {
    private_file::read(path, MAX_FILE_SIZE).or_else(|error| {
        let mut links = path.ancestors().filter(|place| place.is_symlink());
        let why = match links.find(|link| matches!(link.try_exists(), Ok(false))) {
            Some(link) => format!("the link {} leads nowhere", link.display()),
            None if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            None => io_error_text(&error),
        };
        let place = path.display();
        Err(ConfigError::new(format!("The settings cannot be read: {place}: {why}")))
    })
}

/// The settings of the machine's administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ManagedSettings {
    /// The administrator's rules.
    pub(crate) permissions: PermissionSection,
    /// The most permissive mode that a session may have, unparsed.
    pub(crate) max_mode: Option<String>,
    /// Warnings about entries that have no effect, one sentence each.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

/// The settings in a project's own file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ProjectSettings {
    /// The project's rules.
    pub(crate) permissions: PermissionSection,
    /// The mode in which its sessions start, unparsed.
    pub(crate) mode: Option<String>,
    /// The commands that check it.
    pub(crate) checks: CheckTable,
    pub(crate) sandbox: SandboxSection,
    /// Warnings about entries that have no effect, one sentence each.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

impl ManagedSettings {
    const ROWS: &[Row] = &[
        Row::new::<PermissionSection>("permissions", "The administrator's rules."),
        Row::new::<Option<String>>("max_mode", "The most permissive mode of a session."),
    ];
}

impl ProjectSettings {
    const ROWS: &[Row] = &[
        Row::new::<PermissionSection>("permissions", "The project's rules."),
        Row::new::<Option<String>>("mode", "The mode in which its sessions start."),
        Row::new::<CheckTable>("checks", "The commands that check it."),
        Row::new::<SandboxSection>("sandbox", "The confinement of commands."),
    ];

    /// Parses the text of a project's file.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<ProjectSettings, ConfigError> {
        let (mut settings, mut warnings) =
            read_settings::<ProjectSettings>(text, path, ProjectSettings::ROWS)?;
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
    pub(crate) fn managed_settings(&self) -> Result<ManagedSettings, ConfigError> {
        let path = &self.paths.managed;
        let (settings, warnings) =
            read_settings(&read_or_empty(path)?, path, ManagedSettings::ROWS)?;
        Ok(ManagedSettings { warnings, ..settings })
    }
}

impl SettingsSnapshot<'_> {
    /// The confinement of commands by the user's file. Symbolic links in the paths are not resolved.
    pub fn sandbox_settings(&self) -> SandboxSettings {
        let home = self.config.home();
        let moved = self.config.moved_places();
        self.file().map(|file| file.sandbox.settings(home.as_deref(), &moved)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model_in(file: &UserFile) -> Option<String> {
        file.load().unwrap().0.model
    }

    #[test]
    fn changes_are_detected_and_only_a_named_file_must_exist() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let file = UserFile::at_default_path(&paths);
        assert_eq!(model_in(&file), None);
        for model in ["a", "b", "a"] {
            private_file::write(file.path(), format!("model = '{model}'").as_bytes()).unwrap();
            assert_eq!(model_in(&file).as_deref(), Some(model));
        }
        private_file::write(file.path(), b"model = ").unwrap();
        assert!(file.load().is_err());
        // As Windows PowerShell writes it.
        private_file::write(file.path(), b"\xff\xfem\0o\0d\0e\0").unwrap();
        let error = file.load().unwrap_err().to_string();
        assert!(error.contains("config.toml: it is not UTF-8. Check the file"), "{error}");
        private_file::remove(file.path()).unwrap();
        assert_eq!(model_in(&file), None);

        let named = UserFile::find(Some(file.path().to_owned()), &paths);
        let error = named.load().unwrap_err().to_string();
        assert!(error.contains("config.toml") && error.contains("--config"), "{error}");
        private_file::write(file.path(), b"model = 'c'").unwrap();
        assert_eq!(model_in(&named).as_deref(), Some("c"));
    }

    #[test]
    #[cfg(unix)]
    fn a_link_that_leads_nowhere_is_no_lack_of_settings() {
        use std::fs;
        use std::os::unix::fs::symlink;

        use crate::effective_policy::resolve_policy;
        use crate::trust::TrustStore;
        use crate::{EnvironmentVariables, Flags};
        use turnwright_workspace::files::Roots;

        fn unread(config: &Config) -> usize {
            let trust = TrustStore::new(&config.paths.state);
            let roots = Roots::new(Path::new(".")).unwrap();
            let policy = resolve_policy(&config.snapshot(), &trust, &roots);
            let problems = policy.problems.iter();
            problems.filter(|problem| problem.contains(" leads nowhere. Until ")).count()
        }

        for name in ["config", "config/config.toml", "managed/config.toml"] {
            let home = tempfile::tempdir().unwrap();
            let paths = Paths::below(home.path());
            let file = UserFile::at_default_path(&paths);
            let variables = EnvironmentVariables::default();
            let config = Config::new(variables, Flags::default(), file, paths);
            assert_eq!(unread(&config), 0);
            let link = home.path().join(name);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(home.path().join("dotfiles"), &link).unwrap();
            assert_eq!(unread(&config), 1, "{name}");
            // Else `config set` would replace the link.
            assert_eq!(config.file.text().is_err(), name.starts_with("config"), "{name}");
        }
    }

    #[test]
    fn a_project_and_an_administrator_have_fewer_settings() {
        let text = "mode = 'ask'\nmax_mode = 'ask'\nwarnings = []\n[permissions]\nalways = []\n\
                    [checks]\nrust = 'x'\n[sandbox]\nread = 'all'\nwalls = []\n[web]\nallow = []";
        let path = Path::new("c.toml");
        let project = ProjectSettings::parse(text, path).unwrap();
        assert_eq!(
            project.warnings,
            ["max_mode", "warnings", "permissions.always", "sandbox.walls", "web", "sandbox.read"]
                .map(|key| format!("Unknown setting `{key}` (ignored)"))
        );
        let managed = read_settings::<ManagedSettings>(text, path, ManagedSettings::ROWS).unwrap();
        assert_eq!(
            managed.1,
            ["mode", "warnings", "permissions.always", "checks", "sandbox", "web"]
                .map(|key| format!("Unknown setting `{key}` (ignored)"))
        );
    }
}
