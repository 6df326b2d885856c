//! The language servers of a session: selects and starts the server for a file, and compares the errors of files before
//! and after the edits of a turn.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::catalogue::{LanguageServer, known_servers};
use crate::process::{LanguageSite, Launch};
use crate::protocol::{CHANGED, CREATED, DELETED, FileEdits, Problem, file_edits, places, uri};
use crate::report::{FileReport, new_errors};
use crate::server::{LOADING, Phase, Server, run};
use turnwright_types::bounded_read::read_at_most;
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_workspace::nofollow;

/// The most servers of a session that run at the same time.
const MAX_RUNNING: usize = 3;
/// The most times in a row that a crashed server is started again.
const MAX_RESTARTS: u32 = 3;
/// The time since the last start after which the failures of a server are forgotten.
const FAILURES_COUNT_FOR: Duration = Duration::from_secs(30 * 60);
/// The time after the start of a server in which edits wait for it.
const START_TIME: Duration = Duration::from_secs(5);
/// The longest text that a server is shown, in bytes.
const MAX_TEXT_BYTES: u64 = 1024 * 1024;
/// The most edited files that are tracked in a turn.
const MAX_EDITED: usize = 50;
/// The most occurrences of a name at which a server is asked about it, and the time limit for all of them together.
const MAX_TRIES: usize = 5;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that a server has to publish the errors of a file after a change of another one.
const DEPENDENT_TIME: Duration = Duration::from_secs(1);
const STARTING: &str = "it is still starting";

/// The servers of a session. Clones share them.
#[derive(Clone, Debug)]
pub struct LanguageServers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    site: LanguageSite,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    started: Vec<Started>,
    edited: Vec<Edited>,
    /// The time of the last change of a file on which another edited file may depend.
    changed: Option<Instant>,
}

/// A server that was started for the files below a folder.
#[derive(Clone, Debug)]
struct Started {
    spec: Arc<LanguageServer>,
    root: PathBuf,
    phase: watch::Receiver<Phase>,
    since: Instant,
    /// The number of restarts in a row after crashes.
    restarts: u32,
}

/// A file that was edited in this turn.
#[derive(Clone, Debug)]
struct Edited {
    /// The errors before the turn, or at the last review.
    file: FileBefore,
    /// True if the file was edited since the last review.
    is_due: bool,
}

/// A file and its errors before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileBefore {
    path: PathBuf,
    errors: ErrorsBefore,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ErrorsBefore {
    /// The server has not been asked yet for the errors of this text.
    OfText(Arc<str>),
    Known(Vec<Problem>),
}

impl LanguageServers {
    pub fn new(site: LanguageSite) -> LanguageServers {
        let state = watch::Sender::default();
        LanguageServers(Arc::new(Shared { site, state }))
    }

    /// Notes a file that is about to be edited, and starts its server; `None` if there is no server for it.
    pub async fn begin_edit(&self, file: &Path) -> Option<FileBefore> {
        self.use_server(file).await?;
        let errors = match read_text(file).await {
            Ok(text) => ErrorsBefore::OfText(text.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => ErrorsBefore::Known(Vec::new()),
            Err(_) => return None,
        };
        let before = FileBefore { path: file.to_path_buf(), errors };
        self.0.state.send_modify(|state| {
            let is_known = state.edited.iter().any(|edited| edited.file.path == file);
            if !is_known && state.edited.len() < MAX_EDITED {
                state.edited.push(Edited { file: before.clone(), is_due: false });
            }
        });
        Some(before)
    }

    /// Notes that a file was edited, so that the next review includes it.
    pub fn note_edit(&self, before: &FileBefore) {
        self.0.state.send_modify(|state| {
            for edited in &mut state.edited {
                edited.is_due |= edited.file.path == before.path;
            }
        });
    }

    /// Reports the effect of an edit on the errors of a file; `None` if there is no server for it.
    pub async fn finish_edit(&self, before: &FileBefore, deadline: Instant) -> Option<FileReport> {
        let report = self.report(before, true, deadline).await;
        // To compare them, the server was shown the old text and then the new one.
        self.note_changed(&[before.path.as_path()]);
        report
    }

    /// Reports the errors that the turn has caused in all files that were edited since the last review. No error is
    /// reported twice.
    pub async fn review(&self, limit: Duration) -> Vec<FileReport> {
        let deadline = Instant::now() + limit;
        let mut due = Vec::new();
        let mut changed = None;
        self.0.state.send_modify(|state| {
            changed = state.changed;
            for edited in state.edited.iter_mut().filter(|edited| edited.is_due) {
                edited.is_due = false;
                due.push(edited.file.clone());
            }
        });
        if let Some(changed) = changed.filter(|_| !due.is_empty()) {
            sleep_until(changed + DEPENDENT_TIME).await;
        }
        let mut reports = Vec::new();
        for file in due {
            reports.extend(self.report(&file, false, deadline).await);
        }
        reports
    }

    /// Compares a file's current errors with those before a change; `None` if there is no server for it.
    async fn report(
        &self,
        before: &FileBefore,
        is_edit: bool,
        deadline: Instant,
    ) -> Option<FileReport> {
        let text = read_text(&before.path).await.ok()?;
        let started = self.use_server(&before.path).await?;
        let may_wait = !is_edit || started.since.elapsed() < START_TIME;
        let comparing = async {
            let server = started.ready_server(may_wait, deadline).await?;
            refresh(&server, &before.path).await;
            let old_errors = match &before.errors {
                ErrorsBefore::Known(errors) => errors.clone(),
                ErrorsBefore::OfText(old) => server.errors(&before.path, old, deadline).await?,
            };
            if is_edit {
                self.remember(before, &old_errors);
            }
            let errors = server.errors(&before.path, &text, deadline).await?;
            if !is_edit {
                self.remember(before, &errors);
            }
            new_errors(&old_errors, &errors, server.encoding, &text)
        };
        let new_errors = comparing.await;
        let server = started.spec.name.clone();
        Some(FileReport { server, file: before.path.clone(), new_errors })
    }

    /// Remembers errors for the next review: those before the first edit of the turn, and then those of a review.
    fn remember(&self, before: &FileBefore, errors: &[Problem]) {
        self.0.state.send_modify(|state| {
            for edited in state.edited.iter_mut().filter(|edited| edited.file == *before) {
                edited.file.errors = ErrorsBefore::Known(errors.to_vec());
            }
        });
    }

    /// Forgets the edits of the previous turn.
    pub fn begin_turn(&self) {
        self.0.state.send_modify(|state| state.edited.clear());
    }

    /// Tells the running servers which files have changed.
    pub fn note_changes(&self, changes: &[FileChange]) {
        let events: Vec<_> = changes.iter().filter_map(file_event).collect();
        if events.is_empty() {
            return;
        }
        let paths: Vec<_> = changes.iter().map(|change| change.path.as_path()).collect();
        self.note_changed(&paths);
        for started in &self.0.state.borrow().started {
            if let Phase::Ready(server) = &*started.phase.borrow() {
                server.note_events(&events);
            }
        }
    }

    /// Notes that files have changed on which other edited files may depend.
    fn note_changed(&self, paths: &[&Path]) {
        self.0.state.send_modify(|state| {
            let mut edited = state.edited.iter();
            if edited.any(|edited| paths.iter().any(|path| *path != edited.file.path)) {
                state.changed = Some(Instant::now());
            }
        });
    }

    /// Returns true if there is a server that can be asked for places. One that was ended as unused also counts,
    /// because it is started again when it is asked.
    pub fn can_find_symbols(&self) -> bool {
        let state = self.0.state.borrow();
        let mut phases = state.started.iter().map(|started| started.phase.borrow());
        phases.any(|phase| matches!(*phase, Phase::Ready(_) | Phase::Idle))
    }

    /// Ends all servers.
    pub async fn close(&self) {
        self.0.site.stop.cancel();
        let state = self.0.state.send_replace(State::default());
        for Started { mut phase, .. } in state.started {
            // This fails once the server's task has ended.
            while phase.changed().await.is_ok() {}
        }
    }

    /// Finds the definition or all uses of a name that occurs in a file, on this line if one is given. Returns files
    /// and lines, counted from 1.
    ///
    /// # Errors
    /// Returns the reason why there is no answer, as a sentence without a full stop.
    pub async fn find_places(
        &self,
        file: &Path,
        (symbol, line): (&str, Option<u32>),
        is_definition: bool,
    ) -> Result<Vec<(PathBuf, u32)>, String> {
        let method =
            if is_definition { "textDocument/definition" } else { "textDocument/references" };
        let further = json!({ "context": { "includeDeclaration": true } });
        let (_, answer) = self.ask(file, (symbol, line), method, further).await?;
        Ok(places(&answer))
    }

    /// Finds the edits that rename a symbol of a file.
    ///
    /// # Errors
    /// Returns the reason why there are none, as a sentence without a full stop.
    pub async fn rename(
        &self,
        file: &Path,
        (symbol, line): (&str, Option<u32>),
        new_name: &str,
    ) -> Result<Vec<FileEdits>, String> {
        let further = json!({ "newName": new_name });
        let (server, answer) =
            self.ask(file, (symbol, line), "textDocument/rename", further).await?;
        let files = file_edits(&answer, server.encoding, last_name(symbol))?;
        if files.iter().all(|file| file.only_names(new_name)) {
            return Ok(files);
        }
        Err(format!("{} would change more than the name", server.spec.name))
    }

    async fn ask(
        &self,
        file: &Path,
        (symbol, line): (&str, Option<u32>),
        method: &str,
        mut params: Value,
    ) -> Result<(Arc<Server>, Value), String> {
        let read = read_text(file).await;
        let text = read.map_err(|_| "the file is not there, too long or no text")?;
        let places = occurrences(&text, symbol, line);
        if places.is_empty() {
            return Err(format!("`{symbol}` is not there"));
        }
        let started = self.use_server(file).await.ok_or("no language server is for this file")?;
        let starting = Instant::now() + started.spec.startup();
        let server = started.ready_server(true, starting).await?;
        refresh(&server, file).await;
        server.show(file, &text);
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let name = &started.spec.name;
        let mut end = Err(format!("{name} finds nothing"));
        for byte in places {
            params["textDocument"] = json!({ "uri": uri(file) });
            params["position"] = json!(server.encoding.position(&text, byte));
            match server.request(method, params.clone(), deadline).await {
                Ok(Value::Null) => {}
                Ok(Value::Array(none)) if none.is_empty() => {}
                Ok(answer) => return Ok((server, answer)),
                Err(why) => end = Err(format!("{name}: {why}")),
            }
        }
        end
    }

    /// Returns the server for a file, and starts it if necessary.
    async fn use_server(&self, file: &Path) -> Option<Started> {
        let servers = self.clone();
        let file = file.to_path_buf();
        spawn_blocking(move || servers.find_server(&file)).await.ok().flatten()
    }

    /// Does the same. Blocks.
    fn find_server(&self, file: &Path) -> Option<Started> {
        let specs = self.0.site.configured.iter().chain(known_servers());
        for spec in specs.filter(|spec| spec.language(file).is_some() && !spec.is_foreign(file)) {
            let mut restarts = 0;
            if let Some(known) = self.find_started(spec, file) {
                restarts = match &*known.phase.borrow() {
                    Phase::Starting | Phase::Ready(_) => return Some(known.clone()),
                    Phase::Idle => known.restarts,
                    Phase::Failed { has_worked, .. } => match known.next_restart(*has_worked) {
                        Some(number) => number,
                        // If this server does not work here, another one may.
                        None => continue,
                    },
                };
            }
            if let Some(launch) = self.0.site.prepare(spec, file) {
                return self.start(launch, restarts);
            }
        }
        None
    }

    fn find_started(&self, spec: &LanguageServer, file: &Path) -> Option<Started> {
        let state = self.0.state.borrow();
        let mut all = state.started.iter();
        let found = all.find(|started| *started.spec == *spec && file.starts_with(&started.root));
        found.cloned()
    }

    /// Starts a server unless too many are running.
    fn start(&self, launch: Launch, restarts: u32) -> Option<Started> {
        let site = &self.0.site;
        if site.stop.is_cancelled() {
            return None;
        }
        let (sender, phase) = watch::channel(Phase::Starting);
        let new = Started {
            spec: Arc::clone(&launch.spec),
            root: launch.program.workdir.clone(),
            phase,
            since: Instant::now(),
            restarts,
        };
        let mut started = None;
        self.0.state.send_modify(|state| {
            let is_same = |other: &Started| other.spec == new.spec && other.root == new.root;
            state.started.retain(|other| other.is_running() || !is_same(other));
            // Another call may have started the same server in the meantime.
            started = state.started.iter().find(|other| is_same(other)).cloned();
            let running = state.started.iter().filter(|other| other.is_running()).count();
            if started.is_none() && running < MAX_RUNNING {
                state.started.push(new.clone());
                site.tracker.spawn(run(launch, sender, site.stop.clone()));
                started = Some(new);
            }
        });
        started
    }
}

impl Started {
    /// The number in a row of the next restart after a failure; `None` if the server is not to be restarted yet.
    fn next_restart(&self, has_worked: bool) -> Option<u32> {
        if self.since.elapsed() > FAILURES_COUNT_FOR {
            return Some(1);
        }
        (has_worked && self.restarts < MAX_RESTARTS).then_some(self.restarts + 1)
    }

    /// Returns the server once it has started. The caller still has to wait until the server has loaded the project,
    /// unless `may_wait` is false: then it is an error if the server is not ready.
    async fn ready_server(&self, may_wait: bool, deadline: Instant) -> Result<Arc<Server>, String> {
        let mut phase = self.phase.clone();
        if may_wait {
            let settled = phase.wait_for(|phase| !matches!(phase, Phase::Starting));
            timeout_at(deadline, settled).await.ok();
        }
        match &*phase.borrow() {
            Phase::Ready(server) if may_wait || server.is_ready() => Ok(Arc::clone(server)),
            Phase::Ready(_) => Err(LOADING.to_owned()),
            Phase::Starting => Err(STARTING.to_owned()),
            Phase::Idle => Err("it has just ended".to_owned()),
            Phase::Failed { why, .. } => Err(why.clone()),
        }
    }

    fn is_running(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Starting | Phase::Ready(_))
    }
}

/// Shows a server the current state of the files that it has open.
async fn refresh(server: &Server, except: &Path) {
    for file in server.shown_files().into_iter().filter(|file| file.as_path() != except) {
        match read_text(&file).await {
            Ok(text) => {
                server.show(&file, &text);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => server.close_deleted(&file),
            Err(_) => {}
        }
    }
}

/// Returns the event of the protocol for a change; `None` if nothing has changed.
fn file_event(change: &FileChange) -> Option<Value> {
    let event = match (&change.before, change.after.as_ref()?) {
        (FileState::Absent, FileState::Absent) => return None,
        (FileState::Absent, _) => CREATED,
        (_, FileState::Absent) => DELETED,
        _ => CHANGED,
    };
    Some(json!({ "uri": uri(&change.path), "type": event }))
}

async fn read_text(file: &Path) -> io::Result<String> {
    let file = file.to_path_buf();
    spawn_blocking(move || read_file(&file)).await?
}

/// Reads a text of bounded length from the disk. Blocks.
fn read_file(file: &Path) -> io::Result<String> {
    let opened = nofollow::open_file(file)?;
    if !opened.metadata()?.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let bytes = read_at_most(opened, MAX_TEXT_BYTES)?.ok_or(ErrorKind::FileTooLarge)?;
    String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into())
}

/// Returns the last name of a path such as `a::b`.
fn last_name(symbol: &str) -> &str {
    let last = symbol.rsplit([':', '.', '#']).next().unwrap_or(symbol);
    last.trim_matches(['(', ')', ' '])
}

/// Returns the offsets of the first occurrences of a name in a text, on this line if one is given.
fn occurrences(text: &str, symbol: &str, line: Option<u32>) -> Vec<usize> {
    let name = last_name(symbol);
    if name.is_empty() {
        return Vec::new();
    }
    let whole = text.match_indices(name).map(|(at, _)| at).filter(|at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        ![before, after].into_iter().flatten().any(|char| char.is_alphanumeric() || char == '_')
    });
    let wanted = whole.filter(|at| {
        line.is_none_or(|line| text[..*at].matches('\n').count() + 1 == line as usize)
    });
    wanted.take(MAX_TRIES).collect()
}

#[cfg(test)]
mod tests;
