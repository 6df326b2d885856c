//! What a server has taught us about a model, on top of what the table knows and below what the
//! user wishes. It is remembered for the process, and noted for the next one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::quirks::{Patch, Quirks, learn};
use super::{Kind, LlmError};

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

/// The quirks of one model at one server, as they are known now.
pub(super) struct Lessons {
    table: Quirks,
    wishes: Patch,
    // A std mutex: held to copy a few bytes, never across an await.
    learned: Mutex<Learned>,
    notebook: Option<Arc<dyn Notebook>>,
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
        Lessons { table, wishes, learned: Mutex::new(learned), notebook }
    }

    /// The quirks now.
    pub(super) fn quirks(&self) -> Quirks {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        self.table.with(learned.quirks).with(self.wishes)
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

    /// What a refusal may teach.
    pub(super) fn candidates(&self, error: &LlmError) -> Vec<Patch> {
        let (Some(status), Some(message)) = (error.status(), error.message()) else {
            return Vec::new();
        };
        // These name parameters, too, and are about something else.
        if matches!(error.kind(), Kind::Overflow { .. } | Kind::Quota | Kind::Refused) {
            return Vec::new();
        }
        learn(status, message, &self.quirks())
    }

    /// The quirks, if a lesson is taken to heart.
    pub(super) fn quirks_with(&self, patch: Patch) -> Quirks {
        self.quirks().with(patch).with(self.wishes)
    }

    /// Takes a lesson to heart.
    pub(super) fn take(&self, patch: Patch) {
        tracing::info!(?patch, "the server has taught us something");
        self.change(|it| it.quirks = it.quirks.and(patch));
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
        let overflow = refusal(Kind::Overflow { limit: None, used: None });
        assert!(lessons.candidates(&overflow).is_empty());
        assert!(!lessons.candidates(&refusal(Kind::BadRequest)).is_empty());
    }
}
