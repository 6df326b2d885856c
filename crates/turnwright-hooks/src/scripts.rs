//! Finds the project files that a hook's command names. Trusting the hook includes trusting their content.

use std::io::Read;
use std::path::{Path, PathBuf};

use turnwright_types::hash::{hex, sha256_hex, sha256_of_reader};
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
/// The variables that stand for the project's folder in longer expressions, such as `${PWD:-.}`.
const PROJECT_NAMES: [&str; 3] = ["CLAUDE_PROJECT_DIR", "TURNWRIGHT_PROJECT_DIR", "PWD"];
/// Marks a word that is not a path below a folder of the project. No path contains this character.
const ELSEWHERE: char = '\0';
/// The characters that end only a word of a command line. Those in `COMMAND_ENDS` also end the command.
const WORD_ENDS: &str = " \t<>=";
const COMMAND_ENDS: &str = "\n;&|()`";
/// Programs that never run a file. A line of only such programs, named without a path, runs none of the files it names.
const READERS: [&str; 14] = [
    "[", "cat", "date", "echo", "grep", "head", "jq", "ls", "printf", "tail", "tee", "test",
    "true", "wc",
];
/// The endings that a path or a dotted module name may leave out.
const LEFT_OUT: [&str; 4] = [".py", "/__main__.py", ".js", "/index.js"];
/// The deepest nesting of command lines within command lines, as in `sh -c "…"`.
const MAX_NESTING: usize = 4;
/// The most folders of the project in which the files of a command are searched for.
const MAX_FOLDERS: usize = 64;
/// The most files of one command.
const MAX_SCRIPTS: usize = 16;
/// The largest file that can be trusted, in bytes.
const MAX_SCRIPT_BYTES: u64 = 16 * 1024 * 1024;

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

/// Returns the project files that these words of a command name and may run. Files that a command line only reads or
/// writes are left out. `project` must be a real path. Blocks.
pub(crate) fn named_scripts(words: &[String], project: &Path) -> Vec<Script> {
    let is_line = words.len() == 1;
    let mut commands = Vec::new();
    for word in words {
        split_line(&with_project(word, project), usize::from(!is_line), &mut commands);
    }
    if is_line && commands.iter().all(|command| is_reader(command)) {
        return Vec::new();
    }
    commands.retain(|command| program_of(command) != Some("tee"));
    let mut words: Vec<&str> = commands.iter().flatten().map(String::as_str).collect();
    let ends: Vec<_> = words.iter().filter_map(|&word| after_variable(word, &words)).collect();
    words.extend(ends);
    let folders = folders_meant(&words, project);
    let mut found: Vec<PathBuf> = Vec::new();
    for word in words {
        let whole = project.join(unmarked(word));
        let inside = whole.strip_prefix(project).ok().filter(|_| word.starts_with(ELSEWHERE));
        let below = match inside {
            Some(path) => format!("/{}", path.display()),
            None => word.to_owned(),
        };
        let places = folders.iter().flat_map(|folder| files_meant(folder, &below));
        let paths = std::iter::once(whole).chain(places);
        for file in paths.filter_map(|path| file_below(&path, project)) {
            if !found.contains(&file) {
                found.push(file);
            }
        }
    }
    if found.len() > MAX_SCRIPTS {
        let name = format!("more than {MAX_SCRIPTS} files");
        return vec![Script { name, sha256: None }];
    }
    found.iter().map(|below| Script::at(project, below)).collect()
}

fn is_reader(command: &[String]) -> bool {
    program_of(command).is_some_and(|program| READERS.contains(&program))
}

fn program_of(command: &[String]) -> Option<&str> {
    command.first().map(|program| program.trim_start_matches(ELSEWHERE))
}

/// Returns the part of a word that follows a variable which may stand for a folder of the project: one of the known
/// variables, or one that the command line sets, whose name then occurs as a word.
fn after_variable<'a>(word: &'a str, words: &[&str]) -> Option<&'a str> {
    let (name, end) = if let Some((expression, end)) = word.rsplit_once('}') {
        let is_known = PROJECT_NAMES.iter().any(|name| expression.contains(*name));
        match expression.strip_prefix("${") {
            Some(name) if !is_known => (name, end),
            // The rest of an expression that was split.
            _ => return Some(end),
        }
    } else {
        let named = word.strip_prefix('$')?;
        let end =
            named.trim_start_matches(|char: char| char.is_ascii_alphanumeric() || char == '_');
        (&named[..named.len() - end.len()], end)
    };
    words.iter().any(|word| word.trim_start_matches(ELSEWHERE) == name).then_some(end)
}

/// Removes the mark from an absolute path. Other words are returned unchanged.
fn unmarked(word: &str) -> &str {
    word.strip_prefix(ELSEWHERE).filter(|path| path.starts_with('/')).unwrap_or(word)
}

/// Returns the folder of the project and all folders in it that the words name, one below another. A command line may
/// change to such a folder before it runs a file.
fn folders_meant(words: &[&str], project: &Path) -> Vec<PathBuf> {
    let mut folders = vec![project.to_path_buf()];
    let mut next = 0;
    while next < folders.len() && folders.len() < MAX_FOLDERS {
        let from = folders[next].clone();
        let paths = words.iter().map(|word| from.join(unmarked(word)));
        for folder in paths.filter_map(|path| folder_below(&path, project)) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        next += 1;
    }
    folders
}

/// Returns the paths that a word may stand for, relative to a folder.
fn files_meant(folder: &Path, word: &str) -> Vec<PathBuf> {
    // A slash at the beginning also follows a command substitution, as in `$(pwd)/a.sh`.
    let is_path = word.contains(['/', '.']);
    let word = word.trim_start_matches('/');
    let mut paths = vec![folder.join(word)];
    if is_path {
        for stem in [word.to_owned(), word.replace('.', "/")] {
            paths.extend(LEFT_OUT.map(|end| folder.join(format!("{stem}{end}"))));
        }
    }
    paths
}

fn with_project(text: &str, project: &Path) -> String {
    let folder = project.to_string_lossy();
    PROJECT_VARIABLES.iter().fold(text.to_owned(), |text, name| text.replace(name, &folder))
}

/// Splits a command line into commands, each a list of words without quotes and without the targets of redirections.
/// A word that may be a command line for another shell is split as well. On Windows a backslash is part of a path. At
/// depth 0, which is the line itself, programs that the shell looks up in `PATH`, absolute paths and paths below the
/// home folder are marked with `ELSEWHERE`.
fn split_line(line: &str, depth: usize, commands: &mut Vec<Vec<String>>) {
    let mut quote = None;
    let mut is_written = false;
    let mut word = String::new();
    let mut command: Vec<String> = Vec::new();
    let mut nested = Vec::new();
    let mut last_end = ';';
    let mut chars = line.chars().chain(['\n']);
    while let Some(char) = chars.next() {
        if char == '\\' && cfg!(unix) && quote != Some('\'') {
            word.extend(chars.next().filter(|escaped| *escaped != '\n'));
            continue;
        }
        if quote == Some(char) {
            quote = None;
            continue;
        }
        let is_command_end = COMMAND_ENDS.contains(char);
        if quote.is_some() || !is_command_end && !WORD_ENDS.contains(char) {
            match (quote, char) {
                (None, '"' | '\'') => {
                    // `$'…'` and `$"…"` are quotes as well.
                    word.truncate(word.trim_end_matches('$').len());
                    quote = Some(char);
                }
                (None, '~') if cfg!(unix) && depth == 0 && word.is_empty() => {
                    word.push(ELSEWHERE);
                }
                _ => word.push(char),
            }
            continue;
        }
        let mut done = std::mem::take(&mut word);
        let is_list = char == '(' && last_end == '=' && done.is_empty();
        if !done.is_empty() && !std::mem::take(&mut is_written) {
            if depth < MAX_NESTING && done.contains([' ', ';', '|', '&', '\n', '(', '`']) {
                nested.push(done.clone());
            }
            let is_program = command.is_empty() && "|&;\n(".contains(last_end);
            let is_absolute = done.starts_with('/') && !")`".contains(last_end);
            if cfg!(unix) && depth == 0 && (is_absolute || is_program && !done.contains('/')) {
                done.insert(0, ELSEWHERE);
            }
            command.push(done);
        }
        if !matches!(char, ' ' | '\t') && !is_list {
            last_end = char;
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
            ("hooks/cat hooks/a.sh", vec!["hooks/cat", "hooks/a.sh"]),
            ("python3 -m hooks.b", vec!["hooks/b.py"]),
            ("node hooks/my", vec!["hooks/my/index.js"]),
            ("cat hooks/a.sh | sh", vec!["hooks/a.sh"]),
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
            ("$OTHER/hooks/a.sh ${HOME}/hooks/a.sh", vec![]),
            ("hooks/b.py >hooks/a.sh | tee -a hooks/a.sh", vec!["hooks/b.py"]),
            ("hooks missing.sh /etc/hosts", vec![]),
        ] {
            let found = named_scripts(&[line.to_owned()], &project);
            let names: Vec<_> = found.iter().map(|script| script.name.as_str()).collect();
            assert_eq!(names, expected, "{line}");
            assert!(found.iter().all(|script| script.sha256.is_some()), "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_project_cannot_name_its_files_like_what_a_hook_runs_elsewhere() {
        let base = tempfile::tempdir().unwrap();
        let outside = real_path(base.path()).unwrap().join("guard.py");
        let project = outside.with_file_name("project");
        let shadow = project.join(outside.strip_prefix("/").unwrap());
        let inside = ["~/guard.py", "python3", "lib/index.js"].map(|name| project.join(name));
        for file in [outside.clone(), shadow].iter().chain(&inside) {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let named = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            named_scripts(&words, &project).len()
        };
        let guard = outside.to_string_lossy();
        let substituted = format!("f=$(python3 {guard})");
        for line in [substituted.as_str(), "python3 . | python3 ~/guard.py", "~/guard.py"] {
            assert_eq!(named(&[line]), 0, "{line}");
        }
        for words in [
            &["./python3"][..],
            &["sh python3"],
            &["sh", "~/guard.py"],
            &["$(<python3)"],
            &["X=(python3)"],
            &["sh `true` python3"],
            &["node $PWD/lib"],
        ] {
            assert_eq!(named(words), 1, "{words:?}");
        }
    }

    #[test]
    fn another_content_is_another_script() {
        let base = tempfile::tempdir().unwrap();
        let project = real_path(base.path()).unwrap();
        let words = ["./a.sh".to_owned()];
        fs::write(project.join("a.sh"), "one").unwrap();
        let before = named_scripts(&words, &project);
        assert_eq!(named_scripts(&words, &project), before);
        fs::write(project.join("a.sh"), "two").unwrap();
        assert_ne!(named_scripts(&words, &project), before);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_out_of_the_project_is_known_by_its_target() {
        use std::os::unix::fs::symlink;
        let base = tempfile::tempdir().unwrap();
        let project = real_path(base.path()).unwrap().join("project");
        fs::create_dir(&project).unwrap();
        let words = ["./python -V".to_owned()];
        let mut seen = Vec::new();
        for target in ["one", "two"] {
            fs::write(base.path().join(target), "same").unwrap();
            fs::remove_file(project.join("python")).ok();
            symlink(base.path().join(target), project.join("python")).unwrap();
            seen.extend(named_scripts(&words, &project));
        }
        assert_eq!(seen.len(), 2);
        assert!(seen.iter().all(|script| script.name == "python" && script.sha256.is_some()));
        assert_ne!(seen[0], seen[1]);
    }
}
