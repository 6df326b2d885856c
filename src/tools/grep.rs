//! `grep`: where something stands in the project's files.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::seek::{self, count};
use super::{Bench, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;
use turnwright_workspace::search::{FileLines, Found, Query, grep};

#[derive(Debug)]
pub(super) struct Grep;

/// Search file contents (ripgrep). Skips ignored, hidden and binary files. 100 matches a page.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// File or folder (default `.`)
    #[serde(default, alias = "directory", alias = "dir")]
    path: Option<String>,
    /// Regular expression
    #[serde(alias = "query", alias = "regex")]
    pattern: String,
    /// Only these files, such as `*.rs`
    #[serde(default, alias = "include")]
    glob: Option<String>,
    /// Ignore case
    #[serde(default, alias = "case_insensitive")]
    ignore_case: Option<bool>,
    /// Take the pattern as plain text
    #[serde(default, alias = "fixed_strings")]
    literal: Option<bool>,
    /// Lines to show around each match
    #[serde(default)]
    context: Option<usize>,
    /// Matches may span lines
    #[serde(default)]
    multiline: Option<bool>,
    /// List only the files that match
    #[serde(default)]
    files_only: Option<bool>,
    /// Include hidden and ignored files
    #[serde(default)]
    hidden: Option<bool>,
    /// Matches to skip, for the next page
    #[serde(default)]
    offset: Option<usize>,
}

impl Args {
    fn query(&self) -> Query {
        Query {
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
    const KIND: Kind = Kind::Search;
    const VERB: &'static str = "Search";
    const READS: bool = true;
    type Args = Args;
    type Seen = ();

    fn paths(&self, args: &Args, _: &Bench) -> Vec<PathBuf> {
        vec![seek::path_or_here(args.path.as_ref()).into()]
    }

    fn view(&self, args: &Args, places: &[Target], roots: &Roots) -> CallView {
        seek::view(&format!("Search \"{}\"", seek::quoted(&args.pattern)), places, roots)
    }

    fn effects(&self, _: &Args, places: &[Target]) -> Vec<Effect> {
        places.iter().cloned().map(Effect::Read).collect()
    }

    async fn look(
        &self,
        args: &Args,
        places: &[Target],
        ctx: &ToolCtx,
    ) -> Result<((), Vec<Content>), String> {
        if args.pattern.is_empty() {
            return Err("grep needs a `pattern`. Nothing was searched.".to_owned());
        }
        seek::check_breadth(places, ctx).await?;
        Ok(((), Vec::new()))
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let Some(Effect::Read(target)) = pass.effects().first() else {
            return Outcome::failed("Nothing was searched: there is no permission for it.");
        };
        let name = seek::path_or_here(args.path.as_ref());
        let hidden = args.hidden.unwrap_or(false);
        let scope = match seek::scope((pass, target), args.glob.as_deref(), hidden, ctx).await {
            Ok(scope) => scope,
            Err(reason) => return Outcome::failed(reason),
        };
        let query = args.query();
        let search = move |stop: &_| match seek::obstacle(&scope.root, false) {
            Some(why) => Err(Trouble::Place(why)),
            None => grep(&scope, &query, stop).map_err(Trouble::Pattern),
        };
        match seek::run(ctx, search).await {
            Ok(Ok(found)) => report(self, &args, target, &found, ctx),
            Ok(Err(Trouble::Place(why))) => {
                Outcome::failed(seek::refusal(name, why, target, ctx).await)
            }
            Ok(Err(Trouble::Pattern(reason))) => {
                Outcome::failed(format!("The pattern cannot be searched for: {reason}."))
            }
            Err(reason) => Outcome::failed(reason),
        }
    }
}

enum Trouble {
    Place(&'static str),
    Pattern(String),
}

fn report(tool: &Grep, args: &Args, target: &Target, found: &Found, ctx: &ToolCtx) -> Outcome {
    let roots = ctx.bench.files.roots();
    let mut text = notes_before(args, found);
    for file in &found.files {
        show(&mut text, file, &seek::short(roots, target, file.path.clone()));
    }
    text.push_str(&total(args, found));
    text.push_str(&notes_after(found));
    text.push_str(&ctx.bench.files.unsaved_note(Some(&target.path), "a search does"));
    let mut view = tool.view(args, std::slice::from_ref(target), roots);
    view.title.push_str(&match (found.matches, args.files_only) {
        (0, _) => " (no match)".to_owned(),
        (_, Some(true)) => format!(" ({})", count(found.in_files, "file", "files")),
        (matches, _) => format!(" ({matches} in {})", count(found.in_files, "file", "files")),
    });
    let places: Vec<_> = found.files.iter().flat_map(places).take(seek::MOST_LOCATIONS).collect();
    if !places.is_empty() {
        let location = |(path, line)| seek::location(roots, target, path, line);
        view.locations = places.into_iter().map(location).collect();
    }
    let raw = json!({
        "matches": found.matches,
        "files": found.in_files,
        "searched": found.searched,
        "truncated": found.next.is_some() || found.is_part,
    });
    let content = seek::card(&text);
    Outcome { ok: true, text, view: Some(view), content, raw, images: Vec::new() }
}

/// Where a file matches.
fn places(file: &FileLines) -> Vec<(PathBuf, Option<u32>)> {
    let place = |line| (file.path.clone(), line);
    if file.lines.is_empty() {
        return vec![place(None)];
    }
    let lines = file.lines.iter().filter(|it| it.is_match).take(seek::MOST_LOCATIONS);
    lines.map(|it| place(u32::try_from(it.number).ok())).collect()
}

fn show(text: &mut String, file: &FileLines, name: &str) {
    if file.lines.is_empty() {
        text.push_str(&format!("{name}\n"));
    }
    let mut last = None;
    let has_context = file.lines.iter().any(|it| !it.is_match);
    for line in &file.lines {
        if has_context && last.is_some_and(|it| it + 1 < line.number) {
            text.push_str("--\n");
        }
        let (number, words) = (line.number, &line.text);
        let mark = if line.is_match { ':' } else { '-' };
        text.push_str(&format!("{name}{mark}{number}{mark} {words}\n"));
        last = Some(number);
    }
}

fn notes_before(args: &Args, found: &Found) -> String {
    match &found.as_literal {
        Some(reason) => format!(
            "[`{}` is no valid regular expression ({reason}); it was searched for as plain text]\n",
            seek::quoted(&args.pattern)
        ),
        None => String::new(),
    }
}

/// How much there is, and how to see the rest.
fn total(args: &Args, found: &Found) -> String {
    if found.matches == 0 {
        return nothing(args, found);
    }
    let files_only = args.files_only.unwrap_or(false);
    let files = count(found.in_files, "file", "files");
    let all = if files_only {
        format!("{files} with matches")
    } else {
        format!("{} in {files}", count(found.matches, "match", "matches"))
    };
    seek::page(&all, args.offset.unwrap_or(0), found.shown, found.next)
}

fn nothing(args: &Args, found: &Found) -> String {
    let searched = count(found.searched, "file", "files");
    let mut text = format!("No match in {searched} searched.\n");
    if found.searched == 0
        && let Some(glob) = args.glob.as_deref().filter(|_| found.seen > 0)
    {
        let seen = count(found.seen, "file", "files");
        text = format!("No match: the glob `{glob}` fits none of {seen}.\n");
    }
    text.push_str(&seek::elsewhere(&found.elsewhere));
    if args.pattern.contains("\\|") && !args.literal.unwrap_or(false) {
        text.push_str("`\\|` means the character itself; alternatives are written `a|b`.\n");
    }
    text
}

fn notes_after(found: &Found) -> String {
    let mut text = seek::shortfall(found.is_part, found.unreadable);
    if found.capped > 0 {
        let files = count(found.capped, "file", "files");
        text.push_str(&format!("[of {files}, only the first 1000 matches are counted]\n"));
    }
    if found.secrets > 0 {
        let files = count(
            found.secrets,
            "file that may hold secrets was",
            "files that may hold secrets were",
        );
        text.push_str(&format!("[{files} not searched]\n"));
    }
    text
}
