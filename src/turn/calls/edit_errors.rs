//! Adds the errors that an edit has caused, as language servers report them, to the result of the edit.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::tools::{ToolCtx, ToolOutcome, is_read_freely};
use turnwright_lsp::FileEvent;
use turnwright_types::effect::{CallContent, CallView, Effect, ResolvedPath, ToolKind};
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_workspace::checkpoint::CallChanges;

/// The longest time that a result waits for the servers.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// The most files of one call that are checked for its result. The review at the end of the turn checks all of them.
const MAX_FILES: usize = 8;

/// The files that a call is going to edit.
#[derive(Debug, Default)]
pub(super) struct EditedFiles(Vec<ResolvedPath>);

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
        // Servers are not shown secrets or files that rules deny.
        let written = effects.iter().filter_map(|effect| match effect {
            Effect::Write(target) if is_read_freely(&ctx.env, target) => Some(target.clone()),
            _ => None,
        });
        let files: Vec<_> = written.collect();
        for file in &files {
            ctx.cancel.run_until_cancelled(languages.begin_edit(&file.path)).await;
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
        let events: Vec<_> = changes.files.iter().filter_map(event).collect();
        if !events.is_empty() {
            languages.note_events(&events);
        }
        if !outcome.ok {
            return;
        }
        for file in &self.0 {
            languages.note_edit(&file.path);
        }
        let deadline = Instant::now() + TIME_LIMIT;
        for file in self.0.iter().take(MAX_FILES) {
            let asking = languages.finish_edit(&file.path, deadline);
            if let Some(Some(report)) = ctx.cancel.run_until_cancelled(asking).await {
                let name = ctx.env.files.roots().display_path(file);
                outcome.add_line(&report.for_model(&name));
                outcome.content.push(CallContent::Text(report.for_user()));
            }
        }
    }
}

fn event(change: &FileChange) -> Option<(PathBuf, FileEvent)> {
    let event = match (&change.before, change.after.as_ref()?) {
        (FileState::Absent, FileState::Absent) => return None,
        (FileState::Absent, _) => FileEvent::Created,
        (_, FileState::Absent) => FileEvent::Deleted,
        _ => FileEvent::Changed,
    };
    Some((change.path.clone(), event))
}
