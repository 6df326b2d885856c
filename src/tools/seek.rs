//! What the tools have in common that look for something: where they may look, what is too much,
//! and what is said when there is nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ToolCtx;
use turnwright_types::effect::{CallView, Content, Kind, Location, Target, fenced, visible_line};
use turnwright_workspace::files::{FileError, Roots};
use turnwright_policy::permission::Pass;
use turnwright_workspace::search::{Elsewhere, Except, Glob, LIMIT, Scope, Stop};

/// Bytes of a result that a card shows.
const CARD: usize = 4 * 1024;
/// Characters of a pattern in a title.
const TITLE: usize = 60;
/// Places that a card names.
pub(super) const MOST_LOCATIONS: usize = 10;

/// The argument, or the working folder.
pub(super) fn path_or_here(path: Option<&String>) -> &str {
    path.map(String::as_str).filter(|it| !it.trim().is_empty()).unwrap_or(".")
}

/// Refuses to look through a whole disk or a whole home, unless that is what the session is about.
pub(super) async fn check_breadth(places: &[Target], ctx: &ToolCtx) -> Result<(), String> {
    let Some(target) = places.first() else { return Ok(()) };
    let files = &ctx.bench.files;
    let own = files.resolve(".").await.map_err(|it| it.to_string())?.path;
    let home = match &ctx.bench.commons.folders.home {
        Some(home) => files.resolve(home).await.ok().map(|it| it.path),
        None => None,
    };
    if is_broad(&target.path, &own, home.as_deref()) {
        let name = visible_line(&target.path.to_string_lossy());
        return Err(format!(
            "{name} is too much to look through. Nothing was searched. Name a folder below it in \
             `path`; `.` is the project."
        ));
    }
    Ok(())
}

/// Whether a folder holds the home or the session's folder, and is not that folder.
fn is_broad(folder: &Path, own: &Path, home: Option<&Path>) -> bool {
    folder != own && (own.starts_with(folder) || home.is_some_and(|it| it.starts_with(folder)))
}

/// Where to look, if it is still the place that was judged.
pub(super) async fn scope(
    (pass, target): (&Pass, &Target),
    glob: Option<&str>,
    hidden: bool,
    ctx: &ToolCtx,
) -> Result<Scope, String> {
    let roots = ctx.bench.files.roots();
    let resolve = |path: PathBuf| ctx.bench.files.resolve(path);
    let base = resolve(PathBuf::from(".")).await.map_err(|it| it.to_string())?.path;
    if resolve(target.path.clone()).await.as_ref() != Ok(target) {
        return Err(FileError::Moved.to_string());
    }
    let glob = glob.map(str::trim).filter(|it| !it.is_empty());
    let glob = glob.map(|it| Glob::parse(it, &base)).transpose()?;
    let private: Vec<_> = roots.private().map(Path::to_path_buf).collect();
    let closed = pass.closed().clone();
    let except = Except::new(move |it| private.iter().any(|own| it == own) || closed.holds(it));
    Ok(Scope { root: target.path.clone(), base, except, hidden, glob })
}

/// Runs a search on a thread of its own. It ends when the call does, however that ends.
pub(super) async fn run<T: Send + 'static>(
    ctx: &ToolCtx,
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> Result<T, String> {
    let flag = Flag(Arc::default());
    let stop = Stop::new(Arc::clone(&flag.0), LIMIT);
    let work = tokio::task::spawn_blocking(move || work(&stop));
    match ctx.cancel.run_until_cancelled(work).await {
        Some(Ok(result)) => Ok(result),
        Some(Err(error)) => Err(format!("The search failed: {error}.")),
        None => Err("Cancelled by the user.".to_owned()),
    }
}

/// Set when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Why nothing can be looked for at a place; `None` if something can.
pub(super) fn obstacle(path: &Path, needs_folder: bool) -> Option<&'static str> {
    match fs::symlink_metadata(path) {
        Ok(it) if it.is_dir() || it.is_file() && !needs_folder => None,
        Ok(it) if it.is_file() => Some("is not a folder"),
        Ok(_) => Some("is neither a file nor a folder"),
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound => Some("does not exist"),
            std::io::ErrorKind::NotADirectory => Some("is below a file"),
            _ => Some("cannot be read"),
        },
    }
}

/// The same for the model, with the names that may have been meant.
pub(super) async fn refusal(name: &str, why: &str, target: &Target, ctx: &ToolCtx) -> String {
    let mut text = format!("{name} {why}.");
    let near = ctx.bench.files.similar(target).await;
    if why == "does not exist" && !near.is_empty() {
        let roots = ctx.bench.files.roots();
        let names: Vec<_> = near.into_iter().map(|it| short(roots, target, it)).collect();
        text.push_str(&format!(" Similar names: {}", names.join(", ")));
    }
    text
}

/// A path below a place, for people.
pub(super) fn short(roots: &Roots, target: &Target, path: PathBuf) -> String {
    roots.short(&Target { path, place: target.place })
}

/// A path below a place, for a client.
pub(super) fn location(
    roots: &Roots,
    target: &Target,
    path: PathBuf,
    line: Option<u32>,
) -> Location {
    Location { path: roots.shown(&Target { path, place: target.place }), line }
}

/// What is looked for, for a title.
pub(super) fn quoted(pattern: &str) -> String {
    let text = visible_line(pattern);
    match text.char_indices().nth(TITLE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The first of a result, for a card.
pub(super) fn card(text: &str) -> Vec<Content> {
    let mut end = text.len().min(CARD);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let end = if end < text.len() { text[..end].rfind('\n').map_or(end, |it| it + 1) } else { end };
    vec![Content::Text(fenced(&text[..end]))]
}

/// A number of things.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// What there would be among hidden and ignored files.
pub(super) fn elsewhere(found: &Elsewhere) -> String {
    if found.files == 0 {
        return String::new();
    }
    let at_least = if found.is_part { "At least " } else { "" };
    let files =
        count(found.files, "hidden or ignored file matches", "hidden or ignored files match");
    format!("{at_least}{files}: set hidden=true to include them.\n")
}

/// Names that may have been meant.
pub(super) fn names(near: Vec<PathBuf>, roots: &Roots, target: &Target) -> String {
    let name = |it: PathBuf| {
        let end = if it.is_dir() { "/" } else { "" };
        format!("{}{end}", short(roots, target, it))
    };
    near.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Which part of all there is a page shows, and how to see the rest.
pub(super) fn page(all: &str, first: usize, shown: usize, next: Option<usize>) -> String {
    let last = first + shown;
    match next {
        _ if shown == 0 => format!("[offset={first} is after the end: {all}]\n"),
        None if first == 0 => format!("[{all}]\n"),
        None => format!("[{all}; these are {}–{last}, the last]\n", first + 1),
        Some(next) => {
            format!("[{all}; these are {}–{last}; continue with offset={next}]\n", first + 1)
        }
    }
}

/// That there may be more than was found.
pub(super) fn shortfall(is_part: bool, unreadable: usize) -> String {
    let mut text = String::new();
    if is_part {
        text.push_str(&format!(
            "[not complete: stopped after {} s; narrow it with `path` or a glob]\n",
            LIMIT.as_secs()
        ));
    }
    if unreadable > 0 {
        let what = count(unreadable, "file or folder", "files or folders");
        text.push_str(&format!("[{what} could not be read]\n"));
    }
    text
}

/// How a search looks before it has run.
pub(super) fn view(what: &str, places: &[Target], roots: &Roots) -> CallView {
    let elsewhere = places.iter().filter(|it| roots.short(it) != ".");
    let location = |it| Location { path: roots.shown(it), line: None };
    CallView {
        title: format!("{what}{}", place(roots, places)),
        kind: Kind::Search,
        locations: elsewhere.map(location).collect(),
    }
}

/// The place as the user and the model are told about it.
fn place(roots: &Roots, places: &[Target]) -> String {
    match places.first().map(|it| roots.short(it)) {
        Some(name) if name != "." => format!(" in {name}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_to_look_through() {
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
