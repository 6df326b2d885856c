//! The thread that writes. What waits when it is free goes into one commit.

use std::path::PathBuf;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{Durability, StoreError, schema};

/// Pieces of work that go into one commit at most.
const MOST_TOGETHER: usize = 64;

/// Something to be written.
pub(super) trait Work: Send {
    /// How sure it has to be.
    fn durability(&self) -> Durability;
    /// Does it, in a transaction that is open. May be called again if that has failed.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;
    /// Tells whoever waits.
    fn finish(self: Box<Self>, result: Result<(), StoreError>);
}

/// Work, and who waits for it.
pub(super) struct Writing<T, F> {
    durability: Durability,
    work: F,
    value: Option<T>,
    done: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Writing<T, F> {
    pub(super) fn new(
        durability: Durability,
        work: F,
        done: oneshot::Sender<Result<T, StoreError>>,
    ) -> Writing<T, F> {
        Writing { durability, work, value: None, done }
    }
}

impl<T, F> Work for Writing<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, StoreError> + Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.value = Some((self.work)(connection)?);
        Ok(())
    }

    fn finish(self: Box<Self>, result: Result<(), StoreError>) {
        let Writing { value, done, .. } = *self;
        // Nobody may be waiting any more.
        drop(done.send(result.and_then(|()| value.ok_or(StoreError::Closed))));
    }
}

/// Starts the thread. It ends when nobody can send it anything.
pub(super) fn start(path: Option<PathBuf>) -> mpsc::UnboundedSender<Box<dyn Work>> {
    let (sender, inbox) = mpsc::unbounded_channel();
    let started = std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || Writer { path, connection: None }.serve(inbox));
    if let Err(error) = started {
        tracing::error!(%error, "the store's thread could not be started");
    }
    sender
}

struct Writer {
    path: Option<PathBuf>,
    connection: Option<Connection>,
}

impl Writer {
    fn serve(mut self, mut inbox: mpsc::UnboundedReceiver<Box<dyn Work>>) {
        while let Some(first) = inbox.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < MOST_TOGETHER
                && let Ok(next) = inbox.try_recv()
            {
                batch.push(next);
            }
            self.commit(batch);
        }
    }

    fn commit(&mut self, mut batch: Vec<Box<dyn Work>>) {
        let together = self.transact(&mut batch);
        if batch.len() == 1 || together.is_ok() {
            for work in batch {
                work.finish(together.clone());
            }
            return;
        }
        // One that fails must not take the others with it.
        for work in batch {
            let mut alone = vec![work];
            let result = self.transact(&mut alone);
            for work in alone {
                work.finish(result.clone());
            }
        }
    }

    fn transact(&mut self, batch: &mut [Box<dyn Work>]) -> Result<(), StoreError> {
        let connection = match &self.connection {
            Some(connection) => connection,
            None => self.connection.insert(schema::writer(self.path.as_deref())?),
        };
        let is_sure = batch.iter().any(|it| it.durability() == Durability::Machine);
        if is_sure {
            connection.pragma_update(None, "synchronous", "FULL")?;
        }
        let result = attempt(connection, batch);
        if is_sure {
            connection.pragma_update(None, "synchronous", "NORMAL")?;
        }
        result
    }
}

fn attempt(connection: &Connection, batch: &mut [Box<dyn Work>]) -> Result<(), StoreError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done = batch.iter_mut().try_for_each(|it| it.run(connection));
    let done = done.and_then(|()| Ok(connection.execute_batch("COMMIT")?));
    if done.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    done
}
