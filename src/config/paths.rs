//! Where things are kept: the folders of the XDG base directory specification, or all below
//! `TURNWRIGHT_HOME` for tests and portable installs.

use std::path::{Path, PathBuf};

use etcetera::{AppStrategy, AppStrategyArgs, app_strategy};

use super::environment::variable;

/// The folders.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Settings and the login.
    pub config: PathBuf,
    /// Logs, and what is kept for a while.
    pub state: PathBuf,
    /// The user's home, if there is one: tools that several agents share have their folders there.
    pub home: Option<PathBuf>,
    /// The file of whoever manages the machine.
    pub managed: PathBuf,
}

/// Where that file is. A folder of one's own for everything else does not hide it.
const MANAGED: &str = "/etc/turnwright/config.toml";

impl Paths {
    /// The folders of this user. Without a home they are below the temporary folder.
    pub fn find() -> Paths {
        if let Some(home) = variable("TURNWRIGHT_HOME") {
            let below = Paths::below(home);
            // One that is there and cannot be looked at counts as well.
            return match std::fs::symlink_metadata(MANAGED) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => below,
                _ => Paths { managed: MANAGED.into(), ..below },
            };
        }
        let strategy = app_strategy::Xdg::new(AppStrategyArgs {
            top_level_domain: String::new(),
            author: String::new(),
            app_name: "turnwright".to_owned(),
        });
        match strategy {
            Ok(strategy) => {
                let state = strategy.state_dir();
                Paths {
                    config: strategy.config_dir(),
                    state: state.unwrap_or(strategy.data_dir()),
                    home: etcetera::home_dir().ok(),
                    managed: MANAGED.into(),
                }
            }
            Err(_) => {
                let below = Paths::below(std::env::temp_dir().join("turnwright"));
                Paths { managed: MANAGED.into(), ..below }
            }
        }
    }

    /// All folders below one.
    pub fn below(home: impl AsRef<Path>) -> Paths {
        let home = home.as_ref();
        Paths {
            config: home.join("config"),
            state: home.join("state"),
            home: None,
            managed: home.join("managed/config.toml"),
        }
    }
}
