//! The common parts of `find_files`, `grep` and `list_dir`: the places where they may search, the check
//! for searches that are too broad, and the notes in their results.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{ToolCtx, edit_common};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, Location, ResolvedPath, ToolKind, escape_hidden_line};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_workspace::files::{FileError, Roots};
use turnwright_workspace::search::{
    ExcludedPaths, Glob, HiddenMatches, SearchDeadline, SearchScope, TIME_LIMIT, all_files,
};

const MAX_TITLE_CHARS: usize = 60;
pub(super) const MAX_LOCATIONS: usize = 10;
/// The most files that are named where a search has found nothing.
const MAX_NAMED_FILES: usize = 30;
/// The most kinds of files that are counted there.
const MAX_ENDINGS: usize = 6;

/// Refuses to search a whole disk or a whole home folder, unless that is the session's folder.
pub(super) async fn check_breadth(
    targets: &[ResolvedPath],
    ctx: &ToolCtx,
) -> Result<(), ToolRefusal> {
    let Some(target) = targets.first() else { return Ok(()) };
    let files = &ctx.env.files;
    let own = files.resolve(".").await.map_err(|error| error.to_string())?.path;
    let home = match &ctx.env.shared.process.folders.home {
        Some(home) => files.resolve(home).await.ok().map(|home| home.path),
        None => None,
    };
    if is_broad(&target.path, &own, home.as_deref()) {
        let name = escape_hidden_line(&target.path.to_string_lossy());
        return Err(format!(
            "{name} is too much to look through. Nothing was searched. Name a folder below it in \
             `path`; `.` is the working folder."
        )
        .into());
    }
    Ok(())
}

/// Returns true if a folder contains the home folder or the session's folder and is not the latter.
fn is_broad(folder: &Path, own: &Path, home: Option<&Path>) -> bool {
    folder != own && (own.starts_with(folder) || home.is_some_and(|home| home.starts_with(folder)))
}

/// The scope of a search, if the path still leads to the place that was judged.
pub(super) async fn scope(
    (pass, target): (&Pass, &ResolvedPath),
    glob: Option<&str>,
    hidden: bool,
    ctx: &ToolCtx,
) -> Result<SearchScope, ToolRefusal> {
    let roots = ctx.env.files.roots();
    let files = &ctx.env.files;
    let glob_base =
        files.resolve(PathBuf::from(".")).await.map_err(|error| error.to_string())?.path;
    if files.resolve(target.path.clone()).await.as_ref() != Ok(target) {
        return Err(FileError::Moved.to_string().into());
    }
    let glob = glob
        .map(str::trim)
        .filter(|glob| !glob.is_empty())
        .map(|glob| Glob::parse(glob, &glob_base))
        .transpose()?;
    let private: Vec<_> = roots.private_folders().map(Path::to_path_buf).collect();
    let closed = pass.denied_paths().clone();
    let excluded: ExcludedPaths =
        Arc::new(move |path| private.iter().any(|own| path == own) || closed.contains(path));
    Ok(SearchScope { root: target.path.clone(), glob_base, excluded, include_hidden: hidden, glob })
}

/// Searches in the scope of a path that the call has called `name`.
pub(super) async fn search<T: Send + 'static>(
    scope: SearchScope,
    (name, target): (&str, &ResolvedPath),
    needs_folder: bool,
    ctx: &ToolCtx,
    work: impl FnOnce(&SearchScope, &SearchDeadline) -> T + Send + 'static,
) -> Result<T, ToolRefusal> {
    let searching = run_search(ctx, move |stop| match obstacle(&scope.root, needs_folder) {
        Some(why) => Err(why),
        None => Ok(work(&scope, stop)),
    });
    match searching.await? {
        Ok(found) => Ok(found),
        Err(why) => Err(obstacle_message(name, why, target, ctx).await.into()),
    }
}

/// Runs a search on a blocking thread. It stops when the call ends or is dropped.
pub(super) async fn run_search<T: Send + 'static>(
    ctx: &ToolCtx,
    work: impl FnOnce(&SearchDeadline) -> T + Send + 'static,
) -> Result<T, ToolRefusal> {
    let flag = StopFlag(Arc::default());
    let stop = SearchDeadline::new(Arc::clone(&flag.0), TIME_LIMIT);
    let searched = ctx.until_cancelled(spawn_blocking(move || work(&stop))).await?;
    searched.map_err(|error| format!("The search failed: {error}.").into())
}

/// A flag that is set when it is dropped.
struct StopFlag(Arc<AtomicBool>);

impl Drop for StopFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Why a path cannot be searched, as a phrase that follows its name; `None` if it can.
pub(super) fn obstacle(path: &Path, needs_folder: bool) -> Option<&'static str> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() || found.is_file() && !needs_folder => None,
        Ok(found) if found.is_file() => Some("is not a folder"),
        Ok(_) => Some("is neither a file nor a folder"),
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound => Some("does not exist"),
            std::io::ErrorKind::NotADirectory => Some("is below a file"),
            _ => Some("cannot be read"),
        },
    }
}

/// The obstacle as an error for the model, with similar names.
pub(super) async fn obstacle_message(
    name: &str,
    why: &str,
    target: &ResolvedPath,
    ctx: &ToolCtx,
) -> String {
    let mut text = format!("{name} {why}.");
    if why == "does not exist" {
        text.push_str(&edit_common::similar_names(target, ctx).await);
    }
    text
}

/// Describes a place where a search has found nothing: the kinds of files, and their names if they are few. Empty if
/// there are none. Blocks.
pub(super) fn what_is_there(
    scope: &SearchScope,
    stop: &SearchDeadline,
    (roots, target): (&Roots, &ResolvedPath),
) -> String {
    let files = all_files(scope, stop);
    if files.is_empty() {
        return String::new();
    }
    let mut counts = BTreeMap::<_, usize>::new();
    for path in &files {
        *counts.entry(path.extension().unwrap_or_default()).or_default() += 1;
    }
    let mut kinds: Vec<_> = counts.into_iter().collect();
    kinds.sort_by_key(|(_, count)| Reverse(*count));
    let more = if kinds.len() > MAX_ENDINGS { ", others" } else { "" };
    let named = kinds.into_iter().take(MAX_ENDINGS).map(|(ending, count)| match ending.to_str() {
        Some("") => format!("{count} without an ending"),
        _ => format!("{count} {}", escape_hidden_line(&ending.to_string_lossy())),
    });
    let told = named.collect::<Vec<_>>().join(", ");
    let mut text = format!("Files here: {} ({told}{more}).\n", files.len());
    if files.len() <= MAX_NAMED_FILES {
        for path in files {
            let mark = if path.is_symlink() { " (link, not followed)" } else { "" };
            text.push_str(&format!("{}{mark}\n", short_path(roots, target, path)));
        }
    }
    text
}

/// A path below the target, for people.
pub(super) fn short_path(roots: &Roots, target: &ResolvedPath, path: PathBuf) -> String {
    roots.display_path(&ResolvedPath { path, scope: target.scope })
}

/// Shows the first places that were found, if there are any, instead of the folder that was searched.
pub(super) fn show_places(
    view: &mut CallView,
    places: impl Iterator<Item = (PathBuf, Option<u32>)>,
    target: &ResolvedPath,
    roots: &Roots,
) {
    let first = places.take(MAX_LOCATIONS).map(|(path, line)| {
        let path = roots.client_path(&ResolvedPath { path, scope: target.scope });
        Location { path, line }
    });
    let locations: Vec<_> = first.collect();
    if !locations.is_empty() {
        view.locations = locations;
    }
}

/// A pattern, shortened for a title.
pub(super) fn title_pattern(pattern: &str) -> String {
    text::clip(escape_hidden_line(pattern), MAX_TITLE_CHARS)
}

/// A number with its noun in the singular or plural.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The note about matches in hidden and ignored files.
pub(super) fn hidden_matches_note(found: &HiddenMatches) -> String {
    if found.files == 0 {
        return String::new();
    }
    let at_least = if found.is_incomplete { "At least " } else { "" };
    let files =
        count(found.files, "hidden or ignored file matches", "hidden or ignored files match");
    format!("{at_least}{files}: set hidden=true to include them.\n")
}

/// A list of similar names.
pub(super) fn similar_names(near: Vec<PathBuf>, roots: &Roots, target: &ResolvedPath) -> String {
    let names = near.into_iter().map(|path| {
        let end = if path.is_dir() { "/" } else { "" };
        format!("{}{end}", short_path(roots, target, path))
    });
    names.collect::<Vec<_>>().join(", ")
}

/// The note about the shown part of the `total` results, with a hint for the rest.
pub(super) fn page_note(
    all: &str,
    total: usize,
    first: usize,
    shown: usize,
    next: Option<usize>,
) -> String {
    let last = first + shown;
    match next {
        _ if shown == 0 && first < total => format!(
            "[{all}, which could not be read again in time; search in one of the folders with \
             `path`, or set files_only]\n"
        ),
        _ if shown == 0 => format!("[offset={first} is after the end: {all}]\n"),
        None if first == 0 => format!("[{all}]\n"),
        None => format!("[{all}; these are {}–{last}, the last]\n", first + 1),
        Some(next) => {
            format!("[{all}; these are {}–{last}; continue with offset={next}]\n", first + 1)
        }
    }
}

/// A number of results, which is only a part of them if the search was cut short.
pub(super) fn total_count(all: String, is_part: bool) -> String {
    if is_part { format!("at least {all}") } else { all }
}

/// The note that the results may be incomplete, because the time was over or, if it `is_full`, too
/// many files match.
pub(super) fn incomplete_note(is_part: bool, is_full: bool, unreadable: usize) -> String {
    let mut text = String::new();
    if is_part {
        let reason = if is_full {
            "because more files match than are counted".to_owned()
        } else {
            format!("after {} s", TIME_LIMIT.as_secs())
        };
        text.push_str(&format!(
            "[not complete: stopped {reason}; narrow it with `path` or a glob, since another page \
             may repeat or miss files]\n",
        ));
    }
    if unreadable > 0 {
        let what = count(unreadable, "file or folder", "files or folders");
        text.push_str(&format!("[{what} could not be read]\n"));
    }
    text
}

/// The note about the session's other folders, which a search of the working folder does not see.
pub(super) fn other_folders_note(target: &ResolvedPath, roots: &Roots) -> String {
    let own = roots.real_cwd();
    let others = roots.folders().filter(|folder| target.path == own && !folder.starts_with(own));
    let names: Vec<_> =
        others.map(|folder| escape_hidden_line(&folder.to_string_lossy())).collect();
    if names.is_empty() { String::new() } else { format!("[not searched: {}]\n", names.join(", ")) }
}

/// The view of a search before it runs.
pub(super) fn search_view(what: &str, targets: &[ResolvedPath], roots: &Roots) -> CallView {
    let mut view = CallView::new(what, ToolKind::Search);
    // The folder is named unless the search is about the whole project.
    for target in targets.iter().filter(|target| roots.display_path(target) != ".") {
        view.title.push_str(&format!(" in {}", roots.display_path(target)));
        view.locations.push(Location { path: roots.client_path(target), line: None });
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_above_the_home_or_the_project_are_too_broad() {
        let table = [
            ("/", "/home/u/ws", true),
            ("/home", "/home/u/ws", true),
            ("/home/u", "/home/u/ws", true),
            ("/home/u", "/srv/ws", true),
            ("/srv", "/srv/ws", true),
            ("/home/u/ws", "/home/u/ws", false),
            ("/home/u/ws/src", "/home/u/ws", false),
            ("/home/u/other", "/home/u/ws", false),
            ("/etc", "/home/u/ws", false),
            ("/home/u", "/home/u", false),
            ("/", "/", false),
        ];
        for (folder, own, expected) in table {
            let home = Some(Path::new("/home/u"));
            assert_eq!(is_broad(Path::new(folder), Path::new(own), home), expected, "{folder}");
        }
    }
}
