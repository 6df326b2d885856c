//! The folders of the agent's own files: those of the XDG Base Directory Specification or of Windows, or
//! all of them below `TURNWRIGHT_HOME`, for tests and portable installs.

use std::io;
use std::path::{Path, PathBuf};

use crate::environment::{home, read_variable};
use turnwright_types::error_text::with_path;
use turnwright_types::private_file::FileLock;
use turnwright_workspace::temp_folder::{own_folder_in, temp_place};

/// The folders of the agent's own files.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Settings and the stored login.
    pub config: PathBuf,
    /// Logs, sessions and caches.
    pub state: PathBuf,
    /// The user's home folder, if there is one. Folders that several agents share are there.
    pub home: Option<PathBuf>,
    /// Why the folders are not where the user may look for them.
    pub note: Option<String>,
    /// The file of the machine's administrator.
    pub managed: PathBuf,
}

/// The managed file. `TURNWRIGHT_HOME` does not override it, or it could be evaded.
const MANAGED: &str = if cfg!(windows) {
    // Unlike `C:\ProgramData`, it is a place where only administrators can create files.
    r"C:\Program Files\turnwright\config.toml"
} else {
    "/etc/turnwright/config.toml"
};

impl Paths {
    /// The folders of this user. If there is no home folder, they are below the temporary folder. None is
    /// below the current folder, which is the project.
    pub fn find() -> Paths {
        if let Some(home) = read_variable("TURNWRIGHT_HOME") {
            let folder = with_home(home.into());
            let below = Paths::below(std::path::absolute(&folder).unwrap_or(folder));
            // A managed file that exists but cannot be inspected, such as one in a linked folder, must not be ignored.
            return match Path::new(MANAGED).parent().map(std::fs::symlink_metadata) {
                Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => below,
                _ => Paths { managed: MANAGED.into(), ..below },
            };
        }
        let temporary = || Paths {
            home: home(),
            managed: MANAGED.into(),
            ..Paths::below(own_folder_in(&temp_place(), "turnwright"))
        };
        let Some((mut config, mut state)) = user_folders() else { return temporary() };
        if config.is_relative() {
            config = temporary().config;
        }
        if state.is_relative() {
            state = temporary().state;
        }
        let note = relative_variables().map(|names| {
            format!(
                "{names} must be an absolute path, and is ignored. The settings are in {}, sessions in {}",
                config.display(),
                state.display()
            )
        });
        Paths { config, state, home: home(), note, managed: MANAGED.into() }
    }

    /// Waits for other processes that change the settings or the logins, and keeps them waiting until the
    /// lock is dropped.
    pub fn lock_settings(&self) -> io::Result<FileLock> {
        let path = self.state.join("settings.lock");
        FileLock::acquire(&path).map_err(|error| with_path(&path, &error))
    }

    /// All folders below one folder.
    pub fn below(home: impl AsRef<Path>) -> Paths {
        let home = home.as_ref();
        Paths {
            config: home.join("config"),
            state: home.join("state"),
            home: None,
            note: None,
            managed: home.join("managed/config.toml"),
        }
    }
}

/// A path in which `~` stands for the home folder. A shell replaces it, but not in quotes or behind `--file=`, and
/// editors pass variables as they are: it would be a folder of this name in the project.
pub fn with_home(path: PathBuf) -> PathBuf {
    let Some(folder) = home() else { return path };
    match path.strip_prefix("~") {
        Ok(rest) => folder.join(rest),
        Err(_) => path,
    }
}

/// The names of the variables that would lead below the current folder.
fn relative_variables() -> Option<String> {
    const LOCATING: &[&str] = if cfg!(windows) {
        &["APPDATA", "LOCALAPPDATA"]
    } else {
        &["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"]
    };
    let mut names = LOCATING.to_vec();
    names.retain(|name| read_variable(name).is_some_and(|value| Path::new(&value).is_relative()));
    (!names.is_empty()).then(|| names.join(", "))
}

/// The folders for settings and for state; `None` if there is no home folder.
#[cfg(not(windows))]
fn user_folders() -> Option<(PathBuf, PathBuf)> {
    use etcetera::{AppStrategy, AppStrategyArgs, app_strategy};
    let strategy = app_strategy::Xdg::new(AppStrategyArgs {
        top_level_domain: String::new(),
        author: String::new(),
        app_name: "turnwright".to_owned(),
    });
    let strategy = strategy.ok()?;
    Some((strategy.config_dir(), strategy.state_dir().unwrap_or(strategy.data_dir())))
}

/// Settings follow the user to other machines, state stays on this one.
#[cfg(windows)]
fn user_folders() -> Option<(PathBuf, PathBuf)> {
    let folder = |variable, usual: &str| {
        let named = read_variable(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let found = named.or_else(|| Some(home()?.join("AppData").join(usual)));
        found.map(|path| path.join("turnwright"))
    };
    Some((folder("APPDATA", "Roaming")?, folder("LOCALAPPDATA", "Local")?))
}
