//! `list_dir`: lists a folder as a tree.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{PATH, ShownArgument};
use super::search_common::{self, count};
use super::{CallPlan, CallSite, PathArgument, Tool, ToolAnswer, ToolCtx, ToolOutcome, locations};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, Effect, ResolvedPath, ToolKind, escape_hidden_line};
use turnwright_workspace::files::display;
use turnwright_workspace::search::{FolderTree, TreeEntryKind, list_tree};

const MAX_DEPTH: u8 = 3;

/// List a folder as a tree, with sizes.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListDir {
    /// The working folder if left out
    path: Option<String>,
    /// 1 to 3, default 2
    depth: Option<u8>,
    /// Also hidden and ignored files
    hidden: Option<bool>,
}

impl Tool for ListDir {
    const NAME: &'static str = "list_dir";
    const KIND: ToolKind = ToolKind::Read;
    const PENDING_TITLE: &'static str = "List folder";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH];
    const IS_READ_ONLY: bool = true;
    type Preview = ();

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_existing(self.path.get_or_insert_with(|| ".".to_owned()))]
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let targets = site.resolve_all(self.path_arguments());
        let roots = site.roots();
        let locations = locations(roots, &targets, None);
        let title = targets.first().map_or(Self::PENDING_TITLE.to_owned(), |target| {
            format!("List {}", roots.display_path(target))
        });
        CallPlan::reading(CallView { title, kind: Self::KIND, locations }, targets)
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let Some(Effect::Read(target)) = pass.effects().first() else {
            return Err("Nothing was listed: there is no permission for it.".into());
        };
        let depth = usize::from(self.depth.unwrap_or(2).clamp(1, MAX_DEPTH));
        let tree = match tree((pass, target), depth, self.hidden.unwrap_or(false), ctx).await {
            Ok(tree) => tree,
            Err(why) => {
                let name = self.path.as_deref().unwrap_or(".");
                return Err(search_common::obstacle_message(name, &why, target, ctx).await.into());
            }
        };
        let text = show(&tree);
        let raw = json!({ "entries": tree.entries.len(), "truncated": tree.omitted > 0 });
        let content = ToolOutcome::card_content(&text);
        Ok(ToolOutcome::done(text, content, raw))
    }
}

/// Lists the entries of a folder.
///
/// # Errors
/// Why the folder cannot be listed.
pub(super) async fn tree(
    (pass, target): (&Pass, &ResolvedPath),
    depth: usize,
    hidden: bool,
    ctx: &ToolCtx,
) -> Result<FolderTree, String> {
    let scoping = search_common::scope((pass, target), None, hidden, ctx);
    let scope = scoping.await.map_err(|refusal| refusal.for_model)?;
    let listing = search_common::run_search(ctx, move |stop: &_| {
        match search_common::obstacle(&scope.root, true) {
            Some(why) => Err(why.to_owned()),
            None => list_tree(&scope, depth, stop).map_err(|error| error.to_string()),
        }
    });
    listing.await.unwrap_or_else(|_| Err("was not listed: cancelled by the user".to_owned()))
}

/// Renders a tree for the model.
pub(super) fn show(tree: &FolderTree) -> String {
    let mut text = String::new();
    for entry in &tree.entries {
        let name = escape_hidden_line(&display(&entry.path));
        text.push_str(&match entry.kind {
            TreeEntryKind::Folder => format!("{name}/\n"),
            TreeEntryKind::Collapsed(number) => {
                format!("{name}/ ({})\n", count(number, "entry", "entries"))
            }
            TreeEntryKind::Link => format!("{name} (link)\n"),
            TreeEntryKind::File(bytes) => format!("{name} ({bytes} B)\n"),
            TreeEntryKind::Special => format!("{name} (special)\n"),
        });
    }
    if tree.entries.is_empty() && tree.ignored == 0 {
        text.push_str("[empty]\n");
    }
    if tree.omitted > 0 {
        let more = count(tree.omitted, "more entry", "more entries");
        text.push_str(&format!("[{more}: use find_files with a glob]\n"));
    }
    if tree.ignored > 0 {
        let ignored = count(tree.ignored, "hidden or ignored entry", "hidden or ignored entries");
        text.push_str(&format!("[{ignored} not shown]\n"));
    }
    text
}
