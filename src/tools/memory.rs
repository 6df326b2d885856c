//! `memory`: notes that outlive the session. Reading them needs no permission; each change is asked
//! about and shown like an edit of a file. Lines that the user keeps with `/remember` are written without a call.

use std::sync::Arc;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{CONTENT, NAME, ShownArgument};
use super::{CallPlan, CallSite, Previewed, Tool, ToolAnswer, ToolCtx, ToolEnv, ToolOutcome};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{
    CallContent, CallView, Effect, FileFate, Location, ResolvedPath, ToolKind, escape_hidden_line,
};
use turnwright_types::ids::is_slug;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::timestamp::{local_day, local_time};
use turnwright_workspace::files::{FileError, FileText};
use turnwright_workspace::memory::{self, MAX_NOTE_BYTES, MAX_NOTES, NoteFolder, NoteOwner};

/// Markdown notes for later sessions: what the user wants remembered, what was hard to find out.
/// No secrets.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Memory {
    action: NoteAction,
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("enum" = ["project", "user"]))]
    scope: NoteOwner,
    /// a-z, 0-9 and hyphens
    #[serde(alias = "key")]
    name: Option<String>,
    /// The text to write or append
    #[serde(alias = "text")]
    content: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum NoteAction {
    List,
    Read,
    Write,
    Append,
    Delete,
}

/// The text before and after; `after` is `None` if the note is deleted.
#[derive(Debug, Default)]
pub(super) struct NoteChange {
    before: Option<FileText>,
    after: Option<String>,
    diff: Vec<CallContent>,
}

impl Memory {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default().trim()
    }

    fn changes(&self) -> bool {
        matches!(self.action, NoteAction::Write | NoteAction::Append | NoteAction::Delete)
    }

    fn folder(&self, env: &ToolEnv) -> Option<NoteFolder> {
        note_folders(env).into_iter().find(|folder| folder.scope == self.scope)
    }

    fn check_name(&self) -> Result<&str, ToolRefusal> {
        match self.name() {
            name if is_slug(name) => Ok(name),
            "" => Err("memory needs the `name` of a note, such as build-commands.".into()),
            name => Err(format!(
                "\"{}\" is no name of a note: use a-z, 0-9 and hyphens. Call it {}.",
                clip_name(name),
                memory::suggest_name(name)
            )
            .into()),
        }
    }
}

impl Tool for Memory {
    const NAME: &'static str = "memory";
    const KIND: ToolKind = ToolKind::Think;
    const PENDING_TITLE: &'static str = "Memory";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[NAME, CONTENT];
    type Preview = NoteChange;

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let (verb, kind) = match self.action {
            NoteAction::List | NoteAction::Read => ("Recall", ToolKind::Think),
            NoteAction::Write | NoteAction::Append => ("Remember", ToolKind::Edit),
            NoteAction::Delete => ("Forget", ToolKind::Delete),
        };
        let name = if self.action == NoteAction::List { "notes" } else { self.name() };
        let title = format!("{verb}: {}", clip_name(name));
        let mut view = CallView::new(title, kind);
        let is_change = self.changes() && self.check_name().is_ok();
        let Some(folder) = self.folder(site.env).filter(|_| is_change) else {
            // It only reads notes, or it is invalid and `preview` reports that.
            return CallPlan::in_session(view);
        };
        let place = site.resolve(folder.path(self.name()));
        view.locations.push(Location { path: site.roots().client_path(&place), line: None });
        let is_deletion = self.action == NoteAction::Delete;
        let effect = if is_deletion { Effect::Delete(place) } else { Effect::Write(place) };
        CallPlan { view, effects: vec![effect] }
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<NoteChange> {
        let name = if self.action == NoteAction::List { "" } else { self.check_name()? };
        if !self.changes() {
            return Ok(Default::default());
        }
        let (Some(place), Some(folder)) = (targets.first(), self.folder(&ctx.env)) else {
            return Err(nothing_changed("There is no folder for such notes."));
        };
        let reading = read_before_change(&ctx.env, &folder, place, name);
        let before = reading.await.map_err(nothing_changed)?;
        let after = match self.action {
            NoteAction::Delete if before.is_none() => {
                return Err(nothing_changed(format!("There is no note {name}.")));
            }
            NoteAction::Delete => None,
            _ => {
                let content = self.content.as_deref().unwrap_or_default();
                let kept = before.as_ref().filter(|_| self.action == NoteAction::Append);
                Some(new_note_text(content, kept).map_err(nothing_changed)?)
            }
        };
        if before.is_none() && list(&[folder]).await.len() >= MAX_NOTES {
            return Err(nothing_changed(format!(
                "There are {MAX_NOTES} notes already, which is all there can be. Put this into \
                 one of them, or delete one."
            )));
        }
        let diff = vec![CallContent::Diff {
            path: ctx.env.files.roots().client_path(place),
            old: before.as_ref().map(|note| note.text.clone()),
            new: after.clone().unwrap_or_default(),
            fate: if after.is_some() { FileFate::Kept } else { FileFate::Deleted },
        }];
        Ok((NoteChange { before, after, diff: diff.clone() }, diff))
    }

    async fn run(self, planned: NoteChange, pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        match (self.action, pass.effects().first()) {
            (NoteAction::List, _) => Ok(list_notes(ctx).await),
            (NoteAction::Read, _) => read(&self, ctx).await,
            (_, Some(Effect::Write(place))) => write(self.name(), place, planned, ctx).await,
            (_, Some(Effect::Delete(place))) => delete(self.name(), place, planned, ctx).await,
            _ => Err("Nothing was changed: there is no permission for it.".into()),
        }
    }
}

/// Reads a note that is to be changed; `None` if there is none yet. An error says why it cannot be changed.
async fn read_before_change(
    env: &ToolEnv,
    folder: &NoteFolder,
    place: &ResolvedPath,
    name: &str,
) -> Result<Option<FileText>, String> {
    let checked = folder.clone();
    let path = place.path.clone();
    if !spawn_blocking(move || checked.allows(&path)).await.unwrap_or(false) {
        return Err(format!(
            "The file of {name} is a link to a place outside the notes, or another name of a file there."
        ));
    }
    match env.files.without_editor().read(place).await {
        Ok(text) => Ok(Some(text)),
        Err(FileError::NotFound) => Ok(None),
        Err(error) => Err(format!("{name} {error}.")),
    }
}

/// Why a note does not get the same words twice.
const SAID_ALREADY: &str = "The note says this already.";

fn nothing_changed(why: impl Into<ToolRefusal>) -> ToolRefusal {
    ToolRefusal::from(why.into().for_model + " Nothing was changed.")
}

/// The new text of a note, of which the text before is kept if there is one.
fn new_note_text(content: &str, kept: Option<&FileText>) -> Result<String, ToolRefusal> {
    let content = content.trim_end();
    if content.is_empty() {
        return Err("memory needs the `content` of the note.".into());
    }
    if content.contains('\0') {
        return Err(super::arguments::NUL_REFUSAL.into());
    }
    // Checked first, because searching a long text for secrets takes a while.
    check_length(content.len())?;
    if let Some(what) = memory::find_secret(content) {
        return Err(format!(
            "The text holds what looks like {what}. Notes are plain files that later sessions \
             send to a model: say where it is kept instead."
        )
        .into());
    }
    let known = kept.map_or("", |note| note.text.as_str());
    if content.lines().all(|line| known.lines().any(|other| other == line)) {
        return Err(SAID_ALREADY.into());
    }
    let after = match kept.map(|note| note.text.trim_end()) {
        None | Some("") => format!("{content}\n"),
        Some(kept) => format!("{kept}\n{content}\n"),
    };
    check_length(after.len())?;
    Ok(after)
}

fn check_length(bytes: usize) -> Result<(), ToolRefusal> {
    if bytes <= MAX_NOTE_BYTES {
        return Ok(());
    }
    Err(format!(
        "The note would have {bytes} bytes; {MAX_NOTE_BYTES} is the most. Shorten it or split it."
    )
    .into())
}

async fn write(name: &str, place: &ResolvedPath, planned: NoteChange, ctx: &ToolCtx) -> ToolAnswer {
    let Some(after) = planned.after else {
        return Err("Nothing was written: there is nothing to write.".into());
    };
    let files = ctx.env.files.without_editor();
    let written = files.write(place, planned.before.as_ref(), &after, &ctx.cancel).await;
    written.map_err(|error| format!("{name} {error}"))?;
    let done = if planned.before.is_some() { "Changed" } else { "Noted" };
    let text = format!("{done}: {name}, {} bytes.", after.len());
    Ok(ToolOutcome { content: planned.diff, ..text_outcome(text) })
}

async fn delete(
    name: &str,
    place: &ResolvedPath,
    planned: NoteChange,
    ctx: &ToolCtx,
) -> ToolAnswer {
    let files = ctx.env.files.without_editor();
    let now = files.read(place).await.map_err(|error| format!("{name} {error}"))?;
    // Only the text that the user has seen is deleted.
    if Some(&now) != planned.before.as_ref() {
        return Err(format!("{name} {}", FileError::Stale).into());
    }
    let removed = files.remove(place, false, &ctx.cancel).await;
    removed.map_err(|error| format!("{name} {error}"))?;
    Ok(ToolOutcome { content: planned.diff, ..text_outcome(format!("Forgotten: {name}.")) })
}

async fn list_notes(ctx: &ToolCtx) -> ToolOutcome {
    let notes = list(&note_folders(&ctx.env)).await;
    if notes.is_empty() {
        return text_outcome("There are no notes yet.".to_owned());
    }
    let lines: Vec<_> = notes
        .iter()
        .map(|note| format!("{}/{} – {}\n", note.scope.id(), note.name, note.title))
        .collect();
    text_outcome(lines.concat())
}

/// Reads a note: the one of the given scope if it exists, else the one of that name in the other.
async fn read(args: &Memory, ctx: &ToolCtx) -> ToolAnswer {
    let env = Arc::clone(&ctx.env);
    let name = args.name().to_owned();
    let first = args.folder(&ctx.env).map(|folder| folder.scope);
    let found = spawn_blocking(move || {
        let mut folders = note_folders(&env);
        folders.sort_by_key(|folder| Some(folder.scope) != first);
        folders.into_iter().find_map(|folder| Some((folder.scope, folder.read(&name)?)))
    });
    let Ok(Some((scope, note))) = found.await else {
        let notes = list(&note_folders(&ctx.env)).await;
        let known: Vec<_> = notes.into_iter().map(|note| note.name).collect();
        let names = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(format!("There is no note {}. There are: {names}.", args.name()).into());
    };
    let cut = if note.is_complete { "" } else { "\n[cut: the file is longer]" };
    Ok(text_outcome(format!(
        "Note {}/{} of {}. The user's words count more.\n\n{}{cut}",
        scope.id(),
        args.name(),
        note.modified.map(local_day).unwrap_or_default(),
        note.text
    )))
}

async fn list(folders: &[NoteFolder]) -> Vec<memory::Note> {
    let folders = folders.to_vec();
    let listing =
        spawn_blocking(move || folders.iter().flat_map(NoteFolder::list).collect::<Vec<_>>());
    listing.await.unwrap_or_default()
}

fn text_outcome(text: String) -> ToolOutcome {
    let raw = json!({ "bytes": text.len() });
    ToolOutcome::done_as_shown(text, raw)
}

fn clip_name(name: &str) -> String {
    text::cut(escape_hidden_line(name), 100)
}

/// The folders of notes, the project's first.
pub(crate) fn note_folders(env: &ToolEnv) -> Vec<NoteFolder> {
    let cwd = env.files.roots().real_cwd();
    let user = env.shared.process.folders.config_folder().map(NoteFolder::of_user);
    std::iter::once(NoteFolder::of_project(cwd)).chain(user).collect()
}

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

/// Adds a line to a note, with its evidence. The user asks for it, so no call is made. Returns the answer for the user,
/// or why nothing was written.
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
    let roots = env.files.roots();
    let folder = NoteFolder::of_project(roots.real_cwd());
    let place = roots.resolve(folder.path(note.name));
    let before = read_before_change(env, &folder, &place, note.name).await?;
    if before.is_none() && list(&[folder]).await.len() >= MAX_NOTES {
        return Err(format!("There are {MAX_NOTES} notes already."));
    }
    let words = text::one_line(words);
    // The file does not control a terminal that shows it.
    let [shown, why] = [words.as_str(), evidence].map(escape_hidden_line);
    let today = text::first_chars(&local_time(SystemTime::now()), "2026-01-01".len()).to_owned();
    let begin = format!("- {shown} (evidence: ");
    if before.as_ref().is_some_and(|note| note.text.contains(&begin)) {
        return Err(SAID_ALREADY.to_owned());
    }
    let line = format!("{begin}{why}, {today})");
    let is_new = before.as_ref().is_none_or(|note| note.text.trim().is_empty());
    let content = if is_new { format!("{}\n\n{line}", note.heading) } else { line.clone() };
    let after = new_note_text(&content, before.as_ref()).map_err(|why| why.for_model)?;
    let file = roots.display_path(&place);
    let files = env.files.without_editor();
    let written = files.write(&place, before.as_ref(), &after, cancel).await;
    written.map_err(|error| format!("{file} {error}."))?;
    Ok(format!(
        "Noted in `{file}`:\n\n{line}\n\nDelete the line there to take it back; `/undo` does not."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_too_long_text_is_refused_before_it_is_searched_for_secrets() {
        let content = format!("{}\ntoken: k3x9-v8b2-m4n7", "pwd:".repeat(MAX_NOTE_BYTES));
        assert!(new_note_text(&content, None).unwrap_err().for_model.contains("16384 is the most"));
    }
}
