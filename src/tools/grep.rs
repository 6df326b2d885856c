//! `grep`: searches the contents of files.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::arguments::{GLOB, PATH, PATTERN, ShownArgument};
use super::search_common::{self, count};
use super::{CallPlan, CallSite, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx, ToolOutcome};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, Effect, ResolvedPath, ToolKind};
use turnwright_workspace::files::Roots;
use turnwright_workspace::search::{
    FileMatches, GrepQuery, GrepResult, MAX_GREP_FILES, SearchDeadline, SearchScope, grep,
};

/// The most files that are named because they could not be decoded, or are links.
const MAX_NAMED: usize = 3;
/// The most lines that are shown of a second search.
const MAX_OTHER_LINES: usize = 10;
/// Characters that are common in code and special in a regular expression. A pattern with one of them may not match the
/// text that it consists of.
const SPECIAL_CHARS: [char; 8] = ['^', '$', '*', '+', '?', '(', '[', '{'];

/// Search file contents by regex (ripgrep). 100 matches from offset.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Grep {
    /// A file or folder; all if left out
    path: Option<String>,
    /// The regex
    pattern: String,
    /// Only in files with such names, as in find_files
    #[serde(alias = "include")]
    glob: Option<String>,
    #[serde(alias = "case_insensitive", alias = "-i")]
    ignore_case: Option<bool>,
    /// No regex
    #[serde(alias = "fixed_strings")]
    literal: Option<bool>,
    /// Lines around each match
    #[serde(alias = "-C")]
    context: Option<usize>,
    /// A match may span lines
    multiline: Option<bool>,
    /// Only the names of the files
    files_only: Option<bool>,
    /// Also hidden and ignored files
    hidden: Option<bool>,
    /// Matches to skip
    offset: Option<usize>,
}

impl Grep {
    fn query(&self) -> GrepQuery {
        GrepQuery {
            pattern: self.pattern.clone(),
            literal: self.literal.unwrap_or(false),
            ignore_case: self.ignore_case.unwrap_or(false),
            multiline: self.multiline.unwrap_or(false),
            context: self.context.unwrap_or(0),
            files_only: self.files_only.unwrap_or(false),
            offset: self.offset.unwrap_or(0),
        }
    }
}

impl Tool for Grep {
    const NAME: &'static str = "grep";
    const KIND: ToolKind = ToolKind::Search;
    const PENDING_TITLE: &'static str = "Search";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[PATH, PATTERN, GLOB];
    const IS_READ_ONLY: bool = true;
    type Preview = ();

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        vec![PathArgument::of_existing(self.path.get_or_insert_with(|| ".".to_owned()))]
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let targets = site.resolve_all(self.path_arguments());
        CallPlan::reading(view(self, &targets, site.roots()), targets)
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<()> {
        if self.pattern.is_empty() {
            return Err("grep needs a `pattern`. Nothing was searched.".into());
        }
        search_common::check_breadth(targets, ctx).await?;
        Ok(((), Vec::new()))
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let Some(Effect::Read(target)) = pass.effects().first() else {
            return Err("Nothing was searched: there is no permission for it.".into());
        };
        let name = self.path.as_deref().unwrap_or(".");
        let hidden = self.hidden.unwrap_or(false);
        let scope = search_common::scope((pass, target), self.glob.as_deref(), hidden, ctx).await?;
        let query = self.query();
        let roots = ctx.env.files.shared_roots();
        let place = target.clone();
        let searching =
            search_common::search(scope, (name, target), false, ctx, move |scope, stop| {
                let found = grep(scope, &query, stop)?;
                let is_empty =
                    found.matches == 0 && !found.is_incomplete && found.hidden.files == 0;
                let others =
                    is_empty.then(|| search_otherwise(scope, query, stop, (&roots, &place)));
                Ok::<_, String>((found, others.unwrap_or_default()))
            });
        match searching.await? {
            Ok((found, others)) => Ok(report(&self, target, &found, &others, ctx)),
            Err(reason) => Err(format!("The pattern cannot be searched for: {reason}.").into()),
        }
    }
}

/// Searches again because there was no match: for the pattern as plain text, and if that has none, without the glob.
/// Returns the first matches, preceded by the kinds of files that are there if there is a glob.
fn search_otherwise(
    scope: &SearchScope,
    query: GrepQuery,
    stop: &SearchDeadline,
    (roots, target): (&Roots, &ResolvedPath),
) -> String {
    let query = GrepQuery { context: 0, files_only: false, offset: 0, ..query };
    let plain = GrepQuery { literal: true, ..query.clone() };
    let all = SearchScope { glob: None, ..scope.clone() };
    let may_be_code = !query.literal && query.pattern.contains(SPECIAL_CHARS);
    let as_text = may_be_code.then_some((scope, &plain, "As plain text", "set literal=true"));
    let mut others: Vec<_> = as_text.into_iter().collect();
    let mut text = String::new();
    if scope.glob.is_some() {
        text = search_common::what_is_there(scope, stop, (roots, target));
        others.push((&all, &query, "Without the glob", "leave out the glob"));
    }
    for (scope, query, how, advice) in others {
        // The pattern was compiled before.
        let found = grep(scope, query, &stop.for_second_search()).unwrap_or_default();
        let mut shown = String::new();
        for file in &found.files {
            show(&mut shown, file, &search_common::short_path(roots, target, file.path.clone()));
        }
        if found.matches > 0 {
            let first = shown.lines().take(MAX_OTHER_LINES).collect::<Vec<_>>().join("\n");
            let total = search_common::total_count(all_matches(&found), found.is_incomplete);
            return format!("{text}{how}:\n{first}\n[{total}; {advice} for all]\n");
        }
    }
    text
}

/// The number of matches and of the files with them.
fn all_matches(found: &GrepResult) -> String {
    let files = count(found.files_with_matches, "file", "files");
    format!("{} in {files}", count(found.matches, "match", "matches"))
}

fn view(args: &Grep, targets: &[ResolvedPath], roots: &Roots) -> CallView {
    let pattern = search_common::title_pattern(&args.pattern);
    search_common::search_view(&format!("Search \"{pattern}\""), targets, roots)
}

/// The answer of a call. `others` says what there is without the glob if nothing was found.
fn report(
    args: &Grep,
    target: &ResolvedPath,
    found: &GrepResult,
    others: &str,
    ctx: &ToolCtx,
) -> ToolOutcome {
    let roots = ctx.env.files.roots();
    let mut text = String::new();
    if let Some(reason) = &found.regex_error {
        text.push_str(&format!(
            "[`{}` is no valid regular expression ({reason}); it was searched for as plain text]\n",
            search_common::title_pattern(&args.pattern)
        ));
    }
    for file in &found.files {
        show(&mut text, file, &search_common::short_path(roots, target, file.path.clone()));
    }
    text.push_str(&total(args, found));
    text.push_str(others);
    text.push_str(&notes_after(found));
    let garbled = "not all bytes could be decoded, matches may be missing";
    text.push_str(&note_of_paths(garbled, &found.garbled, target, roots));
    if found.matches == 0 {
        let links = "links are not followed; to search where one leads, name it in `path`";
        text.push_str(&note_of_paths(links, &found.links, target, roots));
    }
    text.push_str(&search_common::other_folders_note(target, roots));
    text.push_str(&ctx.env.files.unsaved_note(Some(&target.path), "a search does"));
    let mut view = view(args, std::slice::from_ref(target), roots);
    let files = count(found.files_with_matches, "file", "files");
    view.title.push_str(&match (found.matches, args.files_only) {
        (0, _) => " (no match)".to_owned(),
        (_, Some(true)) => format!(" ({files})"),
        (matches, _) => format!(" ({matches} in {files})"),
    });
    let places = found.files.iter().flat_map(match_places);
    search_common::show_places(&mut view, places, target, roots);
    let raw = json!({
        "matches": found.matches,
        "files": found.files_with_matches,
        "searched": found.files_searched,
        "truncated": found.next_offset.is_some() || found.is_incomplete,
    });
    let content = ToolOutcome::card_content(&text);
    ToolOutcome { ok: true, text, view: Some(view), content, raw, images: Vec::new() }
}

fn match_places(file: &FileMatches) -> Vec<(PathBuf, Option<u32>)> {
    if file.lines.is_empty() {
        return vec![(file.path.clone(), None)];
    }
    let lines = file.lines.iter().filter(|line| line.is_match).take(search_common::MAX_LOCATIONS);
    lines.map(|line| (file.path.clone(), u32::try_from(line.number).ok())).collect()
}

fn show(text: &mut String, file: &FileMatches, name: &str) {
    if file.lines.is_empty() {
        text.push_str(&format!("{name}\n"));
    }
    let mut last = None;
    let has_context = file.lines.iter().any(|line| !line.is_match);
    for line in &file.lines {
        if has_context && last.is_some_and(|previous| previous + 1 < line.number) {
            text.push_str("--\n");
        }
        let mark = if line.is_match { ':' } else { '-' };
        text.push_str(&format!("{name}{mark}{}{mark} {}\n", line.number, line.text));
        last = Some(line.number);
    }
}

/// The number of matches and how to see the rest.
fn total(args: &Grep, found: &GrepResult) -> String {
    if found.matches == 0 {
        return no_match_note(args, found);
    }
    let (all, total) = if args.files_only.unwrap_or(false) {
        let files = count(found.files_with_matches, "file", "files");
        (format!("{files} with matches"), found.files_with_matches)
    } else {
        (all_matches(found), found.matches)
    };
    let all = search_common::total_count(all, found.is_incomplete);
    let first = args.offset.unwrap_or(0);
    search_common::page_note(&all, total, first, found.shown, found.next_offset)
}

fn no_match_note(args: &Grep, found: &GrepResult) -> String {
    let searched = count(found.files_searched, "file", "files");
    let mut text = format!("No match in {searched} searched.\n");
    if found.files_searched == 0 && found.binary_files > 0 {
        let files = count(found.binary_files, "file is", "files are");
        text = format!("No match: {files} binary and not searched.\n");
    } else if found.files_searched == 0
        && let Some(glob) = args.glob.as_deref().filter(|_| found.files_seen > 0)
    {
        let seen = count(found.files_seen, "file", "files");
        text = format!("No match: the glob `{glob}` fits none of {seen}.\n");
    }
    text.push_str(&search_common::hidden_matches_note(&found.hidden));
    if args.pattern.contains("\\|") && !args.literal.unwrap_or(false) {
        text.push_str("`\\|` means the character itself; alternatives are written `a|b`.\n");
    }
    text
}

fn notes_after(found: &GrepResult) -> String {
    let is_full = found.files_with_matches >= MAX_GREP_FILES;
    let mut text = search_common::incomplete_note(found.is_incomplete, is_full, found.unreadable);
    if found.capped_files > 0 {
        let files = count(found.capped_files, "file", "files");
        text.push_str(&format!(
            "[of {files}, only the first 1000 matches are counted; a longer pattern finds the others]\n"
        ));
    }
    if found.secret_files > 0 {
        let files = count(
            found.secret_files,
            "file that may hold secrets was",
            "files that may hold secrets were",
        );
        text.push_str(&format!("[{files} not searched]\n"));
    }
    text
}

/// A note that names the first of some paths; empty if there are none.
fn note_of_paths(what: &str, paths: &[PathBuf], target: &ResolvedPath, roots: &Roots) -> String {
    let shown = paths.iter().take(MAX_NAMED);
    let mut names: Vec<_> =
        shown.map(|path| search_common::short_path(roots, target, path.clone())).collect();
    if names.is_empty() {
        return String::new();
    }
    if paths.len() > MAX_NAMED {
        names.push("and more".to_owned());
    }
    format!("[{what}: {}]\n", names.join(", "))
}
