//! File changes as version 2 shows them: which file has changed how, and a patch in the format of Git.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use turnwright_types::effect::FileFate;
use turnwright_types::line_diff::unified_diff;

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
pub(super) fn added_lines(path: &Path, first: usize, lines: &str) -> Value {
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
        for line in lines.split_inclusive('\n') {
            text.push('+');
            text.push_str(line);
        }
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
}
