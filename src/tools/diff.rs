//! How a change is shown: as a whole, or by its hunks where that would be too much for a card.

use std::path::PathBuf;
use std::time::Duration;

use crate::effect::{Content, fenced};

/// The most bytes of both texts together that a card carries.
const MOST_BYTES: usize = 1024 * 1024;
/// The most bytes of hunks.
const MOST_HUNKS: usize = 32 * 1024;
/// Time for finding them; after that they are coarser.
const PATIENCE: Duration = Duration::from_millis(500);

/// A change of a file as a card shows it; `old` is `None` for a new file.
pub(super) async fn content(path: PathBuf, old: Option<&str>, new: &str) -> Content {
    let old = old.map(str::to_owned);
    let new = new.to_owned();
    if old.as_ref().map_or(0, String::len) + new.len() <= MOST_BYTES {
        return Content::Diff { path, old, new };
    }
    let old = old.unwrap_or_default();
    let hunks = tokio::task::spawn_blocking(move || hunks(&old, &new)).await.unwrap_or_default();
    Content::Text(hunks)
}

/// The changed lines with a few around them.
fn hunks(old: &str, new: &str) -> String {
    let diff = similar::TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    let mut unified = diff.unified_diff();
    let mut text = String::new();
    for hunk in unified.context_radius(3).iter_hunks() {
        text.push_str(&format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let line = change.value().trim_end_matches(['\r', '\n']);
            let end = line.char_indices().nth(500).map_or(line.len(), |it| it.0);
            text.push_str(&format!("{}{}\n", change.tag(), &line[..end]));
            if text.len() > MOST_HUNKS {
                text.push_str("[and more]\n");
                return shown(old, new, &text);
            }
        }
    }
    shown(old, new, &text)
}

fn shown(old: &str, new: &str, hunks: &str) -> String {
    let (before, after) = (old.len(), new.len());
    format!("{before} → {after} bytes; too large to be shown as a whole.\n{}", fenced(hunks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_change_is_shown_by_its_hunks() {
        let old = "a line of text\n".repeat(50_000);
        let new = old.replacen("a line", "another line", 1) + "the end\n";
        let path = PathBuf::from("/f");
        let Content::Text(text) = content(path.clone(), Some(&old), &new).await else {
            panic!("the card carries all of it")
        };
        assert!(text.len() < 1_000, "{text}");
        assert!(text.contains("-a line of text\n+another line of text\n"), "{text}");
        assert!(text.contains("+the end\n"), "{text}");
        let Content::Text(text) = content(path.clone(), None, &"x\n".repeat(600_000)).await else {
            panic!("the card carries all of it")
        };
        assert!(text.len() < 40_000 && text.contains("[and more]"), "{}", text.len());
        let small = content(path.clone(), None, "new").await;
        assert_eq!(small, Content::Diff { path, old: None, new: "new".to_owned() });
    }
}
