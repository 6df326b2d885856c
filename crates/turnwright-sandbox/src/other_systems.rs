//! Systems on which no process confines itself. On macOS, the system's `sandbox-exec` applies the profile before it
//! becomes the program. Elsewhere there is no sandbox that this crate knows, and preparing one always fails.
#![expect(clippy::unnecessary_wraps, reason = "Linux can fail")]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{
    NamespaceProcesses, NamespaceSupport, PrivateLayer, Refusals, SandboxProfile, SandboxSupport,
    SetupError, seatbelt,
};

/// A sandbox that is ready to be entered. On macOS [`wrap_command`](super::wrap_command) does all the work; elsewhere
/// there are no values of this type.
#[derive(Debug)]
pub struct OtherSandbox(());

#[allow(
    clippy::unused_self,
    reason = "on other systems this has data; only where it is private does the lint ask"
)]
impl OtherSandbox {
    /// Does nothing on macOS.
    ///
    /// # Errors
    /// On all other systems: they have no sandbox.
    pub fn prepare(_: &SandboxProfile, _: Option<Arc<NoSessionNetwork>>) -> io::Result<Self> {
        if cfg!(target_os = "macos") {
            Ok(Self(()))
        } else {
            Err(io::Error::other(SetupError("this system has none".to_owned())))
        }
    }

    /// Changes nothing on this system.
    ///
    /// # Errors
    /// None.
    pub fn with_process_namespace(self) -> io::Result<Self> {
        Ok(self)
    }

    /// False on this system.
    pub fn has_process_namespace(&self) -> bool {
        false
    }

    /// `None` on this system.
    pub fn processes(&self) -> Option<NamespaceProcesses> {
        None
    }

    /// Does nothing on this system.
    ///
    /// # Errors
    /// None.
    pub fn enter(&self) -> io::Result<()> {
        Ok(())
    }

    /// None on this system.
    pub fn refusals(&self) -> Option<Refusals> {
        None
    }

    /// Returns the error unchanged.
    pub fn explain(&self, error: io::Error) -> io::Error {
        error
    }
}

/// A private network that several sandboxed programs can share, which this system does not have: there are no values
/// of this type.
#[derive(Debug)]
pub enum NoSessionNetwork {}

impl NoSessionNetwork {
    /// Fails.
    ///
    /// # Errors
    /// Always: this system has no private networks.
    pub fn create_within(_memory_limit: Option<u64>) -> io::Result<NoSessionNetwork> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn has_seatbelt() -> bool {
    cfg!(target_os = "macos") && Path::new(seatbelt::SANDBOX_EXEC).exists()
}

pub(super) fn probe() -> SandboxSupport {
    let seatbelt = has_seatbelt();
    let missing = if cfg!(target_os = "macos") {
        (!seatbelt).then(|| format!("There is no {}.", seatbelt::SANDBOX_EXEC))
    } else {
        Some("Commands cannot be confined on this system.".to_owned())
    };
    SandboxSupport { seatbelt, missing: missing.into_iter().collect(), ..SandboxSupport::default() }
}

/// Seatbelt has no namespaces, but its rules can tell the parts of a folder apart, and the loopback
/// interface from the rest of the network.
pub(super) fn probe_namespaces() -> io::Result<NamespaceSupport> {
    let works = has_seatbelt();
    Ok(NamespaceSupport { mounts: works, network: works, ..NamespaceSupport::default() })
}

/// No layer was made.
pub(super) fn publish_layer(_: &PrivateLayer, _: &File) -> io::Result<()> {
    Ok(())
}

/// There are no overlay file systems.
pub(super) fn can_layer_caches(_: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_macos_has_a_sandbox_and_nothing_is_left_to_do_for_it() {
        let prepared = OtherSandbox::prepare(&SandboxProfile::default(), None);
        assert_eq!(prepared.is_ok(), cfg!(target_os = "macos"));
        let sandbox = OtherSandbox(()).with_process_namespace().unwrap();
        sandbox.enter().unwrap();
        assert_eq!((sandbox.has_process_namespace(), sandbox.processes()), (false, None));
        assert!(sandbox.refusals().is_none());
        let error = sandbox.explain(io::ErrorKind::NotFound.into());
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(probe().seatbelt, probe_namespaces().unwrap().mounts);
        assert!(NoSessionNetwork::create_within(None).is_err());
        let layer = PrivateLayer::new("/a".into(), Path::new("/b"));
        publish_layer(&layer, &tempfile::tempfile().unwrap()).unwrap();
        assert!(!can_layer_caches(Path::new("/")).unwrap());
    }
}
