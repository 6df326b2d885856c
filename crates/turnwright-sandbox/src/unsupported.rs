//! Systems without a sandbox that this crate knows: preparing one always fails.

use std::io;
use std::sync::Arc;

use super::{
    NamespaceProcesses, NamespaceSupport, RefusedConnections, SandboxProfile, SandboxSupport,
    SessionNetwork, SetupError,
};

/// A sandbox, which this system does not have: there are no values of this type.
#[derive(Debug)]
pub struct UnsupportedSandbox(std::convert::Infallible);

impl UnsupportedSandbox {
    /// Fails.
    ///
    /// # Errors
    /// Always: this system has no sandbox.
    pub fn prepare(_: &SandboxProfile) -> io::Result<Self> {
        Err(io::Error::other(SetupError("this system has none".to_owned())))
    }

    /// Fails.
    ///
    /// # Errors
    /// Always: this system has no sandbox.
    pub fn prepare_in(
        profile: &SandboxProfile,
        _: Option<Arc<SessionNetwork>>,
    ) -> io::Result<Self> {
        Self::prepare(profile)
    }

    /// Cannot be called on this system.
    ///
    /// # Errors
    /// None.
    pub fn with_process_namespace(self) -> io::Result<Self> {
        match self.0 {}
    }

    /// Cannot be called on this system.
    pub fn has_process_namespace(&self) -> bool {
        match self.0 {}
    }

    /// Cannot be called on this system.
    pub fn processes(&self) -> Option<NamespaceProcesses> {
        match self.0 {}
    }

    /// Cannot be called on this system.
    ///
    /// # Errors
    /// None.
    pub fn enter(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Cannot be called on this system.
    pub fn refused_connections(&self) -> Option<RefusedConnections> {
        match self.0 {}
    }

    /// Cannot be called on this system.
    pub fn explain(&self, _: io::Error) -> io::Error {
        match self.0 {}
    }
}

pub(super) fn probe() -> SandboxSupport {
    let missing = vec!["Commands cannot be confined on this system.".to_owned()];
    SandboxSupport { missing, ..SandboxSupport::default() }
}

pub(super) fn probe_namespaces() -> NamespaceSupport {
    NamespaceSupport::default()
}

/// No layer was made.
#[expect(clippy::unnecessary_wraps, reason = "Linux can fail")]
pub(super) fn publish_layer(_: &super::PrivateLayer, _: &std::fs::File) -> io::Result<()> {
    Ok(())
}

pub(super) fn can_layer_caches(_: &std::path::Path) -> bool {
    false
}
