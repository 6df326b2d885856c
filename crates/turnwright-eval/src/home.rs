//! The place of one trial: a temporary folder with its tree and its own home, which has the user's settings and login
//! and nothing else of the user. It is removed with the trial, or by the next process if this one is killed.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::EvalResult;
use crate::tree::Start;
use turnwright_config::{Config, EnvironmentVariables, Flags, Logins, Paths, UserFile};
use turnwright_types::private_file;
use turnwright_workspace::exec::{Environment, PipedProgram};
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The bytes that a disk has room for if it is not full.
const ROOM: usize = 64 * 1024;

/// The folders of a trial.
pub(crate) struct TrialHome(PrivateTempFolder);

impl TrialHome {
    /// Makes the place for a trial. Its commands can read neither the user's secrets, the project, nor the solution and
    /// the check in the folder of the task.
    pub(crate) fn create(start: &Start<'_>) -> EvalResult<TrialHome> {
        let home = TrialHome(PrivateTempFolder::create()?);
        let workplace = start.workplace;
        let paths = home.paths();
        if workplace.login.exists() {
            private_file::write(&Logins::path(&paths), &fs::read(&workplace.login)?)?;
        }
        let file = UserFile::at_default_path(&paths);
        private_file::write(file.path(), workplace.settings.as_bytes())?;
        if cfg!(unix) {
            let none = EnvironmentVariables::default();
            let settings = Config::new(none, Flags::default(), file, paths);
            let mut hidden = settings.snapshot().sandbox_settings().hide;
            hidden.extend(settings.snapshot().key_files().into_iter().map(|(_, path)| path));
            hidden.push(start.task.folder.clone());
            let kept = [start.repository.canonicalize()?, home.0.path().canonicalize()?];
            for place in &workplace.hidden {
                hide_all_but(&kept, place, &mut hidden)?;
            }
            let words: Vec<_> =
                hidden.iter().map(|place| place.to_string_lossy().into_owned()).collect();
            settings.change_setting("sandbox.hide", Some(&words))?.save()?;
        }
        Ok(home)
    }

    /// The place of the tree, which does not exist yet.
    pub(crate) fn tree(&self) -> PathBuf {
        self.0.path().join("work")
    }

    /// The places of the agent's own files.
    pub(crate) fn paths(&self) -> Paths {
        Paths::below(self.0.path().join("home"))
    }

    /// A program that runs in the tree, unconfined, with the home of this trial.
    pub(crate) fn program(
        &self,
        command_line: Vec<OsString>,
        shared: &Environment,
    ) -> PipedProgram {
        let home = self.0.path().join("home");
        let of_system = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
        let environment = shared.clone().with("TURNWRIGHT_HOME", &home).with(of_system, &home);
        PipedProgram { command_line, workdir: self.tree(), environment, sandbox: None }
    }

    /// Returns an error if the disk is full. The trial then failed because of that.
    pub(crate) fn check_room(&self) -> io::Result<()> {
        private_file::write(&self.0.path().join("room"), &vec![1; ROOM])
    }
}

/// Hides a place. If something that is kept is below it, all that is beside the way there is hidden instead: git reads
/// the objects of the start, and the folder for temporary files may be in the project.
fn hide_all_but(kept: &[PathBuf], place: &Path, hidden: &mut Vec<PathBuf>) -> io::Result<()> {
    if !kept.iter().any(|path| path.starts_with(place)) {
        hidden.push(place.to_path_buf());
    } else if kept.iter().all(|path| path != place) {
        for entry in fs::read_dir(place)? {
            hide_all_but(kept, &entry?.path(), hidden)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_beside_the_way_is_hidden() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path();
        for folder in ["src", "tmp/a", "tmp/b", "evals/task", "evals/.results/1/.starts/task.git"] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        fs::write(top.join("evals/.results/1/trials.jsonl"), "").unwrap();
        let kept = ["evals/.results/1/.starts/task.git", "tmp/a"].map(|path| top.join(path));
        let mut hidden = Vec::new();
        hide_all_but(&kept, top, &mut hidden).unwrap();
        hidden.sort();
        let expected = ["evals/.results/1/trials.jsonl", "evals/task", "src", "tmp/b"];
        assert_eq!(hidden, expected.map(|path| top.join(path)));
        hide_all_but(&kept, &top.join("src"), &mut hidden).unwrap();
        assert_eq!(hidden.len(), 5);
    }
}
