//! Runs one handler: input on stdin, output and time bounded. Every process that it started ends with it, unless a
//! handler outside the sandbox has ended by itself: a player of a sound or a daemon of the user then goes on.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handler::Handler;
use crate::scripts::{HookAction, Script, named_scripts};
use turnwright_sandbox::SandboxProfile;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::hash::sha256_hex;
use turnwright_types::patience::sleep_until;
use turnwright_types::redact;
use turnwright_workspace::exec::{
    Environment, PipedProgram, ProcessGroup, RunningCommand, find_in_path, program_at,
};

/// The most bytes that a handler may print to stdout, and to stderr.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
/// The time that a handler has to exit after it was told to.
const GRACE: Duration = Duration::from_millis(200);
/// The variable with the marks of the hooks that have started a program, for the sessions that this starts. Sessions
/// keep no variable whose name begins with `TURNWRIGHT`.
const RUNNING_HOOKS: &str = "IN_TURNWRIGHT_HOOKS";
/// The variables that hold the folder of the project.
const FOLDER_VARIABLES: [&str; 2] = ["CLAUDE_PROJECT_DIR", "TURNWRIGHT_PROJECT_DIR"];
/// The program that runs PowerShell lines, with its options. Most installations of Windows run scripts only with
/// `Bypass`, which Claude Code sets as well.
const POWERSHELL: &str = if cfg!(windows) {
    "powershell -NoProfile -NonInteractive -ExecutionPolicy Bypass -Command"
} else {
    "pwsh -NoProfile -NonInteractive -Command"
};
/// Follows a PowerShell line, so that the exit code of a program or script in it, such as 2, does not become 1.
const KEEP_EXIT_CODE: &str = "\nif (-not $?) { if ($LASTEXITCODE) { exit $LASTEXITCODE }; exit 1 }";

/// The environment in which handlers run.
#[derive(Clone, Debug)]
pub struct HookSite {
    /// The session's folder, a real path.
    pub project: PathBuf,
    /// All folders of the session, real paths: a command may have written programs there.
    pub roots: Vec<PathBuf>,
    /// The folder in which handlers start: the same, or a drive that the client named for a share.
    pub workdir: PathBuf,
    /// The environment variables of handlers, without secrets.
    pub environment: Arc<Environment>,
    /// The input fields that all events have, as a JSON object.
    pub fields: Value,
    /// The sandbox for handlers that need one; `None` if there is none.
    pub sandbox: Option<Arc<HookSandbox>>,
    /// True if the user's own handlers run in the sandbox as well.
    pub confines_all: bool,
}

/// The sandbox of handlers.
#[derive(Clone, Debug)]
pub struct HookSandbox {
    pub profile: SandboxProfile,
    /// The folder for temporary files, which the profile lets handlers write to.
    pub temp: Option<PathBuf>,
    /// The most bytes of memory that a handler may use.
    pub memory: Option<u64>,
}

/// The exit of a handler, with its output.
pub(crate) struct HandlerExit {
    /// The exit code; `None` if a signal ended the handler.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The reason why a handler has not exited by itself.
pub(crate) enum NoExit {
    /// The user cancelled the turn or call that the handler ran for, or it has itself started this session.
    Cancelled,
    /// The handler must not run: because of a project file that it names, or because there is no sandbox.
    Withheld(String),
    /// The handler could not be started, or was stopped.
    Failed(String),
}

/// Returns the mark of a handler in [`RUNNING_HOOKS`]. The same program has another one for another event, so that it
/// still guards the calls of a session that it starts when a turn ends.
pub(crate) fn mark_of(handler: &Handler) -> String {
    sha256_hex(format!("{:?} {:?}", handler.event, handler.action).as_bytes())
}

/// Runs a handler and waits for its end.
pub(crate) async fn run_handler(
    handler: &Handler,
    input: &str,
    site: &HookSite,
    cancel: &CancellationToken,
) -> Result<HandlerExit, NoExit> {
    let mark = mark_of(handler);
    let running = site.environment.get(RUNNING_HOOKS).unwrap_or_default().to_string_lossy();
    if running.contains(&mark) {
        return Err(NoExit::Cancelled);
    }
    let action = handler.action.clone();
    let place = site.clone();
    let looking = spawn_blocking(move || {
        (named_scripts(&action, &place.project), find_program(&action, &place))
    });
    let looked = cancel.run_until_cancelled(looking).await.ok_or(NoExit::Cancelled)?;
    // Files that cannot be checked might have changed since they were trusted.
    let (scripts, found) =
        looked.map_err(|_| NoExit::Withheld("its files cannot be looked at".to_owned()))?;
    if let Some(file) = changed_file(&handler.scripts, &scripts) {
        let why = format!("it did not run, because {file} is not what you trusted; run `/trust`");
        return Err(NoExit::Withheld(why));
    }
    let sandbox = site.sandbox.as_deref().filter(|_| handler.needs_sandbox(site.confines_all));
    if sandbox.is_none() && handler.needs_sandbox(site.confines_all) {
        let why = "it did not run, because there is no sandbox here";
        return Err(NoExit::Withheld(why.to_owned()));
    }
    let running = format!("{running} {mark}");
    let mut environment = site.environment.as_ref().clone().with(RUNNING_HOOKS, running);
    if let Some(sandbox) = sandbox {
        environment = environment.for_sandbox();
        if let Some(temp) = &sandbox.temp {
            environment = environment.with_temp_folder(temp);
        }
    }
    // By its name alone, one in the session's folders would be found.
    if found.is_none() && matches!(handler.action, HookAction::PowerShell(_)) {
        return Err(NoExit::Failed("it could not be started: PowerShell was not found".to_owned()));
    }
    let program = PipedProgram {
        command_line: command_line(&handler.action, found.as_deref(), &site.project),
        workdir: site.workdir.clone(),
        environment,
        sandbox: sandbox.map(|sandbox| sandbox.profile.clone()),
    };
    let memory = sandbox.and_then(|sandbox| sandbox.memory);
    run_program(&program, input, (handler.time_limit, memory), cancel).await
}

/// Returns the name of a file that is not the one that was read with the hook file, or that cannot be compared.
fn changed_file(before: &[Script], now: &[Script]) -> Option<String> {
    let mut all = now.iter().chain(before);
    let changed = all.find(|script| {
        script.sha256.is_none() || !before.contains(script) || !now.contains(script)
    });
    changed.map(|script| escape_hidden_line(&script.name))
}

/// Finds the shell that runs command lines, or on Windows the file of a program, such as `npx.cmd`. The bash of Windows
/// starts WSL, where the paths of the project mean nothing, so git's is used instead. Blocks.
fn find_program(action: &HookAction, site: &HookSite) -> Option<PathBuf> {
    let HookSite { environment, roots, .. } = site;
    let (name, is_shell) = match action {
        HookAction::Program(_) if !cfg!(windows) => return None,
        HookAction::Program(words) => (words.first()?.as_str(), words[0] == "bash"),
        HookAction::PowerShell(_) => (POWERSHELL.split(' ').next()?, true),
        HookAction::Line(_) => ("bash", true),
    };
    let outside =
        environment.for_silent_command(|folder| !environment.is_in_project(folder, roots));
    let path = if is_shell { outside.get("PATH") } else { environment.get("PATH") };
    let found = find_in_path(Path::new(name), path);
    if !cfg!(windows) || matches!(action, HookAction::PowerShell(_)) {
        return found;
    }
    found.filter(|file| !starts_wsl(&file.to_string_lossy())).or_else(|| {
        let git = find_in_path(Path::new("git"), path).filter(|_| name == "bash")?;
        program_at(&git.parent()?.parent()?.join("bin").join("bash"))
    })
}

/// Returns true for the path of the `bash.exe` that Windows brings.
fn starts_wsl(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    ["\\system32\\", "\\windowsapps\\"].iter().any(|folder| lower.contains(folder))
}

/// Replaces the variables of the folder, as bash names them, by what `form` makes of their names.
fn with_folder(line: &str, form: impl Fn(&str) -> String) -> String {
    FOLDER_VARIABLES.iter().fold(line.to_owned(), |line, name| {
        line.replace(&format!("${{{name}}}"), &form(name)).replace(&format!("${name}"), &form(name))
    })
}

/// The words that start a handler, of which `found` is the program or the shell.
fn command_line(action: &HookAction, found: Option<&Path>, project: &Path) -> Vec<OsString> {
    let (shell, line) = match action {
        HookAction::Program(words) => {
            let folder = project.to_string_lossy();
            let filled = words.iter().map(|word| {
                // A word may be a line for a shell, which reads `$NAME` itself.
                FOLDER_VARIABLES
                    .iter()
                    .fold(word.clone(), |word, name| word.replace(&format!("${{{name}}}"), &folder))
            });
            let arguments = filled.skip(usize::from(found.is_some())).map(OsString::from);
            return found.map(OsString::from).into_iter().chain(arguments).collect();
        }
        HookAction::PowerShell(line) => {
            (POWERSHELL, with_folder(line, |name| format!("${{env:{name}}}")) + KEEP_EXIT_CODE)
        }
        HookAction::Line(line) => match found {
            Some(bash) => return vec![bash.into(), "-c".into(), line.into()],
            None if cfg!(windows) => {
                ("cmd /d /s /c", with_folder(line, |name| format!("%{name}%")))
            }
            None => ("/bin/sh -c", line.clone()),
        },
    };
    let mut words: Vec<OsString> =
        shell.split(' ').chain([line.as_str()]).map(OsString::from).collect();
    // Only PowerShell can have been found here.
    if let Some(powershell) = found {
        words[0] = powershell.into();
    }
    words
}

async fn run_program(
    program: &PipedProgram,
    input: &str,
    (time_limit, memory): (Duration, Option<u64>),
    cancel: &CancellationToken,
) -> Result<HandlerExit, NoExit> {
    let started = ProcessGroup::start_piped(program).await;
    let (mut group, pipes) = started.map_err(|error| {
        NoExit::Failed(format!("it could not be started: {}", io_error_text(&error)))
    })?;
    let too_long = CancellationToken::new();
    let too_much_memory = group.memory_above(memory);
    let ending = async {
        let end = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(NoExit::Cancelled),
            () = too_long.cancelled() => Ok(None),
            exit = group.wait_for_end() => Ok(exit.code()),
            _ = too_much_memory => stopped("it held too much memory"),
            () = sleep_until(Instant::now() + time_limit) => {
                stopped(&format!("it did not end within {} s", time_limit.as_secs_f32()))
            }
        };
        if program.sandbox.is_none() && matches!(end, Ok(Some(_))) {
            group.leave_running();
        } else {
            group.stop(GRACE).await;
        }
        end
    };
    let talking = pipes.talk(input.as_bytes(), ending, |kept, bytes| {
        kept.extend_from_slice(bytes);
        if kept.len() > MAX_OUTPUT_BYTES {
            kept.truncate(MAX_OUTPUT_BYTES);
            too_long.cancel();
        }
    });
    let (end, printed, messages) = talking.await;
    let code = end?;
    if too_long.is_cancelled() {
        return stopped(&format!("it printed more than {} KiB", MAX_OUTPUT_BYTES / 1024));
    }
    Ok(HandlerExit { code, stdout: text_of(&printed), stderr: text_of(&messages) })
}

fn stopped<T>(why: &str) -> Result<T, NoExit> {
    Err(NoExit::Failed(format!("{why}, and was stopped")))
}

/// Decodes output without secrets, because the text is shown, stored and sent to the model.
fn text_of(bytes: &[u8]) -> String {
    redact::text(&String::from_utf8_lossy(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use turnwright_workspace::real_path;

    use super::*;

    #[test]
    fn a_program_is_told_the_folder_of_the_project_without_a_shell() {
        let for_shell = "cat \"$CLAUDE_PROJECT_DIR/a\"";
        let words = ["${CLAUDE_PROJECT_DIR}/a.sh", "--in=${TURNWRIGHT_PROJECT_DIR}", for_shell];
        let action = HookAction::Program(words.map(str::to_owned).into());
        let line = command_line(&action, None, Path::new("/w s"));
        assert_eq!(line, ["/w s/a.sh", "--in=/w s", for_shell]);
        let batch_file = Path::new("C:\\nodejs\\npx.cmd");
        let line = command_line(&action, Some(batch_file), Path::new("/w s"));
        assert_eq!(line, ["C:\\nodejs\\npx.cmd", "--in=/w s", for_shell]);
        let action = HookAction::Line(words[0].to_owned());
        let line = command_line(&action, Some(Path::new("/b/bash")), Path::new("/w s"));
        assert_eq!(line, ["/b/bash", "-c", words[0]]);
    }

    #[test]
    fn a_powershell_hook_refuses_with_its_exit_code_and_finds_the_project() {
        for written in ["$CLAUDE_PROJECT_DIR", "${CLAUDE_PROJECT_DIR}", "$env:CLAUDE_PROJECT_DIR"] {
            let action = HookAction::PowerShell(format!("& \"{written}/guard.ps1\""));
            let words = command_line(&action, None, Path::new("/w s"));
            let line = words.last().unwrap().to_string_lossy();
            let found = line.replace("${env:CLAUDE_PROJECT_DIR}", "$env:CLAUDE_PROJECT_DIR");
            assert!(found.starts_with("& \"$env:CLAUDE_PROJECT_DIR/guard.ps1\"\n"), "{line}");
            assert!(line.contains("{ exit $LASTEXITCODE }"), "{line}");
            let bypasses = words.contains(&OsString::from("Bypass"));
            assert_eq!(bypasses, cfg!(windows), "scripts run on any Windows");
        }
        let line = with_folder("\"$TURNWRIGHT_PROJECT_DIR\"/a.cmd $X", |name| format!("%{name}%"));
        assert_eq!(line, "\"%TURNWRIGHT_PROJECT_DIR%\"/a.cmd $X");
    }

    fn site(project: &Path, environment: Environment) -> HookSite {
        HookSite {
            project: project.to_path_buf(),
            roots: vec![project.to_path_buf()],
            workdir: project.to_path_buf(),
            environment: Arc::new(environment),
            fields: Value::Null,
            sandbox: None,
            confines_all: false,
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_shell_of_a_project_runs_no_hook() {
        let base = tempfile::tempdir().unwrap();
        let own = real_path(base.path()).unwrap();
        let project = own.join("p");
        let folders = [project.join("bin"), own.clone()];
        for folder in &folders {
            std::fs::create_dir_all(folder).unwrap();
            // A copy of a program has its mode.
            std::fs::copy("/bin/sh", folder.join("bash")).unwrap();
            std::fs::copy("/bin/sh", folder.join("pwsh")).unwrap();
        }
        let path = std::env::join_paths(&folders).unwrap();
        let line = HookAction::Line("true".to_owned());
        let powershell = HookAction::PowerShell("true".to_owned());
        for (root, home, expected) in [
            (&project, "/gone", own.join("bash")),
            (&own.join("elsewhere"), "/gone", project.join("bin/bash")),
            (&own, own.to_str().unwrap(), project.join("bin/bash")),
        ] {
            let environment = Environment::default().with("PATH", &path).with("HOME", home);
            let mut site = site(Path::new("/elsewhere"), environment);
            site.roots.push(root.clone());
            assert_eq!(find_program(&line, &site), Some(expected.clone()), "{root:?} {home}");
            let found = find_program(&powershell, &site);
            assert_eq!(found, Some(expected.with_file_name("pwsh")), "{root:?} {home}");
        }
    }

    #[cfg(windows)]
    #[test]
    fn a_program_of_a_hook_may_be_a_batch_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("guard.cmd");
        std::fs::File::create(&file).unwrap();
        let environment = Environment::default().with("PATH", folder.path());
        for (name, expected) in [("guard", Some(file)), ("none", None)] {
            let action = HookAction::Program(vec![name.to_owned()]);
            assert_eq!(
                find_program(&action, &site(Path::new("C:\\p"), environment.clone())),
                expected
            );
        }
    }

    #[test]
    fn the_bash_of_windows_runs_no_hook() {
        for (path, expected) in [
            ("C:\\Windows\\System32\\bash.exe", true),
            ("c:\\windows\\system32\\bash.exe", true),
            ("C:\\Users\\a\\AppData\\Local\\Microsoft\\WindowsApps\\bash.exe", true),
            ("C:\\Program Files\\Git\\bin\\bash.exe", false),
            ("/usr/bin/bash", false),
        ] {
            assert_eq!(starts_wsl(path), expected, "{path}");
        }
    }
}
