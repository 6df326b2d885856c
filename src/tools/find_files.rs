//! `find_files`: finds files by name.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{GLOB, PATH, PATTERN, ShownArgument};
use super::search_common::{self, count};
use super::{CallPlan, CallSite, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx, ToolOutcome};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, Effect, ResolvedPath, ToolKind};
use turnwright_workspace::files::Roots;
use turnwright_workspace::search::{FileList, FindOptions, MAX_FOUND_FILES, find};

/// Find files by name. A glob without a slash matches in any folder. 200 results from offset.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct FindFiles {
    /// The folder to look in; all if left out
    path: Option<String>,
    /// A pattern with * and ?; ** is any folder
    #[serde(alias = "pattern", alias = "name", alias = "query")]
    glob: String,
    sort: Option<SortBy>,
    /// Also hidden and ignored files
    hidden: Option<bool>,
    /// Results to skip
    offset: Option<usize>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum SortBy {
    Path,
    Recent,
}

impl Tool for FindFiles {
    const NAME: &'static str = "find_files";
    const KIND: ToolKind = ToolKind::Search;
    const PENDING_TITLE: &'static str = "Find files";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH, GLOB, PATTERN];
    const IS_READ_ONLY: bool = true;
    type Preview = ();

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_existing(self.path.get_or_insert_with(|| ".".to_owned()))]
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let targets = site.resolve_all(self.path_arguments());
        CallPlan::reading(view(self, &targets, site.roots()), targets)
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<()> {
        if self.glob.trim().is_empty() {
            return Err("find_files needs a `glob`. Nothing was searched.".into());
        }
        search_common::check_breadth(targets, ctx).await?;
        Ok(((), Vec::new()))
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let Some(Effect::Read(target)) = pass.effects().first() else {
            return Err("Nothing was searched: there is no permission for it.".into());
        };
        let name = self.path.as_deref().unwrap_or(".");
        let hidden = self.hidden.unwrap_or(false);
        let scope = search_common::scope((pass, target), Some(&self.glob), hidden, ctx).await?;
        let recent_first = matches!(self.sort, Some(SortBy::Recent));
        let wanted = FindOptions { recent_first, offset: self.offset.unwrap_or(0) };
        let roots = ctx.env.files.shared_roots();
        let place = target.clone();
        let searching =
            search_common::search(scope, (name, target), true, ctx, move |scope, stop| {
                let names = find(scope, wanted, stop);
                let tells_nothing = names.total == 0
                    && !names.is_incomplete
                    && names.hidden.files == 0
                    && names.similar.is_empty();
                let others = tells_nothing
                    .then(|| search_common::what_is_there(scope, stop, (&roots, &place)));
                (names, others.unwrap_or_default())
            });
        let (names, others) = searching.await?;
        Ok(report(&self, target, names, &others, ctx))
    }
}

fn view(args: &FindFiles, targets: &[ResolvedPath], roots: &Roots) -> CallView {
    let glob = search_common::title_pattern(&args.glob);
    search_common::search_view(&format!("Find {glob}"), targets, roots)
}

/// The answer of a call. `others` says what there is if nothing was found.
fn report(
    args: &FindFiles,
    target: &ResolvedPath,
    names: FileList,
    others: &str,
    ctx: &ToolCtx,
) -> ToolOutcome {
    let roots = ctx.env.files.roots();
    let paths = names.files.iter().cloned();
    let lines = paths.map(|path| search_common::short_path(roots, target, path) + "\n");
    let mut text: String = lines.collect();
    let raw = json!({
        "files": names.total,
        "searched": names.files_seen,
        "truncated": names.next_offset.is_some() || names.is_incomplete,
    });
    let mut view = view(args, std::slice::from_ref(target), roots);
    view.title.push_str(&format!(" ({})", names.total));
    let hits = names.files.iter().map(|path| (path.clone(), None));
    search_common::show_places(&mut view, hits, target, roots);
    text.push_str(&total(args, &names));
    text.push_str(&search_common::incomplete_note(
        names.is_incomplete,
        names.total >= MAX_FOUND_FILES,
        names.unreadable,
    ));
    let near = search_common::similar_names(names.similar, roots, target);
    if !near.is_empty() {
        text.push_str(&format!("Similar names: {near}\n"));
    }
    text.push_str(others);
    text.push_str(&search_common::other_folders_note(target, roots));
    let content = ToolOutcome::card_content(&text);
    ToolOutcome { ok: true, text, view: Some(view), content, raw, images: Vec::new() }
}

fn total(args: &FindFiles, names: &FileList) -> String {
    if names.total == 0 {
        let seen = count(names.files_seen, "file", "files");
        return format!(
            "No match among {seen}.\n{}",
            search_common::hidden_matches_note(&names.hidden)
        );
    }
    let all = search_common::total_count(count(names.total, "file", "files"), names.is_incomplete);
    let first = args.offset.unwrap_or(0);
    search_common::page_note(&all, names.total, first, names.files.len(), names.next_offset)
}
