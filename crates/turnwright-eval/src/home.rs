//! The place of one trial: a temporary folder with its tree and its own home, which has the user's settings and login
//! and nothing else of the user. It is removed with the trial, or by the next process if this one is killed.

use std::path::PathBuf;

use crate::EvalError;
use crate::workplace::Workplace;
use turnwright_config::{Logins, Paths, UserFile};
use turnwright_types::private_file;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The folders of a trial.
pub(crate) struct TrialHome {
    folder: PrivateTempFolder,
}

impl TrialHome {
    pub(crate) fn create(workplace: &Workplace) -> Result<TrialHome, EvalError> {
        let home = TrialHome { folder: PrivateTempFolder::create()? };
        let paths = home.paths();
        let file = UserFile::at_default_path(&paths);
        private_file::write(file.path(), workplace.settings.as_bytes())?;
        if let Some(login) = &workplace.login {
            private_file::write(&Logins::path(&paths), login)?;
        }
        Ok(home)
    }

    /// The place of the tree, which does not exist yet.
    pub(crate) fn tree(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// The places of the agent's own files.
    pub(crate) fn paths(&self) -> Paths {
        Paths::below(self.path())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The environment of the agent. It holds keys.
    pub(crate) fn agent_environment(&self, workplace: &Workplace) -> Environment {
        workplace.agent_environment(&self.path())
    }

    /// The environment of the setup and of the check.
    pub(crate) fn environment(&self, workplace: &Workplace) -> Environment {
        workplace.environment(&self.path())
    }

    /// A further folder for a tree.
    pub(crate) fn second_tree(&self) -> PathBuf {
        self.folder.path().join("before")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.paths().state
    }
}
