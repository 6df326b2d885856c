//! The place of one trial: a temporary folder with its tree and its own home, which has the user's settings and login
//! and nothing else of the user. It is removed with the trial, or by the next process if this one is killed.

use std::io;
use std::path::{Path, PathBuf};

use crate::EvalError;
use crate::workplace::Workplace;
use turnwright_config::{Logins, Paths, UserFile};
use turnwright_types::private_file;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The bytes that a disk has room for if it is not full.
const ROOM: usize = 64 * 1024;

/// The folders of a trial.
pub(crate) struct TrialHome {
    folder: PrivateTempFolder,
}

impl TrialHome {
    /// Makes the place for a trial of the task in this folder.
    pub(crate) fn create(workplace: &Workplace, task: &Path) -> Result<TrialHome, EvalError> {
        let home = TrialHome { folder: PrivateTempFolder::create()? };
        let paths = home.paths();
        let file = UserFile::at_default_path(&paths);
        private_file::write(file.path(), workplace.settings_for(task).as_bytes())?;
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

    /// The home of the agent and of the commands.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns an error if the disk is full. The trial then failed because of that.
    pub(crate) fn check_room(&self) -> io::Result<()> {
        private_file::write(&self.folder.path().join("room"), &vec![1; ROOM])
    }

    /// A further folder for a tree.
    pub(crate) fn second_tree(&self) -> PathBuf {
        self.folder.path().join("before")
    }
}
