//! The first thing that a session does: it is written down, or comes back.

use std::path::Path;
use std::sync::Arc;

use super::Origin;
use super::actor::Actor;
use super::revive::{Revived, revive};
use crate::error::{Error, chain};
use turnwright_llm::Effort;
use turnwright_policy::permission::Mode;
use turnwright_store::{Durability, SessionRow, StoreError, sessions};
use turnwright_types::update::Update;

impl Actor {
    /// What is said here is said before whoever waits for the session has an answer.
    pub(super) async fn begin(&mut self, origin: Origin) -> Result<(), Error> {
        let (host, stop) = (Arc::clone(&self.host), self.stop.clone());
        let taking = host.store().wait_for(&self.equipment.bench.session);
        self.hold = Some(stop.run_until_cancelled(taking).await.ok_or(Error::Cancelled)??);
        match origin {
            Origin::New => {
                let row = self.row();
                let stop = self.stop.clone();
                let written = self.equipment.log().create(row).written();
                stop.run_until_cancelled(written).await.ok_or(Error::Cancelled)
            }
            Origin::Kept { replays } => {
                self.come_back(replays).await?;
                self.announce();
                Ok(())
            }
            Origin::Copy { of } => {
                let (host, to) = (Arc::clone(&self.host), self.equipment.bench.session.clone());
                let from = of.clone();
                let copy = move |connection: &_| sessions::fork(connection, &from, &to);
                match host.store().write(Durability::Process, copy).await {
                    Ok(()) => self.come_back(false).await,
                    Err(StoreError::NoSuchSession) => Err(Error::NoSuchSession(of.to_string())),
                    Err(error) => Err(Error::Store(error)),
                }
            }
        }
    }

    fn row(&self) -> SessionRow {
        let bench = &self.equipment.bench;
        let thinker = self.equipment.thinker.get();
        let id = bench.session.clone();
        let cwd = bench.files.roots().cwd().to_path_buf();
        SessionRow {
            real_cwd: bench.files.roots().real_cwd().to_path_buf(),
            folders: bench.files.roots().others().map(Path::to_path_buf).collect(),
            mode: Some(self.equipment.mode.get().id().to_owned()),
            model: Some(thinker.model.name().to_owned()),
            effort: Some(thinker.effort.id().to_owned()),
            ..SessionRow::new(id, cwd)
        }
    }

    /// Takes away what was copied for a session that could not be opened: nobody knows of it.
    pub(super) async fn vanish(&mut self) {
        let id = self.equipment.bench.session.clone();
        let delete = move |connection: &_| sessions::delete(connection, &id);
        drop(self.host.store().write(Durability::Process, delete).await);
    }

    async fn come_back(&mut self, replays: bool) -> Result<(), Error> {
        let (host, equipment) = (Arc::clone(&self.host), self.equipment.clone());
        let (id, stop) = (equipment.bench.session.clone(), self.stop.clone());
        let revived = revive(host.store(), &equipment, &id, replays, &stop).await?;
        let Revived { row, history, was_interrupted } = revived;
        self.was_interrupted = was_interrupted && !history.messages.is_empty();
        // There is a number for each call, so no command of them has had a higher one.
        self.equipment.bench.jobs.go_on_after(history.minted);
        self.history = history;
        self.equipment.log().know(row.clone());
        self.is_titled = row.title.is_some();
        self.move_in(&row).await;
        self.undone.set(super::undo::news(host.store(), &id).await);
        self.settle_in(&row).await;
        self.equipment.recall_mode(&self.history);
        if replays {
            let (title, updated) = (row.title.clone(), row.updated);
            self.equipment.client().update(Update::Info { title, updated });
            self.equipment.client().update(Update::Mode(self.equipment.mode.get().id()));
        }
        self.renew_settings();
        Ok(())
    }

    /// The session works where it was opened now, which need not be where it was left (R-LOAD-5).
    async fn move_in(&mut self, row: &SessionRow) {
        let now = self.row();
        if (&now.cwd, &now.real_cwd, &now.folders) == (&row.cwd, &row.real_cwd, &row.folders) {
            return;
        }
        self.has_moved = true;
        let SessionRow { id, cwd, real_cwd, folders, .. } = now;
        let moving =
            move |connection: &_| sessions::move_to(connection, &id, (&cwd, &real_cwd), &folders);
        // Before the client hears that it is open: whoever lists it then is told where it is.
        drop(self.host.store().write(Durability::Process, moving).await);
    }

    /// Gives the session what it was left with, as far as that is to be had.
    async fn settle_in(&mut self, row: &SessionRow) {
        let most = self.equipment.mode.most();
        if let Some(mode) = row.mode.as_deref().and_then(Mode::parse).filter(|it| *it <= most) {
            self.equipment.mode.set(mode);
        }
        if let Some(effort) = row.effort.as_deref().and_then(Effort::parse) {
            self.equipment.thinker.set_effort(effort);
        }
        let now = self.equipment.thinker.get().model.name().to_owned();
        let Some(name) = row.model.clone().filter(|it| *it != now) else { return };
        let (host, wanted) = (Arc::clone(&self.host), name.clone());
        match tokio::task::spawn_blocking(move || host.model_named(&wanted)).await {
            Ok(Ok(model)) => self.equipment.thinker.set_model(model),
            Ok(Err(error)) => self.told.notices.push(format!(
                "This session was held with {name}, which is not to be had now: {}. It goes on \
                 with {now}.",
                chain(&error)
            )),
            Err(error) => tracing::error!(%error, "the model was not found"),
        }
    }
}
