//! `memory`: notes that outlive the session. Reading them is free; each change is asked about
//! and shown like the edit it is.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::lore::folders_of_notes;
use super::{Bench, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Location, Target, visible_line};
use turnwright_workspace::files::{FileError, Roots, Text};
use turnwright_types::ids::is_slug;
use turnwright_workspace::memory::{self, LONGEST_NOTE, MOST_NOTES, Notes, Scope};
use turnwright_policy::permission::Pass;

#[derive(Debug)]
pub(super) struct Memory;

/// Notes in Markdown that later sessions see: what the user wants remembered, what was hard to
/// find out. Never keys or passwords.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// What to do
    action: Action,
    /// For this project (default) or for all of the user's
    #[serde(default)]
    scope: NoteScope,
    /// The note, such as `build-commands`
    #[serde(alias = "key")]
    name: Option<String>,
    /// The text, for write and append
    #[serde(alias = "text")]
    content: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Action {
    List,
    Read,
    Write,
    Append,
    Delete,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum NoteScope {
    #[default]
    Project,
    User,
}

/// The text before and after; nothing after is a note that goes.
#[derive(Debug, Default)]
pub(super) struct Change {
    before: Option<Text>,
    after: Option<String>,
}

impl Args {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default().trim()
    }

    fn changes(&self) -> bool {
        matches!(self.action, Action::Write | Action::Append | Action::Delete)
    }

    fn folder(&self, bench: &Bench) -> Option<Notes> {
        let scope = match self.scope {
            NoteScope::Project => Scope::Project,
            NoteScope::User => Scope::User,
        };
        folders_of_notes(bench).into_iter().find(|it| it.scope == scope)
    }

    fn check_name(&self) -> Result<&str, String> {
        match self.name() {
            name if is_slug(name) => Ok(name),
            "" => Err("memory needs the `name` of a note, such as build-commands.".to_owned()),
            name => Err(format!(
                "\"{}\" is no name of a note: it takes a-z, 0-9 and hyphens. Call it {}.",
                clipped(name),
                memory::name_from(name)
            )),
        }
    }
}

impl Tool for Memory {
    const NAME: &'static str = "memory";
    const KIND: Kind = Kind::Think;
    const VERB: &'static str = "Memory";
    type Args = Args;
    type Seen = Change;

    fn paths(&self, args: &Args, bench: &Bench) -> Vec<PathBuf> {
        if !args.changes() || args.check_name().is_err() {
            return Vec::new();
        }
        args.folder(bench).map(|it| it.path(args.name())).into_iter().collect()
    }

    fn view(&self, args: &Args, places: &[Target], roots: &Roots) -> CallView {
        let (verb, kind) = match args.action {
            Action::List | Action::Read => ("Recall", Kind::Think),
            Action::Write | Action::Append => ("Remember", Kind::Edit),
            Action::Delete => ("Forget", Kind::Delete),
        };
        let name = if args.action == Action::List { "notes" } else { args.name() };
        let location = |it| Location { path: roots.shown(it), line: None };
        CallView {
            title: format!("{verb}: {}", clipped(name)),
            kind,
            locations: places.iter().map(location).collect(),
        }
    }

    fn effects(&self, args: &Args, places: &[Target]) -> Vec<Effect> {
        match places.first().cloned() {
            Some(place) if args.action == Action::Delete => vec![Effect::Delete(place)],
            Some(place) => vec![Effect::Write(place)],
            // Reads nothing but notes; or makes no sense, and `look` says so.
            None => vec![Effect::Session],
        }
    }

    async fn look(
        &self,
        args: &Args,
        places: &[Target],
        ctx: &ToolCtx,
    ) -> Result<(Change, Vec<Content>), String> {
        if args.action == Action::List {
            return Ok(Default::default());
        }
        let name = args.check_name()?;
        if args.action == Action::Read {
            return Ok(Default::default());
        }
        let nothing = |why: String| format!("{why} Nothing was changed.");
        let (Some(place), Some(folder)) = (places.first(), args.folder(&ctx.bench)) else {
            return Err(nothing("There is no folder for such notes.".to_owned()));
        };
        if !folder.holds(&place.path) {
            return Err(nothing(format!("The file of {name} is a link that leads elsewhere.")));
        }
        let before = match ctx.bench.files.without_editor().read(place).await {
            Ok(text) => Some(text),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(nothing(format!("{name} {error}."))),
        };
        let after = match args.action {
            Action::Delete if before.is_none() => {
                return Err(nothing(format!("There is no note {name}.")));
            }
            Action::Delete => None,
            _ => Some(changed(args, before.as_ref()).map_err(nothing)?),
        };
        if before.is_none() && list(&[folder]).await.len() >= MOST_NOTES {
            return Err(nothing(format!(
                "There are {MOST_NOTES} notes already, which is all there can be. Put this into \
                 one of them, or delete one."
            )));
        }
        let diff = Content::Diff {
            path: ctx.bench.files.roots().shown(place),
            old: before.as_ref().map(|it| it.text.clone()),
            new: after.clone().unwrap_or_default(),
        };
        Ok((Change { before, after }, vec![diff]))
    }

    async fn run(&self, args: Args, seen: Change, pass: &Pass, ctx: &ToolCtx) -> Outcome {
        match (args.action, pass.effects().first()) {
            (Action::List, _) => list_notes(ctx).await,
            (Action::Read, _) => read(&args, ctx).await,
            (_, Some(Effect::Write(place))) => write(&args, place, seen, ctx).await,
            (_, Some(Effect::Delete(place))) => delete(&args, place, seen, ctx).await,
            _ => Outcome::failed("Nothing was changed: there is no permission for it."),
        }
    }
}

/// The whole text that a note is to have.
fn changed(args: &Args, before: Option<&Text>) -> Result<String, String> {
    let content = args.content.as_deref().unwrap_or_default().trim_end();
    if content.is_empty() {
        return Err("memory needs the `content` of the note.".to_owned());
    }
    // To look for secrets takes its time.
    fits(content.len())?;
    if let Some(what) = memory::secret_in(content) {
        return Err(format!(
            "The text holds what looks like {what}. Notes are plain files that later sessions \
             send to a model: say where it is kept instead."
        ));
    }
    let after = match before {
        Some(before) if args.action == Action::Append && !before.text.trim().is_empty() => {
            format!("{}\n{content}\n", before.text.trim_end())
        }
        _ => format!("{content}\n"),
    };
    fits(after.len())?;
    Ok(after)
}

fn fits(bytes: usize) -> Result<(), String> {
    if bytes <= LONGEST_NOTE {
        return Ok(());
    }
    Err(format!(
        "The note would have {bytes} bytes; {LONGEST_NOTE} is the most. Shorten it or split it."
    ))
}

async fn write(args: &Args, place: &Target, seen: Change, ctx: &ToolCtx) -> Outcome {
    let Some(after) = seen.after else {
        return Outcome::failed("Nothing was written: there is nothing to write.");
    };
    let files = ctx.bench.files.without_editor();
    let name = args.name();
    if let Err(error) = files.write(place, seen.before.as_ref(), &after, &ctx.cancel).await {
        return Outcome::failed(format!("{name} {error}"));
    }
    let done = if seen.before.is_some() { "Changed" } else { "Noted" };
    let text = format!("{done}: {name}, {} bytes.", after.len());
    let path = files.roots().shown(place);
    let old = seen.before.map(|it| it.text);
    done_with(text, vec![Content::Diff { path, old, new: after }])
}

async fn delete(args: &Args, place: &Target, seen: Change, ctx: &ToolCtx) -> Outcome {
    let name = args.name();
    let files = ctx.bench.files.without_editor();
    // What the user has agreed to lose is what goes.
    match files.read(place).await {
        Ok(now) if Some(&now) == seen.before.as_ref() => {}
        Ok(_) => return Outcome::failed(format!("{name} {}", FileError::Stale)),
        Err(error) => return Outcome::failed(format!("{name} {error}")),
    }
    if let Err(error) = files.remove(place, false, &ctx.cancel).await {
        return Outcome::failed(format!("{name} {error}"));
    }
    let path = files.roots().shown(place);
    let old = seen.before.map(|it| it.text);
    done_with(format!("Forgotten: {name}."), vec![Content::Diff { path, old, new: String::new() }])
}

async fn list_notes(ctx: &ToolCtx) -> Outcome {
    let notes = list(&folders_of_notes(&ctx.bench)).await;
    if notes.is_empty() {
        return told("There are no notes yet.".to_owned());
    }
    let line = |it: &memory::Note| format!("{}/{} – {}\n", it.scope.id(), it.name, it.title);
    told(notes.iter().map(line).collect())
}

/// A note: the one of the scope that was named, or else the one of that name.
async fn read(args: &Args, ctx: &ToolCtx) -> Outcome {
    let (bench, name) = (Arc::clone(&ctx.bench), args.name().to_owned());
    let first = args.folder(&ctx.bench).map(|it| it.scope);
    let found = blocking(move || {
        let mut folders = folders_of_notes(&bench);
        folders.sort_by_key(|it| Some(it.scope) != first);
        folders.into_iter().find_map(|it| Some((it.scope, it.get(&name)?)))
    });
    let Some(Some((scope, seen))) = found.await else {
        let notes = list(&folders_of_notes(&ctx.bench)).await;
        let names: Vec<_> = notes.into_iter().map(|it| it.name).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Outcome::failed(format!("There is no note {}. There are: {names}.", args.name()));
    };
    let date = seen.changed.map(|it| httpdate::fmt_http_date(it)[5..16].to_owned());
    let cut = if seen.is_whole { "" } else { "\n[cut: the file is longer]" };
    told(format!(
        "Note {}/{} of {}. The user's words count more.\n\n{}{cut}",
        scope.id(),
        args.name(),
        date.unwrap_or_default(),
        seen.text
    ))
}

async fn list(folders: &[Notes]) -> Vec<memory::Note> {
    let folders = folders.to_vec();
    blocking(move || folders.iter().flat_map(Notes::list).collect()).await.unwrap_or_default()
}

/// `None` when the process is ending.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

fn told(text: String) -> Outcome {
    let content = vec![Content::Text(text.clone())];
    done_with(text, content)
}

fn done_with(text: String, content: Vec<Content>) -> Outcome {
    let raw = json!({ "bytes": text.len() });
    Outcome { ok: true, text, view: None, content, raw, images: Vec::new() }
}

fn clipped(name: &str) -> String {
    visible_line(name).chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_refused_before_anything_is_looked_for_in_it() {
        let content = format!("{}\ntoken: k3x9-v8b2-m4n7", "pwd:".repeat(LONGEST_NOTE));
        let args = json!({ "action": "write", "name": "a", "content": content });
        let args: Args = serde_json::from_value(args).unwrap();
        assert!(changed(&args, None).unwrap_err().contains("16384 is the most"));
    }
}
