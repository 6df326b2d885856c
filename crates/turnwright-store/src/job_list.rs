//! Write jobs in their order and in bounded memory: the jobs in the queue of the writer thread, and
//! the jobs that failed because of the storage and are to be retried.

use std::collections::VecDeque;

use super::writer::WriteJob;

/// The most jobs in a list.
pub(super) const MAX_JOBS: usize = 16 * 1024;
/// The estimated size of a job besides the bytes that it retains.
const JOB_OVERHEAD: usize = 512;

/// A list of jobs. When it gets too large, it drops the oldest jobs without a waiting caller.
pub(super) struct JobList {
    jobs: VecDeque<Box<dyn WriteJob>>,
    bytes: usize,
    max_bytes: usize,
}

impl JobList {
    /// An empty list for jobs that retain about `max_bytes`; one job may be larger.
    pub(super) fn new(max_bytes: usize) -> JobList {
        JobList { jobs: VecDeque::new(), bytes: 0, max_bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Adds a job. Returns the jobs that were dropped to stay within the limits: older ones without a waiting
    /// caller, or the new one if dropping those is not enough.
    pub(super) fn push(&mut self, job: Box<dyn WriteJob>) -> Vec<Box<dyn WriteJob>> {
        let mut dropped = Vec::new();
        self.bytes += size(job.as_ref());
        while self.is_too_large()
            && let Some(oldest) = self.jobs.iter().position(|job| !job.is_awaited())
            && let Some(oldest) = self.jobs.remove(oldest)
        {
            self.bytes -= size(oldest.as_ref());
            dropped.push(oldest);
        }
        if self.is_too_large() && !self.jobs.is_empty() {
            self.bytes -= size(job.as_ref());
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
    pub(super) fn take(&mut self, most: usize) -> Vec<Box<dyn WriteJob>> {
        let taken: Vec<_> = self.jobs.drain(..most.min(self.jobs.len())).collect();
        self.bytes -= taken.iter().map(|job| size(job.as_ref())).sum::<usize>();
        taken
    }

    /// Puts jobs back at the front, in their order.
    pub(super) fn put_back(&mut self, jobs: Vec<Box<dyn WriteJob>>) {
        for job in jobs.into_iter().rev() {
            self.bytes += size(job.as_ref());
            self.jobs.push_front(job);
        }
    }
}

fn size(job: &dyn WriteJob) -> usize {
    job.retained_bytes().unwrap_or_default().saturating_add(JOB_OVERHEAD)
}
