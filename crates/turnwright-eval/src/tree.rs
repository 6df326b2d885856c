//! The files that a trial starts from. A repository for each task holds the start and what came before it, and nothing
//! after it. Each trial has a clone without a remote. No git runs in a tree after the agent was there: it could have
//! changed the settings and hooks of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use crate::copies::{copy_all, copy_into, files_below, remove};
use crate::task::{CHECK_FILES, START_FILES, START_PATCH, Task};
use crate::workplace::{Workplace, repository_top};
use crate::{EvalError, EvalResult};
use turnwright_workspace::temp_folder::temp_place;

/// The branch of the start.
const BRANCH: &str = "main";

/// The repository with the start of a task, the task, and where it is worked on.
pub(crate) struct Start<'a> {
    pub(crate) task: &'a Task,
    pub(crate) workplace: &'a Workplace,
    pub(crate) repository: PathBuf,
}

impl<'a> Start<'a> {
    /// Makes the repository in `place`, unless it is there.
    pub(crate) async fn prepare(
        task: &'a Task,
        place: &Path,
        workplace: &'a Workplace,
    ) -> EvalResult<Start<'a>> {
        let name = format!("{}-{}", task.name, task.hash);
        let start = Start { task, workplace, repository: place.join(format!("{name}.git")) };
        if start.repository.is_dir() {
            return Ok(start);
        }
        fs::create_dir_all(place)?;
        let new = place.join(format!("{name}.new"));
        remove(&new)?;
        let words = ["init", "--quiet", "--initial-branch", BRANCH];
        workplace.git(place, &words, &[&new]).await?;
        match &task.definition.start.commit {
            Some(commit) => take_commit(commit, &new, workplace).await?,
            None => {
                copy_all(&task.folder.join(START_FILES), &new)?;
                commit_all(&new, workplace).await?;
            }
        }
        fs::rename(new.join(".git"), &start.repository)?;
        remove(&new)?;
        Ok(start)
    }

    /// Makes the tree as it is before the work. The patch of the solution is applied if it is given.
    pub(crate) async fn make_tree(&self, tree: &Path, solution: Option<&Path>) -> EvalResult<()> {
        let workplace = self.workplace;
        // A sandbox hides the temporary files of others.
        let is_hidden = self.repository.starts_with(temp_place());
        let sharing = if is_hidden { "--no-hardlinks" } else { "--shared" };
        let words = ["clone", "--quiet", sharing, "--branch", BRANCH];
        let person = ["--config", "user.name=turnwright", "--config", "user.email=eval@localhost"];
        let above = tree.parent().unwrap_or(tree);
        let all = [&words[..], &person].concat();
        workplace.git(above, &all, &[&self.repository, tree]).await?;
        workplace.git(tree, &["remote", "remove", "origin"], &[]).await?;
        let of_start = self.task.patch(START_PATCH);
        for patch in of_start.as_deref().into_iter().chain(solution) {
            workplace.git(tree, &["apply", "--whitespace=nowarn"], &[patch]).await?;
        }
        Ok(())
    }

    /// Puts back what the check relies on: the files of `restore` as they were at the start, and those that are there
    /// only for the check. Another tree is made beside this one.
    pub(crate) async fn put_back(&self, tree: &Path) -> EvalResult<()> {
        let restored = &self.task.restored;
        if !restored.is_empty() {
            let spare = &tree.with_file_name("before");
            remove(spare)?;
            self.make_tree(spare, None).await?;
            for path in files_below(tree)?.iter().filter(|path| restored.is_match(path)) {
                remove(&tree.join(path))?;
            }
            for path in files_below(spare)?.iter().filter(|path| restored.is_match(path)) {
                copy_into(spare, tree, path)?;
            }
        }
        let own = self.task.folder.join(CHECK_FILES);
        if own.is_dir() {
            copy_all(&own, tree)?;
        }
        Ok(())
    }
}

/// Copies a commit of the project with its history into the repository of a tree, and nothing else.
async fn take_commit(commit: &str, tree: &Path, workplace: &Workplace) -> EvalResult<()> {
    let id = resolve_commit(commit, workplace).await?;
    let project = &workplace.project;
    let from = repository_top(project).unwrap_or_else(|| project.clone());
    let repository = format!("--git-dir={}", tree.join(".git").display());
    let fetch = "fetch --quiet --no-tags --no-recurse-submodules --update-shallow --update-head-ok";
    let wanted = format!("{id}:refs/heads/{BRANCH}");
    let mut words = vec![repository.as_str()];
    words.extend(fetch.split(' '));
    let place = from.to_string_lossy();
    words.extend([&*place, wanted.as_str()]);
    workplace.git(project, &words, &[]).await.map(drop)
}

/// The full id of a commit of the project.
pub(crate) async fn resolve_commit(commit: &str, workplace: &Workplace) -> EvalResult<String> {
    let wanted = format!("{commit}^{{commit}}");
    let words = ["rev-parse", "--verify", "--end-of-options", &wanted];
    match workplace.git(&workplace.project, &words, &[]).await {
        Err(EvalError::Unusable(why)) => Err(EvalError::Unusable(format!(
            "Commit {commit} is not in this repository ({why}). Fetch it, or make the task from another one."
        ))),
        found => Ok(found?.trim().to_owned()),
    }
}

/// Makes the files of a tree a commit.
pub(crate) async fn commit_all(tree: &Path, workplace: &Workplace) -> EvalResult<()> {
    workplace.git(tree, &["add", "--all", "--force", "."], &[]).await?;
    let words = ["commit", "--quiet", "--allow-empty", "--no-verify", "--message", "Start"];
    workplace.git(tree, &words, &[]).await.map(drop)
}
