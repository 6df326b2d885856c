//! Lines that the user keeps in the notes of the project: commands that worked, and corrections. The user asks for each
//! of them, so they are written without a call of the model.

use std::path::Path;
use std::time::SystemTime;

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::ToolEnv;
use super::memory::{list, read_before_change};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;
use turnwright_types::timestamp::local_time;
use turnwright_workspace::git_repository::GitRepository;
use turnwright_workspace::memory::{self, MAX_NOTE_BYTES, MAX_NOTES, NoteFolder};

/// The number of digits of a commit that a line names.
const COMMIT_DIGITS: usize = 8;

/// A note of the project that lines are kept in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptNote {
    name: &'static str,
    /// The first line of a new note, which the index shows.
    heading: &'static str,
}

/// Commands that worked.
pub(crate) const KEPT_COMMANDS: KeptNote =
    KeptNote { name: "commands", heading: "# Commands that worked here" };
/// The user's corrections of the model.
pub(crate) const KEPT_CORRECTIONS: KeptNote =
    KeptNote { name: "corrections", heading: "# What the user has corrected" };

/// Returns the text of a note; empty if it cannot be read.
pub(crate) async fn kept_lines(env: &ToolEnv, note: KeptNote) -> String {
    let notes = NoteFolder::of_project(env.files.roots().real_cwd());
    let reading = spawn_blocking(move || notes.read(note.name));
    reading.await.ok().flatten().map(|head| head.text).unwrap_or_default()
}

/// Adds a line to a note, with its evidence. Returns the answer for the user, or why nothing was written.
pub(crate) async fn keep_line(
    env: &ToolEnv,
    note: KeptNote,
    words: &str,
    evidence: &str,
    cancel: &CancellationToken,
) -> Result<String, String> {
    let words = text::one_line(words);
    if let Some(what) = memory::find_secret(&words) {
        return Err(format!(
            "The text holds what looks like {what}. Notes are plain files that later sessions send to a model."
        ));
    }
    let real_cwd = env.files.roots().real_cwd().to_path_buf();
    let commit = spawn_blocking(move || commit_of(&real_cwd)).await.unwrap_or_default();
    // The file does not control a terminal that shows it.
    let [shown, why] = [words.as_str(), evidence].map(escape_hidden_line);
    let line = format!("- {shown} (evidence: {why}, {}{commit})", today());
    let writing = change_note(env, note, cancel, |before| {
        let lines = before.map(str::trim_end).filter(|lines| !lines.is_empty());
        let beginning = lines.map_or_else(|| format!("{}\n", note.heading), str::to_owned);
        Some(format!("{beginning}\n{line}\n"))
    });
    let file = writing.await?;
    Ok(format!(
        "Noted in `{file}`:\n\n{line}\n\nDelete the line there to take it back; `/undo` does not."
    ))
}

/// Marks the line of a command that has failed. Returns the answer for the user, or why nothing was written.
pub(crate) async fn mark_failed(
    env: &ToolEnv,
    command: &str,
    cancel: &CancellationToken,
) -> Result<String, String> {
    let marking =
        change_note(env, KEPT_COMMANDS, cancel, |before| with_mark(before?, command, &today()));
    let file = marking.await?;
    Ok(format!("Marked in `{file}`: `{command}` has failed."))
}

/// Returns true if a note has the line of a command that is not marked as failed.
pub(crate) fn has_unmarked(note: &str, command: &str) -> bool {
    with_mark(note, command, "").is_some()
}

/// Returns a note with a mark behind the line of a command; `None` if there is none without a mark.
fn with_mark(note: &str, command: &str, day: &str) -> Option<String> {
    let beginning = format!("- `{command}` (");
    let mut lines: Vec<String> = note.split('\n').map(str::to_owned).collect();
    let line = lines
        .iter_mut()
        .find(|line| line.starts_with(&beginning) && !line.contains(" [failed "))?;
    let end = line.trim_end().len();
    line.insert_str(end, &format!(" [failed {day}]"));
    Some(lines.join("\n"))
}

/// Writes the new text of a note, if there is any. Returns the file for the user.
async fn change_note(
    env: &ToolEnv,
    note: KeptNote,
    cancel: &CancellationToken,
    change: impl FnOnce(Option<&str>) -> Option<String>,
) -> Result<String, String> {
    // A replay writes nothing into the project of the recording.
    if env.shared.process.outside.project().is_some() {
        return Err("Nothing is written in a replay.".to_owned());
    }
    let notes = NoteFolder::of_project(env.files.roots().real_cwd());
    let place = env.files.roots().resolve(notes.path(note.name));
    let shown = env.files.roots().display_path(&place);
    let before = read_before_change(env, &notes, &place, note.name).await?;
    if before.is_none() && list(&[notes]).await.len() >= MAX_NOTES {
        return Err(format!("There are {MAX_NOTES} notes already."));
    }
    let Some(after) = change(before.as_ref().map(|note| note.text.as_str())) else {
        return Err(format!("{shown} has no such line."));
    };
    if after.len() > MAX_NOTE_BYTES {
        return Err(format!("{shown} is full. Delete what is no longer true."));
    }
    let files = env.files.without_editor();
    let written = files.write(&place, before.as_ref(), &after, cancel).await;
    written.map_err(|error| format!("{shown} {error}."))?;
    Ok(shown)
}

/// The date of the user's clock.
fn today() -> String {
    text::first_chars(&local_time(SystemTime::now()), "2026-01-01".len()).to_owned()
}

/// The beginning of the commit that is checked out in the repository of a folder, after a comma. Blocks.
fn commit_of(folder: &Path) -> String {
    let found = folder.ancestors().find_map(|folder| GitRepository::at(folder).transpose());
    let commit = found.and_then(|repository| repository.ok()?.head_commit());
    commit.map(|name| format!(", {}", text::first_chars(&name, COMMIT_DIGITS))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_of_the_command_is_marked_and_once() {
        let note =
            "# Commands\n\n- `make a` (evidence: exit 0)\r\n- `make` (evidence: exit 0)\nmake\n";
        let marked = with_mark(note, "make", "2026-02-03").unwrap();
        let line = "- `make` (evidence: exit 0) [failed 2026-02-03]\n";
        assert_eq!(marked, note.replace("- `make` (evidence: exit 0)\n", line));
        assert!(has_unmarked(note, "make a") && !has_unmarked(&marked, "make"));
        assert!(!has_unmarked(note, "mak"));
        let marked = with_mark(note, "make a", "x").unwrap();
        assert!(marked.contains("- `make a` (evidence: exit 0) [failed x]\r\n"), "{marked:?}");
    }
}
