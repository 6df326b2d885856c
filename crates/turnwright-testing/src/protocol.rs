//! The version of the protocol that the test client speaks.

use serde_json::Value;

use crate::translator::Translator;

/// The variable by which the stories of version 1 run in version 2.
const VARIABLE: &str = "TURNWRIGHT_TEST_ACP";

/// A version of the protocol, and whether the test sees its messages.
pub(crate) enum Protocol {
    V1,
    V2,
    /// Version 2 on the wire, version 1 for the test.
    Translated(Box<Translator>),
}

impl Protocol {
    /// Version 1, unless the environment asks for version 2.
    pub(crate) fn of_environment() -> Protocol {
        match std::env::var(VARIABLE).as_deref() {
            Ok("2") => Protocol::Translated(Box::default()),
            _ => Protocol::V1,
        }
    }

    /// The same for another connection.
    pub(crate) fn restarted(&self) -> Protocol {
        match self {
            Protocol::V1 => Protocol::V1,
            Protocol::V2 => Protocol::V2,
            Protocol::Translated(_) => Protocol::Translated(Box::default()),
        }
    }

    /// The version of the schema for a message. The agent may answer `initialize` with version 1.
    pub(crate) fn version(&self, method: Option<&str>, message: &Value) -> usize {
        let chosen = message["result"]["protocolVersion"].as_u64();
        match (self, chosen) {
            (_, Some(1)) if method == Some("initialize") => 1,
            (_, Some(2)) if method == Some("initialize") => 2,
            (Protocol::V1, _) => 1,
            _ => 2,
        }
    }
}
