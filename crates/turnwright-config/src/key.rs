//! A provider's key and its origin, so that messages can say where the key comes from.

use std::fmt;
use std::path::PathBuf;

use crate::presets;
use turnwright_types::secret::Secret;

/// A key and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderKey {
    /// The key itself.
    pub secret: Secret,
    /// The place that a message names.
    pub origin: KeyOrigin,
}

/// Where a key comes from. Displayed as the name of the variable or the path of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// A variable of the environment.
    Variable(String),
    /// The file of the stored logins.
    Login(PathBuf),
    /// A `key_file` of the settings.
    File(PathBuf),
}

impl KeyOrigin {
    /// Returns advice for the user about a key that the server refuses.
    pub fn advice(&self) -> String {
        match self {
            // This variable takes precedence over a stored login, so it has to be unset first.
            KeyOrigin::Variable(name) if presets::is_key_variable(name) => {
                format!("Check the key in {name}, or unset it and run `turnwright login`")
            }
            KeyOrigin::Login(_) => {
                format!("Check the key in {self}, or run `turnwright login` again")
            }
            KeyOrigin::Variable(_) | KeyOrigin::File(_) => format!("Check the key in {self}"),
        }
    }
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyOrigin::Variable(name) => formatter.write_str(name),
            KeyOrigin::Login(path) | KeyOrigin::File(path) => path.display().fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_the_place_of_the_key() {
        for (origin, expected) in [
            (
                KeyOrigin::Variable("OPENAI_API_KEY".to_owned()),
                "Check the key in OPENAI_API_KEY, or unset it and run `turnwright login`",
            ),
            (KeyOrigin::Variable("MINE".to_owned()), "Check the key in MINE"),
            (KeyOrigin::File("/c/mine.key".into()), "Check the key in /c/mine.key"),
            (
                KeyOrigin::Login("/c/login.json".into()),
                "Check the key in /c/login.json, or run `turnwright login` again",
            ),
        ] {
            assert_eq!(origin.advice(), expected);
        }
    }
}
