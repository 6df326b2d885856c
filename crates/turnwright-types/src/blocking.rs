//! Work that blocks, on the threads that the runtime has for it.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

/// A result of any type.
type AnyResult = Box<dyn Any + Send>;

/// Runs `work` on a thread that may block.
///
/// tokio's function makes about two kilobytes of code for each closure that it gets. This one gives it a
/// boxed closure, so that there is one such copy in the program.
pub fn spawn_blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> BlockingTask<R> {
    let handle = spawn(Box::new(move || Box::new(work())));
    BlockingTask { handle, unpack: |it| it.downcast().ok().map(|it| *it) }
}

fn spawn(work: Box<dyn FnOnce() -> AnyResult + Send>) -> JoinHandle<AnyResult> {
    tokio::task::spawn_blocking(work)
}

/// The result of [`spawn_blocking`]. The work goes on if this is dropped.
#[derive(Debug)]
pub struct BlockingTask<R> {
    handle: JoinHandle<AnyResult>,
    /// A function, because `downcast` needs types that borrow nothing, and the compiler cannot tell that of
    /// a type within an async function.
    unpack: fn(AnyResult) -> Option<R>,
}

impl<R> Future for BlockingTask<R> {
    type Output = Result<R, BlockingError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(end) = Pin::new(&mut self.handle).poll(cx) else { return Poll::Pending };
        Poll::Ready(end.ok().and_then(self.unpack).ok_or(BlockingError))
    }
}

/// The work panicked, or the runtime ended before it began.
#[derive(Debug)]
pub struct BlockingError;

impl fmt::Display for BlockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the work was not done because of a defect")
    }
}

impl Error for BlockingError {}
