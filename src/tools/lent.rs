//! Tools that come from elsewhere and come late: what servers lend to one session. Whoever connects
//! to them puts them in here; the session's registry looks here after its own.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::roll::Roll;
use super::{AnyTool, Stock};

/// Names of tools that were there once.
const MOST_GONE: usize = 400;
/// News that wait for a user who does not say anything.
const MOST_NEWS: usize = 100;

/// The tools of one session that are not built in.
#[derive(Clone, Debug, Default)]
pub struct Lent(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    // A std mutex: held to copy pointers and names.
    shelf: Mutex<Shelf>,
    /// Servers that are neither ready nor known to have failed.
    awaited: watch::Sender<Vec<String>>,
    has_news: Notify,
}

#[derive(Debug, Default)]
struct Shelf {
    /// Counts what the model is to be told.
    edition: u64,
    stock: Arc<Stock>,
    roll: Roll,
    gone: VecDeque<String>,
    /// What the user knows of each server.
    known: HashMap<String, Known>,
    /// What the user has to know of servers.
    news: VecDeque<String>,
    /// How long the first turn waits, until one has.
    patience: Option<Duration>,
}

/// How a server fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It can be used, and lends so many tools.
    Ready(usize),
    /// It cannot be used now, and why. It is tried again.
    Down(String),
    /// It cannot be used, and why, until somebody does something about it.
    Lost(String),
}

/// What a user knows of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nothing, not even that it was ever there.
    #[default]
    Nothing,
    /// Nothing is wrong with it.
    Works,
    /// It is late.
    Late,
    /// It cannot be used.
    Failed,
}

impl Lent {
    /// These servers are on their way. The next turn waits for them, this long at most.
    pub fn expect(&self, servers: Vec<String>, patience: Duration) {
        self.shelf().patience = (!servers.is_empty()).then_some(patience);
        self.0.awaited.send_replace(servers);
    }

    /// How a server fares now. The user is told what is new to them: that it cannot be used, once,
    /// and that it can after all.
    pub fn fares(&self, server: &str, fate: &Fate) {
        let mut held = self.shelf();
        let known = held.known.entry(server.to_owned()).or_default();
        let (now, news) = match (fate, *known) {
            (Fate::Ready(count), Known::Late | Known::Failed) => {
                (Known::Works, Some(format!("{server} is connected now: {count} tools.")))
            }
            (Fate::Ready(_), Known::Nothing) => (Known::Works, None),
            (Fate::Down(why) | Fate::Lost(why), Known::Nothing | Known::Late)
            | (Fate::Lost(why), Known::Works) => {
                let news = format!("The MCP server {server} is not in use: {why}");
                (Known::Failed, Some(news))
            }
            (_, known) => (known, None),
        };
        *known = now;
        if let Some(news) = news {
            held.news.push_back(news);
            let surplus = held.news.len().saturating_sub(MOST_NEWS);
            held.news.drain(..surplus);
            self.0.has_news.notify_one();
        }
        // With the lock held: who asks which are late must not hear of one that is not.
        self.0.awaited.send_if_modified(|it| {
            let before = it.len();
            it.retain(|it| it != server);
            it.len() < before
        });
    }

    /// The tools that there are now.
    pub fn set(&self, tools: Vec<Arc<dyn AnyTool>>) {
        let mut held = self.shelf();
        let before = held.stock.tools();
        let same = |(one, other): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(one, other);
        if before.len() == tools.len() && before.iter().zip(&tools).all(same) {
            return;
        }
        let stock = Arc::new(Stock::new(tools));
        let before = std::mem::replace(&mut held.stock, Arc::clone(&stock));
        held.gone.retain(|it| stock.get(it).is_none());
        let lost = before.tools().iter().map(|it| it.name());
        held.gone.extend(lost.filter(|it| stock.get(it).is_none()).map(str::to_owned));
        let surplus = held.gone.len().saturating_sub(MOST_GONE);
        held.gone.drain(..surplus);
        held.edition += 1;
    }

    /// The tools now.
    pub fn stock(&self) -> Arc<Stock> {
        Arc::clone(&self.shelf().stock)
    }

    /// Whether a tool of that name was there, and is no more.
    pub fn is_gone(&self, name: &str) -> bool {
        self.shelf().gone.iter().any(|it| it == name)
    }

    /// Changes when the model is to be told something else.
    pub(super) fn edition(&self) -> u64 {
        self.shelf().edition
    }

    /// What the model is told now, with the search for tools where that stands; and the edition.
    pub(super) fn told(
        &self,
        room: usize,
        search: &Arc<dyn AnyTool>,
    ) -> (u64, Vec<Arc<dyn AnyTool>>) {
        let mut held = self.shelf();
        let stock = Arc::clone(&held.stock);
        let names = held.roll.call(&stock, room, search.name()).iter();
        let tool = |it: &String| if it == search.name() { Some(search) } else { stock.get(it) };
        let tools = names.filter_map(tool).cloned().collect();
        (held.edition, tools)
    }

    /// Whether the model has to search for tools.
    pub(super) fn searches(&self) -> bool {
        self.shelf().roll.searches()
    }

    /// The model wants these: they are told from the next request on.
    pub(super) fn want<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut held = self.shelf();
        let mut is_new = false;
        for name in names {
            is_new |= held.roll.want(name);
        }
        held.edition += u64::from(is_new);
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

    /// The servers that are still awaited. The user is told of them: it is news when they come.
    pub fn late(&self) -> Vec<String> {
        let mut held = self.shelf();
        let late = self.0.awaited.borrow().clone();
        for server in &late {
            held.known.insert(server.clone(), Known::Late);
        }
        late
    }

    /// What the user has to know of servers; each thing once.
    pub fn news(&self) -> Vec<String> {
        self.shelf().news.drain(..).collect()
    }

    /// Waits until there may be news.
    pub async fn has_news(&self) {
        self.0.has_news.notified().await;
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
