//! A string that must not be shown, such as a key.

use secrecy::{ExposeSecret, SecretString};

/// A string that `Debug` does not show and that is wiped on drop. Comparable, to detect a changed login.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl Secret {
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

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
