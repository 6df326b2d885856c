//! Where errors and places come from. Today these are the servers that we start. The draft of the Agent Client Protocol
//! that passes requests on to the servers of an editor (`lsp/request`) needs no more than this: there, the editor tells
//! its servers the texts, so [`DiagnosticSource::show`] only says what is asked about.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use crate::protocol::{Encoding, Problem};

/// A text that a source was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownText {
    pub(crate) path: PathBuf,
    pub(crate) version: i64,
    /// True if it is that of the disk, and not an earlier one.
    pub(crate) is_saved: bool,
}

/// A change of a file that was made without the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    Created = 1,
    Changed = 2,
    Deleted = 3,
}

/// A source of errors in files, and of places in them.
pub trait DiagnosticSource: Debug + Send + Sync {
    /// Its name, for the user and the model.
    fn name(&self) -> &str;

    /// The unit of the columns in its positions.
    fn encoding(&self) -> Encoding;

    /// Returns true if it has loaded the project.
    fn is_ready(&self) -> bool;

    /// Shows it the text of a file. A text that `is_saved` is that of the disk.
    fn show(&self, file: &Path, text: &str, is_saved: bool) -> ShownText;

    /// The files that it was shown and that it takes for open.
    fn shown_files(&self) -> Vec<PathBuf>;

    /// Tells it which files were changed.
    fn note_events(&self, events: &[(PathBuf, FileEvent)]);

    /// Finds the errors of exactly this text; `None` if they are not known at the deadline.
    fn errors<'a>(
        &'a self,
        shown: &'a ShownText,
        deadline: Instant,
    ) -> BoxFuture<'a, Option<Vec<Problem>>>;

    /// Sends a request and waits for its result until the deadline. The error is a part of a sentence.
    fn request<'a>(
        &'a self,
        method: &'static str,
        params: Value,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Value, String>>;
}
