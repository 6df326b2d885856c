//! The plan of a call: how it is shown and what it may touch. It is made once, before the call is judged, and once more
//! after a wait or a yes, to find out if it is still the same.

use std::path::PathBuf;

use super::{PathArgument, ToolEnv};
use turnwright_types::effect::{CallView, Effect, ResolvedPath};
use turnwright_workspace::checkpoint::ExpectedChange;
use turnwright_workspace::files::{EntryInfo, Roots};

/// A call as it is shown to the user and judged.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// The card of the call before it runs.
    pub view: CallView,
    /// Everything that the call may touch. An effect too many costs the user a needless question; a
    /// missing one is a security hole.
    pub effects: Vec<Effect>,
}

impl CallPlan {
    /// The plan of a call that touches nothing but the state of the session.
    pub(crate) fn in_session(view: CallView) -> CallPlan {
        CallPlan { view, effects: vec![Effect::SessionState] }
    }

    /// The plan of a call that reads at these places.
    pub(super) fn reading(view: CallView, targets: Vec<ResolvedPath>) -> CallPlan {
        CallPlan { view, effects: targets.into_iter().map(Effect::Read).collect() }
    }

    /// The plan of a call that writes at these places.
    pub(super) fn writing(view: CallView, targets: Vec<ResolvedPath>) -> CallPlan {
        CallPlan { view, effects: targets.into_iter().map(Effect::Write).collect() }
    }
}

/// The place where a call is planned. It remembers every path that was resolved, so that the place that the user is
/// shown, the place that is judged and the place that is touched are the same.
pub struct CallSite<'a> {
    pub(crate) env: &'a ToolEnv,
    /// The paths as the call names them.
    paths: Vec<PathBuf>,
    /// The same, resolved.
    targets: Vec<ResolvedPath>,
}

impl<'a> CallSite<'a> {
    pub(super) fn new(env: &'a ToolEnv) -> CallSite<'a> {
        CallSite { env, paths: Vec::new(), targets: Vec::new() }
    }

    pub(crate) fn roots(&self) -> &'a Roots {
        self.env.files.roots()
    }

    /// Resolves a path of the call.
    pub(super) fn resolve(&mut self, path: PathBuf) -> ResolvedPath {
        let target = self.roots().resolve(&path);
        self.remember(path, target)
    }

    /// Resolves a path of a tool that acts on a directory entry itself, not on what it points to: a link in the last
    /// component is not followed.
    fn resolve_entry(&mut self, path: PathBuf) -> ResolvedPath {
        let target = self.roots().resolve_entry(&path);
        self.remember(path, target)
    }

    /// Resolves the paths among the arguments.
    pub(super) fn resolve_all(&mut self, arguments: Vec<PathArgument<'_>>) -> Vec<ResolvedPath> {
        arguments.into_iter().map(|argument| self.resolve(argument.path())).collect()
    }

    /// Resolves the paths among the arguments of a tool that acts on directory entries.
    pub(super) fn resolve_entries(
        &mut self,
        arguments: Vec<PathArgument<'_>>,
    ) -> Vec<ResolvedPath> {
        arguments.into_iter().map(|argument| self.resolve_entry(argument.path())).collect()
    }

    /// Returns true unless a path leads to another machine or a device, which only looking at it would connect to. Such
    /// a call of a file tool will be refused.
    pub(super) fn may_look(&self) -> bool {
        !self.paths.iter().any(|path| self.roots().leads_elsewhere(path))
    }

    /// Returns the paths as the call names them, and resolved.
    pub(super) fn into_paths(self) -> (Vec<PathBuf>, Vec<ResolvedPath>) {
        (self.paths, self.targets)
    }

    fn remember(&mut self, path: PathBuf, target: ResolvedPath) -> ResolvedPath {
        self.paths.push(path);
        self.targets.push(target.clone());
        target
    }
}

/// The change that a preview has computed, for the run of the call.
pub trait PreviewedChange: Default + Send + Sync + 'static {
    /// The contents that the call is going to give to files, as far as they are known beforehand.
    fn expected_changes(&self) -> Vec<ExpectedChange<'_>> {
        Vec::new()
    }
}

impl PreviewedChange for () {}

impl PreviewedChange for Option<EntryInfo> {}
