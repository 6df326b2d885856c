//! The git repository that contains a folder: the place of its `.git`, and programs that its config
//! starts. The files are the repository's own, so their content proves nothing by itself. From them follows the risk
//! that git starts a program because of its settings, or shows the content of another repository. Reads the disk: not
//! for the runtime's thread.

mod settings;

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

use turnwright_policy::permission::DeniedPaths;
use turnwright_policy::shell::{self, GitUse, SimpleCommand};
use turnwright_types::effect::{ShellCommand, Uncertainty, is_secret_path};
use turnwright_types::git_layout::GitLayout;
use turnwright_types::plain_path::normalize_lexically;
use turnwright_workspace::checkpoint::{
    GitSettings, indexed_files, indexed_submodules, read_index_file,
};
use turnwright_workspace::git_repository::GitRepository;
use turnwright_workspace::real_path;

use settings::GitSetting;

pub(crate) use settings::only_changes_tracking;

/// Config files that are longer are not understood.
const MAX_CONFIG_BYTES: usize = 256 * 1024;
/// The same for files that only contain a path, such as `.git` files.
const MAX_POINTER_BYTES: usize = 4 * 1024;
/// The maximum number of settings files that are read because one includes another.
const MAX_SETTINGS_FILES: usize = 16;
/// The config files of at most this many submodules are read.
const MAX_SUBMODULES: usize = 512;
/// At most this many files are asked about before git shows all changes.
const MAX_TRACKED_SECRETS: usize = 4_096;

/// Why git may start a program in this folder, whose `.git` has just appeared. A `.git` that leads to an unwatched
/// place counts: settings that are harmless now may start programs later.
pub(crate) fn untrusted_config(folder: &Path) -> Option<Uncertainty> {
    let Some(found) = GitRepository::at(folder).ok().flatten().filter(|found| found.is_elsewhere)
    else {
        return program_risk(folder, None, false);
    };
    if is_of_known_repository(&found) {
        // git writes the way back to the working tree later, so it says nothing yet about whose this is.
        return config_risk(&found, None, false);
    }
    let reason = "its .git leads to a folder that is no part of a repository around it";
    program_risk(folder, None, false).or_else(|| Some(reason.to_owned().into()))
}

/// Returns true if a `.git` leads to the folder of a submodule or a linked working tree in a repository around
/// it, or in one beside a folder around it.
fn is_of_known_repository(found: &GitRepository) -> bool {
    let around: Vec<_> = found.top.ancestors().skip(1).collect();
    let mut folders = found.git.ancestors();
    folders.any(|folder| {
        let holds_others = folder.ends_with("modules") || folder.ends_with("worktrees");
        let git = folder.parent().filter(|_| holds_others);
        git.is_some_and(|git| is_beside(git, &around) || is_used_around(git, &around))
    })
}

fn is_used_around(git: &Path, around: &[&Path]) -> bool {
    around.iter().any(|folder| match GitRepository::at(folder) {
        Ok(Some(used)) => used.settings_folders().iter().any(|used| used == git),
        _ => *folder == git && GitLayout::of(git).is_repository(),
    })
}

/// Returns true if a repository lies in one of these folders. Hidden folders of a home folder, such as caches, do not
/// count.
fn is_beside(git: &Path, around: &[&Path]) -> bool {
    let folder = if git.ends_with(".git") {
        git.parent()
    } else {
        Some(git).filter(|git| GitLayout::of(git).is_repository())
    };
    let name = folder.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let place = folder.and_then(Path::parent);
    (name == ".bare" || !name.starts_with('.'))
        && place.is_some_and(|place| around.contains(&place))
}

/// Why the repository may show the content of another one.
fn foreign_content_risk(found: &GitRepository) -> Option<String> {
    if own_git_folder(found).is_none() {
        return Some("its .git leads to the repository of another folder".to_owned());
    }
    let borrows = common_folder(found)?.join("objects/info/alternates").exists();
    borrows.then(|| "it borrows the content of another repository (alternates)".to_owned())
}

/// The files with secrets, and files that rules restrict, in the index of the repository around this real folder, or
/// only the ones that git assumes to be unchanged. Reads the disk.
pub(crate) fn tracked_secrets(
    folder: &Path,
    restricted: &DeniedPaths,
    only_assumed_unchanged: bool,
) -> Vec<PathBuf> {
    let Some(found) = repository_of(folder) else { return Vec::new() };
    let listed = read_index(&found, |bytes, name_bytes| {
        indexed_files(bytes, name_bytes, only_assumed_unchanged, |path| {
            is_secret_path(path)
                || !restricted.is_empty() && restricted.contains(&found.top.join(path))
        })
    });
    // An index that is not understood is a reason to ask, which `program_risk` gives.
    let files = listed.unwrap_or_default().into_iter().take(MAX_TRACKED_SECRETS);
    files.map(|path| found.top.join(path)).collect()
}

/// Paths in the index; `None` if it is not understood.
fn read_index(
    found: &GitRepository,
    read: impl FnOnce(&[u8], usize) -> Option<Vec<PathBuf>>,
) -> Option<Vec<PathBuf>> {
    let index = found.git.join("index");
    if fs::metadata(&index).is_err() {
        return Some(Vec::new());
    }
    let bytes = read_index_file(&index)?;
    let config = read_text(&common_folder(found)?.join("config"), MAX_CONFIG_BYTES);
    let settings = settings::parse(&config.unwrap_or_default())?;
    // The last one counts.
    let format = settings.iter().rfind(|setting| setting.key == "extensions.objectformat");
    let has_long_names = format.is_some_and(|setting| setting.value.as_deref() == Some("sha256"));
    read(&bytes, if has_long_names { 32 } else { 20 })
}

/// The folder that the working trees of a repository share; `None` if its name is not understood.
fn common_folder(found: &GitRepository) -> Option<PathBuf> {
    let is_linked = found.git.join("commondir").exists();
    if is_linked { shared_folder(&found.git) } else { Some(found.git.clone()) }
}

/// The folder from which git takes the settings and hooks of this one; `None` if it is none or not understood.
pub(crate) fn shared_folder(git: &Path) -> Option<PathBuf> {
    let named = read_text(&git.join("commondir"), MAX_POINTER_BYTES)?;
    // To git, blanks at the end are part of the name.
    Some(git.join(named.trim_end_matches(['\n', '\r'])))
}

/// The repository around a folder, if its `.git` is understood.
fn repository_of(folder: &Path) -> Option<GitRepository> {
    folder.ancestors().map(GitRepository::at).find_map(Result::transpose)?.ok()
}

/// The folder outside of `root` (a real path) in which its repository keeps its state. Only one
/// that refers back to the root: a `.git` file in the root may be forged.
pub(crate) fn git_folder(root: &Path) -> Option<PathBuf> {
    state_folder(&repository_of(root)?, root)
}

fn state_folder(found: &GitRepository, root: &Path) -> Option<PathBuf> {
    own_git_folder(found).filter(|git| !git.starts_with(root))
}

/// The folder of a repository. One that is elsewhere must refer back to the working tree, or be beside the `.git` that
/// leads to it, like a `.bare` with working trees around it.
fn own_git_folder(found: &GitRepository) -> Option<PathBuf> {
    let uses_other = found.is_elsewhere || found.git.join("commondir").exists();
    if uses_other { verified_git_folder(found) } else { Some(found.git.clone()) }
}

/// The folders with the history of the repository around a folder, and of its submodules.
pub(crate) fn history_folders(folder: &Path) -> Vec<PathBuf> {
    let found = repository_of(folder);
    let Some(git) = found.as_ref().and_then(own_git_folder) else { return Vec::new() };
    let (configs, _) = submodule_configs(&git.join("modules"), MAX_SUBMODULES);
    let modules = configs.into_iter().filter_map(|config| Some(config.parent()?.to_owned()));
    std::iter::once(git).chain(modules).collect()
}

/// The places that git obeys in a session's folder: the folder that [`git_folder`] finds, and the paths in the
/// session's folder from which git takes hooks or settings, because the repository's settings, or those in
/// `user_files`, say so, relative to the folder.
pub fn obeyed_by_git(folder: &Path, user_files: &[PathBuf]) -> (Option<PathBuf>, Vec<String>) {
    let Some(found) = repository_of(folder) else { return (None, Vec::new()) };
    let state = state_folder(&found, folder);
    let named = named_paths(&found, user_files, None)
        .into_iter()
        .filter(|(key, _)| key != "core.attributesfile");
    let below = named.filter_map(|(_, path)| {
        let mut base = [Some(folder), state.as_deref()].into_iter().flatten();
        base.find_map(|base| path.strip_prefix(base).ok()).map(Path::to_path_buf)
    });
    let inside = below.filter(|path| path != Path::new(""));
    let paths = inside.map(|path| path.display().to_string()).collect();
    (state, paths)
}

/// The top of the working tree that a folder belongs to.
pub(crate) fn working_tree_top(folder: &Path) -> Option<PathBuf> {
    repository_of(folder).map(|found| found.top)
}

/// Returns true if the repository around a folder has a branch of this name that is not packed. Reads the disk.
pub(crate) fn has_branch(folder: &Path, name: &str) -> bool {
    let git = repository_of(folder).and_then(|found| common_folder(&found));
    git.is_some_and(|git| git.join(format!("refs/heads/{name}")).is_file())
}

/// The settings of the repositories in which git may note the upstreams of branches, if a command line does nothing
/// else there. Blocks: not for the runtime's thread.
pub(crate) fn tracking_configs(command: &ShellCommand) -> BTreeSet<PathBuf> {
    let script = &command.script;
    let configs = script.commands.iter().map(|simple| tracking_config(simple, &command.workdir));
    let configs_of_all: Option<_> = configs.collect();
    let is_certain = script.ambiguity.is_none() && command.uncertainty.is_none();
    configs_of_all.filter(|_| is_certain).unwrap_or_default()
}

/// The settings in which this command may note upstreams; `None` if it may do anything else.
fn tracking_config(simple: &SimpleCommand, workdir: &Path) -> Option<PathBuf> {
    let folder = real_path(workdir.join(simple.folder.as_ref()?)).ok()?;
    // Another repository that is given by its folder has hooks of its own.
    if !shell::classify(simple).tracks_branches
        || simple.argv().skip(2).any(|word| folder.join(word).is_dir())
    {
        return None;
    }
    config_of(&folder)
}

/// Returns true if git reaches a remote with SSH in a folder, by the settings of its repository or those of the user.
/// Reads the disk.
pub(crate) fn has_ssh_remote(folder: &Path, home: Option<&Path>) -> bool {
    let own = home.map(|home| home.join(".gitconfig"));
    let files = config_of(folder).into_iter().chain(own).map(|file| read_settings(&[file], 0));
    files.flatten().flatten().any(|setting| {
        let address = match setting.key.as_str() {
            "remote.url" | "submodule.url" => setting.value,
            "url.insteadof" => setting.subsection,
            _ => None,
        };
        address.is_some_and(|address| shell::is_ssh_address(&address))
    })
}

/// The settings of the repository that git uses in a folder; `None` if another repository's hooks may
/// run there.
fn config_of(folder: &Path) -> Option<PathBuf> {
    let found = folder.ancestors().find_map(|folder| match GitRepository::at(folder) {
        Ok(None) if !GitLayout::of(folder).is_repository() => None,
        found => Some(found.ok().flatten()),
    })??;
    own_git_folder(&found)?;
    real_path(common_folder(&found)?.join("config")).ok()
}

/// The user's own git settings, in these two folders, and the files that they name.
pub(crate) fn user_settings(home: &Path, config: &Path) -> Vec<PathBuf> {
    const NAMING_FILES: [&str; 4] =
        ["include.path", "includeif.path", "core.excludesfile", "core.attributesfile"];
    let mut all = vec![home.join(".gitconfig")];
    all.extend(["config", "ignore", "attributes"].map(|name| config.join("git").join(name)));
    for file in [home.join(".gitconfig"), config.join("git/config")] {
        for setting in read_settings(slice::from_ref(&file), 0).unwrap_or_default() {
            if let Some(path) = setting.value
                && NAMING_FILES.contains(&setting.key.as_str())
            {
                all.push(match path.strip_prefix("~/") {
                    Some(rest) => home.join(rest),
                    None => file.with_file_name(path),
                });
            }
        }
    }
    all
}

/// The folder that a `.git` file points to, if it refers back: the main repository of a linked
/// working tree, or the folder of a submodule; or if it is beside that file.
fn verified_git_folder(found: &GitRepository) -> Option<PathBuf> {
    let git = &found.git;
    if git.parent()?.file_name()? == "worktrees" {
        let back = named_place(git, "gitdir")?;
        let common = git.parent()?.parent()?;
        let named_common = named_place(git, "commondir")?;
        let is_it = back == found.top.join(".git")
            && named_common == common
            && GitLayout::of(common).is_repository();
        return is_it.then(|| common.to_path_buf());
    }
    let is_its = git.parent() == Some(&*found.top) || is_worktree(git, &found.top);
    let is_whole = GitLayout::of(git).is_repository() && !git.join("commondir").exists();
    (is_its && is_whole).then(|| git.clone())
}

/// The real path that a file in a `.git` names.
fn named_place(git: &Path, file: &str) -> Option<PathBuf> {
    let text = read_text(&git.join(file), MAX_POINTER_BYTES)?;
    real_path(git.join(text.trim_end_matches(['\n', '\r']))).ok()
}

/// Returns true if the config of a repository names `top` as its working tree.
fn is_worktree(git: &Path, top: &Path) -> bool {
    let all = read_settings(&[git.join("config")], 0).unwrap_or_default();
    all.iter().any(|setting| names_tree(setting, git, top))
}

/// Returns true if a setting of a repository names `top` as its working tree.
fn names_tree(setting: &GitSetting, git: &Path, top: &Path) -> bool {
    let value = setting.value.as_deref().unwrap_or_default();
    setting.key == "core.worktree" && real_path(git.join(value)).is_ok_and(|real| real == top)
}

/// Returns the paths that the repository's settings, or those in `user_files`, name, each with the key of
/// the setting. Without a home folder, paths in it are left out.
pub(crate) fn named_paths(
    found: &GitRepository,
    user_files: &[PathBuf],
    home: Option<&Path>,
) -> Vec<(String, PathBuf)> {
    let own = common_folder(found).map(|folder| folder.join("config"));
    let files = own.into_iter().chain([found.git.join("config.worktree")]);
    let mut pending: Vec<_> = files.chain(user_files.iter().cloned()).collect();
    let mut read = 0;
    let mut named = Vec::new();
    while let Some(file) = pending.pop().filter(|_| read < MAX_SETTINGS_FILES) {
        read += 1;
        for setting in read_settings(slice::from_ref(&file), 0).unwrap_or_default() {
            for path in setting.programs(&found.top) {
                named.push((setting.key.clone(), normalize_lexically(&path)));
            }
            let Some(value) = setting.value else { continue };
            let value = match (value.strip_prefix("~/"), home) {
                (Some(below), Some(home)) => home.join(below),
                _ if value.starts_with('~') => continue,
                _ => PathBuf::from(value),
            };
            let named_path = match setting.key.as_str() {
                "core.hookspath" | "core.attributesfile" => found.top.join(value),
                "include.path" | "includeif.path" => file.with_file_name(value),
                _ => continue,
            };
            let path = normalize_lexically(&named_path);
            if !setting.key.starts_with("core.") {
                pending.push(path.clone());
            }
            named.push((setting.key, path));
        }
    }
    named
}

/// The folders of git's settings and attributes for all users, depending on how it was installed.
const SYSTEM_FOLDERS: [&str; 4] =
    ["/etc", "/usr/local/etc", "/opt/homebrew/etc", "C:/Program Files/Git/etc"];

/// Returns the files besides the `.gitattributes` from which git takes attributes in a folder. Looks files
/// up: not for the runtime's thread.
pub(crate) fn attribute_files(folder: &Path, user: &GitSettings) -> Vec<PathBuf> {
    let Some(found) = repository_of(folder) else { return Vec::new() };
    let system = SYSTEM_FOLDERS.iter().map(Path::new).filter(|folder| folder.is_absolute());
    let config = user.config.iter().map(|folder| folder.join("git"));
    let settings: Vec<_> = system
        .clone()
        .map(|folder| folder.join("gitconfig"))
        .chain(config.clone().map(|folder| folder.join("config")))
        .chain(user.home.iter().map(|home| home.join(".gitconfig")))
        .collect();
    let named = named_paths(&found, &settings, user.home.as_deref())
        .into_iter()
        .filter(|(key, _)| key == "core.attributesfile")
        .map(|(_, path)| path);
    let own = common_folder(&found).map(|folder| folder.join("info/attributes"));
    let usual = system
        .map(|folder| folder.join("gitattributes"))
        .chain(config.map(|folder| folder.join("attributes")));
    usual.chain(named).chain(own).collect()
}

/// The config files of submodules, which git reads by itself, in the folder `modules` of a repository, and true if
/// these are all.
pub(crate) fn submodule_configs(modules: &Path, limit: usize) -> (Vec<PathBuf>, bool) {
    let mut found = Vec::new();
    let mut left = limit;
    let mut folders = VecDeque::from([modules.to_owned()]);
    while let Some(folder) = folders.pop_front() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            if left == 0 {
                return (found, false);
            }
            left -= 1;
            let path = entry.path();
            if fs::symlink_metadata(path.join("config")).is_ok() {
                found.push(path.join("config"));
                folders.push_back(path.join("modules"));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push_back(path);
            }
        }
    }
    (found, true)
}

/// The text of a file; `None` if it is no file, too long, or no UTF-8: in another encoding, a character may have a byte
/// that git takes for a quote or a backslash.
fn read_text(path: &Path, limit: usize) -> Option<String> {
    let bytes = read_index_file(path).filter(|bytes| bytes.len() <= limit)?;
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// The settings for which a command that only reads gets others in their place.
const REPLACED_FOR_READERS: [&str; 2] = ["core.fsmonitor", "core.hookspath"];

/// Why git may start a program of the repository's choice when it runs in this real folder: in this use, by a command
/// that `only_reads` or not, or without a use in any, now or later. Reads the disk: not for the runtime's thread.
pub(crate) fn program_risk(
    folder: &Path,
    git: Option<&GitUse>,
    only_reads: bool,
) -> Option<Uncertainty> {
    for folder in folder.ancestors() {
        if GitLayout::of(folder).is_repository() {
            let reason = "git would obey this folder's own settings as those of a repository";
            return Some(reason.to_owned().into());
        }
        match GitRepository::at(folder) {
            Ok(Some(found)) => {
                let is_used = is_certainly_used(&found);
                let risk = repository_risk(found, git, only_reads);
                if is_used || risk.is_some() {
                    return risk;
                }
            }
            Ok(None) => {}
            Err(reason) => return Some(reason.to_string().into()),
        }
    }
    None
}

/// Returns true if git uses what a `.git` leads to. It passes over one whose `HEAD` names no branch or commit, and takes
/// the repository around it.
fn is_certainly_used(found: &GitRepository) -> bool {
    let head = read_text(&found.git.join("HEAD"), MAX_POINTER_BYTES).unwrap_or_default();
    let branch = head.strip_prefix("ref:").map(str::trim_start);
    let is_commit = head.len() >= 40 && head.bytes().take(40).all(|byte| byte.is_ascii_hexdigit());
    (is_commit || branch.is_some_and(|name| name.starts_with("refs/")))
        && common_folder(found)
            .is_some_and(|common| ["objects", "refs"].iter().all(|name| common.join(name).is_dir()))
}

/// Why git may start a program in this repository or in one of its submodules, in which git runs itself.
fn repository_risk(
    found: GitRepository,
    git: Option<&GitUse>,
    only_reads: bool,
) -> Option<Uncertainty> {
    let mut pending = vec![found];
    let mut count = 0;
    let mut of_settings = None;
    while let Some(repository) = pending.pop() {
        // A git that is started in a submodule does not get the settings for readers.
        let only_reads = only_reads && count == 0;
        let foreign = foreign_content_risk(&repository).map(Uncertainty::from);
        match foreign.or_else(|| config_risk(&repository, git, only_reads)) {
            Some(risk) if risk.only_runs_programs => of_settings = of_settings.or(Some(risk)),
            Some(risk) => return Some(risk),
            None => {}
        }
        let Some(submodules) = read_index(&repository, indexed_submodules) else {
            return Some(not_understood());
        };
        count += submodules.len();
        if count > MAX_SUBMODULES {
            return Some("the repository has too many submodules".to_owned().into());
        }
        for path in submodules {
            match GitRepository::at(&repository.top.join(path)) {
                Ok(inner) => pending.extend(inner),
                Err(reason) => return Some(reason.to_string().into()),
            }
        }
    }
    of_settings
}

/// Why git may start a program because of the settings of a repository and of its submodules.
fn config_risk(
    found: &GitRepository,
    git: Option<&GitUse>,
    only_reads: bool,
) -> Option<Uncertainty> {
    let Some(common) = common_folder(found) else { return Some(not_understood()) };
    let own = [common.join("config"), found.git.join("config.worktree")];
    let (configs, is_complete) = submodule_configs(&common.join("modules"), MAX_SUBMODULES);
    if !is_complete {
        return Some(not_understood());
    }
    // The files that it includes may change later, so they prove nothing about all uses.
    let included = if git.is_some() { MAX_SETTINGS_FILES } else { 0 };
    let read = [&own[..], &configs[..]].map(|files| read_settings(files, included));
    let [Some(own), Some(of_modules)] = read else { return Some(not_understood()) };
    // git ignores the tree that the shared settings name in a linked one that may have no settings of its own.
    let may_have_own = own.iter().any(|setting| setting.key == "extensions.worktreeconfig");
    let ignores_tree = common != found.git && !may_have_own;
    let fetches_on_demand = own.iter().any(GitSetting::fetches_on_demand);
    let is_risky = |setting: &GitSetting| match git {
        None => !setting.is_harmless(),
        Some(git) => {
            setting.matters_to(git) || fetches_on_demand && setting.matters_to(&GitUse::FETCH)
        }
    };
    let risky = own.iter().find(|setting| {
        let is_known_tree = ignores_tree && setting.key == "core.worktree"
            || names_tree(setting, &found.git, &found.top);
        let is_replaced = only_reads && REPLACED_FOR_READERS.contains(&setting.key.as_str());
        !is_known_tree && !is_replaced && is_risky(setting)
    });
    let mut risky_of_modules =
        of_modules.iter().filter(|setting| setting.key != "core.worktree" && is_risky(setting));
    risky.or_else(|| risky_of_modules.next()).map(setting_risk)
}

fn setting_risk(setting: &GitSetting) -> Uncertainty {
    Uncertainty { reason: setting.reason(), only_runs_programs: setting.is_program() }
}

/// All settings of config files, with those of at most `included` files in place of the settings that include them,
/// under whatever condition; `None` if one is not understood. Missing files have none.
fn read_settings(files: &[PathBuf], mut included: usize) -> Option<Vec<GitSetting>> {
    let mut pending = files.to_vec();
    let mut all = Vec::new();
    while let Some(file) = pending.pop() {
        if fs::symlink_metadata(&file).is_err() {
            continue;
        }
        for setting in settings::parse(&read_text(&file, MAX_CONFIG_BYTES)?)? {
            let is_include = ["include.path", "includeif.path"].contains(&setting.key.as_str());
            let name = setting.value.as_deref().filter(|name| !name.starts_with(['~', '%']));
            match name.filter(|_| is_include && included > 0) {
                Some(name) => {
                    included -= 1;
                    // Not normalised: a folder in the name may be a link.
                    pending.push(file.with_file_name(name));
                }
                None => all.push(setting),
            }
        }
    }
    Some(all)
}

/// Why git may start a program because of the settings in the own folder of a repository that has just
/// appeared. Any folder of hooks counts, because it may be in the repository.
pub(crate) fn new_repository_risk(git: &Path) -> Option<Uncertainty> {
    let mut folders = git.ancestors().filter(|folder| folder.ends_with("modules"));
    let is_submodule =
        folders.any(|folder| folder.parent().is_some_and(|git| GitLayout::of(git).is_repository()));
    let config = git.join("config");
    settings_file_risk(&config, is_submodule).or_else(|| {
        let all = read_settings(&[config], 0)?;
        all.iter().find(|setting| setting.key == "core.hookspath").map(setting_risk)
    })
}

/// Why git may start a program because of one settings file. If `is_tree` is true, the working tree that the
/// file names is the repository's own.
pub(crate) fn settings_file_risk(file: &Path, is_tree: bool) -> Option<Uncertainty> {
    let Some(all) = read_settings(&[file.to_path_buf()], 0) else { return Some(not_understood()) };
    let mut unknown = all.iter().filter(|setting| !is_tree || setting.key != "core.worktree");
    unknown.find(|setting| !setting.is_harmless()).map(setting_risk)
}

fn not_understood() -> Uncertainty {
    "the repository's settings are not understood".to_owned().into()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests;
