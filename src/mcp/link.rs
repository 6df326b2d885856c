//! One connection to a server: the program and the pipes, or the HTTP client, with the protocol on
//! top of it.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::Peer;
use rmcp::service::{RoleClient, RunningService, ServiceExt};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStderr;
use tokio::sync::Notify;

use super::elicit::Callers;
use super::handler::Handler;
use super::http::{self, Wire};
use super::hub::Ground;
use super::spec::{Reach, ServerSpec};
use crate::exec::{Environment, Piped, Program};
use crate::sandbox::Network;

/// How long a server may take to end by itself once its input is closed, and then after TERM.
const PATIENCE: Duration = Duration::from_millis(500);
const GRACE: Duration = Duration::from_millis(500);
/// Bytes of its last words that are kept.
const MOST_WORDS: usize = 4 * 1024;

/// Why a server cannot be used.
#[derive(Clone, Debug)]
pub(super) enum Unusable {
    /// For people.
    Failed(String),
    /// It wants a login first.
    NeedsLogin,
}

impl From<String> for Unusable {
    fn from(why: String) -> Unusable {
        Unusable::Failed(why)
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    service: RunningService<RoleClient, Handler>,
    program: Option<Piped>,
    wire: Option<Wire>,
    words: Words,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// Why it cannot be used, for people.
    pub(super) async fn open(
        spec: &ServerSpec,
        ground: &Ground,
        environment: &Environment,
        changed: Arc<Notify>,
        callers: Callers,
    ) -> Result<Link, Unusable> {
        let (roots, server) = (Arc::new(ground.roots.clone()), spec.name.clone());
        let handler = Handler { roots, changed, server, forms: ground.forms, callers };
        match &spec.reach {
            Reach::Stdio { .. } => Ok(Link::to_program(spec, ground, environment, handler).await?),
            Reach::Http { url, headers } => {
                let (service, wire) = http::open(url, headers, &ground.logins, handler).await?;
                Ok(Link { service, program: None, wire: Some(wire), words: Words::default() })
            }
        }
    }

    async fn to_program(
        spec: &ServerSpec,
        ground: &Ground,
        environment: &Environment,
        handler: Handler,
    ) -> Result<Link, String> {
        let program = program(spec, ground, environment);
        let (program, pipes) =
            Piped::start(&program).map_err(|error| format!("it could not be started: {error}"))?;
        let words = Words::default();
        words.listen(pipes.stderr);
        let transport = AsyncRwTransport::new_client(pipes.stdout, pipes.stdin);
        match handler.serve(transport).await {
            Ok(service) => Ok(Link { service, program: Some(program), wire: None, words }),
            Err(error) => {
                program.stop(Duration::ZERO, GRACE).await;
                Err(words.with(format!("it did not answer as a server does: {error}")))
            }
        }
    }

    /// To talk to it.
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Who it says it is, and the revision that is spoken.
    pub(super) fn about(&self) -> (String, String) {
        let Some(about) = self.service.peer().peer_info() else { return Default::default() };
        let title = about.server_info.as_ref().map(|it| format!("{} {}", it.name, it.version));
        (title.unwrap_or_default(), about.protocol_version.to_string())
    }

    /// Waits for its end, and says how it came.
    pub(super) async fn ended(&mut self) -> String {
        match &mut self.program {
            Some(program) => {
                let exit = program.ended().await;
                self.words.with(format!("it ended ({exit:?})"))
            }
            None => match &self.wire {
                Some(wire) => wire.lost().await,
                None => std::future::pending().await,
            },
        }
    }

    /// Ends it: its input is closed first, as the protocol wants.
    pub(super) async fn close(self) {
        // Dropping the service closes the pipes.
        let grace = if self.wire.is_some() { http::GOODBYE } else { GRACE };
        drop(tokio::time::timeout(grace, self.service.cancel()).await);
        if let Some(program) = self.program {
            program.stop(PATIENCE, GRACE).await;
        }
    }
}

fn program(spec: &ServerSpec, ground: &Ground, environment: &Environment) -> Program {
    let Reach::Stdio { command, arguments, environment: own } = &spec.reach else {
        unreachable!("only programs are started")
    };
    let words = std::iter::once(command.clone().into_os_string())
        .chain(arguments.iter().map(OsString::from))
        .collect();
    let environment =
        own.iter().fold(environment.clone(), |all, (name, value)| all.with(name, value.expose()));
    let jail = ground.jail.clone().filter(|_| spec.walls.on).map(|mut jail| {
        jail.network = if spec.walls.network { Network::On } else { jail.network };
        jail.write.extend(spec.walls.write.iter().cloned());
        jail.hide.retain(|it| !spec.walls.read.iter().any(|open| it.starts_with(open)));
        jail
    });
    Program { words, workdir: ground.cwd.clone(), environment, jail }
}

/// The last that a program has said to people.
#[derive(Clone, Debug, Default)]
// A std mutex: held to copy a short text.
struct Words(Arc<Mutex<String>>);

impl Words {
    /// Listens until the program is silent for good. It is not waited for: it ends with the pipe.
    #[expect(clippy::disallowed_methods, reason = "ends with the program, which is waited for")]
    fn listen(&self, stderr: ChildStderr) {
        let words = self.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let mut words = words.0.lock().unwrap_or_else(PoisonError::into_inner);
                words.push_str(&line);
                words.push('\n');
                if words.len() > MOST_WORDS {
                    let wanted = words.len() - MOST_WORDS / 2;
                    let cut = (wanted..wanted + 4).find(|it| words.is_char_boundary(*it));
                    words.drain(..cut.unwrap_or(0));
                }
            }
        });
    }

    /// What has happened, with the last words.
    fn with(&self, what: String) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match words.trim() {
            "" => what,
            words => format!("{what}. It said: {words}"),
        }
    }
}
