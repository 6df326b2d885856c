//! The state of a server: the documents that it has open, the errors that it has published for them, and the progress
//! that it reports.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::protocol::{Problem, errors_in, path_of};

/// Errors published without a version are taken for those of the latest text if no others follow within this time.
const QUIET_TIME: Duration = Duration::from_millis(250);
/// A server that has reported no progress within this time is assumed to have loaded the project.
const QUIET_START: Duration = Duration::from_secs(3);

/// The most registrations of one kind that are kept.
const MAX_REGISTRATIONS: usize = 16;

/// The way in which a server indicates that it has loaded the project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Readiness {
    /// The server answers only once the project is loaded, so nothing has to be waited for.
    #[default]
    AtOnce,
    /// The progress that the server reports has ended.
    Progress,
    /// The server reports that it is quiescent, as rust-analyzer does.
    Quiescence,
}

/// A document that is open in the server.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) path: PathBuf,
    pub(crate) version: i64,
    /// The hash of the document's text.
    pub(crate) hash: u64,
    /// The errors that the server has published for this text, and the time from which they count, unless others
    /// replace them before.
    pub(crate) published: Option<(Vec<Problem>, Instant)>,
}

/// The state of a server, as known from the messages in both directions.
#[derive(Debug)]
pub(crate) struct ServerState {
    /// The open documents, the most recently used one last.
    pub(crate) documents: Vec<Document>,
    /// The version of the text that was sent last. No two texts have the same version, even of different documents.
    pub(crate) last_version: i64,
    /// The identifiers with which the server has registered to be asked for diagnostics. A server may register anew
    /// before it withdraws the earlier registration.
    pull_registrations: Vec<String>,
    /// The time when the server was last used.
    pub(crate) used: Instant,
    /// The last line that the server printed as an error.
    pub(crate) last_words: String,
    started: Instant,
    /// The number of tasks whose progress has begun and not ended; `None` if no progress was reported yet.
    running_tasks: Option<u32>,
    /// True if the server has loaded the project, and false if it could not; `None` while it is busy with that. Set
    /// only by servers that report it.
    pub(crate) is_loaded: Option<bool>,
}

impl ServerState {
    pub(crate) fn new() -> ServerState {
        ServerState {
            documents: Vec::new(),
            last_version: 0,
            pull_registrations: Vec::new(),
            used: Instant::now(),
            last_words: String::new(),
            started: Instant::now(),
            running_tasks: None,
            is_loaded: None,
        }
    }

    /// Returns true if the server has loaded the project.
    pub(crate) fn is_ready(&self, readiness: Readiness) -> bool {
        match (readiness, self.running_tasks) {
            (Readiness::AtOnce, _) => true,
            (Readiness::Progress, Some(running)) => running == 0,
            (Readiness::Progress, None) => self.started.elapsed() > QUIET_START,
            (Readiness::Quiescence, _) => self.is_loaded == Some(true),
        }
    }

    /// Returns true if the server has registered to be asked for diagnostics.
    pub(crate) fn wants_pulls(&self) -> bool {
        !self.pull_registrations.is_empty()
    }

    /// Notes a registration of the server, or its end.
    pub(crate) fn register(&mut self, registration: &Value, is_on: bool) {
        if registration["method"] == "textDocument/diagnostic" {
            let id = registration["id"].to_string();
            self.pull_registrations.retain(|known| *known != id);
            if is_on && self.pull_registrations.len() < MAX_REGISTRATIONS {
                self.pull_registrations.push(id);
            }
        }
    }

    pub(crate) fn handle_notification(&mut self, method: &str, params: &Value) {
        match method {
            "textDocument/publishDiagnostics" => self.take_errors(params),
            "$/progress" => self.take_progress(params),
            "experimental/serverStatus" => {
                // Without the project, a server finds no errors, or wrong ones.
                let is_idle = params["quiescent"] == true;
                self.is_loaded = is_idle.then_some(params["health"] != "error");
            }
            _ => {}
        }
    }

    fn take_progress(&mut self, params: &Value) {
        let running = self.running_tasks.get_or_insert_default();
        match params["value"]["kind"].as_str() {
            Some("begin") => *running = running.saturating_add(1),
            Some("end") => *running = running.saturating_sub(1),
            _ => {}
        }
    }

    /// Stores published errors, except those of files that are not open and those of earlier texts.
    fn take_errors(&mut self, params: &Value) {
        let Some(path) = params["uri"].as_str().and_then(path_of) else { return };
        let mut open = self.documents.iter_mut();
        let Some(document) = open.find(|document| document.path == path) else { return };
        let Some(errors) = errors_in(&params["diagnostics"]) else { return };
        let settled = match params["version"].as_i64() {
            Some(version) if version == document.version => Instant::now(),
            Some(_) => return,
            None => Instant::now() + QUIET_TIME,
        };
        document.published = Some((errors, settled));
    }

    /// Returns a document if it still has the text of this version.
    pub(crate) fn document(&self, file: &Path, version: i64) -> Option<&Document> {
        let mut open = self.documents.iter();
        open.find(|document| document.path == file && document.version == version)
    }

    /// Returns the errors that the server has published for a text.
    pub(crate) fn published(&self, file: &Path, version: i64) -> Option<Vec<Problem>> {
        let (errors, settled) = self.document(file, version)?.published.as_ref()?;
        (*settled <= Instant::now()).then(|| errors.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::uri;

    #[test]
    fn only_published_errors_of_the_last_text_of_an_open_document_are_kept() {
        let path = PathBuf::from(if cfg!(windows) { "C:\\w\\a" } else { "/w/a" });
        let start = json!({ "line": 0, "character": 0 });
        let publish = |path: &Path, version: Value, message: &str| {
            let range = json!({ "start": start, "end": start });
            let diagnostics = json!([{ "range": range, "message": message }]);
            json!({ "uri": uri(path), "version": version, "diagnostics": diagnostics })
        };
        let mut state = ServerState::new();
        state.take_errors(&publish(&path, json!(2), "not open"));
        state.documents.push(Document { path: path.clone(), version: 2, hash: 0, published: None });
        for ignored in [json!(1), json!(3)] {
            state.take_errors(&publish(&path, ignored, "of another text"));
        }
        state.take_errors(&publish(&path.with_file_name("b"), json!(2), "of another file"));
        assert_eq!(state.published(&path, 2), None);
        state.take_errors(&publish(&path, json!(2), "right"));
        state.take_errors(&publish(&path, json!(1), "late"));
        assert_eq!(state.published(&path, 2).unwrap()[0].message, "right");
        assert_eq!(state.published(&path, 1), None);
        // Others may still follow.
        state.take_errors(&publish(&path, Value::Null, "without a version"));
        assert_eq!(state.published(&path, 2), None);
    }

    #[test]
    fn a_server_that_could_not_load_the_project_is_not_ready() {
        let mut state = ServerState::new();
        for (health, is_ready) in [("error", false), ("warning", true), ("ok", true)] {
            let status = json!({ "health": health, "quiescent": true, "message": "m" });
            state.handle_notification("experimental/serverStatus", &status);
            assert_eq!(state.is_ready(Readiness::Quiescence), is_ready, "{health}");
            assert_eq!(state.is_loaded, Some(is_ready), "{health}");
        }
        let again = json!({ "health": "error", "quiescent": false });
        state.handle_notification("experimental/serverStatus", &again);
        assert_eq!(state.is_loaded, None, "it tries once more");
    }

    #[test]
    fn readiness_follows_what_the_server_says() {
        let mut state = ServerState::new();
        let progress = |kind: &str| json!({ "token": 1, "value": { "kind": kind } });
        assert!(state.is_ready(Readiness::AtOnce) && !state.is_ready(Readiness::Progress));
        state.take_progress(&progress("begin"));
        assert!(!state.is_ready(Readiness::Progress));
        state.take_progress(&progress("end"));
        assert!(state.is_ready(Readiness::Progress) && !state.is_ready(Readiness::Quiescence));
    }
}
