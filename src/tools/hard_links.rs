//! Files with several names (hard links): what a tool writes to one name changes all of them.

use std::path::Path;

use super::ToolEnv;
use turnwright_types::effect::{Effect, ResolvedPath};
use turnwright_types::file_id::file_id;

/// The other names of the files that a call writes.
#[derive(Debug, Default)]
pub(super) struct OtherNames {
    /// Those among the session's protected files.
    protected: Vec<ResolvedPath>,
    /// A sentence about each file that has other names.
    notes: Vec<String>,
}

impl OtherNames {
    /// Looks for the other names of the files that these effects write. Only protected files are
    /// searched for them; of others only the number is known. Blocks: do not call it on the runtime's
    /// thread.
    pub(super) fn find(effects: &[Effect], env: &ToolEnv) -> OtherNames {
        let linked = effects.iter().filter_map(|it| match it {
            Effect::Write(target) => {
                let (id, names) = file_id(&target.path)?;
                (names > 1).then_some((target, id, names - 1))
            }
            _ => None,
        });
        let linked: Vec<_> = linked.collect();
        if linked.is_empty() {
            return OtherNames::default();
        }
        let roots = env.files.roots();
        let is_other_name = |path: &Path| {
            let Some((found, _)) = file_id(path) else { return false };
            linked.iter().any(|(target, id, _)| found == *id && path != target.path)
        };
        let repositories = env.checkpoint.repositories();
        let protected = env.guard.take_snapshot(&env.confinement, repositories);
        let protected = protected.files().filter(|it| is_other_name(it));
        OtherNames {
            protected: protected.map(|it| roots.resolve(it)).collect(),
            notes: linked.iter().map(|it| note(&roots.display_path(it.0), it.2)).collect(),
        }
    }

    /// The writes of protected files that the call makes through other names.
    pub(super) fn effects(&self) -> impl Iterator<Item = Effect> {
        self.protected.iter().cloned().map(Effect::Write)
    }

    /// What to tell the user and the model; `None` if no file has another name.
    pub(super) fn note(&self) -> Option<String> {
        (!self.notes.is_empty()).then(|| self.notes.join("\n"))
    }
}

fn note(name: &str, others: u64) -> String {
    match others {
        1 => format!("{name} has another name (a hard link), which changes as well."),
        _ => format!("{name} has {others} other names (hard links), which change as well."),
    }
}
