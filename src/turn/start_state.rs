//! Keeps the state of the project before the session's first change, of which a task for an evaluation can be made. git
//! runs in the sandbox for that, where it can change nothing, and only once in a session.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::spawn_blocking;

use crate::tools::ToolEnv;
use turnwright_sandbox::SandboxProfile;
use turnwright_store::start_state::StartState;
use turnwright_types::effect::is_secret_path;
use turnwright_workspace::exec::{Environment, PipedProgram, ProcessGroup, RunningCommand};

/// The longest time for all of it.
const MAX_TIME: Duration = Duration::from_secs(5);
/// The most bytes of the changes and new files together.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
const MAX_NEW_FILES: usize = 500;
const GRACE: Duration = Duration::from_millis(200);
/// Prints a patch that `git apply` takes, whatever the user's settings of diffs are.
const DIFF: [&str; 12] = [
    "diff",
    "--no-ext-diff",
    "--no-textconv",
    "--binary",
    "--no-color",
    "--no-renames",
    "--unified=3",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--ignore-submodules=dirty",
    "HEAD",
    "--",
];
/// Prints the names of the files in that patch.
const CHANGED_FILES: [&str; 7] =
    ["diff", "--name-only", "--no-renames", "--ignore-submodules=dirty", "-z", "HEAD", "--"];
const NEW_FILES: [&str; 4] = ["ls-files", "--others", "-z", "--exclude-standard"];
/// The flags with which git starts fewer of the programs that a repository names.
const QUIET: [&str; 4] = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];

/// Stores the state if this has not been done, before a call that may change something. A session that is replayed,
/// stores nothing or cannot confine git keeps none.
pub(super) async fn keep_start(env: &ToolEnv) {
    let shared = &env.shared;
    let outside = &shared.process.outside;
    let is_wanted = env.log.is_enabled()
        && shared.settings.keeps_start()
        && outside.project().is_none()
        && outside.can_confine();
    if is_wanted {
        // It happens once, so it needs no room in what each call holds.
        shared.start.get_or_init(|| Box::pin(store_start(env))).await;
    }
}

async fn store_start(env: &ToolEnv) {
    let folder = env.files.roots().real_cwd().to_path_buf();
    let looked_at = folder.clone();
    let is_in_repository =
        spawn_blocking(move || looked_at.ancestors().any(|above| above.join(".git").exists()));
    if !is_in_repository.await.unwrap_or(false) {
        return;
    }
    let git = SilentGit::new(env);
    let Some([top, commit]) = git.place(&folder).await else { return };
    let mut state = StartState { commit, ..StartState::default() };
    let reading = git.read_changes(Path::new(&top), &mut state);
    let result = match tokio::time::timeout(MAX_TIME, reading).await {
        Ok(result) => result,
        Err(_) => Err(format!("git took longer than {} s", MAX_TIME.as_secs())),
    };
    if let Err(why) = result {
        state.patch = Vec::new();
        state.untracked = Vec::new();
        state.incomplete = Some(why);
    }
    env.log.set_start(state).in_background();
}

/// git, in the sandbox and without a network.
struct SilentGit {
    environment: Environment,
}

impl SilentGit {
    fn new(env: &ToolEnv) -> SilentGit {
        let folders: Vec<_> = env.files.roots().folders().map(Path::to_path_buf).collect();
        let environment = env
            .shared
            .command_environment
            .for_silent_command(|folder| !folders.iter().any(|root| folder.starts_with(root)));
        SilentGit { environment: environment.for_sandbox().with("GIT_OPTIONAL_LOCKS", "0") }
    }

    /// The top folder of the repository and the commit; `None` without a commit.
    async fn place(&self, folder: &Path) -> Option<[String; 2]> {
        let words = ["rev-parse", "--show-toplevel", "HEAD"];
        let asking = self.run(folder, &words, MAX_BYTES);
        let printed = tokio::time::timeout(MAX_TIME, asking).await.ok()?.ok()?;
        let text = String::from_utf8(printed).ok()?;
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.try_into().ok()
    }

    /// Adds the changes that are not committed, and the new files.
    async fn read_changes(&self, top: &Path, state: &mut StartState) -> Result<(), String> {
        // The first change of the session waits for this.
        let (changed, new) =
            tokio::join!(self.list(top, &CHANGED_FILES), self.list(top, &NEW_FILES));
        let changed = changed?;
        if changed.iter().any(|name| is_secret_path(Path::new(name))) {
            return Err("a file that may hold secrets was changed".to_owned());
        }
        if !changed.is_empty() {
            state.patch = self.run(top, &DIFF, MAX_BYTES).await?;
        }
        let names = new?;
        if names.len() > MAX_NEW_FILES {
            return Err(format!("there were {} new files", names.len()));
        }
        let left = MAX_BYTES.saturating_sub(state.patch.len() as u64);
        let folder = top.to_path_buf();
        let reading = spawn_blocking(move || read_files(&folder, names, left));
        state.untracked =
            reading.await.unwrap_or_else(|_| Err("the new files cannot be read".to_owned()))?;
        Ok(())
    }

    /// Returns the names of files that git prints.
    async fn list(&self, top: &Path, words: &[&str]) -> Result<Vec<String>, String> {
        let listed = String::from_utf8(self.run(top, words, MAX_BYTES).await?)
            .map_err(|_| "a file has a name that is no text".to_owned())?;
        Ok(listed.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Returns what git prints.
    async fn run(&self, folder: &Path, words: &[&str], most: u64) -> Result<Vec<u8>, String> {
        let command_line = ["git"].iter().chain(&QUIET).chain(words).map(OsString::from).collect();
        let program = PipedProgram {
            command_line,
            workdir: folder.to_path_buf(),
            environment: self.environment.clone(),
            sandbox: Some(SandboxProfile::default()),
        };
        let started = ProcessGroup::start_piped(&program).await;
        let (mut group, pipes) = started.map_err(|_| "git could not be run".to_owned())?;
        drop(pipes.stdin);
        let (printed, ()) = tokio::join!(read_bounded(pipes.stdout, most), skip(pipes.stderr));
        let exit = group.wait_for_end().await;
        group.stop(GRACE).await;
        if printed.len() as u64 > most {
            return Err(format!("the changes had more than {} MiB", MAX_BYTES >> 20));
        }
        if exit.is_success() { Ok(printed) } else { Err("git failed".to_owned()) }
    }
}

/// Reads a little more than the most that is allowed, and no more.
async fn read_bounded(stream: impl AsyncRead + Unpin, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.take(most + 1).read_to_end(&mut bytes).await.ok();
    bytes
}

async fn skip(mut stream: impl AsyncRead + Unpin) {
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
}

/// Reads the new files. Links, special files and those that may hold secrets are left out.
fn read_files(top: &Path, names: Vec<String>, most: u64) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut left = most;
    let mut found = Vec::new();
    for name in names {
        let path = top.join(&name);
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        if !metadata.is_file() || is_secret_path(&path) {
            continue;
        }
        left = left
            .checked_sub(metadata.len())
            .ok_or_else(|| format!("the changes had more than {} MiB", MAX_BYTES >> 20))?;
        let content = std::fs::read(&path).map_err(|_| "a new file cannot be read".to_owned())?;
        found.push((name, content));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_are_bounded_and_those_with_secrets_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", ".env"] {
            turnwright_types::private_file::write(&folder.path().join(name), b"12345").unwrap();
        }
        let names = vec!["a".to_owned(), ".env".to_owned(), "gone".to_owned()];
        let found = read_files(folder.path(), names.clone(), 5).unwrap();
        assert_eq!(found, [("a".to_owned(), b"12345".to_vec())]);
        assert!(read_files(folder.path(), names, 4).is_err());
    }
}
