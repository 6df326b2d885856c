//! `apply_patch`: changes several files at once, in the patch format that some models are trained
//! on. Either all files are changed or none.

mod patch_arguments;

use std::path::PathBuf;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::arguments::{PATCH, ShownArgument};
use super::write_file::MAX_UNREAD_BYTES;
use super::{
    CallPlan, CallSite, OfferContext, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx,
    ToolOutcome, edit_common, locations,
};
pub(super) use patch_arguments::ApplyPatch;
pub(crate) use patch_arguments::patch_call;
use tokio::task::spawn_blocking;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{
    CallContent, CallView, Effect, FileFate, Location, ResolvedPath, ToolKind,
};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::checkpoint::ExpectedChange;
use turnwright_workspace::edit::line_changes::{self, LineCounts};
use turnwright_workspace::edit::patch::{self, FilePatch, Hunk};
use turnwright_workspace::edit::{AppliedEdits, patch::PatchOp};
use turnwright_workspace::files::{FileError, FileText, Files, Freshness, Roots, TextEncoding};

/// Limit on the bytes of all files together, before and after.
const MAX_PATCHED_BYTES: usize = 64 * 1024 * 1024;

/// The change of one file.
#[derive(Debug)]
pub(super) struct PatchStep {
    name: String,
    target: ResolvedPath,
    action: PatchAction,
}

#[derive(Debug)]
enum PatchAction {
    Add(AppliedEdits),
    Update {
        before: FileText,
        applied: AppliedEdits,
        to: Option<ResolvedPath>,
        /// True once the file is there.
        is_moved: bool,
    },
    Delete {
        before: Option<FileText>,
        /// Where the file is kept until all other steps are done.
        aside: Option<ResolvedPath>,
    },
}

/// The new path of a file that is renamed.
fn renamed_to(file: &FilePatch) -> Option<&str> {
    let PatchOp::Update { to, .. } = &file.change else { return None };
    to.as_deref()
}

fn view(targets: &[ResolvedPath], roots: &Roots) -> CallView {
    let title = match targets {
        [] => ApplyPatch::PENDING_TITLE.to_owned(),
        [one] => format!("Patch {}", roots.display_path(one)),
        more => format!("Patch {} files", more.len()),
    };
    CallView { title, kind: ApplyPatch::KIND, locations: locations(roots, targets, Some(1)) }
}

impl Tool for ApplyPatch {
    const NAME: &'static str = "apply_patch";
    const KIND: ToolKind = ToolKind::Edit;
    const PENDING_TITLE: &'static str = "Apply patch";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATCH];
    type Preview = Vec<PatchStep>;

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        self.paths()
    }

    fn is_offered(offer: &OfferContext) -> bool {
        offer.prefers_patches
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let targets = site.resolve_all(self.path_arguments());
        let view = view(&targets, site.roots());
        let mut effects = Vec::new();
        let mut targets = targets.into_iter();
        for file in self.files() {
            let Some(place) = targets.next() else { break };
            if let Some(to) = renamed_to(file).and_then(|_| targets.next()) {
                effects.extend([Effect::Write(to), Effect::Read(place.clone())]);
                effects.push(Effect::Delete(place));
            } else if file.change == PatchOp::Delete {
                effects.push(Effect::Delete(place));
            } else {
                effects.push(Effect::Write(place));
            }
        }
        CallPlan { view, effects }
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<Vec<PatchStep>> {
        let files = self.parsed().clone().map_err(|problem| {
            format!("The patch makes no sense: {problem}. Nothing was written.")
        })?;
        for (number, place) in targets.iter().enumerate() {
            if targets[..number].contains(place) {
                let name = ctx.env.files.roots().display_path(place);
                return Err(format!("{name} comes twice in the patch. Nothing was written.").into());
            }
        }
        let mut steps = Vec::new();
        let mut bytes = 0_usize;
        let mut targets = targets.iter();
        for file in files {
            let Some(target) = targets.next() else { break };
            let to = renamed_to(&file).and_then(|_| targets.next());
            check_new_name(&file)?;
            let step = plan_step(file, target, to, ctx).await?;
            bytes += step.bytes();
            if bytes > MAX_PATCHED_BYTES {
                return Err("The files of the patch have more than 64 MiB together: make several \
                            patches. Nothing was written."
                    .into());
            }
            steps.push(step);
        }
        let content = step_diffs(&steps, ctx.env.files.roots());
        Ok((steps, content))
    }

    fn expected_changes(steps: &Vec<PatchStep>) -> Vec<ExpectedChange<'_>> {
        steps.iter().flat_map(PatchStep::expected_changes).collect()
    }

    async fn run(self, steps: Vec<PatchStep>, pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let mut outcome = run_steps(steps, pass, ctx).await?;
        if !self.left_out.is_empty() {
            outcome.append_note(format!("[Not run: {}. Call exec for it.]", self.left_out));
        }
        Ok(outcome)
    }
}

/// Executes all steps, or none.
pub(super) async fn run_steps(mut steps: Vec<PatchStep>, pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
    let files = &ctx.env.files;
    let mut unread = Vec::new();
    let mut unshown = Vec::new();
    for step in &steps {
        if !step.effects().iter().all(|effect| pass.effects().contains(effect)) {
            return Err("Nothing was written: there is no permission for it.".into());
        }
        edit_common::check_target(&step.name, &step.target, ctx).await?;
        if let PatchAction::Update { before, .. } = &step.action
            && edit_common::is_unread(&ctx.env, &step.target, before).await
        {
            unread.extend([step.place().clone(), step.target.clone()]);
        }
    }
    for number in 0..steps.len() {
        let name = steps[number].name.clone();
        match execute_step(&mut steps[number], files, &ctx.cancel).await {
            Ok(true) => {}
            Ok(false) => unshown.push(name),
            Err(error) => {
                steps.truncate(number + 1);
                let rest = roll_back(steps, files).await;
                // It writes the old texts, which were not read.
                for place in &unread {
                    files.forget_seen(place);
                }
                return Err(format!("{name} {error}. {rest}").into());
            }
        }
    }
    delete_set_aside(&steps, files).await;
    for place in &unread {
        files.forget_seen(place);
    }
    let mut outcome = patch_outcome(&steps, &unread, files.roots());
    if !unshown.is_empty() {
        outcome.append_note(edit_common::not_shown(&unshown.join(", ")));
    }
    Ok(outcome)
}

impl PatchStep {
    /// The step that gives a file another text.
    pub(super) fn replacing(
        name: String,
        target: ResolvedPath,
        before: FileText,
        after: String,
    ) -> PatchStep {
        let applied = edit_common::whole_text(&before.text, after);
        let action = PatchAction::Update { before, applied, to: None, is_moved: false };
        PatchStep { name, target, action }
    }

    fn effects(&self) -> Vec<Effect> {
        let target = self.target.clone();
        match &self.action {
            PatchAction::Update { to: Some(to), .. } => {
                vec![Effect::Write(to.clone()), Effect::Delete(target)]
            }
            PatchAction::Add(_) | PatchAction::Update { .. } => vec![Effect::Write(target)],
            PatchAction::Delete { .. } => vec![Effect::Delete(target)],
        }
    }

    pub(super) fn expected_changes(&self) -> Vec<ExpectedChange<'_>> {
        let path = &self.target.path;
        match &self.action {
            PatchAction::Add(applied) => {
                let after = Some((applied.text.as_str(), TextEncoding::default()));
                vec![ExpectedChange { path, before: None, after }]
            }
            PatchAction::Update { before, applied, to, .. } => {
                let after = Some((applied.text.as_str(), before.encoding));
                match to {
                    None => vec![ExpectedChange { path, before: Some(before), after }],
                    Some(to) => vec![
                        ExpectedChange { path, before: Some(before), after: None },
                        ExpectedChange { path: &to.path, before: None, after },
                    ],
                }
            }
            PatchAction::Delete { .. } => Vec::new(),
        }
    }

    /// The bytes of the texts that the step keeps in memory.
    fn bytes(&self) -> usize {
        match &self.action {
            PatchAction::Add(applied) => applied.text.len(),
            PatchAction::Update { before, applied, .. } => before.text.len() + applied.text.len(),
            PatchAction::Delete { before, .. } => before.as_ref().map_or(0, |file| file.text.len()),
        }
    }

    /// Where the file is after the step.
    fn place(&self) -> &ResolvedPath {
        if let PatchAction::Update { to: Some(to), .. } = &self.action { to } else { &self.target }
    }
}

/// Refuses a new file whose path ends like that of a folder.
fn check_new_name(file: &FilePatch) -> Result<(), ToolRefusal> {
    let added = Some(file.path.as_str()).filter(|_| matches!(file.change, PatchOp::Add { .. }));
    let folder = added.or(renamed_to(file)).filter(|name| edit_common::names_folder(name));
    folder.map_or(Ok(()), |name| Err(file_refusal(name, edit_common::NAMES_FOLDER)))
}

/// Computes the step for one file of the patch.
async fn plan_step(
    file: FilePatch,
    target: &ResolvedPath,
    to: Option<&ResolvedPath>,
    ctx: &ToolCtx,
) -> Result<PatchStep, ToolRefusal> {
    let files = &ctx.env.files;
    let FilePatch { path: name, change } = file;
    let target = target.clone();
    if to.is_some() || change == PatchOp::Delete {
        let roots = files.roots().clone();
        let path = PathBuf::from(&name);
        let own = spawn_blocking(move || roots.resolve_entry(&path)).await;
        if own.ok().as_ref() != Some(&target) {
            return Err(file_refusal(&name, "is a link; use move_path or delete_path"));
        }
        if let Some(reason) = super::delete_path::why_protected(&target, ctx).await {
            return Err(file_refusal(&name, reason));
        }
    }
    let now = match &change {
        PatchOp::Add { .. } => files.read_existing(&target).await,
        _ => files.read(&target).await,
    };
    let act = match (change, now) {
        (PatchOp::Add { text }, Err(FileError::NotFound)) => {
            PatchAction::Add(edit_common::whole_text("", text))
        }
        (PatchOp::Add { .. }, Ok(_)) => {
            return Err(file_refusal(&name, "exists already; use `*** Update File`"));
        }
        (PatchOp::Delete, Err(FileError::Binary(_) | FileError::TooLarge(_))) => {
            PatchAction::Delete { before: None, aside: None }
        }
        (_, Err(error)) => {
            return Err(edit_common::read_failure(&name, &target, &error, ctx).await);
        }
        (PatchOp::Delete, Ok(before)) => {
            if let Some(lines) = edit_common::changed_since_read(ctx, &target, &before).await {
                return Err(edit_common::stale_message(&name, &before, &lines, None).into());
            }
            PatchAction::Delete { before: Some(before), aside: None }
        }
        (PatchOp::Update { hunks, .. }, Ok(before)) => {
            plan_update(&name, &target, to, (before, hunks), ctx).await?
        }
    };
    Ok(PatchStep { name, target, action: act })
}

fn file_refusal(name: &str, why: &str) -> ToolRefusal {
    format!("{name} {why}. Nothing was written.").into()
}

/// Applies the hunks to a file that exists.
async fn plan_update(
    name: &str,
    target: &ResolvedPath,
    to: Option<&ResolvedPath>,
    (before, hunks): (FileText, Vec<Hunk>),
    ctx: &ToolCtx,
) -> Result<PatchAction, ToolRefusal> {
    let files = &ctx.env.files;
    if let Some(to) = to
        && files.inspect_entry(to).await != Err(FileError::NotFound)
    {
        let to = files.roots().display_path(to);
        return Err(format!("{to} exists already. Nothing was written.").into());
    }
    let changed = edit_common::changed_since_read(ctx, target, &before).await;
    let is_whole = hunks.iter().any(|hunk| hunk.is_whole);
    let is_short =
        before.text.len() <= MAX_UNREAD_BYTES && !edit_common::is_closed(&ctx.env, target);
    let is_known = is_short || files.freshness(target, &before).await == Freshness::Same;
    if is_whole && (changed.is_some() || !is_known) {
        return Err(file_refusal(name, "has text that you have not read"));
    }
    let may_quote = edit_common::may_quote(&ctx.env, target, &before).await;
    let told_name = name.to_owned();
    let work = spawn_blocking(move || {
        let result = patch::apply(&before.text, &hunks, &told_name);
        (before, result)
    });
    let (before, result) = work.await.map_err(|error| error.to_string())?;
    let refusal = match (result, changed) {
        (Ok(applied), changed) if changed.is_none() || edit_common::is_exact(&applied) => {
            return Ok(PatchAction::Update { before, applied, to: to.cloned(), is_moved: false });
        }
        (result, Some(lines)) => {
            let why = result.err().filter(|_| may_quote);
            edit_common::stale_message(name, &before, &lines, why.as_deref())
        }
        (Err(refusal), None) if may_quote => refusal,
        (_, None) => edit_common::not_quotable(name),
    };
    Err(redact::text_with_placed_keys(&refusal).into_owned().into())
}

/// Executes one step and updates it with the text that was really written. Returns false if the editor has taken that
/// and does not show it.
async fn execute_step(
    step: &mut PatchStep,
    files: &Files,
    cancel: &CancellationToken,
) -> Result<bool, FileError> {
    let (place, before, applied) = match &mut step.action {
        PatchAction::Add(applied) => (&step.target, None, applied),
        PatchAction::Update { before, applied, to, is_moved } => {
            if let Some(to) = to {
                files.rename(&step.target, to).await?;
                *is_moved = true;
            }
            if applied.text == before.text {
                return Ok(true);
            }
            (to.as_ref().unwrap_or(&step.target), Some(&*before), applied)
        }
        PatchAction::Delete { before, aside } => {
            if let Some(before) = before
                && files.read(&step.target).await?.text != before.text
            {
                return Err(FileError::Stale);
            }
            *aside = Some(files.set_aside(&step.target).await?);
            return Ok(true);
        }
    };
    let written = files.write(place, before, &applied.text, cancel).await?;
    let old = before.map_or("", |before| before.text.as_str());
    if let Some(now) = edit_common::editor_changes(old, applied, &written) {
        *applied = now;
    }
    Ok(written.is_confirmed)
}

/// Deletes the files that were only set aside.
async fn delete_set_aside(steps: &[PatchStep], files: &Files) {
    for step in steps {
        if let PatchAction::Delete { aside: Some(aside), .. } = &step.action
            && let Err(error) = files.remove(aside, false, &CancellationToken::new()).await
        {
            tracing::warn!(%error, path = %aside.path.display(), "could not be removed");
        }
    }
}

/// Rolls back steps in reverse order. The last one has failed and may be done in part. Returns a
/// sentence about the result.
async fn roll_back(mut steps: Vec<PatchStep>, files: &Files) -> String {
    let mut kept = Vec::new();
    if let Some(last) = steps.pop()
        && let PatchAction::Update { to: Some(to), is_moved: true, .. } = &last.action
        && files.rename(to, &last.target).await.is_err()
    {
        kept.push(last.name);
    }
    for step in steps.into_iter().rev() {
        if !roll_back_step(&step, files).await {
            kept.push(step.name);
        }
    }
    match kept.as_slice() {
        [] => "No file was changed.".to_owned(),
        names => format!("These files could not be restored: {}.", names.join(", ")),
    }
}

async fn roll_back_step(step: &PatchStep, files: &Files) -> bool {
    // The rollback runs even if the call was cancelled.
    let go_on = CancellationToken::new();
    match &step.action {
        PatchAction::Add(_) => files.remove(&step.target, false, &go_on).await.is_ok(),
        PatchAction::Delete { aside: None, .. } => false,
        PatchAction::Delete { aside: Some(aside), .. } => {
            files.rename(aside, &step.target).await.is_ok()
        }
        PatchAction::Update { before, applied, to, .. } => {
            if let Some(to) = to
                && files.rename(to, &step.target).await.is_err()
            {
                return false;
            }
            let now = FileText { text: applied.text.clone(), ..before.clone() };
            applied.text == before.text
                || files.write(&step.target, Some(&now), &before.text, &go_on).await.is_ok()
        }
    }
}

/// The changes that the user is shown and asked about.
pub(super) fn step_diffs(steps: &[PatchStep], roots: &Roots) -> Vec<CallContent> {
    let mut room = edit_common::MAX_CARD_BYTES;
    steps.iter().map(|step| step_diff(step, roots, &mut room)).collect()
}

fn step_diff(step: &PatchStep, roots: &Roots, room: &mut usize) -> CallContent {
    let path = roots.client_path(step.place());
    let mut content = match &step.action {
        PatchAction::Add(applied) => {
            edit_common::diff(path, None, &applied.text, &applied.changes, room)
        }
        PatchAction::Update { before, applied, .. } => {
            edit_common::diff(path, Some(&before.text), &applied.text, &applied.changes, room)
        }
        PatchAction::Delete { before: Some(before), .. } => {
            let spots = line_changes::diff_texts(&before.text, "");
            edit_common::diff(path, Some(&before.text), "", &spots, room)
        }
        PatchAction::Delete { before: None, .. } => {
            CallContent::Text(format!("Delete {}", roots.display_path(&step.target)))
        }
    };
    if let CallContent::Diff { fate, .. } = &mut content {
        *fate = match &step.action {
            PatchAction::Delete { .. } => FileFate::Deleted,
            PatchAction::Update { to: Some(_), .. } => {
                FileFate::MovedFrom(roots.client_path(&step.target))
            }
            PatchAction::Add(_) | PatchAction::Update { to: None, .. } => FileFate::Kept,
        };
    }
    content
}

/// The outcome. No line of an unread file is shown.
fn patch_outcome(steps: &[PatchStep], unread: &[ResolvedPath], roots: &Roots) -> ToolOutcome {
    let mut locations = Vec::new();
    let mut total = LineCounts::default();
    let mut lines = String::new();
    let mut room = line_changes::MAX_SHOWN_LINES;
    for step in steps {
        let (verb, applied) = match &step.action {
            PatchAction::Add(applied) => ("Added", Some(applied)),
            PatchAction::Update { applied, to: None, .. } => ("Updated", Some(applied)),
            PatchAction::Update { applied, to: Some(_), .. } => ("Moved", Some(applied)),
            PatchAction::Delete { .. } => ("Deleted", None),
        };
        lines.push_str(&format!("{verb} {}", step.name));
        if step.place() != &step.target {
            lines.push_str(&format!(" to {}", roots.display_path(step.place())));
        }
        if let Some(applied) = applied {
            let LineCounts { added, removed } = applied.line_counts;
            total = LineCounts { added: total.added + added, removed: total.removed + removed };
            let matched = edit_common::match_summary(applied);
            lines.push_str(&format!(" (+{added} −{removed}). {matched}\n"));
            let AppliedEdits { text, changes, .. } = applied;
            if verb != "Added" && !unread.contains(step.place()) {
                lines.push_str(&line_changes::render_changed_lines(text, changes, &mut room));
            }
        } else {
            lines.push_str(".\n");
        }
        let line = applied.map_or(1, edit_common::first_changed_line);
        locations.push(Location { path: roots.client_path(step.place()), line: Some(line) });
    }
    let count = steps.len();
    let LineCounts { added, removed } = total;
    let title = match steps {
        [one] => format!("Patch {} (+{added} −{removed})", roots.display_path(one.place())),
        _ => format!("Patch {count} files (+{added} −{removed})"),
    };
    let unit = if count == 1 { "file" } else { "files" };
    let head = format!("Applied the patch to {count} {unit} (+{added} −{removed}).");
    let text = format!("{head}\n{lines}");
    let raw = json!({ "result": head, "files": count, "added": added, "removed": removed });
    let view = Some(CallView { title, kind: ApplyPatch::KIND, locations });
    ToolOutcome { view, ..ToolOutcome::done(text, step_diffs(steps, roots), raw) }
}
