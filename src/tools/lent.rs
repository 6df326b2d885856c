//! Tools that come from elsewhere and come late: what servers lend to one session. Whoever connects
//! to them puts them in here; the session's registry looks here after its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::AnyTool;

/// The tools of one session that are not built in.
#[derive(Clone, Debug, Default)]
pub struct Lent(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    // A std mutex: held to copy pointers.
    shelf: Mutex<Shelf>,
    /// Servers that are neither ready nor known to have failed.
    awaited: watch::Sender<Vec<String>>,
}

#[derive(Debug, Default)]
struct Shelf {
    edition: u64,
    tools: Arc<Vec<Arc<dyn AnyTool>>>,
    /// What the user has to know of servers.
    news: Vec<String>,
    /// How long the first turn waits, until one has.
    patience: Option<Duration>,
}

impl Lent {
    /// These servers are on their way. The next turn waits for them, this long at most.
    pub fn expect(&self, servers: Vec<String>, patience: Duration) {
        self.shelf().patience = (!servers.is_empty()).then_some(patience);
        self.0.awaited.send_replace(servers);
    }

    /// A server is ready; or it is not going to be, and why.
    pub fn arrived(&self, server: &str, trouble: Option<String>) {
        let is_new = self.0.awaited.send_if_modified(|it| {
            let before = it.len();
            it.retain(|it| it != server);
            it.len() < before
        });
        if let Some(why) = trouble.filter(|_| is_new) {
            self.shelf().news.push(format!("The MCP server {server} is not in use: {why}"));
        }
    }

    /// The tools that there are now, in the order in which they came.
    pub fn set(&self, mut tools: Vec<Arc<dyn AnyTool>>) {
        let mut held = self.shelf();
        let place = |name: &str| held.tools.iter().position(|it| it.name() == name);
        tools.sort_by_key(|it| place(it.name()).unwrap_or(usize::MAX));
        held.tools = Arc::new(tools);
        held.edition += 1;
    }

    /// The tools now, and the number of this list.
    pub fn get(&self) -> (u64, Arc<Vec<Arc<dyn AnyTool>>>) {
        let held = self.shelf();
        (held.edition, Arc::clone(&held.tools))
    }

    /// How long to wait for what is on its way. Asked once: whoever asks does wait.
    pub fn patience(&self) -> Option<Duration> {
        self.shelf().patience.take()
    }

    /// Waits until every server is ready or known to have failed.
    pub async fn settled(&self) {
        // The sender lives as long as we do.
        drop(self.0.awaited.subscribe().wait_for(Vec::is_empty).await);
    }

    /// The servers that are still awaited.
    pub fn awaited(&self) -> Vec<String> {
        self.0.awaited.borrow().clone()
    }

    /// What the user has to know of servers; each thing once.
    pub fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.shelf().news)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
