//! Systems other than Linux: none says what the processes of a command hold.

/// The processes of a command: there are no values of this type.
#[derive(Clone, Debug)]
pub enum NoMemoryMeter {}

/// Waits for ever.
pub(super) async fn wait_until_above(_: Option<NoMemoryMeter>, _: Option<u64>) -> u64 {
    std::future::pending().await
}

/// There is none.
pub fn default_memory_limit() -> Option<u64> {
    None
}
