//! Lines that the user keeps in the notes of the project: commands that worked, and corrections. The user asks for each
//! of them, so they are written without a call of the model.

use std::time::SystemTime;

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::ToolEnv;
use super::memory::{list, read_before_change};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;
use turnwright_types::timestamp::local_time;
use turnwright_workspace::memory::{self, MAX_NOTE_BYTES, MAX_NOTES, NoteFolder};

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
    // A replay writes nothing into the project of the recording.
    if env.shared.process.outside.project().is_some() {
        return Err("Nothing is written in a replay.".to_owned());
    }
    let words = text::one_line(words);
    if let Some(what) = memory::find_secret(&words) {
        return Err(format!(
            "The text holds what looks like {what}. Notes are plain files that later sessions send to a model."
        ));
    }
    let roots = env.files.roots();
    let notes = NoteFolder::of_project(roots.real_cwd());
    let place = roots.resolve(notes.path(note.name));
    let file = roots.display_path(&place);
    let before = read_before_change(env, &notes, &place, note.name).await?;
    if before.is_none() && list(&[notes]).await.len() >= MAX_NOTES {
        return Err(format!("There are {MAX_NOTES} notes already."));
    }
    // The file does not control a terminal that shows it.
    let [shown, why] = [words.as_str(), evidence].map(escape_hidden_line);
    let line = format!("- {shown} (evidence: {why}, {})", today());
    let lines = before.as_ref().map_or("", |note| note.text.trim_end());
    let after = match lines {
        "" => format!("{}\n\n{line}\n", note.heading),
        lines => format!("{lines}\n{line}\n"),
    };
    if after.len() > MAX_NOTE_BYTES {
        return Err(format!("{file} is full. Delete what is no longer true."));
    }
    let files = env.files.without_editor();
    let written = files.write(&place, before.as_ref(), &after, cancel).await;
    written.map_err(|error| format!("{file} {error}."))?;
    Ok(format!(
        "Noted in `{file}`:\n\n{line}\n\nDelete the line there to take it back; `/undo` does not."
    ))
}

/// The date of the user's clock.
fn today() -> String {
    text::first_chars(&local_time(SystemTime::now()), "2026-01-01".len()).to_owned()
}
