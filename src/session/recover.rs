//! What has become of the work that was under way when the process ended: looked at once, told
//! truthfully, written down. Nothing is ever run again.

use std::fs::File;
use std::io::{self, Read};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ring::digest::{Context, SHA256};

use turnwright_types::effect::{CallView, Content, Effect, Kind, visible_line};
use turnwright_types::ids::{MessageId, hex};
use turnwright_types::message::{Arguments, AssistantMessage, Echo, Message};
use turnwright_store::broken::{Broken, Draft, Mended, broken};
use turnwright_store::{Audience, CallRow, CallStatus, Entry, Settled, Store, StoreError, read};
use turnwright_types::file_change::{Change, FileState};
use crate::turn::{self, Equipment};

/// Identifiers that may have been given out by a turn without an end, and are known to nobody.
const UNKNOWN_IDS: u64 = 10_000;
/// Bytes of the largest file that is looked at.
const LARGEST: u64 = 256 << 20;

const NEVER_RAN: &str = "The agent ended before this was run. Nothing was done.";
const UNKNOWN: &str = "The agent ended while this was running, so what has come of it is unknown: it \
                       may have run partly or whole. Look before you repeat it.";
const LOOKED_AT: &str = "The agent ended while this was running, and the turn did not go on. Its \
                         files were looked at afterwards.";
const INTERRUPTED: &str = "This turn was interrupted: the agent ended in the middle of it.";

/// Sets right what an earlier process has left undone. Returns the last number that an identifier
/// was made of.
pub(super) async fn recover(store: &Store, equipment: &Equipment) -> Result<u64, StoreError> {
    let id = equipment.bench.session.clone();
    let find = move |connection: &_| broken(connection, read::key(connection, &id)?);
    let broken = store.read(find).await?;
    let log = equipment.log();
    log.go_on(broken.last);
    if broken.is_nothing() {
        return Ok(broken.minted);
    }
    let equipped = equipment.clone();
    let mending = tokio::task::spawn_blocking(move || mended(broken, &equipped));
    let mended = mending.await.map_err(|_| StoreError::Closed)?;
    let minted = mended.minted;
    log.mend(mended).written().await;
    Ok(minted)
}

/// What is to be written.
fn mended(broken: Broken, equipment: &Equipment) -> Mended {
    let Broken { calls, drafts, turns, minted, .. } = broken;
    let mut mended = Mended { minted, ..Mended::default() };
    if !turns.is_empty() {
        mended.minted += UNKNOWN_IDS;
    }
    for (row, files) in calls {
        let (view, is_edit) = look_again(&row, equipment);
        let is_told_by_files = is_edit && row.status == CallStatus::Running;
        let looked_at = files.iter().filter(|_| is_told_by_files);
        let now = looked_at.map(|it| state(&it.path)).collect();
        mended.calls.push((row.call.clone(), row.turn, truth(&row, files, now, is_edit, view)));
    }
    let drafted: Vec<_> = drafts.iter().map(|it| it.turn).collect();
    mended.entries.extend(drafts.into_iter().map(answer));
    for (turn, has_entries) in turns {
        mended.turns.push(turn);
        if has_entries || drafted.contains(&turn) {
            mended.minted += 1;
            let id = MessageId::from(format!("msg-{}", mended.minted));
            let note = Entry::Note { id, text: INTERRUPTED.to_owned() };
            let seq = equipment.log().reserve();
            mended.entries.push((seq, turn, SystemTime::now(), note));
        }
    }
    mended
}

/// The entry of an answer that was on its way.
fn answer(draft: Draft) -> (u64, u64, SystemTime, Entry) {
    let Draft { seq, turn, at, id, thought, text } = draft;
    let audience = if text.is_empty() { Audience::User } else { Audience::Both };
    let message = Arc::new(Message::Assistant(AssistantMessage {
        id: id.clone(),
        text,
        thought,
        calls: Vec::new(),
        interrupted: true,
        echo: Echo::default(),
    }));
    (seq, turn, at, Entry::Message { id, message, audience })
}

/// How the card of a call has looked, if it had one; and whether it was about files alone.
fn look_again(row: &CallRow, equipment: &Equipment) -> (Option<CallView>, bool) {
    let Ok(tool) = equipment.tools.find(&row.tool) else {
        let title = visible_line(&row.tool);
        return (Some(CallView { title, kind: Kind::Other, locations: Vec::new() }), false);
    };
    let first = tool.first_view();
    let Arguments::Object(arguments) = row.arguments.clone() else { return (first, false) };
    // A tool that panics is our bug, and no reason to lose a conversation.
    let looking = AssertUnwindSafe(|| {
        let mut prepared = tool.prepare(arguments).ok()?;
        prepared.locate(&equipment.bench);
        let is_edit = prepared.effects().iter().all(|it| {
            matches!(it, Effect::Read(_) | Effect::Write(_) | Effect::Delete(_) | Effect::Session)
        });
        Some((prepared.view(equipment.bench.files.roots()), is_edit))
    });
    match std::panic::catch_unwind(looking).ok().flatten() {
        Some((view, is_edit)) => (first.map(|_| view), is_edit),
        None => (first, false),
    }
}

/// What can be said of a call without a result. `now` is what there is of each of its files.
fn truth(
    row: &CallRow,
    files: Vec<Change>,
    now: Vec<FileState>,
    is_edit: bool,
    view: Option<CallView>,
) -> Settled {
    if row.status != CallStatus::Running {
        return turn::not_run(row.tool.clone(), view, NEVER_RAN);
    }
    if !is_edit || files.is_empty() {
        return Settled { files, ..turn::not_run(row.tool.clone(), view, UNKNOWN) };
    }
    let mut text = LOOKED_AT.to_owned();
    let (mut known, mut ok) = (Vec::new(), true);
    for (mut change, now) in files.into_iter().zip(now) {
        let found = found(&change, &now);
        text.push_str(&format!("\n{}: {}", change.path.display(), found.words()));
        ok &= found == Found::Applied;
        if found == Found::NotApplied {
            change.after = Some(change.before.clone());
        }
        known.push(change);
    }
    if !ok {
        return Settled { files: known, ..turn::not_run(row.tool.clone(), view, &text) };
    }
    let content = vec![Content::Text(text.clone())];
    let raw = serde_json::json!({ "applied": known.len() });
    let tool = row.tool.clone();
    Settled { ok, tool, text, view, content, raw, files: known, ..Settled::default() }
}

/// What is found at the place of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Applied,
    NotApplied,
    Changed,
    Unreadable,
}

impl Found {
    fn words(self) -> &'static str {
        match self {
            Found::Applied => "applied. It is what this call was going to make of it.",
            Found::NotApplied => "not applied. It is as it was before this call.",
            Found::Changed => {
                "changed. It is neither what it was before nor what it was going to be: look at it."
            }
            Found::Unreadable => "unknown. It cannot be read now: look at it before you go on.",
        }
    }
}

fn found(change: &Change, now: &FileState) -> Found {
    let Change { before, after, .. } = change;
    // Where only the mode was to change, the mode tells.
    let by_mode = after.as_ref().is_some_and(|it| same(it, before, false));
    if matches!(now, FileState::Unknown { .. }) {
        Found::Unreadable
    } else if after.as_ref().is_some_and(|it| same(it, now, by_mode)) {
        Found::Applied
    } else if same(before, now, by_mode) {
        Found::NotApplied
    } else {
        Found::Changed
    }
}

/// Whether there is the same; with the same mode, if that counts.
fn same(one: &FileState, other: &FileState, by_mode: bool) -> bool {
    match (one, other) {
        (
            FileState::File { hash, mode, .. },
            FileState::File { hash: other_hash, mode: other_mode, .. },
        ) => hash == other_hash && (!by_mode || mode == other_mode),
        (FileState::Folder { mode }, FileState::Folder { mode: other }) => {
            !by_mode || mode == other
        }
        (FileState::Unknown { .. }, _) => false,
        (one, other) => one == other,
    }
}

/// What there is at a path. Not for the runtime's thread.
fn state(path: &Path) -> FileState {
    match looked_at(path) {
        Ok(state) => state,
        Err(error) if error.kind() == io::ErrorKind::NotFound => FileState::Absent,
        Err(error) => FileState::Unknown { why: error.to_string() },
    }
}

fn looked_at(path: &Path) -> io::Result<FileState> {
    let metadata = std::fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(FileState::Link { target: std::fs::read_link(path)? });
    }
    if metadata.is_dir() {
        return Ok(FileState::Folder { mode: mode(&metadata) });
    }
    if !metadata.is_file() || metadata.len() > LARGEST {
        let why = "no file that is looked into".to_owned();
        return Ok(FileState::Unknown { why });
    }
    let (hash, size) = hash(path)?;
    Ok(FileState::File { hash, size, mode: mode(&metadata), is_kept: false })
}

fn hash(path: &Path) -> io::Result<(String, u64)> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // What has become a pipe meanwhile must not hold us up.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let mut file = options.open(path)?.take(LARGEST);
    let (mut sum, mut buffer, mut size) = (Context::new(&SHA256), vec![0; 64 * 1024], 0);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        sum.update(&buffer[..count]);
        size += count as u64;
    }
    Ok((hex(sum.finish().as_ref()), size))
}

#[cfg(unix)]
fn mode(metadata: &std::fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o7777
}

#[cfg(not(unix))]
fn mode(_: &std::fs::Metadata) -> u32 {
    0o644
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets its files up")]
mod tests {
    use super::*;

    fn row(status: CallStatus) -> CallRow {
        let asked = SystemTime::now();
        CallRow {
            call: "call-1".into(),
            turn: 1,
            tool: "write_file".to_owned(),
            arguments: Arguments::default(),
            status,
            settled: Settled::default(),
            begun: None,
            asked,
            ended: None,
        }
    }

    #[test]
    fn what_has_become_of_a_call_is_told_by_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            state(&path)
        };
        let (old, new, gone) = (at("old", "1"), at("new", "2"), FileState::Absent);
        let pipe = FileState::Unknown { why: "a pipe".to_owned() };
        let table = [
            (&old, Some(&new), &new, "applied", true),
            (&old, Some(&new), &old, "not applied", false),
            (&old, Some(&new), &gone, "changed", false),
            (&old, Some(&gone), &gone, "applied", true),
            (&gone, Some(&new), &gone, "not applied", false),
            (&old, None, &old, "not applied", false),
            (&old, None, &new, "changed", false),
            (&old, Some(&new), &pipe, "unknown", false),
        ];
        for (before, after, now, word, ok) in table {
            let (before, after) = (before.clone(), after.cloned());
            let change = Change { path: "/w/a".into(), before, after };
            let row = row(CallStatus::Running);
            let settled = truth(&row, vec![change], vec![now.clone()], true, None);
            let line = settled.text.lines().last().unwrap().to_owned();
            assert!(line.starts_with(&format!("/w/a: {word}.")), "{line} {word}");
            assert_eq!(settled.ok, ok, "{word}");
        }
        let text = |status, is_edit| truth(&row(status), vec![], vec![], is_edit, None).text;
        assert_eq!(text(CallStatus::Pending, true), NEVER_RAN);
        assert_eq!(text(CallStatus::Running, true), UNKNOWN);
        assert_eq!(text(CallStatus::Running, false), UNKNOWN);
    }

    #[test]
    fn a_change_of_the_mode_alone_is_told_by_the_mode() {
        let file = |mode| FileState::File { hash: "h".to_owned(), size: 1, mode, is_kept: false };
        let change = Change { path: "a".into(), before: file(0o644), after: Some(file(0o755)) };
        assert_eq!(found(&change, &file(0o755)), Found::Applied);
        assert_eq!(found(&change, &file(0o644)), Found::NotApplied);
    }
}
