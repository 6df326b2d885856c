//! Where the user's `config.toml` is, and what it says now.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use turnwright_workspace::private_file;
use super::environment::variable;
use super::file::File;
use super::{ConfigError, Paths};

/// The most that is read. A file of settings has a few hundred lines.
const LARGEST: u64 = 1024 * 1024;

/// The user's file.
pub struct UserFile {
    path: PathBuf,
    /// Somebody has said that it is there.
    must_exist: bool,
    /// What it said when it was last read. A std mutex: held while a small file is read.
    last: Mutex<Option<Arc<Loaded>>>,
}

impl fmt::Debug for UserFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its text may hold a credential, in a header say.
        formatter.debug_struct("UserFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A text and what it means.
struct Loaded {
    /// `None` if there is no file; an error if it cannot be read.
    text: Result<Option<String>, ConfigError>,
    outcome: Result<Arc<File>, ConfigError>,
    warnings: Vec<String>,
    is_logged: AtomicBool,
}

impl UserFile {
    /// The file: what the flag says, else `TURNWRIGHT_CONFIG`, else `config.toml` in the folder
    /// for settings.
    pub fn find(flag: Option<PathBuf>, paths: &Paths) -> UserFile {
        match flag.or_else(|| variable("TURNWRIGHT_CONFIG").map(PathBuf::from)) {
            Some(path) => UserFile { path, must_exist: true, last: Mutex::default() },
            None => UserFile::usual(paths),
        }
    }

    /// The file in the folder for settings. It need not be there.
    pub fn usual(paths: &Paths) -> UserFile {
        let path = paths.config.join("config.toml");
        UserFile { path, must_exist: false, last: Mutex::default() }
    }

    /// Where it is, or would be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The variables that it takes keys from. Says nothing to the log, which may not be there yet.
    pub fn key_variables(&self) -> Vec<String> {
        let named = self.read().outcome.as_ref().map(|file| file.variables()).ok();
        named.unwrap_or_default()
    }

    /// What it says now. What is wrong with it goes to the log, once.
    pub(super) fn load(&self) -> Result<Arc<File>, ConfigError> {
        let loaded = self.read();
        if !loaded.is_logged.swap(true, Ordering::Relaxed) {
            loaded.warnings.iter().for_each(|it| tracing::warn!("{it}"));
            if let Err(error) = &loaded.outcome {
                tracing::warn!("{error}");
            }
        }
        loaded.outcome.clone()
    }

    /// A sentence about each thing in it that has no effect.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.read().warnings.clone()
    }

    /// Reads the file. Whether it has changed is decided by its text: a time stamp may be the same.
    fn read(&self) -> Arc<Loaded> {
        let text = match private_file::read(&self.path, LARGEST) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.must_exist => Ok(None),
            Err(error) => Err(ConfigError::new(format!(
                "The settings cannot be read: {}: {error}. Check --config and TURNWRIGHT_CONFIG",
                self.path.display()
            ))),
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|it| it.text == text) {
            return Arc::clone(last);
        }
        let loaded = Arc::new(self.understand(text));
        *last = Some(Arc::clone(&loaded));
        loaded
    }

    fn understand(&self, text: Result<Option<String>, ConfigError>) -> Loaded {
        let parsed = match &text {
            Ok(Some(text)) => File::parse(text, &self.path),
            Ok(None) => Ok((File::default(), Vec::new())),
            Err(error) => Err(error.clone()),
        };
        let (outcome, warnings) = match parsed {
            Ok((file, warnings)) => (Ok(Arc::new(file)), warnings),
            Err(error) => (Err(error), Vec::new()),
        };
        Loaded { text, outcome, warnings, is_logged: AtomicBool::new(false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_file_is_seen_and_only_a_file_that_was_named_must_be_there() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let file = UserFile::usual(&paths);
        assert!(file.load().unwrap().model.is_none());
        for model in ["a", "b", "a"] {
            private_file::store(file.path(), format!("model = '{model}'").as_bytes()).unwrap();
            assert_eq!(file.load().unwrap().model.as_deref(), Some(model));
        }
        private_file::store(file.path(), b"model = ").unwrap();
        assert!(file.load().is_err());
        private_file::remove(file.path()).unwrap();
        assert!(file.load().unwrap().model.is_none());

        let named = UserFile::find(Some(file.path().to_owned()), &paths);
        let error = named.load().unwrap_err().to_string();
        assert!(error.contains("config.toml") && error.contains("--config"), "{error}");
        private_file::store(file.path(), b"model = 'c'").unwrap();
        assert_eq!(named.load().unwrap().model.as_deref(), Some("c"));
    }
}
