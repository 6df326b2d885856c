//! A task: the folder that it is, its definition, and what is wrong with one.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Deserialize;

use crate::copies::files_below;
use crate::{EvalError, EvalResult};
use turnwright_config::read_toml;
use turnwright_types::error_text::{as_sentence, io_error_text};
use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file;
use turnwright_types::text::{first_line, join_first};
use turnwright_types::timestamp::parse_time_span;

/// The name of the definition in a task's folder.
pub(crate) const DEFINITION: &str = "task.toml";
/// The change that solves the task.
pub(crate) const SOLUTION: &str = "solution.patch";
/// The folder with files that are only there for the check.
pub(crate) const CHECK_FILES: &str = "check";
pub(crate) const PROMPT: &str = "prompt.md";
/// A change of the start that is not committed.
pub(crate) const START_PATCH: &str = "start.patch";
/// The folder with the start of a task without a commit.
pub(crate) const START_FILES: &str = "files";
const MAX_TEXT_BYTES: u64 = 256 * 1024;
const MAX_NAME_BYTES: usize = 80;
/// A message names at most this many tasks.
const MAX_NAMED: usize = 10;

/// A task that was read.
#[derive(Debug)]
pub struct Task {
    pub name: String,
    pub folder: PathBuf,
    pub prompt: String,
    pub(crate) definition: TaskFile,
    /// The longest time of a trial.
    pub(crate) time: Duration,
    /// The files that are put back before the check.
    pub(crate) restored: GlobSet,
    /// The hash of all that the folder holds.
    pub hash: String,
}

/// `task.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TaskFile {
    pub(crate) start: StartSection,
    pub(crate) check: CheckSection,
    pub(crate) limits: LimitSection,
}

/// `[start]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StartSection {
    pub(crate) commit: Option<String>,
}

/// `[check]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CheckSection {
    pub(crate) command: String,
    /// Seconds.
    timeout: Option<NonZeroU32>,
    restore: Vec<String>,
}

/// `[limits]`, of one trial.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSection {
    time: Option<String>,
    pub(crate) requests: Option<NonZeroU32>,
}

impl TaskFile {
    /// The longest time of the check.
    pub(crate) fn check_seconds(&self) -> u64 {
        self.check.timeout.map_or(120, |seconds| seconds.get().into())
    }
}

impl Task {
    /// Reads the task of a folder.
    pub fn read(folder: &Path) -> EvalResult<Task> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        read_task(&name, folder).map_err(|why| {
            EvalError::Unusable(as_sentence(format!("Task {name} is damaged: {why}")))
        })
    }

    /// The path of a patch of the task, if it has it.
    pub(crate) fn patch(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.join(name)).filter(|path| path.is_file())
    }
}

/// Reads the tasks of a folder that have these names, or all. They are in the order of their names.
pub fn read_tasks(place: &Path, names: &[String]) -> EvalResult<Vec<Task>> {
    let known = task_names(place);
    if known.is_empty() {
        return Err(EvalError::Unusable(format!(
            "{} has no tasks. Make one with `turnwright eval new NAME`, or name another folder with --tasks.",
            place.display()
        )));
    }
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let text = format!("There is no task {unknown} in {}, but ", place.display());
        return Err(EvalError::Unusable(text + &join_first(&known, MAX_NAMED) + "."));
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
    let text = read_part(folder, DEFINITION)?;
    let definition: TaskFile = read_toml(&text).map_err(|(line, message)| {
        format!("{DEFINITION} line {line}: {}", first_line(message.trim()))
    })?;
    let time = match definition.limits.time.as_deref() {
        Some(time) => parse_time_span(time)
            .ok_or_else(|| format!("limits.time is {time:?}, expected a time such as 10m"))?,
        None => Duration::from_secs(10 * 60),
    };
    check_values(&definition, folder)?;
    let restored = glob_set(&definition.check.restore)?;
    let prompt = read_part(folder, PROMPT)?.trim().to_owned();
    if prompt.is_empty() {
        return Err(format!("{PROMPT} is empty"));
    }
    let hash = hash_folder(folder)
        .map_err(|error| format!("its files cannot be read: {}", io_error_text(&error)))?;
    let folder = folder.to_path_buf();
    Ok(Task { name: name.to_owned(), folder, prompt, definition, time, restored, hash })
}

fn read_part(folder: &Path, name: &str) -> Result<String, String> {
    private_file::read(&folder.join(name), MAX_TEXT_BYTES)
        .map_err(|error| format!("{name} cannot be read: {}", io_error_text(&error)))
}

fn check_values(definition: &TaskFile, folder: &Path) -> Result<(), String> {
    let TaskFile { start, check, .. } = definition;
    if check.command.trim().is_empty() {
        return Err("check.command is empty".to_owned());
    }
    let parts = [SOLUTION, START_PATCH, CHECK_FILES, START_FILES, PROMPT];
    if let Some(name) = parts.into_iter().find(|name| leads_out(name, folder)) {
        return Err(format!("{name:?} is not in its folder"));
    }
    if start.commit.is_none() && !folder.join(START_FILES).is_dir() {
        return Err(format!("it has neither start.commit nor a folder {START_FILES:?}"));
    }
    Ok(())
}

/// Returns true if a part of the folder is a link to elsewhere: the task may be a stranger's, and the agent is shown
/// the files.
fn leads_out(name: &str, folder: &Path) -> bool {
    let [top, found] = [folder.canonicalize(), folder.join(name).canonicalize()];
    found.is_ok_and(|found| !top.is_ok_and(|top| found.starts_with(top)))
}

fn glob_set(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|error| format!("check.restore: {error}"))?);
    }
    set.build().map_err(|error| format!("check.restore: {error}"))
}

/// The hash of the names and contents of all files in a folder.
fn hash_folder(folder: &Path) -> std::io::Result<String> {
    let mut listing = String::new();
    for path in files_below(folder)? {
        let place = folder.join(&path);
        let content = if place.is_symlink() {
            fs::read_link(place)?.into_os_string().into_encoded_bytes()
        } else {
            fs::read(place)?
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
        assert_eq!(task.prompt, "Mend it.");
        assert_eq!(task.time, Duration::from_secs(600));
        assert_eq!(task.definition.check_seconds(), 120);
    }

    #[test]
    fn a_damaged_definition_is_met_with_its_line_and_what_was_meant() {
        for (definition, expected) in [
            (
                "\n\n[check]\ncomand = \"x\"\n",
                "line 4: unknown field `comand`, expected one of `command`, `timeout`, `restore`.",
            ),
            ("[chek]\ncommand = \"x\"\n", "line 1: unknown field `chek`, expected one of "),
            ("[check]\ncommand = 3\n", "line 2: invalid type"),
            ("= 1\n", "task.toml line 1: "),
            ("[start]\ncommit = \"x\"\n", "check.command is empty"),
            ("[check]\ncommand = \" \"\n", "check.command is empty"),
            ("[check]\ncommand = \"x\"\ntimeout = 0\n", "line 3: invalid value"),
            ("[check]\ncommand = \"x\"\n[run]\nmode = \"full\"\n", "unknown field `run`"),
            ("[check]\ncommand = \"x\"\n[limits]\ntime = \"soon\"\n", "limits.time is \"soon\""),
            ("[check]\ncommand = \"x\"\n[limits]\nrequests = -1\n", "line 4: invalid value"),
            ("[check]\ncommand = \"x\"\nrestore = [\"{a\"]\n", "check.restore: "),
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
        fs::write(folder.join(DEFINITION), "[check]\ncommand = 'x'\n").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.join(START_FILES)).unwrap();
        let text = Task::read(&folder).unwrap_err().to_string();
        assert_eq!(text, "Task name is damaged: \"files\" is not in its folder.");
    }

    #[test]
    fn a_task_needs_a_start_and_a_prompt() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("name");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(DEFINITION), "[check]\ncommand = 'x'\n").unwrap();
        let why = || Task::read(&folder).unwrap_err().to_string();
        assert!(why().ends_with("has neither start.commit nor a folder \"files\"."), "{}", why());
        fs::create_dir(folder.join(START_FILES)).unwrap();
        assert!(why().contains("prompt.md cannot be read: "), "{}", why());
        fs::write(folder.join(PROMPT), " \n").unwrap();
        assert!(why().ends_with("prompt.md is empty."), "{}", why());
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
    fn tasks_are_found_by_name_and_a_wrong_name_is_met_with_the_right_ones() {
        let place = tempfile::tempdir().unwrap();
        for name in ["fix-two", "fix-one", ".results"] {
            let folder = place.path().join(name);
            fs::create_dir_all(folder.join("files")).unwrap();
            fs::write(folder.join(PROMPT), "x").unwrap();
            fs::write(folder.join(DEFINITION), "[check]\ncommand = 'x'\n").unwrap();
        }
        let all = read_tasks(place.path(), &[]).unwrap();
        assert_eq!(all.iter().map(|task| &*task.name).collect::<Vec<_>>(), ["fix-one", "fix-two"]);
        let error = read_tasks(place.path(), &["fix-tow".to_owned()]).unwrap_err().to_string();
        assert!(error.ends_with(", but fix-one, fix-two."), "{error}");
        let error = read_tasks(&place.path().join("none"), &[]).unwrap_err().to_string();
        assert!(error.contains("has no tasks"), "{error}");
    }
}
