//! One server: a task that connects, lists what there is, connects again when it dies, and ends it.
//! Everybody else sees its [`State`].

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::{Prompt, SubscriptionFilter};
use rmcp::{Peer, RoleClient, ServiceError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::elicit::Callers;
use super::hub::Ground;
use super::link::{Asked, Failure, Link};
use super::list::list;
use super::listed::Listed;
use super::progress::Progress;
use super::prompts;
use super::spec::{Reach, ServerSpec};
use turnwright_workspace::exec::Environment;

/// Times that a server is connected to again after it has died, in a row.
const MOST_RESTARTS: u32 = 3;
/// How long after its end it is connected to again the first time; then twice as long each time.
const PAUSE: Duration = Duration::from_millis(250);
/// How long it has to run to count as one that works.
const STEADY: Duration = Duration::from_secs(60);
/// How often it is looked whether somebody has logged in meanwhile.
const LOOK: Duration = Duration::from_secs(2);
/// How long a call waits for a server that is about to come back.
const RETURN: Duration = Duration::from_secs(2);
/// How long the end of a server may take to be known that has closed its output.
const SHORT: Duration = Duration::from_millis(200);

/// How long to wait at least before tools are listed again, and how many times as long as the last
/// list took; and at most.
const APART: (Duration, u32, Duration) = (Duration::from_millis(250), 10, Duration::from_secs(5));

/// A server that runs, or tries to. It ends when nobody holds it any more.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: ServerSpec,
    ground: Ground,
    state: watch::Receiver<Arc<State>>,
    again: Arc<Notify>,
    over: CancellationToken,
    /// Who waits for it.
    pub(super) callers: Callers,
    _stop: DropGuard,
}

/// What is known of a server now.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether it can be used.
    pub phase: Phase,
    /// It cannot be used, and is about to be connected to again without anybody asking.
    pub is_coming_back: bool,
    /// Its tools as it lists them.
    pub tools: Arc<Vec<Arc<Listed>>>,
    /// Its prompts as it lists them.
    pub prompts: Arc<Vec<Prompt>>,
    /// Counts the lists.
    pub edition: u64,
    /// Counts the connections.
    pub connection: u64,
    /// Who it says it is, with its version.
    pub title: String,
    /// The revision of the protocol that is spoken.
    pub revision: String,
    /// How the connection before this one has ended.
    pub last_end: Option<String>,
    stray: Arc<AtomicU64>,
    /// To talk to it.
    pub(super) peer: Option<Peer<RoleClient>>,
    /// What it tells of calls.
    pub(super) progress: Progress,
}

impl State {
    /// Lines on its output that were no messages and were passed over.
    pub fn stray_lines(&self) -> u64 {
        self.stray.load(Ordering::Relaxed)
    }

    fn is_awaited(&self) -> bool {
        self.phase == Phase::Starting || self.is_coming_back
    }
}

/// Whether a server can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not yet.
    #[default]
    Starting,
    /// It can.
    Ready,
    /// It cannot, and why.
    Failed(String),
    /// It wants a login first.
    NeedsLogin,
    /// It was ended.
    Stopped,
}

impl Server {
    /// Starts its task.
    pub(super) fn start(
        spec: ServerSpec,
        ground: Ground,
        environment: Environment,
        stop: CancellationToken,
        tracker: &TaskTracker,
    ) -> Arc<Server> {
        let (said, state) = watch::channel(Arc::default());
        let callers = Callers::default();
        let (again, over) = (Arc::new(Notify::new()), CancellationToken::new());
        let keeper = Keeper {
            spec: spec.clone(),
            ground: ground.clone(),
            environment,
            said,
            changed: Arc::new(Notify::new()),
            again: Arc::clone(&again),
            is_modern: AtomicBool::new(false),
            callers: callers.clone(),
        };
        let (ended, end) = (over.clone().drop_guard(), stop.clone());
        tracker.spawn(async move {
            Box::pin(keeper.run(end)).await;
            drop(ended);
        });
        Arc::new(Server { spec, ground, state, again, over, callers, _stop: stop.drop_guard() })
    }

    /// Whether it is this one, and can be had together.
    pub(super) fn is(&self, spec: &ServerSpec, ground: &Ground) -> bool {
        self.spec == *spec && self.ground == *ground && !self.over.is_cancelled()
    }

    /// What is known of it.
    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.borrow())
    }

    /// To be told of changes.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<State>> {
        self.state.clone()
    }

    /// The connection and its number, to call. Waits a little for one that is about to be there.
    ///
    /// # Errors
    /// Why there is none, for the model.
    pub(super) async fn peer(&self) -> Result<(Peer<RoleClient>, u64), String> {
        let mut watch = self.watch();
        drop(timeout(RETURN, watch.wait_for(|it| !it.is_awaited())).await);
        let state = self.state();
        let name = &self.spec.name;
        match (&state.peer, &state.phase) {
            (Some(peer), _) => Ok((peer.clone(), state.connection)),
            (None, Phase::Failed(why)) if state.is_coming_back => {
                Err(format!("The server {name} is being started again and is not ready yet: {why}"))
            }
            (None, Phase::Failed(why)) => Err(format!("The server {name} is not in use: {why}")),
            (None, Phase::NeedsLogin) => Err(format!("The server {name} wants a login.")),
            (None, Phase::Stopped) => Err(format!("The server {name} was ended.")),
            (None, Phase::Starting | Phase::Ready) => {
                Err(format!("The server {name} is not ready yet."))
            }
        }
    }

    /// How a connection has ended that a call was waiting on, for the model.
    pub(super) async fn lost(&self, connection: u64) -> String {
        let mut watch = self.watch();
        let is_over = |it: &Arc<State>| it.connection != connection || it.phase != Phase::Ready;
        drop(timeout(RETURN, watch.wait_for(is_over)).await);
        let state = self.state();
        let why = state.last_end.as_deref().unwrap_or("the connection was closed");
        let name = &self.spec.name;
        format!("The server {name} was lost during the call: {why}\nIt may have done a part of it.")
    }

    /// Has it connected anew, whether it has failed for good or is in use.
    pub(super) fn restart(&self) {
        self.again.notify_one();
    }

    /// Whether it is a program that is kept to something.
    pub(super) fn is_kept_in(&self) -> bool {
        let is_program = matches!(self.spec.reach, Reach::Stdio { .. });
        is_program && self.spec.walls.on && self.ground.jail.is_some()
    }

    /// The folders that it may ask for.
    pub(super) fn roots(&self) -> Vec<PathBuf> {
        self.ground.roots_of(&self.spec)
    }

    /// Its end, to be waited for after the last handle was dropped.
    pub(super) fn over(&self) -> CancellationToken {
        self.over.clone()
    }
}

/// The task of a server.
struct Keeper {
    spec: ServerSpec,
    ground: Ground,
    environment: Environment,
    said: watch::Sender<Arc<State>>,
    changed: Arc<Notify>,
    again: Arc<Notify>,
    is_modern: AtomicBool,
    callers: Callers,
}

/// Tools and prompts.
type Lists = (Vec<Arc<Listed>>, Vec<Prompt>);

/// Why a connection is over, or never was.
enum End {
    /// Nobody wants the server any more.
    Stopped,
    /// Somebody wants a new one.
    Again,
    /// It has failed.
    Failed(Failure),
}

impl Keeper {
    async fn run(self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let (end, link) = Box::pin(self.live(&stop, &mut failures)).await;
            let is_down = match &end {
                End::Failed(failure) => {
                    failures += 1;
                    failure.is_final || failures > MOST_RESTARTS
                }
                End::Again | End::Stopped => false,
            };
            self.tell(&end, is_down);
            // Whoever waits for an answer can be told why there is none by now.
            if let Some(link) = link {
                link.close().await;
            }
            let goes_on = match end {
                End::Failed(Failure { needs_login: true, .. }) => {
                    failures = 0;
                    stop.run_until_cancelled(self.logged_in()).await.is_some()
                }
                End::Stopped => false,
                End::Again => {
                    failures = 0;
                    true
                }
                End::Failed(_) => self.pause(is_down, &mut failures, &stop).await,
            };
            if !goes_on {
                break;
            }
        }
        self.say(|it| *it = State { phase: Phase::Stopped, ..State::default() });
    }

    fn say(&self, change: impl FnOnce(&mut State)) {
        self.said.send_modify(|it| change(Arc::make_mut(it)));
    }

    fn tell(&self, end: &End, is_down: bool) {
        self.say(|it| {
            it.peer = None;
            match end {
                End::Stopped => {}
                End::Again => it.phase = Phase::Starting,
                End::Failed(Failure { needs_login: true, .. }) => {
                    *it = State { phase: Phase::NeedsLogin, ..State::default() };
                }
                End::Failed(failure) => {
                    it.phase = Phase::Failed(failure.why.clone());
                    it.is_coming_back = !is_down;
                    it.last_end = Some(failure.why.clone());
                }
            }
        });
    }

    /// Waits before the next try. Says whether there is to be one.
    async fn pause(&self, is_down: bool, failures: &mut u32, stop: &CancellationToken) -> bool {
        let pause = async {
            if is_down {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(PAUSE * (1 << failures.saturating_sub(1))).await;
        };
        tokio::select! {
            () = stop.cancelled() => return false,
            () = pause => {}
            () = self.again.notified() => {
                *failures = 0;
                self.tell(&End::Again, false);
            }
        }
        true
    }

    /// One connection, from its beginning to its end.
    async fn live(&self, stop: &CancellationToken, failures: &mut u32) -> (End, Option<Link>) {
        let opened = tokio::select! {
            opened = self.open(stop) => opened,
            () = self.again.notified() => return (End::Again, None),
        };
        let mut link = match opened {
            Ok(link) => link,
            Err(_) if stop.is_cancelled() => return (End::Stopped, None),
            Err(failure) => return (End::Failed(failure), None),
        };
        let begun = Instant::now();
        let end = tokio::select! {
            why = self.serve(&mut link) => End::Failed(why.into()),
            () = self.again.notified() => End::Again,
            () = stop.cancelled() => End::Stopped,
        };
        if begun.elapsed() > STEADY {
            *failures = 0;
        }
        (end, Some(link))
    }

    async fn open(&self, stop: &CancellationToken) -> Result<Link, Failure> {
        let asked = Asked {
            spec: &self.spec,
            ground: &self.ground,
            environment: &self.environment,
            changed: Arc::clone(&self.changed),
            callers: self.callers.clone(),
            is_modern: &self.is_modern,
            stop,
            deadline: Instant::now() + self.spec.limits.start,
        };
        let mut link = Link::open(&asked).await?;
        let peer = link.peer().clone();
        let listing = async {
            tokio::select! {
                why = link.ended() => Err(why),
                listed = self.list(&peer) => listed,
            }
        };
        let why = match asked.wait(listing).await {
            Ok(Ok(lists)) => {
                self.tell_ready(&link, lists);
                return Ok(link);
            }
            Ok(Err(why)) | Err(why) => why,
        };
        // That it has ended says more than that it did not answer.
        let why = match timeout(SHORT, link.ended()).await {
            Ok(end) => end,
            Err(_) => link.said(why),
        };
        link.close().await;
        Err(why.into())
    }

    /// What it has to offer.
    async fn list(&self, peer: &Peer<RoleClient>) -> Result<Lists, String> {
        let prompts = Box::pin(prompts::list(peer, self.spec.limits.start)).await;
        Ok((list(peer).await?, prompts))
    }

    fn tell_ready(&self, link: &Link, (tools, prompts): Lists) {
        let (peer, (title, revision)) = (link.peer().clone(), link.about());
        self.say(|it| {
            *it = State {
                phase: Phase::Ready,
                is_coming_back: false,
                tools: Arc::new(tools),
                edition: it.edition + 1,
                connection: it.connection + 1,
                prompts: Arc::new(prompts),
                title,
                revision,
                last_end: it.last_end.take(),
                stray: link.stray(),
                peer: Some(peer),
                progress: link.progress(),
            };
        });
    }

    /// Until somebody logs in, or wants it tried again.
    async fn logged_in(&self) {
        let login = match &self.spec.reach {
            Reach::Http { url, .. } => self.ground.logins.at(url),
            Reach::Stdio { .. } => None,
        };
        let Some(login) = login else { return self.again.notified().await };
        let before = login.changed_at().await;
        let changed = async {
            while login.changed_at().await == before {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = changed => {}
            () = self.again.notified() => {}
        }
    }

    /// Until it dies. Returns how.
    async fn serve(&self, link: &mut Link) -> String {
        let peer = link.peer().clone();
        let news = listen(peer.clone(), Arc::clone(&self.changed));
        let mut next = Instant::now();
        let is_told = !link.wants_a_subscription();
        let mut news = std::pin::pin!(async {
            if is_told {
                std::future::pending::<()>().await;
            }
            news.await;
        });
        loop {
            tokio::select! {
                why = link.ended() => return why,
                () = self.changed.notified() => {}
                () = &mut news => {}
            }
            tokio::select! {
                why = link.ended() => return why,
                () = sleep_until(next) => {}
            }
            let begun = Instant::now();
            let listed = tokio::select! {
                why = link.ended() => return why,
                listed = timeout(self.spec.limits.start, self.list(&peer)) => listed,
            };
            // One that tells of changes all the time is not listed all the time.
            let (least, times, most) = APART;
            next = Instant::now() + (begun.elapsed() * times).clamp(least, most);
            match listed {
                Ok(Ok((tools, prompts))) => self.say(|it| {
                    it.tools = Arc::new(tools);
                    it.prompts = Arc::new(prompts);
                    it.edition += 1;
                }),
                Ok(Err(why)) => tracing::warn!(server = self.spec.name, why, "no new list"),
                Err(_) => tracing::warn!(server = self.spec.name, "no new list in time"),
            }
        }
    }
}

/// Passes on that tools have changed, from a server that tells only those who have asked. Never ends:
/// a server that does not want to tell is used as it is.
async fn listen(peer: Peer<RoleClient>, changed: Arc<Notify>) {
    let filter = SubscriptionFilter::builder().tools_list_changed().prompts_list_changed().build();
    while let Ok(mut subscription) = peer.listen(filter.clone()).await {
        loop {
            match subscription.next().await {
                Ok(Some(_)) => changed.notify_one(),
                // More than we could take: what was missed is in the list.
                Err(ServiceError::SubscriptionLagged { .. }) => {
                    changed.notify_one();
                    break;
                }
                Ok(None) | Err(_) => return std::future::pending().await,
            }
        }
    }
    std::future::pending::<()>().await;
}
