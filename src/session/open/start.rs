//! Starts a session: creates its row in the store, or loads the stored conversation. Then its MCP servers.

use std::mem::take;
use std::sync::Arc;

use tokio::sync::Notify;

use super::client_options::ClientOptions;
use super::restore::{RestoredSession, read_row, restore_session};
use crate::error::{Error, error_chain};
use crate::session::SessionOrigin;
use crate::session::actor::SessionActor;
use crate::session::commands::record::stored_conversation;
use crate::session::servers::ServerLaunch;
use crate::session::settings::initial_model;
use crate::session::stored_sessions::map_missing;
use crate::turn::{folder_lines, paused_line};
use tokio::task::spawn_blocking;
use turnwright_guard::ServerWatch;
use turnwright_llm::ReasoningEffort;
use turnwright_mcp::ServerEnv;
use turnwright_policy::permission::Mode;
use turnwright_store::{Durability, GoalState, SessionRow, sessions};
use turnwright_types::ids::SessionId;
use turnwright_types::update::Update;
use turnwright_undo::undo_news;

/// Tells the model that the session's folders differ from those that it was told.
const FOLDERS_CHANGED: &str = "The user has opened this conversation in other folders.\n";

impl SessionActor {
    /// Creates or loads the session. All updates that this sends precede the answer to the opening
    /// request.
    pub(super) async fn start(
        &mut self,
        origin: SessionOrigin,
        options: Option<ClientOptions>,
    ) -> Result<(), Error> {
        let host = Arc::clone(&self.host);
        if !self.lifecycle.is_locked() {
            let taking = host.store().lock_session_when_released(&self.conversation.env.session);
            self.lifecycle.hold(taking.await?);
        }
        match origin {
            SessionOrigin::New => {
                let model = initial_model(&host, &self.initial).await;
                let row = self.conversation.session_row();
                // Nothing has been said yet that could be lost. Listing the sessions waits for this
                // write.
                self.conversation.log().create_session(row).in_background();
                self.apply_client_options(None, options)?;
                self.apply_initial(model).await;
                Ok(())
            }
            SessionOrigin::Stored { replay } => {
                self.restore(replay, options).await?;
                self.record_conversation(None, false).await;
                self.commands.rescan(&self.conversation.env).await;
                self.announce_commands();
                Ok(())
            }
            SessionOrigin::Fork { source, cursor } => {
                let to = self.conversation.env.session.clone();
                let from = source.clone();
                let is_part = cursor.is_some();
                let copying = host.store().write(Durability::ProcessCrash, move |connection| {
                    sessions::fork(connection, &from, &to, cursor.as_deref())
                });
                map_missing(copying.await, &source)?;
                self.restore(false, options).await?;
                self.record_conversation(Some(source), is_part).await;
                Ok(())
            }
        }
    }

    /// Records the stored conversation that the session begins with. The conversation of a fork is recorded under the
    /// id of its source, so that a replay makes the fork again; for a fork of a part, the whole source is recorded.
    async fn record_conversation(&mut self, source: Option<SessionId>, is_part: bool) {
        let facts = &self.host.process.outside;
        if !facts.records_conversations() {
            return;
        }
        let id = &self.conversation.env.session;
        let recorded = source.as_ref().filter(|_| is_part).unwrap_or(id);
        let reading = stored_conversation(self.host.store(), recorded);
        let mut stored = reading.await.map_err(|error| error.to_string());
        if let (Ok(stored), Some(source)) = (&mut stored, source) {
            stored["session"]["id"] = source.as_str().into();
        }
        facts.record_conversation(id, stored);
    }

    /// Deletes the copy that was made for a session that could not be opened.
    pub(super) async fn delete_copy(&mut self) {
        let id = self.conversation.env.session.clone();
        let deleting = self
            .host
            .store()
            .write(Durability::ProcessCrash, move |connection| sessions::delete(connection, &id));
        deleting.await.ok();
    }

    async fn restore(&mut self, replay: bool, options: Option<ClientOptions>) -> Result<(), Error> {
        let host = Arc::clone(&self.host);
        let conversation = self.conversation.clone();
        let id = conversation.env.session.clone();
        let stop = self.lifecycle.stop.clone();
        let (row, client_options) = read_row(host.store(), &id).await?;
        self.conversation.log().set_session_row(row.clone());
        self.restore_settings(&row).await;
        // Before the client sees anything of the conversation (R-OPT-2).
        let model = initial_model(&host, &self.initial).await;
        self.apply_initial(model).await;
        let restored = restore_session(host.store(), &conversation, &id, replay, &stop).await?;
        self.apply_client_options(client_options.as_deref(), options)?;
        let RestoredSession { history, unfinished, ended_work, goal, .. } = restored;
        self.unfinished = unfinished;
        self.conversation.told.add_unsent(ended_work);
        if let Some(goal) = goal.filter(GoalState::is_open) {
            self.conversation.told.add_unsent([paused_line(&goal)]);
            self.announcements.notices.push(goal.notice());
        }
        // Job numbers continue after the last identifier, so that no number is used twice.
        self.conversation.env.jobs.continue_numbering_after(history.minted);
        self.history = history;
        self.title.is_set = row.title.is_some();
        self.save_new_folders(&row).await;
        let news = undo_news(host.store(), &id).await;
        self.conversation.told.lock().undo_news = news;
        self.conversation.restore_announced_mode(&self.history);
        if replay {
            let title = row.title.clone();
            let updated = row.updated_at;
            self.conversation.client().update(Update::SessionInfo { title, updated });
            self.conversation.client().update(Update::Mode(self.conversation.mode().get().id()));
            self.conversation.client().update(Update::ReplayComplete);
        }
        self.refresh_settings();
        Ok(())
    }

    /// Stores the session's folders if it was opened elsewhere than it was left (R-LOAD-5).
    async fn save_new_folders(&mut self, row: &SessionRow) {
        let now = self.conversation.session_row();
        if (&now.cwd, &now.real_cwd, &now.additional_folders)
            == (&row.cwd, &row.real_cwd, &row.additional_folders)
        {
            return;
        }
        let told = folder_lines(self.conversation.env.files.roots());
        self.conversation.told.add_unsent([format!("{FOLDERS_CHANGED}{told}")]);
        let SessionRow { id, cwd, real_cwd, additional_folders: folders, .. } = now;
        let moving = self.host.store().write(Durability::ProcessCrash, move |connection| {
            sessions::set_folders(connection, &id, (&cwd, &real_cwd), &folders)
        });
        // Stored before the client is told that the session is open, so that a list shows the new
        // folders.
        moving.await.ok();
    }

    /// Restores mode, effort and model of the stored session, as far as they are available.
    pub(super) async fn restore_settings(&mut self, row: &SessionRow) {
        let most = self.conversation.mode().max_mode();
        if let Some(mode) = row.mode.as_deref().and_then(Mode::parse).filter(|mode| *mode <= most) {
            // The one before plan mode is not stored, and need not be that of the settings.
            self.conversation.mode().set(Mode::Ask);
            self.conversation.mode().set(mode);
        }
        if let Some(effort) = row.effort.as_deref().and_then(ReasoningEffort::parse) {
            self.conversation.selection.set_effort(effort);
        }
        let now = self.conversation.selection.get().model.name().to_owned();
        let Some(name) = row.model.clone().filter(|name| *name != now) else { return };
        let host = Arc::clone(&self.host);
        let wanted = name.clone();
        match spawn_blocking(move || host.model_named(&wanted)).await {
            Ok(Ok(model)) => self.conversation.selection.restore_model(model),
            Ok(Err(error)) => self.announcements.notices.extend([format!(
                "This session used {name}, which is not available now: {}. It continues with \
                 {now}.",
                error_chain(&error)
            )]),
            Err(error) => tracing::error!(%error, "the model was not found"),
        }
    }

    /// Starts the servers. The returned notifier fires when their state changes.
    pub(super) fn start_servers(
        &mut self,
        mut launch: ServerLaunch,
        env: &ServerEnv,
        watch: Option<ServerWatch>,
    ) -> Arc<Notify> {
        self.announcements.notices.extend(take(&mut launch.notices));
        let remote_tools = Arc::clone(self.conversation.tools.remote_tools());
        let session = self.conversation.env.session.clone();
        let servers = self.host.launch_servers(&launch, env, remote_tools, session);
        if let Some(watch) = watch {
            self.conversation.env.shared.guard.watch_servers(watch.of(servers.confined_programs()));
        }
        let changes = servers.changes();
        self.servers = Some(servers);
        changes
    }
}
