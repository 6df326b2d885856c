//! `read_file`: one file or several, whole or a range of lines, numbered.

mod outline;
mod show;

use std::path::PathBuf;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx, list_dir};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Location, Place, Target, fenced};
use turnwright_workspace::files::{Binary, FileError, Files, Look, Patience, Roots, Window};
use turnwright_types::message::Media;
use turnwright_policy::permission::Pass;
use show::{MOST_BYTES, Shown};

/// The most files of one call.
const MOST_FILES: usize = 20;
/// The most pictures of one call.
const MOST_PICTURES: usize = 4;
/// Files that are read at the same time: an editor may do one thing after the other.
const AT_ONCE: usize = 4;
/// Bytes of what the card shows.
const LONGEST_CARD: usize = 8 * 1024;

#[derive(Debug)]
pub(super) struct ReadFile;

/// Read text files and pictures: `path` for one, `paths` for up to 20. At most 2000 lines,
/// numbered; the numbers are not part of the file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// File, relative to the project or absolute
    #[serde(default, alias = "file_path", alias = "file")]
    path: Option<String>,
    /// Several files instead of one
    #[serde(default)]
    paths: Option<Vec<String>>,
    /// First line, from 1; negative counts from the end
    #[serde(default, alias = "offset")]
    start_line: Option<i64>,
    /// Last line, inclusive
    #[serde(default)]
    end_line: Option<i64>,
    // Not told: what models send that have learned to count from an offset.
    #[serde(default)]
    #[schemars(skip)]
    limit: Option<i64>,
    /// Number the lines (default true)
    #[serde(default)]
    show_line_numbers: Option<bool>,
}

impl Args {
    /// The files in question. `paths` wins where a model sends both.
    fn files(&self) -> Vec<&str> {
        match (&self.path, &self.paths) {
            (_, Some(paths)) if !paths.is_empty() => {
                paths.iter().take(MOST_FILES).map(String::as_str).collect()
            }
            (Some(path), _) if !path.trim().is_empty() => vec![path],
            _ => Vec::new(),
        }
    }

    /// The first and the last line. A batch has none.
    fn range(&self) -> (Option<i64>, Option<i64>) {
        if self.is_batch() {
            return (None, None);
        }
        let limit = self.limit.filter(|it| *it > 0 && self.end_line.is_none());
        let last = limit.map(|limit| match self.start_line {
            // From the end the last line is -1, which no limit reaches beyond.
            Some(start) if start < 0 => start.saturating_add(limit - 1).min(-1),
            start => start.unwrap_or(1).max(1).saturating_add(limit - 1),
        });
        (self.start_line, self.end_line.or(last))
    }

    fn is_batch(&self) -> bool {
        self.paths.as_ref().is_some_and(|it| !it.is_empty())
    }
}

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    const KIND: Kind = Kind::Read;
    const VERB: &'static str = "Read file";
    const READS: bool = true;
    type Args = Args;
    type Seen = ();

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        args.files().into_iter().map(PathBuf::from).collect()
    }

    fn view(&self, args: &Args, places: &[Target], roots: &Roots) -> CallView {
        let title = match places {
            [] => Self::VERB.to_owned(),
            [one] => match args.range() {
                (Some(start), None) if start < 0 => {
                    format!("Read {} (last {} lines)", roots.short(one), start.unsigned_abs())
                }
                (Some(start), Some(end)) => format!("Read {}:{start}-{end}", roots.short(one)),
                (Some(start), None) => format!("Read {}:{start}", roots.short(one)),
                _ => format!("Read {}", roots.short(one)),
            },
            several => format!("Read {} files", several.len()),
        };
        let line = args.start_line.and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0);
        let locations = places.iter().map(|it| Location { path: roots.shown(it), line }).collect();
        CallView { title, kind: Self::KIND, locations }
    }

    fn effects(&self, _: &Args, places: &[Target]) -> Vec<Effect> {
        places.iter().cloned().map(Effect::Read).collect()
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        if args.files().is_empty() {
            return Outcome::failed("read_file needs `path` or `paths`. Nothing was read.");
        }
        let window = show::window(args.range());
        let patience = Patience::default();
        let mut looks = Vec::new();
        for (name, effect) in args.files().into_iter().zip(pass.effects()) {
            if let Effect::Read(target) = effect {
                looks.push(find(name, (pass, target), window, &patience, ctx));
            }
        }
        let mut found = futures_util::stream::iter(looks).buffered(AT_ONCE);
        let mut report =
            Report { numbered: args.show_line_numbers.unwrap_or(true), ..Report::default() };
        while let Some((name, target, found)) = found.next().await {
            report.add(name, target, found, ctx).await;
        }
        report.finish(&args)
    }
}

/// What a path has turned out to be.
enum Found {
    Text(Shown),
    Binary(Binary),
    /// With what it holds.
    Folder(String),
    Nothing(FileError),
}

async fn find<'a>(
    name: &'a str,
    (pass, target): (&Pass, &'a Target),
    window: Window,
    patience: &Patience,
    ctx: &ToolCtx,
) -> (&'a str, &'a Target, Found) {
    let files = &ctx.bench.files;
    let found = match files.look(target, window, patience, &ctx.cancel).await {
        Ok(look) => text(name, target, look, window, files).await,
        Err(FileError::Binary(_)) => files.describe(target).await.map(Found::Binary),
        Err(FileError::Folder) => match list_dir::tree((pass, target), 1, false, ctx).await {
            Ok(tree) => Ok(Found::Folder(list_dir::show(&tree))),
            Err(why) => Err(FileError::System(why)),
        },
        Err(error) => Err(error),
    };
    (name, target, found.unwrap_or_else(Found::Nothing))
}

/// Notes a text and takes what is shown of it, off the runtime's thread: it may be long.
async fn text(
    name: &str,
    target: &Target,
    look: Look,
    window: Window,
    files: &Files,
) -> Result<Found, FileError> {
    let (name, target, files) = (name.to_owned(), target.clone(), files.clone());
    let work = tokio::task::spawn_blocking(move || {
        if let Look::Whole(text) = &look {
            files.note(&target, text);
        }
        Found::Text(show::choose(&name, look, &window))
    });
    work.await.map_err(|error| FileError::System(error.to_string()))
}

/// The answer as it grows, file by file.
#[derive(Default)]
struct Report {
    text: String,
    numbered: bool,
    failures: usize,
    images: Vec<Media>,
    /// What the user cannot see by opening the file.
    card: String,
}

impl Report {
    async fn add(&mut self, name: &str, target: &Target, found: Found, ctx: &ToolCtx) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let begin = self.text.len();
        let room = MOST_BYTES.saturating_sub(begin);
        let mut is_plain = false;
        match found {
            Found::Text(Shown::Lines(excerpt)) => {
                is_plain = target.place == Place::Inside;
                show::show_lines(&mut self.text, name, &excerpt, self.numbered, room);
            }
            Found::Text(Shown::Outline { lines, bytes, text }) => {
                show::show_outline(&mut self.text, name, lines, bytes, &text);
            }
            Found::Folder(entries) => {
                self.text.push_str(&format!("[Folder: {name}]\n{entries}"));
            }
            Found::Binary(binary) => {
                is_plain = self.add_binary(name, target, &binary, ctx).await;
            }
            Found::Nothing(error) => self.fail(name, target, &error, ctx).await,
        }
        if !is_plain && self.card.len() < LONGEST_CARD {
            self.card.push_str(&self.text[begin..]);
        }
    }

    /// A picture as such, anything else by a description. Whether it was a picture.
    async fn add_binary(
        &mut self,
        name: &str,
        target: &Target,
        binary: &Binary,
        ctx: &ToolCtx,
    ) -> bool {
        let Some(mime) = binary.kind.as_ref().and_then(|it| it.picture) else {
            self.text.push_str(&show::binary(name, binary));
            return false;
        };
        if self.images.len() == MOST_PICTURES {
            self.text.push_str(&format!(
                "[File: {name} | {}; not shown: a call shows {MOST_PICTURES} pictures, ask for it \
                 in another]\n",
                show::sort(binary)
            ));
            return false;
        }
        match ctx.bench.files.picture(target).await {
            Ok(picture) => {
                self.text.push_str(&format!("[File: {name} | {mime}, {} bytes]\n", binary.size));
                self.images.push(picture);
                true
            }
            Err(error) => {
                self.fail(name, target, &error, ctx).await;
                false
            }
        }
    }

    async fn fail(&mut self, name: &str, target: &Target, error: &FileError, ctx: &ToolCtx) {
        self.failures += 1;
        self.text.push_str(&format!("[File: {name} | Error: {error}]\n"));
        if *error == FileError::NotFound {
            let files = &ctx.bench.files;
            let short = |path| files.roots().short(&Target { path, place: Place::Inside });
            let near: Vec<_> = files.similar(target).await.into_iter().map(short).collect();
            if !near.is_empty() {
                self.text.push_str(&format!("Similar names: {}\n", near.join(", ")));
            }
        }
    }

    fn finish(mut self, args: &Args) -> Outcome {
        let files = args.files().len();
        let asked = args.paths.as_ref().filter(|_| args.is_batch()).map_or(files, Vec::len);
        if asked > files {
            self.text.push_str(&format!(
                "\n[only the first {files} of {asked} files; ask for the rest]\n"
            ));
        }
        if self.failures == files {
            return Outcome::failed(self.text.trim_end());
        }
        // The text itself is not repeated on the card: the client can open the file.
        let raw = json!({ "files": files, "failed": self.failures, "bytes": self.text.len() });
        let mut content: Vec<_> = self.images.iter().cloned().map(Content::Image).collect();
        if !self.card.is_empty() {
            content.push(Content::Text(fenced(clip(&self.card))));
        }
        Outcome { ok: true, text: self.text, view: None, content, raw, images: self.images }
    }
}

fn clip(text: &str) -> &str {
    let end = (0..=LONGEST_CARD.min(text.len())).rev().find(|it| text.is_char_boundary(*it));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_understood_as_models_send_them() {
        let table = [
            (json!({ "start_line": 5, "end_line": 9 }), (Some(5), Some(9))),
            (json!({ "offset": 5, "limit": 10 }), (Some(5), Some(14))),
            (json!({ "offset": 0, "limit": 10 }), (Some(0), Some(10))),
            (json!({ "limit": 10 }), (None, Some(10))),
            (json!({ "start_line": -20, "limit": 5 }), (Some(-20), Some(-16))),
            (json!({ "start_line": -2, "limit": 5 }), (Some(-2), Some(-1))),
            (json!({ "start_line": 5, "end_line": 6, "limit": 50 }), (Some(5), Some(6))),
            (json!({ "start_line": 5, "limit": 0 }), (Some(5), None)),
            (json!({ "start_line": 5, "paths": ["a"] }), (None, None)),
        ];
        for (mut arguments, expected) in table {
            arguments["path"] = json!("a");
            let args: Args = serde_json::from_value(arguments.clone()).unwrap();
            assert_eq!(args.range(), expected, "{arguments}");
        }
    }
}
