//! The queue in front of the writer thread. Its memory is bounded, and sending never waits: a disk
//! that hangs must not stop a thread of the runtime. Jobs that failed because of the storage wait in a list of
//! the same kind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::WriteJob;

/// The most memory that queued jobs may retain: twice what one message of a client may hold.
/// The batch that is being written may retain as much again.
pub(crate) const MAX_QUEUED_BYTES: usize = 128 * 1024 * 1024;
/// The most jobs in a list.
pub(crate) const MAX_JOBS: usize = 16 * 1024;
/// The estimated size of a job besides the bytes that it retains.
const JOB_OVERHEAD: usize = 512;

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
pub(crate) struct JobSender(Arc<Queue>);

/// The end of the writer thread.
pub(crate) struct JobReceiver(Arc<Queue>);

pub(crate) fn job_queue() -> (JobSender, JobReceiver) {
    let state = QueueState { jobs: JobList::new(MAX_QUEUED_BYTES), is_closed: false };
    let queue = Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() });
    (JobSender(Arc::clone(&queue)), JobReceiver(queue))
}

impl JobSender {
    /// Appends a job. Returns the jobs that found no room, as [`JobList::push`] does. If the thread
    /// has ended, the job is dropped.
    pub(crate) fn send(&self, job: WriteJob) -> Vec<WriteJob> {
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
    pub(crate) fn receive(
        &self,
        most: usize,
        timeout: Duration,
    ) -> Result<Vec<WriteJob>, RecvTimeoutError> {
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

/// A list of jobs. When it gets too large, it drops the oldest jobs without a waiting caller.
pub(crate) struct JobList {
    jobs: VecDeque<WriteJob>,
    bytes: usize,
    max_bytes: usize,
}

impl JobList {
    /// An empty list for jobs that retain about `max_bytes`; one job may be larger.
    pub(crate) fn new(max_bytes: usize) -> JobList {
        JobList { jobs: VecDeque::new(), bytes: 0, max_bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Adds a job. Returns the jobs that were dropped to stay within the limits: older ones without a waiting
    /// caller, or the new one if dropping those is not enough.
    pub(crate) fn push(&mut self, job: WriteJob) -> Vec<WriteJob> {
        let mut dropped = Vec::new();
        self.bytes += size(&job);
        while self.is_too_large()
            && let Some(oldest) = self.jobs.iter().position(|job| !job.work.is_awaited())
            && let Some(oldest) = self.jobs.remove(oldest)
        {
            self.bytes -= size(&oldest);
            dropped.push(oldest);
        }
        if self.is_too_large() && !self.jobs.is_empty() {
            self.bytes -= size(&job);
            dropped.push(job);
        } else {
            self.jobs.push_back(job);
        }
        dropped
    }

    /// True if there is no room for one more job, whose bytes are counted already.
    fn is_too_large(&self) -> bool {
        self.bytes > self.max_bytes || self.jobs.len() >= MAX_JOBS
    }

    /// Takes the oldest jobs, at most `most`.
    pub(crate) fn take(&mut self, most: usize) -> Vec<WriteJob> {
        let taken: Vec<_> = self.jobs.drain(..most.min(self.jobs.len())).collect();
        self.bytes -= taken.iter().map(size).sum::<usize>();
        taken
    }

    /// Puts jobs back at the front, in their order.
    pub(crate) fn put_back(&mut self, jobs: Vec<WriteJob>) {
        for job in jobs.into_iter().rev() {
            self.bytes += size(&job);
            self.jobs.push_front(job);
        }
    }
}

fn size(job: &WriteJob) -> usize {
    job.retained_bytes.unwrap_or_default().saturating_add(JOB_OVERHEAD)
}
