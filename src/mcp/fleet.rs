//! The servers of one session. What they lend is put into the session's [`Lent`] as it comes; what
//! is missing is said there, too.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::hub::{Ground, Hub};
use super::names;
use super::server::{Phase, Server, State};
use super::spec::ServerSpec;
use super::tool::RemoteTool;
use crate::tools::{AnyTool, Lent};

/// The servers of a session. Dropping it lets go of them.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Arc<Server>>,
    lent: Lent,
    stop: CancellationToken,
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
        let gatherer = Gatherer { servers: servers.clone(), lent: lent.clone() };
        let token = stop.clone();
        tracker.spawn(async move {
            token.run_until_cancelled(gatherer.run()).await;
        });
        Fleet { servers, lent, stop, tracker }
    }

    /// Each server with what is known of it.
    pub fn states(&self) -> Vec<(&ServerSpec, Arc<State>)> {
        self.servers.iter().map(|it| (&it.spec, it.state())).collect()
    }

    /// Lets go of the servers, and waits until those have ended that nobody else has.
    pub async fn close(self) {
        let Fleet { servers, lent, stop, tracker } = self;
        stop.cancel();
        tracker.close();
        tracker.wait().await;
        // The tools hold their servers.
        lent.set(Vec::new());
        for server in servers {
            let over = server.over();
            if Arc::into_inner(server).is_some() {
                over.cancelled().await;
            }
        }
    }
}

/// Gathers what the servers have.
struct Gatherer {
    servers: Vec<Arc<Server>>,
    lent: Lent,
}

impl Gatherer {
    async fn run(self) {
        let mut watches: Vec<_> = self.servers.iter().map(|it| it.watch()).collect();
        loop {
            self.gather(&mut watches);
            let mut changes: FuturesUnordered<_> =
                watches.iter_mut().map(watch::Receiver::changed).collect();
            // An error is the end of a server's task, which has said so before.
            match changes.next().await {
                Some(Ok(())) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    fn gather(&self, watches: &mut [watch::Receiver<Arc<State>>]) {
        let (mut tools, mut taken): (Vec<Arc<dyn AnyTool>>, _) = (Vec::new(), HashSet::new());
        for (server, watch) in self.servers.iter().zip(watches) {
            let state = Arc::clone(&watch.borrow_and_update());
            match &state.phase {
                Phase::Starting => {}
                Phase::Ready => self.lent.arrived(&server.spec.name, None),
                Phase::Failed(why) => self.lent.arrived(&server.spec.name, Some(why.clone())),
                Phase::NeedsLogin => {
                    let why = "it wants a login".to_owned();
                    self.lent.arrived(&server.spec.name, Some(why));
                }
                Phase::Stopped => {
                    self.lent.arrived(&server.spec.name, Some("it was ended".to_owned()));
                }
            }
            for tool in state.tools.iter() {
                let name = names::unique(&server.spec.name, &tool.name, &mut taken);
                tools.push(Arc::new(RemoteTool::new(name, Arc::clone(server), tool.clone())));
            }
        }
        self.lent.set(tools);
    }
}
