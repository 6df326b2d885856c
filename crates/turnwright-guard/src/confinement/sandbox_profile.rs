//! The sandbox profile of a program of the session, a command or an MCP server, and a command's private `/tmp`: the
//! folder of its session. Of the machine's `/tmp`, it shows the paths that the command is started with and the paths
//! that the user has allowed. A command that nobody may have been asked about sees only the paths that it was judged
//! by, and only while it runs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use turnwright_policy::permission::{DeniedPaths, PolicyRules};
use turnwright_sandbox::{PrivateLayer, PrivateTmp, SandboxProfile};
use turnwright_types::effect::{PathScope, ResolvedPath, build_credential_paths};
use turnwright_types::error_text::io_error_text;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::secret::secret_files;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::{Roots, ShownOnce};
use turnwright_workspace::{FolderNames, RealPaths};

use super::linked_files::linked_packages;
use super::{ConfinementBuilder, ConfinementSettings, silent_reads};
use crate::repository;
use crate::restricted_files::{KnownFolders, denied_below, hidden_below};

/// The part of a session that decides what its programs may touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionAccess<'a> {
    pub(super) confinement: &'a ConfinementSettings,
    pub(super) roots: &'a Roots,
    pub(super) denied_paths: &'a DeniedPaths,
    pub(super) real_paths: &'a RealPaths,
}

impl SessionAccess<'_> {
    /// The folders that every program of the session with write access may write: the session's
    /// own and the ones of the settings. Looks files up: not for the runtime's thread.
    pub(super) fn writable_folders(&self) -> Vec<PathBuf> {
        let roots = self.roots.folders().map(Path::to_path_buf);
        roots.chain(self.existing(self.confinement.writable.iter())).collect()
    }

    /// The caches, with the places of their private layers.
    fn caches(&self) -> Vec<PrivateLayer> {
        let confinement = self.confinement;
        if confinement.caches.is_empty() || !confinement.can_layer_caches() {
            return Vec::new();
        }
        let caches = self.existing(confinement.caches.iter());
        caches.map(|cache| PrivateLayer::new(cache, &confinement.private_caches)).collect()
    }

    /// Completes the profile of a program, which has what distinguishes it from the session's other programs: further
    /// paths that it may not read or change, and folders that it may read although they lie below hidden ones. With
    /// `has_caches` it may change caches for itself. `may_write_protected` and `may_read_hidden` return true for paths
    /// that others may not change or read. Looks files up: not for the runtime's thread.
    pub(super) fn profile(
        &self,
        program: SandboxProfile,
        has_caches: bool,
        may_write_protected: &dyn Fn(&Path) -> bool,
        may_read_hidden: &dyn Fn(&Path) -> bool,
    ) -> SandboxProfile {
        let confinement = self.confinement;
        // Where nothing can be written, nothing has to be kept.
        let mut read_only = if program.writable.is_empty() && !has_caches {
            Vec::new()
        } else {
            self.read_only(may_write_protected)
        };
        read_only.extend(program.read_only);
        let usual = confinement.hidden.iter().filter(|path| !may_read_hidden(path));
        let unreadable = self.denied_paths.unreadable_paths();
        let secret_files = secret_files();
        let hidden =
            self.existing(usual.chain(&unreadable).chain(&program.hidden).chain(&secret_files));
        let readable = confinement.readable.clone().map(|mut list| {
            list.extend(self.existing(confinement.caches.iter().chain(&confinement.writable)));
            list.extend(self.roots.folders().map(Path::to_path_buf));
            list
        });
        SandboxProfile {
            read_only,
            hidden: hidden.filter(|path| !self.is_opened(path)).collect(),
            unhidden: self.existing(program.unhidden.iter()).collect(),
            readable,
            caches: if has_caches { self.caches() } else { Vec::new() },
            ..program
        }
    }

    /// Returns true for a folder that the user has opened as a session folder, or a folder above one: it stays
    /// readable.
    fn is_opened(&self, path: &Path) -> bool {
        self.roots.folders().any(|root| root.starts_with(path))
            && !self.roots.private_folders().any(|own| own == path)
    }

    /// The paths that no program with write access may write: our own files, denied and protected paths.
    fn read_only(&self, may_write_protected: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let unwritable = self.denied_paths.unwritable_paths();
        let own_files = self.existing(self.confinement.read_only.iter().chain(&unwritable));
        let protected = &self.confinement.protected;
        let mut names = FolderNames::default();
        for root in protected.roots() {
            names.list(root);
        }
        let inside =
            own_files.filter(|path| self.roots.folders().any(|root| path.starts_with(root)));
        let obeyed = protected.leaf_paths().iter().filter(|path| {
            names.may_exist(path)
                && fs::symlink_metadata(path).is_ok_and(|found| found.is_file() || found.is_dir())
                && !may_write_protected(path)
        });
        inside.chain(obeyed.cloned()).collect()
    }

    /// The paths that exist, with symbolic links resolved.
    fn existing<'b>(
        &self,
        paths: impl Iterator<Item = &'b PathBuf>,
    ) -> impl Iterator<Item = PathBuf> {
        paths.filter_map(|path| self.real_paths.get(path))
    }
}

/// The sandbox profile of a server. Like a command it may write to the session's folders and
/// the caches, but a server runs beside all calls, so it never gets access to protected files,
/// nor to permission rules, pins, notes and other sessions. Unless its settings name them, it does
/// not read secrets of the project, nor settings with credentials that builds need. Blocks.
pub fn server_profile(
    confinement: &ConfinementSettings,
    roots: &Roots,
    policy: &PolicyRules,
    home: Option<&Path>,
) -> SandboxProfile {
    let denied_paths = &DeniedPaths::from_rules(policy);
    let real_paths = &RealPaths::default();
    let session = SessionAccess { confinement, roots, denied_paths, real_paths };
    let mut hidden = confinement.read_only.clone();
    hidden.extend(home.map(build_credential_paths).unwrap_or_default());
    let folders: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
    hidden.extend(hidden_below(&folders, denied_paths, &[], &mut KnownFolders::default()).0);
    let mut read_only = denied_below(&folders, denied_paths).unwritable;
    read_only.extend(linked_packages(roots.folders()));
    // Sessions share a server only if their profiles are equal.
    hidden.sort();
    let program = SandboxProfile {
        writable: session.writable_folders(),
        network: confinement.network,
        hidden,
        read_only,
        ..SandboxProfile::default()
    };
    session.profile(program, true, &|_| false, &|_| false)
}

/// At most this many paths of a line are looked up.
const MAX_NAMED: usize = 32;

impl ConfinementBuilder<'_> {
    /// The folder, if the command may write there: as one that may write, or because of its redirects.
    pub(super) fn writable_tmp(&self, write: &[PathBuf]) -> Option<PathBuf> {
        let tmp = self.site.roots.session_tmp()?;
        let folder = if self.may_write { tmp.folder()? } else { tmp.known_folder()? };
        let is_used = self.may_write || write.iter().any(|path| path.starts_with(folder));
        is_used.then(|| folder.to_path_buf())
    }

    /// A command that only reads has it as soon as there is something in it. What only this command sees of the
    /// machine's `/tmp` is seen until the second value is dropped.
    pub(super) fn private_tmp(
        &self,
        environment: &Environment,
    ) -> Result<Option<(PrivateTmp, ShownOnce)>, ToolRefusal> {
        let roots = &self.site.roots;
        let Some(tmp) = roots.session_tmp() else { return Ok(None) };
        let made = if self.may_write { tmp.make_folder() } else { Ok(tmp.known_folder()) };
        let Some(folder) = made.map_err(|error| cannot_be_made(&error))? else { return Ok(None) };
        let reads = self.command.reads.iter().map(|target| target.path.clone());
        let edits = self.command.edits.iter().flatten().filter_map(innermost_existing);
        let judged: Vec<_> = self.write.iter().cloned().chain(reads).chain(edits).collect();
        let (once, lasting) = if self.may_be_unasked() {
            (judged, Vec::new())
        } else {
            (Vec::new(), [judged, named_in_tmp(&self.command.line, roots)].concat())
        };
        let values = environment.iter().filter(|(name, _)| !names_temp_folder(name));
        let paths: Vec<_> = values.flat_map(|(_, value)| std::env::split_paths(value)).collect();
        let in_tmp = paths.iter().filter(|path| path.starts_with("/tmp"));
        let named = in_tmp.filter_map(|path| self.real_paths.get(path));
        let git_folders = roots.folders().filter_map(repository::git_folder);
        let projects = silent_reads::project_folders(roots, environment);
        let settings = &self.site.settings;
        let set =
            settings.readable.iter().flatten().chain(&settings.caches).chain(&settings.writable);
        let usual = roots
            .folders()
            .map(Path::to_path_buf)
            .chain(git_folders)
            .chain(roots.readable_folders())
            .chain(self.site.guard.known_temp_folder())
            .chain(projects)
            .chain(named)
            .chain(set.filter_map(|path| self.real_paths.get(path)));
        let shown_once = tmp.show_once(once);
        let mut shown = tmp.show(usual.chain(lasting));
        shown.extend(shown_once.places().iter().cloned());
        Ok(Some((PrivateTmp { folder: folder.to_path_buf(), shown }, shown_once)))
    }

    /// Returns true if nobody may have been asked about the command: it only reads, or only edits files.
    pub(super) fn may_be_unasked(&self) -> bool {
        self.is_silent || self.command.edits.is_some()
    }
}

fn cannot_be_made(error: &io::Error) -> String {
    format!(
        "Nothing was run: the session's own /tmp cannot be made: {}. Tell the user, who can make room in the folder for \
         temporary files, or call again with \"escalate\": \"full\", so that the user is asked.",
        io_error_text(error)
    )
}

/// Returns true for a variable with the user's temporary folder, which is not to be seen as a whole.
fn names_temp_folder(variable: &OsStr) -> bool {
    ["TMPDIR", "TMP", "TEMP"].iter().any(|name| variable == *name)
}

/// The paths in the machine's `/tmp` that a line names, or the folders in which they would be.
fn named_in_tmp(line: &str, roots: &Roots) -> Vec<PathBuf> {
    let starts = line.match_indices("/tmp/").filter(|(at, _)| !line[..*at].ends_with(is_path_char));
    starts.take(MAX_NAMED).filter_map(|(at, _)| existing_in_tmp(&line[at..], roots)).collect()
}

/// The path in `/tmp` with which a text begins, or the innermost folder of it that exists.
fn existing_in_tmp(text: &str, roots: &Roots) -> Option<PathBuf> {
    let length = text.find(|char: char| !is_path_char(char)).unwrap_or(text.len());
    innermost_existing(&roots.resolve(&text[..length]))
}

/// A path in the machine's `/tmp`, or the innermost folder around it that exists.
fn innermost_existing(target: &ResolvedPath) -> Option<PathBuf> {
    let tmp = Path::new("/tmp");
    let mut places =
        target.path.ancestors().take_while(|place| place.starts_with(tmp) && *place != tmp);
    let is_own = matches!(target.scope, PathScope::PrivateTmp { .. });
    places.find(|place| place.exists()).filter(|_| !is_own).map(Path::to_path_buf)
}

fn is_path_char(char: char) -> bool {
    char.is_alphanumeric() || "/._-+@%~#".contains(char)
}
