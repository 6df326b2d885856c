//! Files with several names (hard links). uv, pnpm and Bun link packages from a store that all projects share, so
//! writing to such a file of the session's folders changes the other projects as well. A command writes into layers
//! instead of into folders with such files; when it has ended, the layers become the content of the folders, as new
//! files. A tool writes a new file under one name, and the others keep the old one. So do the redirects of a command:
//! their targets get a file of their own before it begins.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::{ConfinementBuilder, package_managers};
use crate::restricted_files::outermost;
use turnwright_sandbox::{MAX_LAYERS, PrivateLayer, SandboxProfile, publish_layer};
use turnwright_types::effect::{Effect, PathScope, ResolvedPath, ShellCommand};
use turnwright_types::error_text::io_error_text;
use turnwright_types::file_id::{FileId, file_id};
use turnwright_types::plain_path::normalize_lexically;
use turnwright_types::private_file;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::secret::linked_secret_files;
use turnwright_workspace::checkpoint::ChangeTracker;
use turnwright_workspace::files::Roots;
use turnwright_workspace::nofollow;

/// The folders of package managers, which fill theirs either with links or with copies.
const PACKAGE_FOLDERS: [&str; 3] = ["site-packages", "node_modules", PNPM_FOLDER];
/// Where pnpm keeps the packages that the rest of `node_modules` links to.
const PNPM_FOLDER: &str = ".pnpm";
/// Folders with packages, directly in a session's folder or in a subfolder of it. They are searched before others.
const USUAL_FOLDERS: [&str; 6] = [".venv", "venv", "env", "node_modules", ".tox", ".nox"];
/// At most this many subfolders of a session's folder may have a folder with packages, as far as servers are concerned.
const MAX_SUBFOLDERS: usize = 200;
/// At most this many entries are looked at for one command: of one folder, and of all.
const MAX_ENTRIES: usize = 300_000;
const MAX_TOTAL_ENTRIES: usize = 1_200_000;
/// The same for a server.
const MAX_SERVER_ENTRIES: usize = 50_000;
/// At most this many files with several names are remembered of a folder that is not ignored.
const MAX_LINKED: usize = 10_000;
/// A folder in which nothing has appeared is searched again after this time. Only the user's own programs can have added
/// such a link, because commands in the sandbox make none that lead out of the session's folders.
const SEARCHED_AGAIN: Duration = Duration::from_secs(600);

/// At most this many files and folders of a read-only path are checked for hard links.
#[cfg(unix)]
const MAX_LINK_CHECKS: usize = 2_000;

/// With more files than this that have a name outside of the session's folders, no command runs in the sandbox.
const MAX_SHARED_FILES: usize = 1_000;
const SHARED_TOO_MUCH: &str = "Nothing was run: more than 1000 files of the project are also files of another folder \
                               (hard links, as `cp -l` makes them), which a command would change, too. Ask the user to make a copy \
                               of the project, or call again with \"escalate\": \"full\", so that the user is asked.";

/// The findings of the searches.
#[derive(Debug, Default)]
pub(crate) struct LinkedFiles {
    ignored: HashMap<PathBuf, SearchedFolder>,
    /// The session's folders, if they have too many files for a list of all.
    unlisted: HashMap<PathBuf, SearchedFolder>,
    /// The files that were shared with places outside. Looked at again for each command, because a search of a folder
    /// that a command has filled may not come to them.
    shared: BTreeSet<PathBuf>,
}

/// Where the session's folders share files with places outside.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SharedPlaces {
    /// Folders with many such files, or that are ignored. None is below another.
    pub(crate) folders: Vec<PathBuf>,
    /// Further files.
    pub(crate) files: Vec<PathBuf>,
}

/// A folder that was searched.
#[derive(Clone, Debug, Default)]
struct SearchedFolder {
    at: Option<Instant>,
    /// It, if it is ignored, and the folders of package managers in it, in which new entries appear when something is
    /// installed.
    modified: Vec<(PathBuf, Option<SystemTime>)>,
    /// The folders of package managers in it, or itself, with links.
    packages: Vec<PathBuf>,
    /// The other files with several names: how many of them are here, and how many there are.
    linked: HashMap<FileId, (u64, u64)>,
    /// Their paths, if the folder is one of the session's.
    files: Vec<PathBuf>,
    is_complete: bool,
}

impl LinkedFiles {
    /// Finds, before a command, the places where the session's folders share files with places outside. Blocks.
    fn find(&mut self, checkpoint: &ChangeTracker, roots: &Roots) -> SharedPlaces {
        let mut ignored = checkpoint.ignored_folders().to_vec();
        // A command can fill folders until no search comes to those with packages.
        ignored.sort_by_key(|folder| !holds_packages(folder));
        let mut left = MAX_TOTAL_ENTRIES;
        search_again(&mut self.ignored, &ignored, |folder| {
            SearchedFolder::search(folder, None, &mut left)
        });
        let mut files = self.shared.clone();
        match checkpoint.hard_linked() {
            Some(listed) => files.extend(listed),
            None => {
                let folders: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
                let ignored: HashSet<_> = ignored.iter().map(PathBuf::as_path).collect();
                search_again(&mut self.unlisted, &folders, |folder| {
                    SearchedFolder::search(folder, Some(&ignored), &mut left)
                });
                files.extend(self.unlisted_files());
            }
        }
        let places = shared_places(self, files);
        self.shared = places.files.iter().cloned().collect();
        places
    }

    /// The files with several names in the session's folders, except in ignored folders, as far as [`find`](Self::find)
    /// had to search for them.
    fn unlisted_files(&self) -> impl Iterator<Item = PathBuf> {
        self.unlisted.values().flat_map(|folder| folder.files.iter().cloned())
    }
}

/// Searches these folders, unless what is known of them still holds, and forgets others.
fn search_again(
    known: &mut HashMap<PathBuf, SearchedFolder>,
    folders: &[PathBuf],
    mut search: impl FnMut(&Path) -> SearchedFolder,
) {
    let mut before = std::mem::take(known);
    for folder in folders {
        let found = match before.remove(folder) {
            Some(before) if before.is_valid() => before,
            Some(before) => search(folder).or_as_before(before),
            None => search(folder),
        };
        known.insert(folder.clone(), found);
    }
}

/// Returns the usual folders of packages, directly in the roots and in their subfolders, that share files with places
/// outside. Blocks.
pub(super) fn linked_packages<'a>(roots: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut left = MAX_SERVER_ENTRIES;
    let mut packages = Vec::new();
    for root in roots {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let subfolders = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .take(MAX_SUBFOLDERS);
        for folder in [root.to_path_buf()].into_iter().chain(subfolders) {
            for usual in USUAL_FOLDERS.map(|name| folder.join(name)) {
                packages.extend(SearchedFolder::search(&usual, None, &mut left).packages);
            }
        }
    }
    packages
}

/// Returns true if a folder, judging by its name, belongs to a package manager or has folders that do.
fn holds_packages(folder: &Path) -> bool {
    let is_usual = USUAL_FOLDERS.iter().any(|name| folder.ends_with(name));
    is_usual || package_folder(folder).is_some()
}

fn shared_places(known: &LinkedFiles, listed: BTreeSet<PathBuf>) -> SharedPlaces {
    let mut places = SharedPlaces::default();
    let mut files = Vec::new();
    // The number of names of a file in the session's folders.
    let mut inside: HashMap<FileId, u64> = HashMap::new();
    for (id, (here, _)) in known.ignored.values().flat_map(|folder| &folder.linked) {
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
    let of_unlisted = known.unlisted.values().flat_map(|folder| &folder.packages);
    places.folders.extend(of_unlisted.cloned());
    for (path, folder) in &known.ignored {
        places.folders.extend(folder.packages.iter().cloned());
        if folder.is_complete && folder.linked.iter().any(|(id, (_, names))| leads_out(id, *names))
        {
            places.folders.push(path.clone());
        }
    }
    files.retain(|(_, id, names)| leads_out(id, *names));
    places.files.extend(files.into_iter().map(|(path, ..)| path));
    outermost(&mut places.folders);
    places
}

/// The folder of a package manager in which a path is.
fn package_folder(path: &Path) -> Option<&Path> {
    let package_folders =
        path.ancestors().filter(|folder| PACKAGE_FOLDERS.iter().any(|name| folder.ends_with(name)));
    let outermost = package_folders.last()?;
    let inner = outermost.join(PNPM_FOLDER);
    path.ancestors().find(|folder| *folder == inner).or(Some(outermost))
}

impl SearchedFolder {
    fn is_valid(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < SEARCHED_AGAIN)
            && self.modified.iter().all(|(folder, then)| *then == modified(folder))
    }

    /// The same with what was known, if the search did not come to its end: the folder may have been filled.
    fn or_as_before(mut self, before: SearchedFolder) -> SearchedFolder {
        if self.is_complete {
            return self;
        }
        self.packages.extend(before.packages);
        self.files.extend(before.files);
        SearchedFolder { linked: before.linked, is_complete: before.is_complete, ..self }
    }

    /// Searches a folder, outer folders first. `ignored` is given for a folder of the session, and says which folders in it
    /// are searched on their own. `left` is the number of entries that may still be looked at.
    fn search(folder: &Path, ignored: Option<&HashSet<&Path>>, left: &mut usize) -> SearchedFolder {
        let mut found = SearchedFolder {
            at: Some(Instant::now()),
            is_complete: true,
            ..SearchedFolder::default()
        };
        // In a folder of the session, new entries appear all the time.
        if ignored.is_none() {
            found.modified.push((folder.to_path_buf(), modified(folder)));
        }
        let mut left_here = MAX_ENTRIES.min(*left);
        let mut pending = VecDeque::from([folder.to_path_buf()]);
        while let Some(folder) = pending.pop_front() {
            let package_folder = package_folder(&folder).map(Path::to_path_buf);
            if package_folder.as_ref().is_some_and(|package| found.packages.contains(package)) {
                continue;
            }
            if package_folder.as_deref() == Some(&*folder) {
                found.modified.push((folder.clone(), modified(&folder)));
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if left_here == 0 {
                    found.is_complete = false;
                    return found;
                }
                left_here -= 1;
                *left -= 1;
                let Ok(kind) = entry.file_type() else { continue };
                let path = entry.path();
                if kind.is_dir() {
                    let is_left_out = ignored.is_some_and(|ignored| ignored.contains(&*path));
                    if entry.file_name() != ".git" && !is_left_out {
                        pending.push_back(path);
                    }
                    continue;
                }
                let linked = kind.is_file().then(|| file_id(&path)).flatten();
                let Some((id, names)) = linked.filter(|(_, names)| *names > 1) else { continue };
                if let Some(package_folder) = package_folder {
                    found.packages.push(package_folder);
                    break;
                }
                if ignored.is_none() {
                    found.linked.entry(id).or_insert((0, names)).0 += 1;
                } else if found.files.len() < MAX_LINKED {
                    found.files.push(path);
                }
            }
        }
        found
    }
}

pub(super) fn modified(folder: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(folder).and_then(|found| found.modified()).ok()
}

impl ConfinementBuilder<'_> {
    /// The other names (hard links) in the session's folders of the files that the agent's own secrets are in.
    pub(super) fn other_names_of_secrets(&self) -> Vec<PathBuf> {
        let secrets = linked_secret_files();
        if secrets.is_empty() {
            return Vec::new();
        }
        // A search of another command may hold the lock for long, so it is only taken where the tracker has no list.
        let mut names = self
            .site
            .tracker
            .hard_linked()
            .unwrap_or_else(|| self.site.guard.linked_files.lock().unlisted_files().collect());
        names.retain(|path| file_id(path).is_some_and(|(id, _)| secrets.contains(&id)));
        names
    }

    /// Where the session's folders share files with places outside, unless the user has allowed to change them.
    pub(super) fn shared_places(&self) -> Result<SharedPlaces, ToolRefusal> {
        let site = self.site;
        let mut places = site.guard.linked_files.lock().find(&site.tracker, &site.roots);
        let is_allowed = |path: &PathBuf| self.write.iter().any(|to| path.starts_with(to));
        let deleted = deleted_first(self.command).unwrap_or_default();
        places.folders.retain(|path| {
            !is_allowed(path) && !deleted.iter().any(|folder| path.starts_with(folder))
        });
        places.files.retain(|path| !is_allowed(path));
        if places.files.len() > MAX_SHARED_FILES {
            return Err(SHARED_TOO_MUCH.into());
        }
        Ok(places)
    }

    /// Describes for the model and the user what the sandbox lets the command do with files that other projects share.
    pub(super) fn shared_note(&self, shared: &SharedPlaces) -> String {
        let mut note = String::new();
        if !shared.folders.is_empty() {
            let all = self.display_first(&shared.folders);
            note = format!(
                "; {all} shares files with other projects (hard links), so it cannot be deleted or moved as a whole, but by a \
                 line that begins with `rm -rf {} &&`",
                self.display(&shared.folders[0])
            );
        }
        if !shared.files.is_empty() {
            let all = self.display_first(&shared.files);
            note += &format!("; no changes of {all}, which is also a file outside (a hard link)");
        }
        note
    }

    /// The first three of these paths.
    fn display_first(&self, paths: &[PathBuf]) -> String {
        let names: Vec<_> = paths.iter().take(3).map(|path| self.display(path)).collect();
        names.join(", ")
    }

    fn display(&self, path: &Path) -> String {
        let place = ResolvedPath { path: path.to_path_buf(), scope: PathScope::Workspace };
        self.site.roots.display_path(&place)
    }

    /// The layers over folders with shared files, and the paths that the command cannot change at all.
    pub(super) fn layers(&self, shared: SharedPlaces) -> (ChangedLayers, Vec<PathBuf>) {
        let SharedPlaces { folders, files: mut unchanged } = shared;
        let confinement = &self.site.settings;
        if folders.is_empty() || !confinement.can_layer_caches() {
            unchanged.extend(folders);
            return (ChangedLayers::default(), unchanged);
        }
        let place = confinement.private_caches.join("layers");
        let (layers, without_layer) = ChangedLayers::prepare(folders, &place);
        unchanged.extend(without_layer);
        (layers, unchanged)
    }
}

/// The folders that a line deletes as a whole before it does anything else, and without which it does nothing else;
/// `None` if there are none.
pub(super) fn deleted_first(command: &ShellCommand) -> Option<Vec<PathBuf>> {
    let is_chain = !command.line.replace("&&", "").contains(['&', '|', ';', '\n']);
    let first = command.script.commands.first().filter(|_| is_chain)?;
    let is_known = command.script.ambiguity.is_none() && first.wrappers.is_empty();
    let folder = first.folder.as_ref().filter(|_| is_known && first.program() == "rm")?;
    let folder = command.workdir.join(folder);
    let (options, paths): (Vec<_>, Vec<_>) =
        first.argv().skip(1).partition(|word| word.starts_with('-'));
    let is_recursive = options.iter().any(|option| option.contains(['r', 'R']));
    let deletes = options.iter().all(|option| is_deleting_option(option));
    // Behind a link, `..` leads elsewhere than it seems to.
    let has_parent = paths.iter().any(|path| path.split('/').any(|part| part == ".."));
    let all = paths.iter().map(|path| normalize_lexically(&folder.join(path)));
    (is_recursive && deletes && !has_parent).then(|| all.collect())
}

/// Returns true if `rm` certainly deletes with this option. With others, such as `--help` and `-i`, it may succeed and
/// delete nothing.
fn is_deleting_option(option: &str) -> bool {
    let letters = option.trim_start_matches('-');
    let are_short = option.len() == letters.len() + 1;
    ["--recursive", "--force"].contains(&option)
        || are_short && letters.chars().all(|letter| "rRfv".contains(letter))
}

/// The layers of one command, in a folder that is removed when all of them are published.
#[derive(Debug, Default)]
pub(crate) struct ChangedLayers {
    place: Option<PathBuf>,
    layers: Vec<(PrivateLayer, File)>,
}

impl ChangedLayers {
    /// Prepares layers over folders, in a new folder in `place`. Folders beyond the number that is possible, and those
    /// that cannot be opened, are returned: they have to stay unchanged. Blocks.
    fn prepare(mut folders: Vec<PathBuf>, place: &Path) -> (ChangedLayers, Vec<PathBuf>) {
        let place = place.join(uuid::Uuid::new_v4().simple().to_string());
        if let Err(error) = private_file::create_folder(&place) {
            tracing::warn!(%error, "no layer over folders with shared files can be made");
            return (ChangedLayers::default(), folders);
        }
        let mut unchanged = folders.split_off(folders.len().min(MAX_LAYERS));
        let mut layers = Vec::new();
        for folder in folders {
            match nofollow::open_file(&folder) {
                Ok(held) => layers.push((PrivateLayer::new(folder, &place), held)),
                Err(_) => unchanged.push(folder),
            }
        }
        (ChangedLayers { place: Some(place), layers }, unchanged)
    }

    pub(crate) fn layers(&self) -> Vec<PrivateLayer> {
        self.layers.iter().map(|(layer, _)| layer.clone()).collect()
    }

    /// Publishes what the command has changed. Returns messages about what failed; that stays in the layer. All processes of
    /// the command must have ended. Blocks.
    pub(crate) fn publish(&self) -> Vec<String> {
        let messages = self.layers.iter().filter_map(|(layer, folder)| {
            let error = publish_layer(layer, folder).err()?;
            // A command that never began has changed nothing.
            let is_there = error.kind() != io::ErrorKind::NotFound || layer.private.exists();
            tracing::warn!(%error, folder = %layer.path.display(), "a layer cannot be published");
            is_there.then(|| {
                format!(
                    "[Only a part of what the command changed in {} was saved: {}. The rest is in {}.]",
                    layer.path.display(),
                    io_error_text(&error),
                    layer.private.join("upper").display()
                )
            })
        });
        let failed: Vec<_> = messages.collect();
        if let Some(place) = self.place.as_ref().filter(|_| failed.is_empty())
            && let Err(error) = package_managers::remove_caches(place, &|| false)
        {
            tracing::debug!(%error, "a layer cannot be removed");
        }
        failed
    }
}

/// The paths that the sandbox keeps read-only, with their inodes. Left out are paths with a hard
/// link elsewhere, through which the command could still write them. Blocks: not for the runtime's
/// thread.
pub(super) fn read_only_inodes(profile: &SandboxProfile) -> Vec<(PathBuf, u64)> {
    if !turnwright_sandbox::namespace_support().mounts {
        return Vec::new();
    }
    let found = profile.read_only.iter().filter_map(|path| {
        let (number, is_only) = inode(path)?;
        is_only.then(|| (path.clone(), number))
    });
    found.collect()
}

/// The inode of a file or folder, and true if neither it nor anything in it has a second hard link
/// through which it could be changed.
#[cfg(unix)]
pub(crate) fn inode(path: &Path) -> Option<(u64, bool)> {
    use std::os::unix::fs::MetadataExt;
    let number = fs::symlink_metadata(path).ok()?.ino();
    let mut left = MAX_LINK_CHECKS;
    let mut paths = vec![path.to_path_buf()];
    while let Some(path) = paths.pop() {
        let metadata = fs::symlink_metadata(&path).ok()?;
        if left == 0 || !metadata.is_dir() && metadata.nlink() > 1 {
            return Some((number, false));
        }
        left -= 1;
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).ok()?.flatten();
            paths.extend(entries.take(left + 1).map(|entry| entry.path()));
        }
    }
    Some((number, true))
}

#[cfg(not(unix))]
pub(crate) fn inode(_: &Path) -> Option<(u64, bool)> {
    None
}

/// Replaces a file that has several names with a copy that has one, so that writing to it changes no other file. Blocks.
///
/// # Errors
/// When the file cannot be copied or replaced.
pub(super) fn separate(path: &Path) -> io::Result<()> {
    if file_id(path).is_none_or(|(_, names)| names < 2) {
        return Ok(());
    }
    let (_held, path) = nofollow::hold_entry(path, nofollow::open_folder)?;
    let mut from = nofollow::open_pinned_file(&path, false)?;
    let mut copy = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
    io::copy(&mut from, &mut copy)?;
    fs::set_permissions(copy.path(), from.metadata()?.permissions())?;
    copy.persist(path).map(|_: File| ()).map_err(|failed| failed.error)
}

/// A note for the user and the model about the other names of the files that a call writes; `None` if there are
/// none. Blocks: not for the runtime's thread.
pub fn note_about_other_names(effects: &[Effect], roots: &Roots) -> Option<String> {
    let texts = effects.iter().filter_map(Effect::written).filter_map(|target| {
        let others = file_id(&target.path)?.1 - 1;
        let name = roots.display_path(target);
        match others {
            0 => None,
            1 => {
                Some(format!("{name} has another name (a hard link), which keeps the old content."))
            }
            _ => Some(format!(
                "{name} has {others} other names (hard links), which keep the old content."
            )),
        }
    });
    let notes: Vec<_> = texts.collect();
    (!notes.is_empty()).then(|| notes.join("\n"))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::sync::Arc;

    use turnwright_policy::shell;
    use turnwright_types::shell_script::ShellDialect;

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
            let found = SearchedFolder::search(&path, None, &mut left);
            assert!(found.is_valid() && found.is_complete, "{name}");
            (path, found)
        });
        let listed = ["bashrc", "src/twice", "src/again"].map(|name| at("project").join(name));
        let mut known = LinkedFiles { ignored: searched.into(), ..LinkedFiles::default() };
        let found = shared_places(&known, listed.clone().into());
        let folders = [".venv/lib/python3.12/site-packages", "build", "node_modules/.pnpm"];
        let expected = SharedPlaces {
            folders: folders.map(|name| at("project").join(name)).to_vec(),
            files: vec![at("project/bashrc")],
        };
        assert_eq!(found, expected);
        // Without a list of all files.
        let ignored: Vec<_> = known.ignored.keys().cloned().collect();
        let ignored = ignored.iter().map(PathBuf::as_path).collect();
        let unlisted = SearchedFolder::search(&at("project"), Some(&ignored), &mut left);
        assert_eq!(unlisted.files.iter().cloned().collect::<BTreeSet<_>>(), listed.into());
        known.unlisted.insert(at("project"), unlisted.clone());
        assert_eq!(shared_places(&known, unlisted.files.into_iter().collect()), expected);
        assert!(SearchedFolder::search(&at("project/build"), None, &mut 0).linked.is_empty());
        make("project/web/x");
        link("store/a.py", "project/web/.venv/lib/python3.12/site-packages/a.py");
        let of_servers = linked_packages([at("project").as_path()].into_iter());
        let in_subfolder = at("project/web/.venv/lib/python3.12/site-packages");
        let expected = [&expected.folders[0], &expected.folders[2], &in_subfolder];
        assert_eq!(of_servers, expected.map(Clone::clone));
    }

    #[test]
    fn a_project_with_too_many_files_for_a_list_of_them_is_searched() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in ["project/web/node_modules/.pnpm/b@1", "store"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::write(at("store/b.js"), "x").unwrap();
        fs::hard_link(at("store/b.js"), at("project/web/node_modules/.pnpm/b@1/b.js")).unwrap();
        fs::write(at("bashrc"), "x").unwrap();
        fs::hard_link(at("bashrc"), at("project/web/bashrc")).unwrap();
        let roots = Roots::new(&at("project")).unwrap();
        let project = roots.real_cwd().to_path_buf();
        let mut linked = LinkedFiles::default();
        let tracker = ChangeTracker::default();
        let expected = SharedPlaces {
            folders: vec![project.join("web/node_modules/.pnpm")],
            files: vec![project.join("web/bashrc")],
        };
        assert_eq!(linked.find(&tracker, &roots), expected);
        assert_eq!(linked.unlisted_files().collect::<Vec<_>>(), expected.files);
        assert_eq!(linked.find(&tracker, &roots), expected, "from what is known");
    }

    #[test]
    fn what_was_found_is_kept_when_a_command_fills_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("build/deep/er")).unwrap();
        fs::write(at("outside"), "x").unwrap();
        fs::hard_link(at("outside"), at("build/deep/er/inside")).unwrap();
        let mut known = LinkedFiles::default();
        let mut search = |left: usize| {
            search_again(&mut known.ignored, &[at("build")], |folder| {
                SearchedFolder::search(folder, None, &mut left.clone())
            });
            shared_places(&known, BTreeSet::new()).folders
        };
        assert_eq!(search(100), [at("build")]);
        fs::write(at("build/filler"), "x").unwrap();
        assert_eq!(search(1), [at("build")]);
    }

    #[test]
    fn a_file_is_separated_from_its_other_names() {
        let folder = tempfile::tempdir().unwrap();
        let folder = turnwright_workspace::real_path(folder.path()).unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.join(name));
        fs::write(&one, "text").unwrap();
        fs::hard_link(&one, &other).unwrap();
        separate(&one).unwrap();
        separate(&folder.join("missing")).unwrap();
        assert_eq!(file_id(&one).unwrap().1, 1);
        assert_eq!(fs::read_to_string(&one).unwrap(), "text");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn only_what_is_gone_before_the_rest_of_a_line_runs_counts_as_deleted() {
        for (line, expected) in [
            ("rm -rf a && touch b", Some("/p/a")),
            ("rm -r --force a/ && touch b", Some("/p/a")),
            ("rm -rf --help a && touch b", None),
            ("rm -rf --version a && touch b", None),
            ("rm -ri a && touch b", None),
            ("rm -f a && touch b", None),
            ("rm -rf link/../a && touch b", None),
            ("rm -rf a; touch b", None),
            ("rm -rf a || touch b", None),
            ("touch b && rm -rf a", None),
        ] {
            let script = Arc::new(shell::parse(line, ShellDialect::Bash));
            let command = ShellCommand::new(line, Path::new("/p"), script);
            let expected = expected.map(|path| vec![PathBuf::from(path)]);
            assert_eq!(deleted_first(&command), expected, "{line}");
        }
    }
}
