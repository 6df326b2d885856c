//! A string that must not be shown, such as a key.

use secrecy::{ExposeSecret, SecretString};

/// A string that `Debug` does not show and that is wiped on drop. Comparable, to detect a changed login.
#[derive(Clone, Debug)]
pub(crate) struct Secret(SecretString);

impl Secret {
    /// The secret text.
    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Converts into the type of the `secrecy` crate.
    pub(crate) fn into_inner(self) -> SecretString {
        self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.expose() == other.expose()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text.into())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret(text.into())
    }
}
