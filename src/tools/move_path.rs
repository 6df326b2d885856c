//! `move_path`: moves or renames a file, a folder or a link.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    CallPlan, CallSite, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx, ToolOutcome,
    delete_path, edit_common, locations,
};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallContent, CallView, Effect, ResolvedPath, ToolKind};
use turnwright_workspace::files::FileError;

/// Move or rename a file or folder. Creates missing folders; replaces nothing.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct MovePath {
    /// Relative to the working folder
    #[serde(alias = "path", alias = "source", alias = "old_path")]
    from: String,
    /// The whole new path
    #[serde(alias = "destination", alias = "target", alias = "new_path")]
    to: String,
}

impl Tool for MovePath {
    const NAME: &'static str = "move_path";
    const KIND: ToolKind = ToolKind::Move;
    const PENDING_TITLE: &'static str = "Move";
    type Preview = ();

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_existing(&mut self.from), PathArgument::of_any(&mut self.to)]
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let from = site.resolve_entry(&self.from);
        let to = site.resolve_entry(&self.to);
        let roots = site.roots();
        let title = format!("Move {} → {}", roots.display_path(&from), roots.display_path(&to));
        let locations = locations(roots, &[from.clone(), to.clone()], None);
        // A move makes the contents readable at a new path, so it counts as reading them.
        let effects = vec![Effect::Delete(from.clone()), Effect::Write(to), Effect::Read(from)];
        CallPlan { view: CallView { title, kind: Self::KIND, locations }, effects }
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<()> {
        let [from, to] = targets else {
            return Err("move_path needs `from` and `to`. Nothing was moved.".into());
        };
        let info = delete_path::inspect(&self.from, from, "moved", ctx).await?;
        let files = &ctx.env.files;
        if info.is_folder && to.path != from.path && to.path.starts_with(&from.path) {
            return Err(
                format!("{} cannot be moved into itself. Nothing was moved.", self.from).into()
            );
        }
        match files.inspect_entry(to).await {
            Err(FileError::NotFound) if info.is_folder || !edit_common::names_folder(&self.to) => {}
            Err(FileError::NotFound) => {
                let why = edit_common::NAMES_FOLDER;
                return Err(format!("{} {why}. Nothing was moved.", self.to).into());
            }
            Ok(there) if there.is_folder => {
                return Err(format!(
                    "{} is a folder that exists: give the whole new path. Nothing was moved.",
                    self.to
                )
                .into());
            }
            Ok(_) => return Err(format!("{} {}", self.to, FileError::Exists).into()),
            Err(error) => return Err(format!("{} {error}. Nothing was moved.", self.to).into()),
        }
        let roots = files.roots();
        let content =
            CallContent::Text(format!("{} → {}", roots.display_path(from), roots.display_path(to)));
        Ok(((), vec![content]))
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let [Effect::Delete(from), Effect::Write(to), ..] = pass.effects() else {
            return Err("Nothing was moved: there is no permission for it.".into());
        };
        let roots = ctx.env.files.roots();
        let moved = ctx.env.files.rename(from, to).await;
        moved.map_err(|error| format!("{} → {}: {error}", self.from, self.to))?;
        let text = format!("Moved {} to {}.", self.from, self.to);
        let title = format!("Move {} → {}", roots.display_path(from), roots.display_path(to));
        let locations = locations(roots, std::slice::from_ref(to), None);
        let view = Some(CallView { title, kind: Self::KIND, locations });
        let raw = json!({ "result": text });
        Ok(ToolOutcome { view, ..ToolOutcome::done_as_shown(text, raw) })
    }
}
