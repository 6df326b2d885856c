//! The prompts that the user has typed in conversations, in a file of the state folder that only the user
//! can read: an entry a line.

use std::io;
use std::path::{Path, PathBuf};

use turnwright_types::private_file;

/// The most entries that are kept.
pub(super) const MAX_ENTRIES: usize = 1_000;

/// The file of the history.
pub(super) struct PromptHistory(PathBuf);

impl PromptHistory {
    pub(super) fn new(state: &Path) -> PromptHistory {
        PromptHistory(state.join("run_history"))
    }

    /// Reads the newest entries, and shortens a file that has grown too long.
    pub(super) fn read(&self) -> Vec<String> {
        let Ok(bytes) = std::fs::read(&self.0) else { return Vec::new() };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        let kept = &lines[lines.len().saturating_sub(MAX_ENTRIES)..];
        if lines.len() > 2 * MAX_ENTRIES
            && let Err(error) = private_file::write(&self.0, (kept.join("\n") + "\n").as_bytes())
        {
            tracing::debug!(%error, "the history cannot be shortened");
        }
        kept.iter().map(|line| restored_entry(line)).collect()
    }

    pub(super) fn append(&self, entry: &str) -> io::Result<()> {
        private_file::append(&self.0, stored_entry(entry).as_bytes())
    }
}

/// An entry as a line of the file.
fn stored_entry(text: &str) -> String {
    format!("{}\n", text.replace('\\', "\\\\").replace('\n', "\\n"))
}

fn restored_entry(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => text.push(if chars.next() == Some('n') { '\n' } else { '\\' }),
            char => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_keeps_prompts_of_several_lines_and_no_more_than_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let history = PromptHistory::new(folder.path());
        let entries = ["one", "two\nlines \\n", "\\"];
        for entry in entries {
            history.append(entry).unwrap();
        }
        assert_eq!(history.read(), entries);
        (0..2 * MAX_ENTRIES).for_each(|number| history.append(&number.to_string()).unwrap());
        assert_eq!(history.read().len(), MAX_ENTRIES);
        let text = std::fs::read_to_string(&history.0).unwrap();
        assert_eq!((text.lines().count(), text.lines().last()), (MAX_ENTRIES, Some("1999")));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&history.0).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
