//! The workbench of a session: what its tools have in common. Each call gets it with its context.

use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::sync::Arc;

use super::cell::Walls;
use super::guard::Cells;
use turnwright_workspace::checkpoint::Checkpoint;
use turnwright_types::client::{Client, Display};
use turnwright_workspace::exec::{Environment, Jobs};
use turnwright_workspace::files::Files;
use turnwright_types::ids::SessionId;
use turnwright_policy::permission::{Audit, SharedMode};
use turnwright_workspace::skills::Shelf;
use turnwright_store::Log;
use turnwright_types::update::Update;
use turnwright_workspace::web::{Pages, Web};

/// Where things lie that belong to the user and not to a project.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// Settings, memory and skills of ours.
    pub config: PathBuf,
    /// What we keep for a while, such as long outputs.
    pub state: PathBuf,
    /// The user's home, if there is one.
    pub home: Option<PathBuf>,
}

/// What all sessions of a process have in common.
#[derive(Debug, Default)]
pub struct Commons {
    /// The user's folders.
    pub folders: Folders,
    /// What was allowed, and what not.
    pub audit: Audit,
    /// The network.
    pub web: Web,
}

impl Commons {
    /// With these folders.
    pub fn new(folders: Folders) -> Commons {
        let audit = Audit::new(&folders.state);
        Commons { folders, audit, ..Commons::default() }
    }
}

/// What the tools of one session work with.
pub struct Bench {
    /// Which session.
    pub session: SessionId,
    /// The session's files.
    pub files: Files,
    /// What commands get as their environment.
    pub environment: Environment,
    /// Its commands.
    pub jobs: Jobs,
    /// Who listens.
    pub client: Arc<dyn Client>,
    /// How commands are shown while they run.
    pub display: Display,
    /// What is shared with other sessions.
    pub commons: Arc<Commons>,
    /// The skills that there are.
    pub skills: Shelf,
    /// The pages that were fetched last.
    pub pages: Pages,
    /// How much may be done without asking.
    pub mode: SharedMode,
    /// What the settings say about the sandbox.
    pub walls: Walls,
    /// The commands that are in it.
    pub cells: Cells,
    /// What is kept of the session.
    pub log: Log,
    /// What its calls do to files.
    pub checkpoint: Checkpoint,
}

impl Debug for Bench {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bench").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Bench {
    /// The bench of a new session.
    pub fn new(
        session: SessionId,
        files: Files,
        environment: Environment,
        client: Arc<dyn Client>,
        display: Display,
        commons: Arc<Commons>,
    ) -> Bench {
        let jobs = Jobs::new(Jobs::folder(&commons.folders.state, &session));
        Bench {
            session,
            files,
            environment,
            jobs,
            client,
            display,
            commons,
            skills: Shelf::default(),
            pages: Pages::default(),
            mode: SharedMode::default(),
            walls: Walls::default(),
            cells: Cells::default(),
            log: Log::default(),
            checkpoint: Checkpoint::default(),
        }
    }

    /// What commands have done since somebody asked that nobody waits for. The user is told what
    /// they have done to protected places. Only for a turn that runs or begins.
    pub fn news(&self) -> Option<String> {
        let trespass = self.cells.news();
        if let Some(trespass) = &trespass {
            self.client.update(Update::Notice(trespass.trim_end().to_owned()));
        }
        let text: String = self.jobs.news().into_iter().chain(trespass).collect();
        (!text.is_empty()).then_some(text)
    }

    /// Where what commands have written in protected places is kept.
    pub fn aside(&self) -> PathBuf {
        Jobs::folder(&self.commons.folders.state, &self.session).join("protected")
    }
}
