//! A key or another text that nobody may see.

use secrecy::{ExposeSecret, SecretString};

/// A text that is not shown by `Debug` and is wiped when it is dropped. Two can be compared, to
/// know whether a login has changed.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl Secret {
    /// The text itself.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// For those who know the crate's type.
    pub fn into_inner(self) -> SecretString {
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
