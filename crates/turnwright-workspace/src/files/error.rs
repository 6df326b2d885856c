//! The errors of file access. Their texts are for the model.

/// Why a file could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("does not exist")]
    NotFound,
    #[error("is a folder; use list_dir")]
    Folder,
    #[error("is not a folder")]
    NotAFolder,
    /// A FIFO, a socket or a device; reading it may block for ever.
    #[error("is {0}, not a regular file")]
    Special(&'static str),
    /// The file is larger than [`READ_LIMIT`](super::READ_LIMIT).
    #[error("has {0} bytes, more than the 32 MiB that can be taken at once; use exec")]
    TooLarge(u64),
    /// The file is not text.
    #[error("is binary ({0} bytes)")]
    Binary(u64),
    /// An image that is larger than models accept.
    #[error("is an image of more than 5 MiB ({0} bytes); make it smaller first")]
    LargePicture(u64),
    /// The requested line is too far from the beginning to be found in reasonable time.
    #[error(
        "is too large to find line {0} in it; count from the end (negative start_line) or use grep"
    )]
    LineTooFar(usize),
    /// The file is write-protected.
    #[error("is read-only; nothing was written. Ask the user before you make it writable")]
    ReadOnly,
    /// A character that the file's encoding cannot represent.
    #[error(
        "is in {encoding}, which has no {char:?}; nothing was written. Use other characters, or \
         convert the file to UTF-8 first"
    )]
    Unmappable { char: char, encoding: &'static str },
    /// The editor has unsaved changes and could not preserve this file's encoding or line endings.
    #[error(
        "has unsaved changes in the editor, which would lose its encoding or line ends; nothing \
         was written. Ask the user to save it"
    )]
    Unsaved,
    /// The buffer has unsaved changes, and a call has changed the file on the disk.
    #[error(
        "has unsaved changes in the editor, and was changed on the disk since; nothing was written. \
         Ask the user to save it or to load it anew"
    )]
    Conflict,
    /// The path leads somewhere else than when permission was given, for example because a link was
    /// swapped.
    #[error("moved while permission was asked; nothing was done")]
    Moved,
    /// The content has changed since it was shown to the user.
    #[error("changed while permission was asked; nothing was written. Read it again")]
    Stale,
    /// The file to be created exists.
    #[error("exists already; nothing was changed")]
    Exists,
    #[error("was not read: cancelled by the user")]
    ReadCancelled,
    #[error("was not written: cancelled by the user")]
    Cancelled,
    /// The editor refused to show the file, and so it is not read from the disk either.
    #[error("was not read: {0}. Do not read it in another way; ask the user")]
    ReadRefused(String),
    #[error("could not be written by the editor: {0}")]
    Editor(String),
    /// A write in place failed half way, and the old content could not be restored.
    #[error("was written only in part ({0}); read it to see what is there")]
    PartialWrite(String),
    /// An error of the operating system.
    #[error("{0}")]
    System(String),
}
