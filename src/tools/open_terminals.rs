//! The terminals of a session's commands, which the user can stop one by one.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use turnwright_types::ids::CallId;
use turnwright_workspace::exec::Job;

/// The terminals that the client draws. Each has the identifier of the call that has opened it.
// Held only to look something up.
#[derive(Debug, Default)]
pub(crate) struct OpenTerminals(Mutex<HashMap<CallId, Weak<Job>>>);

impl OpenTerminals {
    /// Records that this job runs in the terminal of the call.
    pub(super) fn connect(&self, call: &CallId, job: &Arc<Job>) {
        let mut open = self.0.lock();
        open.retain(|_, job| job.upgrade().is_some_and(|job| job.end().is_none()));
        open.insert(call.clone(), Arc::downgrade(job));
    }

    /// Stops the command in this terminal. Returns false if none runs there.
    pub(crate) fn stop(&self, terminal: &CallId) -> bool {
        let job = self.0.lock().get(terminal).and_then(Weak::upgrade);
        let running = job.filter(|job| job.end().is_none());
        running.inspect(|job| job.stop_for_user()).is_some()
    }
}
