//! The card of a call whose arguments are still streaming: its title as soon as the path or command
//! is known, then the progress of a long value from time to time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::partial_arguments::{LongValue, PartialArguments};
use crate::tools::{ArgumentRole, ShownArgument};
use turnwright_types::effect::{
    CallContent, CallView, FileFate, Location, escape_hidden, escape_hidden_line, fenced,
    shorten_title,
};
use turnwright_types::ids::CallId;
use turnwright_types::update::{CallUpdate, ToolCallStatus};

/// The interval between two updates of the line count.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);
/// The interval between two previews.
const PREVIEW_INTERVAL: Duration = Duration::from_secs(1);

/// A call of the answer that is being received.
#[derive(Debug)]
pub(super) struct StreamingCall {
    pub(super) id: CallId,
    /// The card's view; `None` for the plan, which has no card.
    pub(in crate::turn) view: Option<CallView>,
    verb: String,
    arguments: PartialArguments,
    pattern: Option<String>,
    path: Option<String>,
    /// When the call was named.
    pub(super) opened: Instant,
    /// True if the client shows the card.
    pub(super) is_shown: bool,
    counted: Instant,
    previewed: Instant,
    /// The length of the last preview in bytes.
    shown: usize,
}

impl StreamingCall {
    /// `shown` are the arguments of the tool that its card shows.
    pub(in crate::turn) fn new(
        id: CallId,
        view: Option<CallView>,
        shown: &'static [ShownArgument],
        now: Instant,
    ) -> StreamingCall {
        let title = view.as_ref().map_or("", |view| view.title.as_str());
        StreamingCall {
            id,
            verb: title.split(' ').next().unwrap_or_default().to_owned(),
            view,
            arguments: PartialArguments::new(shown),
            pattern: None,
            path: None,
            opened: now,
            is_shown: false,
            counted: now,
            previewed: now,
            shown: 0,
        }
    }

    /// Scans more of the arguments. Returns the update that the title needs, if it has changed.
    pub(in crate::turn) fn push(&mut self, text: &str, cwd: &Path) -> Option<CallUpdate> {
        self.view.as_ref()?;
        let found = self.arguments.push(text);
        if found.is_empty() {
            return None;
        }
        for (argument, value) in found {
            self.set_title_value(argument.role, value, cwd);
        }
        let mut update = CallUpdate::new(self.id.clone(), ToolCallStatus::Pending);
        update.view.clone_from(&self.view);
        Some(update)
    }

    /// Puts a value into the view.
    fn set_title_value(&mut self, role: ArgumentRole, value: String, cwd: &Path) {
        let Some(view) = &mut self.view else { return };
        let object = match role {
            ArgumentRole::Command if value.trim().is_empty() => return,
            ArgumentRole::Command => {
                view.title = escape_hidden(&value);
                return;
            }
            // The path as written: it is resolved when the call is complete.
            ArgumentRole::Path => {
                view.locations = vec![Location { path: place(cwd, &value), line: None }];
                let object = escape_hidden_line(&value);
                self.path = Some(value);
                match &self.pattern {
                    Some(pattern) => format!("{pattern} in {object}"),
                    None => object,
                }
            }
            ArgumentRole::Pattern => {
                let pattern = format!("\"{}\"", escape_hidden_line(&value));
                let place =
                    self.path.as_ref().map(|path| format!(" in {}", escape_hidden_line(path)));
                let object = format!("{pattern}{}", place.unwrap_or_default());
                self.pattern = Some(pattern);
                object
            }
            ArgumentRole::Url => {
                let bare = value.split_once("://").map_or(value.as_str(), |(_, rest)| rest);
                escape_hidden_line(bare)
            }
            _ => escape_hidden_line(&value),
        };
        view.title = shorten_title(format!("{} {object}", self.verb));
    }

    /// Returns true if it is time to show the progress of a long value. Cheap, because it is called for each
    /// piece.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.counted + COUNT_INTERVAL
            && self.view.is_some()
            && self.arguments.long().is_some()
    }

    /// The update that shows the progress of a long value.
    pub(super) fn progress(&mut self, now: Instant, cwd: &Path) -> Option<CallUpdate> {
        self.counted = now;
        let long = self.arguments.long()?;
        let mut view = self.view.clone().filter(|_| long.lines > 0)?;
        let unit = if long.lines == 1 { "line" } else { "lines" };
        view.title = format!("{} · {} {unit}…", view.title, long.lines);
        let mut update = CallUpdate::new(self.id.clone(), ToolCallStatus::Pending);
        update.view = Some(view);
        let size = long.text.map_or(0, str::len);
        // Only once there is markedly more text, so that all previews together cost a few times its
        // length.
        let is_new = size > self.shown + self.shown / 8 || size < self.shown;
        if now >= self.previewed + PREVIEW_INTERVAL && is_new {
            update.content = preview(&long, self.path.as_ref().map(|path| place(cwd, path)));
            self.previewed = now;
            self.shown = size;
        }
        Some(update)
    }
}

/// Where a path leads as it is written, with the separators of the system.
fn place(cwd: &Path, path: &str) -> PathBuf {
    let mut place = PathBuf::with_capacity(cwd.as_os_str().len() + 1 + path.len());
    place.push(cwd);
    place.extend(Path::new(path).components());
    place
}

/// The change so far. The old content of a file that is written anew is read only when the call is
/// complete; until then the new content is shown alone.
fn preview(long: &LongValue<'_>, path: Option<PathBuf>) -> Option<Vec<CallContent>> {
    let new = long.text?.to_owned();
    let content = match (long.role, path) {
        (ArgumentRole::Patch, _) => CallContent::Text(fenced(&new)),
        (ArgumentRole::NewContent, Some(path)) => {
            CallContent::Diff { path, old: None, new, fate: FileFate::Kept }
        }
        (_, Some(path)) => {
            let old = Some(long.old?.to_owned());
            CallContent::Diff { path, old, new, fate: FileFate::Kept }
        }
        (_, None) => return None,
    };
    Some(vec![content])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::COMMON_ARGUMENTS;
    use turnwright_types::effect::ToolKind;

    fn streaming_call(verb: &str) -> StreamingCall {
        let view = CallView::new(verb, ToolKind::Other);
        StreamingCall::new("call-1".into(), Some(view), COMMON_ARGUMENTS, Instant::now())
    }

    #[test]
    fn a_title_is_verb_and_object() {
        for (verb, arguments, title) in [
            ("Write file", r#"{"path": "src/a.rs", "#, "Write src/a.rs"),
            ("Run a command", r#"{"cmd": "ls\nx"#, "Run a command"),
            ("Run a command", r#"{"cmd": "ls\nx""#, "ls\nx"),
            ("Search files", r#"{"pattern": "a b""#, "Search \"a b\""),
            ("Search files", r#"{"pattern": "a b", "path": "src""#, "Search \"a b\" in src"),
            ("Search files", r#"{"path": "src", "pattern": "a b""#, "Search \"a b\" in src"),
            ("Fetch a page", r#"{"url": "https://example.org/a""#, "Fetch example.org/a"),
            ("Find files", r#"{"glob": "**/*.rs""#, "Find **/*.rs"),
        ] {
            let mut call = streaming_call(verb);
            call.push(arguments, Path::new("/w"));
            assert_eq!(call.view.unwrap().title, title, "{arguments}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_shown_twice_a_second_and_previews_stay_cheap() {
        let mut call = streaming_call("Write file");
        call.push(r#"{"path": "a", "content": ""#, Path::new("/w"));
        let mut told = 0;
        let mut previews = 0;
        let mut bytes = 0;
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_millis(10)).await;
            assert_eq!(call.push("12345678\\n", Path::new("/w")), None);
            if call.is_due(Instant::now())
                && let Some(update) = call.progress(Instant::now(), Path::new("/w"))
            {
                told += 1;
                for content in update.content.into_iter().flatten() {
                    let CallContent::Diff { path, old: None, new, .. } = content else {
                        panic!("no diff")
                    };
                    assert_eq!(path, Path::new("/w/a"));
                    previews += 1;
                    bytes += new.len();
                }
            }
        }
        assert!((190..=200).contains(&told), "{told}");
        assert!((20..=50).contains(&previews), "{previews}");
        assert!(bytes < 10 * 90_000, "{bytes}");
    }
}
