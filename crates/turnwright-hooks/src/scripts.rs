//! Finds the project files that a hook's command names. Trusting the hook includes trusting their content.

use std::io::Read;
use std::path::{Path, PathBuf};

use turnwright_types::hash::{hex, sha256_hex, sha256_of_reader};
use turnwright_types::lists::add_new;
use turnwright_workspace::{nofollow, real_path};

/// The variables that stand for the folder of the project.
const PROJECT_VARIABLES: [&str; 3] = ["CLAUDE_PROJECT_DIR", "TURNWRIGHT_PROJECT_DIR", "PWD"];
/// The characters that end only a word of a command line. Those in `COMMAND_ENDS` also end the command.
const WORD_ENDS: &str = " \t<>=";
const COMMAND_ENDS: &str = "\n;&|()`";
/// The characters between the parts of a path, on one system or another.
const SEPARATORS: [char; 2] = ['/', '\\'];
/// Programs that never run a file. A line of only such programs, named without a path, runs none of the files it names.
const READERS: [&str; 14] = [
    "[", "cat", "date", "echo", "grep", "head", "jq", "ls", "printf", "tail", "tee", "test",
    "true", "wc",
];
/// The endings that a path or a dotted module name may omit.
const OPTIONAL_ENDINGS: [&str; 4] = [".py", "/__main__.py", ".js", "/index.js"];
/// The deepest nesting of command lines within command lines, as in `sh -c "…"`.
const MAX_NESTING: usize = 4;
/// The most folders of the project in which the files of a command are searched for.
const MAX_FOLDERS: usize = 64;
/// The most files of one command.
const MAX_SCRIPTS: usize = 16;
/// The largest file that can be trusted, in bytes.
const MAX_SCRIPT_BYTES: u64 = 16 * 1024 * 1024;

/// The program of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookAction {
    /// A command line for a shell.
    Line(String),
    PowerShell(String),
    /// A program with its arguments.
    Program(Vec<String>),
}

/// A file of the project that a command names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The path relative to the project's folder, with `/` as the separator.
    pub name: String,
    /// The SHA-256 of the content or, for a link that leads out of the project, of the target's path; `None` if the
    /// file cannot be read.
    pub sha256: Option<String>,
}

impl Script {
    fn at(project: &Path, below: &Path) -> Script {
        let parts = below.components().map(|part| part.as_os_str().to_string_lossy());
        let name = parts.collect::<Vec<_>>().join("/");
        Script { name, sha256: digest(&project.join(below), project) }
    }

    /// Stands for files that are too many to be compared.
    pub(crate) fn too_many() -> Script {
        Script { name: "one of very many files".to_owned(), sha256: None }
    }
}

/// Hashes a file without following links. For a link that leads out of the project, such as the Python of a virtual
/// environment, the target's path is hashed, because a command may name that program directly as well.
fn digest(path: &Path, project: &Path) -> Option<String> {
    let file = match nofollow::open_file(path) {
        Ok(file) => file,
        Err(error) if nofollow::is_link_error(&error) => {
            let target = real_path(path).ok().filter(|target| !target.starts_with(project))?;
            return Some(sha256_hex(target.as_os_str().as_encoded_bytes()));
        }
        Err(_) => return None,
    };
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > MAX_SCRIPT_BYTES {
        return None;
    }
    let (digest, _) = sha256_of_reader(file.take(MAX_SCRIPT_BYTES)).ok()?;
    Some(hex(&digest))
}

/// Returns the project files that a command names and may run. A command line for a shell is not understood in full, so
/// there may be some that it does not run; files that it only reads or writes are left out. `project` must be a real
/// path. Blocks.
pub(crate) fn named_scripts(action: &HookAction, project: &Path) -> Vec<Script> {
    let mut commands = Vec::new();
    match action {
        HookAction::Line(line) => split_line(line, 0, &mut commands),
        // There a backslash escapes nothing and separates the parts of a path.
        HookAction::PowerShell(line) => split_line(&line.replace('\\', "/"), 0, &mut commands),
        HookAction::Program(words) => {
            commands.push(words.clone());
            for word in words {
                split_line(word, 1, &mut commands);
            }
        }
    }
    if commands.iter().all(|command| READERS.contains(&command[0].as_str())) {
        return Vec::new();
    }
    commands.retain(|command| command[0] != "tee");
    let mut words: Vec<&str> = commands.iter().flatten().map(String::as_str).collect();
    let ends: Vec<_> = words.iter().filter_map(|&word| after_variable(word, &words)).collect();
    words.extend(ends);
    // A slash at the beginning also follows a variable or a command substitution, as in `$(pwd)/a.sh`.
    let absolute: Vec<_> =
        words.iter().copied().filter(|word| word.starts_with(SEPARATORS)).collect();
    words.extend(absolute.iter().map(|word| word.trim_start_matches(SEPARATORS)));
    let folders = folders_meant(&words, project);
    let names = words.into_iter().flat_map(files_meant);
    let mut found: Vec<PathBuf> = Vec::new();
    for name in names {
        let paths = folders.iter().map(|folder| folder.join(&name));
        for file in paths.filter_map(|path| file_below(&path, project)) {
            add_new(&mut found, file);
        }
    }
    if found.len() > MAX_SCRIPTS {
        return vec![Script::too_many()];
    }
    found.iter().map(|below| Script::at(project, below)).collect()
}

/// Returns the part of a word that follows a variable which may stand for a folder of the project: one of the known
/// variables, or one that the command line sets, whose name then occurs as a word.
fn after_variable<'a>(word: &'a str, words: &[&str]) -> Option<&'a str> {
    let is_of_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let (variable, end) = if let Some(parts) = word.rsplit_once('}') {
        parts
    } else {
        let at = word.rfind('$')?;
        // PowerShell has `$env:NAME`.
        let end = word[at + 1..].trim_start_matches(|char: char| is_of_name(char) || char == ':');
        (&word[at..word.len() - end.len()], end)
    };
    // An expression such as `${PWD:-$(pwd)}` is split at the parentheses.
    let is_rest = !variable.contains('$');
    let mut names = variable.split(|char: char| !is_of_name(char));
    let is_meant = names.any(|name| PROJECT_VARIABLES.contains(&name) || words.contains(&name));
    (is_rest || is_meant).then_some(end)
}

/// Returns the folder of the project and all folders in it that the words name, one below another. A command line may
/// change to such a folder before it runs a file.
fn folders_meant(words: &[&str], project: &Path) -> Vec<PathBuf> {
    let mut folders = vec![project.to_path_buf()];
    let mut next = 0;
    while next < folders.len() && folders.len() < MAX_FOLDERS {
        let from = folders[next].clone();
        for folder in words.iter().filter_map(|word| folder_below(&from.join(word), project)) {
            add_new(&mut folders, folder);
        }
        next += 1;
    }
    folders
}

/// Returns the paths that a word may stand for.
fn files_meant(word: &str) -> Vec<String> {
    let mut names = vec![word.to_owned()];
    if word.contains(['/', '.']) {
        for stem in [word.to_owned(), word.replace('.', "/")] {
            names.extend(OPTIONAL_ENDINGS.map(|end| format!("{stem}{end}")));
        }
    }
    names
}

/// Splits a command line into commands, each a list of words without quotes and without the targets of redirections.
/// A word that may be a command line for another shell is split as well. On Windows a backslash is part of a path.
fn split_line(line: &str, depth: usize, commands: &mut Vec<Vec<String>>) {
    let mut quote = None;
    let mut is_target = false;
    // The number of brackets that are open in a target.
    let mut open = 0;
    let mut word = String::new();
    let mut command: Vec<String> = Vec::new();
    let mut nested = Vec::new();
    let mut chars = line.chars().chain(['\n']).peekable();
    while let Some(char) = chars.next() {
        if char == '\\' && cfg!(unix) && quote != Some('\'') {
            word.extend(chars.next().filter(|escaped| *escaped != '\n'));
        } else if quote == Some(char) {
            quote = None;
        } else if quote.is_none() && matches!(char, '"' | '\'') {
            // `$'…'` and `$"…"` are quotes as well.
            word.truncate(word.trim_end_matches('$').len());
            quote = Some(char);
        } else if quote.is_some() || !WORD_ENDS.contains(char) && !COMMAND_ENDS.contains(char) {
            word.push(char);
        } else {
            let done = std::mem::take(&mut word);
            let was_target = !done.is_empty() && std::mem::take(&mut is_target);
            let is_in_target = open > 0 || was_target && done.ends_with('$');
            // Of a target, only the substitutions are commands.
            let end =
                if was_target { done.rfind([')', '`']).map_or(0, |at| at + 1) } else { done.len() };
            if depth < MAX_NESTING && done[..end].contains([' ', ';', '|', '&', '\n', '(', '`']) {
                nested.push(done[..end].to_owned());
            }
            if !done.is_empty() && !was_target {
                command.push(done);
            }
            // After an opening bracket comes a command. After `> $(pwd)` the target may go on.
            is_target = !matches!(char, '(' | '`') && (is_target || char == '>');
            if char == '(' && is_in_target {
                open += 1;
            } else if char == ')' && open > 0 {
                open -= 1;
                is_target = open == 0 && chars.peek() == Some(&'/');
            }
            if COMMAND_ENDS.contains(char) && !command.is_empty() {
                commands.push(std::mem::take(&mut command));
            }
        }
    }
    for line in nested {
        split_line(&line, depth + 1, commands);
    }
}

/// Returns the path of a file relative to the project; `None` if it is not a file of the project. A link in the project
/// to a file outside counts as a file of the project.
fn file_below(path: &Path, project: &Path) -> Option<PathBuf> {
    let real = real_path(path).ok()?;
    if !real.metadata().ok()?.is_file() {
        return None;
    }
    real.strip_prefix(project).or_else(|_| path.strip_prefix(project)).ok().map(Path::to_path_buf)
}

/// Returns the real path of a folder of the project; `None` if the path leads to anything else.
fn folder_below(path: &Path, project: &Path) -> Option<PathBuf> {
    let real = real_path(path).ok()?;
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
        fs::create_dir(project.join("hooks/my")).unwrap();
        for name in
            ["hooks/a.sh", "hooks/b.py", "hooks/cat", "hooks/my dir/c.sh", "hooks/my/index.js"]
        {
            fs::write(project.join(name), name).unwrap();
        }
        let absolute = format!("sh {}/hooks/a.sh", project.display());
        for (line, expected) in [
            ("hooks/a.sh", vec!["hooks/a.sh"]),
            ("./hooks/a.sh --flag", vec!["hooks/a.sh"]),
            ("hooks/../hooks/a.sh", vec!["hooks/a.sh"]),
            ("python3 \"$CLAUDE_PROJECT_DIR\"/hooks/b.py", vec!["hooks/b.py"]),
            ("\"$PWD/hooks/my dir/c.sh\"", vec!["hooks/my dir/c.sh", "hooks/my/index.js"]),
            ("X=1 hooks/a.sh|hooks/b.py", vec!["hooks/a.sh", "hooks/b.py"]),
            ("bash -c 'exec hooks/a.sh 2>&1'", vec!["hooks/a.sh"]),
            ("cd \"$CLAUDE_PROJECT_DIR/hooks\" && ./a.sh", vec!["hooks/a.sh"]),
            ("$(git rev-parse --show-toplevel)/hooks/a.sh", vec!["hooks/a.sh"]),
            ("\"$(git rev-parse --show-toplevel)\"/hooks/a.sh", vec!["hooks/a.sh"]),
            (absolute.as_str(), vec!["hooks/a.sh"]),
            ("jq -r .tool_input.file_path", vec![]),
            ("jq -c . >> hooks/a.sh", vec![]),
            ("cat hooks/a.sh", vec![]),
            ("hooks/cat hooks/a.sh", vec!["hooks/cat", "hooks/a.sh"]),
            ("python3 -m hooks.b", vec!["hooks/b.py"]),
            ("node hooks/my", vec!["hooks/my/index.js"]),
            ("cat hooks/a.sh | sh", vec!["hooks/a.sh"]),
            ("cat | tee >(hooks/a.sh)", vec!["hooks/a.sh"]),
            ("jq . > \"$(hooks/a.sh)\"", vec!["hooks/a.sh"]),
            ("cat > hooks/a.sh 2>&1", vec![]),
            ("cat >> $(pwd)/hooks/a.sh", vec![]),
            ("cat >> $(dirname $(pwd)/x)/hooks/a.sh", vec![]),
            ("cat > $(hooks/a.sh)/hooks/cat", vec!["hooks/a.sh"]),
            ("cat > $(pwd) hooks/a.sh", vec!["hooks/a.sh"]),
            ("cat > `hooks/a.sh`", vec!["hooks/a.sh"]),
            ("sh ${CLAUDE_PROJECT_DIR:-.}/hooks/a.sh", vec!["hooks/a.sh"]),
            ("sh \"${CLAUDE_PROJECT_DIR:-$(pwd)}/hooks/a.sh\"", vec!["hooks/a.sh"]),
            ("sh ${CLAUDE_PROJECT_DIR:-$(pwd)}/hooks/a.sh", vec!["hooks/a.sh"]),
            ("sh \"${PWD%/}/hooks/a.sh\"", vec!["hooks/a.sh"]),
            ("$(git rev-parse --show-toplevel)/hooks/cat", vec!["hooks/cat"]),
            ("D=hooks; sh $D/a.sh", vec!["hooks/a.sh"]),
            ("D=hooks; sh \"${D}/a.sh\"", vec!["hooks/a.sh"]),
            ("cd hooks; cd my; node index.js", vec!["hooks/my/index.js"]),
            ("sh $'hooks/a.sh'", vec!["hooks/a.sh"]),
            ("sh \\\n hooks/a.sh", vec!["hooks/a.sh"]),
            ("eval \"$(<hooks/a.sh)\"", vec!["hooks/a.sh"]),
            ("sh `true` hooks/a.sh", vec!["hooks/a.sh"]),
            ("X=(hooks/a.sh)", vec!["hooks/a.sh"]),
            ("node ${PWD}/hooks/my", vec!["hooks/my/index.js"]),
            ("cd $(pwd)/hooks && ./a.sh", vec!["hooks/a.sh"]),
            ("$OTHER/hooks/a.sh ~/hooks/a.sh ${HOME}/hooks/a.sh", vec![]),
            ("hooks/b.py >hooks/a.sh | tee -a hooks/a.sh", vec!["hooks/b.py"]),
            ("hooks missing.sh /etc/hosts", vec![]),
        ] {
            let found = named_scripts(&HookAction::Line(line.to_owned()), &project);
            let names: Vec<_> = found.iter().map(|script| script.name.as_str()).collect();
            assert_eq!(names, expected, "{line}");
            assert!(found.iter().all(|script| script.sha256.is_some()), "{line}");
        }
    }

    #[test]
    fn the_files_of_a_powershell_line_are_found() {
        let base = tempfile::tempdir().unwrap();
        let project = real_path(base.path()).unwrap();
        fs::create_dir(project.join("hooks")).unwrap();
        fs::write(project.join("hooks/a.ps1"), "x").unwrap();
        for line in [
            r"hooks\a.ps1",
            r"& .\hooks\a.ps1",
            r#"& "$env:CLAUDE_PROJECT_DIR\hooks\a.ps1""#,
            r#"& "${Env:CLAUDE_PROJECT_DIR}/hooks/a.ps1""#,
        ] {
            let found = named_scripts(&HookAction::PowerShell(line.to_owned()), &project);
            let names: Vec<_> = found.iter().map(|script| script.name.as_str()).collect();
            assert_eq!(names, ["hooks/a.ps1"], "{line}");
        }
    }

    #[test]
    fn the_arguments_of_a_program_may_be_files_and_command_lines() {
        let base = tempfile::tempdir().unwrap();
        let project = real_path(base.path()).unwrap();
        fs::write(project.join("a b.sh"), "x").unwrap();
        fs::write(project.join("c.sh"), "x").unwrap();
        let words = ["sh", "a b.sh", "exec ./c.sh"].map(str::to_owned);
        let found = named_scripts(&HookAction::Program(words.into()), &project);
        let names: Vec<_> = found.iter().map(|script| script.name.as_str()).collect();
        assert_eq!(names, ["a b.sh", "c.sh"]);
    }

    #[test]
    fn another_content_is_another_script() {
        let base = tempfile::tempdir().unwrap();
        let project = real_path(base.path()).unwrap();
        let line = HookAction::Line("./a.sh".to_owned());
        fs::write(project.join("a.sh"), "one").unwrap();
        let before = named_scripts(&line, &project);
        assert_eq!(named_scripts(&line, &project), before);
        fs::write(project.join("a.sh"), "two").unwrap();
        assert_ne!(named_scripts(&line, &project), before);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_out_of_the_project_is_known_by_its_target() {
        use std::os::unix::fs::symlink;
        let base = tempfile::tempdir().unwrap();
        let project = real_path(base.path()).unwrap().join("project");
        fs::create_dir(&project).unwrap();
        let line = HookAction::Line("./python -V".to_owned());
        let mut seen = Vec::new();
        for target in ["one", "two"] {
            fs::write(base.path().join(target), "same").unwrap();
            fs::remove_file(project.join("python")).ok();
            symlink(base.path().join(target), project.join("python")).unwrap();
            seen.extend(named_scripts(&line, &project));
        }
        assert_eq!(seen.len(), 2);
        assert!(seen.iter().all(|script| script.name == "python" && script.sha256.is_some()));
        assert_ne!(seen[0], seen[1]);
    }
}
