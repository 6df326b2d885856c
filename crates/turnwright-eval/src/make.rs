//! Makes a task from a commit or from a session, and makes sure that its check proves something: it must fail at the
//! start and pass with the solution, each time that it is run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::copies::{copy_all, remove, write_into};
use crate::home::TrialHome;
use crate::task::{CHECK_FILES, DEFINITION, PROMPT, SOLUTION, START_PATCH, Task, is_task_name};
use crate::tree::{Start, commit_all, resolve_commit};
use crate::trial::judge;
use crate::workplace::{Workplace, repository_top};
use crate::{EvalError, EvalResult};
use turnwright_config::string_text;
use turnwright_store::file_versions::{file_versions, undoable_turns};
use turnwright_store::start_state::{StartState, first_prompt, start_state};
use turnwright_store::{Store, read};
use turnwright_types::effect::is_secret_path;
use turnwright_types::error_text::as_sentence;
use turnwright_types::file_change::FileState;
use turnwright_types::hash::sha256_hex;
use turnwright_types::ids::SessionId;
use turnwright_types::{private_file, redact};
use turnwright_workspace::temp_folder::PrivateTempFolder;

const CHECK_TEMPLATE: &str = "\
#!/bin/sh
# Ends with 0 if the task is done. It runs in the tree, after the agent.
echo 'This check is not written yet.'
exit 1
";
const PROMPT_TEMPLATE: &str = "Describe here what is to be done.";

/// Where a task comes from.
#[derive(Debug)]
pub enum TaskSource {
    Commit(String),
    Session(Store, SessionId),
}

/// The parts of a session that a task is made of.
struct SessionFacts {
    start: StartState,
    prompt: String,
    /// The last state of each file that it has changed.
    changed: BTreeMap<PathBuf, FileState>,
    cwd: PathBuf,
}

/// Makes a task in the folder of all tasks, from HEAD if there is no source, and saves it if its check proves
/// something. With neither check nor source, a task that exists is checked again. Returns sentences for the user.
pub async fn make(
    name: &str,
    tasks: &Path,
    check: Option<&str>,
    source: Option<TaskSource>,
    workplace: &Workplace,
) -> EvalResult<Vec<String>> {
    let target = tasks.join(name);
    let place = target.display();
    if !is_task_name(name) {
        let text = format!("{name} is no name for a task: use letters, digits, `-`, `_` and `.`.");
        return Err(EvalError::Unusable(text));
    }
    let temporary = PrivateTempFolder::create()?;
    let spare = temporary.path();
    let starts = spare.join("starts");
    if target.exists() {
        if check.is_some() || source.is_some() {
            let text = format!("{place} exists already. Choose another name.");
            return Err(EvalError::Unusable(text));
        }
        return Ok(vec![check_task(&Task::read(&target)?, &starts, workplace).await?]);
    }
    let draft = spare.join("task").join(name);
    fs::create_dir_all(&draft)?;
    let mut told = vec![format!("Made {place}.")];
    match source.unwrap_or_else(|| TaskSource::Commit("HEAD".to_owned())) {
        TaskSource::Commit(commit) => {
            let id = resolve_commit(&commit, workplace).await?;
            write_definition(&draft, &id, check, PROMPT_TEMPLATE)?;
            told.push(format!("Write the prompt into {place}/{PROMPT}."));
        }
        TaskSource::Session(store, id) => {
            let facts = session_facts(&store, &id)?;
            write_definition(&draft, &facts.start.commit, check, &facts.prompt)?;
            let why = add_work_of_session(&store, &facts, &draft, spare, workplace).await?;
            told.extend(why.map(|why| format!("There is no solution: {why}.")));
        }
    }
    if check.is_some() {
        told.push(check_task(&Task::read(&draft)?, &starts, workplace).await?);
    } else {
        told.push(format!(
            "The check is not written yet: write {place}/{CHECK_FILES}/check.sh, then run `turnwright eval new {name}` \
             again."
        ));
    }
    fs::create_dir_all(&target)?;
    if let Err(error) = copy_all(&draft, &target) {
        remove(&target)?;
        return Err(error.into());
    }
    Ok(told)
}

/// Runs the check of a task twice at the start and twice with the solution. Returns a sentence for the user.
///
/// # Errors
/// If the check proves nothing.
async fn check_task(task: &Task, starts: &Path, workplace: &Workplace) -> EvalResult<String> {
    let start = Start::prepare(task, starts, workplace).await?;
    let name = &task.name;
    let Some(why) = answer_of_check(&start, None).await? else {
        return Err(EvalError::Unusable(format!(
            "The check of {name} passes at the start, so it proves nothing. Make it fail without the solution."
        )));
    };
    let Some(solution) = task.patch(SOLUTION) else {
        // The check may not end, or need what is not there.
        return Ok(as_sentence(format!(
            "{name} has no {SOLUTION}, so it is not known if the check can pass. At the start it gives: {why}"
        )));
    };
    if let Some(why) = answer_of_check(&start, Some(solution.as_path())).await? {
        return Err(EvalError::Unusable(format!(
            "The check of {name} fails with the solution, so nothing can pass it: {why}. It has the network only if \
             sandbox.network is \"on\"."
        )));
    }
    Ok(format!("The check of {name} fails at the start and passes with the solution."))
}

/// Runs the check twice, each time in a fresh tree. Returns why it fails, or `None` if it passes.
async fn answer_of_check(start: &Start<'_>, solution: Option<&Path>) -> EvalResult<Option<String>> {
    let name = &start.task.name;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let home = TrialHome::create(start)?;
        start.make_tree(&home.tree(), solution).await?;
        answers.push(judge(start, &home).await?);
    }
    if answers[0].is_none() != answers[1].is_none() {
        let said: Vec<_> = answers.iter().map(|why| why.as_deref().unwrap_or("exit 0")).collect();
        return Err(EvalError::Unusable(format!(
            "The check of {name} gave two answers for the same files (run 1: {}, run 2: {}). It is flaky; nothing \
             was saved.",
            said[0], said[1]
        )));
    }
    Ok(answers.swap_remove(0))
}

/// Writes the definition, the prompt, and the check if it has to be written by hand.
fn write_definition(
    draft: &Path,
    commit: &str,
    check: Option<&str>,
    prompt: &str,
) -> EvalResult<()> {
    // The task may be shared.
    let text = format!("{}\n", redact::text(prompt.trim()));
    private_file::write(&draft.join(PROMPT), text.as_bytes())?;
    if check.is_none() {
        private_file::write(&draft.join(CHECK_FILES).join("check.sh"), CHECK_TEMPLATE.as_bytes())?;
    }
    let definition = format!(
        "[start]\ncommit = {}\n\n[check]\ncommand = {}\nrestore = []\n",
        string_text(commit),
        string_text(check.unwrap_or("sh check.sh"))
    );
    Ok(private_file::write(&draft.join(DEFINITION), definition.as_bytes())?)
}

/// Adds what a session began with to a task that has only its commit, and what it changed as the solution. `spare` is a
/// folder for other files. Returns why there is no solution.
async fn add_work_of_session(
    store: &Store,
    facts: &SessionFacts,
    draft: &Path,
    spare: &Path,
    workplace: &Workplace,
) -> EvalResult<Option<String>> {
    if !facts.start.changes.is_empty() {
        private_file::write(&draft.join(START_PATCH), facts.start.changes.as_bytes())?;
    }
    let task = Task::read(draft)?;
    let start = Start::prepare(&task, &spare.join("starts"), workplace).await?;
    let tree = spare.join("tree");
    start.make_tree(&tree, None).await?;
    commit_all(&tree, workplace).await?;
    if let Some(path) = apply_changes(store, facts, &tree)? {
        let why = format!("the session's last content of {} is not known", path.display());
        return Ok(Some(why));
    }
    workplace.git(&tree, &["add", "--all", "."], &[]).await?;
    let solution = draft.join(SOLUTION);
    let words = ["diff", "--cached", "--binary", "--no-ext-diff", "--no-textconv", "--output"];
    workplace.git(&tree, &words, &[&solution]).await?;
    if fs::metadata(&solution)?.len() > 0 {
        return Ok(None);
    }
    remove(&solution)?;
    Ok(Some("the session has changed nothing in the repository".to_owned()))
}

/// Changes the files of a tree as the session has. Returns the first file of which the last state is not known.
fn apply_changes(store: &Store, facts: &SessionFacts, tree: &Path) -> EvalResult<Option<PathBuf>> {
    let real = facts.cwd.canonicalize().ok();
    let folders = [Some(facts.cwd.clone()), real].into_iter().flatten();
    let tops: Vec<_> = folders.filter_map(|folder| repository_top(&folder)).collect();
    for (path, state) in &facts.changed {
        let Some(relative) = tops.iter().find_map(|top| path.strip_prefix(top).ok()) else {
            continue;
        };
        match state {
            FileState::Absent => remove(&tree.join(relative))?,
            FileState::File { hash, mode, .. } => {
                let stored = store.read_blocking(|connection| read::blob_by_hash(connection, hash));
                let bytes = match stored? {
                    // The task may be shared.
                    None if !is_secret_path(path) => {
                        fs::read(path).ok().filter(|bytes| sha256_hex(bytes) == *hash)
                    }
                    stored => stored,
                };
                let Some(bytes) = bytes else { return Ok(Some(relative.to_path_buf())) };
                write_into(tree, relative, &bytes, *mode)?;
            }
            FileState::Link { .. } | FileState::Folder { .. } | FileState::Unknown { .. } => {}
        }
    }
    Ok(None)
}

fn session_facts(store: &Store, id: &SessionId) -> EvalResult<SessionFacts> {
    let facts = store.read_blocking(|connection| {
        let key = read::session_key(connection, id)?;
        let turns: Vec<_> =
            undoable_turns(connection, key)?.iter().map(|turn| turn.number).collect();
        let changes = file_versions(connection, key, &turns)?.into_iter();
        Ok(SessionFacts {
            start: start_state(connection, key)?.unwrap_or_default(),
            prompt: first_prompt(connection, key)?.unwrap_or_default(),
            changed: changes.filter_map(|change| Some((change.path, change.after?))).collect(),
            cwd: read::session(connection, id)?.cwd,
        })
    })?;
    if let Some(why) = &facts.start.incomplete {
        return Err(EvalError::Unusable(format!(
            "The start of this session is not complete: {why}. Give --commit."
        )));
    }
    if facts.start.commit.is_empty() {
        return Err(EvalError::Unusable(format!(
            "This session has no start state: it was not in a git repository, changed nothing, or was made by a \
             version before {}. Give --commit.",
            env!("CARGO_PKG_VERSION")
        )));
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_can_be_read_whatever_the_words_are() {
        let place = tempfile::tempdir().unwrap();
        let draft = place.path().join("a");
        let prompt = "say \"hi\"\nand \\ more 'x'";
        write_definition(&draft, "4f2c", Some("grep -q \"x\" 'y'"), prompt).unwrap();
        let task = Task::read(&draft).unwrap();
        assert_eq!(task.prompt, prompt);
        assert_eq!(task.definition.check.command, "grep -q \"x\" 'y'");
        assert_eq!(task.definition.start.commit.as_deref(), Some("4f2c"));
    }

    #[test]
    fn without_a_check_there_is_one_to_be_written() {
        let place = tempfile::tempdir().unwrap();
        let draft = place.path().join("a");
        write_definition(&draft, "4f2c", None, "x").unwrap();
        assert_eq!(Task::read(&draft).unwrap().definition.check.command, "sh check.sh");
        assert!(draft.join("check/check.sh").is_file());
    }

    #[test]
    fn the_prompt_of_a_session_is_written_without_keys() {
        let place = tempfile::tempdir().unwrap();
        let key = "sk-made-0123456789abcdef0123";
        redact::register_keys([key.to_owned()]).unwrap();
        write_definition(place.path(), "4f2c", None, &format!("Use {key} here")).unwrap();
        let written = fs::read_to_string(place.path().join(PROMPT)).unwrap();
        assert!(written.starts_with("Use [hidden:") && !written.contains(key), "{written}");
    }
}
