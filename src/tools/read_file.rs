//! `read_file`: reads one or several files, whole or a range of lines, with line numbers. Of a file that is too
//! long it shows the outline: the definitions or headings with their line numbers.

use std::fmt::Write;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{PATH, ShownArgument};
use super::document::read_document;
use super::{
    CallPlan, CallSite, PathArgument, Tool, ToolAnswer, ToolCtx, ToolOutcome, edit_common,
    list_dir, locations,
};
use tokio::task::spawn_blocking;
use turnwright_documents::DocumentText;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallContent, CallView, Effect, ResolvedPath, ToolKind};
use turnwright_types::message::Media;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text::{self, format_bytes};
use turnwright_workspace::files::{
    BinaryFile, Excerpt, FileError, LineWindow, ReadContent, Roots, is_pdf, may_be_document,
    pdf_part,
};

/// A text of at most this many bytes is handled on the runtime's thread: a hop to another one would
/// take longer.
const INLINE_LIMIT: usize = 64 * 1024;
const MAX_FILES: usize = 20;
const MAX_PICTURES: usize = 4;
/// Files that are read concurrently; few, because an editor may serve one request after the other.
const CONCURRENT_READS: usize = 4;
const MAX_LINES: usize = 2_000;
const MAX_LINE_CHARS: usize = 2_000;
const MAX_CALL_BYTES: usize = 50 * 1024;
/// Larger files are shown as an outline if no lines are requested.
const OUTLINE_BYTES: usize = 100 * 1024;
/// If more characters than this of a line are cut, another tool is suggested.
const MAX_CUT_CHARS: usize = 20_000;
const MAX_OUTLINE_LINES: usize = 200;
/// A shorter outline is useless.
const MIN_OUTLINE_LINES: usize = 3;
/// Lines are cut after this many characters.
const MAX_OUTLINE_CHARS: usize = 120;
/// Definitions that are indented more are details.
const MAX_INDENT: usize = 8;

/// Read text files, images, PDF and office documents: `path` for one, `paths` for up to 20. At most 2000 lines; their
/// numbers are not part of the file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReadFile {
    /// Relative to the working folder
    path: Option<String>,
    /// Several files
    paths: Option<Vec<String>>,
    /// From 1; negative counts from the end
    #[serde(alias = "offset")]
    start_line: Option<i64>,
    /// Inclusive
    end_line: Option<i64>,
    // Not in the schema: models trained on offset and limit send it.
    #[schemars(skip)]
    limit: Option<i64>,
    show_line_numbers: Option<bool>,
    /// Pages, slides, sheets or cells of a document, such as 1-5
    pages: Option<String>,
}

impl ReadFile {
    /// The requested files. `paths` wins if a model sends both.
    fn files(&self) -> Vec<&str> {
        let path = self.path.iter().filter(|path| !self.is_batch() && !path.trim().is_empty());
        self.paths.iter().flatten().chain(path).take(MAX_FILES).map(String::as_str).collect()
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
    type Preview = ();

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        let is_batch = self.is_batch();
        let path = self.path.iter_mut().filter(|_| !is_batch);
        let all = self.paths.iter_mut().flatten().chain(path).take(MAX_FILES);
        all.map(PathArgument::of_existing).collect()
    }

    fn choose_lines(&mut self, lines: (u32, u32)) -> bool {
        if !self.is_batch() && self.range() == (None, None) {
            let (first, last) = lines;
            self.start_line = Some(first.into());
            self.end_line = Some(last.into());
        }
        true
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let targets = site.resolve_all(self.path_arguments());
        CallPlan::reading(view(self, &targets, site.roots()), targets)
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        if self.files().is_empty() {
            return Err("read_file needs `path` or `paths`. Nothing was read.".into());
        }
        let (start, end) = self.range();
        let window = LineWindow {
            start,
            end,
            max_lines: MAX_LINES,
            max_width: MAX_LINE_CHARS,
            max_bytes: MAX_CALL_BYTES,
        };
        let pages = self.pages.as_deref().filter(|pages| !pages.trim().is_empty());
        let mut looks = Vec::new();
        for (name, effect) in self.files().into_iter().zip(pass.effects()) {
            if let Effect::Read(target) = effect {
                looks.push(FileRequest { target, window, pages, ctx }.find(name, pass));
            }
        }
        let mut found = futures_util::stream::iter(looks).buffered(CONCURRENT_READS);
        let mut report = ReadReport {
            numbered: self.show_line_numbers.unwrap_or(true),
            ..ReadReport::default()
        };
        while let Some((name, target, found)) = found.next().await {
            report.add(name, target, found, ctx).await;
        }
        report.finish(&self)
    }
}

fn view(args: &ReadFile, targets: &[ResolvedPath], roots: &Roots) -> CallView {
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
    Lines(Excerpt),
    /// An outline, or a folder with its entries.
    Text(String),
    /// The lines of the text of a document, what it is, and its bytes if it is a scan that the model takes as a file.
    Document(Excerpt, String, Option<Vec<u8>>),
    Binary(BinaryFile),
    Failed(FileError),
}

/// A file that is to be read, and the part of it that is asked for.
#[derive(Clone, Copy)]
struct FileRequest<'a> {
    target: &'a ResolvedPath,
    window: LineWindow,
    pages: Option<&'a str>,
    ctx: &'a ToolCtx,
}

impl<'a> FileRequest<'a> {
    async fn find(self, name: &'a str, pass: &Pass) -> (&'a str, &'a ResolvedPath, ReadResult) {
        let FileRequest { target, window, pages, ctx } = self;
        let found = match ctx.env.files.read_window(target, window, &ctx.cancel).await {
            Ok(look) => {
                let is_document = is_document_text(&look, pages);
                match self.document(is_document).await.transpose() {
                    None => self.text(name, look).await,
                    Some(read) => read,
                }
            }
            Err(FileError::Binary(_)) => self.binary().await,
            Err(FileError::Folder) => match list_dir::tree((pass, target), 1, false, ctx).await {
                Ok(tree) => {
                    Ok(ReadResult::Text(format!("[Folder: {name}]\n{}", list_dir::show(&tree))))
                }
                Err(why) => Err(FileError::System(why)),
            },
            Err(error) => Err(error),
        };
        (name, target, found.unwrap_or_else(ReadResult::Failed))
    }

    async fn binary(self) -> Result<ReadResult, FileError> {
        let binary = self.ctx.env.files.describe_binary(self.target).await?;
        let read = self.document(may_be_document(&binary.head)).await?;
        Ok(read.unwrap_or(ReadResult::Binary(binary)))
    }

    /// The text of a document, if the file may be one and is.
    async fn document(self, may_be_one: bool) -> Result<Option<ReadResult>, FileError> {
        if !may_be_one {
            return Ok(None);
        }
        let FileRequest { target, window, pages, ctx } = self;
        let bytes = ctx.env.files.read_bytes(target).await?;
        // Boxed, because few files are documents.
        let reading = ctx.cancel.run_until_cancelled(Box::pin(read_document(&bytes, pages)));
        let read = reading.await.ok_or(FileError::ReadCancelled)?.map_err(FileError::System)?;
        Ok(read.map(|DocumentText { about, text, is_scan }| {
            let scan = (is_scan && ctx.takes_files).then_some(bytes);
            ReadResult::Document(Excerpt::of(&text, &window), about, scan)
        }))
    }

    /// Records that the model reads the file and selects the part that is shown, off the runtime's
    /// thread if the text is long.
    async fn text(self, name: &str, look: ReadContent) -> Result<ReadResult, FileError> {
        let is_short = matches!(&look, ReadContent::Whole(text) if text.text.len() <= INLINE_LIMIT);
        let name = name.to_owned();
        let target = self.target.clone();
        let window = self.window;
        let files = self.ctx.env.files.clone();
        let select = move || {
            if let ReadContent::Whole(text) = &look {
                files.mark_seen_blocking(&target, text);
            }
            select_shown(&name, look, &window)
        };
        if is_short {
            return Ok(select());
        }
        let selecting = spawn_blocking(select);
        selecting.await.map_err(|error| FileError::System(error.to_string()))
    }
}

/// Returns true if the text is that of a PDF, which may be written in ASCII, or of a notebook of which cells are asked for.
fn is_document_text(look: &ReadContent, pages: Option<&str>) -> bool {
    let start = match look {
        ReadContent::Whole(text) => text.text.as_str(),
        ReadContent::Excerpt(excerpt) => excerpt.lines.first().map_or("", |line| &line.text),
    };
    is_pdf(start.as_bytes()) || pages.is_some() && start.starts_with('{')
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
            ReadResult::Lines(excerpt) => {
                show_lines(&mut self.text, name, &excerpt, self.numbered, room);
                self.text.push_str(&ctx.env.files.conflict_note(target));
            }
            ReadResult::Document(excerpt, about, scan) => {
                let header = format!("{name} | {about}");
                show_lines(&mut self.text, &header, &excerpt, false, room);
                if let Some(bytes) = scan {
                    self.attach(&bytes);
                }
            }
            ReadResult::Text(text) => self.text.push_str(&text),
            ReadResult::Binary(binary) => self.add_binary(name, target, &binary, ctx).await,
            ReadResult::Failed(error) => self.fail(name, target, &error, ctx).await,
        }
    }

    /// Adds a PDF file as such, or says why not.
    fn attach(&mut self, pdf: &[u8]) {
        if self.images.len() == MAX_PICTURES {
            self.text.push_str("[not shown as a file: ask for it in another call]\n");
        } else if let Some(part) = pdf_part(pdf) {
            self.images.push(part);
            self.text.push_str("[the file itself is shown too: you need no images of its pages]\n");
        } else {
            self.text.push_str("[not shown as a file: it is larger than 5 MiB]\n");
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
            return self.text.push_str(&describe_binary(name, binary));
        };
        if self.images.len() == MAX_PICTURES {
            return self.text.push_str(&format!(
                "[File: {name} | {}; not shown: a call shows {MAX_PICTURES} pictures, ask for it \
                 in another]\n",
                binary_kind(binary)
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
            let near = edit_common::similar_names(target, ctx).await;
            if !near.is_empty() {
                self.text.push_str(&format!("{}\n", near.trim_start()));
            }
        }
    }

    fn finish(mut self, args: &ReadFile) -> ToolAnswer {
        let files = args.files().len();
        let asked = args.paths.as_ref().filter(|_| args.is_batch()).map_or(files, Vec::len);
        if asked > files {
            self.text.push_str(&format!(
                "\n[only the first {files} of {asked} files; ask for the rest]\n"
            ));
        }
        if self.failures == files {
            let why = self.error.unwrap_or_default();
            return Err(ToolRefusal::new(self.text.trim_end(), why));
        }
        let raw = json!({ "files": files, "failed": self.failures, "bytes": self.text.len() });
        let pictures = self.images.iter().filter(|image| !image.is_pdf());
        let mut content: Vec<_> = pictures.cloned().map(CallContent::Image).collect();
        content.extend(ToolOutcome::card_content(&self.text));
        Ok(ToolOutcome { images: self.images, ..ToolOutcome::done(self.text, content, raw) })
    }
}

/// Selects the shown part of a text. Slow for large texts.
fn select_shown(name: &str, look: ReadContent, window: &LineWindow) -> ReadResult {
    let text = match look {
        ReadContent::Excerpt(excerpt) => return ReadResult::Lines(excerpt),
        ReadContent::Whole(text) => text.text,
    };
    let is_ranged = window.start.is_some() || window.end.is_some();
    let is_large = text.len() > OUTLINE_BYTES && !is_ranged;
    if let Some(outline) = is_large.then(|| outline(name, &text)).flatten() {
        return ReadResult::Text(format!(
            "[File: {name} | Lines: {}]\n[The file has {}, so this is its outline. The outline is \
             a successful response: do not repeat the call. Read the lines you need with \
             start_line and end_line, or use grep.]\n{outline}",
            text.lines().count(),
            format_bytes(text.len() as u64)
        ));
    }
    ReadResult::Lines(Excerpt::of(&text, window))
}

/// Appends a header and as many lines as fit into `room` bytes.
fn show_lines(text: &mut String, name: &str, excerpt: &Excerpt, numbered: bool, room: usize) {
    let Excerpt { first_line: first, lines, total, is_total_exact: is_exact, has_more: more } =
        excerpt;
    let about = if *is_exact { format!("{total}") } else { format!("at least {total}") };
    text.push_str(&format!("[File: {name} | Lines: {about}]\n"));
    let after_end = usize::try_from(*first).is_ok_and(|first| first > *total);
    if lines.is_empty() && after_end && *total > 0 {
        text.push_str(&format!("[line {first} is after the end: there are {total} lines]\n"));
        return;
    }
    if room == 0 && !lines.is_empty() {
        text.push_str("[not shown: the other files have used up this call; read it in another]\n");
        return;
    }
    let begin = text.len();
    let mut shown = 0;
    for (number, line) in (*first..).zip(lines) {
        if text.len() - begin > room {
            break;
        }
        if numbered {
            write!(text, "{number:>5}| ").ok();
        }
        text.push_str(&line.text);
        if line.omitted_chars > 0 {
            text.push_str(&format!("…[+{} characters]", line.omitted_chars));
        }
        text.push('\n');
        shown += 1;
    }
    let next = first + shown;
    if *more || usize::try_from(shown).is_ok_and(|shown| shown < lines.len()) {
        text.push_str(&format!(
            "[showing lines {first}–{} of {about}; continue with start_line={next}]\n",
            next - 1
        ));
    }
    if *first < 0 && numbered {
        text.push_str("[The file is too large to count its lines: -1 is the last one.]\n");
    }
    if lines.iter().any(|line| line.omitted_chars > MAX_CUT_CHARS) {
        text.push_str("[A line is very long: use grep, or exec with cut -c, for parts of it.]\n");
    }
}

fn describe_binary(name: &str, binary: &BinaryFile) -> String {
    let bytes: Vec<_> = binary.head.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[File: {name} | {}]\nFirst bytes: {}\n", binary_kind(binary), bytes.join(" "))
}

/// `binary, 12 KB, PNG 640×480`.
fn binary_kind(binary: &BinaryFile) -> String {
    let mut text = format!("binary, {}", format_bytes(binary.size));
    if let Some(kind) = &binary.kind {
        text.push_str(&format!(", {}", kind.name));
        text.extend(kind.size.map(|(width, height)| format!(" {width}×{height}")));
    }
    text
}

/// Words that may precede a definition's keyword.
const MODIFIERS: &str = "pub export default async unsafe extern public private protected internal \
                         static final abstract sealed override open inline partial declare";

/// Keywords that begin a definition.
const DEFINITION_KEYWORDS: &str = "fn class struct enum impl trait def func fun function interface \
                                   type module mod namespace object record union macro_rules! \
                                   package protocol extension defmodule defp sub";

/// The outline of a text with its line numbers; `None` if it is too short to be useful.
fn outline(name: &str, text: &str) -> Option<String> {
    let extension =
        name.rsplit_once('.').map(|(_, extension)| extension.to_lowercase()).unwrap_or_default();
    let is_prose = ["md", "markdown", "mdx"].contains(&extension.as_str());
    let listed = (1..)
        .zip(text.lines())
        .filter(|(_, line)| if is_prose { is_heading(line) } else { is_definition(line) });
    let mut found: Vec<(usize, &str)> = listed.collect();
    if found.len() > MAX_OUTLINE_LINES && !is_prose {
        found.retain(|(_, line)| !line.starts_with([' ', '\t']));
    }
    if found.len() < MIN_OUTLINE_LINES {
        return None;
    }
    let mut outline = String::new();
    for (number, line) in found.iter().take(MAX_OUTLINE_LINES) {
        let line = text::first_chars(line, MAX_OUTLINE_CHARS).trim_end();
        outline.push_str(&format!("{number:>5}| {line}\n"));
    }
    if found.len() > MAX_OUTLINE_LINES {
        outline.push_str(&format!("[and {} more]\n", found.len() - MAX_OUTLINE_LINES));
    }
    Some(outline)
}

fn is_heading(line: &str) -> bool {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    (1..=6).contains(&level) && line[level..].starts_with(' ')
}

fn is_definition(line: &str) -> bool {
    let code = line.trim_start();
    if line.len() - code.len() > MAX_INDENT {
        return false;
    }
    let mut words = code.split([' ', '<', '{']).filter(|word| !word.is_empty());
    let first = words.find(|word| !is_modifier(word)).unwrap_or_default();
    // `const fn` is a definition, a constant is not.
    let keyword = if first == "const" { words.next().unwrap_or_default() } else { first };
    let name = words.next().unwrap_or_default();
    has_word(DEFINITION_KEYWORDS, keyword)
        && name.starts_with(|letter: char| letter.is_alphanumeric() || "_$'&*(".contains(letter))
}

fn has_word(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}

fn is_modifier(word: &str) -> bool {
    // As in `pub(crate) fn` and `extern "C" fn`.
    has_word(MODIFIERS, word) || word.ends_with(')') || word.starts_with('"')
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
            let args: ReadFile = serde_json::from_value(arguments.clone()).unwrap();
            assert_eq!(args.range(), expected, "{arguments}");
        }
    }

    #[test]
    fn definitions_are_found_in_many_languages() {
        let table = [
            "pub fn a() {",
            "pub(crate) async fn a() {",
            "    const fn a() {",
            "impl<T> A for B {",
            "export default class A {",
            "class A:",
            "    def a(self):",
            "async def a():",
            "func (a *A) b() {",
            "func a() {",
            "function a() {",
            "export interface A {",
            "type A = B",
            "public static final class A {",
            "pub unsafe extern \"C\" fn a() {",
            "mod tests {",
            "struct A;",
        ];
        for line in table {
            assert!(is_definition(line), "{line}");
        }
        let others = [
            "",
            "// fn a",
            "let fn_a = 1;",
            "                    fn deep() {",
            "classify(a)",
            "# class",
            "const A: u8 = 1;",
            "functional programming",
            "return class_of(a)",
            "type(a)",
        ];
        for line in others {
            assert!(!is_definition(line), "{line}");
        }
    }

    #[test]
    fn an_outline_has_the_numbers_of_the_lines_and_an_end() {
        let text = "# A\n\ntext\n## B\n#no\n### C\n";
        assert_eq!(outline("a.md", text).unwrap(), "    1| # A\n    4| ## B\n    6| ### C\n");
        assert_eq!(outline("a.log", text), None);
        let many = "fn a() {}\n    fn b() {}\n".repeat(300);
        let outline = outline("a.rs", &many).unwrap();
        assert_eq!(outline.lines().count(), 201);
        assert!(!outline.contains("fn b") && outline.ends_with("[and 100 more]\n"), "{outline}");
    }
}
