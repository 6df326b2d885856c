//! `read_file`: reads one or several files, whole or a range of lines, with line numbers.

mod outline;
mod show;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{list_dir, locations};
use crate::tools::shown_argument::{PATH, ShownArgument};
use crate::tools::{CallPlan, CallSite, PathArgument, Tool, ToolCtx, ToolOutcome, outcome};
use show::{MAX_CALL_BYTES, ShownText};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallContent, CallView, Effect, PathScope, ResolvedPath, ToolKind};
use turnwright_types::message::Media;
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::files::{BinaryFile, FileError, Files, LineWindow, ReadContent, Roots};

/// A text of at most this many bytes is handled on the runtime's thread: a hop to another one would
/// take longer.
const INLINE_LIMIT: usize = 64 * 1024;
const MAX_FILES: usize = 20;
const MAX_PICTURES: usize = 4;
/// Files that are read concurrently; few, because an editor may serve one request after the other.
const CONCURRENT_READS: usize = 4;

#[derive(Debug)]
pub(in crate::tools) struct ReadFile;

/// Read text files and images: `path` for one, `paths` for up to 20. At most 2000 lines; their
/// numbers are not part of the file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::tools) struct ReadFileArgs {
    /// Relative to the project or absolute
    #[serde(default, alias = "file_path", alias = "file")]
    path: Option<String>,
    #[serde(default)]
    paths: Option<Vec<String>>,
    /// From 1; negative counts from the end
    #[serde(default, alias = "offset")]
    start_line: Option<i64>,
    /// Inclusive
    #[serde(default)]
    end_line: Option<i64>,
    // Not in the schema: models trained on offset and limit send it.
    #[serde(default)]
    #[schemars(skip)]
    limit: Option<i64>,
    #[serde(default)]
    show_line_numbers: Option<bool>,
}

impl ReadFileArgs {
    /// The requested files. `paths` wins if a model sends both.
    fn files(&self) -> Vec<&str> {
        match (&self.path, &self.paths) {
            (_, Some(paths)) if !paths.is_empty() => {
                paths.iter().take(MAX_FILES).map(String::as_str).collect()
            }
            (Some(path), _) if !path.trim().is_empty() => vec![path],
            _ => Vec::new(),
        }
    }

    /// The first and the last requested line; none for a batch.
    fn range(&self) -> (Option<i64>, Option<i64>) {
        if self.is_batch() {
            return (None, None);
        }
        let limit = self.limit.filter(|limit| *limit > 0 && self.end_line.is_none());
        let last = limit.map(|limit| match self.start_line {
            // Lines counted from the end stop at -1, the last line.
            Some(start) if start < 0 => start.saturating_add(limit - 1).min(-1),
            start => start.unwrap_or(1).max(1).saturating_add(limit - 1),
        });
        (self.start_line, self.end_line.or(last))
    }

    fn is_batch(&self) -> bool {
        self.paths.as_ref().is_some_and(|paths| !paths.is_empty())
    }
}

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    const KIND: ToolKind = ToolKind::Read;
    const PENDING_TITLE: &'static str = "Read file";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH];
    const IS_READ_ONLY: bool = true;
    type Args = ReadFileArgs;
    type Preview = ();

    fn path_arguments<'a>(&self, args: &'a mut ReadFileArgs) -> Vec<PathArgument<'a>> {
        let is_batch = args.is_batch();
        let path = args.path.iter_mut().filter(|_| !is_batch);
        let all = args.paths.iter_mut().flatten().chain(path).take(MAX_FILES);
        all.map(PathArgument::of_existing).collect()
    }

    fn choose_lines(&self, args: &mut ReadFileArgs, lines: (u32, u32)) -> bool {
        if !args.is_batch() && args.range() == (None, None) {
            let (first, last) = lines;
            args.start_line = Some(first.into());
            args.end_line = Some(last.into());
        }
        true
    }

    fn plan(&self, args: &mut ReadFileArgs, site: &mut CallSite<'_>) -> CallPlan {
        let targets = site.resolve_all(self.path_arguments(args));
        CallPlan::reading(view(args, &targets, site.roots()), targets)
    }

    async fn run(&self, args: ReadFileArgs, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolOutcome {
        if args.files().is_empty() {
            return ToolOutcome::failed("read_file needs `path` or `paths`. Nothing was read.");
        }
        let window = show::window(args.range());
        let mut looks = Vec::new();
        for (name, effect) in args.files().into_iter().zip(pass.effects()) {
            if let Effect::Read(target) = effect {
                looks.push(find(name, (pass, target), window, ctx));
            }
        }
        let mut found = futures_util::stream::iter(looks).buffered(CONCURRENT_READS);
        let mut report = ReadReport {
            numbered: args.show_line_numbers.unwrap_or(true),
            ..ReadReport::default()
        };
        while let Some((name, target, found)) = found.next().await {
            report.add(name, target, found, ctx).await;
        }
        report.finish(&args)
    }
}

fn view(args: &ReadFileArgs, targets: &[ResolvedPath], roots: &Roots) -> CallView {
    let title = match targets {
        [] => ReadFile::PENDING_TITLE.to_owned(),
        [one] => match args.range() {
            (Some(start), None) if start < 0 => {
                format!("Read {} (last {} lines)", roots.display_path(one), start.unsigned_abs())
            }
            (Some(start), Some(end)) => {
                format!("Read {}:{start}-{end}", roots.display_path(one))
            }
            (Some(start), None) => format!("Read {}:{start}", roots.display_path(one)),
            _ => format!("Read {}", roots.display_path(one)),
        },
        several => format!("Read {} files", several.len()),
    };
    let line = args.start_line.and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0);
    CallView { title, kind: ReadFile::KIND, locations: locations(roots, targets, line) }
}

/// The result of reading a path.
enum ReadResult {
    Text(ShownText),
    Binary(BinaryFile),
    /// With its entries.
    Folder(String),
    Failed(FileError),
}

async fn find<'a>(
    name: &'a str,
    (pass, target): (&Pass, &'a ResolvedPath),
    window: LineWindow,
    ctx: &ToolCtx,
) -> (&'a str, &'a ResolvedPath, ReadResult) {
    let files = &ctx.env.files;
    let found = match files.read_window(target, window, &ctx.cancel).await {
        Ok(look) => text(name, target, look, window, files).await,
        Err(FileError::Binary(_)) => files.describe_binary(target).await.map(ReadResult::Binary),
        Err(FileError::Folder) => match list_dir::tree((pass, target), 1, false, ctx).await {
            Ok(tree) => Ok(ReadResult::Folder(list_dir::show(&tree))),
            Err(why) => Err(why),
        },
        Err(error) => Err(error),
    };
    (name, target, found.unwrap_or_else(ReadResult::Failed))
}

/// Records that the model reads the file and selects the part that is shown, off the runtime's
/// thread if the text is long.
async fn text(
    name: &str,
    target: &ResolvedPath,
    look: ReadContent,
    window: LineWindow,
    files: &Files,
) -> Result<ReadResult, FileError> {
    let is_short = matches!(&look, ReadContent::Whole(text) if text.text.len() <= INLINE_LIMIT);
    let name = name.to_owned();
    let target = target.clone();
    let files = files.clone();
    let select = move || {
        if let ReadContent::Whole(text) = &look {
            files.mark_seen_blocking(&target, text);
        }
        ReadResult::Text(show::select_shown(&name, look, &window))
    };
    if is_short {
        return Ok(select());
    }
    let selecting = spawn_blocking(select);
    selecting.await.map_err(|error| FileError::System(error.to_string()))
}

/// The answer, built file by file.
#[derive(Default)]
struct ReadReport {
    text: String,
    numbered: bool,
    failures: usize,
    images: Vec<Media>,
    /// The first error, for the user.
    error: Option<String>,
}

impl ReadReport {
    async fn add(&mut self, name: &str, target: &ResolvedPath, found: ReadResult, ctx: &ToolCtx) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let begin = self.text.len();
        let room = MAX_CALL_BYTES.saturating_sub(begin);
        match found {
            ReadResult::Text(ShownText::Lines(excerpt)) => {
                show::show_lines(&mut self.text, name, &excerpt, self.numbered, room);
                self.text.push_str(&ctx.env.files.conflict_note(target));
            }
            ReadResult::Text(ShownText::Outline { lines, bytes, text }) => {
                show::show_outline(&mut self.text, name, lines, bytes, &text);
            }
            ReadResult::Folder(entries) => {
                self.text.push_str(&format!("[Folder: {name}]\n{entries}"));
            }
            ReadResult::Binary(binary) => self.add_binary(name, target, &binary, ctx).await,
            ReadResult::Failed(error) => self.fail(name, target, &error, ctx).await,
        }
    }

    /// Adds a picture as such and any other binary file by a description.
    async fn add_binary(
        &mut self,
        name: &str,
        target: &ResolvedPath,
        binary: &BinaryFile,
        ctx: &ToolCtx,
    ) {
        let Some(mime) = binary.kind.as_ref().and_then(|kind| kind.image_mime) else {
            return self.text.push_str(&show::describe_binary(name, binary));
        };
        if self.images.len() == MAX_PICTURES {
            return self.text.push_str(&format!(
                "[File: {name} | {}; not shown: a call shows {MAX_PICTURES} pictures, ask for it \
                 in another]\n",
                show::binary_kind(binary)
            ));
        }
        match ctx.env.files.read_image(target).await {
            Ok(picture) => {
                self.text.push_str(&format!("[File: {name} | {mime}, {} bytes]\n", binary.size));
                self.images.push(picture);
            }
            Err(error) => self.fail(name, target, &error, ctx).await,
        }
    }

    async fn fail(&mut self, name: &str, target: &ResolvedPath, error: &FileError, ctx: &ToolCtx) {
        self.failures += 1;
        self.error.get_or_insert_with(|| format!("Failed: {name} {error}"));
        self.text.push_str(&format!("[File: {name} | Error: {error}]\n"));
        if *error == FileError::NotFound {
            let files = &ctx.env.files;
            let mut near = Vec::new();
            for path in files.similar_paths(target).await {
                let similar = ResolvedPath { path, scope: PathScope::Workspace };
                near.push(files.roots().display_path(&similar));
            }
            if !near.is_empty() {
                self.text.push_str(&format!("Similar names: {}\n", near.join(", ")));
            }
        }
    }

    fn finish(mut self, args: &ReadFileArgs) -> ToolOutcome {
        let files = args.files().len();
        let asked = args.paths.as_ref().filter(|_| args.is_batch()).map_or(files, Vec::len);
        if asked > files {
            self.text.push_str(&format!(
                "\n[only the first {files} of {asked} files; ask for the rest]\n"
            ));
        }
        if self.failures == files {
            let why = self.error.unwrap_or_default();
            return ToolOutcome::refused(ToolRefusal::new(self.text.trim_end(), why));
        }
        let raw = json!({ "files": files, "failed": self.failures, "bytes": self.text.len() });
        let mut content: Vec<_> = self.images.iter().cloned().map(CallContent::Image).collect();
        content.extend(outcome::card_content(&self.text));
        ToolOutcome { ok: true, text: self.text, view: None, content, raw, images: self.images }
    }
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
            let args: ReadFileArgs = serde_json::from_value(arguments.clone()).unwrap();
            assert_eq!(args.range(), expected, "{arguments}");
        }
    }
}
