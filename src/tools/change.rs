//! What tools that change files have in common: how a change is shown and told.

use std::path::PathBuf;

use crate::edit::spots::{self, Spot};
use crate::edit::{Applied, Rung};
use crate::effect::{Content, Place, Target, fenced, is_secret};
use crate::files::{FileError, Freshness, Source, Text, Written, display};

use super::ToolCtx;

/// Larger texts are shown by their changed lines: a diff holds both texts as a whole.
const LARGEST_DIFF: usize = 1024 * 1024;

/// A change as the card shows it.
pub(super) fn diff(path: PathBuf, before: Option<&str>, after: &str, spots: &[Spot]) -> Content {
    match before {
        Some(before) if before.len().max(after.len()) > LARGEST_DIFF => {
            let changes = spots::changes(before, after, spots);
            Content::Text(format!("{}\n{}", path.display(), fenced(&changes)))
        }
        _ => Content::Diff { path, old: before.map(str::to_owned), new: after.to_owned() },
    }
}

/// What an editor has made of a text when it saved it; nothing, if it is as it was sent.
pub(super) fn reformatted(before: &str, sent: &Applied, written: &Written) -> Option<Applied> {
    if written.text.text == sent.text {
        return None;
    }
    let text = written.text.text.clone();
    let spots = spots::between(before, &text);
    let count = spots::count(before, &text, &spots);
    Some(Applied { text, spots, count, done: sent.done.clone() })
}

/// How the pieces were found, in a few words.
pub(super) fn rungs(applied: &Applied) -> String {
    let one = |it: &crate::edit::Done| match it.places {
        1 => it.rung.to_string(),
        places => format!("{}, in {places} places", it.rung),
    };
    let all: Vec<_> = applied.done.iter().map(one).collect();
    match all.first() {
        Some(first) if all.iter().all(|it| it == first) => format!("Match: {first}."),
        Some(_) => {
            let each: Vec<_> =
                (1..).zip(&all).map(|(number, it)| format!("{number}: {it}")).collect();
            format!("Match: {}.", each.join("; "))
        }
        None => String::new(),
    }
}

/// Whether everything was found exactly.
pub(super) fn is_exact(applied: &Applied) -> bool {
    applied.done.iter().all(|it| it.rung == Rung::Exact)
}

/// The lines that somebody else has changed since the model has read the file, as far as they
/// are known; `None` if nobody has.
pub(super) async fn since_read(
    ctx: &ToolCtx,
    target: &Target,
    now: &Text,
) -> Option<Vec<(usize, usize)>> {
    match ctx.bench.files.judge(target, now).await {
        Freshness::Unseen | Freshness::Same => None,
        Freshness::Changed(lines) => Some(lines),
    }
}

/// Whether the model may be told what is in a file before the user was asked about the change: it
/// may read it without a question, or has read it as it is.
pub(super) async fn may_quote(ctx: &ToolCtx, target: &Target, now: &Text) -> bool {
    let is_free = target.place != Place::Outside && !is_secret(&target.path);
    is_free || ctx.bench.files.judge(target, now).await == Freshness::Same
}

/// What the model is told where it may not.
pub(super) fn unquoted(name: &str) -> String {
    format!(
        "What was quoted is not in {name}, or not only once. More is said only of a file that \
         you have read: use read_file, which asks the user. Nothing was written."
    )
}

/// What the model is told about a file that is not what it has read.
pub(super) fn stale(name: &str, now: &Text, lines: &[(usize, usize)]) -> String {
    let place = if now.source == Source::Editor { "in the editor" } else { "on disk" };
    let lines = match spans(lines) {
        lines if lines.is_empty() => lines,
        lines => format!(" (changed lines: {lines})"),
    };
    format!("{name} changed {place} since you read it{lines}. Nothing was written. Read it again.")
}

/// Ranges of lines in words.
pub(super) fn spans(lines: &[(usize, usize)]) -> String {
    let span = |(from, to): &(usize, usize)| {
        if from == to { from.to_string() } else { format!("{from}–{to}") }
    };
    lines.iter().map(span).collect::<Vec<_>>().join(", ")
}

/// What the model is told about a file that cannot be read.
pub(super) async fn unreadable(
    name: &str,
    target: &Target,
    error: FileError,
    ctx: &ToolCtx,
) -> String {
    let mut text = format!("{name} {error}. Nothing was written.");
    if error == FileError::NotFound {
        let near = ctx.bench.files.similar(target).await;
        if !near.is_empty() {
            let names: Vec<_> = near.iter().map(|it| display(it)).collect();
            text.push_str(&format!(" Similar names: {}.", names.join(", ")));
        }
        text.push_str(" To create a file use write_file.");
    }
    text
}

/// The first changed line, counted from 1.
pub(super) fn first_line(applied: &Applied) -> u32 {
    let first = applied.spots.first().map_or(0, |it| it.after.start);
    u32::try_from(first).unwrap_or(u32::MAX - 1) + 1
}
