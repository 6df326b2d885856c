//! The model and its effort, which the session changes and its turn reads.

use std::sync::Arc;

use parking_lot::Mutex;

use turnwright_llm::{Model, ReasoningEffort};

/// The model of a session and its reasoning effort.
#[derive(Clone, Debug)]
pub(crate) struct ModelSelection {
    pub model: Arc<dyn Model>,
    /// The reasoning effort; ignored by models that have none to choose.
    pub effort: ReasoningEffort,
}

/// The model selection, set by the session and read by its turn.
// Held only to copy a pointer.
#[derive(Clone, Debug)]
pub(crate) struct SharedModelSelection(Arc<Mutex<SelectionState>>);

#[derive(Debug)]
struct SelectionState {
    current: ModelSelection,
    /// The model before the current one, until that has answered.
    previous: Option<Arc<dyn Model>>,
}

impl SharedModelSelection {
    pub(crate) fn new(model: Arc<dyn Model>, effort: ReasoningEffort) -> SharedModelSelection {
        let current = ModelSelection { model, effort };
        SharedModelSelection(Arc::new(Mutex::new(SelectionState { current, previous: None })))
    }

    pub(crate) fn get(&self) -> ModelSelection {
        self.0.lock().current.clone()
    }

    pub(crate) fn set_model(&self, model: Arc<dyn Model>) {
        let mut state = self.0.lock();
        let previous = std::mem::replace(&mut state.current.model, model);
        state.previous.get_or_insert(previous);
    }

    /// Sets the model of a stored session. The one before has not had anything of the conversation.
    pub(crate) fn restore_model(&self, model: Arc<dyn Model>) {
        self.0.lock().current.model = model;
    }

    pub(crate) fn set_effort(&self, effort: ReasoningEffort) {
        self.0.lock().current.effort = effort;
    }

    /// The model that has the conversation so far in its cache, if it is not the current one.
    pub(super) fn previous(&self) -> Option<Arc<dyn Model>> {
        self.0.lock().previous.clone()
    }

    /// Takes note that the current model has answered.
    pub(super) fn forget_previous(&self) {
        self.0.lock().previous = None;
    }
}
