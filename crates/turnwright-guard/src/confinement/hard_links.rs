//! Files with several names (hard links): a tool writes a new file under one name, and the others keep the old one.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use turnwright_types::effect::Effect;
use turnwright_types::file_id::file_id;
use turnwright_workspace::files::Roots;
use turnwright_workspace::nofollow;

/// Replaces a file that has several names with a copy that has one, so that writing to it changes no other file. Blocks.
///
/// # Errors
/// When the file cannot be copied or replaced.
pub(crate) fn separate(path: &Path) -> io::Result<()> {
    if file_id(path).is_none_or(|(_, names)| names < 2) {
        return Ok(());
    }
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let (_held, folder) = nofollow::open_folder(folder)?;
    let path = folder.join(path.file_name().unwrap_or_default());
    let mut from = nofollow::open_pinned_file(&path, false)?;
    let mut copy = tempfile::NamedTempFile::new_in(folder)?;
    io::copy(&mut from, &mut copy)?;
    fs::set_permissions(copy.path(), from.metadata()?.permissions())?;
    copy.persist(path).map(|_: File| ()).map_err(|failed| failed.error)
}

/// A note for the user and the model about the other names of the files that a call writes; `None` if there are
/// none. Blocks: not for the runtime's thread.
pub fn note_about_other_names(effects: &[Effect], roots: &Roots) -> Option<String> {
    let texts = effects.iter().filter_map(|effect| {
        let Effect::Write(target) = effect else { return None };
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
    use super::*;

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
}
