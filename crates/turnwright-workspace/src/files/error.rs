//! Why a file could not be read or written. The texts are for the model.

/// Why a file could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is none.
    #[error("does not exist")]
    NotFound,
    /// It is a folder.
    #[error("is a folder; use list_dir")]
    Folder,
    /// It is no folder.
    #[error("is not a folder")]
    NotAFolder,
    /// A FIFO, a socket or a device: reading it may never end.
    #[error("is {0}, not a regular file")]
    Special(&'static str),
    /// Too large to be read as a whole.
    #[error("has {0} bytes, more than the 32 MiB that can be taken at once; use exec")]
    TooLarge(u64),
    /// Not text.
    #[error("is binary ({0} bytes)")]
    Binary(u64),
    /// A picture that no model would take.
    #[error("is a picture of more than 5 MiB ({0} bytes); make it smaller first")]
    LargePicture(u64),
    /// A line that lies too far from the beginning to be reached in reasonable time.
    #[error(
        "is too large to find line {0} in it; count from the end (negative start_line) or use grep"
    )]
    TooFar(usize),
    /// Its owner does not want it to be changed.
    #[error("is read-only; nothing was written. Ask the user before you make it writable")]
    ReadOnly,
    /// A character that the file's encoding does not have.
    #[error(
        "is in {encoding}, which has no {char:?}; nothing was written. Use other characters, or \
         convert the file to UTF-8 first"
    )]
    Unmappable {
        /// The first such character.
        char: char,
        /// The encoding's name.
        encoding: &'static str,
    },
    /// The editor holds another text than the disk, and cannot be trusted with this file's bytes.
    #[error(
        "has unsaved changes in the editor, which would lose its encoding or line ends; nothing \
         was written. Ask the user to save it"
    )]
    Unsaved,
    /// Its place has changed between the decision and the act, as when a link was swapped.
    #[error("moved while permission was asked; nothing was done")]
    Moved,
    /// Its content has changed since it was shown to the user.
    #[error("changed while permission was asked; nothing was written. Read it again")]
    Stale,
    /// What was to be made is there already.
    #[error("exists already; nothing was changed")]
    Exists,
    /// The user cancelled before anything was done.
    #[error("was not written: cancelled by the user")]
    Cancelled,
    /// The editor refused.
    #[error("could not be written by the editor: {0}")]
    Editor(String),
    /// It had to be written in place, and that failed half way.
    #[error("was written only in part ({0}); read it to see what is there")]
    Torn(String),
    /// The system refused.
    #[error("{0}")]
    System(String),
}
