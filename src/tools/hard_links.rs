//! Files with several names (hard links): a tool writes a new file under one name, and the others keep the old one.

use turnwright_types::effect::Effect;
use turnwright_types::file_id::file_id;
use turnwright_workspace::files::Roots;

/// What to tell the user and the model about the other names of the files that a call writes; `None` if there are
/// none. Blocks: not for the runtime's thread.
pub(super) fn note_about_other_names(effects: &[Effect], roots: &Roots) -> Option<String> {
    let note = |effect: &Effect| {
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
    };
    let notes: Vec<_> = effects.iter().filter_map(note).collect();
    (!notes.is_empty()).then(|| notes.join("\n"))
}
