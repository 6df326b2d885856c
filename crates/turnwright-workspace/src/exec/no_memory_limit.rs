//! Systems other than Linux: none says what the processes of a command hold.

/// There are no values of this type.
pub use std::convert::Infallible as MemoryMeter;

/// Waits for ever.
pub(super) async fn wait_until_above(_: Option<MemoryMeter>, _: Option<u64>) -> u64 {
    std::future::pending().await
}

/// There is none.
pub fn default_memory_limit() -> Option<u64> {
    None
}
