//! macOS: the system's `sandbox-exec` applies the profile before it becomes the program.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{
    NamespaceProcesses, NamespaceSupport, RefusedConnections, SandboxProfile, SandboxSupport,
    SessionNetwork, SetupError, seatbelt,
};

/// A sandbox that is ready to be entered. On this system [`wrap_command`](super::wrap_command) does
/// all the work.
#[derive(Debug)]
pub struct MacSandbox;

#[allow(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "on other systems this can fail and has data; only where it is private do the lints ask"
)]
impl MacSandbox {
    /// Does nothing on this system.
    ///
    /// # Errors
    /// None.
    pub fn prepare(_: &SandboxProfile) -> io::Result<Self> {
        Ok(Self)
    }

    /// Does nothing on this system.
    ///
    /// # Errors
    /// None.
    pub fn prepare_in(
        profile: &SandboxProfile,
        _: Option<Arc<SessionNetwork>>,
    ) -> io::Result<Self> {
        Self::prepare(profile)
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
    pub fn refused_connections(&self) -> Option<RefusedConnections> {
        None
    }

    /// Returns the error unchanged.
    pub fn explain(&self, error: io::Error) -> io::Error {
        error
    }
}

/// The words that start a program through `sandbox-exec`.
pub(super) fn wrap_command(
    profile: &SandboxProfile,
    words: &[OsString],
) -> io::Result<Vec<OsString>> {
    seatbelt::sandbox_exec_command(profile, words).ok_or_else(|| {
        let text = "a path of the profile cannot be expressed for Seatbelt";
        io::Error::other(SetupError(text.to_owned()))
    })
}

pub(super) fn probe() -> SandboxSupport {
    let seatbelt = Path::new(seatbelt::SANDBOX_EXEC).exists();
    let missing = (!seatbelt).then(|| format!("There is no {}.", seatbelt::SANDBOX_EXEC));
    SandboxSupport { seatbelt, missing: missing.into_iter().collect(), ..SandboxSupport::default() }
}

/// Seatbelt has no namespaces, but its rules can tell the parts of a folder apart, and the loopback
/// interface from the rest of the network.
pub(super) fn probe_namespaces() -> NamespaceSupport {
    let has_seatbelt = Path::new(seatbelt::SANDBOX_EXEC).exists();
    NamespaceSupport {
        mounts: has_seatbelt,
        network: has_seatbelt,
        processes: false,
        sockets: false,
        supervision: false,
    }
}

/// No layer was made.
#[cfg(target_os = "macos")]
#[expect(clippy::unnecessary_wraps, reason = "Linux can fail")]
pub(super) fn publish_layer(_: &super::PrivateLayer, _: &std::fs::File) -> io::Result<()> {
    Ok(())
}

/// There are no overlay file systems.
pub(super) fn can_layer_caches(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_run_through_sandbox_exec() {
        let words = ["/bin/sh".into(), "-c".into(), "true".into()];
        let all = wrap_command(&SandboxProfile::default(), &words).unwrap();
        assert_eq!((all[0].to_str(), all[1].to_str()), (Some(seatbelt::SANDBOX_EXEC), Some("-p")));
        assert!(all.ends_with(&words));
        let sandbox = MacSandbox::prepare_in(&SandboxProfile::default(), None).unwrap();
        let sandbox = sandbox.with_process_namespace().unwrap();
        sandbox.enter().unwrap();
        assert_eq!((sandbox.has_process_namespace(), sandbox.processes()), (false, None));
        assert!(sandbox.refused_connections().is_none());
        let error = MacSandbox.explain(io::ErrorKind::NotFound.into());
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(probe().seatbelt, probe_namespaces().mounts);
        assert!(!can_layer_caches(Path::new("/")));
    }
}
