//! What was decided: a line for each question, each refusal, each command that ran and each call of
//! a server's tool, for whoever wants to know later. A thread of its own writes it; what finds no room is lost, because nothing
//! waits for it. What was loaded as a secret is never in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::decision::Decision;
use super::describe::{in_words, reason, shortened, word};
use super::lasting::remote_pattern;
use super::store::{self, Lock};
use super::{Law, Mode};
use turnwright_types::effect::Effect;
use turnwright_types::moment;
use turnwright_types::redact;

/// The file, in the state folder.
const FILE: &str = "permissions.jsonl";
/// Where it goes when it is full.
const OLD: &str = "permissions.old.jsonl";
/// Bytes of it.
const LARGEST: u64 = 2 * 1024 * 1024;
/// Lines that may wait to be written.
const BACKLOG: usize = 256;
/// Characters of one text.
const LONGEST: usize = 2_000;
/// Effects of one line.
const MOST_EFFECTS: usize = 20;
/// How long the end waits for what is not written yet.
const LAST_WORD: Duration = Duration::from_millis(200);

/// The answer that allows a call and nothing more.
pub const ALLOWED_ONCE: &str = "allow once";

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// The user was asked, and has answered.
    Asked,
    /// It was refused without a question.
    Denied,
    /// A command was started, or a tool of a server was called; or a call of a client of
    /// `turnwright mcp-server`, whatever it does.
    Ran,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, as RFC 3339 has it.
    pub at: String,
    /// What has happened.
    pub event: Event,
    /// In which session.
    pub session: String,
    /// In which project.
    pub project: PathBuf,
    /// In which mode.
    pub mode: String,
    /// What it was about.
    pub effects: Vec<String>,
    /// The command line, if it was about one and that is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The rule that would allow a tool of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What was thought of it.
    pub verdict: String,
    /// What has decided.
    pub by: String,
    /// What the user has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Whether it ran in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<bool>,
}

impl Entry {
    /// What was thought of effects in a session of that project.
    pub fn new(
        event: Event,
        session: &str,
        (law, mode): (&Law, Mode),
        effects: &[Effect],
        decision: &Decision,
    ) -> Entry {
        let command = effects.iter().find_map(|it| match it {
            Effect::Exec(it) if it.line.chars().count() <= LONGEST => Some(it.line.clone()),
            _ => None,
        });
        let rule = effects.iter().find_map(|it| match it {
            Effect::Remote(call) => Some(remote_pattern(call)?.to_string()),
            _ => None,
        });
        let words = effects.iter().take(MOST_EFFECTS);
        Entry {
            at: moment::rfc3339(SystemTime::now()),
            event,
            session: session.to_owned(),
            project: law.ground.roots.first().cloned().unwrap_or_default(),
            mode: mode.id().to_owned(),
            effects: words.map(|it| shortened(&in_words(it, &law.ground), LONGEST)).collect(),
            command,
            rule,
            verdict: word(decision.verdict()).to_owned(),
            by: decision.strictest().map(|it| reason(it, mode)).unwrap_or_default(),
            answer: None,
            sandbox: None,
        }
    }

    /// The line, for wherever else it is kept.
    pub fn line(&self) -> String {
        serde_json::to_string(&self.clone().without_keys()).unwrap_or_default()
    }

    fn without_keys(mut self) -> Entry {
        let texts = [&mut self.by].into_iter().chain(&mut self.effects).chain(&mut self.command);
        texts.for_each(redact::clean);
        self
    }
}

/// Where lines go. The default keeps nothing.
#[derive(Default)]
pub struct Audit {
    folder: Option<PathBuf>,
    // A std mutex: held to start a thread once.
    sender: Mutex<Option<SyncSender<Entry>>>,
    waiting: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Audit").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Audit {
    /// In the state folder.
    pub fn new(state: &Path) -> Audit {
        let folder = Some(state.to_path_buf());
        Audit { folder, sender: Mutex::default(), waiting: Arc::default() }
    }

    /// Has a line written. Never waits.
    pub fn note(&self, entry: Entry) {
        let Some(folder) = &self.folder else { return };
        let entry = entry.without_keys();
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.get_or_insert_with(|| start(folder.clone(), Arc::clone(&self.waiting)));
        self.waiting.fetch_add(1, Ordering::Acquire);
        if sender.try_send(entry).is_err() {
            self.waiting.fetch_sub(1, Ordering::Release);
        }
    }

    /// The lines that there are, the oldest first. Blocks.
    pub fn lines(state: &Path) -> Vec<Entry> {
        let text = |it: &str| store::read(&state.join(it), 2 * LARGEST).ok().flatten();
        let texts = [OLD, FILE].into_iter().filter_map(text);
        let parse = |it: &str| serde_json::from_str(it).ok();
        texts.flat_map(|it| it.lines().filter_map(parse).collect::<Vec<Entry>>()).collect()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        let end = Instant::now() + LAST_WORD;
        while self.waiting.load(Ordering::Acquire) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts the thread that writes. Without it the lines are lost, which is better than no agent.
fn start(folder: PathBuf, waiting: Arc<AtomicUsize>) -> SyncSender<Entry> {
    let (sender, entries) = sync_channel(BACKLOG);
    let write = move || write_all(&folder, &entries, &waiting);
    thread::Builder::new().name("audit".into()).stack_size(128 * 1024).spawn(write).ok();
    sender
}

fn write_all(folder: &Path, entries: &Receiver<Entry>, waiting: &AtomicUsize) {
    for entry in entries {
        if let Err(error) = write(folder, &entry) {
            tracing::debug!(%error, "a decision could not be noted");
        }
        waiting.fetch_sub(1, Ordering::Release);
    }
}

fn write(folder: &Path, entry: &Entry) -> std::io::Result<()> {
    let path = folder.join(FILE);
    store::make_folder(folder)?;
    if is_full(&path) {
        let _lock = Lock::take(&folder.join("permissions.lock"))?;
        // Another process may have done it meanwhile.
        if is_full(&path) {
            std::fs::rename(&path, folder.join(OLD))?;
        }
    }
    store::append(&path, &format!("{}\n", serde_json::to_string(entry)?))
}

fn is_full(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|it| it.len() > LARGEST)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use turnwright_types::effect::Command;
    use crate::permission::{Grants, decide};

    fn entry(line: &str) -> Entry {
        let law = Law::default();
        let effects = [Effect::Exec(Box::new(Command::new(line, "/ws")))];
        let decision = decide(&law, Mode::Ask, &Grants::default(), &effects);
        Entry::new(Event::Asked, "s", (&law, Mode::Ask), &effects, &decision)
    }

    #[test]
    fn what_was_decided_can_be_read_and_holds_no_secret() {
        let state = tempfile::tempdir().unwrap();
        redact::learn(["sk-canary-1".to_owned()]);
        let audit = Audit::new(state.path());
        for line in ["make all", "curl -H 'Bearer sk-canary-1' x"] {
            audit.note(Entry { answer: Some("allow once".to_owned()), ..entry(line) });
        }
        drop(audit);
        let lines = Audit::lines(state.path());
        let commands: Vec<_> = lines.iter().filter_map(|it| it.command.as_deref()).collect();
        assert_eq!(commands, ["make all", "curl -H 'Bearer [key]' x"]);
        assert_eq!((lines[0].verdict.as_str(), lines[0].mode.as_str()), ("ask", "ask"));
        assert_eq!(lines[0].effects, ["run make all"]);
        let text = std::fs::read_to_string(state.path().join(FILE)).unwrap();
        assert!(!text.contains("canary"), "{text}");
    }

    #[test]
    fn a_full_file_is_put_aside_once() {
        let state = tempfile::tempdir().unwrap();
        let full = vec![b' '; usize::try_from(LARGEST).unwrap() + 1];
        std::fs::write(state.path().join(FILE), full).unwrap();
        for line in ["one", "two"] {
            write(state.path(), &entry(line)).unwrap();
        }
        assert!(std::fs::metadata(state.path().join(OLD)).unwrap().len() > LARGEST);
        assert_eq!(Audit::lines(state.path()).len(), 2);
    }

    #[test]
    fn nothing_is_kept_where_there_is_no_folder() {
        Audit::default().note(entry("make"));
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("file"), "").unwrap();
        Audit::new(&state.path().join("file")).note(entry("make"));
    }
}
