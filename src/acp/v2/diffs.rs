//! File changes as version 2 shows them: which file has changed how, and a patch in the format of Git. While the model
//! is still writing a file, the client gets each line once: the first lines as the content of the card, and those that
//! follow as further items of it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use turnwright_types::effect::{CallContent, FileFate};
use turnwright_types::hash::std_hash;
use turnwright_types::line_diff::unified_diff;
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, ToolCallStatus};

/// The longest texts, in bytes, of which a patch is made. A client can read longer files itself.
const MAX_TEXT: usize = 1024 * 1024;
/// How long a patch may take; it is coarser after that. Everything else of the process waits so long.
const PATCH_TIMEOUT: Duration = Duration::from_millis(5);
/// The unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// The content of a card that shows a change (R-TWO-12). `old` is `None` if the file is new.
pub(super) fn diff(path: &Path, old: Option<&str>, new: &str, fate: &FileFate) -> Value {
    let operation = match fate {
        FileFate::Deleted => "delete",
        FileFate::MovedFrom(_) => "move",
        FileFate::Kept if old.is_none() => "add",
        FileFate::Kept => "modify",
    };
    let mut change = json!({ "operation": operation, "path": path, "fileType": "text" });
    if let FileFate::MovedFrom(before) = fate {
        change["oldPath"] = json!(before);
    }
    let mut diff = json!({ "type": "diff", "changes": [change] });
    if let Some(text) = patch(path, old, new, fate) {
        diff["patch"] = git_patch(text);
    }
    diff
}

/// The item of a card that shows further lines, which end with a line break, of a file that is being written.
fn added_lines(path: &Path, first: usize, lines: &str) -> Value {
    let change = json!({ "operation": "add", "path": path, "fileType": "text" });
    let mut diff = json!({ "type": "diff", "changes": [change] });
    if let Some(name) = path.to_str().map(quoted) {
        let count = match lines.matches('\n').count() {
            1 => String::new(),
            count => format!(",{count}"),
        };
        let mut text = format!(
            "diff --git {name} {name}\nnew file mode 100644\n--- /dev/null\n+++ {name}\n@@ -0,0 +{first}{count} @@\n"
        );
        text.extend(lines.split_inclusive('\n').flat_map(|line| ["+", line]));
        diff["patch"] = git_patch(text);
    }
    diff
}

/// `json!` would copy the text.
fn git_patch(text: String) -> Value {
    let mut patch = json!({ "format": "git_patch" });
    patch["text"] = text.into();
    patch
}

/// The patch. `None` for long texts, and for a path that is not text.
fn patch(path: &Path, old: Option<&str>, new: &str, fate: &FileFate) -> Option<String> {
    if old.map_or(0, str::len).max(new.len()) > MAX_TEXT {
        return None;
    }
    let path = quoted(path.to_str()?);
    let before = match fate {
        FileFate::MovedFrom(before) => quoted(before.to_str()?),
        FileFate::Kept | FileFate::Deleted => path.clone(),
    };
    let deadline = Instant::now() + PATCH_TIMEOUT;
    let hunks = unified_diff(old.unwrap_or_default(), new, CONTEXT_LINES, Some(deadline));
    let mut text = format!("diff --git {before} {path}\n");
    match fate {
        FileFate::Deleted => text.push_str("deleted file mode 100644\n"),
        FileFate::MovedFrom(_) => {
            text.push_str(&format!("rename from {before}\nrename to {path}\n"));
        }
        FileFate::Kept if old.is_none() => text.push_str("new file mode 100644\n"),
        FileFate::Kept => {}
    }
    if !hunks.is_empty() {
        let nothing = "/dev/null";
        let before = if old.is_none() { nothing } else { before.as_str() };
        let after = if *fate == FileFate::Deleted { nothing } else { path.as_str() };
        text.push_str(&format!("--- {before}\n+++ {after}\n{hunks}"));
    }
    Some(text)
}

/// A path as Git writes it: with `/` on Windows, too, and quoted if it has unusual characters.
fn quoted(path: &str) -> String {
    let path = if cfg!(windows) { path.replace('\\', "/") } else { path.to_owned() };
    if path.bytes().all(is_usual) {
        return path;
    }
    let mut text = String::from("\"");
    for byte in path.bytes() {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            _ if is_usual(byte) => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}

fn is_usual(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\'
}

/// The part of a file that the client shows.
#[derive(Debug)]
pub(super) struct ShownPreview {
    bytes: usize,
    lines: usize,
    /// The hash of what is shown.
    hash: u64,
}

/// Takes the preview out of an update if the client shows its beginning, and returns the item with the lines that
/// are new. `shown` is the part that the client shows of the same call.
pub(super) fn take_more(
    shown: &mut Option<ShownPreview>,
    update: &mut CallUpdate,
) -> Option<Value> {
    if update.status != ToolCallStatus::Pending {
        *shown = None;
        return None;
    }
    let mut content = update.content.take()?;
    let [CallContent::Diff { path, old: None, new, .. }] = content.as_mut_slice() else {
        update.content = Some(content);
        *shown = None;
        return None;
    };
    // The last line may not be complete. A key is never split in two, since it has no line break.
    new.truncate(text::whole_lines(new).len());
    let before = shown.as_ref();
    let added = before.and_then(|preview| Some((preview.lines, preview.added_to(new)?)));
    let more = added
        .filter(|(_, added)| !added.is_empty())
        .map(|(lines, added)| added_lines(path, lines + 1, added));
    let is_other = added.is_none();
    let preview = ShownPreview::of(new);
    if preview.bytes > 0 {
        if is_other {
            update.content = Some(content);
        }
        *shown = Some(preview);
    }
    more
}

impl ShownPreview {
    fn of(text: &str) -> ShownPreview {
        ShownPreview { bytes: text.len(), lines: text.matches('\n').count(), hash: std_hash(text) }
    }

    /// The part of a text behind what is shown. Returns `None` if something else is shown.
    fn added_to<'a>(&self, text: &'a str) -> Option<&'a str> {
        let (known, added) = text.split_at_checked(self.bytes)?;
        (std_hash(known) == self.hash).then_some(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_a_patch_with_absolute_paths() {
        let table = [
            (
                "/w/a.txt",
                Some("one\ntwo\n"),
                "one\nTWO\n",
                "modify",
                "diff --git /w/a.txt /w/a.txt\n--- /w/a.txt\n+++ /w/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n",
            ),
            (
                "/w/ä b",
                None,
                "x",
                "add",
                "diff --git \"/w/\\303\\244 b\" \"/w/\\303\\244 b\"\nnew file mode 100644\n--- /dev/null\n\
                 +++ \"/w/\\303\\244 b\"\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n",
            ),
            ("/e", None, "", "add", "diff --git /e /e\nnew file mode 100644\n"),
        ];
        for (path, old, new, operation, patch) in table {
            let shown = diff(Path::new(path), old, new, &FileFate::Kept);
            assert_eq!(shown["changes"][0]["operation"], operation);
            assert_eq!(shown["changes"][0]["path"], path);
            assert_eq!(shown["patch"]["text"], patch);
        }
        let long = "x".repeat(MAX_TEXT + 1);
        assert!(diff(Path::new("/w/a"), None, &long, &FileFate::Kept).get("patch").is_none());
    }

    fn preview(text: &str) -> CallUpdate {
        let path = "/w/a".into();
        let new = text.to_owned();
        let mut update = CallUpdate::new("call-1".into(), ToolCallStatus::Pending);
        update.content =
            Some(vec![CallContent::Diff { path, old: None, new, fate: FileFate::Kept }]);
        update
    }

    #[test]
    fn each_line_is_shown_once_unless_another_text_begins() {
        let mut shown = None;
        let table = [
            ("on", None, None),
            ("one\ntw", Some("one\n"), None),
            ("one\ntwo", None, None),
            ("one\ntwo\nthree\nfo", None, Some("@@ -0,0 +2,2 @@\n+two\n+three\n")),
            ("one\ntwo\nthree\nfour\n", None, Some("@@ -0,0 +4 @@\n+four\n")),
            ("other\nthan before\n that\n", Some("other\nthan before\n that\n"), None),
        ];
        for (text, whole, hunk) in table {
            let mut update = preview(text);
            let more = take_more(&mut shown, &mut update);
            let patch = more.as_ref().map(|item| item["patch"]["text"].as_str().unwrap());
            assert_eq!(patch.map(|patch| &patch[patch.find("@@").unwrap()..]), hunk, "{text}");
            let content = update.content.map(|mut content| match content.remove(0) {
                CallContent::Diff { new, .. } => new,
                other => panic!("{other:?}"),
            });
            assert_eq!(content.as_deref(), whole, "{text}");
        }
        let mut done = preview("other\nthan before\n that\nand more\n");
        done.status = ToolCallStatus::Completed;
        assert_eq!(take_more(&mut shown, &mut done), None);
        assert!(done.content.is_some(), "the result is shown as a whole");
        assert!(shown.is_none());
    }
}
