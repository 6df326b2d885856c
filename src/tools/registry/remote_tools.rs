//! The MCP tools of one session, which become available while the session runs. The task that
//! connects to the servers puts them in; the session's toolbox looks here after the built-in tools.

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::advertised_tools::AdvertisedTools;
use crate::tools::{AllowedTools, AnyTool, ToolIndex};

/// At most this many names of removed tools are remembered.
const MAX_REMOVED: usize = 400;
/// At most this many notices wait for the user's next turn.
const MAX_NOTICES: usize = 100;

/// The MCP tools of one session.
#[derive(Debug, Default)]
pub struct RemoteTools {
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
    /// The only tools of the session, if it is restricted. The index has no others.
    allowed: Option<Arc<AllowedTools>>,
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

    /// Restricts the session to these tools. Others are neither offered nor found from then on.
    pub(in crate::tools) fn restrict(&self, allowed: Arc<AllowedTools>) {
        let tools = {
            let mut state = self.state.lock();
            state.allowed = Some(allowed);
            state.index.tools().to_vec()
        };
        self.set_tools(tools);
    }

    /// Replaces the tools of all servers.
    pub fn set_tools(&self, mut tools: Vec<Arc<dyn AnyTool>>) {
        let mut state = self.state.lock();
        if let Some(allowed) = &state.allowed {
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
        self.state.lock().advertised.uses_search()
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
