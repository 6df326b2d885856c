//! Paths that no command of a project has a reason to destroy: the folders of the system, homes, and disks.
//! Pure: nothing is looked up on this machine.

use std::path::Path;

use super::args::name;

/// The home folder, where its path is not known.
pub(super) const HOME: &str = "~";

/// Top-level folders that belong to the system, or to all its users.
const SYSTEM_FOLDERS: &str = "bin boot dev etc home lib lib32 lib64 mnt media opt proc root run sbin \
    srv sys usr var Applications Library System Users Volumes private";

/// Devices that no data is lost by writing to: everything in such a folder, and names with such a beginning.
const HARMLESS_DEVICES: &str =
    "null zero full random urandom console ptmx tty std fd pts shm mqueue";

/// The first parts of a normalised absolute path, and the number of all of them. A final `*` is
/// dropped: it stands for everything in the folder.
struct PathParts<'a> {
    parts: [&'a str; 3],
    count: usize,
}

/// Normalises a path. `None` if it is relative and the folder is unknown.
fn path_parts<'a>(text: &'a str, folder: Option<&'a Path>) -> Option<PathParts<'a>> {
    let mut path = PathParts { parts: [""; 3], count: 0 };
    if !text.starts_with('/') {
        let folder = folder.filter(|it| it.has_root())?;
        path.push(folder.to_str()?);
    }
    let text = without_process_root(text);
    let text =
        text.strip_suffix('*').filter(|it| it.ends_with('/') || it.is_empty()).unwrap_or(text);
    path.push(text);
    Some(path)
}

impl<'a> PathParts<'a> {
    fn push(&mut self, path: &'a str) {
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => self.count = self.count.saturating_sub(1),
                part => {
                    if let Some(slot) = self.parts.get_mut(self.count) {
                        *slot = part;
                    }
                    self.count += 1;
                }
            }
        }
    }
}

/// True for `/` and the folders of the system, for everything in one of them, and for patterns that may
/// stand for one of them.
pub(super) fn is_system(text: &str, folder: Option<&Path>) -> bool {
    if !text.starts_with('{') {
        return is_system_path(text, folder);
    }
    // Alternatives, maybe with others among them.
    text.split(',').any(|it| is_system_path(it.trim_matches(['{', '}']), folder))
}

fn is_system_path(text: &str, folder: Option<&Path>) -> bool {
    let Some(path) = path_parts(text, folder) else { return false };
    let is_any = |part: &str, names: &str| names.split(' ').any(|it| may_be(part, it));
    match path.count {
        0 => true,
        1 => is_any(path.parts[0], SYSTEM_FOLDERS),
        2 => may_be(path.parts[0], "usr") && is_any(path.parts[1], "bin sbin lib lib64 share"),
        _ => false,
    }
}

/// True for this name and for a pattern with the same beginning and end.
fn may_be(part: &str, name: &str) -> bool {
    let wildcards = ['*', '?', '[', '{'];
    let Some(start) = part.find(wildcards) else { return part == name };
    let end = part.rfind(['*', '?', ']', '}']).map_or("", |it| &part[it + 1..]);
    name.starts_with(&part[..start]) && name.ends_with(end)
}

/// True for a home folder, and for everything in one.
pub(super) fn is_home(text: &str, folder: Option<&Path>) -> bool {
    let rest = ["~root", HOME, "$HOME", "${HOME}", "${HOME:?}"];
    let rest = rest.iter().find_map(|it| text.strip_prefix(it));
    let in_home =
        || text.strip_prefix("./").or(Some(text)).filter(|_| folder == Some(Path::new(HOME)));
    if let Some(rest) = rest.or_else(in_home) {
        return is_everything(rest);
    }
    path_parts(text, folder)
        .is_some_and(|it| it.count == 2 && ["home", "Users"].contains(&it.parts[0]))
}

pub(super) fn is_disk(text: &str) -> bool {
    let Some(path) = path_parts(text, None) else { return false };
    let name = name(text);
    let prefixes = ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "md", "dm-"];
    let is_disk_name = prefixes.iter().any(|it| {
        name.strip_prefix(it)
            .is_some_and(|it| it.starts_with(|it: char| it.is_ascii_alphanumeric()))
    });
    match path.count {
        2 => path.parts[0] == "dev" && is_disk_name,
        3 => path.parts[0] == "dev" && ["mapper", "disk"].contains(&path.parts[1]),
        4.. => path.parts[..2] == ["dev", "disk"],
        _ => false,
    }
}

/// `/proc/self/root` and `/proc/1/root` are the root folder by other names.
fn without_process_root(text: &str) -> &str {
    let inside = || {
        let (process, rest) = text.strip_prefix("/proc/")?.split_once('/')?;
        let is_process = process.ends_with("self") || process.bytes().all(|it| it.is_ascii_digit());
        let rest = rest.strip_prefix("root").filter(|it| it.is_empty() || it.starts_with('/'))?;
        is_process.then_some(if rest.is_empty() { "/" } else { rest })
    };
    inside().unwrap_or(text)
}

/// True for a device whose content or machine could suffer from being written to.
pub(super) fn is_device(text: &str) -> bool {
    let Some(path) = path_parts(text, None).filter(|it| it.count > 1 && it.parts[0] == "dev")
    else {
        return false;
    };
    !HARMLESS_DEVICES.split(' ').any(|it| path.parts[1].starts_with(it))
}

/// True for a word that stands for everything in a folder, or for the folder itself or one above it.
pub(super) fn is_everything(text: &str) -> bool {
    let is_all = |it: &str| ["", "*", ".*", ".", "..", "**", "[!.]*", "?*"].contains(&it);
    text.split('/').all(is_all)
}
