//! The thread that writes. What waits when it is free goes into one commit; what the place does not
//! let it write waits in the backlog.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::backlog::Backlog;
use super::health::Fault;
use super::mend::{self, Opened};
use super::sweep::Sweep;
use super::{Durability, Shared, StoreError, schema};

/// Pieces of work that go into one commit at most.
const MOST_TOGETHER: usize = 64;
/// How often it is tried to write what waits, if nothing else is to be written.
const AGAIN: Duration = Duration::from_secs(2);
/// How long another process is waited for when it has been in the way already.
const NO_PATIENCE: Duration = Duration::from_millis(20);

/// Something to be written.
pub(super) trait Work: Send {
    /// How sure it has to be.
    fn durability(&self) -> Durability;
    /// Does it, in a transaction that is open. May be called again if that has failed.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;
    /// Tells whoever waits, once.
    fn tell(&mut self, result: Result<(), StoreError>);
    /// About how many bytes it holds, if it is to wait for better times.
    fn weight(&self) -> Option<usize>;
}

/// Work, and who waits for it.
pub(super) struct Writing<T, F> {
    durability: Durability,
    weight: Option<usize>,
    work: F,
    value: Option<T>,
    done: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<T, F> Writing<T, F> {
    pub(super) fn new(
        durability: Durability,
        weight: Option<usize>,
        work: F,
        done: oneshot::Sender<Result<T, StoreError>>,
    ) -> Writing<T, F> {
        Writing { durability, weight, work, value: None, done: Some(done) }
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

    fn tell(&mut self, result: Result<(), StoreError>) {
        let result = result.and_then(|()| self.value.take().ok_or(StoreError::Closed));
        if let Some(done) = self.done.take() {
            // Nobody may be waiting any more.
            drop(done.send(result));
        }
    }

    fn weight(&self) -> Option<usize> {
        self.weight
    }
}

/// Starts the thread. It ends when nobody can send it anything.
pub(super) fn start(shared: Arc<Shared>) -> Sender<Box<dyn Work>> {
    let (sender, inbox) = channel();
    let writer = Writer {
        shared,
        open: None,
        backlog: Backlog::default(),
        tried: Instant::now(),
        was_locked: false,
        sweep: Sweep::new(),
    };
    let started =
        std::thread::Builder::new().name("store".to_owned()).spawn(move || writer.serve(&inbox));
    if let Err(error) = started {
        tracing::error!(%error, "the store's thread could not be started");
    }
    sender
}

struct Writer {
    shared: Arc<Shared>,
    open: Option<Opened>,
    backlog: Backlog,
    /// When it was last tried to write what waits.
    tried: Instant,
    /// Another process was in the way, and not waited for to the end.
    was_locked: bool,
    sweep: Sweep,
}

impl Writer {
    fn serve(mut self, inbox: &Receiver<Box<dyn Work>>) {
        loop {
            let first = match inbox.recv_timeout(self.pause()) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.use_pause();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut batch = vec![first];
            while batch.len() < MOST_TOGETHER
                && let Ok(next) = inbox.try_recv()
            {
                batch.push(next);
            }
            self.accept(batch);
            self.sweep.give_way();
        }
        self.catch_up().unwrap_or_else(|error| tracing::error!(%error, "not all is kept"));
    }

    /// How long nothing may come before there is something else to do.
    fn pause(&self) -> Duration {
        if self.backlog.is_empty() {
            return self.sweep.pause();
        }
        AGAIN.saturating_sub(self.tried.elapsed())
    }

    fn use_pause(&mut self) {
        if self.backlog.is_empty() {
            return self.tidy_up();
        }
        // Whoever has to know is told by `health`.
        drop(self.catch_up());
    }

    fn tidy_up(&mut self) {
        match &self.open {
            Some(Opened { connection, place: Some(place) }) => {
                self.sweep.slice(connection, &place.path, self.shared.limits());
            }
            _ => self.sweep.put_off(),
        }
    }

    /// New work goes behind what waits already.
    fn accept(&mut self, batch: Vec<Box<dyn Work>>) {
        match self.catch_up() {
            Ok(()) => self.commit(batch),
            Err(error) => batch.into_iter().for_each(|it| self.put_off(it, &error)),
        }
    }

    /// Writes what waits.
    fn catch_up(&mut self) -> Result<(), StoreError> {
        if self.backlog.is_empty() {
            return Ok(());
        }
        self.tried = Instant::now();
        while !self.backlog.is_empty() {
            let mut works = self.backlog.take(MOST_TOGETHER);
            if self.transact(&mut works).is_ok() {
                continue;
            }
            // One that fails must not hold up the others.
            while !works.is_empty() {
                match self.transact(&mut works[..1]) {
                    Err(error) if error.fault().is_some() => {
                        self.backlog.put_back(works);
                        self.shared.health.fails(&error);
                        return Err(error);
                    }
                    Err(error) => tracing::error!(%error, "something was not written"),
                    Ok(()) => {}
                }
                works.remove(0);
            }
        }
        self.shared.health.works();
        Ok(())
    }

    fn commit(&mut self, mut batch: Vec<Box<dyn Work>>) {
        let together = self.transact(&mut batch);
        let is_the_place = together.as_ref().is_err_and(|it| it.fault().is_some());
        if batch.len() == 1 || together.is_ok() || is_the_place {
            for work in batch {
                self.finish(work, together.clone());
            }
            return;
        }
        // One that fails must not take the others with it.
        for mut work in batch {
            let result = match self.shared.health.now().filter(|_| !self.backlog.is_empty()) {
                Some(error) => Err(error),
                None => self.transact(std::slice::from_mut(&mut work)),
            };
            self.finish(work, result);
        }
    }

    fn finish(&mut self, mut work: Box<dyn Work>, result: Result<(), StoreError>) {
        match result {
            Err(error) if error.fault().is_some() => self.put_off(work, &error),
            result => {
                if let Err(error) = &result {
                    tracing::debug!(%error, "something was not written");
                }
                work.tell(result);
            }
        }
    }

    /// Nobody waits for what has to wait.
    fn put_off(&mut self, mut work: Box<dyn Work>, error: &StoreError) {
        work.tell(Err(error.clone()));
        if let Some(weight) = work.weight() {
            if self.backlog.is_empty() {
                tracing::error!(%error, "nothing can be written for now");
                self.tried = Instant::now();
            }
            self.shared.health.fails(error);
            let given_up = self.backlog.push(weight, work);
            self.shared.health.gives_up(given_up);
        }
    }

    /// Does the work. If the database turns out to be damaged, in a new one.
    fn transact(&mut self, batch: &mut [Box<dyn Work>]) -> Result<(), StoreError> {
        match self.attempt(batch) {
            Err(error) if error.fault() == Some(Fault::Corrupt) => {
                let Some(place) = self.open.take().and_then(|it| it.place) else {
                    return Err(error);
                };
                mend::set_aside(&self.shared, &place)?;
                self.attempt(batch)
            }
            result => {
                let fault = result.as_ref().err().and_then(StoreError::fault);
                self.was_locked = fault == Some(Fault::Locked);
                result
            }
        }
    }

    fn attempt(&mut self, batch: &mut [Box<dyn Work>]) -> Result<(), StoreError> {
        let has_waited =
            self.was_locked || !self.backlog.is_empty() || self.shared.health.now().is_some();
        let is_last = self.shared.is_last.load(Ordering::Relaxed);
        let patience = if has_waited && !is_last { NO_PATIENCE } else { schema::PATIENCE };
        // Somebody may have removed it, or put another one in its place.
        self.open.take_if(|it| it.place.as_ref().is_some_and(|it| !it.is_there()));
        // What it remembers of the file may be better than the file.
        if self.shared.is_suspicious.swap(false, Ordering::Relaxed) {
            self.open = None;
        }
        let connection = match &self.open {
            Some(open) => &open.connection,
            None => &self.open.insert(mend::open(&self.shared, patience)?).connection,
        };
        connection.busy_timeout(patience)?;
        #[cfg(test)]
        self.shared.bound(connection)?;
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
