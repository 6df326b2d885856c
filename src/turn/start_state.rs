//! Keeps the state of the project before the session's first change, of which a task for an evaluation can be made. git
//! runs in the sandbox for that, where it can change nothing of the project, and only once in a session.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::spawn_blocking;

use crate::tools::ToolEnv;
use turnwright_sandbox::SandboxProfile;
use turnwright_store::start_state::StartState;
use turnwright_types::effect::is_secret_path;
use turnwright_types::redact;
use turnwright_workspace::exec::{PipedProgram, ProcessGroup, RunningCommand};
use turnwright_workspace::memory::find_secret;
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The longest time for all of it.
const MAX_TIME: Duration = Duration::from_secs(5);
/// The most bytes of the changes.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
const GRACE: Duration = Duration::from_millis(200);
/// Prints the top folder, the commit, and the places of the index and of the objects, a line each. The last two may be
/// relative.
const PLACES: &str = "rev-parse --show-toplevel HEAD --git-path index --git-path objects";
/// Names the new files in the index, so that a patch has them, too.
const ADD_NEW_FILES: &str = "add --intent-to-add .";
/// Prints the files in the patch: the numbers of new and old lines, which are dashes for a binary file, and the name.
const CHANGED_FILES: &str = "diff --no-ext-diff --no-textconv --numstat --no-renames \
                             --ignore-submodules=dirty -z HEAD --";
/// Prints a patch that `git apply` takes, whatever the user's settings of diffs are.
const DIFF: &str = "diff --no-ext-diff --no-textconv --binary --no-color --no-renames --unified=3 \
                    --src-prefix=a/ --dst-prefix=b/ --ignore-submodules=dirty HEAD --";
/// git, with the flags with which it starts fewer of the programs that a repository names.
const QUIET_GIT: &str = "git -c core.fsmonitor=false -c core.hooksPath=/dev/null";

/// Stores the state if this has not been done, before a call that may change something. A session that is replayed,
/// stores nothing or cannot confine git keeps none.
pub(super) async fn keep_start(env: &ToolEnv) {
    let shared = &env.shared;
    let outside = &shared.process.outside;
    let is_wanted = env.log.is_enabled()
        && shared.settings.sessions.keep_start
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
    let preparing = spawn_blocking(move || {
        looked_at.ancestors().find(|above| above.join(".git").exists())?;
        let spare = PrivateTempFolder::create().ok()?;
        let place = real_path(spare.path()).ok()?;
        Some((spare, place))
    });
    let Some((_spare, place)) = preparing.await.ok().flatten() else { return };
    let git = silent_git(env, folder, &place);
    let mut state = StartState::default();
    let reading = tokio::time::timeout(MAX_TIME, read_start(git, &place, &mut state)).await;
    let result =
        reading.unwrap_or_else(|_| Err(format!("git took longer than {} s", MAX_TIME.as_secs())));
    state.incomplete = result.err();
    if !state.commit.is_empty() {
        env.log.set_start(state).in_background();
    }
}

/// Reads the commit, if there is one, and the changes that are not committed, with the new files. git gets a copy of
/// the index for that, and writes objects into the spare folder.
async fn read_start(
    mut git: PipedProgram,
    spare: &Path,
    state: &mut StartState,
) -> Result<(), String> {
    let printed = run_git(&git, PLACES).await?;
    let lines: Vec<_> = printed.lines().collect();
    let [top, commit, index, objects] = lines[..] else {
        return Err("the repository is in a folder with an unusual name".to_owned());
    };
    commit.clone_into(&mut state.commit);
    let original = git.workdir.join(index);
    let copy = spare.join("index");
    git.environment = git
        .environment
        .with("GIT_INDEX_FILE", &copy)
        .with("GIT_OBJECT_DIRECTORY", spare)
        .with("GIT_ALTERNATE_OBJECT_DIRECTORIES", git.workdir.join(objects));
    git.workdir = PathBuf::from(top);
    // Reading a FIFO could block for ever.
    let copying =
        spawn_blocking(move || original.is_file() && std::fs::copy(original, copy).is_ok());
    if !copying.await.unwrap_or(false) {
        return Err("the index of git cannot be read".to_owned());
    }
    run_git(&git, ADD_NEW_FILES).await?;
    let listed = run_git(&git, CHANGED_FILES).await?;
    if listed.is_empty() {
        return Ok(());
    }
    let mut names = listed.split('\0').filter_map(|file| file.splitn(3, '\t').nth(2));
    if names.any(|name| is_secret_path(Path::new(name))) {
        return Err("a file that may hold secrets was changed".to_owned());
    }
    let binary_names = listed.split('\0').filter_map(|file| file.strip_prefix("-\t-\t"));
    let binary: Vec<_> = binary_names.map(|name| git.workdir.join(name)).collect();
    let changes = run_git(&git, DIFF).await?;
    // A patch has binary files in another form.
    let looking = spawn_blocking(move || binary.iter().any(|path| may_hold_key(path)));
    if adds_key(&changes) || looking.await.unwrap_or(true) {
        return Err("a change seems to hold a key".to_owned());
    }
    state.changes = changes;
    Ok(())
}

/// git without arguments, in the sandbox and without a network. It may change the spare folder only.
fn silent_git(env: &ToolEnv, workdir: PathBuf, spare: &Path) -> PipedProgram {
    let folders: Vec<_> = env.files.roots().folders().map(Path::to_path_buf).collect();
    let silent = env
        .shared
        .command_environment
        .for_silent_command(|path| !folders.iter().any(|root| path.starts_with(root)));
    PipedProgram {
        command_line: QUIET_GIT.split(' ').map(OsString::from).collect(),
        workdir,
        environment: silent.for_sandbox().with("GIT_OPTIONAL_LOCKS", "0"),
        sandbox: Some(SandboxProfile {
            writable: vec![spare.to_path_buf()],
            ..SandboxProfile::default()
        }),
    }
}

/// Returns what git prints.
async fn run_git(git: &PipedProgram, arguments: &str) -> Result<String, String> {
    let mut program = git.clone();
    program.command_line.extend(arguments.split_whitespace().map(OsString::from));
    let started = ProcessGroup::start_piped(&program).await;
    let (mut group, pipes) = started.map_err(|_| "git could not be run".to_owned())?;
    drop(pipes.stdin);
    let (printed, _) = tokio::join!(read_bounded(pipes.stdout), read_bounded(pipes.stderr));
    let exit = group.wait_for_end().await;
    group.stop(GRACE).await;
    if printed.len() as u64 > MAX_BYTES {
        return Err(format!("the changes had more than {} MiB", MAX_BYTES >> 20));
    }
    if !exit.is_success() {
        return Err("git failed".to_owned());
    }
    String::from_utf8(printed).map_err(|_| "a changed file is not UTF-8".to_owned())
}

/// Reads a little more than the most that is allowed, and no more.
async fn read_bounded(stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.take(MAX_BYTES + 1).read_to_end(&mut bytes).await.ok();
    bytes
}

/// Returns true if a patch adds lines that look like a key.
fn adds_key(patch: &str) -> bool {
    let added: Vec<_> = patch.lines().filter_map(|line| line.strip_prefix('+')).collect();
    has_key(&added.join("\n"))
}

/// Returns true if a binary file has what looks like a key, or if that is not known. A removed file has none.
fn may_hold_key(path: &Path) -> bool {
    match std::fs::symlink_metadata(path) {
        Err(error) => error.kind() != ErrorKind::NotFound,
        Ok(metadata) if !metadata.is_file() || metadata.len() > MAX_BYTES => true,
        Ok(_) => std::fs::read(path).map_or(true, |mut bytes| {
            // A text with two bytes for each character is binary, too.
            bytes.retain(|byte| *byte != 0);
            has_key(&String::from_utf8_lossy(&bytes))
        }),
    }
}

fn has_key(text: &str) -> bool {
    !redact::secrets(text).is_empty() || find_secret(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_key_in_the_added_lines_is_found() {
        let key = format!("token sk-ant-api03-{}", "a1B2".repeat(12));
        for (patch, expected) in [
            ("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-12345\n+23456\n".to_owned(), false),
            (format!("@@ -0,0 +1,2 @@\n+first\n+{key}\n"), true),
            (format!("@@ -1 +0,0 @@\n-{key}\n"), false),
        ] {
            assert_eq!(adds_key(&patch), expected, "{patch}");
        }
    }

    #[test]
    fn a_key_in_a_binary_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let key = format!("token sk-ant-api03-{}", "a1B2".repeat(12));
        let wide: Vec<u8> = key.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (name, bytes, expected) in [
            ("plain", &b"\0\x01token"[..], false),
            ("table", [b"\0\x01".as_slice(), key.as_bytes()].concat().as_slice(), true),
            ("wide", wide.as_slice(), true),
        ] {
            let path = folder.path().join(name);
            turnwright_types::private_file::write(&path, bytes).unwrap();
            assert_eq!(may_hold_key(&path), expected, "{name}");
        }
        assert!(!may_hold_key(&folder.path().join("removed")) && may_hold_key(folder.path()));
    }
}
