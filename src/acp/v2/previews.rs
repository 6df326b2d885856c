//! The file that a call is going to write, while the model is still writing it. The client gets each line once:
//! the first lines as the content of the card, and those that follow as further items of it.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::Value;

use super::diffs;
use turnwright_types::effect::CallContent;
use turnwright_types::hash::std_hash;
use turnwright_types::ids::CallId;
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, ToolCallStatus};

/// The previews that clients show now.
// Held only to look something up, and to compare a text with its beginning.
#[derive(Default)]
pub(super) struct ShownPreviews(Mutex<HashMap<CallId, ShownPreview>>);

/// The part of a file that the client shows.
struct ShownPreview {
    bytes: usize,
    lines: usize,
    /// The hash of what is shown.
    hash: u64,
}

impl ShownPreviews {
    /// Takes the preview out of an update if the client shows its beginning, and returns the item with the lines
    /// that are new.
    pub(super) fn take_more(&self, update: &mut CallUpdate) -> Option<Value> {
        let mut shown = self.0.lock();
        if update.status != ToolCallStatus::Pending {
            shown.remove(&update.id);
            return None;
        }
        let mut content = update.content.take()?;
        let [CallContent::Diff { path, old: None, new, .. }] = content.as_mut_slice() else {
            update.content = Some(content);
            shown.remove(&update.id);
            return None;
        };
        // The last line may not be complete. A key is never split in two, since it has no line break.
        new.truncate(text::whole_lines(new).len());
        let before = shown.get(&update.id);
        let added = before.and_then(|preview| Some((preview.lines, preview.added_to(new)?)));
        let more = match added {
            Some((_, "")) => None,
            Some((lines, added)) => Some(diffs::added_lines(path, lines + 1, added)),
            None => None,
        };
        let is_other = added.is_none();
        let preview = ShownPreview::of(new);
        if preview.bytes > 0 {
            if is_other {
                update.content = Some(content);
            }
            shown.insert(update.id.clone(), preview);
        }
        more
    }
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
    use turnwright_types::effect::FileFate;

    use super::*;

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
        let shown = ShownPreviews::default();
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
            let more = shown.take_more(&mut update);
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
        assert_eq!(shown.take_more(&mut done), None);
        assert!(done.content.is_some(), "the result is shown as a whole");
        assert!(shown.0.lock().is_empty());
    }
}
