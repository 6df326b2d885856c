//! The MCP tools of one session, which become available while the session runs. The task that
//! connects to the servers puts them in; the session's toolbox looks here after the built-in tools.
//! A tool that is advertised keeps its position and new ones are appended, so that the provider's prompt
//! cache stays valid.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::tools::{AllowedTools, AnyTool, OfferContext, ToolIndex};

/// At most this many names of removed tools are remembered.
const MAX_REMOVED: usize = 400;
/// At most this many notices wait for the user's next turn.
const MAX_NOTICES: usize = 100;
/// If there are more MCP tools than this, the model has to search for them.
const MAX_ADVERTISED: usize = 40;
/// Bytes of MCP tool specs for a model whose context window is not known.
const DEFAULT_BUDGET: usize = 32 * 1024;
/// An estimate.
const BYTES_PER_TOKEN: u64 = 4;
/// MCP tools may take one part in this many of the context window.
const WINDOW_FRACTION: u64 = 10;
/// At most this many tools that were found by a search, or called, are advertised together.
const MAX_LOADED: usize = 40;
/// At least this many of them stay, however long their descriptions are.
const MIN_LOADED: usize = 5;

/// The MCP tools of one session.
#[derive(Debug, Default)]
pub struct RemoteTools {
    /// The only tools of the session, if it is restricted. The index has no others.
    allowed: OnceLock<Arc<AllowedTools>>,
    // Held only to copy pointers and names.
    state: Mutex<RemoteToolsState>,
    /// Servers that are neither ready nor known to have failed.
    pending_servers: watch::Sender<Vec<String>>,
    notice_added: Notify,
}

#[derive(Debug, Default)]
struct RemoteToolsState {
    /// Counts the changes of the tools that are advertised to the model.
    revision: u64,
    index: Arc<ToolIndex>,
    advertised: AdvertisedTools,
    removed: VecDeque<String>,
    /// The status of each server as the user knows it.
    known_status: HashMap<String, KnownStatus>,
    /// Notices for the user.
    notices: VecDeque<String>,
    /// The time that the first turn waits for servers; taken by the first turn that waits.
    wait_limit: Option<Duration>,
}

/// The status of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerStatus {
    /// Connected, with this number of tools.
    Ready(usize),
    /// Unavailable for this reason. Connecting is retried.
    Down(String),
    /// Unavailable for this reason until the user does something about it.
    Failed(String),
}

/// The status of a server as the user knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KnownStatus {
    /// The user was told nothing about it.
    #[default]
    Unknown,
    /// As far as the user knows, it works.
    Works,
    /// The user was told that it is not connected yet.
    Late,
    /// The user was told that it is unavailable.
    Failed,
}

impl RemoteTools {
    /// Announces servers that are being started. The next turn waits for them, at most for
    /// `wait_limit`.
    pub fn expect_servers(&self, servers: Vec<String>, wait_limit: Duration) {
        self.state.lock().wait_limit = (!servers.is_empty()).then_some(wait_limit);
        self.pending_servers.send_replace(servers);
    }

    /// Sets the status of a server. The user gets a notice when it becomes unavailable, once, and
    /// when it recovers.
    pub fn set_server_status(&self, server: &str, status: &ServerStatus) {
        let mut state = self.state.lock();
        let known = state.known_status.entry(server.to_owned()).or_default();
        let (now, notice) = match (status, *known) {
            (ServerStatus::Ready(count), KnownStatus::Late | KnownStatus::Failed) => {
                (KnownStatus::Works, Some(format!("{server} is connected now: {count} tools.")))
            }
            (ServerStatus::Ready(_), KnownStatus::Unknown) => (KnownStatus::Works, None),
            (
                ServerStatus::Down(why) | ServerStatus::Failed(why),
                KnownStatus::Unknown | KnownStatus::Late,
            )
            | (ServerStatus::Failed(why), KnownStatus::Works) => {
                let notice = format!("The MCP server {server} is unavailable: {why}");
                (KnownStatus::Failed, Some(notice))
            }
            (_, known) => (known, None),
        };
        *known = now;
        if let Some(notice) = notice {
            state.notices.push_back(notice);
            let surplus = state.notices.len().saturating_sub(MAX_NOTICES);
            state.notices.drain(..surplus);
            self.notice_added.notify_one();
        }
        // Still under the lock, so that `take_late_servers` never reports a server whose status is
        // already known.
        self.pending_servers.send_if_modified(|pending| {
            let before = pending.len();
            pending.retain(|name| name != server);
            pending.len() < before
        });
    }

    /// Restricts the session to these tools, built-in ones included. Others are neither offered nor found from then on.
    /// Must be called before its first request; only the first call has an effect.
    pub(crate) fn restrict(&self, allowed: AllowedTools) {
        if self.allowed.set(Arc::new(allowed)).is_ok() {
            self.set_tools(self.index().tools().to_vec());
        }
    }

    /// The only tools of the session, if it is restricted.
    pub(in crate::tools) fn allowed(&self) -> Option<&Arc<AllowedTools>> {
        self.allowed.get()
    }

    /// Replaces the tools of all servers.
    pub fn set_tools(&self, mut tools: Vec<Arc<dyn AnyTool>>) {
        let mut state = self.state.lock();
        if let Some(allowed) = self.allowed.get() {
            tools.retain(|tool| allowed.contains_remote(tool.name()));
        }
        let before = state.index.tools();
        let is_same = before.len() == tools.len()
            && before.iter().zip(&tools).all(|(one, other)| Arc::ptr_eq(one, other));
        if is_same {
            return;
        }
        let index = Arc::new(ToolIndex::new(tools));
        let before = std::mem::replace(&mut state.index, Arc::clone(&index));
        state.removed.retain(|name| index.get(name).is_none());
        let names = before.tools().iter().map(|tool| tool.name());
        state.removed.extend(names.filter(|name| index.get(name).is_none()).map(str::to_owned));
        let surplus = state.removed.len().saturating_sub(MAX_REMOVED);
        state.removed.drain(..surplus);
        state.revision += 1;
    }

    /// The current tools.
    pub fn index(&self) -> Arc<ToolIndex> {
        Arc::clone(&self.state.lock().index)
    }

    /// Returns true if a tool of that name was available and is not any more.
    pub fn was_removed(&self, name: &str) -> bool {
        self.state.lock().removed.iter().any(|removed| removed == name)
    }

    /// Changes whenever the advertised tools may have changed.
    pub(in crate::tools) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// The tools to advertise now, with the search tool at its position; and the revision that they
    /// belong to.
    pub(in crate::tools) fn advertised(
        &self,
        budget: usize,
        search: &Arc<dyn AnyTool>,
    ) -> (u64, Vec<Arc<dyn AnyTool>>) {
        let mut state = self.state.lock();
        let index = Arc::clone(&state.index);
        let names = state.advertised.update(&index, budget, search.name()).iter();
        let tools = names
            .filter_map(|name| if name == search.name() { Some(search) } else { index.get(name) })
            .cloned()
            .collect();
        (state.revision, tools)
    }

    /// Returns true if the model has to search for tools.
    pub(in crate::tools) fn uses_search(&self) -> bool {
        self.state.lock().advertised.uses_search
    }

    /// Marks tools as used by the model: they are advertised from the next request on.
    pub(in crate::tools) fn load<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut state = self.state.lock();
        let mut is_new = false;
        for name in names {
            is_new |= state.advertised.load(name);
        }
        state.revision += u64::from(is_new);
    }

    /// The time to wait for servers that are being started. Returned only once: the caller does
    /// wait.
    pub fn take_wait_limit(&self) -> Option<Duration> {
        self.state.lock().wait_limit.take()
    }

    /// Waits until every server is ready or known to have failed.
    pub async fn servers_settled(&self) {
        // This cannot fail: `self` keeps the sender alive.
        let mut pending = self.pending_servers.subscribe();
        pending.wait_for(Vec::is_empty).await.ok();
    }

    /// The servers that are still starting. The caller tells the user, who gets a notice when they
    /// connect.
    pub fn take_late_servers(&self) -> Vec<String> {
        let mut state = self.state.lock();
        let late = self.pending_servers.borrow().clone();
        for server in &late {
            state.known_status.insert(server.clone(), KnownStatus::Late);
        }
        late
    }

    /// The notices for the user since the last call.
    pub fn take_notices(&self) -> Vec<String> {
        self.state.lock().notices.drain(..).collect()
    }

    /// Waits until there may be notices.
    pub async fn notice_arrived(&self) {
        self.notice_added.notified().await;
    }
}

/// The advertised MCP tools of one session.
#[derive(Debug, Default)]
struct AdvertisedTools {
    /// The names that were advertised last.
    advertised: Vec<String>,
    /// The tools that the model has searched for or called; the most recently used is the last.
    loaded: Vec<String>,
    /// The model has to search. Once set, it stays set.
    uses_search: bool,
}

/// The bytes that MCP tool specs may take for a model with this context window (in tokens).
pub(super) fn schema_budget(window: Option<u64>) -> usize {
    let budget = window.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN) / WINDOW_FRACTION);
    budget.map_or(DEFAULT_BUDGET, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

impl AdvertisedTools {
    /// Marks a tool as used. Returns true if it has to be advertised and was not before.
    fn load(&mut self, name: &str) -> bool {
        self.loaded.retain(|loaded| loaded != name);
        self.loaded.push(name.to_owned());
        let surplus = self.loaded.len().saturating_sub(MAX_LOADED);
        self.loaded.drain(..surplus);
        self.uses_search && !self.advertised.iter().any(|advertised| advertised == name)
    }

    /// Updates the list and returns the names to advertise, with the name of the search tool among
    /// them if needed.
    fn update(&mut self, index: &ToolIndex, budget: usize, search: &str) -> &[String] {
        if !self.uses_search && exceeds_budget(index, budget) {
            self.uses_search = true;
            // Keep the tools that the model knows already, as far as the budget allows.
            let known = std::mem::take(&mut self.loaded);
            for name in self.advertised.clone().iter().chain(&known) {
                self.load(name);
            }
        }
        if self.uses_search {
            self.evict_unused(index, budget);
        }
        let uses_search = self.uses_search;
        let loaded = &self.loaded;
        self.advertised.retain(|name| {
            if name == search {
                return uses_search;
            }
            index.get(name).is_some() && (!uses_search || loaded.contains(name))
        });
        let mut new: Vec<&str> = if uses_search {
            let known = loaded.iter().map(String::as_str).filter(|name| index.get(name).is_some());
            std::iter::once(search).chain(known).collect()
        } else {
            index.tools().iter().map(|tool| tool.name()).collect()
        };
        new.retain(|name| !self.advertised.iter().any(|advertised| advertised == name));
        self.advertised.extend(new.into_iter().map(str::to_owned));
        &self.advertised
    }

    /// Drops the least recently used tools until the rest fits into the budget.
    fn evict_unused(&mut self, index: &ToolIndex, budget: usize) {
        let loaded = self.loaded.iter();
        let mut sizes: Vec<_> = loaded.map(|name| index.get(name).map_or(0, spec_size)).collect();
        let mut whole: usize = sizes.iter().sum();
        while whole > budget && sizes.len() > MIN_LOADED {
            whole -= sizes.remove(0);
            self.loaded.remove(0);
        }
    }
}

fn exceeds_budget(index: &ToolIndex, budget: usize) -> bool {
    let tools = index.tools();
    tools.len() > MAX_ADVERTISED || tools.iter().map(spec_size).sum::<usize>() > budget
}

/// The bytes of a tool's spec.
fn spec_size(tool: &Arc<dyn AnyTool>) -> usize {
    let Some(spec) = tool.spec(&OfferContext::default()) else { return 0 };
    spec.name.len() + spec.description.len() + spec.parameters.to_string().len()
}
