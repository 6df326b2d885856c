//! Finds out if a git repository has lost parts that git needs, compared with the files that were kept: its
//! folders, packs, branches, or the commits that the branches name.

use std::fs::{self, File};
use std::path::Path;

use super::{BRANCHES, MAX_FOLDERS, OBJECTS};
use turnwright_types::hash::parse_hex;
use turnwright_workspace::checkpoint::pack_index_lists;
use turnwright_workspace::files::read_head;

/// At most this many branches are looked at.
const MAX_TIPS: usize = 32;
/// Lists of branches are read up to here.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
const MAX_NAME_BYTES: usize = 256;

/// Returns a part that `kept` has and `git` no longer has, and without which git would not take the folder for a
/// repository or not find its commits.
pub(super) fn lost_part(kept: &Path, git: &Path) -> Option<&'static str> {
    let is_lost = |has: fn(&Path) -> bool| has(kept) && !has(git);
    // Git itself removes the last branch with its log, but never the log of `HEAD`.
    let has_lost_branches = is_lost(has_branch) && is_lost(has_log);
    let parts = [
        ("HEAD", is_lost(|git| git.join("HEAD").is_file())),
        ("refs", is_lost(|git| git.join("refs").is_dir())),
        ("branches", has_lost_branches),
        ("objects", is_lost(|git| has_file(&git.join(OBJECTS), ""))),
        ("packs", is_lost(|git| has_file(&git.join("objects/pack"), ".pack"))),
        ("the list of branches", is_lost(|git| git.join("reftable/tables.list").is_file())),
        ("lists of branches", lacks_table(kept, git)),
        ("commits", lacks_commit(kept, git)),
    ];
    parts.into_iter().find_map(|(part, is_lost)| is_lost.then_some(part))
}

/// Returns true if the log of `HEAD` is there, which git never deletes.
pub(super) fn has_log(git: &Path) -> bool {
    git.join("logs/HEAD").is_file()
}

/// The names and commits in `packed-refs`.
pub(super) fn packed_branches(git: &Path) -> String {
    read_head(&git.join("packed-refs"), None, MAX_LIST_BYTES)
        .map_or_else(String::new, |head| head.text)
}

/// The commit that the file of a branch names.
pub(super) fn commit_in(branch: &Path) -> Option<String> {
    read_head(branch, None, MAX_NAME_BYTES).map(|head| head.text.trim().to_owned())
}

fn has_branch(git: &Path) -> bool {
    let is_packed = packed_branches(git).lines().any(|line| line.contains(" refs/heads/"));
    is_packed || has_file(&git.join(BRANCHES), "")
}

/// Returns true if there is a file with this ending in a folder or in the folders in it.
fn has_file(folder: &Path, ending: &str) -> bool {
    let mut has_found = false;
    each_file(folder, &mut |path| {
        has_found = path.to_string_lossy().ends_with(ending);
        !has_found
    });
    has_found
}

/// Goes through the files in a folder and the folders in it, until `goes_on` returns false.
pub(super) fn each_file(folder: &Path, goes_on: &mut dyn FnMut(&Path) -> bool) {
    let mut pending = vec![folder.to_path_buf()];
    let mut left = MAX_FOLDERS;
    while let Some(folder) = pending.pop().filter(|_| left > 0) {
        left -= 1;
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                Ok(kind) if kind.is_file() && !goes_on(&entry.path()) => return,
                _ => {}
            }
        }
    }
}

/// Returns true if a table that the list of them names is gone.
fn lacks_table(kept: &Path, git: &Path) -> bool {
    let path = git.join("reftable/tables.list");
    let list = read_head(&path, None, MAX_LIST_BYTES).map_or_else(String::new, |head| head.text);
    let mut tables = list.lines().map(|name| Path::new("reftable").join(name.trim()));
    tables.any(|table| kept.join(&table).is_file() && !git.join(&table).is_file())
}

/// Returns true if a branch of `git`, or its `HEAD`, names a commit that only `kept` has.
fn lacks_commit(kept: &Path, git: &Path) -> bool {
    let mut names: Vec<String> = Vec::new();
    names.extend(commit_in(&git.join("HEAD")));
    each_file(&git.join(BRANCHES), &mut |path| {
        names.extend(commit_in(path));
        names.len() < MAX_TIPS
    });
    let list = packed_branches(git);
    let packed = list.lines().filter_map(|line| line.split_once(" refs/heads/"));
    names.extend(packed.take(MAX_TIPS).map(|(name, _)| name.to_owned()));
    names.iter().any(|name| !has_object(git, name) && has_object(kept, name))
}

/// Returns true if a repository has the object of this name itself.
fn has_object(git: &Path, name: &str) -> bool {
    if !matches!(name.len(), 40 | 64) || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return false;
    }
    let objects = git.join(OBJECTS);
    if objects.join(&name[..2]).join(&name[2..]).is_file() {
        return true;
    }
    let Some(id) = parse_hex(name) else { return false };
    let packs = fs::read_dir(objects.join("pack")).into_iter().flatten().flatten();
    packs.map(|entry| entry.path()).any(|path| {
        path.extension().is_some_and(|extension| extension == "idx")
            && path.with_extension("pack").is_file()
            && File::open(&path).is_ok_and(|index| pack_index_lists(&index, &id))
    })
}
