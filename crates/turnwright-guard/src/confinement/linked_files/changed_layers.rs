//! The layers into which a command writes instead of into folders whose files are shared with other projects. When it
//! has ended, the layers become the content of the folders, as new files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::confinement::private_caches;
use turnwright_sandbox::{MAX_LAYERS, PrivateLayer, publish_layer};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;
use turnwright_workspace::nofollow;

/// The layers of one command, in a folder that is removed when all of them are published.
#[derive(Debug, Default)]
pub(crate) struct ChangedLayers {
    place: Option<PathBuf>,
    layers: Vec<(PrivateLayer, File)>,
}

impl ChangedLayers {
    /// Prepares layers over folders, in a new folder in `place`. Folders beyond the number that is possible, and those
    /// that cannot be opened, are returned: they have to stay unchanged. Blocks.
    pub(crate) fn prepare(
        mut folders: Vec<PathBuf>,
        place: &Path,
    ) -> (ChangedLayers, Vec<PathBuf>) {
        if folders.is_empty() {
            return (ChangedLayers::default(), Vec::new());
        }
        let place = place.join(uuid::Uuid::new_v4().simple().to_string());
        if let Err(error) = private_file::create_folder(&place) {
            tracing::warn!(%error, "no layer over folders with shared files can be made");
            return (ChangedLayers::default(), folders);
        }
        let mut unchanged = folders.split_off(folders.len().min(MAX_LAYERS));
        let mut layers = Vec::new();
        for folder in folders {
            match nofollow::open_file(&folder) {
                Ok(held) => layers.push((PrivateLayer::new(folder, &place), held)),
                Err(_) => unchanged.push(folder),
            }
        }
        (ChangedLayers { place: Some(place), layers }, unchanged)
    }

    pub(crate) fn layers(&self) -> Vec<PrivateLayer> {
        self.layers.iter().map(|(layer, _)| layer.clone()).collect()
    }

    /// Publishes what the command has changed. Returns messages about what failed; that stays in the layer. All processes of
    /// the command must have ended. Blocks.
    pub(crate) fn publish(&self) -> Vec<String> {
        let messages = self.layers.iter().filter_map(|(layer, folder)| {
            let error = publish_layer(layer, folder).err()?;
            // A command that never began has changed nothing.
            let is_there = error.kind() != io::ErrorKind::NotFound || layer.private.exists();
            tracing::warn!(%error, folder = %layer.path.display(), "a layer cannot be published");
            is_there.then(|| {
                format!(
                    "[Only a part of what the command changed in {} was saved: {}. The rest is in {}.]",
                    layer.path.display(),
                    io_error_text(&error),
                    layer.private.join("upper").display()
                )
            })
        });
        let failed: Vec<_> = messages.collect();
        if let Some(place) = self.place.as_ref().filter(|_| failed.is_empty())
            && let Err(error) = private_caches::remove(place, &|| false)
        {
            tracing::debug!(%error, "a layer cannot be removed");
        }
        failed
    }
}
