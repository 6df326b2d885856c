//! `edit_file`: replaces quoted pieces of a text file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{NEW_STRING, OLD_STRING, PATH, ShownArgument};
use super::{
    CallPlan, CallSite, OfferContext, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx,
    ToolOutcome, edit_common, locations,
};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallContent, CallView, Effect, ResolvedPath, ToolKind};
use turnwright_types::message::ToolSpec;
use turnwright_types::redact;
use turnwright_types::text::counted;
use turnwright_workspace::checkpoint::ExpectedChange;
use turnwright_workspace::edit::line_changes::{self, LineCounts};
use turnwright_workspace::edit::{self, AppliedEdits, EditErrorKind, TextEdit};
use turnwright_workspace::files::{FileText, Roots};

/// Replace text in a file. old_string must match exactly and occur once, unless replace_all is set.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct EditFile {
    /// Relative to the working folder
    path: String,
    /// The text that is there now, exactly, with enough lines to be unique
    old_string: Option<String>,
    /// The text in its place
    new_string: Option<String>,
    /// In all places, not in one
    replace_all: Option<bool>,
    // Several replacements, all or none, as models send them that know such a tool. It is not advertised.
    #[serde(default)]
    edits: Vec<TextReplacement>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TextReplacement {
    old_string: String,
    new_string: String,
    replace_all: Option<bool>,
}

impl EditFile {
    /// The edits of the list and of the single replacement.
    fn edits(&self) -> Vec<TextEdit> {
        let edits = self.edits.iter();
        let listed =
            edits.map(|edit| text_edit(&edit.old_string, &edit.new_string, edit.replace_all));
        let texts = self.old_string.as_ref().zip(self.new_string.as_ref());
        let single = texts.map(|(old, new)| text_edit(old, new, self.replace_all));
        listed.chain(single).collect()
    }
}

fn text_edit(old: &str, new: &str, replace_all: Option<bool>) -> TextEdit {
    let replace_all = replace_all.unwrap_or(false);
    TextEdit { old: old.to_owned(), new: new.to_owned(), replace_all }
}

/// The edit as computed for the preview.
#[derive(Debug, Default)]
pub(super) struct PlannedEdit {
    /// The file.
    place: PathBuf,
    before: Option<FileText>,
    applied: AppliedEdits,
    /// The lines that were changed since the model read the file, if the quoted text is still
    /// there.
    changed: Option<Vec<(usize, usize)>>,
}

impl Tool for EditFile {
    const NAME: &'static str = "edit_file";
    const KIND: ToolKind = ToolKind::Edit;
    const PENDING_TITLE: &'static str = "Edit file";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH, OLD_STRING, NEW_STRING];
    type Preview = PlannedEdit;

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_existing(&mut self.path)]
    }

    fn choose_lines(&mut self, _: (u32, u32)) -> bool {
        true
    }

    /// Advertises a single replacement, although a list is accepted.
    fn adapt_spec(spec: &mut ToolSpec, _: &OfferContext) {
        spec.parameters["required"] = json!(["path", "old_string", "new_string"]);
        if let Some(properties) = spec.parameters["properties"].as_object_mut() {
            properties.shift_remove("edits");
        }
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let target = site.resolve(PathBuf::from(&self.path));
        CallPlan::writing(view(&target, site.roots(), None), target)
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<PlannedEdit> {
        let Some(target) = targets.first() else {
            return Err("edit_file needs a `path`. Nothing was written.".into());
        };
        let before = match ctx.env.files.read(target).await {
            Ok(text) => text,
            Err(error) => {
                return Err(edit_common::read_failure(&self.path, target, &error, ctx).await);
            }
        };
        let changed = edit_common::changed_since_read(ctx, target, &before).await;
        let may_quote = edit_common::may_quote(&ctx.env, target, &before).await;
        let edits = self.edits();
        let of = edits.len();
        let path = ctx.env.files.roots().client_path(target);
        // Finding quoted text in a long file takes a while.
        let work = spawn_blocking(move || {
            let result = edit::apply(&before.text, &edits)
                .map(|applied| (edit_diff(path, &before, &applied), applied));
            (before, result)
        });
        let (before, result) = work.await.map_err(|error| error.to_string())?;
        let is_stale = match &result {
            Ok((_, applied)) => !edit_common::is_exact(applied),
            Err(error) => matches!(error.kind, EditErrorKind::NotFound { .. }),
        };
        if let Some(lines) = changed.as_ref().filter(|_| is_stale) {
            let why = result.err().filter(|_| may_quote).map(|error| error.explain(&self.path, of));
            let told = edit_common::stale_message(&self.path, &before, lines, why.as_deref());
            return Err(redact::text_with_placed_keys(&told).into_owned().into());
        }
        let (diff, applied) = result.map_err(|error| match error.kind {
            EditErrorKind::NotFound { .. }
            | EditErrorKind::Ambiguous { .. }
            | EditErrorKind::AlreadyMade { .. }
                if !may_quote =>
            {
                edit_common::not_quotable(&self.path)
            }
            EditErrorKind::NotFound { .. }
            | EditErrorKind::NoEdits
            | EditErrorKind::NoChange
            | EditErrorKind::AlreadyMade { .. }
                if may_quote =>
            {
                let told = error.explain(&self.path, of) + &edit_common::short_text(&before.text);
                redact::text_with_placed_keys(&told).into_owned()
            }
            _ => error.explain(&self.path, of),
        })?;
        let place = target.path.clone();
        Ok((PlannedEdit { place, before: Some(before), applied, changed }, vec![diff]))
    }

    fn expected_changes(planned: &PlannedEdit) -> Vec<ExpectedChange<'_>> {
        let before = planned.before.as_ref();
        let after = before.map(|file| (planned.applied.text.as_str(), file.encoding));
        vec![ExpectedChange { path: &planned.place, before, after }]
    }

    async fn run(self, planned: PlannedEdit, pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let PlannedEdit { before, applied, changed, .. } = planned;
        let (Some(Effect::Write(target)), Some(before)) = (pass.effects().first(), before) else {
            return Err("Nothing was written: there is no permission for it.".into());
        };
        edit_common::check_target(&self.path, target, ctx).await?;
        let files = &ctx.env.files;
        let is_unread = edit_common::is_unread(&ctx.env, target, &before).await;
        let written = files
            .write(target, Some(&before), &applied.text, &ctx.cancel)
            .await
            .map_err(|error| edit_common::write_failure(&self.path, &error))?;
        if is_unread {
            files.forget_seen(target);
        }
        let path = files.roots().client_path(target);
        let target = target.clone();
        let roots = files.roots().clone();
        // Diffing long texts takes a while.
        let work = spawn_blocking(move || {
            let reformatted = edit_common::editor_changes(&before.text, &applied, &written);
            let is_reformatted = reformatted.is_some();
            let applied = reformatted.unwrap_or(applied);
            let state = [is_reformatted, is_unread];
            let text = answer_text(&self.path, &applied, changed.as_deref(), state);
            let content = vec![edit_diff(path, &before, &applied)];
            let raw = json!({
                "result": headline(&self.path, &applied),
                "added": applied.line_counts.added,
                "removed": applied.line_counts.removed,
                "places": applied.edits.iter().map(|edit| edit.occurrences).sum::<usize>(),
            });
            let view = Some(view(&target, &roots, Some(&applied)));
            let mut outcome = ToolOutcome { view, ..ToolOutcome::done(text, content, raw) };
            if !written.is_confirmed {
                outcome.append_note(edit_common::not_shown(&self.path));
            }
            outcome
        });
        work.await.map_err(|error| format!("The file was written; then: {error}").into())
    }
}

fn edit_diff(path: PathBuf, before: &FileText, applied: &AppliedEdits) -> CallContent {
    let room = &mut { edit_common::MAX_CARD_BYTES };
    edit_common::diff(path, Some(&before.text), &applied.text, &applied.changes, room)
}

/// The answer for the model: what was done, what else has changed, and the lines as they are now.
fn answer_text(
    name: &str,
    applied: &AppliedEdits,
    changed: Option<&[(usize, usize)]>,
    [is_reformatted, is_unread]: [bool; 2],
) -> String {
    let mut text = headline(name, applied);
    if is_unread {
        text.push_str("\nIts lines are not shown, because you have not read what is there.");
        return text;
    }
    if let Some(lines) = changed {
        text.push_str("\nThe file changed since you read it; the edit still matched.");
        let lines = edit_common::line_ranges(lines);
        if !lines.is_empty() {
            text.push_str(&format!(" Changed lines: {lines}."));
        }
    }
    if is_reformatted {
        text.push_str("\nThe editor changed more when it saved the file; this is what is there:");
    }
    text.push('\n');
    text.push_str(&line_changes::render_changed_lines(&applied.text, &applied.changes, &mut {
        line_changes::MAX_SHOWN_LINES
    }));
    text
}

fn headline(name: &str, applied: &AppliedEdits) -> String {
    let edits = counted(applied.edits.len(), "edit");
    let LineCounts { added, removed } = applied.line_counts;
    let rungs = edit_common::match_summary(applied);
    format!("Applied {edits} to {name} (+{added} −{removed}). {rungs}")
}

fn view(target: &ResolvedPath, roots: &Roots, applied: Option<&AppliedEdits>) -> CallView {
    let line = Some(applied.map_or(1, edit_common::first_changed_line));
    let locations = locations(roots, std::slice::from_ref(target), line);
    let mut title = format!("Edit {}", roots.display_path(target));
    if let Some(applied) = applied {
        let LineCounts { added, removed } = applied.line_counts;
        title.push_str(&format!(" (+{added} −{removed})"));
    }
    CallView { title, kind: ToolKind::Edit, locations }
}
