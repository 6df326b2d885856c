//! Runs one handler: input on stdin, output and time bounded, and every process that it started ended afterwards.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handler::{Handler, HookAction};
use crate::output::HandlerEnd;
use crate::scripts::{Script, named_scripts};
use turnwright_sandbox::SandboxProfile;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::patience::sleep_until;
use turnwright_types::redact;
use turnwright_workspace::exec::{
    Environment, PipedProgram, ProcessGroup, ProcessPipes, RunningCommand,
};

/// The most bytes that a handler may print to stdout, and to stderr.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// The time that a handler has to exit after it was told to.
const GRACE: Duration = Duration::from_millis(200);
/// The time for which output is still read after the handler has exited.
const DRAIN: Duration = Duration::from_millis(100);
/// In the words of a program, which no shell reads, these stand for the folder of the project.
const PLACEHOLDERS: [&str; 2] = ["${CLAUDE_PROJECT_DIR}", "${TURNWRIGHT_PROJECT_DIR}"];

/// The environment in which handlers run.
#[derive(Clone, Debug)]
pub struct HookSite {
    /// The session's folder, as the user spells it.
    pub folder: PathBuf,
    /// The session's folder as a real path.
    pub project: PathBuf,
    /// The environment variables of handlers, without secrets.
    pub environment: Environment,
    /// The sandbox profile for handlers that need the sandbox; `None` if there is no sandbox.
    pub profile: Option<SandboxProfile>,
    /// The folder for temporary files of confined handlers. The profile lets them write to it.
    pub temp: Option<PathBuf>,
    /// The most bytes of memory that a confined handler may use.
    pub memory: Option<u64>,
    /// True if the user's own handlers run in the sandbox as well.
    pub confines_all: bool,
}

/// The result of running a handler, with its output.
pub(crate) struct HandlerRun {
    pub(crate) end: HandlerEnd,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl HandlerRun {
    fn failed(why: impl Into<String>) -> HandlerRun {
        let end = HandlerEnd::Failed(why.into());
        HandlerRun { end, stdout: String::new(), stderr: String::new() }
    }
}

/// Runs a handler and waits for its end.
pub(crate) async fn run_handler(
    handler: &Handler,
    (session, input): (&str, &str),
    site: &HookSite,
    cancel: &CancellationToken,
) -> HandlerRun {
    let words = handler.action.words();
    let project = site.project.clone();
    let variables = site.environment.clone();
    let looking =
        spawn_blocking(move || (named_scripts(&words, &project), variables.has_program("bash")));
    let Some(found) = cancel.run_until_cancelled(looking).await else {
        return HandlerRun { end: HandlerEnd::Cancelled, ..HandlerRun::failed("") };
    };
    // Files that cannot be checked might have changed since they were trusted.
    let Ok((scripts, has_bash)) = found else {
        return HandlerRun::failed("its files cannot be looked at");
    };
    if scripts != handler.scripts {
        return HandlerRun::failed(changed_script(&handler.scripts, &scripts));
    }
    if let Some(script) = scripts.iter().find(|script| script.sha256.is_none()) {
        let name = escape_hidden_line(&script.name);
        return HandlerRun::failed(format!("it did not run, because {name} cannot be compared"));
    }
    let sandbox = if handler.needs_sandbox(site.confines_all) {
        match site.profile.clone() {
            Some(profile) => Some(profile),
            None => return HandlerRun::failed("it did not run, because there is no sandbox here"),
        }
    } else {
        None
    };
    let folder = site.folder.as_os_str();
    let mut environment = site.environment.clone();
    if sandbox.is_some() {
        environment = environment.for_sandbox();
        for name in ["TMPDIR", "TMP", "TEMP"] {
            environment = site.temp.iter().fold(environment, |all, place| all.with(name, place));
        }
    }
    for name in ["CLAUDE_PROJECT_DIR", "TURNWRIGHT_PROJECT_DIR"] {
        environment = environment.with(name, folder);
    }
    for name in ["CLAUDE_CODE_SESSION_ID", "TURNWRIGHT_SESSION_ID"] {
        environment = environment.with(name, session);
    }
    let program = PipedProgram {
        command_line: command_line(&handler.action, has_bash, &site.project),
        workdir: site.project.clone(),
        environment,
        sandbox,
    };
    run_program(&program, input, (handler.time_limit, site.memory), cancel).await
}

/// Describes which of a handler's files differs from the one that was read with the hook file.
fn changed_script(before: &[Script], now: &[Script]) -> String {
    let new = now.iter().find(|script| !before.contains(script));
    let changed = new.or_else(|| before.iter().find(|script| !now.contains(script)));
    let name = escape_hidden_line(changed.map_or("a file", |script| script.name.as_str()));
    let is_trusted = before.iter().all(|script| script.sha256.is_some());
    let how = if is_trusted { "has changed since it was trusted" } else { "is not trusted" };
    format!("it did not run, because {name} {how}; run `/trust`")
}

fn command_line(action: &HookAction, has_bash: bool, project: &Path) -> Vec<OsString> {
    match action {
        HookAction::Program(words) => {
            let folder = project.to_string_lossy();
            let filled = words.iter().map(|word| {
                PLACEHOLDERS.iter().fold(word.clone(), |word, name| word.replace(name, &folder))
            });
            filled.map(OsString::from).collect()
        }
        HookAction::Line { line, is_powershell: true } => {
            let program = if cfg!(windows) { "powershell" } else { "pwsh" };
            vec![program.into(), "-NoProfile".into(), "-Command".into(), line.into()]
        }
        HookAction::Line { line, .. } if has_bash => {
            vec!["bash".into(), "-c".into(), line.into()]
        }
        HookAction::Line { line, .. } if cfg!(windows) => {
            vec!["cmd".into(), "/C".into(), line.into()]
        }
        HookAction::Line { line, .. } => vec!["sh".into(), "-c".into(), line.into()],
    }
}

async fn run_program(
    program: &PipedProgram,
    input: &str,
    (time_limit, memory): (Duration, Option<u64>),
    cancel: &CancellationToken,
) -> HandlerRun {
    let started = ProcessGroup::start_piped(program).await;
    let (mut group, pipes) = match started {
        Ok(started) => started,
        Err(error) => {
            return HandlerRun::failed(format!(
                "it could not be started: {}",
                io_error_text(&error)
            ));
        }
    };
    let ProcessPipes { mut stdin, stdout, stderr } = pipes;
    let mut printed = Vec::new();
    let mut messages = Vec::new();
    let is_confined = program.sandbox.is_some();
    let too_much_memory = group.memory_above(memory.filter(|_| is_confined));
    let end = {
        let conversation = async {
            let writing = async move {
                // The handler may exit without reading all of its input.
                stdin.write_all(input.as_bytes()).await.ok();
                Ok(())
            };
            let printing = collect(stdout, &mut printed);
            tokio::try_join!(writing, printing, collect(stderr, &mut messages)).map(|_| ())
        };
        let mut talking = pin!(conversation.fuse());
        let ended = {
            let mut ending = pin!(wait_for_end(&mut group, time_limit, too_much_memory, cancel));
            loop {
                tokio::select! {
                    biased;
                    ended = &mut ending => break ended,
                    talked = &mut talking => if talked.is_err() {
                        let most = MAX_OUTPUT_BYTES / 1024;
                        let why = format!("it printed more than {most} KiB, and was stopped");
                        break HandlerEnd::Failed(why);
                    }
                }
            }
        };
        // Processes that the handler left running would keep the pipes open.
        group.stop(GRACE).await;
        if !talking.is_terminated() {
            tokio::time::timeout(DRAIN, &mut talking).await.ok();
        }
        ended
    };
    HandlerRun { end, stdout: text_of(&printed), stderr: text_of(&messages) }
}

async fn wait_for_end(
    group: &mut ProcessGroup,
    time_limit: Duration,
    too_much_memory: impl Future<Output = u64>,
    cancel: &CancellationToken,
) -> HandlerEnd {
    tokio::select! {
        biased;
        () = cancel.cancelled() => HandlerEnd::Cancelled,
        exit = group.wait_for_end() => HandlerEnd::Exited(exit.code()),
        _ = too_much_memory => {
            HandlerEnd::Failed("it held too much memory, and was stopped".to_owned())
        }
        () = sleep_until(Instant::now() + time_limit) => {
            let seconds = time_limit.as_secs_f32();
            HandlerEnd::Failed(format!("it did not end within {seconds} s, and was stopped"))
        }
    }
}

/// Reads a stream to its end into `kept`.
///
/// # Errors
/// Fails if the stream is too long.
async fn collect(mut stream: impl AsyncRead + Unpin, kept: &mut Vec<u8>) -> Result<(), ()> {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > MAX_OUTPUT_BYTES {
            return Err(());
        }
    }
    Ok(())
}

/// Decodes output without secrets, because the text is shown, stored and sent to the model.
fn text_of(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    redact::redact_in_place(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_the_folder_of_the_project_without_a_shell() {
        let words = ["${CLAUDE_PROJECT_DIR}/a.sh", "--in=${TURNWRIGHT_PROJECT_DIR}", "$HOME"];
        let action = HookAction::Program(words.map(str::to_owned).into());
        let line = command_line(&action, true, Path::new("/w s"));
        assert_eq!(line, ["/w s/a.sh", "--in=/w s", "$HOME"]);
        let action = HookAction::Line { line: words[0].to_owned(), is_powershell: false };
        assert_eq!(command_line(&action, true, Path::new("/w s")), ["bash", "-c", words[0]]);
    }
}
