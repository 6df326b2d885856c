//! A text file as it was found: what it says, and everything else that has to stay as it is when
//! a part of it is changed.

use ring::digest::{SHA256, digest};

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// What it says, without a byte order mark, every line with its own end.
    pub text: String,
    /// How that is written in bytes.
    pub form: Form,
    /// Where it came from.
    pub source: Source,
}

/// How a text is written in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The encoding.
    pub encoding: &'static encoding_rs::Encoding,
    /// Whether it begins with a byte order mark.
    pub mark: bool,
}

impl Default for Form {
    fn default() -> Form {
        Form { encoding: encoding_rs::UTF_8, mark: false }
    }
}

/// Where a text came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The disk.
    Disk,
    /// The editor's buffer, which may have unsaved changes.
    Editor,
}

/// What a text says, in 32 bytes. Line ends do not count: an editor shows every file with its
/// own, and that is no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Text {
    /// A text in UTF-8.
    pub fn new(text: impl Into<String>, source: Source) -> Text {
        Text { text: text.into(), form: Form::default(), source }
    }

    /// Its hash.
    pub fn hash(&self) -> Hash {
        let unified = if self.text.contains('\r') {
            digest(&SHA256, self.text.replace("\r\n", "\n").as_bytes())
        } else {
            digest(&SHA256, self.text.as_bytes())
        };
        let mut hash = [0; 32];
        hash.copy_from_slice(unified.as_ref());
        Hash(hash)
    }
}
