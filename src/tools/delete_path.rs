//! `delete_path`: removes a file, a link or a folder.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Location, Place, Target, visible_line};
use turnwright_workspace::files::{FileError, Roots, Survey, display};
use turnwright_policy::permission::Pass;

#[derive(Debug)]
pub(super) struct DeletePath;

/// Delete a file, a link (not what it points to) or a folder.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// What to delete
    #[serde(alias = "file_path", alias = "file")]
    path: String,
    /// Also what is in the folder (default false)
    #[serde(default)]
    recursive: Option<bool>,
}

impl Tool for DeletePath {
    const NAME: &'static str = "delete_path";
    const KIND: Kind = Kind::Delete;
    const VERB: &'static str = "Delete";
    type Args = Args;
    type Seen = Option<Survey>;

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        vec![PathBuf::from(&args.path)]
    }

    fn place(&self, path: PathBuf, roots: &Roots) -> Target {
        roots.entry(&path)
    }

    fn view(&self, _: &Args, places: &[Target], roots: &Roots) -> CallView {
        let location = |it| Location { path: roots.shown(it), line: None };
        let title =
            places.first().map_or("Delete".to_owned(), |it| format!("Delete {}", roots.short(it)));
        CallView { title, kind: Self::KIND, locations: places.iter().map(location).collect() }
    }

    fn effects(&self, _: &Args, places: &[Target]) -> Vec<Effect> {
        places.iter().cloned().map(Effect::Delete).collect()
    }

    async fn look(
        &self,
        args: &Args,
        places: &[Target],
        ctx: &ToolCtx,
    ) -> Result<(Option<Survey>, Vec<Content>), String> {
        let Some(target) = places.first() else {
            return Err("delete_path needs a `path`. Nothing was deleted.".to_owned());
        };
        if let Some(reason) = protected(target, ctx).await {
            return Err(format!("{} {reason}. Nothing was deleted.", args.path));
        }
        let survey = match ctx.bench.files.survey(target).await {
            Ok(survey) => survey,
            Err(error) => return Err(missing(&args.path, target, &error, ctx).await),
        };
        if survey.entries() > 0 && args.recursive != Some(true) {
            let (files, folders) = (survey.files, survey.folders);
            // What there is outside is told only to who may look.
            let what = match target.place {
                Place::Outside => "something".to_owned(),
                _ => format!("{files} files and {folders} folders"),
            };
            return Err(format!(
                "{} is a folder with {what} below it. Nothing was deleted. Set recursive to delete \
                 it with all of them.",
                args.path
            ));
        }
        if survey.is_too_deep() {
            return Err(format!(
                "{} holds folders that are nested {} deep. Nothing was deleted. Use exec with rm -r.",
                args.path, survey.depth
            ));
        }
        let content = Content::Text(list(&ctx.bench.files.roots().short(target), &survey));
        Ok((Some(survey), vec![content]))
    }

    async fn run(&self, args: Args, seen: Option<Survey>, pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let (Some(Effect::Delete(target)), Some(seen)) = (pass.effects().first(), seen) else {
            return Outcome::failed("Nothing was deleted: there is no permission for it.");
        };
        let files = &ctx.bench.files;
        match files.survey(target).await {
            Ok(now) if now == seen => {}
            Ok(_) => {
                return Outcome::failed(format!(
                    "{} changed while permission was asked; nothing was deleted.",
                    args.path
                ));
            }
            Err(error) => return Outcome::failed(format!("{} {error}", args.path)),
        }
        let recursive = args.recursive == Some(true);
        let gone = match files.remove(target, recursive, &ctx.cancel).await {
            Ok(gone) => gone,
            Err(error) => return Outcome::failed(format!("{} {error}", args.path)),
        };
        let what = match (seen.is_folder, gone) {
            (false, _) => String::new(),
            (true, 0) => " (an empty folder)".to_owned(),
            (true, 1) => " (a folder with 1 file)".to_owned(),
            (true, count) => format!(" (a folder with {count} files)"),
        };
        let text = format!("Deleted {}{what}.", args.path);
        let mut view = self.view(&args, std::slice::from_ref(target), files.roots());
        if seen.is_folder {
            view.title.push_str(&format!(" ({gone} files)"));
        }
        Outcome {
            ok: true,
            raw: json!({ "result": text, "files": gone }),
            text,
            view: Some(view),
            content: vec![Content::Text(list(&files.roots().short(target), &seen))],
            images: Vec::new(),
        }
    }
}

/// What goes.
fn list(name: &str, survey: &Survey) -> String {
    let mut text = match (survey.is_folder, survey.is_link) {
        (true, _) => format!("{name}/"),
        (false, true) => format!("{name} (the link, not what it points to)"),
        (false, false) => name.to_owned(),
    };
    for below in &survey.names {
        text.push_str(&format!("\n{name}/{}", visible_line(&below.to_string_lossy())));
    }
    let more = survey.entries() - survey.names.len();
    if more > 0 {
        let least = if survey.is_cut() { "at least " } else { "" };
        text.push_str(&format!("\nand {least}{more} more"));
    }
    text
}

/// Why something must stay where it is.
pub(super) async fn protected(target: &Target, ctx: &ToolCtx) -> Option<&'static str> {
    if target.path.file_name().is_some_and(|it| it == ".git") {
        return Some("holds the history of the project and stays");
    }
    match ctx.bench.files.holds_root(target).await {
        Ok(false) => None,
        Ok(true) => Some("holds the folder of this session and stays"),
        Err(_) => Some("cannot be looked at"),
    }
}

/// What the model is told about a place where there is nothing.
pub(super) async fn missing(
    name: &str,
    target: &Target,
    error: &FileError,
    ctx: &ToolCtx,
) -> String {
    let mut text = format!("{name} {error}. Nothing was done.");
    if *error == FileError::NotFound {
        let near = ctx.bench.files.similar(target).await;
        if !near.is_empty() {
            let names: Vec<_> = near.iter().map(|it| display(it)).collect();
            text.push_str(&format!(" Similar names: {}.", names.join(", ")));
        }
    }
    text
}
