//! `list_dir`: what is in a folder.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::seek::{self, count};
use super::{Bench, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Effect, Kind, Location, Target, visible_line};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;
use turnwright_workspace::search::{Sort, Tree, list};

/// The most levels of one call.
const DEEPEST: u8 = 3;

#[derive(Debug)]
pub(super) struct ListDir;

/// List a folder as a tree. Folders end with a slash; files come with their size.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// Folder (default `.`)
    #[serde(default, alias = "directory", alias = "dir")]
    path: Option<String>,
    /// Levels to show, 1 to 3 (default 2)
    #[serde(default)]
    depth: Option<u8>,
    /// Include hidden and ignored entries
    #[serde(default)]
    hidden: Option<bool>,
}

impl Args {
    fn path(&self) -> &str {
        seek::path_or_here(self.path.as_ref())
    }
}

impl Tool for ListDir {
    const NAME: &'static str = "list_dir";
    const KIND: Kind = Kind::Read;
    const VERB: &'static str = "List folder";
    const READS: bool = true;
    type Args = Args;
    type Seen = ();

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        vec![args.path().into()]
    }

    fn view(&self, _: &Args, places: &[Target], roots: &Roots) -> CallView {
        let location = |it| Location { path: roots.shown(it), line: None };
        CallView {
            title: places
                .first()
                .map_or(Self::VERB.to_owned(), |it| format!("List {}", roots.short(it))),
            kind: Self::KIND,
            locations: places.iter().map(location).collect(),
        }
    }

    fn effects(&self, _: &Args, places: &[Target]) -> Vec<Effect> {
        places.iter().cloned().map(Effect::Read).collect()
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let Some(Effect::Read(target)) = pass.effects().first() else {
            return Outcome::failed("Nothing was listed: there is no permission for it.");
        };
        let depth = usize::from(args.depth.unwrap_or(2).clamp(1, DEEPEST));
        let tree = match tree((pass, target), depth, args.hidden.unwrap_or(false), ctx).await {
            Ok(tree) => tree,
            Err(why) => {
                return Outcome::failed(seek::refusal(args.path(), &why, target, ctx).await);
            }
        };
        let text = show(&tree);
        let raw = json!({ "entries": tree.entries.len(), "truncated": tree.more > 0 });
        let content = seek::card(&text);
        Outcome { ok: true, text, view: None, content, raw, images: Vec::new() }
    }
}

/// What a folder holds.
///
/// # Errors
/// Why that cannot be said, to go on after its name.
pub(super) async fn tree(
    (pass, target): (&Pass, &Target),
    depth: usize,
    hidden: bool,
    ctx: &ToolCtx,
) -> Result<Tree, String> {
    let scope = seek::scope((pass, target), None, hidden, ctx).await?;
    let listing = move |stop: &_| match seek::obstacle(&scope.root, true) {
        Some(why) => Err(why.to_owned()),
        None => list(&scope, depth, stop).map_err(|it| it.to_string()),
    };
    let tree = seek::run(ctx, listing).await;
    tree.unwrap_or_else(|_| Err("was not listed: cancelled by the user".to_owned()))
}

/// The same for the model.
pub(super) fn show(tree: &Tree) -> String {
    let mut text = String::new();
    for entry in &tree.entries {
        let name = visible_line(&entry.path.to_string_lossy());
        text.push_str(&match entry.sort {
            Sort::Folder => format!("{name}/\n"),
            Sort::Full(number) => format!("{name}/ ({})\n", count(number, "entry", "entries")),
            Sort::Link => format!("{name} (link)\n"),
            Sort::File(bytes) => format!("{name} ({bytes} B)\n"),
            Sort::Special => format!("{name} (special)\n"),
        });
    }
    if tree.entries.is_empty() {
        text.push_str("[empty]\n");
    }
    if tree.more > 0 {
        let more = count(tree.more, "more entry", "more entries");
        text.push_str(&format!("[{more}: use find_files with a glob]\n"));
    }
    if tree.ignored > 0 {
        let ignored = count(tree.ignored, "ignored entry", "ignored entries");
        text.push_str(&format!("[{ignored} not shown]\n"));
    }
    text
}
