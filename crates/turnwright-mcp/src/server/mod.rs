//! One server: a task that connects, lists tools and prompts, reconnects after a failure, and ends the
//! connection. Everything else sees its [`ServerState`].

pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod pool;
pub(crate) mod spec;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join3;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::call::server_requests::WaitingCalls;
use crate::features::skills::list_skills;
use crate::features::tools::{ListedTool, add_own_tools, list_tools};
use crate::features::{JsonObject, Prompt, prompts};
use crate::transport::Peer;
use connection::{ConnectFailure, ConnectRequest, Connection};
use pool::ServerEnv;
use spec::{ServerSpec, ServerTransport};
use turnwright_types::patience::timeout;
use turnwright_types::redact;
use turnwright_workspace::exec::{Environment, ProgramActivity};

/// Consecutive failures after which a server is not restarted any more.
const MAX_RESTARTS: u32 = 3;
/// The delay before the first restart; it doubles each time.
const RESTART_DELAY: Duration = Duration::from_millis(250);
/// The delay before the first of the later attempts to reach a server over HTTP, which may come back, and how many times
/// it doubles: a session may be left alone for days.
const HTTP_RETRY_DELAY: (Duration, u32) = (Duration::from_secs(30), 3);
/// A server that has run this long counts as working: its failures are forgotten.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// How often to check whether the user has logged in.
const LOGIN_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long a call waits for a server that is being restarted.
const RESTART_WAIT: Duration = Duration::from_secs(2);
/// How long to wait for the exit of a server that did not become ready.
const EXIT_WAIT: Duration = Duration::from_millis(200);
/// The time that the first tools of a connection wait for its prompts and skills.
const LATE_LISTS_WAIT: Duration = Duration::from_secs(1);

/// The delay between two lists: at least, as a multiple of how long the last list took, and at most.
const LIST_INTERVAL: (Duration, u32, Duration) =
    (Duration::from_millis(250), 10, Duration::from_secs(5));

/// A running or starting server. It ends when the last handle is dropped.
#[derive(Debug)]
pub struct Server {
    pub spec: ServerSpec,
    env: ServerEnv,
    state: watch::Receiver<Arc<ServerState>>,
    restart_requested: Arc<Notify>,
    ended: CancellationToken,
    pub callers: WaitingCalls,
    /// Tells whether its program has run.
    pub activity: ProgramActivity,
    _stop: DropGuard,
}

/// The current state of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerState {
    pub phase: ServerPhase,
    /// It has failed and will be restarted automatically.
    pub is_restarting: bool,
    pub tools: Arc<Vec<Arc<ListedTool>>>,
    pub prompts: Arc<Vec<Prompt>>,
    /// The names of the lists that the server has not sent in time.
    pub late: Vec<&'static str>,
    /// Incremented with each list of tools and prompts.
    pub tools_version: u64,
    /// Incremented with each connection.
    pub connection: u64,
    /// The name and version that the server states.
    pub title: String,
    /// The protocol version.
    pub revision: String,
    /// How the previous connection ended.
    pub last_end: Option<String>,
    /// `None` unless connected.
    pub peer: Option<Peer>,
}

/// Receives the changes of a server's state.
type StateWatch = watch::Receiver<Arc<ServerState>>;

impl ServerState {
    fn is_about_to_connect(&self) -> bool {
        self.phase == ServerPhase::Starting || self.is_restarting
    }
}

/// The phase of a server's life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerPhase {
    #[default]
    Starting,
    Ready,
    /// With the reason, for the user.
    Failed(String),
    /// The user must log in first.
    NeedsLogin,
    Stopped,
}

impl Server {
    /// Starts the task of a server.
    pub fn start(
        spec: ServerSpec,
        env: ServerEnv,
        environment: Environment,
        stop: CancellationToken,
        tracker: &TaskTracker,
    ) -> Arc<Server> {
        let publisher = watch::Sender::new(Arc::default());
        let server = Server::new(spec, env, publisher.subscribe(), stop.clone());
        let task = ServerTask {
            spec: server.spec.clone(),
            env: server.env.clone(),
            environment,
            stop,
            publisher,
            changed: Arc::default(),
            lost: watch::Sender::default(),
            restart_requested: Arc::clone(&server.restart_requested),
            is_modern: AtomicBool::new(false),
            callers: server.callers.clone(),
            activity: server.activity.clone(),
        };
        let ended_guard = server.ended.clone().drop_guard();
        tracker.spawn(async move {
            Box::pin(task.run()).await;
            drop(ended_guard);
        });
        Arc::new(server)
    }

    /// A server without a task, which is always in this state.
    pub(crate) fn unchanging(spec: ServerSpec, env: ServerEnv, state: ServerState) -> Arc<Server> {
        let (_, state) = watch::channel(Arc::new(state));
        let server = Server::new(spec, env, state, CancellationToken::new());
        server.ended.cancel();
        Arc::new(server)
    }

    pub(crate) fn new(
        spec: ServerSpec,
        env: ServerEnv,
        state: watch::Receiver<Arc<ServerState>>,
        stop: CancellationToken,
    ) -> Server {
        Server {
            spec,
            env,
            state,
            restart_requested: Arc::default(),
            ended: CancellationToken::new(),
            callers: WaitingCalls::default(),
            activity: ProgramActivity::default(),
            _stop: stop.drop_guard(),
        }
    }

    /// True if the server has not ended, is not down, and was started with an equal configuration and environment.
    pub(crate) fn is_reusable_for(&self, spec: &ServerSpec, env: &ServerEnv) -> bool {
        let state = self.state();
        let is_down = matches!(state.phase, ServerPhase::Failed(_)) && !state.is_restarting;
        self.spec == *spec && self.env == *env && !self.ended.is_cancelled() && !is_down
    }

    pub fn state(&self) -> Arc<ServerState> {
        Arc::clone(&self.state.borrow())
    }

    /// Returns a receiver of state changes.
    pub fn watch(&self) -> watch::Receiver<Arc<ServerState>> {
        self.state.clone()
    }

    /// Returns the peer to call and the number of its connection. Waits briefly if the server is
    /// starting or restarting.
    ///
    /// # Errors
    /// If there is no connection; the text is for the model.
    pub async fn peer(&self) -> Result<(Peer, u64), String> {
        let mut watch = self.watch();
        timeout(RESTART_WAIT, watch.wait_for(|state| !state.is_about_to_connect())).await.ok();
        let state = self.state();
        if let Some(peer) = &state.peer {
            return Ok((peer.clone(), state.connection));
        }
        let why = match &state.phase {
            ServerPhase::Failed(why) if state.is_restarting => {
                format!("is being restarted and is not ready yet: {why}")
            }
            ServerPhase::Failed(why) => format!("is not available: {why}"),
            ServerPhase::NeedsLogin => "requires a login.".to_owned(),
            ServerPhase::Stopped => "was stopped.".to_owned(),
            ServerPhase::Starting | ServerPhase::Ready => "is not ready yet.".to_owned(),
        };
        Err(format!("The server {} {why}", self.spec.name))
    }

    /// Waits until the server is connected again after this connection was lost. Returns the new peer and the number of
    /// its connection; `None` if the server is not reconnected automatically.
    pub(crate) async fn reconnected(mut watch: StateWatch, lost: u64) -> Option<(Peer, u64)> {
        let over = watch.wait_for(|state| match &state.peer {
            Some(_) => state.connection != lost,
            None => !state.is_about_to_connect(),
        });
        let state = over.await.ok()?;
        Some((state.peer.clone()?, state.connection))
    }

    /// Explains to the model why the connection of a running call was lost.
    pub async fn lost_call_message(&self, connection: u64) -> String {
        let mut watch = self.watch();
        let over = watch
            .wait_for(|state| state.connection != connection || state.phase != ServerPhase::Ready);
        timeout(RESTART_WAIT, over).await.ok();
        let state = self.state();
        let why = state.last_end.as_deref().unwrap_or("the connection was closed");
        let name = &self.spec.name;
        format!(
            "The connection to the server {name} was lost during the call: {why}\nThe call may have \
             been partly executed."
        )
    }

    /// Reconnects the server, whether it is in use or has failed for good.
    pub fn restart(&self) {
        self.restart_requested.notify_one();
    }

    /// True if the server is a process in a sandbox.
    pub fn is_confined(&self) -> bool {
        self.spec.is_confined_program() && self.env.profile.is_some()
    }

    /// A token that is cancelled when the server has ended. Wait for it after dropping the last handle.
    pub fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }
}

struct ServerTask {
    spec: ServerSpec,
    env: ServerEnv,
    environment: Environment,
    /// Cancelled when the server is no longer used.
    stop: CancellationToken,
    publisher: watch::Sender<Arc<ServerState>>,
    /// Notified when the server's tools or prompts have changed.
    changed: Arc<Notify>,
    /// The connection before, whose resources the next one goes on following.
    lost: watch::Sender<Option<Peer>>,
    restart_requested: Arc<Notify>,
    /// Set once the server turns out to know only the protocol without a handshake.
    is_modern: AtomicBool,
    callers: WaitingCalls,
    activity: ProgramActivity,
}

/// The tools and prompts of a server, and what it has not listed in time.
struct Lists {
    tools: Vec<Arc<ListedTool>>,
    prompts: Vec<Prompt>,
    late: Vec<&'static str>,
}

/// Why a connection has ended or could not be opened.
enum ConnectionEnd {
    /// The server is no longer used.
    Stopped,
    /// The user requested a restart.
    Restart,
    Failed(ConnectFailure),
}

impl ServerTask {
    async fn run(self) {
        let mut failures = 0;
        loop {
            let (end, connection) = Box::pin(self.run_connection(&mut failures)).await;
            let is_down = match &end {
                ConnectionEnd::Failed(failure) => {
                    failures += 1;
                    !matches!(failure, ConnectFailure::Failed(_)) || failures > MAX_RESTARTS
                }
                ConnectionEnd::Restart | ConnectionEnd::Stopped => false,
            };
            self.publish_end(&end, is_down);
            // Closed only now, so that calls in flight find the reason in the state.
            if let Some(connection) = connection {
                self.lost.send_replace(Some(connection.peer().clone()));
                connection.close().await;
            }
            let continues = match end {
                ConnectionEnd::Failed(ConnectFailure::NeedsLogin) => {
                    failures = 0;
                    self.stop.run_until_cancelled(self.wait_for_login()).await.is_some()
                }
                ConnectionEnd::Stopped => false,
                ConnectionEnd::Restart => {
                    failures = 0;
                    true
                }
                ConnectionEnd::Failed(failure) => {
                    let delay = match (&failure, &self.spec.transport) {
                        _ if !is_down => Some(RESTART_DELAY * (1 << failures.saturating_sub(1))),
                        (ConnectFailure::Failed(_), ServerTransport::Http { .. }) => {
                            let (first, doublings) = HTTP_RETRY_DELAY;
                            Some(first * (1 << (failures - MAX_RESTARTS - 1).min(doublings)))
                        }
                        _ => None,
                    };
                    self.wait_before_restart(delay, &mut failures).await
                }
            };
            if !continues {
                break;
            }
        }
        self.publish(|state| {
            *state = ServerState { phase: ServerPhase::Stopped, ..ServerState::default() }
        });
    }

    fn publish(&self, change: impl FnOnce(&mut ServerState)) {
        self.publisher.send_modify(|state| change(Arc::make_mut(state)));
    }

    fn publish_end(&self, end: &ConnectionEnd, is_down: bool) {
        self.publish(|state| {
            state.peer = None;
            match end {
                ConnectionEnd::Stopped => {}
                ConnectionEnd::Restart => state.phase = ServerPhase::Starting,
                ConnectionEnd::Failed(ConnectFailure::NeedsLogin) => {
                    *state =
                        ServerState { phase: ServerPhase::NeedsLogin, ..ServerState::default() };
                }
                ConnectionEnd::Failed(failure) => {
                    state.phase = ServerPhase::Failed(failure.why().to_owned());
                    state.is_restarting = !is_down;
                    state.last_end = Some(failure.why().to_owned());
                }
            }
        });
    }

    /// Waits for this delay before the next attempt, or until the user requests a restart. Returns false if
    /// the server is stopped meanwhile.
    async fn wait_before_restart(&self, delay: Option<Duration>, failures: &mut u32) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => return false,
            () = tokio::time::sleep(delay.unwrap_or_default()), if delay.is_some() => {}
            () = self.restart_requested.notified() => {
                *failures = 0;
                self.publish_end(&ConnectionEnd::Restart, false);
            }
        }
        true
    }

    /// Opens one connection and serves it until it ends.
    async fn run_connection(&self, failures: &mut u32) -> (ConnectionEnd, Option<Connection>) {
        let attempt = self.stop.child_token();
        let opening = self.open(&attempt);
        tokio::pin!(opening);
        let opened = tokio::select! {
            opened = &mut opening => opened,
            () = self.restart_requested.notified() => {
                // Its program is ended and not just killed.
                attempt.cancel();
                return (ConnectionEnd::Restart, opening.await.ok());
            }
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(_) if self.stop.is_cancelled() => return (ConnectionEnd::Stopped, None),
            Err(failure) => return (ConnectionEnd::Failed(failure), None),
        };
        let started = Instant::now();
        let end = tokio::select! {
            why = self.serve(&mut connection) => ConnectionEnd::Failed(why.into()),
            () = self.restart_requested.notified() => ConnectionEnd::Restart,
            () = self.stop.cancelled() => ConnectionEnd::Stopped,
        };
        if started.elapsed() > STABLE_AFTER {
            *failures = 0;
        }
        (end, Some(connection))
    }

    async fn open(&self, stop: &CancellationToken) -> Result<Connection, ConnectFailure> {
        let deadline = Instant::now() + self.spec.start_timeout();
        let request = ConnectRequest { server: self, stop, deadline };
        redact::register_keys(self.spec.secrets())
            .map_err(|error| ConnectFailure::Lasting(error.to_string()))?;
        let mut connection = Connection::open(&request).await?;
        let peer = connection.peer().clone();
        let patience = LATE_LISTS_WAIT.min(self.spec.start_timeout() / 4);
        let listing = async {
            tokio::select! {
                why = connection.ended() => Err(why),
                listed = self.list(&peer, patience) => listed,
            }
        };
        let why = match request.until_deadline(listing).await {
            Ok(Ok(lists)) => {
                if !lists.late.is_empty() {
                    // Everything is listed again at once, and then awaited.
                    self.changed.notify_one();
                }
                peer.follow_those_of(self.lost.send_replace(None));
                self.publish_ready(&connection, lists);
                return Ok(connection);
            }
            Ok(Err(why)) | Err(why) => why,
        };
        // If the server has ended, that explains more than that it did not answer.
        let ended = timeout(EXIT_WAIT, connection.ended()).await;
        let why = ended.unwrap_or_else(|_| connection.with_stderr(why));
        let refusal = connection.refusal(&why);
        connection.close().await;
        // A server within the client is not started anew, so it would not answer better.
        Err(refusal.unwrap_or(match self.spec.transport {
            ServerTransport::Linked(_) => ConnectFailure::Lasting(why),
            _ => ConnectFailure::Failed(why),
        }))
    }

    /// Lists everything at the same time. Once there are tools, waits this long for prompts and skills.
    async fn list(&self, peer: &Peer, patience: Duration) -> Result<Lists, String> {
        let limit = self.spec.start_timeout();
        let has_tools = CancellationToken::new();
        let listing = join3(
            Box::pin(list_tools(peer).inspect(|_| has_tools.cancel())),
            Box::pin(unless_late(prompts::list_prompts(peer, limit), &has_tools, patience)),
            Box::pin(unless_late(list_skills(peer, limit), &has_tools, patience)),
        );
        let (listed, prompts, skills) = listing.await;
        let mut tools = listed?;
        let late = [("prompts", prompts.is_none()), ("skills", skills.is_none())];
        add_own_tools(peer, &skills.unwrap_or_default(), &mut tools);
        Ok(Lists {
            tools,
            prompts: prompts.unwrap_or_default(),
            late: late.into_iter().filter(|entry| entry.1).map(|entry| entry.0).collect(),
        })
    }

    fn publish_ready(&self, connection: &Connection, lists: Lists) {
        let Lists { tools, prompts, late } = lists;
        let peer = connection.peer().clone();
        let (title, revision) = connection.server_info();
        let server = &self.spec.name;
        let tool_count = tools.len();
        tracing::debug!(server, title, revision, tool_count, "connected to a server");
        self.publish(|state| {
            *state = ServerState {
                phase: ServerPhase::Ready,
                is_restarting: false,
                tools: Arc::new(tools),
                tools_version: state.tools_version + 1,
                connection: state.connection + 1,
                prompts: Arc::new(prompts),
                late,
                title,
                revision,
                last_end: state.last_end.take(),
                peer: Some(peer),
            };
        });
    }

    /// Waits until the user logs in or requests a restart.
    async fn wait_for_login(&self) {
        let login = match &self.spec.transport {
            ServerTransport::Http { url, .. } => self.env.logins.login_for(url),
            ServerTransport::Stdio { .. } | ServerTransport::Linked(_) => None,
        };
        let Some(login) = login else { return self.restart_requested.notified().await };
        let before = login.changed_at().await;
        let changed = async {
            while login.changed_at().await == before {
                tokio::time::sleep(LOGIN_POLL_INTERVAL).await;
            }
        };
        tokio::select! {
            () = changed => {}
            () = self.restart_requested.notified() => {}
        }
    }

    /// Lists tools and prompts again whenever they change. Returns how the connection ended.
    async fn serve(&self, connection: &mut Connection) -> String {
        let peer = connection.peer().clone();
        let server = &self.spec.name;
        let needs_subscription = connection.needs_subscription();
        let mut subscription = std::pin::pin!(subscribe_to_changes(&peer));
        let mut next = Instant::now();
        loop {
            tokio::select! {
                why = connection.ended() => return why,
                () = self.changed.notified() => {}
                () = &mut subscription, if needs_subscription => {}
            }
            tokio::select! {
                why = connection.ended() => return why,
                () = sleep_until(next) => {}
            }
            let started = Instant::now();
            let limit = self.spec.start_timeout();
            let listed = tokio::select! {
                why = connection.ended() => return why,
                listed = timeout(limit, self.list(&peer, limit)) => listed,
            };
            // A server that announces changes all the time is not listed all the time.
            let (min, factor, max) = LIST_INTERVAL;
            next = Instant::now() + (started.elapsed() * factor).clamp(min, max);
            match listed {
                Ok(Ok(lists)) => self.publish(|state| {
                    state.tools = Arc::new(lists.tools);
                    state.prompts = Arc::new(lists.prompts);
                    state.late = lists.late;
                    state.tools_version += 1;
                }),
                Ok(Err(why)) => tracing::warn!(server, why, "the tools could not be listed again"),
                Err(_) => tracing::warn!(server, "the tools were not listed again in time"),
            }
        }
    }
}

/// Waits for a list, but no longer than `patience` once there are tools.
async fn unless_late<T>(
    list: impl Future<Output = Option<T>>,
    has_tools: &CancellationToken,
    patience: Duration,
) -> Option<T> {
    let end = async {
        has_tools.cancelled().await;
        tokio::time::sleep(patience).await;
    };
    tokio::select! {
        listed = list => listed,
        () = end => None,
    }
}

/// Subscribes to change notifications, which come like those to everyone. If the server refuses or ends the
/// subscription, its lists are used as they are. Never returns.
async fn subscribe_to_changes(peer: &Peer) {
    let changes = json!({ "toolsListChanged": true, "promptsListChanged": true });
    let params = JsonObject::from_iter([("notifications".to_owned(), changes)]);
    let ended = peer.request::<Value>("subscriptions/listen", params).await;
    tracing::debug!(?ended, "the subscription to changes has ended");
    std::future::pending::<()>().await;
}
