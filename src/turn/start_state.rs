//! Keeps the state of the project before the session's first change, of which a task for an evaluation can be made. git
//! runs in the sandbox for that, where it can change nothing, and only once in a session.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::spawn_blocking;

use crate::tools::ToolEnv;
use turnwright_sandbox::SandboxProfile;
use turnwright_store::start_state::StartState;
use turnwright_types::effect::is_secret_path;
use turnwright_types::redact;
use turnwright_workspace::exec::{Environment, PipedProgram, ProcessGroup, RunningCommand};
use turnwright_workspace::memory::find_secret;

/// The longest time for all of it.
const MAX_TIME: Duration = Duration::from_secs(5);
/// The most bytes of the changes and new files together.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
const MAX_NEW_FILES: usize = 500;
const GRACE: Duration = Duration::from_millis(200);
/// Prints a patch that `git apply` takes, whatever the user's settings of diffs are.
const DIFF: &str = "diff --no-ext-diff --no-textconv --binary --no-color --no-renames --unified=3 \
                    --src-prefix=a/ --dst-prefix=b/ --ignore-submodules=dirty HEAD --";
/// Prints the names of the files in that patch.
const CHANGED_FILES: &str = "diff --name-only --no-renames --ignore-submodules=dirty -z HEAD --";
const NEW_FILES: &str = "ls-files --others -z --exclude-standard";
/// git, with the flags with which it starts fewer of the programs that a repository names.
const QUIET_GIT: &str = "git -c core.fsmonitor=false -c core.hooksPath=/dev/null";

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
    let mut state = StartState::default();
    let reading = tokio::time::timeout(MAX_TIME, git.read_start(&folder, &mut state)).await;
    let result = reading
        .unwrap_or_else(|_| Err(format!("git took longer than {} s", MAX_TIME.as_secs())));
    if let Err(why) = result {
        let commit = state.commit;
        state = StartState { commit, incomplete: Some(why), ..StartState::default() };
    }
    if !state.commit.is_empty() {
        env.log.set_start(state).in_background();
    }
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

    /// Reads the commit, if there is one, the changes that are not committed, and the new files.
    async fn read_start(&self, folder: &Path, state: &mut StartState) -> Result<(), String> {
        let place = self.text(folder, "rev-parse --show-toplevel HEAD").await?;
        let (top, commit) = place.trim_end().rsplit_once('\n').ok_or("there is no commit")?;
        let top = PathBuf::from(top);
        commit.clone_into(&mut state.commit);
        // The first change of the session waits for this.
        let (changed, new) = tokio::join!(self.list(&top, CHANGED_FILES), self.list(&top, NEW_FILES));
        let changed = changed?;
        if changed.iter().any(|name| is_secret_path(Path::new(name))) {
            return Err("a file that may hold secrets was changed".to_owned());
        }
        if !changed.is_empty() {
            state.patch = Some(self.run(&top, DIFF).await?);
        }
        let names = new?;
        if names.len() > MAX_NEW_FILES {
            return Err(format!("there were {} new files", names.len()));
        }
        let taken = state.patch.as_ref().map_or(0, Vec::len);
        let left = MAX_BYTES.saturating_sub(taken as u64);
        let reading = spawn_blocking(move || read_files(&top, names, left));
        let read = reading.await.unwrap_or_else(|_| Err("the new files cannot be read".to_owned()));
        (state.untracked, state.incomplete) = read?;
        Ok(())
    }

    /// Returns the names of files that git prints.
    async fn list(&self, top: &Path, words: &str) -> Result<Vec<String>, String> {
        let listed = self.text(top, words).await?;
        Ok(listed.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    async fn text(&self, folder: &Path, words: &str) -> Result<String, String> {
        String::from_utf8(self.run(folder, words).await?)
            .map_err(|_| "a file has a name that is no text".to_owned())
    }

    /// Returns what git prints.
    async fn run(&self, folder: &Path, words: &str) -> Result<Vec<u8>, String> {
        let all = QUIET_GIT.split(' ').chain(words.split(' '));
        let program = PipedProgram {
            command_line: all.map(OsString::from).collect(),
            workdir: folder.to_path_buf(),
            environment: self.environment.clone(),
            sandbox: Some(SandboxProfile::default()),
        };
        let started = ProcessGroup::start_piped(&program).await;
        let (mut group, pipes) = started.map_err(|_| "git could not be run".to_owned())?;
        drop(pipes.stdin);
        let (printed, ()) = tokio::join!(read_bounded(pipes.stdout), skip(pipes.stderr));
        let exit = group.wait_for_end().await;
        group.stop(GRACE).await;
        if printed.len() as u64 > MAX_BYTES {
            return Err(format!("the changes had more than {} MiB", MAX_BYTES >> 20));
        }
        if exit.is_success() { Ok(printed) } else { Err("git failed".to_owned()) }
    }
}

/// Reads a little more than the most that is allowed, and no more.
async fn read_bounded(stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.take(MAX_BYTES + 1).read_to_end(&mut bytes).await.ok();
    bytes
}

async fn skip(mut stream: impl AsyncRead + Unpin) {
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
}

/// New files, each by its path and with its content, and why one is left out, if any is.
type NewFiles = (Vec<(String, Vec<u8>)>, Option<String>);

/// Reads the new files. Links, special files and those that may hold secrets are left out.
fn read_files(top: &Path, names: Vec<String>, most: u64) -> Result<NewFiles, String> {
    let mut left = most;
    let mut found = Vec::new();
    let mut incomplete = None;
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
        if holds_key(&content) {
            incomplete = Some("a new file seems to hold a key".to_owned());
        } else {
            found.push((name, content));
        }
    }
    Ok((found, incomplete))
}

fn holds_key(content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content);
    !redact::secrets(&text).is_empty() || find_secret(&text).is_some()
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
        assert_eq!(found, (vec![("a".to_owned(), b"12345".to_vec())], None));
        assert!(read_files(folder.path(), names, 4).is_err());
    }

    #[test]
    fn a_new_file_with_a_key_is_left_out_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let key = format!("token sk-ant-api03-{}\n", "a1B2".repeat(12));
        for (name, text) in [("a", "12345"), ("notes.txt", key.as_str())] {
            turnwright_types::private_file::write(&folder.path().join(name), text.as_bytes())
                .unwrap();
        }
        let names = vec!["a".to_owned(), "notes.txt".to_owned()];
        let (found, incomplete) = read_files(folder.path(), names, 500).unwrap();
        assert_eq!(found, [("a".to_owned(), b"12345".to_vec())]);
        assert_eq!(incomplete.as_deref(), Some("a new file seems to hold a key"));
    }
}
