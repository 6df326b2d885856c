//! The sandbox profile of a program of the session: a command or an MCP server.

use std::fs;
use std::path::{Path, PathBuf};

use turnwright_policy::permission::DeniedPaths;
use turnwright_sandbox::{PrivateLayer, SandboxProfile};
use turnwright_types::secret::secret_files;
use turnwright_workspace::files::Roots;
use turnwright_workspace::{FolderNames, RealPaths};

use super::ConfinementSettings;

/// The part of a session that decides what its programs may touch.
#[derive(Clone, Copy, Debug)]
pub struct SessionAccess<'a> {
    pub confinement: &'a ConfinementSettings,
    pub roots: &'a Roots,
    pub denied_paths: &'a DeniedPaths,
    pub real_paths: &'a RealPaths,
}

impl SessionAccess<'_> {
    /// The folders that every program of the session with write access may write: the session's
    /// own and the ones of the settings. Looks files up: not for the runtime's thread.
    pub fn writable_folders(&self) -> Vec<PathBuf> {
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
    pub fn profile(
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
