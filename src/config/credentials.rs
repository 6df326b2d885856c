//! The stored login: a key and the server that it is for, in a file that only its owner can read.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{ConfigError, Paths};
use turnwright_types::io_fault::io_fault;
use turnwright_workspace::private_file;

/// What `turnwright login` stores.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Credentials {
    /// The key; local servers need none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The base URL, if it is not OpenAI's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The model, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Credentials")
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// The path of the stored login.
    pub(crate) fn path(paths: &Paths) -> PathBuf {
        paths.config.join("login.json")
    }

    /// The stored login; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub(crate) fn load(paths: &Paths) -> Result<Option<Credentials>, ConfigError> {
        let path = Credentials::path(paths);
        let unusable = |why: String| {
            ConfigError::new(format!(
                "The stored login {} {why}. Run `turnwright login` again, or delete the file",
                path.display()
            ))
        };
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|it| unusable(format!("cannot be read ({})", io_fault(&it))))?,
        };
        serde_json::from_str(&text).map(Some).map_err(|_| unusable("is damaged".to_owned()))
    }

    /// Stores the login atomically, with mode 0600.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(crate) fn store(&self, paths: &Paths) -> io::Result<()> {
        private_file::write(
            &Credentials::path(paths),
            serde_json::to_string_pretty(self)?.as_bytes(),
        )
    }

    /// Removes the login. Returns whether there was one.
    ///
    /// # Errors
    /// If it exists and cannot be removed.
    pub(crate) fn remove(paths: &Paths) -> io::Result<bool> {
        private_file::remove(&Credentials::path(paths))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test damages a file")]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_kept_private_and_can_be_removed() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let login = Credentials { key: Some("sk-secret".to_owned()), ..Credentials::default() };
        login.store(&paths).unwrap();
        assert!(!format!("{login:?}").contains("secret"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(Credentials::path(&paths)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(Credentials::load(&paths).unwrap().unwrap().key, login.key);
        assert!(Credentials::remove(&paths).unwrap());
        assert!(!Credentials::remove(&paths).unwrap());
        assert!(Credentials::load(&paths).unwrap().is_none());
        fs::write(Credentials::path(&paths), "{").unwrap();
        let error = Credentials::load(&paths).unwrap_err().to_string();
        assert!(error.contains("login.json is damaged. Run `turnwright login` again"), "{error}");
    }
}
