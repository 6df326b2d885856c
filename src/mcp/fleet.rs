//! The servers of one session. What they lend is put into the session's [`Lent`] as it comes; what
//! is missing is said there, too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::hub::{Ground, Hub};
use super::listed::Listed;
use super::names::Names;
use super::prompts::{self, Asked, PromptCommand};
use super::server::{Phase, Server, State};
use super::spec::ServerSpec;
use super::tool::RemoteTool;
use crate::tools::{AnyTool, Fate, Lent};

/// The servers of a session. Dropping it lets go of them.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Arc<Server>>,
    lent: Lent,
    changed: Arc<Notify>,
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
        let changed = Arc::new(Notify::new());
        let gatherer = Gatherer {
            servers: servers.clone(),
            lent: lent.clone(),
            names: Names::default(),
            changed: Arc::clone(&changed),
        };
        let token = stop.clone();
        tracker.spawn(async move {
            token.run_until_cancelled(gatherer.run()).await;
        });
        Fleet { servers, lent, changed, stop: stop.drop_guard(), tracker }
    }

    /// Each server with what is known of it.
    pub fn states(&self) -> Vec<(&ServerSpec, Arc<State>)> {
        self.servers.iter().map(|it| (&it.spec, it.state())).collect()
    }

    /// Told when there is something new to be known of a server.
    pub fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Waits for each server until it is ready or known to have failed. How long that took.
    pub async fn settled(&self) -> Vec<Duration> {
        let begun = Instant::now();
        let waits = self.servers.iter().map(|server| async move {
            // An error is the end of its task, which has said so before.
            drop(server.watch().wait_for(|it| it.phase != Phase::Starting).await);
            begun.elapsed()
        });
        futures_util::future::join_all(waits).await
    }

    /// Has the server of that name started again. `false` if there is none.
    pub fn restart(&self, name: &str) -> bool {
        let server = self.servers.iter().find(|it| it.spec.name == name);
        server.inspect(|it| it.restart()).is_some()
    }

    /// The prompts that the servers have now, as commands.
    pub fn commands(&self) -> Vec<PromptCommand> {
        prompts::commands(&self.servers)
    }

    /// The prompt of a server that a command means, if it means one: `server:prompt` and its words.
    pub fn asked(&self, word: &str, words: &str) -> Option<Asked> {
        Asked::find(&self.servers, word, words)
    }

    /// Lets go of the servers, and waits until those have ended that nobody else has.
    pub async fn close(self) {
        let Fleet { servers, lent, stop, tracker, .. } = self;
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
    changed: Arc<Notify>,
}

impl Gatherer {
    async fn run(mut self) {
        let mut watches: Vec<_> = self.servers.iter().map(|it| it.watch()).collect();
        let mut shelves: Vec<_> = self.servers.iter().map(|_| Shelf::default()).collect();
        loop {
            self.gather(&mut watches, &mut shelves);
            self.changed.notify_one();
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
        Phase::Ready => {
            let choice = &server.spec.choice;
            let tools = state.tools.iter().filter(|it| choice.takes(&it.tool.name));
            Some(Fate::Ready(tools.count()))
        }
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
        let choice = &server.spec.choice;
        self.tools = list.iter().filter(|it| choice.takes(&it.tool.name)).map(tool).collect();
        self.list = Arc::clone(list);
    }
}
