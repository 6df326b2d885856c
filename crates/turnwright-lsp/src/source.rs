//! The interface to sources of errors and places. The only sources today are the servers that this agent starts. The
//! interface also suffices for the draft of the Agent Client Protocol that forwards requests to an editor's servers
//! (`lsp/request`): there the editor sends the texts, and [`DiagnosticSource::show`] only selects one to ask about.

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
    /// True if this is the text on the disk, and not an earlier one.
    pub(crate) is_saved: bool,
}

/// A change of a file that the source did not make itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    Created = 1,
    Changed = 2,
    Deleted = 3,
}

/// A source of errors in files, and of places in them.
pub trait DiagnosticSource: Debug + Send + Sync {
    /// Returns the name of the source, for the user and the model.
    fn name(&self) -> &str;

    /// Returns the unit of columns in the positions of the source.
    fn encoding(&self) -> Encoding;

    /// Returns true if the source has loaded the project.
    fn is_ready(&self) -> bool;

    /// Shows the text of a file to the source. `is_saved` is true if this is the text on the disk.
    fn show(&self, file: &Path, text: &str, is_saved: bool) -> ShownText;

    /// Returns the files that were shown to the source and are still open.
    fn shown_files(&self) -> Vec<PathBuf>;

    /// Tells the source which files have changed.
    fn note_events(&self, events: &[(PathBuf, FileEvent)]);

    /// Finds the errors of exactly this text; `None` if they are not known by the deadline.
    fn errors<'a>(
        &'a self,
        shown: &'a ShownText,
        deadline: Instant,
    ) -> BoxFuture<'a, Option<Vec<Problem>>>;

    /// Sends a request and waits for its result until the deadline. An error is part of a sentence.
    fn request<'a>(
        &'a self,
        method: &'static str,
        params: Value,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Value, String>>;
}
