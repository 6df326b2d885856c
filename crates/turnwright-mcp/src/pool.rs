//! All servers of the process. Sessions that use an equal server in an equal environment share it; it
//! ends with the last of them.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::login_store::LoginStore;
use super::server::Server;
use super::spec::ServerSpec;
use turnwright_sandbox::SandboxProfile;
use turnwright_workspace::exec::Environment;

/// The environment of a session's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEnv {
    /// The session's working folder, in which programs start.
    pub cwd: PathBuf,
    /// All folders of the session.
    pub roots: Vec<PathBuf>,
    /// The sandbox profile to which a server's own settings are added; `None` if processes cannot be
    /// confined.
    pub profile: Option<SandboxProfile>,
    /// True if the session's client can show forms.
    pub supports_forms: bool,
    pub logins: LoginStore,
    /// How many bytes of memory a server in the sandbox may hold, with all that it has started.
    pub memory: Option<u64>,
    /// The caches of package runners such as `npx`, created when one is used.
    pub package_caches: Vec<PathBuf>,
    /// The folder for the servers' writes to caches.
    pub private_caches: PathBuf,
}

impl ServerEnv {
    /// The roots to tell a server: the folders of the session, and the paths that its settings add. Some
    /// servers restrict themselves to these, even if their arguments allow more.
    pub(crate) fn roots_of(&self, spec: &ServerSpec) -> Vec<PathBuf> {
        let opened = spec.sandbox.write.iter().chain(&spec.sandbox.read);
        self.roots.iter().chain(opened).cloned().collect()
    }
}

/// The running servers.
#[derive(Debug)]
pub struct ServerPool {
    environment: Environment,
    stop: CancellationToken,
    tracker: TaskTracker,
    // Held only to look at a short list.
    running: Mutex<Vec<Weak<Server>>>,
}

impl ServerPool {
    /// Creates an empty pool. The tasks of servers run on `tracker` until no session uses them or
    /// `stop` is cancelled.
    pub fn new(
        environment: Environment,
        stop: CancellationToken,
        tracker: TaskTracker,
    ) -> ServerPool {
        ServerPool { environment, stop, tracker, running: Mutex::default() }
    }

    /// Returns the server, and starts it if necessary. Never waits.
    pub fn get(&self, spec: &ServerSpec, env: &ServerEnv) -> Arc<Server> {
        let mut running = self.running.lock();
        running.retain(|server| server.strong_count() > 0);
        let existing = running
            .iter()
            .filter_map(Weak::upgrade)
            .find(|server| server.is_reusable_for(spec, env));
        if let Some(server) = existing.filter(|_| spec.is_shared) {
            return server;
        }
        let stop = self.stop.child_token();
        let environment = self.environment.clone();
        let server = Server::start(spec.clone(), env.clone(), environment, stop, &self.tracker);
        running.push(Arc::downgrade(&server));
        server
    }
}
