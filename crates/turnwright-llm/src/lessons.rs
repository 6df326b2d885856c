//! What a server has taught us about a model, on top of what the table knows and below what the
//! user wishes. It is remembered for the process, and noted for the next one.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::quirks::{Patch, Quirks, learn};
use super::{Kind, LlmError, Senses};

/// What is known about a model by experience. This is what a profile on disk holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Learned {
    /// What it wants done differently.
    pub quirks: Patch,
    /// How many tokens its window holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
}

/// Where lessons are noted. Must not wait: it is called between two requests.
pub trait Notebook: Send + Sync + 'static {
    /// Everything that is known now.
    fn note(&self, learned: &Learned);
}

/// Lessons from within streams, in the life of a process.
const LESSONS_IN_STREAM: u32 = 3;

/// The quirks of one model at one server, as they are known now.
pub(super) struct Lessons {
    table: Quirks,
    wishes: Patch,
    // A std mutex: held to copy a few bytes, never across an await.
    learned: Mutex<Learned>,
    notebook: Option<Arc<dyn Notebook>>,
    /// How many lessons may still come from within streams. They are taken at their word, so there
    /// are few.
    in_stream: AtomicU32,
}

impl fmt::Debug for Lessons {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lessons").field("quirks", &self.quirks()).finish_non_exhaustive()
    }
}

impl Lessons {
    pub(super) fn new(
        table: Quirks,
        learned: Learned,
        wishes: Patch,
        notebook: Option<Arc<dyn Notebook>>,
    ) -> Lessons {
        let in_stream = AtomicU32::new(LESSONS_IN_STREAM);
        Lessons { table, wishes, learned: Mutex::new(learned), notebook, in_stream }
    }

    /// The quirks now.
    pub(super) fn quirks(&self) -> Quirks {
        self.quirks_after(Patch::NONE)
    }

    /// The quirks as they would be with one more lesson.
    pub(super) fn quirks_after(&self, lesson: Patch) -> Quirks {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        self.table.with(learned.quirks).with(lesson).with(self.wishes)
    }

    /// All that was learned so far.
    pub(super) fn learned(&self) -> Learned {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers what somebody has found out.
    pub(super) fn teach(&self, patch: Patch) {
        self.change(|it| it.quirks = it.quirks.and(patch));
    }

    /// The window that the server has told, if it has.
    pub(super) fn window(&self) -> Option<u64> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner).window
    }

    /// What the refusal of a request may teach, which was made with these quirks and held this. It
    /// is not remembered yet: whether it helps has to be seen.
    pub(super) fn candidates(&self, error: &LlmError, was: &Quirks, media: Senses) -> Vec<Patch> {
        let Some(message) = error.message() else { return Vec::new() };
        // Within a stream some servers give no status.
        let status = error.status().unwrap_or(400);
        // These name parameters, too, and are about something else: what does not fit, who asks,
        // what the model has written itself.
        let is_else = match error.kind() {
            Kind::Overflow { .. }
            | Kind::Quota
            | Kind::Refused
            | Kind::Auth
            | Kind::UrlNotFound => true,
            Kind::ModelNotFound => !message.contains("image input"),
            _ => error.is_fragile() || error.refuses_effort(),
        };
        if is_else || error.blames_a_picture() {
            return Vec::new();
        }
        let mut patches = learn(status, message, was, media);
        // What the user wishes is not unlearned.
        patches.retain(|it| was.with(*it).with(self.wishes) != *was);
        patches
    }

    /// Whether one more lesson may come from within a stream; takes it.
    pub(super) fn may_learn_in_stream(&self) -> bool {
        let take = |left: u32| left.checked_sub(1);
        self.in_stream.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Remembers a lesson.
    pub(super) fn keep(&self, lesson: Patch) {
        if self.quirks_after(lesson) != self.quirks() {
            tracing::info!(?lesson, "the server has taught us something");
            self.change(|it| it.quirks = it.quirks.and(lesson));
        }
    }

    /// Remembers how many tokens the window holds.
    pub(super) fn hear_window(&self, tokens: u64) {
        if self.window() != Some(tokens) {
            self.change(|it| it.window = Some(tokens));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Learned)) {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut learned);
        let now = learned.clone();
        drop(learned);
        if let Some(notebook) = &self.notebook {
            notebook.note(&now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_is_named_in_passing_teaches_nothing() {
        let lessons = Lessons::new(Quirks::default(), Learned::default(), Patch::NONE, None);
        let refusal = |kind| LlmError::Status {
            host: "h".to_owned(),
            status: 400,
            message: "input length and `max_tokens` exceed context limit".to_owned(),
            retry_after: None,
            kind,
            leaked: None,
        };
        let (quirks, none) = (Quirks::default(), Senses::default());
        let candidates = |kind| lessons.candidates(&refusal(kind), &quirks, none);
        assert!(candidates(Kind::Overflow { limit: None, used: None }).is_empty());
        assert!(!candidates(Kind::BadRequest).is_empty());
        let wishes = Patch { limit: Some(quirks.limit), ..Patch::NONE };
        let lessons = Lessons::new(quirks, Learned::default(), wishes, None);
        let candidates = lessons.candidates(&refusal(Kind::BadRequest), &quirks, none);
        assert!(candidates.is_empty(), "what the user wishes is not unlearned");
    }

    fn refused(kind: Kind, message: &str) -> LlmError {
        let (host, message) = ("h".to_owned(), message.to_owned());
        LlmError::Status { host, status: 400, message, retry_after: None, kind, leaked: None }
    }

    /// C.2 #17: what the model has written is no word about the request.
    #[test]
    fn a_call_that_the_server_could_not_read_teaches_nothing() {
        let table = Quirks::of("api.groq.com", "llama-3.3-70b-versatile");
        let lessons = Lessons::new(table, Learned::default(), Patch::NONE, None);
        let message = "tool call validation failed: parameters for tool write_file did not match \
                       schema: errors: [`/content`: expected string, but got object]";
        let taught = lessons.candidates(
            &refused(Kind::Unavailable, message),
            &lessons.quirks(),
            Senses::default(),
        );
        assert_eq!(taught, []);
    }

    /// The default model takes low, medium and high.
    #[test]
    fn an_effort_that_is_not_taken_does_not_end_all_efforts() {
        let table = Quirks::of("api.openai.com", "gpt-5-mini");
        let lessons = Lessons::new(table, Learned::default(), Patch::NONE, None);
        let message = "Unsupported value: 'reasoning_effort' does not support 'none' with this \
                       model. Supported values are: 'minimal', 'low', 'medium', and 'high'.";
        for patch in lessons.candidates(
            &refused(Kind::BadRequest, message),
            &lessons.quirks(),
            Senses::default(),
        ) {
            lessons.keep(patch);
        }
        assert!(lessons.quirks().has_effort());
    }
}
