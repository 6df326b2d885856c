//! `list_dir`: what is in a folder.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx};
use crate::effect::{CallView, Content, Effect, Kind, Location, Target, fenced};
use crate::files::{EntryKind, Roots};
use crate::permission::Pass;

/// The most entries of one call.
const MOST_ENTRIES: usize = 500;

#[derive(Debug)]
pub(super) struct ListDir;

/// List a folder. Folders end with a slash; files come with their size.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// Folder, relative to the project or absolute (default `.`)
    #[serde(default)]
    path: Option<String>,
    /// Levels to show (default 2)
    #[serde(default)]
    depth: Option<u8>,
    /// Show names that begin with a dot (default false)
    #[serde(default)]
    hidden: Option<bool>,
}

impl Args {
    fn path(&self) -> &str {
        self.path.as_deref().filter(|it| !it.trim().is_empty()).unwrap_or(".")
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
        let depth = usize::from(args.depth.unwrap_or(2).clamp(1, 10));
        let hidden = args.hidden.unwrap_or(false);
        let entries = match ctx.bench.files.list(target, depth, hidden, MOST_ENTRIES + 1).await {
            Ok(entries) => entries,
            Err(error) => return Outcome::failed(format!("{} {error}", args.path())),
        };
        let mut text = String::new();
        for entry in entries.iter().take(MOST_ENTRIES) {
            let name = entry.path.to_string_lossy();
            match entry.kind {
                EntryKind::Folder => text.push_str(&format!("{name}/\n")),
                EntryKind::Link => text.push_str(&format!("{name} (link)\n")),
                EntryKind::File(bytes) => text.push_str(&format!("{name} ({bytes} B)\n")),
            }
        }
        if entries.is_empty() {
            text.push_str("[empty]\n");
        }
        if entries.len() > MOST_ENTRIES {
            text.push_str(&format!("[more than {MOST_ENTRIES} entries: list a subfolder]\n"));
        }
        let raw = json!({ "entries": entries.len().min(MOST_ENTRIES) });
        let content = vec![Content::Text(fenced(&text))];
        Outcome { ok: true, text, view: None, content, raw, images: Vec::new() }
    }
}
