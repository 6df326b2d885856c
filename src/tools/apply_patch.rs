//! `apply_patch`: changes several files at once, in the form that some models are trained on. All of
//! them or none.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::change;
use super::{Bench, Offer, Outcome, Tool, ToolCtx};
use turnwright_workspace::checkpoint::Foreseen;
use turnwright_workspace::edit::patch::{self, FilePatch};
use turnwright_workspace::edit::spots::{self, Count};
use turnwright_workspace::edit::{Applied, patch::Change};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Location, Target};
use turnwright_workspace::files::{FileError, Files, Form, Roots, Text};
use turnwright_policy::permission::Pass;

/// The most bytes of all files together, before and after.
const MOST_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ApplyPatch;

/// Change files by a patch: `*** Begin Patch`, then for each file `*** Update File: PATH` (or Add,
/// Delete) with `@@` hunks, then `*** End Patch`. All files or none.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// The whole patch
    #[serde(alias = "input")]
    patch: String,
}

/// What is to be done, file by file.
#[derive(Debug)]
pub(super) struct Step {
    name: String,
    target: Target,
    act: Act,
}

#[derive(Debug)]
enum Act {
    Add(Applied),
    Update {
        before: Text,
        applied: Applied,
        to: Option<Target>,
    },
    Delete {
        before: Option<Text>,
        /// Where the file is until all else is done.
        aside: Option<Target>,
    },
}

impl Args {
    /// The files of the patch; none, if it is wrong.
    fn files(&self) -> Vec<FilePatch> {
        patch::parse(&self.patch).unwrap_or_default()
    }
}

/// Where a file goes that gets a new name.
fn goal(file: &FilePatch) -> Option<&str> {
    match &file.change {
        Change::Update { to, .. } => to.as_deref(),
        Change::Add { .. } | Change::Delete => None,
    }
}

impl Tool for ApplyPatch {
    const NAME: &'static str = "apply_patch";
    const KIND: Kind = Kind::Edit;
    const VERB: &'static str = "Apply patch";
    type Args = Args;
    type Seen = Vec<Step>;

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        let files = args.files();
        let paths = files.iter().flat_map(|it| [Some(it.path.as_str()), goal(it)]);
        paths.flatten().map(PathBuf::from).collect()
    }

    fn is_offered(&self, offer: &Offer) -> bool {
        offer.patches
    }

    fn view(&self, _: &Args, places: &[Target], roots: &Roots) -> CallView {
        let title = match places {
            [] => Self::VERB.to_owned(),
            [one] => format!("Patch {}", roots.short(one)),
            more => format!("Patch {} files", more.len()),
        };
        let location = |it| Location { path: roots.shown(it), line: Some(1) };
        CallView { title, kind: Self::KIND, locations: places.iter().map(location).collect() }
    }

    fn effects(&self, args: &Args, places: &[Target]) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut places = places.iter().cloned();
        for file in args.files() {
            let Some(place) = places.next() else { break };
            if let Some(to) = goal(&file).and_then(|_| places.next()) {
                effects.extend([Effect::Write(to), Effect::Read(place.clone())]);
                effects.push(Effect::Delete(place));
            } else if file.change == Change::Delete {
                effects.push(Effect::Delete(place));
            } else {
                effects.push(Effect::Write(place));
            }
        }
        effects
    }

    async fn look(
        &self,
        args: &Args,
        places: &[Target],
        ctx: &ToolCtx,
    ) -> Result<(Vec<Step>, Vec<Content>), String> {
        let files = patch::parse(&args.patch)
            .map_err(|it| format!("The patch makes no sense: {it}. Nothing was written."))?;
        for (number, place) in places.iter().enumerate() {
            if places[..number].contains(place) {
                let name = ctx.bench.files.roots().short(place);
                return Err(format!("{name} comes twice in the patch. Nothing was written."));
            }
        }
        let mut steps = Vec::new();
        let mut content = Vec::new();
        let mut room = change::MOST_BYTES;
        let mut bytes = 0_usize;
        let mut places = places.iter();
        for file in files {
            let Some(target) = places.next() else { break };
            let to = goal(&file).and_then(|_| places.next());
            let step = plan(file, target, to, ctx).await?;
            bytes += step.bytes();
            if bytes > MOST_BYTES {
                return Err("The files of the patch have more than 64 MiB together: make several \
                            patches. Nothing was written."
                    .to_owned());
            }
            content.push(shown(&step, ctx.bench.files.roots(), &mut room));
            steps.push(step);
        }
        Ok((steps, content))
    }

    fn foresees<'a>(&self, steps: &'a Vec<Step>, _: &'a [Target]) -> Vec<Foreseen<'a>> {
        steps.iter().flat_map(Step::foresees).collect()
    }

    async fn run(&self, args: Args, steps: Vec<Step>, pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let files = &ctx.bench.files;
        for step in &steps {
            if !step.effects().iter().all(|it| pass.effects().contains(it)) {
                return Outcome::failed("Nothing was written: there is no permission for it.");
            }
            if !change::is_still(&step.name, &step.target, ctx).await {
                return change::unwritten(&step.name, &FileError::Moved);
            }
        }
        let mut steps = steps;
        for number in 0..steps.len() {
            if let Err(error) = make(&mut steps[number], files, &ctx.cancel).await {
                let name = steps[number].name.clone();
                steps.truncate(number + 1);
                let rest = undo(steps, error.is_partial, files).await;
                return Outcome::failed(format!("{name} {}. {rest}", error.reason));
            }
        }
        clear_away(&steps, files).await;
        outcome(self.view(&args, &[], files.roots()), &steps, files.roots())
    }
}

/// Why a step failed, and whether a part of it was done.
struct Failure {
    reason: FileError,
    is_partial: bool,
}

impl From<FileError> for Failure {
    fn from(reason: FileError) -> Failure {
        Failure { reason, is_partial: false }
    }
}

impl Step {
    fn effects(&self) -> Vec<Effect> {
        let target = self.target.clone();
        match &self.act {
            Act::Update { to: Some(to), .. } => {
                vec![Effect::Write(to.clone()), Effect::Delete(target)]
            }
            Act::Add(_) | Act::Update { .. } => vec![Effect::Write(target)],
            Act::Delete { .. } => vec![Effect::Delete(target)],
        }
    }

    fn foresees(&self) -> Vec<Foreseen<'_>> {
        let path = &self.target.path;
        match &self.act {
            Act::Add(applied) => {
                let after = Some((applied.text.as_str(), Form::default()));
                vec![Foreseen { path, before: None, after }]
            }
            Act::Update { before, applied, to } => {
                let after = Some((applied.text.as_str(), before.form));
                match to {
                    None => vec![Foreseen { path, before: Some(before), after }],
                    Some(to) => vec![
                        Foreseen { path, before: Some(before), after: None },
                        Foreseen { path: &to.path, before: None, after },
                    ],
                }
            }
            Act::Delete { .. } => Vec::new(),
        }
    }

    /// What it holds in memory.
    fn bytes(&self) -> usize {
        match &self.act {
            Act::Add(applied) => applied.text.len(),
            Act::Update { before, applied, .. } => before.text.len() + applied.text.len(),
            Act::Delete { before, .. } => before.as_ref().map_or(0, |it| it.text.len()),
        }
    }

    /// Where the file is afterwards.
    fn place(&self) -> &Target {
        match &self.act {
            Act::Update { to: Some(to), .. } => to,
            Act::Add(_) | Act::Update { .. } | Act::Delete { .. } => &self.target,
        }
    }
}

/// What one file of the patch comes to.
async fn plan(
    file: FilePatch,
    target: &Target,
    to: Option<&Target>,
    ctx: &ToolCtx,
) -> Result<Step, String> {
    let files = &ctx.bench.files;
    let FilePatch { path: name, change } = file;
    let target = target.clone();
    let nothing = |why: &str| Err(format!("{name} {why}. Nothing was written."));
    if to.is_some() || change == Change::Delete {
        let (roots, path) = (files.roots().clone(), PathBuf::from(&name));
        let own = tokio::task::spawn_blocking(move || roots.entry(&path)).await;
        if own.ok().as_ref() != Some(&target) {
            return nothing("is a link; use move_path or delete_path");
        }
        if let Some(reason) = super::delete_path::protected(&target, ctx).await {
            return nothing(reason);
        }
    }
    let now = files.read(&target).await;
    let act = match (change, now) {
        (Change::Add { text }, Err(FileError::NotFound)) => {
            let spots = spots::between("", &text);
            let count = spots::count("", &text, &spots);
            Act::Add(Applied { text, spots, count, done: Vec::new() })
        }
        (Change::Add { .. }, Ok(_)) => return nothing("exists already; use `*** Update File`"),
        (Change::Delete, Err(FileError::Binary(_) | FileError::TooLarge(_))) => {
            Act::Delete { before: None, aside: None }
        }
        (_, Err(error)) => return Err(change::unreadable(&name, &target, error, ctx).await),
        (Change::Delete, Ok(before)) => {
            if let Some(lines) = change::since_read(ctx, &target, &before).await {
                return Err(change::stale(&name, &before, &lines));
            }
            Act::Delete { before: Some(before), aside: None }
        }
        (Change::Update { hunks, .. }, Ok(before)) => {
            if let Some(to) = to
                && files.survey(to).await != Err(FileError::NotFound)
            {
                let to = files.roots().short(to);
                return Err(format!("{to} exists already. Nothing was written."));
            }
            let changed = change::since_read(ctx, &target, &before).await;
            let may_quote = change::may_quote(ctx, &target, &before).await;
            let work = tokio::task::spawn_blocking(move || {
                let result = patch::apply(&before.text, &hunks);
                (before, result)
            });
            let (before, result) = work.await.map_err(|error| error.to_string())?;
            match result {
                Ok(applied) if changed.is_none() || change::is_exact(&applied) => {
                    Act::Update { before, applied, to: to.cloned() }
                }
                Ok(_) => {
                    return Err(change::stale(&name, &before, &changed.unwrap_or_default()));
                }
                Err(refusal) => {
                    return Err(match changed {
                        Some(lines) => change::stale(&name, &before, &lines),
                        None if may_quote => refusal.explain(&name),
                        None => change::unquoted(&name),
                    });
                }
            }
        }
    };
    Ok(Step { name, target, act })
}

/// Does one step. Afterwards it says what is really there.
async fn make(step: &mut Step, files: &Files, cancel: &CancellationToken) -> Result<(), Failure> {
    match &mut step.act {
        Act::Add(applied) => {
            let written = files.write(&step.target, None, &applied.text, cancel).await?;
            if let Some(now) = change::reformatted("", applied, &written) {
                *applied = now;
            }
        }
        Act::Update { before, applied, to } => {
            if let Some(to) = to {
                files.rename(&step.target, to).await?;
            }
            let place = to.as_ref().unwrap_or(&step.target);
            if applied.text != before.text {
                let is_partial = to.is_some();
                let written = files
                    .write(place, Some(before), &applied.text, cancel)
                    .await
                    .map_err(|reason| Failure { reason, is_partial })?;
                if let Some(now) = change::reformatted(&before.text, applied, &written) {
                    *applied = now;
                }
            }
        }
        Act::Delete { before, aside } => {
            if let Some(before) = before
                && files.read(&step.target).await?.text != before.text
            {
                return Err(FileError::Stale.into());
            }
            *aside = Some(files.set_aside(&step.target).await?);
        }
    }
    Ok(())
}

/// Removes for good what was only set aside.
async fn clear_away(steps: &[Step], files: &Files) {
    for step in steps {
        if let Act::Delete { aside: Some(aside), .. } = &step.act
            && let Err(error) = files.remove(aside, false, &CancellationToken::new()).await
        {
            tracing::warn!(%error, path = %aside.path.display(), "could not be removed");
        }
    }
}

/// Takes steps back, the last one first, which has failed and may be done in part. Says what came
/// of it.
async fn undo(mut steps: Vec<Step>, is_partial: bool, files: &Files) -> String {
    let mut kept = Vec::new();
    if let Some(last) = steps.pop()
        && is_partial
        && let Act::Update { to: Some(to), .. } = &last.act
        && files.rename(to, &last.target).await.is_err()
    {
        kept.push(last.name);
    }
    for step in steps.into_iter().rev() {
        if !take_back(&step, files).await {
            kept.push(step.name);
        }
    }
    match kept.as_slice() {
        [] => "No file was changed.".to_owned(),
        names => format!("These files could not be restored: {}.", names.join(", ")),
    }
}

async fn take_back(step: &Step, files: &Files) -> bool {
    // What was cancelled is taken back all the same.
    let go_on = CancellationToken::new();
    match &step.act {
        Act::Add(_) => files.remove(&step.target, false, &go_on).await.is_ok(),
        Act::Delete { aside: None, .. } => false,
        Act::Delete { aside: Some(aside), .. } => files.rename(aside, &step.target).await.is_ok(),
        Act::Update { before, applied, to } => {
            if let Some(to) = to
                && files.rename(to, &step.target).await.is_err()
            {
                return false;
            }
            let now = Text { text: applied.text.clone(), ..before.clone() };
            applied.text == before.text
                || files.write(&step.target, Some(&now), &before.text, &go_on).await.is_ok()
        }
    }
}

fn shown(step: &Step, roots: &Roots, room: &mut usize) -> Content {
    let path = roots.shown(step.place());
    match &step.act {
        Act::Add(applied) => change::diff(path, None, &applied.text, &applied.spots, room),
        Act::Update { before, applied, .. } => {
            change::diff(path, Some(&before.text), &applied.text, &applied.spots, room)
        }
        Act::Delete { before: Some(before), .. } => {
            change::diff(path, Some(&before.text), "", &spots::between(&before.text, ""), room)
        }
        Act::Delete { before: None, .. } => {
            Content::Text(format!("Delete {}", roots.short(&step.target)))
        }
    }
}

fn outcome(mut view: CallView, steps: &[Step], roots: &Roots) -> Outcome {
    let mut total = Count::default();
    let mut lines = String::new();
    let (mut room, mut card) = (spots::MOST_LINES, change::MOST_BYTES);
    for step in steps {
        let (verb, applied) = match &step.act {
            Act::Add(applied) => ("Added", Some(applied)),
            Act::Update { applied, to: None, .. } => ("Updated", Some(applied)),
            Act::Update { applied, to: Some(_), .. } => ("Moved", Some(applied)),
            Act::Delete { .. } => ("Deleted", None),
        };
        lines.push_str(&format!("{verb} {}", step.name));
        if step.place() != &step.target {
            lines.push_str(&format!(" to {}", roots.short(step.place())));
        }
        if let Some(applied) = applied {
            let Count { added, removed } = applied.count;
            total = Count { added: total.added + added, removed: total.removed + removed };
            lines.push_str(&format!(" (+{added} −{removed}). {}\n", change::rungs(applied)));
            if verb != "Added" {
                lines.push_str(&spots::show(&applied.text, &applied.spots, &mut room));
            }
        } else {
            lines.push_str(".\n");
        }
        let line = applied.map_or(1, change::first_line);
        view.locations.push(Location { path: roots.shown(step.place()), line: Some(line) });
    }
    let (count, Count { added, removed }) = (steps.len(), total);
    view.title = match steps {
        [one] => format!("Patch {} (+{added} −{removed})", roots.short(one.place())),
        _ => format!("Patch {count} files (+{added} −{removed})"),
    };
    let unit = if count == 1 { "file" } else { "files" };
    let head = format!("Applied the patch to {count} {unit} (+{added} −{removed}).");
    Outcome {
        ok: true,
        text: format!("{head}\n{lines}"),
        raw: json!({ "result": head, "files": count, "added": added, "removed": removed }),
        view: Some(view),
        content: steps.iter().map(|it| shown(it, roots, &mut card)).collect(),
        images: Vec::new(),
    }
}
