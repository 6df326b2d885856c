//! `read_file`: one file or several, whole or a range of lines, numbered.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx};
use crate::effect::{CallView, Content, Effect, Kind, Location, Target};
use crate::files::{FileError, Roots, display};
use crate::permission::Pass;

/// The most files of one call.
const MOST_FILES: usize = 20;
/// The most pictures of one call.
const MOST_PICTURES: usize = 4;
/// The most lines of one file.
const MOST_LINES: usize = 2_000;
/// The most characters of one line.
const LONGEST_LINE: usize = 2_000;
/// The most bytes of one call.
const MOST_BYTES: usize = 50 * 1024;

#[derive(Debug)]
pub(super) struct ReadFile;

/// Read text files and pictures. Give `path` for one file or `paths` for up to 20. Returns a header and
/// numbered lines, at most 2000 lines; ask for the next range when it says so. The line numbers
/// are not part of the file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// File, relative to the project or absolute
    #[serde(default, alias = "file_path", alias = "file")]
    path: Option<String>,
    /// Several files instead of one
    #[serde(default)]
    paths: Option<Vec<String>>,
    /// First line, from 1; negative counts from the end (only with `path`)
    #[serde(default, alias = "offset")]
    start_line: Option<i64>,
    /// Last line, inclusive (only with `path`)
    #[serde(default)]
    end_line: Option<i64>,
    /// Number the lines (default true)
    #[serde(default)]
    show_line_numbers: Option<bool>,
}

impl Args {
    /// The files in question. `path` wins where a model sends both for one file.
    fn files(&self) -> Vec<&str> {
        match (&self.path, &self.paths) {
            (_, Some(paths)) if !paths.is_empty() => {
                paths.iter().take(MOST_FILES).map(String::as_str).collect()
            }
            (Some(path), _) if !path.trim().is_empty() => vec![path],
            _ => Vec::new(),
        }
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
            [one] => match (args.start_line, args.end_line) {
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
        let range = if args.is_batch() { (None, None) } else { (args.start_line, args.end_line) };
        let numbered = args.show_line_numbers.unwrap_or(true);
        let mut text = String::new();
        let mut failures = 0;
        let mut images = Vec::new();
        for (name, effect) in args.files().into_iter().zip(pass.effects()) {
            let Effect::Read(target) = effect else { continue };
            if !text.is_empty() {
                text.push('\n');
            }
            let room = MOST_BYTES.saturating_sub(text.len());
            match ctx.bench.files.read(target).await {
                Ok(content) => {
                    ctx.bench.files.note(target, &content);
                    show(&mut text, name, &content.text, range, numbered, room);
                }
                Err(FileError::Binary(size)) if images.len() < MOST_PICTURES => {
                    match ctx.bench.files.picture(target).await {
                        Ok(picture) => {
                            let mime = &picture.mime;
                            text.push_str(&format!("[File: {name} | {mime}, {size} bytes]\n"));
                            images.push(picture);
                        }
                        Err(error) => {
                            failures += 1;
                            text.push_str(&failure(name, &error, target, ctx).await);
                        }
                    }
                }
                Err(error) => {
                    failures += 1;
                    text.push_str(&failure(name, &error, target, ctx).await);
                }
            }
        }
        let files = args.files().len();
        let asked = args.paths.as_ref().map_or(files, Vec::len);
        if asked > files {
            text.push_str(&format!(
                "\n[only the first {files} of {asked} files; ask for the rest]\n"
            ));
        }
        if failures == files {
            return Outcome::failed(text.trim_end());
        }
        // The text itself is not repeated on the card: the client can open the file.
        let raw = json!({ "files": files, "failed": failures, "bytes": text.len() });
        let content = images.iter().cloned().map(Content::Image).collect();
        Outcome { ok: true, text, view: None, content, raw, images }
    }
}

async fn failure(name: &str, error: &FileError, target: &Target, ctx: &ToolCtx) -> String {
    let mut text = format!("[File: {name} | Error: {error}]\n");
    if *error == FileError::NotFound {
        let near = ctx.bench.files.similar(target).await;
        if !near.is_empty() {
            let names: Vec<_> = near.iter().map(|it| display(it)).collect();
            text.push_str(&format!("Similar names: {}\n", names.join(", ")));
        }
    }
    text
}

/// Appends a header and the lines of the range.
fn show(
    text: &mut String,
    name: &str,
    content: &str,
    (start, end): (Option<i64>, Option<i64>),
    numbered: bool,
    room: usize,
) {
    let lines: Vec<&str> = content.lines().collect();
    let total = lines.len();
    text.push_str(&format!("[File: {name} | Lines: {total}]\n"));
    let count = i64::try_from(total).unwrap_or(i64::MAX);
    let from_one = |it: i64| if it < 0 { count + it + 1 } else { it }.max(1);
    let start = usize::try_from(from_one(start.unwrap_or(1))).unwrap_or(1);
    let end = end.map_or(total, |it| usize::try_from(from_one(it)).unwrap_or(total)).min(total);
    if start > total && total > 0 {
        text.push_str(&format!("[line {start} is after the end: there are {total} lines]\n"));
        return;
    }
    let mut used = 0;
    for (number, line) in (1..).zip(&lines).take(end).skip(start - 1) {
        if number - start >= MOST_LINES || used > room {
            text.push_str(&format!(
                "[showing lines {start}–{} of {total}; continue with start_line={number}]\n",
                number - 1
            ));
            return;
        }
        let before = text.len();
        if numbered {
            text.push_str(&format!("{number:>5}| "));
        }
        match line.char_indices().nth(LONGEST_LINE) {
            Some((cut, _)) => {
                let more = line[cut..].chars().count();
                text.push_str(&format!("{}…[+{more} characters]", &line[..cut]));
            }
            None => text.push_str(line),
        }
        text.push('\n');
        used += text.len() - before;
    }
}
