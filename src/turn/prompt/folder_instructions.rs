//! Instructions of folders below the session's: the model gets those of a folder with the result of the
//! first call that touches a file there.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::project_context::{PROJECT_READ_TIMEOUT, folder_instructions};
use crate::turn::Turn;
use tokio::task::spawn_blocking;
use turnwright_recording::outside::{AnswerKind, Keeping};
use turnwright_types::effect::Effect;
use turnwright_workspace::files::Roots;

/// The name of the text among kept answers.
const FOLDER_INSTRUCTIONS: &str = "folder instructions";
/// The most bytes of instructions that one round of calls adds.
const MAX_ROUND_BYTES: usize = 16 * 1024;
/// The most bytes of instructions of folders in one conversation.
const MAX_TOTAL_BYTES: usize = 64 * 1024;
/// The most folders that are looked at after one round of calls.
const MAX_FOLDERS: usize = 64;

/// The folders whose instructions the model has, or that have none.
#[derive(Debug, Default)]
pub(in crate::turn) struct ToldFolders {
    folders: HashSet<PathBuf>,
    /// The bytes of the instructions that the model got.
    bytes: usize,
}

impl ToldFolders {
    /// The real paths that a call touches and that are new. The folders of a known path are known, too.
    pub(in crate::turn) fn new_paths(&self, effects: &[Effect]) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        let mut add = |path: &PathBuf| {
            if !self.folders.contains(path) {
                paths.push(path.clone());
            }
        };
        for effect in effects {
            match effect {
                Effect::Read(target) | Effect::Write(target) | Effect::Delete(target) => {
                    add(&target.path);
                }
                Effect::Exec(command) => {
                    command.reads.iter().for_each(|target| add(&target.path));
                    add(&command.workdir);
                }
                Effect::Input { .. }
                | Effect::Signal { .. }
                | Effect::Fetch { .. }
                | Effect::Remote(_)
                | Effect::SessionState => {}
            }
        }
        paths
    }

    /// The folders that are new, and how many bytes their instructions may have.
    fn take_new(&mut self, mut folders: Vec<PathBuf>) -> (Vec<PathBuf>, usize) {
        folders.retain(|folder| !self.folders.contains(folder));
        folders.truncate(MAX_FOLDERS);
        self.folders.extend(folders.iter().cloned());
        (folders, MAX_TOTAL_BYTES.saturating_sub(self.bytes).min(MAX_ROUND_BYTES))
    }

    /// Notes that the instructions of these folders could not be read in time.
    fn take_back(&mut self, folders: &[PathBuf]) {
        self.folders.retain(|folder| !folders.contains(folder));
    }
}

/// The folders of these paths below each folder of the session, from there down. A path may be a folder.
fn folders_below(roots: &Roots, paths: &[PathBuf]) -> Vec<(PathBuf, Vec<PathBuf>)> {
    let mut found: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    for path in paths {
        let above = roots.folders().filter(|folder| path.starts_with(folder));
        let Some(root) = above.max_by_key(|folder| folder.as_os_str().len()) else { continue };
        let below: Vec<_> =
            path.ancestors().take_while(|folder| *folder != root).map(Path::to_path_buf).collect();
        let index = found.iter().position(|(known, _)| known == root).unwrap_or_else(|| {
            found.push((root.to_path_buf(), Vec::new()));
            found.len() - 1
        });
        let Some((_, folders)) = found.get_mut(index) else { continue };
        let new: Vec<_> =
            below.into_iter().rev().filter(|folder| !folders.contains(folder)).collect();
        folders.extend(new);
    }
    found
}

impl Turn {
    /// The instructions of the folders that these paths lie in, as far as the model does not have them.
    pub(in crate::turn) async fn new_folder_instructions(
        &self,
        touched: Vec<PathBuf>,
    ) -> Option<String> {
        let mut text = String::new();
        let answers = &self.conversation.env.shared.process.answers;
        let named = || touched.iter().map(|path| path.to_string_lossy()).collect::<Value>();
        // No files are read then.
        if answers.keeping(FOLDER_INSTRUCTIONS) == Keeping::Given {
            let given = answers.given(AnswerKind::View, FOLDER_INSTRUCTIONS, &named())?;
            return given.as_str().map(str::to_owned);
        }
        for (root, folders) in folders_below(self.conversation.env.files.roots(), &touched) {
            let (folders, limit) = self.conversation.told.folders().take_new(folders);
            if folders.is_empty() || limit == 0 {
                continue;
            }
            let looked_at = folders.clone();
            let reading = spawn_blocking(move || folder_instructions(&root, &folders, limit));
            let cancellable = self.cancel.run_until_cancelled(reading);
            let read = tokio::time::timeout(PROJECT_READ_TIMEOUT, cancellable).await;
            let Ok(Some(Ok(found))) = read else {
                self.conversation.told.folders().take_back(&looked_at);
                continue;
            };
            // The model has a file that it has just read, and those of a conversation that was loaded.
            let new = found
                .into_iter()
                .filter(|(path, origin, _)| !touched.contains(path) && !self.has_been_told(origin));
            text.extend(new.map(|(_, _, instructions)| instructions));
        }
        self.conversation.told.folders().bytes += text.len();
        let text = Some(text).filter(|text| !text.is_empty())?;
        answers.note(AnswerKind::View, FOLDER_INSTRUCTIONS, &named(), &|| json!(text));
        Some(text)
    }

    /// Returns true if an earlier result or prompt has the instructions with these words.
    fn has_been_told(&self, origin: &str) -> bool {
        let label = format!("\n{origin}; ");
        let mut results = self.history.messages.iter().filter_map(|message| message.as_tool());
        results.any(|result| result.text.contains(&label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_listed_from_the_session_s_folder_down_and_once() {
        let base = tempfile::tempdir().unwrap();
        let base = turnwright_workspace::real_path(base.path()).unwrap();
        let ws = base.join("ws");
        let more = base.join("ws/more");
        std::fs::create_dir_all(&more).unwrap();
        let roots = Roots::new(&ws).unwrap().with_folder(&more).unwrap();
        let paths = ["ws/a/b/x", "ws/a/y", "ws", "ws/more/c", "elsewhere/z"]
            .map(|path| base.join(path))
            .to_vec();
        let found = folders_below(&roots, &paths);
        let all = found.iter().flat_map(|(_, folders)| folders);
        let shown: Vec<_> = all.map(|folder| folder.strip_prefix(&base).unwrap()).collect();
        let expected = ["ws/a", "ws/a/b", "ws/a/b/x", "ws/a/y", "ws/more/c"];
        assert_eq!(shown, expected.map(Path::new));
    }

    #[test]
    fn a_folder_is_new_once_until_all_is_forgotten() {
        let mut known = ToldFolders::default();
        let folders = || vec![PathBuf::from("/a"), PathBuf::from("/a/b")];
        assert_eq!(known.take_new(vec![PathBuf::from("/a")]).0.len(), 1);
        assert_eq!(known.take_new(folders()), (vec![PathBuf::from("/a/b")], MAX_ROUND_BYTES));
        known.bytes = MAX_TOTAL_BYTES - 7;
        assert_eq!(known.take_new(folders()), (Vec::new(), 7));
        known = ToldFolders::default();
        assert_eq!(known.take_new(folders()), (folders(), MAX_ROUND_BYTES));
    }
}
