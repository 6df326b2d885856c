//! Keeps the conversation within the model's window: leaves out old results, and replaces the oldest
//! part with a summary.

pub(super) mod budget;
pub(super) mod compaction;
pub(super) mod facts;
pub(super) mod fit;
pub(super) mod handoff;
pub(super) mod make_room;
pub(super) mod prune;
