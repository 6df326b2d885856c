//! Shared by the tools that change files: how a change is shown and reported, and which paths are refused.

use std::path::{Component, Path, PathBuf};

use serde::de::IgnoredAny;
use serde_json::Value;

use super::{ExpectedChange, ToolCtx, ToolEnv};
use turnwright_policy::permission::DeniedPaths;
use turnwright_types::effect::{
    CallContent, FileFate, PathScope, ResolvedPath, escape_hidden_line, fenced, is_secret_path,
};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_workspace::edit::line_changes::{self, LineChange};
use turnwright_workspace::edit::{AppliedEdit, AppliedEdits, MatchKind};
use turnwright_workspace::files::{
    FileError, FileText, Freshness, Roots, TextSource, WriteOutcome, display,
};

/// The number of lines that are shown before the place, and in all.
const LINES_BEFORE: usize = 5;
const LINES_SHOWN: usize = 40;
const MAX_LINE_CHARS: usize = 300;

/// A file of at most this size is shown as a whole when an edit of it fails.
const SHORT_LINES: usize = 60;
const SHORT_BYTES: usize = 4 * 1024;

/// A card carries the whole texts only up to this many bytes.
pub(super) const MAX_CARD_BYTES: usize = 1024 * 1024;

/// A change for the card: both texts if they fit into `room`, else the changed lines. For long
/// texts, call it off the runtime's thread.
pub(super) fn diff(
    path: PathBuf,
    before: Option<&str>,
    after: &str,
    spots: &[LineChange],
    room: &mut usize,
) -> CallContent {
    let old = before.unwrap_or_default();
    if let Some(rest) = room.checked_sub(old.len() + after.len()) {
        *room = rest;
        let old = before.map(str::to_owned);
        let new = after.to_owned();
        return CallContent::Diff { path, old, new, fate: FileFate::Kept };
    }
    let changes = fenced(&line_changes::render_diff(old, after, spots));
    let name = escape_hidden_line(&display(&path));
    let from = old.len();
    let to = after.len();
    CallContent::Text(format!(
        "{name}: {from} → {to} bytes, too much to show all of it.\n{changes}"
    ))
}

/// The same for a text that was replaced as a whole.
pub(super) fn whole_file_diff(path: PathBuf, before: Option<&str>, after: &str) -> CallContent {
    let is_large = before.map_or(0, str::len) + after.len() > MAX_CARD_BYTES;
    let spots = is_large.then(|| line_changes::diff_texts(before.unwrap_or_default(), after));
    diff(path, before, after, &spots.unwrap_or_default(), &mut { MAX_CARD_BYTES })
}

/// Why the first of these paths that leads to another machine or a device is not used, for the model.
pub(super) fn refusal_of_other_machine(paths: &[PathBuf], roots: &Roots) -> Option<String> {
    let path = paths.iter().find(|path| roots.leads_elsewhere(path))?;
    Some(format!(
        "{} is on another machine or a device, which only looking at it would connect to. Nothing was done. \
         The user can add a folder of that machine to the session, or use a command.",
        escape_hidden_line(&display(path))
    ))
}

/// Checks that a path still resolves to the target that the user has seen. A link may have been
/// changed.
pub(super) async fn check_target(
    name: &str,
    target: &ResolvedPath,
    ctx: &ToolCtx,
) -> Result<(), ToolRefusal> {
    if ctx.env.files.resolve(name).await.as_ref() == Ok(target) {
        return Ok(());
    }
    Err(write_failure(name, &FileError::Moved))
}

/// Why a new file cannot have a path that ends like that of a folder, as a phrase that follows the path.
pub(super) const NAMES_FOLDER: &str = "names a folder: give the whole path, with the name of the file. Folders are made with their files";

/// Returns true if a path ends like that of a folder.
pub(super) fn names_folder(path: &str) -> bool {
    path.ends_with(std::path::is_separator) || path.ends_with("/.")
}

pub(super) fn write_failure(name: &str, error: &FileError) -> ToolRefusal {
    let says_so = !matches!(
        error,
        FileError::NotFound
            | FileError::Folder
            | FileError::NotAFolder
            | FileError::Special(_)
            | FileError::TooLarge(_)
            | FileError::Binary(_)
            | FileError::System(_)
    );
    let end = if says_so { "" } else { ". Nothing was written." };
    format!("{name} {error}{end}").into()
}

/// The change that was really made if the editor changed the text when it saved it; `None` if the
/// text is as it was sent.
pub(super) fn editor_changes(
    before: &str,
    sent: &AppliedEdits,
    written: &WriteOutcome,
) -> Option<AppliedEdits> {
    let now = &written.text.text;
    let edits = sent.edits.clone();
    (*now != sent.text).then(|| AppliedEdits { edits, ..whole_text(before, now.clone()) })
}

/// The change to another text that was given as a whole.
pub(super) fn whole_text(before: &str, text: String) -> AppliedEdits {
    let changes = line_changes::diff_texts(before, &text);
    let line_counts = line_changes::count_changed_lines(before, &text, &changes);
    AppliedEdits { text, edits: Vec::new(), changes, line_counts }
}

/// The note about files that the editor says it has written, and that do not have the text.
pub(super) fn not_shown(names: &str) -> String {
    format!(
        "[The editor took the text of {names}, but it is not there yet: read before you go on.]"
    )
}

/// The note about a text that was JSON before, such as a notebook, and will be none.
pub(super) fn broken_json(change: &ExpectedChange<'_>) -> Option<String> {
    let name = change.path.file_name()?.to_str()?;
    [".json", ".ipynb", ".geojson"].iter().find(|end| name.ends_with(**end))?;
    let (after, _) = change.after.filter(|(text, _)| text.len() <= MAX_CARD_BYTES)?;
    serde_json::from_str::<IgnoredAny>(&change.before?.text).ok()?;
    let error = serde_json::from_str::<IgnoredAny>(after).err()?;
    Some(format!("[{} was valid JSON before and is not now: {error}.]", escape_hidden_line(name)))
}

/// How the edits were matched, in a few words.
pub(super) fn match_summary(applied: &AppliedEdits) -> String {
    let all: Vec<_> = applied.edits.iter().map(matched).collect();
    match all.first() {
        Some(first) if all.iter().all(|other| other == first) => format!("Match: {first}."),
        Some(_) => {
            let each: Vec<_> =
                (1..).zip(&all).map(|(number, text)| format!("{number}: {text}")).collect();
            format!("Match: {}.", each.join("; "))
        }
        None => String::new(),
    }
}

fn matched(edit: &AppliedEdit) -> String {
    match edit.occurrences {
        1 => edit.match_kind.to_string(),
        places => format!("{}, in {places} places", edit.match_kind),
    }
}

/// Returns true if all edits matched exactly.
pub(super) fn is_exact(applied: &AppliedEdits) -> bool {
    applied.edits.iter().all(|edit| edit.match_kind == MatchKind::Exact)
}

/// The lines that were changed since the model read the file, as far as they are known; `None` if
/// the file is unchanged or was never read.
pub(super) async fn changed_since_read(
    ctx: &ToolCtx,
    target: &ResolvedPath,
    now: &FileText,
) -> Option<Vec<(usize, usize)>> {
    match ctx.env.files.freshness(target, now).await {
        Freshness::Unseen | Freshness::Same => None,
        Freshness::Changed(lines) => Some(lines),
    }
}

/// Returns true if an error may quote the file before the user was asked about the change: the model
/// may read it without a question, or has read its current content.
pub(super) async fn may_quote(env: &ToolEnv, target: &ResolvedPath, now: &FileText) -> bool {
    is_read_freely(env, target) || env.files.freshness(target, now).await == Freshness::Same
}

/// Returns true if the model may read the file without a question.
pub(crate) fn is_read_freely(env: &ToolEnv, target: &ResolvedPath) -> bool {
    target.scope != PathScope::Outside && !is_closed(env, target)
}

/// Returns true for a file that may have secrets, or that a rule does not let the model read.
pub(super) fn is_closed(env: &ToolEnv, target: &ResolvedPath) -> bool {
    is_secret_path(&target.path)
        || DeniedPaths::restricted(&env.shared.rules.get()).contains(&target.path)
}

/// Returns true if a change must not show the model any line of the file: that would be to read it without a question.
pub(super) async fn is_unread(env: &ToolEnv, target: &ResolvedPath, before: &FileText) -> bool {
    is_closed(env, target) && env.files.freshness(target, before).await != Freshness::Same
}

/// The error for the model if the file must not be quoted.
pub(super) fn not_quotable(name: &str) -> String {
    format!(
        "What was quoted is not in {name}, or not only once. More is said only of a file that \
         you have read: use read_file, which asks the user. Nothing was written."
    )
}

/// The error for the model if a file has changed since it was read, with the reason `why` if it may be told.
pub(super) fn stale_message(
    name: &str,
    now: &FileText,
    lines: &[(usize, usize)],
    why: Option<&str>,
) -> String {
    let place = if now.source == TextSource::Editor { "in the editor" } else { "on disk" };
    let lines = match line_ranges(lines) {
        lines if lines.is_empty() => lines,
        lines => format!(" (changed lines: {lines})"),
    };
    let why = why.unwrap_or("Nothing was written. Read it again.");
    format!("{name} changed {place} since you read it{lines}. {why}")
}

pub(super) fn line_ranges(lines: &[(usize, usize)]) -> String {
    let ranges = lines
        .iter()
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}–{to}") });
    ranges.collect::<Vec<_>>().join(", ")
}

/// The error for the model if a file to be edited cannot be read.
pub(super) async fn read_failure(
    name: &str,
    target: &ResolvedPath,
    error: &FileError,
    ctx: &ToolCtx,
) -> ToolRefusal {
    let mut text = format!("{name} {error}. Nothing was written.");
    if *error == FileError::NotFound {
        text.push_str(&similar_names(target, ctx).await);
        text.push_str(" To create a file use write_file.");
    }
    text.into()
}

/// The sentence of `Files::names_near` behind another, without what rules restrict; empty if there is nothing.
pub(super) async fn similar_names(target: &ResolvedPath, ctx: &ToolCtx) -> String {
    let closed = DeniedPaths::restricted(&ctx.env.shared.rules.get());
    let near = ctx.env.files.names_near(target, move |path| closed.contains(path)).await;
    near.map_or(String::new(), |near| format!(" {near}"))
}

/// The whole text of a short file with the numbers of its lines, for an edit that has failed; empty for a longer one.
pub(super) fn short_text(text: &str) -> String {
    let lines = text.lines().count();
    if lines == 0 || lines > SHORT_LINES || text.len() > SHORT_BYTES {
        return String::new();
    }
    let numbered: Vec<_> =
        (1..).zip(text.lines()).map(|(number, line)| format!("{number:>5}| {line}")).collect();
    format!(
        "\nThe file is now:\n{}\nCopy old_string from these lines, without their numbers, or send the whole new \
         text with write_file.",
        numbered.join("\n")
    )
}

/// The first changed line, counted from 1.
pub(super) fn first_changed_line(applied: &AppliedEdits) -> u32 {
    let first = applied.changes.first().map_or(0, |change| change.after.start);
    u32::try_from(first).unwrap_or(u32::MAX - 1) + 1
}

/// Why the first of these paths that begins with `~` is not used, for the model. Only a shell replaces `~` by the home
/// folder, so a file tool would create a folder of that name.
pub(super) fn refusal_of_home_path(paths: &[PathBuf], home: Option<&Path>) -> Option<String> {
    let tilde = Component::Normal("~".as_ref());
    let path = paths.iter().find(|path| path.components().next() == Some(tilde))?;
    let rest: PathBuf = path.components().skip(1).collect();
    let absolute = match home {
        Some(home) if rest.as_os_str().is_empty() => shown_path(home),
        Some(home) => shown_path(&home.join(rest)),
        None => "the absolute path".to_owned(),
    };
    let name = shown_path(path);
    Some(format!(
        "{name}: only a shell replaces ~ by the home folder. Nothing was done. Use {absolute}, or \
         ./{name} for what has this name in the project."
    ))
}

fn shown_path(path: &Path) -> String {
    escape_hidden_line(&display(path))
}

/// The file that a call would edit, by its arguments.
pub(crate) fn edited_path(arguments: &Value) -> Option<&str> {
    arguments.get("path").and_then(Value::as_str).or_else(|| {
        let patch = ["patch", "input"].iter().find_map(|name| arguments.get(name)?.as_str())?;
        patch.lines().find_map(|line| line.strip_prefix("*** Update File: ")).map(str::trim)
    })
}

/// The numbered lines around the place that a call would edit. `None` unless the model has read the
/// file and may read it now.
pub(crate) async fn current_place(env: &ToolEnv, arguments: &Value) -> Option<String> {
    let path = edited_path(arguments)?;
    let target = env.files.resolve(path).await.ok()?;
    let now = env.files.read(&target).await.ok()?;
    let is_known = env.files.freshness(&target, &now).await != Freshness::Unseen;
    if !is_known || !may_quote(env, &target, &now).await {
        return None;
    }
    Some(redact::text_with_placed_keys(&excerpt(&now.text, arguments)).into_owned())
}

/// The lines from shortly before the first one that the arguments quote.
fn excerpt(text: &str, arguments: &Value) -> String {
    let mut quoted = Vec::new();
    quoted_lines(arguments, &mut quoted);
    let lines: Vec<_> = text.lines().collect();
    let place = quoted.iter().find_map(|quote| lines.iter().position(|line| line.trim() == *quote));
    let first = place.unwrap_or(0).saturating_sub(LINES_BEFORE);
    let around = lines.iter().enumerate().skip(first).take(LINES_SHOWN);
    let shown = around.map(|(number, line)| {
        format!("{:>5}| {}", number + 1, text::first_chars(line, MAX_LINE_CHARS))
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// The lines of all texts that an edit or a patch may quote, without their marks.
fn quoted_lines<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => {
            let old = text.lines().filter(|line| !line.starts_with(['+', '*', '@']));
            let unmarked = old.map(|line| line.strip_prefix('-').unwrap_or(line).trim());
            found.extend(unmarked.filter(|line| line.len() > 3));
        }
        Value::Array(items) => items.iter().for_each(|item| quoted_lines(item, found)),
        Value::Object(fields) => {
            for (_, field) in fields.iter().filter(|(name, _)| !name.starts_with("new")) {
                quoted_lines(field, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_large_change_is_shown_by_its_changed_lines() {
        let old = "a line of text\n".repeat(50_000);
        let new = old.replacen("a line", "another line", 1) + "the end\n";
        let path = PathBuf::from("/f");
        let CallContent::Text(text) = whole_file_diff(path.clone(), Some(&old), &new) else {
            panic!("the card carries all of it")
        };
        assert!(text.len() < 1_000, "{text}");
        assert!(text.contains("-a line of text\n+another line of text\n"), "{text}");
        assert!(text.contains("+the end\n"), "{text}");
        let CallContent::Text(text) = whole_file_diff(path.clone(), None, &"x\n".repeat(600_000))
        else {
            panic!("the card carries all of it")
        };
        assert!(text.len() < 40_000 && text.contains("more changes are not"), "{}", text.len());
        let wide = "語".repeat(2_000) + "\n";
        let CallContent::Text(text) = whole_file_diff(path.clone(), None, &wide.repeat(400)) else {
            panic!("the card carries all of it")
        };
        assert!(text.len() < 40_000, "{}", text.len());
        let small = whole_file_diff(path.clone(), None, "new");
        let fate = FileFate::Kept;
        assert_eq!(small, CallContent::Diff { path, old: None, new: "new".to_owned(), fate });
    }

    #[test]
    fn several_changes_share_the_room_of_a_card() {
        let text = "x\n".repeat(MAX_CARD_BYTES / 3);
        let mut room = MAX_CARD_BYTES;
        let mut show = || diff(PathBuf::from("/f"), None, &text, &[], &mut room);
        assert!(matches!(show(), CallContent::Diff { .. }));
        assert!(matches!(show(), CallContent::Text(_)));
    }

    #[test]
    fn a_tilde_is_refused_only_where_a_shell_would_replace_it() {
        let home = Some(Path::new("/home/me"));
        let refusal = |path: &str| refusal_of_home_path(&["a".into(), path.into()], home);
        for (path, expected) in [("~", "Use /home/me, or ./~ for"), ("~/a/b", "/home/me/a/b, or")] {
            let text = refusal(path).unwrap().replace(std::path::MAIN_SEPARATOR, "/");
            assert!(text.contains(expected), "{path}: {text}");
        }
        for path in ["./~", "a/~/b", "~a", "~$report.docx", "/~", "b~"] {
            assert_eq!(refusal(path), None, "{path}");
        }
    }

    #[test]
    fn the_place_is_found_by_a_line_that_is_there() {
        let lines: Vec<_> = (1..=100).map(|number| format!("    line number {number}\n")).collect();
        let text = lines.concat();
        let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-line number 60\n-gone\n+new";
        for (arguments, path, first) in [
            (json!({ "path": "a", "old_text": "gone\nline number 50" }), Some("a"), 45),
            (json!({ "path": "a", "edits": [{ "old_text": "  line number 7" }] }), Some("a"), 2),
            (json!({ "path": "a", "new_text": "line number 90", "old_text": "no" }), Some("a"), 1),
            (json!({ "patch": patch }), Some("a.txt"), 55),
            (json!({ "x": 1 }), None, 1),
        ] {
            assert_eq!(edited_path(&arguments), path, "{arguments}");
            let shown = excerpt(&text, &arguments);
            let expected = format!("{first:>5}|     line number {first}\n");
            assert!(shown.starts_with(&expected), "{arguments}: {shown}");
            assert_eq!(shown.lines().count(), LINES_SHOWN);
        }
    }
}
