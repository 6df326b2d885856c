//! The folder in which commands of an ambiguous line run.

use std::path::PathBuf;

use super::system_paths::is_home;
use super::{SimpleCommand, Word, known_words, ruin};

/// The folder in which a command runs, relative to that of the line, as far as the commands before it tell.
#[derive(Clone)]
pub(super) struct ShellFolder {
    /// Absolute, or relative to that of the line; `None` if it is not known.
    pub(super) path: Option<PathBuf>,
    pub(super) is_home: bool,
}

impl ShellFolder {
    pub(super) fn start() -> ShellFolder {
        ShellFolder { path: Some(PathBuf::new()), is_home: false }
    }

    /// The folder in which wrappers run a command.
    pub(super) fn follow_wrappers(&mut self, words: &[Word]) {
        let program = words.first().map_or("", |word| known_words::name(&word.text));
        if program == "su"
            && words.iter().any(|word| matches!(word.text.as_str(), "-" | "-l" | "--login"))
        {
            *self = ShellFolder { path: None, is_home: true };
        } else if let Some(target) = ruin::folder_of_wrapper(words) {
            self.go_to(target);
        }
    }

    /// The folder after a command that changes it.
    pub(super) fn change(&mut self, simple: &SimpleCommand) {
        let program = simple.program();
        let target = simple.argv().skip(1).find(|text| !matches!(*text, "--" | "-L" | "-P"));
        match target {
            Some(target) => self.go_to(target),
            None => *self = ShellFolder { path: None, is_home: program == "cd" },
        }
    }

    fn go_to(&mut self, target: &str) {
        let is_plain = target.starts_with('/') && !target.contains(['$', '*', '?', '[', '{']);
        let path = is_plain.then(|| PathBuf::from(target));
        *self = ShellFolder { path, is_home: is_home(target, None) };
    }
}

/// True for a command after which the next one runs in another folder.
pub(super) fn changes_folder(simple: &SimpleCommand) -> bool {
    matches!(simple.program(), "cd" | "chdir" | "pushd" | "popd")
}
