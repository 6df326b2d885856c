//! One server: a task that connects, lists what there is, connects again when it dies, and ends it.
//! Everybody else sees its [`State`].

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::Tool;
use rmcp::{Peer, RoleClient};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::elicit::Callers;
use super::hub::Ground;
use super::link::{Link, Unusable};
use super::spec::{Reach, ServerSpec};
use crate::exec::Environment;

/// Times that a server is connected to again after it has died, in a row.
const MOST_RESTARTS: u32 = 3;
/// How long it has to run to count as one that works.
const STEADY: Duration = Duration::from_secs(60);
/// How often it is looked whether somebody has logged in meanwhile.
const LOOK: Duration = Duration::from_secs(2);
/// Pages of a list. One that never ends is cut.
const MOST_PAGES: usize = 100;
/// Tools of one server.
const MOST_TOOLS: usize = 1000;

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
    /// Its tools as it lists them.
    pub tools: Arc<Vec<Tool>>,
    /// Counts the lists.
    pub edition: u64,
    /// Who it says it is, with its version.
    pub title: String,
    /// The revision of the protocol that is spoken.
    pub revision: String,
    /// It has failed, and is not tried again by itself.
    pub is_lost: bool,
    /// To talk to it.
    pub(super) peer: Option<Peer<RoleClient>>,
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
            edition: 0,
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

    /// Has it tried again after it has failed for good.
    #[expect(dead_code, reason = "for `/mcp`")]
    pub(super) fn restart(&self) {
        self.again.notify_one();
    }

    /// Its end, to be waited for after the last handle was dropped.
    pub(super) fn over(&self) -> CancellationToken {
        self.over.clone()
    }
}

/// The task.
struct Keeper {
    spec: ServerSpec,
    ground: Ground,
    environment: Environment,
    said: watch::Sender<Arc<State>>,
    /// The server says that its tools have changed.
    changed: Arc<Notify>,
    again: Arc<Notify>,
    edition: u64,
    callers: Callers,
}

impl Keeper {
    async fn run(mut self, stop: CancellationToken) {
        let mut restarts = 0;
        while !stop.is_cancelled() {
            let begun = tokio::time::Instant::now();
            let why = match stop.run_until_cancelled(self.connect()).await {
                None => break,
                Some(Ok(mut link)) => {
                    let end = stop.run_until_cancelled(self.serve(&mut link)).await;
                    link.close().await;
                    match end {
                        None => break,
                        Some(why) => why,
                    }
                }
                Some(Err(Unusable::Failed(why))) => why,
                Some(Err(Unusable::NeedsLogin)) => {
                    self.say(|it| *it = State { phase: Phase::NeedsLogin, ..State::default() });
                    if stop.run_until_cancelled(self.logged_in()).await.is_none() {
                        break;
                    }
                    continue;
                }
            };
            if begun.elapsed() > STEADY {
                restarts = 0;
            }
            restarts += 1;
            self.say(|it| {
                it.phase = Phase::Failed(why);
                it.is_lost = restarts > MOST_RESTARTS;
                it.peer = None;
            });
            let pause = async {
                if restarts > MOST_RESTARTS {
                    self.again.notified().await;
                } else {
                    tokio::time::sleep(Duration::from_millis(250 * (1 << restarts))).await;
                }
            };
            if stop.run_until_cancelled(pause).await.is_none() {
                break;
            }
            restarts = if restarts > MOST_RESTARTS { 0 } else { restarts };
        }
        self.say(|it| *it = State { phase: Phase::Stopped, ..State::default() });
    }

    fn say(&self, change: impl FnOnce(&mut State)) {
        self.said.send_modify(|it| change(Arc::make_mut(it)));
    }

    async fn connect(&mut self) -> Result<Link, Unusable> {
        let limit = self.spec.limits.start;
        let connecting = async {
            let changed = Arc::clone(&self.changed);
            let callers = self.callers.clone();
            let link =
                Link::open(&self.spec, &self.ground, &self.environment, changed, callers).await?;
            let tools = list(link.peer()).await?;
            Ok::<_, Unusable>((link, tools))
        };
        let late = || format!("it was not ready within {} s", limit.as_secs());
        let (link, tools) =
            timeout(limit, connecting).await.unwrap_or_else(|_| Err(late().into()))?;
        self.edition += 1;
        let (edition, peer) = (self.edition, link.peer().clone());
        let (title, revision) = link.about();
        self.say(|it| {
            *it = State {
                phase: Phase::Ready,
                tools: Arc::new(tools),
                edition,
                title,
                revision,
                is_lost: false,
                peer: Some(peer),
            };
        });
        Ok(link)
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
    async fn serve(&mut self, link: &mut Link) -> String {
        loop {
            tokio::select! {
                why = link.ended() => return why,
                () = self.changed.notified() => {}
            }
            let listed = timeout(self.spec.limits.start, list(link.peer())).await;
            match listed {
                Ok(Ok(tools)) => {
                    self.edition += 1;
                    let edition = self.edition;
                    self.say(|it| {
                        it.tools = Arc::new(tools);
                        it.edition = edition;
                    });
                }
                Ok(Err(why)) => tracing::warn!(server = self.spec.name, why, "no new list"),
                Err(_) => tracing::warn!(server = self.spec.name, "no new list in time"),
            }
        }
    }
}

/// All tools, page by page.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    use rmcp::model::PaginatedRequestParams;
    let mut tools: Vec<Tool> = Vec::new();
    let mut cursor = None;
    for _ in 0..MOST_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = peer.list_tools(Some(params)).await;
        let page = page.map_err(|error| format!("its tools could not be listed: {error}"))?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() >= MOST_TOOLS {
            break;
        }
    }
    tools.truncate(MOST_TOOLS);
    Ok(tools)
}
