//! Paths that no command of a project has a reason to destroy: the folders of the system, homes, and disks.
//! Pure: nothing is looked up on this machine.

use std::path::Path;

use super::super::args::name;

/// The home folder, where its path is not known.
pub(in crate::shell) const HOME: &str = "~";

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
        let folder = folder.filter(|folder| folder.has_root())?;
        path.push_folder(folder.to_str()?, cfg!(windows));
    }
    let whole = without_process_root(text);
    let named = whole
        .strip_suffix('*')
        .filter(|rest| rest.ends_with('/') || rest.is_empty())
        .unwrap_or(whole);
    path.push(named);
    Some(path)
}

impl<'a> PathParts<'a> {
    fn push(&mut self, path: &'a str) {
        path.split('/').for_each(|part| self.push_part(part));
    }

    /// Pushes a path of this system, which is written as the system writes it, and not as a shell does. On
    /// Windows the drive is left out: what is below its root is judged like what is below `/`.
    fn push_folder(&mut self, path: &'a str, is_windows: bool) {
        if !is_windows {
            return self.push(path);
        }
        let plain = path.strip_prefix(r"\\?\").unwrap_or(path);
        let below_drive =
            plain.split_once(':').filter(|parts| parts.0.len() == 1).map_or(plain, |parts| parts.1);
        below_drive.split(['/', '\\']).for_each(|part| self.push_part(part));
    }

    fn push_part(&mut self, part: &'a str) {
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

/// True for `/` and the folders of the system, for everything in one of them, and for patterns that may
/// stand for one of them.
pub(super) fn is_system(text: &str, folder: Option<&Path>) -> bool {
    if !text.starts_with('{') {
        return is_system_path(text, folder);
    }
    // Alternatives, maybe with others among them.
    text.split(',').any(|alternative| is_system_path(alternative.trim_matches(['{', '}']), folder))
}

fn is_system_path(text: &str, folder: Option<&Path>) -> bool {
    let Some(path) = path_parts(text, folder) else { return false };
    let is_any = |part: &str, names: &str| names.split(' ').any(|name| may_be(part, name));
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
    let end = part.rfind(['*', '?', ']', '}']).map_or("", |at| &part[at + 1..]);
    name.starts_with(&part[..start]) && name.ends_with(end)
}

/// True for a home folder, and for everything in one.
pub(in crate::shell) fn is_home(text: &str, folder: Option<&Path>) -> bool {
    let starts = ["~root", HOME, "$HOME", "${HOME}", "${HOME:?}"];
    let rest = starts.iter().find_map(|start| text.strip_prefix(start));
    let in_home =
        || text.strip_prefix("./").or(Some(text)).filter(|_| folder == Some(Path::new(HOME)));
    if let Some(rest) = rest.or_else(in_home) {
        return is_everything(rest);
    }
    path_parts(text, folder)
        .is_some_and(|path| path.count == 2 && ["home", "Users"].contains(&path.parts[0]))
}

pub(super) fn is_disk(text: &str) -> bool {
    let Some(path) = path_parts(text, None) else { return false };
    let name = name(text);
    let prefixes = ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "md", "dm-"];
    let is_disk_name = prefixes.iter().any(|prefix| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_alphanumeric()))
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
    below_process_root(text).unwrap_or(text)
}

fn below_process_root(text: &str) -> Option<&str> {
    let (process, below) = text.strip_prefix("/proc/")?.split_once('/')?;
    let is_process = process.ends_with("self") || process.bytes().all(|byte| byte.is_ascii_digit());
    let rest =
        below.strip_prefix("root").filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    is_process.then_some(if rest.is_empty() { "/" } else { rest })
}

/// True for a device whose content or machine could suffer from being written to.
pub(super) fn is_device(text: &str) -> bool {
    let Some(path) = path_parts(text, None).filter(|path| path.count > 1 && path.parts[0] == "dev")
    else {
        return false;
    };
    !HARMLESS_DEVICES.split(' ').any(|device| path.parts[1].starts_with(device))
}

/// True for a word that stands for everything in a folder, or for the folder itself or one above it.
pub(in crate::shell) fn is_everything(text: &str) -> bool {
    text.split('/').all(|part| ["", "*", ".*", ".", "..", "**", "[!.]*", "?*"].contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_parts_that_the_system_sees() {
        let parts = |path: &str, is_windows: bool| {
            let mut parts = PathParts { parts: [""; 3], count: 0 };
            parts.push_folder(path, is_windows);
            (parts.count, parts.parts[..parts.count.min(3)].join(" "))
        };
        for (path, on_windows, elsewhere) in [
            ("/home/u/project", (3, "home u project"), (3, "home u project")),
            // `Path::join` spells a folder and `..` like this on Windows.
            (r"/home/u/project\..", (2, "home u"), (3, r"home u project\..")),
            (r"C:\Users\me\project\..", (2, "Users me"), (1, r"C:\Users\me\project\..")),
            (r"\\?\C:\Users\me", (2, "Users me"), (1, r"\\?\C:\Users\me")),
            (r"D:\", (0, ""), (1, r"D:\")),
            (r"/home/u/a\b", (4, "home u a"), (3, r"home u a\b")),
        ] {
            assert_eq!(parts(path, true), (on_windows.0, on_windows.1.to_owned()), "{path}");
            assert_eq!(parts(path, false), (elsewhere.0, elsewhere.1.to_owned()), "{path}");
        }
    }
}
