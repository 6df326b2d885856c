//! The private network of a session's commands: it has a loopback interface and nothing else, so the commands reach each
//! other's servers and none of the machine. It is made when the first command needs it.

use std::sync::{Arc, OnceLock};

use turnwright_sandbox::SessionNetwork;

/// The network, once it is made.
#[derive(Debug, Default)]
pub(crate) struct CommandNetwork(OnceLock<Option<Arc<SessionNetwork>>>);

impl CommandNetwork {
    /// The network; `None` where there are none. The first call blocks for some milliseconds.
    pub(crate) fn get(&self) -> Option<Arc<SessionNetwork>> {
        let create = || {
            let is_possible = turnwright_sandbox::namespace_support().network;
            let created = is_possible.then(SessionNetwork::create)?;
            created
                .inspect_err(|error| tracing::warn!(%error, "commands share no network"))
                .ok()
                .map(Arc::new)
        };
        self.0.get_or_init(create).clone()
    }
}
