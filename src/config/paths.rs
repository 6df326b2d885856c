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
}

impl Paths {
    /// The folders of this user. Without a home they are below the temporary folder.
    pub fn find() -> Paths {
        if let Some(home) = variable("TURNWRIGHT_HOME") {
            return Paths::below(home);
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
                }
            }
            Err(_) => Paths::below(std::env::temp_dir().join("turnwright")),
        }
    }

    /// All folders below one.
    pub fn below(home: impl AsRef<Path>) -> Paths {
        let home = home.as_ref();
        Paths { config: home.join("config"), state: home.join("state"), home: None }
    }
}
