//! `write_file`: a whole new content, or more at the end.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx, change};
use turnwright_workspace::checkpoint::Foreseen;
use turnwright_workspace::edit::omission;
use turnwright_types::effect::{CallView, Content, Effect, Kind, Location, Target, visible_line};
use turnwright_workspace::files::{FileError, Roots, Text, Written};
use turnwright_policy::permission::Pass;

#[derive(Debug)]
pub(super) struct WriteFile;

/// Write a text file: create it, replace its content or append. Split content of more than 2000
/// characters: write the first part, then append.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// File
    #[serde(alias = "file_path", alias = "file")]
    path: String,
    /// The content
    #[serde(alias = "contents", alias = "text")]
    content: String,
    /// Default: overwrite
    #[serde(default)]
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Overwrite,
    Append,
}

/// The text before and after.
#[derive(Debug, Default)]
pub(super) struct Change {
    before: Option<Text>,
    after: String,
}

impl Tool for WriteFile {
    const NAME: &'static str = "write_file";
    const KIND: Kind = Kind::Edit;
    const VERB: &'static str = "Write file";
    type Args = Args;
    type Seen = Change;

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        vec![PathBuf::from(&args.path)]
    }

    fn view(&self, args: &Args, places: &[Target], roots: &Roots) -> CallView {
        let verb = if args.mode == Mode::Append { "Append to" } else { "Write" };
        view(verb, places, roots)
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
            return Err("write_file needs a `path`. Nothing was written.".to_owned());
        };
        let before = match ctx.bench.files.read(target).await {
            Ok(text) => Some(text),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(format!("{} {error}. Nothing was written.", args.path)),
        };
        if let (Some(text), Mode::Overwrite) = (&before, args.mode)
            && let Some(regions) = change::since_read(ctx, target, text).await
        {
            return Err(change::stale(&args.path, text, &regions));
        }
        let path = ctx.bench.files.roots().shown(target);
        let (content, mode) = (args.content.clone(), args.mode);
        // The texts may be long.
        let work = tokio::task::spawn_blocking(move || plan(path, before, content, mode));
        work.await.map_err(|error| error.to_string())?
    }

    fn foresees<'a>(&self, seen: &'a Change, places: &'a [Target]) -> Vec<Foreseen<'a>> {
        let before = seen.before.as_ref();
        let after = Some((seen.after.as_str(), before.map(|it| it.form).unwrap_or_default()));
        places.iter().map(|it| Foreseen { path: &it.path, before, after }).collect()
    }

    async fn run(&self, args: Args, seen: Change, pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let Some(Effect::Write(target)) = pass.effects().first() else {
            return Outcome::failed("Nothing was written: there is no permission for it.");
        };
        if !change::is_still(&args.path, target, ctx).await {
            return change::unwritten(&args.path, &FileError::Moved);
        }
        let before = seen.before.as_ref();
        let written = ctx.bench.files.write(target, before, &seen.after, &ctx.cancel).await;
        let Written { text: now, is_confirmed } = match written {
            Ok(written) => written,
            Err(error) => return change::unwritten(&args.path, &error),
        };
        let (verb, done) = match (&seen.before, args.mode) {
            (None, _) => ("Create", "Created"),
            (Some(_), Mode::Append) => ("Append to", "Appended to"),
            (Some(_), Mode::Overwrite) => ("Write", "Replaced"),
        };
        let bytes = now.text.len();
        let path = ctx.bench.files.roots().shown(target);
        let work = tokio::task::spawn_blocking(move || {
            let Change { before, after } = seen;
            let diff =
                change::rewritten(path, before.as_ref().map(|it| it.text.as_str()), &now.text);
            (now.text.lines().count(), now.text != after, diff)
        });
        let Ok((lines, is_changed, diff)) = work.await else {
            return Outcome::failed(format!("{done} {}; what is there is not known.", args.path));
        };
        let mut text = format!("{done} {}: {lines} lines, {bytes} bytes.", args.path);
        if !is_confirmed {
            text.push_str(" The editor took the text but does not show it yet.");
        } else if is_changed {
            text.push_str(
                " The editor changed the text when it saved it: read it before you edit.",
            );
        }
        Outcome {
            ok: true,
            raw: json!({ "result": text, "lines": lines, "bytes": bytes }),
            text,
            view: Some(view(verb, std::slice::from_ref(target), ctx.bench.files.roots())),
            content: vec![diff],
            images: Vec::new(),
        }
    }
}

/// What is to be written, and how it is shown.
fn plan(
    path: PathBuf,
    before: Option<Text>,
    content: String,
    mode: Mode,
) -> Result<(Change, Vec<Content>), String> {
    let old = before.as_ref().map(|it| it.text.as_str());
    if let Some(line) = omission::find(&content, old.unwrap_or_default()) {
        return Err(left_out(&content, line));
    }
    let after = match (&before, mode) {
        (Some(before), Mode::Append) => format!("{}{}", before.text, before.adapt(&content)),
        (Some(before), Mode::Overwrite) => before.adapt(&content),
        (None, _) => content,
    };
    let diff = change::rewritten(path, old, &after);
    Ok((Change { before, after }, vec![diff]))
}

/// Why words that stand for lines are not written in their place.
fn left_out(content: &str, line: usize) -> String {
    let words = content.lines().nth(line - 1).unwrap_or_default().trim();
    format!(
        "Line {line} of `content` stands for lines that were left out: {}. Nothing was written: \
         they would be lost. Send the whole text, or change a part with edit_file.",
        visible_line(&words.chars().take(120).collect::<String>())
    )
}

fn view(verb: &str, places: &[Target], roots: &Roots) -> CallView {
    let location = |it| Location { path: roots.shown(it), line: Some(1) };
    CallView {
        title: places.first().map_or(verb.to_owned(), |it| format!("{verb} {}", roots.short(it))),
        kind: WriteFile::KIND,
        locations: places.iter().map(location).collect(),
    }
}
