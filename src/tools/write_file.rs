//! `write_file`: creates, replaces or appends to a text file.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{CONTENT, PATH, ShownArgument};
use super::{
    CallPlan, CallSite, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx, ToolOutcome,
    edit_common, locations,
};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{
    CallContent, CallView, Effect, PathScope, ResolvedPath, ToolKind, escape_hidden_line,
    is_secret_path,
};
use turnwright_types::hash::std_hash;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_workspace::checkpoint::ExpectedChange;
use turnwright_workspace::edit::{omission, unescaped_lines, unnumbered_lines};
use turnwright_workspace::files::{FileError, FileText, Freshness, Roots, WriteOutcome};

/// Why a file that may hold secrets, or that has much more text than the new one, is not replaced.
const UNREAD: &str = "has text that you have not read and that would be lost. Nothing was written. Add lines with \
                      `mode` append, change some with edit_file, or call read_file first.";
/// A text of at most this many bytes may be replaced unread, whatever the length of the new text.
pub(super) const MAX_UNREAD_BYTES: usize = 4096;

/// At most this many characters of the last line are shown.
const MAX_LAST_CHARS: usize = 120;
/// The extensions of files whose whole text is never a block of Markdown.
const CODE_ENDS: &str =
    "c cpp cs css go h html java js json jsx kt php py rb rs sh sql swift toml ts tsx yaml yml";

/// Create, replace or append to a text file. Split content of more than 2000 characters: write the
/// first part, then append.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WriteFile {
    /// Relative to the working folder
    path: String,
    /// The whole text, or the part to append
    content: String,
    #[serde(default)]
    mode: WriteMode,
    /// There is no such file yet; set by [`Tool::plan`].
    #[serde(skip)]
    is_new: bool,
    /// Tells the model what came with the content and is not written; empty if nothing did. Set by [`Tool::plan`].
    #[serde(skip)]
    left_out: &'static str,
}

impl WriteFile {
    fn verb(&self) -> &'static str {
        match self.mode {
            _ if self.is_new => "Create",
            WriteMode::Append => "Append to",
            WriteMode::Overwrite => "Edit",
        }
    }

    /// Two calls with the same fingerprint write the same.
    fn fingerprint(&self) -> u64 {
        std_hash((&self.path, &self.content, self.mode == WriteMode::Append))
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum WriteMode {
    #[default]
    Overwrite,
    Append,
}

#[derive(Debug, Default)]
pub(super) struct PlannedWrite {
    /// The file.
    place: PathBuf,
    before: Option<FileText>,
    after: String,
    /// The call repeats the last one, and the file has its text already.
    is_done: bool,
}

impl Tool for WriteFile {
    const NAME: &'static str = "write_file";
    const KIND: ToolKind = ToolKind::Edit;
    const PENDING_TITLE: &'static str = "Write file";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH, CONTENT];
    type Preview = PlannedWrite;

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_any(&mut self.path)]
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let target = site.resolve(PathBuf::from(&self.path));
        self.is_new = site.may_look() && !target.path.exists();
        let content = self.content.as_str();
        let fenced = text::unfenced(content).filter(|_| is_code(&self.path));
        let repaired = unnumbered_lines(content)
            .map(|lines| (lines, " The line numbers in `content` were left out."))
            .or_else(|| Some((fenced?.to_owned(), " The fence around `content` was left out.")))
            .or_else(|| Some((unescaped_lines(content)?, self.left_out)));
        if let Some((lines, left_out)) = repaired {
            self.content = lines;
            self.left_out = left_out;
        }
        CallPlan::writing(view(self.verb(), &target, site.roots()), target)
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<PlannedWrite> {
        let Some(target) = targets.first() else {
            return Err("write_file needs a `path`. Nothing was written.".into());
        };
        let before = match ctx.env.files.read_existing(target).await {
            Ok(text) => Some(text),
            Err(FileError::NotFound) if edit_common::names_folder(&self.path) => {
                let why = edit_common::NAMES_FOLDER;
                return Err(format!("{} {why}. Nothing was written.", self.path).into());
            }
            Err(FileError::NotFound) => None,
            Err(error) => return Err(format!("{} {error}. Nothing was written.", self.path).into()),
        };
        if let (Some(text), WriteMode::Overwrite) = (&before, self.mode) {
            if let Some(regions) = edit_common::changed_since_read(ctx, target, text).await {
                return Err(edit_common::stale_message(&self.path, text, &regions, None).into());
            }
            let most = (self.content.len() * 2).max(MAX_UNREAD_BYTES);
            let limit = if is_secret_path(&target.path) { 0 } else { most };
            // The existence of a file elsewhere is not told before the user is asked.
            let loses_text = target.scope == PathScope::Workspace && text.text.len() > limit;
            if loses_text && ctx.env.files.freshness(target, text).await == Freshness::Unseen {
                return Err(format!("{} {UNREAD}", self.path).into());
            }
        }
        let path = ctx.env.files.roots().client_path(target);
        let content = self.content.clone();
        let mode = self.mode;
        let is_repeated = ctx.env.traces.last_write.load(Ordering::Relaxed) == self.fingerprint();
        // Diffing long texts takes a while.
        let work = spawn_blocking(move || plan_write(path, before, content, mode, is_repeated));
        let (planned, diff) = work.await.map_err(|error| error.to_string())??;
        Ok((PlannedWrite { place: target.path.clone(), ..planned }, diff))
    }

    fn expected_changes(planned: &PlannedWrite) -> Vec<ExpectedChange<'_>> {
        let before = planned.before.as_ref();
        let encoding = before.map(|text| text.encoding).unwrap_or_default();
        let after = Some((planned.after.as_str(), encoding));
        vec![ExpectedChange { path: &planned.place, before, after }]
    }

    async fn run(self, planned: PlannedWrite, pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let Some(Effect::Write(target)) = pass.effects().first() else {
            return Err("Nothing was written: there is no permission for it.".into());
        };
        edit_common::check_target(&self.path, target, ctx).await?;
        if planned.is_done {
            return Ok(unchanged(&self.path, &self.content, &planned.after));
        }
        let before = planned.before.as_ref();
        let extended = before.filter(|_| self.mode == WriteMode::Append);
        // Appending does not show that the model knows the text before.
        let is_unread = match extended {
            Some(before) => edit_common::is_unread(&ctx.env, target, before).await,
            None => false,
        };
        let is_anew = before.is_none() && ctx.env.files.has_seen(target);
        let written = ctx.env.files.write(target, before, &planned.after, &ctx.cancel).await;
        let WriteOutcome { text: now, is_confirmed } =
            written.map_err(|error| edit_common::write_failure(&self.path, &error))?;
        if is_unread {
            ctx.env.files.forget_seen(target);
        }
        ctx.env.traces.last_write.store(self.fingerprint(), Ordering::Relaxed);
        let done = match extended {
            Some(before)
                if before.text.ends_with(|end: char| end != '\n')
                    && !self.content.starts_with(['\n', '\r']) =>
            {
                "Appended to the last line, which had no line break, of"
            }
            Some(_) => "Appended to",
            None if is_anew => "This file was removed or moved since you knew it. Created anew:",
            None => before.map_or("Created", |_| "Replaced"),
        };
        let bytes = now.text.len();
        let path = ctx.env.files.roots().client_path(target);
        let work = spawn_blocking(move || {
            let PlannedWrite { before, after, .. } = planned;
            let old = before.as_ref().map(|before| before.text.as_str());
            let diff = edit_common::whole_file_diff(path, old, &now.text);
            (now.text.lines().count(), now.text != after, diff)
        });
        let Ok((lines, is_changed, diff)) = work.await else {
            return Err(format!("{done} {}; what is there is not known.", self.path).into());
        };
        let note = match (is_confirmed, is_changed) {
            (false, _) => " The editor took the text but does not show it yet.",
            (_, true) => " The editor changed the text when it saved it: read it before you edit.",
            _ => self.left_out,
        };
        let text = format!("{done} {}: {lines} lines, {bytes} bytes.{note}", self.path);
        let raw = json!({ "result": text, "lines": lines, "bytes": bytes });
        let view = view(self.verb(), target, ctx.env.files.roots());
        Ok(ToolOutcome { view: Some(view), ..ToolOutcome::done(text, vec![diff], raw) })
    }
}

/// Returns true if a file of this name has code, and no fence of Markdown around it.
fn is_code(path: &str) -> bool {
    let mut ends = CODE_ENDS.split(' ');
    Path::new(path).extension().is_some_and(|extension| ends.any(|end| extension == end))
}

/// Computes the new text and its diff.
fn plan_write(
    path: PathBuf,
    before: Option<FileText>,
    content: String,
    mode: WriteMode,
    is_repeated: bool,
) -> Result<(PlannedWrite, Vec<CallContent>), ToolRefusal> {
    let old = before.as_ref().map(|before| before.text.as_str());
    if let Some(line) = omission::find_placeholder(&content, old.unwrap_or_default(), "content") {
        return Err(omission_error(&content, line).into());
    }
    let after = match (&before, mode) {
        (Some(before), WriteMode::Append) => {
            let added = before.with_file_line_endings(&content);
            let is_there = is_repeated && before.text.ends_with(&added);
            format!("{}{}", before.text, if is_there { "" } else { added.as_str() })
        }
        (Some(before), WriteMode::Overwrite) => before.with_file_line_endings(&content),
        (None, _) => content,
    };
    let is_done = is_repeated && old == Some(after.as_str());
    let diff = edit_common::whole_file_diff(path, old, &after);
    Ok((PlannedWrite { before, after, is_done, ..PlannedWrite::default() }, vec![diff]))
}

/// The answer to a call that was made before: the file has its text. Of the file no more is shown than was sent: it may
/// hold secrets.
fn unchanged(path: &str, content: &str, now: &str) -> ToolOutcome {
    let lines = now.lines().count();
    let last = text::first_chars(content.lines().last().unwrap_or_default(), MAX_LAST_CHARS);
    let end = escape_hidden_line(last);
    let told = format!(
        "[{path} has this already; nothing was written. It has {lines} lines and ends with: {end}. \
         Do the next step.]"
    );
    ToolOutcome::done_as_shown(told, json!({ "lines": lines }))
}

/// The error for content with a line that does not belong in a file, such as `// ... existing code ...`.
fn omission_error(content: &str, line: usize) -> String {
    let words = content.lines().nth(line - 1).unwrap_or_default().trim();
    format!(
        "Line {line} of `content`, `{}`, {} Nothing was written.",
        escape_hidden_line(text::last_chars(words, 120)),
        omission::REFUSAL
    )
}

fn view(verb: &str, target: &ResolvedPath, roots: &Roots) -> CallView {
    let title = format!("{verb} {}", roots.display_path(target));
    let locations = locations(roots, std::slice::from_ref(target), Some(1));
    CallView { title, kind: WriteFile::KIND, locations }
}
