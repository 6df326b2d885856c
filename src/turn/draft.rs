//! The card of a call whose arguments are still on their way: what it is about as soon as that is
//! known, then now and then how far a long content has come.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::glimpse::{Glimpse, Long};
use turnwright_types::effect::{CallView, Content, Location, fenced, short_title, visible, visible_line};
use turnwright_types::ids::CallId;
use turnwright_types::update::{CallUpdate, Status};

/// Between two counts of lines.
const COUNT_EVERY: Duration = Duration::from_millis(500);
/// Between two previews.
const PREVIEW_EVERY: Duration = Duration::from_secs(1);

/// A call that the user has been told of.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) id: CallId,
    /// What it looks like; `None` for the plan, which has a display of its own and no card.
    pub(super) view: Option<CallView>,
    verb: String,
    glimpse: Glimpse,
    pattern: Option<String>,
    path: Option<String>,
    counted: Instant,
    previewed: Instant,
    /// Bytes of the last preview.
    shown: usize,
}

impl Draft {
    pub(super) fn new(id: CallId, view: Option<CallView>, now: Instant) -> Draft {
        let title = view.as_ref().map_or("", |it| it.title.as_str());
        Draft {
            id,
            verb: title.split(' ').next().unwrap_or_default().to_owned(),
            view,
            glimpse: Glimpse::default(),
            pattern: None,
            path: None,
            counted: now,
            previewed: now,
            shown: 0,
        }
    }

    /// Takes more of the arguments; returns what is to be told at once.
    pub(super) fn push(&mut self, text: &str, cwd: &Path) -> Option<CallUpdate> {
        self.view.as_ref()?;
        let found = self.glimpse.push(text);
        if found.is_empty() {
            return None;
        }
        for (key, value) in found {
            self.learn(key, value, cwd);
        }
        let mut update = CallUpdate::new(self.id.clone(), Status::Pending);
        update.view.clone_from(&self.view);
        Some(update)
    }

    /// What a telling string says.
    fn learn(&mut self, key: &str, value: String, cwd: &Path) {
        let Some(view) = &mut self.view else { return };
        let object = match key {
            "command" if value.trim().is_empty() => return,
            "command" => {
                view.title = visible(&value);
                return;
            }
            // As it is written: where it lies is looked up when the call is complete.
            "path" => {
                view.locations = vec![Location { path: cwd.join(&value), line: None }];
                let object = visible_line(&value);
                self.path = Some(value);
                match &self.pattern {
                    Some(pattern) => format!("{pattern} in {object}"),
                    None => object,
                }
            }
            "pattern" => {
                let pattern = format!("\"{}\"", visible_line(&value));
                let place = self.path.as_ref().map(|it| format!(" in {}", visible_line(it)));
                let object = format!("{pattern}{}", place.unwrap_or_default());
                self.pattern = Some(pattern);
                object
            }
            "url" => {
                let bare = value.split_once("://").map_or(value.as_str(), |it| it.1);
                visible_line(bare)
            }
            _ => visible_line(&value),
        };
        view.title = short_title(format!("{} {object}", self.verb));
    }

    /// Whether it is time to tell how far a long content has come. Cheap: asked for each piece.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.counted + COUNT_EVERY && self.view.is_some() && self.glimpse.long().is_some()
    }

    /// How far it has come.
    pub(super) fn progress(&mut self, now: Instant, cwd: &Path) -> Option<CallUpdate> {
        self.counted = now;
        let long = self.glimpse.long()?;
        let mut view = self.view.clone().filter(|_| long.lines > 0)?;
        let unit = if long.lines == 1 { "line" } else { "lines" };
        view.title = format!("{} · {} {unit}…", view.title, long.lines);
        let mut update = CallUpdate::new(self.id.clone(), Status::Pending);
        update.view = Some(view);
        let size = long.text.map_or(0, str::len);
        // Not before there is markedly more: so all previews together cost a few times the text.
        let is_new = size > self.shown + self.shown / 8 || size < self.shown;
        if now >= self.previewed + PREVIEW_EVERY && is_new {
            update.content = preview(&long, self.path.as_ref().map(|it| cwd.join(it)));
            self.previewed = now;
            self.shown = size;
        }
        Some(update)
    }
}

/// The change so far. What is in a file that is written anew is looked at only when the call is
/// complete; until then its new content stands alone.
fn preview(long: &Long<'_>, path: Option<PathBuf>) -> Option<Vec<Content>> {
    let new = long.text?.to_owned();
    let content = match (long.key, path) {
        ("patch", _) => Content::Text(fenced(&new)),
        ("content", Some(path)) => Content::Diff { path, old: None, new },
        (_, Some(path)) => Content::Diff { path, old: Some(long.old?.to_owned()), new },
        (_, None) => return None,
    };
    Some(vec![content])
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::Kind;

    fn draft(verb: &str) -> Draft {
        let view = CallView { title: verb.to_owned(), kind: Kind::Other, locations: Vec::new() };
        Draft::new("call-1".into(), Some(view), Instant::now())
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
            let mut draft = draft(verb);
            draft.push(arguments, Path::new("/w"));
            assert_eq!(draft.view.unwrap().title, title, "{arguments}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_told_twice_a_second_and_previews_cost_a_few_times_the_text() {
        let mut draft = draft("Write file");
        draft.push(r#"{"path": "a", "content": ""#, Path::new("/w"));
        let (mut told, mut previews, mut bytes) = (0, 0, 0);
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_millis(10)).await;
            assert_eq!(draft.push("12345678\\n", Path::new("/w")), None);
            if draft.is_due(Instant::now())
                && let Some(update) = draft.progress(Instant::now(), Path::new("/w"))
            {
                told += 1;
                for content in update.content.into_iter().flatten() {
                    let Content::Diff { path, old: None, new } = content else { panic!("no diff") };
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
