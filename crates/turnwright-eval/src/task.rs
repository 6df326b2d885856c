//! A task: the folder that it is, its definition, and what is wrong with one.

use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Deserialize;

use crate::EvalError;
use crate::copies::files_below;
use turnwright_types::error_text::io_error_text;
use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file;
use turnwright_types::timestamp::parse_time_span;

/// The name of the definition in a task's folder.
pub(crate) const DEFINITION: &str = "task.toml";
/// The change that solves the task.
pub(crate) const SOLUTION: &str = "solution.patch";
/// The folder with files that are only there for the check.
pub(crate) const CHECK_FILES: &str = "check";
/// The folder with the start of a task without a commit.
const START_FILES: &str = "files";
const PROMPT_FILE: &str = "prompt.md";
const MAX_DEFINITION_BYTES: u64 = 64 * 1024;
const MAX_PROMPT_BYTES: u64 = 256 * 1024;
const MAX_NAME_BYTES: usize = 80;
/// The modes of a task. A task may come from a stranger, so it cannot turn the sandbox off with `full`.
const MODES: [&str; 4] = ["plan", "ask", "auto-edit", "auto"];
/// The likeness from which on a known word is suggested.
const LIKENESS: f64 = 0.75;

/// A task that was read.
#[derive(Debug)]
pub struct Task {
    pub name: String,
    pub folder: PathBuf,
    /// The prompts, one turn each.
    pub prompts: Vec<String>,
    pub(crate) definition: TaskFile,
    /// The longest time of a trial.
    pub(crate) time: Duration,
    /// The files that are put back before the check.
    pub(crate) restored: GlobSet,
    /// The hash of all that the folder holds.
    pub hash: String,
}

/// `task.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskFile {
    prompt: Option<String>,
    prompts: Option<Vec<String>>,
    prompt_file: Option<String>,
    #[serde(default)]
    pub(crate) start: StartSection,
    pub(crate) check: CheckSection,
    #[serde(default)]
    pub(crate) limits: LimitSection,
    #[serde(default)]
    pub(crate) run: RunSection,
}

/// `[start]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StartSection {
    pub(crate) commit: Option<String>,
    pub(crate) patch: Option<String>,
    files: Option<String>,
    pub(crate) setup: Option<String>,
}

/// `[check]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckSection {
    pub(crate) command: String,
    #[serde(default = "default_timeout")]
    timeout: u64,
    #[serde(default)]
    restore: Vec<String>,
    #[serde(default = "yes")]
    pub(crate) must_fail_before: bool,
}

/// `[limits]`, of one trial.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSection {
    time: Option<String>,
    pub(crate) cost: Option<f64>,
    pub(crate) tokens: Option<u64>,
    pub(crate) requests: Option<u64>,
}

/// `[run]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunSection {
    pub(crate) mode: String,
    pub(crate) network: bool,
}

impl Default for RunSection {
    fn default() -> RunSection {
        RunSection { mode: "auto".to_owned(), network: false }
    }
}

fn default_timeout() -> u64 {
    120
}

fn yes() -> bool {
    true
}

impl CheckSection {
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

impl Task {
    /// Reads the task of a folder.
    pub fn read(folder: &Path) -> Result<Task, EvalError> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        read_task(&name, folder).map_err(|why| {
            let end = if why.ends_with('?') { "" } else { "." };
            EvalError::unusable(format!("Task {name} is damaged: {why}{end}"))
        })
    }

    /// The folder with the files of the start, if it is not a commit.
    pub(crate) fn start_files(&self) -> PathBuf {
        self.folder.join(self.definition.start.files.as_deref().unwrap_or(START_FILES))
    }

    pub(crate) fn start_patch(&self) -> Option<PathBuf> {
        Some(self.folder.join(self.definition.start.patch.as_ref()?))
    }

    pub(crate) fn solution(&self) -> Option<PathBuf> {
        let path = self.folder.join(SOLUTION);
        path.is_file().then_some(path)
    }
}

/// Reads the tasks of a folder that have these names, or all. They are in the order of their names.
pub fn read_tasks(place: &Path, names: &[String]) -> Result<Vec<Task>, EvalError> {
    let known = task_names(place);
    if known.is_empty() {
        return Err(EvalError::unusable(format!(
            "{} has no tasks. Make one with `turnwright eval new NAME`, or name another folder with --tasks.",
            place.display()
        )));
    }
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let advice = suggestion(unknown, known.iter().map(String::as_str));
        let end = if advice.is_empty() { "." } else { &advice };
        let text = format!("There is no task {unknown} in {}{end}", place.display());
        return Err(EvalError::unusable(text));
    }
    let chosen = known.iter().filter(|name| names.is_empty() || names.contains(name));
    chosen.map(|name| Task::read(&place.join(name))).collect()
}

/// The names of the tasks in a folder, sorted.
fn task_names(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().join(DEFINITION).is_file());
    let mut names: Vec<_> =
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// Returns true for a name that is the name of a folder everywhere, and of which no program takes a part for a flag.
pub fn is_task_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(char::is_alphanumeric)
        && !name.ends_with('.')
        && name.chars().all(|letter| letter.is_alphanumeric() || "-_.".contains(letter))
}

fn read_task(name: &str, folder: &Path) -> Result<Task, String> {
    if !is_task_name(name) {
        return Err("its name may have letters, digits, `-`, `_` and `.`".to_owned());
    }
    let text = private_file::read(&folder.join(DEFINITION), MAX_DEFINITION_BYTES)
        .map_err(|error| format!("{DEFINITION} cannot be read: {}", io_error_text(&error)))?;
    let definition: TaskFile = toml_edit::de::from_str(&text)
        .map_err(|error| definition_fault(&text, error.span(), error.message()))?;
    let time = match definition.limits.time.as_deref() {
        Some(time) => parse_time_span(time)
            .ok_or_else(|| format!("limits.time is {time:?}, expected a time such as 10m"))?,
        None => Duration::from_secs(10 * 60),
    };
    check_values(&definition, folder)?;
    let restored = glob_set(&definition.check.restore)?;
    let prompts = read_prompts(&definition, folder)?;
    let hash = hash_folder(folder)
        .map_err(|error| format!("its files cannot be read: {}", io_error_text(&error)))?;
    let folder = folder.to_path_buf();
    Ok(Task { name: name.to_owned(), folder, prompts, definition, time, restored, hash })
}

/// The line of a fault in the definition, and what is wrong there.
fn definition_fault(text: &str, span: Option<Range<usize>>, message: &str) -> String {
    let start = span.map_or(text.len(), |span| span.start);
    let line = text.get(..start).unwrap_or(text).matches('\n').count() + 1;
    let message = message.trim().lines().next().unwrap_or_default();
    let words: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    let what = match words.split_first() {
        Some((unknown, known)) if message.starts_with("unknown field") => {
            format!("unknown key \"{unknown}\"{}", suggestion(unknown, known.iter().copied()))
        }
        _ => message.to_owned(),
    };
    format!("{DEFINITION} line {line}: {}", what.trim_end_matches('.'))
}

/// A question for what may have been meant, or nothing.
fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let rated = known.map(|known| (strsim::jaro_winkler(word, known), known));
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0));
    match best {
        Some((likeness, known)) if likeness > LIKENESS => format!(". Did you mean \"{known}\"?"),
        _ => String::new(),
    }
}

fn check_values(definition: &TaskFile, folder: &Path) -> Result<(), String> {
    let TaskFile { start, check, limits, run, .. } = definition;
    if check.command.trim().is_empty() {
        return Err("check.command is empty".to_owned());
    }
    if !(1..=24 * 60 * 60).contains(&check.timeout) {
        return Err(format!("check.timeout is {}, expected seconds up to a day", check.timeout));
    }
    if !MODES.contains(&run.mode.as_str()) {
        return Err(format!("run.mode is {:?}, expected {}", run.mode, MODES.join(", ")));
    }
    if limits.cost.is_some_and(|cost| !cost.is_finite() || cost <= 0.0)
        || limits.tokens == Some(0)
        || limits.requests == Some(0)
    {
        return Err("the limits must be above 0".to_owned());
    }
    if start.commit.as_deref().is_some_and(|commit| commit.is_empty() || commit.starts_with('-')) {
        return Err("start.commit names no commit".to_owned());
    }
    if start.commit.is_some() && start.files.is_some() {
        return Err("start has both `commit` and `files`".to_owned());
    }
    let named = [&start.patch, &start.files, &definition.prompt_file];
    let fixed = [SOLUTION, CHECK_FILES, START_FILES, PROMPT_FILE];
    for name in named.into_iter().flatten().map(String::as_str).chain(fixed) {
        if !is_inside(name, folder) {
            return Err(format!("{name:?} is not in its folder"));
        }
    }
    let files = start.files.as_deref().unwrap_or(START_FILES);
    if start.commit.is_none() && !folder.join(files).is_dir() {
        return Err(format!("it has neither start.commit nor a folder {files:?}"));
    }
    Ok(())
}

/// Returns true if a name is that of a part of the folder, or of a missing one. No link may lead out of it: the task may
/// be a stranger's, and the agent is shown the files.
fn is_inside(name: &str, folder: &Path) -> bool {
    let mut parts = Path::new(name).components();
    let is_below = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let [top, found] = [folder.canonicalize(), folder.join(name).canonicalize()];
    let leads_out = found.is_ok_and(|found| !top.is_ok_and(|top| found.starts_with(top)));
    !name.is_empty() && is_below && !leads_out
}

fn glob_set(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|error| format!("check.restore: {error}"))?);
    }
    set.build().map_err(|error| format!("check.restore: {error}"))
}

fn read_prompts(definition: &TaskFile, folder: &Path) -> Result<Vec<String>, String> {
    let TaskFile { prompt, prompts, prompt_file, .. } = definition;
    let ways = [prompt.is_some(), prompts.is_some(), prompt_file.is_some()];
    if ways.into_iter().filter(|is_used| *is_used).count() > 1 {
        return Err("it has several of `prompt`, `prompts` and `prompt_file`".to_owned());
    }
    let found = match (prompt, prompts) {
        (Some(prompt), _) => vec![prompt.clone()],
        (None, Some(prompts)) => prompts.clone(),
        (None, None) => {
            let name = prompt_file.as_deref().unwrap_or(PROMPT_FILE);
            let text = private_file::read(&folder.join(name), MAX_PROMPT_BYTES);
            vec![text.map_err(|error| format!("{name} cannot be read: {}", io_error_text(&error)))?]
        }
    };
    if found.is_empty() || found.iter().any(|prompt| prompt.trim().is_empty()) {
        return Err("its prompt is empty".to_owned());
    }
    Ok(found.iter().map(|prompt| prompt.trim().to_owned()).collect())
}

/// The hash of the names and contents of all files in a folder.
fn hash_folder(folder: &Path) -> std::io::Result<String> {
    let mut listing = String::new();
    for path in files_below(folder)? {
        let place = folder.join(&path);
        let content = match fs::symlink_metadata(&place)?.file_type() {
            kind if kind.is_symlink() => {
                fs::read_link(place)?.into_os_string().into_encoded_bytes()
            }
            kind if kind.is_file() => fs::read(place)?,
            // Reading a FIFO could block for ever.
            _ => continue,
        };
        listing.push_str(&format!("{} {}\n", sha256_hex(&content), path.display()));
    }
    Ok(sha256_hex(listing.as_bytes())[..16].to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    /// Reads a task of this definition, with a folder of files and a prompt.
    fn read(definition: &str) -> Result<Task, String> {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("name");
        fs::create_dir_all(folder.join("files")).unwrap();
        fs::write(folder.join("prompt.md"), "\nMend it.\n").unwrap();
        fs::write(folder.join(DEFINITION), definition).unwrap();
        Task::read(&folder).map_err(|error| error.to_string())
    }

    #[test]
    fn a_definition_needs_only_its_check() {
        let task = read("[check]\ncommand = \"true\"\n").unwrap();
        assert_eq!(task.prompts, ["Mend it."]);
        assert_eq!(task.time, Duration::from_secs(600));
        assert_eq!(task.definition.check.time(), Duration::from_secs(120));
        assert_eq!(task.definition.run.mode, "auto");
        assert!(task.definition.check.must_fail_before && !task.definition.run.network);
    }

    #[test]
    fn a_damaged_definition_is_met_with_its_line_and_what_was_meant() {
        for (definition, expected) in [
            (
                "\n\n[check]\ncomand = \"x\"\n",
                "line 4: unknown key \"comand\". Did you mean \"command\"?",
            ),
            ("[chek]\ncommand = \"x\"\n", "line 1: unknown key \"chek\". Did you mean \"check\"?"),
            ("prompt = 3\n[check]\ncommand = \"x\"\n", "line 1: invalid type"),
            ("prompt = \"x\"\n", "missing field `check`"),
            ("[check]\ncommand = \" \"\n", "check.command is empty"),
            ("[check]\ncommand = \"x\"\ntimeout = 0\n", "check.timeout is 0"),
            ("[check]\ncommand = \"x\"\n[run]\nmode = \"bold\"\n", "run.mode is \"bold\""),
            ("[check]\ncommand = \"x\"\n[run]\nmode = \"full\"\n", "run.mode is \"full\""),
            ("[check]\ncommand = \"x\"\n[limits]\ntime = \"soon\"\n", "limits.time is \"soon\""),
            ("[check]\ncommand = \"x\"\n[limits]\ncost = -1.0\n", "must be above 0"),
            ("[check]\ncommand = \"x\"\nrestore = [\"{a\"]\n", "check.restore: "),
            (
                "[check]\ncommand = \"x\"\n[start]\npatch = \"../x\"\n",
                "\"../x\" is not in its folder",
            ),
            ("[check]\ncommand = \"x\"\n[start]\nfiles = \"none\"\n", "nor a folder \"none\""),
            ("[check]\ncommand = \"x\"\n[start]\ncommit = \"--x\"\n", "names no commit"),
            ("prompt = \" \"\n[check]\ncommand = \"x\"\n", "its prompt is empty"),
            ("prompt = \"a\"\nprompts = [\"b\"]\n[check]\ncommand = \"x\"\n", "it has several"),
        ] {
            let text = read(definition).unwrap_err();
            assert!(text.starts_with("Task name is damaged: "), "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_link_leads_the_agent_out_of_the_folder() {
        let [place, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let folder = place.path().join("name");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(DEFINITION), "prompt = 'x'\n[check]\ncommand = 'x'\n").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.join(START_FILES)).unwrap();
        let text = Task::read(&folder).unwrap_err().to_string();
        assert_eq!(text, "Task name is damaged: \"files\" is not in its folder.");
    }

    #[test]
    fn a_name_is_that_of_a_folder_everywhere() {
        for name in ["fix-parser", "zh-修复排序", "a.b_c", "1"] {
            assert!(is_task_name(name), "{name}");
        }
        for name in ["", ".results", "-x", "a/b", "a b", "a.", "a\u{202e}b", &"x".repeat(81)] {
            assert!(!is_task_name(name), "{name}");
        }
    }

    #[test]
    fn the_hash_changes_with_any_file() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("a")).unwrap();
        fs::write(place.path().join("a/b"), "x").unwrap();
        let first = hash_folder(place.path()).unwrap();
        assert_eq!(hash_folder(place.path()).unwrap(), first);
        fs::write(place.path().join("a/b"), "y").unwrap();
        assert_ne!(hash_folder(place.path()).unwrap(), first);
    }

    #[test]
    fn tasks_are_found_by_name_and_a_wrong_name_is_met_with_the_right_one() {
        let place = tempfile::tempdir().unwrap();
        for name in ["fix-two", "fix-one", ".results"] {
            let folder = place.path().join(name);
            fs::create_dir_all(folder.join("files")).unwrap();
            fs::write(folder.join(DEFINITION), "prompt = \"x\"\n[check]\ncommand = \"x\"\n")
                .unwrap();
        }
        let all = read_tasks(place.path(), &[]).unwrap();
        assert_eq!(all.iter().map(|task| &*task.name).collect::<Vec<_>>(), ["fix-one", "fix-two"]);
        let error = read_tasks(place.path(), &["fix-tow".to_owned()]).unwrap_err().to_string();
        assert!(error.ends_with("Did you mean \"fix-two\"?"), "{error}");
        let error = read_tasks(&place.path().join("none"), &[]).unwrap_err().to_string();
        assert!(error.contains("has no tasks"), "{error}");
    }
}
