//! `find_files`: files by their names.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::seek::{self, count};
use super::{Bench, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;
use turnwright_workspace::search::{Names, Order, Wanted, find};

#[derive(Debug)]
pub(super) struct FindFiles;

/// Find files by name. A glob without a slash matches names in any folder. 200 results a page.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// Folder to look in (default `.`)
    #[serde(default, alias = "directory", alias = "dir")]
    path: Option<String>,
    /// Such as `*.rs`, `src/**/test_*.{js,ts}` or a name
    #[serde(alias = "pattern", alias = "name", alias = "query")]
    glob: String,
    /// Order of the results (default path)
    #[serde(default)]
    sort: Option<SortBy>,
    /// Include hidden and ignored files
    #[serde(default)]
    hidden: Option<bool>,
    /// Results to skip, for the next page
    #[serde(default)]
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
    const KIND: Kind = Kind::Search;
    const VERB: &'static str = "Find files";
    const READS: bool = true;
    type Args = Args;
    type Seen = ();

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        vec![seek::path_or_here(args.path.as_ref()).into()]
    }

    fn view(&self, args: &Args, places: &[Target], roots: &Roots) -> CallView {
        seek::view(&format!("Find {}", seek::quoted(&args.glob)), places, roots)
    }

    fn effects(&self, _: &Args, places: &[Target]) -> Vec<Effect> {
        places.iter().cloned().map(Effect::Read).collect()
    }

    async fn look(
        &self,
        args: &Args,
        places: &[Target],
        ctx: &ToolCtx,
    ) -> Result<((), Vec<Content>), String> {
        if args.glob.trim().is_empty() {
            return Err("find_files needs a `glob`. Nothing was searched.".to_owned());
        }
        seek::check_breadth(places, ctx).await?;
        Ok(((), Vec::new()))
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let Some(Effect::Read(target)) = pass.effects().first() else {
            return Outcome::failed("Nothing was searched: there is no permission for it.");
        };
        let hidden = args.hidden.unwrap_or(false);
        let scope = match seek::scope((pass, target), Some(&args.glob), hidden, ctx).await {
            Ok(scope) => scope,
            Err(reason) => return Outcome::failed(reason),
        };
        let order = match args.sort {
            Some(SortBy::Recent) => Order::Recent,
            Some(SortBy::Path) | None => Order::Path,
        };
        let wanted = Wanted { order, offset: args.offset.unwrap_or(0) };
        let search = move |stop: &_| match seek::obstacle(&scope.root, true) {
            Some(why) => Err(why),
            None => Ok(find(&scope, wanted, stop)),
        };
        match seek::run(ctx, search).await {
            Ok(Ok(names)) => report(self, &args, target, names, ctx),
            Ok(Err(why)) => {
                let name = seek::path_or_here(args.path.as_ref());
                Outcome::failed(seek::refusal(name, why, target, ctx).await)
            }
            Err(reason) => Outcome::failed(reason),
        }
    }
}

fn report(tool: &FindFiles, args: &Args, target: &Target, names: Names, ctx: &ToolCtx) -> Outcome {
    let roots = ctx.bench.files.roots();
    let mut text = String::new();
    for path in &names.files {
        text.push_str(&seek::short(roots, target, path.clone()));
        text.push('\n');
    }
    let raw = json!({
        "files": names.count,
        "searched": names.seen,
        "truncated": names.next.is_some() || names.is_part,
    });
    let mut view = tool.view(args, std::slice::from_ref(target), roots);
    view.title.push_str(&format!(" ({})", names.count));
    let hits = names.files.iter().take(seek::MOST_LOCATIONS);
    let locations: Vec<_> =
        hits.map(|it| seek::location(roots, target, it.clone(), None)).collect();
    if !locations.is_empty() {
        view.locations = locations;
    }
    text.push_str(&total(args, &names));
    text.push_str(&seek::shortfall(names.is_part, names.unreadable));
    let near = seek::names(names.near, roots, target);
    if !near.is_empty() {
        text.push_str(&format!("Similar names: {near}\n"));
    }
    let content = seek::card(&text);
    Outcome { ok: true, text, view: Some(view), content, raw, images: Vec::new() }
}

fn total(args: &Args, names: &Names) -> String {
    let all = count(names.count, "file", "files");
    if names.count == 0 {
        let seen = count(names.seen, "file", "files");
        return format!("No match among {seen}.\n{}", seek::elsewhere(&names.elsewhere));
    }
    seek::page(&all, args.offset.unwrap_or(0), names.files.len(), names.next)
}
