//! `edit_file`: replaces pieces of a text file that the model quotes.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::change;
use super::{Bench, Offer, Outcome, Tool, ToolCtx};
use turnwright_workspace::checkpoint::Foreseen;
use turnwright_workspace::edit::{self, Applied, Edit, Reason, Refusal, spots};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Location, Target};
use turnwright_workspace::files::{FileError, Roots, Text};
use turnwright_types::message::ToolSpec;
use turnwright_policy::permission::Pass;

#[derive(Debug)]
pub(super) struct EditFile;

/// Replace pieces of a text file. Each old_text must be copied exactly and be there once. All edits
/// are made or none.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// File
    #[serde(alias = "file_path", alias = "file")]
    path: String,
    /// Replacements, made one after another
    #[serde(default)]
    edits: Vec<Piece>,
    // One replacement without a list, as models write it that are used to that.
    #[serde(default, alias = "old_string", alias = "old_str", alias = "oldText")]
    #[schemars(skip)]
    old_text: Option<String>,
    #[serde(default, alias = "new_string", alias = "new_str", alias = "newText")]
    #[schemars(skip)]
    new_text: Option<String>,
    #[serde(default, alias = "replaceAll")]
    #[schemars(skip)]
    replace_all: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Piece {
    /// The piece as it is, with enough lines to be unique
    #[serde(alias = "old_string", alias = "old_str", alias = "oldText")]
    old_text: String,
    /// What is to stand in its place
    #[serde(alias = "new_string", alias = "new_str", alias = "newText")]
    new_text: String,
    /// Replace it wherever it is (default false)
    #[serde(default, alias = "replaceAll")]
    replace_all: Option<bool>,
}

impl Args {
    /// The edits, however they came.
    fn edits(&self) -> Vec<Edit> {
        let edit = |old: &str, new: &str, all: Option<bool>| Edit {
            old: old.to_owned(),
            new: new.to_owned(),
            all: all.unwrap_or(false),
        };
        let mut edits: Vec<_> =
            self.edits.iter().map(|it| edit(&it.old_text, &it.new_text, it.replace_all)).collect();
        if let (Some(old), Some(new)) = (&self.old_text, &self.new_text) {
            edits.push(edit(old, new, self.replace_all));
        }
        edits
    }
}

/// The change that is to be made.
#[derive(Debug, Default)]
pub(super) struct Change {
    before: Option<Text>,
    applied: Applied,
    /// The lines that somebody else has changed, if what was quoted is still there.
    changed: Option<Vec<(usize, usize)>>,
}

impl Tool for EditFile {
    const NAME: &'static str = "edit_file";
    const KIND: Kind = Kind::Edit;
    const VERB: &'static str = "Edit file";
    type Args = Args;
    type Seen = Change;

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        vec![PathBuf::from(&args.path)]
    }

    /// The list is what models are told to send, though one edit without it is taken.
    fn adapt(&self, spec: &mut ToolSpec, _: &Offer) {
        if let Some(Value::Array(required)) = spec.parameters.get_mut("required") {
            required.push("edits".into());
        }
    }

    fn view(&self, _: &Args, places: &[Target], roots: &Roots) -> CallView {
        view(places, roots, None)
    }

    fn effects(&self, _: &Args, places: &[Target]) -> Vec<Effect> {
        places.iter().cloned().map(Effect::Write).collect()
    }

    async fn look(
        &self,
        args: &Args,
        places: &[Target],
        ctx: &ToolCtx,
    ) -> Result<(Change, Vec<Content>), String> {
        let Some(target) = places.first() else {
            return Err("edit_file needs a `path`. Nothing was written.".to_owned());
        };
        let before = match ctx.bench.files.read(target).await {
            Ok(text) => text,
            Err(error) => return Err(change::unreadable(&args.path, target, error, ctx).await),
        };
        let changed = change::since_read(ctx, target, &before).await;
        let may_quote = change::may_quote(ctx, target, &before).await;
        let edits = args.edits();
        let of = edits.len();
        let path = ctx.bench.files.roots().shown(target);
        // Looking for a quotation takes its time.
        let work = tokio::task::spawn_blocking(move || {
            let result =
                edit::apply(&before.text, &edits).map(|it| (shown(path, &before, &it), it));
            (before, result)
        });
        let (before, result) = work.await.map_err(|error| error.to_string())?;
        let (diff, applied) = match (result, &changed) {
            (Ok((_, applied)), Some(lines)) if !change::is_exact(&applied) => {
                return Err(change::stale(&args.path, &before, lines));
            }
            (Ok(result), _) => result,
            (Err(Refusal { reason: Reason::Nowhere { .. }, .. }), Some(lines)) => {
                return Err(change::stale(&args.path, &before, lines));
            }
            (Err(Refusal { reason: Reason::Nowhere { .. } | Reason::Several { .. }, .. }), _)
                if !may_quote =>
            {
                return Err(change::unquoted(&args.path));
            }
            (Err(refusal), _) => return Err(refusal.explain(&args.path, of)),
        };
        Ok((Change { before: Some(before), applied, changed }, vec![diff]))
    }

    fn foresees<'a>(&self, seen: &'a Change, places: &'a [Target]) -> Vec<Foreseen<'a>> {
        let before = seen.before.as_ref();
        let after = before.map(|it| (seen.applied.text.as_str(), it.form));
        places.iter().map(|it| Foreseen { path: &it.path, before, after }).collect()
    }

    async fn run(&self, args: Args, seen: Change, pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let Change { before, applied, changed } = seen;
        let (Some(Effect::Write(target)), Some(before)) = (pass.effects().first(), before) else {
            return Outcome::failed("Nothing was written: there is no permission for it.");
        };
        if !change::is_still(&args.path, target, ctx).await {
            return change::unwritten(&args.path, &FileError::Moved);
        }
        let files = &ctx.bench.files;
        let written = files.write(target, Some(&before), &applied.text, &ctx.cancel).await;
        let written = match written {
            Ok(written) => written,
            Err(error) => return change::unwritten(&args.path, &error),
        };
        let (path, target, roots) =
            (files.roots().shown(target), target.clone(), files.roots().clone());
        // The texts may be long.
        let work = tokio::task::spawn_blocking(move || {
            let reformatted = change::reformatted(&before.text, &applied, &written);
            let is_reformatted = reformatted.is_some();
            let applied = reformatted.unwrap_or(applied);
            let text = told(&args.path, &applied, changed.as_deref(), is_reformatted);
            let content = vec![shown(path, &before, &applied)];
            let raw = json!({
                "result": headline(&args.path, &applied),
                "added": applied.count.added,
                "removed": applied.count.removed,
                "places": applied.done.iter().map(|it| it.places).sum::<usize>(),
            });
            let view = Some(view(std::slice::from_ref(&target), &roots, Some(&applied)));
            Outcome { ok: true, raw, text, view, content, images: Vec::new() }
        });
        work.await.unwrap_or_else(|it| Outcome::failed(format!("The file was written; then: {it}")))
    }
}

fn shown(path: PathBuf, before: &Text, applied: &Applied) -> Content {
    let room = &mut { change::MOST_BYTES };
    change::diff(path, Some(&before.text), &applied.text, &applied.spots, room)
}

/// What the model is told: what was done, what else has changed, and the lines as they are now.
fn told(
    name: &str,
    applied: &Applied,
    changed: Option<&[(usize, usize)]>,
    is_reformatted: bool,
) -> String {
    let mut text = headline(name, applied);
    if let Some(lines) = changed {
        text.push_str("\nThe file changed since you read it; the edit still matched.");
        let lines = change::spans(lines);
        if !lines.is_empty() {
            text.push_str(&format!(" Changed lines: {lines}."));
        }
    }
    if is_reformatted {
        text.push_str("\nThe editor changed more when it saved the file; this is what is there:");
    }
    text.push('\n');
    text.push_str(&spots::show(&applied.text, &applied.spots, &mut { spots::MOST_LINES }));
    text
}

fn headline(name: &str, applied: &Applied) -> String {
    let edits = applied.done.len();
    let (unit, count) = (if edits == 1 { "edit" } else { "edits" }, applied.count);
    let rungs = change::rungs(applied);
    format!("Applied {edits} {unit} to {name} (+{} −{}). {rungs}", count.added, count.removed)
}

fn view(places: &[Target], roots: &Roots, applied: Option<&Applied>) -> CallView {
    let line = Some(applied.map_or(1, change::first_line));
    let location = |it| Location { path: roots.shown(it), line };
    let mut title =
        places.first().map_or("Edit file".to_owned(), |it| format!("Edit {}", roots.short(it)));
    if let Some(applied) = applied {
        title.push_str(&format!(" (+{} −{})", applied.count.added, applied.count.removed));
    }
    CallView { title, kind: Kind::Edit, locations: places.iter().map(location).collect() }
}
