//! All servers of the process. Sessions that want the same server in the same place share it; it
//! ends with the last of them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::logins::Logins;
use super::server::Server;
use super::spec::ServerSpec;
use turnwright_workspace::exec::Environment;
use turnwright_types::redact;
use turnwright_sandbox::Profile;

/// Where the servers of a session run, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// The session's working folder, in which programs start.
    pub cwd: PathBuf,
    /// All folders of the session.
    pub roots: Vec<PathBuf>,
    /// What a program is kept to where its own walls say nothing else; `None` where nothing can be
    /// confined.
    pub jail: Option<Profile>,
    /// Whether their users can be shown forms.
    pub forms: bool,
    /// The logins at servers on HTTP.
    pub logins: Logins,
    /// Where programs that fetch servers may keep these; made when one is to be fetched.
    pub fetched: Vec<PathBuf>,
}

impl Ground {
    /// The folders that a server may ask for: those of the session, and what its settings open for it.
    /// Some servers keep to these, whatever their arguments say.
    pub(super) fn roots_of(&self, spec: &ServerSpec) -> Vec<PathBuf> {
        let opened = spec.walls.write.iter().chain(&spec.walls.read);
        self.roots.iter().chain(opened).cloned().collect()
    }
}

/// The servers that run.
#[derive(Debug)]
pub struct Hub {
    environment: Environment,
    stop: CancellationToken,
    tracker: TaskTracker,
    // A std mutex: held to look at a short list, never across an await.
    running: Mutex<Vec<Weak<Server>>>,
}

impl Hub {
    /// Without any server. Their tasks run on the tracker until they are not wanted any more or the
    /// token says so.
    pub fn new(environment: Environment, stop: CancellationToken, tracker: TaskTracker) -> Hub {
        Hub { environment, stop, tracker, running: Mutex::default() }
    }

    /// The server, running or about to. Never waits.
    pub(super) fn get(&self, spec: &ServerSpec, ground: &Ground) -> Arc<Server> {
        redact::learn(spec.secrets());
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|it| it.strong_count() > 0);
        let same = running.iter().filter_map(Weak::upgrade).find(|it| it.is(spec, ground));
        if let Some(server) = same.filter(|_| spec.is_shared) {
            return server;
        }
        let (stop, environment) = (self.stop.child_token(), self.environment.clone());
        let server = Server::start(spec.clone(), ground.clone(), environment, stop, &self.tracker);
        running.push(Arc::downgrade(&server));
        server
    }
}
