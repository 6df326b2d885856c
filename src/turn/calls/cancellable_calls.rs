//! The calls of a session that the user can cancel one by one, while their turn goes on.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use turnwright_types::ids::CallId;

/// The tokens that stop a call.
#[derive(Clone, Debug)]
pub(in crate::turn) struct CallTokens {
    /// Cancelled with the call alone, and with its turn.
    pub(in crate::turn) call: CancellationToken,
    /// The turn of the session. For a helper's calls it is the turn that waits for the helper.
    pub(in crate::turn) turn: CancellationToken,
}

impl CallTokens {
    /// The tokens of a call of this turn.
    pub(in crate::turn) fn of(turn: &CancellationToken) -> CallTokens {
        CallTokens { call: turn.child_token(), turn: turn.clone() }
    }
}

/// The calls without a final card. Clones share them.
// Held only to look something up.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancellableCalls(Arc<Mutex<HashMap<CallId, CancellationToken>>>);

impl CancellableCalls {
    /// Cancels a call. Returns false if there is none with this identifier.
    pub(crate) fn cancel(&self, id: &CallId) -> bool {
        let found = self.0.lock().get(id).cloned();
        // Code that waits for the token may look something up.
        found.inspect(CancellationToken::cancel).is_some()
    }

    pub(super) fn add(&self, id: &CallId, cancel: CancellationToken) {
        self.0.lock().insert(id.clone(), cancel);
    }

    pub(super) fn contains(&self, id: &CallId) -> bool {
        self.0.lock().contains_key(id)
    }

    pub(super) fn remove(&self, id: &CallId) {
        self.0.lock().remove(id);
    }
}
