//! The git repository that a folder lies in: where its own folder is, and whether its settings
//! start programs. What is read here is a repository's and proves nothing by itself.

mod settings;

use std::fs;
use std::path::{Path, PathBuf};

use turnwright_workspace::files::glance;

pub(super) use settings::only_tracks;

/// Bytes of settings that are read.
const MOST_SETTINGS: usize = 256 * 1024;
/// Bytes of a file that says where another one is.
const MOST_POINTER: usize = 4 * 1024;
/// Submodules whose settings are looked at.
const MOST_MODULES: usize = 64;

/// A repository as git would find it.
struct Found {
    /// The folder that holds `.git`.
    top: PathBuf,
    /// The real folder of the repository.
    git: PathBuf,
    /// `.git` is a file, which only says where that is.
    is_elsewhere: bool,
}

/// Why git may start a program of the repository's choice when it runs in this real folder.
/// Reads the disk: not for the runtime's thread.
pub(super) fn doubt(folder: &Path) -> Option<String> {
    let mut at = Some(folder);
    while let Some(folder) = at {
        if is_git_folder(folder) {
            return Some(
                "git would obey this folder's own settings as those of a repository".into(),
            );
        }
        match find_at(folder) {
            Ok(Some(found)) => return of_found(&found),
            Ok(None) => at = folder.parent(),
            Err(reason) => return Some(reason),
        }
    }
    None
}

/// The folders outside of this root, a real path, that its repository keeps its state in. Only
/// those that know of the root themselves: what lies in the root may be forged.
pub fn git_folders(root: &Path) -> Vec<PathBuf> {
    let mut at = Some(root);
    while let Some(folder) = at {
        match find_at(folder) {
            Ok(Some(found)) => {
                let folder = if found.is_elsewhere { proven(&found) } else { Some(found.git) };
                return folder.into_iter().filter(|it| !it.starts_with(root)).collect();
            }
            Ok(None) => at = folder.parent(),
            Err(_) => return Vec::new(),
        }
    }
    Vec::new()
}

fn find_at(top: &Path) -> Result<Option<Found>, String> {
    let dot = top.join(".git");
    let Ok(metadata) = fs::metadata(&dot) else { return Ok(None) };
    let real = |it: &Path| fs::canonicalize(it).map_err(|_| "its .git leads nowhere".to_owned());
    let top = top.to_path_buf();
    if metadata.is_dir() {
        return Ok(Some(Found { top, git: real(&dot)?, is_elsewhere: false }));
    }
    let text = text(&dot, MOST_POINTER).ok_or("its .git is not understood")?;
    let named = text.trim_end().strip_prefix("gitdir:").ok_or("its .git is not understood")?;
    let git = real(&top.join(named.trim_start()))?;
    Ok(Some(Found { top, git, is_elsewhere: true }))
}

/// What a `.git` file names, if that says so too: all of a repository of which this is a further
/// working tree, or the folder of a submodule.
fn proven(found: &Found) -> Option<PathBuf> {
    let git = &found.git;
    if git.parent()?.file_name()? == "worktrees" {
        let back = text(&git.join("gitdir"), MOST_POINTER)?;
        let back = fs::canonicalize(git.join(back.trim_end())).ok()?;
        let common = git.parent()?.parent()?;
        let says = text(&git.join("commondir"), MOST_POINTER)?;
        let says = fs::canonicalize(git.join(says.trim_end())).ok()?;
        let is_it = back == found.top.join(".git") && says == common && is_git_folder(common);
        return is_it.then(|| common.to_path_buf());
    }
    (is_git_folder(git) && is_worktree(git, &found.top)).then(|| git.clone())
}

/// Whether a repository's settings name this as its working tree.
fn is_worktree(git: &Path, top: &Path) -> bool {
    let Some(text) = text(&git.join("config"), MOST_SETTINGS) else { return false };
    let Ok(all) = settings::parse(&text) else { return false };
    let named = all.iter().rev().find(|it| it.key == "core.worktree");
    let named = named.and_then(|it| it.value.as_ref());
    named.is_some_and(|it| fs::canonicalize(git.join(it)).is_ok_and(|it| it == top))
}

fn of_found(found: &Found) -> Option<String> {
    let mut common = found.git.clone();
    let pointer = found.git.join("commondir");
    if pointer.exists() {
        let Some(named) = text(&pointer, MOST_POINTER) else { return Some(unknown()) };
        common = found.git.join(named.trim_end());
    }
    let is_its_tree = is_worktree(&common, &found.top);
    let own = [common.join("config"), found.git.join("config.worktree")];
    let modules = modules(&common);
    if modules.len() > MOST_MODULES {
        return Some(unknown());
    }
    let of_modules = modules.into_iter().map(|it| (it, true));
    own.into_iter().map(|it| (it, is_its_tree)).chain(of_modules).find_map(|(file, is_tree)| {
        fs::symlink_metadata(&file).ok()?;
        let Some(all) = text(&file, MOST_SETTINGS) else { return Some(unknown()) };
        let Ok(all) = settings::parse(&all) else { return Some(unknown()) };
        let risky = all.iter().find(|it| {
            let is_known_tree = is_tree && it.key == "core.worktree";
            !is_known_tree && !it.is_harmless()
        })?;
        Some(format!("the repository's settings start programs ({})", risky.name()))
    })
}

fn unknown() -> String {
    "the repository's settings are not understood".to_owned()
}

/// The settings of submodules: git looks into these by itself.
fn modules(git: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![git.join("modules")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            if found.len() + folders.len() > MOST_MODULES {
                return found;
            }
            let path = entry.path();
            if path.join("config").exists() {
                found.push(path.join("config"));
                folders.push(path.join("modules"));
            } else if entry.file_type().is_ok_and(|it| it.is_dir()) {
                folders.push(path);
            }
        }
    }
    found
}

/// Whether git takes a folder for a repository.
fn is_git_folder(folder: &Path) -> bool {
    folder.join("HEAD").exists()
        && (folder.join("commondir").exists()
            || folder.join("objects").is_dir() && folder.join("refs").is_dir())
}

/// All of a text file; `None` if it is no file, too long, or no text.
fn text(path: &Path, limit: usize) -> Option<String> {
    glance(path, None, limit).filter(|it| it.is_whole && !it.text.contains('\0')).map(|it| it.text)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    struct Disk {
        _folder: tempfile::TempDir,
        base: PathBuf,
    }

    impl Disk {
        fn new() -> Disk {
            let folder = tempfile::tempdir().unwrap();
            let base = fs::canonicalize(folder.path()).unwrap();
            Disk { _folder: folder, base }
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.base.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn repository(&self, git: &str, config: &str) {
            self.file(&format!("{git}/HEAD"), "ref: refs/heads/main\n");
            self.file(&format!("{git}/config"), config);
            for folder in ["objects", "refs"] {
                fs::create_dir_all(self.base.join(git).join(folder)).unwrap();
            }
        }

        fn doubt(&self, folder: &str) -> String {
            fs::create_dir_all(self.base.join(folder)).unwrap();
            doubt(&self.base.join(folder)).unwrap_or_default()
        }

        fn folders(&self, root: &str) -> Vec<PathBuf> {
            fs::create_dir_all(self.base.join(root)).unwrap();
            git_folders(&self.base.join(root))
        }
    }

    const USUAL: &str =
        "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://a.example/b\n";

    #[test]
    fn a_repository_is_doubted_when_its_settings_start_programs() {
        let disk = Disk::new();
        disk.repository("plain/.git", USUAL);
        disk.repository("trap/.git", "[core]\nfsmonitor = ./x\n");
        disk.repository("odd/.git", "[core\nbare = false\n");
        disk.repository("bare", "[core]\n bare = true\n");
        disk.repository("super/.git", USUAL);
        disk.repository("super/.git/modules/a/b", "[core]\nworktree = ../../../../a/b\n");
        disk.repository("worse/.git", USUAL);
        disk.repository("worse/.git/modules/a", "[diff \"x\"]\ntextconv = ./x\n");
        disk.file("away/.git", "gitdir: ../trap/.git\n");
        disk.file("lost/.git", "gitdir: ../nowhere\n");
        disk.file("noise/.git", "what?\n");
        for folder in ["plain", "plain/deep/er", "super"] {
            assert_eq!(disk.doubt(folder), "", "{folder}");
        }
        for folder in ["trap", "trap/sub", "away"] {
            assert!(disk.doubt(folder).contains("core.fsmonitor"), "{folder}");
        }
        for folder in ["odd", "bare", "bare/sub", "worse", "lost", "noise", "plain/.git"] {
            assert_ne!(disk.doubt(folder), "", "{folder}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn settings_that_could_block_or_never_end_are_not_read() {
        let disk = Disk::new();
        disk.repository("loop/.git", USUAL);
        for target in ["/dev/zero", "config"] {
            fs::remove_file(disk.base.join("loop/.git/config")).unwrap();
            std::os::unix::fs::symlink(target, disk.base.join("loop/.git/config")).unwrap();
            assert_ne!(disk.doubt("loop"), "", "{target}");
        }
        disk.repository("long/.git", &format!("{USUAL}#{}", "x".repeat(MOST_SETTINGS)));
        assert_ne!(disk.doubt("long"), "");
    }

    #[test]
    fn a_repository_around_the_root_is_opened_and_a_forged_pointer_opens_nothing() {
        let disk = Disk::new();
        let base = disk.base.clone();
        disk.repository("mono/.git", USUAL);
        assert_eq!(disk.folders("mono/packages/a"), [base.join("mono/.git")]);
        assert!(disk.folders("mono").is_empty());

        // A further working tree.
        disk.file("tree/.git", "gitdir: ../mono/.git/worktrees/tree\n");
        disk.file("mono/.git/worktrees/tree/commondir", "../..\n");
        let back = format!("{}\n", base.join("tree/.git").display());
        disk.file("mono/.git/worktrees/tree/gitdir", &back);
        assert_eq!(disk.folders("tree"), [base.join("mono/.git")]);
        disk.file("thief/.git", "gitdir: ../mono/.git/worktrees/tree\n");
        assert!(disk.folders("thief").is_empty());

        // A submodule.
        disk.repository("mono/.git/modules/sub", "[core]\nworktree = ../../../sub\n");
        disk.file("mono/sub/.git", "gitdir: ../.git/modules/sub\n");
        assert_eq!(disk.folders("mono/sub"), [base.join("mono/.git/modules/sub")]);
        for forged in
            ["../mono/.git/modules/sub", "../mono/.git", "..", "/etc", "../mono/.git/../.."]
        {
            disk.file("thief/.git", &format!("gitdir: {forged}\n"));
            assert!(disk.folders("thief").is_empty(), "{forged}");
        }
    }
}
