//! The duty to report a result, handed to code that must not know who waits for it.

use std::fmt;

use crate::error::Error;

/// A callback that runs exactly once. It is not a channel: reporting happens in the task that
/// has the result, so that what that task says next cannot overtake the answer.
#[must_use = "somebody waits for the result"]
pub struct Done<T>(Box<dyn FnOnce(Result<T, Error>) + Send>);

impl<T> Done<T> {
    /// Wraps what is to be done with the result. A callback that guards a request answers it
    /// when dropped as well, so a `Done` that is forgotten still ends the wait.
    pub fn new(report: impl FnOnce(Result<T, Error>) + Send + 'static) -> Done<T> {
        Done(Box::new(report))
    }

    /// Reports.
    pub fn report(self, result: Result<T, Error>) {
        (self.0)(result);
    }
}

impl<T> fmt::Debug for Done<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Done")
    }
}
