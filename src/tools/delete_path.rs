//! `delete_path`: removes a file, a link or a folder.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{PATH, ShownArgument};
use super::{
    CallPlan, CallSite, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx, ToolOutcome,
    edit_common, locations,
};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{
    CallContent, CallView, Effect, PathScope, ResolvedPath, ToolKind, escape_hidden_line,
};
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::files::{EntryInfo, FileError, Roots, SessionTmp, display};

/// Delete a file, a link (not its target) or a folder.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DeletePath {
    path: String,
    /// Also the folder's contents
    recursive: Option<bool>,
}

impl Tool for DeletePath {
    const NAME: &'static str = "delete_path";
    const KIND: ToolKind = ToolKind::Delete;
    const PENDING_TITLE: &'static str = "Delete";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH];
    type Preview = Option<EntryInfo>;

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_existing(&mut self.path)]
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let target = site.resolve_entry(&self.path);
        CallPlan { view: view(&target, site.roots()), effects: vec![Effect::Delete(target)] }
    }

    async fn preview(
        &self,
        targets: &[ResolvedPath],
        ctx: &ToolCtx,
    ) -> Previewed<Option<EntryInfo>> {
        let Some(target) = targets.first() else {
            return Err("delete_path needs a `path`. Nothing was deleted.".into());
        };
        let info = inspect(&self.path, target, "deleted", ctx).await?;
        if info.entries() > 0 && self.recursive != Some(true) {
            let files = info.files;
            let folders = info.folders;
            // The contents of a folder outside the project are not revealed without a permission to
            // read it.
            let what = match target.scope {
                PathScope::Outside => "something".to_owned(),
                _ => format!("{files} files and {folders} folders"),
            };
            return Err(format!(
                "{} is a folder with {what} below it. Nothing was deleted. Set recursive to delete \
                 it with all of them.",
                self.path
            )
            .into());
        }
        if info.is_too_deep() {
            return Err(format!(
                "{} holds folders that are nested more than {} deep. Nothing was deleted. Use exec with rm -r.",
                self.path, info.depth - 1
            ).into());
        }
        let content =
            CallContent::Text(deleted_list(&ctx.env.files.roots().display_path(target), &info));
        Ok((Some(info), vec![content]))
    }

    async fn run(self, surveyed: Option<EntryInfo>, pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let (Some(Effect::Delete(target)), Some(surveyed)) = (pass.effects().first(), surveyed)
        else {
            return Err("Nothing was deleted: there is no permission for it.".into());
        };
        let name = &self.path;
        let files = &ctx.env.files;
        let current =
            files.inspect_entry(target).await.map_err(|error| format!("{name} {error}"))?;
        if current != surveyed {
            return Err(
                format!("{name} changed while permission was asked; nothing was deleted.").into()
            );
        }
        let recursive = self.recursive == Some(true);
        let removed = files.remove(target, recursive, &ctx.cancel).await;
        let gone = removed.map_err(|error| format!("{name} {error}"))?;
        let what = match (surveyed.is_folder, gone) {
            (false, _) => String::new(),
            (true, 0) => " (an empty folder)".to_owned(),
            (true, 1) => " (a folder with 1 file)".to_owned(),
            (true, count) => format!(" (a folder with {count} files)"),
        };
        let text = format!("Deleted {name}{what}.");
        let mut view = view(target, files.roots());
        if surveyed.is_folder {
            view.title.push_str(&format!(" ({gone} files)"));
        }
        let list = deleted_list(&files.roots().display_path(target), &surveyed);
        let raw = json!({ "result": text, "files": gone });
        let outcome = ToolOutcome::done(text, vec![CallContent::Text(list)], raw);
        Ok(ToolOutcome { view: Some(view), ..outcome })
    }
}

fn view(target: &ResolvedPath, roots: &Roots) -> CallView {
    let title = format!("Delete {}", roots.display_path(target));
    let locations = locations(roots, std::slice::from_ref(target), None);
    CallView { title, kind: DeletePath::KIND, locations }
}

/// The list of the deleted entries, for the card.
fn deleted_list(name: &str, info: &EntryInfo) -> String {
    let mut text = match (info.is_folder, info.is_link) {
        (true, _) => format!("{name}/"),
        (false, true) => format!("{name} (the link, not what it points to)"),
        (false, false) => name.to_owned(),
    };
    for below in &info.names {
        text.push_str(&format!("\n{name}/{}", escape_hidden_line(&display(below))));
    }
    let more = info.entries() - info.names.len();
    if more > 0 {
        let least = if info.is_truncated() { "at least " } else { "" };
        text.push_str(&format!("\nand {least}{more} more"));
    }
    text
}

/// Why a path must not be deleted or moved.
pub(super) async fn why_protected(target: &ResolvedPath, ctx: &ToolCtx) -> Option<&'static str> {
    if target.path.file_name().is_some_and(|name| name == ".git") {
        return Some("holds the history of the project and stays");
    }
    // Commands have it as `/tmp`.
    let tmp = ctx.env.files.roots().session_tmp().and_then(SessionTmp::known_folder);
    if tmp == Some(&*target.path) {
        return Some("holds the temporary files of this session and stays");
    }
    match ctx.env.files.contains_cwd(target).await {
        Ok(false) => None,
        Ok(true) => Some("holds the folder of this session and stays"),
        Err(_) => Some("cannot be looked at"),
    }
}

/// Looks at something that is to be deleted or moved; `done` is that word.
///
/// # Errors
/// If it must stay or cannot be looked at; if nothing is there, with similar names.
pub(super) async fn inspect(
    name: &str,
    target: &ResolvedPath,
    done: &str,
    ctx: &ToolCtx,
) -> Result<EntryInfo, ToolRefusal> {
    if let Some(reason) = why_protected(target, ctx).await {
        return Err(format!("{name} {reason}. Nothing was {done}.").into());
    }
    let error = match ctx.env.files.inspect_entry(target).await {
        Ok(info) => return Ok(info),
        Err(error) => error,
    };
    let mut text = format!("{name} {error}. Nothing was done.");
    if error == FileError::NotFound {
        text.push_str(&edit_common::similar_names(target, ctx).await);
    }
    Err(text.into())
}
