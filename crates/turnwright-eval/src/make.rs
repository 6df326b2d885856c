//! Makes a task from a commit or from a session, and makes sure that its check proves something: it must fail at the
//! start and pass with the solution, each time that it is run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::Value;

use crate::EvalError;
use crate::copies::{copy_all, remove, write_into};
use crate::home::TrialHome;
use crate::task::{CHECK_FILES, DEFINITION, SOLUTION, Task, is_task_name};
use crate::tree::{Start, apply_patch, commit_start, resolve_commit};
use crate::trial::{LATE_CHECK, judge, set_up};
use crate::workplace::Workplace;
use turnwright_store::file_versions::{file_versions, undoable_turns};
use turnwright_store::start_state::{StartState, prompt_texts, start_state};
use turnwright_store::{Store, read};
use turnwright_types::effect::is_secret_path;
use turnwright_types::file_change::FileState;
use turnwright_types::hash::sha256_hex;
use turnwright_types::ids::SessionId;
use turnwright_types::private_file;
use turnwright_workspace::temp_folder::PrivateTempFolder;

const START_PATCH: &str = "start.patch";
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
const CHECK_TEMPLATE: &str = "\
#!/bin/sh
# Ends with 0 if the task is done. It runs in the tree, after the agent.
echo 'This check is not written yet.'
exit 1
";
const PROMPT_TEMPLATE: &str = "Describe here what is to be done.\n";

/// A task to be made.
#[derive(Debug)]
pub struct NewTask {
    pub name: String,
    /// The folder of all tasks.
    pub place: PathBuf,
    pub check: Option<String>,
    pub source: TaskSource,
}

/// Where a task comes from.
#[derive(Debug)]
pub enum TaskSource {
    Commit(String),
    Session {
        store: Store,
        id: SessionId,
        /// True if the later prompts are kept, too.
        all_prompts: bool,
    },
}

/// The parts of a session that a task is made of.
struct SessionFacts {
    start: StartState,
    prompts: Vec<String>,
    /// The last state of each file that it has changed, with its content if the store has it.
    changed: BTreeMap<PathBuf, (FileState, Option<Vec<u8>>)>,
    cwd: PathBuf,
}

/// Makes a task and saves it if its check proves something. Returns sentences for the user.
pub async fn make(task: NewTask, workplace: &Workplace) -> Result<Vec<String>, EvalError> {
    let NewTask { name, place, check, source } = task;
    if !is_task_name(&name) {
        let text = format!("{name} is no name for a task: use letters, digits, `-`, `_` and `.`.");
        return Err(EvalError::unusable(text));
    }
    let target = place.join(&name);
    if target.exists() {
        let text = format!("{} exists already. Choose another name.", target.display());
        return Err(EvalError::unusable(text));
    }
    let draft = Draft::create(&name)?;
    let note = match source {
        TaskSource::Commit(commit) => {
            let id = resolve_commit(&commit, workplace).await?.ok_or_else(|| {
                EvalError::unusable(format!("There is no commit {commit} in this repository."))
            })?;
            draft.write_definition(&id, check.as_deref(), &[], false)?;
            Some(format!("Write the prompt into {}/prompt.md.", target.display()))
        }
        TaskSource::Session { store, id, all_prompts } => {
            let mut facts = session_facts(&store, &id)?;
            facts.prompts.truncate(if all_prompts { usize::MAX } else { 1 });
            draft.fill_from_session(&facts, check.as_deref(), workplace).await?
        }
    };
    let check_note = if check.is_some() {
        let task = Task::read(&draft.folder)?;
        check_task(&task, &draft.starts(), workplace).await?
    } else {
        Some(format!(
            "The check is not written yet: write {}/check/check.sh, then run `turnwright eval check {name}`.",
            target.display()
        ))
    };
    fs::create_dir_all(&target)?;
    if let Err(error) = copy_all(&draft.folder, &target) {
        remove(&target)?;
        return Err(error.into());
    }
    let made = format!("Made {}.", target.display());
    Ok([Some(made), note, check_note].into_iter().flatten().collect())
}

/// Runs the check of a task twice at the start and twice with the solution. Returns a sentence for the user.
///
/// # Errors
/// If the check proves nothing.
pub async fn check_task(
    task: &Task,
    starts: &Path,
    workplace: &Workplace,
) -> Result<Option<String>, EvalError> {
    let start = Start::prepare(task, starts, workplace).await?;
    let name = &task.name;
    let before = answer_of_check(&start, None).await?;
    if before.is_none() && task.definition.check.must_fail_before {
        return Err(EvalError::unusable(format!(
            "The check of {name} passes at the start, so it proves nothing. Make it fail without the solution, or set \
             check.must_fail_before = false."
        )));
    }
    let Some(solution) = task.solution() else {
        return Ok(Some(format!(
            "{name} has no {SOLUTION}, so it is not known if the check can pass."
        )));
    };
    if let Some(why) = answer_of_check(&start, Some(solution.as_path())).await? {
        return Err(EvalError::unusable(format!(
            "The check of {name} fails with the solution, so nothing can pass it: {why}."
        )));
    }
    Ok(None)
}

/// Runs the check twice, each time in a fresh tree. Returns why it fails, or `None` if it passes.
async fn answer_of_check(
    start: &Start<'_>,
    solution: Option<&Path>,
) -> Result<Option<String>, EvalError> {
    let name = &start.task.name;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let home = TrialHome::create(start.workplace, &start.task.folder)?;
        start.make_tree(&home.tree(), solution).await?;
        if let Some(why) = set_up(start, &home).await? {
            let text = format!("The setup of {name} fails: {why}.");
            return Err(EvalError::unusable(text));
        }
        let answer = judge(start, &home).await?;
        if answer.as_ref().is_some_and(|why| why.starts_with(LATE_CHECK)) {
            let seconds = start.task.definition.check.time().as_secs();
            return Err(EvalError::unusable(format!(
                "The check of {name} did not end within {seconds} s. Raise check.timeout or make it smaller."
            )));
        }
        answers.push(answer);
    }
    if answers[0].is_none() != answers[1].is_none() {
        let said: Vec<_> = answers.iter().map(|why| why.as_deref().unwrap_or("exit 0")).collect();
        return Err(EvalError::unusable(format!(
            "The check of {name} gave two answers for the same files (run 1: {}, run 2: {}). It is flaky; nothing \
             was saved.",
            said[0], said[1]
        )));
    }
    Ok(answers.swap_remove(0))
}

/// A task that is not saved yet, in a temporary folder.
struct Draft {
    temporary: PrivateTempFolder,
    /// The folder of the task.
    folder: PathBuf,
}

impl Draft {
    fn create(name: &str) -> Result<Draft, EvalError> {
        let temporary = PrivateTempFolder::create()?;
        let folder = temporary.path().join("task").join(name);
        fs::create_dir_all(&folder)?;
        Ok(Draft { temporary, folder })
    }

    fn starts(&self) -> PathBuf {
        self.temporary.path().join("starts")
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), EvalError> {
        Ok(private_file::write(&self.folder.join(name), bytes)?)
    }

    /// Writes the definition, the prompt, and the check if it has to be written by hand.
    fn write_definition(
        &self,
        commit: &str,
        check: Option<&str>,
        prompts: &[String],
        has_patch: bool,
    ) -> Result<(), EvalError> {
        let mut text = String::new();
        match prompts {
            [] => self.write("prompt.md", PROMPT_TEMPLATE.as_bytes())?,
            [prompt] => self.write("prompt.md", format!("{}\n", prompt.trim()).as_bytes())?,
            several => {
                let quoted: Vec<_> = several.iter().map(|prompt| quoted(prompt)).collect();
                text.push_str(&format!("prompts = [{}]\n\n", quoted.join(", ")));
            }
        }
        text.push_str(&format!("[start]\ncommit = {}\n", quoted(commit)));
        if has_patch {
            text.push_str(&format!("patch = {}\n", quoted(START_PATCH)));
        }
        let command = check.unwrap_or("sh check.sh");
        text.push_str(&format!(
            "\n[check]\ncommand = {}\n# Globs of files that are put back to what they were before the check runs:\n\
             restore = []\n",
            quoted(command)
        ));
        if check.is_none() {
            self.write(&format!("{CHECK_FILES}/check.sh"), CHECK_TEMPLATE.as_bytes())?;
        }
        self.write(DEFINITION, text.as_bytes())
    }

    /// Writes what a session began with, its prompts, and what it changed as the solution. Returns why there is no
    /// solution.
    async fn fill_from_session(
        &self,
        facts: &SessionFacts,
        check: Option<&str>,
        workplace: &Workplace,
    ) -> Result<Option<String>, EvalError> {
        let StartState { commit, patch, untracked, .. } = &facts.start;
        self.write_definition(commit, check, &facts.prompts, false)?;
        let bare = Task::read(&self.folder)?;
        let start = Start::prepare(&bare, &self.starts(), workplace).await?;
        let tree = self.temporary.path().join("tree");
        start.make_tree(&tree, None).await?;
        let of_session = self.temporary.path().join("session.patch");
        private_file::write(&of_session, patch)?;
        apply_patch(&of_session, &tree, workplace).await?;
        for (path, bytes) in untracked {
            write_into(&tree, Path::new(path), bytes, 0o644)?;
        }
        let has_patch = stage_changes(&tree, &self.folder.join(START_PATCH), workplace).await?;
        self.write_definition(commit, check, &facts.prompts, has_patch)?;
        commit_start(&tree, workplace).await?;
        let missing = apply_changes(facts, &tree)?;
        let solution = self.folder.join(SOLUTION);
        let has_changed = stage_changes(&tree, &solution, workplace).await?;
        let why = if let Some(path) = missing {
            remove(&solution)?;
            format!("the session's last content of {} is not known", path.display())
        } else if has_changed {
            return Ok(None);
        } else {
            "the session has changed nothing in the repository".to_owned()
        };
        Ok(Some(format!("There is no solution: {why}.")))
    }
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Adds all changes of a tree in which no agent was to its index, and writes them to a file. Returns false, and leaves
/// no file, if there are none.
async fn stage_changes(tree: &Path, into: &Path, workplace: &Workplace) -> Result<bool, EvalError> {
    workplace.git(tree, &["add", "--all", "."], &[]).await?;
    let words = ["diff", "--cached", "--binary", "--no-ext-diff", "--no-textconv", "--output"];
    workplace.git(tree, &words, &[into]).await?;
    let has_changes = fs::metadata(into)?.len() > 0;
    if !has_changes {
        remove(into)?;
    }
    Ok(has_changes)
}

/// Changes the files of a tree as the session has. Returns the first file of which the last state is not known.
fn apply_changes(facts: &SessionFacts, tree: &Path) -> Result<Option<PathBuf>, EvalError> {
    let real = facts.cwd.canonicalize().ok();
    let folders = [Some(facts.cwd.clone()), real].into_iter().flatten();
    let tops: Vec<_> = folders.filter_map(|folder| repository_top(&folder)).collect();
    for (path, (state, content)) in &facts.changed {
        let Some(relative) = tops.iter().find_map(|top| path.strip_prefix(top).ok()) else {
            continue;
        };
        match state {
            FileState::Absent => remove(&tree.join(relative))?,
            FileState::File { hash, mode, .. } => {
                let bytes = match content {
                    Some(bytes) => Some(bytes.clone()),
                    // The task may be shared.
                    None if is_secret_path(path) => None,
                    None => fs::read(path).ok().filter(|bytes| sha256_hex(bytes) == *hash),
                };
                let Some(bytes) = bytes else { return Ok(Some(relative.to_path_buf())) };
                write_into(tree, relative, &bytes, *mode)?;
            }
            FileState::Link { .. } | FileState::Folder { .. } | FileState::Unknown { .. } => {}
        }
    }
    Ok(None)
}

/// The top folder of the repository that a folder is in.
fn repository_top(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().find(|above| above.join(".git").exists()).map(Path::to_path_buf)
}

fn session_facts(store: &Store, id: &SessionId) -> Result<SessionFacts, EvalError> {
    let found = store.read_blocking(|connection| {
        let key = read::session_key(connection, id)?;
        let cwd = read::session(connection, id)?.cwd;
        let turns: Vec<_> =
            undoable_turns(connection, key)?.iter().map(|turn| turn.number).collect();
        let mut changed = BTreeMap::new();
        for version in file_versions(connection, key, &turns)? {
            let Some(after) = version.change.after else { continue };
            let content = match &after {
                FileState::File { hash, size, .. } if *size <= MAX_FILE_BYTES => {
                    read::blob_by_hash(connection, hash)?
                }
                _ => None,
            };
            changed.insert(version.change.path, (after, content));
        }
        Ok((start_state(connection, key)?, prompt_texts(connection, key)?, changed, cwd))
    });
    let (start, prompts, changed, cwd) = found?;
    let Some(start) = start else {
        return Err(EvalError::unusable(format!(
            "This session has no start state: it was not in a git repository, changed nothing, or was made by a version \
             before {}. Give --commit.",
            env!("CARGO_PKG_VERSION")
        )));
    };
    if let Some(why) = &start.incomplete {
        let text = format!("The start of this session is not complete: {why}. Give --commit.");
        return Err(EvalError::unusable(text));
    }
    if prompts.is_empty() {
        return Err(EvalError::unusable("This session has no prompt."));
    }
    Ok(SessionFacts { start, prompts, changed, cwd })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_can_be_read_whatever_the_words_are() {
        let draft = Draft::create("a").unwrap();
        let prompts = ["say \"hi\"\nand \\ more".to_owned(), "zwei '''".to_owned()];
        draft.write_definition("4f2c", Some("grep -q \"x\" 'y'"), &prompts, true).unwrap();
        let task = Task::read(&draft.folder).unwrap();
        assert_eq!(task.prompts, prompts);
        assert_eq!(task.definition.check.command, "grep -q \"x\" 'y'");
        assert_eq!(task.definition.start.commit.as_deref(), Some("4f2c"));
        assert_eq!(task.definition.start.patch.as_deref(), Some(START_PATCH));
    }

    #[test]
    fn without_a_check_there_is_one_to_be_written() {
        let draft = Draft::create("a").unwrap();
        draft.write_definition("4f2c", None, &[], false).unwrap();
        assert_eq!(Task::read(&draft.folder).unwrap().definition.check.command, "sh check.sh");
        assert!(draft.folder.join("check/check.sh").is_file());
    }
}
