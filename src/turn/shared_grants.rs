//! The permission answers that a conversation remembers.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use turnwright_policy::permission::Grants;

/// The remembered permission answers. Clones share them.
// Held only to judge.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedGrants(Arc<Mutex<Grants>>);

impl SharedGrants {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Grants> {
        self.0.lock()
    }

    /// The answers so far, for a conversation that is to share no later ones.
    pub(super) fn detached(&self) -> SharedGrants {
        SharedGrants(Arc::new(Mutex::new(self.lock().clone())))
    }
}
