//! The arguments of `apply_patch`, and the files that they name.

use std::path::Path;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::tools::PathArgument;
use turnwright_workspace::edit::patch::{self, FilePatch, PatchOp};

/// Change files by a patch: `*** Begin Patch`, then for each file `*** Update File: PATH` (or Add,
/// Delete) with `@@` hunks, then `*** End Patch`. All files or none.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::tools) struct ApplyPatchArgs {
    /// The whole patch
    #[serde(alias = "input")]
    patch: String,
    // Not in the schema: a command line that stands for a patch has one.
    #[serde(default)]
    #[schemars(skip)]
    workdir: String,
    /// The rest of a command line that stands for a patch, which is not run.
    #[serde(default)]
    #[schemars(skip)]
    pub(super) left_out: String,
    /// The files of the patch, parsed once for each call.
    #[serde(skip)]
    parsed: OnceLock<Result<Vec<FilePatch>, String>>,
}

impl ApplyPatchArgs {
    /// The files of the patch, or the reason why it cannot be parsed.
    pub(super) fn parsed(&self) -> &Result<Vec<FilePatch>, String> {
        self.parsed.get_or_init(|| {
            let mut files = patch::parse(&self.patch)?;
            for path in files.iter_mut().flat_map(FilePatch::paths_mut) {
                let is_relative = Path::new(path).is_relative() && !path.starts_with('~');
                if !self.workdir.is_empty() && is_relative {
                    *path = format!("{}/{path}", self.workdir);
                }
            }
            Ok(files)
        })
    }

    /// The files of the patch; none if it cannot be parsed.
    pub(super) fn files(&self) -> &[FilePatch] {
        self.parsed().as_deref().unwrap_or_default()
    }

    pub(super) fn paths(&mut self) -> Vec<PathArgument<'_>> {
        self.parsed();
        let mut all = Vec::new();
        for file in self.parsed.get_mut().into_iter().flatten().flatten() {
            let mut may_be_new = matches!(file.change, PatchOp::Add { .. });
            for text in file.paths_mut() {
                all.push(PathArgument { text, may_be_new });
                // The second one is where the file goes.
                may_be_new = true;
            }
        }
        all
    }
}
