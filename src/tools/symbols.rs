//! `definition` and `references`: find where a symbol is defined or used, with the help of a language server.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{PATH, ShownArgument};
use super::search_common::count;
use super::{
    CallPlan, CallSite, OfferContext, PathArgument, Tool, ToolAnswer, ToolCtx, ToolOutcome,
    edit_common, locations,
};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{
    CallView, Effect, Location, ResolvedPath, ToolKind, escape_hidden, escape_hidden_line,
};
use turnwright_types::message::ToolSpec;
use turnwright_types::text;

/// The part of the model's text that says that no server can be asked.
pub(super) const NO_SERVER: &str = "No language server is ready";
/// The most places that are listed, and the most characters of the source line at each.
const MAX_PLACES: usize = 100;
const MAX_LINE_CHARS: usize = 160;

/// Find a symbol by its name.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct FindSymbol<const IS_DEFINITION: bool> {
    /// A file that uses it
    path: String,
    /// Its name
    #[serde(alias = "name")]
    symbol: String,
    /// A line of the file that uses it
    line: Option<u32>,
}

pub(super) type Definition = FindSymbol<true>;
pub(super) type References = FindSymbol<false>;

impl<const IS_DEFINITION: bool> Tool for FindSymbol<IS_DEFINITION> {
    const NAME: &'static str = if IS_DEFINITION { "definition" } else { "references" };
    const KIND: ToolKind = ToolKind::Search;
    const PENDING_TITLE: &'static str =
        if IS_DEFINITION { "Find the definition" } else { "Find the uses" };
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH];
    const IS_READ_ONLY: bool = true;
    type Preview = ();

    fn is_offered(offer: &OfferContext) -> bool {
        offer.can_find_symbols
    }

    fn adapt_spec(spec: &mut ToolSpec, _: &OfferContext) {
        let found =
            if IS_DEFINITION { "where a symbol is defined" } else { "all uses of a symbol" };
        spec.description = format!("Find {found}, by its name and a file that has it.");
    }

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_existing(&mut self.path)]
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let target = site.resolve(PathBuf::from(&self.path));
        let found = if IS_DEFINITION { "Definition" } else { "Uses" };
        let title = format!("{found} of {}", shown(&self.symbol));
        let locations = locations(site.roots(), std::slice::from_ref(&target), None);
        CallPlan::reading(CallView { title, kind: ToolKind::Search, locations }, vec![target])
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let Some(Effect::Read(target)) = pass.effects().first() else {
            return Err("Nothing was looked up: there is no permission for it.".into());
        };
        let languages = ctx.env.languages().ok_or_else(|| format!("{NO_SERVER}. Use grep."))?;
        let symbol = (self.symbol.as_str(), self.line);
        let asking = languages.find_places(&target.path, symbol, IS_DEFINITION);
        let found = ctx.until_cancelled(asking).await?;
        let places = found.map_err(|why| format!("{}. Use grep.", shown(&why)))?;
        Ok(outcome(&self.symbol, &places, ctx).await)
    }
}

/// Formats a symbol's name for titles.
pub(super) fn shown(symbol: &str) -> String {
    escape_hidden_line(text::first_chars(symbol, MAX_LINE_CHARS))
}

async fn outcome(symbol: &str, places: &[(PathBuf, u32)], ctx: &ToolCtx) -> ToolOutcome {
    let number = count(places.len(), "place", "places");
    let mut text = format!("{number} of {}\n", shown(symbol));
    let mut shown_places = Vec::new();
    let roots = ctx.env.files.roots();
    let first = &places[..places.len().min(MAX_PLACES)];
    // The places of a file are adjacent.
    for of_file in first.chunk_by(|(one, _), (next, _)| one == next) {
        let Some((target, lines)) = read_lines(&of_file[0].0, ctx).await else { continue };
        for (_, line) in of_file {
            let quoted = lines.get(*line as usize - 1).map_or("", String::as_str);
            text.push_str(&format!("{}:{line}: {quoted}\n", roots.display_path(&target)));
            shown_places.push(Location { path: roots.client_path(&target), line: Some(*line) });
        }
    }
    let more = places.len().saturating_sub(MAX_PLACES);
    if more > 0 {
        text.push_str(&format!("[{more} more]\n"));
    }
    let mut outcome = ToolOutcome::done_as_shown(text, json!({ "places": places.len() }));
    outcome.view = Some(CallView {
        title: format!("{} ({number})", shown(symbol)),
        kind: ToolKind::Search,
        locations: shown_places,
    });
    outcome
}

/// Returns the lines of a file; no lines unless the model may read the file without a question. `None` for a file that
/// is not looked at.
async fn read_lines(path: &Path, ctx: &ToolCtx) -> Option<(ResolvedPath, Vec<String>)> {
    let files = &ctx.env.files;
    if files.roots().leads_elsewhere(path) {
        return None;
    }
    let target = files.resolve(path).await.ok()?;
    let mut shown = Vec::new();
    if let Ok(file) = files.read(&target).await
        && edit_common::may_quote(&ctx.env, &target, &file).await
    {
        let lines = file.text.lines().map(|line| text::first_chars(line.trim(), MAX_LINE_CHARS));
        shown.extend(lines.map(escape_hidden));
    }
    Some((target, shown))
}
