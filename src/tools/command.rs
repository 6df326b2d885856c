//! What a command line touches: words → places → effects. What is not seen here is for the sandbox.

use std::path::{Path, PathBuf};

use super::{repository, toolchain};
use turnwright_types::effect::{Command, Effect, Place, Reach, Target};
use turnwright_workspace::exec::dialect;
use turnwright_workspace::files::Roots;
use turnwright_policy::shell;

/// Words with which a model asks for more than a place.
const NETWORK: &str = "network";
const FULL: &str = "full";

/// A place that a command line names.
pub(super) struct Touch {
    path: PathBuf,
    sort: Sort,
}

enum Sort {
    /// One of its programs reads it.
    Read,
    /// The shell writes it.
    Write,
    /// It is to be written beyond the sandbox.
    Escalated,
}

/// The places that a line names, when it runs in that folder. The same for the same words.
pub(super) fn touches(line: &str, workdir: &Path, escalate: Option<&str>) -> Vec<Touch> {
    let mut touches = Vec::new();
    if let Some(wanted) = escalate.filter(|it| ![NETWORK, FULL].contains(it)) {
        touches.push(Touch { path: workdir.join(wanted), sort: Sort::Escalated });
    }
    let script = shell::read(line, dialect());
    for simple in &script.commands {
        let Some(folder) = simple.folder.as_ref().map(|it| workdir.join(it)) else { continue };
        for redirect in &simple.redirects {
            let sort = if redirect.is_write { Sort::Write } else { Sort::Read };
            touches.push(Touch { path: folder.join(&redirect.path), sort });
        }
        // With a doubt it is asked about anyway.
        if script.doubt.is_none() {
            let reads = shell::nature(simple).reads.into_iter();
            touches.extend(reads.map(|it| Touch { path: folder.join(it), sort: Sort::Read }));
        }
    }
    touches
}

/// Why the words of a line do not tell all, as far as that is known from where it runs: git obeys
/// the settings of the repository that it finds there, and rustup a file that names a toolchain.
/// Reads the disk.
pub(super) fn doubt(line: &str, workdir: &Path) -> Option<String> {
    let script = shell::read(line, dialect());
    let mut known: Vec<(PathBuf, bool)> = Vec::new();
    for simple in &script.commands {
        let nature = shell::nature(simple);
        if !nature.is_git && !nature.is_rust {
            continue;
        }
        let Some(folder) = &simple.folder else {
            return Some("nobody knows in which folder it will run".to_owned());
        };
        let folder = std::fs::canonicalize(workdir.join(folder)).unwrap_or(workdir.to_path_buf());
        let place = (folder, nature.is_git);
        if known.contains(&place) {
            continue;
        }
        let (folder, is_git) = &place;
        let doubt = if *is_git { repository::doubt(folder) } else { toolchain::doubt(folder) };
        if doubt.is_some() {
            return doubt;
        }
        known.push(place);
    }
    None
}

/// The effects of a line that runs in the project, for whoever asks what would be thought of it.
/// Looks at the disk.
pub fn line_effects(line: &str, roots: &Roots) -> Vec<Effect> {
    let workdir = roots.resolve(".");
    let named = touches(line, Path::new("."), None);
    let places: Vec<_> = named.iter().map(|it| roots.resolve(&it.path)).collect();
    let doubt = doubt(line, &workdir.path);
    effects(line, &workdir, None, doubt.as_deref(), named.into_iter().zip(places))
}

impl Touch {
    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

/// The effects of a line, with its places as they were found.
pub(super) fn effects(
    line: &str,
    workdir: &Target,
    escalate: Option<&str>,
    doubt: Option<&str>,
    touched: impl Iterator<Item = (Touch, Target)>,
) -> Vec<Effect> {
    let mut command = Command::new(line, &workdir.path);
    if workdir.place != Place::Inside {
        // What was allowed in the project was not allowed elsewhere; and whether there is such a
        // folder is something to learn already.
        command.reads.push(workdir.clone());
    }
    command.doubt = doubt.map(str::to_owned);
    command.reach = match escalate {
        Some(NETWORK) => Reach::Network,
        Some(FULL) => Reach::Full,
        _ => Reach::Usual,
    };
    let mut writes = Vec::new();
    for (touch, target) in touched {
        match touch.sort {
            Sort::Read => command.reads.push(target),
            Sort::Write => writes.push(Effect::Write(target)),
            Sort::Escalated => command.reach = Reach::Write(target),
        }
    }
    std::iter::once(Effect::Exec(Box::new(command))).chain(writes).collect()
}
