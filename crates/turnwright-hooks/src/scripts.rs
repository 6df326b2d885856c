//! The files of a project that the command of a hook names. Trust in the hook is trust in their content, too.

use std::io::Read;
use std::path::{Path, PathBuf};

use turnwright_types::hash::{hex, sha256_of_reader};
use turnwright_workspace::{nofollow, real_path};

/// The variables that stand for the folder of the project.
const PROJECT_VARIABLES: [&str; 6] = [
    "${CLAUDE_PROJECT_DIR}",
    "$CLAUDE_PROJECT_DIR",
    "${TURNWRIGHT_PROJECT_DIR}",
    "$TURNWRIGHT_PROJECT_DIR",
    "${PWD}",
    "$PWD",
];
/// The characters that end a word of a command line, and those that end a command, too.
const WORD_ENDS: &str = " \t<>=";
const COMMAND_ENDS: &str = "\n;&|()`";
/// Programs that run nothing. A line of only these runs no file that it names.
const READERS: [&str; 14] = [
    "[", "cat", "date", "echo", "grep", "head", "jq", "ls", "printf", "tail", "tee", "test",
    "true", "wc",
];
/// The deepest nesting of lines for other shells in the words of a line.
const MAX_NESTING: usize = 3;
/// The most files of one command.
const MAX_SCRIPTS: usize = 16;
/// The most bytes of a file that can be trusted.
const MAX_SCRIPT_BYTES: u64 = 16 * 1024 * 1024;

/// A file of the project that a command names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its path below the project's folder, with `/`.
    pub name: String,
    /// The SHA-256 of its content; `None` if it cannot be read.
    pub sha256: Option<String>,
}

impl Script {
    /// Reads the file without following a link.
    fn at(project: &Path, below: &Path) -> Script {
        let parts = below.components().map(|part| part.as_os_str().to_string_lossy());
        let name = parts.collect::<Vec<_>>().join("/");
        Script { name, sha256: digest(&project.join(below)) }
    }
}

fn digest(path: &Path) -> Option<String> {
    let file = nofollow::open_file(path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > MAX_SCRIPT_BYTES {
        return None;
    }
    let (digest, _) = sha256_of_reader(file.take(MAX_SCRIPT_BYTES)).ok()?;
    Some(hex(&digest))
}

/// The files below the project, whose folder is a real path, that these words of a command name and may run. What
/// a line only reads or writes to is left out. Blocks.
pub(crate) fn named_scripts(words: &[String], project: &Path) -> Vec<Script> {
    let mut commands = Vec::new();
    for word in words {
        split_line(&with_project(word, project), 0, &mut commands);
    }
    if words.len() == 1 && commands.iter().all(|command| is_reader(command)) {
        return Vec::new();
    }
    commands.retain(|command| command.first().is_none_or(|program| program != "tee"));
    // A line may go to a folder first, or ask a program for that of the project.
    let words = commands.iter().flatten();
    let named = words.clone().filter_map(|word| folder_below(word, project));
    let folders: Vec<_> = std::iter::once(project.to_path_buf()).chain(named).collect();
    let mut found: Vec<PathBuf> = Vec::new();
    for word in words {
        let places = folders.iter().map(|folder| folder.join(word.trim_start_matches('/')));
        let paths = std::iter::once(project.join(word)).chain(places);
        for below in paths.filter_map(|path| file_below(&path, project)) {
            if !found.contains(&below) {
                found.push(below);
            }
        }
    }
    if found.len() > MAX_SCRIPTS {
        let name = "more files than can be compared".to_owned();
        return vec![Script { name, sha256: None }];
    }
    found.iter().map(|below| Script::at(project, below)).collect()
}

fn is_reader(command: &[String]) -> bool {
    let program = command.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
    READERS.contains(&program)
}

fn with_project(text: &str, project: &Path) -> String {
    let folder = project.to_string_lossy();
    PROJECT_VARIABLES.iter().fold(text.to_owned(), |text, name| text.replace(name, &folder))
}

/// Adds the commands of a line, each as its words without quotes and without the files that it writes to. Of a word
/// that is a line for another shell, the commands are added, too. A backslash is part of a path on Windows.
fn split_line(line: &str, depth: usize, commands: &mut Vec<Vec<String>>) {
    let mut quote = None;
    let mut is_written = false;
    let mut word = String::new();
    let mut command: Vec<String> = Vec::new();
    let mut nested = Vec::new();
    let mut chars = line.chars().chain(['\n']);
    while let Some(char) = chars.next() {
        if char == '\\' && cfg!(unix) && quote != Some('\'') {
            word.extend(chars.next());
            continue;
        }
        if quote == Some(char) {
            quote = None;
            continue;
        }
        let is_command_end = COMMAND_ENDS.contains(char);
        if quote.is_some() || !is_command_end && !WORD_ENDS.contains(char) {
            match (quote, char) {
                (None, '"' | '\'') => quote = Some(char),
                _ => word.push(char),
            }
            continue;
        }
        let done = std::mem::take(&mut word);
        if !done.is_empty() && !std::mem::take(&mut is_written) {
            if depth < MAX_NESTING && done.contains([' ', ';', '|', '&', '\n']) {
                nested.push(done.clone());
            }
            command.push(done);
        }
        is_written |= char == '>';
        if is_command_end && !command.is_empty() {
            commands.push(std::mem::take(&mut command));
        }
    }
    for line in nested {
        split_line(&line, depth + 1, commands);
    }
}

/// The path below the project of the file at this path, if there is one. A link of the project that leads out of it
/// counts as a file, which cannot be read.
fn file_below(path: &Path, project: &Path) -> Option<PathBuf> {
    let real = real_path(path).ok()?;
    if !real.metadata().ok()?.is_file() {
        return None;
    }
    real.strip_prefix(project).or_else(|_| path.strip_prefix(project)).ok().map(Path::to_path_buf)
}

/// The folder below the project that a word names, if it is one.
fn folder_below(word: &str, project: &Path) -> Option<PathBuf> {
    let real = real_path(project.join(word)).ok()?;
    (real.starts_with(project) && real.is_dir()).then_some(real)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_files_of_a_command_line_are_found_however_they_are_written() {
        let base = tempfile::tempdir().unwrap();
        let project = real_path(base.path()).unwrap();
        fs::create_dir_all(project.join("hooks/my dir")).unwrap();
        for name in ["hooks/a.sh", "hooks/b.py", "hooks/my dir/c.sh"] {
            fs::write(project.join(name), name).unwrap();
        }
        let absolute = format!("sh {}/hooks/a.sh", project.display());
        for (line, expected) in [
            ("hooks/a.sh", vec!["hooks/a.sh"]),
            ("./hooks/a.sh --flag", vec!["hooks/a.sh"]),
            ("hooks/../hooks/a.sh", vec!["hooks/a.sh"]),
            ("python3 \"$CLAUDE_PROJECT_DIR\"/hooks/b.py", vec!["hooks/b.py"]),
            ("\"${CLAUDE_PROJECT_DIR}/hooks/my dir/c.sh\"", vec!["hooks/my dir/c.sh"]),
            ("X=1 hooks/a.sh|hooks/b.py", vec!["hooks/a.sh", "hooks/b.py"]),
            ("bash -c 'exec hooks/a.sh 2>&1'", vec!["hooks/a.sh"]),
            ("cd \"$CLAUDE_PROJECT_DIR/hooks\" && ./a.sh", vec!["hooks/a.sh"]),
            ("$(git rev-parse --show-toplevel)/hooks/a.sh", vec!["hooks/a.sh"]),
            ("\"$(git rev-parse --show-toplevel)\"/hooks/a.sh", vec!["hooks/a.sh"]),
            (absolute.as_str(), vec!["hooks/a.sh"]),
            ("jq -r .tool_input.file_path", vec![]),
            ("jq -c . >> hooks/a.sh", vec![]),
            ("cat hooks/a.sh", vec![]),
            ("cat hooks/a.sh | sh", vec!["hooks/a.sh"]),
            ("hooks/b.py >hooks/a.sh | tee -a hooks/a.sh", vec!["hooks/b.py"]),
            ("hooks missing.sh /etc/hosts", vec![]),
        ] {
            let found = named_scripts(&[line.to_owned()], &project);
            let names: Vec<_> = found.iter().map(|script| script.name.as_str()).collect();
            assert_eq!(names, expected, "{line}");
            assert!(found.iter().all(|script| script.sha256.is_some()), "{line}");
        }
    }

    #[test]
    fn another_content_is_another_script() {
        let base = tempfile::tempdir().unwrap();
        let project = real_path(base.path()).unwrap();
        let words = ["a.sh".to_owned()];
        fs::write(project.join("a.sh"), "one").unwrap();
        let before = named_scripts(&words, &project);
        assert_eq!(named_scripts(&words, &project), before);
        fs::write(project.join("a.sh"), "two").unwrap();
        assert_ne!(named_scripts(&words, &project), before);
    }
}
