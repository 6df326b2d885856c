//! Adds the errors that an edit has caused, as language servers report them, to the result of the edit.

use std::time::Duration;

use tokio::time::Instant;

use crate::tools::{ToolCtx, ToolOutcome, is_read_freely};
use turnwright_lsp::FileBefore;
use turnwright_types::effect::{CallContent, CallView, Effect, ToolKind};
use turnwright_workspace::checkpoint::CallChanges;

/// The longest time that a result waits for the servers.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// The most files of one call that are checked for its result. The review at the end of the turn checks all of them.
const MAX_FILES: usize = 8;

/// The files that a call is going to edit, with their names for the model.
#[derive(Debug, Default)]
pub(super) struct EditedFiles(Vec<(String, FileBefore)>);

impl EditedFiles {
    /// Notes the files before they are edited. This starts their servers.
    pub(super) async fn begin(
        ctx: &ToolCtx,
        view: Option<&CallView>,
        effects: &[Effect],
    ) -> EditedFiles {
        let is_edit = view.is_some_and(|view| view.kind == ToolKind::Edit);
        let (true, Some(languages)) = (is_edit, ctx.env.languages()) else {
            return EditedFiles::default();
        };
        let mut files = Vec::new();
        for target in effects.iter().filter_map(Effect::written) {
            // Servers are not shown secrets or files that rules deny.
            if is_read_freely(&ctx.env, target) {
                let beginning = languages.begin_edit(&target.path);
                let before = ctx.cancel.run_until_cancelled(beginning).await.flatten();
                let name = ctx.env.files.roots().display_path(target);
                files.extend(before.map(|before| (name, before)));
            }
        }
        EditedFiles(files)
    }

    /// Tells the servers which files a call has changed, and adds their reports on the edited files to its result.
    pub(super) async fn report_errors(
        self,
        ctx: &ToolCtx,
        outcome: &mut ToolOutcome,
        changes: &CallChanges,
    ) {
        let Some(languages) = ctx.env.languages() else { return };
        languages.note_changes(&changes.files);
        if !outcome.ok {
            return;
        }
        for (_, before) in &self.0 {
            languages.note_edit(before);
        }
        let deadline = Instant::now() + TIME_LIMIT;
        for (name, before) in self.0.iter().take(MAX_FILES) {
            let asking = languages.finish_edit(before, deadline);
            if let Some(Some(report)) = ctx.cancel.run_until_cancelled(asking).await {
                outcome.add_line(&report.for_model(name));
                outcome.content.push(CallContent::Text(report.for_user()));
            }
        }
    }
}
