//! Decides whether two tool calls may run concurrently. Pure: decided on the effects of the calls,
//! never on the names of the tools.

use turnwright_types::effect::Effect;

/// Returns true if two calls must not run concurrently.
pub(super) fn conflicts(some: &[Effect], others: &[Effect]) -> bool {
    some.iter().any(|one| others.iter().any(|other| effects_conflict(one, other)))
}

fn effects_conflict(one: &Effect, other: &Effect) -> bool {
    use Effect::{Delete, Exec, Fetch, Input, Read, Remote, SessionState, Signal, Write};
    match (one, other) {
        (Fetch { .. } | Signal { .. } | SessionState, _)
        | (_, Fetch { .. } | Signal { .. } | SessionState) => false,
        // A command or a remote tool may touch anything.
        (Exec(_) | Input { .. } | Remote(_), _) | (_, Exec(_) | Input { .. } | Remote(_)) => true,
        (Read(_), Read(_)) => false,
        // A folder stands for everything in it.
        (Read(one) | Write(one) | Delete(one), Read(other) | Write(other) | Delete(other)) => {
            one.path.starts_with(&other.path) || other.path.starts_with(&one.path)
        }
    }
}
