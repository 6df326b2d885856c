//! One connection to a server: the program and the pipes, or the HTTP client, with the protocol on
//! top of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rmcp::Peer;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::elicit::Callers;
use super::handler::Handler;
use super::http::{self, Wire};
use super::hub::Ground;
use super::program::Running;
use super::progress::Progress;
use super::sieve;
use super::spec::{Reach, ServerSpec};
use super::start::Wanted;
use turnwright_types::effect::{short_title, visible_line};
use turnwright_workspace::exec::Environment;
use turnwright_types::redact;

/// How long the protocol may take to close a connection.
const FAREWELL: Duration = Duration::from_millis(200);

/// What is asked for, and until when.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) spec: &'a ServerSpec,
    pub(super) ground: &'a Ground,
    pub(super) environment: &'a Environment,
    /// Told when the server's tools have changed.
    pub(super) changed: Arc<Notify>,
    pub(super) callers: Callers,
    /// The server does not know the handshake of old. Found out here, and remembered.
    pub(super) is_modern: &'a AtomicBool,
    pub(super) stop: &'a CancellationToken,
    pub(super) deadline: Instant,
}

impl Asked<'_> {
    /// Waits for that, as long as it is wanted and there is time.
    ///
    /// # Errors
    /// Why it was not waited for.
    pub(super) async fn wait<T>(&self, what: impl Future<Output = T>) -> Result<T, String> {
        tokio::select! {
            done = what => Ok(done),
            () = self.stop.cancelled() => Err("it was ended".to_owned()),
            () = sleep_until(self.deadline) => {
                let limit = self.spec.limits.start.as_secs_f32();
                Err(format!("it was not ready within {limit} s"))
            }
        }
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// For people.
    pub(super) why: String,
    /// Trying again would not help.
    pub(super) is_final: bool,
    /// But a login would.
    pub(super) needs_login: bool,
}

/// Why a server on HTTP cannot be used.
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

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Failure {
        match unusable {
            Unusable::Failed(why) => why.into(),
            Unusable::NeedsLogin => {
                Failure { why: "it wants a login".to_owned(), is_final: true, needs_login: true }
            }
        }
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure { why, is_final: false, needs_login: false }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    service: RunningService<RoleClient, Handler>,
    program: Option<Running>,
    wire: Option<Wire>,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) async fn open(asked: &Asked<'_>) -> Result<Link, Failure> {
        let handler = Handler {
            roots: Arc::new(asked.ground.roots_of(asked.spec)),
            changed: Arc::clone(&asked.changed),
            server: asked.spec.name.clone(),
            forms: asked.ground.forms,
            callers: asked.callers.clone(),
            progress: Progress::default(),
        };
        match &asked.spec.reach {
            Reach::Stdio { .. } => Link::to_program(asked, handler).await,
            Reach::Http { url, headers } => {
                let opening = http::open(url, headers, &asked.ground.logins, handler);
                let (service, wire) = asked.wait(opening).await??;
                Ok(Link { service, program: None, wire: Some(wire) })
            }
        }
    }

    /// Most servers know the handshake of old, and one that knows nothing else may not answer a
    /// question of the new kind at all. One that refuses the handshake is asked in the new way, as a
    /// program that has heard nothing before.
    async fn to_program(asked: &Asked<'_>, handler: Handler) -> Result<Link, Failure> {
        let mut first = None;
        if !asked.is_modern.load(Ordering::Relaxed) {
            match speak(asked, handler.clone(), ClientLifecycleMode::Initialize).await {
                Ok(link) => return Ok(link),
                Err(Stumble::Refused(why)) => first = Some(why),
                Err(Stumble::Other(failure)) => return Err(failure),
            }
        }
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let modern = ClientLifecycleMode::Discover { preferred_versions };
        let failure = match speak(asked, handler, modern).await {
            Ok(link) => {
                asked.is_modern.store(true, Ordering::Relaxed);
                return Ok(link);
            }
            Err(Stumble::Refused(why)) => Failure { why, is_final: true, needs_login: false },
            Err(Stumble::Other(failure)) => failure,
        };
        let why = match first {
            Some(first) => format!("{first}; asked for the newest revision: {}", failure.why),
            None => failure.why,
        };
        Err(Failure { why, ..failure })
    }

    /// What it tells of calls.
    pub(super) fn progress(&self) -> Progress {
        self.service.service().progress.clone()
    }

    /// To talk to it.
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Who it says it is, and the revision that is spoken.
    pub(super) fn about(&self) -> (String, String) {
        let Some(about) = self.peer().peer_info() else { return Default::default() };
        let title = about.server_info.as_ref().map(|it| format!("{} {}", it.name, it.version));
        let title = short_title(visible_line(&title.unwrap_or_default()));
        (title, about.protocol_version.to_string())
    }

    /// Whether it tells of changes only to those who have asked for that.
    pub(super) fn wants_a_subscription(&self) -> bool {
        self.peer().peer_info().is_some_and(|it| {
            let tells = it.capabilities.tools.as_ref().and_then(|it| it.list_changed);
            !it.protocol_version.has_initialize() && tells == Some(true)
        })
    }

    /// Counts the lines that it has printed and that are no messages.
    pub(super) fn stray(&self) -> Arc<AtomicU64> {
        self.program.as_ref().map(Running::stray).unwrap_or_default()
    }

    /// Waits for its end, and says how it came.
    pub(super) async fn ended(&mut self) -> String {
        match &mut self.program {
            Some(program) => program.ended().await,
            None => match &self.wire {
                Some(wire) => wire.lost().await,
                None => std::future::pending().await,
            },
        }
    }

    /// What has happened, with its last words.
    pub(super) fn said(&self, what: String) -> String {
        match &self.program {
            Some(program) => program.said(what),
            None => what,
        }
    }

    /// Ends it: its input is closed first, as the protocol wants.
    pub(super) async fn close(self) {
        // Dropping the service closes the pipes.
        let limit = if self.wire.is_some() { http::GOODBYE } else { FAREWELL };
        drop(timeout(limit, self.service.cancel()).await);
        if let Some(program) = self.program {
            program.stop().await;
        }
    }
}

/// Why a program is not talked to.
enum Stumble {
    /// It does not want to be in this way.
    Refused(String),
    /// Anything else.
    Other(Failure),
}

/// Starts the program and agrees with it on how to talk.
async fn speak(
    asked: &Asked<'_>,
    handler: Handler,
    mode: ClientLifecycleMode,
) -> Result<Link, Stumble> {
    let Some(wanted) = Wanted::new(asked.spec, asked.ground, asked.environment) else {
        return Err(Stumble::Other("it is no program".to_owned().into()));
    };
    let started = Running::start(wanted).await;
    let (mut program, output, input) = started
        .map_err(|why| Stumble::Other(Failure { why, is_final: true, needs_login: false }))?;
    let transport = AsyncRwTransport::new_client(output, input);
    let transport = transport.with_max_line_length(sieve::MOST + sieve::SPARE);
    let stumble = match asked.wait(handler.serve_with_lifecycle(transport, mode)).await {
        Ok(Ok(service)) => match unknown_revision(&service) {
            None => return Ok(Link { service, program: Some(program), wire: None }),
            Some(why) => {
                drop(timeout(FAREWELL, service.cancel()).await);
                Stumble::Refused(why)
            }
        },
        Ok(Err(error)) => match refusal(&error) {
            Some(why) => Stumble::Refused(why),
            None if matches!(
                error,
                ClientInitializeError::ConnectionClosed(_)
                    | ClientInitializeError::TransportError { .. }
            ) =>
            {
                Stumble::Other(program.ended().await.into())
            }
            None => {
                let why = format!("it does not answer as a server does: {}", brief(&error));
                Stumble::Other(program.said(why).into())
            }
        },
        Err(why) => Stumble::Other(program.said(why).into()),
    };
    program.stop().await;
    Err(stumble)
}

fn unknown_revision(service: &RunningService<RoleClient, Handler>) -> Option<String> {
    let revision = service.peer().peer_info()?.protocol_version.clone();
    let is_known = ProtocolVersion::KNOWN_VERSIONS.contains(&revision);
    (!is_known).then(|| unknown(&[revision]))
}

fn unknown(theirs: &[ProtocolVersion]) -> String {
    let names: Vec<_> = theirs.iter().take(5).map(ToString::to_string).collect();
    let theirs = if names.is_empty() { "another one".to_owned() } else { names.join(", ") };
    let theirs = short_title(visible_line(&theirs));
    format!("it speaks revision {theirs} of the protocol; known are 2024-11-05 to 2026-07-28")
}

/// What a server says that answers and does not want to be talked to in this way.
fn refusal(error: &ClientInitializeError) -> Option<String> {
    match error {
        ClientInitializeError::JsonRpcError(error) => {
            Some(format!("it refused the connection: {}", brief(&error.message)))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            Some(unknown(server_supported))
        }
        _ => None,
    }
}

/// What comes from a server, in one short line and without keys.
fn brief(said: &impl std::fmt::Display) -> String {
    short_title(visible_line(&redact::text(&said.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_speaks_nothing_we_know_is_told_apart_from_one_that_is_broken() {
        let error = rmcp::ErrorData::method_not_found::<rmcp::model::PingRequestMethod>();
        let refused = refusal(&ClientInitializeError::JsonRpcError(error));
        assert!(refused.unwrap().starts_with("it refused the connection: "));
        let versions = serde_json::from_value(serde_json::json!(["2031-01-01"])).unwrap();
        let strange = ClientInitializeError::NoCompatibleProtocolVersion {
            client_supported: Vec::new(),
            server_supported: versions,
        };
        assert_eq!(
            refusal(&strange).unwrap(),
            "it speaks revision 2031-01-01 of the protocol; known are 2024-11-05 to 2026-07-28"
        );
        assert_eq!(refusal(&ClientInitializeError::Cancelled), None);
    }
}
