//! The `/tmp` that a command has instead of the machine's: the folder of its session, in which it sees of the machine's
//! what it is started with and what the user has allowed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::ConfinementBuilder;
use crate::tools::{repository, silent_reads};
use turnwright_sandbox::PrivateTmp;
use turnwright_types::effect::PathScope;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::Roots;

/// At most this many paths of a line are looked up.
const MAX_NAMED: usize = 32;

impl ConfinementBuilder<'_> {
    /// The folder, if the command may write there: as one that may write, or because of its redirects.
    pub(super) fn writable_tmp(&self, write: &[PathBuf]) -> Option<PathBuf> {
        let tmp = self.env.files.roots().session_tmp()?;
        let folder = if self.may_write { tmp.folder()? } else { tmp.known_folder()? };
        let is_used = self.may_write || write.iter().any(|path| path.starts_with(folder));
        is_used.then(|| folder.to_path_buf())
    }

    /// A command that only reads has it as soon as there is something in it.
    pub(super) fn private_tmp(&self, environment: &Environment) -> Option<PrivateTmp> {
        let roots = self.env.files.roots();
        let tmp = roots.session_tmp()?;
        let folder = tmp.known_folder()?.to_path_buf();
        // The temporary folder of the user is the only one that is not meant.
        let is_meant = |name: &OsStr| !["TMPDIR", "TMP", "TEMP"].iter().any(|it| name == *it);
        let values = environment.iter().filter(|(name, _)| is_meant(name)).map(|(_, value)| value);
        let named = values.flat_map(|value| std::env::split_paths(value)).collect::<Vec<_>>();
        let named = named.iter().filter(|path| path.starts_with("/tmp"));
        let named = named.filter_map(|path| self.real_paths.get(path));
        let reads = self.command.reads.iter().map(|target| target.path.clone());
        let git_folders = roots.folders().filter_map(repository::git_folder);
        let shown = roots.folders().map(Path::to_path_buf).chain(git_folders);
        let shown = shown.chain(roots.readable_folders()).chain(self.env.guard.known_temp_folder());
        let projects = silent_reads::project_folders(roots, environment);
        let shown = shown.chain(projects).chain(self.write.clone()).chain(reads).chain(named);
        let shown = shown.chain(named_in_tmp(&self.command.line, roots));
        let settings = &self.env.confinement;
        let set =
            settings.readable.iter().flatten().chain(&settings.caches).chain(&settings.writable);
        let shown = tmp.show(shown.chain(set.filter_map(|path| self.real_paths.get(path))));
        Some(PrivateTmp { folder, shown })
    }
}

/// What a line names of the machine's `/tmp`, or the folder in which it would be.
fn named_in_tmp(line: &str, roots: &Roots) -> Vec<PathBuf> {
    let is_part = |it: char| it.is_alphanumeric() || "/._-+@%~#".contains(it);
    let begins = |(at, _): &(usize, &str)| !line[..*at].ends_with(is_part);
    let path = |(at, _): (usize, &str)| {
        let length = line[at..].find(|it| !is_part(it)).unwrap_or(line.len() - at);
        let target = roots.resolve(&line[at..at + length]);
        let is_in_tmp = |it: &&Path| it.starts_with("/tmp") && *it != Path::new("/tmp");
        let mut places = target.path.ancestors().take_while(is_in_tmp);
        let is_own = matches!(target.scope, PathScope::PrivateTmp { .. });
        places.find(|it| it.exists()).filter(|_| !is_own).map(Path::to_path_buf)
    };
    line.match_indices("/tmp/").filter(begins).take(MAX_NAMED).filter_map(path).collect()
}
