//! `rename_symbol`: renames a symbol wherever it is used, with the edits of a language server. The user is asked as for
//! any edit, and sees every change. Either all files are changed or none.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::apply_patch::{PatchStep, run_steps, step_diffs};
use super::arguments::{PATH, ShownArgument};
use super::symbols::{NO_SERVER, shown};
use super::{
    CallPlan, CallSite, OfferContext, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx,
    edit_common, locations,
};
use turnwright_lsp::FileEdits;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, Effect, ResolvedPath, ToolKind};
use turnwright_workspace::checkpoint::ExpectedChange;

/// Rename a symbol in all files that use it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RenameSymbol {
    /// A file that uses it
    path: String,
    /// Its name
    #[serde(alias = "name")]
    symbol: String,
    /// The name in its place
    new_name: String,
    /// A line of the file that uses it
    line: Option<u32>,
    // The server's edits, or the reason why there are none.
    #[serde(skip)]
    found: Option<Result<Vec<FileEdits>, String>>,
}

impl RenameSymbol {
    fn title(&self) -> String {
        format!("Rename {} → {}", shown(&self.symbol), shown(&self.new_name))
    }
}

impl Tool for RenameSymbol {
    const NAME: &'static str = "rename_symbol";
    const KIND: ToolKind = ToolKind::Edit;
    const PENDING_TITLE: &'static str = "Rename";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH];
    type Preview = Vec<PatchStep>;

    fn is_offered(offer: &OfferContext) -> bool {
        offer.can_find_symbols
    }

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_existing(&mut self.path)]
    }

    /// Asks the server already here, because only the server knows which files the edits would change.
    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let target = site.resolve(PathBuf::from(&self.path));
        let symbol = (self.symbol.as_str(), self.line);
        // Calls are planned before they are approved, and again when a session is loaded. So ask a server only if the
        // session has already started one.
        let languages = site.env.languages().filter(|languages| languages.can_find_symbols());
        let found = match languages.filter(|_| edit_common::is_read_freely(site.env, &target)) {
            None => Err(NO_SERVER.to_owned()),
            Some(languages) => {
                let asking = languages.rename(&target.path, symbol, &self.new_name);
                Handle::current().block_on(asking)
            }
        };
        let mut effects = vec![Effect::Read(target.clone())];
        let files = found.iter().flatten();
        let mut places: Vec<_> = files.map(|file| site.resolve(file.path.clone())).collect();
        effects.extend(places.iter().cloned().map(Effect::Write));
        self.found = Some(found);
        if places.is_empty() {
            places.push(target);
        }
        let locations = locations(site.roots(), &places, None);
        CallPlan { view: CallView { title: self.title(), kind: Self::KIND, locations }, effects }
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<Vec<PatchStep>> {
        let found = self.found.clone().unwrap_or_else(|| Err(NO_SERVER.to_owned()));
        let files = found.map_err(|why| format!("{}. Nothing was changed.", shown(&why)))?;
        if files.is_empty() {
            return Err("The language server would change nothing.".into());
        }
        // The first target is the file that the call names.
        let written = targets.get(1..).unwrap_or_default();
        let mut distinct: Vec<_> = written.iter().map(|target| &target.path).collect();
        distinct.sort();
        distinct.dedup();
        if distinct.len() != files.len() {
            return Err("The server names one file by two paths. Nothing was changed.".into());
        }
        let roots = ctx.env.files.roots();
        let mut steps = Vec::new();
        for (edits, target) in files.into_iter().zip(written.iter().cloned()) {
            let path = target.path.to_string_lossy();
            let name = roots.below_cwd(&path).unwrap_or_else(|| path.into_owned());
            let file = shown(&name);
            if edit_common::is_closed(&ctx.env, &target) {
                let why = format!("{file} is closed to language servers. Nothing was changed.");
                return Err(why.into());
            }
            let read = ctx.env.files.read(&target).await;
            let before = read.map_err(|error| format!("{file} {error}. Nothing was changed."))?;
            let applying = spawn_blocking(move || {
                let after = edits.apply(&before.text)?;
                Some(PatchStep::replacing(name, target, before, after))
            });
            let step = applying.await.ok().flatten();
            steps.push(step.ok_or_else(|| {
                format!("{file} is not what the language server has seen. Nothing was changed.")
            })?);
        }
        let content = step_diffs(&steps, roots);
        Ok((steps, content))
    }

    fn expected_changes(steps: &Vec<PatchStep>) -> Vec<ExpectedChange<'_>> {
        steps.iter().flat_map(PatchStep::expected_changes).collect()
    }

    async fn run(self, steps: Vec<PatchStep>, pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let mut outcome = run_steps(steps, pass, ctx).await?;
        if let Some(view) = &mut outcome.view {
            view.title = self.title();
        }
        Ok(outcome)
    }
}
