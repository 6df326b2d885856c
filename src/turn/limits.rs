//! What a turn and a session may use up.

/// The limits of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Whether a model that goes round in circles is stopped.
    pub stops_loops: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { stops_loops: true }
    }
}
