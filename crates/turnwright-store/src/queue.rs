//! The queue in front of the writer thread. Its memory is bounded, and sending never waits: a disk
//! that hangs must not stop a thread of the runtime.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::job_list::JobList;
use super::writer::WriteJob;

/// The most memory that queued jobs may retain: twice what one message of a client may hold.
/// The batch that is being written may retain as much again.
pub(super) const MAX_QUEUED_BYTES: usize = 128 * 1024 * 1024;

struct Queue {
    // Held only to move a few pointers.
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    jobs: JobList,
    /// One of the ends is gone.
    is_closed: bool,
}

/// The end where jobs are submitted.
pub(super) struct JobSender(Arc<Queue>);

/// The end of the writer thread.
pub(super) struct JobReceiver(Arc<Queue>);

pub(super) fn job_queue() -> (JobSender, JobReceiver) {
    let state = QueueState { jobs: JobList::new(MAX_QUEUED_BYTES), is_closed: false };
    let queue = Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() });
    (JobSender(Arc::clone(&queue)), JobReceiver(queue))
}

impl JobSender {
    /// Appends a job. Returns the jobs that found no room, as [`JobList::push`] does. If the thread
    /// has ended, the job is dropped.
    pub(super) fn send(&self, job: Box<dyn WriteJob>) -> Vec<Box<dyn WriteJob>> {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return Vec::new();
        }
        let dropped = state.jobs.push(job);
        // While the lock is held, waking the thread would pass the lock on to it. The next job would then
        // wait until the thread has run.
        drop(state);
        self.0.changed.notify_one();
        dropped
    }
}

impl Drop for JobSender {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl JobReceiver {
    /// Takes the oldest jobs, at most `most` and at least one, and waits for them up to `timeout`.
    pub(super) fn receive(
        &self,
        most: usize,
        timeout: Duration,
    ) -> Result<Vec<Box<dyn WriteJob>>, RecvTimeoutError> {
        let mut state = self.0.state.lock();
        if state.jobs.is_empty() && !state.is_closed {
            self.0.changed.wait_for(&mut state, timeout);
        }
        let jobs = state.jobs.take(most);
        match state.is_closed {
            _ if !jobs.is_empty() => Ok(jobs),
            true => Err(RecvTimeoutError::Disconnected),
            false => Err(RecvTimeoutError::Timeout),
        }
    }
}

impl Drop for JobReceiver {
    /// The remaining jobs will never run, so their waiting callers are told.
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        let left = state.jobs.take(usize::MAX);
        drop(state);
        drop(left);
    }
}
