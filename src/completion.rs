//! A callback for the result of an operation, handed to code that must not know the caller.

use std::fmt;

use crate::error::Error;

/// A callback that runs exactly once. It is not a channel: it runs in the task that has the result, so
/// that later messages of that task cannot overtake the answer.
#[must_use = "the caller waits for the result"]
pub(crate) struct Completion<T>(Box<dyn FnOnce(Result<T, Error>) + Send>);

impl<T> Completion<T> {
    /// Wraps the callback. One that guards a request must also answer it on drop, so that a dropped
    /// `Completion` does not leave the caller waiting.
    pub(crate) fn new(on_result: impl FnOnce(Result<T, Error>) + Send + 'static) -> Completion<T> {
        Completion(Box::new(on_result))
    }

    /// Passes the result to the callback.
    pub(crate) fn complete(self, result: Result<T, Error>) {
        (self.0)(result);
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Completion")
    }
}
