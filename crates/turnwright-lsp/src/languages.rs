//! The language servers of a session: selects and starts the server for a file, and compares the errors of files before
//! and after the edits of a turn.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalogue::{LanguageServer, known_servers};
use crate::process::{Launch, find_program};
use crate::protocol::{FileEdits, file_edits, places, uri};
use crate::report::{ErrorCounts, FileReport, Finding};
use crate::server::{Phase, Server, run};
use crate::source::{DiagnosticSource, FileEvent};
use turnwright_sandbox::SandboxProfile;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::{nofollow, real_path};

/// The most servers of a session that run at the same time.
const MAX_RUNNING: usize = 3;
/// The time after which an unused server is ended.
const IDLE_TIME: Duration = Duration::from_secs(600);
/// The longest text that a server is shown, in bytes.
const MAX_TEXT_BYTES: u64 = 1024 * 1024;
/// The most edited files that are tracked in a turn.
const MAX_EDITED: usize = 50;
/// The most occurrences of a name at which a server is asked about it, and the time limit for all of them together.
const MAX_TRIES: usize = 5;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const STARTING: &str = "it is still starting";
const LOADING: &str = "it is still loading the project";
const TOO_LATE: &str = "it has not answered in time";

/// Decides which servers may run in a session, and in which sandbox. The methods block.
pub trait LanguageGate: std::fmt::Debug + Send + Sync {
    /// Returns true if this server may be started for the project in this folder of the session.
    fn permits(&self, server: &LanguageServer, folder: &Path) -> bool;

    /// Returns the sandbox profile for the session's servers; `None` if there is no sandbox, so that no server starts.
    fn profile(&self) -> Option<SandboxProfile>;
}

/// The environment that a session provides for its servers.
#[derive(Debug)]
pub struct LanguageSite {
    /// The folders of the session, as real paths.
    pub folders: Vec<PathBuf>,
    pub environment: Environment,
    /// The folder below which servers may write.
    pub cache: PathBuf,
    /// The most bytes of memory that one server may use, including the processes that it has started.
    pub memory: u64,
    /// The user's servers, which take precedence over the built-in ones.
    pub configured: Vec<LanguageServer>,
    pub gate: Arc<dyn LanguageGate>,
    pub stop: CancellationToken,
    pub tracker: TaskTracker,
}

/// The servers of a session. Clones share them.
#[derive(Clone, Debug)]
pub struct LanguageServers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    site: LanguageSite,
    /// All servers, in order of precedence. Read on first use.
    specs: OnceLock<Vec<Arc<LanguageServer>>>,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    started: Vec<Started>,
    edited: Vec<Edited>,
}

/// A server that was started for the files below a folder.
#[derive(Clone, Debug)]
struct Started {
    spec: Arc<LanguageServer>,
    root: PathBuf,
    phase: watch::Receiver<Phase>,
    /// The number of restarts after crashes.
    restarts: u32,
    /// True if an edit has already waited for the server to start.
    was_waited_for: bool,
}

/// A file that was edited in this turn.
#[derive(Clone, Debug)]
struct Edited {
    path: PathBuf,
    /// The errors before the turn, and before the last edit.
    first: Before,
    last: Before,
    /// True if the file was edited since the last review.
    is_due: bool,
}

/// The errors of a file before and after a change, where they are known.
struct Compared {
    report: FileReport,
    before: Option<ErrorCounts>,
    now: Option<ErrorCounts>,
}

/// The errors of a file before a change.
#[derive(Clone, Debug)]
enum Before {
    /// The errors of this text, which the server has not been asked for yet.
    Text(Arc<str>),
    Errors(ErrorCounts),
}

impl LanguageServers {
    pub fn new(site: LanguageSite) -> LanguageServers {
        let state = watch::Sender::default();
        LanguageServers(Arc::new(Shared { site, specs: OnceLock::new(), state }))
    }

    fn specs(&self) -> &[Arc<LanguageServer>] {
        self.0.specs.get_or_init(|| {
            let configured = self.0.site.configured.iter().cloned();
            configured.chain(known_servers()).map(Arc::new).collect()
        })
    }

    /// Notes a file that is about to be edited, and starts its server.
    pub async fn begin_edit(&self, file: &Path) {
        if self.use_server(file).await.is_none() || self.edited(file).is_some() {
            return;
        }
        let before = match read_text(file).await {
            ReadText::Text(text) => Before::Text(text),
            ReadText::Missing => Before::Errors(ErrorCounts::default()),
            ReadText::NotText => return,
        };
        self.0.state.send_modify(|state| {
            if state.edited.iter().all(|edited| edited.path != file)
                && state.edited.len() < MAX_EDITED
            {
                let last = before.clone();
                let path = file.to_path_buf();
                state.edited.push(Edited { path, first: before, last, is_due: false });
            }
        });
    }

    /// Notes that a file was edited, so that the next review includes it.
    pub fn note_edit(&self, file: &Path) {
        self.change_edited(file, |edited| edited.is_due = true);
    }

    /// Reports the effect of an edit on the errors of a file; `None` if there is no server for it.
    pub async fn finish_edit(&self, file: &Path, deadline: Instant) -> Option<FileReport> {
        let edited = self.edited(file)?;
        let compared = self.compare(file, edited.last, true, deadline).await?;
        self.change_edited(file, |edited| edited.note(compared.before, compared.now));
        Some(compared.report)
    }

    /// Reports the errors that the turn has caused in all files that were edited since the last review. No error is
    /// reported twice.
    pub async fn review(&self, limit: Duration) -> Vec<FileReport> {
        let deadline = Instant::now() + limit;
        let mut reports = Vec::new();
        let edited = self.0.state.borrow().edited.clone();
        for server in self.ready_servers() {
            refresh(server.as_ref(), None).await;
        }
        for Edited { path, first, .. } in edited.into_iter().filter(|edited| edited.is_due) {
            self.change_edited(&path, |edited| edited.is_due = false);
            let comparing = self.compare(&path, first, false, deadline);
            let Some(compared) = comparing.await else { continue };
            if let Some(now) = compared.now {
                self.change_edited(&path, |edited| edited.first = Before::Errors(now));
            }
            reports.push(compared.report);
        }
        reports
    }

    /// Compares a file's current errors with those before a change; `None` if there is no server for it.
    async fn compare(
        &self,
        file: &Path,
        before: Before,
        is_edit: bool,
        deadline: Instant,
    ) -> Option<Compared> {
        let ReadText::Text(text) = read_text(file).await else { return None };
        let started = self.use_server(file).await?;
        let server = started.spec.name.clone();
        let finding = Finding::NotKnown(TOO_LATE.to_owned());
        let report = FileReport { server, file: file.to_path_buf(), finding };
        let mut compared = Compared { report, before: None, now: None };
        let source = match self.ready_source(&started, is_edit, deadline).await {
            Ok(source) => source,
            Err(why) => {
                compared.report.finding = Finding::NotKnown(why);
                return Some(compared);
            }
        };
        if is_edit {
            refresh(source.as_ref(), Some(file)).await;
        }
        compared.before = match before {
            Before::Errors(counts) => Some(counts),
            Before::Text(old) => {
                // Leave the rest of the time for the errors of the new text, which matter more.
                let half = Instant::now() + (deadline - Instant::now()) / 2;
                let shown = source.show(file, &old, false);
                let errors = source.errors(&shown, half).await;
                errors.map(|errors| ErrorCounts::of(&errors))
            }
        };
        let shown = source.show(file, &text, true);
        if let Some(now) = source.errors(&shown, deadline).await {
            let before = compared.before.as_ref();
            compared.report.finding = Finding::compare(before, &now, source.encoding(), &text);
            compared.now = Some(ErrorCounts::of(&now));
        } else if !source.is_ready() {
            compared.report.finding = Finding::NotKnown(LOADING.to_owned());
        }
        Some(compared)
    }

    /// Returns true if a file was edited since the last review.
    pub fn has_unreviewed(&self) -> bool {
        self.0.state.borrow().edited.iter().any(|edited| edited.is_due)
    }

    /// Forgets the edits of the previous turn.
    pub fn begin_turn(&self) {
        self.0.state.send_modify(|state| state.edited.clear());
    }

    /// Tells the running servers which files have changed.
    pub fn note_events(&self, events: &[(PathBuf, FileEvent)]) {
        for server in self.ready_servers() {
            server.note_events(events);
        }
    }

    fn ready_servers(&self) -> Vec<Arc<Server>> {
        let state = self.0.state.borrow();
        let phases = state.started.iter().map(|started| started.phase.borrow().clone());
        let ready = phases.filter_map(|phase| match phase {
            Phase::Ready(server) => Some(server),
            Phase::Starting | Phase::Idle | Phase::Failed { .. } => None,
        });
        ready.collect()
    }

    /// Returns true if there is a server that can be asked for places. One that was ended as unused also counts,
    /// because it is started again when it is asked.
    pub fn has_places(&self) -> bool {
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
        let (_, answer) = self.ask(file, (symbol, line), method, &further).await?;
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
        let (source, answer) =
            self.ask(file, (symbol, line), "textDocument/rename", &further).await?;
        let files = file_edits(&answer, source.encoding(), last_name(symbol))?;
        if files.iter().all(|file| file.only_names(new_name)) {
            return Ok(files);
        }
        Err(format!("{} would write more than the new name", source.name()))
    }

    async fn ask(
        &self,
        file: &Path,
        (symbol, line): (&str, Option<u32>),
        method: &'static str,
        further: &Value,
    ) -> Result<(Arc<dyn DiagnosticSource>, Value), String> {
        let ReadText::Text(text) = read_text(file).await else {
            return Err("the file is not there, too long or no text".to_owned());
        };
        let places = occurrences(&text, symbol, line);
        if places.is_empty() {
            return Err(format!("`{symbol}` is not there"));
        }
        let started = self.use_server(file).await.ok_or("no language server is for this file")?;
        let starting = Instant::now() + started.spec.startup();
        let source = self.ready_source(&started, false, starting).await?;
        refresh(source.as_ref(), Some(file)).await;
        source.show(file, &text, true);
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut end = Err(format!("{} finds nothing", source.name()));
        for byte in places {
            let mut params = further.as_object().cloned().unwrap_or_default();
            params.insert("textDocument".to_owned(), json!({ "uri": uri(file) }));
            params.insert("position".to_owned(), json!(source.encoding().position(&text, byte)));
            match source.request(method, params.into(), deadline).await {
                Ok(Value::Null) => {}
                Ok(Value::Array(none)) if none.is_empty() => {}
                Ok(answer) => return Ok((source, answer)),
                Err(why) => end = Err(format!("{}: {why}", source.name())),
            }
        }
        end
    }

    /// Returns the server for a file, and starts it if necessary.
    async fn use_server(&self, file: &Path) -> Option<Started> {
        for spec in self.specs().iter().filter(|spec| spec.language(file).is_some()) {
            let mut known = self.find_started(spec, file);
            if let Some(known) = &mut known {
                known.wait_while_ending().await;
            }
            let restarts = match &known {
                None => 0,
                Some(known) => match &*known.phase.borrow() {
                    Phase::Starting | Phase::Ready(_) => return Some(known.clone()),
                    Phase::Idle => known.restarts,
                    // This server does not work here, but another one may.
                    Phase::Failed { has_worked: false, .. } => continue,
                    Phase::Failed { .. } if known.restarts >= spec.restarts() => continue,
                    Phase::Failed { .. } => known.restarts + 1,
                },
            };
            if let Some(launch) = self.prepare(spec, file).await {
                return self.start(launch, restarts);
            }
        }
        None
    }

    fn find_started(&self, spec: &Arc<LanguageServer>, file: &Path) -> Option<Started> {
        let state = self.0.state.borrow();
        let mut all = state.started.iter();
        let found = all.find(|started| started.spec == *spec && file.starts_with(&started.root));
        found.cloned()
    }

    /// Checks whether a server can be started for a file, and prepares its launch.
    async fn prepare(&self, spec: &Arc<LanguageServer>, file: &Path) -> Option<Launch> {
        let shared = Arc::clone(&self.0);
        let spec = Arc::clone(spec);
        let file = file.to_path_buf();
        let preparing = spawn_blocking(move || {
            let site = &shared.site;
            let folder = site.folders.iter().find(|folder| file.starts_with(folder))?;
            // This comes first because it nearly always settles the matter.
            if !site.gate.permits(&spec, folder) {
                return None;
            }
            let program = find_program(&spec, &site.environment)?;
            // A program inside the project may not stand in for a built-in server that the user has installed.
            let real = real_path(&program).ok()?;
            let is_own = site.folders.iter().any(|folder| real.starts_with(folder));
            if is_own && !spec.is_configured {
                return None;
            }
            let root = spec.root(&file, folder)?;
            let profile = site.gate.profile()?;
            let cache = site.cache.join(folder_name(&spec.name));
            let environment = site.environment.clone();
            Some(Launch { spec, program, root, environment, profile, cache })
        });
        preparing.await.ok().flatten()
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
            root: launch.root.clone(),
            phase,
            restarts,
            was_waited_for: false,
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
                let limits = (site.memory, IDLE_TIME);
                site.tracker.spawn(run(launch, limits, sender, site.stop.clone()));
                started = Some(new);
            }
        });
        started
    }

    /// Returns a server once it has started. The caller still has to wait until the server has loaded the project. Only
    /// the first edit waits for that; for later ones it is an error if the server is not ready.
    async fn ready_source(
        &self,
        started: &Started,
        is_edit: bool,
        deadline: Instant,
    ) -> Result<Arc<dyn DiagnosticSource>, String> {
        let mut phase = started.phase.clone();
        let may_wait = !is_edit || !started.was_waited_for;
        if may_wait {
            let settled = phase.wait_for(|phase| !matches!(phase, Phase::Starting));
            timeout_at(deadline, settled).await.ok();
            self.0.state.send_modify(|state| {
                let mut all = state.started.iter_mut();
                if let Some(known) = all.find(|known| known.phase.same_channel(&started.phase)) {
                    known.was_waited_for = true;
                }
            });
        }
        match &*phase.borrow() {
            Phase::Ready(server) if !may_wait && !server.is_ready() => Err(LOADING.to_owned()),
            Phase::Ready(server) => Ok(Arc::clone(server) as Arc<dyn DiagnosticSource>),
            Phase::Starting => Err(STARTING.to_owned()),
            Phase::Idle => Err("it has just ended".to_owned()),
            Phase::Failed { why, .. } => Err(why.clone()),
        }
    }

    fn edited(&self, file: &Path) -> Option<Edited> {
        let state = self.0.state.borrow();
        state.edited.iter().find(|edited| edited.path == file).cloned()
    }

    fn change_edited(&self, file: &Path, change: impl FnOnce(&mut Edited)) {
        self.0.state.send_modify(|state| {
            if let Some(edited) = state.edited.iter_mut().find(|edited| edited.path == file) {
                change(edited);
            }
        });
    }
}

impl Edited {
    /// Stores the errors before and after an edit. If those after it are not known, the next edit is compared with
    /// those before this one.
    fn note(&mut self, before: Option<ErrorCounts>, now: Option<ErrorCounts>) {
        if let (Before::Text(_), Before::Text(_), Some(before)) = (&self.first, &self.last, &before)
        {
            self.first = Before::Errors(before.clone());
        }
        if let Some(counts) = now.or(before) {
            self.last = Before::Errors(counts);
        }
    }
}

impl Started {
    /// If the server's connection has ended, waits until its process has ended as well.
    async fn wait_while_ending(&mut self) {
        let ended = self.phase.wait_for(|phase| match phase {
            Phase::Ready(server) => !server.has_ended(),
            Phase::Starting | Phase::Idle | Phase::Failed { .. } => true,
        });
        ended.await.ok();
    }

    fn is_running(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Starting | Phase::Ready(_))
    }
}

/// Shows a server the current state of the files that it has open.
async fn refresh(source: &dyn DiagnosticSource, except: Option<&Path>) {
    let files = source.shown_files().into_iter();
    for file in files.filter(|file| Some(file.as_path()) != except) {
        match read_text(&file).await {
            ReadText::Text(text) => {
                source.show(&file, &text, true);
            }
            ReadText::Missing => source.note_events(&[(file, FileEvent::Deleted)]),
            ReadText::NotText => {}
        }
    }
}

/// Returns the name of a server's folder, without characters that have a meaning in paths.
fn folder_name(server: &str) -> String {
    let chars = server.chars().take(64);
    chars.map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect()
}

/// The result of reading a file's text from the disk.
enum ReadText {
    Text(Arc<str>),
    Missing,
    NotText,
}

async fn read_text(file: &Path) -> ReadText {
    let file = file.to_path_buf();
    let reading = spawn_blocking(move || {
        let Ok(opened) = nofollow::open_file(&file) else { return ReadText::Missing };
        if !opened.metadata().is_ok_and(|found| found.is_file()) {
            return ReadText::NotText;
        }
        let mut text = String::new();
        let read = opened.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text);
        match read {
            Ok(count) if count as u64 <= MAX_TEXT_BYTES => ReadText::Text(text.into()),
            _ => ReadText::NotText,
        }
    });
    reading.await.unwrap_or(ReadText::NotText)
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
