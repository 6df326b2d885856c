//! The servers of one session. What they lend is put into the session's [`Lent`] as it comes; what
//! is missing is said there, too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::hub::{Ground, Hub};
use super::listed::Listed;
use super::names::Names;
use super::server::{Phase, Server, State};
use super::spec::ServerSpec;
use super::tool::RemoteTool;
use crate::tools::{AnyTool, Fate, Lent};

/// The servers of a session. Dropping it lets go of them.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Arc<Server>>,
    lent: Lent,
    stop: DropGuard,
    tracker: TaskTracker,
}

impl Fleet {
    /// Gets the servers and begins to gather what they have. Never waits.
    pub fn launch(
        hub: &Hub,
        specs: &[ServerSpec],
        ground: &Ground,
        lent: Lent,
        patience: Duration,
    ) -> Fleet {
        let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
        let servers: Vec<_> = specs.iter().map(|it| hub.get(it, ground)).collect();
        lent.expect(servers.iter().map(|it| it.spec.name.clone()).collect(), patience);
        let gatherer =
            Gatherer { servers: servers.clone(), lent: lent.clone(), names: Names::default() };
        let token = stop.clone();
        tracker.spawn(async move {
            token.run_until_cancelled(gatherer.run()).await;
        });
        Fleet { servers, lent, stop: stop.drop_guard(), tracker }
    }

    /// Each server with what is known of it.
    pub fn states(&self) -> Vec<(&ServerSpec, Arc<State>)> {
        self.servers.iter().map(|it| (&it.spec, it.state())).collect()
    }

    /// Lets go of the servers, and waits until those have ended that nobody else has.
    pub async fn close(self) {
        let Fleet { servers, lent, stop, tracker } = self;
        drop(stop);
        tracker.close();
        tracker.wait().await;
        // The tools hold their servers.
        lent.set(Vec::new());
        // All are let go of before one is waited for: they end side by side.
        let last = |it: Arc<Server>| {
            let over = it.over();
            Arc::into_inner(it).map(|_| over)
        };
        let ends: Vec<_> = servers.into_iter().filter_map(last).collect();
        for end in ends {
            end.cancelled().await;
        }
    }
}

/// Gathers what the servers have.
struct Gatherer {
    servers: Vec<Arc<Server>>,
    lent: Lent,
    names: Names,
}

impl Gatherer {
    async fn run(mut self) {
        let mut watches: Vec<_> = self.servers.iter().map(|it| it.watch()).collect();
        let mut shelves: Vec<_> = self.servers.iter().map(|_| Shelf::default()).collect();
        loop {
            self.gather(&mut watches, &mut shelves);
            let mut changes: FuturesUnordered<_> =
                watches.iter_mut().map(watch::Receiver::changed).collect();
            // An error is the end of a server's task, which has said so before.
            match changes.next().await {
                Some(Ok(())) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    fn gather(&mut self, watches: &mut [watch::Receiver<Arc<State>>], shelves: &mut [Shelf]) {
        let mut tools: Vec<Arc<dyn AnyTool>> = Vec::new();
        let mut fates = Vec::new();
        for ((server, watch), shelf) in self.servers.iter().zip(watches).zip(shelves) {
            let state = Arc::clone(&watch.borrow_and_update());
            shelf.fill(server, &state.tools, &mut self.names);
            tools.extend(shelf.tools.iter().map(|it| Arc::clone(it) as Arc<dyn AnyTool>));
            fates.extend(fate(server, &state).map(|it| (&server.spec.name, it)));
        }
        // Who hears that a server is ready finds its tools.
        self.lent.set(tools);
        for (name, fate) in fates {
            self.lent.fares(name, &fate);
        }
    }
}

fn fate(server: &Server, state: &State) -> Option<Fate> {
    match &state.phase {
        Phase::Starting => None,
        Phase::Ready => Some(Fate::Ready(state.tools.len())),
        Phase::Failed(why) if !state.is_coming_back => Some(Fate::Lost(why.clone())),
        Phase::Failed(why) => Some(Fate::Down(why.clone())),
        Phase::NeedsLogin => Some(Fate::Lost(server.spec.how_to_log_in())),
        Phase::Stopped => Some(Fate::Down("it was ended".to_owned())),
    }
}

/// The tools of one server. What has not changed stays the same tool.
#[derive(Default)]
struct Shelf {
    list: Arc<Vec<Arc<Listed>>>,
    tools: Vec<Arc<RemoteTool>>,
}

impl Shelf {
    fn fill(&mut self, server: &Arc<Server>, list: &Arc<Vec<Arc<Listed>>>, names: &mut Names) {
        if Arc::ptr_eq(&self.list, list) {
            return;
        }
        let known: HashMap<_, _> = self.tools.drain(..).map(|it| (it.name.clone(), it)).collect();
        let tool = |listed: &Arc<Listed>| {
            let name = names.of(&server.spec.name, &listed.tool.name);
            match known.get(&name).filter(|it| it.listed.tool == listed.tool) {
                Some(known) => Arc::clone(known),
                None => Arc::new(RemoteTool::new(name, Arc::clone(server), Arc::clone(listed))),
            }
        };
        self.tools = list.iter().map(tool).collect();
        self.list = Arc::clone(list);
    }
}
