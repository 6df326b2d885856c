//! `move_path`: gives a file, a folder or a link another place.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Location, Target};
use turnwright_workspace::files::{FileError, Roots, Survey};
use turnwright_policy::permission::Pass;

#[derive(Debug)]
pub(super) struct MovePath;

/// Move or rename a file or a folder. Missing folders are made; nothing is replaced.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// What to move
    #[serde(alias = "path", alias = "source", alias = "old_path")]
    from: String,
    /// Its whole new path
    #[serde(alias = "destination", alias = "target", alias = "new_path")]
    to: String,
}

impl Tool for MovePath {
    const NAME: &'static str = "move_path";
    const KIND: Kind = Kind::Move;
    const VERB: &'static str = "Move";
    type Args = Args;
    type Seen = Option<Survey>;

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        vec![PathBuf::from(&args.from), PathBuf::from(&args.to)]
    }

    fn place(&self, path: PathBuf, roots: &Roots) -> Target {
        roots.entry(&path)
    }

    fn view(&self, _: &Args, places: &[Target], roots: &Roots) -> CallView {
        let title = match places {
            [from, to] => format!("Move {} → {}", roots.short(from), roots.short(to)),
            _ => Self::VERB.to_owned(),
        };
        let location = |it| Location { path: roots.shown(it), line: None };
        CallView { title, kind: Self::KIND, locations: places.iter().map(location).collect() }
    }

    fn effects(&self, _: &Args, places: &[Target]) -> Vec<Effect> {
        match places {
            // What can be read under the new name was read under the old one.
            [from, to] => vec![
                Effect::Delete(from.clone()),
                Effect::Write(to.clone()),
                Effect::Read(from.clone()),
            ],
            _ => Vec::new(),
        }
    }

    async fn look(
        &self,
        args: &Args,
        places: &[Target],
        ctx: &ToolCtx,
    ) -> Result<(Option<Survey>, Vec<Content>), String> {
        let [from, to] = places else {
            return Err("move_path needs `from` and `to`. Nothing was moved.".to_owned());
        };
        if let Some(reason) = super::delete_path::protected(from, ctx).await {
            return Err(format!("{} {reason}. Nothing was moved.", args.from));
        }
        let files = &ctx.bench.files;
        let survey = match files.survey(from).await {
            Ok(survey) => survey,
            Err(error) => {
                return Err(super::delete_path::missing(&args.from, from, &error, ctx).await);
            }
        };
        if survey.is_folder && to.path != from.path && to.path.starts_with(&from.path) {
            return Err(format!("{} cannot be moved into itself. Nothing was moved.", args.from));
        }
        match files.survey(to).await {
            Err(FileError::NotFound) => {}
            Ok(there) if there.is_folder => {
                return Err(format!(
                    "{} is a folder that exists: give the whole new path. Nothing was moved.",
                    args.to
                ));
            }
            Ok(_) => return Err(format!("{} {}", args.to, FileError::Exists)),
            Err(error) => return Err(format!("{} {error}. Nothing was moved.", args.to)),
        }
        let roots = files.roots();
        let content = Content::Text(format!("{} → {}", roots.short(from), roots.short(to)));
        Ok((Some(survey), vec![content]))
    }

    async fn run(&self, args: Args, _: Option<Survey>, pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let [Effect::Delete(from), Effect::Write(to), ..] = pass.effects() else {
            return Outcome::failed("Nothing was moved: there is no permission for it.");
        };
        let roots = ctx.bench.files.roots();
        if let Err(error) = ctx.bench.files.rename(from, to).await {
            return Outcome::failed(format!("{} → {}: {error}", args.from, args.to));
        }
        let text = format!("Moved {} to {}.", args.from, args.to);
        let path = roots.shown(to);
        Outcome {
            ok: true,
            raw: json!({ "result": text }),
            content: vec![Content::Text(text.clone())],
            text,
            view: Some(CallView {
                title: format!("Move {} → {}", roots.short(from), roots.short(to)),
                kind: Self::KIND,
                locations: vec![Location { path, line: None }],
            }),
            images: Vec::new(),
        }
    }
}
