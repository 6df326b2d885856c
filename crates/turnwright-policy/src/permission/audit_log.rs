//! The audit log: a line of JSON for each question, each refusal, each command that ran and each
//! call of an MCP tool. A separate thread writes it. Callers never wait: when the queue is full,
//! entries are lost. Lost entries are counted, and the log says where they are missing. Known secrets
//! are redacted.

use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::describe::{describe_effect, describe_reason, verdict_name};
use super::lasting_grant::remote_pattern;
use super::{Decision, Mode, PolicyRules};
use turnwright_types::effect::Effect;
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file::{self, FileLock};
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_types::timestamp;

/// The name of the file, in the state folder.
const FILE: &str = "permissions.jsonl";
/// The name that the file is renamed to when it is full.
const OLD_FILE: &str = "permissions.old.jsonl";
/// The size in bytes at which the file is full.
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;
/// The maximum number of entries that wait to be written.
const QUEUE_LENGTH: usize = 256;
/// The maximum length of one text in characters.
const MAX_CHARS: usize = 2_000;
/// The maximum number of effects in one entry.
const MAX_EFFECTS: usize = 20;
/// How long dropping the log waits for entries that are not written yet.
const DROP_TIMEOUT: Duration = Duration::from_millis(200);

/// The [`AuditEntry::answer`] of a user who allowed a call once.
pub const ALLOW_ONCE_ANSWER: &str = "allow once";

/// The kinds of events in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditEvent {
    /// The user was asked and answered.
    Asked,
    /// The call was denied without a question.
    Denied,
    /// A command was started or an MCP tool was called; in `turnwright mcp-server`, any tool call
    /// of the client.
    Ran,
    /// Entries are missing here because they could not be written.
    #[default]
    Lost,
}

/// One line of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When it happened, as an RFC 3339 timestamp.
    pub at: String,
    /// The kind of the event.
    pub event: AuditEvent,
    /// The identifier of the session.
    pub session: String,
    /// The folder of the project.
    pub project: PathBuf,
    /// The identifier of the permission mode.
    pub mode: String,
    /// The effects of the call, in words.
    pub effects: Vec<String>,
    /// The command line, if the call has one that fits in whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The rule that would allow the MCP tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The verdict on the call.
    pub verdict: String,
    /// The reason for the verdict.
    #[serde(rename = "by")]
    pub reason: String,
    /// The user's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// True if the command ran in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<bool>,
    /// How many entries are missing, for [`AuditEvent::Lost`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

impl AuditEntry {
    /// An entry about the effects of a call and the decision about them.
    pub fn new(
        event: AuditEvent,
        session: &str,
        (policy, mode): (&PolicyRules, Mode),
        effects: &[Effect],
        decision: &Decision,
    ) -> AuditEntry {
        let mut lines = effects.iter().filter_map(Effect::command).map(|command| &command.line);
        let command = lines.find(|line| line.chars().count() <= MAX_CHARS).cloned();
        let rule = effects.iter().find_map(|effect| match effect {
            Effect::Remote(call) => Some(remote_pattern(call)?.to_string()),
            _ => None,
        });
        let words = effects.iter().take(MAX_EFFECTS);
        AuditEntry {
            at: timestamp::rfc3339(SystemTime::now()),
            event,
            session: session.to_owned(),
            project: policy.bases.roots.first().cloned().unwrap_or_default(),
            mode: mode.id().to_owned(),
            effects: words
                .map(|effect| text::clip_within(describe_effect(effect, &policy.bases), MAX_CHARS))
                .collect(),
            command,
            rule,
            verdict: verdict_name(decision.verdict()).to_owned(),
            reason: reason_text(decision, mode),
            ..AuditEntry::default()
        }
    }

    fn of_loss(loss: &AuditLoss) -> AuditEntry {
        AuditEntry {
            at: timestamp::rfc3339(SystemTime::now()),
            event: AuditEvent::Lost,
            reason: loss.why.clone(),
            lost: Some(loss.count),
            ..AuditEntry::default()
        }
    }

    /// The entry as redacted JSON, to be kept elsewhere, too.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.clone().redacted()).unwrap_or_default()
    }

    fn redacted(mut self) -> AuditEntry {
        let texts =
            [&mut self.reason].into_iter().chain(&mut self.effects).chain(&mut self.command);
        texts.for_each(redact::redact_in_place);
        self
    }
}

/// The reason for the verdict, and then the access that answers of the session give besides.
fn reason_text(decision: &Decision, mode: Mode) -> String {
    let verdict = decision.verdict();
    let (access, others): (Vec<_>, Vec<_>) = decision
        .findings
        .iter()
        .filter(|finding| finding.verdict == verdict)
        .partition(|finding| finding.gives_access());
    let texts = others.into_iter().take(1).chain(access);
    texts.map(|finding| describe_reason(finding, mode)).collect::<Vec<_>>().join("; ")
}

/// Entries that could not be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditLoss {
    pub count: u64,
    /// Why the last of them could not be written.
    pub why: String,
}

impl std::fmt::Display for AuditLoss {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = if self.count == 1 { "1 entry" } else { &format!("{} entries", self.count) };
        write!(formatter, "{entries} could not be written ({})", self.why)
    }
}

impl AuditLoss {
    fn add(&mut self, why: &str) {
        self.count += 1;
        why.clone_into(&mut self.why);
    }

    fn into_some(self) -> Option<AuditLoss> {
        (self.count > 0).then_some(self)
    }
}

/// Writes entries to the log file. The default value discards them.
#[derive(Debug, Default)]
pub struct AuditLog {
    writer: Option<Arc<AuditWriter>>,
    /// The queue of the writer thread, which starts with the first entry.
    sender: OnceLock<SyncSender<AuditEntry>>,
}

impl AuditLog {
    /// A log in the folder `state`.
    pub fn new(state: &Path) -> AuditLog {
        let writer = AuditWriter { folder: state.to_path_buf(), ..AuditWriter::default() };
        AuditLog { writer: Some(Arc::new(writer)), sender: OnceLock::new() }
    }

    /// Queues an entry to be written. Never blocks; when the queue is full the entry is lost.
    pub fn record(&self, entry: AuditEntry) {
        let Some(writer) = &self.writer else { return };
        let entry = entry.redacted();
        let sender = self.sender.get_or_init(|| Arc::clone(writer).start());
        writer.pending.fetch_add(1, Ordering::Acquire);
        if let Err(error) = sender.try_send(entry) {
            writer.pending.fetch_sub(1, Ordering::Release);
            writer.loss.lock().add(match error {
                TrySendError::Full(_) => "too many entries at once",
                TrySendError::Disconnected(_) => "the thread that writes them could not be started",
            });
        }
    }

    /// Returns the entries of this process that could not be written, or `None` if there are none.
    pub fn loss(&self) -> Option<AuditLoss> {
        self.writer.as_ref()?.loss.lock().clone().into_some()
    }

    /// Returns the entries that are missing in the log in the folder `state`, as far as it says so.
    ///
    /// # Errors
    /// If the log cannot be written. Blocks.
    pub fn check(state: &Path) -> std::io::Result<Option<AuditLoss>> {
        let path = state.join(FILE);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            // Opening a pipe could block forever.
            Ok(metadata) if !metadata.is_file() => {
                return Err(std::io::Error::other("not a regular file"));
            }
            Ok(_) => {
                std::fs::OpenOptions::new().append(true).open(&path)?;
            }
        }
        let mut loss = AuditLoss::default();
        for entry in AuditLog::read_entries(state) {
            if let Some(count) = entry.lost {
                loss.count = loss.count.saturating_add(count);
                loss.why = entry.reason;
            }
        }
        Ok(loss.into_some())
    }

    /// Reads the entries of the log in the folder `state`, the oldest first. Lines that are not
    /// valid are skipped. Blocks.
    pub fn read_entries(state: &Path) -> Vec<AuditEntry> {
        let texts = [OLD_FILE, FILE]
            .into_iter()
            .filter_map(|name| private_file::read(&state.join(name), 2 * MAX_FILE_BYTES).ok());
        let parse = |line: &str| serde_json::from_str(line).ok();
        texts.flat_map(|text| text.lines().filter_map(parse).collect::<Vec<AuditEntry>>()).collect()
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let Some(writer) = &self.writer else { return };
        let deadline = Instant::now() + DROP_TIMEOUT;
        while writer.pending.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The part of the log that the thread shares which writes.
#[derive(Debug, Default)]
struct AuditWriter {
    folder: PathBuf,
    /// The number of entries that wait to be written.
    pending: AtomicUsize,
    /// Locked only briefly, to change or copy it.
    loss: Mutex<AuditLoss>,
}

impl AuditWriter {
    /// Starts the thread. If it cannot be started, entries are lost and the agent works on.
    fn start(self: Arc<Self>) -> SyncSender<AuditEntry> {
        let (sender, entries) = sync_channel(QUEUE_LENGTH);
        thread::Builder::new()
            .name("audit".into())
            .stack_size(128 * 1024)
            .spawn(move || self.write_all(&entries))
            .ok();
        sender
    }

    fn write_all(&self, entries: &Receiver<AuditEntry>) {
        let mut told = 0;
        for entry in entries {
            if let Err(error) = self.write_one(&entry, &mut told) {
                self.loss.lock().add(&io_error_text(&error));
            }
            self.pending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Writes an entry, and before it how many are missing. The log tells of `told` of them.
    fn write_one(&self, entry: &AuditEntry, told: &mut u64) -> std::io::Result<()> {
        let mut loss = self.loss.lock().clone();
        let all = loss.count;
        if all > *told {
            loss.count -= *told;
            write(&self.folder, &AuditEntry::of_loss(&loss))?;
            *told = all;
        }
        write(&self.folder, entry)
    }
}

fn write(folder: &Path, entry: &AuditEntry) -> std::io::Result<()> {
    let path = folder.join(FILE);
    private_file::create_folder(folder)?;
    if is_full(&path) {
        let _lock = FileLock::acquire(&folder.join("permissions.lock"))?;
        // Another process may have renamed it in the meantime.
        if is_full(&path) {
            std::fs::rename(&path, folder.join(OLD_FILE))?;
        }
    }
    let line = format!("{}\n", serde_json::to_string(entry)?);
    private_file::append(&path, line.as_bytes())
}

fn is_full(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use crate::permission::{Grants, decide};
    use turnwright_types::shell_script::ShellDialect;

    fn entry(line: &str) -> AuditEntry {
        let policy = PolicyRules::default();
        let effects =
            [Effect::Exec(Box::new(crate::shell::command(line, "/ws", ShellDialect::Bash)))];
        let decision = decide(&policy, Mode::Ask, &Grants::default(), &effects);
        AuditEntry::new(AuditEvent::Asked, "s", (&policy, Mode::Ask), &effects, &decision)
    }

    #[test]
    fn entries_can_be_read_back_and_contain_no_secret() {
        let state = tempfile::tempdir().unwrap();
        redact::register_keys(["sk-canary-1".to_owned()]).unwrap();
        let audit = AuditLog::new(state.path());
        for line in ["make all", "curl -H 'Bearer sk-canary-1' x"] {
            audit.record(AuditEntry { answer: Some("allow once".to_owned()), ..entry(line) });
        }
        drop(audit);
        let lines = AuditLog::read_entries(state.path());
        let commands: Vec<_> = lines.iter().filter_map(|line| line.command.as_deref()).collect();
        let hidden = format!("curl -H 'Bearer {}' x", redact::text("sk-canary-1"));
        assert_eq!(commands, ["make all", &hidden]);
        assert_eq!((lines[0].verdict.as_str(), lines[0].mode.as_str()), ("ask", "ask"));
        assert_eq!(lines[0].effects, ["run make all"]);
        let text = std::fs::read_to_string(state.path().join(FILE)).unwrap();
        assert!(!text.contains("canary"), "{text}");
    }

    #[test]
    fn a_full_file_is_put_aside_once() {
        let state = tempfile::tempdir().unwrap();
        let full = vec![b' '; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
        std::fs::write(state.path().join(FILE), full).unwrap();
        for line in ["one", "two"] {
            write(state.path(), &entry(line)).unwrap();
        }
        assert!(std::fs::metadata(state.path().join(OLD_FILE)).unwrap().len() > MAX_FILE_BYTES);
        assert_eq!(AuditLog::read_entries(state.path()).len(), 2);
    }

    #[test]
    fn lost_entries_are_counted_and_the_log_says_so() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("state");
        std::fs::write(&folder, "").unwrap();
        let audit = AuditLog::new(&folder);
        let record = |line| {
            audit.record(entry(line));
            while audit.writer.as_ref().unwrap().pending.load(Ordering::Acquire) > 0 {
                thread::yield_now();
            }
        };
        assert_eq!(audit.loss(), None);
        record("one");
        record("two");
        let loss = audit.loss().unwrap();
        assert_eq!(loss.count, 2);
        std::fs::remove_file(&folder).unwrap();
        assert_eq!(AuditLog::check(&folder).unwrap(), None);
        record("three");
        record("four");
        assert_eq!(audit.loss().as_ref(), Some(&loss));
        assert_eq!(AuditLog::check(&folder).unwrap(), Some(loss));
        let events: Vec<_> =
            AuditLog::read_entries(&folder).iter().map(|entry| entry.event).collect();
        assert_eq!(events, [AuditEvent::Lost, AuditEvent::Asked, AuditEvent::Asked]);
    }

    #[test]
    fn entries_beyond_the_queue_are_counted() {
        let state = tempfile::tempdir().unwrap();
        let audit = AuditLog::new(state.path());
        let (sender, _entries) = sync_channel(1);
        audit.sender.set(sender).unwrap();
        for _ in 0..3 {
            audit.record(entry("make"));
        }
        assert_eq!(audit.loss().unwrap().count, 2);
    }

    #[test]
    fn without_a_folder_entries_are_discarded() {
        AuditLog::default().record(entry("make"));
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("file"), "").unwrap();
        AuditLog::new(&state.path().join("file")).record(entry("make"));
    }
}
