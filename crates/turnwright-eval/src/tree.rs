//! The files that a trial starts from. A repository for each task holds the start and what came before it, and nothing
//! after it. Each trial has a clone without a remote. No git runs in a tree after the agent was there: it could have
//! changed the settings and hooks of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use crate::EvalError;
use crate::copies::{copy_all, copy_into, files_below, remove};
use crate::task::{CHECK_FILES, START_PATCH, Task};
use crate::workplace::Workplace;
use turnwright_types::private_file;
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
    ) -> Result<Start<'a>, EvalError> {
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
            Some(commit) => take_commit(task, commit, &new, workplace).await?,
            None => commit_files(&task.start_files(), &new, workplace).await?,
        }
        fs::rename(new.join(".git"), &start.repository)?;
        remove(&new)?;
        Ok(start)
    }

    /// The folder in which the starts of all tasks have their folder: that of the results in a run.
    pub(crate) fn results(&self) -> Option<&Path> {
        self.repository.ancestors().nth(2)
    }

    /// Makes the tree as it is before the work. The patch of the solution is applied if it is given.
    pub(crate) async fn make_tree(
        &self,
        tree: &Path,
        solution: Option<&Path>,
    ) -> Result<(), EvalError> {
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
            apply_patch(patch, tree, workplace).await?;
        }
        Ok(())
    }

    /// Puts back what the check relies on: the files of `restore` as they were at the start, and those that are there
    /// only for the check. `spare` is a place for another tree.
    pub(crate) async fn put_back(&self, tree: &Path, spare: &Path) -> Result<(), EvalError> {
        let restored = &self.task.restored;
        if !restored.is_empty() {
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

/// Applies a patch of `git diff` to the files of a tree. An empty one changes nothing.
pub(crate) async fn apply_patch(
    patch: &Path,
    tree: &Path,
    workplace: &Workplace,
) -> Result<(), EvalError> {
    if fs::metadata(patch)?.len() == 0 {
        return Ok(());
    }
    workplace.git(tree, &["apply", "--whitespace=nowarn"], &[patch]).await?;
    Ok(())
}

/// Copies a commit with its history into the repository of a tree.
async fn take_commit(
    task: &Task,
    commit: &str,
    tree: &Path,
    workplace: &Workplace,
) -> Result<(), EvalError> {
    let repository = tree.join(".git");
    let id = resolve_commit(commit, workplace).await?.ok_or_else(|| {
        EvalError::unusable(format!(
            "Commit {commit} of {} is gone from this repository. Fetch it, or make the task again.",
            task.name
        ))
    })?;
    let objects = git_place("objects", workplace).await?;
    let alternates = repository.join("objects/info/alternates");
    private_file::write(&alternates, format!("{objects}\n").as_bytes())?;
    let shallow = PathBuf::from(git_place("shallow", workplace).await?);
    if shallow.is_file() {
        fs::copy(shallow, repository.join("shallow"))?;
    }
    let branch = format!("refs/heads/{BRANCH}");
    workplace.git(tree, &["update-ref", &branch, &id], &[]).await?;
    // Packs all that the commit needs, and nothing else.
    workplace.git(tree, &["repack", "-a", "-d", "--quiet"], &[]).await?;
    Ok(remove(&alternates)?)
}

/// The full id of a commit of the project; `None` if there is no such commit.
pub(crate) async fn resolve_commit(
    commit: &str,
    workplace: &Workplace,
) -> Result<Option<String>, EvalError> {
    // Outside of a repository this fails with git's own words, and not with "no such commit".
    git_place("objects", workplace).await?;
    let wanted = format!("{commit}^{{commit}}");
    let words = ["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted];
    match workplace.git(&workplace.project, &words, &[]).await {
        Ok(id) => Ok(Some(id.trim().to_owned())),
        Err(EvalError::Unusable(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A place in the repository of the project.
async fn git_place(name: &str, workplace: &Workplace) -> Result<String, EvalError> {
    let words = ["rev-parse", "--path-format=absolute", "--git-path", name];
    let path = workplace.git(&workplace.project, &words, &[]).await?;
    Ok(path.trim_end_matches(['\n', '\r']).to_owned())
}

/// Makes the files of a folder the only commit of the repository of a tree.
async fn commit_files(files: &Path, tree: &Path, workplace: &Workplace) -> Result<(), EvalError> {
    copy_all(files, tree)?;
    workplace.git(tree, &["add", "--all", "--force", "."], &[]).await?;
    commit_start(tree, workplace).await
}

/// Commits what is staged in a tree.
pub(crate) async fn commit_start(tree: &Path, workplace: &Workplace) -> Result<(), EvalError> {
    let words = ["commit", "--quiet", "--allow-empty", "--no-verify", "--message", "Start"];
    workplace.git(tree, &words, &[]).await?;
    Ok(())
}
