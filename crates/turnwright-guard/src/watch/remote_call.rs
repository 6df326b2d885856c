//! Guards the protected paths during the calls of confined MCP servers.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::server_watch::changed_near;
use super::{CALL_HINT, CommandWatch, NOT_CHECKED};
use crate::command_site::CommandSite;
use crate::protected_snapshot::ProtectedSnapshot;
use turnwright_types::update::Update;

/// Guards the protected paths during one call of a confined MCP server. They are also checked if the
/// call panics or is dropped.
pub struct RemoteCallGuard(Option<GuardedCall>);

struct GuardedCall {
    site: CommandSite,
    name: String,
    /// `None` until it is taken, and if that has failed.
    snapshot: Option<Arc<ProtectedSnapshot>>,
}

impl RemoteCallGuard {
    /// Takes a snapshot before the call. Blocks: not for the runtime's thread.
    pub fn new(site: CommandSite, call: &str) -> RemoteCallGuard {
        let name = format!("call {call}");
        let watch = CommandWatch { is_call: true, has_snapshot: true, ..CommandWatch::default() };
        site.guard.watches.lock().insert(name.clone(), Arc::new(watch));
        let mut call = RemoteCallGuard(Some(GuardedCall { site, name, snapshot: None }));
        if let Some(call) = &mut call.0 {
            let repositories = call.site.tracker.repositories();
            call.snapshot = Some(call.site.guard.take_snapshot(&call.site, repositories));
        }
        call
    }

    /// Checks the protected paths after the call. Reports findings to the user and returns the report.
    pub async fn finish(mut self) -> Option<String> {
        let call = self.0.take()?;
        let client = Arc::clone(&call.site.client);
        let checking = spawn_blocking(move || call.check());
        checking.await.unwrap_or_else(|_| {
            client.update(Update::Notice(NOT_CHECKED.to_owned()));
            Some(NOT_CHECKED.to_owned())
        })
    }
}

impl Drop for RemoteCallGuard {
    fn drop(&mut self) {
        let Some(call) = self.0.take() else { return };
        let tracker = call.site.guard.tracker.clone();
        match Handle::try_current() {
            Ok(runtime) => drop(tracker.spawn_blocking_on(move || call.check(), &runtime)),
            Err(_) => drop(call.check()),
        }
    }
}

impl GuardedCall {
    /// Removes files that have appeared, unless the user has allowed them. Changes may be the work of
    /// another program and are only reported.
    fn check(self) -> Option<String> {
        let watch = self.site.guard.watches.lock().remove(&self.name)?;
        let quarantine = self.site.quarantine_folder();
        let allowed = watch.changes.paths.clone();
        let snapshot = self.snapshot?;
        let others = &self.site.guard.others;
        let is_told = |path: &Path| !others.are_allowed(path, changed_near(path));
        // Nearly always nothing has changed, and one look says so.
        snapshot.check(&allowed, &quarantine, false)?;
        let known: Vec<_> = allowed.iter().cloned().chain(snapshot.files()).collect();
        let is_trap = |path: &Path| !others.are_unknown(changed_near(path)) && is_told(path);
        let new = snapshot.check_if(&known, &quarantine, true, &is_trap);
        let changed = snapshot.check_if(&allowed, &quarantine, false, &is_told);
        let undone = new.map(|changes| (changes, true)).into_iter();
        let found = undone.chain(changed.map(|changes| (changes, false)));
        let reports = found.map(|(changes, restores)| {
            tracing::warn!(?changes, "protected paths were changed during a call");
            self.site.guard.servers.note_told(&changes.paths);
            changes.message_about(
                "the server, or another program during the call,",
                CALL_HINT,
                restores,
            )
        });
        let report = reports.collect::<Vec<_>>().join("\n");
        if report.is_empty() {
            return None;
        }
        self.site.client.update(Update::Notice(report.clone()));
        Some(report)
    }
}
