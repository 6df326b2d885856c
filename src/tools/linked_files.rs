//! Finds the files of the session's folders that have another name (hard link) outside of them. uv, pnpm and Bun
//! link packages from a store that all projects share, so who writes into such a file changes the others, too.

mod changed_layers;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use turnwright_types::file_id::{FileId, file_id};
use turnwright_workspace::checkpoint::ChangeTracker;

pub(super) use changed_layers::ChangedLayers;

/// The folders of package managers. Each of them fills its own with links or with copies.
const PACKAGE_FOLDERS: [&str; 3] = ["site-packages", "node_modules", PNPM_FOLDER];
/// Where pnpm has the packages to which the rest of `node_modules` leads.
const PNPM_FOLDER: &str = ".pnpm";
/// Folders with packages in a session's folder, of which servers change none.
const USUAL_FOLDERS: [&str; 3] = [".venv", "venv", "node_modules"];
/// At most this many entries of ignored folders are looked at for one command, and for a server.
const MAX_ENTRIES: usize = 300_000;
const MAX_SERVER_ENTRIES: usize = 20_000;
/// A folder in which nothing has appeared is searched again after this time. Only programs of the user can have made a link
/// there, because commands in the sandbox make none that lead out of the session's folders.
const SEARCHED_AGAIN: Duration = Duration::from_secs(600);

/// What the searches of ignored folders have found.
#[derive(Debug, Default)]
pub(super) struct LinkedFiles(Mutex<HashMap<PathBuf, SearchedFolder>>);

/// Where the session's folders share files with places outside.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SharedPlaces {
    /// Folders with many such files, or that are ignored. None is below another.
    pub(super) folders: Vec<PathBuf>,
    /// Further files.
    pub(super) files: Vec<PathBuf>,
}

/// An ignored folder.
#[derive(Clone, Debug, Default)]
struct SearchedFolder {
    at: Option<Instant>,
    /// It and the folders of package managers in it, in which new entries appear when something is installed.
    modified: Vec<(PathBuf, Option<SystemTime>)>,
    /// The folders of package managers in it, or itself, with links.
    packages: Vec<PathBuf>,
    /// The other files with several names: how many of them are here, and how many there are.
    linked: HashMap<FileId, (u64, u64)>,
    is_complete: bool,
}

impl LinkedFiles {
    /// Looks before a command where the session's folders share files with places outside. Blocks.
    pub(super) fn find(&self, checkpoint: &ChangeTracker) -> SharedPlaces {
        let mut left = MAX_ENTRIES;
        let ignored = checkpoint.ignored_folders();
        let mut searched = HashMap::new();
        for folder in &*ignored {
            let known = self.0.lock().remove(folder).filter(SearchedFolder::is_valid);
            let found = known.unwrap_or_else(|| SearchedFolder::search(folder, &mut left));
            searched.insert(folder.clone(), found);
        }
        let places = shared_places(&searched, checkpoint.hard_linked());
        *self.0.lock() = searched;
        places
    }
}

/// Returns the usual folders of packages that share files with places outside. Blocks.
pub(crate) fn linked_packages<'a>(roots: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut left = MAX_SERVER_ENTRIES;
    let usual = roots.flat_map(|root| USUAL_FOLDERS.map(|name| root.join(name)));
    let found = usual.map(|folder| SearchedFolder::search(&folder, &mut left).packages);
    found.flatten().collect()
}

fn shared_places(
    searched: &HashMap<PathBuf, SearchedFolder>,
    listed: Vec<PathBuf>,
) -> SharedPlaces {
    let mut places = SharedPlaces::default();
    let mut files = Vec::new();
    // How many names of a file are in the session's folders.
    let mut inside: HashMap<FileId, u64> = HashMap::new();
    for (id, (here, _)) in searched.values().flat_map(|folder| &folder.linked) {
        *inside.entry(*id).or_default() += here;
    }
    for path in listed {
        let Some((id, names)) = file_id(&path) else { continue };
        *inside.entry(id).or_default() += 1;
        match package_folder(&path) {
            Some(folder) => places.folders.push(folder.to_path_buf()),
            None => files.push((path, id, names)),
        }
    }
    let leads_out = |id: &FileId, names: u64| inside.get(id).is_none_or(|here| *here < names);
    for (path, folder) in searched {
        places.folders.extend(folder.packages.iter().cloned());
        let is_shared = || folder.linked.iter().any(|(id, (_, names))| leads_out(id, *names));
        if folder.is_complete && is_shared() {
            places.folders.push(path.clone());
        }
    }
    files.retain(|(_, id, names)| leads_out(id, *names));
    places.files.extend(files.into_iter().map(|(path, ..)| path));
    places.folders.sort();
    places.folders.dedup_by(|folder, outer| folder.starts_with(outer));
    places
}

/// The folder of a package manager in which a path is.
fn package_folder(path: &Path) -> Option<&Path> {
    let is_package_folder = |folder: &&Path| PACKAGE_FOLDERS.iter().any(|it| folder.ends_with(it));
    let outermost = path.ancestors().filter(is_package_folder).last()?;
    let inner = outermost.join(PNPM_FOLDER);
    path.ancestors().find(|folder| *folder == inner).or(Some(outermost))
}

impl SearchedFolder {
    fn is_valid(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < SEARCHED_AGAIN)
            && self.modified.iter().all(|(folder, then)| *then == modified(folder))
    }

    /// Searches an ignored folder. `left` is how many entries may still be looked at.
    fn search(folder: &Path, left: &mut usize) -> SearchedFolder {
        let mut found = SearchedFolder {
            at: Some(Instant::now()),
            modified: vec![(folder.to_path_buf(), modified(folder))],
            is_complete: true,
            ..SearchedFolder::default()
        };
        let mut pending = vec![folder.to_path_buf()];
        while let Some(folder) = pending.pop() {
            let package_folder = package_folder(&folder).map(Path::to_path_buf);
            if package_folder.as_ref().is_some_and(|it| found.packages.contains(it)) {
                continue;
            }
            if package_folder.as_deref() == Some(&*folder) {
                found.modified.push((folder.clone(), modified(&folder)));
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if *left == 0 {
                    found.is_complete = false;
                    return found;
                }
                *left -= 1;
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() && entry.file_name() != ".git" {
                    pending.push(entry.path());
                }
                let linked = kind.is_file().then(|| file_id(&entry.path())).flatten();
                let Some((id, names)) = linked.filter(|(_, names)| *names > 1) else { continue };
                if let Some(package_folder) = package_folder {
                    found.packages.push(package_folder);
                    break;
                }
                found.linked.entry(id).or_insert((0, names)).0 += 1;
            }
        }
        found
    }
}

fn modified(folder: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(folder).and_then(|found| found.modified()).ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_shared_with_places_outside_are_told_from_those_with_two_names_inside() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let make = |path: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "x").unwrap();
        };
        let link = |from: &str, to: &str| {
            fs::create_dir_all(at(to).parent().unwrap()).unwrap();
            fs::hard_link(at(from), at(to)).unwrap();
        };
        make("store/a.py");
        make("store/b.js");
        make("store/object.o");
        make("bashrc");
        make("project/src/twice");
        make("project/target/debug/deps/program");
        make("project/plain/node_modules/x/index.js");
        link("store/a.py", "project/.venv/lib/python3.12/site-packages/a.py");
        link("store/b.js", "project/node_modules/.pnpm/b@1/node_modules/b/b.js");
        link("store/object.o", "project/build/object.o");
        link("bashrc", "project/bashrc");
        link("project/src/twice", "project/src/again");
        link("project/target/debug/deps/program", "project/target/debug/program");
        let mut left = 1_000;
        let ignored = [".venv", "node_modules", "build", "target", "plain/node_modules"];
        let searched = ignored.map(|name| {
            let path = at("project").join(name);
            let found = SearchedFolder::search(&path, &mut left);
            assert!(found.is_valid() && found.is_complete, "{name}");
            (path, found)
        });
        let listed = ["bashrc", "src/twice", "src/again"].map(|name| at("project").join(name));
        let found = shared_places(&searched.clone().into(), listed.to_vec());
        let folders = [".venv/lib/python3.12/site-packages", "build", "node_modules/.pnpm"];
        let expected = SharedPlaces {
            folders: folders.map(|name| at("project").join(name)).to_vec(),
            files: vec![at("project/bashrc")],
        };
        assert_eq!(found, expected);
        make("project/.venv/new");
        assert!(SearchedFolder::search(&at("project/build"), &mut 0).linked.is_empty());
        let of_servers = linked_packages([at("project").as_path()].into_iter());
        assert_eq!(of_servers, [&expected.folders[0], &expected.folders[2]].map(Clone::clone));
    }
}
