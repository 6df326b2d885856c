//! What tools that change files have in common: how a change is shown and told.

use std::path::PathBuf;

use turnwright_workspace::edit::spots::{self, Spot};
use turnwright_workspace::edit::{Applied, Rung};
use turnwright_types::effect::{Content, Place, Target, fenced, is_secret, visible_line};
use turnwright_workspace::files::{FileError, Freshness, Source, Text, Written, display};

use super::{Outcome, ToolCtx};

/// The most bytes that a card carries of texts as a whole.
pub(super) const MOST_BYTES: usize = 1024 * 1024;

/// A change as the card shows it, off the runtime's thread if `before` and `after` are long: both
/// texts if there is `room` for them, else the changed lines.
pub(super) fn diff(
    path: PathBuf,
    before: Option<&str>,
    after: &str,
    spots: &[Spot],
    room: &mut usize,
) -> Content {
    let old = before.unwrap_or_default();
    if let Some(rest) = room.checked_sub(old.len() + after.len()) {
        *room = rest;
        return Content::Diff { path, old: before.map(str::to_owned), new: after.to_owned() };
    }
    let changes = fenced(&spots::changes(old, after, spots));
    let (name, from, to) = (visible_line(&display(&path)), old.len(), after.len());
    Content::Text(format!("{name}: {from} → {to} bytes, too much to show all of it.\n{changes}"))
}

/// The same for a text that was replaced as a whole.
pub(super) fn rewritten(path: PathBuf, before: Option<&str>, after: &str) -> Content {
    let is_large = before.map_or(0, str::len) + after.len() > MOST_BYTES;
    let spots =
        if is_large { spots::between(before.unwrap_or_default(), after) } else { Vec::new() };
    diff(path, before, after, &spots, &mut { MOST_BYTES })
}

/// Whether a name still means the place that the user has seen: a link may have been pointed
/// elsewhere.
pub(super) async fn is_still(name: &str, target: &Target, ctx: &ToolCtx) -> bool {
    ctx.bench.files.resolve(name).await.as_ref() == Ok(target)
}

/// Why a file was not written.
pub(super) fn unwritten(name: &str, error: &FileError) -> Outcome {
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
    Outcome::failed(format!("{name} {error}{end}"))
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
    let one = |it: &turnwright_workspace::edit::Done| match it.places {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_change_is_shown_by_its_changed_lines() {
        let old = "a line of text\n".repeat(50_000);
        let new = old.replacen("a line", "another line", 1) + "the end\n";
        let path = PathBuf::from("/f");
        let Content::Text(text) = rewritten(path.clone(), Some(&old), &new) else {
            panic!("the card carries all of it")
        };
        assert!(text.len() < 1_000, "{text}");
        assert!(text.contains("-a line of text\n+another line of text\n"), "{text}");
        assert!(text.contains("+the end\n"), "{text}");
        let Content::Text(text) = rewritten(path.clone(), None, &"x\n".repeat(600_000)) else {
            panic!("the card carries all of it")
        };
        assert!(text.len() < 40_000 && text.contains("more changes are not"), "{}", text.len());
        let wide = "語".repeat(2_000) + "\n";
        let Content::Text(text) = rewritten(path.clone(), None, &wide.repeat(400)) else {
            panic!("the card carries all of it")
        };
        assert!(text.len() < 40_000, "{}", text.len());
        let small = rewritten(path.clone(), None, "new");
        assert_eq!(small, Content::Diff { path, old: None, new: "new".to_owned() });
    }

    #[test]
    fn several_changes_share_the_room_of_a_card() {
        let text = "x\n".repeat(MOST_BYTES / 3);
        let mut room = MOST_BYTES;
        let mut show = || diff(PathBuf::from("/f"), None, &text, &[], &mut room);
        assert!(matches!(show(), Content::Diff { .. }));
        assert!(matches!(show(), Content::Text(_)));
    }
}
