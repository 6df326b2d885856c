//! One request to the model: its stream, what of it is shown at once, and what its failures mean.

pub(super) mod coalesce;
pub(super) mod draft_writer;
pub(super) mod failures;
pub(super) mod listener;
pub(super) mod refused_images;
pub(super) mod partial_arguments;
pub(super) mod sample;
pub(super) mod silence;
pub(super) mod streaming_call;
